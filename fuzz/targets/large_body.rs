//! Bodies of large items: what is accepted adds up and is written again as it was.

#![no_main]

use kelix_image::LargeBody;
use kelix_image::words::bytes_of;
use kelix_types::limits::VALUE_BYTES_MAX;
// Its heap has bounds.
use kelix_fuzz as _;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(body) = LargeBody::parse(data) else { return };
    assert!(body.bytes <= VALUE_BYTES_MAX);
    assert_eq!(body.runs.iter().map(|(_, bytes)| bytes).sum::<u64>(), body.bytes);
    assert_eq!(bytes_of(&body.words()), data);
});
