//! Writing the log.
//!
//! ```text
//! files     oldest ... | the last one: [ head ][ durable ][ written ][ zeros ] | log.next
//!                                                         ^ at              ^ its length
//! ```
//!
//! 1. `durable <= written`: what was written is durable once a sync behind it has succeeded.
//! 2. A new file is allocated as `log.next`, gets its head there, and its name when that is on the disk.
//! 3. The first failure of a write, a sync or a rename ends all. A file that cannot be allocated changes
//!    nothing.

use kelix_types::{Error, ErrorKind, Result};

use crate::files::batch::Batch;
use crate::files::head::FileHead;
use crate::files::read::is_before;
use crate::files::{
    Identity, Log, LogFile, NEXT, PAGE_BYTES, Position, Storage, Tail, WRITE, name_of, system, write_words,
};

/// Writes a log. There is one writer of a directory at a time, which the caller sees to.
pub struct LogWriter {
    storage: Box<dyn Storage>,
    identity: Identity,
    file_bytes: u64,
    file: Box<dyn LogFile>,
    at: u64,
    /// The last one is the one that is written.
    files: Vec<FileHead>,
    next: Option<Next>,
    last: Position,
    durable: u64,
    words: Vec<u64>,
    failed: Option<String>,
}

/// A file that is allocated and has no head yet.
struct Next {
    file: Box<dyn LogFile>,
    bytes: u64,
}

impl Next {
    /// Allocates it.
    fn create(storage: &dyn Storage, bytes: u64) -> Result<Next> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES as u64);
        // One that a server left, or that is too small.
        match storage.remove(NEXT) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(system(WRITE, "remove", storage, NEXT, source));
            }
            _ => {}
        }
        let file = storage.create(NEXT, bytes);
        let file = file.map_err(|source| system(WRITE, "allocate", storage, NEXT, source))?;
        Ok(Next { file, bytes })
    }

    /// Makes it the file that begins with a head.
    fn begin(mut self, storage: &dyn Storage, head: &mut FileHead) -> Result<Box<dyn LogFile>> {
        head.bytes = self.bytes;
        let mut begun = || {
            write_words(&mut *self.file, 0, &head.to_words())?;
            self.file.sync_data()?;
            storage.rename(NEXT, &name_of(head.first))?;
            storage.sync()
        };
        begun().map_err(|source| system(WRITE, "begin", storage, &name_of(head.first), source))?;
        Ok(self.file)
    }
}

/// Makes durable what of a log was read, whether or not the page cache holds it for clean: by writing again
/// what was not known to be durable. Returns the file and the byte behind what was read.
fn settle(log: &Log, tail: Option<Tail>) -> Result<Option<(u64, u64)>> {
    let Some(Tail { file: first, at, words }) = tail else { return Ok(None) };
    let name = name_of(first);
    let settled = || {
        let mut file = log.storage().open_to_write(&name)?;
        write_words(&mut *file, at, &words)?;
        file.sync_data()
    };
    settled().map_err(|source| system(WRITE, "write", log.storage(), &name, source))?;
    Ok(Some((first, at + words.len() as u64 * 8)))
}

/// Refuses a position behind which there are files, but for one that begins there and has no batch.
fn refuse_files_behind(log: &Log, position: &Position) -> Result<()> {
    let Some(first) = log.last_name().filter(|first| *first > position.batch) else { return Ok(()) };
    if first == position.batch + 1 && !log.has_first_batch(first)? {
        return Ok(());
    }
    let path = log.storage().describe(&name_of(first));
    let context = format!("{path} is behind batch {}, from which to go on", position.batch);
    Err(Error::new(ErrorKind::InvalidArgument, WRITE, context))
}

/// Removes the oldest file, if all its records are at or before these sequences. Its name, if it did.
fn remove_first(
    storage: &dyn Storage,
    files: &mut Vec<FileHead>,
    sequences: &[u64],
) -> Result<Option<String>> {
    if !files.get(1).is_some_and(|next| is_before(&next.sequences, sequences)) {
        return Ok(None);
    }
    let name = name_of(files[0].first);
    match storage.remove(&name) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            return Err(system(WRITE, "remove", storage, &name, source));
        }
        _ => {}
    }
    files.remove(0);
    Ok(Some(name))
}

