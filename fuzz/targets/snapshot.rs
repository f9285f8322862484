//! A file that may be a snapshot, and what one would say.

#![no_main]

use std::fs::File;
use std::io::Write;

use kelix_fuzz::words;
use kelix_image::{Books, MemoryMap, Span, redo};
use kelix_snapshot::{Snapshot, Which};
use kelix_types::Place;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut map = MemoryMap::default();
    map.add(1, Span::private(1 << 20));
    let path = std::env::temp_dir().join(format!("kelix-fuzz-snapshot-{}", std::process::id()));
    File::create(&path).and_then(|mut file| file.write_all(data)).expect("a file");
    if let Ok(snapshot) = Snapshot::open(&path) {
        let _ = snapshot.verify();
        for shard in 0..2 {
            let which = Which { namespace: 0, shard };
            let _ = snapshot.fill(which, &map);
            let _ = snapshot.beside(which);
        }
    }
    // What stands behind the checksums.
    let words = words(data);
    if let Some(books) = Books::of_words(&words) {
        assert_eq!(books.words(), words);
    }
    let _ = redo(&words, |place: Place, count| map.words(place, count));
});
