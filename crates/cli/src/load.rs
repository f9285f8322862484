//! `kelix load` and `kelix map`: tables from databases and files.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kelix_load::{
    Last, Map, OnDangling, Options, Origin, Problem, Progress, Report, SessionStore, Store, Watch,
};
use serde_json::json;

use crate::context::{Context, plural, say};
use crate::ending::Ending;
use crate::progress::Line;
use crate::units::{parse_interval, show_size};
use crate::{Exit, Failure};

/// Load tables from a database or from files
///
/// A map, a file in TOML, says which query or file gives which table, and how columns become keys,
/// attributes, links and lists. Everything is read and checked first: a wrong map, a missing column, a value
/// that does not fit, a key that is there twice, a link that leads nowhere is told with source, row and
/// column, and then nothing is loaded. What is loaded replaces all of what was loaded before, at once;
/// whoever reads that goes on with it for as long as it is held.
///
/// With --every it loads again and again, until SIGINT or SIGTERM, which end it with exit code 0; a load that
/// is under way then is given up, and leaves nothing behind. A load that fails is told on standard error,
/// what was loaded before stays in force, and the next load is tried at its time, also if it was the first. A
/// load is skipped if nothing has changed since the last one that succeeded: neither the map, nor what the
/// server has in force, nor the source. Of files that is told by their sizes and times of change, of SQLite
/// likewise, or by the query `changed` of the map; of PostgreSQL by that query, and without one all is loaded
/// each time.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix map suggest --from postgres://ada@db.example/company > company.toml
  kelix load --from postgres://ada@db.example/company --map company.toml --check
  kelix load --from postgres://ada@db.example/company --map company.toml --every 5m
  kelix load --from sqlite:shop.db --map shop.toml
  kelix load --from people.csv --map people.toml
  kelix load --from exports/ --map exports.toml --on-dangling null
  kelix load --from liechtenstein.osm.pbf --map roads.toml

The password of a database comes from its URL, --password-file, $PGPASSWORD or ~/.pgpass. How a map is written:
docs/load.md")]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    from: FromArgs,
    /// The map
    #[arg(long, value_name = "FILE")]
    map: PathBuf,
    /// Read and check everything, and load nothing; needs no server
    #[arg(long, conflicts_with = "every")]
    check: bool,
    /// What to do about links that lead nowhere
    #[arg(long, value_enum, default_value_t = Dangling::Error, value_name = "WHAT")]
    on_dangling: Dangling,
    /// Let what comes empty (a file without a row, rows that are all left out) take the place of what is in
    /// force, which is refused else
    #[arg(long)]
    allow_empty: bool,
    /// Load again and again, beginning so often, if something has changed: 30s, 5m, 2h
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    every: Option<Duration>,
}

/// Make maps for `kelix load`
#[derive(clap::Subcommand)]
pub(crate) enum MapCommand {
    /// Draw a map from the schema of a database
    ///
    /// Each table becomes a table, its primary key the key, foreign keys links, the other columns attributes;
    /// tables that only join two others become lists. What is printed can be loaded as it is, for foreign
    /// keys match as the database compares them.
    #[command(after_long_help = "\
Examples:
  kelix map suggest --from postgres://ada@db.example/company > company.toml
  kelix map suggest --from sqlite:shop.db > shop.toml")]
    Suggest(SuggestArgs),
}

#[derive(clap::Args)]
pub(crate) struct SuggestArgs {
    #[command(flatten)]
    from: FromArgs,
}

/// Where rows come from.
#[derive(clap::Args)]
struct FromArgs {
    /// postgres://USER@HOST/DATABASE, sqlite:FILE, a file (.csv, .tsv, .jsonl, .osm.pbf) or a directory of
    /// files
    #[arg(long, value_name = "SOURCE")]
    from: String,
    /// A file with the password of the database in its first line
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Certificates (PEM) that the database's must be issued by; how far TLS is insisted on is said by
    /// sslmode in its URL
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl FromArgs {
    fn origin(&self) -> Origin {
        Origin { address: self.from.clone(), password_file: self.password_file.clone(), ca: self.ca.clone() }
    }
}

/// What to do about links that lead nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Dangling {
    /// Load nothing and tell them
    Error,
    /// Leave the links out
    Null,
    /// Leave the items out that have such links, and then those with links to these
    Drop,
}

fn failure(operation: &'static str, problem: Problem) -> Failure {
    let text = problem.to_string();
    match problem {
        Problem::Map(_) => Failure::usage(operation, text),
        Problem::Rows(_) => Failure::new(Exit::Other, operation, text).named("wrong rows"),
        Problem::Source(_) => Failure::new(Exit::Other, operation, text).named("no source"),
        Problem::NoRoom { .. } => Failure::new(Exit::OutOfMemory, operation, text),
        Problem::Store(error) => Failure::from(error),
        Problem::GivenUp => Failure::new(Exit::Other, operation, text),
    }
}

/// Shows progress, and gives up when told to end.
struct Watched<'e> {
    line: Line,
    ending: Option<&'e Ending>,
}

