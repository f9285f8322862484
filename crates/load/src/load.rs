//! A load: read everything, check everything, then build.
//!
//! ```text
//! state of the source: is it what it was?        then that is all
//! source --rows--> spools, hashes of keys        nothing is put before all of it is there and right
//!        duplicates? links that lead nowhere?
//!        memory?
//! spools --items--> store, then finish           or abandon
//! ```

use crate::changes::{Last, State};
use crate::check::{self, LeftOut, Teller};
use crate::findings::Findings;
use crate::keys::{Gathered, Keys, hash};
use crate::lists::{Chunks, chunk_key};
use crate::map::{Map, Relation};
use crate::plan::{self, name_number};
use crate::problem::Problem;
use crate::read::{self, Read, What};
use crate::rows::{Field, Row, Rows};
use crate::source::{Origin, Source};
use crate::store::{Building, InForce, Store};

/// Bytes of items that are put at once.
const BATCH_BYTES: usize = 256 << 10;

/// What to do about links that lead nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnDangling {
    /// Nothing is loaded.
    #[default]
    Error,
    /// The link is left out.
    Null,
    /// The item with the link is left out, and then those with links to it.
    Drop,
}

/// How to load.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// What to do about links that lead nowhere.
    pub on_dangling: OnDangling,
    /// Read and check all of it, and put nothing.
    pub check_only: bool,
    /// Let a file without a row take the place of what is in force.
    pub allow_empty: bool,
}

/// How far a load is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress<'a> {
    /// Rows are read for a table.
    Reading {
        /// Its name.
        table: &'a str,
        /// Rows so far.
        rows: u64,
    },
    /// Keys and links are checked.
    Checking,
    /// Items are put.
    Building {
        /// Items so far.
        items: u64,
        /// Items of tables in all; chunks of lists come to them.
        of: u64,
    },
}

