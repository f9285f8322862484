//! Requests: what is accepted is within the limits and is written again as it was.

#![no_main]

use kelix_fuzz::words;
use kelix_types::limits::{FRAME_BYTES_MAX, KEY_BYTES_MAX};
use kelix_wire::{FrameBuffer, Request, RequestShape, encode_request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let payload = words(data);
    let shape = RequestShape::parse(&payload);
    let request = Request::parse(&payload);
    assert_eq!(shape.map(|shape| shape.of(&payload)), request);
    let Some(request) = request else { return };
    assert!(request.key.len() <= KEY_BYTES_MAX && request.body.len() <= FRAME_BYTES_MAX);
    let mut frame = FrameBuffer::default();
    encode_request(&mut frame, request.head, request.key, request.body);
    let written = frame.payload();
    let fixed = payload.len() - request.tail.len();
    assert_eq!((written.len(), &written[..fixed]), (payload.len(), &payload[..fixed]));
    // Behind the fixed part only the padding may differ, which belongs to nobody.
    let again = Request::parse(written).expect("a request that was written here");
    assert_eq!((again.head, again.key, again.body), (request.head, request.key, request.body));
});
