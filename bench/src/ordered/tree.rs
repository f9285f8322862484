//! An ordered table under measurement: a server of its own, and readers that verify what they get.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use kelix::{Cost, FabricChoice, Path, Session, SessionOptions, Table, TableKind, Values};
use kelix_server::ServerConfig;
use serde_json::Value;

use super::keys::shuffle;
use crate::store::{Numbers, Store};

/// Memory for one key of a table with everything that belongs to it.
const KEY_BYTES: u64 = 288;
const MEMORY_BYTES_MIN: u64 = 256 << 20;
/// The order in which tables are loaded.
pub(crate) const LOAD_ORDER: u64 = 21;
/// Items of a batch while a table is loaded.
const LOAD: usize = 256;
/// Longest time until all models of a table are trained, and its leaves are laid out.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long nothing is seen to change then: longer than two reports of the shard are apart.
const AT_REST: Duration = Duration::from_millis(200);
/// How long, where leaves are laid out: longer than the shard pauses before it lays out those that were split meanwhile.
const LAID_OUT_AT_REST: Duration = Duration::from_millis(1500);
/// Tables with fewer leaves are not laid out.
const LAID_OUT_LEAVES: u64 = 1000;
/// The value of an item.
const ITEM_BYTES: usize = 32;
/// How often a value was put stands in its lowest bits.
const GENERATION: u64 = 0xff;

/// An error of somebody else's, as text.
pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The value of a number: 56 bits that follow from it, and 8 that say how often it was put.
pub(crate) fn value_of(number: u64, generation: u64) -> u64 {
    Numbers(number).next() & !GENERATION | generation & GENERATION
}

/// Checks the value that came for a number.
#[inline]
pub(crate) fn check(number: u64, value: Option<&[u8]>) -> Result<u64, String> {
    let value = value.and_then(|value| Some(u64::from_le_bytes(value.get(..8)?.try_into().ok()?)));
    match value {
        Some(value) if value & !GENERATION == value_of(number, 0) => Ok(value),
        _ => Err(wrong(number, value)),
    }
}

#[cold]
fn wrong(number: u64, value: Option<u64>) -> String {
    match value {
        Some(value) => format!("{number} has a value that was not put: {value:#x}"),
        None => format!("{number} was put, and is absent"),
    }
}

