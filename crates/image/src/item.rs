//! Items as they stand in memory.
//!
//! ```text
//! byte  0  guardian                     live bit, term, counter
//!       8  meta                         63 table 48 | 47 flags 38 | 37 body bytes 17 | 16 key bytes 0
//!      16  version, only with the flag  of an item that was moved: its incarnation when it was put
//!       .  client flags, only with it   32 bits that a client chose
//!       .  expiry, only with the flag   nanoseconds since 1970
//!       .  key
//!       .  padding to 8 bytes, only with the ATTRIBUTES or LARGE flag
//!       .  body: the value; or an attribute section; or the description of a large value
//! ```
//!
//! A plain key-value item is one unnamed bytes attribute: its body is the value, and it pays nothing for the
//! rest.

use std::ops::Range;

use kelix_types::{Guardian, Place, TableId, Version, limits};

use crate::layout::ItemLayout;
use crate::section::Section;
use crate::words::{Words, bytes_of};

/// What an item has besides a key and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ItemFlags(pub u16);

impl ItemFlags {
    /// The body is an attribute section.
    pub const ATTRIBUTES: ItemFlags = ItemFlags(1);
    /// An expiry word stands before the key.
    pub const EXPIRES: ItemFlags = ItemFlags(2);
    /// The body says where the value stands in page runs.
    pub const LARGE: ItemFlags = ItemFlags(4);
    /// The item was moved out of a sparse segment: a version word stands first.
    pub const MOVED: ItemFlags = ItemFlags(8);
    /// It is no item of a table: its key and body are the lower and the upper fence of a leaf, which alone
    /// names it.
    pub const FENCES: ItemFlags = ItemFlags(16);
    /// A client wrote it into a loaded table that did not have the key from its load: the next load takes it
    /// over.
    pub const OVERLAY: ItemFlags = ItemFlags(32);
    /// A word with flags of its client's stands before the key, and before the expiry.
    pub const CLIENT_FLAGS: ItemFlags = ItemFlags(64);
    const ALL: u16 = 127;

    /// Whether all of `other` is set.
    #[inline]
    pub const fn has(self, other: ItemFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    pub const fn with(self, other: ItemFlags) -> ItemFlags {
        ItemFlags(self.0 | other.0)
    }
}

/// What may stand before the key of an item, beside the version of one that was moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ItemOptions {
    /// What its client says of it. 0 takes no word.
    pub client_flags: u32,
    /// When it ends, in nanoseconds since 1970.
    pub expires: Option<u64>,
}

impl ItemOptions {
    /// The flags of an item with these.
    #[inline]
    pub fn flags(self) -> ItemFlags {
        let flag = |set: bool, flag: ItemFlags| if set { flag } else { ItemFlags::default() };
        let client_flags = flag(self.client_flags != 0, ItemFlags::CLIENT_FLAGS);
        client_flags.with(flag(self.expires.is_some(), ItemFlags::EXPIRES))
    }

    /// The words, in their order.
    #[inline]
    pub fn words(self) -> impl Iterator<Item = u64> {
        let client_flags = (self.client_flags != 0).then_some(u64::from(self.client_flags));
        client_flags.into_iter().chain(self.expires)
    }
}

/// Sizes, flags and table of an item: everything that fixes its layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ItemHeader {
    /// Table of the key.
    pub table: TableId,
    /// What it has besides.
    pub flags: ItemFlags,
    /// Length of the key.
    pub key_bytes: usize,
    /// Length of the body.
    pub body_bytes: usize,
}

impl ItemHeader {
    /// The meta word.
    #[inline]
    pub fn word(self) -> u64 {
        debug_assert!(self.key_bytes <= limits::KEY_BYTES_MAX && self.body_bytes < 1 << 21);
        self.key_bytes as u64
            | (self.body_bytes as u64) << 17
            | u64::from(self.flags.0) << 38
            | u64::from(self.table.0) << 48
    }

    /// Reads a meta word; `None` when it has flags unknown to this build. Sizes are bounded by the slot they
    /// must fit.
    #[inline(always)]
    pub fn from_word(word: u64) -> Option<ItemHeader> {
        let header = ItemHeader::of_word(word);
        (header.flags.0 & !ItemFlags::ALL == 0).then_some(header)
    }

