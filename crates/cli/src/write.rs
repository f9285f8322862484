//! `kelix put` and `kelix del`: the writes.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelix::{CompareAndSet, NewItem, Session, Version};
use serde_json::json;

use crate::bytes::{AttributeArgument, KeyArgument, LinkArgument, parse};
use crate::context::{Context, cost_json, create_table, measured, open_table};
use crate::items::Named;
use crate::units::{parse_expiry, parse_flags, parse_version};
use crate::{Exit, Failure};

/// Put an item
///
/// The item is a plain value, or attributes and links, or both; it replaces what the key had before. The
/// table, and the tables that links lead to, are made if they do not exist; the items that links lead to need
/// not exist yet. The item's new version is printed, for --if-version. When it fails with `effect` unknown,
/// the put may still have happened.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix put colours red '#ff0000'
  kelix put departments depcs --attr website=www.cs.ac.co
  kelix put people prof001 --attr name=UVT --link department=departments/depcs
  kelix put roads a --link to=roads/b=u64:120 --link to=roads/c=u64:75
  kelix put photos hex:00ff10 --file photo.jpg
  kelix put counters 42 1000000
  pg_dump shop | kelix put dumps shop --file - --expires 2h
  gzip < page.html | kelix put pages home --file - --flags 0x1
  kelix put colours red '#f00' --if-version \"$(kelix get colours red --json | jq -r .version)\"
  kelix put locks nightly \"$HOSTNAME\" --if-absent --expires 10m")]
pub(crate) struct PutArgs {
    /// The table
    table: String,
    /// The key (see `kelix help syntax`)
    #[arg(allow_negative_numbers = true)]
    key: KeyArgument,
    /// The value (see `kelix help syntax`); - reads standard input
    #[arg(allow_negative_numbers = true)]
    value: Option<String>,
    /// An attribute; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    attr: Vec<AttributeArgument>,
    /// A link to another item, with bytes of its own if wanted; several under one name make a list
    #[arg(long, value_name = "NAME=TABLE/KEY[=BYTES]")]
    link: Vec<LinkArgument>,
    /// Read the value from a file, byte by byte; - is standard input
    #[arg(long, value_name = "PATH", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Let the item end after this time: 500ms, 30s, 5m, 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_expiry)]
    expires: Option<Duration>,
    /// Flags of 32 bits for those who get the item, as memcached has them: 5, 0x80000001
    #[arg(long, value_name = "BITS", value_parser = parse_flags, default_value_t = 0, hide_default_value = true)]
    flags: u32,
    /// Put only if the key still has this version
    #[arg(long, value_name = "VERSION", conflicts_with = "if_absent", value_parser = parse_version)]
    if_version: Option<u64>,
    /// Put only if the key is absent
    #[arg(long)]
    if_absent: bool,
    /// Come back when it is on the server's disk, also where the server answers sooner (serve --wal)
    #[arg(long)]
    durable: bool,
}

/// Delete an item
///
/// A key that is absent is an error with exit code 1, and so is --if-version with another version than the
/// key has.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix del people stu001
  kelix del people stu001 --if-version 1099511627779")]
pub(crate) struct DelArgs {
    /// The table
    table: String,
    /// The key (see `kelix help syntax`)
    #[arg(allow_negative_numbers = true)]
    key: KeyArgument,
    /// Delete only if the key still has this version
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    if_version: Option<u64>,
    /// Come back when it is on the server's disk, also where the server answers sooner (serve --wal)
    #[arg(long)]
    durable: bool,
}

fn read_value(context: &Context, path: &Path) -> Result<Vec<u8>, Failure> {
    if path.as_os_str() == "-" {
        context.check_input("put", "the value itself, or --file PATH")?;
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut bytes);
        read.map_err(|source| Failure::io("put", "cannot read standard input", &source))?;
        return Ok(bytes);
    }
    std::fs::read(path)
        .map_err(|source| Failure::io("put", format!("cannot read {}", path.display()), &source))
}

/// The value to be put, before it is known what kind of table it is for.
enum Given<'a> {
    /// In the syntax.
    Text(&'a str),
    /// Byte by byte.
    Bytes(Vec<u8>),
}

