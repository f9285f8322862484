//! The memory of an image somewhere else: made of what its journal notes, and of nothing else.
//!
//! A replica knows of each segment what its pages are, and of each slot that may hold an item or a leaf
//! whether that is live: a bit a place, which changes with the slot's first word. Where it does, the item is
//! counted ([`Stock`]): its header is written before it comes to life, and stays until it has died. So
//! whoever goes on with the image ([`Image::restore`](crate::Image::restore)) looks at no item.
//!
//! Memory that was copied is as it was at no moment until the notes beside it are applied, and what was
//! counted of it would stay wrong: counting begins with a look at all slots ([`Replica::take_stock`]), or
//! with an image that has none yet.
//!
//! Notes are applied in their order, which is that of the writer's stores, and each single word is published.
//! So whoever reads a replica while notes are applied sees what readers of the image itself may see
//! (docs/read-rule.md, "Mirrors"). Words that are copied with [`Replica::copy`] are in no order: nobody reads
//! a replica before all that was copied is whole.

use std::collections::BTreeMap;

use kelix_types::limits::{GRANULE_BYTES, PAGE_BYTES, PLACE_ALIGN};
use kelix_types::{Error, ErrorKind, Guardian, Place, Result};

use crate::changes::{Note, Notes, event};
use crate::header::header_word;
use crate::item::ItemHeader;
use crate::map::{MemoryMap, Span};
use crate::pages::Kind;
use crate::segments::SegmentSource;
use crate::stock::{Live, Soundness, Stock, WORDS_A_PAGE};
use crate::writer::{Books, SegmentBooks, Slab};

/// The memory of an image, elsewhere.
pub struct Replica {
    map: MemoryMap,
    source: Box<dyn SegmentSource>,
    /// The image's limit.
    memory_bytes: u64,
    /// Those that are gone are none.
    segments: Vec<Option<Segment>>,
    /// Which segment each granule is of; `u32::MAX`: none.
    granules: Vec<u32>,
    directory: u64,
    noted: Noted,
}

/// Notes of objects that come to life and die.
#[derive(Default)]
struct Noted {
    /// The items that live, where all there is has been looked at.
    stock: Option<Stock>,
    soundness: Soundness,
    /// What became of leaves since it was last taken, if somebody wants to know.
    turns: Option<Vec<Turn>>,
}

/// What became of a leaf, for whoever keeps an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It came to life.
    Born(Place),
    /// It died. Its words stay as they were for two epochs.
    Died(Place),
    /// A key of the live leaf at this place came or went.
    Key(Place, bool),
}

impl Noted {
    /// Takes note of an object that came to life or died, by the first words of its slot.
    #[inline]
    fn turn(&mut self, kind: Kind, place: Place, guardian: Guardian, second: u64) {
        if let Some(class) = kind.class() {
            let Some(stock) = &mut self.stock else { return };
            stock.turn(place, ItemHeader::of_word(second), guardian.is_live());
            if guardian.is_live() {
                self.soundness.look(class, guardian, second);
            }
        } else if let Some(turns) = &mut self.turns {
            turns.push(if guardian.is_live() { Turn::Born(place) } else { Turn::Died(place) });
        }
    }
}

struct Segment {
    first_granule: usize,
    span: Span,
    /// What each page is.
    pages: Vec<Option<Page>>,
    /// A bit for each place that may be the first of a slot: something live stands there.
    live: Vec<u64>,
}

/// A page of a slab. What follows from the kind is asked for with each note, so it stands here.
#[derive(Clone, Copy)]
struct Page {
    kind: Kind,
    /// The slab's first page.
    head: u32,
    slab_bytes: u32,
    slot_bytes: u32,
    /// Slots whose first word is a guardian.
    guarded: u32,
}

impl Page {
    fn new(kind: Kind, head: u32) -> Page {
        let guarded = if kind.has_guardian() { kind.slots() as u32 } else { 0 };
        let slab_bytes = (kind.slab_pages() * PAGE_BYTES) as u32;
        Page { kind, head, slab_bytes, slot_bytes: kind.slot_bytes() as u32, guarded }
    }
}

impl Segment {
    fn new(first_granule: usize, span: Span) -> Segment {
        let pages = (span.bytes() / PAGE_BYTES) as usize;
        let bits = (span.bytes() / PLACE_ALIGN) as usize;
        Segment { first_granule, span, pages: vec![None; pages], live: vec![0; bits.div_ceil(64)] }
    }