/// Whoever watches a load.
pub trait Watch {
    /// Is told how far it is, often.
    fn at(&mut self, progress: &Progress<'_>);

    /// Whether to give up. Nothing stays of what was begun.
    fn gives_up(&self) -> bool {
        false
    }
}

/// Nobody.
impl Watch for () {
    fn at(&mut self, _: &Progress<'_>) {}
}

/// What a load did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// The number of the generation that is in force now; 0: nothing was put.
    pub generation: u64,
    /// Nothing was loaded, because all is as it was: the generation is that of the last load.
    pub unchanged: bool,
    /// Items of each table, by its name.
    pub tables: Vec<(String, u64)>,
    /// Rows that were read.
    pub rows: u64,
    /// Links that were left out because they lead nowhere.
    pub links_left_out: u64,
    /// Items that were left out because of such links.
    pub items_left_out: u64,
    /// Memory of the server that all of it takes, about.
    pub memory_bytes: u64,
}

/// Loads a data set. Without a store, or with [`Options::check_only`], only checks whether it could be.
pub fn load(
    origin: &Origin,
    map: &Map,
    options: Options,
    store: Option<&mut dyn Store>,
    watch: &mut dyn Watch,
) -> Result<Report, Problem> {
    let (source, _) = open(origin, map)?;
    load_from(source, map, options, store, watch)
}

/// Loads a data set, unless map, source and store are as they were when `last` was made; it is made anew if
/// the load succeeds.
pub fn load_if_changed(
    origin: &Origin,
    map: &Map,
    options: Options,
    store: &mut dyn Store,
    last: &mut Option<Last>,
    watch: &mut dyn Watch,
) -> Result<Report, Problem> {
    let (source, state) = open(origin, map)?;
    let in_force = store.in_force(map.dataset())?;
    let generation = in_force.generation.unwrap_or(0);
    let now = state.map(|state| Last { map: map.text.clone(), state, in_force });
    if now.is_some() && *last == now && generation > 0 {
        return Ok(Report { generation, unchanged: true, ..Report::default() });
    }
    let report = load_from(source, map, options, Some(store), watch)?;
    *last = now.map(|now| {
        let in_force = InForce { generation: Some(report.generation), ..now.in_force };
        Last { in_force, ..now }
    });
    Ok(report)
}

/// Opens the source, and checks that it has what the map wants. The state is older than the snapshot that all
/// else is of.
fn open(origin: &Origin, map: &Map) -> Result<(Box<dyn Source>, Option<State>), Problem> {
    let mut source = origin.open()?;
    let (state, findings) = match source.state(map) {
        Ok(state) => (state, Findings::new()),
        // There may be more that is wrong with the map.
        Err(Problem::Map(findings)) => (None, findings),
        Err(problem) => return Err(problem),
    };
    source.begin()?;
    read::check_columns(map, &mut *source, findings)?;
    Ok((source, state))
}

fn load_from(
    mut source: Box<dyn Source>,
    map: &Map,
    options: Options,
    store: Option<&mut dyn Store>,
    watch: &mut dyn Watch,
) -> Result<Report, Problem> {
    let mut read = read::read(map, &mut *source, watch)?;
    watch.at(&Progress::Checking);
    let teller = Teller::new(map, &*source);
    let (keys, left_out) = check_rows(&teller, &mut read, options.on_dangling)?;
    drop(teller);
    // What follows needs no snapshot any more.
    drop(source);
    let mut report = Report {
        generation: 0,
        unchanged: false,
        tables: Vec::new(),
        rows: read.rows,
        links_left_out: left_out.links,
        items_left_out: left_out.items,
        memory_bytes: read.memory_bytes,
    };
    let Some(store) = store else { return Ok(report) };
    let free = store.free_bytes()?;
    if read.memory_bytes > free {
        return Err(Problem::NoRoom { needed: read.memory_bytes, free });
    }
    if !options.allow_empty && store.in_force(map.dataset())?.generation.is_some() {
        check_not_empty(map, &read, &keys, left_out)?;
    }
    let tables = plan::tables(map);
    if options.check_only {
        store.check(map.dataset(), &tables)?;
        return Ok(report);
    }
    if watch.gives_up() {
        return Err(Problem::GivenUp);
    }
    let building = store.begin(map.dataset(), &tables)?;
    let items = vec![0; tables.len()];
    let mut build = Build { map, read: &read, keys: &keys, left_out, items, building, watch };
    build.all()?;
    let Build { items, building, .. } = build;
    report.generation = building.finish()?.generation;
    report.tables = tables.into_iter().map(|table| table.name).zip(items).collect();
    Ok(report)
}

/// What came empty is not to replace what is in force: a file without a row, of a download that failed say;
/// rows all of which were left out. A query without rows is an answer.
fn check_not_empty(map: &Map, read: &Read, keys: &Keys, left_out: LeftOut) -> Result<(), Problem> {
    let stays = |table: usize, row: Row<'_>| keys.has(hash(table, row.key()));
    let lists = read.lists.iter().map(|list| (What::List(list.owner, list.list), &list.spool));
    let tables = read.tables.iter().enumerate().map(|(table, spool)| (What::Table(table), spool));
    for ((what, spool), (_, name)) in tables.chain(lists).zip(read::relations(map)) {
        let mut some = spool.rows() > 0 && left_out == LeftOut::default();
        let is_answer = spool.rows() == 0 && matches!(what.relation(map), Relation::Query(_));
        if some || is_answer {
            continue;
        }
        spool.each(|row, _| {
            some |= match what {
                What::Table(table) => stays(table, row),
                What::List(owner, _) => {
                    stays(owner, row) && check::target(row).is_some_and(|(to, key)| keys.has(hash(to, key)))
                }
            };
            Ok(())
        })?;
        if !some {
            let why = match spool.rows() {
                0 => "there is not one row",
                _ => "all rows are left out, for links that lead nowhere,",
            };
            return Err(Problem::Source(format!(
                "{why} for table \"{name}\", and \"{}\" is in force: what is there stays. If it is to become empty, give --allow-empty",
                map.dataset()
            )));
        }
    }
    Ok(())
}

/// Checks keys and links. Rows that were refused are not there to be linked to, so links are looked at only
/// if there are none.
fn check_rows(
    teller: &Teller<'_>,
    read: &mut Read,
    on_dangling: OnDangling,
) -> Result<(Keys, LeftOut), Problem> {
    let (mut keys, twice) = Keys::new(std::mem::take(&mut read.keys));
    let mut findings = std::mem::take(&mut read.findings);
    let all_read = findings.is_empty();
    check::duplicates(teller, read, &twice, &mut findings)?;
    let mut left_out = LeftOut::default();
    if all_read {
        left_out = check::dangling(teller, read, &mut keys, on_dangling, &mut findings)?;
    }
    read.targets = Gathered::default();
    if findings.is_empty() { Ok((keys, left_out)) } else { Err(Problem::Rows(findings)) }
}

/// Puts everything into a store.
struct Build<'b> {
    map: &'b Map,
    read: &'b Read,
    keys: &'b Keys,
    left_out: LeftOut,
    /// Items of each table so far.
    items: Vec<u64>,
    building: Box<dyn Building + 'b>,
    watch: &'b mut dyn Watch,
}

