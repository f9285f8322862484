//! Ways to items of hash tables: 16-byte keys and 32-byte values, as in HydraDB's section 6.

use std::net::Ipv4Addr;

use kelix::{NewItem, Path, Values};
use kelix_server::ServerConfig;

use super::model::Work;
use super::paths::{BATCH, BUSY_BATCH, Tapped, Timed, Way, text, with_times};
use super::processor::{Times, on_one_core};
use crate::store::{Numbers, Store, key_of, memory_for, verify};

/// Operations that are counted.
const COUNTED: usize = 20 * BATCH;
/// Operations of a round in which processor times are taken.
const TIMED: usize = 20 * BUSY_BATCH;
/// Records that operations are about while they are timed, so that their memory is at hand.
const HOT: u64 = 1000;
/// Links that are followed one after the other.
const CHASE: f64 = 8.0;
/// Machines with clients, whose clients share pointers, as in HydraDB's section 6.
const MACHINES: u64 = 5;

/// The ways, and the mixes of HydraDB's gets: by Zipf and uniform.
pub(super) struct Hash {
    pub ways: Vec<Way>,
    pub zipf: Mix,
    pub uniform: Mix,
}

/// Gets of which a share finds its item by a cached pointer, and all others ask the shard, which is what
/// HydraDB does.
pub(super) struct Mix {
    pub hits: f64,
    pub work: Work,
}

/// Starts a store and measures.
pub(super) fn measure(records: u64) -> Result<Hash, String> {
    let config = ServerConfig {
        memory_bytes: memory_for(2 * records),
        listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
        ..ServerConfig::default()
    };
    let mut store = on_one_core(|| {
        let mut store = Store::start("projection", config)?;
        store.load(records)?;
        Ok(store)
    })?;
    let asked = Asked::of(&store, COUNTED);
    let mut ways = gets(&store, &asked)?;
    ways.extend(puts(&store, &asked)?);
    ways.extend(links(&mut store, records)?);
    let work_of = |id| ways.iter().find(|way| way.id == id).expect("measured").work;
    let mix = |zipf| {
        let hits = hits(&store, zipf)?;
        let work = work_of("get_pointer").mixed(hits, work_of("get_message"));
        Ok::<_, String>(Mix { hits, work })
    };
    let (zipf, uniform) = (mix(true)?, mix(false)?);
    Ok(Hash { ways, zipf, uniform })
}

/// Gets, one by one and many at once.
fn gets(store: &Store, asked: &Asked) -> Result<Vec<Way>, String> {
    let mut ways = Vec::new();
    for (id, name, path) in [
        ("get_pointer", "get by a cached pointer", Path::Pointer),
        ("get_index", "get by the index", Path::Index),
        ("get_message", "get by message", Path::Message),
    ] {
        let work = Tapped::open(store, "records", path)?.count(|tapped| asked.get_each(tapped))?;
        let times = if path == Path::Message { asking(store)? } else { looking(store, path)? };
        ways.push(Way::one(id, name, with_times(work, &times)));
    }
    for (id, name, path) in [
        ("get_pointer_64", "get by a cached pointer, 64 at once", Path::Pointer),
        ("get_message_64", "get by message, 64 at once", Path::Message),
    ] {
        let work = Tapped::open(store, "records", path)?.count(|tapped| asked.get_many(tapped))?;
        let same = ways.iter().find(|way| id.starts_with(way.id)).expect("one by one before").work;
        let times = Times { shard_ns: same.server_ns, client_ns: same.client_ns };
        ways.push(Way { id, name, batch: BATCH, work: with_times(work, &times) });
    }
    Ok(ways)
}

/// What is asked for.
struct Asked {
    records: Vec<u64>,
    keys: Vec<[u8; 16]>,
    values: Vec<[u8; 32]>,
}

impl Asked {
    fn of(store: &Store, count: usize) -> Asked {
        let records = Numbers(81).records(store.records, count);
        let keys = records.iter().map(|record| key_of(*record)).collect();
        let values = records.iter().map(|record| store.walk.value_of(*record)).collect();
        Asked { records, keys, values }
    }

    fn get_each(&self, Tapped { session, table, .. }: &mut Tapped) -> Result<usize, String> {
        let mut value = [0; 32];
        for (record, key) in self.records.iter().zip(&self.keys) {
            session.get_into(*table, key, &mut value).map_err(text)?.ok_or("a record is absent")?;
            verify(&value, *record);
        }
        Ok(self.keys.len())
    }

    fn get_many(&self, Tapped { session, table, .. }: &mut Tapped) -> Result<usize, String> {
        let mut values = Values::new();
        for (records, keys) in self.records.chunks(BATCH).zip(self.keys.chunks(BATCH)) {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            session.multi_get_into(*table, &keys, &mut values).map_err(text)?;
            for (index, record) in records.iter().enumerate() {
                verify(values.get(index).ok_or("a record is absent")?, *record);
            }
        }
        Ok(self.keys.len())
    }

    fn put_each(&self, Tapped { session, table, .. }: &mut Tapped) -> Result<usize, String> {
        for (key, value) in self.keys.iter().zip(&self.values) {
            session.put(*table, key, value).map_err(text)?;
        }
        Ok(self.keys.len())
    }

