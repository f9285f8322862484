//! Frames of the set-up connection: what is accepted is written again as it was.

#![no_main]

use kelix_fuzz::Input;
use kelix_wire::SPOKEN;
use kelix_wire::control::Frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let kind = input.u16();
    let Some(frame) = Frame::decode(kind, input.0) else { return };
    if matches!(frame, Frame::Hello { versions, .. } if SPOKEN.common(versions).is_none()) {
        // Of other versions' greetings nothing but the versions is kept.
        assert_eq!(frame.encode().1[..4], input.0[..4]);
        return;
    }
    assert_eq!(frame.encode(), (kind, input.0.to_vec()));
});
