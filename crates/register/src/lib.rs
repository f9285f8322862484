//! The membership register of a cluster: one document, the [`View`], changed by compare-and-set.
//!
//! A view says who is primary, who is in sync and in which term. Whoever decides anything in a cluster
//! decides by putting the next view behind the newest one; of several that try at once, one wins. The unit of
//! replication is a whole server with all its shards.
//!
//! ```text
//! view 1  ──  view 2  ──  view 3          a number is given once; the highest one is in force
//!               │
//!               └─ swap(2, view 3): Done for one caller, Lost for all others
//! ```
//!
//! Invariants of every implementation, asserted by one conformance suite that runs on each:
//!
//! 1. A number is given once: of all proposals behind one view, exactly one is chosen.
//! 2. Numbers are consecutive from 1, and a view never changes once it is chosen.
//! 3. [`Register::read`] and [`Register::is_current`] are linearizable: a view that was read is never
//!    followed by an older one, through whichever handle.
//! 4. A view that was returned, or whose swap was [`Swapped::Done`], outlives a loss of power as far as the
//!    medium outlives one.
//! 5. A swap whose outcome is unknown is settled by reading, or by the same swap once more: the proposal's
//!    number tells a view from all others.
//!
//! A register tells the order of views and nothing about time: leases, and how long a successor waits, are
//! its users' affair.
//!
//! ```
//! use kelix_register::{Member, MemoryRegister, Register, Swapped, View};
//!
//! let member = Member { node: "1".into(), boot: 7, pid: 1, address: "127.0.0.1:7000".into(), offer: None };
//! let first = View { proposal: 1234, ..View::first(99, 1, member) };
//! let mut register = MemoryRegister::default();
//! assert_eq!(register.swap(0, &first)?, Swapped::Done);
//! assert_eq!(register.swap(1, &first.next(5678))?, Swapped::Done);
//! assert_eq!(register.swap(1, &first.next(9999))?, Swapped::Lost);
//! assert!(register.is_current(2)?);
//! # Ok::<(), kelix_types::Error>(())
//! ```

#![forbid(unsafe_code)]

mod document;
mod local;
mod membership;
mod memory;
mod view;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(test)]
mod conformance;

pub use document::DOCUMENT_BYTES_MAX;
pub use local::LocalRegister;
pub use membership::Membership;
pub use memory::MemoryRegister;
pub use view::{ADDRESS_CHARACTERS_MAX, Durable, MEMBERS_MAX, Member, NAME_CHARACTERS_MAX, Offer, View};
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeperOptions, ZooKeeperRegister};

use kelix_types::{Error, ErrorKind, Result};

/// The operation that errors of this crate name.
const OPERATION: &str = "join cluster";

/// How a swap ended, where that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swapped {
    /// The proposed view is in force.
    Done,
    /// Somebody else was quicker: another view than the proposed one is in force. The caller reads it, and
    /// decides anew.
    Lost,
}

/// One document for a whole cluster, changed by compare-and-set.
///
/// A handle is one thread's; each thread or process has its own on the same register.
pub trait Register: Send {
    /// The newest view; None: the cluster has none yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Damaged`] and [`ErrorKind::Incompatible`] of a document that cannot be relied on,
    /// [`ErrorKind::Superseded`] where the register itself was removed or replaced, which ends the use of the
    /// handle, and whatever keeps the register from answering.
    fn read(&mut self) -> Result<Option<View>>;

    /// Whether the view with this number is still the newest; 0: whether there is no view yet. Cheap: called
    /// every few milliseconds.
    ///
    /// # Errors
    ///
    /// Those of [`Register::read`], except that the document is not looked into.
    fn is_current(&mut self, number: u64) -> Result<bool>;

    /// Puts `view`, whose number is `expected + 1`, behind the view numbered `expected`; 0: there is none
    /// yet.
    ///
    /// The same swap once more is [`Swapped::Done`] for as long as its view is in force.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] of a view that [`View::check`] refuses or whose number does not fit,
    /// and those of [`Register::read`]. Where [`Error::effect`] is [`kelix_types::Effect::Unknown`], the view
    /// may be in force: read, or swap the same view again.
    fn swap(&mut self, expected: u64, view: &View) -> Result<Swapped>;
}

/// An error if a view cannot be put behind the one numbered `expected`.
fn check_proposal(expected: u64, view: &View) -> Result<()> {
    view.check()?;
    if expected.checked_add(1) == Some(view.number) {
        return Ok(());
    }
    let context = format!("view {} cannot be put behind view {expected}", view.number);
    Err(Error::new(ErrorKind::InvalidArgument, OPERATION, context))
}

/// An error if nobody can have read a view numbered `expected`, because the newest one is `newest`.
fn check_expected(expected: u64, newest: u64) -> Result<()> {
    if expected <= newest {
        return Ok(());
    }
    let context = format!("view {expected} is expected, but the newest one is view {newest}");
    Err(Error::new(ErrorKind::InvalidArgument, OPERATION, context))
}
