//! Rows over sizes of values and numbers of records.

use std::io::Write;

use super::rows::{GETS, PUTS, Work};
use super::{Beside, Engines, Setup};
use crate::workload::Records;
use kelix_report::Row;

/// Bytes of the values.
pub(super) const SIZES: [usize; 7] = [32, 128, 512, 1 << 10, 2 << 10, 4 << 10, 4 << 20];
/// Memory an item that the hungriest of the engines takes, and we beside it.
const ITEM_BYTES: u64 = 280;

/// Gets and puts in batches, and gets one at a time, of values of a size.
pub(super) fn value(engines: &mut Engines) -> Result<Vec<Row>, String> {
    let bytes = engines.records.value_bytes;
    let size = match bytes {
        mebi if mebi >= 1 << 20 => format!("{}m", mebi >> 20),
        kibi if kibi >= 1 << 10 => format!("{}k", kibi >> 10),
        _ => bytes.to_string(),
    };
    three(engines, &format!("value_{size}"), &format!("{bytes} bytes, {} records", engines.records.count))
}

/// The same over so many records, beside one peer at a time, since memory is not enough for all.
pub(super) fn records(setup: &Setup, beside: Beside, records: Records) -> Result<Vec<Row>, String> {
    let needed = records.count * ITEM_BYTES;
    if needed > available_bytes() {
        let (count, gib) = (records.count, needed >> 30);
        // Nobody may be listening, which is no reason to fail.
        let _ = writeln!(std::io::stderr(), "{count} records take {gib} GiB, which are not there: left out");
        return Ok(Vec::new());
    }
    let mut engines = Engines::start(setup, beside, records)?;
    let peer = if beside == Beside::Memcached { "memcached" } else { "redis" };
    let id = match records.count {
        millions if millions % 1_000_000 == 0 => format!("records_{}m_{peer}", millions / 1_000_000),
        count => format!("records_{count}_{peer}"),
    };
    three(&mut engines, &id, &format!("{} records of 32 bytes", records.count))
}

fn three(engines: &mut Engines, id: &str, what: &str) -> Result<Vec<Row>, String> {
    let gets = Work { gets_percent: GETS, keys: engines.keys() };
    let puts = Work { gets_percent: PUTS, keys: engines.keys() };
    let (get, get_note) = engines.at_best(&gets)?;
    let (put, put_note) = engines.at_best(&puts)?;
    let one = engines.one_at_a_time(&gets)?;
    Ok(vec![
        engines.row(format!("{id}_get"), &format!("gets at the best batch, {what}"), None, &get, &get_note),
        engines.row(format!("{id}_put"), &format!("puts at the best batch, {what}"), None, &put, &put_note),
        engines.row(format!("{id}_one"), &format!("gets one at a time, {what}"), None, &one, ""),
    ])
}

fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kilobytes.map_or(u64::MAX, |kilobytes| kilobytes * 1024)
}
