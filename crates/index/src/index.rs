//! All indexes of an image, by table.

use kelix_image::words::Words;
use kelix_image::{Image, ItemFlags, ItemHeader, Kind, NoRoom};
use kelix_types::{Guardian, KeyHash, Location, Place, TableId, TableKind};

use crate::hash::HashIndex;
use crate::ordered::{LeafHeader, OrderedCounts, OrderedIndex};

/// A key that has an item.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Where the item stands.
    pub location: Location,
    /// The word that says so.
    pub(crate) word: Place,
}

/// The indexes of one image: one for all hash tables, and one for each ordered table.
pub struct Index {
    hash: HashIndex,
    /// Of each kind that is ordered, by number.
    ordered: [Vec<Option<Box<OrderedIndex>>>; TableKind::ALL.len()],
}

impl Index {
    /// Makes empty indexes.
    pub fn create(image: &mut Image) -> Result<Index, NoRoom> {
        Ok(Index { hash: HashIndex::create(image)?, ordered: Default::default() })
    }

    /// The hash of a key under the image's seed.
    #[inline]
    pub fn hash(&self, table: TableId, key: &[u8]) -> KeyHash {
        self.hash.hash(table, key)
    }

    /// The index of an ordered table; none while it never had a key.
    #[inline]
    pub fn ordered(&self, table: TableId) -> Option<&OrderedIndex> {
        self.ordered[table.kind() as usize].get(usize::from(table.which()))?.as_deref()
    }

    /// The same, to change it.
    #[inline]
    pub fn ordered_mut(&mut self, table: TableId) -> Option<&mut OrderedIndex> {
        self.ordered[table.kind() as usize].get_mut(usize::from(table.which()))?.as_deref_mut()
    }

    /// The same, made where there is none.
    pub fn ordered_or_new(&mut self, image: &mut Image, table: TableId) -> Result<&mut OrderedIndex, NoRoom> {
        let (tables, which) = (&mut self.ordered[table.kind() as usize], usize::from(table.which()));
        if tables.len() <= which {
            tables.resize_with(which + 1, || None);
        }
        if tables[which].is_none() {
            tables[which] = Some(Box::new(OrderedIndex::create(image, table)?));
        }
        Ok(tables[which].as_deref_mut().expect("just made"))
    }

    /// Asks the processor for what leads to a key, and says where that stands.
    #[inline]
    pub fn prefetch(&self, image: &Image, hash: KeyHash, table: TableId, key: &[u8]) -> Place {
        if !table.kind().is_ordered() {
            return self.hash.prefetch_bucket(image, hash);
        }
        let index = self.ordered(table).filter(|_| table.kind().takes_key(key));
        index.map_or(Place(0), |index| index.prefetch(image, key))
    }

    /// Goes on from there, to the item.
    #[inline]
    pub fn prefetch_item(&self, image: &Image, place: Place, hash: KeyHash, table: TableId) {
        if !table.kind().is_ordered() {
            HashIndex::prefetch_item(image, place, hash);
        }
    }

    /// Finds the item of a key. None, too, where keys have no items or this is no key.
    #[inline]
    pub fn find(&self, image: &Image, hash: KeyHash, table: TableId, key: &[u8]) -> Option<Found> {
        if !table.kind().is_ordered() {
            return self.hash.find(image, hash, table, key);
        }
        if !table.kind().has_items() || !table.kind().takes_key(key) {
            return None;
        }
        let found = self.ordered(table)?.find(image, key)?;
        let location = Location::from_word(found.second).expect("the location of an item");
        Some(Found { location, word: found.word })
    }

    /// Points a key that was found at another item.
    #[inline]
    pub fn replace(&self, image: &Image, table: TableId, found: Found, location: Location) {
        if table.kind().is_ordered() {
            image.words(found.word, 1).publish(0, location.word());
        } else {
            self.hash.replace(image, found, location);
        }
    }

    /// Adds a key that is not there.
    pub fn insert(
        &mut self,
        image: &mut Image,
        hash: KeyHash,
        (table, key): (TableId, &[u8]),
        location: Location,
    ) -> Result<(), NoRoom> {
        if table.kind().is_ordered() {
            self.ordered_or_new(image, table)?.insert(image, key, location.word())
        } else {
            self.hash.insert(image, hash, location)
        }
    }

    /// Takes a key that was found away. Its item may be released afterwards.
    pub fn remove(&mut self, image: &mut Image, hash: KeyHash, (table, key): (TableId, &[u8]), found: Found) {
        match self.ordered_mut(table) {
            Some(index) => index.remove(image, key, found.word),
            None => self.hash.remove(image, hash, found),
        }
    }

    /// Moves a block of an index that stands in a segment being emptied. Dead blocks need nothing.
    pub fn relocate(&mut self, image: &mut Image, kind: Kind, place: Place) -> Result<(), NoRoom> {
        if kind != Kind::LEAF {
            return self.hash.relocate(image, kind, place);
        }
        let leaf = LeafHeader::load(image.words(place, Kind::LEAF_WORDS));
        match self.ordered_mut(leaf.table()) {
            Some(index) if leaf.guardian().is_live() => index.relocate(image, place),
            _ => Ok(()),
        }
    }

    /// Moves what stands in the slot of an item, if that is the fences of a leaf. `Ok(false)`: it is something else.
    pub fn relocate_fences(&mut self, image: &mut Image, location: Location) -> Result<bool, NoRoom> {
        let slot: Words<'_> = image.slot(location);
        let header = ItemHeader::from_word(slot.load(1)).filter(|header| header.flags == ItemFlags::FENCES);
        let Some(header) = header.filter(|_| Guardian(slot.load(0)).is_live()) else { return Ok(false) };
        let mut low = vec![0; header.key_bytes];
        assert!(slot.copy_bytes_out(header.key_start(), &mut low), "an item of this image");
        let index = self.ordered_mut(header.table).expect("the table of a leaf");
        index.relocate_fences(image, &low).map(|()| true)
    }

    /// Every item that an index names, for checks.
    pub fn for_each(&self, image: &Image, mut visit: impl FnMut(Location)) {
        self.hash.for_each(image, &mut visit);
        self.all_ordered().for_each(|index| index.for_each(image, &mut visit));
    }

    /// Every slot of memory that the indexes use, for checks.
    pub fn for_each_block(&self, image: &Image, mut visit: impl FnMut(Kind, Place)) {
        self.hash.for_each_block(image, &mut visit);
        self.all_ordered().for_each(|index| index.for_each_block(image, &mut visit));
    }

    /// Whether the chains of leaves agree with what is known of them. `Err`: what is wrong.
    pub fn check(&self, image: &Image) -> Result<(), String> {
        self.all_ordered().try_for_each(|index| index.check(image))
    }

    fn all_ordered(&self) -> impl Iterator<Item = &OrderedIndex> {
        self.ordered.iter().flatten().flatten().map(|index| &**index)
    }

    /// Subtables split and merged so far.
    pub fn splits_and_merges(&self) -> (u64, u64) {
        self.hash.splits_and_merges()
    }

    /// What there is of each ordered table.
    pub fn ordered_counts(&self) -> impl Iterator<Item = (TableId, OrderedCounts)> {
        self.all_ordered().map(|index| (index.table(), index.counts()))
    }
}
