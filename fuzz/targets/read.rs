//! One-sided reads of an image that is not as its server left it: words of it are changed before a read and
//! between its steps. Whatever a read then makes of index, items and pieces, it ends, and what it calls valid
//! is an item of the key.

#![no_main]

use std::sync::{Arc, LazyLock};

use kelix_fabric::Direct;
use kelix_fuzz::{Input, Mailboxes, PEER};
use kelix_image::words::Words;
use kelix_image::{AttributeBuilder, Header, MemoryMap, Span, header_word};
use kelix_index::root_word;
use kelix_shard::harness::Harness;
use kelix_types::limits::GRANULE_BYTES;
use kelix_types::{Guardian, Incarnation, Location, NameId, Place, TableId, TableKind, key_hash};
use kelix_wire::{Op, ReplyHead, RequestHead};
use libfuzzer_sys::fuzz_target;
use ordered::{Hint, Items, Looked, ModelCopy, Origin, Page, Wanted};
use pointers::Pointer;
use read::{Landing, ReadOp, ShardReader, Step};
use shelf::Shelf;

// The client keeps them to itself.
#[path = "../../crates/client/src/ordered/mod.rs"]
#[allow(missing_docs, dead_code, unused_imports)]
mod ordered;
#[path = "../../crates/client/src/pointers.rs"]
#[allow(missing_docs, dead_code)]
mod pointers;
#[path = "../../crates/client/src/read/mod.rs"]
#[allow(missing_docs, dead_code, unused_imports)]
mod read;
#[path = "../../crates/client/src/shelf.rs"]
#[allow(missing_docs, dead_code)]
mod shelf;

const TABLE: TableId = TableId(5);
/// Ordered tables of each kind.
const ORDERED: [TableId; 3] = [
    TableId::new(TableKind::Inline, 1),
    TableId::new(TableKind::Numbers, 1),
    TableId::new(TableKind::Strings, 1),
];
/// Keys of each of them.
const ORDERED_KEYS: u64 = 150;
/// Steps after which a read does not end any more. A whole directory and a large value take fewer.
const STEPS_MAX: usize = 20_000;
/// Longer than a message, so that it stands in pieces.
const LARGE_BYTES: usize = 3 << 20;

static MAILBOXES: LazyLock<Mailboxes> = LazyLock::new(Mailboxes::new);
static IMAGE: LazyLock<Image> = LazyLock::new(Image::new);

/// An image of a few items of all kinds, and which of its words say something.
struct Image {
    map: Arc<MemoryMap>,
    places: Vec<Place>,
    keys: Vec<(TableId, Vec<u8>)>,
    pointers: Vec<Pointer>,
    header: Header,
}

impl Image {
    fn new() -> Image {
        let mut server = Harness::new(1, &MAILBOXES);
        let mut keys: Vec<Vec<u8>> = (0..60u8).map(|number| vec![b'k'; 1 + usize::from(number)]).collect();
        let mut pointers = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            let mut head = RequestHead::new(Op::Put, 0, TABLE);
            let mut body = vec![b'v'; number * 7];
            if number % 3 == 0 {
                let mut section = AttributeBuilder::default();
                section.bytes(NameId(0), &body);
                section.link(NameId(1), TABLE, b"k", b"");
                body = section.finish();
                head.attributes = true;
            }
            let ReplyHead { version, location, .. } = server.call(head, key, &body);
            let location = Location::from_word(location).expect("where it stands");
            pointers.push(Pointer { location, incarnation: Incarnation(version) });
        }
        let large = b"large".to_vec();
        server.put_in_pieces(TABLE, &large, &[0; LARGE_BYTES]);
        keys.push(large);
        keys.push(b"absent".to_vec());
        let mut keys: Vec<(TableId, Vec<u8>)> = keys.into_iter().map(|key| (TABLE, key)).collect();
        for table in ORDERED {
            for number in 0..ORDERED_KEYS {
                let key = match table.kind() {
                    TableKind::Strings => format!("user{number:04}").into_bytes(),
                    _ => (number * number).to_be_bytes().to_vec(),
                };
                server.call(RequestHead::new(Op::Put, 0, table), &key, &number.to_le_bytes());
                keys.push((table, key));
            }
        }
        let header = Header::open(server.header().clone()).expect("the header page");

        let map = server.map();
        let mut places = Vec::new();
        for first in map.firsts() {
            let start = Place(first as u64 * GRANULE_BYTES);
            let words = map.view().words_from(start).expect("a segment");
            let said = (0..words.count()).filter(|index| words.load(*index) != 0);
            places.extend(said.map(|index| start.plus(index as u64 * 8)));
        }
        Image { map, places, keys, pointers, header }
    }

    /// A copy of the models of an ordered table, as a client makes one.
    fn models(&self, table: TableId, budget: usize) -> Option<ModelCopy> {
        let list = Location::place_of(self.header.words().load(header_word::ROOTS));
        let place = Location::place_of(self.word(list.plus(root_word(table) as u64 * 8)).load(0));
        let words = self.map.view().words_from(place)?;
        let header = Span::private(64);
        (0..8).for_each(|word| header.words().store(word, words.load(word)));
        let top = Span::private(ModelCopy::words_wanted(&header, budget)? as u64 * 8);
        (0..top.words().count()).for_each(|word| top.words().store(word, words.load(word)));
        let guardian = Guardian(top.words().load(0));
        let origin = Origin { place, guardian, budget, shelf: Shelf::Private, name: String::new() };
        ModelCopy::new(origin, top.words())
    }

    fn word(&self, place: Place) -> Words<'_> {
        self.map.words(place, 1).expect("a place of the image")
    }
}

