//! Words that name places, classes and objects.

#![no_main]

use kelix_fuzz::Input;
use kelix_types::limits::{PLACE_ALIGN, PLACE_BITS};
use kelix_types::{Guardian, Incarnation, Location, SizeClass};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let word = input.u64();
    let place = Location::place_of(word);
    assert!(place.0 % PLACE_ALIGN == 0 && place.0 >> PLACE_BITS == 0);
    match Location::from_word(word) {
        Some(location) => {
            assert_eq!((location.word(), location.place()), (word & Location::MASK, place));
            assert_eq!(Location::new(location.place(), location.class()), location);
            assert_eq!(SizeClass::from_number(location.class().0), Some(location.class()));
            let bytes = location.class().bytes();
            assert_eq!(
                (SizeClass::for_bytes(bytes), location.class().words() * 8),
                (Some(location.class()), bytes)
            );
        }
        None => assert_eq!(SizeClass::from_number((word >> 40) as u8 & 0x7f), None),
    }
    let number = input.u32() as usize;
    assert_eq!(SizeClass::for_bytes(number).is_some(), number <= SizeClass::BYTES_MAX);
    assert!(SizeClass::for_bytes(number).is_none_or(|class| class.bytes() >= number));
    let guardian = Guardian(word);
    let of = guardian.incarnation();
    assert_eq!(if guardian.is_live() { of.live() } else { of.dead() }, guardian);
    assert!(of.term() <= Incarnation::TERM_MAX);
    assert!(of.next().is_none_or(|next| next.term() == of.term() && next.0 == of.0 + 1));
});
