//! The rows of the spine.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kelix::{Path, Session, SessionOptions, Table, Values};

use super::plain::PlainTable;
use kelix_server::ServerConfig;

use super::BATCH;
use crate::store::{Numbers, Store, idle_share, key_of, verify};
use kelix_report::cores::pin;
use kelix_report::daemon::status_number;
use kelix_report::interleave::{compare, median};
use kelix_report::report::{Row, Sense, as_rate, compared, told};

/// Loads the records and counts the memory they take.
pub(super) fn item_bytes(store: &mut Store, records: u64) -> Result<Row, String> {
    let before = store.shard()?["memory"]["used_bytes"].as_u64().unwrap_or(0);
    store.load(records)?;
    let shard = store.shard()?;
    let used = shard["memory"]["used_bytes"].as_u64().unwrap_or(0) - before;
    let bytes = used as f64 / records as f64 - 48.0;
    Ok(Row {
        note: format!("used segment bytes after load; {} index splits", shard["index_splits"]),
        ..told("item_bytes", "memory an item beyond its key and value", "bytes", bytes, Some(32.0))
    })
}

/// Gets the next 256 of these records, again and again from the first on, and returns how many.
#[inline(always)]
fn get_block(
    session: &mut Session,
    table: Table,
    (wanted, next): (&[u64], &mut usize),
    buffer: &mut [u8; 32],
) -> u64 {
    for _ in 0..256 {
        let record = wanted[*next % wanted.len()];
        *next += 1;
        session.get_into(table, &key_of(record), buffer).expect("a get").expect("present");
        verify(buffer, record);
    }
    256
}

/// One-sided gets against plain loops.
pub(super) fn gets(store: &mut Store) -> Result<Vec<Row>, String> {
    let (records, rounds) = (store.records, store.rounds);
    let table = store.table;
    // Warm up: the directory copy is fetched, every page is mapped.
    let mut buffer = [0; 32];
    for record in (0..records).step_by((records / 200_000).max(1) as usize) {
        let got = store.session.get_into(table, &key_of(record), &mut buffer);
        got.map_err(|error| error.to_string())?.ok_or("a loaded record is absent")?;
        verify(&buffer, record);
    }
    let plain = PlainTable::new(&mut store.session, table.id());
    let session = &mut store.session;
    let before = session.cost();
    let mut rows = Vec::new();

    let (mut ours_at, mut other_at) = (1, 1);
    let mut ours_buffer = [0; 32];
    let dependent = compare(
        rounds,
        &mut || {
            for _ in 0..256 {
                session.get_into(table, &key_of(ours_at), &mut ours_buffer).expect("a get").expect("present");
                ours_at = verify(&ours_buffer, ours_at);
            }
            256
        },
        &mut || {
            for _ in 0..256 {
                assert!(plain.get(&key_of(other_at), &mut buffer), "a loaded key");
                other_at = verify(&buffer, other_at);
            }
            256
        },
    );
    rows.push(compared(
        "get_loop_dep",
        "one-sided get, next key from the last answer, against a plain loop",
        "ns",
        1.15,
        dependent,
        "",
    ));

    let wanted = Numbers(1).records(records, 1 << 20);
    let (mut ours_next, mut other_next) = (0, 1 << 19);
    let independent = compare(
        rounds,
        &mut || get_block(session, table, (&wanted, &mut ours_next), &mut ours_buffer),
        &mut || {
            for _ in 0..256 {
                let record = wanted[other_next % wanted.len()];
                other_next += 1;
                assert!(plain.get(&key_of(record), &mut buffer), "a loaded key");
                verify(&buffer, record);
            }
            256
        },
    );
    rows.push(compared(
        "get_loop_indep",
        "one-sided get of independent keys against a plain loop",
        "ns",
        1.3,
        independent,
        "",
    ));

    // Both sides are calls of one session.
    let shared = RefCell::new(&mut *session);
    let mut miss_next = 0;
    let missed = compare(
        rounds,
        &mut || {
            let mut session = shared.borrow_mut();
            for _ in 0..256 {
                let record = records + wanted[miss_next % wanted.len()];
                miss_next += 1;
                let found = session.get_into(table, &key_of(record), &mut buffer).expect("a get");
                assert!(found.is_none(), "a key that was never put");
            }
            256
        },
        &mut || get_block(&mut shared.borrow_mut(), table, (&wanted, &mut ours_next), &mut ours_buffer),
    );
    let asked = session.cost().fallbacks - before.fallbacks;
    let looks = miss_next.max(1) as f64;
    let note = format!("the shard was asked for {:.3} % of the keys; ", asked as f64 * 100.0 / looks);
    rows.push(compared(
        "miss_latency",
        "get of an absent key against one that is there",
        "ns",
        1.5,
        missed,
        &note,
    ));
    let before = session.cost();

    let mut values = Values::new();
    let batched = as_rate(compare(
        rounds,
        &mut || {
            for _ in 0..8 {
                let start = ours_next % (wanted.len() - BATCH);
                ours_next += BATCH;
                let records = &wanted[start..start + BATCH];
                let keys: [[u8; 16]; BATCH] = std::array::from_fn(|index| key_of(records[index]));
                let keys: [&[u8]; BATCH] = std::array::from_fn(|index| &keys[index][..]);
                session.multi_get_into(table, &keys, &mut values).expect("a batch");
                for (index, record) in records.iter().enumerate() {
                    verify(values.get(index).expect("present"), *record);
                }
            }
            8 * BATCH as u64
        },
        &mut || {
            for _ in 0..8 {
                let start = other_next % (wanted.len() - BATCH);
                other_next += BATCH;
                plain_batch(&plain, &wanted[start..start + BATCH]);
            }
            8 * BATCH as u64
        },
    ));
    let mut row = compared(
        "multiget_loop",
        "multi_get of 32 against the plain loop batched with prefetch",
        "ns an item",
        0.85,
        batched,
        "ratio of rates; ",
    );
    row.sense = Sense::AtLeast;
    rows.push(row);
    let cost = session.cost();
    if cost.fallbacks != before.fallbacks {
        return Err(format!("{} gets needed the shard", cost.fallbacks - before.fallbacks));
    }
    Ok(rows)
}

