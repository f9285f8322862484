//! What a server tells of itself, in tables. It may be any server, which has other things to tell or means no
//! good: whatever it says, this is text for a terminal, and not much longer than what was said.

use std::time::Duration;

use serde_json::Value;

use crate::bytes::show_name;
use crate::columns::{Column, Form, column, label, table};
use crate::units::{show_size, show_time};

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

const ORDERED: [Column; 11] = [
    Column { form: Form::Text, ..label("table", "/name") },
    label("shard", "/shard"),
    column("keys", "/keys", Form::Count),
    column("leaves", "/leaves", Form::Count),
    column("splits", "/splits", Form::Count),
    column("merges", "/merges", Form::Count),
    column("laid out", "/laid_out", Form::Count),
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

const MIRRORS: [Column; 12] = [
    Column { form: Form::Text, ..label("mirror", "/name") },
    Column { form: Form::Text, ..label("address", "/address") },
    Column { form: Form::Text, ..label("fabric", "/fabric") },
    Column { form: Form::Text, ..label("state", "/state") },
    column("copied MiB", "/copied_bytes", Form::Mib),
    column("of MiB", "/of_bytes", Form::Mib),
    column("sent MiB", "/sent_bytes", Form::Mib),
    label("records behind", "/lag_records"),
    Column { form: Form::Fraction, ..label("ms behind", "/lag_ms") },
    column("memory MiB", "/bytes", Form::Mib),
    column("reads", "/reads", Form::Count),
    Column { form: Form::Fraction, ..label("for s", "/since_seconds") },
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

/// Rows of a list at most: no server tells of more.
pub(crate) const ROWS_MAX: usize = 1000;

/// What a part of the statistics lists, as far as it can be rows.
pub(crate) fn rows(statistics: &Value, part: &str) -> Vec<Value> {
    let all = statistics[part].as_array().into_iter().flatten();
    all.filter(|row| row.is_object()).take(ROWS_MAX).cloned().collect()
}

/// A time in words.
fn show_seconds(seconds: f64) -> String {
    show_time(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// A row for each ordered table of each shard. One whose name is not known goes by its number.
pub(crate) fn ordered_rows(shards: &[Value]) -> Vec<Value> {
    let mut rows = Vec::new();
    for shard in shards {
        for mut row in self::rows(shard, "ordered").into_iter().take(ROWS_MAX - rows.len()) {
            row["shard"] = shard["shard"].clone();
            if !row["name"].is_string() {
                row["name"] = format!("#{}", row["table"]).into();
            }
            rows.push(row);
        }
    }
    rows
}

/// A row for each generation of each dataset, with who holds it.
fn generation_rows(statistics: &Value) -> Vec<Value> {
    let mut rows = rows(statistics, "generations");
    for row in &mut rows {
        let holders = row["holders"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut held_by = holders.collect::<Vec<_>>().join(", ");
        if let Some(more @ 1..) = row["holders_not_listed"].as_u64() {
            held_by += &format!(", and {more} more");
        }
        row["held_by"] = held_by.into();
    }
    rows
}

/// How old the newest snapshot is, and how it went with others; nothing, if the server takes none.
fn snapshots(statistics: &Value) -> String {
    let of = &statistics["snapshots"];
    let Some(taken) = of["taken"].as_u64() else { return String::new() };
    let newest = match (of["age_seconds"].as_f64(), of["bytes"].as_u64()) {
        (Some(age), Some(bytes)) => {
            format!("the newest {} old, {}", show_seconds(age), show_size(bytes))
        }
        _ => "none yet".into(),
    };
    let failed = of["failed"].as_u64().unwrap_or(0);
    format!("snapshots: {newest}; {taken} taken, {failed} failed since this server began\n")
}

/// What the log is, and what is wrong with it; nothing, if the server writes none.
fn wal(statistics: &Value) -> String {
    let of = &statistics["wal"];
    let Some(state) = of["state"].as_str() else { return String::new() };
    let number = |name: &str| of[name].as_u64().unwrap_or(0);
    let why = of["error"].as_str().map_or(String::new(), |error| format!(": {}", show_name(error)));
    let state = match state {
        "writes" => String::new(),
        "full" => format!("; FULL, no writes are taken until there is room{why}"),
        "past" => "; it shows an earlier moment and takes no writes".into(),
        _ => format!("; FAILED, no writes are taken any more{why}"),
    };
    let (syncs, files) = (number("syncs"), number("files"));
    let each_us = of["sync_seconds"].as_f64().unwrap_or(0.0) * 1e6 / syncs.max(1) as f64;
    format!(
        "log ({}): {} in {files} file{}; {} in {} batches since this server began; {syncs} syncs of {each_us:.0} us{state}\n",
        show_name(of["durable"].as_str().unwrap_or_default()),
        show_size(number("file_bytes")),
        if files == 1 { "" } else { "s" },
        show_size(number("bytes")),
        number("batches"),
    )
}

/// Of a node of a cluster: what it is, and whether writes are taken; nothing, if the server is none.
fn cluster(statistics: &Value) -> String {
    let of = &statistics["cluster"];
    let Some(node) = of["node"].as_str() else { return String::new() };
    let number = |name: &str| of[name].as_u64().unwrap_or(0);
    let role = match (of["role"].as_str(), of["primary"].as_str()) {
        (Some("primary"), _) => "primary".into(),
        (_, Some(primary)) => format!("replica of node {}", show_name(primary)),
        _ => "replica".into(),
    };
    let lease = of["lease_left_seconds"].as_f64();
    let writes = match of["accepts_writes"].as_bool() {
        Some(false) if number("in_sync") < number("min_in_sync") => "; TOO FEW, no writes are taken",
        Some(false) => "; no writes are taken until the register answers",
        _ => "",
    };
    format!(
        "cluster: node {}, {role}; view {}, {} in sync of at least {}{}{writes}\n",
        show_name(node),
        number("view"),
        number("in_sync"),
        number("min_in_sync"),
        lease.map_or(String::new(), |left| format!(", lease of {left:.1} s left")),
    )
}

/// Of a mirror: whose, and how far behind; nothing, if the server is none.
fn mirror(statistics: &Value) -> String {
    let of = &statistics["mirror"];
    let Some(primary) = of["primary"].as_str() else { return String::new() };
    let number = |name: &str| of[name].as_u64().unwrap_or(0);
    let lag = of["lag_ms"].as_f64().map_or("lag not known yet".into(), |lag| format!("lag {lag:.0} ms"));
    let why = of["lost"].as_str().map_or(String::new(), |lost| {
        format!("; its primary is LOST, and it shows what there was: {}", show_name(lost))
    });
    let last = of["applied"].as_array().into_iter().flatten().filter_map(Value::as_u64).sum::<u64>();
    format!(
        "mirror of {}: {lag}, record {last}, {} records applied since it was copied, {}/s{why}\n",
        show_name(primary),
        number("records"),
        show_size(of["applied_bytes_per_second"].as_f64().unwrap_or(0.0) as u64),
    )
}

/// The length of pages, and what share of memory is in such where there are others beside.
fn show_pages(statistics: &Value) -> String {
    let bytes = |name: &str| statistics["huge_pages"][name].as_u64().unwrap_or(0);
    let length = show_size(statistics["page_bytes"].as_u64().unwrap_or(0));
    let (huge, all) = (bytes("reserved_bytes") + bytes("granted_bytes"), bytes("segment_bytes"));
    match huge.saturating_mul(100).checked_div(all) {
        Some(percent @ 1..100) => format!("{length} ({percent} %, others in usual ones)"),
        _ => length,
    }
}

/// Which server it is, and which namespace.
pub(crate) fn title(statistics: &Value) -> String {
    let text = |name: &str| match &statistics[name] {
        Value::String(text) => show_name(text),
        Value::Null => "-".into(),
        other => show_name(&other.to_string()),
    };
    let rdma: Vec<&str> =
        statistics["rdma"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    format!(
        "server: process {}, kelix {}, term {}, up {}, shm in pages of {}{}{}\n{}{}{}{}namespace: {}{}\n",
        text("pid"),
        text("version"),
        text("term"),
        show_seconds(statistics["uptime_s"].as_f64().unwrap_or(0.0)),
        show_pages(statistics),
        statistics["tcp"]
            .as_str()
            .map_or(String::new(), |address| format!(", tcp at {}", show_name(address))),
        match &rdma[..] {
            [] => String::new(),
            addresses => format!(", verbs at {}", show_name(&addresses.join(" "))),
        },
        snapshots(statistics),
        wal(statistics),
        cluster(statistics),
        mirror(statistics),
        text("namespace"),
        match statistics["cache"].as_bool() {
            Some(true) => ", a cache: items go when memory is used up",
            _ => "",
        },
    )
}

/// A table, and how many more rows there are of the kind, with an empty line behind; nothing where there is
/// no row.
fn section(title: &str, columns: &[Column], rows: &[Value], more: u64) -> String {
    match (rows.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => table(title, columns, rows) + "\n",
        (false, more) => format!("{}  and {more} more\n\n", table(title, columns, rows)),
    }
}

/// All of the statistics, in tables.
pub(crate) fn report(statistics: &Value) -> String {
    let (shards, clients) = (rows(statistics, "shards"), rows(statistics, "clients"));
    let not_listed = |part: &str| statistics[part].as_u64().unwrap_or(0);
    let mut report = title(statistics) + "\n";
    for (title, columns) in [("requests", &REQUESTS[..]), ("work", &WORK), ("memory, MiB", &MEMORY)] {
        report += &table(title, columns, &shards);
        report.push('\n');
    }
    report += &section("memory by what it holds, MiB", &KINDS, &rows(statistics, "memory_by_kind"), 0);
    let more = shards.iter().filter_map(|shard| shard["ordered_not_listed"].as_u64());
    let more = more.fold(0, u64::saturating_add);
    report += &section("ordered tables", &ORDERED, &ordered_rows(&shards), more);
    let mut numbers = rows(statistics, "table_numbers");
    numbers.retain(|numbers| numbers["used"] != 0 || numbers["resting"] != 0);
    report += &section("numbers of tables", &NUMBERS, &numbers, 0);
    let more = not_listed("generations_not_listed");
    report += &section("generations", &GENERATIONS, &generation_rows(statistics), more);
    report += &section("mirrors that follow", &MIRRORS, &rows(statistics, "mirrors"), 0);
    match clients.is_empty() {
        true => report += "no clients\n",
        false => {
            report += &section("clients", &CLIENTS, &clients, not_listed("clients_not_listed"));
            // Nothing follows.
            report.pop();
        }
    }
    report
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
    fn a_node_tells_of_its_cluster() {
        let told = |of: Value| title(&json!({"shards": [], "cluster": of}));
        let primary = json!({"node": "b", "role": "primary", "primary": "b", "view": 7, "in_sync": 1,
            "min_in_sync": 2, "accepts_writes": false, "lease_left_seconds": 1.25});
        let line = "cluster: node b, primary; view 7, 1 in sync of at least 2, lease of 1.2 s left; TOO FEW, no writes";
        assert!(told(primary).contains(line));
        let replica = json!({"node": "c\u{1b}", "role": "replica", "primary": "b", "view": 7, "in_sync": 2,
            "min_in_sync": 1, "accepts_writes": null});
        let line = "cluster: node c\u{fffd}, replica of node b; view 7, 2 in sync of at least 1\n";
        assert!(told(replica).contains(line));
        assert!(!title(&json!({})).contains("cluster"));
    }

    #[test]
    fn mirrors_are_shown_a_line_each() {
        let mirror = |name: &str, state: &str| {
            json!({"name": name, "address": "192.0.2.7:40000", "state": state, "copied_bytes": 3 << 20,
                "of_bytes": 7 << 20, "sent_bytes": 9 << 20, "lag_records": 5, "lag_ms": 1.5,
                "bytes": 8 << 20, "reads": 12345, "since_seconds": 60.0})
        };
        let mirrors = [mirror("web1", "copying"), mirror("web\u{1b}2", "following")];
        let report = report(&json!({"shards": [{"shard": 0}], "mirrors": mirrors}));
        let lines: Vec<&str> = report.lines().filter(|line| line.contains("192.0.2.7:40000")).collect();
        assert!(lines[0].trim_start().starts_with("web1 ") && lines[0].contains("copying"), "{report}");
        assert!(
            lines[1].trim_start().starts_with("web\u{fffd}2 ") && lines[1].contains("following"),
            "{report}"
        );
        assert!(report.contains("mirrors that follow") && report.contains("ms behind"), "{report}");
    }

    /// A time below zero, a row that is a number and a long name each ended the program, and what the server
    /// said of itself could be sequences that a terminal obeys.
    #[test]
    fn whatever_a_server_tells_is_shown() {
        let report = report(&json!({
            "version": "\u{1b}[2J", "uptime_s": 1e300, "tcp": "a\nb", "rdma": ["\u{9b}31m"],
            "snapshots": {"taken": 1, "age_seconds": -1.0, "bytes": 7},
            "shards": [1, {"ordered": [2, {}], "ordered_not_listed": u64::MAX}, {"ordered_not_listed": 1}],
            "generations": ["x", {"dataset": "y".repeat(1 << 16), "holders": 1}],
            "clients": vec![json!({"fabric": "\u{7}"}); 1500],
        }));
        assert!(!report.chars().any(|c| c.is_control() && c != '\n'), "{report:?}");
        assert!(report.contains("and 18446744073709551615 more"), "{report}");
        assert!(report.lines().count() < 1100, "{} lines", report.lines().count());
    }

    #[test]
    fn a_server_that_tells_less_is_shown_all_the_same() {
        let report = report(&json!({"shards": [{"shard": 0}]}));
        assert!(report.contains('-') && report.contains("no clients"), "{report}");
        assert!(!report.contains("ordered"), "{report}");
    }
}
