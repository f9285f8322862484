//! The shared-memory fabric: one host, no NIC, no privilege.
//!
//! A READ is a copy out of a read-only mapping, a WRITE a copy into a mailbox that both sides map. Segments
//! are sealed memfds, so a client can neither write nor be killed by a truncation, and a dead server's last
//! state stays readable for as long as somebody maps it.
//!
//! Wake-ups go through a socket pair of the connection. A futex in the shared pages would save little (both
//! end in one system call and one context switch) and would need a word of the server that every client may
//! write; an eventfd is one open file that both sides share, so a bad client could fill it or make it block.
//! With a pair a bad client can disturb only itself, and a session has the descriptor to poll that it needs
//! anyway.

mod endpoint;
mod memory;
#[cfg(kelix_loom)]
pub mod model;
mod numa;
mod pages;
mod reaper;
mod rundir;
mod shelf;
mod socket;
#[cfg(not(kelix_loom))]
mod wake;
#[cfg(kelix_loom)]
#[path = "bell.rs"]
mod wake;

pub use endpoint::{LocalEndpoint, MappedImage, Peer, SleepWord, Way};
pub use memory::{Memfd, MemfdSegments, Segment, map_file, return_free_memory, return_large_memory};
pub use numa::NumaNode;
pub use pages::{HugePages, are_granted, granted_bytes, page_bytes, reserved_free_bytes, use_huge_pages};
pub use reaper::ImageLife;
pub use rundir::{
    AUTHORITY_ASKED, AUTHORITY_BYTES, AUTHORITY_LEASED, AUTHORITY_MAGIC, AUTHORITY_TERM, AUTHORITY_UNTIL,
    AUTHORITY_YIELDS, RunDirectory, read_file, term_in_force,
};
pub use shelf::Shelf;
pub use socket::{receive_frame, receive_frame_within, send_frame};
pub use wake::{Heard, Sleeper, Waker, WakerHandle};