/// A list as its owners see it.
struct OwnList {
    /// The link's name.
    name: u16,
    /// The table of the chunks.
    table: u16,
    /// Hashes of the owners that have one, in order.
    owners: Vec<u64>,
}

impl Build<'_> {
    fn all(&mut self) -> Result<(), Problem> {
        let mut lists: Vec<Vec<OwnList>> = self.map.tables.iter().map(|_| Vec::new()).collect();
        for number in 0..self.read.lists.len() {
            let (owner, list) = self.list(number)?;
            lists[owner].push(list);
        }
        for (table, lists) in lists.iter().enumerate() {
            self.table(table, lists)?;
        }
        Ok(())
    }

    fn put(&mut self, table: usize, rows: &Rows) -> Result<(), Problem> {
        self.building.put(table, rows)?;
        self.items[table] += rows.len() as u64;
        let of = self.read.tables.iter().map(|spool| spool.rows()).sum();
        self.watch.at(&Progress::Building { items: self.items.iter().sum(), of });
        if self.watch.gives_up() { Err(Problem::GivenUp) } else { Ok(()) }
    }

    fn list(&mut self, number: usize) -> Result<(usize, OwnList), Problem> {
        let rows = &self.read.lists[number];
        let owner = &self.map.tables[rows.owner];
        let list = &owner.lists[rows.list];
        let table = self.map.tables.len() + number;
        let numbers = owner.kind.has_numbers();
        let chunks = Chunks { rows, list, numbers, table: table as u16, keys: self.keys };
        let owners = chunks.build(&mut |chunks| self.put(table, chunks))?;
        Ok((rows.owner, OwnList { name: name_number(owner, &list.name), table: table as u16, owners }))
    }

    fn table(&mut self, table: usize, lists: &[OwnList]) -> Result<(), Problem> {
        let (read, keys) = (self.read, self.keys);
        let as_they_are = lists.is_empty() && self.left_out == LeftOut::default();
        let numbers = self.map.tables[table].kind.has_numbers();
        let mut batch = Rows::new();
        read.tables[table].each(|row, _| {
            match as_they_are {
                true => batch.push(row),
                false => add(row, (table, numbers), lists, keys, &mut batch),
            }
            if batch.bytes().len() >= BATCH_BYTES {
                self.put(table, &batch)?;
                batch.clear();
            }
            Ok(())
        })?;
        if batch.is_empty() { Ok(()) } else { self.put(table, &batch) }
    }
}

/// Adds an item without links that lead nowhere, with links to its lists; or not at all if it was taken out.
fn add(row: Row<'_>, (table, numbers): (usize, bool), lists: &[OwnList], keys: &Keys, batch: &mut Rows) {
    let own = hash(table, row.key());
    if !keys.has(own) {
        return;
    }
    let stays = |field: Field<'_>| match field {
        Field::Link { table, key, .. } => keys.has(hash(usize::from(table), key)),
        Field::Bytes { .. } => true,
    };
    let mut new = batch.begin_like(row);
    row.fields().filter(|field| stays(*field)).for_each(|field| new.field(field));
    for list in lists {
        if list.owners.binary_search(&own).is_ok() {
            let mut key = Vec::new();
            chunk_key(row.key(), numbers, 0, &mut key);
            new.link(list.name, list.table, &key, &[]);
        }
    }
    new.end();
}
