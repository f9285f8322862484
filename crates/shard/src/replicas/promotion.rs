//! When another primary is to be chosen, and in which order it takes over.

use kelix_image::SharedWord;
use kelix_image::words::full_fence;
use kelix_register::{Membership, View};
use kelix_types::{Error, ErrorKind, Result, mark};

/// Times of suspicion that a primary which was just chosen may take to serve, before another one is.
const CHOSEN_TIMES: u64 = 8;

/// For how long a primary has said nothing, of the time in which a replica looked.
#[derive(Default)]
pub struct Silence {
    followed: u64,
    heard: u64,
    time_ns: u64,
}

impl Silence {
    /// The primary that is followed has said so much so far; the last look was so long ago, of which no more
    /// than `most_ns` counts: whoever stood still does not blame the primary.
    pub fn note(&mut self, (followed, heard): (u64, u64), (passed_ns, most_ns): (u64, u64)) {
        if (self.followed, self.heard) == (followed, heard) {
            self.time_ns += passed_ns.min(most_ns);
        } else {
            *self = Silence { followed, heard, time_ns: 0 };
        }
    }

    /// For how long that is.
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }
}

/// What a replica knows of the primary that it follows, or followed last.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Its number.
    pub followed: u64,
    /// Nothing comes of it any more.
    pub is_lost: bool,
    /// For how long nothing has come of it.
    pub silent_ns: u64,
    /// For how long a primary may say nothing.
    pub suspect_ns: u64,
    /// How long one that was just chosen may have to wait before it serves.
    pub wait_ns: u64,
    /// The replica keeps a log, which takes nothing any more.
    pub has_log_failed: bool,
}

/// What a replica is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looked {
    /// Nothing: the primary is there, as far as can be told.
    Well,
    /// It is to go on in the place of the primary, for this reason.
    Promote(&'static str),
    /// It is of no use as it is.
    Lost,
}

/// A member is of no use as it is, by a view that may not be the newest. In the newest one it may be among
/// those in sync, and the last one that lives: so it takes itself out of the members first, unless it is.
fn lost(membership: &Membership) -> Looked {
    match membership.leave() {
        Ok(true) => Looked::Lost,
        _ => {
            mark!("member cannot begin anew yet");
            Looked::Well
        }
    }
}

/// Looks after the primary that a view names, the newest as far as this member knows. `lives` says whether
/// the process of a member has not ended; `follow` has the one that was chosen followed, and whether that has
/// begun.
pub fn look_after(
    of: (&Membership, &View),
    look: Look,
    lives: impl FnOnce(u64) -> bool,
    follow: impl FnOnce() -> Result<bool>,
) -> Result<Looked> {
    match look_at_primary(of, look, lives, follow)? {
        // A successor goes on with the log, too.
        Looked::Well if look.has_log_failed => {
            mark!("log of a replica failed");
            Ok(Looked::Lost)
        }
        looked => Ok(looked),
    }
}

fn look_at_primary(
    (membership, view): (&Membership, &View),
    look: Look,
    lives: impl FnOnce(u64) -> bool,
    follow: impl FnOnce() -> Result<bool>,
) -> Result<Looked> {
    let Look { followed, is_lost, silent_ns, suspect_ns, wait_ns, .. } = look;
    let own = membership.boot;
    let is_in_sync = view.is_in_sync(own);
    if view.primary == own {
        return Ok(Looked::Promote("it was chosen, and did not hear of that"));
    }
    if view.member(own).is_none() {
        // It took itself out of the members, and the answer of the register was lost.
        return Ok(Looked::Lost);
    }
    if view.primary != followed && !is_in_sync {
        // Another one was chosen, and does without this one.
        return Ok(lost(membership));
    }
    if view.primary != followed && follow()? {
        return Ok(Looked::Well);
    }
    if view.successor == Some(own) && view.primary == followed {
        return Ok(Looked::Promote("it hands over"));
    }
    let has_ended = !lives(view.primary);
    let chosen_ns = wait_ns + suspect_ns * CHOSEN_TIMES;
    let patience_ns = if view.primary == followed { suspect_ns } else { chosen_ns };
    if is_in_sync && (has_ended || silent_ns > patience_ns) {
        let why = if has_ended { "its process has ended" } else { "it says nothing" };
        return Ok(Looked::Promote(why));
    }
    if !is_in_sync && is_lost && !has_ended {
        return Ok(lost(membership));
    }
    Ok(Looked::Well)
}

/// What came of going on in the place of a primary.
pub enum Promoted<T> {
    /// This one was chosen, and has this.
    Yes(T),
    /// Another view is in force.
    No,
    /// The register cannot be written, or its answer was lost. It may be later: what is here may be all that
    /// there is.
    NotYet(Error),
}

/// Goes on in the place of the primary that the view `seen` names, if nobody else does: is chosen, in a term that
/// is this one or later; voids what the old primary answers from then on; and takes up what that one has told by
/// then.
pub fn promote<T, V>(
    membership: &Membership,
    (seen, term): (&View, u64),
    void: impl FnOnce(&View) -> Result<V>,
    take_up: impl FnOnce(&View, V) -> Result<T>,
) -> Result<Promoted<T>> {
    let view = match membership.succeed(seen, term) {
        Ok(Some(view)) => view,
        Ok(None) => {
            mark!("another replica was quicker");
            return Ok(Promoted::No);
        }
        Err(error) if error.kind() == ErrorKind::Superseded => return Err(error),
        Err(error) => {
            mark!("replica could not be chosen yet");
            return Ok(Promoted::NotYet(error));
        }
    };
    // What the old primary has told by now counts, and nothing that it tells later: whoever reads or answers
    // there looks at this word afterwards.
    let voided = void(&view)?;
    full_fence();
    take_up(&view, voided).map(Promoted::Yes)
}

