//! Pages of scans, their arguments, and sub-models that come with replies: whatever is in them, they end, and
//! what is accepted is inside.

#![no_main]

use kelix_fuzz::{Input, words};
use kelix_types::{TableId, TableKind};
use kelix_wire::{ModelWords, ScanArgument, ScanEntry, ScanReply};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let kind = TableKind::ALL[usize::from(input.u8()) & 3];
    let argument = input.u64();
    if let Some(known) = ScanArgument::from_word(argument) {
        assert_eq!(known.word(), argument);
    }
    let payload = words(input.0);
    if let Some(page) = ScanReply::new(TableId::new(kind, 1), &payload) {
        let _ = page.last_key();
        let mut count = 0;
        for entry in page {
            count += 1;
            match entry {
                Some(ScanEntry::Item(view)) => {
                    assert_eq!(view.header().table, TableId::new(kind, 1));
                    let _ = (view.key().len(), view.body().len());
                }
                Some(ScanEntry::Key(_) | ScanEntry::Inline(..)) => {}
                None => break,
            }
        }
        assert!(count <= payload.len());
    }
    if let Some(model) = ModelWords::new(&payload) {
        assert!(model.table.len() >= 3 && model.table.len() <= payload.len());
    }
});
