//! Model tests: production code, run through all its interleavings and all orders that the language's memory
//! model allows, by loom. Only built with `--cfg kelix_loom`.
//!
//! A model makes its world in ordinary memory, then names the words that its threads share ([`share`]). From
//! there on each access of [`Words`] to these words, and each fence, is loom's. All other words stay ordinary
//! memory: what one thread alone uses has no interleavings, and costs none. A word that two threads use and
//! one of them changes, though nobody named it, ends the test, so that none is forgotten. The thread that
//! runs the model makes the world and looks at the outcome, and takes no part meanwhile, so it is not asked.
//!
//! What loom leaves out:
//! 1. A load never sees a store that has not happened yet (load buffering, values out of thin air). What a
//!    processor does early, loom shows as loads of old values instead; nothing here has an order that only a
//!    load that looks ahead breaks.
//! 2. Sequentially consistent fences hand over all that was before them, one to the next, which the language
//!    promises less of; accesses of that order are taken for acquire and release. An acquire fence takes over
//!    also what threads that this one heard of have seen. So something that only passes because of that would
//!    not be noticed.
//! 3. Of each word the seven latest stores are remembered.
//! 4. Each word is read and written whole; that copies never split one is a matter of `words::tests`.
//! 5. With a bound, executions in which threads are interrupted more often are not tried.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

pub use loom;
use loom::thread::ThreadId;

use crate::words::Words;

/// Most accesses to shared words in one execution.
const BRANCHES_MAX: usize = 20_000;

/// Stack of a thread, in words. Loom's own is too small for a shard's step.
const STACK_WORDS: usize = 64 << 10;

type Shared = Rc<loom::sync::atomic::AtomicU64>;

/// What is known of an execution, while there is one on this thread.
#[derive(Default)]
struct World {
    /// The thread that runs the model.
    owner: Option<ThreadId>,
    shared: HashMap<usize, Shared>,
    /// Who uses the other words.
    others: HashMap<usize, Use>,
}

/// How a word that is not shared was used.
struct Use {
    by: ThreadId,
    by_others: bool,
    changed: bool,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// A word: loom's if it is shared, ordinary memory otherwise.
#[repr(transparent)]
pub(crate) struct AtomicU64(std::sync::atomic::AtomicU64);

impl AtomicU64 {
    pub fn load(&self, order: Ordering) -> u64 {
        match self.shared(None) {
            Some(shared) => shared.load(order),
            None => self.0.load(order),
        }
    }

    pub fn store(&self, value: u64, order: Ordering) {
        match self.shared(Some(value)) {
            Some(shared) => shared.store(value, order),
            None => self.0.store(value, order),
        }
    }

    pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        match self.shared(Some(self.0.load(Ordering::Relaxed).wrapping_add(value))) {
            Some(shared) => shared.fetch_add(value, order),
            None => self.0.fetch_add(value, order),
        }
    }

    pub fn compare_exchange(
        &self,
        expected: u64,
        value: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        match self.shared(Some(value)) {
            Some(shared) => shared.compare_exchange(expected, value, success, failure),
            None => self.0.compare_exchange(expected, value, success, failure),
        }
    }

    /// The word as loom has it. If it is none of the shared ones, notes who uses it.
    fn shared(&self, stored: Option<u64>) -> Option<Shared> {
        WORLD.with_borrow_mut(|world| {
            let world = world.as_mut().filter(|world| !world.shared.is_empty())?;
            let at = (&raw const self.0).addr();
            if let Some(shared) = world.shared.get(&at) {
                return Some(shared.clone());
            }
            let thread = loom::thread::current().id();
            if world.owner != Some(thread) {
                // To store what stands there already changes nothing that anybody could see.
                let changes = stored.is_some_and(|value| value != self.0.load(Ordering::Relaxed));
                let known =
                    world.others.entry(at).or_insert(Use { by: thread, by_others: false, changed: false });
                known.by_others |= known.by != thread;
                known.changed |= changes;
                assert!(!known.by_others || !known.changed, "two threads use a word that is not shared");
            }
            None
        })
    }
}

/// A fence: loom's in a model.
pub(crate) fn fence(order: Ordering) {
    if WORLD.with_borrow(Option::is_some) {
        loom::sync::atomic::fence(order);
    } else {
        std::sync::atomic::fence(order);
    }
}

/// Names words that threads share from now on, with what stands in them. Their memory must stay for the rest
/// of the execution.
pub fn share(words: Words<'_>) {
    for index in 0..words.count() {
        let at = words.part(index, 1).as_ptr().addr();
        let value = words.load(index);
        WORLD.with_borrow_mut(|world| {
            let world = world.as_mut().expect("within a model");
            world.shared.insert(at, Rc::new(loom::sync::atomic::AtomicU64::new(value)));
        });
    }
}

/// Starts a thread of the model.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> loom::thread::JoinHandle<T> {
    loom::thread::Builder::new().stack_size(STACK_WORDS).spawn(work).expect("a thread of a model")
}

/// Runs a model again and again until everything was tried, with at most so many interruptions of a thread in
/// each execution. Returns the outcomes, and how many executions each had. Fails if there is but one: then
/// either nothing was tried, or the model does not look at what can differ.
pub fn explore<O: Ord + Debug + Send + 'static>(
    name: &str,
    interruptions_max: usize,
    model: impl Fn() -> O + Send + Sync + 'static,
) -> BTreeMap<O, usize> {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions_max);
    builder.max_branches = BRANCHES_MAX;
    let outcomes = Arc::new(Mutex::new(BTreeMap::new()));
    let collected = outcomes.clone();
    let began = std::time::Instant::now();
    builder.check(move || {
        let world = World { owner: Some(loom::thread::current().id()), ..World::default() };
        WORLD.set(Some(world));
        let outcome = model();
        WORLD.set(None);
        *collected.lock().expect("no panic under this lock").entry(outcome).or_insert(0) += 1;
    });
    let outcomes = std::mem::take(&mut *outcomes.lock().expect("no panic under this lock"));
    let executions: usize = outcomes.values().sum();
    println!("{name}: {executions} executions in {:.1} s", began.elapsed().as_secs_f64());
    for (outcome, count) in &outcomes {
        println!("    {count:>8}  {outcome:?}");
    }
    assert!(outcomes.len() > 1, "one outcome only: nothing was tried");
    outcomes
}