    /// Says of each slot whose first word is among these bytes of the segment whether something live stands
    /// there, and notes those where that is new. Slabs are so small that numbers of 32 bits do, which are
    /// divided twice as fast.
    #[inline]
    fn note_live(&mut self, first: u64, bytes: u64, noted: &mut Noted) {
        let (mut at, end) = (first, first + bytes);
        while at < end {
            let Some(page) = self.pages[(at / PAGE_BYTES) as usize] else {
                at = (at / PAGE_BYTES + 1) * PAGE_BYTES;
                continue;
            };
            let Page { head, slab_bytes, slot_bytes, guarded, kind } = page;
            let slab = u64::from(head) * PAGE_BYTES;
            let slot = if guarded > 0 { ((at - slab) as u32).div_ceil(slot_bytes) } else { 0 };
            if slot >= guarded {
                // Behind the last slot nothing stands, and the next slab may be of another kind.
                at = slab + u64::from(slab_bytes);
                continue;
            }
            let place = slab + u64::from(slot * slot_bytes);
            if place >= end {
                return;
            }
            let guardian = Guardian(self.span.words().load((place / 8) as usize));
            let (word, bit) = ((place / PLACE_ALIGN / 64) as usize, place / PLACE_ALIGN % 64);
            let before = self.live[word] >> bit & 1 != 0;
            if before != guardian.is_live() {
                self.live[word] ^= 1 << bit;
                let second = self.span.words().load((place / 8) as usize + 1);
                let place = Place(self.first_granule as u64 * GRANULE_BYTES + place);
                noted.turn(kind, place, guardian, second);
            }
            at = place + u64::from(slot_bytes);
        }
    }

    /// The live leaf whose second word of a slot stands at so many bytes of the segment.
    fn leaf_of(&self, at: u64) -> Option<u64> {
        let Page { kind, head, slot_bytes, .. } = self.pages[(at / PAGE_BYTES) as usize]?;
        if kind != Kind::LEAF {
            return None;
        }
        let slab = u64::from(head) * PAGE_BYTES;
        let (leaf, word) = ((at - slab) / u64::from(slot_bytes), (at - slab) % u64::from(slot_bytes) / 8);
        let place = slab + leaf * u64::from(slot_bytes);
        let is_live = self.live[(place / PLACE_ALIGN / 64) as usize] >> (place / PLACE_ALIGN % 64) & 1 != 0;
        (is_live && word >= Kind::LEAF_SLOTS_START as u64 && word % 2 == 1).then_some(place)
    }
}

/// How many notes ahead memory is asked for: most are far from the one before.
const NOTES_AHEAD: usize = 16;

impl Replica {
    /// A replica of an image of at most so much memory, which has no segments yet.
    pub fn new(source: Box<dyn SegmentSource>, memory_bytes: u64) -> Replica {
        let (map, segments, granules) = (MemoryMap::default(), Vec::new(), Vec::new());
        let noted = Noted { stock: Some(Stock::default()), ..Noted::default() };
        Replica { map, source, memory_bytes, segments, granules, directory: 0, noted }
    }

    /// A replica of an image with these books, whose memory is zero yet: [`Replica::copy`] fills it, or
    /// somebody else does before [`Replica::take_stock`].
    pub fn of_books(source: Box<dyn SegmentSource>, memory_bytes: u64, books: &Books) -> Result<Replica> {
        let mut replica = Replica::new(source, memory_bytes);
        replica.noted.stock = None;
        replica.directory = books.directory;
        for segment in &books.segments {
            replica.add_segment(segment.first_granule as usize, segment.bytes)?;
            for slab in segment.slabs.iter().filter_map(|slab| Slab::of_word(*slab)) {
                let first = Place(segment.first_granule * GRANULE_BYTES + slab.page * PAGE_BYTES);
                replica.add_slab(first, slab.kind).ok_or_else(|| senseless("books"))?;
            }
        }
        Ok(replica)
    }

    /// Takes new segments from this source from now on.
    pub fn set_source(&mut self, source: Box<dyn SegmentSource>) {
        self.source = source;
    }

    /// Its memory.
    pub fn map(&self) -> &MemoryMap {
        &self.map
    }

