//! From the start of a server to its first answer out of a snapshot, against reading the file from its
//! beginning to its end. Both find the file in the same state: not in memory, or in memory as a whole.
//!
//! And how long clients wait while a server takes over from one that runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kelix::{Session, SessionOptions, Table};

use super::records::Stored;
use super::text;
use crate::cached::{Cache, read};
use crate::served::{Asker, Served};
use crate::store::key_of;
use kelix_report::interleave;
use kelix_report::progress;
use kelix_report::report::{Row, Sense, compared};

/// Rounds. A small run is a check that all works.
const FULL: usize = 11;
const SMALL: usize = 2;
/// Starts a server, and gets a record. Nanoseconds until it was there; all others are checked behind that.
fn serve(stored: &Stored) -> Result<f64, String> {
    let began = Instant::now();
    let server = stored.home.serve_with_snapshots()?;
    let mut asker = Asker::open(&server)?;
    stored.get_one(&mut asker)?;
    let time = began.elapsed().as_nanos() as f64;
    stored.verify(&mut asker)?;
    // It is killed, so that this snapshot stays the newest.
    Ok(time)
}

fn row(stored: &Stored, cache: Cache, rounds: usize) -> Result<Row, String> {
    let path = stored.home.newest_snapshot()?;
    let (id, name, state) = match cache {
        Cache::Cold => ("restart", "serving out of a snapshot on the disk / reading the file", "on the disk"),
        Cache::Warm => (
            "restart_warm",
            "serving out of a snapshot in the page cache / reading the file",
            "in the page cache",
        ),
    };
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for round in 0..rounds {
        progress::show(&format!("{id}: {} of {rounds}", round + 1));
        for side in [round % 2, 1 - round % 2] {
            cache.prepare(&path)?;
            if side == 0 {
                ours.push(serve(stored)? / 1e6);
            } else {
                let began = Instant::now();
                bytes = read(&path)?;
                other.push(began.elapsed().as_nanos() as f64 / 1e6);
            }
        }
    }
    let note = format!("{} items, {} MB, {state}; ", stored.count(), bytes / 1_000_000);
    Ok(compared(id, name, "ms", 1.5, interleave::compared(&ours, &other), &note))
}

/// How long clients go on before a take-over, and behind it.
const AROUND: Duration = Duration::from_millis(100);

/// A session that asks again, for as long as a server may take to be there.
fn asking(server: &Served) -> Result<Asker, String> {
    let options = SessionOptions::default().retry_for(Duration::from_secs(30));
    let mut session = server.client()?.session_with(options).map_err(text)?;
    let table = session.table("records").map_err(text)?;
    Ok(Asker { session, table })
}

/// The longest time that a client which does one thing after another waits for one of them, in milliseconds.
fn longest(
    ends: &AtomicBool,
    (session, table): (&mut Session, Table),
    mut act: impl FnMut(&mut Session, Table) -> Result<(), String>,
) -> Result<f64, String> {
    let mut longest = Duration::ZERO;
    // SYNC: only a flag; the thread is joined.
    while !ends.load(Ordering::Relaxed) {
        let began = Instant::now();
        act(session, table)?;
        longest = longest.max(began.elapsed());
    }
    Ok(longest.as_secs_f64() * 1e3)
}

/// The longest that one who writes waits, and one who reads, while another server takes over.
fn take_over(stored: &Stored, server: &mut Served) -> Result<(f64, f64), String> {
    let (mut writer, mut reader, ends) = (asking(server)?, asking(server)?, AtomicBool::new(false));
    let writer = (&mut writer.session, writer.table);
    let reader = (&mut reader.session, reader.table);
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            longest(&ends, writer, |session, table| {
                session.put(table, b"beside", b"the records").map(drop).map_err(text)
            })
        });
        let reads = scope.spawn(|| {
            longest(&ends, reader, |session, table| {
                let found = session.get_into(table, &key_of(0), &mut [0; 32]).map_err(text)?;
                found.map(drop).ok_or_else(|| "a record is missing".to_string())
            })
        });
        std::thread::sleep(AROUND);
        let next = stored.home.serve_with_snapshots_and(&["--take-over"]);
        std::thread::sleep(AROUND);
        ends.store(true, Ordering::Relaxed);
        let waited = (writes.join().expect("it does not panic"), reads.join().expect("it does not panic"));
        *server = next?;
        Ok((waited.0?, waited.1?))
    })
}

/// `warm_ms`: a restart out of a snapshot in the page cache.
fn take_over_row(stored: &Stored, rounds: usize, warm_ms: f64) -> Result<Row, String> {
    let mut server = stored.home.serve_with_snapshots()?;
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        progress::show(&format!("restart_take_over: {} of {rounds}", round + 1));
        let (write, read) = take_over(stored, &mut server)?;
        writes.push(write);
        reads.push(read);
    }
    stored.verify(&mut Asker::open(&server)?)?;
    let most = writes.iter().copied().fold(0.0, f64::max);
    let note = format!(
        "{} items; the longest that a client which puts waits for a put, median of {rounds}, at most \
         {most:.1} ms; one that gets for a get {:.1} ms; against a restart out of a snapshot in the page cache",
        stored.count(),
        interleave::median(&reads)
    );
    let found = interleave::median(&writes);
    Ok(Row {
        id: "restart_take_over".into(),
        name: "a client's longest wait while a server takes over / a restart out of a snapshot".into(),
        ours: found,
        other: Some(warm_ms),
        unit: "ms",
        ratio: found,
        wanted: Some(50.0),
        sense: Sense::AtMost,
        note,
    })
}

/// The rows.
pub(super) fn rows(stored: Stored, is_full: bool) -> Result<Vec<Row>, String> {
    let rounds = if is_full { FULL } else { SMALL };
    let (cold, warm) = (row(&stored, Cache::Cold, rounds)?, row(&stored, Cache::Warm, rounds)?);
    let taken_over = take_over_row(&stored, rounds, warm.ours)?;
    Ok(vec![cold, warm, taken_over])
}