/// The key of a number.
#[inline]
pub(crate) fn key_of(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A server with one ordered table.
pub(crate) struct Tree {
    pub store: Store,
    pub table: Table,
    kind: TableKind,
}

impl Tree {
    /// Starts a server with room for so many keys.
    pub fn start(kind: TableKind, keys: u64) -> Result<Tree, String> {
        let config = ServerConfig {
            memory_bytes: (keys * KEY_BYTES).max(MEMORY_BYTES_MIN),
            listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
            ..ServerConfig::default()
        };
        // Where rows need several at once they have different numbers of keys.
        let mut store = Store::start(&format!("ordered-{keys}"), config)?;
        let table = store.session.create_table_of(kind, "ordered").map_err(text)?;
        Ok(Tree { store, table, kind })
    }

    /// Starts a server, and puts these numbers in an order that has nothing to do with theirs.
    pub fn of_numbers(kind: TableKind, numbers: &[u64]) -> Result<Tree, String> {
        let mut tree = Tree::start(kind, numbers.len() as u64)?;
        let mut numbers = numbers.to_vec();
        shuffle(&mut numbers, LOAD_ORDER);
        tree.put(&numbers)?;
        tree.settle()?;
        Ok(tree)
    }

    /// Puts these numbers, in this order.
    pub fn put(&mut self, numbers: &[u64]) -> Result<(), String> {
        for numbers in numbers.chunks(LOAD) {
            let items: Vec<([u8; 8], [u8; ITEM_BYTES])> = numbers
                .iter()
                .map(|number| {
                    let mut value = [0; ITEM_BYTES];
                    value[..8].copy_from_slice(&value_of(*number, 0).to_le_bytes());
                    (key_of(*number), value)
                })
                .collect();
            let bytes = if self.kind.has_items() { ITEM_BYTES } else { 8 };
            let items = items.iter().map(|(key, value)| (&key[..], &value[..bytes]));
            self.put_batch(&items.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Puts these strings, in an order that has nothing to do with theirs; each is its own value.
    pub fn put_strings(&mut self, strings: &[Vec<u8>]) -> Result<(), String> {
        let mut strings: Vec<&[u8]> = strings.iter().map(|key| &key[..]).collect();
        shuffle(&mut strings, LOAD_ORDER);
        for strings in strings.chunks(LOAD) {
            self.put_batch(&strings.iter().map(|key| (*key, *key)).collect::<Vec<_>>())?;
        }
        self.settle()
    }

    fn put_batch(&mut self, items: &[(&[u8], &[u8])]) -> Result<(), String> {
        let results = self.store.session.multi_put(self.table, items).map_err(text)?;
        results.into_iter().try_for_each(|result| result.map(drop).map_err(text))
    }

    /// Waits until the shard trains nothing any more, and lays no leaves out.
    pub fn settle(&mut self) -> Result<(), String> {
        let began = Instant::now();
        let mut before = None;
        loop {
            let now = self.statistics()?;
            let done = ["sub_models_trained", "top_models_made", "laid_out"].map(|what| now[what].clone());
            if before.as_ref() == Some(&done) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("models are still trained, or leaves laid out, after {PATIENCE:?}"));
            }
            before = Some(done);
            let is_laid_out = now["leaves"].as_u64().is_some_and(|leaves| leaves >= LAID_OUT_LEAVES);
            std::thread::sleep(if is_laid_out { LAID_OUT_AT_REST } else { AT_REST });
        }
    }

    /// What the server tells of the table.
    pub fn statistics(&self) -> Result<Value, String> {
        let shard = self.store.shard()?;
        let tables = shard["ordered"].as_array().filter(|tables| tables.len() == 1);
        Ok(tables.ok_or("statistics tell of no ordered table, or of several")?[0].clone())
    }

    /// Bytes of models that all clients have copied, as they told the server.
    pub fn copied_bytes(&self) -> Result<u64, String> {
        let told = self.store.statistics()?;
        let clients = told["clients"].as_array().ok_or("statistics tell of no clients")?;
        Ok(clients.iter().filter_map(|client| client["model_bytes"].as_u64()).sum())
    }

    /// A reader of it.
    pub fn reader(&self, fabric: FabricChoice, path: Path) -> Result<Reader, String> {
        self.reader_with(SessionOptions::default().fabric(fabric).path(path))
    }

    /// A reader of it by a session of these options.
    pub fn reader_with(&self, options: SessionOptions) -> Result<Reader, String> {
        let mut session = self.store.client.session_with(options).map_err(text)?;
        let table = session.table("ordered").map_err(text)?;
        Ok(Reader { session, table, values: Values::new() })
    }

    /// A reader in shared memory.
    pub fn here(&self, path: Path) -> Result<Reader, String> {
        self.reader(FabricChoice::Shm, path)
    }
}

/// A session that verifies what it gets.
pub(crate) struct Reader {
    pub session: Session,
    pub table: Table,
    values: Values,
}

impl Reader {
    /// Gets the value of a number.
    #[inline]
    pub fn get(&mut self, number: u64) -> Result<u64, String> {
        let mut value = [0; ITEM_BYTES];
        let found = self.session.get_into(self.table, &key_of(number), &mut value).map_err(text)?;
        check(number, found.map(|(bytes, _)| &value[..bytes]))
    }

    /// Gets a string, which is its own value.
    pub fn get_string(&mut self, key: &[u8]) -> Result<(), String> {
        let mut value = [0; 256];
        let found = self.session.get_into(self.table, key, &mut value).map_err(text)?;
        let same = found.is_some_and(|(bytes, _)| &value[..bytes] == key);
        let said = || format!("{} has a value that was not put", String::from_utf8_lossy(key));
        if same { Ok(()) } else { Err(said()) }
    }

    /// Gets the values of numbers, whose keys these are.
    pub fn get_many(&mut self, numbers: &[u64], keys: &[&[u8]]) -> Result<u64, String> {
        self.session.multi_get_into(self.table, keys, &mut self.values).map_err(text)?;
        self.check_values(numbers)
    }

    /// The same, while it puts numbers with values of this generation.
    pub fn get_and_put(
        &mut self,
        numbers: &[u64],
        keys: &[&[u8]],
        puts: impl Iterator<Item = u64>,
        generation: u64,
    ) -> Result<u64, String> {
        let item = |number| (key_of(number), value_of(number, generation).to_le_bytes());
        let items: Vec<_> = puts.map(item).collect();
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let results = self.session.multi_get_put(self.table, keys, &mut self.values, &items);
        results.map_err(text)?.into_iter().try_for_each(|result| result.map(drop).map_err(text))?;
        Ok(self.check_values(numbers)? + items.len() as u64)
    }

    fn check_values(&self, numbers: &[u64]) -> Result<u64, String> {
        for (index, number) in numbers.iter().enumerate() {
            check(*number, self.values.get(index))?;
        }
        Ok(numbers.len() as u64)
    }

    /// What an operation costs.
    pub fn cost_of<T>(
        &mut self,
        operation: impl FnOnce(&mut Reader) -> Result<T, String>,
    ) -> Result<(T, Cost), String> {
        let before = self.session.cost();
        let done = operation(self)?;
        Ok((done, self.session.cost().since(before)))
    }
}

/// Numbers to ask for, with their keys.
pub(crate) struct Asked {
    pub numbers: Vec<u64>,
    bytes: Vec<[u8; 8]>,
}

impl Asked {
    /// Numbers drawn from these, all alike.
    pub fn draw(numbers: &[u64], seed: u64, count: usize) -> Asked {
        let drawn = Numbers(seed).records(numbers.len() as u64, count);
        Asked::of(drawn.into_iter().map(|index| numbers[index as usize]).collect())
    }

    pub fn of(numbers: Vec<u64>) -> Asked {
        let bytes = numbers.iter().map(|number| key_of(*number)).collect();
        Asked { numbers, bytes }
    }

    /// Their keys as sessions take them.
    pub fn keys(&self) -> Vec<&[u8]> {
        self.bytes.iter().map(|key| &key[..]).collect()
    }
}
