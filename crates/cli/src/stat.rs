//! `kelix stat`: what the server tells of itself, in tables.

use std::io::Write;
use std::time::Duration;

use kelix::TableId;
use serde_json::Value;

use crate::Failure;
use crate::bytes::show_name;
use crate::context::Context;
use crate::units::{show_mib, show_size, show_time};

/// Show the server's statistics
///
/// Memory is in MiB: limit is what --memory allows, taken what the server holds, used what its pages are given to,
/// live what items and the index fill, resting what was freed and waits until no reader can meet it. Ordered tables are
/// shown with their keys and the leaves that these stand in: how many there are, and how many were split and merged.
/// The clients' counters are those that the clients themselves publish, about every thousand operations; the server
/// cannot see what they read. With --watch one line each so many seconds tells what has happened in them.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix stat
  kelix stat --watch
  kelix stat --watch 10 --count 6
  kelix stat --json | jq '.shards[].memory.live_bytes'")]
pub(crate) struct StatArgs {
    /// Go on, with a line each SECONDS
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_seconds)]
    watch: Option<Duration>,
    /// End after so many lines
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.01..1e6).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "from 0.01 to a million seconds".into())
}

/// A column: its title, and where its value stands in the object of a row.
struct Column {
    title: &'static str,
    pointer: &'static str,
    form: Form,
    /// Whether a sum over the rows means something.
    sums: bool,
}

#[derive(Clone, Copy)]
enum Form {
    Count,
    Mib,
    Fraction,
    Text,
}

const fn column(title: &'static str, pointer: &'static str, form: Form) -> Column {
    Column { title, pointer, form, sums: true }
}

const fn label(title: &'static str, pointer: &'static str) -> Column {
    Column { title, pointer, form: Form::Count, sums: false }
}

const REQUESTS: [Column; 12] = [
    label("shard", "/shard"),
    column("items", "/items", Form::Count),
    column("requests", "/requests", Form::Count),
    column("gets", "/gets", Form::Count),
    column("scans", "/scans", Form::Count),
    column("puts", "/puts", Form::Count),
    column("deletes", "/deletes", Form::Count),
    column("expired", "/expired", Form::Count),
    column("repaired links", "/links_repaired", Form::Count),
    column("waited", "/writes_waited", Form::Count),
    column("refused", "/writes_refused", Form::Count),
    column("repeated", "/writes_repeated", Form::Count),
];

const WORK: [Column; 7] = [
    label("shard", "/shard"),
    column("CPU s", "/cpu_s", Form::Fraction),
    column("sleeps", "/sleeps", Form::Count),
    label("epoch", "/epoch"),
    column("splits", "/index_splits", Form::Count),
    column("merges", "/index_merges", Form::Count),
    column("moved items", "/items_evacuated", Form::Count),
];

const MEMORY: [Column; 7] = [
    label("shard", "/shard"),
    column("limit", "/memory/limit_bytes", Form::Mib),
    column("taken", "/memory/segment_bytes", Form::Mib),
    column("used", "/memory/used_bytes", Form::Mib),
    column("live", "/memory/live_bytes", Form::Mib),
    column("resting", "/memory/quarantined_bytes", Form::Mib),
    column("retired segments", "/memory/segments_retired", Form::Count),
];

const ORDERED: [Column; 10] = [
    Column { form: Form::Text, ..label("table", "/name") },
    label("shard", "/shard"),
    column("keys", "/keys", Form::Count),
    column("leaves", "/leaves", Form::Count),
    column("splits", "/splits", Form::Count),
    column("merges", "/merges", Form::Count),
    column("models", "/sub_models", Form::Count),
    Column { form: Form::Fraction, ..label("error", "/model_error") },
    column("models MiB", "/model_bytes", Form::Mib),
    column("tables MiB", "/table_bytes", Form::Mib),
];

const GENERATIONS: [Column; 5] = [
    Column { form: Form::Text, ..label("dataset", "/dataset") },
    label("generation", "/generation"),
    Column { form: Form::Text, ..label("stage", "/stage") },
    label("tables", "/tables"),
    Column { form: Form::Text, ..label("held by", "/held_by") },
];