    /// Stores words that were copied from the image. What is in no segment known here is left out: it is
    /// gone by the end of the notes.
    pub fn copy(&mut self, place: Place, words: &[u64]) {
        if let Some(into) = self.map.words(place, words.len()) {
            into.copy_in(0, words);
            self.note_live(place, words.len());
        }
    }

    /// Publishes one word: most notes are of one, and readers rely on the order of just these.
    #[inline]
    fn publish(&mut self, place: Place, word: u64) {
        let Some(into) = self.map.words(place, 1) else { return };
        let before = into.load(0);
        into.publish(0, word);
        if self.noted.turns.is_some() {
            self.note_key(place, before, word);
        }
        self.note_live(place, 1);
    }

    /// Takes note of a key that comes or goes in a leaf, as the second word of its slot says.
    fn note_key(&mut self, place: Place, before: u64, word: u64) {
        let Some((segment, at)) = self.segment_of(place) else { return };
        let Some(leaf) = segment.leaf_of(at) else { return };
        let empty = segment.span.words().load(leaf as usize / 8 + Kind::LEAF_EMPTY);
        let leaf = Place(segment.first_granule as u64 * GRANULE_BYTES + leaf);
        if let Some(turns) = self.noted.turns.as_mut().filter(|_| (before == empty) != (word == empty)) {
            turns.push(Turn::Key(leaf, word != empty));
        }
    }

    /// From now on takes note of what becomes of leaves ([`Replica::take_turns`]).
    pub fn watch(&mut self) {
        self.noted.turns = Some(Vec::new());
    }

    /// What became of leaves since this was last called, into memory that is used again.
    pub fn take_turns(&mut self, turns: &mut Vec<Turn>) {
        turns.clear();
        if let Some(noted) = &mut self.noted.turns {
            std::mem::swap(noted, turns);
        }
    }

    /// Looks at all slots, where that was not done and memory is as it was at one moment. An error: an item
    /// makes no sense, or is newer than the last incarnation.
    pub fn take_stock(&mut self, last_incarnation: u64) -> Result<()> {
        if self.noted.stock.is_none() {
            self.noted.stock = Some(Stock::default());
            for segment in self.segments.iter_mut().flatten() {
                segment.live.fill(0);
                segment.note_live(0, segment.span.bytes(), &mut self.noted);
            }
        }
        let Soundness { broken, newest } = self.noted.soundness;
        if broken || newest > last_incarnation { Err(senseless("an item")) } else { Ok(()) }
    }

    /// The items that live. Before all there is was looked at: none.
    pub fn stock(&self) -> Option<&Stock> {
        self.noted.stock.as_ref()
    }

    /// Where leaves live.
    pub fn leaves(&self) -> Vec<Place> {
        let mut leaves = Vec::new();
        for segment in self.segments.iter().flatten() {
            let first = segment.first_granule as u64 * GRANULE_BYTES;
            let pages = segment.pages.iter().zip(segment.live.chunks_exact(WORDS_A_PAGE as usize));
            let pages =
                pages.enumerate().filter(|(_, (page, _))| page.is_some_and(|of| of.kind == Kind::LEAF));
            for (page, (_, words)) in pages {
                for (at, word) in words.iter().enumerate() {
                    let bits = (0..64).filter(|bit| word >> bit & 1 != 0);
                    let place = |bit| (at as u64 * 64 + bit) * PLACE_ALIGN + page as u64 * PAGE_BYTES;
                    leaves.extend(bits.map(|bit| Place(first + place(bit))));
                }
            }
        }
        leaves
    }

    /// The segments there are: the first granule and the memory of each.
    pub fn segments(&self) -> impl Iterator<Item = (usize, &Span)> {
        self.segments.iter().flatten().map(|segment| (segment.first_granule, &segment.span))
    }

    /// The word that leads to the directory of the hash index.
    pub fn directory(&self) -> u64 {
        self.directory
    }

