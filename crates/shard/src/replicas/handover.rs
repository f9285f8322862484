//! How a primary has another member go on in its place: it names a successor in the view, and is deposed by
//! that one.
//!
//! A successor that does not go on within some time is named no more.

use kelix_register::{Membership, View};
use kelix_types::{Result, mark};

/// Whom the view of a primary names as successor, and since when.
#[derive(Default)]
pub struct Handover {
    named: Option<(u64, u64)>,
}

/// What came of a look at that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandedOver {
    /// There is nothing to do, or a successor is named.
    Well,
    /// The one that was named did not go on, and is named no more.
    Late,
    /// Nobody is there who could be named.
    Nobody,
}

impl Handover {
    /// Looks at a view of which this member is primary, which hands over if it is to leave, or if its disk
    /// takes nothing. `lives` says whether the process of a member has not ended.
    pub fn look(
        &mut self,
        (membership, view): (&Membership, &View),
        (now_ns, within_ns): (u64, u64),
        hands_over: bool,
        lives: impl Fn(u64) -> bool,
    ) -> Result<HandedOver> {
        let own = membership.boot;
        self.named = view.successor.map(|boot| match self.named {
            Some((named, since_ns)) if named == boot => (boot, since_ns),
            _ => (boot, now_ns),
        });
        if self.named.is_some_and(|(_, since_ns)| now_ns - since_ns > within_ns) {
            membership.change(|view| {
                let view = view.filter(|view| view.primary == own && view.successor.is_some())?;
                Some(View { successor: None, ..view.next(0) })
            })?;
            return Ok(HandedOver::Late);
        }
        if !hands_over || view.successor.is_some() {
            return Ok(HandedOver::Well);
        }
        let may = |boot: &&u64| **boot != own && !view.leaving.contains(boot) && lives(**boot);
        let Some(successor) = view.in_sync.iter().find(may).copied() else { return Ok(HandedOver::Nobody) };
        membership.change(|now| {
            let now = now.filter(|now| now.number == view.number)?;
            Some(View { successor: Some(successor), ..now.next(0) })
        })?;
        mark!("primary named its successor");
        Ok(HandedOver::Well)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicas::harness::{OWN, member, registered};

    #[test]
    fn a_successor_is_named_while_it_is_wanted_and_forgotten_when_it_does_not_go_on() {
        let mut first = View { proposal: 1, ..View::first(5, 2, member("a", OWN)) };
        first.members.extend([member("b", 7), member("c", 8)]);
        first.in_sync.extend([7, 8]);
        let (_, membership) = registered(&first);
        let mut handover = Handover::default();
        let mut look = |now_ns, hands_over, lives: &[u64]| {
            let view = membership.look().unwrap().unwrap();
            let lives = |boot: u64| lives.contains(&boot);
            let looked = handover.look((&membership, &view), (now_ns, 10), hands_over, lives).unwrap();
            (looked, membership.look().unwrap().unwrap().successor)
        };
        assert_eq!(look(100, false, &[7, 8]), (HandedOver::Well, None));
        assert_eq!(look(100, true, &[9]), (HandedOver::Nobody, None));
        assert_eq!(look(100, true, &[8, 9]), (HandedOver::Well, Some(8)));
        assert_eq!(look(105, true, &[8, 9]), (HandedOver::Well, Some(8)));
        assert_eq!(look(115, true, &[8, 9]), (HandedOver::Well, Some(8)), "seen since 105");
        assert_eq!(look(116, true, &[8, 9]), (HandedOver::Late, None));
        assert_eq!(look(117, true, &[7, 9]), (HandedOver::Well, Some(7)), "another one");
    }
}