impl Watch for Watched<'_> {
    fn at(&mut self, progress: &Progress<'_>) {
        self.line.show(|| match progress {
            Progress::Reading { table, rows } => format!("reading {table}: {}", plural(*rows, "row")),
            Progress::Checking => "checking keys and links".into(),
            Progress::Building { items, of } => {
                format!("putting: {items} of some {}", plural(*of, "item"))
            }
        });
    }

    fn gives_up(&self) -> bool {
        self.ending.is_some_and(Ending::is_told)
    }
}

/// Loads that are repeated.
struct Repeated {
    last: Option<Last>,
    ending: Ending,
}

/// Loads once. What is repeated may be skipped.
fn load_once(
    context: &Context,
    args: &LoadArgs,
    repeated: Option<&mut Repeated>,
) -> Result<(Report, Duration), Failure> {
    let text = std::fs::read_to_string(&args.map)
        .map_err(|source| Failure::io("load", format!("cannot read {}", args.map.display()), &source))?;
    let map = Map::parse(&args.map.display().to_string(), &text)
        .map_err(|findings| failure("load", Problem::Map(findings)))?;
    let on_dangling = match args.on_dangling {
        Dangling::Error => OnDangling::Error,
        Dangling::Null => OnDangling::Null,
        Dangling::Drop => OnDangling::Drop,
    };
    let options = Options { on_dangling, check_only: args.check, allow_empty: args.allow_empty };
    let mut store = match context.client() {
        Ok(client) => Some(SessionStore::new(client, context.options())?),
        // Whether there is room can be asked only of a server that is there.
        Err(_) if args.check => None,
        Err(failure) => return Err(failure),
    };
    let (began, origin) = (Instant::now(), args.from.origin());
    let mut watched = Watched { line: Line::new(context.json), ending: None };
    let loaded = match (repeated, &mut store) {
        (Some(Repeated { last, ending }), Some(store)) => {
            watched.ending = Some(ending);
            kelix_load::load_if_changed(&origin, &map, options, store, last, &mut watched)
        }
        (_, store) => {
            let store = store.as_mut().map(|store| store as &mut dyn Store);
            kelix_load::load(&origin, &map, options, store, &mut watched)
        }
    };
    watched.line.clear();
    let report = loaded.map_err(|problem| failure("load", problem))?;
    Ok((report, began.elapsed()))
}

fn print(context: &Context, args: &LoadArgs, report: &Report, time: Duration) -> Result<(), Failure> {
    if context.json {
        let tables = report.tables.iter().map(|(name, items)| json!({"table": name, "items": items}));
        return context.print_json(&json!({
            "tables": tables.collect::<Vec<_>>(),
            "rows": report.rows,
            "links_left_out": report.links_left_out,
            "items_left_out": report.items_left_out,
            "memory_bytes": report.memory_bytes,
            "generation": report.generation,
            "checked_only": args.check,
            "unchanged": report.unchanged,
            "seconds": time.as_secs_f64(),
        }));
    }
    let mut out = std::io::stdout().lock();
    if report.unchanged {
        let generation = report.generation;
        return Ok(writeln!(out, "nothing has changed: generation {generation} stays in force")?);
    }
    for (name, items) in &report.tables {
        writeln!(out, "{name}\t{}", plural(*items, "item"))?;
    }
    if report.links_left_out + report.items_left_out > 0 {
        let (links, items) = (report.links_left_out, report.items_left_out);
        let left_out = format!("{} and {}", plural(links, "link"), plural(items, "item"));
        writeln!(out, "left out: {left_out}, for links that lead nowhere")?;
    }
    let (rows, memory) = (plural(report.rows, "row"), show_size(report.memory_bytes));
    let what = if args.check { "checked" } else { "loaded" };
    writeln!(out, "{what} {rows} in {:.1} s, about {memory}", time.as_secs_f64())?;
    if report.generation > 0 {
        writeln!(out, "generation {} is in force", report.generation)?;
    }
    Ok(())
}

pub(crate) fn run(context: &Context, args: &LoadArgs) -> Result<(), Failure> {
    let Some(every) = args.every else {
        let (report, time) = load_once(context, args, None)?;
        return print(context, args, &report, time);
    };
    let mut repeated = Repeated { last: None, ending: Ending::watch("load")? };
    loop {
        let began = Instant::now();
        // What was loaded before stays, and the next time may be better.
        match load_once(context, args, Some(&mut repeated)) {
            Ok((report, time)) => print(context, args, &report, time)?,
            Err(_) if repeated.ending.is_told() => {}
            Err(failure) if context.json => say(&failure.json().to_string()),
            Err(failure) => say(&format!("kelix: {failure}")),
        }
        if repeated.ending.wait((began + every).saturating_duration_since(Instant::now())) {
            return Ok(());
        }
    }
}

pub(crate) fn map(command: &MapCommand) -> Result<(), Failure> {
    let MapCommand::Suggest(args) = command;
    let map = kelix_load::suggest(&args.from.origin()).map_err(|problem| failure("map suggest", problem))?;
    Ok(write!(std::io::stdout(), "{map}")?)
}
