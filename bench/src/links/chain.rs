//! A store whose records are a chain of links, and who goes along it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelix::{Cost, FabricChoice, Item, NewItem, Path, Session, SessionOptions, Table, measure};
use kelix_image::MemoryMap;
use kelix_server::ServerConfig;

use crate::store::{Store, verify};
use crate::workload::{Records, key};

/// Name of the link to the next record.
const NEXT: &str = "next";
/// How long it may take until all links are good: the shard that repairs them may have to wait for a core.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A store with the chain in it.
pub(super) struct Chain {
    store: Store,
    records: Records,
}

impl Chain {
    /// Starts a server.
    pub fn start(records: Records) -> Result<Chain, String> {
        let item = records.value_bytes as u64 + 256;
        let config = ServerConfig {
            memory_bytes: (records.count * item * 3 / 2).max(256 << 20),
            listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
            ..ServerConfig::default()
        };
        Ok(Chain { store: Store::start("links", config)?, records })
    }

    /// Puts all records, and makes all links good. They are put in the order of their numbers, which is not
    /// the chain's, so that neighbours in the chain are none in memory.
    pub fn load(&mut self) -> Result<(), String> {
        let Chain { store, records } = self;
        let mut value = Vec::new();
        for record in 0..records.count {
            value.clear();
            records.write_value(record, &mut value);
            let mut item = NewItem::new();
            item = item.bytes("", &value).link(NEXT, store.table, &key(verify(&value, record)));
            store.session.put_item(store.table, &key(record), &item).map_err(text)?;
        }
        self.walker(FabricChoice::Shm, Way::Follow)?.walk_until_links_are_good()
    }

    /// The session and table that it was loaded with.
    pub fn session(&mut self) -> (&mut Session, Table) {
        (&mut self.store.session, self.store.table)
    }

    /// Another session.
    pub fn session_over(&self, fabric: FabricChoice, path: Path) -> Result<Session, String> {
        let options = SessionOptions::default().fabric(fabric).path(path);
        self.store.client.session_with(options).map_err(text)
    }

    /// Somebody at the first record.
    pub fn walker(&self, fabric: FabricChoice, way: Way) -> Result<Walker, String> {
        let path = match way {
            Way::Follow => Path::Auto,
            Way::LookUp(path) => path,
        };
        let mut session = self.session_over(fabric, path)?;
        let table = session.table("records").map_err(text)?;
        let item = session.get(table, &key(0)).map_err(text)?.ok_or("no first record")?;
        Ok(Walker { session, table, way, records: self.records, item, record: 0 })
    }
}

/// How to come from an item to the next.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// By its link.
    Follow,
    /// By the next one's key.
    LookUp(Path),
}

/// A session and the item that it is at.
pub(super) struct Walker {
    session: Session,
    table: Table,
    way: Way,
    records: Records,
    item: Item,
    record: u64,
}

impl Walker {
    /// Goes to the next item, which must be the one that this one's value names.
    pub fn step(&mut self) -> Result<(), String> {
        let next = verify(self.item.value(), self.record);
        let found = match self.way {
            Way::Follow => self.session.follow_into(&mut self.item, NEXT).map_err(text)?,
            Way::LookUp(_) => match self.session.get(self.table, &key(next)).map_err(text)? {
                Some(item) => {
                    self.item = item;
                    true
                }
                None => false,
            },
        };
        if !found {
            return Err(format!("no record {next}"));
        }
        self.record = next;
        let bytes = self.item.value().len();
        if bytes == self.records.value_bytes {
            Ok(())
        } else {
            Err(format!("{bytes} bytes of record {next}"))
        }
    }

    /// Walks through all records again and again, until no link is found to be stale. Those to records that
    /// were put later are: who follows one tells the shard where its target stands. READs that were too slow
    /// because others had the core are read again and say nothing of the link.
    fn walk_until_links_are_good(&mut self) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            // Its answer comes behind all that was told before. While the ring is full nothing is told of
            // links, however they are.
            self.session.delete(self.table, b"no record").map_err(text)?;
            let before = self.cost();
            (0..self.records.count).try_for_each(|_| self.step())?;
            if self.cost().since(before).messages == 0 {
                return Ok(());
            }
        }
        Err("links that were followed again and again are not good".into())
    }

    /// The memory of the shard, the item that it is at as it stands there, and which record that is.
    pub fn where_it_stands(&mut self) -> (Arc<MemoryMap>, Vec<u64>, u64) {
        let (map, ..) = measure::image(&mut self.session, 0);
        (map, measure::item_words(&self.item).to_vec(), self.record)
    }

    /// What it has cost so far.
    pub fn cost(&self) -> Cost {
        self.session.cost()
    }
}
