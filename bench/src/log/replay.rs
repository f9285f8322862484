//! From the start of a server to its first answer out of a log alone, against reading the log's files from
//! their beginning to their end.
//!
//! A server removes what a base makes superfluous. So its files are linked into another folder while they are
//! written, where all of them stay, and each server that is measured begins with links of these.

use std::path::{Path, PathBuf};
use std::time::Instant;

use kelix::{SessionOptions, Values};
use kelix_log::files::{Directory, Log};
use kelix_report::interleave::{self, compared as between};
use kelix_report::progress;
use kelix_report::report::{Row, compared};

use super::disk::Disk;
use super::{BATCH, text};
use crate::cached::{Cache, read_all};
use crate::served::{Asker, Home, Served};
use crate::store::{Walk, key_of, memory_for, put_records, verify};

/// Puts whose records are replayed.
const RECORDS: u64 = 10_000_000;
/// Rounds. A small run is a check that all works.
const FULL: usize = 7;
const SMALL: usize = 2;
/// Batches of puts between two looks for new files.
const LOOK: usize = 256;
/// Records that are got at once, and how many are looked at.
const GETS: usize = 256;
const LOOKED_AT: u64 = 200_000;

/// Files that servers begin with, of a log or snapshots, with their store's number.
pub(super) struct Files(PathBuf);

