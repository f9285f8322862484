//! The index of an ordered table on a mirror: leaves come and go by what another shard has written, and the
//! index is brought up to them.

use kelix_image::{Image, Kind, load_key};
use kelix_types::{Guardian, Place, TableId};

use super::{Chain, Leaves, OrderedIndex, leaf_words};
use crate::learned::Separator;
use crate::ordered::leaf::LeafHeader;

/// The first key that a leaf may hold: a number, or bytes.
enum Low {
    Number(u64),
    String(Box<[u8]>),
}

impl Low {
    fn of(image: &Image, place: Place) -> Option<Low> {
        let header = LeafHeader::load(image.map().words(place, Kind::LEAF_WORDS)?);
        if header.table().kind().has_numbers() {
            return Some(Low::Number(header.first_number()));
        }
        let (fences, mut low) = (header.fences()?, Vec::new());
        load_key(image.map().words(fences.place(), fences.class().words())?, &mut low);
        Some(Low::String(low.into()))
    }

    /// Whether it is that of the first leaf of a table.
    fn is_first(&self) -> bool {
        match self {
            Low::Number(number) => *number == 0,
            Low::String(string) => string.is_empty(),
        }
    }
}

impl<S: Separator> Chain<S> {
    /// A leaf has come to life that holds keys from `low` on.
    fn add(&mut self, low: S, place: Place) {
        let at = self.blocks.find(&low);
        self.note(at, 1);
        if *self.blocks.separator(at) == low {
            self.blocks.set_place(at, place);
        } else {
            self.blocks.insert_after(at, low, place);
        }
    }

    /// A leaf has died that held keys from `low` on. If no other has come in its place, the one before it has
    /// its keys.
    fn take(&mut self, low: &S, place: Place) {
        let at = self.blocks.find(low);
        if self.blocks.place(at) != place || at == self.blocks.first() {
            return;
        }
        let before = self.blocks.previous(at).expect("not the first");
        self.note(before, 2);
        self.blocks.remove(at);
    }
}

impl OrderedIndex {
    /// The table of the leaf at a place, and whether the leaf lives.
    pub fn leaf_at(image: &Image, place: Place) -> Option<(TableId, bool)> {
        let words = image.map().words(place, Kind::LEAF_WORDS)?;
        Some((LeafHeader::load(words).table(), Guardian(words.load(0)).is_live()))
    }

    /// Whether the leaf at a place is the first one of its table.
    pub(crate) fn is_first_leaf(image: &Image, place: Place) -> bool {
        Low::of(image, place).is_some_and(|low| low.is_first())
    }

    /// Leaves of this table came to life and died, in this order: those that came first, since most come in
    /// the place of others. `None`: they make no sense.
    pub fn follow(&mut self, image: &Image, born: &[Place], died: &[Place]) -> Option<()> {
        // One that has died since it came is among the others, too.
        let lives = |place: &&Place| Guardian(leaf_words(image, **place).load(0)).is_live();
        for place in born.iter().filter(lives) {
            match (&mut self.leaves, Low::of(image, *place)?) {
                (Leaves::Numbers(chain), Low::Number(low)) => chain.add(low, *place),
                (Leaves::Strings(chain), Low::String(low)) => chain.add(low, *place),
                _ => return None,
            }
        }
        for place in died {
            match (&mut self.leaves, Low::of(image, *place)?) {
                (Leaves::Numbers(chain), Low::Number(low)) => chain.take(&low, *place),
                (Leaves::Strings(chain), Low::String(low)) => chain.take(&low, *place),
                _ => return None,
            }
        }
        self.counts.leaves = blocks!(&self.leaves, blocks => blocks.len()) as u64;
        Some(())
    }

    /// Keys came or went of which others tell: so many more.
    pub fn count_keys(&mut self, more: i64) {
        self.counts.keys = self.counts.keys.wrapping_add_signed(more);
    }

    /// How many keys the leaf at a place has.
    pub fn keys_of_leaf(image: &Image, place: Place) -> i64 {
        let leaf = leaf_words(image, place);
        let header = LeafHeader::load(leaf);
        let filled = header.filled().trailing_ones() as usize;
        let slots = (0..filled).map(|slot| crate::ordered::leaf::load_slot(leaf, slot));
        slots.filter(|slot| header.entry(*slot).is_some()).count() as i64
    }
}