/// What a careful programmer would write for a batch of lookups in this table.
fn plain_batch(plain: &PlainTable, records: &[u64]) {
    let mut buckets = [(std::ptr::null(), 0); BATCH];
    let mut items = [std::ptr::null(); BATCH];
    for (index, record) in records.iter().enumerate() {
        buckets[index] = plain.bucket(&key_of(*record));
        PlainTable::prefetch(buckets[index].0);
    }
    for (index, (bucket, hash)) in buckets.iter().enumerate() {
        // SAFETY: the bucket is this table's, and nobody writes while a block runs.
        items[index] = unsafe { plain.item(*bucket, *hash) };
        PlainTable::prefetch(items[index]);
    }
    let mut value = [0; 32];
    for (index, record) in records.iter().enumerate() {
        // SAFETY: the item is this table's.
        let found = unsafe { plain.value(buckets[index], items[index], &key_of(*record), &mut value) };
        assert!(found, "a loaded key");
        verify(&value, *record);
    }
}

/// A thread on the other core that answers a bare cache line, while it is asked to.
struct Echo {
    line: Arc<[AtomicU64; 16]>,
    active: Arc<AtomicBool>,
    thread: std::thread::Thread,
}

impl Echo {
    fn start(core: usize) -> Echo {
        let line: Arc<[AtomicU64; 16]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let active = Arc::new(AtomicBool::new(false));
        let (their_line, their_active) = (line.clone(), active.clone());
        let handle = std::thread::spawn(move || {
            pin(core);
            // Ends when the benchmark has dropped its handle.
            while Arc::strong_count(&their_line) > 1 {
                if !their_active.load(Ordering::Acquire) {
                    std::thread::park_timeout(Duration::from_millis(50));
                    continue;
                }
                let asked = their_line[0].load(Ordering::Acquire);
                if their_line[8].load(Ordering::Relaxed) != asked {
                    their_line[8].store(asked, Ordering::Release);
                }
                std::hint::spin_loop();
            }
        });
        Echo { line, active, thread: handle.thread().clone() }
    }

    /// One round trip. Question and answer stand in lines of their own, as they do in any request and reply.
    #[inline]
    fn round_trip(&self) {
        let asked = self.line[0].load(Ordering::Relaxed) + 1;
        self.line[0].store(asked, Ordering::Release);
        while self.line[8].load(Ordering::Acquire) != asked {
            std::hint::spin_loop();
        }
    }

    fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Release);
        self.thread.unpark();
    }
}

