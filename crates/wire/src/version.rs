//! Versions of the protocol, and which of them two sides speak with each other.
//!
//! Each side tells the oldest and the newest version that it speaks, and they speak the newest that both
//! know. A release that has a new version speaks the one before too, so that servers and clients of two
//! releases that follow each other understand each other, whichever is renewed first.

use std::fmt;

/// Versions of the protocol, from the oldest to the newest that one side speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    /// Smaller ones it does not know any more.
    pub oldest: u16,
    /// Greater ones it does not know yet.
    pub newest: u16,
}

/// What this release speaks.
pub const SPOKEN: Versions = Versions { oldest: 1, newest: 1 };

impl Versions {
    /// The newest version that both sides speak.
    pub fn common(self, other: Versions) -> Option<u16> {
        let (oldest, newest) = (self.oldest.max(other.oldest), self.newest.min(other.newest));
        (oldest <= newest).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => write!(out, "{}", self.newest),
            false => write!(out, "{} to {}", self.oldest, self.newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(oldest: u16, newest: u16) -> Versions {
        Versions { oldest, newest }
    }

    #[test]
    fn two_sides_speak_the_newest_version_that_both_know() {
        for (ours, theirs, common) in [
            (versions(1, 1), versions(1, 1), Some(1)),
            (versions(1, 1), versions(1, 2), Some(1)),
            (versions(2, 3), versions(1, 2), Some(2)),
            (versions(1, 4), versions(2, 3), Some(3)),
            (versions(1, 1), versions(2, 3), None),
            // Nobody says so who is in his right mind.
            (versions(1, 3), versions(3, 1), None),
            (versions(1, 3), versions(0, u16::MAX), Some(3)),
        ] {
            assert_eq!((ours.common(theirs), theirs.common(ours)), (common, common), "{ours} and {theirs}");
        }
    }

    #[test]
    fn versions_are_told_as_people_tell_them() {
        assert_eq!((versions(1, 1).to_string(), versions(1, 3).to_string()), ("1".into(), "1 to 3".into()));
    }
}
