//! The TCP fabric: one connection a session, and in the server process an agent thread that does what a NIC
//! would.
//!
//! ```text
//! frame from a client          words that follow
//!   READ    shard, tag, count  place
//!   WRITE   shard, first, count  the words
//! frame from the agent
//!   SAMPLED epochs passed, tag, count   the epoch before, the words
//!   OUTSIDE tag
//!   WRITE   shard, first, count  the words
//!   TERM                       the term that came into force
//! either
//!   CONTROL kind, bytes        a frame of the set-up conversation
//!   FEED    shard, part, count  the words, between a server and a mirror that follows it
//!
//! first word of a frame: [ kind 8 | shard or epochs 8 | tag, first, kind or part 24 | count 24 ]
//! ```
//!
//! The agent answers a READ by itself: it samples the epoch, the words, the epoch again and the authority, in
//! this order, into the buffer that it sends, never from the image to the socket; so check (b) needs no
//! clock, and neither a long way nor a pause of the client counts. A client's WRITE it stores into the
//! mailbox as a client on shared memory would. What a shard WRITEs goes to the agent through a queue. Before
//! anything that was sampled or written under a term, the client has been told that term.

#[cfg(target_os = "linux")]
mod agent;
mod beside;
mod endpoint;
#[cfg(target_os = "linux")]
mod feed;
pub(crate) mod frame;
#[cfg(target_os = "linux")]
mod link;
#[cfg(all(kelix_loom, test))]
mod model;
#[cfg(target_os = "linux")]
mod nearness;
// Some of what these hold is the agent's.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) mod stream;
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
mod tls;

/// Kind of the set-up frame that tells a client why it is refused.
pub const REFUSED: u16 = 9;

/// Kind of the set-up frame that tells a session over verbs that segments came or went; it is sent unasked.
pub const REGIONS_CHANGED: u16 = 17;

/// Kind of the set-up frame by which a session over verbs asks a server with a lease for the term in force.
pub const ASK_TERM: u16 = 24;

/// Kind of the set-up frame that answers [`ASK_TERM`]: the term, and for how many nanoseconds from the
/// question on it is in force for certain, 8 bytes each.
pub const TERM: u16 = 25;

#[cfg(target_os = "linux")]
pub use agent::{Agent, AgentLimits, AgentShard, ConnectionId, Event, StepIn};
pub use endpoint::{Greeting, TcpEndpoint};
#[cfg(target_os = "linux")]
pub use feed::{FeedFrame, FeedLink};
pub use frame::FEED_WORDS_MAX;
#[cfg(target_os = "linux")]
pub use link::{AgentBell, AgentLink};
pub use tls::{ClientTls, Identity, ServerTls};
