//! Items in a private copy of their slot: every part stands inside it.

#![no_main]

use std::sync::LazyLock;

use kelix_fuzz::{Guarded, words};
use kelix_image::words::bytes_of;
use kelix_image::{ItemHeader, ItemView, holds_key};
use kelix_types::limits::KEY_BYTES_MAX;
use libfuzzer_sys::fuzz_target;

static MEMORY: LazyLock<Guarded> = LazyLock::new(Guarded::new);

fuzz_target!(|data: &[u8]| {
    let slot = words(data);
    let Some(meta) = slot.get(1) else {
        assert!(ItemView::new(&slot).is_none());
        return;
    };
    let Some(header) = ItemHeader::from_word(*meta) else {
        assert!(ItemView::new(&slot).is_none());
        return;
    };
    if header.key_bytes <= KEY_BYTES_MAX {
        assert_eq!(header.word(), *meta);
    }
    let (key_start, body_start) = (header.key_start(), header.body_start());
    assert!(key_start % 8 == 0 && key_start + header.key_bytes <= body_start);
    assert_eq!(header.item_bytes(), body_start + header.body_bytes);
    let Some(item) = ItemView::new(&slot) else {
        assert!(header.item_bytes() > slot.len() * 8);
        return;
    };
    assert_eq!((item.header(), item.guardian().0, item.words()), (header, slot[0], &slot[..]));
    assert_eq!(item.key(), &bytes_of(&slot)[key_start..][..header.key_bytes]);
    assert_eq!(item.body(), &bytes_of(&slot)[body_start..][..header.body_bytes]);
    assert_eq!(item.layout().words(), header.item_bytes().div_ceil(8));
    assert!(item.layout().body_words().end <= slot.len());
    let (_, _, _) = (item.version(), item.options(), item.section());
    assert!(item.is_for(header.table, item.key()));
    // The same where it stands, with this key and with one that differs in one byte.
    let held = MEMORY.hold(&slot);
    assert!(holds_key(held, header.table, item.key()));
    let mut other = item.key().to_vec();
    if let Some(byte) = other.get_mut(slot[0] as usize % item.key().len().max(1)) {
        *byte ^= 1;
        assert!(!holds_key(held, header.table, &other) && !item.is_for(header.table, &other));
    }
});