const CLIENTS: [Column; 11] = [
    Column { form: Form::Text, ..label("fabric", "/fabric") },
    label("process", "/pid"),
    label("user", "/uid"),
    Column { form: Form::Text, ..label("address", "/address") },
    column("reads", "/reads", Form::Count),
    column("read MiB", "/read_bytes", Form::Mib),
    column("messages", "/messages", Form::Count),
    column("retries", "/retries", Form::Count),
    column("fallbacks", "/fallbacks", Form::Count),
    label("segments", "/segments_mapped"),
    column("models MiB", "/model_bytes", Form::Mib),
];

fn show(value: &Value, form: Form) -> String {
    match (value.as_f64(), form) {
        (_, Form::Text) => value.as_str().unwrap_or("-").into(),
        // A server of another release may tell less.
        (None, _) => "-".into(),
        (Some(value), Form::Count) => format!("{value:.0}"),
        (Some(value), Form::Mib) => show_mib(value as u64),
        (Some(value), Form::Fraction) => format!("{value:.2}"),
    }
}

/// A table with a row for each object, and one for their sum if there are several.
fn table(title: &str, columns: &[Column], rows: &[Value]) -> String {
    let value = |row: &Value, column: &Column| row.pointer(column.pointer).cloned().unwrap_or_default();
    let number = |row: &Value, column: &Column| value(row, column).as_f64();
    let mut lines: Vec<Vec<String>> = vec![columns.iter().map(|column| column.title.to_string()).collect()];
    for row in rows {
        lines.push(columns.iter().map(|column| show(&value(row, column), column.form)).collect());
    }
    if rows.len() > 1 && columns.iter().any(|column| column.sums) {
        let sum = |(index, column): (usize, &Column)| match (index, column.sums) {
            (0, _) => "all".to_string(),
            (_, true) => {
                show(&rows.iter().filter_map(|row| number(row, column)).sum::<f64>().into(), column.form)
            }
            (_, false) => String::new(),
        };
        lines.push(columns.iter().enumerate().map(sum).collect());
    }
    let width = |index: usize| lines.iter().map(|line| line[index].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = format!("{title}\n");
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        text += &format!("  {}\n", cells.join("  ").trim_end());
    }
    text
}

/// A row for each ordered table of each shard. One whose name is not known goes by its number.
fn ordered_rows(shards: &[Value]) -> Vec<Value> {
    let mut rows = Vec::new();
    for shard in shards {
        for table in shard["ordered"].as_array().into_iter().flatten() {
            let mut row = table.clone();
            row["shard"] = shard["shard"].clone();
            row["name"] = match table["name"].as_str() {
                Some(name) => show_name(name).into(),
                None => format!("#{}", table["table"]).into(),
            };
            rows.push(row);
        }
    }
    rows
}

/// A row for each generation of each dataset, with who holds it.
fn generation_rows(statistics: &Value) -> Vec<Value> {
    let mut rows = statistics["generations"].as_array().cloned().unwrap_or_default();
    for row in &mut rows {
        let holders = row["holders"].as_array().into_iter().flatten().filter_map(Value::as_str);
        row["held_by"] = holders.collect::<Vec<_>>().join(", ").into();
        row["dataset"] = show_name(row["dataset"].as_str().unwrap_or_default()).into();
    }
    rows
}

/// Adds the names of ordered tables, which the shards do not know. Statistics without names are better than none, so
/// nothing is said of what fails.
fn name_tables(context: &Context, statistics: &mut Value) {
    let shards = statistics["shards"].as_array_mut().into_iter().flatten();
    let tables: Vec<&mut Value> =
        shards.filter_map(|shard| shard["ordered"].as_array_mut()).flatten().collect();
    if tables.is_empty() {
        return;
    }
    let Ok(mut session) = context.session() else { return };
    for table in tables {
        let id = table["table"].as_u64().and_then(|number| u16::try_from(number).ok()).map(TableId);
        if let Some(Ok(Some(name))) = id.map(|id| session.table_name(id)) {
            table["name"] = name.into();
        }
    }
}

