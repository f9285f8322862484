//! What is written is read, and what is lost or damaged is found.

use std::ops::ControlFlow;

use super::*;
use crate::RecordHead;

mod damage;
mod power;

/// A small generator of random numbers (splitmix64).
struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }
}

const SMALL: u64 = 8192;
const SHARDS: usize = 2;

/// A batch as a test knows it: its number, its time and its parts.
type Known = (u64, u64, Vec<(u32, Vec<u64>)>);

fn identity(life: u64) -> Identity {
    Identity { store: 7, life, description: "{\"shards\":2}".into() }
}

fn known(view: &BatchView) -> Known {
    let parts = view.parts().map(|(shard, records)| (shard, records.to_vec()));
    (view.number, view.time_ns, parts.collect())
}

fn open(disk: &MemoryDisk) -> Result<Log> {
    Log::open(Box::new(disk.clone()))
}

/// All batches from a number on, whatever error follows them.
fn read_from(disk: &MemoryDisk, from: u64) -> (Vec<Known>, Result<End>) {
    let mut batches = Vec::new();
    let end = open(disk).and_then(|log| {
        log.read(from, |view| {
            batches.push(known(view));
            Ok(ControlFlow::Continue(()))
        })
    });
    (batches, end)
}

fn all(disk: &MemoryDisk) -> (Vec<Known>, End) {
    let (batches, end) = read_from(disk, 0);
    (batches, end.unwrap())
}

/// Records that follow a sequence, one with so many notes each.
fn records_behind(last: u64, counts: &[usize]) -> (Vec<u64>, u64) {
    let mut words = Vec::new();
    for (sequence, &count) in (last + 1..).zip(counts) {
        words.extend(RecordHead { sequence, last_incarnation: 5, batch: 0, words: count }.words());
        words.extend((0..count as u64).map(|note| sequence << 32 | note));
    }
    (words, last + counts.len() as u64)
}

/// Fills a batch behind what the writer has: for each part its shard and the notes of its records.
fn fill(batch: &mut Batch, sequences: &[u64], parts: &[(u32, &[usize])]) {
    batch.begin();
    let mut sequences = sequences.to_vec();
    for &(shard, counts) in parts {
        let last = &mut sequences[shard as usize];
        let (words, behind) = records_behind(*last, counts);
        batch.part(shard, &words, behind);
        *last = behind;
    }
}

fn writer(disk: &MemoryDisk, life: u64, bytes: u64) -> LogWriter {
    let log = open(disk).unwrap();
    let end = log.read(0, |_| Ok(ControlFlow::Continue(()))).unwrap();
    let position = if end.last.batch == 0 { Position::start(SHARDS) } else { end.last };
    LogWriter::create(log, identity(life), position, bytes).unwrap()
}

/// Writes a batch with a record of so many notes.
fn write(writer: &mut LogWriter, notes: usize) -> Result<u64> {
    let mut batch = Batch::default();
    fill(&mut batch, writer.sequences(), &[(writer.written() as u32 % 2, &[notes])]);
    writer.write(&batch, 1000 + writer.written())
}

/// A log of one file with five batches, synced or not before the next, and where each begins, and the last
/// ends.
fn five(is_synced: [bool; 5]) -> (MemoryDisk, String, Vec<usize>) {
    let disk = MemoryDisk::new();
    let mut writer = writer(&disk, 3, SMALL);
    let mut starts = vec![PAGE_BYTES];
    for (notes, is_synced) in (1..).zip(is_synced) {
        write(&mut writer, notes).unwrap();
        starts.push(starts.last().unwrap() + (6 + 2 + 3 + notes + 1) * 8);
        if is_synced {
            writer.sync().unwrap();
        }
    }
    (disk, name_of(1), starts)
}

/// Damage is named.
fn assert_damaged(disk: &MemoryDisk, words: &[&str]) {
    let error = read_from(disk, 0).1.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(words.iter().all(|word| error.context().contains(word)), "{error}");
}

