//! What `kelix stat` shows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use kelix_fabric::shm::{NumaNode, are_granted, granted_bytes};
use kelix_image::Kind;
use kelix_shard::{GenerationReport, NumberCounts, Stage};
use kelix_types::TableKind;
use kelix_types::limits::HUGE_PAGE_BYTES;
use rustix::param::page_size;

use crate::clients::{ClientRecord, ClientWay};
use crate::namespace::Namespace;
use crate::server::Shared;
use crate::shard_thread::{OrderedReport, Report};
use crate::snapshots::Snapshots;

/// So many clients are told of one by one, so that all fits a frame of the set-up conversation.
const CLIENTS_LISTED: usize = 1000;
/// Clients that hold a generation and are named: so what is told of it fits into a frame, whoever holds what.
const HOLDERS_LISTED: usize = 20;
/// So many ordered tables, for the same reason.
const ORDERED_LISTED: usize = 1000;

fn ordered(table: &OrderedReport) -> Value {
    json!({
        "table": table.table.0,
        "keys": table.keys,
        "leaves": table.leaves,
        "splits": table.splits,
        "merges": table.merges,
        "laid_out": table.laid_out,
        "sub_models": table.models.sub_models,
        "model_error": table.models.errors as f64 / table.models.sub_models.max(1) as f64,
        "model_bytes": table.models.top_bytes,
        "table_bytes": table.models.table_bytes,
        "sub_models_trained": table.models.trained,
        "top_models_made": table.models.tops,
    })
}

/// A generation of a dataset, and who holds it.
fn generation((generation, holders): &(GenerationReport, Vec<u64>), clients: &[ClientRecord]) -> Value {
    let GenerationReport { dataset, number, stage, tables, .. } = generation;
    let stage = match stage {
        Stage::Built => "being built",
        Stage::InForce => "in force",
        Stage::Superseded(_) => "superseded",
        Stage::Unlisted(_) => "unlisted",
        Stage::Dropped(_) => "being dropped",
    };
    let held = clients.iter().filter(|client| holders.contains(&client.connection)).take(HOLDERS_LISTED);
    let held: Vec<String> = held.map(ClientRecord::who).collect();
    json!({
        "dataset": dataset,
        "generation": number,
        "stage": stage,
        "tables": tables,
        "holders_not_listed": holders.len().saturating_sub(held.len()),
        "holders": held,
    })
}

/// What the memory of all shards together is used for, by what its slots hold and how long they are.
#[derive(Default)]
struct MemoryByKind {
    /// Slots in use, and bytes of all slabs.
    kinds: BTreeMap<Kind, (u64, u64)>,
    /// Bytes of large values in use, and of all page runs.
    runs: (u64, u64),
}

impl MemoryByKind {
    fn add(&mut self, report: &Report) {
        let mut slab_bytes = 0;
        for of in &report.kinds {
            let sum = self.kinds.entry(of.kind).or_default();
            *sum = (sum.0 + of.slots, sum.1 + of.slab_bytes);
            slab_bytes += of.slab_bytes;
        }
        self.runs.0 += report.memory.runs;
        self.runs.1 += report.memory.pages.saturating_sub(slab_bytes);
    }

    fn json(&self) -> Vec<Value> {
        let row = |what: &str, slots: Option<(u64, u64)>, live: u64, used: u64| {
            json!({
                "what": what,
                "slot_bytes": slots.map(|(bytes, _)| bytes),
                "slots": slots.map(|(_, count)| count),
                "live_bytes": live,
                "used_bytes": used,
            })
        };
        let slabs = self.kinds.iter().map(|(kind, (slots, used))| {
            row(kind.name(), Some((kind.slot_bytes(), *slots)), slots * kind.slot_bytes(), *used)
        });
        let runs = (self.runs.1 > 0).then(|| row("large values", None, self.runs.0, self.runs.1));
        slabs.chain(runs).collect()
    }
}

/// Bytes of all segments of the server, and of those in huge pages, by whether the host has reserved them.
struct Pages {
    segments: u64,
    reserved: u64,
    granted: u64,
}

