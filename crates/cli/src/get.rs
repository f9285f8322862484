//! `kelix get`: items by key.

use std::io::{IsTerminal, Write};

use kelix::{Cost, Item, Path, Session};
use serde_json::{Value, json};

use crate::bytes::{KeyArgument, show_value};
use crate::context::{Context, cost_json, cost_words, measured, open_table, say, some_of};
use crate::items::{Named, TableNames, is_plain, json as item_json, missing_json, write_among, write_lines};
use crate::{Exit, Failure};

/// Get items by key
///
/// A plain value is printed as its bytes and a line feed, one that is a number in digits. An item with
/// attributes is printed as one `name: value` a line, its links as `name -> table/key`. Several keys are
/// looked up in one batch, whose memory accesses overlap; a plain value is then printed as `key: value`. Keys
/// that are absent are named on standard error, and the exit code is 1.
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
    keys: Vec<KeyArgument>,
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
struct Looked<'a> {
    table: Named<'a>,
    keys: Vec<Vec<u8>>,
    items: Vec<Option<Item>>,
    cost: Cost,
    first_cost: Cost,
}

fn look_up<'a>(session: &mut Session, args: &'a GetArgs, measure: bool) -> Result<Looked<'a>, Failure> {
    let table = open_table(session, "get", &args.table)?;
    let named = Named { name: &args.table, kind: table.kind() };
    let keys: Vec<Vec<u8>> = args.keys.iter().map(|key| named.key("get", key)).collect::<Result<_, _>>()?;
    let mut fetch = || {
        measured(session, |session| match &keys[..] {
            [key] => Ok(vec![session.get(table, key)?]),
            keys => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                Ok(session.multi_get(table, &keys)?)
            }
        })
    };
    let (mut items, first_cost) = fetch()?;
    let mut cost = first_cost;
    if measure {
        (items, cost) = fetch()?;
    }
    Ok(Looked { table: named, keys, items, cost, first_cost })
}

pub(crate) fn run(context: &Context, args: &GetArgs) -> Result<(), Failure> {
    let mut session = context.session_by(args.path.into())?;
    let looked = look_up(&mut session, args, context.json || args.explain)?;
    let mut names = TableNames::default();
    looked.items.iter().flatten().try_for_each(|item| names.learn(&mut session, item))?;
    if context.json {
        print_json(context, &looked, &names)?;
    } else {
        print(args, &looked, &names)?;
    }
    let missing: Vec<String> = looked
        .keys
        .iter()
        .zip(&looked.items)
        .filter(|(_, item)| item.is_none())
        .map(|(key, _)| format!("{}: not there", looked.table.place(key)))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(Failure::new(Exit::NotThere, "get", some_of(&missing))) }
}

fn print_json(context: &Context, looked: &Looked<'_>, names: &TableNames) -> Result<(), Failure> {
    let Looked { table, keys, items, .. } = looked;
    let object = |(key, item): (&Vec<u8>, &Option<Item>)| match item {
        Some(item) => item_json(*table, item, names),
        None => missing_json(*table, key),
    };
    let mut objects: Vec<Value> = keys.iter().zip(items).map(object).collect();
    let (cost, first_cost) = (cost_json(looked.cost), cost_json(looked.first_cost));
    if keys.len() > 1 {
        return context.print_json(&json!({"items": objects, "cost": cost, "first_cost": first_cost}));
    }
    // A single key that is absent has only its error to show.
    match (objects.pop(), &items[..]) {
        (Some(mut object), [Some(_)]) => {
            object["cost"] = cost;
            object["first_cost"] = first_cost;
            context.print_json(&object)
        }
        _ => Ok(()),
    }
}

fn print(args: &GetArgs, looked: &Looked<'_>, names: &TableNames) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let table = looked.table;
    let single = looked.keys.len() == 1;
    let (is_terminal, mut hidden) = (std::io::stdout().is_terminal(), false);
    for item in looked.items.iter().flatten() {
        match (is_plain(item), single) {
            _ if args.raw => out.write_all(raw(table, item)?)?,
            (_, false) => write_among(&mut out, table.kind, item, names)?,
            (true, true) if table.kind.has_items() => {
                match is_terminal.then(|| visible(item.value())).flatten() {
                    Some(text) => {
                        writeln!(out, "{text}")?;
                        hidden = true;
                    }
                    None => {
                        out.write_all(item.value())?;
                        out.write_all(b"\n")?;
                    }
                }
            }
            (true, true) => writeln!(out, "{}", show_value(table.kind, item.value()))?,
            (false, true) => write_lines(&mut out, "", table.kind, item, names)?,
        }
    }
    out.flush()?;
    if hidden {
        say(
            "kelix: characters that would change the terminal are shown as \\x1b or \\u{202e}: --raw prints the bytes",
        );
    }
    if args.explain {
        for item in looked.items.iter().flatten() {
            say(&format!("{}: version {}", table.place(item.key()), item.version().0));
        }
        say(&cost_words(looked.cost));
    }
    Ok(())
}

/// Text that a terminal can be given, for bytes that would change what it shows otherwise. `None`: they would
/// not.
fn visible(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let visible = text.chars().map(|c| match c {
        '\n' | '\t' => c.to_string(),
        c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
        // Controls of the direction of writing change how the text behind them reads.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => c.escape_unicode().to_string(),
        c => c.to_string(),
    });
    let visible: String = visible.collect();
    (visible.as_bytes() != bytes).then_some(visible)
}

/// The bytes of a plain value, or of the value without a name beside attributes.
fn raw<'a>(table: Named<'_>, item: &'a Item) -> Result<&'a [u8], Failure> {
    if is_plain(item) || item.bytes("").is_some() {
        return Ok(item.value());
    }
    let place = table.place(item.key());
    let context = format!("{place} has attributes and no plain value; leave out --raw, or take --json");
    Err(Failure::usage("get", context))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_changes_the_terminal() {
        for plain in ["", "red", "two\nlines\tand a tab", "Gr\u{fc}\u{df}e"] {
            assert_eq!(visible(plain.as_bytes()), None);
        }
        let shown = [
            (&b"\x1b[31mred"[..], "\\x1b[31mred"),
            (b"a\rb\x07\x7f", "a\\x0db\\x07\\x7f"),
            ("\u{9b}2J".as_bytes(), "\\x9b2J"),
            ("\u{202e}exe".as_bytes(), "\\u{202e}exe"),
            (b"\xff", "\u{fffd}"),
        ];
        for (bytes, text) in shown {
            assert_eq!(visible(bytes).as_deref(), Some(text));
        }
    }
}
