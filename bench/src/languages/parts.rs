//! What the library has for bindings, against what it has had before: parts of values against whole ones,
//! gets that never wait against those that may.

use kelix::TryGet;
use kelix_report::interleave::compare;
use kelix_report::progress;
use kelix_report::report::{Row, compared};

use super::draw::{Draw, get_into};
use super::text;
use crate::store::{Numbers, Store};

const VALUE_BYTES: usize = 4 << 20;
const PART_BYTES: usize = 64 << 10;
const KEY: &[u8] = b"a chunk of a file";
const WHOLES: u64 = 4;
/// Parts that are drawn.
const DRAWN: usize = 1 << 20;

/// The word that stands at a byte of the value, which is a multiple of eight.
fn word_at(byte: u64) -> u64 {
    Numbers(byte).next()
}

/// Checks some words of what was read from a byte on.
fn check(part: &[u8], from: u64) {
    for at in [0, part.len() / 16 * 8, part.len() - 8] {
        let word = u64::from_le_bytes(part[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!(word, word_at(from + at as u64), "byte {at} from {from} on");
    }
}

/// The rows.
pub(super) fn rows(store: &mut Store) -> Result<Vec<Row>, String> {
    progress::show("range_64k");
    let (table, mut ours) = (store.table, store.client.session().map_err(text)?);
    let mut other = store.client.session().map_err(text)?;
    let chunk: Vec<u8> =
        (0..VALUE_BYTES as u64 / 8).flat_map(|word| word_at(word * 8).to_le_bytes()).collect();
    ours.put(table, KEY, &chunk).map_err(text)?;
    let (mut part, mut whole) = (vec![0; PART_BYTES], vec![0; VALUE_BYTES]);
    let mut froms = Numbers(1).records((VALUE_BYTES - PART_BYTES) as u64 / 8, DRAWN).into_iter().cycle();
    let range = compare(
        store.rounds,
        &mut || {
            for _ in 0..64 {
                let from = froms.next().expect("without end") * 8;
                let got = ours.get_range_into(table, KEY, from, &mut part).expect("a part").expect("present");
                assert_eq!((got.copied, got.value_bytes), (PART_BYTES, VALUE_BYTES));
                check(&part, from);
            }
            64
        },
        &mut || {
            for _ in 0..WHOLES {
                get_into(&mut other, table, KEY, &mut whole);
                check(&whole, 0);
            }
            WHOLES
        },
    );
    progress::show("try_get");
    let (mut our_draw, mut other_draw) = (Draw::of(2, store.records), Draw::of(7, store.records));
    let (mut waits, mut gets) = (0u64, 0);
    let tried = compare(
        store.rounds,
        &mut || {
            let done =
                our_draw.block(|key, buffer| match ours.try_get_into(table, key, buffer).expect("a get") {
                    TryGet::Found(..) => {}
                    _ => {
                        waits += 1;
                        get_into(&mut ours, table, key, buffer);
                    }
                });
            gets += done;
            done
        },
        &mut || other_draw.block(|key, buffer| get_into(&mut other, table, key, buffer)),
    );
    let note = format!("{:.1} of 1000 would have waited, and did; ", waits as f64 * 1e3 / gets as f64);
    Ok(vec![
        compared("range_64k", "64 KiB out of a value of 4 MiB / the whole value", "ns", 0.05, range, ""),
        compared(
            "try_get",
            "get that never waits, and where it would one that may / the latter",
            "ns",
            1.05,
            tried,
            &note,
        ),
    ])
}
