//! The search for an order of one key's steps.
//!
//! A configuration is which steps have taken effect, what stands under the key, and which spares are used up.
//! From the empty one the search goes on, depth first with a stack of its own, to any that has all steps. It
//! reaches each at most once, and not at all if it was at one with the same steps and value that had used up
//! no other spares.
//!
//! A step can be next if no open step returned before it was called: with the *horizon*, the earliest return
//! of an open step, if it was called no later. A spare or an exit can be used by the same rule, and once it
//! can it always can.
//!
//! These cut the branches, and none cuts off the last order there is:
//!
//! 1. A read that finds what it needs takes effect at once: it changes nothing, and sooner only loosens what
//!    is open.
//! 2. A value stands for one stretch, so nothing ends it while a reader of it is open, and if a step swaps
//!    it, that step.
//! 3. Of several steps that do the same (removals; writes of values that nothing depends on), only the one
//!    that returned first is tried: in an order that has another here, the two can change places.
//! 4. A spare or exit is used only right before a step that needs it. In an order that uses as few as
//!    possible, each is.
//! 5. Of the spares that serve, the one is used that is worth least for the other purpose: what is left
//!    serves as well. An exit serves nothing else, so it goes first.

use std::collections::HashMap;

use super::model::{ABSENT, Effect, Model, NEVER, ValueIndex};

/// How a search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// There is an order.
    Explained,
    /// There is none.
    Unexplained,
    /// It met more configurations than it may.
    Undecided,
}

/// Looks for an order, over at most as many configurations as are left, and takes from these what it met.
pub(super) fn search(model: &Model, configurations_left: &mut usize) -> Verdict {
    let mut search = Search { model, met: HashMap::new(), met_count: 0, stack: Vec::new(), open: Vec::new() };
    search.meet(Configuration {
        base: 0,
        taken: Vec::new(),
        taken_count: 0,
        present: ABSENT,
        readers_open: 0,
        used: vec![0; model.spares.len().div_ceil(64)],
    });
    let verdict = loop {
        let Some(configuration) = search.stack.pop() else { break Verdict::Unexplained };
        if configuration.taken_count == model.steps.len() {
            break Verdict::Explained;
        }
        if search.met_count > *configurations_left {
            break Verdict::Undecided;
        }
        search.expand(&configuration);
    };
    *configurations_left = configurations_left.saturating_sub(search.met_count);
    verdict
}

/// Where a search is.
#[derive(Clone)]
struct Configuration {
    /// All steps below 64 times this have taken effect, and not all of the 64 from there.
    base: usize,
    /// Which have from there on, a bit each; the last word is not zero. At a quiescent point it is a word at
    /// most.
    taken: Vec<u64>,
    taken_count: usize,
    present: ValueIndex,
    /// How many readers of the value present are open; without meaning for absence.
    readers_open: u32,
    /// Which spares are used up, a bit each.
    used: Vec<u64>,
}

impl Configuration {
    fn take(&mut self, step: u32) {
        let word = step as usize / 64 - self.base;
        if word >= self.taken.len() {
            self.taken.resize(word + 1, 0);
        }
        debug_assert_eq!(self.taken[word] & (1 << (step % 64)), 0);
        self.taken[word] |= 1 << (step % 64);
        self.taken_count += 1;
        let full = self.taken.iter().take_while(|&&word| word == u64::MAX).count();
        self.taken.drain(..full);
        self.base += full;
    }

    fn hold(&mut self, model: &Model, value: ValueIndex) {
        self.present = value;
        self.readers_open = model.values[value as usize].readers;
    }
}

/// Steps, by base and bits, and the value present.
type Key = (Vec<u64>, usize, ValueIndex);

struct Search<'model> {
    model: &'model Model,
    /// The used spares of the configurations met, none of a key's including another.
    met: HashMap<Key, Vec<Vec<u64>>>,
    met_count: usize,
    stack: Vec<Configuration>,
    /// Scratch: which steps can be next.
    open: Vec<u32>,
}

