//! `kelix chase`: from an item along its links.
//!
//! The path is walked twice. The first walk meets tables whose attribute names this process has yet to read;
//! the second shows what each step costs a program that runs for longer, which is what `cost` tells.

use std::io::Write;

use kelix::{Attribute, Cost, Item, Link, Session, TableKind};
use serde_json::{Value, json};

use crate::bytes::{KeyArgument, show_name};
use crate::context::{Context, cost_json, cost_words, measured, open_table, plural, some_of};
use crate::items::{Named, TableNames, json as item_json, missing_json, write_lines};
use crate::{Exit, Failure};

/// Follow links from an item
///
/// PATH is names of links with dots between them. The first link of each name is followed from the item that
/// the one before led to, and every item on the way is printed with what the step cost. A last name that ends
/// in [] follows all links of this name in one batch. A target that does not exist ends the chase with exit
/// code 1.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix chase people stu001 supervisor.department
  kelix chase departments depcs 'courses[]'
  kelix chase people stu001 supervisor.department --json | jq '.[].cost'

Costs are measured on a second walk, as in a program that runs for longer: the first one also reads the index's \
directory and the attributes' names. `first_cost` of --json counts those. Names with a dot cannot be chased.")]
pub(crate) struct ChaseArgs {
    /// The table of the first item
    table: String,
    /// The key of the first item (see `kelix help syntax`)
    #[arg(allow_negative_numbers = true)]
    key: KeyArgument,
    /// The links to follow, as in supervisor.department or courses.students[]
    path: String,
}

/// A target that a link named, and the item if it exists.
struct Target {
    table: String,
    kind: TableKind,
    key: Vec<u8>,
    item: Option<Item>,
}

impl Target {
    fn table(&self) -> Named<'_> {
        Named { name: &self.table, kind: self.kind }
    }

    fn place(&self) -> String {
        self.table().place(&self.key)
    }
}

/// One step: by which link, to which items, at which cost.
struct Step {
    /// `None`: the first item, which was looked up by its key.
    via: Option<String>,
    list: bool,
    targets: Vec<Target>,
    cost: Cost,
}

/// Splits a path into names; whether the last one is a list.
fn parse_path(path: &str) -> Result<(Vec<&str>, bool), Failure> {
    let (path, list) = path.strip_suffix("[]").map_or((path, false), |path| (path, true));
    let names: Vec<&str> = path.split('.').collect();
    let context = if names.iter().any(|name| name.is_empty()) {
        "a path is names of links with dots between them, as in supervisor.department"
    } else if names.iter().any(|name| name.ends_with("[]")) {
        "only the last name of a path can be a list, because a list leads to many items"
    } else {
        return Ok((names, list));
    };
    Err(Failure::usage("chase", context))
}

/// The targets that an item's links of one name lead to.
fn targets(names: &TableNames, item: &Item, name: &str) -> Vec<Target> {
    let target = |(of, attribute)| match attribute {
        Attribute::Link(Link { table, key, .. }) if of == name => {
            let Named { name, kind } = names.get(table);
            Some(Target { table: name.to_string(), kind, key: key.to_vec(), item: None })
        }
        _ => None,
    };
    item.attributes().into_iter().filter_map(target).collect()
}

fn no_such_link(from: &Target, item: &Item, name: &str) -> Failure {
    let mut links: Vec<&str> = Vec::new();
    for (of, attribute) in item.attributes() {
        if matches!(attribute, Attribute::Link(_)) && !links.contains(&of) {
            links.push(of);
        }
    }
    let has = if links.is_empty() { "none".to_string() } else { show_name(&links.join(", ")) };
    let place = from.place();
    let context = format!("{place} has no link \"{}\"; its links: {has}", show_name(name));
    Failure::new(Exit::NotThere, "chase", context).named(kelix::ErrorKind::NoSuchAttribute.name())
}

