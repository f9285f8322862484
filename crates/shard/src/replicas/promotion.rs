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
        // Whoever goes on in the primary's place goes on with the log, too.
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
