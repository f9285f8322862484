//! Names of tables and attributes, and their ids, which items of the catalogue tell.

use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_image::{ItemFlags, ItemHeader, ItemOptions, NoRoom, header_word};
use kelix_types::limits::NAME_BYTES_MAX;
use kelix_types::{NameId, TableId, TableKind};
use kelix_wire::{Request, Status, catalogue};

use super::{Datasets, Overlay};
use crate::store::{Answer, NewItem, Store};

impl Store {
    /// The body of a catalogue item.
    pub fn catalogue_body(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let hash = self.index.hash(TableId::CATALOGUE, key);
        let found = self.index.find(&self.image, hash, TableId::CATALOGUE, key)?;
        Some(self.copy_item(found.location, |item| item.body().to_vec()))
    }

    pub fn put_catalogue(&mut self, key: &[u8], body: &[u8]) -> Result<(), NoRoom> {
        let mut tail = vec![0; (key.len() + body.len()).div_ceil(8)];
        let bytes = bytes_of_mut(&mut tail);
        bytes[..key.len()].copy_from_slice(key);
        bytes[key.len()..key.len() + body.len()].copy_from_slice(body);
        debug_assert_eq!(&bytes_of(&tail)[..key.len()], key);
        let header = ItemHeader {
            table: TableId::CATALOGUE,
            flags: ItemFlags::default(),
            key_bytes: key.len(),
            body_bytes: body.len(),
        };
        let hash = self.index.hash(TableId::CATALOGUE, key);
        let options = ItemOptions::default();
        let item = NewItem { header, options, tail: &tail, resolves_links: false, overlay: Overlay::No };
        self.put((hash, key), None, item).map(drop)
    }

    /// Nothing has the name any more that a dropped table had. Another table may have it, but not its
    /// attributes' names.
    pub fn forget_table_name(&mut self, table: TableId) -> Result<(), NoRoom> {
        self.put_catalogue(&catalogue::name_key(TableId::CATALOGUE, NameId(table.0)), b"")
    }

    /// Readers look again what is in force, and what can be read.
    pub fn note_generations(&mut self) {
        let generations = self.image.header().words().load(header_word::GENERATIONS) + 1;
        self.image.publish_header(header_word::GENERATIONS, generations);
    }
}

impl Datasets {
    /// Gives the name in the request's key an id, or tells the one it has. Only shard 0 keeps the catalogue.
    pub fn intern(&mut self, store: &mut Store, request: &Request<'_>) -> Result<Answer, NoRoom> {
        let (table, name) = (request.head.table, request.key);
        let known_table = table == TableId::CATALOGUE
            || store.catalogue_body(&catalogue::name_key(TableId::CATALOGUE, NameId(table.0))).is_some();
        if !store.partition.is_first()
            || !known_table
            || name.is_empty()
            || name.len() > NAME_BYTES_MAX
            || std::str::from_utf8(name).is_err()
        {
            return Ok(Answer::of(Status::Refused));
        }
        let id_key = catalogue::id_key(table, name);
        if let Some(body) = store.catalogue_body(&id_key) {
            // Behind the id of a loaded table stands its dataset.
            let status = if body.len() > 2 { Status::Taken } else { Status::Ok };
            let Some(id) = body.first_chunk() else { return Ok(Answer::of(Status::Refused)) };
            let id = u64::from(u16::from_le_bytes(*id));
            return Ok(Answer { status, version: id, location: 0 });
        }
        // The name is put before the id: whoever finds the id can always find the name.
        let id = if table == TableId::CATALOGUE {
            // Tables are counted by kind, which is a part of their number.
            let kind = TableKind::ALL.get(request.head.argument.unwrap_or(0) as usize);
            let Some(kind) = kind else { return Ok(Answer::of(Status::Refused)) };
            let Some(new) = self.numbers.give_named(store, *kind, name)? else {
                return Ok(Answer::of(Status::Refused));
            };
            let put = store.put_catalogue(&id_key, &new.0.to_le_bytes());
            if put.is_err() {
                self.numbers.take_back(new);
            }
            put.map(|()| new.0)?
        } else {
            let Some(id) = self.numbers.next_attribute(table) else {
                return Ok(Answer::of(Status::Refused));
            };
            store.put_catalogue(&catalogue::name_key(table, id), name)?;
            store.put_catalogue(&id_key, &id.0.to_le_bytes())?;
            self.numbers.note_given(table.0, TableKind::Hash, id.0);
            id.0
        };
        Ok(Answer { status: Status::Ok, version: u64::from(id), location: 0 })
    }

    /// Drops the table of the name in the request's key, for a connection. Its number rests: old handles of
    /// it lead nowhere.
    pub fn drop_table(
        &mut self,
        store: &mut Store,
        connection: u64,
        request: &Request<'_>,
    ) -> Result<Answer, NoRoom> {
        if !store.partition.is_first() || request.head.table != TableId::CATALOGUE {
            return Ok(Answer::of(Status::Refused));
        }
        let key = catalogue::id_key(TableId::CATALOGUE, request.key);
        let Some(body) = store.catalogue_body(&key) else { return Ok(Answer::of(Status::Absent)) };
        if body.len() > 2 {
            return Ok(Answer::of(Status::Loaded));
        }
        let Some(id) = body.first_chunk() else { return Ok(Answer::of(Status::Refused)) };
        let table = TableId(u16::from_le_bytes(*id));
        store.forget_table_name(table)?;
        store.remove_key(TableId::CATALOGUE, &key);
        // Whoever drops a table uses it no more.
        self.numbers.rest_dropped(table, Some(connection));
        self.drop_tables(store, vec![table]);
        Ok(Answer { version: u64::from(table.0), ..Answer::of(Status::Ok) })
    }

    /// Takes note of a name of the catalogue, so that its id is not given again.
    pub fn note_name(&mut self, store: &mut Store, key: &[u8]) {
        let (of, id) = match *key {
            [2, low, high] => (0, u16::from_le_bytes([low, high])),
            [4, table_low, table_high, low, high] => {
                (u16::from_le_bytes([table_low, table_high]), u16::from_le_bytes([low, high]))
            }
            _ => return,
        };
        let (kind, which) = match of {
            0 => (TableId(id).kind(), TableId(id).which()),
            _ => (TableKind::Hash, NameId(id).0),
        };
        self.numbers.note_given(of, kind, which);
        if of == 0 && store.catalogue_body(key).is_some_and(|name| name.is_empty()) {
            self.numbers.rest_of_the_past(TableId(id));
        }
    }
}
