//! The records behind a position, read from the files of the log while the log is written: for a mirror that
//! comes back.
//!
//! 1. *Nothing is read that is being written.* Batches are read up to one whose write was over before
//!    ([`Wal::note_written`]), so a batch that is not whole is never looked at.
//! 2. *A position is of one lineage.* Each server that writes the log has a random number, which is in the
//!    heads of its files. Where its files end the next server went on. So whoever has no record of a lineage
//!    behind that end has a prefix of the log; a server that lost its last records in a power cut has
//!    mirrors that have more, and these copy anew.
//! 3. *Where a lineage ends is told.* Sessions on a mirror may know numbers of tables that the next server
//!    gives to others, so the mirror has them begin anew between the two ([`Tailed::Lineage`]). Numbers that
//!    a server gives again while it runs end what was before for good ([`Wal::note_renewed`]).

use std::collections::VecDeque;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use kelix_log::files::{BatchView, Directory, FileHead, Log};
use kelix_log::{LogState, Record};
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::control::StreamPosition;

use super::Wal;
use crate::namespace::Namespace;
use crate::store::replace_line;

/// Names the lineage in which numbers of tables were given again last: nothing before can be gone on with.
const RENEWED: &str = "renewed";
const RENEWED_NEXT: &str = "renewed.next";

/// The log behind a position of the shards of a namespace, as far as it was read.
pub(crate) struct LogTail {
    /// The batch that is read next.
    next: u64,
    /// Which of the namespace's shards each of the log's is.
    shards: Vec<Option<usize>>,
    /// The last record of each shard of the namespace that was read, or that there was before.
    pub sequences: Vec<u64>,
    /// The lineages that begin behind the position, each with the number of its first batch.
    lineages: VecDeque<(u64, u64)>,
}

