//! Reads all rows of a map from a source into spools, and notes what does not fit.

use std::mem::take;

use kelix::TableKind;

use crate::batch::Batch;
use crate::findings::{Finding, Findings};
use crate::keys::{Gathered, hash};
use crate::load::{Progress, Watch};
use crate::map::{ListMap, Map, Relation, TableMap, list_table, nearest};
use crate::memory;
use crate::plan::{Misfit, Plan, Wanted, wanted_by_list, wanted_by_table};
use crate::problem::Problem;
use crate::rows::{Field, Rows};
use crate::source::{Sink, Source};
use crate::spool::Spool;

/// What was read.
#[derive(Default)]
pub(crate) struct Read {
    /// The items of each table of the map.
    pub tables: Vec<Spool>,
    /// The rows of each list.
    pub lists: Vec<ListRows>,
    /// Hashes of all items' keys.
    pub keys: Gathered,
    /// Hashes of the keys that items' links lead to.
    pub targets: Gathered,
    pub findings: Findings,
    /// Memory of the server that all of it takes, about.
    pub memory_bytes: u64,
    /// Rows of the source.
    pub rows: u64,
}

/// The rows of a list: owner and target of each, in the order in which they came.
pub(crate) struct ListRows {
    /// The owner's table and which of its lists.
    pub owner: usize,
    pub list: usize,
    pub spool: Spool,
    pub runs: Vec<Run>,
}

/// Rows that stand one behind the other and have one owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Run {
    /// Hash of the owner.
    pub owner: u64,
    /// Where the first stands in the spool.
    pub at: u64,
}

/// The relations of a map: tables, then lists, with what they are called.
pub(crate) fn relations(map: &Map) -> Vec<(What, String)> {
    let tables = map.tables.iter().enumerate().map(|(table, of)| (What::Table(table), of.name.clone()));
    let lists = map.tables.iter().enumerate().flat_map(|(table, of)| {
        of.lists
            .iter()
            .enumerate()
            .map(move |(list, map)| (What::List(table, list), list_table(&of.name, &map.name)))
    });
    tables.chain(lists).collect()
}

/// A table of the map, or a list of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Table(usize),
    List(usize, usize),
}

impl What {
    pub fn table(self, map: &Map) -> &TableMap {
        match self {
            What::Table(table) | What::List(table, _) => &map.tables[table],
        }
    }

    pub fn list(self, map: &Map) -> Option<&ListMap> {
        match self {
            What::Table(_) => None,
            What::List(table, list) => Some(&map.tables[table].lists[list]),
        }
    }

    pub fn relation(self, map: &Map) -> &Relation {
        self.list(map).map_or(&self.table(map).relation, |list| &list.relation)
    }

    fn wanted(self, map: &Map) -> Wanted {
        self.list(map).map_or_else(|| wanted_by_table(self.table(map)), wanted_by_list)
    }
}

/// Looks at the columns and at no row.
struct Columns<'f> {
    source: String,
    wanted: Wanted,
    findings: &'f mut Findings,
}

impl Sink for Columns<'_> {
    fn begin(&mut self, columns: &[String], choice: &str) -> bool {
        for (name, what) in self.wanted.iter().filter(|(name, _)| !columns.contains(name)) {
            let near = nearest(name, columns.iter().map(String::as_str));
            let hint = near.map_or_else(|| choice.to_string(), |near| format!("perhaps {near} is meant"));
            self.findings.add(|| Finding {
                source: self.source.clone(),
                place: None,
                column: Some(name.clone()),
                text: format!("the map wants it for {what}, and there is no such column; {hint}"),
            });
        }
        false
    }

    fn take(&mut self, _: &Batch) -> Result<bool, Problem> {
        Ok(false)
    }
}

/// Checks that the source has all relations and columns that a map names. Something may have been found
/// before.
pub(crate) fn check_columns(
    map: &Map,
    source: &mut dyn Source,
    mut findings: Findings,
) -> Result<(), Problem> {
    for (what, name) in relations(map) {
        let relation = what.relation(map);
        if let Err(text) = source.check(relation, &name) {
            findings.add(|| Finding {
                source: format!("the map, table {name}"),
                place: None,
                column: None,
                text,
            });
            continue;
        }
        let called = source.name(relation, &name);
        let wanted = what.wanted(map);
        let names: Vec<String> = wanted.keys().cloned().collect();
        let mut columns = Columns { source: called, wanted, findings: &mut findings };
        source.rows(relation, &name, &names, &mut columns)?;
    }
    if findings.is_empty() { Ok(()) } else { Err(Problem::Map(findings)) }
}

/// Makes records of rows.
struct Taking<'t> {
    map: &'t Map,
    what: What,
    name: &'t str,
    called: String,
    place: &'static str,
    plan: Option<Plan>,
    rows: Rows,
    spool: Spool,
    runs: Vec<Run>,
    last_owner: Vec<u8>,
    read: &'t mut Read,
    watch: &'t mut dyn Watch,
}

