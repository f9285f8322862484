//! What a node keeps on its disk, and who goes on with that when no member lives that was in sync.
//!
//! ```text
//! a replica serves     takes a base -> says what it has -> is in sync -> older copies go
//! a node begins, and no primary can be followed: it offers what its disk has, in the register
//!   commit   any that was in sync goes on: what counted is on each of these disks
//!   lazy     all that were in sync have to offer, and the one goes on that has most
//!   off, or some of these are gone for good: an operator says which one (`kelix cluster recover`)
//! ```
//!
//! 1. Whoever goes on is chosen by the register, and fences whoever was primary, as a replica in sync would
//!    ([`View::recovers`]): a node with such a disk is as good as one. So nothing depends on that all are
//!    dead.
//! 2. With `commit` a replica that lives is waited for first: it has the memory, too.

use kelix_register::{Durable, Member, Membership, Offer, View};
use kelix_types::Result;

/// Times of suspicion, and of the lease, after which no replica that lives goes on any more.
const TIMES: u64 = 4;

/// How far the disk of a node has what the node serves.
#[derive(Default)]
pub struct Keeping {
    is_kept: bool,
    is_alone: bool,
}

/// What is to be done next about that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// A base has to be taken before this replica says what it has.
    Base,
    /// The disk can be begun with from now on: a replica says what it has.
    Kept,
    /// Older copies on the disk are to go.
    Alone,
}

impl Keeping {
    /// Looks at what is served, of which the disk has a base or not. Older copies go when the node is in
    /// sync: until then one of these may be all that is left of an instance that was.
    pub fn look(&mut self, (is_replica, has_base): (bool, bool), is_in_sync: bool) -> Keep {
        if self.is_kept {
            let are_to_go = is_in_sync && !std::mem::replace(&mut self.is_alone, true);
            return if are_to_go { Keep::Alone } else { Keep::Nothing };
        }
        // The log of a primary that has begun empty has all.
        if is_replica && !has_base {
            return Keep::Base;
        }
        self.is_kept = true;
        Keep::Kept
    }
}

/// Which of the copies on its disk, the newest first, a node offers: that of an instance that was in sync, if
/// there is such. `boot` tells which instance of the node wrote a copy.
pub fn choose_copy<C>(view: &View, copies: Vec<C>, boot: impl Fn(&C) -> u64) -> Option<C> {
    let of_view = copies.iter().position(|copy| view.has_log_in_sync(boot(copy)));
    copies.into_iter().nth(of_view.unwrap_or(0))
}

/// For how long a node has found no primary that it could follow.
#[derive(Clone, Copy, Debug)]
pub struct Absence {
    /// All who were in sync are known to have ended.
    pub have_ended: bool,
    /// For how long.
    pub time_ns: u64,
    /// The time of suspicion, and that of the lease.
    pub patience_ns: u64,
}

/// What comes of an offer.
pub enum Offered {
    /// The node is to go on with what it offers, if it is chosen out of this view ([`Membership::recover`]).
    GoesOn(View),
    /// It waits for others.
    Waits(View),
}

/// Has a member attach to a primary. The member is named before it can be put among those in sync; but what
/// it has offered stands until it has attached: whoever looks after the cluster may choose out of what is
/// offered, as long as there is no primary.
pub fn attach<T>(membership: &Membership, own: &Member, attach: impl FnOnce() -> Result<T>) -> Result<T> {
    let view = membership.look()?;
    let known = view.as_ref().and_then(|view| view.member(own.boot));
    if known.is_some_and(|known| known.offer.is_some()) {
        let attached = attach()?;
        membership.join(own)?;
        return Ok(attached);
    }
    membership.join(own)?;
    attach()
}

