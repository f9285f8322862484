//! What can be said only when all rows have been read: keys that are there twice, and links that lead
//! nowhere.

use std::collections::{HashMap, HashSet};

use crate::findings::{Finding, Findings, shown_key};
use crate::keys::{Keys, hash};
use crate::load::OnDangling;
use crate::map::{Map, Template, list_table};
use crate::plan::name_number;
use crate::problem::Problem;
use crate::read::{ListRows, Read, What, relations};
use crate::rows::{Field, Row};
use crate::source::{Forms, Source};

/// Of so many hashes that came twice the keys are compared; a map whose key is wrong has many more.
const COMPARED_MAX: usize = 1000;

/// Who tells findings about rows: names of relations and of what a row is called there.
pub(crate) struct Teller<'m> {
    map: &'m Map,
    source: &'m dyn Source,
    called: Vec<(What, String, &'static str)>,
}

impl<'m> Teller<'m> {
    pub fn new(map: &'m Map, source: &'m dyn Source) -> Teller<'m> {
        let called = relations(map).into_iter().map(|(what, name)| {
            let relation = what.relation(map);
            (what, source.name(relation, &name), source.place(relation, &name))
        });
        Teller { map, source, called: called.collect() }
    }

    fn called(&self, what: What) -> (&str, &'static str) {
        let found = self.called.iter().find(|(known, ..)| *known == what).expect("a relation of the map");
        (&found.1, found.2)
    }

    fn finding(&self, what: What, row: Row<'_>, column: Option<&str>, text: String) -> Finding {
        let (source, unit) = self.called(what);
        let place = Some(format!("{unit} {}", row.place()));
        Finding { source: source.to_string(), place, column: column.map(str::to_string), text }
    }

    /// `people/"person:7"`.
    fn item(&self, table: usize, key: &[u8]) -> String {
        let TableName(name, numbers) = self.table(table);
        format!("{name}/{}", shown_key(numbers, key))
    }

    fn table(&self, table: usize) -> TableName<'_> {
        let table = &self.map.tables[table];
        TableName(&table.name, table.kind.has_numbers())
    }
}

/// A table's name, and whether its keys are numbers.
struct TableName<'a>(&'a str, bool);

/// The columns of a template, as a message names them.
fn columns(template: &Template) -> String {
    let names: Vec<&str> = template.columns().map(String::as_str).collect();
    names.join(", ")
}

/// Tells the keys that are there twice. The hashes say which rows to look at, the keys themselves whether
/// they are the same.
pub(crate) fn duplicates(
    teller: &Teller<'_>,
    read: &Read,
    twice: &[u64],
    findings: &mut Findings,
) -> Result<(), Problem> {
    let compared: HashSet<u64> = twice.iter().take(COMPARED_MAX).copied().collect();
    if compared.is_empty() {
        return Ok(());
    }
    for (table, spool) in read.tables.iter().enumerate() {
        let mut first: HashMap<Vec<u8>, u64> = HashMap::new();
        spool.each(|row, _| {
            if !compared.contains(&hash(table, row.key())) {
                return Ok(());
            }
            let what = What::Table(table);
            let unit = teller.called(what).1;
            match first.get(row.key()) {
                None => drop(first.insert(row.key().to_vec(), row.place())),
                Some(other) => findings.add(|| {
                    let key = teller.item(table, row.key());
                    let text =
                        format!("the key {key} is there already, from {unit} {other}; keys have to differ");
                    teller.finding(what, row, Some(&columns(&teller.map.tables[table].key)), text)
                }),
            }
            Ok(())
        })?;
    }
    findings.add_untold(twice.len().saturating_sub(COMPARED_MAX) as u64);
    Ok(())
}

/// What became of links that lead nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LeftOut {
    pub links: u64,
    pub items: u64,
}

