//! A table whose values prove themselves, one of which stands in page runs.

use kelix::{Session, Table};

use crate::value;

/// Keys of small values, from 0 on.
pub const KEYS: u64 = 100;
/// The key of the large one.
pub const LARGE: u64 = 1000;

/// Puts everything with this counter.
#[track_caller]
pub fn fill(session: &mut Session, counter: u64) -> Table {
    let table = session.create_table("t").expect("a table");
    for key in 0..KEYS {
        session.put(table, &key.to_le_bytes(), &value::make(key, counter, 300)).expect("a put");
    }
    session.put(table, &LARGE.to_le_bytes(), &value::make(LARGE, counter, 3 << 20)).expect("a large put");
    table
}

/// Gets everything, and wants it to have this counter.
#[track_caller]
pub fn check(session: &mut Session, table: Table, counter: u64) {
    for key in (0..KEYS).chain([LARGE]) {
        let item = session.get(table, &key.to_le_bytes()).expect("a get").expect("a key that is there");
        assert_eq!(value::check(key, item.value()), Ok(counter), "key {key}");
    }
}
