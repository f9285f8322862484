//! Metrics for Prometheus: the server's statistics in its text format.

use std::fmt::Write;

use serde_json::Value;

/// A metric with a value for each shard: name, kind, help, and where it stands in the statistics of a shard.
const SHARD: [(&str, &str, &str, &str); 19] = [
    ("kelix_items", "gauge", "Items in the store.", "/items"),
    ("kelix_requests_total", "counter", "Requests taken.", "/requests"),
    ("kelix_gets_total", "counter", "Gets that were answered by message.", "/gets"),
    ("kelix_scans_total", "counter", "Pages of scans that were answered by message.", "/scans"),
    ("kelix_puts_total", "counter", "Items put.", "/puts"),
    ("kelix_deletes_total", "counter", "Keys deleted.", "/deletes"),
    ("kelix_expired_total", "counter", "Items whose time was over.", "/expired"),
    ("kelix_evicted_total", "counter", "Items that a cache let go.", "/evicted"),
    ("kelix_hints_total", "counter", "Reads that clients of a cache told of.", "/hints"),
    ("kelix_links_repaired_total", "counter", "Links repaired in place.", "/links_repaired"),
    ("kelix_writes_waited_total", "counter", "Writes that waited for memory.", "/writes_waited"),
    ("kelix_writes_refused_total", "counter", "Writes refused for lack of memory.", "/writes_refused"),
    (
        "kelix_writes_repeated_total",
        "counter",
        "Writes asked for again that had been done.",
        "/writes_repeated",
    ),
    ("kelix_items_evacuated_total", "counter", "Items moved out of sparse segments.", "/items_evacuated"),
    ("kelix_index_splits_total", "counter", "Splits of index blocks.", "/index_splits"),
    ("kelix_index_merges_total", "counter", "Merges of index blocks.", "/index_merges"),
    ("kelix_epochs_total", "counter", "Steps of the reclamation epoch.", "/epoch"),
    ("kelix_cpu_seconds_total", "counter", "Processor time of the shard's thread.", "/cpu_s"),
    ("kelix_segments_retired_total", "counter", "Segments given back.", "/memory/segments_retired"),
];

/// What the memory of a shard is used for.
const MEMORY: [(&str, &str); 5] = [
    ("limit", "/memory/limit_bytes"),
    ("segments", "/memory/segment_bytes"),
    ("used", "/memory/used_bytes"),
    ("live", "/memory/live_bytes"),
    ("quarantined", "/memory/quarantined_bytes"),
];

/// A metric with a value for each ordered table, which goes by its number.
const ORDERED: [(&str, &str, &str, &str); 10] = [
    ("kelix_ordered_keys", "gauge", "Keys of an ordered table.", "/keys"),
    ("kelix_ordered_leaves", "gauge", "Leaves of an ordered table.", "/leaves"),
    ("kelix_ordered_splits_total", "counter", "Leaves that became two.", "/splits"),
    ("kelix_ordered_merges_total", "counter", "Pairs of leaves that became one.", "/merges"),
    ("kelix_ordered_laid_out_total", "counter", "Leaves moved into the order of their keys.", "/laid_out"),
    ("kelix_ordered_models", "gauge", "Sub-models of an ordered table.", "/sub_models"),
    ("kelix_ordered_model_error", "gauge", "Mean error of its sub-models, in leaves.", "/model_error"),
    ("kelix_ordered_model_bytes", "gauge", "Bytes of its models.", "/model_bytes"),
    ("kelix_ordered_table_bytes", "gauge", "Bytes of its translation tables.", "/table_bytes"),
    ("kelix_ordered_models_trained_total", "counter", "Sub-models trained.", "/sub_models_trained"),
];

/// What clients tell of themselves, summed up by fabric, those that have gone included.
const CLIENTS: [(&str, &str, &str, &str); 6] = [
    ("kelix_clients", "gauge", "Clients connected.", "/connected"),
    ("kelix_client_reads_total", "counter", "One-sided reads, which the server does not see.", "/reads"),
    ("kelix_client_read_bytes_total", "counter", "Bytes read one-sidedly.", "/read_bytes"),
    ("kelix_client_messages_total", "counter", "Messages sent.", "/messages"),
    ("kelix_client_retries_total", "counter", "Reads that met a change and were done again.", "/retries"),
    ("kelix_client_fallbacks_total", "counter", "Reads that ended in a message.", "/fallbacks"),
];