/// Finds links that lead nowhere. They are findings, or links to be left out, or their items are taken out of
/// `keys`.
pub(crate) fn dangling(
    teller: &Teller<'_>,
    read: &Read,
    keys: &mut Keys,
    on_dangling: OnDangling,
    findings: &mut Findings,
) -> Result<LeftOut, Problem> {
    let mut left_out = LeftOut::default();
    // Mostly all are there, and then the rows need not be read again, nor the database be asked what it holds
    // equal.
    let all_there = keys.have(&read.targets);
    let mut led = LedNowhere { doubts: Vec::new(), all: false, findings };
    for list in &read.lists {
        dangling_in_list(teller, list, keys, &mut led, &mut left_out)?;
    }
    let lists_lead_nowhere = std::mem::take(&mut left_out).links > 0;
    if all_there && !lists_lead_nowhere {
        return Ok(left_out);
    }
    (led.doubts, led.all) = (doubts(teller)?, on_dangling == OnDangling::Error);
    if !led.all && !led.doubts.is_empty() {
        // What is doubtful is told before anything is left out for good reasons.
        dangling_in_tables(teller, read, keys, &mut led, &mut LeftOut::default())?;
        for list in &read.lists {
            dangling_in_list(teller, list, keys, &mut led, &mut LeftOut::default())?;
        }
        led.doubts.clear();
    }
    match all_there {
        true => {}
        false if on_dangling == OnDangling::Drop => left_out.items = drop_items(read, keys)?,
        false => dangling_in_tables(teller, read, keys, &mut led, &mut left_out)?,
    }
    for list in &read.lists {
        dangling_in_list(teller, list, keys, &mut led, &mut left_out)?;
    }
    Ok(left_out)
}

/// Tells links that lead nowhere: all of them, or those that lead somewhere perhaps.
struct LedNowhere<'f> {
    doubts: Vec<Doubt<'f>>,
    all: bool,
    findings: &'f mut Findings,
}

impl LedNowhere<'_> {
    /// Adds what is found, of a key by this template; `finding` is given what to do.
    fn add(&mut self, template: &Template, finding: impl FnOnce(&str) -> Finding) {
        let doubt = self.doubts.iter().find(|doubt| std::ptr::eq(doubt.template, template));
        if self.all || doubt.is_some() {
            self.findings.add(|| finding(doubt.map_or(WHAT_TO_DO, |doubt| &doubt.what_to_do)));
        }
    }
}

/// A template of keys that are compared by their texts, which may differ where the database holds the values
/// equal.
struct Doubt<'m> {
    template: &'m Template,
    what_to_do: String,
}

/// Finds the templates that may be so. Columns that a query makes of others are what was meant.
fn doubts<'m>(teller: &Teller<'m>) -> Result<Vec<Doubt<'m>>, Problem> {
    let map = teller.map;
    let forms = |what: What| teller.source.forms(what.relation(map));
    let tables: Vec<Forms> =
        (0..map.tables.len()).map(|table| forms(What::Table(table))).collect::<Result<_, _>>()?;
    let mut doubts = Vec::new();
    for (number, table) in map.tables.iter().enumerate() {
        let mut doubt = |own: &Forms, template: &'m Template, to: usize| {
            let named = &map.tables[to];
            let what_to_do = doubt(own, template, &tables[to], &named.key, &named.name);
            doubts.extend(what_to_do.map(|what_to_do| Doubt { template, what_to_do }));
        };
        for link in &table.links {
            doubt(&tables[number], &link.key, link.to);
        }
        for (list_number, list) in table.lists.iter().enumerate() {
            let own = forms(What::List(number, list_number))?;
            doubt(&own, &list.owner, number);
            doubt(&own, &list.key, list.to);
        }
    }
    Ok(doubts)
}

/// Why the columns of a template may be held equal to those of a key and have other texts, and what to do.
fn doubt(own: &Forms, template: &Template, there: &Forms, key: &Template, table: &str) -> Option<String> {
    template.columns().zip(key.columns()).find_map(|(column, other)| {
        let form = own.get(column)?;
        let known = there.get(other);
        let same = form.form.is_some() && known.is_none_or(|known| known.form == form.form);
        let called = known.map_or(String::new(), |known| format!(", {other} of {table} of the type {}", known.called));
        (!same).then(|| {
            format!(
                "{column} is of the type {}{called}, and the database may hold values equal whose texts differ: have the query give the \
                 text of the row that is meant, as `kelix map suggest` writes it, or cast {column}",
                form.called
            )
        })
    })
}

