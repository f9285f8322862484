//! What a server tells of itself: as values here, and as JSON on the way.
//!
//! What a server of another release does not tell is empty or zero, and what it tells beyond this is passed
//! over.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kelix_types::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Statistics of a namespace, and of the server what is everybody's.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Statistics {
    /// The server.
    #[serde(flatten)]
    pub server: ServerStatistics,
    /// The namespace; empty: the default one.
    pub namespace: String,
    /// Whether items are let go when memory is used up.
    pub cache: bool,
    /// Each shard.
    pub shards: Vec<ShardStatistics>,
    /// What the memory of all shards together is used for.
    pub memory_by_kind: Vec<MemoryUse>,
    /// The numbers of tables, of which there are so many of a kind.
    pub table_numbers: Vec<TableNumbers>,
    /// Generations of datasets.
    pub generations: Vec<GenerationStatistics>,
    /// How many more there are.
    pub generations_not_listed: u64,
    /// What sessions have cost so far, by the fabric's name: shm, verbs, tcp.
    pub fabrics: BTreeMap<String, FabricStatistics>,
    /// Sessions that are connected.
    pub clients: Vec<ClientStatistics>,
    /// How many more there are.
    pub clients_not_listed: u64,
    /// Mirrors that follow the namespace.
    pub mirrors: Vec<MirrorStatistics>,
}

/// A server.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ServerStatistics {
    /// Its release.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its term: each start of a server in a run directory has the next one.
    pub term: u64,
    /// Where it listens for TCP.
    pub tcp: Option<String>,
    /// The addresses of its RDMA devices.
    pub rdma: Vec<String>,
    /// Bytes of the largest pages of its shared memory.
    pub page_bytes: u64,
    /// How much of that is in pages of 2 MiB.
    pub huge_pages: HugePageStatistics,
    /// Seconds since its start.
    pub uptime_s: f64,
    /// How it goes with snapshots, where the server takes any.
    pub snapshots: Option<SnapshotStatistics>,
    /// How it goes with the log, where the server writes one.
    pub wal: Option<WalStatistics>,
    /// Of a node of a cluster: what it knows of itself and the others.
    pub cluster: Option<ClusterStatistics>,
    /// Of a mirror: how it goes with following its primary.
    pub mirror: Option<FollowerStatistics>,
}

/// What of a server's shared memory is in pages of 2 MiB.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HugePageStatistics {
    /// Bytes of all segments, in pages of any length.
    pub segment_bytes: u64,
    /// Of these in pages that the host has reserved (`vm.nr_hugepages`).
    pub reserved_bytes: u64,
    /// In pages that the system granted, as it was at most ten seconds ago.
    pub granted_bytes: u64,
}

/// What a node of a cluster knows of itself and the others.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClusterStatistics {
    /// The name of the node.
    pub node: String,
    /// What it is: `primary` or `replica`.
    pub role: String,
    /// The name of the node that is primary.
    pub primary: Option<String>,
    /// The number of the newest view of the cluster that the node knows.
    pub view: u64,
    /// The term of the primary, of which no other one has been or will be.
    pub term: u64,
    /// Nodes that have all that counts, the primary among them.
    pub in_sync: u64,
    /// How many have to be in sync, the primary among them, for writes to be accepted.
    pub min_in_sync: u64,
    /// Of the primary: so many are, as far as it knows for certain, and its lease is not over.
    pub accepts_writes: Option<bool>,
    /// Of the primary, on several hosts: the seconds for which it counts without asking its register again.
    pub lease_left_seconds: Option<f64>,
    /// How often its process went on in a primary's place.
    pub promotions: u64,
    /// The nodes that have joined.
    pub nodes: Vec<NodeStatistics>,
}

