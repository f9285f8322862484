//! The shard: the one writer of an image, as a plain state machine.
//!
//! A [`Shard`] is handed time and a fabric and does what has arrived: it takes requests from its clients'
//! rings in batches, with prefetch across them, executes each whole, and posts the replies. It never sleeps,
//! asks no clock and owns no socket; the shell around it (crate `server`, or a simulator) does.
//!
//! Life of an object (docs/read-rule.md): body written under a guardian that is not live; the predecessor's
//! live bit drops; the new live bit is set; the pointer is published; the reply is sent. Every operation in
//! `execute` keeps that order.
//!
//! A client that breaks the protocol is named in [`Progress::faulty`] and gets no further attention; nobody
//! else notices.

#![forbid(unsafe_code)]

mod audit;
mod cache;
mod clients;
mod datasets;
mod deduplication;
#[cfg(test)]
mod durable;
mod evacuation;
mod expiry;
mod follower;
pub mod harness;
mod heard;
mod held;
mod large;
mod linked_items;
mod mirror;
mod ordered;
mod places;
mod puts;
mod recorder;
pub mod replicas;
mod request;
mod reshard;
mod restore;
mod shard;
mod stocktaking;
mod store;
mod streams;
mod tables;
mod unordered;
mod upkeep;
mod waiting;

pub use datasets::{GenerationReport, NumberCounts, Order, Stage};
pub use follower::Follower;
pub use held::Durability;
pub use kelix_index::{ModelCounts, OrderedCounts};
pub use recorder::STREAM_WORDS;
pub use reshard::{Carried, SourceShard, TargetShard};
pub use shard::{ClientParameters, Now, Progress, Shard, ShardConfig, ShardCounters};
pub use streams::Streams;
