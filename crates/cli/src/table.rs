//! `kelix table`: the tables of a server, what kinds of them there are, and their items as a whole.

mod export;
mod import;
mod record;

use std::io::{IsTerminal, Write};

use kelix::{Scan, Session, Table, TableKind};
use serde_json::{Value, json};

use crate::bytes::show_name;
use crate::context::{Context, create_table, create_table_of, open_table, plural};
use crate::{Exit, Failure};

/// Make, list, describe, drop, export and import tables
#[derive(clap::Subcommand)]
pub(crate) enum TableCommand {
    /// Make a table
    ///
    /// A table is a hash table, which finds items by their keys, or ordered, which can also scan them in the
    /// order of their keys. Does nothing if there is such a table; one of another kind is an error. `kelix
    /// put` makes the hash tables it needs by itself.
    #[command(after_long_help = "\
Examples:
  kelix table create people
  kelix table create logins --ordered
  kelix table create orders --ordered --keys u64
  kelix table create counters --ordered --keys u64 --values inline8")]
    Create(CreateArgs),
    /// List the tables, one a line
    ///
    /// Hash tables come first, in the order of their making. Then each kind of ordered tables: after the name
    /// come a tab and the kind.
    #[command(after_long_help = "\
Examples:
  kelix table list
  kelix table list --json | jq -c '.kinds[]'")]
    List,
    /// Tell what a table is: its kind, how many items it has, and which attributes
    #[command(after_long_help = "\
Examples:
  kelix table describe people
  kelix table describe people --json")]
    Describe(NameArgs),
    /// Drop a table with all that is in it
    ///
    /// Its name is free at once, and the memory of its items comes back within moments. Whoever opened it
    /// before can do nothing more with it. In a terminal it is asked first whether that is meant. A loaded
    /// table goes with its dataset only, which --dataset drops with all of its tables.
    #[command(after_long_help = "\
Examples:
  kelix table drop people
  kelix table drop people --yes
  kelix table drop --dataset company")]
    Drop(DropArgs),
    /// Write all items of a table into a file, or to standard output
    ///
    /// With a file it shows progress, and an export that was ended goes on when it is begun again. It is not
    /// one moment of the table: an item that is there all the while comes exactly once, one that is put or
    /// deleted meanwhile at most once.
    #[command(after_long_help = "\
Examples:
  kelix table export people people.jsonl
  kelix table export people people.csv
  kelix table export people | gzip >people.jsonl.gz

What stands in the file, and what CSV cannot hold: docs/command-line.md")]
    Export(export::ExportArgs),
    /// Put all items of a file, or of standard input, into a table
    ///
    /// Items whose keys are there already are replaced, all others stay. It shows progress. A line that makes
    /// no sense ends it and is named; once that is mended it goes on there when it is begun again, as after
    /// any other end.
    #[command(after_long_help = "\
Examples:
  kelix table import people people.jsonl
  kelix table import cities cities.csv --key name
  kelix table import orders orders.csv --ordered --keys u64
  zcat people.jsonl.gz | kelix table import people")]
    Import(import::ImportArgs),
}

#[derive(clap::Args)]
pub(crate) struct NameArgs {
    /// Its name
    table: String,
}

#[derive(clap::Args)]
pub(crate) struct DropArgs {
    /// Its name
    #[arg(required_unless_present = "dataset", conflicts_with = "dataset", default_value = "")]
    table: String,
    /// Drop a dataset that was loaded: its tables' names are free at once, and what is in them goes when
    /// nobody reads it any more
    #[arg(long, value_name = "NAME")]
    dataset: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(clap::Args)]
pub(crate) struct CreateArgs {
    /// Its name: 1 to 255 bytes, without /
    table: String,
    #[command(flatten)]
    kind: KindArgs,
}

/// What kind of table it is.
#[derive(clap::Args)]
pub(crate) struct KindArgs {
    /// Keep its keys in order, for `kelix scan`
    #[arg(long)]
    ordered: bool,
    /// What its keys are [default: bytes]
    #[arg(long, value_enum, requires = "ordered", value_name = "WHAT")]
    keys: Option<Keys>,
    /// What its values are [default: any]
    #[arg(long, value_enum, requires = "ordered", value_name = "WHAT")]
    values: Option<Values>,
}

/// What the keys of an ordered table are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Keys {
    /// Byte strings, in the order of their bytes
    Bytes,
    /// Numbers from 0 to 2^64-1
    U64,
}

/// What its values are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Values {
    /// Items: bytes of any length, attributes, links
    Any,
    /// Numbers of 8 bytes, which stand beside their keys; keys have to be u64
    Inline8,
}

impl KindArgs {
    /// The kind, if there is such a one.
    pub fn kind(&self, operation: &str) -> Result<TableKind, Failure> {
        match (self.ordered, self.keys.unwrap_or(Keys::Bytes), self.values.unwrap_or(Values::Any)) {
            (false, ..) => Ok(TableKind::Hash),
            (true, Keys::U64, Values::Inline8) => Ok(TableKind::Inline),
            (true, Keys::U64, Values::Any) => Ok(TableKind::Numbers),
            (true, Keys::Bytes, Values::Any) => Ok(TableKind::Strings),
            (true, Keys::Bytes, Values::Inline8) => {
                let context = "--values inline8 needs --keys u64: a key that is a byte string is proven by its item, and \
                               a value that stands beside its key has none";
                Err(Failure::usage(operation, context))
            }
        }
    }
}

