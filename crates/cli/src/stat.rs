//! `kelix stat`: what the server tells of itself.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bytes::show_key;
use crate::columns::{Column, Form, label, table};
use crate::context::Context;
use crate::names::name_tables;
use crate::report::report;
use crate::{Failure, watch};

/// Show the server's statistics
///
/// Memory is in MiB: limit is what --memory allows, taken what the server holds, used what its pages are
/// given to, live what items and the index fill, resting what was freed and waits until no reader can meet
/// it. Ordered tables are shown with their keys and the leaves that these stand in: how many there are, and
/// how many were split and merged. The clients' counters are those that the clients themselves publish, about
/// every thousand operations; the server cannot see what they read, nor, of a cache, whether they found it:
/// hits and misses are known to clients alone. With --watch a terminal shows what happens, drawn anew each so
/// many seconds, until Ctrl-C, also while the server is gone. Where the output is no terminal it is one line
/// each, with --json one object a line, and ends with the server. --hot names the keys that sessions ask for
/// most: the sessions themselves sample one operation of some thousand, a batch counting as one, and tell which
/// items came most; so a key that is put all the time may be missing, and keys of tables without items are.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix stat
  kelix stat --watch                 # a screen that is drawn each second
  kelix stat --watch 10 --count 6
  kelix stat --watch | tee rates     # a line each second
  kelix stat --watch --json | jq '.fabrics.tcp[\"reads/s\"]'
  kelix stat --json | jq '.shards[].memory.live_bytes'
  kelix stat --hot")]
pub(crate) struct StatArgs {
    /// Go on, with a screen or a line each SECONDS
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_seconds)]
    watch: Option<Duration>,
    /// End after so many of them
    #[arg(long, value_name = "N", requires = "watch", value_parser = crate::units::parse_count)]
    count: Option<u64>,
    /// Show the keys that are asked for most instead
    #[arg(long, conflicts_with = "watch")]
    hot: bool,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.01..1e6).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "from 0.01 to a million seconds".into())
}

/// The server's statistics.
pub(crate) fn ask(client: &kelix::Client) -> Result<Value, Failure> {
    Ok(serde_json::json!(client.statistics()?))
}

pub(crate) fn run(context: &Context, args: &StatArgs) -> Result<(), Failure> {
    if let Some(every) = args.watch {
        return watch::watch(context, every, args.count);
    }
    if args.hot {
        return show_hot(context);
    }
    let mut statistics = ask(&context.client()?)?;
    name_tables(&mut statistics, || context.session());
    if context.json {
        return context.print_json(&statistics);
    }
    let mut out = std::io::stdout().lock();
    out.write_all(report(&statistics).as_bytes())?;
    Ok(out.flush()?)
}

const HOT: [Column; 4] = [
    Column { form: Form::Text, ..label("table", "/table") },
    Column { form: Form::Text, ..label("key", "/key") },
    Column { form: Form::Text, ..label("share", "/share") },
    label("sessions", "/sessions"),
];

/// The keys that sessions ask for most.
fn show_hot(context: &Context) -> Result<(), Failure> {
    let statistics = context.client()?.statistics()?;
    let mut session = context.session()?;
    let mut rows = Vec::new();
    for hot in session.hot_keys(&statistics)? {
        let table = session.table_name(hot.table)?.unwrap_or_else(|| format!("number {}", hot.table.0));
        let key = show_key(hot.table.kind(), &hot.key);
        let mut row = json!({"table": table, "key": key, "share": hot.share, "sessions": hot.sessions});
        if !context.json {
            row["share"] = format!("{:.1} %", hot.share * 100.0).into();
        }
        rows.push(row);
    }
    let samples: u64 = statistics.clients.iter().map(|client| client.samples).sum();
    let sessions = statistics.clients.iter().filter(|client| client.samples > 0).count();
    if context.json {
        return context.print_json(&json!({"samples": samples, "sessions": sessions, "keys": rows}));
    }
    let text = match (rows.is_empty(), sessions) {
        (_, 0) => "no session has done a thousand operations yet\n".into(),
        (true, _) => format!("no key stands out among {samples} samples of {sessions} sessions\n"),
        _ => table(&format!("hot keys, by {samples} samples of {sessions} sessions"), &HOT, &rows),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