    /// The same of a word whose flags are known to be.
    #[inline(always)]
    pub(crate) fn of_word(word: u64) -> ItemHeader {
        ItemHeader {
            table: TableId((word >> 48) as u16),
            flags: ItemFlags((word >> 38) as u16 & 0x3ff),
            key_bytes: (word & 0x1_ffff) as usize,
            body_bytes: (word >> 17) as usize & 0x1f_ffff,
        }
    }

    /// Where the key begins.
    #[inline(always)]
    pub fn key_start(self) -> usize {
        // 8 bytes further on with each of the flags MOVED (8), EXPIRES (2) and CLIENT_FLAGS (64).
        16 + usize::from(self.flags.0 & ItemFlags::MOVED.0)
            + usize::from(self.flags.0 & ItemFlags::EXPIRES.0) * 4
            + usize::from(self.flags.0 & ItemFlags::CLIENT_FLAGS.0) / 8
    }

    /// Where the body begins.
    #[inline(always)]
    pub fn body_start(self) -> usize {
        let aligned = self.flags.0 & (ItemFlags::ATTRIBUTES.0 | ItemFlags::LARGE.0) != 0;
        let padding = usize::from(aligned) * 7;
        (self.key_start() + self.key_bytes + padding) & !padding
    }

    /// Bytes of the whole item.
    #[inline(always)]
    pub fn item_bytes(self) -> usize {
        self.body_start() + self.body_bytes
    }
}

/// A plain item, without expiry and flags and never moved, where it stands: in memory that may be reused at
/// any moment. The common case of a read that can load from there. What it says, and what is copied out of
/// it, counts only if the checks of the read rule, made afterwards, say so.
#[derive(Clone, Copy)]
pub struct PlainItem<'a> {
    from: Words<'a>,
    guardian: Guardian,
    key_bytes: usize,
    value_bytes: usize,
}

impl<'a> PlainItem<'a> {
    /// Looks whether such an item of this key stands where `from` begins. `None`: look closer. The guardian
    /// is sampled before all else.
    #[inline(always)]
    pub fn find(from: Words<'a>, table: TableId, key: &[u8]) -> Option<PlainItem<'a>> {
        const BODY_MASK: u64 = 0x1f_ffff << 17;
        // Of no consequence to who reads it.
        const OVERLAY: u64 = (ItemFlags::OVERLAY.0 as u64) << 38;
        // With a word to spare, which keeps this short.
        if from.count() < 3 + key.len() / 8 {
            return None;
        }
        let (guardian, meta) = (Guardian(from.load_acquire(0)), from.load(1));
        // Table, flags and key length in one comparison.
        let wanted = key.len() as u64 | (u64::from(table.0) << 48);
        let (key_bytes, value_bytes) = (key.len(), ((meta & BODY_MASK) >> 17) as usize);
        if meta & !(BODY_MASK | OVERLAY) != wanted {
            return None;
        }
        stands_at(from, 16, key).then_some(PlainItem { from, guardian, key_bytes, value_bytes })
    }

    /// The guardian as it was sampled.
    #[inline(always)]
    pub fn guardian(self) -> Guardian {
        self.guardian
    }

    /// Length of the value.
    #[inline(always)]
    pub fn value_bytes(self) -> usize {
        self.value_bytes
    }

    /// Length of the item.
    #[inline(always)]
    pub fn item_bytes(self) -> usize {
        16 + self.key_bytes + self.value_bytes
    }

    /// Copies the value into a buffer of its length. `None`: the length makes no sense; what was looked at is
    /// no item.
    #[inline(always)]
    pub fn copy_value(self, into: &mut [u8]) -> Option<()> {
        debug_assert_eq!(into.len(), self.value_bytes);
        self.from.copy_bytes_out(16 + self.key_bytes, into).then_some(())
    }

    /// Copies as much of the value from a byte on as the buffer has room for, and says how much that is.
    /// `None` as above.
    #[inline]
    pub fn copy_part(self, from: u64, into: &mut [u8]) -> Option<usize> {
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.value_bytes);
        let count = into.len().min(self.value_bytes - from);
        let copied = self.from.copy_bytes_out(16 + self.key_bytes + from, &mut into[..count]);
        copied.then_some(count)
    }

    /// Copies the item, as it is in a slot, with the guardian that was sampled first. Returns its layout;
    /// `None` as above.
    pub fn copy_item(self, into: &mut Vec<u64>) -> Option<ItemLayout> {
        let words = self.item_bytes().div_ceil(8);
        if words > self.from.count() {
            return None;
        }
        into.resize(words, 0);
        self.from.copy_out(0, into);
        into[0] = self.guardian.0;
        // Written once: what it was when it was looked at, unless this is no item any more.
        ItemLayout::from_word(into[1]).filter(|layout| layout.words() <= words)
    }
}

