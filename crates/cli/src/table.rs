//! `kelix table`: the tables of a server, and what kinds of them there are.

use std::io::Write;

use kelix::{Table, TableKind};
use serde_json::{Value, json};

use crate::Failure;
use crate::bytes::show_name;
use crate::context::{Context, create_table_of};

/// Make and list tables
#[derive(clap::Subcommand)]
pub(crate) enum TableCommand {
    /// Make a table
    ///
    /// A table is a hash table, which finds items by their keys, or ordered, which can also scan them in the order of their
    /// keys. Does nothing if there is such a table; one of another kind is an error. `kelix put` makes the hash tables it
    /// needs by itself.
    #[command(after_long_help = "\
Examples:
  kelix table create people
  kelix table create logins --ordered
  kelix table create orders --ordered --keys u64
  kelix table create counters --ordered --keys u64 --values inline8")]
    Create(CreateArgs),
    /// List the tables, one a line
    ///
    /// Hash tables come first, in the order of their making. Then each kind of ordered tables: after the name come a tab and
    /// the kind.
    #[command(after_long_help = "\
Examples:
  kelix table list
  kelix table list --json | jq -c '.kinds[]'")]
    List,
}

#[derive(clap::Args)]
pub(crate) struct CreateArgs {
    /// Its name: 1 to 255 bytes, without /
    table: String,
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

impl CreateArgs {
    fn kind(&self) -> Result<TableKind, Failure> {
        match (self.ordered, self.keys.unwrap_or(Keys::Bytes), self.values.unwrap_or(Values::Any)) {
            (false, ..) => Ok(TableKind::Hash),
            (true, Keys::U64, Values::Inline8) => Ok(TableKind::Inline),
            (true, Keys::U64, Values::Any) => Ok(TableKind::Numbers),
            (true, Keys::Bytes, Values::Any) => Ok(TableKind::Strings),
            (true, Keys::Bytes, Values::Inline8) => {
                let context = "--values inline8 needs --keys u64: a key that is a byte string is proven by its item, and \
                               a value that stands beside its key has none";
                Err(Failure::usage("table create", context))
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
    }
}

fn create(context: &Context, args: &CreateArgs) -> Result<(), Failure> {
    let kind = args.kind()?;
    let mut session = context.session()?;
    let table = create_table_of(&mut session, "table create", kind, &args.table)?;
    if !context.json {
        return Ok(());
    }
    let mut object = table_json(table);
    object["table"] = json!(args.table);
    context.print_json(&object)
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
