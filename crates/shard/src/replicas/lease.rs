//! What nodes on several hosts decide: until when a primary is one, and from when on its successor may serve.
//!
//! ```text
//! primary    asks -> is told that its view is the newest -> is primary until 3/4 L behind the question
//! deposed    voids its authority page -> leaves the members
//! successor  is chosen -> L has passed, or the earlier primary has left -> serves
//! ```
//!
//! Only lengths of time are compared, each on the clock of one host, so clocks need not agree: one may run a
//! quarter faster than another.

use kelix_image::LeasedTerm;
use kelix_image::words::full_fence;
use kelix_log::LogControl;
use kelix_register::{Membership, View};
use kelix_types::{Error, ErrorKind, Result, mark};

/// Questions in a lease: it lasts though some are lost.
const QUESTIONS: u64 = 8;

/// When it was asked whether a term is in force, and until when the term is, by the host's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// When it was asked.
    pub asked_ns: u64,
    /// Until when the term is in force.
    pub until_ns: u64,
}

impl Lease {
    /// A term that is in force from the first answer on.
    pub const OVER: Lease = Lease { asked_ns: 0, until_ns: LeasedTerm::OVER };

    /// Of a question that is going to be asked now.
    pub fn begin(length_ns: u64, asked_ns: u64) -> Lease {
        Lease { asked_ns, until_ns: asked_ns + length_ns / 4 * 3 }
    }

    /// Asks for the newest view. Where that names this member as primary, it is so for as long as the lease
    /// lasts, which counts from before the question: so it does not matter how long the answer was on its
    /// way, nor how long whoever asked has stood still.
    pub fn ask(
        membership: &Membership,
        length_ns: u64,
        now_ns: impl Fn() -> u64,
    ) -> Result<(Option<View>, Option<Lease>)> {
        let lease = Lease::begin(length_ns, now_ns());
        let view = membership.look()?;
        let is_primary = view.as_ref().is_some_and(|view| view.primary == membership.boot);
        Ok((view, is_primary.then_some(lease)))
    }

    /// Asks as [`Lease::ask`] does, for a server at whose shards answers may wait for a question.
    pub fn renew(
        (membership, control): (&Membership, &LogControl),
        length_ns: u64,
        now_ns: impl Fn() -> u64,
    ) -> Result<(Option<View>, Option<Renewal>)> {
        let (question, is_awaited) = control.begin_question();
        let (view, lease) = Lease::ask(membership, length_ns, now_ns)?;
        if lease.is_some() {
            control.confirm(question);
        }
        Ok((view, lease.map(|lease| Renewal { lease, is_awaited })))
    }
}

/// A lease that a server got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renewal {
    /// The lease.
    pub lease: Lease,
    /// An answer waited for the question, and can be sent once the lease is known to readers.
    pub is_awaited: bool,
}

/// Whether it is time for a member to ask for the newest view, where this one is known and the last question
/// is so old.
pub fn is_to_ask((known, own): (Option<&View>, u64), asked_ago_ns: u64, length_ns: u64) -> bool {
    // Whoever hands over or leaves, or waits for that, is in a hurry. One that died while it left is not
    // waited for once it is not in sync.
    let leaves = |view: &View, boot: u64| boot == own || view.is_in_sync(boot);
    let hurries = known
        .is_some_and(|view| view.successor.is_some() || view.leaving.iter().any(|boot| leaves(view, *boot)));
    hurries || asked_ago_ns >= length_ns / QUESTIONS
}

/// Waits until nothing counts any more that an earlier primary does, for this member, which was just chosen.
/// `pause` lets some time pass, of which so much is left. An error: that of a pause, or another member was
/// chosen meanwhile.
pub fn outwait(
    membership: &Membership,
    (earlier, length_ns): (u64, u64),
    now_ns: impl Fn() -> u64,
    pause: impl Fn(u64) -> Result<()>,
) -> Result<()> {
    let chosen_ns = now_ns();
    loop {
        let left_ns = length_ns.saturating_sub(now_ns() - chosen_ns);
        if left_ns == 0 {
            mark!("lease of an earlier primary waited for");
            return Ok(());
        }
        // Without an answer the time is waited for.
        if let Ok(Some(view)) = membership.look() {
            if view.primary != membership.boot {
                let context = "another node was chosen to be primary while this one waited for that";
                return Err(Error::new(ErrorKind::Superseded, "join cluster", context));
            }
            if view.member(earlier).is_none() {
                mark!("earlier primary has left");
                return Ok(());
            }
        }
        pause(left_ns)?;
    }
}

/// Says that nothing counts any more that this member has ever done as primary, so that its successor need
/// not wait: once its authority page is void.
pub fn release(membership: &Membership, void: impl FnOnce() -> Result<()>) -> Result<()> {
    void()?;
    full_fence();
    membership.leave().map(drop)
}

