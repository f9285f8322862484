//! Beginning a generation: its tables get names and ids on shard 0, and others are told of them.

use kelix_fabric::PeerId;
use kelix_image::NoRoom;
use kelix_image::words::bytes_of_mut;
use kelix_types::TableId;
use kelix_types::limits::NAME_BYTES_MAX;
use kelix_wire::generation::{BuildRefusal, LoadedTable, decode_tables, encode_tables};
use kelix_wire::{FrameBuffer, ReplyHead, Request, Status, catalogue, encode_reply};

use super::registry::{Dataset, Generation, Stage};
use super::{Datasets, Order};
use crate::store::Store;

fn is_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && std::str::from_utf8(name).is_ok()
}

/// Whether nothing else has a table's name.
fn name_is_free(store: &mut Store, name: &str, dataset: &str) -> bool {
    let owner = store.catalogue_body(&catalogue::id_key(TableId::CATALOGUE, name.as_bytes()));
    owner.is_none_or(|owner| owner.get(2..) == Some(dataset.as_bytes()) && !dataset.is_empty())
}

impl Datasets {
    /// Begins a generation, whose tables get names and ids.
    pub(super) fn build(
        &mut self,
        store: &mut Store,
        (peer, connection): (PeerId, u64),
        request: &Request<'_>,
        frame: &mut FrameBuffer,
    ) -> Result<(), NoRoom> {
        let mut reply = |status, version, tables: &[LoadedTable]| {
            encode_reply(frame, ReplyHead { id: request.head.id, status, version, location: 0 });
            let bytes = encode_tables(tables);
            frame.push(bytes.len() as u64);
            let words = frame.reserve(bytes.len().div_ceil(8));
            bytes_of_mut(words)[..bytes.len()].copy_from_slice(&bytes);
            Ok(())
        };
        let Some(mut tables) = decode_tables(request.body).filter(|_| is_name(request.key)) else {
            return reply(Status::Refused, 0, &[]);
        };
        let name = String::from_utf8_lossy(request.key).into_owned();
        if tables.iter().any(|table| table.overlay && !table.name_id.kind().has_items()) {
            return reply(Status::Refused, 0, &[]);
        }
        if let Some(refusal) = self.refuse_build(store, &name, &tables) {
            return reply(Status::Taken, refusal.word(), &[]);
        }
        let mut dataset = self.registry.datasets.remove(&name).unwrap_or_default();
        let given = self.give_ids(store, &mut dataset, &mut tables);
        let number = self.registry.given + 1;
        if matches!(given, Ok(true)) {
            let ids = || tables.iter().map(|table| (table.table, table.overlay));
            store.tables.begin(number, connection, ids());
            self.registry.given = number;
            let stage = Stage::Built;
            let generation =
                Generation { number, tables: tables.clone(), stage, builder: peer, holds: vec![] };
            dataset.generations.push(generation);
            self.registry.owners.insert(number, name.clone());
            if store.partition.shards() > 1 {
                let tables = ids().collect();
                self.orders.push(Order::Begin { generation: number, connection, tables });
            }
        }
        // A dataset that has neither generations nor tables is none, whatever was asked of it.
        if !dataset.is_empty() {
            self.registry.datasets.insert(name, dataset);
        }
        self.registry.note_change();
        match given? {
            true => reply(Status::Ok, number, &tables),
            false => reply(Status::Taken, BuildRefusal::NoTables.word(), &[]),
        }
    }

    /// Why a generation cannot be begun, as far as that can be told before anything is done.
    fn refuse_build(
        &mut self,
        store: &mut Store,
        dataset: &str,
        tables: &[LoadedTable],
    ) -> Option<BuildRefusal> {
        let known = self.registry.datasets.get_mut(dataset);
        if known.is_some_and(|known| known.at(Stage::Built).is_some()) {
            return Some(BuildRefusal::UnderWay);
        }
        tables.iter().enumerate().find_map(|(index, table)| {
            let twice = tables[..index].iter().any(|other| other.name == table.name);
            (twice || !name_is_free(store, &table.name, dataset)).then_some(BuildRefusal::NameTaken(index))
        })
    }

    /// Gives tables their ids: for each name one of a table that no generation has, or a new one.
    /// `Ok(false)`: there are none left.
    fn give_ids(
        &mut self,
        store: &mut Store,
        dataset: &mut Dataset,
        tables: &mut [LoadedTable],
    ) -> Result<bool, NoRoom> {
        for wanted in tables {
            let kind = wanted.name_id.kind();
            let name = wanted.name.clone();
            let known = dataset.names.get(&(name.clone(), kind)).cloned();
            let (name_id, mut made) = match known {
                Some(known) => known,
                None => match self.numbers.give_named(store, kind, name.as_bytes())? {
                    Some(id) => (id, Vec::new()),
                    None => return Ok(false),
                },
            };
            let table = match made.iter().find(|table| !dataset.uses(**table)) {
                Some(free) => *free,
                None => {
                    let Some(id) = self.numbers.give_named(store, kind, name.as_bytes())? else {
                        return Ok(false);
                    };
                    made.push(id);
                    id
                }
            };
            dataset.names.insert((name, kind), (name_id, made));
            (wanted.name_id, wanted.table) = (name_id, table);
        }
        Ok(true)
    }
}
