//! A generation built from memory in a server that logs, against one that does not.

use kelix::SessionOptions;
use kelix_report::cores::{pin, unpin};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, as_rate, compared};
use kelix_server::{Durability, ServerConfig};

use super::disk::Disk;
use super::{logged, text};
use crate::links::building::{Pair, build, server};
use crate::links::generations::by_turns;
use crate::store::{Store, Walk, key_of};

/// Items, and rounds. A small run is a check that all works.
const ITEMS: u64 = 4_000_000;
const FULL: usize = 5;
const SMALL: usize = 2;

/// The bytes that a server has logged when all is on the disk.
fn logged_bytes(store: &Store) -> Result<u64, String> {
    let options = SessionOptions::default().durable(true);
    let mut session = store.client.session_with(options).map_err(text)?;
    session.put(store.table, b"last", b"of all").map_err(text)?;
    let told = store.told();
    match (told["wal"]["bytes"].as_u64(), told["wal"]["state"].as_str()) {
        (Some(bytes), Some("writes")) if bytes > 0 => Ok(bytes),
        _ => Err(format!("the log does not write: {}", told["wal"])),
    }
}

/// Starts a server whose threads run where the system puts them, but for the shard, which has the last core,
/// and stays on the first.
fn start(items: &[Pair], config: ServerConfig) -> Result<Store, String> {
    unpin();
    let store = server(items, config);
    pin(0);
    store
}

/// The row.
pub(super) fn row(disk: &Disk, chosen: Option<u64>, is_full: bool) -> Result<Row, String> {
    progress::show("log_load_build");
    let count = chosen.map_or(ITEMS, |records| records.min(ITEMS));
    let rounds = if is_full { FULL } else { SMALL };
    let walk = Walk::over(count);
    let items: Vec<Pair> = (0..count).map(|record| (key_of(record), walk.value_of(record))).collect();
    let mut bytes = 0;
    let mut ours = || {
        let folder = disk.folder("build")?;
        let mut store = start(&items, logged(folder.clone(), Durability::Lazy))?;
        let time = build(&mut store, &items, walk)?;
        bytes = logged_bytes(&store)?;
        drop(store);
        std::fs::remove_dir_all(folder).map_err(text)?;
        Ok(time)
    };
    let mut other = || build(&mut start(&items, ServerConfig::default())?, &items, walk);
    let comparison = by_turns(rounds, &mut ours, &mut other);
    unpin();
    let comparison = comparison?;
    let note = format!(
        "{}; {count} items of 16 and 32 bytes, {} bytes logged of each, a new server each time; ",
        disk.name,
        bytes / count
    );
    let name = "an item of a generation built in a server that logs, lazy / in one that does not";
    let row = compared("log_load_build", name, "ns", 0.7, as_rate(comparison), &note);
    Ok(Row { sense: Sense::AtLeast, ..row })
}
