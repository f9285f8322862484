//! Learned gets and scans beside LMDB on memory, in this process, and beside a sorted set of Redis.

use kelix::{Path, Rows, Scan, TableKind};

use super::redis::Redis;
use super::tree::{Asked, Reader, Tree, check, key_of, text};
use super::{Size, better, duel, keys, lmdb};
use crate::lmdb::Environment;
use kelix_report::cores::{pin, unpin};
use kelix_report::interleave::{self, take_turns};
use kelix_report::report::{Row, compared};

/// Keys that are asked for in turn, gets of one call, and our batches.
const ASKED: usize = 1 << 18;
const CALL: usize = 1 << 10;
const BATCH: usize = 256;
/// Scans of one call, and keys of each.
const SCANS: usize = 8;
const SCAN_KEYS: usize = 100;
const LONG_SCAN_KEYS: usize = 1000;

/// The rows.
pub(super) fn rows(size: &Size) -> Result<Vec<Row>, String> {
    let numbers = keys::numbers("noised", size.records);
    let tree = Tree::of_numbers(TableKind::Inline, &numbers)?;
    pin(0);
    let rows = beside_lmdb(size, &tree, &numbers).and_then(|mut rows| {
        rows.push(beside_redis(size, &tree, &numbers)?);
        Ok(rows)
    });
    unpin();
    rows
}

fn beside_lmdb(size: &Size, tree: &Tree, numbers: &[u64]) -> Result<Vec<Row>, String> {
    let environment = lmdb::start(size.records)?;
    lmdb::load(&environment, numbers)?;
    let mut ours = tree.here(Path::Auto)?;
    let asked = Asked::draw(numbers, 61, ASKED);
    let keys = asked.keys();
    // Others, so that nobody finds in a cache what the side before has brought there.
    let others = Asked::draw(numbers, 64, ASKED).numbers;
    let mut one_at_a_time = |at_once: usize| {
        let (mut at, mut other_at) = (0, 0);
        duel(
            size.rounds,
            &mut || {
                for number in &asked.numbers[at..at + CALL] {
                    ours.get(*number)?;
                }
                at = (at + CALL) % ASKED;
                Ok(CALL as u64)
            },
            &mut || {
                let numbers = &others[other_at..other_at + CALL];
                other_at = (other_at + CALL) % ASKED;
                numbers
                    .chunks(at_once)
                    .try_fold(0, |all, numbers| Ok(all + lmdb::get(&environment, numbers)?))
            },
        )
    };
    // With a transaction for each get LMDB sees what was written before it, as we do.
    let (together, each) = (one_at_a_time(CALL)?, one_at_a_time(1)?);
    let note = format!("with a transaction for each get LMDB takes {:.0} ns; ", each.other_ns);
    let one = better("lmdb_get", "gets, one at a time / LMDB's in one transaction", 2.5, together, &note);
    let (mut at, mut other_at) = (0, 0);
    let batch = duel(
        size.rounds,
        &mut || {
            let mut done = 0;
            for _ in 0..CALL / BATCH {
                done += ours.get_many(&asked.numbers[at..at + BATCH], &keys[at..at + BATCH])?;
                at = (at + BATCH) % ASKED;
            }
            Ok(done)
        },
        &mut || {
            let done = lmdb::get(&environment, &others[other_at..other_at + CALL]);
            other_at = (other_at + CALL) % ASKED;
            done
        },
    )?;
    let name = "gets in batches of 256 / LMDB's in one transaction";
    let batch = better("lmdb_batch", name, 10.0, batch, "");
    Ok(vec![one, batch, scans(size, &mut ours, &environment, numbers)?, laid_out(size, &mut ours, numbers)?])
}

/// Scans these numbers, which follow each other.
fn scan(reader: &mut Reader, rows: &mut Rows, wanted: &[u64]) -> Result<(), String> {
    let scan = Scan::all().numbers(wanted[0]..).limit(wanted.len() as u64);
    reader.session.scan_into(reader.table, &scan, rows).map_err(text)?;
    if rows.len() != wanted.len() {
        return Err(format!("a scan from {} brought {} keys", wanted[0], rows.len()));
    }
    for (index, number) in wanted.iter().enumerate() {
        if rows.key(index) != key_of(*number) {
            return Err(format!("a scan brought {:?} instead of {number}", rows.key(index)));
        }
        check(*number, Some(rows.value(index)))?;
    }
    Ok(())
}