/// Reads the value, before any table is made for it. What no table would take is refused.
fn given<'a>(context: &Context, args: &'a PutArgs) -> Result<Option<Given<'a>>, Failure> {
    let value = match (args.value.as_deref(), &args.file) {
        (Some("-"), _) => Some(Given::Bytes(read_value(context, Path::new("-"))?)),
        (Some(text), _) => {
            parse(text).map_err(|context| Failure::usage("put", context))?;
            Some(Given::Text(text))
        }
        (None, Some(path)) => Some(Given::Bytes(read_value(context, path)?)),
        (None, None) => None,
    };
    if value.is_none() && args.attr.is_empty() && args.link.is_empty() {
        let context = "nothing to put: give VALUE ('' is an empty one), --file, --attr or --link";
        return Err(Failure::usage("put", context));
    }
    Ok(value)
}

fn new_item(
    args: &PutArgs,
    (table, value): (Named<'_>, Option<Given<'_>>),
    session: &mut Session,
) -> Result<NewItem, Failure> {
    let mut item = NewItem::new();
    item = match value {
        Some(Given::Text(text)) => item.bytes("", &table.value("put", text)?),
        Some(Given::Bytes(bytes)) => item.bytes("", &bytes),
        None => item,
    };
    for attribute in &args.attr {
        item = item.bytes(&attribute.name, &attribute.value);
    }
    for link in &args.link {
        let table = create_table(session, "put", &link.table)?;
        let key = Named { name: &link.table, kind: table.kind() }.key("put", &link.key)?;
        item = item.link_with(&link.name, table, &key, &link.bytes);
    }
    if let Some(time) = args.expires {
        item = item.expires_in(time);
    }
    Ok(item.flags(args.flags))
}

pub(crate) fn put(context: &Context, args: &PutArgs) -> Result<(), Failure> {
    let mut session = context.session()?;
    session.set_durable(args.durable);
    let value = given(context, args)?;
    let table = create_table(&mut session, "put", &args.table)?;
    let named = Named { name: &args.table, kind: table.kind() };
    let key = named.key("put", &args.key)?;
    let item = new_item(args, (named, value), &mut session)?;
    let expected = match (args.if_version, args.if_absent) {
        (Some(version), _) => Some(Some(Version(version))),
        (None, true) => Some(None),
        (None, false) => None,
    };
    let (version, cost) = measured(&mut session, |session| {
        let Some(expected) = expected else {
            return Ok(session.put_item(table, &key, &item)?);
        };
        match session.compare_and_set_item(table, &key, expected, &item)? {
            CompareAndSet::Done(version) => Ok(version.unwrap_or(Version(0))),
            CompareAndSet::Mismatch(found) => Err(mismatch("put", &named.place(&key), expected, found)),
        }
    })?;
    let printed = if context.json {
        context.print_json(&json!({"version": version.0.to_string(), "cost": cost_json(cost)}))
    } else {
        writeln!(std::io::stdout(), "{}", version.0).map_err(Failure::from)
    };
    printed.map_err(Failure::after_write)
}

pub(crate) fn del(context: &Context, args: &DelArgs) -> Result<(), Failure> {
    let mut session = context.session()?;
    session.set_durable(args.durable);
    let table = open_table(&mut session, "del", &args.table)?;
    let named = Named { name: &args.table, kind: table.kind() };
    let key = named.key("del", &args.key)?;
    let place = named.place(&key);
    let ((), cost) = measured(&mut session, |session| {
        let Some(version) = args.if_version else {
            return match session.delete(table, &key)? {
                true => Ok(()),
                false => Err(Failure::new(Exit::NotThere, "del", format!("{place}: not there"))),
            };
        };
        match session.compare_and_delete(table, &key, Version(version))? {
            CompareAndSet::Done(_) => Ok(()),
            CompareAndSet::Mismatch(found) => Err(mismatch("del", &place, Some(Version(version)), found)),
        }
    })?;
    if !context.json {
        return Ok(());
    }
    let printed = context.print_json(&json!({"deleted": true, "cost": cost_json(cost)}));
    printed.map_err(Failure::after_write)
}

fn mismatch(operation: &str, place: &str, expected: Option<Version>, found: Option<Version>) -> Failure {
    let context = match (expected, found) {
        (None, Some(found)) => format!("{place}: there already, with version {}", found.0),
        (None, None) => format!("{place}: there already"),
        (Some(_), None) => format!("{place}: not there"),
        (Some(expected), Some(found)) => {
            format!("{place}: has version {}, not {}; get it and decide anew", found.0, expected.0)
        }
    };
    Failure::new(Exit::NotThere, operation, context).named("compare failed")
}
