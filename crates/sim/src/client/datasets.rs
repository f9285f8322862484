//! Generations of a dataset: one client loads them, others read them in views and by name, and nothing of two
//! generations may come together.

use kelix::{Error, ErrorKind, Item, NewItem, NewTable, Scan, Table, TableKind, View};
use kelix_types::mark;

use super::{Client, Connection, VIEW_LEASE_EPOCHS};
use crate::scheduler;

const DATASET: &str = "set";
const TABLES: [(&str, TableKind); 3] =
    [("hash", TableKind::Hash), ("numbers", TableKind::Inline), ("strings", TableKind::Strings)];
/// Those that others write into.
pub const OVERLAYS: [&str; 2] = ["hash", "strings"];
/// Keys of each table.
const KEYS: u64 = 24;

/// A generation that was loaded, or perhaps was.
#[derive(Clone, Copy)]
pub struct Load {
    /// Of which server.
    term: u64,
    /// What all that is in it says; later ones say more.
    says: u64,
    /// When it was certainly in force, if that is known.
    done_ns: Option<u64>,
}

fn key(number: u64) -> [u8; 8] {
    (number * 1000).to_be_bytes()
}

/// A key that is never loaded.
pub fn own_key(client: u32, number: u64) -> [u8; 8] {
    (u64::MAX - u64::from(client) * 1000 - number).to_be_bytes()
}

fn is_loaded(own: &[u8]) -> bool {
    own < &key(KEYS)[..]
}

fn says(item: &Item) -> u64 {
    u64::from_be_bytes(item.bytes("says").expect("all items say it").try_into().expect("8 bytes"))
}

impl Client {
    /// Loads one generation after another.
    pub fn load_datasets(mut self) {
        let mut connection: Option<Connection> = None;
        while *self.stage.remaining.borrow() > 0 {
            if connection.is_none() {
                connection = self.connect();
            }
            if let Some(open) = connection.as_mut() {
                let outcome = self.load_generation(open);
                self.count(open);
                if !outcome.map_or_else(|error| self.goes_on_loading(&error), |()| true) {
                    connection = None;
                }
            }
            self.pause(2);
        }
    }

    fn goes_on_loading(&mut self, error: &Error) -> bool {
        match error.kind() {
            // What was begun before is not over yet, or the connection was another one in between.
            ErrorKind::InvalidArgument | ErrorKind::ViewExpired => false,
            _ => self.goes_on(error),
        }
    }

    fn load_generation(&mut self, open: &mut Connection) -> Result<(), Error> {
        let said = self.stage.loads.borrow().len() as u64 + 1;
        let tables = TABLES.map(|(name, kind)| NewTable::new(name, kind).overlay(OVERLAYS.contains(&name)));
        let mut build = open.session.build(DATASET, &tables)?;
        let [hash, _, strings] = [0, 1, 2].map(|index| build.table(index));
        for number in 0..KEYS {
            let mut item = NewItem::new();
            item = item.bytes("says", &said.to_be_bytes());
            item = item.link("across", strings, &key(KEYS - 1 - number)).link(
                "next",
                hash,
                &key((number + 1) % KEYS),
            );
            build.put_item(0, &key(number), &item)?;
            build.put(1, &key(number), &said.to_be_bytes())?;
            let mut item = NewItem::new();
            item = item.bytes("says", &said.to_be_bytes()).link("back", hash, &key(number));
            build.put_item(2, &key(number), &item)?;
        }
        if self.random.once_in(6) {
            mark!("build abandoned");
            return Ok(());
        }
        let at = self.stage.loads.borrow().len();
        self.stage.loads.borrow_mut().push(Load { term: open.term, says: said, done_ns: None });
        let built = build.finish()?;
        self.stage.loads.borrow_mut()[at].done_ns = Some(scheduler::now_ns());
        if built.overlays > 0 {
            mark!("overlays taken over");
        }
        if built.dangling != 0 || built.items != 3 * KEYS + built.overlays {
            self.find(format!("a generation was built of {built:?}"));
        }
        Ok(())
    }

    /// Reads what is loaded.
    pub fn view_datasets(mut self) {
        let mut connection: Option<Connection> = None;
        while *self.stage.remaining.borrow() > 0 {
            if connection.is_none() {
                connection = self.connect();
            }
            if let Some(open) = connection.as_mut() {
                let outcome =
                    if self.random.once_in(3) { self.read_by_name(open) } else { self.read_view(open) };
                self.count(open);
                if !outcome.map_or_else(|error| self.goes_on(&error), |()| true) {
                    connection = None;
                }
            }
            self.pause(1);
        }
    }

    pub(super) fn lease_ns(&self) -> u64 {
        self.stage.plan.kind.epoch_ns * VIEW_LEASE_EPOCHS
    }

    fn pause(&mut self, times: u64) {
        let lease_ns = self.lease_ns();
        scheduler::sleep(self.random.below(times * lease_ns) + 1);
    }

    /// The last generation that was in force at a moment, and the last one that may have been by now.
    fn loaded(&self, open: &Connection, then_ns: u64) -> (u64, u64) {
        let loads = self.stage.loads.borrow();
        let of_term = loads.iter().filter(|load| load.term == open.term);
        let before = of_term.clone().filter(|load| load.done_ns.is_some_and(|done_ns| done_ns <= then_ns));
        (before.map(|load| load.says).max().unwrap_or(0), of_term.map(|load| load.says).max().unwrap_or(0))
    }

    fn check_says(&self, said: u64, (least, most): (u64, u64), what: &str) {
        if said < least || said > most {
            self.find(format!("{what} says {said}, and what was in force is {least} to {most}"));
        }
    }

