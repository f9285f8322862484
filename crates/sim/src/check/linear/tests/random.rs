//! Random histories: runs of a real register, the same with something changed, and the checker's word on them
//! against every order's.

use std::time::Instant;

use super::every_order;
use crate::check::Finding;
use crate::check::linear::search::Verdict;
use crate::check::linear::{CONFIGURATIONS_MAX, check, shrink, verdict};
use crate::history::{Action, CompareOutcome, Operation, ValueId};

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// When an operation is called, takes effect if it does, and returns.
struct Slot {
    client: u32,
    key: u64,
    called_ns: u64,
    moment_ns: Option<u64>,
    returned_ns: Option<u64>,
}

/// Any few intervals on one key.
fn few_slots(
    random: &mut Random,
    count: u64,
    time_ns: u64,
    length_ns: u64,
    unknown_one_in: u64,
) -> Vec<Slot> {
    let mut slots = Vec::new();
    for client in 0..count as u32 {
        let called_ns = 1 + random.below(time_ns);
        let moment_ns = called_ns + random.below(length_ns);
        let mut slot = Slot {
            client,
            key: 0,
            called_ns,
            moment_ns: Some(moment_ns),
            returned_ns: Some(moment_ns + random.below(length_ns)),
        };
        if random.one_in(unknown_one_in) {
            slot.returned_ns = None;
            slot.moment_ns = Some(called_ns + random.below(time_ns)).filter(|_| random.below(3) > 0);
        }
        slots.push(slot);
    }
    slots
}

/// Clients that each go from one operation to the next.
fn client_slots(random: &mut Random, count: u64, clients: u64, keys: u64, unknown_percent: u64) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut free_ns = vec![1; clients as usize];
    for _ in 0..count {
        let client = (0..clients as usize).min_by_key(|&client| free_ns[client]).expect("there are clients");
        let called_ns = free_ns[client] + random.below(500);
        let moment_ns = called_ns + random.below(2_000);
        let mut slot = Slot {
            client: client as u32,
            key: random.below(keys),
            called_ns,
            moment_ns: Some(moment_ns),
            returned_ns: Some(moment_ns + random.below(2_000)),
        };
        if random.below(100) < unknown_percent {
            slot.returned_ns = None;
            slot.moment_ns = Some(called_ns + random.below(100_000)).filter(|_| random.below(2) > 0);
        }
        free_ns[client] = slot.returned_ns.unwrap_or(called_ns + 10_000);
        slots.push(slot);
    }
    slots
}

/// Lets registers run: each operation takes effect at its moment.
fn run(random: &mut Random, mut slots: Vec<Slot>) -> Vec<Operation> {
    slots.sort_by_key(|slot| slot.moment_ns.unwrap_or(slot.called_ns));
    let key_count = slots.iter().map(|slot| slot.key + 1).max().unwrap_or(0);
    let mut registers: Vec<Option<ValueId>> = vec![None; key_count as usize];
    let mut written = vec![Vec::new(); key_count as usize];
    let mut history = Vec::new();
    for (index, slot) in slots.into_iter().enumerate() {
        let key = slot.key as usize;
        let present = registers[key];
        let value = ValueId(index as u64 + 1);
        let known = slot.returned_ns.is_some();
        let (action, after) = match random.below(8) {
            0..3 if known => (Action::Get { found: present }, present),
            0..5 => {
                written[key].push(value);
                (Action::Put { value }, Some(value))
            }
            5 => (Action::Delete { was_there: Some(present.is_some()).filter(|_| known) }, None),
            _ => {
                let expected = match random.below(5) {
                    0 => None,
                    1 if !written[key].is_empty() => {
                        Some(written[key][random.below(written[key].len() as u64) as usize])
                    }
                    _ => present,
                };
                let new = Some(value).filter(|_| random.below(3) > 0);
                written[key].extend(new);
                let (outcome, after) = match expected == present {
                    true => (CompareOutcome::Done, new),
                    false => (CompareOutcome::Mismatch(present), present),
                };
                (
                    Action::CompareAndSet { expected, value: new, outcome: Some(outcome).filter(|_| known) },
                    after,
                )
            }
        };
        if slot.moment_ns.is_some() {
            registers[key] = after;
        }
        let Slot { client, key, called_ns, returned_ns, .. } = slot;
        history.push(Operation { client, key, called_ns, returned_ns, action });
    }
    history
}

/// Changes one operation so that its record is still in order.
fn corrupt(random: &mut Random, history: &mut Vec<Operation>) {
    let written: Vec<ValueId> = history.iter().filter_map(|operation| operation.value()).collect();
    let any = |random: &mut Random| match written.len() as u64 {
        0 => None,
        count => written.get(random.below(count + 2) as usize).copied(),
    };
    let index = random.below(history.len() as u64) as usize;
    let operation = &mut history[index];
    if random.one_in(4) {
        // At another time.
        match operation.returned_ns {
            Some(returned_ns) if random.one_in(2) => operation.called_ns = 1 + random.below(returned_ns),
            Some(_) => operation.returned_ns = Some(operation.called_ns + random.below(4)),
            None => operation.called_ns += random.below(9),
        }
        return;
    }
    match &mut operation.action {
        Action::Get { found } => *found = any(random),
        Action::Delete { was_there: Some(was_there) } => *was_there = !*was_there,
        Action::CompareAndSet { expected, outcome: Some(outcome), .. } => match random.below(3) {
            0 => *outcome = CompareOutcome::Done,
            1 => *outcome = CompareOutcome::Mismatch(any(random)),
            _ => *expected = any(random),
        },
        Action::Put { .. } | Action::Delete { .. } | Action::CompareAndSet { .. } => {
            history.remove(index);
        }
    }
}

