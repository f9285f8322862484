//! Replies: what is accepted is written again as it was, and its item is looked at as a client does.

#![no_main]

use kelix_fuzz::words;
use kelix_image::ItemView;
use kelix_wire::{FrameBuffer, Reply, encode_reply};
use libfuzzer_sys::fuzz_target;

/// Bits 8 to 31 of the first word are not looked at.
const UNUSED: u64 = 0xffff_ff00;

fuzz_target!(|data: &[u8]| {
    let mut payload = words(data);
    let Some(reply) = Reply::parse(&payload) else { return };
    if let Some(location) = reply.location() {
        assert!(location.word() != 0 || reply.head.location != 0);
    }
    if let Some(item) = ItemView::new(reply.item) {
        assert!(item.key().len() + item.body().len() <= reply.item.len() * 8);
    }
    let mut frame = FrameBuffer::default();
    encode_reply(&mut frame, reply.head);
    reply.item.iter().for_each(|word| frame.push(*word));
    assert_eq!(Reply::parse(frame.payload()), Some(reply));
    payload[0] &= !UNUSED;
    assert_eq!(frame.payload(), payload);
});
