//! `kelix bench counts`: instructions an operation takes, counted by valgrind, which a busy machine does not
//! change.
//!
//! Each operation is done a few times and many times by this program under valgrind's callgrind; the
//! difference is what the operations took. A small store, which fits the caches, since memory is not what is
//! counted. How many keys stand in their second bucket hangs on the seed that a store draws, so what is told
//! is the median of several stores.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kelix::{NewItem, Rows, Scan, Session, TableKind, Values, Version};
use kelix_server::ServerConfig;

use crate::Options;
use crate::store::{Numbers, Store, key_of, verify};
use kelix_report::Report;
use kelix_report::interleave::median;
use kelix_report::report::{Row, Sense};

const RECORDS: u64 = 2000;
/// Operations of a batch.
const BATCH: usize = 64;
/// Operations that are done a few times, and many times.
const FEW: usize = 20 * BATCH;
const MANY: usize = 220 * BATCH;
/// The same in a run that only checks that all works.
const MANY_SMALL: usize = 40 * BATCH;
/// Stores, each with a seed of its own: a get takes up to a tenth more or less by that.
const STORES: usize = 9;
/// Records that are asked for, in turn.
const DRAWN: usize = 64 * BATCH;

/// The operations, by name, with what they are.
const OPERATIONS: [(&str, &str); 7] = [
    ("get", "get_into of a key"),
    ("put", "put of a key; whoever waits counts as well"),
    ("chase", "follow_into of a link"),
    ("scan", "scan_into of 64 keys of an ordered table, for each"),
    ("multi_get", "multi_get_into of 64 keys, for each"),
    ("multi_put", "multi_put of 64 keys, for each; whoever waits counts as well"),
    ("multi_get_put", "multi_get_put of 64 keys and 64 items, for each pair; whoever waits counts as well"),
];

/// Runs the benchmark, or only what is counted: `OPERATION:COUNT`.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    if let Some(counted) = &options.counted {
        let (operation, count) = counted.split_once(':').ok_or("OPERATION:COUNT is needed")?;
        let count = count.parse().map_err(|_| format!("{count} is no number"))?;
        do_operations(operation, count)?;
        return Ok(Report::new("counts", RECORDS, Vec::new()));
    }
    let small = options.records.is_some_and(|records| records < 100_000);
    let (many, stores) = if small { (MANY_SMALL, 1) } else { (MANY, STORES) };
    let row = |(id, name): (&'static str, &'static str)| {
        let each = |few: u64, all: u64| all.saturating_sub(few) as f64 / (many - FEW) as f64;
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..stores {
            let (few, all) = (instructions(id, FEW)?, instructions(id, many)?);
            clients.push(each(few.0, all.0));
            servers.push(each(few.1, all.1));
        }
        let (client, server) = (median(&clients), median(&servers));
        Ok(Row {
            id: format!("instructions_{id}").into(),
            name: name.into(),
            ours: client,
            other: Some(server),
            unit: "instructions",
            ratio: client + server,
            wanted: None,
            sense: Sense::AtMost,
            note: format!(
                "{name}: the client's thread, the server's, and both; 16-byte keys, 32-byte values"
            ),
        })
    };
    let rows = OPERATIONS.into_iter().map(row).collect::<Result<_, String>>()?;
    Ok(Report::new("counts", RECORDS, rows))
}

