//! What `kelix stat` shows.

use std::sync::Arc;

use kelix_wire::mailbox_word;
use serde_json::{Value, json};

use crate::clients::ClientWay;
use crate::server::Shared;

/// Statistics of the whole server.
pub(crate) fn json(shared: &Arc<Shared>) -> String {
    let shards: Vec<Value> = shared
        .shards
        .iter()
        .enumerate()
        .map(|(number, shard)| {
            let report = *shard.report.lock().expect("no panic under this lock");
            let (counters, memory) = (report.counters, report.memory);
            json!({
                "shard": number,
                "items": counters.items,
                "requests": counters.requests,
                "gets": counters.gets,
                "puts": counters.puts,
                "deletes": counters.deletes,
                "expired": counters.expired,
                "links_repaired": counters.links_repaired,
                "writes_waited": counters.waited,
                "writes_refused": counters.refused,
                "items_evacuated": counters.evacuated,
                "index_splits": report.splits,
                "index_merges": report.merges,
                "epoch": report.epoch,
                "cpu_s": report.cpu.as_secs_f64(),
                "sleeps": report.sleeps,
                "memory": {
                    "limit_bytes": memory.limit,
                    "segment_bytes": memory.segments,
                    "used_bytes": memory.pages,
                    "live_bytes": memory.live,
                    "quarantined_bytes": memory.quarantined,
                    "segments_retired": memory.segments_retired,
                },
            })
        })
        .collect();
    let clients = shared.clients.lock().expect("no panic under this lock");
    let clients: Vec<Value> = clients
        .iter()
        .filter(|client| !client.mailboxes.is_empty())
        .map(|client| {
            let sum = |word: usize| -> u64 {
                // The client's own words: whatever they are, adding them up must not fail.
                let counters = client.mailboxes.iter();
                counters.fold(0u64, |sum, mailbox| {
                    sum.wrapping_add(mailbox.words().load(mailbox_word::COUNTERS + word))
                })
            };
            let (fabric, pid, uid, address) = match &client.way {
                ClientWay::Shm { pid, uid, .. } => ("shm", Some(pid), Some(uid), None),
                ClientWay::Tcp { address, .. } => ("tcp", None, None, Some(address.to_string())),
            };
            json!({
                "fabric": fabric,
                "pid": pid,
                "uid": uid,
                "address": address,
                "reads": sum(0),
                "read_bytes": sum(1),
                "messages": sum(2),
                "retries": sum(3),
                "fallbacks": sum(4),
                "segments_mapped": sum(5),
            })
        })
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "term": shared.authority.term,
        "tcp": shared.tcp.map(|address| address.to_string()),
        "page_bytes": kelix_fabric::shm::page_bytes(),
        "uptime_s": shared.started.elapsed().as_secs_f64(),
        "shards": shards,
        "clients": clients,
    })
    .to_string()
}
