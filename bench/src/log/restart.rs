//! From the start of a server to its first answer, after a server with a log has ended, or was killed,
//! against one with snapshots only.
//!
//! Files are in the page cache, as they are when a server has just ended. Each start finds them as that
//! server left them.

use std::path::{Path, PathBuf};

use kelix_report::interleave::{self, compared as between};
use kelix_report::progress;
use kelix_report::report::{Row, compared};

use super::disk::Disk;
use super::replay::{Files, serve, sync};
use super::text;
use crate::cached::Cache;
use crate::served::{Asker, Home, Served};
use crate::store::{Walk, memory_for};

/// Rounds. A small run is a check that all works.
const FULL: usize = 15;
const SMALL: usize = 2;

/// Starts a server in a folder.
type Start = fn(&Home, &Path) -> Result<Served, String>;

/// The files of a server that took these records and ended in good order.
fn ended(home: &Home, folder: PathBuf, of: (u64, Walk), start: Start) -> Result<Files, String> {
    let server = start(home, &folder)?;
    Asker::open(&server)?.put_all(of, || Ok(()))?;
    server.end()?;
    Ok(Files::of(folder))
}

/// The rows.
pub(super) fn rows(disk: &Disk, records: u64, is_full: bool) -> Result<Vec<Row>, String> {
    progress::show("log_restart_clean and log_restart_kill");
    let of = (records, Walk::over(records));
    let home = Home::new("log-restart", memory_for(records))?;
    let (with_log, with_snapshots): (Start, Start) = (Home::serve_with_log, Home::serve_with_snapshots_in);
    let logged = ended(&home, disk.folder("logged")?, of, with_log)?;
    let kept = ended(&home, disk.folder("snapshots")?, of, with_snapshots)?;
    let killed = disk.folder("killed")?;
    logged.lay_out(&killed)?;
    let server = with_log(&home, &killed)?;
    Asker::open(&server)?.put_all(of, || Ok(()))?;
    sync(&server, of.1)?;
    drop(server);
    let killed = Files::of(killed);

    let sides = [(&logged, with_log), (&kept, with_snapshots), (&killed, with_log)];
    let begun = disk.folder("begun")?;
    let rounds = if is_full { FULL } else { SMALL };
    let times = interleave::take_blocks(rounds, sides.len(), |side| {
        let (files, start) = sides[side];
        files.lay_out(&begun)?;
        files.paths()?.iter().try_for_each(|path| Cache::Warm.prepare(path))?;
        serve(of, || start(&home, &begun))
    });
    let times = times.map_err(|error: String| format!("log_restart: {error}"))?;
    for folder in [&begun, logged.folder(), kept.folder(), killed.folder()] {
        std::fs::remove_dir_all(folder).map_err(text)?;
    }
    let row = |id, name, ours, wanted, what: String| {
        let note = format!("{}; {records} items{what}, in the page cache; ", disk.name);
        let row = compared(id, name, "ms", 0.0, between(ours, &times[1]), &note);
        Row { wanted, ..row }
    };
    Ok(vec![
        row(
            "log_restart_clean",
            "serving after a clean end with a log / with snapshots only",
            &times[0],
            Some(1.0),
            String::new(),
        ),
        row(
            "log_restart_kill",
            "serving after a kill with a log / after a clean end with snapshots only",
            &times[2],
            None,
            format!(" in a base and {records} puts behind it"),
        ),
    ])
}
