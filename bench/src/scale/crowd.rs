//! Many clients at once, each a thread that does one operation after the other, and the mixes that they do.

use std::time::{Duration, Instant};

use super::text;
use crate::tails::{Caller, Operation};
use crate::times::Times;
use crate::workload::{Keys, batches};

/// Clients of a crowd: HydraDB has fifty (section 6.1).
pub(super) const CLIENTS: usize = 50;
/// Bytes of a value.
pub(super) const VALUE_BYTES: usize = 32;
/// Operations of a mix that are drawn; clients begin at different ones of them, over and over.
const DRAWN: usize = 1 << 16;
/// Operations between two looks at the clock, for a client that is not timed.
const OPERATIONS: usize = 16;

/// Operations, and how often which key is in them.
pub(super) struct Mix {
    /// What rows call it.
    pub id: &'static str,
    pub name: &'static str,
    operations: Vec<(Operation, u64)>,
}

/// The six mixes of HydraDB's section 6 over so many records.
pub(super) fn mixes(records: u64) -> Vec<Mix> {
    let named: [(&str, &str, Keys, u64); 6] = [
        ("a_zipf", "half gets, Zipf", Keys::Zipf, 50),
        ("b_zipf", "90 % gets, Zipf", Keys::Zipf, 90),
        ("c_zipf", "gets, Zipf", Keys::Zipf, 100),
        ("a_uniform", "half gets, uniform", Keys::Uniform, 50),
        ("b_uniform", "90 % gets, uniform", Keys::Uniform, 90),
        ("c_uniform", "gets, uniform", Keys::Uniform, 100),
    ];
    let mix = |(id, name, keys, gets): (_, _, Keys, u64)| {
        let single = batches(&keys.draw(17, records, DRAWN), 1, gets);
        let operation = |batch: crate::workload::Batch| match batch.gets.first() {
            Some(record) => (Operation::Get, *record),
            None => (Operation::Put, batch.puts[0]),
        };
        Mix { id, name, operations: single.into_iter().map(operation).collect() }
    };
    named.into_iter().map(mix).collect()
}

/// Rounds of blocks and the length of one, in a run that is a measurement, or that is none.
pub(super) fn blocks(is_full: bool) -> (usize, Duration) {
    if is_full { (7, Duration::from_millis(300)) } else { (1, Duration::from_millis(30)) }
}

/// What a crowd did in a block.
pub(super) struct Done {
    pub operations: u64,
    pub took: Duration,
    /// How long each operation took, if that was asked for.
    pub times: Times,
}

/// Has all clients do operations of a mix for so long. What they get is verified.
pub(super) fn run(
    clients: &mut [Box<dyn Caller>],
    mix: &Mix,
    (round, length): (usize, Duration),
    is_timed: bool,
) -> Result<Done, String> {
    let began = Instant::now();
    let client = |caller: &mut Box<dyn Caller>, first: usize| {
        let mut operations = mix.operations.iter().cycle().skip(first % DRAWN);
        let (mut count, mut times) = (0, Times::new());
        while began.elapsed() < length {
            for (operation, record) in operations.by_ref().take(if is_timed { 1 } else { OPERATIONS }) {
                let from = is_timed.then(Instant::now);
                caller.run(*operation, *record)?;
                count += 1;
                if let Some(from) = from {
                    times.note(from.elapsed().as_nanos() as u64);
                }
            }
        }
        Ok::<_, String>((count, times))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .enumerate()
            .map(|(index, caller)| {
                let first = index * (DRAWN / CLIENTS) + round * 7919;
                std::thread::Builder::new().spawn_scoped(scope, move || client(caller, first)).map_err(text)
            })
            .collect();
        let mut done = Done { operations: 0, took: Duration::ZERO, times: Times::new() };
        for thread in threads {
            let (count, times) = thread?.join().expect("a client does not panic")?;
            done.operations += count;
            done.times.add(&times);
        }
        done.took = began.elapsed();
        Ok(done)
    })
}
