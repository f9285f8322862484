//! Whether a shard's memory and index agree, and what is left of clients. For tests; it looks at all there
//! is.

use kelix_image::{InUse, ItemFlags, Kind, LargeBody};
use kelix_types::Guardian;

use crate::large::Upload;
use crate::shard::Shard;

impl Shard {
    /// Checks, between two steps, that every item the index names is live and found by its key, and that no
    /// memory leaks or is used twice. `Err`: what is wrong.
    pub fn audit(&mut self) -> Result<(), String> {
        let store = &mut self.store;
        store.index.check(&store.image)?;
        let mut used = InUse::default();
        store.index.for_each_block(&store.image, |kind, place| used.slots.push((kind, place)));
        let mut items = Vec::new();
        store.index.for_each(&store.image, |location| items.push(location));
        for location in items {
            let place = location.place();
            if !Guardian(store.image.slot(location).load(0)).is_live() {
                return Err(format!("the index names the item at {place:?}, which is dead"));
            }
            let (table, key, large) = store.copy_item(location, |item| {
                let large = item.header().flags.has(ItemFlags::LARGE).then(|| LargeBody::parse(item.body()));
                (item.header().table, item.key().to_vec(), large)
            });
            let found = store.index.find(&store.image, store.index.hash(table, &key), table, &key);
            if found.map(|found| found.location) != Some(location) {
                return Err(format!(
                    "the item at {place:?} is not found by its key {key:02x?}, but {found:?}"
                ));
            }
            used.slots.push((Kind::item(location.class()), place));
            match large {
                Some(Some(body)) => used.runs.extend(body.runs),
                Some(None) => return Err(format!("the large item at {place:?} makes no sense")),
                None => {}
            }
        }
        if self.mirrored.is_some() {
            // The rest is the memory of another shard, which knows what is used of it.
            used.slots.retain(|(kind, _)| kind.is_model());
            used.runs.clear();
            return store.image.audit(&used);
        }
        for client in self.clients.iter() {
            used.runs.extend(client.upload.iter().flat_map(Upload::runs));
        }
        store.image.audit(&used)
    }

    /// Checks, where all clients have gone and everything is done that was due, that nothing is left of them
    /// but what they stored, and what is remembered of who may come again. `Err`: what is.
    pub fn audit_departed(&self) -> Result<(), String> {
        let left = [
            ("requests that wait for memory", self.parked.len()),
            ("notes of links", self.store.linked.tables()),
        ];
        let left = left.into_iter().chain(self.clients.remains()).chain(self.store.tables.remains());
        match left.chain(self.datasets.remains()).find(|(_, count)| *count > 0) {
            Some((what, count)) => Err(format!("{count} {what} are left")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kelix_image::AttributeBuilder;
    use kelix_image::words::bytes_of;
    use kelix_types::{NameId, TableId, TableKind};
    use kelix_wire::control::Caller;
    use kelix_wire::generation::{LoadedTable, NewItem, any_of, encode_tables};
    use kelix_wire::mailboxes::Mailboxes;
    use kelix_wire::{Op, RequestHead};

    use crate::harness::Harness;

    /// Begins a generation, and puts an item with a link into its only table, which is given this number: the
    /// first that there is is that of the name.
    pub(crate) fn build(alone: &mut Harness, table: TableId) -> RequestHead {
        let name_id = any_of(TableKind::Hash);
        let asked = LoadedTable { table: TableId(0), name_id, name: "table".to_string(), overlay: false };
        let head = RequestHead::new(Op::Build, 0, TableId::CATALOGUE);
        let generation = alone.call(head, b"dataset", &encode_tables(&[asked])).version;
        let (mut section, mut items) = (AttributeBuilder::default(), Vec::new());
        section.link(NameId(1), table, b"key", b"");
        let body = section.finish();
        NewItem { key: b"key", body: &body, attributes: true, expiry: None, client_flags: 0 }
            .push(&mut items);
        let of = RequestHead { argument: Some(generation), ..head };
        alone.call(RequestHead { op: Op::Load, table, ..of }, &[], bytes_of(&items));
        of
    }

    /// A client that may come again held the generation in force for ever when it had gone; and what was
    /// noted of links, 8 bytes for each of up to 8 million items, stayed when a generation was given up, or
    /// complete, before its links were resolved.
    #[test]
    fn nothing_is_left_of_who_has_gone() {
        let mut alone = Harness::new(1, &Mailboxes::new());
        for completes in [false, true] {
            alone.leave();
            alone.join(2, Some(Caller { number: 7, again: completes }), true);
            let of = build(&mut alone, TableId(2));
            if completes {
                alone.call(RequestHead { op: Op::Switch, ..of }, &[], &[]);
                alone.call(RequestHead { op: Op::Hold, ..of }, &[], &[]);
            }
            alone.leave();
            alone.step();
            let held = alone.shard.generations().map(|generation| generation.holders.len()).sum::<usize>();
            assert_eq!(held, usize::from(completes), "it may come again, and find what it held");
            while let Some(next) = alone.step().next_ns {
                alone.now_ns = alone.now_ns.max(next);
            }
            assert_eq!(alone.shard.audit_departed(), Ok(()), "{completes}");
            assert_eq!(alone.shard.audit(), Ok(()), "{completes}");
        }
    }
}
