//! The stream of a shard's changes: what a snapshot, a log and a copy elsewhere are made of.
//!
//! A shard's journal (`kelix_image::Journal`) becomes a [`Record`] at the end of each step, so that a record
//! holds whole operations. Records go into a [`Stream`], a ring of words in memory that any number of
//! [`Reader`]s take from, each as fast as it can. What has to outlast the server goes to [`files`].

#![forbid(unsafe_code)]

mod commit;
pub mod files;
mod gather;
#[cfg(all(kelix_loom, test))]
mod model;
mod record;
mod stream;

pub use commit::{LogControl, LogSleep, LogState, ShardLog};
pub use gather::{BATCHES_OLD, Gatherer};
pub use record::{RECORD_WORDS, Record, RecordHead};
pub use stream::{Lag, LetGo, Reader, Stream, StreamMemory};
