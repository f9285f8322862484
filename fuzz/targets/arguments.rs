//! What the program reads on its command line: keys, values, attributes, links, sizes, times. What it shows
//! can be read back.

#![no_main]

use bytes::{
    AttributeArgument, Bytes, LinkArgument, parse, parse_value, show, show_name, show_target, show_value,
};
use kelix::TableKind;
use kelix_fuzz::Input;
use kelix_program::units::{
    parse_expiry, parse_interval, parse_lease, parse_patience, parse_size, show_mib, show_size, show_time,
};
use libfuzzer_sys::fuzz_target;

// The program is no library.
#[path = "../../crates/cli/src/bytes.rs"]
#[allow(dead_code)]
mod bytes;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (key_bytes, own_bytes) = (usize::from(input.u8()), usize::from(input.u8()));
    let (key, own, rest) = (input.bytes(key_bytes), input.bytes(own_bytes), input.0);
    for bytes in [key, own, rest] {
        let shown = show(bytes);
        assert_eq!(parse(&shown).as_deref(), Ok(bytes));
        assert!(!shown.chars().any(char::is_control), "a terminal would obey this");
    }
    let Ok(text) = std::str::from_utf8(rest) else { return };
    assert!(!show_name(text).chars().any(char::is_control));
    if let Ok(bytes) = parse(text) {
        assert_eq!(parse(&show(&bytes)), Ok(bytes.clone()));
        assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)));
    }
    if let Ok(attribute) = text.parse::<AttributeArgument>() {
        assert!(text.starts_with(&attribute.name) && !attribute.name.is_empty());
    }
    if let Ok(link) = text.parse::<LinkArgument>() {
        if let Ok(key) = link.key.of(TableKind::Hash) {
            check_target(&link.name, &link.table, TableKind::Hash, &key, &link.bytes);
        }
        if let Ok(number) = link.key.of(TableKind::Numbers) {
            check_target(&link.name, &link.table, TableKind::Numbers, &number, &link.bytes);
        }
    }
    check_target("name", text, TableKind::Strings, key, own);
    if let Ok(value) = parse_value(TableKind::Inline, text) {
        assert_eq!(parse_value(TableKind::Inline, &show_value(TableKind::Inline, &value)), Ok(value));
    }
    if let Ok(size) = parse_size(text) {
        let _ = (show_size(size), show_mib(size));
    }
    for parse in [parse_expiry, parse_interval, parse_lease, parse_patience] {
        if let Ok(time) = parse(text) {
            assert!(!time.is_zero());
            show_time(time);
        }
    }
});

/// A link is shown as it is read, where the table has a name that a table may have.
fn check_target(name: &str, table: &str, kind: TableKind, key: &[u8], own: &[u8]) {
    if table.is_empty() || table.contains('/') || show_name(table) != table {
        return;
    }
    let shown = show_target(table, kind, key, own);
    let link: LinkArgument = format!("{name}={shown}").parse().expect("what was shown");
    assert_eq!((&link.name[..], &link.table[..], &link.bytes[..]), (name, table, own));
    assert_eq!(link.key.of(kind).as_deref(), Ok(key));
}