/// Scans of 1,000 keys of the table, whose leaves the shard has laid out, beside one whose keys came in
/// order.
fn laid_out(size: &Size, ours: &mut Reader, numbers: &[u64]) -> Result<Row, String> {
    // Another number of keys is another name.
    let mut tree = Tree::start(TableKind::Inline, size.records + 1)?;
    tree.put(numbers)?;
    tree.settle()?;
    let mut in_order = tree.here(Path::Auto)?;
    let keys = LONG_SCAN_KEYS.min(numbers.len() / 2);
    let firsts = |seed: u64| crate::store::Numbers(seed).records((numbers.len() - keys) as u64, ASKED);
    let (firsts, others) = (firsts(65), firsts(66));
    let (mut at, mut other_at) = (0, 0);
    let mut rows = Rows::new();
    let mut call = |reader: &mut Reader, at: &mut usize, firsts: &[u64]| -> Result<u64, String> {
        for first in &firsts[*at..*at + SCANS] {
            scan(reader, &mut rows, &numbers[*first as usize..*first as usize + keys])?;
        }
        *at = (*at + SCANS) % ASKED;
        Ok(SCANS as u64)
    };
    let times = take_turns(size.rounds, 2, |side| match side {
        0 => call(ours, &mut at, &firsts),
        _ => call(&mut in_order, &mut other_at, &others),
    })?;
    let comparison = interleave::compared(&times[0], &times[1]);
    let name = "scans of 1,000 keys, put in no order and laid out / put in order";
    Ok(compared("layout_scan", name, "ns", 1.3, comparison, ""))
}

/// Scans of 100 keys from any key on, of which 100 follow.
fn scans(size: &Size, ours: &mut Reader, environment: &Environment, numbers: &[u64]) -> Result<Row, String> {
    let firsts = crate::store::Numbers(62).records((numbers.len() - SCAN_KEYS) as u64, ASKED);
    let (mut at, mut other_at) = (0, 0);
    let mut rows = Rows::new();
    let comparison = duel(
        size.rounds,
        &mut || {
            for first in &firsts[at..at + SCANS] {
                let first = *first as usize;
                scan(ours, &mut rows, &numbers[first..first + SCAN_KEYS])?;
            }
            at = (at + SCANS) % ASKED;
            Ok(SCANS as u64)
        },
        &mut || {
            for first in &firsts[other_at..other_at + SCANS] {
                let first = *first as usize;
                lmdb::scan(environment, &numbers[first..first + SCAN_KEYS])?;
            }
            other_at = (other_at + SCANS) % ASKED;
            Ok(SCANS as u64)
        },
    )?;
    Ok(better("lmdb_scan", "scans of 100 keys / LMDB's by cursor", 1.3, comparison, ""))
}

/// One number at a time, by its score.
fn beside_redis(size: &Size, tree: &Tree, numbers: &[u64]) -> Result<Row, String> {
    let mut redis = Redis::start()?;
    redis.load_sorted(numbers)?;
    let mut ours = tree.here(Path::Auto)?;
    let asked = Asked::draw(numbers, 63, ASKED).numbers;
    let (mut at, mut other_at) = (0, 0);
    let comparison = duel(
        size.rounds,
        &mut || {
            for number in &asked[at..at + 16] {
                ours.get(*number)?;
            }
            at = (at + 16) % ASKED;
            Ok(16)
        },
        &mut || {
            for number in &asked[other_at..other_at + 16] {
                let mut found = false;
                redis.range(*number, Some(*number), 1, |member| {
                    found = member == *number;
                    found
                })?;
                if !found {
                    return Err(format!("redis-server has no {number}"));
                }
            }
            other_at = (other_at + 16) % ASKED;
            Ok(16)
        },
    )?;
    let name = "a learned get / ZRANGEBYSCORE of one score over a Unix socket";
    Ok(better("redis_zset", name, 30.0, comparison, ""))
}
