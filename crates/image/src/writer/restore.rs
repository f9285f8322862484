//! An image that begins with what another one held: what its memory does not say is said by *books*, and
//! which slots live, whoever had the memory before ([`Replica`](crate::Replica)). No slot of an item is
//! looked at.

use kelix_types::limits::{GRANULE_BYTES, PAGE_BYTES, PLACE_ALIGN, QUARANTINE_EPOCHS};
use kelix_types::{Error, ErrorKind, Guardian, Incarnation, Location, Place, Result, SizeClass};

use super::slots::STAMP_SHIFT;
use super::{Image, ImageConfig, page_place};

use crate::header::header_word;
use crate::map::Span;
use crate::pages::{Kind, PageUse, SegmentState};
use crate::segments::SegmentSource;
use crate::stock::Live;

/// What the writer of an image knows that the image's memory does not say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Books {
    /// The last name that an object was given.
    pub incarnation: u64,
    /// The word that leads to the directory of the hash index.
    pub directory: u64,
    /// The segments.
    pub segments: Vec<SegmentBooks>,
}

/// Of one segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentBooks {
    /// Its first granule.
    pub first_granule: u64,
    /// Its length.
    pub bytes: u64,
    /// Its slabs: `[ kind 63 48 | slots that were ever handed out 47 24 | first page 23 0 ]`.
    pub slabs: Vec<u64>,
}

impl Books {
    /// As words: incarnation, directory, and for each segment its first granule, length, number of slabs, and
    /// slabs.
    pub fn words(&self) -> Vec<u64> {
        let mut words = vec![self.incarnation, self.directory];
        for segment in &self.segments {
            words.extend([segment.first_granule, segment.bytes, segment.slabs.len() as u64]);
            words.extend(&segment.slabs);
        }
        words
    }

    /// An error if an image of at most so many bytes cannot go on with these segments.
    pub fn check_room(&self, memory_bytes: u64) -> Result<()> {
        let bytes: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        // While a segment was being emptied there may have been one too many.
        let largest = self.segments.iter().map(|segment| segment.bytes).max().unwrap_or(0);
        if bytes <= memory_bytes.saturating_add(largest) {
            return Ok(());
        }
        let context =
            format!("{memory_bytes} bytes of memory are too few for a shard that has taken {bytes}");
        Err(Error::new(ErrorKind::InvalidArgument, "restore image", context))
    }

    /// Reads the words. `None`: they make no sense.
    pub fn of_words(words: &[u64]) -> Option<Books> {
        let (&[incarnation, directory], mut rest) = words.split_first_chunk::<2>()?;
        let mut books = Books { incarnation, directory, segments: Vec::new() };
        while let Some((&[first_granule, bytes, count], behind)) = rest.split_first_chunk::<3>() {
            let count = usize::try_from(count).ok()?;
            let slabs = behind.get(..count)?.to_vec();
            rest = &behind[count..];
            let segment = SegmentBooks { first_granule, bytes, slabs };
            books.segments.push(segment.make_sense().then_some(segment)?);
        }
        let apart =
            |pair: &[SegmentBooks]| pair[0].first_granule + pair[0].granules() <= pair[1].first_granule;
        let ends = books.segments.last().is_none_or(|last| last.first_granule + last.granules() <= 1 << 18);
        (rest.is_empty() && ends && books.segments.windows(2).all(apart)).then_some(books)
    }
}

impl SegmentBooks {
    fn granules(&self) -> u64 {
        self.bytes.div_ceil(GRANULE_BYTES)
    }

    fn make_sense(&self) -> bool {
        let pages = self.bytes / PAGE_BYTES;
        let fits = |slab: &u64| {
            Slab::of_word(*slab).is_some_and(|slab| {
                slab.page + slab.kind.slab_pages() <= pages && slab.carved <= slab.kind.slots()
            })
        };
        let whole = self.bytes > 0 && self.bytes % PAGE_BYTES == 0 && self.bytes < 1 << 40;
        let apart = |pair: &[u64]| match [Slab::of_word(pair[0]), Slab::of_word(pair[1])] {
            [Some(one), Some(next)] => one.page + one.kind.slab_pages() <= next.page,
            _ => false,
        };
        (1..1 << 18).contains(&self.first_granule)
            && whole
            && self.slabs.iter().all(fits)
            && self.slabs.windows(2).all(apart)
    }
}

/// A slab, as books have it.
#[derive(Clone, Copy)]
pub(crate) struct Slab {
    pub kind: Kind,
    pub carved: u64,
    pub page: u64,
}

impl Slab {
    pub fn word(self) -> u64 {
        (self.kind.index() as u64) << 48 | self.carved << 24 | self.page
    }

    pub fn of_word(word: u64) -> Option<Slab> {
        let (carved, page) = (word >> 24 & 0xff_ffff, word & 0xff_ffff);
        Kind::of_number(word >> 48).map(|kind| Slab { kind, carved, page })
    }
}