/// When it was asked last what the system has granted, and what that was.
static GRANTED: Mutex<Option<(Instant, u64)>> = Mutex::new(None);
/// Between two such questions, for which the system goes through all pages that are mapped.
const GRANTED_ASKED: Duration = Duration::from_secs(10);

impl Pages {
    fn of(shared: &Shared) -> Pages {
        let shards = shared.namespaces.iter().flat_map(|namespace| &namespace.shards);
        let segments = shards.flat_map(|shard| shard.segments.list());
        let sum = segments.fold((0, 0), |(all, reserved), segment| {
            let bytes = segment.memory.bytes();
            (all + bytes, reserved + if segment.memory.is_in_reserved_pages() { bytes } else { 0 })
        });
        let mut granted = GRANTED.lock().expect("no panic under this lock");
        if granted.is_none_or(|(asked, _)| asked.elapsed() > GRANTED_ASKED) {
            // Where none are granted none are looked for.
            *granted = Some((Instant::now(), if are_granted() { granted_bytes() } else { 0 }));
        }
        Pages { segments: sum.0, reserved: sum.1, granted: granted.map_or(0, |(_, bytes)| bytes) }
    }
}

/// How often clients of a namespace have read so far.
pub(crate) fn reads(shared: &Shared, namespace: &Namespace) -> u64 {
    let clients = shared.clients.lock().expect("no panic under this lock");
    let here = clients.iter().filter(|client| client.namespace.name == namespace.name);
    let here = here.fold(0u64, |sum, client| sum.wrapping_add(client.counter(0)));
    let gone = shared.gone.lock().expect("no panic under this lock");
    let gone = gone.iter().filter(|((of, _), _)| *of == namespace.name);
    gone.fold(here, |sum, (_, counters)| sum.wrapping_add(counters[0]))
}

