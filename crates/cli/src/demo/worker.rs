//! The demo's other processes: readers that look places up, and a writer that changes them meanwhile.
//!
//! Each connects by itself, reads the file of places by itself, so that it can check what the store answers,
//! and then does what its standard input says, one line at a time:
//!
//! ```text
//! warm WORK   get ready for it                   -> ready
//! run MS      do it for so many milliseconds     -> a tally
//! ```
//!
//! It ends when its standard input does, so it never outlives the demo.

use std::io::{BufRead, Write};
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use kelix::{Attribute, Client, CompareAndSet, Item, Link, NewItem, Path, Session, Values};

use super::load::Tables;
use super::tally::Tally;
use super::walk::{check_place, wrong};
use super::world::{World, place_key};
use crate::Failure;

/// What a process of the demo can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// Get places by key, through the index.
    Index,
    /// Get places by key, by cached pointers.
    Pointer,
    /// Follow links from places to regions to countries.
    Link,
    /// Get places by key, [`BATCH`] in one call.
    Batch,
    /// Get places by key, by asking the server.
    Message,
    /// Change places.
    Write,
}

impl Work {
    const ALL: [Work; 6] = [Work::Index, Work::Pointer, Work::Link, Work::Batch, Work::Message, Work::Write];

    pub fn name(self) -> &'static str {
        match self {
            Work::Index => "index",
            Work::Pointer => "pointer",
            Work::Link => "link",
            Work::Batch => "batch",
            Work::Message => "message",
            Work::Write => "write",
        }
    }

    fn named(name: &str) -> Option<Work> {
        Work::ALL.into_iter().find(|work| work.name() == name)
    }

    /// How the session looks for items.
    fn path(self) -> Path {
        match self {
            Work::Pointer => Path::Pointer,
            Work::Message => Path::Message,
            _ => Path::Index,
        }
    }
}

/// Items of one batch, and of one round of any reader.
pub(super) const BATCH: usize = 64;
/// One operation in so many is timed by itself, because looking at the clock takes about as long as a read.
/// Odd, so that both links of a chain get their turn.
pub(super) const SAMPLE_EVERY: usize = 15;
/// The writer changes this many places at once ...
const BURST: usize = 10;
/// ... and the next ones this much later.
const BURST_EVERY: Duration = Duration::from_millis(10);
/// What the writer thereby aims at.
pub(super) const CHANGES_PER_S: u64 = BURST as u64 * 1_000 / BURST_EVERY.as_millis() as u64;
/// How long a reader does its work before it counts.
const WARM: Duration = Duration::from_millis(20);

/// Does what the lines of standard input say.
pub(super) fn run(directory: &FilePath, file: &FilePath, seed: u64) -> Result<(), Failure> {
    let world = World::read(file)?;
    let mut session = Client::connect(directory)?.session()?;
    let tables = Tables::open(&mut session)?;
    let regional = (0..world.places.len()).filter(|place| world.places[*place].region.is_some());
    let regional = regional.collect();
    let random = Random(seed);
    let mut worker = Worker { world, regional, session, tables, random, tally: Tally::default(), turn: 0 };
    let mut work = Work::Index;
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let order = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match (order, Work::named(order.1), order.1.parse()) {
            (("warm", _), Some(next), _) => {
                work = next;
                worker.warm(work)?;
                "ready".to_string()
            }
            (("run", _), _, Ok(milliseconds)) => {
                worker.run(work, Duration::from_millis(milliseconds))?.json().to_string()
            }
            _ => return Err(Failure::usage("demo", format!("no order to a process of the demo: {line}"))),
        };
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

/// A small generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D);
        (((number >> 32) * limit as u64) >> 32) as usize
    }
}

struct Worker {
    world: World,
    /// The places that have a region.
    regional: Vec<usize>,
    session: Session,
    tables: Tables,
    random: Random,
    tally: Tally,
    /// Operations since the last one that was timed by itself.
    turn: usize,
}