/// Instructions of this program's first thread, and of all others, while it does an operation so many times.
fn instructions(operation: &str, count: usize) -> Result<(u64, u64), String> {
    let folder = std::env::temp_dir().join(format!("kelix-bench-counts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let counted = run_counted(operation, count, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    counted
}

fn run_counted(operation: &str, count: usize, folder: &Path) -> Result<(u64, u64), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--separate-threads=yes", "--quiet"])
        .arg(format!("--callgrind-out-file={}", folder.join("out").display()))
        .arg(program)
        .args(["counts", "--counted", &format!("{operation}:{count}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                "valgrind is not installed; on Debian: apt-get install valgrind".to_string()
            }
            _ => format!("cannot start valgrind: {error}"),
        })?;
    if !ran.status.success() {
        return Err(format!("under valgrind: {}", String::from_utf8_lossy(&ran.stderr).trim()));
    }
    let read = |entry: std::fs::DirEntry| totals(&entry.path());
    let files = std::fs::read_dir(folder).map_err(|error| error.to_string())?.flatten();
    let threads: Vec<(bool, u64)> = files.filter_map(read).collect();
    let sum = |first| threads.iter().filter(|thread| thread.0 == first).map(|thread| thread.1).sum();
    let (client, server) = (sum(true), sum(false));
    if client == 0 { Err("valgrind counted nothing".into()) } else { Ok((client, server)) }
}

/// Whether a file of callgrind's is about the first thread, and the instructions in it. A thread may have
/// several.
fn totals(file: &PathBuf) -> Option<(bool, u64)> {
    let text = std::fs::read_to_string(file).ok()?;
    let word = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some((word("thread:")? == "1", word("totals:").or(word("summary:"))?.parse().ok()?))
}

/// Does an operation so many times. What is asked for is made beforehand, out of as many records whatever the
/// count, so that making it is no part of the difference.
fn do_operations(operation: &str, count: usize) -> Result<(), String> {
    let config = ServerConfig { memory_bytes: 64 << 20, ..ServerConfig::default() };
    let mut store = Store::start("counted", config)?;
    match operation {
        "chase" => return chase(&mut store.session, count),
        "scan" => return scan(&mut store.session, count),
        _ => store.load(RECORDS)?,
    }
    let drawn = Numbers(9).records(RECORDS, DRAWN);
    let keys: Vec<[u8; 16]> = drawn.iter().map(|record| key_of(*record)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let written: Vec<[u8; 32]> = drawn.iter().map(|record| store.walk.value_of(*record)).collect();
    let items: Vec<(&[u8], &[u8])> =
        keys.iter().copied().zip(written.iter().map(|value| &value[..])).collect();
    let (session, table) = (&mut store.session, store.table);
    let (mut value, mut values) = ([0; 32], Values::new());
    let size = if ["get", "put"].contains(&operation) { 1 } else { BATCH };
    for at in (0..count).step_by(size).map(|done| done % DRAWN) {
        let (records, keys, items) = (&drawn[at..at + size], &keys[at..at + size], &items[at..at + size]);
        match operation {
            "get" => {
                session.get_into(table, keys[0], &mut value).map_err(text)?;
                verify(&value, records[0]);
            }
            "put" => written_all(vec![session.put(table, keys[0], items[0].1)])?,
            "multi_get" => session.multi_get_into(table, keys, &mut values).map_err(text)?,
            "multi_put" => written_all(session.multi_put(table, items).map_err(text)?)?,
            "multi_get_put" => {
                written_all(session.multi_get_put(table, keys, &mut values, items).map_err(text)?)?;
            }
            _ => return Err(format!("no operation {operation}")),
        }
        for (index, record) in records.iter().enumerate().take(values.len()) {
            verify(values.get(index).ok_or("a record is absent")?, *record);
        }
    }
    Ok(())
}

/// Follows a circle of links so many steps.
fn chase(session: &mut Session, count: usize) -> Result<(), String> {
    let table = session.create_table("chain").map_err(text)?;
    // Each link leads to an item that is there already, but for that of the first.
    for record in (0..RECORDS).rev().chain([RECORDS - 1]) {
        let mut item = NewItem::new();
        let next = (record + 1) % RECORDS;
        item = item.bytes("value", &record.to_le_bytes()).link("next", table, &key_of(next));
        session.put_item(table, &key_of(record), &item).map_err(text)?;
    }
    let mut item = session.get(table, &key_of(0)).map_err(text)?.ok_or("the first item is absent")?;
    for done in 1..=count as u64 {
        if !session.follow_into(&mut item, "next").map_err(text)? {
            return Err(format!("a link leads nowhere after {done} steps"));
        }
        if item.bytes("value") != Some(&(done % RECORDS).to_le_bytes()[..]) {
            return Err(format!("another item after {done} steps"));
        }
    }
    Ok(())
}

/// Scans so many keys of an ordered table, 64 at a time.
fn scan(session: &mut Session, count: usize) -> Result<(), String> {
    let table = session.create_table_of(TableKind::Strings, "ordered").map_err(text)?;
    for record in 0..RECORDS {
        session.put(table, &record.to_be_bytes(), &record.to_le_bytes()).map_err(text)?;
    }
    let firsts = Numbers(9).records(RECORDS - BATCH as u64, DRAWN / BATCH);
    let scans: Vec<Scan> =
        firsts.iter().map(|first| Scan::all().numbers(first..).limit(BATCH as u64)).collect();
    let mut rows = Rows::new();
    for at in (0..count / BATCH).map(|done| done % scans.len()) {
        session.scan_into(table, &scans[at], &mut rows).map_err(text)?;
        for index in 0..BATCH {
            let wanted = firsts[at] + index as u64;
            if index >= rows.len() || rows.value(index) != wanted.to_le_bytes() {
                return Err(format!("another value at {wanted}"));
            }
        }
    }
    Ok(())
}

fn text(error: kelix::Error) -> String {
    error.to_string()
}

fn written_all(results: Vec<kelix::Result<Version>>) -> Result<(), String> {
    results.into_iter().try_for_each(|result| result.map(drop).map_err(|error| error.to_string()))
}
