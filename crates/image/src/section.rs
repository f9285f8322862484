//! Attribute sections in words, as they stand in items: looking up by name.
//!
//! What [`Attributes`](crate::Attributes) reads out of any bytes, this finds in few steps where the section
//! begins at a whole word. Every length is checked here too.

use std::slice::ChunksExact;

use kelix_types::NameId;

use crate::attributes::{BYTES, LINK, LinkView};
use crate::words::bytes_of;

/// A link without key and bytes.
const LINK_BYTES_MIN: usize = 24;

/// An attribute section.
#[derive(Clone, Copy)]
pub struct Section<'a> {
    words: &'a [u64],
    count: usize,
}

impl<'a> Section<'a> {
    /// A section without attributes.
    pub const EMPTY: Section<'static> = Section { words: &[0], count: 0 };

    /// The section in these words; `None` when they cannot even hold its table.
    #[inline(always)]
    pub fn new(words: &'a [u64]) -> Option<Section<'a>> {
        let count = usize::try_from(*words.first()?).ok()?;
        (count < words.len()).then_some(Section { words, count })
    }

    /// The first bytes under a name.
    #[inline(always)]
    pub fn bytes_of(self, name: NameId) -> Option<&'a [u8]> {
        let run = self.runs(name, BYTES).next()?;
        bytes_of(run.words).get(..run.length)
    }

    /// The links under a name, in order.
    #[inline(always)]
    pub fn links_of(self, name: NameId) -> impl Iterator<Item = LinkView<'a>> {
        Links { runs: self.runs(name, LINK), of_run: [].chunks_exact(1), at: 0, behind: 0 }
    }

    /// Whether no attribute has a name with an id above this one.
    #[inline(always)]
    pub fn has_names_to(self, last: NameId) -> bool {
        self.entries().iter().all(|entry| *entry as u16 <= last.0)
    }

    /// The greatest id of a name, of all of them.
    pub fn greatest_name(self) -> NameId {
        NameId(self.entries().iter().map(|entry| *entry as u16).max().unwrap_or(0))
    }

    #[inline(always)]
    fn entries(self) -> &'a [u64] {
        &self.words[1..1 + self.count]
    }

    #[inline(always)]
    fn runs(self, name: NameId, kind: u8) -> Runs<'a> {
        let wanted = u32::from(name.0) | u32::from(kind) << 16;
        Runs { section: self, next: 0, payload: 1 + self.count, wanted }
    }
}

/// Words of so many bytes; a length has 32 bits.
#[inline(always)]
fn words_of(bytes: usize) -> usize {
    (bytes + 7) >> 3
}

/// Attributes of one name and kind, as far as they stand next to each other and are equally long: mostly a
/// whole list of links, for which lengths are looked at only once.
struct Runs<'a> {
    section: Section<'a>,
    /// The next entry, and where its payload begins.
    next: usize,
    payload: usize,
    /// Name and kind, as they stand in an entry.
    wanted: u32,
}

/// Payloads of so many bytes each, from word `at` on.
#[derive(Clone, Copy)]
struct Run<'a> {
    at: usize,
    length: usize,
    words: &'a [u64],
}

impl<'a> Iterator for Runs<'a> {
    type Item = Run<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Run<'a>> {
        loop {
            let (first, rest) = self.section.entries()[self.next..].split_first()?;
            let count = 1 + rest.iter().take_while(|entry| *entry == first).count();
            let (at, length) = (self.payload, (first >> 32) as usize);
            self.next += count;
            self.payload += count * words_of(length);
            if *first as u32 & 0xff_ffff == self.wanted {
                return Some(Run { at, length, words: self.section.words.get(at..self.payload)? });
            }
        }
    }
}

/// Links under a name.
struct Links<'a> {
    runs: Runs<'a>,
    /// What is left of a run, and where that begins.
    of_run: ChunksExact<'a, u64>,
    at: usize,
    /// Bytes of each behind the first three words.
    behind: usize,
}

impl<'a> Iterator for Links<'a> {
    type Item = LinkView<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<LinkView<'a>> {
        loop {
            if let Some(words) = self.of_run.next() {
                let at = self.at;
                self.at += words.len();
                return link_in(words, at, self.behind);
            }
            self.begin_run()?;
        }
    }

    /// In loops within each other, of which nothing has to be kept between two links.
    #[inline(always)]
    fn fold<B, F: FnMut(B, LinkView<'a>) -> B>(mut self, start: B, mut add: F) -> B {
        let mut sum = start;
        loop {
            let (mut at, behind) = (self.at, self.behind);
            for words in self.of_run.by_ref() {
                let Some(link) = link_in(words, at, behind) else { return sum };
                sum = add(sum, link);
                at += words.len();
            }
            if self.begin_run().is_none() {
                return sum;
            }
        }
    }
}

impl Links<'_> {
    #[inline(always)]
    fn begin_run(&mut self) -> Option<()> {
        let run = self.runs.next()?;
        self.behind = run.length.checked_sub(LINK_BYTES_MIN)?;
        self.of_run = run.words.chunks_exact(words_of(run.length));
        self.at = run.at;
        Some(())
    }
}

/// The link in these words, which begin at word `at` and have so many bytes behind the first three.
#[inline(always)]
fn link_in(words: &[u64], at: usize, behind: usize) -> Option<LinkView<'_>> {
    let (head, rest) = words.split_first_chunk::<3>()?;
    LinkView::of(at * 8, *head, bytes_of(rest).get(..behind)?)
}

#[cfg(test)]
mod tests {
    use kelix_types::TableId;

    use super::*;
    use crate::{AttributeBuilder, Attributes, Value};

    fn section() -> Vec<u64> {
        let mut builder = AttributeBuilder::default();
        builder.bytes(NameId(1), b"XYZ");
        builder.link(NameId(2), TableId(3), b"prof0001", b"");
        builder.bytes(NameId(0), b"");
        builder.link(NameId(2), TableId(3), b"prof2", b"since 2019");
        let bytes = builder.finish();
        bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn finds_what_attributes_reads() {
        let words = section();
        let section = Section::new(&words).unwrap();
        let all: Vec<_> = Attributes::new(bytes_of(&words)).unwrap().collect();
        let links: Vec<_> = section.links_of(NameId(2)).map(|link| (NameId(2), Value::Link(link))).collect();
        assert_eq!(links, [all[1], all[3]]);
        let mut one_by_one = section.links_of(NameId(2));
        assert_eq!(
            [one_by_one.next(), one_by_one.next()].map(|link| (NameId(2), Value::Link(link.unwrap()))),
            [all[1], all[3]]
        );
        assert_eq!(section.bytes_of(NameId(1)), Some(&b"XYZ"[..]));
        assert_eq!((section.bytes_of(NameId(0)), section.bytes_of(NameId(2))), (Some(&b""[..]), None));
        assert_eq!((section.links_of(NameId(1)).count(), section.greatest_name()), (0, NameId(2)));
        assert!(section.has_names_to(NameId(2)) && !section.has_names_to(NameId(1)));
    }

    #[test]
    fn stays_inside_wherever_a_section_breaks() {
        let good = section();
        let look = |words: &[u64]| {
            let Some(section) = Section::new(words) else { return };
            for name in 0..4 {
                section.bytes_of(NameId(name));
                section.links_of(NameId(name)).for_each(drop);
                for _ in section.links_of(NameId(name)) {}
            }
        };
        (0..good.len()).for_each(|cut| look(&good[..cut]));
        for word in 0..good.len() {
            for bit in 0..64 {
                let mut bad = good.clone();
                bad[word] ^= 1 << bit;
                look(&bad);
            }
        }
    }
}
