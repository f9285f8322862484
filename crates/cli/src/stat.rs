//! `kelix stat`: what the server tells of itself, in tables.

use std::io::Write;
use std::time::Duration;

use serde_json::Value;

use crate::bytes::show_name;
use crate::columns::{Column, Form, column, label, table};
use crate::context::Context;
use crate::names::name_tables;
use crate::units::{show_size, show_time};
use crate::{Failure, watch};

/// Show the server's statistics
///
/// Memory is in MiB: limit is what --memory allows, taken what the server holds, used what its pages are given to,
/// live what items and the index fill, resting what was freed and waits until no reader can meet it. Ordered tables are
/// shown with their keys and the leaves that these stand in: how many there are, and how many were split and merged.
/// The clients' counters are those that the clients themselves publish, about every thousand operations; the server
/// cannot see what they read, nor, of a cache, whether they found it: hits and misses are known to clients alone. With --watch a terminal shows what happens, drawn anew each so many seconds, until Ctrl-C, also while
/// the server is gone. Where the output is no terminal it is one line each, with --json one object a line, and ends with the server.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix stat
  kelix stat --watch                 # a screen that is drawn each second
  kelix stat --watch 10 --count 6
  kelix stat --watch | tee rates     # a line each second
  kelix stat --watch --json | jq '.fabrics.tcp[\"reads/s\"]'
  kelix stat --json | jq '.shards[].memory.live_bytes'")]
pub(crate) struct StatArgs {
    /// Go on, with a screen or a line each SECONDS
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_seconds)]
    watch: Option<Duration>,
    /// End after so many of them
    #[arg(long, value_name = "N", requires = "watch", value_parser = crate::units::parse_count)]
    count: Option<u64>,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.01..1e6).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "from 0.01 to a million seconds".into())
}

const REQUESTS: [Column; 14] = [
    label("shard", "/shard"),
    column("items", "/items", Form::Count),
    column("requests", "/requests", Form::Count),
    column("gets", "/gets", Form::Count),
    column("scans", "/scans", Form::Count),
    column("puts", "/puts", Form::Count),
    column("deletes", "/deletes", Form::Count),
    column("expired", "/expired", Form::Count),
    column("evicted", "/evicted", Form::Count),
    column("repaired links", "/links_repaired", Form::Count),
    column("waiting", "/writes_waiting", Form::Count),
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

pub(crate) const MEMORY: [Column; 7] = [
    label("shard", "/shard"),
    column("limit", "/memory/limit_bytes", Form::Mib),
    column("taken", "/memory/segment_bytes", Form::Mib),
    column("used", "/memory/used_bytes", Form::Mib),
    column("live", "/memory/live_bytes", Form::Mib),
    column("resting", "/memory/quarantined_bytes", Form::Mib),
    column("retired segments", "/memory/segments_retired", Form::Count),
];

pub(crate) const KINDS: [Column; 5] = [
    Column { form: Form::Text, ..label("what", "/what") },
    label("slot bytes", "/slot_bytes"),
    column("slots", "/slots", Form::Count),
    column("live", "/live_bytes", Form::Mib),
    column("slabs", "/used_bytes", Form::Mib),
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

/// Numbers of tables: those of dropped ones rest for a while.
const NUMBERS: [Column; 4] = [
    Column { form: Form::Text, ..label("kind", "/kind") },
    column("tables", "/used", Form::Count),
    column("dropped", "/resting", Form::Count),
    column("left", "/left", Form::Count),
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

/// A row for each ordered table of each shard. One whose name is not known goes by its number.
pub(crate) fn ordered_rows(shards: &[Value]) -> Vec<Value> {
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
        let mut held_by = holders.collect::<Vec<_>>().join(", ");
        if let Some(more @ 1..) = row["holders_not_listed"].as_u64() {
            held_by += &format!(", and {more} more");
        }
        row["held_by"] = held_by.into();
        row["dataset"] = show_name(row["dataset"].as_str().unwrap_or_default()).into();
    }
    rows
}

/// How old the newest snapshot is, and how it went with others; nothing, if the server takes none.
fn snapshots(statistics: &Value) -> String {
    let of = &statistics["snapshots"];
    let Some(taken) = of["taken"].as_u64() else { return String::new() };
    let newest = match (of["age_seconds"].as_f64(), of["bytes"].as_u64()) {
        (Some(age), Some(bytes)) => {
            format!("the newest {} old, {}", show_time(Duration::from_secs_f64(age)), show_size(bytes))
        }
        _ => "none yet".into(),
    };
    let failed = of["failed"].as_u64().unwrap_or(0);
    format!("snapshots: {newest}; {taken} taken, {failed} failed since this server began\n")
}

/// Which server it is, and which namespace.
pub(crate) fn title(statistics: &Value) -> String {
    let text = |name: &str| match &statistics[name] {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    };
    let uptime = Duration::from_secs_f64(statistics["uptime_s"].as_f64().unwrap_or(0.0).max(0.0));
    let rdma: Vec<&str> =
        statistics["rdma"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    format!(
        "server: process {}, kelix {}, term {}, up {}, shm in pages of {}{}{}\n{}namespace: {}{}\n",
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
        snapshots(statistics),
        text("namespace"),
        match statistics["cache"].as_bool() {
            Some(true) => ", a cache: items go when memory is used up",
            _ => "",
        },
    )
}

fn report(statistics: &Value) -> String {
    let rows = |name: &str| statistics[name].as_array().cloned().unwrap_or_default();
    let (shards, clients) = (rows("shards"), rows("clients"));
    let mut report = title(statistics) + "\n";
    report += &table("requests", &REQUESTS, &shards);
    report.push('\n');
    report += &table("work", &WORK, &shards);
    report.push('\n');
    report += &table("memory, MiB", &MEMORY, &shards);
    report.push('\n');
    let kinds = rows("memory_by_kind");
    if !kinds.is_empty() {
        report += &table("memory by what it holds, MiB", &KINDS, &kinds);
        report.push('\n');
    }
    let ordered = ordered_rows(&shards);
    if !ordered.is_empty() {
        report += &table("ordered tables", &ORDERED, &ordered);
        let more: u64 = shards.iter().filter_map(|shard| shard["ordered_not_listed"].as_u64()).sum();
        if more > 0 {
            report += &format!("  and {more} more\n");
        }
        report.push('\n');
    }
    let mut numbers = rows("table_numbers");
    numbers.retain(|numbers| numbers["used"] != 0 || numbers["resting"] != 0);
    if !numbers.is_empty() {
        report += &table("numbers of tables", &NUMBERS, &numbers);
        report.push('\n');
    }
    let generations = generation_rows(statistics);
    if !generations.is_empty() {
        report += &table("generations", &GENERATIONS, &generations);
        if let Some(more @ 1..) = statistics["generations_not_listed"].as_u64() {
            report += &format!("  and {more} more\n");
        }
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

/// The server's statistics.
pub(crate) fn ask(client: &kelix::Client) -> Result<Value, Failure> {
    serde_json::from_str(&client.statistics()?).map_err(|error| {
        Failure::new(crate::Exit::Other, "stat", format!("the server's statistics are no JSON: {error}"))
            .named(kelix::ErrorKind::Protocol.name())
    })
}

pub(crate) fn run(context: &Context, args: &StatArgs) -> Result<(), Failure> {
    if let Some(every) = args.watch {
        return watch::watch(context, every, args.count);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