/// Whether these bytes stand in the slot from byte `at`, a whole word, on.
#[inline(always)]
fn stands_at(slot: Words<'_>, at: usize, bytes: &[u8]) -> bool {
    let (Some(head), Some(tail)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) else {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let unused = 64 - bytes.len() as u32 * 8;
        return bytes.is_empty() || (slot.load(at / 8) ^ u64::from_le_bytes(word)) << unused == 0;
    };
    let last = if bytes.len() % 8 == 0 {
        slot.load((at + bytes.len()) / 8 - 1)
    } else {
        slot.load_bytes(at + bytes.len() - 8)
    };
    // Most keys are short: the first and the last eight bytes, which may overlap.
    slot.load(at / 8) == u64::from_le_bytes(*head)
        && last == u64::from_le_bytes(*tail)
        && (bytes.len() <= 16 || middle_stands_at(slot, at, bytes))
}

fn middle_stands_at(slot: Words<'_>, at: usize, bytes: &[u8]) -> bool {
    let mut words = bytes.chunks_exact(8).enumerate().skip(1);
    words.all(|(index, word)| {
        slot.load(at / 8 + index) == u64::from_le_bytes(word.try_into().expect("8 bytes"))
    })
}

/// An item in a private copy of its slot.
#[derive(Clone, Copy)]
pub struct ItemView<'a> {
    words: &'a [u64],
    layout: ItemLayout,
}

impl<'a> ItemView<'a> {
    /// Looks at a copied slot; `None` when the sizes do not fit it. Says nothing about whether the copy is
    /// valid: that is the read rule's business.
    #[inline(always)]
    pub fn new(words: &'a [u64]) -> Option<ItemView<'a>> {
        let layout = ItemLayout::from_word(*words.get(1)?)?;
        (layout.words() <= words.len()).then_some(ItemView { words, layout })
    }

    /// The same with a layout that was worked out of these words before.
    #[inline(always)]
    pub fn with_layout(words: &'a [u64], layout: ItemLayout) -> ItemView<'a> {
        ItemView { words, layout }
    }

    /// The guardian as it was sampled.
    #[inline(always)]
    pub fn guardian(self) -> Guardian {
        Guardian(self.words[0])
    }

    /// Its state for compare-and-set.
    ///
    /// A move gives the item a new incarnation, since a name must stand for one place; its version stays.
    #[inline(always)]
    pub fn version(self) -> Version {
        let moved = self.layout.has_any(ItemFlags::MOVED);
        Version(if moved { self.words[2] } else { self.guardian().incarnation().0 })
    }

    /// The slot's words.
    pub fn words(self) -> &'a [u64] {
        self.words
    }

    /// Where its parts stand.
    #[inline(always)]
    pub fn layout(self) -> ItemLayout {
        self.layout
    }

    /// Sizes, flags, table.
    #[inline(always)]
    pub fn header(self) -> ItemHeader {
        self.layout.header()
    }

    /// The key.
    #[inline(always)]
    pub fn key(self) -> &'a [u8] {
        &bytes_of(self.words)[self.layout.key()]
    }

    /// The body.
    #[inline(always)]
    pub fn body(self) -> &'a [u8] {
        &bytes_of(self.words)[self.layout.body()]
    }

    /// The attributes of an item that has some and is not large; `None` where their table does not fit.
    #[inline(always)]
    pub fn section(self) -> Option<Section<'a>> {
        Section::new(&self.words[self.layout.body_words()])
    }

    /// When it ends, in nanoseconds since 1970.
    pub fn expiry(self) -> Option<u64> {
        self.layout.has_any(ItemFlags::EXPIRES).then(|| self.words[self.layout.key().start / 8 - 1])
    }

    /// What its client says of it.
    pub fn client_flags(self) -> u32 {
        let at = if self.layout.has_any(ItemFlags::MOVED) { 3 } else { 2 };
        if self.layout.has_any(ItemFlags::CLIENT_FLAGS) { self.words[at] as u32 } else { 0 }
    }

    /// What stands before its key.
    pub fn options(self) -> ItemOptions {
        ItemOptions { client_flags: self.client_flags(), expires: self.expiry() }
    }

    /// Whether it is the item of this key.
    #[inline(always)]
    pub fn is_for(self, table: TableId, key: &[u8]) -> bool {
        self.layout.table() == table && equal(self.key(), key)
    }
}

