//! Scans by message: what is asked for, and how the keys come.
//!
//! Keys of a hash table, of which each shard has some, are in the order of their *positions*: their hashes
//! with the bits reversed.
//!
//! ```text
//! request  key        where to begin, with FROM; of a hash table the position, highest byte first
//!            argument   63 zero 38 | 37 ESTIMATE | 36 BACKWARDS | 35 COUNT | 34 UNTIL | 33 FROM | 32 AFTER | 31 most keys 0
//!          body       where to end, with UNTIL: forwards before this key, backwards with it
//!
//! reply    version    number of keys
//!          word 0     1: there are no more; 0: there may be
//!          word 1     only of a hash table: the position from which to go on
//!          then       inline values: for each key its number and its value
//!                     items: for each key  [ 63 words 47 | 46 location 0 ]  and so many words of the item, all of it or, if it
//!                     does not fit, all up to its key
//!                     with COUNT: number of bytes of the last key, and the key
//! ```

use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_image::{ItemFlags, ItemHeader, ItemView};
use kelix_types::{Location, TableId};

use crate::FrameBuffer;

/// What a scan asks for, besides its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanArgument {
    /// At most so many keys. The shard may bring fewer.
    pub limit: u32,
    /// The key to begin at does not count itself.
    pub after: bool,
    /// There is a key to begin at.
    pub from: bool,
    /// There is a key to end at.
    pub until: bool,
    /// Only the number of keys is wanted.
    pub count: bool,
    /// Downwards.
    pub backwards: bool,
    /// About how many keys there are is wanted, and nothing else.
    pub estimate: bool,
}

impl ScanArgument {
    /// Its word.
    pub fn word(self) -> u64 {
        let flags = [self.after, self.from, self.until, self.count, self.backwards, self.estimate];
        let flag = |(at, set): (usize, bool)| u64::from(set) << (32 + at);
        flags.into_iter().enumerate().map(flag).sum::<u64>() | u64::from(self.limit)
    }

    /// Reads one; `None`: it is none.
    pub fn from_word(word: u64) -> Option<ScanArgument> {
        let flag = |at: usize| word >> (32 + at) & 1 != 0;
        let argument = ScanArgument {
            limit: word as u32,
            after: flag(0),
            from: flag(1),
            until: flag(2),
            count: flag(3),
            backwards: flag(4),
            estimate: flag(5),
        };
        (argument.word() == word).then_some(argument)
    }
}

/// A key that a scan brought.
#[derive(Clone, Copy)]
pub enum ScanEntry<'a> {
    /// A number and its value.
    Inline(u64, u64),
    /// An item, as it stands in its slot.
    Item(ItemView<'a>),
    /// The key of an item that is too long for a message, or is not one piece.
    Key(&'a [u8]),
}

/// Makes room for an item, or for its first words, at least up to its key.
pub fn reserve_item(frame: &mut FrameBuffer, location: Location, words: usize) -> &mut [u64] {
    frame.push(location.word() | (words as u64) << 47);
    frame.reserve(words)
}

/// Appends the last key that was counted.
pub fn push_key(frame: &mut FrameBuffer, key: &[u8]) {
    frame.push(key.len() as u64);
    bytes_of_mut(frame.reserve(key.len().div_ceil(8)))[..key.len()].copy_from_slice(key);
}

/// The keys of a reply.
#[derive(Clone, Copy)]
pub struct ScanReply<'a> {
    /// There are no more.
    pub end: bool,
    /// Of a hash table: where to go on.
    pub position: u64,
    table: TableId,
    words: &'a [u64],
}

impl<'a> ScanReply<'a> {
    /// Looks at the words that came with a reply. `None`: they make no sense.
    pub fn new(table: TableId, words: &'a [u64]) -> Option<ScanReply<'a>> {
        let (end, words) = words.split_first()?;
        let (position, words) = match table.kind().is_ordered() {
            true => (0, words),
            false => words.split_first().map(|(position, words)| (*position, words))?,
        };
        (*end <= 1).then_some(ScanReply { end: *end == 1, position, table, words })
    }

    /// The last key that was counted.
    pub fn last_key(&self) -> Option<&'a [u8]> {
        let (bytes, words) = self.words.split_first()?;
        let length = usize::try_from(*bytes).ok()?;
        bytes_of(words).get(..length)
    }
}

