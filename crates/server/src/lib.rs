//! The shell around the shards: threads, sockets, clocks, the run directory.
//!
//! One thread runs each shard, one accepts connections, and each connection has a small thread of its own for the
//! set-up frames and to notice the client's end; it sleeps in the kernel otherwise. The data path runs through none
//! of these but the shard thread.

#![forbid(unsafe_code)]

mod authority;
mod connection;
mod server;
mod shard_thread;
mod statistics;

pub use server::{Ended, Server, ServerConfig, Stopper};
