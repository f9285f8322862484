//! Frames on the stream.

use std::ops::Range;

use kelix_types::limits::KEY_BYTES_MAX;

use crate::SET_UP_BYTES_MAX;

/// Longest READ of one frame; longer ones go in pieces.
pub(crate) const READ_WORDS_MAX: usize = 8 << 10;

/// Longest item that a FIND is answered with: what a client takes in one piece, and nearly all that an item
/// may have. A longer one is READ in pieces.
pub(crate) const FOUND_WORDS_MAX: usize = SET_UP_BYTES_MAX / 8 - 2;

/// Words of one frame of a feed at most.
pub const FEED_WORDS_MAX: usize = 8 << 10;

/// What a frame is. None is a printable character, so somebody who speaks another protocol is told apart at
/// once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Client: the words from a place on are wanted.
    Read = 1,
    /// Agent: the words of a READ.
    Sampled = 2,
    /// Agent: the place of a READ is in no segment.
    Outside = 3,
    /// Both: words for the other side's mailbox.
    Write = 4,
    /// Agent: another term has come into force.
    Term = 5,
    /// Both: a frame of the set-up conversation.
    Control = 6,
    /// Both, once a mirror follows: words of a shard.
    Feed = 7,
    /// Client: the item of a key is wanted.
    Find = 8,
    /// Agent: the words of the item that a FIND wanted, if that can be sent.
    Found = 9,
    /// Agent: there is no item that a FIND could want.
    Absent = 10,
    /// Agent: what the leaf of a key says that a FIND wanted.
    Leaf = 11,
}

/// The first word of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub kind: Kind,
    /// READ, FIND, WRITE and FEED: the shard. SAMPLED, FOUND, ABSENT and LEAF: how many epochs passed
    /// meanwhile, 255 for more.
    pub small: u8,
    /// READ, SAMPLED, OUTSIDE, FIND, FOUND, ABSENT and LEAF: the tag. WRITE: the first word. CONTROL: the
    /// set-up frame's kind. FEED: what the words are.
    pub name: u32,
    /// READ, SAMPLED, FOUND, LEAF, WRITE and FEED: words. CONTROL: bytes; FIND: bytes of the key.
    pub count: u32,
}

const FIELD: u64 = (1 << 24) - 1;

impl Head {
    pub fn new(kind: Kind, small: u8, name: u32, count: usize) -> Head {
        debug_assert!(u64::from(name) <= FIELD && count as u64 <= FIELD);
        Head { kind, small, name, count: count as u32 }
    }

    pub fn word(self) -> u64 {
        self.kind as u64
            | u64::from(self.small) << 8
            | u64::from(self.name) << 16
            | u64::from(self.count) << 40
    }

    /// `None` if it begins no frame of this protocol.
    pub fn parse(word: u64) -> Option<Head> {
        let kind = match word as u8 {
            1 => Kind::Read,
            2 => Kind::Sampled,
            3 => Kind::Outside,
            4 => Kind::Write,
            5 => Kind::Term,
            6 => Kind::Control,
            7 => Kind::Feed,
            8 => Kind::Find,
            9 => Kind::Found,
            10 => Kind::Absent,
            11 => Kind::Leaf,
            _ => return None,
        };
        let count = (word >> 40) as u32;
        let fits = match kind {
            Kind::Read | Kind::Sampled => (1..=READ_WORDS_MAX).contains(&(count as usize)),
            Kind::Write => count > 0,
            Kind::Feed => (1..=FEED_WORDS_MAX).contains(&(count as usize)),
            Kind::Control => count as usize <= SET_UP_BYTES_MAX,
            Kind::Find => count as usize <= KEY_BYTES_MAX,
            Kind::Found => count as usize <= FOUND_WORDS_MAX,
            Kind::Leaf => (1..=2).contains(&count),
            Kind::Outside | Kind::Term | Kind::Absent => count == 0,
        };
        fits.then_some(Head { kind, small: (word >> 8) as u8, name: (word >> 16 & FIELD) as u32, count })
    }