    fn items(&self) -> Vec<(&[u8], &[u8])> {
        self.keys.iter().zip(&self.values).map(|(key, value)| (&key[..], &value[..])).collect()
    }

    fn put_many(&self, Tapped { session, table, .. }: &mut Tapped) -> Result<usize, String> {
        for items in self.items().chunks(BATCH) {
            let results = session.multi_put(*table, items).map_err(text)?;
            results.into_iter().try_for_each(|result| result.map(drop).map_err(text))?;
        }
        Ok(self.keys.len())
    }
}

/// Times of a get without a message.
fn looking(store: &Store, path: Path) -> Result<Times, String> {
    let mut timed = Timed::open(store, "records", path)?;
    timed.time(|Timed { session, table, .. }| {
        let mut value = [0; 32];
        for record in (0..store.records.min(HOT)).cycle().take(TIMED) {
            session
                .get_into(*table, &key_of(record), &mut value)
                .map_err(text)?
                .ok_or("a record is absent")?;
            verify(&value, record);
        }
        Ok(TIMED as u64)
    })
}

/// Times of a get by message.
fn asking(store: &Store) -> Result<Times, String> {
    let keys: Vec<[u8; 16]> = (0..store.records).cycle().take(TIMED).map(key_of).collect();
    Timed::open(store, "records", Path::Message)?.time(|timed| timed.get_in_batches(&keys))
}

fn puts(store: &Store, asked: &Asked) -> Result<[Way; 2], String> {
    let more = Asked::of(store, TIMED);
    let items = more.items();
    let mut timed = Timed::open(store, "records", Path::Auto)?;
    let times = timed.time(|Timed { session, table, .. }| {
        for items in items.chunks(BUSY_BATCH) {
            let results = session.multi_put(*table, items).map_err(text)?;
            results.into_iter().try_for_each(|result| result.map(drop).map_err(text))?;
        }
        Ok(items.len() as u64)
    })?;
    let mut tapped = Tapped::open(store, "records", Path::Auto)?;
    let one = tapped.count(|tapped| asked.put_each(tapped))?;
    let many = tapped.count(|tapped| asked.put_many(tapped))?;
    Ok([
        Way::one("put", "put", with_times(one, &times)),
        Way { id: "put_64", name: "put, 64 at once", batch: BATCH, work: with_times(many, &times) },
    ])
}

/// Following links, each to an item that was put before.
fn links(store: &mut Store, records: u64) -> Result<[Way; 2], String> {
    let table = store.session.create_table("linked").map_err(text)?;
    let count = records.min(COUNTED as u64 + 1);
    for record in 0..count {
        let mut item = NewItem::new();
        item = item.bytes("", &store.walk.value_of(record));
        if record > 0 {
            item = item.link("before", table, &key_of(record - 1));
        }
        store.session.put_item(table, &key_of(record), &item).map_err(text)?;
    }
    let steps = count as usize - 1;
    let mut tapped = Tapped::open(store, "linked", Path::Auto)?;
    let mut item = tapped.session.get(tapped.table, &key_of(count - 1)).map_err(text)?.ok_or("no item")?;
    let last = item.clone();
    let one = tapped.count(|Tapped { session, .. }| {
        item.clone_from(&last);
        for left in (0..count - 1).rev() {
            if !session.follow_into(&mut item, "before").map_err(text)? {
                return Err(format!("no item {left}"));
            }
            verify(item.value(), left);
        }
        Ok(steps)
    })?;
    let mut timed = Timed::open(store, "linked", Path::Auto)?;
    let times = timed.time(|Timed { session, .. }| {
        let mut done = 0;
        while done < TIMED {
            item.clone_from(&last);
            for _ in 0..steps.min(HOT as usize) {
                session.follow_into(&mut item, "before").map_err(text)?;
            }
            done += steps.min(HOT as usize);
        }
        Ok(done as u64)
    })?;
    let one = with_times(one, &times);
    Ok([
        Way::one("follow", "follow a link", one),
        Way::one("chase_8", "follow 8 links, one after the other", one.times(CHASE)),
    ])
}

/// The share of gets that find their item by a cached pointer, of as many gets as there are records, which
/// machines share evenly. Each begins without a pointer.
fn hits(store: &Store, zipf: bool) -> Result<f64, String> {
    let each = (store.records / MACHINES) as usize;
    let mut hits = 0;
    for machine in 0..MACHINES {
        let mut numbers = Numbers(90 + machine);
        let drawn =
            if zipf { numbers.popular(store.records, each) } else { numbers.records(store.records, each) };
        let Timed { mut session, table, .. } = Timed::open(store, "records", Path::Pointer)?;
        let mut value = [0; 32];
        for record in drawn {
            let before = session.cost();
            session
                .get_into(table, &key_of(record), &mut value)
                .map_err(text)?
                .ok_or("a record is absent")?;
            verify(&value, record);
            let cost = session.cost().since(before);
            // Without a pointer it takes a bucket and an item at the least.
            hits += u64::from(cost.reads == 1 && cost.retries == 0 && cost.messages == 0);
        }
    }
    Ok(hits as f64 / (each as u64 * MACHINES) as f64)
}
