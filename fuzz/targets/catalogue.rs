//! Keys of the catalogue: no two names or ids share one.

#![no_main]

use kelix_fuzz::Input;
use kelix_types::{NameId, TableId};
use kelix_wire::catalogue::{id_key, name_key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut one = || (TableId(input.u16()), NameId(input.u16()));
    let ((table_a, id_a), (table_b, id_b)) = (one(), one());
    let length = usize::from(input.u8());
    let (name_a, name_b) = (input.bytes(length), input.0);
    assert_eq!(id_key(table_a, name_a) == id_key(table_b, name_b), (table_a, name_a) == (table_b, name_b));
    assert_eq!(name_key(table_a, id_a) == name_key(table_b, id_b), (table_a, id_a) == (table_b, id_b));
    assert_ne!(id_key(table_a, name_a), name_key(table_b, id_b));
});
