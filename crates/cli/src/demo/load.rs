//! Putting the world into the store.
//!
//! ```text
//! country <---country--- region <---region--- district <---district--- place ---region---> region
//!    |                      |                     |
//!  regions           districts, places          places          (a place without a region has a link `country`)
//!    v                      v                     v
//!  list ---next---> list ---next---> ...          each with up to 100 links `item` to what is contained
//! ```
//!
//! The shard looks up where a link's target stands when it writes the link, if the target exists by then. So
//! items are put from the countries down, which settles all links upwards, and then the lists, each from its
//! end. Whatever link is not settled by then, such as that from an item to its first list, is so once
//! somebody has followed it, because a reader that finds a target elsewhere tells the shard; the walk does
//! that.
//!
//! Puts are under way in dozens at once: one by one, each would wait until the server has had a turn on a
//! core, which on a busy machine takes a hundred times as long as the put.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use kelix::{Completion, NewItem, Session, Table};

use super::processes::Interrupt;
use super::world::{Division, World, list_key, place_key};
use crate::{Exit, Failure};

/// Most links of one list, as in the KELI paper.
const LIST_LINKS_MAX: usize = 100;
/// Puts under way at once.
const UNDER_WAY: usize = 64;
/// How long a put may take.
const ANSWER: Duration = Duration::from_secs(10);
/// Time between two updates of the line that shows progress.
const PROGRESS: Duration = Duration::from_millis(100);

/// The tables of the demo.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    pub places: Table,
    pub districts: Table,
    pub regions: Table,
    pub countries: Table,
    pub lists: Table,
}

impl Tables {
    /// Opens the tables, making those that do not exist.
    pub fn open(session: &mut Session) -> Result<Tables, Failure> {
        Ok(Tables {
            places: session.create_table("places")?,
            districts: session.create_table("districts")?,
            regions: session.create_table("regions")?,
            countries: session.create_table("countries")?,
            lists: session.create_table("lists")?,
        })
    }
}

/// What loading did.
pub(super) struct Loaded {
    pub items: usize,
    pub lists: usize,
    pub time: Duration,
}

impl Loaded {
    pub fn items_per_s(&self) -> f64 {
        self.items as f64 / self.time.as_secs_f64()
    }
}

/// What every country, region and district contains, as indices.
struct Contents {
    regions: Vec<Vec<usize>>,
    districts: Vec<Vec<usize>>,
    in_country: Vec<Vec<usize>>,
    in_region: Vec<Vec<usize>>,
    in_district: Vec<Vec<usize>>,
}

impl Contents {
    fn of(world: &World) -> Contents {
        let empty = |holders: usize| vec![Vec::new(); holders];
        let mut contents = Contents {
            regions: empty(world.countries.len()),
            districts: empty(world.regions.len()),
            in_country: empty(world.countries.len()),
            in_region: empty(world.regions.len()),
            in_district: empty(world.districts.len()),
        };
        for (index, region) in world.regions.iter().enumerate() {
            contents.regions[region.parent].push(index);
        }
        for (index, district) in world.districts.iter().enumerate() {
            contents.districts[district.parent].push(index);
        }
        for (index, place) in world.places.iter().enumerate() {
            match (place.district, place.region) {
                (Some(district), _) => contents.in_district[district].push(index),
                (None, Some(region)) => contents.in_region[region].push(index),
                (None, None) => contents.in_country[place.country].push(index),
            }
        }
        contents
    }
}

struct Loader<'a> {
    session: &'a mut Session,
    tables: Tables,
    interrupt: &'a Interrupt,
    began: Instant,
    shown: Option<Instant>,
    items: usize,
    lists: usize,
    completions: Vec<Completion>,
}

/// Puts all items of the world.
pub(super) fn load(session: &mut Session, world: &World, interrupt: &Interrupt) -> Result<Loaded, Failure> {
    let tables = Tables::open(session)?;
    // Whoever reads a log wants no line that is overwritten.
    let shown = std::io::stderr().is_terminal().then(Instant::now);
    let mut loader = Loader {
        session,
        tables,
        interrupt,
        began: Instant::now(),
        shown,
        items: 0,
        lists: 0,
        completions: Vec::new(),
    };
    let contents = Contents::of(world);
    // What is under way together has no order, so each kind is complete before the next begins.
    loader.countries(world, &contents)?;
    loader.wait_until_under_way(0)?;
    loader.regions(world, &contents)?;
    loader.wait_until_under_way(0)?;
    loader.districts(world, &contents)?;
    loader.wait_until_under_way(0)?;
    loader.places(world)?;
    loader.wait_until_under_way(0)?;
    loader.all_lists(world, &contents)?;
    loader.wait_until_under_way(0)?;
    if loader.shown.is_some() {
        show("");
    }
    Ok(Loaded { items: loader.items, lists: loader.lists, time: loader.began.elapsed() })
}

/// Overwrites the line that shows progress.
fn show(text: &str) {
    // A terminal that has gone is no reason to fail.
    let _ = write!(std::io::stderr(), "\r{text}\x1b[K");
}

