//! The one check between a pointer and memory: any place, in a map whose segments come and go.

#![no_main]

use kelix_fuzz::Input;
use kelix_image::{MemoryMap, Span};
use kelix_types::Place;
use kelix_types::limits::GRANULE_BYTES;
use libfuzzer_sys::fuzz_target;

/// Small, but they need not end with a granule.
const SEGMENT_BYTES: [u64; 4] = [64, 4096, 4104, 8];

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut map = MemoryMap::default();
    let mut segments: [Option<u64>; 8] = [None; 8];
    while !input.is_empty() {
        let what = input.u8();
        let granule = usize::from(what >> 2 & 7);
        match what & 3 {
            0 if segments[granule].is_none() => {
                let bytes = SEGMENT_BYTES[usize::from(what >> 5 & 3)];
                map.add(granule, Span::private(bytes));
                segments[granule] = Some(bytes);
            }
            1 => {
                map.remove(granule);
                segments[granule] = None;
            }
            // A place near a segment, and any place at all.
            2 => look(&map, &segments, granule as u64 * GRANULE_BYTES + u64::from(input.u16()), input.u16()),
            _ => look(&map, &segments, input.u64(), input.u16()),
        }
        assert!((0..8).all(|first| map.has(first) == segments[first].is_some()));
    }
});

fn look(map: &MemoryMap, segments: &[Option<u64>], place: u64, count: u16) {
    let (place, count) = (Place(place), usize::from(count));
    let bytes = segments.get(place.granule()).copied().flatten();
    let offset = place.in_granule();
    let inside = bytes.is_some_and(|bytes| offset % 8 == 0 && offset + count as u64 * 8 <= bytes);
    let words = map.words(place, count);
    // No words are nowhere: whether they are found does not matter.
    assert!(count == 0 || words.is_some() == inside);
    if let Some(words) = words {
        assert_eq!(words.count(), count);
        words.clear(0, count);
    }
    let rest = bytes.filter(|bytes| offset % 8 == 0 && offset < *bytes).map(|bytes| (bytes - offset) / 8);
    assert_eq!(map.view().words_from(place).map(|words| words.count() as u64), rest);
}