/// Says what the disk of a member has, who has found no primary. `None`: there is no view.
pub fn offer(
    membership: &Membership,
    own: &Member,
    offer: Offer,
    Absence { have_ended, time_ns, patience_ns }: Absence,
) -> Result<Option<Offered>> {
    membership.join(&Member { offer: Some(offer), ..own.clone() })?;
    let Some(view) = membership.look()? else { return Ok(None) };
    // A replica that lives goes on before, and with lazy logs none is to live anyway.
    let is_named = view.successor == Some(own.boot);
    let waits = view.durable == Durable::Commit && !have_ended && !is_named && time_ns < TIMES * patience_ns;
    let goes_on = !waits && view.recovers(own.boot);
    Ok(Some(if goes_on { Offered::GoesOn(view) } else { Offered::Waits(view) }))
}

#[cfg(test)]
mod tests {
    use kelix_register::Register;
    use kelix_types::{Error, ErrorKind};

    use super::*;
    use crate::replicas::harness::{OWN, member, registered};

    /// An operator who chooses a node out of those that wait is heard, though these try on to find a primary.
    #[test]
    fn what_is_offered_stands_until_a_primary_is_there() {
        let first = View { durable: Durable::Commit, proposal: 1, ..View::first(5, 2, member("a", 7)) };
        let (mut register, membership) = registered(&first);
        let own = member("b", OWN);
        let lost = || -> Result<()> { Err(Error::new(ErrorKind::Unavailable, "attach", "nobody is there")) };
        attach(&membership, &own, lost).unwrap_err();
        assert_eq!(register.read().unwrap().unwrap().member(9), Some(&own), "it is named before it attaches");
        let says = |time_ns| {
            let absence = Absence { have_ended: false, time_ns, patience_ns: 10 };
            offer(&membership, &own, Offer { of: 3, records: 4 }, absence).unwrap().unwrap()
        };
        assert!(matches!(says(1), Offered::Waits(_)) && matches!(says(1_000), Offered::Waits(_)));
        let waits = register.read().unwrap().unwrap();
        let named = View { successor: Some(9), ..waits.next(11) };
        register.swap(waits.number, &named).unwrap();
        attach(&membership, &own, lost).unwrap_err();
        assert_eq!(register.read().unwrap().unwrap(), named);
        assert!(matches!(says(1), Offered::GoesOn(_)));
        attach(&membership, &own, || Ok(())).unwrap();
        assert_eq!(register.read().unwrap().unwrap().member(9), Some(&own));
    }

    /// A disk is as good as a replica in sync, if its instance was; and a replica that lives is waited for.
    #[test]
    fn whoever_was_in_sync_goes_on_after_a_while() {
        let first = View { durable: Durable::Commit, proposal: 1, ..View::first(5, 2, member("a", 7)) };
        let (_, membership) = registered(&first);
        let goes_on = |of, have_ended, time_ns| {
            let absence = Absence { have_ended, time_ns, patience_ns: 10 };
            let offered = offer(&membership, &member("a", 9), Offer { of, records: 4 }, absence);
            matches!(offered.unwrap(), Some(Offered::GoesOn(_)))
        };
        assert!(
            !goes_on(7, false, 39) && goes_on(7, false, 40) && goes_on(7, true, 0) && !goes_on(6, true, 99)
        );
        let copies = |boots: &[u64]| choose_copy(&first, boots.to_vec(), |boot| *boot);
        assert_eq!((copies(&[8, 7, 6]), copies(&[8, 6]), copies(&[])), (Some(7), Some(8), None));
    }

    #[test]
    fn a_replica_says_what_it_has_behind_a_base_and_older_copies_go_once_it_is_in_sync() {
        let mut keeping = Keeping::default();
        assert_eq!(keeping.look((true, false), false), Keep::Base);
        assert_eq!(keeping.look((true, true), false), Keep::Kept);
        assert_eq!(keeping.look((true, true), false), Keep::Nothing);
        assert_eq!(keeping.look((true, true), true), Keep::Alone);
        assert_eq!(keeping.look((true, true), true), Keep::Nothing);
        assert_eq!(Keeping::default().look((false, false), true), Keep::Kept, "a primary that began empty");
    }
}