/// Holds the search, the whole check and the shrunk history of one key against every order.
fn compare(seed: u64, history: &[Operation]) -> bool {
    let explained = every_order::explains(history);
    let show = || history.iter().map(|operation| format!("{operation}\n")).collect::<String>();
    let expected = if explained { Verdict::Explained } else { Verdict::Unexplained };
    let mut left = CONFIGURATIONS_MAX;
    assert_eq!(verdict(history, &mut left), expected, "seed {seed}\n{}", show());
    let checked = check(history);
    assert_eq!(checked.is_ok(), explained, "seed {seed}: {checked:?}\n{}", show());
    if !explained {
        let (_, shown) = shrink::shrink(history);
        let is_shown = |operation: &Operation| shown.iter().any(|one| std::ptr::eq(*one, operation));
        let weaker = |operation: &Operation| match is_shown(operation) {
            true => Some(operation.clone()),
            false => operation.without_outcome(),
        };
        let weaker: Vec<Operation> = history.iter().filter_map(weaker).collect();
        assert!(
            !every_order::explains(&weaker),
            "seed {seed}: what is shown does not contradict\n{}",
            show()
        );
    }
    explained
}

#[test]
fn runs_of_a_register_and_their_corruptions_against_every_order() {
    let mut explained_count = 0;
    let mut unexplained_count = 0;
    for seed in 0..15_000 {
        let mut random = Random::new(seed);
        let count = 2 + random.below(9);
        let time_ns = 1 + random.below(20);
        let length_ns = 1 + random.below(8);
        let unknown_one_in = 2 + random.below(8);
        let slots = few_slots(&mut random, count, time_ns, length_ns, unknown_one_in);
        let mut history = run(&mut random, slots);
        assert!(compare(seed, &history), "seed {seed}: the run of a register has an order");
        for _ in 0..3 {
            if history.is_empty() {
                break;
            }
            corrupt(&mut random, &mut history);
            match compare(seed, &history) {
                true => explained_count += 1,
                false => unexplained_count += 1,
            }
        }
    }
    assert!(explained_count > 8_000 && unexplained_count > 8_000, "{explained_count} {unexplained_count}");
}

/// Mostly unknown writes, to try what spares and exits can explain.
#[test]
fn mostly_unknown_outcomes_against_every_order() {
    let mut unexplained_count = 0;
    for seed in 0..12_000 {
        let mut random = Random::new(seed);
        let slots = few_slots(&mut random, 10, 12, 4, 5);
        let history = run(&mut random, slots);
        // Forgetting that a write was called, or what it told, makes others ask for an explanation.
        let mut weaker: Vec<Operation> = Vec::new();
        for operation in &history {
            match random.below(8) {
                0..4 => weaker.extend(operation.without_outcome()),
                4 => {}
                _ => weaker.push(operation.clone()),
            }
        }
        for operation in &mut weaker {
            let absent_read = Action::Get { found: None };
            let removal = Action::Delete { was_there: Some(true) };
            match operation.action {
                Action::Get { .. } if random.one_in(2) => operation.action = absent_read,
                Action::Get { .. } => operation.action = removal,
                _ => {}
            }
        }
        unexplained_count += u64::from(!compare(seed, &weaker));
    }
    assert!((1_000..11_000).contains(&unexplained_count), "{unexplained_count}");
}

#[test]
fn long_runs_of_registers() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let slots = client_slots(&mut random, 3_000, 8, 1 + seed % 5, 1 + seed % 10);
        let history = run(&mut random, slots);
        if let Err(finding) = check(&history) {
            panic!("seed {seed}: {finding}");
        }
    }
}

/// Makes reads absent, from this one on, until no order explains the history but the cheap conditions hold.
fn make_unexplained(history: &mut [Operation], from: usize) -> Finding {
    for index in from..history.len() {
        if let Action::Get { found: Some(found) } = history[index].action {
            history[index].action = Action::Get { found: None };
            match check(history) {
                Err(finding) if finding.what.contains("no order") => return finding,
                Err(_) => history[index].action = Action::Get { found: Some(found) },
                Ok(()) => {}
            }
        }
    }
    panic!("some read contradicts the rest");
}

/// Only that it ends. With `--nocapture` it tells how long it takes.
#[test]
fn ten_thousand_operations_end() {
    for (seed, clients, keys, unknown_percent) in [(0, 8, 5, 3), (1, 8, 1, 3), (2, 8, 5, 30), (3, 64, 5, 3)] {
        let mut random = Random::new(seed);
        let slots = client_slots(&mut random, 10_000, clients, keys, unknown_percent);
        let history = run(&mut random, slots);
        let start = Instant::now();
        check(&history).expect("a run of registers has an order");
        println!("{clients} clients, {keys} keys, {unknown_percent} % unknown: {:?}", start.elapsed());
    }
}

/// The same for a bad one, in which reads have used up all that unknown outcomes can explain.
#[test]
fn ten_thousand_operations_end_when_no_order_explains_them() {
    let mut random = Random::new(0);
    let slots = client_slots(&mut random, 10_000, 8, 5, 3);
    let mut history = run(&mut random, slots);
    let middle = history.len() / 2;
    let finding = make_unexplained(&mut history, middle);
    println!("{}", finding.what);
    let start = Instant::now();
    assert_eq!(check(&history), Err(finding), "the same history gives the same finding");
    println!("found in {:?}", start.elapsed());
}
