//! `kelix walk`: from an item along its links, and on along theirs.

use std::io::Write;
use std::ops::ControlFlow;

use kelix::{Cost, Item, Session, Visit, Walk, Walked};
use serde_json::json;

use crate::bytes::{AttributeArgument, KeyArgument, show_name};
use crate::context::{Context, cost_json, cost_words, measured, open_table, plural, say};
use crate::items::{Named, TableNames, json as item_json, write_lines};
use crate::{Exit, Failure};

/// Walk along links from an item
///
/// From the item, along its links of these names, to others, and on along theirs, breadth-first: each item
/// that is come to is printed once, with how many links away it is. Whole frontiers are read at once. A key
/// that is absent ends with exit code 1.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix walk people ada friend --depth 2
  kelix walk people ada friend --where name=Grace --limit 1 --items
  kelix walk roads a to --depth-first --json | jq -r '.items[].key'
  kelix walk people person:1 followers next item --depth 5

Lists of links that `kelix load` makes stand in chunks: followers leads to the first, next to the one after it, item to who is in it.")]
pub(crate) struct WalkArgs {
    /// The table of the first item
    table: String,
    /// The key of the first item (see `kelix help syntax`)
    #[arg(allow_negative_numbers = true)]
    key: KeyArgument,
    /// Names of the links to go along
    #[arg(required = true, value_name = "LINK")]
    links: Vec<String>,
    /// So many links from the first item at most [default: as far as they lead]
    #[arg(long, value_name = "LINKS", value_parser = crate::units::within::<u32>(0, u32::MAX.into()))]
    depth: Option<u32>,
    /// On along the first link before the second one is looked at
    #[arg(long)]
    depth_first: bool,
    /// Print only items with this attribute; may be given several times (the walk goes on from others, too)
    #[arg(long = "where", value_name = "NAME=VALUE")]
    filter: Vec<AttributeArgument>,
    /// End when so many have been printed
    #[arg(long, value_name = "ITEMS", value_parser = crate::units::parse_some)]
    limit: Option<u64>,
    /// Tell what was visited and what it cost on standard error
    #[arg(long, conflicts_with = "json")]
    explain: bool,
    /// Print attributes and links, too
    #[arg(long, conflicts_with = "json")]
    items: bool,
}

/// An item that is to be printed.
struct Come {
    item: Item,
    depth: u32,
}

impl WalkArgs {
    fn takes(&self, item: &Item) -> bool {
        self.filter.iter().all(|wanted| item.bytes(&wanted.name) == Some(&wanted.value[..]))
    }
}

/// Walks, and keeps what is to be printed.
fn walk(session: &mut Session, args: &WalkArgs) -> Result<(Vec<Come>, Walked, Vec<String>), Failure> {
    let table = open_table(session, "walk", &args.table)?;
    let key = Named { name: &args.table, kind: table.kind() }.key("walk", &args.key)?;
    let links: Vec<&str> = args.links.iter().map(String::as_str).collect();
    let walk = Walk::along(&links).to_depth(args.depth.unwrap_or(u32::MAX));
    let walk = if args.depth_first { walk.depth_first() } else { walk };
    let mut come = Vec::new();
    let mut unseen = links.clone();
    let walked = session.walk(&[(table, &key)], &walk, |visited| {
        unseen.retain(|name| visited.item.links(name).next().is_none());
        if args.takes(visited.item) {
            come.push(Come { item: visited.item.clone(), depth: visited.depth });
        }
        if args.limit == Some(come.len() as u64) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(Visit::On)
        }
    })?;
    if walked.items == 0 {
        let place = Named { name: &args.table, kind: table.kind() }.place(&key);
        return Err(Failure::new(Exit::NotThere, "walk", format!("{place}: not there")));
    }
    // A walk that ended early may have met the link later.
    let is_whole = args.depth != Some(0) && args.limit != Some(come.len() as u64);
    let unseen = unseen.into_iter().filter(|_| is_whole).map(show_name).collect();
    Ok((come, walked, unseen))
}

pub(crate) fn run(context: &Context, args: &WalkArgs) -> Result<(), Failure> {
    let mut session = context.session()?;
    let ((come, walked, unseen), cost) = measured(&mut session, |session| walk(session, args))?;
    let mut names = TableNames::default();
    for Come { item, .. } in &come {
        names.learn_own(&mut session, item)?;
        names.learn(&mut session, item)?;
    }
    if context.json {
        let items = come.iter().map(|Come { item, depth }| {
            let mut object = item_json(names.get(item.table()), item, &names);
            object["depth"] = json!(depth);
            object
        });
        let items: Vec<_> = items.collect();
        let (visited, gone) = (walked.items, walked.gone);
        context.print_json(
            &json!({"items": items, "visited": visited, "gone": gone, "cost": cost_json(cost)}),
        )?;
    } else {
        print(args, &come, &names)?;
        if args.explain {
            say(&summary(walked, cost));
        }
    }
    if unseen.is_empty() {
        return Ok(());
    }
    let context = format!("none of the items visited has a link \"{}\"", unseen.join("\" or \""));
    Err(Failure::new(Exit::NotThere, "walk", context).named(kelix::ErrorKind::NoSuchAttribute.name()))
}

fn print(args: &WalkArgs, come: &[Come], names: &TableNames) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for Come { item, depth } in come {
        let table = names.get(item.table());
        writeln!(out, "{depth} {}", table.place(item.key()))?;
        if args.items {
            write_lines(&mut out, "    ", table.kind, item, names)?;
        }
    }
    Ok(out.flush()?)
}

fn summary(walked: Walked, cost: Cost) -> String {
    let visited = plural(walked.items as u64, "item");
    let gone = match walked.gone {
        0 => String::new(),
        1 => ", 1 link leads nowhere".to_string(),
        gone => format!(", {gone} links lead nowhere"),
    };
    format!("{visited} visited{gone} ({})", cost_words(cost))
}
