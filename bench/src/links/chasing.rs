//! What a chase costs beside what it would cost at least, and what links together cost beside links one by
//! one.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use kelix::{FabricChoice, Frontier, Item, NewItem, Path};
use kelix_image::{Attributes, ItemView, MemoryMap, Value};
use kelix_types::Location;

use super::chain::{Chain, Walker, Way, text};
use super::memcached::Memcached;
use super::{Size, counts, row};
use crate::store::verify;
use crate::workload::{Records, key};
use kelix_report::cores::{pin, unpin};
use kelix_report::interleave::compare;
use kelix_report::report::{Row, compared, told};

/// Links of an item in the row of batches.
const LINKS: u64 = 64;
/// Items with so many links.
const OWNERS: u64 = 512;
/// Name of these links.
const TO: &str = "to";

/// Chases in memory against a read of the same bytes that does nothing else, and against memcached.
pub(super) fn rows(size: Size, cores: usize) -> Result<Vec<Row>, String> {
    pin(cores - 1);
    let mut chain = Chain::start(size.records)?;
    let mut memcached = Memcached::start(size.records)?;
    unpin();
    chain.load()?;
    memcached.load()?;
    pin(0);
    let mut ours = chain.walker(FabricChoice::Shm, Way::Follow)?;
    let mut bare = Bare::new(chain.walker(FabricChoice::Shm, Way::Follow)?);
    let comparison = compare(size.rounds, &mut || steps(&mut ours), &mut || {
        (0..STEPS).for_each(|_| bare.step());
        STEPS
    });
    let bytes = size.records.value_bytes;
    let name = format!(
        "following a link to {bytes} bytes in shared memory / a bare dependent read of the same bytes"
    );
    let note = format!("{} bytes an item; {} records; ", bare.words * 8, size.records.count);
    let chase_loop = compared("chase_loop", name, "ns", 1.15, comparison, &note);

    let mut other = chain.walker(FabricChoice::Shm, Way::LookUp(Path::Message))?;
    let comparison = compare(size.rounds, &mut || steps(&mut ours), &mut || {
        other.step().expect("the next item");
        1
    });
    let name = format!("following a link to {bytes} bytes in shared memory / our own get by message");
    let message = row("chase_message".into(), name, comparison, size, "the shard has a core of its own");
    let message = Row { wanted: Some(4.0), ..message };

    let before = ours.cost();
    let comparison = compare(size.rounds, &mut || steps(&mut ours), &mut || {
        memcached.step().expect("memcached's record");
        1
    });
    let counted = counts(ours.cost().since(before));
    unpin();
    let name = format!("following a link to {bytes} bytes in shared memory / memcached's get");
    let beside = row("chase_memcached".into(), name, comparison, size, &counted);
    Ok(vec![
        message,
        Row { wanted: Some(60.0), ..beside },
        chase_loop,
        together(&mut chain, size, FabricChoice::Shm)?,
        together(&mut chain, size, FabricChoice::Tcp)?,
        link_bytes(),
    ])
}

/// Steps between two looks at the clock.
const STEPS: u64 = 64;

fn steps(walker: &mut Walker) -> u64 {
    (0..STEPS).for_each(|_| walker.step().expect("the next item"));
    STEPS
}

/// Somebody who reads the chain's items where they stand, checks nothing of them, and goes where their links
/// say.
struct Bare {
    map: Arc<MemoryMap>,
    /// Words of an item, and which of them is the link's.
    words: usize,
    link: usize,
    at: Location,
    item: Vec<u64>,
    record: u64,
}

impl Bare {
    fn new(mut walker: Walker) -> Bare {
        let (map, first, record) = walker.where_it_stands();
        let view = ItemView::new(&first).expect("an item");
        let link = Attributes::new(view.body()).into_iter().flatten().find_map(|(_, value)| match value {
            Value::Link(link) => Some(link),
            Value::Bytes(_) => None,
        });
        let link = link.expect("a link");
        let words = view.header().item_bytes().div_ceil(8);
        let at = link.location.expect("a link that was followed");
        let link = view.header().body_start() / 8 + link.position / 8;
        let record = verify(value_of(&first), record);
        Bare { map, words, link, at, item: vec![0; words], record }
    }