/// Puts against their floor, and in batches against one at a time.
pub(super) fn puts(store: &mut Store) -> Result<Vec<Row>, String> {
    let (records, rounds, walk) = (store.records, store.rounds, store.walk);
    let table = store.table;
    let mut plain = PlainTable::new(&mut store.session, table.id());
    let wanted = Numbers(1).records(records, 1 << 18);
    let echo = Echo::start(store.cores - 1);
    let mut next = 0;
    let mut other_at = 1;
    let mut buffer = [0; 32];
    let session = RefCell::new(&mut store.session);
    let mut put = |session: &mut kelix::Session| {
        for _ in 0..64 {
            let record = wanted[next % wanted.len()];
            next += 1;
            session.put(table, &key_of(record), &walk.value_of(record)).expect("a put");
        }
        64
    };
    let floor = compare(rounds, &mut || put(&mut session.borrow_mut()), &mut || {
        echo.set_active(true);
        for _ in 0..256 {
            echo.round_trip();
            while !plain.get(&key_of(other_at), &mut buffer) {
                // Puts have taken new segments, which the session maps with one of its next operations.
                let session = &mut session.borrow_mut();
                session.get_into(table, &key_of(other_at), &mut buffer).expect("a get");
                plain = PlainTable::new(session, table.id());
            }
            other_at = u64::from_le_bytes(buffer[..8].try_into().expect("8 bytes"));
        }
        echo.set_active(false);
        256
    });
    let mut rows = vec![compared(
        "put_floor",
        "put round trip against a bare cache-line round trip and a plain dependent get",
        "ns",
        1.4,
        floor,
        "",
    )];
    let mut batch_next = 0;
    let mut batch = |session: &mut kelix::Session| {
        let start = batch_next % (wanted.len() - BATCH);
        batch_next += BATCH;
        let items: [([u8; 16], [u8; 32]); BATCH] = std::array::from_fn(|index| {
            let record = wanted[start + index];
            (key_of(record), walk.value_of(record))
        });
        let items: [(&[u8], &[u8]); BATCH] =
            std::array::from_fn(|index| (&items[index].0[..], &items[index].1[..]));
        let results = session.multi_put(table, &items).expect("a batch");
        assert!(results.iter().all(Result::is_ok));
        BATCH as u64
    };
    let mut second = store.client.session().map_err(|error| error.to_string())?;
    let session = &mut store.session;
    let batched = as_rate(compare(rounds, &mut || batch(session), &mut || put(&mut second)));
    let mut row = compared(
        "put_batch",
        "puts in batches of 32 against one at a time",
        "ns an item",
        4.0,
        batched,
        "ratio of rates; ",
    );
    row.sense = Sense::AtLeast;
    rows.push(row);
    for record in wanted.iter().take(10_000) {
        let got = store.session.get_into(table, &key_of(*record), &mut buffer).expect("a get");
        got.expect("present");
        verify(&buffer, *record);
    }
    Ok(rows)
}

/// What an idle server and client cost, and what the shard does during one-sided gets.
pub(super) fn cpu(store: &mut Store) -> Result<Vec<Row>, String> {
    let idle = idle_share(store.time);
    let idle_row = Row {
        note: format!("processor time of the whole process over {:.1} s", store.time.as_secs_f64()),
        ..told("idle_cpu", "server and one client, both idle", "% of a core", idle, Some(0.5))
    };
    let options = SessionOptions::default().path(Path::Index);
    let mut session = store.client.session_with(options).map_err(|error| error.to_string())?;
    let wanted = Numbers(1).records(store.records, 1 << 18);
    let mut buffer = [0; 32];
    // The session's first gets fetch the directory.
    for record in wanted.iter().take(1000) {
        session.get_into(store.table, &key_of(*record), &mut buffer).map_err(|error| error.to_string())?;
    }
    let (before, messages, began) = (store.shard()?, session.cost().messages, Instant::now());
    let mut gets = 0u64;
    while began.elapsed() < store.time {
        for record in wanted.iter().cycle().skip(gets as usize % wanted.len()).take(4096) {
            session.get_into(store.table, &key_of(*record), &mut buffer).expect("a get").expect("present");
            verify(&buffer, *record);
        }
        gets += 4096;
    }
    let seconds = began.elapsed().as_secs_f64();
    let after = store.shard()?;
    let requests = after["requests"].as_u64().unwrap_or(0) - before["requests"].as_u64().unwrap_or(0);
    let sent = session.cost().messages - messages;
    let cpu = after["cpu_s"].as_f64().unwrap_or(0.0) - before["cpu_s"].as_f64().unwrap_or(0.0);
    let share = cpu / seconds * 100.0;
    let read_row = Row {
        id: "read_cpu".into(),
        name: "processor time of the shard during one-sided gets".into(),
        ours: share,
        other: None,
        unit: "% of a core",
        // A message would be a failure whatever it cost.
        ratio: if requests + sent == 0 { share } else { f64::INFINITY },
        wanted: Some(0.1),
        sense: Sense::AtMost,
        note: format!("{requests} messages during {gets} gets in {seconds:.1} s"),
    };
    Ok(vec![idle_row, read_row])
}