/// A node of a cluster, as another one knows it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodeStatistics {
    /// The name of the node.
    pub node: String,
    /// What the node is: `primary` or `replica`.
    pub role: String,
    /// The node has all that counts, so that it may go on in the primary's place.
    pub in_sync: bool,
    /// Host and port where nodes and clients over TCP find it.
    pub address: String,
    /// The number of the member, from the node's start until it begins anew, in hexadecimal digits.
    pub boot: String,
    /// Of a replica, as its primary knows: it has mapped the primary's streams, and finds there what has not
    /// been sent to it.
    pub maps_streams: Option<bool>,
}

/// How it goes with a mirror.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FollowerStatistics {
    /// Host and port of the primary.
    pub primary: String,
    /// `following`; or `lost`: the mirror shows what there was, and tries to attach anew.
    pub state: String,
    /// Why the primary is lost.
    pub lost: Option<String>,
    /// How old what is shown may be, in milliseconds; none before that is known.
    pub lag_ms: Option<f64>,
    /// Records that were applied since the mirror was copied.
    pub records: u64,
    /// The last record of each shard that was applied.
    pub applied: Vec<u64>,
    /// Bytes of records that were applied since the mirror was copied.
    pub applied_bytes: u64,
    /// How many of them a second, lately.
    pub applied_bytes_per_second: f64,
}

/// How it goes with the log of a server.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WalStatistics {
    /// When writes are answered: `lazy`, or `commit`: when they are on the disk.
    pub durable: String,
    /// Whether writes are taken: `writes`; `full`: not while there is no room on the disk; `failed`: a write
    /// or a sync failed, and none are taken any more; `past`: the server shows an earlier moment.
    pub state: String,
    /// Why they are not.
    pub error: Option<String>,
    /// Batches written since the server's start.
    pub batches: u64,
    /// Records in them: steps of shards.
    pub records: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Syncs since the server's start.
    pub syncs: u64,
    /// Seconds that these took.
    pub sync_seconds: f64,
    /// Files of the log.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// What the server began with.
    pub replayed: ReplayStatistics,
}

/// What a server read of its log when it began.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ReplayStatistics {
    /// The snapshot that it began with.
    pub base: Option<String>,
    /// Batches behind that.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Seconds that all of it took.
    pub seconds: f64,
    /// Bytes at the end that were not written to their end, and are left out.
    pub torn_bytes: u64,
    /// The number of the last batch.
    pub last_batch: u64,
}

/// How it goes with the snapshots of a server.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SnapshotStatistics {
    /// Seconds between two; none: only when asked for.
    pub every_seconds: Option<f64>,
    /// How many are kept.
    pub keep: u64,
    /// Seconds since the newest was made.
    pub age_seconds: Option<f64>,
    /// Its bytes.
    pub bytes: Option<u64>,
    /// Seconds that it took.
    pub seconds: Option<f64>,
    /// Snapshots taken since the server's start.
    pub taken: u64,
    /// Snapshots that failed.
    pub failed: u64,
}

/// A shard: what it has done since the server's start, and what is in it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ShardStatistics {
    /// Its number.
    pub shard: u64,
    /// Items now.
    pub items: u64,
    /// The requests that it has answered.
    #[serde(flatten)]
    pub requests: RequestStatistics,
    /// Writes that found no room, or came twice.
    #[serde(flatten)]
    pub writes: WriteStatistics,
    /// What it has done by itself.
    #[serde(flatten)]
    pub upkeep: UpkeepStatistics,
    /// Ordered tables.
    pub ordered: Vec<OrderedStatistics>,
    /// How many more there are.
    pub ordered_not_listed: u64,
    /// Seconds of processor time of the shard's thread.
    pub cpu_s: f64,
    /// How often the thread slept.
    pub sleeps: u64,
    /// The core that the thread is pinned to.
    pub core: Option<u64>,
    /// The NUMA node that its core and its memory are on, where the host has several: clients on cores of this
    /// node find the memory in less time.
    pub numa_node: Option<u64>,
    /// Its memory.
    pub memory: MemoryStatistics,
}