impl Files {
    /// The files of a folder.
    pub fn of(folder: PathBuf) -> Files {
        Files(folder)
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// All of them, in their order.
    pub fn paths(&self) -> Result<Vec<PathBuf>, String> {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(&self.0).map_err(text)?.flatten().map(|entry| entry.path()).collect();
        paths.sort_unstable();
        Ok(paths)
    }

    /// Makes a new folder with the same files for a server. Those that servers leave as they are have both
    /// names.
    pub fn lay_out(&self, into: &Path) -> Result<(), String> {
        let _ = std::fs::remove_dir_all(into);
        std::fs::create_dir(into).map_err(text)?;
        link(&self.0, into, |name| name.starts_with("log-") || name.ends_with(".kelix-snapshot"))
    }
}

/// Links what is not there yet of a folder's files into another, those that are wanted by their names; and
/// copies the number of the store.
fn link(from: &Path, into: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<(), String> {
    for entry in std::fs::read_dir(from).map_err(text)?.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let told = name.to_string_lossy();
        let linked = match &*told {
            "store" => std::fs::copy(&path, into.join(&name)).map(drop),
            _ if is_wanted(&told) => std::fs::hard_link(&path, into.join(&name)),
            _ => continue,
        };
        match linked {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(format!("{}: {error}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Asker {
    /// Puts all records in this order, with as many under way as a batch has, and looks at something after
    /// each few.
    pub fn put_all(
        &mut self,
        (records, walk): (u64, Walk),
        mut look: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        let mut batch = Vec::with_capacity(BATCH);
        for (index, first) in (0..records).step_by(BATCH).enumerate() {
            batch.clear();
            batch.extend((first..records.min(first + BATCH as u64)).map(|step| walk.step_of(step)));
            put_records(&mut self.session, self.table, walk, &batch)?;
            if index % LOOK == LOOK - 1 {
                look()?;
            }
        }
        look()
    }

    /// Gets the first record.
    pub fn get_one(&mut self) -> Result<(), String> {
        let mut value = [0; 32];
        let found = self.session.get_into(self.table, &key_of(0), &mut value).map_err(text)?;
        found.ok_or("the first record is not there")?;
        verify(&value, 0);
        Ok(())
    }

    /// Gets many of them, if not all.
    pub fn verify(&mut self, (records, walk): (u64, Walk)) -> Result<(), String> {
        let mut values = Values::new();
        let some: Vec<u64> = (0..records.min(LOOKED_AT)).map(|step| walk.step_of(step)).collect();
        for records in some.chunks(GETS) {
            let keys: Vec<[u8; 16]> = records.iter().map(|record| key_of(*record)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            self.session.multi_get_into(self.table, &keys, &mut values).map_err(text)?;
            for (index, record) in records.iter().enumerate() {
                verify(values.get(index).ok_or_else(|| format!("no record {record}"))?, *record);
            }
        }
        Ok(())
    }
}

/// Waits until all is on the disk that was put, by putting the first record once more.
pub(super) fn sync(server: &Served, walk: Walk) -> Result<(), String> {
    let client = server.client()?;
    let mut session = client.session_with(SessionOptions::default().durable(true)).map_err(text)?;
    let table = session.table("records").map_err(text)?;
    session.put(table, &key_of(0), &walk.value_of(0)).map(drop).map_err(text)
}

/// Milliseconds from the start of a server to its first answer. It is killed when many answers were verified.
pub(super) fn serve(of: (u64, Walk), start: impl FnOnce() -> Result<Served, String>) -> Result<f64, String> {
    let began = Instant::now();
    let server = start()?;
    let mut asker = Asker::open(&server)?;
    asker.get_one()?;
    let time = began.elapsed().as_secs_f64() * 1e3;
    asker.verify(of)?;
    Ok(time)
}

/// The rows.
pub(super) fn rows(disk: &Disk, chosen: Option<u64>, is_full: bool) -> Result<Vec<Row>, String> {
    let records = chosen.map_or(RECORDS, |records| records.min(RECORDS));
    let of = (records, Walk::over(records));
    progress::show("writing the log that is replayed");
    let home = Home::new("log-replay", memory_for(records))?;
    let (folder, kept) = (disk.folder("written")?, disk.folder("kept")?);
    let server = home.serve_with_log(&folder)?;
    let mut asker = Asker::open(&server)?;
    // No bases: a server would begin with one.
    let keep = || link(&folder, &kept, |name| name.starts_with("log-"));
    asker.put_all(of, keep)?;
    sync(&server, of.1)?;
    keep()?;
    // Killed: what it would write at its end is no part of this.
    drop((asker, server));
    std::fs::remove_dir_all(&folder).map_err(text)?;
    // The log is whole, and begins with its first batch.
    let log = Log::open(Box::new(Directory(kept.clone()))).map_err(text)?;
    let (surveys, end) = log.survey().map_err(text)?;
    if end.torn.is_some() || surveys.first().is_none_or(|first| first.first != 1) {
        return Err(format!("the log that is to be replayed is not whole: {end:?}"));
    }
    let files = Files::of(kept);
    let what = format!(
        "{}; {records} puts in {} records and {} batches, {} files",
        disk.name,
        end.records,
        end.batches,
        surveys.len()
    );
    let kinds = [
        (Cache::Cold, "log_replay", "serving out of a log on the disk / reading its files", Some(1.5)),
        (Cache::Warm, "log_replay_warm", "serving out of a log in the page cache / reading its files", None),
    ];
    let row = |(cache, id, name, wanted): (Cache, &'static str, &'static str, Option<f64>)| {
        let begun = disk.folder("begun")?;
        let rounds = if is_full { FULL } else { SMALL };
        let mut bytes = 0;
        let times = interleave::take_blocks(rounds, 2, |side| {
            progress::show(id);
            files.lay_out(&begun)?;
            let paths = files.paths()?;
            paths.iter().try_for_each(|path| cache.prepare(path))?;
            if side == 0 {
                return serve(of, || home.serve_with_log(&begun));
            }
            let began = Instant::now();
            bytes = read_all(&paths)?;
            Ok::<_, String>(began.elapsed().as_secs_f64() * 1e3)
        });
        let times = times.map_err(|error| format!("{id}: {error}"))?;
        std::fs::remove_dir_all(&begun).map_err(text)?;
        let note = format!("{what} of {} MB; ", bytes / 1_000_000);
        let row = compared(id, name, "ms", 0.0, between(&times[0], &times[1]), &note);
        Ok(Row { wanted, ..row })
    };
    let rows = kinds.into_iter().map(row).collect::<Result<Vec<_>, String>>()?;
    std::fs::remove_dir_all(files.folder()).map_err(text)?;
    Ok(rows)
}
