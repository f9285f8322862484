//! Files that are cut, changed, lost or of others: no other batch is read than was written, and what was
//! durable and is not there is named.

use kelix_types::ErrorKind;

use super::{Random, SMALL, all, assert_damaged, five, open, read_from, write, writer};
use crate::files::{MemoryDisk, PAGE_BYTES, Storage, bytes_of, bytes_of_mut, name_of};

/// Whatever of the last file is cut off, what is left of the batches is there.
#[test]
fn every_cut_leaves_the_batches_before_it() {
    let (disk, name, starts) = five([true; 5]);
    let (expected, bytes) = (all(&disk).0, disk.contents(&name).unwrap());
    for cut in 0..bytes.len() {
        // Bytes within words are looked at where they matter.
        if cut % 8 != 0 && !(PAGE_BYTES..starts[2]).contains(&cut) {
            continue;
        }
        for is_zeroed in [false, true] {
            let mut cut_bytes = bytes.clone();
            cut_bytes.truncate(cut);
            cut_bytes.resize(if is_zeroed { bytes.len() } else { cut }, 0);
            disk.put(&name, &cut_bytes);
            let (batches, end) = all(&disk);
            let whole = starts[1..].iter().filter(|end| **end <= cut).count();
            // A cut can take zeros only from a checksum, and then it is whole.
            assert!(batches == expected[..batches.len()] && batches.len() == whole, "cut at {cut}");
            let is_torn = cut > PAGE_BYTES && cut < starts[5] && !starts.contains(&cut);
            assert_eq!(end.torn.is_some(), is_torn, "cut at {cut}");
            assert_eq!(end.headless.is_some(), batches.is_empty() && end.last.sequences.is_empty());
        }
    }
}

/// Whatever byte is another, no other batch is read.
#[test]
fn every_byte_that_is_another_is_found() {
    // What is durable is told by batches behind: here 4 and 5 tell of 1 to 3.
    let (disk, name, starts) = five([false, false, true, false, false]);
    let (expected, bytes) = (all(&disk).0, disk.contents(&name).unwrap());
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        disk.put(&name, &bad);
        let (batches, end) = read_from(&disk, 0);
        let before = starts[1..].iter().filter(|end| **end <= at).count();
        if at < PAGE_BYTES {
            assert_eq!(end.unwrap_err().kind(), ErrorKind::Damaged, "byte {at}");
            continue;
        }
        assert!(batches == expected[..before], "byte {at}");
        match before {
            0..3 => assert_eq!(end.unwrap_err().kind(), ErrorKind::Damaged, "byte {at}"),
            _ => {
                let torn = end.unwrap().torn.expect("something is there that is no batch");
                assert!(torn.at as usize == starts[before] && torn.bytes > 0, "byte {at}");
            }
        }
    }
}

/// Zeros in place of bytes.
fn erase(disk: &MemoryDisk, name: &str, range: std::ops::Range<usize>) {
    let mut bytes = disk.contents(name).unwrap();
    bytes[range].fill(0);
    disk.put(name, &bytes);
}

#[test]
fn a_hole_before_a_later_batch_is_damage_if_it_was_durable() {
    let (disk, name, starts) = five([false; 5]);
    erase(&disk, &name, starts[2]..starts[3]);
    let (batches, end) = all(&disk);
    let torn = end.torn.unwrap();
    assert_eq!((batches.len(), torn.at as usize, torn.bytes as usize), (2, starts[2], starts[5] - starts[2]));
    let (disk, name, starts) = five([true; 5]);
    erase(&disk, &name, starts[2]..starts[3]);
    assert_damaged(&disk, &["memory:log-0000000000000001", "batch 3", &format!("byte {}", starts[2])]);
    // At its end nothing tells of it.
    let (disk, name, starts) = five([true; 5]);
    erase(&disk, &name, starts[4]..starts[5]);
    let (batches, end) = all(&disk);
    assert_eq!((batches.len(), end.torn), (4, None));
}

#[test]
fn a_later_file_goes_on_behind_a_torn_tail_and_proves_what_was_before() {
    let (disk, name, starts) = five([true; 5]);
    erase(&disk, &name, starts[4] + 8..starts[4] + 16);
    let mut second = writer(&disk, 4, SMALL);
    assert_eq!(second.durable(), 4);
    write(&mut second, 9).unwrap();
    let (batches, end) = all(&disk);
    assert_eq!((batches.len(), end.last.batch, end.torn), (5, 5, None));
    // What is missing before it is damage.
    erase(&disk, &name, starts[3] + 8..starts[3] + 16);
    assert_damaged(&disk, &["memory:log-0000000000000001", "batch 4", "log-0000000000000005"]);
    // A name tells as much, also of a file whose head was lost.
    erase(&disk, "log-0000000000000005", 0..SMALL as usize);
    assert_damaged(&disk, &["memory:log-0000000000000001", "batch 4", "log-0000000000000005"]);
}

