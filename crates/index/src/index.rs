//! All indexes of an image, by table.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use kelix_image::{Image, ItemFlags, ItemHeader, Kind, NoRoom, Turn, header_word, load_key};
use kelix_types::{Guardian, KeyHash, Location, Place, TableId, TableKind};

use crate::hash::{DirectoryRoot, HashIndex};
use crate::learned::ModelCounts;
use crate::ordered::{FoundKey, LeafHeader, OrderedCounts, OrderedIndex, location_of};

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
    /// Where the list of their roots stands, and how many bits it has.
    roots: Option<(Place, u32)>,
    /// Ordered tables whose models are to be trained.
    work: Vec<TableId>,
    /// Ordered tables whose leaves stand in no order.
    scattered: BTreeSet<TableId>,
}

/// The indexes of ordered tables as they were at a moment, for whoever goes on with the leaves.
pub struct OrderedTables(Vec<OrderedIndex>);

/// The word of a list of roots that names the top model of an ordered table: place / 16.
pub const fn root_word(table: TableId) -> usize {
    // Word 0 is the guardian. Kinds take turns, so that the list of a store with few tables is short.
    table.which() as usize * (TableKind::ALL.len() - 1) - (TableKind::ALL.len() - 1) + table.kind() as usize
}

impl Index {
    /// Makes empty indexes.
    pub fn create(image: &mut Image) -> Result<Index, NoRoom> {
        let hash = HashIndex::create(image)?;
        Ok(Index {
            hash,
            ordered: Default::default(),
            roots: None,
            work: Vec::new(),
            scattered: BTreeSet::new(),
        })
    }

    /// The index of hash tables that stands in an image. `None`: it makes no sense.
    pub fn restore(image: &Image) -> Option<Index> {
        let hash = HashIndex::restore(image)?;
        Some(Index {
            hash,
            ordered: Default::default(),
            roots: None,
            work: Vec::new(),
            scattered: BTreeSet::new(),
        })
    }

    /// The ordered tables that stand in an image, whose live leaves these are. `None`: they make no sense.
    pub fn find_ordered(image: &Image, leaves: &[Place]) -> Option<OrderedTables> {
        let header = |place: &Place| LeafHeader::load(image.words(*place, Kind::LEAF_WORDS));
        let behind: HashSet<Place> = leaves.iter().filter_map(|place| header(place).next()).collect();
        let firsts = leaves.iter().filter(|place| !behind.contains(place));
        let tables = firsts.map(|first| OrderedIndex::of_chain(image, header(first).table(), *first));
        tables.collect::<Option<Vec<_>>>().map(OrderedTables)
    }

    /// Gives the ordered tables up.
    pub fn into_ordered(self) -> OrderedTables {
        let tables = self.ordered.into_iter().flatten().flatten();
        OrderedTables(tables.map(|index| index.without_models()).collect())
    }

    /// Adds the ordered tables. Their models are trained anew. `None`: they make no sense.
    pub fn restore_ordered(
        &mut self,
        image: &mut Image,
        OrderedTables(tables): OrderedTables,
    ) -> Option<Result<(), NoRoom>> {
        for ordered in tables {
            let table = ordered.table();
            if self.ordered(table).is_some() {
                return None;
            }
            if let Err(no_room) = self.make_root(image, table) {
                return Some(Err(no_room));
            }
            self.add_ordered(table, ordered);
        }
        Some(Ok(()))
    }

    /// Brings the index of a mirror up to what another shard has written: the directory of the hash index is
    /// where the header page says, and leaves came to life and died. `None`: that makes no sense. `Err`: there
    /// is no room for the list of roots now.
    pub fn follow(&mut self, image: &mut Image, leaves: &[Turn]) -> Option<Result<(), NoRoom>> {
        self.hash.follow(image)?;
        let mut of_tables: BTreeMap<TableId, [Vec<Place>; 2]> = BTreeMap::new();
        for turn in leaves {
            let (place, which) = match *turn {
                Turn::Born(place) => (place, 0),
                Turn::Died(place) => (place, 1),
                Turn::Key(..) => continue,
            };
            let (table, _) = OrderedIndex::leaf_at(image, place)?;
            of_tables.entry(table).or_default()[which].push(place);
        }
        for (table, [born, died]) in of_tables {
            if self.ordered(table).is_some() {
                self.change(table, |index| index.follow(image, &born, &died))?;
                continue;
            }
            let lives = |place: &&Place| OrderedIndex::leaf_at(image, **place).is_some_and(|(_, live)| live);
            let mut first = born.iter().filter(lives);
            let first = first.find(|place| OrderedIndex::is_first_leaf(image, **place))?;
            let ordered = OrderedIndex::of_chain(image, table, *first)?;
            if let Err(no_room) = self.make_root(image, table) {
                return Some(Err(no_room));
            }
            self.add_ordered(table, ordered);
        }
        Some(Ok(()))
    }