impl<'a> Iterator for ScanReply<'a> {
    /// `None`: the rest makes no sense.
    type Item = Option<ScanEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let (first, rest) = self.words.split_first()?;
        self.words = &[];
        Some(if self.table.kind().has_items() {
            self.item(*first, rest)
        } else {
            rest.split_first().map(|(value, rest)| {
                self.words = rest;
                ScanEntry::Inline(*first, *value)
            })
        })
    }
}

impl<'a> ScanReply<'a> {
    fn item(&mut self, first: u64, rest: &'a [u64]) -> Option<ScanEntry<'a>> {
        let count = (first >> 47) as usize;
        let (words, rest) = (rest.get(..count)?, rest.get(count..)?);
        self.words = rest;
        let header = ItemHeader::from_word(*words.get(1)?).filter(|header| header.table == self.table)?;
        match ItemView::new(words) {
            Some(view) if !header.flags.has(ItemFlags::LARGE) => Some(ScanEntry::Item(view)),
            _ => bytes_of(words).get(header.key_start()..)?.get(..header.key_bytes).map(ScanEntry::Key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelix_types::{Place, SizeClass, TableKind};

    #[test]
    fn golden_argument() {
        let argument = ScanArgument { limit: 100, from: true, backwards: true, ..ScanArgument::default() };
        assert_eq!(argument.word(), 0x12_0000_0064);
        assert_eq!(ScanArgument::from_word(0x12_0000_0064), Some(argument));
        assert_eq!(ScanArgument::from_word(1 << 38), None);
    }

    #[test]
    fn what_was_said_is_read() {
        let table = TableId::new(TableKind::Numbers, 1);
        let header = ItemHeader { table, flags: ItemFlags::default(), key_bytes: 8, body_bytes: 8 };
        let words = [1 << 63, header.word(), 5, 7];
        let location = Location::new(Place(64), SizeClass(1));
        let mut frame = FrameBuffer::default();
        frame.clear();
        frame.push(1);
        reserve_item(&mut frame, location, 4).copy_from_slice(&words);
        reserve_item(&mut frame, location, 3).copy_from_slice(&words[..3]);
        assert_eq!(frame.payload()[1], 0x0002_0100_0000_0004);
        let reply = ScanReply::new(table, frame.payload()).unwrap();
        let entries: Vec<_> = reply.map(|entry| entry.expect("makes sense")).collect();
        assert!(reply.end);
        assert!(matches!(entries[0], ScanEntry::Item(view) if view.body() == 7u64.to_le_bytes()));
        assert!(matches!(entries[1], ScanEntry::Key(key) if key == 5u64.to_le_bytes()));
        let mut frame = FrameBuffer::default();
        frame.clear();
        frame.push(0);
        push_key(&mut frame, b"a key of some length");
        let reply = ScanReply::new(table, frame.payload()).unwrap();
        assert_eq!((reply.end, reply.last_key()), (false, Some(&b"a key of some length"[..])));
    }

    #[test]
    fn cut_and_flipped_replies_never_panic() {
        let table = TableId::new(TableKind::Strings, 1);
        let header = ItemHeader { table, flags: ItemFlags::default(), key_bytes: 8, body_bytes: 8 };
        let mut frame = FrameBuffer::default();
        frame.clear();
        frame.push(0);
        for _ in 0..3 {
            let location = Location::new(Place(64), SizeClass(1));
            reserve_item(&mut frame, location, 4).copy_from_slice(&[1 << 63, header.word(), 5, 7]);
        }
        let good = frame.payload();
        for table in [table, TableId::new(TableKind::Inline, 1), TableId(1)] {
            for cut in 0..=good.len() {
                let reply = ScanReply::new(table, &good[..cut]);
                reply.into_iter().for_each(|reply| assert!(reply.count() <= good.len()));
            }
            for bit in 0..good.len() * 64 {
                let mut bad = good.to_vec();
                bad[bit / 64] ^= 1 << (bit % 64);
                let Some(reply) = ScanReply::new(table, &bad) else { continue };
                let _ = reply.last_key();
                assert!(reply.count() <= good.len());
            }
        }
    }
}