/// Files of one batch each.
fn three_files() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut writer = writer(&disk, 1, SMALL);
    for _ in 0..3 {
        write(&mut writer, 400).unwrap();
    }
    assert_eq!(writer.files().len(), 3);
    disk
}

#[test]
fn files_that_do_not_follow_each_other_are_damage() {
    let disk = three_files();
    disk.remove(&name_of(2)).unwrap();
    assert_damaged(&disk, &[&name_of(1), "batch 2", &name_of(3)]);
    // The oldest may be gone.
    let disk = three_files();
    disk.remove(&name_of(1)).unwrap();
    assert_eq!(all(&disk).0.len(), 2);
    // Another batch before than there was.
    let (disk, other) = (three_files(), MemoryDisk::new());
    write(&mut writer(&other, 8, SMALL), 3).unwrap();
    disk.put(&name_of(1), &other.contents(&name_of(1)).unwrap());
    assert_damaged(&disk, &[&name_of(2), "does not follow"]);
    // Another name.
    let disk = three_files();
    disk.rename(&name_of(3), &name_of(4)).unwrap();
    assert_damaged(&disk, &[&name_of(4), "name"]);
    // A head that is lost before the last file, or before batches.
    for first in [2, 3] {
        let disk = three_files();
        erase(&disk, &name_of(first), 0..8);
        assert_damaged(&disk, &[&name_of(first), "head"]);
    }
}

/// The head of a file, changed and with the right checksum.
fn with_head(disk: &MemoryDisk, first: u64, change: impl Fn(&mut [u64])) {
    let mut bytes = disk.contents(&name_of(first)).unwrap();
    let mut words = vec![0; PAGE_BYTES / 8];
    bytes_of_mut(&mut words).copy_from_slice(&bytes[..PAGE_BYTES]);
    change(&mut words);
    words[3] = 0;
    words[3] = xxhash_rust::xxh3::xxh3_64(bytes_of(&words));
    bytes[..PAGE_BYTES].copy_from_slice(bytes_of(&words));
    disk.put(&name_of(first), &bytes);
}

#[test]
fn other_versions_and_stores_are_told_apart() {
    for later in [1, 1 << 16, 1 << 40] {
        let disk = three_files();
        with_head(&disk, 3, |words| words[1] += later);
        assert_eq!(open(&disk).err().unwrap().kind(), ErrorKind::Incompatible);
    }
    let disk = three_files();
    with_head(&disk, 3, |words| words[4] += 1);
    assert_damaged(&disk, &[&name_of(3), "another store"]);
    // Numbers that make no sense, with a right checksum.
    for (word, value) in [(2, u64::MAX), (2, 1 << 23), (8, u64::MAX), (8, 1000), (8, 1)] {
        let disk = three_files();
        with_head(&disk, 2, |words| words[word] = value);
        assert_eq!(read_from(&disk, 0).1.unwrap_err().kind(), ErrorKind::Damaged, "word {word}: {value}");
    }
}

/// Bytes, words and lengths that are anything: never another batch, and never a panic.
#[test]
fn whatever_files_hold_no_other_batch_is_read() {
    let mut kinds = [0; 2];
    for seed in 0..600 {
        let mut random = Random(seed);
        let disk = MemoryDisk::new();
        let mut writer = writer(&disk, 1, SMALL);
        for _ in 0..20 {
            write(&mut writer, 60).unwrap();
            if random.below(2) == 0 {
                writer.sync().unwrap();
            }
        }
        let expected = all(&disk).0;
        for _ in 0..=random.below(3) {
            let name = name_of(writer.files()[random.below(writer.files().len() as u64) as usize].first);
            let mut bytes = disk.contents(&name).unwrap();
            if bytes.len() < 32 {
                continue;
            }
            let at = random.below(bytes.len() as u64 / 8) as usize * 8;
            let word = |value: u64| (value >> (random.0 % 64)).to_le_bytes();
            match random.0 >> 61 {
                0..2 => bytes[at] ^= 1 << (random.0 % 8),
                2..4 => bytes[at..at + 8].copy_from_slice(&word(random.0)),
                4 => bytes.truncate(at + (random.0 % 8) as usize),
                5 => bytes.copy_within(PAGE_BYTES.min(at).., PAGE_BYTES.max(at) - PAGE_BYTES),
                6 => bytes.copy_within(at.., 0),
                _ => bytes[at.min(16)..][..8].copy_from_slice(&word(u64::MAX)),
            }
            disk.put(&name, &bytes);
        }
        let (batches, end) = read_from(&disk, 0);
        let from = batches.first().map_or(0, |batch| batch.0 as usize - 1);
        assert!(batches == expected[from..from + batches.len()], "seed {seed}");
        assert!(from == 0, "seed {seed}");
        kinds[usize::from(end.is_ok())] += 1;
        if let Err(error) = end {
            assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Incompatible), "{seed}: {error}");
        }
    }
    assert!(kinds.iter().all(|count| *count > 10), "{kinds:?}");
}