    /// Does again what notes tell of memory; `other` is told of all events, when what they tell of memory is
    /// done. What was in segments that are gone is left out. An error: the notes make no sense, or there is
    /// no memory.
    pub fn apply(
        &mut self,
        notes: &[u64],
        mut other: impl FnMut(&mut Replica, u16, &[u64]) -> Result<()>,
    ) -> Result<()> {
        let mut notes = Notes::new(notes);
        let mut ahead = Notes::new(notes.rest());
        (0..NOTES_AHEAD).for_each(|_| self.prefetch(ahead.next()));
        for note in notes.by_ref() {
            self.prefetch(ahead.next());
            match note {
                Note::Words(place, &[word]) => self.publish(place, word),
                Note::Words(place, words) => self.copy(place, words),
                Note::Zeros(place, count) => {
                    if let Some(into) = self.map.words(place, count) {
                        into.clear(0, count);
                        self.note_live(place, count);
                    }
                }
                Note::Event(kind, words) => {
                    self.heed(kind, words)?;
                    other(self, kind, words)?;
                }
            }
        }
        if notes.rest().is_empty() { Ok(()) } else { Err(senseless("a note that is cut off")) }
    }

    /// Does what an event says of memory.
    fn heed(&mut self, kind: u16, words: &[u64]) -> Result<()> {
        match (kind, words) {
            (event::SEGMENT, &[first, bytes]) => self.add_segment(first as usize, bytes)?,
            (event::RETIRED, &[first]) => {
                self.retire(first as usize).ok_or_else(|| senseless("a retired segment"))?;
            }
            (event::SLAB, &[place, kind]) => {
                let kind = Kind::of_number(kind).ok_or_else(|| senseless("the kind of a slab"))?;
                self.add_slab(Place(place), kind).ok_or_else(|| senseless("a slab"))?;
                self.note_live(Place(place), (kind.slab_pages() * PAGE_BYTES / 8) as usize);
            }
            (event::HEADER, &[word, value]) if word == header_word::DIRECTORY as u64 => {
                self.directory = value;
            }
            (event::HEADER, &[_, _]) => {}
            (event::SEGMENT | event::RETIRED | event::SLAB | event::HEADER, _) => {
                return Err(senseless("an event"));
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn prefetch(&self, note: Option<Note<'_>>) {
        let (Some(Note::Words(place, _)) | Some(Note::Zeros(place, _))) = note else { return };
        if let Some(words) = self.map.words(place, 1) {
            words.prefetch_write(1);
        }
    }

    fn retire(&mut self, first: usize) -> Option<()> {
        let index = *self.granules.get(first)? as usize;
        let segment = self.segments.get_mut(index)?.take_if(|segment| segment.first_granule == first)?;
        let count = segment.span.bytes().div_ceil(GRANULE_BYTES) as usize;
        self.granules[first..first + count].fill(u32::MAX);
        self.map.remove(first);
        self.source.retired(first);
        Some(())
    }

    fn add_segment(&mut self, first: usize, bytes: u64) -> Result<()> {
        let sound = first >= 1 && bytes > 0 && bytes % PAGE_BYTES == 0 && self.map.has_room(first, bytes);
        // While a segment is emptied there may be one more than the limit allows.
        let before: u64 = self.segments.iter().flatten().map(|segment| segment.span.bytes()).sum();
        if !sound {
            return Err(senseless("a segment"));
        }
        if bytes > self.memory_bytes || before > self.memory_bytes {
            let most = self.memory_bytes;
            let context = format!(
                "a shard has taken {before} bytes of memory and {bytes} more, and may have {most} here: more \
                 --memory is needed"
            );
            return Err(Error::new(ErrorKind::Damaged, "follow", context));
        }
        let span = self.source.create(first, bytes)?;
        self.map.add(first, span.clone());
        let (index, end) = (self.segments.len() as u32, first + bytes.div_ceil(GRANULE_BYTES) as usize);
        self.segments.push(Some(Segment::new(first, span)));
        if self.granules.len() < end {
            self.granules.resize(end, u32::MAX);
        }
        self.granules[first..end].fill(index);
        Ok(())
    }

    fn add_slab(&mut self, first: Place, kind: Kind) -> Option<()> {
        let (segment, at) = self.segment_of(first)?;
        let (head, pages) = (at / PAGE_BYTES, kind.slab_pages() as usize);
        let of_slab = segment.pages.get_mut(head as usize..head as usize + pages)?;
        if at % PAGE_BYTES != 0 || of_slab.iter().any(Option::is_some) {
            return None;
        }
        of_slab.fill(Some(Page::new(kind, head as u32)));
        Some(())
    }

    /// The segment of a place, and how many bytes into it that is.
    fn segment_of(&mut self, place: Place) -> Option<(&mut Segment, u64)> {
        let index = *self.granules.get(place.granule())? as usize;
        let segment = self.segments.get_mut(index)?.as_mut()?;
        let at = place.0 - segment.first_granule as u64 * GRANULE_BYTES;
        (at < segment.span.bytes()).then_some((segment, at))
    }

    #[inline]
    fn note_live(&mut self, place: Place, words: usize) {
        let Some(index) = self.granules.get(place.granule()) else { return };
        let Some(Some(segment)) = self.segments.get_mut(*index as usize) else { return };
        let at = place.0 - segment.first_granule as u64 * GRANULE_BYTES;
        if at < segment.span.bytes() {
            segment.note_live(at, words as u64 * 8, &mut self.noted);
        }
    }

    /// Looks at all slots, whether those live that are said to, and are counted: for tests. `Err`: what is
    /// not so.
    pub fn check_live(&self) -> std::result::Result<(), String> {
        let mut stock = Stock::default();
        for segment in self.segments.iter().flatten() {
            let words = segment.span.words();
            let mut live = vec![0u64; segment.live.len()];
            for (at, page) in segment.pages.iter().enumerate() {
                let Some(Page { kind, head, .. }) = *page else { continue };
                if head as usize != at || !kind.has_guardian() {
                    continue;
                }
                for slot in 0..kind.slots() {
                    let place = at as u64 * PAGE_BYTES + slot * kind.slot_bytes();
                    if !Guardian(words.load((place / 8) as usize)).is_live() {
                        continue;
                    }
                    live[(place / PLACE_ALIGN / 64) as usize] |= 1 << (place / PLACE_ALIGN % 64);
                    if kind.is_item() {
                        let header = ItemHeader::of_word(words.load((place / 8) as usize + 1));
                        let first = Place(segment.first_granule as u64 * GRANULE_BYTES);
                        stock.turn(first.plus(place), header, true);
                    }
                }
            }
            if live != segment.live {
                let first = segment.first_granule;
                return Err(format!("what lives in the segment at granule {first} is not what is said to"));
            }
        }
        match &self.noted.stock {
            Some(counted) if !counted.agrees(&stock) => {
                Err(format!("{stock:?} is there, and {counted:?} is counted"))
            }
            _ => Ok(()),
        }
    }

    /// The books of an image that goes on with this memory. All slots of a slab count as handed out, since
    /// whether one ever was makes no difference: where nothing was, nothing lives.
    pub fn books(&self, last_incarnation: u64) -> Books {
        let segments = self.segments.iter().flatten().map(|segment| {
            let heads = segment.pages.iter().enumerate();
            let slabs = heads.filter_map(|(at, page)| {
                let Page { kind, head, .. } = (*page)?;
                (head as usize == at).then(|| Slab { kind, carved: kind.slots(), page: at as u64 }.word())
            });
            let slabs = slabs.collect();
            SegmentBooks { first_granule: segment.first_granule as u64, bytes: segment.span.bytes(), slabs }
        });
        let mut segments: Vec<SegmentBooks> = segments.collect();
        segments.sort_by_key(|segment| segment.first_granule);
        Books { incarnation: last_incarnation, directory: self.directory, segments }
    }

    /// What an image that goes on with this memory needs beside the books: what lives, what items there are,
    /// and where to have its segments from, which are those that are here, and others from where these came
    /// from.
    pub fn into_parts(self) -> (Live, Stock, Box<dyn SegmentSource>) {
        let (mut live, mut here) = (BTreeMap::new(), BTreeMap::new());
        for Segment { first_granule, span, live: bits, .. } in self.segments.into_iter().flatten() {
            live.insert(first_granule, bits);
            here.insert(first_granule, span);
        }
        let stock = self.noted.stock.unwrap_or_default();
        (Live(live), stock, Box::new(Adopted { here, source: self.source }))
    }
}

/// Segments that are there already.
struct Adopted {
    here: BTreeMap<usize, Span>,
    source: Box<dyn SegmentSource>,
}

impl SegmentSource for Adopted {
    fn create(&mut self, first: usize, bytes: u64) -> Result<Span> {
        match self.here.remove(&first) {
            Some(span) => Ok(span),
            None => self.source.create(first, bytes),
        }
    }

    fn retired(&mut self, first: usize) {
        self.source.retired(first);
    }
}

fn senseless(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, "apply changes", format!("{what} makes no sense"))
}