impl Taking<'_> {
    fn wrong(&mut self, place: u64, column: Option<String>, text: &str) {
        let (source, unit) = (&self.called, self.place);
        self.read.findings.add(|| Finding {
            source: source.clone(),
            place: Some(format!("{unit} {place}")),
            column,
            text: text.to_string(),
        });
    }

    /// Notes the keys of the items of a table, and those that their links lead to.
    fn take_items(&mut self, table: usize) {
        let kind = self.map.tables[table].kind;
        let Read { keys, targets, memory_bytes, .. } = &mut *self.read;
        for row in self.rows.iter() {
            keys.add(hash(table, row.key()));
            let mut bytes = 8;
            for field in row.fields() {
                bytes += memory::field_bytes(field);
                if let Field::Link { table, key, .. } = field {
                    targets.add(hash(usize::from(table), key));
                }
            }
            *memory_bytes += memory::item_bytes(kind, row.key().len(), bytes);
        }
    }

    /// Notes where the rows of a list change their owner.
    fn take_list_rows(&mut self, table: usize) {
        let mut at = self.spool.bytes();
        for row in self.rows.iter() {
            if self.runs.is_empty() || row.key() != self.last_owner {
                self.runs.push(Run { owner: hash(table, row.key()), at });
                self.last_owner.clear();
                self.last_owner.extend_from_slice(row.key());
            }
            at += row.record().len() as u64;
        }
    }
}

impl Sink for Taking<'_> {
    fn begin(&mut self, columns: &[String], _: &str) -> bool {
        let table = self.what.table(self.map);
        self.plan = Some(match self.what.list(self.map) {
            None => Plan::of_table(self.map, table, columns),
            Some(list) => Plan::of_list(self.map, table, list, columns),
        });
        true
    }

    fn take(&mut self, batch: &Batch) -> Result<bool, Problem> {
        let plan = self.plan.take().expect("a source tells its columns first");
        self.rows.clear();
        for row in 0..batch.rows() {
            if let Err(Misfit { column, text }) = plan.record(batch, row, &mut self.rows) {
                self.wrong(batch.places[row], column.map(|column| plan.columns[column].clone()), &text);
            }
        }
        self.plan = Some(plan);
        for fault in &batch.faults {
            self.wrong(fault.place, fault.column.clone(), &fault.text);
        }
        match self.what {
            What::Table(table) => self.take_items(table),
            What::List(table, _) => self.take_list_rows(table),
        }
        self.spool.add(&self.rows)?;
        self.read.rows += batch.rows() as u64;
        self.watch.at(&Progress::Reading { table: self.name, rows: self.spool.rows() });
        if self.watch.gives_up() { Err(Problem::GivenUp) } else { Ok(true) }
    }
}

/// Memory that a list takes once its rows are in chunks.
fn list_bytes(list: &ListMap, rows: &ListRows) -> Result<u64, Problem> {
    let (mut links, mut owners, mut key_bytes) = (0, 0, 0);
    let mut last = None;
    for run in &rows.runs {
        owners += u64::from(last != Some(run.owner));
        last = Some(run.owner);
    }
    rows.spool.each(|row, _| {
        links += row.fields().map(memory::field_bytes).sum::<usize>() as u64;
        key_bytes += row.key().len() as u64;
        Ok(())
    })?;
    let key = key_bytes.checked_div(rows.spool.rows()).unwrap_or(0) as usize + 4;
    let chunks = owners.max(rows.spool.rows().div_ceil(list.chunk as u64));
    let head = memory::item_bytes(TableKind::Hash, key, 8 + memory::link_bytes(key, 0));
    let owner_links = owners * memory::link_bytes(key, 0) as u64;
    Ok(links + links / 16 + chunks * head + owner_links)
}

/// Reads everything.
pub(crate) fn read(map: &Map, source: &mut dyn Source, watch: &mut dyn Watch) -> Result<Read, Problem> {
    let mut read = Read::default();
    for (what, name) in relations(map) {
        let relation = what.relation(map);
        let names: Vec<String> = what.wanted(map).into_keys().collect();
        let mut taking = Taking {
            map,
            what,
            name: &name,
            called: source.name(relation, &name),
            place: source.place(relation, &name),
            plan: None,
            rows: Rows::new(),
            spool: Spool::default(),
            runs: Vec::new(),
            last_owner: Vec::new(),
            read: &mut read,
            watch,
        };
        source.rows(relation, &name, &names, &mut taking)?;
        let (spool, runs) = (take(&mut taking.spool), take(&mut taking.runs));
        match what {
            What::Table(_) => read.tables.push(spool),
            What::List(owner, list) => {
                let mut rows = ListRows { owner, list, spool, runs };
                rows.runs.sort_unstable();
                read.memory_bytes += list_bytes(&map.tables[owner].lists[list], &rows)?;
                read.lists.push(rows);
            }
        }
    }
    source.check_unchanged()?;
    read.memory_bytes = memory::with_room(read.memory_bytes);
    Ok(read)
}
