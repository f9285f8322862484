//! Java and Python, against the same of the Rust client in this program, and Python against what its users
//! have today.

use std::process::Stdio;

use kelix::{Rows, Scan, Session, Table, TableKind, Values};
use kelix_report::cores::on_last_core;
use kelix_report::daemon::{Address, Daemon, Transport, is_installed};
use kelix_report::interleave::{Comparison, compared as compared_times, one_block, take_blocks};
use kelix_report::progress;
use kelix_report::redis;
use kelix_report::report::{Row, Sense, compared};

use super::child::{Child, command};
use super::draw::{Draw, get_into};
use super::text;
use crate::store::{Store, key_of, put_records, verify};

/// Records that are got by key: few, since what a call costs is looked for, and not what memory does.
const FEW: u64 = 1_000;
/// Keys of a batch.
const BATCH: usize = 500;
/// The table that is scanned.
const ORDERED: &str = "ordered";
/// Rounds of what takes long.
const FEW_ROUNDS: usize = 20;

/// Blocks of a child's way and of something else, in turn. `None`: the child cannot go that way.
fn beside(
    rounds: usize,
    (child, way): (&mut Child, &str),
    mut other: impl FnMut(&mut Child) -> Result<Option<f64>, String>,
) -> Result<Option<Comparison>, String> {
    let mut is_missing = false;
    let times = take_blocks(rounds, 2, |side| {
        let time = match (is_missing, side) {
            (true, _) => None,
            (false, 0) => child.block(way)?,
            (false, _) => other(child)?,
        };
        is_missing |= time.is_none();
        Ok::<_, String>(time.unwrap_or_default())
    })?;
    Ok((!is_missing).then(|| compared_times(&times[0], &times[1])))
}

/// Blocks of a child's way and of operations of this program, in turn.
fn beside_ours(
    rounds: usize,
    child: (&mut Child, &str),
    mut operation: impl FnMut() -> u64,
) -> Result<Option<Comparison>, String> {
    beside(rounds, child, |_| Ok(Some(one_block(&mut operation))))
}

/// Gets of the Rust client.
fn gets<'s>(session: &'s mut Session, table: Table, records: u64) -> impl FnMut() -> u64 + 's {
    let mut draw = Draw::of(5, records);
    move || draw.block(|key, buffer| get_into(session, table, key, buffer))
}

/// A row of which so many nanoseconds more than the other's are wanted.
fn more(id: &'static str, name: &'static str, most_ns: f64, comparison: Comparison) -> Row {
    let more = comparison.ours_ns - comparison.other_ns;
    let wanted = (100.0 * (1.0 + most_ns / comparison.other_ns)).round() / 100.0;
    compared(id, name, "ns", wanted, comparison, &format!("{more:.0} ns more, {most_ns} wanted; "))
}

/// The rows of Java.
pub(super) fn of_java(store: &mut Store) -> Result<Vec<Row>, String> {
    let records = FEW.min(store.records);
    let (table, mut session) = (store.table, store.client.session().map_err(text)?);
    let mut rows = Vec::new();
    let jdks: [(_, _, &[_]); 2] = [
        (
            "KELIX_BENCH_JAVA25",
            "Java 22 or newer",
            &[("java_get", "get", "byte[] to byte[], Java 22 or newer / get_into of the Rust client", 15.0)],
        ),
        (
            "KELIX_BENCH_JAVA17",
            "Java 17",
            &[
                ("java17_get", "get", "the same of Java 17", 130.0),
                ("java17_get_direct", "get_direct", "the same into a direct buffer", 25.0),
            ],
        ),
    ];
    for (variable, language, ways) in jdks {
        progress::show(ways[0].0);
        let Some(mut child) = Child::start(variable, language, (&store.directory, records), None)? else {
            continue;
        };
        for (id, way, name, most_ns) in ways {
            let ours = gets(&mut session, table, records);
            if let Some(comparison) = beside_ours(store.rounds, (&mut child, way), ours)? {
                rows.push(more(id, name, *most_ns, comparison));
            }
        }
    }
    Ok(rows)
}

/// Redis on the last core, to be filled by who asks it. `None`: there is none.
fn start_redis() -> Result<Option<Daemon>, String> {
    if !is_installed(redis::PROGRAM) {
        return Ok(None);
    }
    on_last_core(|| redis::start(Transport::Unix)).map(Some)
}

/// Puts all records into an ordered table.
fn fill_ordered(store: &mut Store) -> Result<Table, String> {
    let table = store.session.create_table_of(TableKind::Strings, ORDERED).map_err(text)?;
    let records: Vec<u64> = (0..store.records).collect();
    for batch in records.chunks(BATCH) {
        put_records(&mut store.session, table, store.walk, batch)?;
    }
    Ok(table)
}

