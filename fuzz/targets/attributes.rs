//! Attribute sections: reading stays inside, and a sound one is built again as it was.

#![no_main]

use kelix_fuzz::words;
use kelix_image::words::bytes_of;
use kelix_image::{AttributeBuilder, Attributes, Section, Value};
use kelix_types::NameId;
use libfuzzer_sys::fuzz_target;

/// Bits 24 to 31 of an entry of the table are not looked at.
const UNUSED: u64 = 0xff00_0000;

fn word(section: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(section[at..at + 8].try_into().expect("8 bytes"))
}

/// What is looked up in words stays inside them, and is what the section has.
fn look_up(words: &[u64]) {
    let Some(section) = Section::new(words) else { return };
    let sound = Attributes::check(bytes_of(words));
    let all = || Attributes::new(bytes_of(words)).into_iter().flatten();
    for name in (0..4).map(NameId) {
        let links: Vec<_> = section.links_of(name).map(Value::Link).collect();
        let bytes = section.bytes_of(name).map(Value::Bytes);
        if sound {
            let is_link = |value: &Value<'_>| matches!(value, Value::Link(_));
            let named = || all().filter(|(of, _)| *of == name).map(|(_, value)| value);
            assert_eq!(links, named().filter(is_link).collect::<Vec<_>>());
            assert_eq!(bytes, named().find(|value| !is_link(value)));
        }
    }
    assert!(section.has_names_to(section.greatest_name()));
}

fuzz_target!(|data: &[u8]| {
    let Some(attributes) = Attributes::new(data) else {
        assert!(!Attributes::check(data));
        return;
    };
    let mut builder = AttributeBuilder::default();
    let mut count = 0;
    for (name, value) in attributes {
        count += 1;
        match value {
            Value::Bytes(bytes) => builder.bytes(name, bytes),
            Value::Link(link) => {
                // The shard stores two words there.
                assert!(link.position % 8 == 0 && link.position + 16 <= data.len());
                builder.link(name, link.table, link.key, link.bytes);
            }
        }
    }
    assert!(count * 8 <= data.len());
    look_up(&words(data));
    if !Attributes::check(data) {
        return;
    }
    let built = builder.finish();
    assert!(Attributes::check(&built));
    assert_eq!((built.len(), word(&built, 0)), (data.len(), word(data, 0)));
    for entry in 1..=count {
        assert_eq!(word(&built, entry * 8), word(data, entry * 8) & !UNUSED);
    }
    // Where the targets stood is not built, and padding belongs to nobody.
    for ((name_a, a), (name_b, b)) in
        Attributes::new(data).into_iter().zip(Attributes::new(&built)).flat_map(|(a, b)| a.zip(b))
    {
        assert_eq!(name_a, name_b);
        match (a, b) {
            (Value::Link(a), Value::Link(b)) => {
                assert_eq!((a.table, a.key, a.bytes, a.position), (b.table, b.key, b.bytes, b.position));
            }
            (a, b) => assert_eq!(a, b),
        }
    }
});
