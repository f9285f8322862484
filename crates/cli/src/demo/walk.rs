//! Walking once through all that was loaded, along the links, and comparing it with the file.

use kelix::{Item, Session};

use super::load::Tables;
use super::processes::Interrupt;
use super::world::{World, place_key, place_of_key};
use crate::{Exit, Failure};

/// Walks from the countries down all lists. Fails unless it meets every place once, under its name.
pub(super) fn walk(session: &mut Session, world: &World, interrupt: &Interrupt) -> Result<usize, Failure> {
    let tables = Tables::open(session)?;
    let mut walker = Walker { session, interrupt, world, met: vec![false; world.places.len()], links: 0 };
    for country in &world.countries {
        let item = walker.session.get(tables.countries, country.as_bytes())?;
        walker.holder(&item.ok_or_else(|| wrong(format!("country {country} is missing")))?)?;
    }
    match walker.met.iter().position(|met| !met) {
        Some(place) => Err(wrong(format!("place {} stands in no list", place_key(place)))),
        None => Ok(walker.links),
    }
}

/// The store gave another answer than the file.
pub(super) fn wrong(what: String) -> Failure {
    Failure::new(Exit::Other, "demo", format!("the store and the file disagree: {what}"))
        .named("wrong answer")
}

struct Walker<'a> {
    session: &'a mut Session,
    interrupt: &'a Interrupt,
    world: &'a World,
    met: Vec<bool>,
    links: usize,
}

impl Walker<'_> {
    /// Walks down from a country, a region or a district.
    fn holder(&mut self, holder: &Item) -> Result<(), Failure> {
        self.interrupt.check()?;
        for name in ["regions", "districts"] {
            for item in self.contained(holder, name)? {
                self.holder(&item)?;
            }
        }
        for place in self.contained(holder, "places")? {
            self.place(&place)?;
        }
        Ok(())
    }

    fn place(&mut self, item: &Item) -> Result<(), Failure> {
        let key = String::from_utf8_lossy(item.key()).into_owned();
        let index = place_of_key(item.key()).filter(|index| *index < self.met.len());
        let index = index.ok_or_else(|| wrong(format!("there is a place {key}")))?;
        check_place(self.world, index, item)?;
        if std::mem::replace(&mut self.met[index], true) {
            return Err(wrong(format!("place {key} stands in two lists")));
        }
        Ok(())
    }

    /// All items of a list.
    fn contained(&mut self, holder: &Item, name: &str) -> Result<Vec<Item>, Failure> {
        let mut contained = Vec::new();
        let mut at = holder.clone();
        let mut link = name;
        while at.link_count(link) > 0 {
            let gone = || wrong(format!("a list of {} is missing", String::from_utf8_lossy(holder.key())));
            at = self.session.follow(&at, link)?.ok_or_else(gone)?;
            link = "next";
            let items = self.session.follow_all(&at, "item")?;
            self.links += 1 + items.len();
            contained.extend(items.into_iter().collect::<Option<Vec<Item>>>().ok_or_else(gone)?);
        }
        Ok(contained)
    }
}

/// Whether an item is the place that the file tells.
pub(super) fn check_place(world: &World, place: usize, item: &Item) -> Result<(), Failure> {
    let expected = &world.places[place].name;
    if item.bytes("name") == Some(expected.as_bytes()) {
        return Ok(());
    }
    let name = item.bytes("name").map(String::from_utf8_lossy);
    Err(wrong(format!("place {} is called {name:?}, the file says {expected:?}", place_key(place))))
}