/// Statistics of a namespace, and what of the server is everybody's.
pub(crate) fn json(shared: &Arc<Shared>, namespace: &Namespace) -> Value {
    let mut tables_left = ORDERED_LISTED;
    let mut by_kind = MemoryByKind::default();
    let shards: Vec<Value> = namespace
        .shards
        .iter()
        .enumerate()
        .map(|(number, shard)| {
            let report = shard.report.lock().expect("no panic under this lock").clone();
            let (counters, memory) = (report.counters, report.memory);
            by_kind.add(&report);
            let listed = report.ordered.len().min(tables_left);
            tables_left -= listed;
            json!({
                "shard": number,
                "items": counters.items,
                "requests": counters.requests,
                "gets": counters.gets,
                "scans": counters.scans,
                "sub_models_told": counters.models_told,
                "puts": counters.puts,
                "deletes": counters.deletes,
                "expired": counters.expired,
                "evicted": counters.evicted,
                "hints": counters.hints,
                "links_repaired": counters.links_repaired,
                "writes_waiting": report.writes_waiting,
                "writes_waited": counters.waited,
                "writes_refused": counters.refused,
                "writes_repeated": counters.repeated,
                "items_evacuated": counters.evacuated,
                "index_splits": report.splits,
                "index_merges": report.merges,
                "ordered": report.ordered[..listed].iter().map(ordered).collect::<Vec<Value>>(),
                "ordered_not_listed": report.ordered.len() - listed + report.ordered_not_listed,
                "epoch": report.epoch,
                "cpu_s": report.cpu.as_secs_f64(),
                "sleeps": report.sleeps,
                "core": shard.core(),
                "numa_node": shard.node().map(NumaNode::number),
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
    let records = shared.clients.lock().expect("no panic under this lock");
    let is_session =
        |client: &&ClientRecord| !client.mailboxes.is_empty() && client.namespace.name == namespace.name;
    let sessions = || records.iter().filter(is_session);
    let mut sums = shared.gone.lock().expect("no panic under this lock").clone();
    let fabrics = ["shm", "verbs", "tcp"].map(|fabric| {
        let sum = sums.entry((namespace.name.clone(), fabric)).or_default();
        let here = || sessions().filter(|client| client.fabric() == fabric);
        here().for_each(|client| client.add_to(sum));
        let [reads, read_bytes, messages, retries, fallbacks] = *sum;
        let sums = json!({
            "connected": here().count(),
            "reads": reads,
            "read_bytes": read_bytes,
            "messages": messages,
            "retries": retries,
            "fallbacks": fallbacks,
        });
        (fabric.to_string(), sums)
    });
    let mirror = namespace.mirrored.as_ref().map(|mirrored| {
        let applied: Vec<u64> = namespace.shards.iter().map(|shard| shard.applied().record).collect();
        mirrored.standing.json(&applied)
    });
    let not_listed = sessions().count().saturating_sub(CLIENTS_LISTED);
    let clients: Vec<Value> = sessions()
        .take(CLIENTS_LISTED)
        .map(|client| {
            let (pid, uid, address) = match &client.way {
                ClientWay::Shm { pid, uid, .. } => (Some(pid), Some(uid), None),
                ClientWay::Tcp { address, .. } | ClientWay::Verbs { address, .. } => {
                    (None, None, Some(address.to_string()))
                }
            };
            let (samples, hot) = client.hot();
            json!({
                "connection": client.connection,
                "fabric": client.fabric(),
                "pid": pid,
                "uid": uid,
                "address": address,
                "reads": client.counter(0),
                "read_bytes": client.counter(1),
                "messages": client.counter(2),
                "retries": client.counter(3),
                "fallbacks": client.counter(4),
                "segments_mapped": client.counter(5),
                "model_bytes": client.counter(6),
                "samples": samples,
                "hot": hot,
            })
        })
        .collect();
    let (first, generations_not_listed, numbers) = {
        let report = namespace.shards[0].report.lock().expect("no panic under this lock");
        (report.generations.clone(), report.generations_not_listed, report.numbers)
    };
    let numbers = TableKind::ALL.iter().zip(numbers).map(|(kind, NumberCounts { used, resting, left })| {
        json!({"kind": kind.to_string(), "used": used, "resting": resting, "left": left})
    });
    let pages = Pages::of(shared);
    let generations: Vec<Value> = first.iter().map(|of| generation(of, &records)).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "term": shared.authority.term,
        "namespace": namespace.name,
        "cache": namespace.is_cache,
        "tcp": shared.tcp.map(|address| address.to_string()),
        "rdma": shared.rdma.iter().map(SocketAddr::to_string).collect::<Vec<_>>(),
        "page_bytes": if pages.reserved + pages.granted > 0 { HUGE_PAGE_BYTES } else { page_size() as u64 },
        "huge_pages": {
            "segment_bytes": pages.segments,
            "reserved_bytes": pages.reserved,
            "granted_bytes": pages.granted,
        },
        "uptime_s": shared.started.elapsed().as_secs_f64(),
        "snapshots": shared.snapshots.as_ref().map(Snapshots::json),
        "wal": shared.wal.as_ref().map(|wal| wal.json()),
        "cluster": shared.node.as_ref().map(|node| node.json(shared)),
        "mirror": mirror,
        "mirrors": shared.feeds.json(namespace),
        "shards": shards,
        "memory_by_kind": by_kind.json(),
        "table_numbers": numbers.collect::<Vec<_>>(),
        "generations": generations,
        "generations_not_listed": generations_not_listed,
        "fabrics": serde_json::Map::from_iter(fabrics),
        "clients": clients,
        "clients_not_listed": not_listed,
    })
}

#[cfg(test)]
mod tests {
    use crate::{Server, ServerConfig};

    /// A load that came as soon as the server had said that it serves was told that there was no memory: the
    /// shard's thread had not come round to tell of it.
    #[test]
    fn memory_is_told_from_the_first_moment_on() {
        let directory = std::env::temp_dir().join(format!("kelix-statistics-{}", std::process::id()));
        // So many that their threads do not all come round in time.
        let config = ServerConfig {
            directory: directory.clone(),
            shards: 64,
            memory_bytes: 1 << 30,
            ..ServerConfig::default()
        };
        let server = Server::start(&config).expect("a server");
        let told = server.statistics().json();
        server.stop();
        std::fs::remove_dir_all(directory).expect("its own directory");
        let limits = told[0]["shards"].as_array().expect("shards").iter();
        let limits: Vec<u64> = limits.filter_map(|shard| shard["memory"]["limit_bytes"].as_u64()).collect();
        assert_eq!(limits, [16 << 20; 64]);
    }
}
