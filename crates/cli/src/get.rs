//! `kelix get`: items by key.

use std::io::Write;

use kelix::{Cost, Item, Path, Session, Table};
use serde_json::json;

use crate::bytes::{Bytes, show};
use crate::context::{Context, cost_json, cost_words, measured, say};
use crate::items::{TableNames, is_plain, json as item_json, missing_json, place, write_lines};
use crate::{Exit, Failure};

/// Get items by key
///
/// A plain value is printed as its bytes and a line feed. An item with attributes is printed as one `name: value`
/// a line, its links as `name -> table/key`. Several keys are looked up in one batch, whose memory accesses overlap;
/// a plain value is then printed as `key: value`. Keys that are absent are named on standard error, and the exit
/// code is 1.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix get people stu001
  kelix get people stu001 stu002 --json
  kelix get photos hex:00ff10 --raw > photo.jpg
  kelix get people stu001 --path message --explain

Costs are measured on a repetition, as in a program that runs for longer: the first get of a process also reads \
the index's directory and the attributes' names. `first_cost` of --json counts those.")]
pub(crate) struct GetArgs {
    /// The table
    table: String,
    /// The keys (see `kelix help syntax`)
    #[arg(required = true, allow_negative_numbers = true)]
    keys: Vec<Bytes>,
    /// How to look the items up
    #[arg(long, value_enum, default_value_t = PathArgument::Auto)]
    path: PathArgument,
    /// Print the plain values' bytes and nothing else
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Tell versions and costs on standard error
    #[arg(long, conflicts_with = "json")]
    explain: bool,
}

/// How gets look for their item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum PathArgument {
    /// What is cheapest on the fabric in use
    Auto,
    /// A cached pointer if there is one (one remote read), else the index
    Pointer,
    /// The hash index (two remote reads)
    Index,
    /// A message to the server
    Message,
}

impl From<PathArgument> for Path {
    fn from(path: PathArgument) -> Path {
        match path {
            PathArgument::Auto => Path::Auto,
            PathArgument::Pointer => Path::Pointer,
            PathArgument::Index => Path::Index,
            PathArgument::Message => Path::Message,
        }
    }
}

/// What was looked up, and what it cost.
struct Looked {
    items: Vec<Option<Item>>,
    cost: Cost,
    first_cost: Cost,
}

fn look_up(session: &mut Session, table: Table, keys: &[Bytes], measure: bool) -> Result<Looked, Failure> {
    let mut fetch = || {
        measured(session, |session| match keys {
            [key] => Ok(vec![session.get(table, &key.0)?]),
            keys => {
                let keys: Vec<&[u8]> = keys.iter().map(|key| &key.0[..]).collect();
                Ok(session.multi_get(table, &keys)?)
            }
        })
    };
    let (items, first_cost) = fetch()?;
    if !measure {
        return Ok(Looked { items, cost: first_cost, first_cost });
    }
    let (items, cost) = fetch()?;
    Ok(Looked { items, cost, first_cost })
}

pub(crate) fn run(context: &Context, args: &GetArgs) -> Result<(), Failure> {
    let mut session = context.session_by(args.path.into())?;
    let table = session.table(&args.table)?;
    let looked = look_up(&mut session, table, &args.keys, context.json || args.explain)?;
    if context.json {
        print_json(context, args, &looked, &mut session)?;
    } else {
        print(args, &looked, &mut session)?;
    }
    let missing: Vec<String> = args
        .keys
        .iter()
        .zip(&looked.items)
        .filter(|(_, item)| item.is_none())
        .map(|(key, _)| format!("{}: not there", place(&args.table, &key.0)))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(Failure::new(Exit::NotThere, "get", missing.join(", "))) }
}

fn print_json(
    context: &Context,
    args: &GetArgs,
    looked: &Looked,
    session: &mut Session,
) -> Result<(), Failure> {
    let mut names = TableNames::default();
    let mut objects = Vec::with_capacity(args.keys.len());
    for (key, item) in args.keys.iter().zip(&looked.items) {
        objects.push(match item {
            Some(item) => item_json(&args.table, item, session, &mut names)?,
            None => missing_json(&args.table, &key.0),
        });
    }
    let (cost, first_cost) = (cost_json(looked.cost), cost_json(looked.first_cost));
    if args.keys.len() > 1 {
        return context.print_json(&json!({"items": objects, "cost": cost, "first_cost": first_cost}));
    }
    // A single key that is absent has only its error to show.
    match (objects.pop(), &looked.items[..]) {
        (Some(mut object), [Some(_)]) => {
            object["cost"] = cost;
            object["first_cost"] = first_cost;
            context.print_json(&object)
        }
        _ => Ok(()),
    }
}

fn print(args: &GetArgs, looked: &Looked, session: &mut Session) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut names = TableNames::default();
    let single = args.keys.len() == 1;
    for item in looked.items.iter().flatten() {
        match (is_plain(item), single) {
            _ if args.raw => out.write_all(raw(args, item)?)?,
            (true, true) => {
                out.write_all(item.value())?;
                out.write_all(b"\n")?;
            }
            (true, false) => writeln!(out, "{}: {}", show(item.key()), show(item.value()))?,
            (false, true) => write_lines(&mut out, "", item, session, &mut names)?,
            (false, false) => {
                writeln!(out, "{}", show(item.key()))?;
                write_lines(&mut out, "  ", item, session, &mut names)?;
            }
        }
    }
    out.flush()?;
    if args.explain {
        for item in looked.items.iter().flatten() {
            say(&format!("{}: version {}", place(&args.table, item.key()), item.version().0));
        }
        say(&cost_words(looked.cost));
    }
    Ok(())
}

/// The bytes of a plain value, or of the value without a name beside attributes.
fn raw<'a>(args: &GetArgs, item: &'a Item) -> Result<&'a [u8], Failure> {
    if is_plain(item) || item.bytes("").is_some() {
        return Ok(item.value());
    }
    let context = format!(
        "{} has attributes and no plain value; leave out --raw, or take --json",
        place(&args.table, item.key())
    );
    Err(Failure::usage("get", context))
}