    /// Keys of an ordered table came or went on the shard that a mirror follows: so many more.
    pub fn count_keys(&mut self, table: TableId, more: i64) {
        if let Some(index) = self.ordered_mut(table) {
            index.count_keys(more);
        }
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

    #[inline]
    fn ordered_mut(&mut self, table: TableId) -> Option<&mut OrderedIndex> {
        self.ordered[table.kind() as usize].get_mut(usize::from(table.which()))?.as_deref_mut()
    }

    /// Makes the index of an ordered table, if there is none.
    fn make_ordered(&mut self, image: &mut Image, table: TableId) -> Result<(), NoRoom> {
        if self.ordered(table).is_some() {
            return Ok(());
        }
        self.make_root(image, table)?;
        let index = OrderedIndex::create(image, table)?;
        self.add_ordered(table, index);
        Ok(())
    }

    fn add_ordered(&mut self, table: TableId, index: OrderedIndex) {
        let (tables, which) = (&mut self.ordered[table.kind() as usize], usize::from(table.which()));
        if tables.len() <= which {
            tables.resize_with(which + 1, || None);
        }
        tables[which] = Some(Box::new(index));
        self.work.push(table);
    }

    /// Sees to it that the list of roots has a word for a table.
    fn make_root(&mut self, image: &mut Image, table: TableId) -> Result<(), NoRoom> {
        let bits = usize::BITS - root_word(table).leading_zeros();
        let bits = bits.max(*Kind::ROOTS_BITS.start());
        if self.roots.is_some_and(|(_, has)| has >= bits) { Ok(()) } else { self.write_roots(image, bits) }
    }

    /// Writes the list of roots to another place.
    fn write_roots(&mut self, image: &mut Image, bits: u32) -> Result<(), NoRoom> {
        let kind = Kind::roots(bits);
        let place = image.allocate(kind)?;
        let mut words = vec![0; 1 << bits];
        if let Some((old, bits)) = self.roots {
            image.words(old, 1 << bits).copy_out(0, &mut words[..1 << bits]);
        }
        image.words(place, words.len()).copy_in(1, &words[1..]);
        image.make_live(place);
        let root = DirectoryRoot { place, depth: bits };
        image.header().words().publish(header_word::ROOTS, root.word());
        if let Some((old, bits)) = self.roots.replace((place, bits)) {
            image.drop_live(old);
            image.release(Kind::roots(bits), old);
        }
        Ok(())
    }

    fn root_of(roots: Option<(Place, u32)>, table: TableId) -> Place {
        let (list, _) = roots.expect("made with the first table");
        list.plus(root_word(table) as u64 * 8)
    }

    /// Adds a key to an ordered table in which it is not, with its value or the location of its item.
    pub fn insert_ordered(
        &mut self,
        image: &mut Image,
        (table, key): (TableId, &[u8]),
        second: u64,
    ) -> Result<(), NoRoom> {
        self.make_ordered(image, table)?;
        self.change(table, |index| index.insert(image, key, second))
    }

    /// Changes the inline value of a key of an ordered table.
    pub fn replace_ordered(
        &mut self,
        image: &mut Image,
        (table, key): (TableId, &[u8]),
        found: FoundKey,
        value: u64,
    ) -> Result<(), NoRoom> {
        self.change(table, |index| index.replace(image, key, found.word, value))
    }

    /// Takes a key of an ordered table away.
    pub fn remove_ordered(&mut self, image: &mut Image, (table, key): (TableId, &[u8]), word: Place) {
        self.change(table, |index| index.remove(image, key, word));
    }

    /// Changes an ordered table that exists, and takes note if its models have to be trained.
    #[inline]
    fn change<R>(&mut self, table: TableId, change: impl FnOnce(&mut OrderedIndex) -> R) -> R {
        let index = self.ordered_mut(table).expect("a table that was made");
        let had_work = index.has_work();
        let result = change(index);
        if !had_work && index.has_work() {
            self.work.push(table);
        }
        result
    }

    /// Trains models of ordered tables, some at a time. `Ok(true)`: there are more to be trained. `Err`:
    /// there is no room for them now.
    pub fn maintain(&mut self, image: &mut Image) -> Result<bool, NoRoom> {
        let mut outcome = Ok(());
        let Index { work, ordered, roots, scattered, .. } = self;
        work.retain(|table| {
            let index = ordered[table.kind() as usize][usize::from(table.which())].as_deref_mut();
            let index = index.expect("a table that was made");
            let maintained = index.maintain(image, Self::root_of(*roots, *table));
            outcome = outcome.and(maintained);
            // Where leaves have changed there is work to do, so no table is looked at for this alone.
            if index.wants_order() {
                scattered.insert(*table);
            }
            index.has_work()
        });
        outcome.map(|()| !self.work.is_empty())
    }

    /// Whether [`Index::lay_out`] has something to do.
    #[inline]
    pub fn wants_order(&self) -> bool {
        !self.scattered.is_empty()
    }

    /// Goes on with laying the leaves of an ordered table out in the order of their keys, a few at a time.
    /// `Ok(false)`: it is done with that table. `Err`: there is no room for leaves now.
    pub fn lay_out(&mut self, image: &mut Image) -> Result<bool, NoRoom> {
        let Some(table) = self.scattered.first().copied() else { return Ok(false) };
        self.change(table, |index| index.lay_out(image))?;
        let goes_on = self.ordered(table).is_some_and(OrderedIndex::is_sweeping);
        if !goes_on {
            self.scattered.remove(&table);
        }
        Ok(goes_on)
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
        Some(Found { location: location_of(found.second), word: found.word })
    }

    /// Points a key that was found at another item.
    #[inline]
    pub fn replace(&self, image: &Image, table: TableId, found: Found, location: Location) {
        if table.kind().is_ordered() {
            image.change(found.word, 1).publish(0, location.word());
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
            self.insert_ordered(image, (table, key), location.word())
        } else {
            self.hash.insert(image, hash, location)
        }
    }

    /// Takes a key that was found away. Its item may be released afterwards.
    pub fn remove(&mut self, image: &mut Image, hash: KeyHash, (table, key): (TableId, &[u8]), found: Found) {
        if table.kind().is_ordered() {
            self.remove_ordered(image, (table, key), found.word);
        } else {
            self.hash.remove(image, hash, found);
        }
    }

    /// Moves a block of an index that stands in a segment being emptied. Dead blocks need nothing.
    pub fn relocate(&mut self, image: &mut Image, kind: Kind, place: Place) -> Result<(), NoRoom> {
        let live = || Guardian(image.words(place, 1).load(0)).is_live();
        if kind == Kind::LEAF && live() {
            let table = LeafHeader::load(image.words(place, Kind::LEAF_WORDS)).table();
            self.change(table, |index| index.relocate(image, place))
        } else if (kind.is_table() || kind.is_top()) && live() {
            let Index { ordered, roots, .. } = self;
            let mut tables = ordered.iter_mut().flatten().flatten();
            tables.try_for_each(|index| index.move_models(image, Self::root_of(*roots, index.table())))
        } else if kind.is_roots() && live() {
            self.write_roots(image, self.roots.expect("one that lives").1)
        } else if kind.is_of_the_hash_index() {
            self.hash.relocate(image, kind, place)
        } else {
            Ok(())
        }
    }

    /// Moves what stands in the slot of an item, if that is the fences of a leaf. `Ok(false)`: it is
    /// something else.
    pub fn relocate_fences(&mut self, image: &mut Image, location: Location) -> Result<bool, NoRoom> {
        let slot = image.slot(location);
        let header = ItemHeader::from_word(slot.load(1)).filter(|header| header.flags == ItemFlags::FENCES);
        let Some(header) = header.filter(|_| Guardian(slot.load(0)).is_live()) else { return Ok(false) };
        let mut low = Vec::new();
        load_key(slot, &mut low);
        self.change(header.table, |index| index.relocate_fences(image, &low)).map(|()| true)
    }

    /// Visits some items of the hash tables, and says where to go on; 0: that was all. See
    /// [`HashIndex::sweep`].
    pub fn sweep(&self, image: &Image, cursor: u64, visit: impl FnMut(Location)) -> u64 {
        self.hash.sweep(image, cursor, visit)
    }

    /// Where the items are that the hash index names, whatever it names.
    pub fn for_each_location(&self, image: &Image, mut visit: impl FnMut(Location)) {
        let mut cursor = 0;
        loop {
            cursor = self.hash.sweep(image, cursor, &mut visit);
            if cursor == 0 {
                return;
            }
        }
    }

    /// Every item that an index names, for checks.
    pub fn for_each(&self, image: &Image, mut visit: impl FnMut(Location)) {
        self.hash.for_each(image, &mut visit);
        self.all_ordered().for_each(|index| index.for_each(image, &mut visit));
    }

    /// Every slot of memory that the indexes use, for checks.
    pub fn for_each_block(&self, image: &Image, mut visit: impl FnMut(Kind, Place)) {
        self.hash.for_each_block(image, &mut visit);
        self.roots.iter().for_each(|(place, bits)| visit(Kind::roots(*bits), *place));
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
    pub fn ordered_counts(&self) -> impl Iterator<Item = (TableId, OrderedCounts, ModelCounts)> {
        self.all_ordered().map(|index| (index.table(), index.counts(), index.model_counts()))
    }
}