fn dangling_in_tables(
    teller: &Teller<'_>,
    read: &Read,
    keys: &Keys,
    led: &mut LedNowhere<'_>,
    left_out: &mut LeftOut,
) -> Result<(), Problem> {
    for (table, spool) in read.tables.iter().enumerate() {
        spool.each(|row, _| {
            for field in row.fields() {
                let Field::Link { name, table: to, key, .. } = field else { continue };
                if keys.has(hash(usize::from(to), key)) {
                    continue;
                }
                left_out.links += 1;
                dangling_link(teller, table, row, (name, usize::from(to), key), led);
            }
            Ok(())
        })?;
    }
    Ok(())
}

const WHAT_TO_DO: &str = "put the rows right, or load with --on-dangling null or drop";

fn dangling_link(
    teller: &Teller<'_>,
    table: usize,
    row: Row<'_>,
    (name, to, key): (u16, usize, &[u8]),
    led: &mut LedNowhere<'_>,
) {
    let own = &teller.map.tables[table];
    let link = own.links.iter().find(|link| link.to == to && name_number(own, &link.name) == name);
    let link = link.expect("a link of the map");
    led.add(&link.key, |what_to_do| {
        let item = teller.item(to, key);
        let text = format!("the link {} leads to {item}, which is not there; {what_to_do}", link.name);
        teller.finding(What::Table(table), row, Some(&columns(&link.key)), text)
    });
}

fn dangling_in_list(
    teller: &Teller<'_>,
    rows: &ListRows,
    keys: &Keys,
    led: &mut LedNowhere<'_>,
    left_out: &mut LeftOut,
) -> Result<(), Problem> {
    let what = What::List(rows.owner, rows.list);
    let owner = &teller.map.tables[rows.owner];
    let list = &owner.lists[rows.list];
    rows.spool.each(|row, _| {
        let own = !keys.has(hash(rows.owner, row.key()));
        let target = target(row).filter(|(table, key)| !keys.has(hash(*table, key)));
        left_out.links += u64::from(own || target.is_some());
        if own {
            led.add(&list.owner, |what_to_do| {
                let name = list_table(&owner.name, &list.name);
                let item = teller.item(rows.owner, row.key());
                let text = format!("{item}, to which this row of {name} belongs, is not there; {what_to_do}");
                teller.finding(what, row, Some(&columns(&list.owner)), text)
            });
        }
        if let Some((table, key)) = target {
            led.add(&list.key, |what_to_do| {
                let item = teller.item(table, key);
                let text =
                    format!("the list {} leads to {item}, which is not there; {what_to_do}", list.name);
                teller.finding(what, row, Some(&columns(&list.key)), text)
            });
        }
        Ok(())
    })
}

/// The target of a row of a list; none if a column of its key is null.
pub(crate) fn target(row: Row<'_>) -> Option<(usize, &[u8])> {
    row.fields().find_map(|field| match field {
        Field::Link { table, key, .. } => Some((usize::from(table), key)),
        Field::Bytes { .. } => None,
    })
}

/// Takes out the items with links that lead nowhere, then those with links to these, until there are no more.
fn drop_items(read: &Read, keys: &mut Keys) -> Result<u64, Problem> {
    let mut edges: Vec<(u64, u64)> = Vec::new();
    let mut dropped: Vec<u64> = Vec::new();
    for (table, spool) in read.tables.iter().enumerate() {
        spool.each(|row, _| {
            let own = hash(table, row.key());
            for field in row.fields() {
                let Field::Link { table: to, key, .. } = field else { continue };
                edges.push((hash(usize::from(to), key), own));
            }
            Ok(())
        })?;
    }
    edges.sort_unstable();
    for (target, own) in &edges {
        if !keys.has(*target) {
            dropped.push(*own);
        }
    }
    let mut count = 0;
    while let Some(item) = dropped.pop() {
        if !keys.take_out(item) {
            continue;
        }
        count += 1;
        let first = edges.partition_point(|(target, _)| *target < item);
        dropped.extend(edges[first..].iter().take_while(|(target, _)| *target == item).map(|(_, own)| *own));
    }
    Ok(count)
}