/// The rows of Python.
pub(super) fn of_python(store: &mut Store) -> Result<Vec<Row>, String> {
    const VARIABLE: &str = "KELIX_BENCH_PYTHON";
    if command(VARIABLE, "Python")?.is_none() {
        return Ok(Vec::new());
    }
    progress::show("py_get");
    let records = FEW.min(store.records);
    let (table, mut session) = (store.table, store.client.session().map_err(text)?);
    let ordered = fill_ordered(store)?;
    let redis = start_redis()?;
    let socket = redis.as_ref().and_then(|daemon| match daemon.address() {
        Address::Unix(path) => Some(("KELIX_BENCH_REDIS", &**path)),
        Address::Tcp(_) => None,
    });
    let place = (&*store.directory, records);
    let Some(mut child) = Child::start(VARIABLE, "Python", place, socket)? else {
        return Ok(Vec::new());
    };
    let mut rows = Vec::new();
    let ours = gets(&mut session, table, records);
    if let Some(comparison) = beside_ours(store.rounds, (&mut child, "get"), ours)? {
        rows.push(more("py_get", "table[key] / get_into of the Rust client", 110.0, comparison));
    }
    let others = [
        ("py_get_lmdb", "lmdb", "table[key] / py-lmdb in a transaction that is held", 0.35),
        ("py_get_dict", "dict", "table[key] / dict[key]", 2.5),
    ];
    for (id, way, name, wanted) in others {
        progress::show(id);
        if let Some(comparison) = beside(store.rounds, (&mut child, "get"), |child| child.block(way))? {
            rows.push(compared(id, name, "ns", wanted, comparison, ""));
        }
    }
    // What a request to another process takes is milliseconds a block, and needs few of them.
    let shared = [
        ("py_shared", "stash", "table[key] / gunicorn's stash, which its workers share", Some(1.0 / 200.0)),
        ("py_shared_redis", "redis", "table[key] / redis-py over a Unix socket", None),
    ];
    for (id, way, name, wanted) in shared {
        progress::show(id);
        let rounds = store.rounds.min(FEW_ROUNDS);
        if let Some(comparison) = beside(rounds, (&mut child, "get"), |child| child.block(way))? {
            let row = compared(id, name, "ns", 0.0, comparison, "");
            rows.push(Row { wanted, ..row });
        }
    }
    progress::show("py_rows");
    let (mut draw, mut values) = (Draw::of(6, records), Values::new());
    let mut batches = || {
        for _ in 0..8 {
            let batch = draw.batch(BATCH);
            let keys: Vec<[u8; 16]> = batch.iter().map(|record| key_of(*record)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            session.multi_get_into(table, &keys, &mut values).expect("a batch");
            for (index, record) in batch.iter().enumerate() {
                verify(values.get(index).expect("present"), *record);
            }
        }
        8 * BATCH as u64
    };
    let forms = [
        ("py_rows", "rows", "500 keys in a list into an array of numpy's / multi_get_into, a key"),
        ("py_rows_array", "array", "the same, keys in an array"),
    ];
    for (id, way, name) in forms {
        if let Some(comparison) = beside_ours(store.rounds, (&mut child, way), &mut batches)? {
            rows.push(compared(id, name, "ns", 1.4, comparison, ""));
        }
    }
    progress::show("py_arrow");
    let (count, mut found) = (store.records, Rows::new());
    let scan = || {
        session.scan_into(ordered, &Scan::all(), &mut found).expect("a scan");
        assert_eq!(found.len() as u64, count);
        count
    };
    if let Some(comparison) = beside_ours(store.rounds.min(FEW_ROUNDS), (&mut child, "arrow"), scan)? {
        let name = "a scan of a whole table to Arrow / scan_into of the Rust client, a row";
        rows.push(compared("py_arrow", name, "ns", 1.3, comparison, ""));
    }
    Ok(rows)
}

/// What workers in Python take together, each with a dictionary of its own or with an open store.
pub(super) fn memory(store: &Store) -> Result<Vec<Row>, String> {
    const VARIABLE: &str = "KELIX_BENCH_PYTHON_MEMORY";
    const WORKERS: usize = 8;
    let Some(mut command) = command(VARIABLE, "what workers take")? else { return Ok(Vec::new()) };
    progress::show("workers_memory");
    let said = command
        .args([store.records.to_string(), WORKERS.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{VARIABLE}: {error}"))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let megabytes = |what: &str| {
        let bytes = said.lines().find_map(|line| line.strip_prefix(what)?.trim().parse::<f64>().ok());
        bytes.map(|bytes| bytes / 1e6).ok_or_else(|| format!("{VARIABLE} says {said:?}, and no {what}"))
    };
    let (ours, other) = (megabytes("kelix ")?, megabytes("dict ")?);
    Ok(vec![Row {
        id: "workers_memory".into(),
        name:
            "8 processes in Python that have all records: an open store each, with the server / a dict each"
                .into(),
        ours,
        other: Some(other),
        unit: "MB",
        ratio: ours / other,
        wanted: Some(0.1),
        sense: Sense::AtMost,
        note: format!("{:.0} MB a dict", other / WORKERS as f64),
    }])
}