/// The item that a key with an inline value would have: one that was moved, since its version, which is the
/// value, stands in a word of its own.
pub fn inline_item(table: TableId, key: [u8; 8], value: u64) -> [u64; 5] {
    let header = ItemHeader { table, flags: ItemFlags::MOVED, key_bytes: 8, body_bytes: 8 };
    [0, header.word(), value, u64::from_le_bytes(key), value]
}

/// Whether the item in `slot` is that of this key, read where it stands. For the writer, who alone may trust
/// what it reads in place.
#[inline]
pub fn holds_key(slot: Words<'_>, table: TableId, key: &[u8]) -> bool {
    let Some(header) = ItemHeader::from_word(slot.load(1)) else { return false };
    if header.table != table || header.key_bytes != key.len() {
        return false;
    }
    stands_at(slot, header.key_start(), key)
}

/// Copies the key of the item in `slot`, as it stands there. For the writer, too.
pub fn load_key(slot: Words<'_>, key: &mut Vec<u8>) {
    let header = ItemHeader::from_word(slot.load(1)).expect("an item of this image");
    key.resize(header.key_bytes, 0);
    assert!(slot.copy_bytes_out(header.key_start(), key), "an item of this image");
}

/// Compares two keys. Most are short, and then this is a few loads where a library call would cost more than
/// the rest.
#[inline(always)]
fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    match a.len() {
        0..8 => a == b,
        // Two words that may overlap.
        length @ 8..=16 => word(a, 0) == word(b, 0) && word(a, length - 8) == word(b, length - 8),
        _ => a == b,
    }
}

/// The body of a large item: how long the value is and in which runs it stands.
///
/// ```text
/// word 0  bytes of the value
/// then for each run: word  place,  word  bytes
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargeBody {
    /// Length of the value.
    pub bytes: u64,
    /// Place and used bytes of each run, in order.
    pub runs: Vec<(Place, u64)>,
}

impl LargeBody {
    /// Words it takes.
    pub fn words(&self) -> Vec<u64> {
        let mut words = vec![self.bytes];
        words.extend(self.runs.iter().flat_map(|(place, bytes)| [place.0, *bytes]));
        words
    }

    /// The runs of a part of the value, from a whole word on, and how many bytes come before it there.
    pub fn part(&self, part: Range<u64>) -> (Vec<(Place, u64)>, u64) {
        let (mut start, mut before, mut runs) = (0, 0, Vec::new());
        for (place, bytes) in &self.runs {
            let (first, end) = (part.start.max(start), part.end.min(start + bytes));
            if first < end {
                let skipped = (first - start) / 8 * 8;
                if runs.is_empty() {
                    before = first - start - skipped;
                }
                runs.push((place.plus(skipped), end - start - skipped));
            }
            start += bytes;
        }
        (runs, before)
    }

    /// Reads the body of a large item; `None` when the runs do not add up, one is empty, or something stands
    /// behind them.
    pub fn parse(body: &[u8]) -> Option<LargeBody> {
        if body.len() % 16 != 8 {
            return None;
        }
        let mut words =
            body.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let bytes = words.next()?;
        let mut runs = Vec::new();
        while let (Some(place), Some(length)) = (words.next(), words.next()) {
            runs.push((Place(place), length));
        }
        let sum = runs.iter().try_fold(0u64, |sum, (_, length)| sum.checked_add(*length))?;
        let whole = sum == bytes && runs.iter().all(|(_, length)| *length > 0);
        (whole && bytes <= limits::VALUE_BYTES_MAX).then_some(LargeBody { bytes, runs })
    }
}