impl Worker {
    fn warm(&mut self, work: Work) -> Result<(), Failure> {
        self.session.set_path(work.path());
        if work == Work::Pointer {
            self.remember_all()?;
        }
        if work != Work::Write {
            self.run(work, WARM)?;
        }
        Ok(())
    }

    /// Gets every place once, so that pointers to all are cached.
    fn remember_all(&mut self) -> Result<(), Failure> {
        let mut values = Values::new();
        let keys: Vec<String> = (0..self.world.places.len()).map(place_key).collect();
        for keys in keys.chunks(BATCH) {
            let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
            self.session.multi_get_into(self.tables.places, &keys, &mut values)?;
        }
        Ok(())
    }

    fn run(&mut self, work: Work, time: Duration) -> Result<Tally, Failure> {
        self.tally = Tally::default();
        let mut busy = Duration::ZERO;
        let mut due = Instant::now();
        let end = due + time;
        while Instant::now() < end {
            busy += match work {
                Work::Index | Work::Pointer | Work::Message => self.get_round()?,
                Work::Link => self.link_round()?,
                Work::Batch => self.batch_round()?,
                Work::Write => self.write_round(&mut due, end)?,
            };
        }
        self.tally.items_per_s = self.tally.items as f64 / busy.as_secs_f64();
        Ok(std::mem::take(&mut self.tally))
    }

    /// Chooses the places of a round. This and all else but the reading itself counts neither as time nor as
    /// cost.
    fn choose(&mut self) -> [usize; BATCH] {
        std::array::from_fn(|_| self.regional[self.random.below(self.regional.len())])
    }

    /// Does something with the session, and times it by itself if it is its turn.
    #[inline]
    fn sampled<T>(&mut self, read: impl FnOnce(&mut Session) -> kelix::Result<T>) -> kelix::Result<T> {
        self.turn += 1;
        if self.turn < SAMPLE_EVERY {
            return read(&mut self.session);
        }
        self.turn = 0;
        let began = Instant::now();
        let result = read(&mut self.session);
        self.tally.latencies.record(began.elapsed());
        result
    }

    /// Runs `read` and counts its cost and its items. Returns the items, for them to be checked, and the time
    /// it took.
    fn round<T>(
        &mut self,
        items: usize,
        read: impl FnOnce(&mut Worker) -> Result<T, Failure>,
    ) -> Result<(T, Duration), Failure> {
        let before = self.session.cost();
        let began = Instant::now();
        let result = read(self)?;
        let time = began.elapsed();
        self.tally.cost.add(self.session.cost().since(before));
        self.tally.items += items as u64;
        Ok((result, time))
    }

    fn get_round(&mut self) -> Result<Duration, Failure> {
        let chosen = self.choose();
        let keys = chosen.map(place_key);
        let table = self.tables.places;
        let (items, time) = self.round(BATCH, |worker| {
            let mut items = Vec::with_capacity(BATCH);
            for key in &keys {
                items.push(worker.sampled(|session| session.get(table, key.as_bytes()))?);
            }
            Ok(items)
        })?;
        self.check_places(&chosen, items)?;
        Ok(time)
    }

    fn batch_round(&mut self) -> Result<Duration, Failure> {
        let chosen = self.choose();
        let keys = chosen.map(place_key);
        let keys: [&[u8]; BATCH] = std::array::from_fn(|index| keys[index].as_bytes());
        let table = self.tables.places;
        let (items, time) = self.round(BATCH, |worker| Ok(worker.session.multi_get(table, &keys)?))?;
        // A call that takes this long can be timed every time.
        self.tally.latencies.record(time);
        self.check_places(&chosen, items)?;
        Ok(time)
    }