/// Voids whichever server has an authority page, by a term that nobody serves in, for this member, which was
/// chosen when the page's word had been loaded as `before`. Returns that term: this one may serve in the next
/// one, if the word has this one then. An error ([`ErrorKind::Superseded`]): another member was chosen since.
///
/// Who was chosen and stood still before this is not to void the server of whoever was chosen after that:
/// that one may be the only one which has all. Whoever voids later than `before` may have been chosen earlier
/// or later, so the view is looked at then, and the word must have been loaded before.
pub fn void(membership: &Membership, word: &SharedWord, before: u64, pause: impl Fn()) -> Result<u64> {
    let mut from = before;
    while word.words().compare_exchange(0, from, from + 1).is_err() {
        mark!("page voided by another member");
        from = word.words().load_acquire(0);
        loop {
            match membership.look() {
                Ok(Some(view)) if view.primary == membership.boot => break,
                Err(error) if error.kind() != ErrorKind::Superseded => pause(),
                Err(error) => return Err(error),
                Ok(_) => {
                    let context = "another node was chosen to be primary before this one began";
                    return Err(Error::new(ErrorKind::Superseded, "join cluster", context));
                }
            }
        }
    }
    Ok(from + 1)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use kelix_image::Span;
    use kelix_register::{MemoryRegister, Register, Swapped};

    use super::*;
    use crate::replicas::harness::{OWN, member, registered};
    use crate::replicas::outwait;

    const PRIMARY: u64 = 7;
    const SUSPECT_NS: u64 = 800;
    const LENGTH_NS: u64 = 1_000;

    /// A replica in sync, and the view of which it knows.
    fn replica() -> (MemoryRegister, Membership, View) {
        let mut view = View { proposal: 1, ..View::first(5, 2, member("a", PRIMARY)) };
        view.members.push(member("b", OWN));
        view.in_sync.push(OWN);
        let (register, membership) = registered(&view);
        (register, membership, view)
    }

    /// What a replica does whose primary has said nothing for so long.
    fn look(membership: &Membership, view: &View, silent_ns: u64) -> Looked {
        let look = Look {
            followed: PRIMARY,
            is_lost: false,
            has_log_failed: false,
            silent_ns,
            suspect_ns: SUSPECT_NS,
            wait_ns: LENGTH_NS,
        };
        look_after((membership, view), look, |_| true, || Ok(false)).unwrap()
    }

    /// The answer of the register may be lost by which a replica was chosen.
    #[test]
    fn who_was_chosen_without_hearing_so_goes_on() {
        let (_, membership, view) = replica();
        assert_eq!(look(&membership, &view, SUSPECT_NS), Looked::Well);
        let chosen = membership.succeed(&view, 0).unwrap().unwrap();
        assert!(matches!(look(&membership, &chosen, 0), Looked::Promote(_)));
        assert_eq!(membership.succeed(&chosen, 0).unwrap(), Some(chosen), "no second term");
    }

    /// However long a replica has suspected its primary, that one may have renewed its lease just before
    /// another view was chosen.
    #[test]
    fn a_successor_waits_for_a_lease_from_its_own_view_on() {
        let (_, membership, view) = replica();
        assert!(matches!(look(&membership, &view, SUSPECT_NS + 100), Looked::Promote(_)));
        let now_ns = Cell::new(10_000);
        let pause = |left_ns| {
            now_ns.set(now_ns.get() + left_ns);
            Ok(())
        };
        let void = |_: &View| outwait(&membership, (PRIMARY, LENGTH_NS), || now_ns.get(), pause);
        let promoted = promote(&membership, (&view, 0), void, |view, ()| Ok(view.term));
        assert!(matches!(promoted, Ok(Promoted::Yes(3))), "a term of its own");
        assert_eq!(now_ns.get(), 10_000 + LENGTH_NS);
    }

    /// The term of the server that is deposed is in force no more once its successor goes on.
    #[test]
    fn a_successor_voids_the_page_of_whoever_was_before() {
        let (_, membership, view) = replica();
        let page = Span::private(64);
        page.words().store(0, 40);
        membership.succeed(&view, 0).unwrap().unwrap();
        let voided = void(&membership, &page.word(0), 40, || panic!("the register answers"));
        assert_eq!((voided.unwrap(), page.words().load(0)), (41, 41));
        // A member that was chosen earlier has voided the page meanwhile.
        let voided = void(&membership, &page.word(0), 40, || panic!("the register answers"));
        assert_eq!((voided.unwrap(), page.words().load(0)), (42, 42));
    }

    /// The server of whoever was chosen later may be the only one that has all.
    #[test]
    fn who_was_chosen_earlier_does_not_void_the_server_of_a_later_one() {
        let (mut register, membership, view) = replica();
        let page = Span::private(64);
        page.words().store(0, 40);
        let chosen = membership.succeed(&view, 0).unwrap().unwrap();
        let mut later = View { primary: 8, in_sync: vec![8], term: 4, ..chosen.next(11) };
        later.members.push(member("c", 8));
        assert_eq!(register.swap(chosen.number, &later).unwrap(), Swapped::Done);
        page.words().store(0, 42);
        let late = void(&membership, &page.word(0), 40, || panic!("the register answers"));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::Superseded);
        assert_eq!(page.words().load(0), 42);
    }
}
