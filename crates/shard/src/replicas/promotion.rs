//! When another primary is to be chosen, and in which order it takes over.

use kelix_image::words::full_fence;
use kelix_register::{Membership, View};
use kelix_types::{Result, mark};

/// Times of suspicion that a primary which was just chosen may take to serve, before another one is.
const CHOSEN_TIMES: u64 = 8;

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

/// Looks after the primary that a view names. `lives` says whether the process of a member has not ended;
/// `follow` has the one that was chosen followed, and whether that has begun.
pub fn look_after(
    (view, own): (&View, u64),
    look: Look,
    lives: impl FnOnce(u64) -> bool,
    follow: impl FnOnce() -> Result<bool>,
) -> Result<Looked> {
    let Look { followed, is_lost, silent_ns, suspect_ns, wait_ns } = look;
    let is_in_sync = view.is_in_sync(own);
    if view.primary != followed && !is_in_sync {
        // Another one was chosen, and does without this one.
        return Ok(Looked::Lost);
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
        return Ok(Looked::Lost);
    }
    Ok(Looked::Well)
}

/// Goes on in the place of the primary that the view `seen` names, if nobody else does: is chosen, in a term that
/// is this one or later; voids what the old primary answers from then on; and takes up what that one has told by
/// then. `None`: another view is in force.
pub fn promote<T>(
    membership: &Membership,
    (seen, term): (&View, u64),
    void: impl FnOnce(&View) -> Result<()>,
    take_up: impl FnOnce(&View) -> Result<T>,
) -> Result<Option<T>> {
    let Some(view) = membership.succeed(seen, term)? else {
        mark!("another replica was quicker");
        return Ok(None);
    };
    // What the old primary has told by now counts, and nothing that it tells later: whoever reads or answers
    // there looks at this word afterwards.
    void(&view)?;
    full_fence();
    take_up(&view).map(Some)
}