fn report(statistics: &Value) -> String {
    let text = |name: &str| match &statistics[name] {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    };
    let rows = |name: &str| statistics[name].as_array().cloned().unwrap_or_default();
    let uptime = Duration::from_secs_f64(statistics["uptime_s"].as_f64().unwrap_or(0.0).max(0.0));
    let (shards, clients) = (rows("shards"), rows("clients"));
    let rdma = rows("rdma");
    let rdma: Vec<&str> = rdma.iter().filter_map(Value::as_str).collect();
    let mut report = format!(
        "server: process {}, kelix {}, term {}, up {}, shm in pages of {}{}{}\nnamespace: {}\n\n",
        text("pid"),
        text("version"),
        text("term"),
        show_time(uptime),
        show_size(statistics["page_bytes"].as_u64().unwrap_or(0)),
        statistics["tcp"].as_str().map_or(String::new(), |address| format!(", tcp at {address}")),
        match &rdma[..] {
            [] => String::new(),
            addresses => format!(", verbs at {}", addresses.join(" ")),
        },
        text("namespace"),
    );
    report += &table("requests", &REQUESTS, &shards);
    report.push('\n');
    report += &table("work", &WORK, &shards);
    report.push('\n');
    report += &table("memory, MiB", &MEMORY, &shards);
    report.push('\n');
    let ordered = ordered_rows(&shards);
    if !ordered.is_empty() {
        report += &table("ordered tables", &ORDERED, &ordered);
        let more: u64 = shards.iter().filter_map(|shard| shard["ordered_not_listed"].as_u64()).sum();
        if more > 0 {
            report += &format!("  and {more} more\n");
        }
        report.push('\n');
    }
    let generations = generation_rows(statistics);
    if !generations.is_empty() {
        report += &table("generations", &GENERATIONS, &generations);
        report.push('\n');
    }
    if clients.is_empty() {
        report += "no clients\n";
    } else {
        report += &table("clients", &CLIENTS, &clients);
        if let Some(more @ 1..) = statistics["clients_not_listed"].as_u64() {
            report += &format!("  and {more} more\n");
        }
    }
    report
}

fn ask(client: &kelix::Client) -> Result<Value, Failure> {
    serde_json::from_str(&client.statistics()?).map_err(|error| {
        Failure::new(crate::Exit::Other, "stat", format!("the server's statistics are no JSON: {error}"))
            .named(kelix::ErrorKind::Protocol.name())
    })
}

/// Lines between two headings.
const HEADING_EACH: u64 = 20;

/// What has happened between two looks, a second: name, and where it stands in each shard or fabric.
const RATES: [(&str, &str, &str, f64); 8] = [
    ("reads/s", "fabrics", "/reads", 1.0),
    ("MiB/s", "fabrics", "/read_bytes", 1.0 / (1 << 20) as f64),
    ("again/s", "fabrics", "/retries", 1.0),
    ("messages/s", "fabrics", "/messages", 1.0),
    ("requests/s", "shards", "/requests", 1.0),
    ("puts/s", "shards", "/puts", 1.0),
    ("deletes/s", "shards", "/deletes", 1.0),
    ("CPU %", "shards", "/cpu_s", 100.0),
];

/// How things are: name, where, and in which unit.
const LEVELS: [(&str, &str, &str, f64); 3] = [
    ("clients", "fabrics", "/connected", 1.0),
    ("items", "shards", "/items", 1.0),
    ("live MiB", "shards", "/memory/live_bytes", 1.0 / (1 << 20) as f64),
];

/// The sum of a number over all shards or fabrics.
fn sum(statistics: &Value, part: &str, pointer: &str) -> f64 {
    let number = |value: &Value| value.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    match &statistics[part] {
        Value::Array(parts) => parts.iter().map(number).sum(),
        Value::Object(parts) => parts.values().map(number).sum(),
        _ => 0.0,
    }
}

/// The names and the numbers of a line.
fn watched(before: &Value, now: &Value) -> Vec<(&'static str, f64)> {
    let seconds = uptime_s(now) - uptime_s(before);
    let rate = |part: &str, pointer: &str| {
        let grown = sum(now, part, pointer) - sum(before, part, pointer);
        if seconds > 0.0 { (grown / seconds).max(0.0) } else { 0.0 }
    };
    let levels = LEVELS.iter().map(|(name, part, pointer, unit)| (*name, sum(now, part, pointer) * unit));
    let rates = RATES.iter().map(|(name, part, pointer, unit)| (*name, rate(part, pointer) * unit));
    levels.chain(rates).collect()
}

