//! Learned gets against our own tree by message: the same table, server and session, `Path::Auto` against
//! `Path::Message`.
//!
//! The shard has the last core and who asks the first. With both cores asking, two clients get by learned
//! reads, and the second is on the shard's core; beside them stays what one core asking and one serving reach
//! by message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kelix::{Path, TableKind};

use super::tree::{Asked, Reader, Tree};
use super::{Size, best_size, better, duel};
use crate::store::{Numbers, Walk};
use kelix_report::cores::{cores, pin, unpin};
use kelix_report::report::Row;

/// Keys that are asked for in turn.
const ASKED: usize = 1 << 17;
/// Keys of one call, and of one call where a second thread is begun for it.
const CALL: usize = 1 << 12;
const CALL_BOTH: usize = 1 << 15;
/// One of so many operations inserts, where some do.
const OF_INSERTS: usize = 20;

/// The `index`-th number that is in the table from the beginning.
pub(super) fn number_of(index: u64) -> u64 {
    index * 16 + (Numbers(index).next() & 7)
}

/// New numbers between them, in no order that memory has; after 8 for each old one, the same again.
pub(super) struct New {
    records: u64,
    walk: Walk,
    next: AtomicU64,
}

impl New {
    pub fn between(records: u64) -> New {
        New { records, walk: Walk::over(records), next: AtomicU64::new(0) }
    }

    pub fn take(&self, count: usize) -> Vec<u64> {
        // SYNC: only a counter; nothing is published by it.
        let first = self.next.fetch_add(count as u64, Ordering::Relaxed);
        (first..first + count as u64)
            .map(|at| self.walk.step_of(at) * 16 + 8 + at / self.records % 8)
            .collect()
    }
}

/// A reader and where in the keys it is.
struct Asker<'a> {
    reader: Reader,
    asked: &'a Asked,
    keys: &'a [&'a [u8]],
    at: usize,
    new: &'a New,
}

impl Asker<'_> {
    /// Gets so many keys in batches of this size; one of 20 operations puts a new key if `inserts`.
    fn run(&mut self, count: usize, size: usize, inserts: bool) -> Result<u64, String> {
        let mut done = 0;
        for _ in 0..(count / size).max(1) {
            let new = if inserts { self.new.take((size / OF_INSERTS).max(1)) } else { Vec::new() };
            let range = self.at..self.at + size - new.len();
            let (numbers, keys) = (&self.asked.numbers[range.clone()], &self.keys[range]);
            done += if inserts {
                self.reader.get_and_put(numbers, keys, new.into_iter(), 0)?
            } else {
                self.reader.get_many(numbers, keys)?
            };
            self.at = if self.at + 2 * size > self.keys.len() { 0 } else { self.at + size };
        }
        Ok(done)
    }
}

/// The rows.
pub(super) fn rows(size: &Size) -> Result<Vec<Row>, String> {
    let numbers: Vec<u64> = (0..size.records).map(number_of).collect();
    let tree = Tree::of_numbers(TableKind::Inline, &numbers)?;
    let asked = [41, 42].map(|seed| Asked::draw(&numbers, seed, ASKED));
    let keys = [asked[0].keys(), asked[1].keys()];
    pin(0);
    let rows = latencies(size, &tree, &numbers).and_then(|mut rows| {
        let new = New::between(size.records);
        let asker = |which: usize, path| {
            let (asked, keys) = (&asked[which], &keys[which][..]);
            Ok::<_, String>(Asker { reader: tree.here(path)?, asked, keys, at: 0, new: &new })
        };
        let mut ours = [asker(0, Path::Auto)?, asker(1, Path::Auto)?];
        let mut other = asker(0, Path::Message)?;
        rows.extend(rates(size, &mut ours, &mut other, false)?);
        rows.extend(rates(size, &mut ours, &mut other, true)?);
        Ok(rows)
    });
    unpin();
    rows
}

fn latencies(size: &Size, tree: &Tree, numbers: &[u64]) -> Result<Vec<Row>, String> {
    let (mut ours, mut other) = (tree.here(Path::Auto)?, tree.here(Path::Message)?);
    let asked = Asked::draw(numbers, 43, ASKED).numbers;
    let independent = |reader: &mut Reader, at: &mut usize| {
        for _ in 0..16 {
            reader.get(asked[*at])?;
            *at = (*at + 1) % ASKED;
        }
        Ok(16)
    };
    let (mut a, mut b) = (0, 0);
    let one =
        duel(size.rounds, &mut || independent(&mut ours, &mut a), &mut || independent(&mut other, &mut b))?;
    // The next number follows from the last value and from how many came before, so that the walk never
    // closes.
    let dependent = |reader: &mut Reader, (number, steps): &mut (u64, u64)| {
        for _ in 0..16 {
            let value = reader.get(*number)?;
            *steps += 1;
            let drawn = Numbers(value ^ *steps).next();
            *number = numbers[((u128::from(drawn) * numbers.len() as u128) >> 64) as usize];
        }
        Ok(16)
    };
    let (mut a, mut b) = ((numbers[0], 0), (numbers[0], 0));
    let chain =
        duel(size.rounds, &mut || dependent(&mut ours, &mut a), &mut || dependent(&mut other, &mut b))?;
    let name = "a learned get, one at a time / a get by message";
    let name_dep = "a learned get, the next key from the last value / a get by message";
    Ok(vec![better("rpc_latency", name, 3.5, one, ""), better("rpc_latency_dep", name_dep, 2.0, chain, "")])
}

/// One core asking, and both, with inserts among the gets or without.
fn rates(size: &Size, ours: &mut [Asker; 2], other: &mut Asker, inserts: bool) -> Result<Vec<Row>, String> {
    let trial = Duration::from_millis(3) * size.rounds as u32;
    let best = |asker: &mut Asker| best_size(trial, |size| asker.run(CALL, size, inserts));
    let sizes = (best(&mut ours[0])?, best(other)?);
    let one = duel(size.rounds, &mut || ours[0].run(CALL, sizes.0, inserts), &mut || {
        other.run(CALL, sizes.1, inserts)
    })?;
    let both = duel(size.rounds, &mut || both_run(ours, sizes.0, inserts), &mut || {
        other.run(CALL_BOTH, sizes.1, inserts)
    })?;
    let note = format!("batches of {}, {}; ", sizes.0, sizes.1);
    let (ids, wanted, what) = match inserts {
        false => (["rpc_rate", "rpc_rate_both"], [1.7, 4.0], "gets"),
        true => (["rpc_inserts", "rpc_inserts_both"], [1.5, 3.0], "95 % gets, 5 % inserts"),
    };
    let names = [
        format!("{what}, learned, one core asking / by message, one asking and one serving"),
        format!("{what}, learned, both cores asking / by message, one asking and one serving"),
    ];
    let [one_name, both_name] = names;
    Ok(vec![
        better(ids[0], one_name, wanted[0], one, &note),
        better(ids[1], both_name, wanted[1], both, &note),
    ])
}

/// Lets both askers run at once, the second on the last core.
fn both_run(askers: &mut [Asker; 2], size: usize, inserts: bool) -> Result<u64, String> {
    let [first, second] = askers;
    std::thread::scope(|scope| {
        let second = scope.spawn(move || {
            pin(cores() - 1);
            second.run(CALL_BOTH, size, inserts)
        });
        let done = first.run(CALL_BOTH, size, inserts);
        let second = second.join().expect("an asker does not panic");
        Ok(done? + second?)
    })
}