impl Image {
    /// The books, as they are now. Segments that are gone are not in them.
    pub fn books(&self) -> Books {
        let segments = self.segments.iter().filter(|segment| segment.state != SegmentState::Retired);
        let segments = segments.map(|segment| {
            let heads = segment.pages.iter().enumerate().filter(|(at, page)| page.head as usize == *at);
            let slabs = heads.filter_map(|(at, page)| match page.usage {
                PageUse::Slab(kind) => {
                    Some(Slab { kind, carved: page.carved.into(), page: at as u64 }.word())
                }
                _ => None,
            });
            SegmentBooks {
                first_granule: segment.first_granule as u64,
                bytes: segment.bytes,
                slabs: slabs.collect(),
            }
        });
        let directory = self.header.words().load(header_word::DIRECTORY);
        Books { incarnation: self.incarnation.0, directory, segments: segments.collect() }
    }

    /// The stretches of memory that hold something now, in their order, but no models: place and bytes.
    pub fn stretches(&self) -> Vec<(Place, u64)> {
        let mut stretches: Vec<(Place, u64)> = Vec::new();
        for segment in self.segments.iter().filter(|segment| segment.state != SegmentState::Retired) {
            // None goes on in the next segment, which is other memory.
            let before = stretches.len();
            let mut add = |place: Place, bytes: u64| match stretches[before..].last_mut() {
                Some((first, length)) if first.plus(*length) == place => *length += bytes,
                _ => stretches.push((place, bytes)),
            };
            for (at, page) in segment.pages.iter().enumerate() {
                let place = page_place(segment, at);
                match page.usage {
                    PageUse::Slab(kind) if page.head as usize == at && !kind.is_model() => {
                        add(place, u64::from(page.carved) * kind.slot_bytes());
                    }
                    PageUse::Run => add(place, PAGE_BYTES),
                    _ => {}
                }
            }
        }
        stretches
    }

    /// An image with the segments of books, which `source` gives with what stands there: whoever calls this
    /// says next which slots live ([`Image::take_over`]).
    pub fn restore(
        config: ImageConfig,
        header: Span,
        source: Box<dyn SegmentSource>,
        books: &Books,
    ) -> Result<Image> {
        let mut image = Image::without_segments(config, header, source);
        // Who follows knows what the books say.
        image.journal.keep(false);
        books.check_room(config.memory_bytes)?;
        // What was put after the books were written, and is lost, has incarnations of their term.
        let term = Incarnation(books.incarnation).term() + 1;
        if term > Incarnation::TERM_MAX {
            let context = format!(
                "its last incarnation is {:#x}, and no image can go on behind that",
                books.incarnation
            );
            return Err(Error::new(ErrorKind::Damaged, "restore image", context));
        }
        if image.incarnation.term() < term {
            // Where in the term they begin stays as it was drawn.
            image.incarnation = Incarnation(Incarnation::first_of_term(term).0 | image.incarnation.counter());
        }
        for segment in &books.segments {
            // Granules of segments that are gone belong to nobody.
            image.granules.resize(segment.first_granule as usize, u32::MAX);
            let index = image.add_segment_of(segment.bytes)?;
            for slab in segment.slabs.iter().filter_map(|slab| Slab::of_word(*slab)) {
                image.kinds[slab.kind.index()].slabs += 1;
                image.segments[index].keep_slab(slab.kind, slab.page as usize, slab.carved as u32);
            }
        }
        image.publish_header(header_word::DIRECTORY, books.directory);
        image.journal.keep(config.keeps_journal);
        Ok(image)
    }

    /// Takes the slots into use that live, and those of the hash index that are its blocks; all others are
    /// free. Then come the runs of large values.
    pub fn take_over(&mut self, live: Live, mut is_block: impl FnMut(Place) -> bool) {
        self.live = live;
        for segment in 0..self.segments.len() {
            for page in 0..self.segments[segment].pages.len() {
                let state = self.segments[segment].pages[page];
                let PageUse::Slab(kind) = state.usage else { continue };
                if state.head as usize != page {
                    continue;
                }
                let first = page_place(&self.segments[segment], page);
                self.segments[segment].pages[page].carved = kind.slots() as u32;
                if kind.has_guardian() {
                    self.take_over_slab(kind, first);
                } else {
                    self.take_over_blocks(kind, first, &mut is_block);
                }
            }
        }
    }

    /// Of a slab of items or leaves: its free slots are listed when they are wanted.
    fn take_over_slab(&mut self, kind: Kind, first: Place) {
        let used = self.live.count(kind, first);
        self.count_slot(kind, first, used as i64);
        if used < kind.slots() {
            let state = &mut self.kinds[kind.index()];
            state.unlisted.push(first);
            state.unlisted_slots += (kind.slots() - used) as usize;
        }
    }

    /// The location of the item whose slot begins at a place. None: no such slot is there.
    pub fn item_at(&self, place: Place) -> Option<Location> {
        self.map.words(place, 1)?;
        let (segment, page) = self.page_of(place);
        let PageUse::Slab(kind) = self.segments[segment].pages.get(page)?.usage else { return None };
        kind.class().map(|class| Location::new(place, class))
    }