fn uptime_s(statistics: &Value) -> f64 {
    statistics["uptime_s"].as_f64().unwrap_or(0.0)
}

fn watch(context: &Context, every: Duration, count: Option<u64>) -> Result<(), Failure> {
    let client = context.client()?;
    let mut before = ask(&client)?;
    for number in 0..count.unwrap_or(u64::MAX) {
        std::thread::sleep(every);
        let mut now = ask(&client)?;
        if now["term"] != before["term"] {
            // Another server: its counters began anew.
            before = std::mem::take(&mut now);
            continue;
        }
        let line = watched(&before, &now);
        let mut out = std::io::stdout().lock();
        if context.json {
            let line: serde_json::Map<_, _> =
                line.into_iter().map(|(name, value)| (name.to_string(), value.into())).collect();
            writeln!(out, "{}", Value::from(line))?;
        } else {
            if number % HEADING_EACH == 0 {
                let heading: Vec<String> = line.iter().map(|(name, _)| format!("{name:>10}")).collect();
                writeln!(out, "{}", heading.join(" "))?;
            }
            let digits = |name: &str| usize::from(name.contains("MiB") || name.contains('%'));
            let numbers: Vec<String> =
                line.iter().map(|(name, value)| format!("{value:>10.*}", digits(name))).collect();
            writeln!(out, "{}", numbers.join(" "))?;
        }
        out.flush()?;
        before = now;
    }
    Ok(())
}

pub(crate) fn run(context: &Context, args: &StatArgs) -> Result<(), Failure> {
    if let Some(every) = args.watch {
        return watch(context, every, args.count);
    }
    let mut statistics = ask(&context.client()?)?;
    name_tables(context, &mut statistics);
    if context.json {
        return context.print_json(&statistics);
    }
    let mut out = std::io::stdout().lock();
    out.write_all(report(&statistics).as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_summed() {
        let rows = [
            json!({"shard": 0, "memory": {"limit_bytes": 64 << 20}}),
            json!({"shard": 1, "memory": {"limit_bytes": 32 << 20}}),
        ];
        let columns = [label("shard", "/shard"), column("limit", "/memory/limit_bytes", Form::Mib)];
        assert_eq!(
            table("memory", &columns, &rows),
            "memory\n  shard  limit\n      0   64.0\n      1   32.0\n    all   96.0\n"
        );
    }

    #[test]
    fn what_is_watched_is_what_has_grown() {
        let at = |uptime: f64, reads: u64, puts: u64| {
            json!({
                "uptime_s": uptime,
                "shards": [{"puts": puts, "items": 5}, {"puts": 1, "items": 2}],
                "fabrics": {"shm": {"connected": 2, "reads": reads}, "tcp": {"connected": 1, "reads": 10}},
            })
        };
        let line = watched(&at(10.0, 100, 7), &at(12.0, 300, 8));
        let value = |wanted: &str| line.iter().find(|(name, _)| *name == wanted).expect("a column").1;
        assert_eq!((value("reads/s"), value("puts/s")), (100.0, 0.5));
        assert_eq!((value("clients"), value("items")), (3.0, 7.0));
    }

    #[test]
    fn ordered_tables_have_names_or_numbers() {
        let shards = json!([
            {"shard": 0, "ordered": [{"table": 16385, "keys": 3, "name": "a\tb"}]},
            {"shard": 1, "ordered": [{"table": 49153, "keys": 20}], "ordered_not_listed": 2},
        ]);
        let report = report(&json!({"shards": shards}));
        for words in ["a\u{fffd}b", "#49153", "  and 2 more\n"] {
            assert!(report.contains(words), "{words}: {report}");
        }
        assert_eq!(ordered_rows(&[json!({"shard": 0, "ordered": []}), json!({})]), Vec::<Value>::new());
    }

    #[test]
    fn a_server_that_tells_less_is_shown_all_the_same() {
        let report = report(&json!({"shards": [{"shard": 0}]}));
        assert!(report.contains('-') && report.contains("no clients"), "{report}");
        assert!(!report.contains("ordered"), "{report}");
    }
}
