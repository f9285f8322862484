//! Reading the log.
//!
//! ```text
//! at a place where batch b should be, and what is there does not check:
//!   a later file begins with b            the log goes on there: a later server knew of it
//!   a later file begins behind b          damaged: b was durable before that file was
//!   zeros to the end                      the log ends
//!   a whole batch behind, durable >= b    damaged: b was durable before that batch was written
//!   anything else                         a torn tail: the log ends
//! ```

use std::collections::VecDeque;
use std::ops::ControlFlow;

use kelix_types::{Error, ErrorKind, Result};

use crate::files::batch::MAGIC;
use crate::files::head::{Fault, FileHead};
use crate::files::{
    BatchView, PAGE_BYTES, Position, READ, Storage, Tail, damaged, name_of, number_of, read_file, system,
};

/// The log in a directory, whose heads were read.
pub struct Log {
    storage: Box<dyn Storage>,
    files: Vec<FileHead>,
    headless: Option<u64>,
}

/// What was written at the end of a log and is not whole: a server died while it wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Torn {
    /// The file.
    pub file: String,
    /// The byte at which it begins.
    pub at: u64,
    /// How many bytes there are.
    pub bytes: u64,
}

/// How far a log goes, or was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// The position to go on from. In a directory without a log it is that of no batch and no shards.
    pub last: Position,
    /// What was left of a batch that was not written to its end.
    pub torn: Option<Torn>,
    /// The last file, if a server died while it made it, so that it is none yet.
    pub headless: Option<String>,
    /// Batches that were handed out.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
}

/// What there is in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSurvey {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The number of its first batch, also if it has none yet.
    pub first: u64,
    /// The number of its last batch; `None`: it has none.
    pub last: Option<u64>,
    /// When its first batch was written, nanoseconds since 1970.
    pub first_time_ns: Option<u64>,
    /// When its last batch was written.
    pub last_time_ns: Option<u64>,
}

impl Log {
    /// Looks at a directory: the names of files and their heads. No files are a log, too: of nothing.
    pub fn open(storage: Box<dyn Storage>) -> Result<Log> {
        let names = storage.list().map_err(|source| system(READ, "list", &*storage, "", source))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        let mut log = Log { storage, files: Vec::with_capacity(numbers.len()), headless: None };
        for &first in &numbers {
            match FileHead::read(&*log.storage, first)? {
                Ok(head) => log.files.push(head),
                Err(Fault::Incompatible(what)) => {
                    let context = format!("{} is {what}", log.storage.describe(&name_of(first)));
                    return Err(Error::new(ErrorKind::Incompatible, READ, context));
                }
                Err(Fault::Damaged(what)) => {
                    if numbers.last() != Some(&first) || log.has_trace_of_batch(first)? {
                        return Err(log.damaged(first, what));
                    }
                    log.headless = Some(first);
                }
            }
        }
        let store = log.files.first().map(|head| head.identity.store);
        match log.files.iter().find(|head| Some(head.identity.store) != store) {
            Some(other) => Err(log.damaged(other.first, "it is of another store than the files before")),
            None => Ok(log),
        }
    }

    fn damaged(&self, first: u64, what: &str) -> Error {
        damaged(&*self.storage, first, what)
    }

    /// Whether a file without a head has something that looks like a batch. Its life is not known, so nothing
    /// can be verified, and a batch is only written behind a head that is on the disk.
    fn has_trace_of_batch(&self, first: u64) -> Result<bool> {
        let mut words = Vec::new();
        read_file(&*self.storage, first, &mut words)?;
        Ok(words.iter().skip(PAGE_BYTES / 8).any(|&word| word == MAGIC))
    }

    /// The heads of the files, the oldest first.
    pub fn files(&self) -> &[FileHead] {
        &self.files
    }

    /// Whether there is all from the first record on.
    pub fn begins_with_first(&self) -> bool {
        self.files.first().is_some_and(|head| head.sequences.iter().all(|sequence| *sequence == 0))
    }

    /// The batch from which on everything has to be read that is behind these sequences of shards. `None`:
    /// something that is behind them is in the log no more.
    pub fn first_behind(&self, sequences: &[u64]) -> Option<u64> {
        let last = self.files.iter().rfind(|head| is_before(&head.sequences, sequences));
        last.map(|head| head.first)
    }

    /// Reads batches from a number on, in their order, and hands each out until `each` breaks: the batch with
    /// which it breaks does not count. Verifies what it reads, which begins with the file that has the
    /// number. An error names what is damaged; the batches before were handed out.
    pub fn read(
        &self,
        from: u64,
        mut each: impl FnMut(&BatchView) -> Result<ControlFlow<()>>,
    ) -> Result<End> {
        self.walk(from, &mut |_, view| each(view))
    }

