//! Giving names of tables and attributes their ids.

use kelix_fabric::PeerId;
use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_image::{ItemFlags, ItemHeader, ItemOptions, NoRoom};
use kelix_types::limits::{NAME_BYTES_MAX, NAMES_MAX};
use kelix_types::{NameId, TableId, TableKind};
use kelix_wire::{Request, Status, catalogue};

use crate::execute::{Answer, NewItem};
use crate::generations::Order;
use crate::overlay::Overlay;
use crate::shard::Shard;

impl Shard {
    /// Gives the name in the request's key an id, or tells the one it has. Only shard 0 keeps the catalogue.
    pub(crate) fn intern(&mut self, request: &Request<'_>) -> Result<Answer, NoRoom> {
        let (table, name) = (request.head.table, request.key);
        let known_table = table == TableId::CATALOGUE
            || self.catalogue_body(&catalogue::name_key(TableId::CATALOGUE, NameId(table.0))).is_some();
        if self.number != 0
            || !known_table
            || name.is_empty()
            || name.len() > NAME_BYTES_MAX
            || std::str::from_utf8(name).is_err()
        {
            return Ok(Answer::of(Status::Refused));
        }
        let id_key = catalogue::id_key(table, name);
        if let Some(body) = self.catalogue_body(&id_key) {
            // Behind the id of a loaded table stands its dataset.
            let status = if body.len() > 2 { Status::Taken } else { Status::Ok };
            let Some(id) = body.first_chunk() else { return Ok(Answer::of(Status::Refused)) };
            let id = u64::from(u16::from_le_bytes(*id));
            return Ok(Answer { status, version: id, location: 0 });
        }
        // Tables are counted by kind, which is a part of their number.
        let kind = if table == TableId::CATALOGUE { request.head.argument.unwrap_or(0) } else { 0 };
        let Some(kind) = TableKind::ALL.get(kind as usize) else { return Ok(Answer::of(Status::Refused)) };
        let id = match table {
            TableId::CATALOGUE => match self.give_table_id(*kind, name)? {
                Some(table) => NameId(table.0),
                None => return Ok(Answer::of(Status::Refused)),
            },
            _ => {
                let given = self.names.get(&(table.0, *kind)).copied().unwrap_or(0);
                if usize::from(given) == NAMES_MAX {
                    return Ok(Answer::of(Status::Refused));
                }
                let id = NameId(given + 1);
                self.put_catalogue(&catalogue::name_key(table, id), name)?;
                id
            }
        };
        // The name is there already: whoever finds the id can always find the name.
        let put = self.put_catalogue(&id_key, &id.0.to_le_bytes());
        match table {
            TableId::CATALOGUE if put.is_err() => self.take_number_back(TableId(id.0)),
            TableId::CATALOGUE => {}
            _ if put.is_ok() => drop(self.names.insert((table.0, *kind), id.0)),
            _ => {}
        }
        put?;
        Ok(Answer { status: Status::Ok, version: u64::from(id.0), location: 0 })
    }

    /// A number for a table of this kind and name. `Ok(None)`: there are none left.
    pub(crate) fn give_table_id(&mut self, kind: TableKind, name: &[u8]) -> Result<Option<TableId>, NoRoom> {
        let Some(table) = self.give_number(kind) else { return Ok(None) };
        let put = self.put_catalogue(&catalogue::name_key(TableId::CATALOGUE, NameId(table.0)), name);
        if put.is_err() {
            self.take_number_back(table);
        }
        put.map(|()| Some(table))
    }

    /// Drops the table of the name in the request's key. Its number rests: old handles of it lead nowhere.
    pub(crate) fn drop_table(&mut self, peer: PeerId, request: &Request<'_>) -> Result<Answer, NoRoom> {
        if self.number != 0 || request.head.table != TableId::CATALOGUE {
            return Ok(Answer::of(Status::Refused));
        }
        let key = catalogue::id_key(TableId::CATALOGUE, request.key);
        let Some(body) = self.catalogue_body(&key) else { return Ok(Answer::of(Status::Absent)) };
        if body.len() > 2 {
            return Ok(Answer::of(Status::Loaded));
        }
        let Some(id) = body.first_chunk() else { return Ok(Answer::of(Status::Refused)) };
        let table = TableId(u16::from_le_bytes(*id));
        // Another table may have its name, but not its attributes' names.
        self.put_catalogue(&catalogue::name_key(TableId::CATALOGUE, NameId(table.0)), b"")?;
        self.remove_key(TableId::CATALOGUE, &key);
        // Whoever drops a table uses it no more.
        self.rest_number(table, Some(self.connection(peer)));
        self.drop_tables(vec![table]);
        Ok(Answer { version: u64::from(table.0), ..Answer::of(Status::Ok) })
    }

    /// Drops what is in tables that are of no generation, on all shards.
    pub(crate) fn drop_tables(&mut self, tables: Vec<TableId>) {
        if self.view.shards() > 1 {
            let order = Order::Drop { generation: 0, tables: tables.clone(), given_up: false };
            self.generations.orders.push(order);
        }
        self.begin_leaving(0, tables, false);
    }

    /// The body of a catalogue item.
    pub(crate) fn catalogue_body(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let hash = self.index.hash(TableId::CATALOGUE, key);
        let found = self.index.find(&self.image, hash, TableId::CATALOGUE, key)?;
        Some(self.copy_item(found.location, |item| item.body().to_vec()))
    }

    pub(crate) fn put_catalogue(&mut self, key: &[u8], body: &[u8]) -> Result<(), NoRoom> {
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
}