/// A metric with a value for each mirror that follows. What a mirror has not told yet has none.
const MIRROR: [(&str, &str, &str, &str); 8] = [
    (
        "kelix_mirror_copied_bytes",
        "gauge",
        "Memory that was copied to a mirror that follows.",
        "/copied_bytes",
    ),
    ("kelix_mirror_of_bytes", "gauge", "Memory that is to be.", "/of_bytes"),
    ("kelix_mirror_sent_bytes_total", "counter", "Bytes that were sent to it.", "/sent_bytes"),
    ("kelix_mirror_lag_records", "gauge", "Records that it has not applied.", "/lag_records"),
    ("kelix_mirror_lag_ms", "gauge", "How old what it has was when it last said, in ms.", "/lag_ms"),
    ("kelix_mirror_bytes", "gauge", "Its memory.", "/bytes"),
    ("kelix_mirror_reads_total", "counter", "Reads of its clients.", "/reads"),
    ("kelix_mirror_seconds", "gauge", "How long it has followed.", "/since_seconds"),
];

/// What the server has one of. Of snapshots there is nothing where it takes none, and of a log where
/// it writes none.
const SERVER: [(&str, &str, &str, &str); 15] = [
    (
        "kelix_snapshot_age_seconds",
        "gauge",
        "Age of the newest snapshot, if there is one.",
        "/snapshots/age_seconds",
    ),
    ("kelix_snapshot_bytes", "gauge", "Its length.", "/snapshots/bytes"),
    ("kelix_snapshot_seconds", "gauge", "How long it took.", "/snapshots/seconds"),
    ("kelix_snapshots_taken_total", "counter", "Snapshots that this server has taken.", "/snapshots/taken"),
    ("kelix_snapshots_failed_total", "counter", "Snapshots that it could not take.", "/snapshots/failed"),
    (
        "kelix_wal_takes_writes",
        "gauge",
        "Whether the log takes writes; 0: its disk is full or has failed.",
        "/wal/takes_writes",
    ),
    (
        "kelix_wal_batches_total",
        "counter",
        "Batches that were logged since the server started.",
        "/wal/batches",
    ),
    ("kelix_wal_bytes_total", "counter", "Bytes that were logged.", "/wal/bytes"),
    ("kelix_wal_syncs_total", "counter", "Syncs of the log.", "/wal/syncs"),
    ("kelix_wal_sync_seconds_total", "counter", "Time that these took.", "/wal/sync_seconds"),
    ("kelix_wal_file_bytes", "gauge", "Bytes of the files of the log.", "/wal/file_bytes"),
    (
        "kelix_huge_pages_reserved_bytes",
        "gauge",
        "Bytes of memory in pages of 2 MiB that the host has reserved.",
        "/huge_pages/reserved_bytes",
    ),
    (
        "kelix_huge_pages_granted_bytes",
        "gauge",
        "Bytes of memory in pages of 2 MiB that the system granted.",
        "/huge_pages/granted_bytes",
    ),
    ("kelix_uptime_seconds", "gauge", "Time since the server started.", "/uptime_s"),
    ("kelix_term", "gauge", "The term the server serves in.", "/term"),
];

/// What a node tells of its cluster.
const NODE: [(&str, &str, &str, &str); 6] = [
    ("kelix_view_number", "gauge", "The number of the cluster's view that this node knows.", "/cluster/view"),
    (
        "kelix_in_sync",
        "gauge",
        "Nodes that have all that counts, the primary among them.",
        "/cluster/in_sync",
    ),
    ("kelix_min_in_sync", "gauge", "Nodes that have to be in sync for writes.", "/cluster/min_in_sync"),
    (
        "kelix_accepts_writes",
        "gauge",
        "Of a primary: whether writes are taken; 0: too few nodes are in sync, or its lease is over.",
        "/cluster/accepts_writes",
    ),
    (
        "kelix_lease_left_seconds",
        "gauge",
        "Of a primary on several hosts: how long it counts without asking its register.",
        "/cluster/lease_left_seconds",
    ),
    (
        "kelix_failovers_total",
        "counter",
        "How often this process went on in a primary's place.",
        "/cluster/promotions",
    ),
];