    /// The slabs of items: class, first slot, and how many slots there are.
    pub fn item_slabs(&self) -> impl Iterator<Item = (SizeClass, Place, u64)> + '_ {
        self.segments.iter().flat_map(|segment| {
            let heads = segment.pages.iter().enumerate().filter(|(at, page)| page.head as usize == *at);
            heads.filter_map(|(at, page)| match page.usage {
                PageUse::Slab(kind) => Some((kind.class()?, page_place(segment, at), kind.slots())),
                _ => None,
            })
        })
    }

    /// Takes the runs of large values into account; all pages that are left are free. `None`: they stand
    /// where something else does.
    pub fn keep_runs(&mut self, runs: &[(Place, u64)]) -> Option<()> {
        for (place, bytes) in runs {
            let count = bytes.div_ceil(PAGE_BYTES);
            self.map.words(*place, (count * PAGE_BYTES / 8) as usize)?;
            let (segment, page) = self.page_of(*place);
            self.segments[segment].keep_run(page, count as usize)?;
            self.count_run(*place, (count * PAGE_BYTES) as i64);
        }
        for segment in &mut self.segments {
            self.use_.pages += (segment.pages.len() - segment.pages_free) as u64 * PAGE_BYTES;
            // Something may have stood there when the memory was copied.
            let free = segment.pages.iter_mut().filter(|page| page.usage == PageUse::Free);
            free.for_each(|page| page.dirty = true);
        }
        Some(())
    }

    fn take_over_blocks(&mut self, kind: Kind, first: Place, is_block: &mut impl FnMut(Place) -> bool) {
        let ripe = self.epoch.wrapping_sub(QUARANTINE_EPOCHS) << STAMP_SHIFT;
        for slot in 0..kind.slots() {
            let place = first.plus(slot * kind.slot_bytes());
            if kind.is_of_the_hash_index() && is_block(place) {
                self.count_slot(kind, place, 1);
                continue;
            }
            // Of what is not taken over, models for one, the live bit may be set.
            let guardian = self.change(place, 1);
            if Guardian(guardian.words().load(0)).is_live() {
                guardian.store(0, 0);
            }
            self.kinds[kind.index()].free.push_back((place.0 / PLACE_ALIGN) | ripe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, PrivateSegments};

    /// While a segment is emptied there may be one more than the limit allows, and a snapshot is taken then.
    #[test]
    fn books_may_have_a_segment_more_than_the_limit_and_names_go_on_behind_theirs() {
        let config = |memory_bytes: u64, term: u64| ImageConfig {
            image_id: 1,
            hash_seed: 2,
            term,
            incarnation: Incarnation::first_of_term(term),
            epoch_ns: kelix_types::limits::EPOCH_NS,
            epoch_ns_usual: kelix_types::limits::EPOCH_NS,
            memory_bytes,
            segment_bytes_first: 4 << 20,
            segment_bytes_max: 4 << 20,
            keeps_journal: false,
        };
        let source = || Box::new(PrivateSegments::default());
        let mut image = Image::create(config(12 << 20, 5), Span::private(Header::BYTES), source()).unwrap();
        while image.allocate_item(60_000).is_ok() {}
        let given = image.next_incarnation();
        let books = image.books();
        let restored = |memory_bytes: u64, term: u64| {
            Image::restore(config(memory_bytes, term), Span::private(Header::BYTES), source(), &books)
        };
        assert_eq!(restored(4 << 20, 1).err().map(|error| error.kind()), Some(ErrorKind::InvalidArgument));
        for (term, goes_on) in [(1, 6), (6, 6), (9, 9)] {
            let mut image = restored(8 << 20, term).unwrap();
            let next = image.next_incarnation();
            assert!(next.0 > given.0 && next.term() == goes_on, "{next:?}");
        }
    }

    /// Segments that fill their granules have places in a row, but memory of their own.
    #[test]
    fn no_stretch_goes_from_one_segment_to_the_next() {
        let config = ImageConfig {
            image_id: 1,
            hash_seed: 2,
            term: 1,
            incarnation: Incarnation::first_of_term(1),
            epoch_ns: kelix_types::limits::EPOCH_NS,
            epoch_ns_usual: kelix_types::limits::EPOCH_NS,
            memory_bytes: 2 * GRANULE_BYTES,
            segment_bytes_first: GRANULE_BYTES,
            segment_bytes_max: GRANULE_BYTES,
            keeps_journal: false,
        };
        let mut image =
            Image::create(config, Span::private(Header::BYTES), Box::new(PrivateSegments::default()))
                .unwrap();
        for _ in 0..2 {
            image.allocate_run(GRANULE_BYTES).unwrap();
        }
        let stretches = image.stretches();
        assert_eq!(stretches.iter().map(|(_, bytes)| bytes).sum::<u64>(), 2 * GRANULE_BYTES);
        for (place, bytes) in stretches {
            assert!(image.map().words(place, bytes as usize / 8).is_some(), "{place:?}, {bytes}");
        }
    }
}