    /// Words that follow the first one.
    pub fn body_words(self) -> usize {
        match self.kind {
            Kind::Read | Kind::Term => 1,
            Kind::Outside => 0,
            Kind::Sampled | Kind::Leaf => 1 + self.count as usize,
            // The hash, and the table.
            Kind::Find => 2 + (self.count as usize).div_ceil(8),
            // A stamp, and where the item stands.
            Kind::Found if self.count == 0 => 0,
            Kind::Found => 2 + self.count as usize,
            // A stamp, and the generations.
            Kind::Absent => 2,
            Kind::Write | Kind::Feed => self.count as usize,
            Kind::Control => (self.count as usize).div_ceil(8),
        }
    }
}

/// Looks for a whole frame in `words`; `Ok(None)` if more has to arrive. A frame has at most `longest` words.
pub(crate) fn next(words: &[u64], longest: usize) -> Result<Option<(Head, Range<usize>)>, &'static str> {
    let Some(first) = words.first() else { return Ok(None) };
    let head = Head::parse(*first).ok_or("a frame that makes no sense")?;
    let end = 1 + head.body_words();
    if end > longest {
        return Err("a frame that is too long");
    }
    Ok((end <= words.len()).then_some((head, 1..end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_heads() {
        let word = |kind, small, name, count| Head::new(kind, small, name, count).word();
        assert_eq!(word(Kind::Read, 3, 0x01_0203, 0x20), 0x0000_2001_0203_0301);
        assert_eq!(word(Kind::Control, 0, 9, 13), 0x0000_0d00_0009_0006);
        assert_eq!(word(Kind::Feed, 1, 5, 3), 0x0000_0300_0005_0107);
        assert_eq!(word(Kind::Find, 2, 7, 16), 0x0000_1000_0007_0208);
        assert_eq!(word(Kind::Found, 1, 7, 0), 0x0000_0000_0007_0109);
        assert_eq!(word(Kind::Absent, 1, 7, 0), 0x0000_0000_0007_010a);
        assert_eq!(word(Kind::Leaf, 1, 7, 2), 0x0000_0200_0007_010b);
        let longest = [
            (Kind::Sampled, READ_WORDS_MAX),
            (Kind::Feed, FEED_WORDS_MAX),
            (Kind::Find, KEY_BYTES_MAX),
            (Kind::Found, FOUND_WORDS_MAX),
        ];
        for (kind, count) in [(Kind::Read, 1), (Kind::Absent, 0), (Kind::Leaf, 2), (Kind::Write, 1 << 14)]
            .into_iter()
            .chain(longest)
        {
            let head = Head::new(kind, 7, 0xff_ffff, count);
            assert_eq!(Head::parse(head.word()), Some(head));
        }
    }

    #[test]
    fn strangers_and_giants_are_refused() {
        for greeting in [b"GET / HT", b"\x16\x03\x01\x02\0\x01\0\x01", b"KLX1\x01\0\0\0", b"\0\0\0\0\0\0\0\0"]
        {
            assert_eq!(Head::parse(u64::from_le_bytes(*greeting)), None, "{greeting:?}");
        }
        let long = |kind, count| next(&[Head::new(kind, 0, 0, count).word()], 1 << 17);
        assert!(long(Kind::Read, READ_WORDS_MAX + 1).is_err());
        assert!(long(Kind::Read, 0).is_err());
        assert!(long(Kind::Write, 1 << 17).is_err());
        assert!(long(Kind::Feed, FEED_WORDS_MAX + 1).is_err());
        assert!(long(Kind::Feed, 0).is_err());
        assert!(long(Kind::Find, KEY_BYTES_MAX + 1).is_err());
        assert!(long(Kind::Absent, 1).is_err());
        assert!(long(Kind::Leaf, 0).is_err() && long(Kind::Leaf, 3).is_err());
        assert!(long(Kind::Found, FOUND_WORDS_MAX + 1).is_err());
        assert!(long(Kind::Control, SET_UP_BYTES_MAX + 1).is_err());
        assert_eq!(long(Kind::Write, 1 << 10), Ok(None));
    }
}