fn begin(text: &mut String, (name, kind, help): (&str, &str, &str)) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// One line, if there is such a value.
fn line(text: &mut String, name: &str, labels: &str, from: &Value, pointer: &str) {
    let value = match from.pointer(pointer) {
        Some(Value::Bool(is)) => Some(Value::from(u8::from(*is))),
        value => value.filter(|value| value.is_number()).cloned(),
    };
    if let Some(value) = value {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

/// What a node tells of its cluster, and of each node that it knows.
fn cluster(text: &mut String, statistics: &Value) {
    let of = &statistics["cluster"];
    begin(text, ("kelix_role", "gauge", "1 for the role that this node has."));
    for role in ["primary", "replica"] {
        let is = u8::from(of["role"] == role);
        let _ = writeln!(text, "kelix_role{{node={},role=\"{role}\"}} {is}", of["node"]);
    }
    for (name, kind, help, pointer) in NODE {
        begin(text, (name, kind, help));
        line(text, name, "", statistics, pointer);
    }
    begin(text, ("kelix_node_in_sync", "gauge", "Whether a node is in sync, as far as this one knows."));
    for node in of["nodes"].as_array().into_iter().flatten() {
        let labels = format!("node={},role={}", node["node"], node["role"]);
        line(text, "kelix_node_in_sync", &labels, node, "/in_sync");
    }
}

/// The statistics of all namespaces, the first of which also tells of the server, in Prometheus's text
/// format.
pub(crate) fn exposition(namespaces: &[Value]) -> String {
    let mut text = String::new();
    let shards: Vec<(String, &Value)> = namespaces
        .iter()
        .flat_map(|of| of["shards"].as_array().into_iter().flatten().map(move |shard| (of, shard)))
        .map(|(of, shard)| (format!("namespace={},shard=\"{}\"", of["namespace"], shard["shard"]), shard))
        .collect();
    for (name, kind, help, pointer) in SHARD {
        begin(&mut text, (name, kind, help));
        for (labels, shard) in &shards {
            line(&mut text, name, labels, shard, pointer);
        }
    }
    begin(&mut text, ("kelix_memory_bytes", "gauge", "Memory of a shard, by what it is."));
    for (labels, shard) in &shards {
        for (what, pointer) in MEMORY {
            line(&mut text, "kelix_memory_bytes", &format!("{labels},what=\"{what}\""), shard, pointer);
        }
    }
    for (name, kind, help, pointer) in ORDERED {
        begin(&mut text, (name, kind, help));
        for (labels, shard) in &shards {
            for table in shard["ordered"].as_array().into_iter().flatten() {
                let labels = format!("{labels},table=\"{}\"", table["table"]);
                line(&mut text, name, &labels, table, pointer);
            }
        }
    }
    begin(&mut text, ("kelix_table_numbers", "gauge", "Numbers of tables of each kind, by what they are."));
    for of in namespaces {
        for numbers in of["table_numbers"].as_array().into_iter().flatten() {
            for what in ["used", "resting", "left"] {
                let labels =
                    format!("namespace={},kind={},what=\"{what}\"", of["namespace"], numbers["kind"]);
                line(&mut text, "kelix_table_numbers", &labels, numbers, &format!("/{what}"));
            }
        }
    }
    for (name, kind, help, pointer) in CLIENTS {
        begin(&mut text, (name, kind, help));
        for of in namespaces {
            for (fabric, sums) in of["fabrics"].as_object().into_iter().flatten() {
                let labels = format!("namespace={},fabric=\"{fabric}\"", of["namespace"]);
                line(&mut text, name, &labels, sums, pointer);
            }
        }
    }
    begin(&mut text, ("kelix_mirrors", "gauge", "Mirrors that follow, by how far they are."));
    for of in namespaces {
        for state in ["copying", "catching up", "following"] {
            let mirrors = of["mirrors"].as_array().into_iter().flatten();
            let count = mirrors.filter(|mirror| mirror["state"] == state).count();
            let namespace = &of["namespace"];
            let _ = writeln!(text, "kelix_mirrors{{namespace={namespace},state=\"{state}\"}} {count}");
        }
    }
    for (name, kind, help, pointer) in MIRROR {
        begin(&mut text, (name, kind, help));
        for of in namespaces {
            for mirror in of["mirrors"].as_array().into_iter().flatten() {
                let (namespace, address) = (&of["namespace"], &mirror["address"]);
                let labels = format!("namespace={namespace},mirror={},address={address}", mirror["name"]);
                line(&mut text, name, &labels, mirror, pointer);
            }
        }
    }
    let statistics = &namespaces[0];
    for (name, kind, help, pointer) in SERVER {
        begin(&mut text, (name, kind, help));
        line(&mut text, name, "", statistics, pointer);
    }
    if statistics["cluster"].is_object() {
        cluster(&mut text, statistics);
    }
    begin(&mut text, ("kelix_info", "gauge", "Always 1."));
    let _ = writeln!(text, "kelix_info{{version={}}} 1", statistics["version"]);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let text = exposition(&[json!({
            "version": "0.1.0", "term": 3, "uptime_s": 1.5, "namespace": "default",
            "huge_pages": {"segment_bytes": 8388608, "reserved_bytes": 4194304, "granted_bytes": 0},
            "shards": [{"shard": 0, "items": 7, "scans": 4, "memory": {"live_bytes": 100},
                "ordered": [{"table": 32769, "keys": 20, "leaves": 2, "splits": 1, "merges": 0}]}],
            "fabrics": {"shm": {"connected": 1, "reads": 12}, "tcp": {"connected": 0, "reads": 5}},
            "mirrors": [{"name": "web1", "address": "192.0.2.7:40000", "state": "following", "lag_records": 3,
                "lag_ms": 1.5, "sent_bytes": 4096, "reads": null}],
            "cluster": {"node": "b", "role": "primary", "view": 7, "in_sync": 2, "min_in_sync": 2,
                "accepts_writes": true, "lease_left_seconds": null, "promotions": 1,
                "nodes": [{"node": "b", "role": "primary", "in_sync": true},
                    {"node": "c", "role": "replica", "in_sync": false}]},
            "snapshots": {"age_seconds": 2.5, "bytes": 4096, "seconds": null, "taken": 0, "failed": 1},
        })]);
        for line in [
            "# TYPE kelix_items gauge",
            "kelix_items{namespace=\"default\",shard=\"0\"} 7",
            "kelix_scans_total{namespace=\"default\",shard=\"0\"} 4",
            "kelix_ordered_keys{namespace=\"default\",shard=\"0\",table=\"32769\"} 20",
            "kelix_ordered_merges_total{namespace=\"default\",shard=\"0\",table=\"32769\"} 0",
            "kelix_memory_bytes{namespace=\"default\",shard=\"0\",what=\"live\"} 100",
            "kelix_client_reads_total{namespace=\"default\",fabric=\"shm\"} 12",
            "kelix_client_reads_total{namespace=\"default\",fabric=\"tcp\"} 5",
            "kelix_mirrors{namespace=\"default\",state=\"copying\"} 0",
            "kelix_mirrors{namespace=\"default\",state=\"catching up\"} 0",
            "kelix_mirrors{namespace=\"default\",state=\"following\"} 1",
            "kelix_mirror_lag_ms{namespace=\"default\",mirror=\"web1\",address=\"192.0.2.7:40000\"} 1.5",
            "kelix_snapshot_age_seconds 2.5",
            "kelix_snapshots_failed_total 1",
            "kelix_uptime_seconds 1.5",
            "kelix_huge_pages_reserved_bytes 4194304",
            "kelix_huge_pages_granted_bytes 0",
            "kelix_role{node=\"b\",role=\"primary\"} 1",
            "kelix_role{node=\"b\",role=\"replica\"} 0",
            "kelix_view_number 7",
            "kelix_accepts_writes 1",
            "kelix_failovers_total 1",
            "kelix_node_in_sync{node=\"b\",role=\"primary\"} 1",
            "kelix_node_in_sync{node=\"c\",role=\"replica\"} 0",
            "kelix_info{version=\"0.1.0\"} 1",
        ] {
            assert!(text.lines().any(|has| has == line), "\"{line}\" is not in\n{text}");
        }
        // Every line is a comment or a name, perhaps labels, and a number.
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            assert!(name.starts_with("kelix_") && value.parse::<f64>().is_ok(), "{line}");
        }
        assert!(
            !exposition(&[json!({"namespace": "default"})]).contains("kelix_role"),
            "there is no cluster"
        );
    }
}
