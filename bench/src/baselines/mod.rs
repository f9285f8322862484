//! What the store could have been instead. None of it is part of the product. For `kelix bench ordered` there
//! is a tree that its clients read by themselves (`tree`); for `kelix bench ablation` the same shard, asked
//! over a Unix socket, or behind a thread that hands requests on:
//!
//! ```text
//! over_socket   caller <- Unix socket -> shard            one thread serves, but the words go through the kernel
//! handed_over   caller -> dispatcher -> shard -> caller   rings in shared memory, but another thread takes requests in
//! ```
//!
//! What stands in these lines are ends of a fabric (`end`) that carries what the store's own message rings
//! write, so requests, replies and the code of the shard are those of the product. Who has a core waits as
//! the product does: looks, gives the core away, sleeps. Who shares one does not look on.

mod caller;
mod circle;
mod end;
mod server;
mod socket;
mod tree;

pub(crate) use caller::Caller;
pub(crate) use circle::handed_over;
pub(crate) use end::Way;
pub(crate) use socket::{Place, over_socket};
pub(crate) use tree::{Cost, Here, Remote, TreeServer};