/// Sessions that are opened beside another one of their process.
const SESSIONS: usize = 32;
/// Gets of each, from all over the table.
const GETS_A_SESSION: usize = 1 << 14;

/// What a further session of a process costs: its first get, and memory once it has read from all over the
/// table.
pub(super) fn sessions(store: &mut Store) -> Result<Vec<Row>, String> {
    let text = |error: kelix::Error| error.to_string();
    let mut buffer = [0; 32];
    let mut numbers = Numbers(3);
    let (mut sessions, mut first) = (Vec::new(), Vec::new());
    let before = (memory_of_process()?, number_of_process("Threads")?);
    for _ in 0..SESSIONS {
        let mut session = store.client.session().map_err(text)?;
        for (index, record) in numbers.records(store.records, GETS_A_SESSION).into_iter().enumerate() {
            let began = Instant::now();
            let got = session.get_into(store.table, &key_of(record), &mut buffer).map_err(text)?;
            if index == 0 {
                first.push(began.elapsed().as_nanos() as f64 / 1000.0);
            }
            got.ok_or("a record is missing")?;
            verify(&buffer, record);
        }
        sessions.push(session);
    }
    // What others gave back meanwhile may be more.
    let kib = (memory_of_process()? as f64 - before.0 as f64).max(0.0) / SESSIONS as f64;
    // One that greets may not have ended when it was counted first.
    let threads = number_of_process("Threads")? as i64 - before.1 as i64;
    let opened = format!("{SESSIONS} sessions, {threads:+} threads of server and client");
    let read = format!("after {GETS_A_SESSION} gets from all over the table");
    let first_get = "the first get of a further session of a process";
    let memory = "private memory and page tables of a further session, client and server";
    Ok(vec![
        Row { note: opened, ..told("session_first_get", first_get, "us", median(&first), Some(50.0)) },
        Row { note: read, ..told("session_memory", memory, "KiB", kib, Some(512.0)) },
    ])
}

/// Memory that this process has alone and the system's for its mappings, in KiB. Shared memory would count
/// once for each mapping of it.
fn memory_of_process() -> Result<u64, String> {
    Ok(number_of_process("RssAnon")? + number_of_process("VmPTE")?)
}

fn number_of_process(name: &str) -> Result<u64, String> {
    status_number(std::process::id(), name).ok_or_else(|| format!("the system tells no {name} of a process"))
}

/// Dead memory held at full put rate, and whether a put is refused while memory could be reused, in a store
/// that is nearly full.
pub(super) fn quarantine(records: u64, time: Duration) -> Result<Row, String> {
    // Just enough for the records and the dead of two to three epochs.
    let mut store =
        Store::start("quarantine", ServerConfig { memory_bytes: 64 << 20, ..ServerConfig::default() })?;
    let records = records.min(400_000);
    store.load(records)?;
    let wanted = Numbers(1).records(records, 1 << 16);
    let began = Instant::now();
    let (mut most, mut puts, mut start) = (0, 0u64, 0);
    let client = store.client.clone();
    let mut looked = Instant::now();
    while began.elapsed() < time {
        store.put_batch(&wanted[start..start + 64])?;
        start = (start + 64) % (wanted.len() - 64);
        puts += 64;
        if looked.elapsed() > Duration::from_millis(60) {
            looked = Instant::now();
            let all = client.statistics().map_err(|error| error.to_string())?;
            most = most.max(all.shards[0].memory.quarantined_bytes);
        }
    }
    let rate = puts as f64 / began.elapsed().as_secs_f64();
    let shard = store.shard()?;
    let refused = shard["writes_refused"].as_f64().unwrap_or(f64::NAN);
    Ok(Row {
        note: format!(
            "{:.1} MiB dead at most, {:.1} M puts/s, {} waited; {} items of 64 bytes in 64 MiB",
            most as f64 / 1048576.0,
            rate / 1e6,
            shard["writes_waited"],
            records
        ),
        ..told("quarantine", "puts refused at full rate in a nearly full store", "puts", refused, Some(0.0))
    })
}