#[test]
fn golden_bytes_of_head_and_batch() {
    let disk = MemoryDisk::new();
    let position = Position { batch: 8, checksum: 0x55, sequences: vec![20, 30], tail: None };
    let log = open(&disk).unwrap();
    let mut writer = LogWriter::create(log, identity(0xabc), position, SMALL).unwrap();
    let mut batch = Batch::default();
    fill(&mut batch, writer.sequences(), &[(1, &[2]), (0, &[0])]);
    assert_eq!(writer.write(&batch, 0x1234).unwrap(), 9);
    let bytes = disk.contents("log-0000000000000009").unwrap();
    assert_eq!(bytes.len() as u64, SMALL);
    let mut words = vec![0; bytes.len() / 8];
    bytes_of_mut(&mut words).copy_from_slice(&bytes);
    assert_eq!(&bytes[..8], b"KELIXLOG");
    assert_eq!(words[1..9], [0x0102_0304_0001_0001, 12, 0x1a69_9d7c_31f7_fa6a, 7, 0xabc, 9, 0x55, 2]);
    assert_eq!((&words[9..11], &bytes[88..100]), (&[20, 30][..], &b"{\"shards\":2}"[..]));
    assert!(bytes[100..PAGE_BYTES].iter().all(|byte| *byte == 0));
    assert_eq!(&bytes[PAGE_BYTES..][..8], b"KELIXBAT");
    let batch = &words[PAGE_BYTES / 8..];
    assert_eq!(batch[1..10], [19, 9, 0x1234, 8, 2, 1, 5, 0, 3]);
    assert_eq!(batch[10..15], [0x4352_0000_0000_0002, 31, 5, 31 << 32, 31 << 32 | 1]);
    assert_eq!(batch[15..18], [0x4352_0000_0000_0000, 21, 5]);
    assert_eq!(batch[18], 0xac3c_99c0_ad62_34dc);
    assert!(batch[19..].iter().all(|word| *word == 0));
}

#[test]
fn batches_come_back_over_many_files() {
    let (disk, mut expected, mut random) = (MemoryDisk::new(), Vec::new(), Random(1));
    for life in 1..4 {
        let mut writer = writer(&disk, life, SMALL);
        let mut batch = Batch::default();
        for time in 0..40 {
            let counts: Vec<usize> = (0..random.below(5)).map(|_| random.below(30) as usize).collect();
            fill(&mut batch, writer.sequences(), &[(0, &counts), (1, &[time]), (0, &[1])]);
            let number = writer.write(&batch, time as u64).unwrap();
            let mut view = Vec::new();
            batch.assemble(&mut view, life, [number, time as u64, 0]);
            expected.push(known(&BatchView::of_words(&view, life, |_| true).unwrap()));
            if writer.needs_next() && random.below(2) == 0 {
                writer.prepare_next().unwrap();
            }
        }
    }
    let (batches, end) = all(&disk);
    assert!(batches == expected);
    assert_eq!((end.batches, end.last.batch, end.torn, end.headless), (120, 120, None, None));
    let log = open(&disk).unwrap();
    assert!(log.files().len() > 10, "{}", log.files().len());
    for from in [1, 2, 50, 119, 120, 121, 500] {
        let (batches, end) = read_from(&disk, from);
        assert!(batches == expected[(from as usize - 1).min(120)..], "from {from}");
        assert_eq!(end.unwrap().last.batch, 120);
    }
    let (surveys, _) = log.survey().unwrap();
    assert_eq!((surveys[0].first, surveys.last().unwrap().last), (1, Some(120)));
    assert!(surveys.windows(2).all(|pair| pair[0].last.map(|last| last + 1) == Some(pair[1].first)));
    assert_eq!((surveys[0].first_time_ns, surveys.last().unwrap().last_time_ns), (Some(0), Some(39)));
}

