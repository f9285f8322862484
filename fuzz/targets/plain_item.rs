//! Plain items where they stand: nothing outside is read, and what is found is what a private copy says.

#![no_main]

use std::sync::LazyLock;

use kelix_fuzz::{Guarded, Input};
use kelix_image::words::bytes_of;
use kelix_image::{ItemFlags, ItemView, PlainItem};
use kelix_types::TableId;
use libfuzzer_sys::fuzz_target;

static MEMORY: LazyLock<Guarded> = LazyLock::new(Guarded::new);

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (table, length) = (TableId(input.u16()), usize::from(input.u16()));
    let given = input.bytes(length);
    let slot = input.words();
    // Either the key of the input or, so that long ones are hit too, the bytes that stand where the key
    // would.
    let standing = bytes_of(&slot).get(16..16 + length);
    let key = if given.first() == Some(&b'*') { standing.unwrap_or(given) } else { given };
    let held = MEMORY.hold(&slot);
    // Whoever wrote an item, it is as plain.
    let is_plain = |flags: ItemFlags| flags.0 & !ItemFlags::OVERLAY.0 == 0;
    let view = ItemView::new(&slot).filter(|item| is_plain(item.header().flags) && item.is_for(table, key));
    let Some(item) = PlainItem::find(held, table, key) else {
        assert!(view.is_none() || slot.len() < 3 + key.len() / 8, "an item that is there was not found");
        return;
    };
    assert_eq!(item.guardian().0, slot[0]);
    assert_eq!(item.item_bytes(), 16 + key.len() + item.value_bytes());
    let mut value = vec![0; item.value_bytes()];
    let mut copy = Vec::new();
    let (copied, layout) = (item.copy_value(&mut value), item.copy_item(&mut copy));
    match view {
        Some(view) => {
            assert_eq!((copied, &value[..]), (Some(()), view.body()));
            assert_eq!((layout, &copy[..]), (Some(view.layout()), &slot[..copy.len()]));
            assert_eq!(copy.len(), item.item_bytes().div_ceil(8));
        }
        None => assert!(copied.is_none() && layout.is_none(), "more than there is was copied"),
    }
});