    /// Reads one generation for a while.
    fn read_view(&mut self, open: &mut Connection) -> Result<(), Error> {
        let called_ns = scheduler::now_ns();
        let view = match open.session.view(DATASET) {
            Ok(view) => view,
            Err(error) if error.kind() == ErrorKind::NoSuchTable => {
                self.check_says(0, self.loaded(open, called_ns), "no generation");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let said = self.read_generation(open, &view, None);
        let said = match said {
            // Another one came, and nothing was heard of this view for a lease.
            Err(error) if error.kind() == ErrorKind::ViewExpired => return Ok(()),
            said => said?,
        };
        let range = self.loaded(open, called_ns);
        self.check_says(said, range, "a view");
        let mut last_ns = called_ns;
        for _ in 0..self.random.below(8) {
            let lease_ns = self.lease_ns();
            scheduler::sleep(match self.random.below(6) {
                0 => lease_ns + self.random.below(3 * lease_ns),
                _ => self.random.below(lease_ns / 8),
            });
            let began_ns = scheduler::now_ns();
            match self.read_generation(open, &view, Some(said)) {
                // Its end may be an answer that was long on its way.
                Ok(_) => last_ns = began_ns,
                Err(error) if error.kind() == ErrorKind::ViewExpired => {
                    if scheduler::now_ns() - last_ns < lease_ns / 4 {
                        self.find(format!(
                            "a view that was used {} ns ago has expired",
                            scheduler::now_ns() - last_ns
                        ));
                    }
                    mark!("view expired under a reader");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads something, and wants all of it to say the same.
    fn read_generation(
        &mut self,
        open: &mut Connection,
        view: &View,
        before: Option<u64>,
    ) -> Result<u64, Error> {
        let [hash, numbers, strings] = TABLES.map(|(name, _)| view.table(name));
        let said = match self.random.below(3) {
            0 => self.read_items(open, hash?)?,
            1 => self.read_numbers(open, numbers?)?,
            _ => self.read_strings(open, strings?)?,
        };
        let said = self.one(said, "read in a view");
        match before {
            Some(before) if before != said => {
                self.find(format!("a view said {before}, and then {said}"));
            }
            _ => {}
        }
        Ok(said)
    }

    /// What all of these say.
    fn one(&self, said: Vec<u64>, what: &str) -> u64 {
        if said.is_empty() || said.iter().any(|other| *other != said[0]) {
            self.find(format!("{what}: {said:?}"));
        }
        said.first().copied().unwrap_or(0)
    }

    fn read_items(&mut self, open: &mut Connection, table: Table) -> Result<Vec<u64>, Error> {
        let first = self.random.below(KEYS - 4);
        let keys: Vec<[u8; 8]> = (first..first + 4).map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut said = Vec::new();
        for item in open.session.multi_get(table, &keys)? {
            let Some(item) = item else {
                self.find("a key of a generation is absent".into());
                continue;
            };
            said.push(says(&item));
            for (name, on) in [("next", None), ("across", Some("back"))] {
                let Some(target) = open.session.follow(&item, name)? else {
                    self.find(format!("link {name} of a generation leads nowhere"));
                    continue;
                };
                said.push(says(&target));
                let Some(on) = on else { continue };
                match open.session.follow(&target, on)? {
                    Some(target) => said.push(says(&target)),
                    None => self.find(format!("link {on} of a generation leads nowhere")),
                }
            }
        }
        Ok(said)
    }

    fn read_numbers(&mut self, open: &mut Connection, table: Table) -> Result<Vec<u64>, Error> {
        let mut said = Vec::new();
        let mut buffer = [0; 8];
        for _ in 0..3 {
            match open.session.get_into(table, &key(self.random.below(KEYS)), &mut buffer)? {
                Some(_) => said.push(u64::from_be_bytes(buffer)),
                None => self.find("a number of a generation is absent".into()),
            }
        }
        let count = open.session.count(table, &Scan::all())?;
        if count != KEYS {
            self.find(format!("a generation has {count} numbers"));
        }
        Ok(said)
    }

    fn read_strings(&mut self, open: &mut Connection, table: Table) -> Result<Vec<u64>, Error> {
        let mut items = open.session.scan(table, &Scan::all())?.collect::<Result<Vec<Item>, Error>>()?;
        items.retain(|item| is_loaded(item.key()));
        if items.len() as u64 != KEYS {
            self.find(format!("a scan of a generation brought {} keys", items.len()));
        }
        Ok(items.iter().map(says).collect())
    }

    /// Reads what is in force.
    fn read_by_name(&mut self, open: &mut Connection) -> Result<(), Error> {
        let table = match open.session.table(TABLES[0].0) {
            Ok(table) => table,
            Err(error) if error.kind() == ErrorKind::NoSuchTable => return Ok(()),
            Err(error) => return Err(error),
        };
        for _ in 0..1 + self.random.below(4) {
            let called_ns = scheduler::now_ns();
            let lease_ns = self.lease_ns();
            match self.read_items(open, table) {
                Ok(said) => {
                    let said = self.one(said, "read by name");
                    // Elsewhere than in memory names are looked up from time to time.
                    let range = self.loaded(open, called_ns.saturating_sub(lease_ns / 2));
                    self.check_says(said, range, "what is read by name");
                    mark!("read by name");
                }
                Err(error) if error.kind() == ErrorKind::ViewExpired => {
                    if scheduler::now_ns() - called_ns < lease_ns / 4 {
                        self.find("what is read by name has expired".into());
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            scheduler::sleep(self.random.below(lease_ns));
        }
        Ok(())
    }
}