#[test]
fn reading_ends_where_it_breaks() {
    let (disk, ..) = five([true; 5]);
    let log = open(&disk).unwrap();
    let until = |view: &BatchView| {
        Ok(if view.number > 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    let end = log.read(0, until).unwrap();
    assert_eq!((end.last.batch, end.batches, &end.last.sequences), (3, 3, &vec![2, 1]));
    // A writer goes on there, and what was behind counts no more.
    let mut writer = LogWriter::create(log, identity(9), end.last, SMALL).unwrap();
    write(&mut writer, 40).unwrap();
    let (batches, end) = all(&disk);
    assert_eq!((batches.len(), end.last.batch, batches[3].2[0].1.len()), (4, 4, 43));
    // But not before files of others.
    let log = open(&disk).unwrap();
    let early = Position { batch: 2, checksum: 0, sequences: vec![1, 1], tail: None };
    let refused = LogWriter::create(log, identity(9), early, SMALL).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
}

/// What the page cache had when it was read, and the disk has not, is written as it was read, and not as it
/// is found a second time.
#[test]
fn what_was_read_is_what_is_made_durable() {
    let (disk, name, starts) = five([true, true, false, false, false]);
    let log = open(&disk).unwrap();
    let end = log.read(0, |_| Ok(ControlFlow::Continue(()))).unwrap();
    let tail = end.last.tail.clone().expect("some are not known to be durable");
    let kept = [tail.file, tail.at, tail.at + tail.words.len() as u64 * 8];
    assert_eq!(kept, [1, starts[2] as u64, starts[5] as u64]);
    let zeros = vec![0; starts[5] - starts[2]];
    disk.open_to_write(&name).unwrap().write_all_at(&zeros, starts[2] as u64).unwrap();
    let mut writer = LogWriter::create(log, identity(4), end.last, SMALL).unwrap();
    write(&mut writer, 40).unwrap();
    let (batches, end) = all(&disk);
    assert_eq!((batches.len(), end.last.batch), (6, 6));
}

#[test]
fn a_directory_of_the_system_is_a_storage() {
    let directory = tempfile::tempdir().unwrap();
    let storage = || Box::new(Directory(directory.path().to_path_buf()));
    for other in ["store", "log-1", "log-0000000000000000", "log-000000000000000A", "a.kelix-snapshot"] {
        std::fs::write(directory.path().join(other), b"other").unwrap();
    }
    let log = Log::open(storage()).unwrap();
    let mut writer = LogWriter::create(log, identity(5), Position::start(SHARDS), SMALL).unwrap();
    for notes in 0..100 {
        write(&mut writer, notes).unwrap();
        writer.sync().unwrap();
        writer.prepare_next().unwrap();
    }
    let files = writer.files().len() as u64;
    assert_eq!(writer.truncate(&[50, 50]).unwrap(), files - 1);
    let path = directory.path().join(name_of(writer.files()[0].first));
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), SMALL);
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777, 0o600);
    let log = Log::open(storage()).unwrap();
    let end = log.read(0, |_| Ok(ControlFlow::Continue(()))).unwrap();
    assert_eq!((end.last.batch, end.last.sequences.as_slice()), (100, writer.sequences()));
    let writer = LogWriter::create(log, identity(6), end.last, SMALL).unwrap();
    assert_eq!((writer.written(), writer.durable()), (100, 100));
    let before = std::fs::metadata(&path).unwrap().len();
    assert!(before < SMALL && writer.bytes() == before + SMALL, "what is not used is given back: {before}");
    assert!(!directory.path().join(NEXT).exists(), "what another server prepared is used or gone");
    writer.end().unwrap();
    let end = Log::open(storage()).unwrap().read(0, |_| Ok(ControlFlow::Continue(()))).unwrap();
    assert_eq!(end.last.batch, 100);
    let refused = storage().create("store", 100).err().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::AlreadyExists);
}

#[test]
fn a_file_that_was_being_made_is_replaced() {
    let (disk, ..) = five([true; 5]);
    disk.put(&name_of(6), &[0; 100]);
    disk.put(NEXT, b"left by a server that died");
    let (batches, end) = all(&disk);
    assert_eq!((batches.len(), end.headless.as_deref()), (5, Some("log-0000000000000006")));
    for life in [5, 6] {
        // The second one finds a file with a head and no batch.
        assert_eq!(writer(&disk, life, SMALL).files().len(), 2);
    }
    write(&mut writer(&disk, 7, SMALL), 3).unwrap();
    let (batches, end) = all(&disk);
    assert_eq!((batches.len(), end.headless), (6, None));
}

#[test]
fn a_batch_larger_than_a_file_gets_one_of_its_own() {
    let disk = MemoryDisk::new();
    let mut writer = writer(&disk, 1, SMALL);
    writer.prepare_next().unwrap();
    for notes in [5000, 1, 700, 5000, 2] {
        write(&mut writer, notes).unwrap();
    }
    let bytes: Vec<u64> = writer.files().iter().map(|head| head.bytes).collect();
    let firsts: Vec<u64> = writer.files().iter().map(|head| head.first).collect();
    // The first file had no batch yet, and was replaced; what was left of it is used.
    assert_eq!((bytes, firsts), (vec![45056, 12288, 45056], vec![1, 3, 4]));
    assert_eq!(all(&disk).0.len(), 5);
}

