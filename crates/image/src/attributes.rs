//! Attribute sections: the body of an item with named attributes and links (KELI, section 3.2).
//!
//! ```text
//! word 0      number of attributes
//! then each:  [ name 16 | kind 8 | 0 8 | bytes of the payload 32 ]
//! then the payloads in the same order, each padded to 8 bytes
//!
//! bytes: the bytes
//! link:  word 0  location of the target, 0 when unknown    word 1  its incarnation
//!        word 2  [ 0 16 | key bytes 32 | table 16 ]
//!        then the target's key padded to 8 bytes, then the bytes of the link itself (an edge's attributes)
//! ```
//!
//! An attribute that holds several links stands several times under the same name. The two location words of
//! a link are the only words of a live item that change: the shard repairs them in place, one word at a time,
//! and any mix of old and new fails the guardian check.

use kelix_types::{Incarnation, Location, NameId, TableId, limits};

pub(crate) const BYTES: u8 = 0;
pub(crate) const LINK: u8 = 1;

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Bytes that only the user understands.
    Bytes(&'a [u8]),
    /// A pointer to another item.
    Link(LinkView<'a>),
}

/// A link as it stands in an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkView<'a> {
    /// Where the target stood when the link was last written or repaired.
    pub location: Option<Location>,
    /// Which object stood there.
    pub incarnation: Incarnation,
    /// Table of the target.
    pub table: TableId,
    /// Key of the target.
    pub key: &'a [u8],
    /// The link's own bytes.
    pub bytes: &'a [u8],
    /// Where in the section its two location words stand, in bytes from the section's start.
    pub position: usize,
}

/// Reads an attribute section. Every length is checked, so the section may come from anywhere.
#[derive(Clone)]
pub struct Attributes<'a> {
    section: &'a [u8],
    next: usize,
    count: usize,
    payload: usize,
}

fn word(section: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(section.get(at..at + 8)?.try_into().ok()?))
}

impl<'a> Attributes<'a> {
    /// Starts reading `section`; `None` when it cannot even hold its table.
    pub fn new(section: &'a [u8]) -> Option<Attributes<'a>> {
        let count = usize::try_from(word(section, 0)?).ok()?;
        let payload = count.checked_add(1)?.checked_mul(8)?;
        (payload <= section.len()).then_some(Attributes { section, next: 0, count, payload })
    }

    /// Whether the whole section reads without fault and holds nothing more.
    pub fn check(section: &[u8]) -> bool {
        let Some(mut attributes) = Attributes::new(section) else { return false };
        for _ in 0..attributes.count {
            if attributes.next().is_none() {
                return false;
            }
        }
        attributes.payload == section.len()
    }
}

/// Reads a link, whose payload begins at `at`.
fn link(at: usize, payload: &[u8]) -> Option<LinkView<'_>> {
    let (head, rest) = payload.split_at_checked(24)?;
    LinkView::of(at, [word(head, 0)?, word(head, 8)?, word(head, 16)?], rest)
}

/// Most attributes of a section whose links are visited: millions of them take a moment.
const VISITED_MAX: u64 = 1 << 22;

/// Visits the tables that the links of an attribute section lead to. `word` loads one of its words, `None`
/// behind its end. `false`: it makes no sense, or has more than four million attributes.
pub fn link_tables(word: impl Fn(usize) -> Option<u64>, mut visit: impl FnMut(TableId)) -> bool {
    let mut look = || {
        let count = word(0).filter(|count| *count <= VISITED_MAX)? as usize;
        let mut payload = 1 + count;
        for index in 0..count {
            let entry = word(1 + index)?;
            let (kind, length) = ((entry >> 16) as u8, (entry >> 32) as usize);
            if kind == LINK {
                visit(TableId(word(payload + 2)? as u16));
            }
            payload += length.div_ceil(8);
        }
        Some(())
    };
    look().is_some()
}

/// The word of a link that says the target's table and how many bytes its key has.
#[inline]
pub fn link_target(table: TableId, key_bytes: usize) -> u64 {
    u64::from(table.0) | (key_bytes as u64) << 16
}

impl<'a> LinkView<'a> {
    /// A link of these three words, with what stands behind them.
    #[inline(always)]
    pub fn of(
        position: usize,
        [location, incarnation, target]: [u64; 3],
        rest: &'a [u8],
    ) -> Option<LinkView<'a>> {
        let key_bytes = (target >> 16) as usize;
        // Nothing stands above the length.
        if key_bytes > limits::KEY_BYTES_MAX {
            return None;
        }
        let (key, bytes) = rest.split_at_checked((key_bytes + 7) & !7)?;
        Some(LinkView {
            location: if location == 0 { None } else { Location::from_word(location) },
            incarnation: Incarnation(incarnation),
            table: TableId(target as u16),
            key: &key[..key_bytes],
            bytes,
            position,
        })
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (NameId, Value<'a>);

    /// The next attribute; `None` at the end, or where the section is broken.
    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.count {
            return None;
        }
        let entry = word(self.section, 8 + self.next * 8)?;
        let (name, kind, length) = (NameId(entry as u16), (entry >> 16) as u8, (entry >> 32) as usize);
        let at = self.payload;
        let payload = self.section.get(at..at.checked_add(length)?)?;
        let value = match kind {
            BYTES => Value::Bytes(payload),
            LINK => Value::Link(link(at, payload)?),
            _ => return None,
        };
        self.payload = at + length.next_multiple_of(8);
        self.next += 1;
        (self.payload <= self.section.len()).then_some((name, value))
    }
}

