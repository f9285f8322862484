//! A generation built from memory against plain puts of the same items in batches.

use kelix::{NewTable, Table, TableKind};
use kelix_server::ServerConfig;

use super::FULL_RECORDS;
use super::chain::text;
use super::generations::{by_turns, timed};
use crate::store::{Store, Walk, key_of, verify};
use kelix_report::cores::{pin, unpin};
use kelix_report::report::{Row, Sense, as_rate, compared};

/// Items, and rounds. A small run is a check that all works.
const ITEMS: u64 = 10_000_000;
const FULL: usize = 5;
const SMALL: usize = 2;
/// Puts of one call. More of them are not faster.
const BATCH: usize = 1024;
/// The server's memory for an item.
const ITEM_BYTES: u64 = 320;
/// Values that are read back.
const READ_BACK: u64 = 10_000;

/// An item: its key and its value.
pub(crate) type Pair = ([u8; 16], [u8; 32]);

/// Starts a server of this kind without an item.
pub(crate) fn server(items: &[Pair], config: ServerConfig) -> Result<Store, String> {
    let memory_bytes = (items.len() as u64 * ITEM_BYTES).max(256 << 20);
    Store::start("build", ServerConfig { memory_bytes, ..config })
}

/// Reads some of the items.
fn read_back(store: &mut Store, table: Table, walk: Walk, items: u64) -> Result<(), String> {
    let mut value = [0; 32];
    for step in 0..READ_BACK.min(items) {
        let record = walk.step_of(step);
        let found = store.session.get_into(table, &key_of(record), &mut value).map_err(text)?;
        found.ok_or_else(|| format!("no record {record}"))?;
        verify(&value, record);
    }
    Ok(())
}

/// Nanoseconds an item, until all are in force.
pub(crate) fn build(store: &mut Store, items: &[Pair], walk: Walk) -> Result<f64, String> {
    let time = timed(items.len() as u64, || {
        let new = [NewTable::new("built", TableKind::Hash)];
        let mut build = store.session.build("built", &new).map_err(text)?;
        items.iter().try_for_each(|(key, value)| build.put(0, key, value)).map_err(text)?;
        let built = build.finish().map_err(text)?.items;
        if built == items.len() as u64 { Ok(()) } else { Err(format!("{built} items were built")) }
    })?;
    let table = store.session.table("built").map_err(text)?;
    read_back(store, table, walk, items.len() as u64)?;
    Ok(time)
}

/// Nanoseconds an item, until all are put.
fn put(items: &[Pair], walk: Walk) -> Result<f64, String> {
    let mut store = server(items, ServerConfig::default())?;
    let (session, table) = (&mut store.session, store.table);
    let mut batch: Vec<(&[u8], &[u8])> = Vec::with_capacity(BATCH);
    let time = timed(items.len() as u64, || {
        for items in items.chunks(BATCH) {
            batch.clear();
            batch.extend(items.iter().map(|(key, value)| (&key[..], &value[..])));
            let results = session.multi_put(table, &batch).map_err(text)?;
            results.into_iter().try_for_each(|result| result.map(drop)).map_err(text)?;
        }
        Ok(())
    })?;
    read_back(&mut store, table, walk, items.len() as u64)?;
    Ok(time)
}

/// The row.
pub(super) fn row(records: Option<u64>) -> Result<Row, String> {
    let count = records.map_or(ITEMS, |records| records.clamp(1000, ITEMS));
    let rounds = if count < FULL_RECORDS { SMALL } else { FULL };
    let walk = Walk::over(count);
    let items: Vec<Pair> = (0..count).map(|record| (key_of(record), walk.value_of(record))).collect();
    pin(0);
    let mut ours = || build(&mut server(&items, ServerConfig::default())?, &items, walk);
    let comparison = by_turns(rounds, &mut ours, &mut || put(&items, walk));
    unpin();
    let name = "an item of a generation that is built from memory / of plain puts in batches";
    let note = format!("{count} items of 16 and 32 bytes, batches of {BATCH}, a new server each time; ");
    Ok(Row { sense: Sense::AtLeast, ..compared("load_build", name, "ns", 2.0, as_rate(comparison?), &note) })
}
