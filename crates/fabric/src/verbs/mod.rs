//! The verbs fabric: InfiniBand, RoCE and iWARP by reliable connected queue pairs.
//!
//! | the trait | verbs |
//! |---|---|
//! | a READ | RDMA READ into registered memory of the session's own, copied out when it is polled |
//! | a WRITE | RDMA WRITE, inline if it is small, else from registered memory; neighbours posted together become one |
//! | a stamp | this side's clock |
//! | the authority | an RDMA READ of one word now and then, or a question to the server; what it says holds for a lease |
//! | to announce a sleep | arms the completion queues, and WRITEs to the shards which sleep it is |
//! | to wake | a message of one word (where a request cannot hold it, an empty WRITE with immediate data), which makes a completion at the sleeper's side |
//! | a connection that ends | the hang-up of the TCP connection beside it, or a completion with an error |
//!
//! **Set-up.** A client connects over TCP as any other, says who it is, and is given a ticket. With it it
//! connects a queue pair by rdma_cm; a request without a ticket is refused. What the two sides register, and
//! the keys of it, they tell each other over the TCP connection, which stays for as long as the session does.
//!
//! **Queue pairs.** The sessions of a client process share a few (lanes), whatever their number and that of
//! shards. A server's domains are one a namespace, a client's one a server: who may read one cannot reach
//! what is registered for another.
//!
//! **Streams.** What a mirror is told, and says, is a stream of words each way over a queue pair that the two
//! have to themselves ([`VerbsStream`]). It is set up in the same way, in a domain where nothing can be READ
//! or WRITten.
//!
//! **No wake-up is lost.** A shard stores its sleep word, fences, and looks for WRITEs. A session READs that
//! word behind its WRITEs on the same queue pair, so after they were placed: either the READ finds the word,
//! or the look the WRITE. A session WRITEs which sleep it is about to begin, and waits for a READ behind
//! that, which is answered when it is visible there, before it looks for replies. A shard looks whether there
//! is a new sleep when it posts replies, and once more when these are complete: one of the two sees the
//! other, as long as what is complete is visible before another message can come and go. Each sleep is woken
//! once, so receives do not run out.
//!
//! **The authority's lease.** A server that takes over raises the authority word, and then waits for
//! [`AUTHORITY_LEASE_NS`](kelix_types::limits::AUTHORITY_LEASE_NS) before its first reply. So whoever has
//! READ a term knows that no successor has replied for that long since the READ was posted. Check (c) of the
//! read rule then costs one READ in tens of milliseconds, and none waits for it while there is traffic.
//!
//! A server with a lease (`kelix_image::LeasedTerm`) may be superseded by another one elsewhere, which cannot
//! raise that word, and the clock by which the lease ends is its own host's. So a session asks the server, over
//! the TCP connection, for how much longer its term is in force, and counts from when it asked. A server that
//! is not sure does not say so, and then READs count for nothing, and the session asks the shards.
//!
//! **Segments that go.** A READ of memory that is not registered any more would end the queue pair of all
//! sessions on it. So a server deregisters a segment only when each session has said that it READs it no
//! more, or is gone, or may not READ it any more: a session looks for news of segments before an operation if
//! what it knows is older than [`SEGMENTS_KNOWN_NS`](kelix_types::limits::SEGMENTS_KNOWN_NS), so after
//! [`SEGMENTS_LEFT_NS`](kelix_types::limits::SEGMENTS_LEFT_NS) only one that has stood still in the middle of
//! an operation may, and its queue pair ends. Without that an idle session would keep the memory of all that
//! was retired since it last did something.

mod clients;
mod cm;
mod device;
mod endpoint;
mod ffi;
mod host;
mod landing;
mod lane;
mod link;
mod outgoing;
mod queue;
mod registrar;
mod report;
mod sender;
mod stream;

pub use clients::{Offer, join};
pub use device::Remote;
pub use endpoint::{Joining, RemoteSegment, ServerCard, ShardCard, VerbsEndpoint};
pub use host::{Host, HostEvent, HostShard};
pub use lane::Ticket;
pub use link::VerbsLink;
pub use report::{DeviceReport, PortReport, is_usable, report};
pub use stream::VerbsStream;