const _: () = assert!(limits::KEY_BYTES_MAX < 1 << 17 && limits::INLINE_BODY_BYTES_MAX < 1 << 21);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::bytes_of_mut;

    #[test]
    fn golden_plain_item() {
        let header =
            ItemHeader { table: TableId(2), flags: ItemFlags::default(), key_bytes: 6, body_bytes: 3 };
        let mut words = [0u64; 4];
        words[0] = 0x8000_0100_0000_0007;
        words[1] = header.word();
        bytes_of_mut(&mut words)[16..25].copy_from_slice(b"stu001ABY");
        assert_eq!(words[1], 0x0002_0000_0006_0006);
        let item = ItemView::new(&words).unwrap();
        assert_eq!((item.key(), item.body()), (&b"stu001"[..], &b"ABY"[..]));
        assert!(item.is_for(TableId(2), b"stu001") && !item.is_for(TableId(1), b"stu001"));
        assert_eq!(ItemHeader::from_word(words[1]), Some(header));
        assert!(ItemView::new(&words[..3]).is_none(), "an item longer than its slot");
        assert!(ItemView::new(&words[..1]).is_none());
    }

    #[test]
    fn parts_of_a_large_value_begin_at_whole_words() {
        let large = LargeBody { bytes: 90, runs: vec![(Place(0), 40), (Place(4096), 32), (Place(800), 18)] };
        let all = (large.runs.clone(), 0);
        assert_eq!((large.part(0..90), large.part(0..u64::MAX)), (all.clone(), all));
        assert_eq!(large.part(13..20), (vec![(Place(8), 12)], 5));
        assert_eq!(large.part(39..41), (vec![(Place(32), 8), (Place(4096), 1)], 7));
        assert_eq!(large.part(40..80), (vec![(Place(4096), 32), (Place(800), 8)], 0));
        assert_eq!(large.part(89..90), (vec![(Place(816), 2)], 1));
        assert_eq!((large.part(90..95), large.part(50..50)), ((vec![], 0), (vec![], 0)));
    }

    #[test]
    fn layout_with_expiry_and_attributes() {
        let flags = ItemFlags::EXPIRES.with(ItemFlags::ATTRIBUTES);
        let header = ItemHeader { table: TableId(1), flags, key_bytes: 5, body_bytes: 8 };
        assert_eq!((header.key_start(), header.body_start(), header.item_bytes()), (24, 32, 40));
        let moved = ItemHeader { flags: flags.with(ItemFlags::MOVED), ..header };
        assert_eq!((moved.key_start(), moved.body_start(), moved.item_bytes()), (32, 40, 48));
        let mut words = [0x8000_0100_0000_0009, moved.word(), 0x100_0000_0007, 55, 0, 0];
        bytes_of_mut(&mut words)[32..37].copy_from_slice(b"stu01");
        let item = ItemView::new(&words).unwrap();
        assert_eq!(
            (item.version(), item.expiry(), item.key()),
            (Version(0x100_0000_0007), Some(55), &b"stu01"[..])
        );
        let all = ItemHeader { flags: moved.flags.with(ItemFlags::CLIENT_FLAGS), ..header };
        let words = [words[0], all.word(), words[2], 0xffff_fffe, 55, words[4], 0];
        let item = ItemView::new(&words).unwrap();
        assert_eq!((item.version(), item.key()), (Version(0x100_0000_0007), &b"stu01"[..]));
        let options = ItemOptions { client_flags: 0xffff_fffe, expires: Some(55) };
        assert_eq!((item.options(), options.words().collect::<Vec<_>>()), (options, words[3..5].to_vec()));
        assert_eq!(options.flags(), ItemFlags::CLIENT_FLAGS.with(ItemFlags::EXPIRES));
        assert_eq!(
            (ItemOptions::default().flags(), ItemOptions::default().words().next()),
            (ItemFlags(0), None)
        );
        // A 16-byte key with a 32-byte value fills one cache line.
        let line = ItemHeader { table: TableId(1), flags: ItemFlags(0), key_bytes: 16, body_bytes: 32 };
        assert_eq!(line.item_bytes(), 64);
    }

    #[test]
    fn large_bodies_must_add_up() {
        let body = LargeBody { bytes: 30, runs: vec![(Place(65536), 20), (Place(0), 10)] };
        let words = body.words();
        assert_eq!(words, [30, 65536, 20, 0, 10], "the golden body");
        assert_eq!(LargeBody::parse(bytes_of(&words)), Some(body));
        assert_eq!(LargeBody::parse(&bytes_of(&words)[..24]), None);
        assert_eq!(LargeBody::parse(&[]), None);
        assert_eq!(LargeBody::parse(bytes_of(&[20, 65536, 20, 0, 0])), None, "a run of nothing");
    }

    /// Found by fuzzing: what stood behind the last run and was too short to be one was ignored.
    #[test]
    fn large_bodies_end_with_their_last_run() {
        let mut body = bytes_of(&[20, 65536, 20]).to_vec();
        assert!(LargeBody::parse(&body).is_some());
        for _ in 0..15 {
            body.push(0);
            assert_eq!(LargeBody::parse(&body), None, "{} bytes", body.len());
        }
    }
}
