//! `kelix scan`: the items of a table, those of an ordered one in the order of their keys.
//!
//! Items are printed as they come, so that a table of any size can be scanned, and whoever has seen enough
//! can stop reading.

use std::io::{BufWriter, Write};
use std::ops::Bound;

use kelix::{Item, Scan, Session, Table};
use serde_json::json;

use crate::Failure;
use crate::bytes::{Bytes, KeyArgument, show_key};
use crate::context::{Context, cost_json, measured, open_table};
use crate::items::{Named, TableNames, json as item_json, write_among};
use crate::kept::Lent;

/// Scan a table
///
/// Prints the items of an ordered table in the order of their keys: numbers by their size, byte strings byte
/// by byte; those of a hash table in any order, and only all of them or the first so many. A plain value is
/// printed as `key: value`; of an item with attributes the key, and below it one `name: value` a line. With
/// --json there is one object a line. No item is no error. The scan is not one moment of the table: a key
/// that is there all the while comes exactly once, one that is put or deleted meanwhile at most once.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix scan logins
  kelix scan logins --from 2026-03 --until 2026-04
  kelix scan logins --prefix user17: --keys-only
  kelix scan orders --backwards --limit 10
  kelix scan orders --after 1041 --json | jq -r .value
  kelix scan orders --from 1000 --to 1999 --count
  kelix scan orders --estimate
  kelix scan people --limit 10")]
pub(crate) struct ScanArgs {
    /// The table
    table: String,
    /// Leave out the keys below this one (see `kelix help syntax`)
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    from: Option<KeyArgument>,
    /// Leave out this key and those below it
    #[arg(long, value_name = "KEY", allow_negative_numbers = true, conflicts_with = "from")]
    after: Option<KeyArgument>,
    /// Leave out this key and those above it
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    until: Option<KeyArgument>,
    /// Leave out the keys above this one
    #[arg(long, value_name = "KEY", allow_negative_numbers = true, conflicts_with = "until")]
    to: Option<KeyArgument>,
    /// Leave out the keys that do not begin with these bytes
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    prefix: Option<Bytes>,
    /// End after so many items
    #[arg(long, value_name = "N", value_parser = crate::units::parse_count)]
    limit: Option<u64>,
    /// Begin with the greatest key
    #[arg(long)]
    backwards: bool,
    /// Print keys and nothing else, one a line
    #[arg(long, conflicts_with = "count")]
    keys_only: bool,
    /// Print only how many keys there are
    #[arg(long)]
    count: bool,
    /// Print only about how many keys there are, which takes no longer for many than for few
    #[arg(long, conflicts_with_all = ["count", "keys_only"])]
    estimate: bool,
}

/// The range that the options tell.
fn range(args: &ScanArgs, table: Named<'_>) -> Result<Scan, Failure> {
    let key = |key: &KeyArgument| table.key("scan", key);
    let mut scan = match &args.prefix {
        Some(_) if table.kind.has_numbers() => {
            let context = "the keys of this table are numbers, which have no prefix: give --from and --until";
            return Err(Failure::usage("scan", context));
        }
        Some(prefix) => Scan::prefix(&prefix.0),
        None => Scan::all(),
    };
    let lower = match (&args.from, &args.after) {
        (_, Some(after)) => Bound::Excluded(key(after)?),
        (Some(from), None) => Bound::Included(key(from)?),
        (None, None) => Bound::Unbounded,
    };
    let upper = match (&args.until, &args.to) {
        (_, Some(to)) => Bound::Included(key(to)?),
        (Some(until), None) => Bound::Excluded(key(until)?),
        (None, None) => Bound::Unbounded,
    };
    scan = scan.range((lower.as_ref(), upper.as_ref()));
    if args.backwards {
        scan = scan.backwards();
    }
    Ok(match args.limit {
        Some(keys) => scan.limit(keys),
        None => scan,
    })
}

pub(crate) fn run(context: &Context, args: &ScanArgs) -> Result<(), Failure> {
    let mut session = context.session()?;
    let table = open_table(&mut session, "scan", &args.table)?;
    let named = Named { name: &args.table, kind: table.kind() };
    let scan = range(args, named)?;
    if args.count || args.estimate {
        return count(context, &mut session, args, (table, &scan));
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut printer = Printer { context, args, table: named, names: TableNames::default(), asking: None };
    let mut items = session.scan(table, &scan)?;
    while let Some(item) = items.next_item()? {
        printer.print(&mut out, &item)?;
        if context.is_interrupted() {
            break;
        }
    }
    Ok(out.flush()?)
}

fn count(
    context: &Context,
    session: &mut Session,
    args: &ScanArgs,
    (table, scan): (Table, &Scan),
) -> Result<(), Failure> {
    let (count, cost) = measured(session, |session| {
        Ok(if args.estimate { session.estimate(table, scan)? } else { session.count(table, scan)? })
    })?;
    if context.json {
        let name = if args.estimate { "estimate" } else { "count" };
        return context.print_json(&json!({name: count, "cost": cost_json(cost)}));
    }
    Ok(writeln!(std::io::stdout(), "{count}")?)
}

/// Prints items one by one.
struct Printer<'a> {
    context: &'a Context,
    args: &'a ScanArgs,
    table: Named<'a>,
    names: TableNames,
    /// Looks up the names of tables that links lead to, because the scan has the other session for itself.
    /// Most scans meet no links.
    asking: Option<Lent>,
}

impl Printer<'_> {
    fn print(&mut self, out: &mut impl Write, item: &Item) -> Result<(), Failure> {
        let table = self.table;
        let key = || show_key(table.kind, item.key());
        match (self.args.keys_only, self.context.json) {
            (true, true) => writeln!(out, "{}", json!({"table": table.name, "key": key()}))?,
            (true, false) => writeln!(out, "{}", key())?,
            (false, json) => {
                self.names.learn_beside(&mut self.asking, self.context, item)?;
                match json {
                    true => writeln!(out, "{}", item_json(table, item, &self.names))?,
                    false => write_among(out, table.kind, item, &self.names)?,
                }
            }
        }
        Ok(())
    }
}