/// Requests that a shard has answered.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RequestStatistics {
    /// All of them.
    pub requests: u64,
    /// Gets answered by message.
    pub gets: u64,
    /// Scans answered by message, each reply counted.
    pub scans: u64,
    /// Sub-models sent to clients whose copies were old.
    pub sub_models_told: u64,
    /// Items put.
    pub puts: u64,
    /// Keys deleted.
    pub deletes: u64,
    /// Reads that clients told of, in a cache.
    pub hints: u64,
    /// Links repaired in place.
    pub links_repaired: u64,
}

/// Writes to a shard that found no room, or came twice.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WriteStatistics {
    /// Writes that wait for memory now.
    #[serde(rename = "writes_waiting")]
    pub waiting: u64,
    /// Writes that have waited for memory.
    #[serde(rename = "writes_waited")]
    pub waited: u64,
    /// Writes refused for lack of memory.
    #[serde(rename = "writes_refused")]
    pub refused: u64,
    /// Writes asked for again that had been done, and were answered as before.
    #[serde(rename = "writes_repeated")]
    pub repeated: u64,
}

/// What a shard has done by itself.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct UpkeepStatistics {
    /// Items that expired.
    pub expired: u64,
    /// Items that were let go for lack of memory, in a cache.
    pub evicted: u64,
    /// Items moved out of sparse segments.
    pub items_evacuated: u64,
    /// Splits of the hash index.
    pub index_splits: u64,
    /// Merges of the hash index.
    pub index_merges: u64,
    /// Epochs so far, by which freed memory is kept from reuse.
    pub epoch: u64,
}

/// An ordered table of a shard.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct OrderedStatistics {
    /// The table's number.
    pub table: u64,
    /// Its keys.
    pub keys: u64,
    /// Its leaves.
    pub leaves: u64,
    /// Leaves split so far.
    pub splits: u64,
    /// Leaves merged so far.
    pub merges: u64,
    /// Leaves moved so far to where they stand in the order of their keys.
    pub laid_out: u64,
    /// Sub-models of its learned index.
    pub sub_models: u64,
    /// By how many leaves their guesses are off on average.
    pub model_error: f64,
    /// Bytes of the top model.
    pub model_bytes: u64,
    /// Bytes of translation tables.
    pub table_bytes: u64,
    /// Sub-models trained so far.
    pub sub_models_trained: u64,
    /// Top models made so far.
    pub top_models_made: u64,
}

/// Bytes of a shard's memory.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MemoryStatistics {
    /// As many as it may have.
    pub limit_bytes: u64,
    /// In segments that it has.
    pub segment_bytes: u64,
    /// In pages that are in use.
    pub used_bytes: u64,
    /// In objects that are in use.
    pub live_bytes: u64,
    /// Freed, and not to be used again yet.
    pub quarantined_bytes: u64,
    /// Segments given back so far.
    pub segments_retired: u64,
}

/// Memory of one use.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Which use.
    pub what: String,
    /// Bytes of a slot, where it has slots.
    pub slot_bytes: Option<u64>,
    /// Slots in use.
    pub slots: Option<u64>,
    /// Bytes of objects that are in use.
    pub live_bytes: u64,
    /// Bytes of the pages in which they stand.
    pub used_bytes: u64,
}

/// Numbers of tables of a kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TableNumbers {
    /// Which kind.
    pub kind: String,
    /// Numbers of tables that exist.
    pub used: u64,
    /// Numbers of dropped tables that somebody may know yet.
    pub resting: u64,
    /// Numbers that a new table can have.
    pub left: u64,
}

/// A generation of a dataset.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GenerationStatistics {
    /// The dataset.
    pub dataset: String,
    /// The generation's number.
    pub generation: u64,
    /// Where it stands: being built, in force, superseded, unlisted, being dropped.
    pub stage: String,
    /// How many tables it has.
    pub tables: u64,
    /// Clients that hold a view of it.
    pub holders: Vec<String>,
    /// How many more there are.
    pub holders_not_listed: u64,
}

