//! The shell around the shards: threads, sockets, clocks, the run directory.
//!
//! One thread runs each shard, and one accepts connections on the Unix socket and watches them, so that a
//! client at rest costs no thread; the frames of its set-up are answered by one of its own. Clients over TCP
//! have one thread together, the agent, which also sets up those over verbs. The data path runs through none
//! of these but the shard thread, and over TCP the agent.

#![forbid(unsafe_code)]

mod agent;
mod authority;
mod clients;
mod cluster;
mod connection;
mod cores;
mod current;
mod feed;
mod handover;
mod holder;
mod listening;
mod memory;
mod mirror;
mod moment;
mod namespace;
mod reception;
mod server;
mod shard_thread;
mod snapshots;
mod statistics;
mod store;
mod verbs;
mod wal;

pub use cluster::{
    ClusterDirectory, HostsConfig, LEASE_MIN, LEASE_USUAL, Leaver, Node, NodeConfig, NodeEnded, NodeRole,
};
pub use current::{Statistics, Stopper};
pub use kelix_fabric::shm::HugePages;
pub use kelix_shard::Durability;
pub use listening::Reserved;
pub use memory::choose_huge_pages;
pub use mirror::{FeedFabric, MirrorConfig, ReplicaConfig};
pub use namespace::{NamespaceConfig, Rights, Who};
pub use server::{Ended, Prepared, Server, ServerConfig, Token};
pub use snapshots::{SnapshotConfig, Taken, verify_snapshot};
pub use wal::{Reshard, ReshardStep, Resharded, WalConfig, reshard_log, truncate_log};

/// Prepares a process that is there for a server: it may have as many open files as the system allows it at
/// most, of which each client needs a few, and gives memory that clients over TCP had back when they have
/// left. Where the first is refused, clients for whom there is no descriptor wait until there is. A program
/// that serves beside other things decides for itself, since both concern the whole process.
pub fn prepare_process() {
    let resource = rustix::process::Resource::Nofile;
    let limit = rustix::process::getrlimit(resource);
    let _ = rustix::process::setrlimit(resource, rustix::process::Rlimit { current: limit.maximum, ..limit });
    kelix_fabric::shm::return_large_memory();
}
