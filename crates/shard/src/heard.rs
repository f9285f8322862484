//! What clients of a mirror read by themselves, on its way to the shard that is shown, where that is a cache.
//!
//! Clients tell a mirror what they would tell its primary: locations, each once in an epoch of use, which
//! they learn from the answers. The mirror gathers those of all its clients, each location once, until they
//! are passed up ([`Heard::take`]), and learns the epoch from the answer to that ([`Heard::set_epoch`]).
//! Locations are the same on both sides. By the time that they are passed up another item may stand there, as
//! with clients that are slow: that item is kept a little longer than it deserves.
//!
//! 1. Memory is bounded: [`WAITING_MAX`] locations wait at most, and more are not remembered as told.
//! 2. One message is under way at a time, of [`FEED_HINTS_MAX`] locations at most.
//! 3. Whenever somebody has told or asked something a message goes up, be it one without a location: for the
//!    epoch.

use kelix_types::Location;
use kelix_wire::feed::{FEED_HINTS_MAX, NO_LOCATION};

/// Locations that are remembered as told in this epoch.
const TOLD: usize = 1 << 14;
/// Locations that wait to be passed up.
const WAITING_MAX: usize = 1 << 13;

/// What a mirror's shard has heard.
pub(crate) struct Heard {
    /// The primary's epoch of use, as far as is known.
    epoch: u64,
    /// Locations that were told of: `[ bits of a hash 63 8 | epoch 7 0 ]`.
    told: Box<[u64]>,
    waiting: Vec<u64>,
    /// Somebody wants to know the epoch.
    is_asked: bool,
    is_under_way: bool,
}

impl Heard {
    pub fn new() -> Heard {
        Heard {
            epoch: 0,
            told: vec![0; TOLD].into(),
            waiting: Vec::new(),
            is_asked: false,
            is_under_way: false,
        }
    }

    /// The epoch of use, for whoever tells something.
    pub fn epoch(&mut self) -> u64 {
        self.is_asked = true;
        self.epoch
    }

    /// An item was read. `true`: that will be passed up.
    pub fn note(&mut self, location: Location) -> bool {
        let hash = location.word().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let told = &mut self.told[(hash >> 50) as usize];
        let mark = hash & !0xff | u64::from(self.epoch as u8);
        if *told == mark || self.waiting.len() >= WAITING_MAX {
            return false;
        }
        *told = mark;
        self.waiting.push(location.word());
        true
    }

    /// What is to be passed up now: locations, or [`NO_LOCATION`] where only the answer is wanted. `None`:
    /// nothing was told or asked, or the last message is still under way.
    pub fn take(&mut self) -> Option<Vec<u64>> {
        if self.is_under_way || self.waiting.is_empty() && !self.is_asked {
            return None;
        }
        (self.is_under_way, self.is_asked) = (true, false);
        if self.waiting.is_empty() {
            return Some(vec![NO_LOCATION]);
        }
        let count = self.waiting.len().min(FEED_HINTS_MAX);
        Some(self.waiting.drain(..count).collect())
    }

    /// The primary has answered a message.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.is_under_way = false;
    }
}

#[cfg(test)]
mod tests {
    use kelix_types::{Place, SizeClass};

    use super::*;

    fn location(number: usize) -> Location {
        Location::new(Place(number as u64 * 4096), SizeClass(3))
    }

    #[test]
    fn a_location_is_passed_up_once_in_an_epoch() {
        let mut heard = Heard::new();
        assert_eq!(heard.take(), None);
        assert!(heard.note(location(5)) && !heard.note(location(5)) && heard.note(location(6)));
        assert_eq!(heard.take(), Some(vec![location(5).word(), location(6).word()]));
        assert!(!heard.note(location(5)) && heard.note(location(7)));
        assert_eq!(heard.take(), None, "one is under way");
        heard.set_epoch(3);
        assert!(heard.note(location(5)), "in another epoch");
        assert_eq!(heard.take(), Some(vec![location(7).word(), location(5).word()]));
        heard.set_epoch(3);
        assert_eq!((heard.take(), heard.epoch(), heard.take()), (None, 3, Some(vec![NO_LOCATION])));
        assert_eq!(Location::from_word(NO_LOCATION), None);
    }

    #[test]
    fn what_waits_is_bounded_and_goes_in_messages() {
        let mut heard = Heard::new();
        // The table of what was told is lossy, so of these few may be told twice, and none is lost.
        let noted = (0..3 * WAITING_MAX).filter(|number| heard.note(location(1 + number))).count();
        assert_eq!(noted, WAITING_MAX);
        let mut passed = Vec::new();
        while let Some(words) = heard.take() {
            assert!(words.len() <= FEED_HINTS_MAX);
            passed.extend(words);
            heard.set_epoch(0);
        }
        assert_eq!(passed, (1..=WAITING_MAX).map(|number| location(number).word()).collect::<Vec<_>>());
        assert!(heard.note(location(2 * WAITING_MAX)), "what found no room was not remembered as told");
    }
}