/// What was changed: where, and what stood there.
#[derive(Default)]
struct Changes(Vec<(Place, u64)>);

impl Changes {
    fn change(&mut self, input: &mut Input<'_>, what: u8, fabric: &mut Mailboxes) {
        let any = |input: &mut Input<'_>| IMAGE.places[usize::from(input.u16()) % IMAGE.places.len()];
        let place = any(input);
        let was = IMAGE.word(place).load(0);
        let is = match what & 7 {
            0 => was ^ (1 << (input.u8() & 63)),
            1 => was.wrapping_add(u64::from(input.u8())),
            2 => IMAGE.word(any(input)).load(0),
            3 => u64::from(input.u16()),
            4 => input.u64(),
            // As a value is changed in a copy of the whole item.
            5 => was.rotate_left(8),
            6 => return fabric.stamp += u64::from(input.u8() & 3),
            _ => return fabric.term = Harness::TERM + u64::from(what >> 7),
        };
        self.0.push((place, was));
        IMAGE.word(place).store(0, is);
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.0.iter().rev().for_each(|(place, was)| IMAGE.word(*place).store(0, *was));
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut changes = Changes::default();
    let mut fabric = MAILBOXES.clone();
    (fabric.memory, fabric.stamp, fabric.term) = (Some(IMAGE.map.clone()), 7, Harness::TERM);
    let mut shard = ShardReader::new(PEER, Harness::TERM, None, false);
    let mut landing = Landing::default();
    let budget = [1 << 20, 3 << 10, 700, 0][usize::from(input.u8()) & 3];
    for table in ORDERED {
        if let Some(models) = IMAGE.models(table, budget) {
            shard.ordered.keep_copy(table, models);
        }
    }
    let authority = Span::private(64);
    authority.words().store(0, Harness::TERM);
    let direct = Direct::new(IMAGE.map.clone(), &IMAGE.header, authority.word(0));
    let mut near = ShardReader::new(PEER, Harness::TERM, Some(direct), false);
    while !input.is_empty() {
        let what = input.u8();
        if what & 3 != 0 {
            changes.change(&mut input, what >> 2, &mut fabric);
            continue;
        }
        let number = usize::from(input.u16()) % IMAGE.keys.len();
        let (table, key) = (IMAGE.keys[number].0, &IMAGE.keys[number].1[..]);
        let hash = key_hash(Harness::SEED, table, key);
        if table != TABLE && what & 16 != 0 {
            let untouched = changes.0.is_empty();
            let looked = near.look_in_order(table, key, |item| landing.copy(item));
            match looked {
                Looked::Copied(..) => assert!(landing.view().is_for(table, key)),
                Looked::Inline(_) => assert!(!table.kind().has_items()),
                Looked::At(_) | Looked::Absent | Looked::Unknown => {
                    assert!(!untouched, "{key:?} is not found")
                }
            }
            let mut page = Page::default();
            let found = near.read_page(Wanted { table, key, keys: 100 }, &mut Hint::default(), &mut page);
            assert!(page.entries.len() <= 16 && (found || !untouched));
            if found {
                let mut items = Items::default();
                near.read_items(table, &page, &page.entries, &mut items);
                assert!(items.ends.len() == page.entries.len() || !untouched || !table.kind().has_items());
            }
            continue;
        }
        let pointer = IMAGE.pointers.get(number).copied().filter(|_| what & 4 != 0);
        let untouched = changes.0.is_empty() && fabric.term == Harness::TERM;
        // Bits that say before which steps something is changed.
        let mut between = if what & 8 != 0 { input.u8() } else { 0 };
        let steady = between == 0;
        let mut op = ReadOp::start(&mut fabric, &shard, 0, 0, (table, hash, key), (pointer, false));
        let mut end = None;
        for _ in 0..STEPS_MAX {
            if between & 1 != 0 {
                let what = input.u8();
                changes.change(&mut input, what, &mut fabric);
            }
            between >>= 1;
            let mut step = op.advance(&mut fabric, &mut shard, key, &mut landing);
            if step == Step::UnknownSegment {
                step = op.restart(&mut fabric, &shard, key);
            }
            if step != Step::Pending {
                end = Some(step);
                break;
            }
        }
        let end = end.expect("a read ends");
        if end == Step::Valid {
            assert!(landing.view().is_for(table, key));
            let _ = landing.value().len();
        }
        if untouched && steady {
            // Without a copy of the models the shard is asked.
            let sure = table == TABLE || shard.ordered.has_copy(table);
            assert!(!sure || (end == Step::Valid) == (key != b"absent"), "{end:?} of {key:?} in {table:?}");
        }
    }
});