impl Loader<'_> {
    fn put(&mut self, table: Table, key: &str, item: &NewItem) -> Result<(), Failure> {
        self.session.submit_item(table, key.as_bytes(), item)?;
        self.items += 1;
        if self.items % UNDER_WAY == 0 {
            // Half of them go on while the other half is prepared.
            self.wait_until_under_way(UNDER_WAY / 2)?;
            self.show_progress();
        }
        Ok(())
    }

    /// Waits until no more than `limit` puts are under way.
    fn wait_until_under_way(&mut self, limit: usize) -> Result<(), Failure> {
        let mut news = Instant::now();
        while self.session.outstanding() > limit {
            self.interrupt.check()?;
            if self.session.poll(&mut self.completions)? > 0 {
                news = Instant::now();
            } else if news.elapsed() > ANSWER {
                let context = format!("no answer to a put within {} s", ANSWER.as_secs());
                return Err(Failure::new(Exit::NoServer, "demo", context));
            } else {
                std::thread::yield_now();
            }
            for completion in self.completions.drain(..) {
                completion.outcome?;
            }
        }
        Ok(())
    }

    fn show_progress(&mut self) {
        if self.shown.is_some_and(|shown| shown.elapsed() >= PROGRESS) {
            self.shown = Some(Instant::now());
            let rate = self.items as f64 / self.began.elapsed().as_secs_f64();
            show(&format!("loading: {} items, {rate:.0} a second", self.items));
        }
    }

    /// Adds the link to the first piece of a list, unless the list is empty.
    fn link_list(&self, item: NewItem, holder: &str, name: &str, contained: &[usize]) -> NewItem {
        match contained.is_empty() {
            true => item,
            false => item.link(name, self.tables.lists, list_key(holder, name, 1).as_bytes()),
        }
    }

    fn countries(&mut self, world: &World, contents: &Contents) -> Result<(), Failure> {
        for (index, country) in world.countries.iter().enumerate() {
            let mut item = NewItem::new();
            item = item.bytes("code", country.as_bytes());
            item = self.link_list(item, country, "regions", &contents.regions[index]);
            item = self.link_list(item, country, "places", &contents.in_country[index]);
            self.put(self.tables.countries, country, &item)?;
        }
        Ok(())
    }

    fn regions(&mut self, world: &World, contents: &Contents) -> Result<(), Failure> {
        for (index, Division { key, name, parent }) in world.regions.iter().enumerate() {
            let mut item = NewItem::new();
            item = item.bytes("name", name.as_bytes());
            item = item.link("country", self.tables.countries, world.countries[*parent].as_bytes());
            item = self.link_list(item, key, "districts", &contents.districts[index]);
            item = self.link_list(item, key, "places", &contents.in_region[index]);
            self.put(self.tables.regions, key, &item)?;
        }
        Ok(())
    }

    fn districts(&mut self, world: &World, contents: &Contents) -> Result<(), Failure> {
        for (index, Division { key, name, parent }) in world.districts.iter().enumerate() {
            let mut item = NewItem::new();
            item = item.bytes("name", name.as_bytes());
            item = item.link("region", self.tables.regions, world.regions[*parent].key.as_bytes());
            item = self.link_list(item, key, "places", &contents.in_district[index]);
            self.put(self.tables.districts, key, &item)?;
        }
        Ok(())
    }

    fn places(&mut self, world: &World) -> Result<(), Failure> {
        for (index, place) in world.places.iter().enumerate() {
            let mut item = NewItem::new();
            item = item.bytes("name", place.name.as_bytes());
            item = item.bytes("latitude", place.latitude.as_bytes());
            item = item.bytes("longitude", place.longitude.as_bytes());
            item = item.bytes("seen", b"0");
            if let Some(district) = place.district {
                item = item.link("district", self.tables.districts, world.districts[district].key.as_bytes());
            }
            match place.region {
                Some(region) => {
                    item = item.link("region", self.tables.regions, world.regions[region].key.as_bytes())
                }
                None => {
                    item =
                        item.link("country", self.tables.countries, world.countries[place.country].as_bytes())
                }
            };
            self.put(self.tables.places, &place_key(index), &item)?;
        }
        Ok(())
    }

    fn all_lists(&mut self, world: &World, contents: &Contents) -> Result<(), Failure> {
        let Tables { places, districts, regions, .. } = self.tables;
        for (index, country) in world.countries.iter().enumerate() {
            let region_key = |region: &usize| world.regions[*region].key.clone();
            self.list(country, "regions", regions, &contents.regions[index], region_key)?;
            self.list(country, "places", places, &contents.in_country[index], |place| place_key(*place))?;
        }
        for (index, region) in world.regions.iter().enumerate() {
            let district_key = |district: &usize| world.districts[*district].key.clone();
            self.list(&region.key, "districts", districts, &contents.districts[index], district_key)?;
            self.list(&region.key, "places", places, &contents.in_region[index], |place| place_key(*place))?;
        }
        for (district, contained) in world.districts.iter().zip(&contents.in_district) {
            self.list(&district.key, "places", places, contained, |place| place_key(*place))?;
        }
        Ok(())
    }

    /// Puts a list, its last piece first.
    fn list(
        &mut self,
        holder: &str,
        name: &str,
        table: Table,
        contained: &[usize],
        key: impl Fn(&usize) -> String,
    ) -> Result<(), Failure> {
        let pieces = contained.len().div_ceil(LIST_LINKS_MAX);
        for (number, piece) in contained.chunks(LIST_LINKS_MAX).enumerate().rev() {
            let mut item = NewItem::new();
            if number + 1 < pieces {
                item = item.link("next", self.tables.lists, list_key(holder, name, number + 2).as_bytes());
            }
            for index in piece {
                item = item.link("item", table, key(index).as_bytes());
            }
            self.put(self.tables.lists, &list_key(holder, name, number + 1), &item)?;
            self.lists += 1;
        }
        Ok(())
    }
}