/// What sessions over a fabric have cost since the server's start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FabricStatistics {
    /// Sessions now.
    pub connected: u64,
    /// Remote READs.
    pub reads: u64,
    /// Bytes READ.
    pub read_bytes: u64,
    /// Messages sent.
    pub messages: u64,
    /// READs that turned out invalid and were done again.
    pub retries: u64,
    /// Times a one-sided path gave up and asked the shard.
    pub fallbacks: u64,
}

/// A mirror that follows a server. What it says of itself is not there before it has.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MirrorStatistics {
    /// What it calls itself.
    pub name: String,
    /// Its address.
    pub address: String,
    /// What the feed goes over: `tcp` or `verbs`.
    pub fabric: String,
    /// How far it is: `copying`, `catching up` or `following`.
    pub state: String,
    /// Bytes of memory that were copied to it, of those that are to be.
    pub copied_bytes: u64,
    /// Bytes that are to be.
    pub of_bytes: u64,
    /// Bytes that were sent to it.
    pub sent_bytes: u64,
    /// Records that it has applied, of those in the streams of all shards; none before it has said so.
    pub applied_records: Option<u64>,
    /// Records that it has not applied.
    pub lag_records: Option<u64>,
    /// How old what it has was when it last said, in milliseconds.
    pub lag_ms: Option<f64>,
    /// Bytes of its memory.
    pub bytes: Option<u64>,
    /// Reads of its clients so far.
    pub reads: Option<u64>,
    /// How long it has followed.
    pub since_seconds: f64,
}

/// A session that is connected.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClientStatistics {
    /// The number of its connection.
    pub connection: u64,
    /// The fabric's name.
    pub fabric: String,
    /// Its process, on this host.
    pub pid: Option<i64>,
    /// Its user, on this host.
    pub uid: Option<u32>,
    /// Its address, over TCP and verbs.
    pub address: Option<String>,
    /// Remote READs.
    pub reads: u64,
    /// Bytes READ.
    pub read_bytes: u64,
    /// Messages sent.
    pub messages: u64,
    /// READs that turned out invalid and were done again.
    pub retries: u64,
    /// Times a one-sided path gave up and asked the shard.
    pub fallbacks: u64,
    /// Segments of shared memory that it has mapped.
    pub segments_mapped: u64,
    /// Bytes of models that it has copied.
    pub model_bytes: u64,
    /// Operations that it has sampled, of some thousand one each, old ones counting for less.
    pub samples: u64,
    /// The keys that came most among these: [`Session::hot_keys`](crate::Session::hot_keys) names them.
    pub hot: Vec<HotItem>,
}

/// What a client tells of a key that it asks for often, and of the item that has the key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HotItem {
    /// The hash of table and key.
    pub hash: u64,
    /// How many of the client's samples were of this key for sure.
    pub samples: u64,
    /// The shard that has the item.
    pub shard: u64,
    /// Where the item was, when the client last knew.
    pub location: u64,
}

impl Statistics {
    /// As a server sends them.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings")
    }

    /// What a server has sent.
    pub(crate) fn of_json(text: &str) -> Result<Statistics> {
        serde_json::from_str(text).map_err(|error| makes_no_sense("statistics", &error))
    }
}

/// A snapshot that a server has taken.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SnapshotTaken {
    /// The file, on the server's host.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Seconds that it took.
    pub seconds: f64,
}

/// What came of a snapshot.
#[derive(Deserialize)]
#[serde(untagged)]
enum SnapshotAnswer {
    Taken(SnapshotTaken),
    Failed { error: String },
}

impl SnapshotTaken {
    /// What a server has sent.
    pub(crate) fn of_json(text: &str) -> Result<SnapshotTaken> {
        match serde_json::from_str(text).map_err(|error| makes_no_sense("snapshot", &error))? {
            SnapshotAnswer::Taken(taken) => Ok(taken),
            SnapshotAnswer::Failed { error } => Err(Error::new(ErrorKind::System, "snapshot", error)),
        }
    }
}

fn makes_no_sense(operation: &'static str, error: &serde_json::Error) -> Error {
    Error::new(ErrorKind::Protocol, operation, format!("the server's answer makes no sense: {error}"))
}