/// A table's number, and its kind in the words in which `table create` takes it.
fn table_json(table: Table) -> Value {
    let kind = table.kind();
    json!({
        "id": table.id().0,
        "kind": if kind.is_ordered() { "ordered" } else { "hash" },
        "keys": if kind.has_numbers() { "u64" } else { "bytes" },
        "values": if kind.has_items() { "any" } else { "inline8" },
    })
}

pub(crate) fn run(context: &Context, command: &TableCommand) -> Result<(), Failure> {
    match command {
        TableCommand::Create(args) => create(context, args),
        TableCommand::List => list(context),
        TableCommand::Describe(args) => describe(context, args),
        TableCommand::Drop(args) => drop_table(context, args),
        TableCommand::Export(args) => export::run(context, args),
        TableCommand::Import(args) => import::run(context, args),
    }
}

fn create(context: &Context, args: &CreateArgs) -> Result<(), Failure> {
    let kind = args.kind.kind("table create")?;
    let mut session = context.session()?;
    let table = create_table_of(&mut session, "table create", kind, &args.table)?;
    if !context.json {
        return Ok(());
    }
    let mut object = table_json(table);
    object["table"] = json!(args.table);
    context.print_json(&object)
}

/// Opens a table, or makes it. One that is there is taken as it is, unless another kind was asked for.
fn open_or_create(
    session: &mut Session,
    operation: &str,
    kind: &KindArgs,
    name: &str,
) -> Result<Table, Failure> {
    if kind.ordered {
        create_table_of(session, operation, kind.kind(operation)?, name)
    } else {
        create_table(session, operation, name)
    }
}

fn describe(context: &Context, args: &NameArgs) -> Result<(), Failure> {
    let mut session = context.session()?;
    let table = open_table(&mut session, "table describe", &args.table)?;
    let items = session.count(table, &Scan::all())?;
    let attributes = session.attribute_names(table)?;
    let mut object = table_json(table);
    if context.json {
        object["table"] = json!(args.table);
        object["items"] = json!(items);
        object["attributes"] = json!(attributes);
        return context.print_json(&object);
    }
    let mut out = std::io::stdout().lock();
    let word = |name: &str| object[name].as_str().unwrap_or_default().to_string();
    writeln!(out, "{}", show_name(&args.table))?;
    writeln!(out, "  kind:       {}", word("kind"))?;
    writeln!(out, "  keys:       {}", word("keys"))?;
    writeln!(out, "  values:     {}", word("values"))?;
    writeln!(out, "  items:      {items}")?;
    if !attributes.is_empty() {
        let names: Vec<String> = attributes.iter().map(|name| show_name(name)).collect();
        writeln!(out, "  attributes: {}", names.join(", "))?;
    }
    Ok(())
}

fn drop_table(context: &Context, args: &DropArgs) -> Result<(), Failure> {
    const OPERATION: &str = "table drop";
    let mut session = context.session()?;
    if let Some(dataset) = &args.dataset {
        ask_about(context, args.yes, || {
            Ok(format!("the dataset \"{}\" with all of its tables", show_name(dataset)))
        })?;
        if !session.drop_dataset(dataset)? {
            let context = format!("there is no dataset \"{dataset}\"");
            return Err(Failure::new(Exit::NotThere, OPERATION, context));
        }
        return if context.json { context.print_json(&json!({"dropped": dataset})) } else { Ok(()) };
    }
    let table = open_table(&mut session, OPERATION, &args.table)?;
    ask_about(context, args.yes, || {
        let items = session.estimate(table, &Scan::all())?;
        Ok(format!("\"{}\" with {}", show_name(&args.table), plural(items, "item")))
    })?;
    if !session.drop_table(&args.table)? {
        let context = format!("there is no table \"{}\"", args.table);
        return Err(Failure::new(Exit::NotThere, OPERATION, context));
    }
    if context.json { context.print_json(&json!({"dropped": args.table})) } else { Ok(()) }
}

/// Asks in a terminal whether something is to be dropped. `what` is looked at only there.
fn ask_about(
    context: &Context,
    yes: bool,
    what: impl FnOnce() -> Result<String, Failure>,
) -> Result<(), Failure> {
    if yes || context.json || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    write!(std::io::stderr(), "drop {}? [y/N] ", what()?)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(Exit::Other, "table drop", "nothing was dropped")),
    }
}

fn list(context: &Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let names = session.tables()?;
    let mut tables = Vec::with_capacity(names.len());
    for name in &names {
        tables.push(session.table(name)?);
    }
    if context.json {
        let object = |(name, table): (&String, &Table)| {
            let mut object = table_json(*table);
            object["name"] = json!(name);
            object
        };
        let kinds: Vec<Value> = names.iter().zip(&tables).map(object).collect();
        return context.print_json(&json!({"tables": names, "kinds": kinds}));
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for (name, table) in names.iter().zip(&tables) {
        let (name, kind) = (show_name(name), table.kind());
        if kind.is_ordered() { writeln!(out, "{name}\t{kind}")? } else { writeln!(out, "{name}")? }
    }
    Ok(out.flush()?)
}
