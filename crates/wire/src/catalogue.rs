//! Keys of the catalogue, the table in which Kelix keeps the names of tables and attributes.
//!
//! The catalogue is an ordinary table (number 0) of shard 0, so clients read it one-sidedly like any other.
//! Ids of attributes are given once and never change their meaning while a server lives; those of tables are
//! given again when nobody can know the table that was dropped.
//!
//! ```text
//! key  [ 1 ] name                           -> id of the table, 16 bits
//!      [ 2 ] id of a table                  -> its name
//!      [ 3 ] id of a table, name            -> id of the attribute name, 16 bits
//!      [ 4 ] id of a table, id of a name    -> the name
//!      [ 5 ] dataset                        -> number of the generation in force, 64 bits, and of the lease in nanoseconds, 64 bits
//!      [ 6 ] number of a generation         -> its tables, as long as it can be read: see [`crate::generation`]
//! ```
//!
//! The tables of a dataset are other ones in each generation. The id under `[ 1 ]` of such a table stands for
//! its name, which the dataset's follows there; attribute names belong to that id. A table that a generation
//! stands in has its name, too, under `[ 2 ]`.

use kelix_types::{NameId, TableId};

fn key(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![kind];
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// Key under which the id of a name stands: a table's if `table` is the catalogue, else an attribute's.
pub fn id_key(table: TableId, name: &[u8]) -> Vec<u8> {
    if table == TableId::CATALOGUE { key(1, &[name]) } else { key(3, &[&table.0.to_le_bytes(), name]) }
}

/// Key under which the name of an id stands: a table's if `table` is the catalogue, else an attribute's.
pub fn name_key(table: TableId, id: NameId) -> Vec<u8> {
    if table == TableId::CATALOGUE {
        key(2, &[&id.0.to_le_bytes()])
    } else {
        key(4, &[&table.0.to_le_bytes(), &id.0.to_le_bytes()])
    }
}

/// Key under which stands which generation of a dataset is in force.
pub fn dataset_key(dataset: &[u8]) -> Vec<u8> {
    key(5, &[dataset])
}

/// Key under which the tables of a generation stand.
pub fn generation_key(generation: u64) -> Vec<u8> {
    key(6, &[&generation.to_le_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_keys() {
        assert_eq!(id_key(TableId::CATALOGUE, b"people"), b"\x01people");
        assert_eq!(name_key(TableId::CATALOGUE, NameId(0x0102)), [2, 2, 1]);
        assert_eq!(id_key(TableId(7), b"name"), b"\x03\x07\x00name");
        assert_eq!(name_key(TableId(7), NameId(9)), [4, 7, 0, 9, 0]);
    }
}
