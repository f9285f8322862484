//! What replicas of shards decide, and the primary that has them, without threads, clocks and connections: for
//! servers and for the simulator alike.
//!
//! ```text
//! intake        of whoever follows: what comes of a feed, in the order in which it counts
//! receipts      of whoever follows: what is kept on its own disk, before it counts
//! backlog       the last records that a replica has applied
//! placing       of a primary's feed: what the replica says that it has
//! replication   of a primary: which replicas have to have a record before it counts
//! promotion     of a replica: when another primary is to be chosen, and in which order it takes over
//! handover      of a primary: whom it names to go on in its place
//! recovery      of a node with a disk: what it keeps there, and when it goes on with that
//! lease         of nodes on several hosts: until when a primary is one, and when its successor may serve
//! ```

mod backlog;
mod handover;
mod intake;
mod lease;
mod placing;
mod promotion;
mod receipts;
mod recovery;
mod replication;

pub use backlog::Backlog;
pub use handover::{HandedOver, Handover};
pub use intake::{Intake, MakeSegments, Shadow};
pub use lease::{Lease, Renewal, end_earlier, is_to_ask, outwait, release};
pub use placing::{PlacedEnd, Placing, counts};
pub use promotion::{Look, Looked, Promoted, Silence, look_after, promote, void};
pub use recovery::{Absence, Keep, Keeping, Offered, attach, choose_copy, offer};
pub use replication::{Noted, Primary, ReplicaReport, Replication, Resumption, counts_at_first};
