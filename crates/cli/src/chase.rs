//! `kelix chase`: from an item along its links.
//!
//! The path is walked twice. The first walk meets tables whose attribute names this process has yet to read; the
//! second shows what each step costs a program that runs for longer, which is what `cost` tells.

use std::io::Write;

use kelix::{Attribute, Cost, Item, Session};
use serde_json::{Value, json};

use crate::bytes::{Bytes, show_name};
use crate::context::{Context, cost_json, cost_words, measured, plural};
use crate::items::{TableNames, json as item_json, missing_json, place, write_lines};
use crate::{Exit, Failure};

/// Follow links from an item
///
/// PATH is names of links with dots between them. The first link of each name is followed from the item that the
/// one before led to, and every item on the way is printed with what the step cost. A last name that ends in []
/// follows all links of this name in one batch. A target that does not exist ends the chase with exit code 1.
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
    key: Bytes,
    /// The links to follow, as in supervisor.department or courses.students[]
    path: String,
}

/// A target that a link named, and the item if it exists.
struct Target {
    table: String,
    key: Vec<u8>,
    item: Option<Item>,
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
fn targets(
    session: &mut Session,
    names: &mut TableNames,
    item: &Item,
    name: &str,
) -> Result<Vec<Target>, Failure> {
    let mut targets = Vec::new();
    for (of, attribute) in item.attributes() {
        if let (true, Attribute::Link { table, key, .. }) = (of == name, attribute) {
            let table = names.get(session, table)?.to_string();
            targets.push(Target { table, key: key.to_vec(), item: None });
        }
    }
    Ok(targets)
}

fn no_such_link(from: &Target, item: &Item, name: &str) -> Failure {
    let mut links: Vec<&str> = Vec::new();
    for (of, attribute) in item.attributes() {
        if matches!(attribute, Attribute::Link { .. }) && !links.contains(&of) {
            links.push(of);
        }
    }
    let has = if links.is_empty() { "none".to_string() } else { show_name(&links.join(", ")) };
    let place = place(&from.table, &from.key);
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
    let table = session.table(&args.table)?;
    let (item, cost) = measured(session, |session| Ok(session.get(table, &args.key.0)?))?;
    let first = Target { table: args.table.clone(), key: args.key.0.clone(), item };
    steps.push(Step { via: None, list: false, targets: vec![first], cost });
    for (index, name) in path.iter().enumerate() {
        let from = steps.last().and_then(|step| step.targets.first()).expect("each step before has one");
        let Some(item) = &from.item else { return Ok(()) };
        let list = list && index + 1 == path.len();
        let mut targets = targets(session, names, item, name)?;
        if targets.is_empty() {
            return Err(no_such_link(from, item, name));
        }
        let (items, cost) = measured(session, |session| match list {
            true => Ok(session.follow_all(item, name)?),
            false => Ok(vec![session.follow(item, name)?]),
        })?;
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
        let mut array = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let first_cost = first.get(index).map_or(step.cost, |first| first.cost);
            array.push(step_json(step, first_cost, &mut session, &mut names)?);
        }
        context.print_json(&Value::Array(array))?;
    } else {
        print(&steps, &mut session, &mut names)?;
    }
    result?;
    let gone: Vec<String> =
        steps.iter().flat_map(|step| step.targets.iter().filter_map(|target| gone(step, target))).collect();
    if gone.is_empty() { Ok(()) } else { Err(Failure::new(Exit::NotThere, "chase", gone.join(", "))) }
}

fn gone(step: &Step, target: &Target) -> Option<String> {
    let place = place(&target.table, &target.key);
    match (&target.item, &step.via) {
        (Some(_), _) => None,
        (None, None) => Some(format!("{place}: not there")),
        (None, Some(via)) => Some(format!("{place}, which link \"{}\" leads to: not there", show_name(via))),
    }
}

fn step_json(
    step: &Step,
    first_cost: Cost,
    session: &mut Session,
    names: &mut TableNames,
) -> Result<Value, Failure> {
    let mut items = Vec::with_capacity(step.targets.len());
    for target in &step.targets {
        items.push(match &target.item {
            Some(item) => item_json(&target.table, item, session, names)?,
            None => missing_json(&target.table, &target.key),
        });
    }
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
    Ok(object)
}

fn print(steps: &[Step], session: &mut Session, names: &mut TableNames) -> Result<(), Failure> {
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
            writeln!(out, "  {}", place(&target.table, &target.key))?;
            write_lines(&mut out, "    ", item, session, names)?;
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