/// Builds an attribute section.
#[derive(Clone, Debug, Default)]
pub struct AttributeBuilder {
    entries: Vec<u64>,
    payloads: Vec<u8>,
}

impl AttributeBuilder {
    /// Adds bytes under a name.
    pub fn bytes(&mut self, name: NameId, bytes: &[u8]) {
        self.add(name, BYTES, &[bytes]);
    }

    /// Adds a link under a name. Where the target stands is for the shard to find out.
    pub fn link(&mut self, name: NameId, table: TableId, key: &[u8], bytes: &[u8]) {
        let target = link_target(table, key.len());
        let padding = &[0; 8][..key.len().next_multiple_of(8) - key.len()];
        self.add(name, LINK, &[&[0; 16], &target.to_le_bytes(), key, padding, bytes]);
    }

    fn add(&mut self, name: NameId, kind: u8, parts: &[&[u8]]) {
        let start = self.payloads.len();
        parts.iter().for_each(|part| self.payloads.extend_from_slice(part));
        let length = (self.payloads.len() - start) as u64;
        self.entries.push(u64::from(name.0) | u64::from(kind) << 16 | length << 32);
        self.payloads.resize(self.payloads.len().next_multiple_of(8), 0);
    }

    /// Forgets them all, to build another section in the same memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.payloads.clear();
    }

    /// The bytes, where there is nothing but bytes without a name, or nothing at all.
    pub fn plain(&self) -> Option<&[u8]> {
        match self.entries[..] {
            [] => Some(&[]),
            [entry] if entry as u32 == 0 => Some(&self.payloads[..(entry >> 32) as usize]),
            _ => None,
        }
    }

    /// How many bytes the section has.
    pub fn section_bytes(&self) -> usize {
        8 + self.entries.len() * 8 + self.payloads.len()
    }

    /// Writes the section where there is just room for it.
    pub fn write(&self, section: &mut [u8]) {
        let (table, payloads) = section.split_at_mut(8 + self.entries.len() * 8);
        let words = std::iter::once(self.entries.len() as u64).chain(self.entries.iter().copied());
        table.chunks_exact_mut(8).zip(words).for_each(|(at, word)| at.copy_from_slice(&word.to_le_bytes()));
        payloads.copy_from_slice(&self.payloads);
    }

    /// The section.
    pub fn finish(&self) -> Vec<u8> {
        let mut section = vec![0; self.section_bytes()];
        self.write(&mut section);
        section
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Vec<u8> {
        let mut builder = AttributeBuilder::default();
        builder.bytes(NameId(1), b"XYZ");
        builder.link(NameId(2), TableId(3), b"prof0001", b"");
        builder.link(NameId(2), TableId(3), b"prof2", b"since 2019");
        builder.finish()
    }

    #[test]
    fn golden_section() {
        let section = section();
        let words: Vec<u64> =
            section.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words[..5], [3, 3 << 32 | 1, 32 << 32 | 0x1_0002, 42 << 32 | 0x1_0002, 0x5a_5958]);
        assert_eq!(words[5..8], [0, 0, 8 << 16 | 3]);
        let read: Vec<_> = Attributes::new(&section).unwrap().collect();
        assert_eq!(read[0], (NameId(1), Value::Bytes(b"XYZ")));
        let Value::Link(link) = read[2].1 else { panic!("a link") };
        assert_eq!((link.key, link.bytes, link.table), (&b"prof2"[..], &b"since 2019"[..], TableId(3)));
        assert_eq!((link.location, link.position % 8), (None, 0));
        assert!(Attributes::check(&section));
    }

    #[test]
    fn a_link_with_an_eight_byte_key_takes_forty_bytes() {
        let mut builder = AttributeBuilder::default();
        builder.link(NameId(1), TableId(1), b"12345678", b"");
        let one = builder.finish().len();
        builder.link(NameId(1), TableId(1), b"12345678", b"");
        assert_eq!(builder.finish().len() - one, 40);
    }

    #[test]
    fn broken_sections_are_refused_wherever_they_break() {
        let good = section();
        for cut in 0..good.len() {
            assert!(!Attributes::check(&good[..cut]), "cut at {cut}");
        }
        for byte in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[byte] ^= 1 << bit;
                // Must not panic; whether the flipped section still makes sense depends on the bit.
                Attributes::check(&bad);
            }
        }
    }
}