#[test]
fn files_that_a_base_covers_are_removed() {
    let disk = MemoryDisk::new();
    let mut first = writer(&disk, 1, SMALL);
    for _ in 0..4 {
        write(&mut first, 400).unwrap();
    }
    let mut second = writer(&disk, 2, SMALL);
    write(&mut second, 400).unwrap();
    assert_eq!((second.files().len(), second.sequences()), (5, &[3, 2][..]));
    assert_eq!(second.truncate(&[0, 0]).unwrap(), 0);
    assert_eq!(second.truncate(&[5]).unwrap(), 0, "of another count of shards");
    // A file is removed when the next one begins at or before.
    assert_eq!((second.truncate(&[1, 1]).unwrap(), second.files()[0].first), (2, 3));
    let log = open(&disk).unwrap();
    assert_eq!((log.first_behind(&[2, 1]), log.first_behind(&[1, 0])), (Some(4), None));
    disk.fail(Some(Operation::Remove), 1);
    assert_eq!(second.truncate(&[9, 9]).unwrap_err().kind(), ErrorKind::System);
    assert_eq!((second.truncate(&[9, 9]).unwrap(), second.has_failed()), (2, false), "never the last one");
    write(&mut second, 1).unwrap();
    let (batches, end) = all(&disk);
    assert_eq!((batches[0].0, batches.len(), end.last.batch, second.bytes()), (5, 2, 6, SMALL));
}

fn is_full(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::StorageFull)
}

#[test]
fn a_full_disk_is_waited_for() {
    let disk = MemoryDisk::new();
    let mut writer = writer(&disk, 1, SMALL);
    write(&mut writer, 400).unwrap();
    assert!(writer.needs_next());
    disk.limit(Some(SMALL + 100));
    let mut batch = Batch::default();
    fill(&mut batch, writer.sequences(), &[(0, &[400])]);
    for _ in 0..3 {
        assert!(is_full(&writer.prepare_next().unwrap_err()));
        assert!(is_full(&writer.write(&batch, 1).unwrap_err()));
        assert!(!writer.has_failed() && writer.written() == 1);
    }
    // What is there has room still.
    write(&mut writer, 1).unwrap();
    writer.sync().unwrap();
    disk.limit(None);
    fill(&mut batch, writer.sequences(), &[(0, &[400])]);
    assert_eq!(writer.write(&batch, 1).unwrap(), 3);
    disk.fail(Some(Operation::Create), 1);
    assert!(is_full(&writer.prepare_next().unwrap_err()));
    writer.prepare_next().unwrap();
    assert!(!writer.needs_next());
    assert_eq!(all(&disk).0.len(), 3);
}

#[test]
fn the_first_failure_is_the_last_thing_that_happens() {
    let kinds = [Operation::Write, Operation::SyncData, Operation::Rename, Operation::SyncNames];
    for (kind, large) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let disk = MemoryDisk::new();
        let mut writer = writer(&disk, 1, SMALL);
        write(&mut writer, 400).unwrap();
        disk.fail(Some(kind), 1);
        // A large batch needs another file, and all that this needs.
        let result = write(&mut writer, if large { 400 } else { 1 }).and_then(|_| writer.sync());
        if result.is_ok() {
            assert!(!large, "{kind:?} was not met");
            continue;
        }
        let (first, contents) = (result.unwrap_err().to_string(), disk.contents(&name_of(1)));
        let truncated = writer.truncate(&[9, 9]);
        let later =
            [writer.sync(), writer.prepare_next(), write(&mut writer, 1).map(drop), truncated.map(drop)];
        for error in later.map(Result::unwrap_err) {
            assert!(error.kind() == ErrorKind::System && error.to_string().contains(&first), "{error}");
        }
        assert!(writer.has_failed() && writer.durable() <= 1 && disk.contents(&name_of(1)) == contents);
    }
}

#[test]
fn a_batch_of_a_shard_that_is_not_there_is_refused() {
    let disk = MemoryDisk::new();
    let mut writer = writer(&disk, 1, SMALL);
    let mut batch = Batch::default();
    batch.part(2, &[1, 2, 3], 1);
    assert_eq!(writer.write(&batch, 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(!batch.is_empty() && !writer.has_failed());
    // Records that do not follow are found when they are read.
    batch.begin();
    batch.part(0, &records_behind(4, &[1]).0, 5);
    writer.write(&batch, 1).unwrap();
    assert_damaged(&disk, &["records of batch 1"]);
}