/// Sees to it that nothing counts any more that an earlier member of a node does, before a new one takes its
/// place among the members. `wait` lets the length of a lease pass where `void` fails: the page of the
/// earlier one may be mapped, and is not to be found, or not all who read look there.
pub fn end_earlier(view: Option<&View>, node: &str, void: impl FnOnce() -> Result<()>, wait: impl FnOnce()) {
    let was_member = view.is_some_and(|view| view.members.iter().any(|member| member.node == node));
    if was_member && void().is_err() {
        mark!("page of an earlier member lost");
        wait();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use kelix_register::{MemoryRegister, Register, Swapped};

    use super::*;
    use crate::replicas::harness::{OWN, member, registered};

    const LENGTH_NS: u64 = 1_000;

    /// A register in which this member is primary, and the member 7 was before.
    fn chosen() -> (MemoryRegister, Membership) {
        let mut view = View { proposal: 1, ..View::first(5, 2, member("a", OWN)) };
        view.members.push(member("b", 7));
        registered(&view)
    }

    fn change(register: &mut MemoryRegister, change: impl FnOnce(&mut View)) {
        let view = register.read().unwrap().unwrap();
        let mut next = view.next(11);
        change(&mut next);
        assert_eq!(register.swap(view.number, &next).unwrap(), Swapped::Done);
    }

    /// A register whose answers take 500 ns.
    #[derive(Clone)]
    struct Slow {
        register: MemoryRegister,
        now_ns: Arc<AtomicU64>,
    }

    impl Slow {
        fn answer(&mut self) -> &mut MemoryRegister {
            self.now_ns.fetch_add(500, Ordering::Relaxed);
            &mut self.register
        }
    }

    impl Register for Slow {
        fn read(&mut self) -> Result<Option<View>> {
            self.answer().read()
        }

        fn is_current(&mut self, number: u64) -> Result<bool> {
            self.answer().is_current(number)
        }

        fn swap(&mut self, expected: u64, view: &View) -> Result<Swapped> {
            self.answer().swap(expected, view)
        }
    }

    #[test]
    fn a_lease_counts_from_before_the_question() {
        let (mut register, _) = chosen();
        let now_ns = Arc::new(AtomicU64::new(40));
        let slow = Slow { register: register.clone(), now_ns: now_ns.clone() };
        let membership = Membership::new(Box::new(slow), || Ok(9)).unwrap();
        let clock = || now_ns.load(Ordering::Relaxed);
        membership.look().unwrap();
        now_ns.store(40, Ordering::Relaxed);
        let (_, lease) = Lease::ask(&membership, LENGTH_NS, clock).unwrap();
        assert_eq!(lease, Some(Lease { asked_ns: 40, until_ns: 790 }));
        change(&mut register, |view| (view.primary, view.in_sync) = (7, vec![7]));
        let (view, lease) = Lease::ask(&membership, LENGTH_NS, clock).unwrap();
        assert_eq!((view.unwrap().primary, lease), (7, None), "another one is primary");
    }

    #[test]
    fn eight_questions_fit_a_lease_and_more_where_somebody_waits() {
        let view = chosen().0.read().unwrap().unwrap();
        let is_to_ask = |view: &View, own| is_to_ask((Some(view), own), 124, LENGTH_NS);
        assert!(!is_to_ask(&view, 9) && super::is_to_ask((Some(&view), 9), 125, LENGTH_NS));
        let leaves = View { leaving: vec![7], ..view };
        assert!(!is_to_ask(&leaves, 9), "whoever leaves is not in sync, and may be dead");
        assert!(is_to_ask(&leaves, 7), "it leaves itself");
        assert!(is_to_ask(&View { in_sync: vec![9, 7], ..leaves }, 9));
    }

    #[test]
    fn a_successor_waits_for_a_lease_or_until_the_earlier_primary_has_left() {
        let (mut register, membership) = chosen();
        let now_ns = Cell::new(10_000);
        let pause = |left_ns| {
            now_ns.set(now_ns.get() + 300);
            assert!(left_ns <= LENGTH_NS, "{left_ns}");
            Ok(())
        };
        outwait(&membership, (7, LENGTH_NS), || now_ns.get(), pause).unwrap();
        assert_eq!(now_ns.get(), 11_200);
        let ends = |_| Err(Error::new(ErrorKind::Unavailable, "wait", "this node is to end"));
        let ended = outwait(&membership, (7, LENGTH_NS), || now_ns.get(), ends);
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Unavailable);
        change(&mut register, |view| view.retain_members(|member| member.boot != 7));
        outwait(&membership, (7, LENGTH_NS), || now_ns.get(), ends).unwrap();
        change(&mut register, |view| {
            view.members.push(member("c", 8));
            (view.primary, view.in_sync) = (8, vec![8]);
        });
        let ended = outwait(&membership, (7, LENGTH_NS), || now_ns.get(), pause);
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Superseded);
    }

    #[test]
    fn an_earlier_member_is_void_or_waited_for() {
        let view = chosen().0.read().unwrap();
        let lost = || Err(Error::new(ErrorKind::System, "void", "there is no page"));
        let waits = |node: &str, is_lost: bool| {
            let waited = Cell::new(false);
            let void = || if is_lost { lost() } else { Ok(()) };
            end_earlier(view.as_ref(), node, void, || waited.set(true));
            waited.get()
        };
        assert!(waits("b", true) && !waits("b", false) && !waits("c", true));
    }

    #[test]
    fn who_is_in_sync_does_not_leave() {
        let (mut register, membership) = chosen();
        assert!(!membership.leave().unwrap(), "it is primary");
        change(&mut register, |view| {
            (view.primary, view.in_sync) = (7, vec![7, membership.boot]);
        });
        assert!(!membership.leave().unwrap(), "it is in sync");
        change(&mut register, |view| view.take_out_of_sync(membership.boot));
        let is_void = Cell::new(false);
        let void = || {
            assert!(register.clone().read()?.is_some_and(|view| view.member(membership.boot).is_some()));
            is_void.set(true);
            Ok(())
        };
        release(&membership, void).unwrap();
        let view = register.read().unwrap().unwrap();
        assert!(is_void.get() && view.member(membership.boot).is_none());
        assert!(membership.leave().unwrap(), "it has left");
    }
}