/// Removes the oldest files whose records all are at or before these sequences, and returns how many. Each is
/// gone for good before the next is removed; `settled` is told how that went.
fn remove_oldest(
    storage: &dyn Storage,
    files: &mut Vec<FileHead>,
    sequences: &[u64],
    mut settled: impl FnMut(Result<()>) -> Result<()>,
) -> Result<u64> {
    let mut removed = 0;
    while let Some(name) = remove_first(storage, files, sequences)? {
        let synced = storage.sync();
        let what = "sync the directory without";
        settled(synced.map_err(|source| system(WRITE, what, storage, &name, source)))?;
        removed += 1;
    }
    Ok(removed)
}

/// Keeps the first failure after which nothing is known of what is on the disk.
fn note_failure<T>(failed: &mut Option<String>, result: Result<T>) -> Result<T> {
    if let Err(error) = &result {
        failed.get_or_insert_with(|| error.to_string());
    }
    result
}

impl Log {
    /// Removes files as [`LogWriter::truncate`] does, where nobody writes.
    pub fn truncate(self, sequences: &[u64]) -> Result<u64> {
        let (storage, mut files) = self.into_parts();
        remove_oldest(&*storage, &mut files, sequences, |synced| synced)
    }
}

impl LogWriter {
    /// Goes on with a log behind a position, which reading told, in a new file. A file that begins there and
    /// has no batch is replaced. Everything before is durable afterwards.
    pub fn create(
        log: Log,
        identity: Identity,
        mut position: Position,
        file_bytes: u64,
    ) -> Result<LogWriter> {
        let mut head = FileHead::at(&identity, &position)?;
        refuse_files_behind(&log, &position)?;
        let settled = settle(&log, position.tail.take())?;
        let (storage, mut files) = log.into_parts();
        files.retain(|head| head.first <= position.batch);
        let at = head.bytes;
        let file = Next::create(&*storage, file_bytes.max(at))?.begin(&*storage, &mut head)?;
        // What was allocated and not used is worth nothing any more. If it cannot be given back it stays.
        let before = files.last_mut().zip(settled).filter(|(head, (first, _))| head.first == *first);
        if let Some((before, (first, end))) = before {
            let shrunk = storage.open_to_write(&name_of(first)).and_then(|mut file| file.shrink(end));
            before.bytes = if shrunk.is_ok() { end } else { before.bytes };
        }
        files.push(head);
        let durable = position.batch;
        Ok(LogWriter {
            storage,
            identity,
            file_bytes,
            file,
            at,
            files,
            next: None,
            last: position,
            durable,
            words: Vec::new(),
            failed: None,
        })
    }

    /// Fails if something failed before.
    fn check(&self) -> Result<()> {
        match &self.failed {
            Some(first) => Err(Error::new(
                ErrorKind::System,
                WRITE,
                format!("the log takes nothing any more since this failed: {first}"),
            )),
            None => Ok(()),
        }
    }

    /// A failure after which nothing is known of what is on the disk.
    fn finally<T>(&mut self, result: Result<T>) -> Result<T> {
        note_failure(&mut self.failed, result)
    }

    /// Whether something failed after which the log takes nothing any more.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Writes a batch and returns its number. It is durable behind the next [`LogWriter::sync`]. If a new
    /// file is needed and cannot be allocated, nothing is changed, and the same batch can be written later.
    pub fn write(&mut self, batch: &Batch, time_ns: u64) -> Result<u64> {
        self.check()?;
        let shards = self.last.sequences.len();
        if let Some((shard, _)) = batch.last_sequences().iter().find(|(shard, _)| *shard as usize >= shards) {
            let context = format!("a batch has records of shard {shard}, and the log has {shards} shards");
            return Err(Error::new(ErrorKind::InvalidArgument, WRITE, context));
        }
        let bytes = batch.words() as u64 * 8;
        if self.at + bytes > self.current().bytes {
            self.switch(bytes)?;
        }
        let number = self.last.batch + 1;
        let checksum = batch.assemble(&mut self.words, self.identity.life, [number, time_ns, self.durable]);
        let written = write_words(&mut *self.file, self.at, &self.words);
        let written = written.map_err(|source| self.system("write", source));
        self.finally(written)?;
        self.at += bytes;
        (self.last.batch, self.last.checksum) = (number, checksum);
        for &(shard, sequence) in batch.last_sequences() {
            self.last.sequences[shard as usize] = sequence;
        }
        Ok(number)
    }