    fn link_round(&mut self) -> Result<Duration, Failure> {
        let chosen = self.choose();
        let keys = chosen.map(place_key);
        let keys: [&[u8]; BATCH] = std::array::from_fn(|index| keys[index].as_bytes());
        let places = self.session.multi_get(self.tables.places, &keys)?;
        let places = self.check_places(&chosen, places)?;
        let (chains, time) = self.round(2 * BATCH, |worker| {
            let mut chains = Vec::with_capacity(BATCH);
            for place in &places {
                let region = worker.sampled(|session| session.follow(place, "region"))?;
                let region = there(region, "the region of a place")?;
                let country = worker.sampled(|session| session.follow(&region, "country"))?;
                chains.push((region, there(country, "the country of a region")?));
            }
            Ok(chains)
        })?;
        for (place, (region, country)) in chosen.into_iter().zip(chains) {
            self.check_country(place, &region, &country)?;
        }
        Ok(time)
    }

    fn check_places(&self, chosen: &[usize], items: Vec<Option<Item>>) -> Result<Vec<Item>, Failure> {
        let mut checked = Vec::with_capacity(items.len());
        for (place, item) in chosen.iter().zip(items) {
            let item = there(item, &place_key(*place))?;
            check_place(&self.world, *place, &item)?;
            checked.push(item);
        }
        Ok(checked)
    }

    fn check_country(&self, place: usize, region: &Item, country: &Item) -> Result<(), Failure> {
        let expected = &self.world.places[place];
        let key = expected.region.map(|region| self.world.regions[region].key.as_bytes());
        if key == Some(region.key()) && country.key() == self.world.countries[expected.country].as_bytes() {
            return Ok(());
        }
        let found = [region, country].map(|item| String::from_utf8_lossy(item.key()).into_owned());
        Err(wrong(format!("place {} is in {}", place_key(place), found.join(" in "))))
    }

    /// Changes a few places and waits until the next ones are due. What busy readers have delayed is made up
    /// for.
    fn write_round(&mut self, due: &mut Instant, end: Instant) -> Result<Duration, Failure> {
        for _ in 0..BURST {
            let place = self.random.below(self.world.places.len());
            self.count_up(place)?;
            self.tally.items += 1;
        }
        *due += BURST_EVERY;
        std::thread::sleep((*due).min(end).saturating_duration_since(Instant::now()));
        Ok(BURST_EVERY)
    }

    /// Counts the number `seen` of a place up: reads the item and puts a new one in its stead, if it is still
    /// the same.
    fn count_up(&mut self, place: usize) -> Result<(), Failure> {
        let key = place_key(place);
        let item = there(self.session.get(self.tables.places, key.as_bytes())?, &key)?;
        check_place(&self.world, place, &item)?;
        let seen = seen(&item).ok_or_else(|| wrong(format!("place {key} has no number of changes")))?;
        let mut new = NewItem::new();
        for (name, attribute) in item.attributes() {
            new = match attribute {
                Attribute::Bytes(_) if name == "seen" => new.bytes(name, (seen + 1).to_string().as_bytes()),
                Attribute::Bytes(bytes) => new.bytes(name, bytes),
                Attribute::Link(Link { table, key, bytes }) => {
                    new.link_with(name, self.session.table_by_id(table), key, bytes)
                }
            };
        }
        let version = Some(item.version());
        match self.session.compare_and_set_item(self.tables.places, key.as_bytes(), version, &new)? {
            CompareAndSet::Done(_) => Ok(()),
            CompareAndSet::Mismatch(_) => {
                Err(wrong(format!("somebody else than the only writer has changed place {key}")))
            }
        }
    }
}

/// How often the writer has changed a place.
pub(super) fn seen(item: &Item) -> Option<u64> {
    std::str::from_utf8(item.bytes("seen")?).ok()?.parse().ok()
}

fn there(item: Option<Item>, key: &str) -> Result<Item, Failure> {
    item.ok_or_else(|| wrong(format!("{key} is missing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_its_name() {
        for work in Work::ALL {
            assert_eq!(Work::named(work.name()), Some(work));
        }
        assert_eq!(Work::named("rest"), None);
    }

    #[test]
    fn random_places_reach_the_first_and_the_last() {
        let mut random = Random(7);
        let mut met = [false; 10];
        for _ in 0..1000 {
            met[random.below(10)] = true;
        }
        assert_eq!(met, [true; 10]);
    }
}