/// Walks the path, and stops early at a target that does not exist. Steps taken before a failure are kept.
fn walk(
    session: &mut Session,
    names: &mut TableNames,
    args: &ChaseArgs,
    path: &[&str],
    list: bool,
    steps: &mut Vec<Step>,
) -> Result<(), Failure> {
    let table = open_table(session, "chase", &args.table)?;
    let kind = table.kind();
    let key = Named { name: &args.table, kind }.key("chase", &args.key)?;
    let (item, cost) = measured(session, |session| Ok(session.get(table, &key)?))?;
    item.iter().try_for_each(|item| names.learn(session, item))?;
    let first = Target { table: args.table.clone(), kind, key, item };
    steps.push(Step { via: None, list: false, targets: vec![first], cost });
    for (index, name) in path.iter().enumerate() {
        let from = steps.last().and_then(|step| step.targets.first()).expect("each step before has one");
        let Some(item) = &from.item else { return Ok(()) };
        let list = list && index + 1 == path.len();
        let mut targets = targets(names, item, name);
        if targets.is_empty() {
            return Err(no_such_link(from, item, name));
        }
        let (items, cost) = measured(session, |session| match list {
            true => Ok(session.follow_all(item, name)?),
            false => Ok(vec![session.follow(item, name)?]),
        })?;
        items.iter().flatten().try_for_each(|item| names.learn(session, item))?;
        targets.truncate(items.len());
        for (target, item) in targets.iter_mut().zip(items) {
            target.item = item;
        }
        steps.push(Step { via: Some(name.to_string()), list, targets, cost });
    }
    Ok(())
}

pub(crate) fn run(context: &Context, args: &ChaseArgs) -> Result<(), Failure> {
    let (path, list) = parse_path(&args.path)?;
    let mut session = context.session()?;
    let mut names = TableNames::default();
    let (mut first, mut steps) = (Vec::new(), Vec::new());
    // What ends the first walk early ends the second one too, which reports it.
    let _ = walk(&mut session, &mut names, args, &path, list, &mut first);
    let result = walk(&mut session, &mut names, args, &path, list, &mut steps);
    if context.json {
        let object = |(index, step): (usize, &Step)| {
            let first_cost = first.get(index).map_or(step.cost, |first| first.cost);
            step_json(step, first_cost, &names)
        };
        context.print_json(&steps.iter().enumerate().map(object).collect())?;
    } else {
        print(&steps, &names)?;
    }
    result?;
    let gone: Vec<String> =
        steps.iter().flat_map(|step| step.targets.iter().filter_map(|target| gone(step, target))).collect();
    if gone.is_empty() { Ok(()) } else { Err(Failure::new(Exit::NotThere, "chase", some_of(&gone))) }
}

fn gone(step: &Step, target: &Target) -> Option<String> {
    let place = target.place();
    match (&target.item, &step.via) {
        (Some(_), _) => None,
        (None, None) => Some(format!("{place}: not there")),
        (None, Some(via)) => Some(format!("{place}, which link \"{}\" leads to: not there", show_name(via))),
    }
}

fn step_json(step: &Step, first_cost: Cost, names: &TableNames) -> Value {
    let json = |target: &Target| match &target.item {
        Some(item) => item_json(target.table(), item, names),
        None => missing_json(target.table(), &target.key),
    };
    let mut items: Vec<Value> = step.targets.iter().map(json).collect();
    let mut object = match items.pop() {
        Some(item) if !step.list => item,
        last => {
            items.extend(last);
            json!({"items": items})
        }
    };
    object["via"] = json!(step.via);
    object["cost"] = cost_json(step.cost);
    object["first_cost"] = cost_json(first_cost);
    object
}

fn print(steps: &[Step], names: &TableNames) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for step in steps {
        let cost = cost_words(step.cost);
        match (&step.via, step.list) {
            (Some(via), true) => {
                writeln!(
                    out,
                    "{}[] -> {} ({cost})",
                    show_name(via),
                    plural(step.targets.len() as u64, "item")
                )?;
            }
            (Some(via), false) => writeln!(out, "{} -> ({cost})", show_name(via))?,
            (None, _) => writeln!(out, "by key ({cost})")?,
        }
        for target in &step.targets {
            let Some(item) = &target.item else { continue };
            writeln!(out, "  {}", target.place())?;
            write_lines(&mut out, "    ", target.kind, item, names)?;
        }
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(parse_path("a.b").unwrap(), (vec!["a", "b"], false));
        assert_eq!(parse_path("a.b[]").unwrap(), (vec!["a", "b"], true));
        assert_eq!(parse_path("a[]").unwrap(), (vec!["a"], true));
        for wrong in ["", ".", "a.", ".a", "a..b", "[]", "a[].b", "a[][]"] {
            assert!(parse_path(wrong).is_err(), "{wrong}");
        }
    }
}