    /// Makes durable what was written.
    pub fn sync(&mut self) -> Result<()> {
        self.check()?;
        if self.durable < self.last.batch {
            let synced = self.file.sync_data().map_err(|source| self.system("sync", source));
            self.finally(synced)?;
            self.durable = self.last.batch;
        }
        Ok(())
    }

    /// Makes durable what was written, and gives back what was allocated and not used.
    pub fn end(mut self) -> Result<()> {
        self.sync()?;
        let shrunk = self.file.shrink(self.at).map_err(|source| self.system("shrink", source));
        if self.next.take().is_some() {
            let _ = self.storage.remove(NEXT);
        }
        shrunk
    }

    /// Goes on to a new file, that takes a batch of so many bytes.
    fn switch(&mut self, bytes: u64) -> Result<()> {
        let mut head = FileHead::at(&self.identity, &self.last)?;
        let at = head.bytes;
        self.allocate(self.file_bytes.max(at + bytes))?;
        self.sync()?;
        let next = self.next.take().expect("it was allocated");
        let begun = next.begin(&*self.storage, &mut head);
        self.file = self.finally(begun)?;
        self.at = at;
        // A file without a batch is replaced by one that is large enough for it.
        self.files.retain(|file| file.first < head.first);
        self.files.push(head);
        Ok(())
    }

    fn allocate(&mut self, bytes: u64) -> Result<()> {
        if self.next.as_ref().is_none_or(|next| next.bytes < bytes) {
            self.next = None;
            self.next = Some(Next::create(&*self.storage, bytes)?);
        }
        Ok(())
    }

    /// Whether it is time for [`LogWriter::prepare_next`]: more than half of the file is used.
    pub fn needs_next(&self) -> bool {
        self.next.is_none() && self.at > self.current().bytes / 2
    }

    /// Allocates the next file, unless it is. If that fails, nothing is changed, and it can be tried again;
    /// a full disk is told by the source, of [`std::io::ErrorKind::StorageFull`].
    pub fn prepare_next(&mut self) -> Result<()> {
        self.check()?;
        self.allocate(self.file_bytes)
    }

    /// Removes the oldest files whose records all are at or before these sequences of shards, and returns how
    /// many. Each is gone for good before the next is removed, so that no power cut leaves a gap.
    pub fn truncate(&mut self, sequences: &[u64]) -> Result<u64> {
        self.check()?;
        let LogWriter { storage, files, failed, .. } = self;
        remove_oldest(&**storage, files, sequences, |synced| note_failure(failed, synced))
    }

    fn current(&self) -> &FileHead {
        self.files.last().expect("there always is one")
    }

    fn system(&self, what: &str, source: std::io::Error) -> Error {
        system(WRITE, what, &*self.storage, &name_of(self.current().first), source)
    }

    /// Where what was written ends, which is durable behind the next sync.
    pub fn position(&self) -> Position {
        self.last.clone()
    }

    /// The number of the last batch that was written.
    pub fn written(&self) -> u64 {
        self.last.batch
    }

    /// The number of the last batch that is known to be on the disk.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// For each shard the sequence of the last record that was written.
    pub fn sequences(&self) -> &[u64] {
        &self.last.sequences
    }

    /// The heads of the files, the oldest first.
    pub fn files(&self) -> &[FileHead] {
        &self.files
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|head| head.bytes).sum()
    }
}
