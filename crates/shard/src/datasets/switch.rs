//! Putting a generation in force, by one change of the catalogue, and taking a dataset out of force.

use kelix_fabric::PeerId;
use kelix_image::NoRoom;
use kelix_types::{TableId, mark};
use kelix_wire::generation::{LoadedTable, encode_tables};
use kelix_wire::{Status, catalogue};

use super::Datasets;
use super::registry::Stage;
use crate::shard::Now;
use crate::store::{Answer, Store};

impl Datasets {
    /// A generation is complete. On shard 0 it comes into force, by one change of the catalogue.
    pub(super) fn switch(
        &mut self,
        now: Now,
        store: &mut Store,
        peer: PeerId,
        number: u64,
    ) -> Result<Answer, NoRoom> {
        self.end_build(store, number);
        if store.tables.has_thawed(number) {
            return Ok(Answer::of(Status::Gone));
        }
        if !store.partition.is_first() {
            store.tables.complete(number);
            return Ok(Answer::of(Status::Ok));
        }
        let Some((name, generation)) = self.registry.find_built(number, peer) else {
            return Ok(Answer::of(Status::Gone));
        };
        let (name, tables) = (name.clone(), generation.tables.clone());
        self.list(store, (number, &name), &tables)?;
        store.tables.complete(number);
        self.free_names(store, &name, &tables);
        self.registry.put_in_force(now, &name);
        store.note_generations();
        mark!("generation came into force");
        Ok(Answer { status: Status::Ok, version: number, location: 0 })
    }

    /// Lists a generation in the catalogue; the last of these items puts it in force.
    fn list(
        &self,
        store: &mut Store,
        (number, name): (u64, &str),
        tables: &[LoadedTable],
    ) -> Result<(), NoRoom> {
        store.put_catalogue(&catalogue::generation_key(number), &encode_tables(tables))?;
        for table in tables {
            let leads = [&table.name_id.0.to_le_bytes()[..], name.as_bytes()].concat();
            let key = catalogue::id_key(TableId::CATALOGUE, table.name.as_bytes());
            if store.catalogue_body(&key).as_deref() != Some(&leads[..]) {
                store.put_catalogue(&key, &leads)?;
            }
        }
        let told = [number.to_le_bytes(), self.registry.lease_ns().to_le_bytes()].concat();
        store.put_catalogue(&catalogue::dataset_key(name.as_bytes()), &told)
    }

    /// Frees the names of tables that a dataset had until now, and has no more.
    fn free_names(&self, store: &mut Store, dataset: &str, tables: &[LoadedTable]) {
        let Some(known) = self.registry.datasets.get(dataset) else { return };
        let names = known.generations.iter().filter(|generation| generation.stage == Stage::InForce);
        let names = names.flat_map(|generation| &generation.tables).map(|table| &table.name);
        for name in names.filter(|name| tables.iter().all(|table| table.name != **name)) {
            let key = catalogue::id_key(TableId::CATALOGUE, name.as_bytes());
            if store.catalogue_body(&key).is_some_and(|leads| leads.get(2..) == Some(dataset.as_bytes())) {
                store.remove_key(TableId::CATALOGUE, &key);
            }
        }
    }

    /// Takes a dataset out of force: its tables' names are free at once, and what is in them goes when nobody
    /// holds it any more.
    pub fn drop_dataset(&mut self, now: Now, store: &mut Store, name: &[u8]) -> Answer {
        let name = String::from_utf8_lossy(name).into_owned();
        let Some(dataset) = self.registry.datasets.get_mut(&name) else {
            return Answer::of(Status::Absent);
        };
        if dataset.at(Stage::Built).is_some() {
            return Answer::of(Status::Taken);
        }
        if dataset.at(Stage::InForce).is_none() {
            return Answer::of(Status::Absent);
        }
        self.changed = true;
        self.free_names(store, &name, &[]);
        self.registry.supersede(now, &name);
        store.remove_key(TableId::CATALOGUE, &catalogue::dataset_key(name.as_bytes()));
        store.note_generations();
        Answer::of(Status::Ok)
    }
}
