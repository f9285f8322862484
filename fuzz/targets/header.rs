//! Header pages made by somebody else.

#![no_main]

use kelix_fuzz::Input;
use kelix_image::{Header, ImageState, Span, features, header_word};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    // Now and then a page that is too short.
    let bytes = Header::BYTES - u64::from(input.u8() == 0xff) * 8;
    let words = input.words();
    let words = &words[..words.len().min(bytes as usize / 8)];
    let span = Span::private(bytes);
    span.words().copy_in(0, words);
    let Ok(header) = Header::open(span.clone()) else { return };
    assert_eq!(bytes, Header::BYTES);
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    assert_eq!(header.image_id(), word(header_word::IMAGE_ID));
    assert_eq!(header.hash_seed(), word(header_word::HASH_SEED));
    assert_eq!(header.term(), word(header_word::TERM));
    assert_eq!(header.epoch(), word(header_word::EPOCH));
    assert_eq!(header.segments_version(), word(header_word::SEGMENTS));
    let state = header.state();
    header.set_state(state);
    assert_eq!(header.state(), state);
    assert!(word(header_word::STATE) <= 2 || state == ImageState::Building);
    // A page made here from what was read is the same as far as it goes.
    let made = Span::private(Header::BYTES);
    let [id, seed, epoch_ns, term] =
        [header_word::IMAGE_ID, header_word::HASH_SEED, header_word::EPOCH_NS, header_word::TERM].map(word);
    Header::create(made.clone(), id, seed, epoch_ns, term);
    assert_eq!(word(header_word::FEATURES) & !features::COMMITS, 0);
    for at in (0..header_word::LEASE).filter(|at| *at != header_word::FEATURES) {
        assert_eq!(made.words().load(at), span.words().load(at));
    }
});
