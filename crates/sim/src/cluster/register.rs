//! The register of the nodes: others go on before and behind each look and each change, and some outcomes are
//! unknown.
//!
//! On several hosts a question is on its way to the register, and so is its answer: both for some time, some
//! for as long as a lease or for ever, and ways are cut in one direction. What arrives late is done all the
//! same, unless something has arrived that was asked later: an outcome that is unknown is settled by the next
//! answer.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

use kelix_register::{MemoryRegister, Register, Swapped, View};
use kelix_types::{Error, ErrorKind, Result, mark};

use super::views::Views;
use crate::scheduler;

/// One in so many changes fails, though it may have been done.
const CHANGES_A_FAILURE: u64 = 40;
/// One in so many ways takes long.
const WAYS_A_LONG_ONE: u64 = 20;
/// One in so many is for ever.
const WAYS_A_LOSS: u64 = 60;

/// The ways of a node to the register and back.
#[derive(Clone)]
pub struct Ways(Arc<Mutex<Both>>);

#[derive(Clone, Copy)]
struct Both {
    /// Until when nothing comes there, and nothing back.
    cut_until_ns: [u64; 2],
    /// The longest that a way takes most of the time, and the longest of all.
    delay_ns_max: u64,
    long_ns_max: u64,
    /// How long a node waits for an answer.
    limit_ns: u64,
    is_reliable: bool,
    /// Nothing is late or lost any more.
    is_quiet: bool,
    /// The last question, and the last one that arrived, or is to arrive.
    asked: u64,
    arrived: u64,
}

/// To the register, and back.
const THERE: usize = 0;
const BACK: usize = 1;

impl Ways {
    /// Ways that take so long most of the time; the longest that one takes; and for how long a node waits for
    /// an answer.
    pub fn new(delay_ns_max: u64, (long_ns_max, limit_ns): (u64, u64), is_reliable: bool) -> Ways {
        let cut_until_ns = [0; 2];
        let (is_quiet, asked, arrived) = (false, 0, 0);
        let both =
            Both { cut_until_ns, delay_ns_max, long_ns_max, limit_ns, is_reliable, is_quiet, asked, arrived };
        Ways(Arc::new(Mutex::new(both)))
    }

    fn both(&self) -> MutexGuard<'_, Both> {
        self.0.lock().expect("no panic under this lock")
    }

    /// Lets nothing come there, or nothing come back, for so much time.
    pub fn cut(&self, is_back: bool, for_ns: u64) {
        self.both().cut_until_ns[usize::from(is_back)] = scheduler::now_ns() + for_ns;
    }

    /// Lets all come in time from now on, or not any more.
    pub fn set_quiet(&self, is_quiet: bool) {
        let mut both = self.both();
        both.is_quiet = is_quiet;
        both.cut_until_ns = [0; 2];
    }

    /// The process has ended, and nothing arrives of what it had under way: a view without others might come
    /// into force in which it alone is in sync.
    pub fn end_process(&self) {
        let mut both = self.both();
        both.arrived = both.asked;
    }

    /// The number of one more question.
    fn number(&self) -> u64 {
        let mut both = self.both();
        both.asked += 1;
        both.asked
    }

    /// Whether a question is of use that has arrived.
    fn arrives(&self, number: u64) -> bool {
        let mut both = self.both();
        let is_newest = number > both.arrived;
        both.arrived = both.arrived.max(number);
        is_newest
    }

    /// How long something is on its way. `None`: for ever.
    fn delay_ns(&self, way: usize) -> Option<u64> {
        let both = *self.both();
        let delay_ns = 1 + scheduler::random_below(both.delay_ns_max);
        if both.is_quiet {
            return Some(delay_ns);
        }
        let cut_ns = both.cut_until_ns[way].saturating_sub(scheduler::now_ns());
        let is_lost = !both.is_reliable && scheduler::random_below(WAYS_A_LOSS) == 0;
        if is_lost || cut_ns > 0 && scheduler::random_below(2) == 0 {
            return None;
        }
        let is_long = scheduler::random_below(WAYS_A_LONG_ONE) == 0;
        let long_ns = if is_long { scheduler::random_below(both.long_ns_max) } else { 0 };
        Some(cut_ns + long_ns + delay_ns)
    }
}

/// A node's handle on the register.
pub struct NodeRegister {
    pub register: MemoryRegister,
    pub views: Views,
    pub is_reliable: bool,
    /// Where the register is on another host.
    pub ways: Option<Ways>,
}

/// Lets others go on, now and then.
fn pause() {
    if scheduler::is_noticed() && scheduler::random_below(2) == 0 {
        scheduler::give_way();
    }
}

impl NodeRegister {
    fn fails(&self) -> bool {
        !self.is_reliable && scheduler::is_noticed() && scheduler::random_below(CHANGES_A_FAILURE) == 0
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::System, "change view", "the register does not answer")
}

/// What comes of a question, once it has come back.
type Answer<T> = Rc<RefCell<Option<Result<T>>>>;

/// Asks something of a register on another host.
fn ask<T: 'static>(ways: &Ways, act: impl FnOnce() -> Result<T> + 'static) -> Result<T> {
    let (answer, task): (Answer<T>, _) = (Rc::default(), scheduler::current());
    let (number, until_ns) = (ways.number(), scheduler::now_ns() + ways.both().limit_ns);
    if let Some(there_ns) = ways.delay_ns(THERE) {
        let (ways, told) = (ways.clone(), answer.clone());
        scheduler::after(there_ns, move || {
            if !ways.arrives(number) {
                return;
            }
            let said = act();
            let Some(back_ns) = ways.delay_ns(BACK) else { return };
            scheduler::after(back_ns, move || {
                *told.borrow_mut() = Some(said);
                scheduler::wake(task);
            });
        });
    }
    loop {
        let now_ns = scheduler::now_ns();
        if let Some(said) = answer.borrow_mut().take() {
            return said;
        }
        if now_ns >= until_ns {
            mark!("register did not answer");
            return Err(failed());
        }
        scheduler::sleep(until_ns - now_ns);
    }
}

fn swap(register: &mut MemoryRegister, views: &Views, expected: u64, view: &View) -> Result<Swapped> {
    let swapped = register.swap(expected, view)?;
    if swapped == Swapped::Done {
        views.note(view);
    }
    Ok(swapped)
}

impl Register for NodeRegister {
    fn read(&mut self) -> Result<Option<View>> {
        if let Some(ways) = &self.ways {
            let mut register = self.register.clone();
            return ask(ways, move || register.read());
        }
        pause();
        if self.fails() {
            return Err(failed());
        }
        let view = self.register.read();
        pause();
        view
    }

    fn is_current(&mut self, number: u64) -> Result<bool> {
        if let Some(ways) = &self.ways {
            let mut register = self.register.clone();
            return ask(ways, move || register.is_current(number));
        }
        pause();
        self.register.is_current(number)
    }

    fn swap(&mut self, expected: u64, view: &View) -> Result<Swapped> {
        if let Some(ways) = &self.ways {
            let (mut register, views, view) = (self.register.clone(), self.views.clone(), view.clone());
            return ask(ways, move || swap(&mut register, &views, expected, &view));
        }
        pause();
        if self.fails() {
            return Err(failed());
        }
        let swapped = swap(&mut self.register, &self.views, expected, view)?;
        if self.fails() {
            return Err(failed());
        }
        pause();
        Ok(swapped)
    }
}