impl Search<'_> {
    /// Lists the steps that can be next; returns the horizon.
    fn list_open(&mut self, configuration: &Configuration) -> u64 {
        self.open.clear();
        let mut horizon_ns = NEVER;
        for word in 0.. {
            let mut open = !configuration.taken.get(word).copied().unwrap_or(0);
            while open != 0 {
                let index = (configuration.base + word) * 64 + open.trailing_zeros() as usize;
                // Those listed before were called no later than this one, so they stay within the horizon it
                // may set.
                match self.model.steps.get(index) {
                    Some(step) if step.called_ns <= horizon_ns => {
                        horizon_ns = horizon_ns.min(step.returned_ns);
                        self.open.push(index as u32);
                    }
                    _ => return horizon_ns,
                }
                open &= open - 1;
            }
        }
        unreachable!("the steps end before the words do")
    }

    /// Lets all reads take effect that can, then keeps the configuration if it is new.
    fn meet(&mut self, mut configuration: Configuration) {
        loop {
            self.list_open(&configuration);
            let before = configuration.taken_count;
            for &step in &self.open {
                if self.model.steps[step as usize].effect == Effect::Read(configuration.present) {
                    configuration.take(step);
                    configuration.readers_open = configuration.readers_open.saturating_sub(1);
                }
            }
            if configuration.taken_count == before {
                break;
            }
        }
        let value = &self.model.values[configuration.present as usize];
        if configuration.present != ABSENT {
            let swap_is_shut = value.swapped_by.is_some_and(|step| !self.open.contains(&step));
            if configuration.readers_open > 0 || swap_is_shut {
                return;
            }
        }
        let key = (configuration.taken.clone(), configuration.base, configuration.present);
        let met = self.met.entry(key).or_default();
        let includes = |all: &[u64], some: &[u64]| all.iter().zip(some).all(|(all, some)| some & !all == 0);
        if met.iter().any(|used| includes(&configuration.used, used)) {
            return;
        }
        met.retain(|used| !includes(used, &configuration.used));
        met.push(configuration.used.clone());
        self.met_count += 1;
        self.stack.push(configuration);
    }

    /// Meets all configurations that follow, the most promising last, so that it is the next from the stack.
    fn expand(&mut self, configuration: &Configuration) {
        let horizon_ns = self.list_open(configuration);
        let model = self.model;
        let present = configuration.present;
        let value = &model.values[present as usize];
        if let (true, Some(step)) = (present != ABSENT, value.swapped_by) {
            self.meet(after(model, configuration, step));
            return;
        }
        let mut next = Vec::new();
        let mut removal = None;
        let mut plain_write = None;
        let mut wants_absence = false;
        let first = |best: &mut Option<u32>, step: u32| {
            let returned_ns = |step: u32| model.steps[step as usize].returned_ns;
            if best.is_none_or(|best| returned_ns(step) < returned_ns(best)) {
                *best = Some(step);
            }
        };
        let mut plain_creation = None;
        for &step in &self.open {
            let effect = model.steps[step as usize].effect;
            match effect {
                Effect::Remove => first(&mut removal, step),
                Effect::Write(to) if model.values[to as usize].is_plain() => first(&mut plain_write, step),
                Effect::Write(_) => next.push(step),
                Effect::Swap(ABSENT, to) if present == ABSENT && model.values[to as usize].is_plain() => {
                    first(&mut plain_creation, step);
                }
                Effect::Swap(ABSENT, _) if present == ABSENT => next.push(step),
                Effect::Read(_) | Effect::Swap(..) => wants_absence |= effect.needs_absence(),
            }
        }
        next.extend(plain_write.into_iter().chain(plain_creation));

        if present != ABSENT && wants_absence {
            let mut absent = configuration.clone();
            absent.hold(model, ABSENT);
            if value.exit_ns <= horizon_ns || use_spare(model, &mut absent, horizon_ns, Purpose::Absence) {
                self.meet(absent);
            }
        }
        if let Some(step) = removal {
            if present != ABSENT {
                next.push(step);
            } else {
                let mut removed = configuration.clone();
                if use_spare(model, &mut removed, horizon_ns, Purpose::Presence) {
                    self.meet(after(model, &removed, step));
                }
            }
        }
        next.sort_by_key(|&step| std::cmp::Reverse(model.steps[step as usize].returned_ns));
        for step in next {
            self.meet(after(model, configuration, step));
        }
    }
}

/// The configuration after one more step, before any reads.
fn after(model: &Model, configuration: &Configuration, step: u32) -> Configuration {
    let mut after = configuration.clone();
    after.take(step);
    match model.steps[step as usize].effect {
        Effect::Read(_) => {}
        Effect::Write(to) | Effect::Swap(_, to) => after.hold(model, to),
        Effect::Remove => after.hold(model, ABSENT),
    }
    after
}

/// Uses up the spare of least other worth that makes the key absent or present; says whether there is one.
fn use_spare(model: &Model, configuration: &mut Configuration, horizon_ns: u64, wanted: Purpose) -> bool {
    let mut best: Option<(usize, u64)> = None;
    for (index, spare) in model.spares.iter().enumerate() {
        let (serves_ns, otherwise_ns) = match wanted {
            Purpose::Presence => (spare.present_ns, spare.absent_ns),
            Purpose::Absence => (spare.absent_ns, spare.present_ns),
        };
        let is_used = configuration.used[index / 64] & (1 << (index % 64)) != 0;
        if serves_ns > horizon_ns || serves_ns == NEVER || is_used {
            continue;
        }
        if best.is_none_or(|(_, best_ns)| otherwise_ns > best_ns) {
            best = Some((index, otherwise_ns));
        }
    }
    if let Some((index, _)) = best {
        configuration.used[index / 64] |= 1 << (index % 64);
    }
    best.is_some()
}

/// What a spare is used for.
#[derive(Clone, Copy)]
enum Purpose {
    Presence,
    Absence,
}
