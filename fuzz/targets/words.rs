//! The word primitives against plain slices. Other lengths and positions than those in view are refused.

#![no_main]

use std::sync::LazyLock;

use kelix_fuzz::{Guarded, Input};
use kelix_image::words::{bytes_of, bytes_of_mut, match_bytes, match_upper_halves};
use libfuzzer_sys::fuzz_target;

static MEMORY: LazyLock<Guarded> = LazyLock::new(Guarded::new);

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (at, count) = (usize::from(input.u16()), usize::from(input.u16()));
    let (mask, wanted) = (input.u32(), input.u32());
    let plain = input.words();
    let held = MEMORY.hold(&plain);
    let bytes = bytes_of(&plain);
    // Bytes from anywhere, and positions that are nowhere.
    let expected = bytes.get(at..at + count);
    let mut copied = vec![0; count];
    assert_eq!(held.copy_bytes_out(at, &mut copied), expected.is_some());
    assert!(expected.is_none_or(|expected| copied == expected));
    assert!(
        !held.copy_bytes_out(usize::MAX - at, &mut copied) || count == 0 && bytes.len() == usize::MAX - at
    );
    if let Some(expected) = bytes.get(at..at + 8) {
        assert_eq!(held.load_bytes(at), u64::from_le_bytes(expected.try_into().expect("8 bytes")));
    }
    // Whole words.
    if let Some(expected) = plain.get(at..at + count) {
        let mut words = vec![0; count];
        held.copy_out(at, &mut words);
        assert_eq!(words, expected);
        assert_eq!(bytes_of_mut(&mut words), bytes_of(expected));
        assert_eq!(held.part(at, count).count(), count);
        held.copy_in(at, &words);
        held.clear(at, count);
        assert!((at..at + count).all(|index| held.load(index) == 0));
        held.copy_in(at, expected);
    }
    // Searches in a cache line.
    let quarter = |at: &usize| plain[*at] >> 48 == u64::from(wanted as u16);
    let first = if plain.len() < 8 { None } else { (1..8).find(quarter) };
    assert_eq!(held.find_upper_quarter(wanted as u16), first);
    if let Some(line) = plain.first_chunk::<8>() {
        let equal = |word: u64| (word >> 32) as u32 & mask == wanted;
        let expected = (0..8).fold(0, |found, at| found | u8::from(equal(line[at])) << at);
        assert_eq!(match_upper_halves(line, mask, wanted), expected);
        let bytes = bytes_of(&line[..2]).iter().enumerate();
        let expected = bytes.fold(0, |found, (at, byte)| found | u16::from(*byte == wanted as u8) << at);
        assert_eq!(match_bytes([line[0], line[1]], wanted as u8), expected);
    }
});
