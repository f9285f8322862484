//! `kelix stat`: what the server tells of itself, in tables.

use std::io::Write;
use std::time::Duration;

use serde_json::Value;

use crate::Failure;
use crate::context::Context;
use crate::units::{show_mib, show_size, show_time};

/// Show the server's statistics
///
/// Memory is in MiB: limit is what --memory allows, taken what the server holds, used what its pages are given to,
/// live what items and the index fill, resting what was freed and waits until no reader can meet it. The clients'
/// counters are those that the clients themselves publish, about every thousand operations; the server cannot see
/// what they read.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix stat
  kelix stat --json | jq '.shards[].memory.live_bytes'")]
pub(crate) struct StatArgs {}

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
    Seconds,
    Text,
}

const fn column(title: &'static str, pointer: &'static str, form: Form) -> Column {
    Column { title, pointer, form, sums: true }
}

const fn label(title: &'static str, pointer: &'static str) -> Column {
    Column { title, pointer, form: Form::Count, sums: false }
}

const REQUESTS: [Column; 10] = [
    label("shard", "/shard"),
    column("items", "/items", Form::Count),
    column("requests", "/requests", Form::Count),
    column("gets", "/gets", Form::Count),
    column("puts", "/puts", Form::Count),
    column("deletes", "/deletes", Form::Count),
    column("expired", "/expired", Form::Count),
    column("repaired links", "/links_repaired", Form::Count),
    column("waited", "/writes_waited", Form::Count),
    column("refused", "/writes_refused", Form::Count),
];

const WORK: [Column; 7] = [
    label("shard", "/shard"),
    column("CPU s", "/cpu_s", Form::Seconds),
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

const CLIENTS: [Column; 10] = [
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
];

fn show(value: &Value, form: Form) -> String {
    match (value.as_f64(), form) {
        (_, Form::Text) => value.as_str().unwrap_or("-").into(),
        // A server of another release may tell less.
        (None, _) => "-".into(),
        (Some(value), Form::Count) => format!("{value:.0}"),
        (Some(value), Form::Mib) => show_mib(value as u64),
        (Some(value), Form::Seconds) => format!("{value:.2}"),
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
    if rows.len() > 1 {
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

fn report(statistics: &Value) -> String {
    let text = |name: &str| match &statistics[name] {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    };
    let rows = |name: &str| statistics[name].as_array().cloned().unwrap_or_default();
    let uptime = Duration::from_secs_f64(statistics["uptime_s"].as_f64().unwrap_or(0.0).max(0.0));
    let (shards, clients) = (rows("shards"), rows("clients"));
    let mut report = format!(
        "server: process {}, kelix {}, term {}, up {}, shm in pages of {}{}\n\n",
        text("pid"),
        text("version"),
        text("term"),
        show_time(uptime),
        show_size(statistics["page_bytes"].as_u64().unwrap_or(0)),
        statistics["tcp"].as_str().map_or(String::new(), |address| format!(", tcp at {address}")),
    );
    report += &table("requests", &REQUESTS, &shards);
    report.push('\n');
    report += &table("work", &WORK, &shards);
    report.push('\n');
    report += &table("memory, MiB", &MEMORY, &shards);
    report.push('\n');
    if clients.is_empty() {
        report += "no clients\n";
    } else {
        report += &table("clients", &CLIENTS, &clients);
    }
    report
}

pub(crate) fn run(context: &Context, _: &StatArgs) -> Result<(), Failure> {
    let text = context.client()?.statistics()?;
    let statistics: Value = serde_json::from_str(&text).map_err(|error| {
        Failure::new(crate::Exit::Other, "stat", format!("the server's statistics are no JSON: {error}"))
            .named(kelix::ErrorKind::Protocol.name())
    })?;
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
    fn a_server_that_tells_less_is_shown_all_the_same() {
        let report = report(&json!({"shards": [{"shard": 0}]}));
        assert!(report.contains('-') && report.contains("no clients"), "{report}");
    }
}