/// What is read of a log.
pub(crate) enum Tailed<'a> {
    /// Words of whole records of a shard.
    Records(usize, &'a [u64]),
    /// The last record of each shard so far: all causes of these were given.
    Cut(&'a [u64]),
    /// Another lineage begins behind the last record of each shard so far.
    Lineage(u64, &'a [u64]),
}

/// Whether a position is that of a state which the log leads to: it tells nothing behind where its lineage
/// ended. `ended`: the first file of the next lineage, and which of its shards each of the position's is.
fn is_of_log(position: &StreamPosition, ended: Option<(&FileHead, &[usize])>) -> bool {
    let Some((head, indexes)) = ended else { return true };
    let last = |index: &usize| head.sequences.get(*index).copied().unwrap_or(0);
    position.sequences.iter().zip(indexes).all(|(sequence, index)| *sequence <= last(index))
}

impl Wal {
    /// The lineage of the records of a server that writes them; 0 of one that shows the past.
    pub fn lineage(&self) -> u64 {
        if self.is_of_the_past { 0 } else { self.life }
    }

    /// What is behind a position of a namespace's shards. `None`: the log does not reach back there, or there
    /// never was such a state.
    pub fn tail(&self, namespace: &Namespace, position: &StreamPosition) -> Result<Option<LogTail>> {
        let shards = namespace.shards.len();
        if self.is_of_the_past || position.sequences.len() != shards {
            return Ok(None);
        }
        let index = |shard| self.layout.index(&namespace.name, shard).expect("a shard of the log");
        let indexes: Vec<usize> = (0..shards).map(index).collect();
        let log = Log::open(Box::new(Directory(self.directory.clone())))?;
        let heads = log.files();
        let of_lineage = |head: &FileHead| head.identity.life == position.lineage;
        let Some(last) = heads.iter().rposition(of_lineage) else { return Ok(None) };
        if are_renewed(&heads[last..], renewed(&self.directory)?) {
            return Ok(None);
        }
        let ended = heads.get(last + 1).map(|head| (head, &indexes[..]));
        // Of shards of other namespaces nothing is wanted.
        let (mut behind, mut of) = (vec![u64::MAX; self.layout.shards()], vec![None; self.layout.shards()]);
        for (shard, &index) in indexes.iter().enumerate() {
            (behind[index], of[index]) = (position.sequences[shard], Some(shard));
        }
        let next = log.first_behind(&behind).filter(|_| is_of_log(position, ended));
        let sequences = position.sequences.clone();
        let lineages = lineages(&heads[last..]);
        Ok(next.map(|next| LogTail { next, shards: of, sequences, lineages }))
    }

    /// Takes note, for whoever writes the log next, too, that numbers of dropped tables are going to be given
    /// again: a mirror that was away meanwhile would take old ones for new ones.
    pub fn note_renewed(&self) -> Result<()> {
        let line = format!("{:016x}", self.life);
        let written = replace_line(&self.directory, (RENEWED, RENEWED_NEXT), &line);
        written.map_err(|source| {
            Error::system("serve", format!("cannot write {RENEWED} beside the log"), source)
        })
    }

    /// Has what is in the streams of a namespace's shards up to these records written. An error: the log
    /// takes nothing, or not in time.
    pub fn write_up_to(&self, namespace: &Namespace, sequences: &[u64]) -> Result<()> {
        let index = |shard| self.layout.index(&namespace.name, shard).expect("a shard of the log");
        let is_written = || {
            let last = self.last.lock().expect("no panic under this lock");
            sequences.iter().enumerate().all(|(shard, sequence)| last.sequences[index(shard)] >= *sequence)
        };
        let takes = || self.state() == LogState::Writes;
        self.wait_for_log("follow", || !takes() || is_written())?;
        if is_written() {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::Unavailable, "follow", "the log takes nothing"))
        }
    }

    /// Reads the batches that were written since, but no records behind `until`. `each` is given words of
    /// whole records of a shard, none of which it was given before, and the cuts at which no record that it
    /// was given lacks its causes.
    pub fn read_tail<E: From<Error>>(
        &self,
        tail: &mut LogTail,
        until: Option<&[u64]>,
        mut each: impl FnMut(Tailed<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let last = self.last.lock().expect("no panic under this lock").batch;
        let LogTail { next, shards, sequences, lineages } = tail;
        // With the last records also the lineage begins of which no batch was written yet.
        let begun = if until.is_some() { u64::MAX } else { 0 };
        if *next > last {
            return begin_lineages(lineages, begun, sequences, &mut each);
        }
        let log = Log::open(Box::new(Directory(self.directory.clone())))?;
        let mut failed = None;
        let read = log.read(*next, |batch| {
            let told = begin_lineages(lineages, batch.number, sequences, &mut each);
            failed = told.and_then(|()| give(batch, (shards, until), sequences, &mut each)).err();
            *next = batch.number + 1;
            let goes_on = failed.is_none() && batch.number < last;
            Ok(if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        read?;
        if *next <= last {
            let context = "the log has no more what it had: files of it were removed meanwhile";
            return Err(Error::new(ErrorKind::Unavailable, "follow", context).into());
        }
        begin_lineages(lineages, begun, sequences, &mut each)
    }
}

/// The lineages that begin behind the first of these files, each with the number of its first batch.
fn lineages(heads: &[FileHead]) -> VecDeque<(u64, u64)> {
    let begin = |pair: &&[FileHead]| pair[0].identity.life != pair[1].identity.life;
    heads.windows(2).filter(begin).map(|pair| (pair[1].first, pair[1].identity.life)).collect()
}

/// Whether numbers of tables were given again somewhere behind a position in the first of these files, or
/// maybe before it, if another lineage follows. Of the last lineage the mirror knows by the life.
fn are_renewed(heads: &[FileHead], renewed: Option<u64>) -> bool {
    let lives = || heads.iter().map(|head| head.identity.life);
    lives().any(|life| Some(life) == renewed) && lives().next() != lives().next_back()
}

/// The lineage in which numbers of tables were given again last.
fn renewed(directory: &Path) -> Result<Option<u64>> {
    match fs::read_to_string(directory.join(RENEWED)) {
        Ok(text) => match u64::from_str_radix(text.trim(), 16) {
            Ok(lineage) => Ok(Some(lineage)),
            Err(_) => {
                let context = format!("{RENEWED} beside the log makes no sense");
                Err(Error::new(ErrorKind::Damaged, "follow", context))
            }
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::system("follow", format!("cannot read {RENEWED} beside the log"), source)),
    }
}

/// Tells of the lineages that begin with this batch, or before.
fn begin_lineages<E>(
    lineages: &mut VecDeque<(u64, u64)>,
    batch: u64,
    sequences: &[u64],
    each: &mut impl FnMut(Tailed<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    while let Some((_, lineage)) = lineages.front().copied().filter(|(first, _)| *first <= batch) {
        lineages.pop_front();
        each(Tailed::Lineage(lineage, sequences))?;
    }
    Ok(())
}

/// Gives what a batch has of shards that are wanted.
fn give<E: From<Error>>(
    batch: &BatchView<'_>,
    (shards, until): (&[Option<usize>], Option<&[u64]>),
    sequences: &mut [u64],
    each: &mut impl FnMut(Tailed<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut is_whole = true;
    for (shard, records) in batch.parts() {
        let Some(shard) = shards.get(shard as usize).copied().flatten() else { continue };
        let (last, until) = (&mut sequences[shard], until.map_or(u64::MAX, |until| until[shard]));
        let (mut rest, mut wanted) = (records, 0..0);
        while let Some((record, behind)) = Record::split(rest)? {
            let (at, end) = (records.len() - rest.len(), records.len() - behind.len());
            if record.head.sequence > until {
                is_whole = false;
                break;
            }
            if record.head.sequence > *last {
                wanted = if wanted.is_empty() { at..end } else { wanted.start..end };
                *last = record.head.sequence;
            }
            rest = behind;
        }
        if !wanted.is_empty() {
            each(Tailed::Records(shard, &records[wanted]))?;
        }
    }
    if is_whole { each(Tailed::Cut(sequences)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use kelix_log::RecordHead;
    use kelix_log::files::{Batch, FILE_BYTES, Identity, LogWriter, MemoryDisk, Position};

    use super::*;

    fn record(sequence: u64) -> Vec<u64> {
        RecordHead { sequence, last_incarnation: sequence, batch: 0, words: 0 }.words().to_vec()
    }

    /// A lineage that ended with record 5 of one shard and record 7 of the other, which the log has behind
    /// those of another namespace.
    #[test]
    fn a_position_behind_the_end_of_its_lineage_is_of_no_log() {
        let disk = MemoryDisk::new();
        let identity = |life| Identity { store: 1, life, description: String::new() };
        let open = || Log::open(Box::new(disk.clone())).unwrap();
        let mut writer = LogWriter::create(open(), identity(7), Position::start(3), FILE_BYTES).unwrap();
        let mut batch = Batch::default();
        batch.begin();
        for (shard, last) in [(0, 9), (1, 5), (2, 7)] {
            let records: Vec<u64> = (1..=last).flat_map(record).collect();
            batch.part(shard, &records, last);
        }
        writer.write(&batch, 1).unwrap();
        writer.end().unwrap();
        let end = open().read(0, |_| Ok(ControlFlow::Continue(()))).unwrap().last;
        LogWriter::create(open(), identity(8), end, FILE_BYTES).unwrap().end().unwrap();
        let log = open();
        let ended = log.files().iter().find(|head| head.identity.life == 8).map(|head| (head, &[1, 2][..]));
        let of_log = |sequences: [u64; 2]| {
            is_of_log(&StreamPosition { lineage: 7, sequences: sequences.to_vec() }, ended)
        };
        assert!(of_log([5, 7]) && of_log([0, 0]) && of_log([5, 1]));
        assert!(!of_log([6, 7]) && !of_log([5, 8]), "the server after it never had that");
        assert!(is_of_log(&StreamPosition { lineage: 8, sequences: vec![99, 99] }, None));
    }

    /// A lineage is told of behind the last record of the one before. Each server writes something when it
    /// begins; one that never came to that leaves no file.
    #[test]
    fn a_lineage_is_told_of_where_it_begins() {
        let disk = MemoryDisk::new();
        let identity = |life| Identity { store: 1, life, description: String::new() };
        let mut end = Position::start(1);
        // The number of records that each of five servers writes, a batch each.
        for (life, count) in (7..).zip([3, 2, 0, 1, 1]) {
            let log = Log::open(Box::new(disk.clone())).unwrap();
            let mut writer = LogWriter::create(log, identity(life), end.clone(), FILE_BYTES).unwrap();
            for sequence in end.sequences[0] + 1..=end.sequences[0] + count {
                let mut batch = Batch::default();
                batch.begin();
                batch.part(0, &record(sequence), sequence);
                writer.write(&batch, 1).unwrap();
            }
            writer.end().unwrap();
            let log = Log::open(Box::new(disk.clone())).unwrap();
            end = log.read(0, |_| Ok(ControlFlow::Continue(()))).unwrap().last;
        }
        let log = Log::open(Box::new(disk)).unwrap();
        // Numbers that were given again by one of them, as seen from a position of the second.
        let renewed = |life| are_renewed(&log.files()[1..], Some(life));
        assert_eq!([7, 8, 10, 11].map(renewed), [false, true, true, true]);
        assert!(!are_renewed(&log.files()[3..], Some(11)), "the mirror knows its life");
        assert!(!are_renewed(log.files(), None));
        let (mut lineages, mut sequences, mut told) = (lineages(log.files()), vec![1], Vec::new());
        let mut each = |tailed: Tailed<'_>| -> Result<()> {
            told.push(match tailed {
                Tailed::Records(_, words) => ("record", Record::split(words)?.expect("one").0.head.sequence),
                Tailed::Cut(sequences) => ("cut", sequences[0]),
                Tailed::Lineage(lineage, sequences) => {
                    let records = told.iter().filter(|(what, _)| *what == "record");
                    assert_eq!(Some(sequences[0]), records.map(|(_, sequence)| *sequence).max());
                    ("lineage", lineage * 100)
                }
            });
            Ok(())
        };
        let read = log.read(0, |batch| {
            begin_lineages(&mut lineages, batch.number, &sequences, &mut each)?;
            give(batch, (&[Some(0)], None), &mut sequences, &mut each)?;
            Ok(ControlFlow::Continue(()))
        });
        read.unwrap();
        begin_lineages(&mut lineages, u64::MAX, &sequences, &mut each).unwrap();
        told.retain(|(what, _)| *what != "cut");
        let record = |sequence| ("record", sequence);
        let lineage = |life: u64| ("lineage", life * 100);
        let of_first = [record(2), record(3), lineage(8), record(4), record(5)];
        let of_others = [lineage(10), record(6), lineage(11), record(7)];
        assert_eq!(told, [&of_first[..], &of_others].concat());
    }

    /// What was given before is not given again, and nothing behind the end that is wanted.
    #[test]
    fn records_are_given_once_and_up_to_an_end() {
        let disk = MemoryDisk::new();
        let identity = Identity { store: 1, life: 7, description: String::new() };
        let log = Log::open(Box::new(disk.clone())).unwrap();
        let mut writer = LogWriter::create(log, identity, Position::start(2), FILE_BYTES).unwrap();
        let mut batch = Batch::default();
        for first in [1, 4] {
            batch.begin();
            batch.part(1, &(first..first + 3).flat_map(record).collect::<Vec<u64>>(), first + 2);
            batch.part(0, &record(first.div_ceil(3)), first.div_ceil(3));
            writer.write(&batch, 1).unwrap();
        }
        let (mut given, mut cuts, mut sequences) = (Vec::new(), Vec::new(), vec![2]);
        let log = Log::open(Box::new(disk)).unwrap();
        let read = log.read(0, |batch| {
            let mut each = |tailed: Tailed<'_>| -> Result<()> {
                match tailed {
                    Tailed::Records(shard, mut words) => {
                        while let Some((record, behind)) = Record::split(words)? {
                            given.push((shard, record.head.sequence));
                            words = behind;
                        }
                    }
                    Tailed::Cut(sequences) => cuts.push(sequences.to_vec()),
                    Tailed::Lineage(..) => unreachable!("batches have none"),
                }
                Ok(())
            };
            give(batch, (&[None, Some(0)], Some(&[5])), &mut sequences, &mut each)?;
            Ok(ControlFlow::Continue(()))
        });
        read.unwrap();
        assert_eq!(given, [(0, 3), (0, 4), (0, 5)]);
        assert_eq!((cuts, sequences), (vec![vec![3]], vec![5]), "the second batch is not whole");
    }
}
