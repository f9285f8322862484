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

#[cfg(test)]
mod harness {
    use kelix_register::{Member, Membership, MemoryRegister, Register, Swapped, View};

    /// The member of whoever looks at a register of a test.
    pub const OWN: u64 = 9;

    /// A member that is an instance of a node.
    pub fn member(node: &str, boot: u64) -> Member {
        Member { node: node.into(), boot, pid: 1, address: "host:1".into(), offer: None }
    }

    /// A register with its first view, and the membership of [`OWN`].
    pub fn registered(first: &View) -> (MemoryRegister, Membership) {
        let mut register = MemoryRegister::default();
        let membership = Membership::new(Box::new(register.clone()), || Ok(OWN)).unwrap();
        assert_eq!(register.swap(0, first).unwrap(), Swapped::Done);
        (register, membership)
    }
}