    #[inline(never)]
    fn step(&mut self) {
        let slot = self.map.view().words(self.at.place(), self.words).expect("an item");
        slot.copy_out(0, &mut self.item);
        self.at = Location::from_word(self.item[self.link]).expect("a link that was followed");
        self.record = verify(value_of(&self.item), self.record);
    }
}

/// The value of an item of the chain: behind the header, a key of two words, and the attributes' table of
/// three.
fn value_of(item: &[u64]) -> &[u8] {
    &kelix_image::words::bytes_of(item)[56..]
}

/// The links of an item followed at once against one by one.
fn together(chain: &mut Chain, size: Size, fabric: FabricChoice) -> Result<Row, String> {
    let records = size.records;
    let (session, table) = chain.session();
    let owners = OWNERS.min(records.count / 4).max(2);
    for owner in 0..owners {
        let mut item = NewItem::new();
        for link in 0..LINKS {
            item = item.link(TO, table, &key(target(owner, link, records)));
        }
        session.put_item(table, &key(records.count + owner), &item).map_err(text)?;
    }
    if fabric == FabricChoice::Shm {
        pin(0);
    }
    let mut session = chain.session_over(fabric, Path::Auto)?;
    let mut frontiers = Vec::new();
    for owner in 0..owners {
        let item =
            session.get(table, &key(records.count + owner)).map_err(text)?.ok_or("no item of links")?;
        let mut all = Frontier::new();
        all.add_links(&item, TO, |_| true);
        let single = |index: u64| {
            let (mut one, mut at) = (Frontier::new(), 0);
            one.add_links(&item, TO, |_| {
                at += 1;
                at == index + 1
            });
            one
        };
        frontiers.push((all, (0..LINKS).map(single).collect::<Vec<_>>()));
    }
    let check = |item: Option<&Item>, owner: u64, link: u64| {
        verify(item.expect("a record").value(), target(owner, link, records));
        ControlFlow::Continue(())
    };
    let session = RefCell::new(session);
    let (mut ours, mut theirs) = (0, 0);
    let comparison = compare(
        size.rounds,
        &mut || {
            ours = (ours + 1) % owners;
            let (all, _) = &frontiers[ours as usize];
            let visited = session.borrow_mut().visit(all, |link, item| check(item, ours, link as u64));
            visited.expect("they are there");
            LINKS
        },
        &mut || {
            theirs = (theirs + 1) % owners;
            let (_, singles) = &frontiers[theirs as usize];
            for (link, one) in singles.iter().enumerate() {
                let visited = session.borrow_mut().visit(one, |_, item| check(item, theirs, link as u64));
                visited.expect("it is there");
            }
            LINKS
        },
    );
    unpin();
    let (id, place) = match fabric {
        FabricChoice::Shm => ("chase_batch", "in shared memory"),
        FabricChoice::Verbs => ("chase_batch_verbs", "over verbs"),
        FabricChoice::Tcp => ("chase_batch_tcp", "over TCP"),
    };
    let name = format!("following {LINKS} links of an item at once {place} / one by one");
    Ok(Row { wanted: Some(6.0), ..row(id.into(), name, comparison, size, "values of the same size") })
}

/// The record that a link leads to: anywhere.
fn target(owner: u64, link: u64, records: Records) -> u64 {
    (owner * LINKS + link + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) % records.count
}

/// What a link takes in an item, by counting.
fn link_bytes() -> Row {
    let size_of = |links: usize| {
        let mut section = kelix_image::AttributeBuilder::default();
        for _ in 0..links {
            section.link(kelix_types::NameId(1), kelix_types::TableId(1), b"12345678", &[]);
        }
        section.finish().len()
    };
    let bytes = (size_of(100) - size_of(1)) as f64 / 99.0;
    Row {
        note: "counted".into(),
        ..told("link_bytes", "bytes a link with a key of 8 bytes", "bytes", bytes, Some(40.0))
    }
}