    /// Reads everything, and tells what there is in each file.
    pub fn survey(&self) -> Result<(Vec<FileSurvey>, End)> {
        let empty = |head: &FileHead| FileSurvey {
            name: name_of(head.first),
            bytes: head.bytes,
            first: head.first,
            last: None,
            first_time_ns: None,
            last_time_ns: None,
        };
        let mut surveys: Vec<FileSurvey> = self.files.iter().map(empty).collect();
        let end = self.walk(0, &mut |file, view| {
            let survey = &mut surveys[file];
            survey.last = Some(view.number);
            survey.first_time_ns.get_or_insert(view.time_ns);
            survey.last_time_ns = Some(view.time_ns);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((surveys, end))
    }

    /// Hands out batches, with the places of their files.
    fn walk(
        &self,
        from: u64,
        each: &mut dyn FnMut(usize, &BatchView) -> Result<ControlFlow<()>>,
    ) -> Result<End> {
        let headless = self.headless.map(name_of);
        let mut end = End { last: Position::default(), torn: None, headless, batches: 0, records: 0 };
        let start = self.files.partition_point(|head| head.first <= from).saturating_sub(1);
        let mut words = Vec::new();
        for (index, head) in self.files.iter().enumerate().skip(start) {
            if index > start && head.checksum_before != end.last.checksum {
                return Err(self.damaged(head.first, "it does not follow the batch before it"));
            }
            // A file without a batch has none that could be lost.
            end.last = Position { tail: end.last.tail.take(), ..head.position() };
            read_file(&*self.storage, head.first, &mut words)?;
            let mut hand_out = |view: &BatchView| match view.number < from {
                true => Ok(ControlFlow::Continue(())),
                false => each(index, view),
            };
            if self.walk_file(index, &words, &mut end, from, &mut hand_out)?.is_break() {
                break;
            }
        }
        Ok(end)
    }

    /// Hands out the batches of a file.
    fn walk_file(
        &self,
        index: usize,
        words: &[u64],
        end: &mut End,
        from: u64,
        each: &mut dyn FnMut(&BatchView) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        let head = &self.files[index];
        // The name of a file without a head says as much of the batches before it.
        let beyond = self.files.get(index + 1).map(|next| next.first).or(self.headless);
        let (mut at, mut sequences) = (head.words(), Vec::new());
        // Numbers and places of batches that are not known to be durable.
        let mut unsettled: VecDeque<(u64, usize)> = VecDeque::new();
        let mut flow = ControlFlow::Continue(());
        while beyond != Some(end.last.batch + 1) {
            let number = end.last.batch + 1;
            let rest = words.get(at..).unwrap_or(&[]);
            let Some(view) = BatchView::of_words(rest, head.identity.life, |view| view.number == number)
            else {
                end.torn = self.judge(head, words, at, number, beyond)?;
                break;
            };
            sequences.clone_from(&end.last.sequences);
            let records = view.follow(&mut sequences).ok_or_else(|| {
                let what = format!("the records of batch {number} at byte {} do not follow", at * 8);
                self.damaged(head.first, &what)
            })?;
            flow = each(&view)?;
            if flow.is_break() {
                break;
            }
            while unsettled.front().is_some_and(|(number, _)| *number <= view.durable) {
                unsettled.pop_front();
            }
            unsettled.push_back((number, at));
            std::mem::swap(&mut end.last.sequences, &mut sequences);
            (end.last.batch, end.last.checksum) = (number, view.checksum);
            if number >= from {
                (end.batches, end.records) = (end.batches + 1, end.records + records);
            }
            at += view.words();
        }
        if let Some((_, start)) = unsettled.front() {
            let (file, words) = (head.first, words[*start..at].to_vec());
            end.last.tail = Some(Tail { file, at: *start as u64 * 8, words });
        }
        Ok(flow)
    }

    /// Says what it means that there is no batch of a number at a place: the log ends, with what is torn
    /// there, or is damaged.
    fn judge(
        &self,
        head: &FileHead,
        words: &[u64],
        at: usize,
        number: u64,
        beyond: Option<u64>,
    ) -> Result<Option<Torn>> {
        if let Some(next) = beyond {
            let next = name_of(next);
            let what = format!("batch {number} is not whole at byte {}, and {next} is behind it", at * 8);
            return Err(self.damaged(head.first, &what));
        }
        let rest = words.get(at..).unwrap_or(&[]);
        let Some(last) = rest.iter().rposition(|&word| word != 0) else { return Ok(None) };
        let proves = |view: &BatchView| view.number > number && view.durable >= number;
        let proof = (1..rest.len())
            .find_map(|behind| BatchView::of_words(&rest[behind..], head.identity.life, proves));
        if let Some(proof) = proof {
            let what = format!(
                "batch {number} is not whole at byte {}, and was durable, as batch {} says",
                at * 8,
                proof.number
            );
            return Err(self.damaged(head.first, &what));
        }
        let file = self.storage.describe(&name_of(head.first));
        Ok(Some(Torn { file, at: at as u64 * 8, bytes: (last as u64 + 1) * 8 }))
    }

    /// The number in the last name, with or without a head.
    pub(super) fn last_name(&self) -> Option<u64> {
        self.headless.or(self.files.last().map(|head| head.first))
    }

    /// Whether the file that begins with a batch has it.
    pub(super) fn has_first_batch(&self, first: u64) -> Result<bool> {
        let Some(head) = self.files.iter().find(|head| head.first == first) else { return Ok(false) };
        let mut words = Vec::new();
        read_file(&*self.storage, first, &mut words)?;
        let rest = words.get(head.words()..).unwrap_or(&[]);
        Ok(BatchView::of_words(rest, head.identity.life, |view| view.number == first).is_some())
    }

    /// The parts, for who goes on writing.
    pub(super) fn into_parts(self) -> (Box<dyn Storage>, Vec<FileHead>) {
        (self.storage, self.files)
    }

    pub(super) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }
}

/// Whether all sequences are at or before others. Shards that a file does not know had no record before it:
/// their namespace was added later.
pub(super) fn is_before(these: &[u64], others: &[u64]) -> bool {
    these.len() <= others.len() && these.iter().zip(others).all(|(this, other)| this <= other)
}
