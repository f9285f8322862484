//! From the start of a server to its first answer out of a snapshot, against reading the file from its
//! beginning to its end.
//!
//! Both find the file in the same state: not in memory, or in memory as a whole.

use std::time::Instant;

use super::records::Stored;
use crate::cached::{Cache, read};
use crate::served::Asker;
use kelix_report::interleave;
use kelix_report::progress;
use kelix_report::report::{Row, compared};

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

/// The rows.
pub(super) fn rows(stored: Stored, is_full: bool) -> Result<Vec<Row>, String> {
    let rounds = if is_full { FULL } else { SMALL };
    Ok(vec![row(&stored, Cache::Cold, rounds)?, row(&stored, Cache::Warm, rounds)?])
}
