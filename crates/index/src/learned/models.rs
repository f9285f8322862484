//! The writer's side: training, and publishing what was trained. Runs on the shard thread.
//!
//! The shard trains from its own index of leaves, which has every separator in order: that reads no leaf, and
//! takes less time than it would take to hand the work to another thread (docs/design/0006-ordered-tables.md,
//! "Where models are trained").
//!
//! When leaves change, the sub-models that have them are noted, and trained anew at the end of the shard's
//! step, some at a time. Sub-models are added at the end when the last one has grown. All of them are made
//! anew, a few in each step, when there are twice as many leaves as there were then, or when one has more
//! leaves than a table can have.

use std::collections::BTreeSet;

use kelix_image::words::{Words, bytes_of_mut};
use kelix_image::{Image, Kind, NoRoom};
use kelix_types::limits::PLACE_ALIGN;
use kelix_types::{Place, TableId, mark};

use super::sub_model::{self, LEAVES_MAX, Line, TABLE_HEADER_WORDS};
use super::top::{
    COUNT_WORD, PREFIX_MAX, Shape, SubModel, TABLE_WORDS_MAX, TOP_ENTRY_WORDS, TOP_HEADER_WORDS, string_word,
};
use crate::ordered::blocks::{Blocks, Position};
use crate::ordered::{common_prefix, key_word};

/// Leaves of a new sub-model.
const LEAVES_WANTED: usize = 64;
/// Ranks that a line may leave open before the sub-model is made smaller: one cache line of entries.
const ERROR_WANTED: usize = 8;
/// Sub-models are not made smaller than this for the sake of their errors.
const LEAVES_MIN: usize = 8;
/// All is made anew when sub-models do not tell more leaves than this apart, and more than one of so many.
const BLURRED_MIN: usize = 2;
const BLURRED_SHARE: usize = 16;
/// Bits of a position that tell no leaves apart yet in a new sub-model: they are for leaves to come.
const SPARE_BITS: u32 = 2;
/// Sub-models trained in one step.
const TRAINED_A_STEP: usize = 16;

/// What separates leaves: a number or a string.
pub(crate) trait Separator: Ord + Clone {
    /// Whether it is a number.
    const NUMBERS: bool;
    /// Its key word after a prefix.
    fn word(&self, prefix_bytes: usize) -> u64;
    /// The bytes that it shares with another; none if it is a number.
    fn shared(&self, other: &Self) -> usize;
    /// Its bytes; none if it is a number.
    fn bytes(&self) -> &[u8];
    /// Draws the leaves between some of these and `end`.
    fn sketch(separators: &[&Self], end: Option<&Self>, from_nothing: bool) -> Sketch;
}

impl Separator for u64 {
    const NUMBERS: bool = true;
    fn word(&self, _: usize) -> u64 {
        *self
    }
    fn shared(&self, _: &u64) -> usize {
        0
    }
    fn bytes(&self) -> &[u8] {
        &[]
    }
    fn sketch(separators: &[&u64], end: Option<&u64>, from_nothing: bool) -> Sketch {
        Sketch::of_numbers(separators, end.copied(), from_nothing)
    }
}

impl Separator for Box<[u8]> {
    const NUMBERS: bool = false;
    fn word(&self, prefix_bytes: usize) -> u64 {
        key_word(self, prefix_bytes)
    }
    fn shared(&self, other: &Box<[u8]>) -> usize {
        common_prefix(self, other)
    }
    fn bytes(&self) -> &[u8] {
        self
    }
    fn sketch(separators: &[&Box<[u8]>], _: Option<&Box<[u8]>>, _: bool) -> Sketch {
        let strings: Vec<&[u8]> = separators.iter().map(|string| &string[..]).collect();
        Sketch::of_strings(&strings)
    }
}

/// A sub-model that has been trained.
struct Trained<S> {
    first: S,
    /// As its entry names it, but for the head.
    model: SubModel,
    /// Leaves that it does not tell apart.
    blurred: usize,
}

/// The top model in force.
#[derive(Clone, Copy)]
struct InForce {
    place: Place,
    kind: Kind,
    shape: Shape,
    /// Words of strings so far, and how many there is room for.
    strings: usize,
    strings_room: usize,
}

/// A top model that is being made.
struct Growing<S> {
    trained: Vec<Trained<S>>,
    /// Where the next sub-model begins.
    next: Option<S>,
    /// Leaves that changed in what has been trained already: their first keys, and the first ones behind
    /// them.
    touched: Vec<(S, Option<S>)>,
}

/// What became of the models of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ModelCounts {
    /// Sub-models now.
    pub sub_models: u64,
    /// The sum of their errors, in ranks.
    pub errors: u64,
    /// Sub-models trained so far.
    pub trained: u64,
    /// Top models made so far.
    pub tops: u64,
    /// Bytes that a client needs for the top model, and for all translation tables.
    pub top_bytes: u64,
    /// See above.
    pub table_bytes: u64,
}

/// The models of a table.
pub(crate) struct Models<S> {
    table: TableId,
    top: Option<InForce>,
    trained: Vec<Trained<S>>,
    dirty: BTreeSet<usize>,
    growing: Option<Growing<S>>,
    /// Leaves when the top model was made, and how many changed since then.
    leaves_then: usize,
    changed: usize,
    /// A sub-model has more leaves than a table can have.
    overfull: bool,
    /// Leaves that sub-models do not tell apart, so that readers may look at several.
    blurred: usize,
    counts: ModelCounts,
}

impl<S: Separator> Models<S> {
    pub fn new(table: TableId) -> Models<S> {
        Models {
            table,
            top: None,
            trained: Vec::new(),
            dirty: BTreeSet::new(),
            growing: None,
            leaves_then: 0,
            changed: 0,
            overfull: false,
            blurred: 0,
            counts: ModelCounts::default(),
        }
    }

    pub fn counts(&self) -> ModelCounts {
        let top = self.top.map_or(0, |top| top.shape.entries() + top.strings);
        let top_bytes = (top + self.trained.len() * TOP_ENTRY_WORDS) as u64 * 8;
        ModelCounts { sub_models: self.trained.len() as u64, top_bytes, ..self.counts }
    }

    /// Counts a sub-model that is in force from now on, or no more.
    fn count(&mut self, model: &SubModel, sign: i64) {
        let bytes = model.words as i64 * 8;
        self.counts.table_bytes = self.counts.table_bytes.wrapping_add_signed(sign * bytes);
        self.counts.errors = self.counts.errors.wrapping_add_signed(sign * model.line.error() as i64);
    }

    /// The last sub-model that begins at a key or below.
    fn index_of(trained: &[Trained<S>], key: &S) -> usize {
        trained.partition_point(|trained| trained.first <= *key).saturating_sub(1)
    }

    /// Takes note that the leaves between two separators are not what they were.
    pub fn note(&mut self, low: &S, end: Option<&S>) {
        self.changed += 1;
        if let Some(growing) = &mut self.growing {
            growing.touched.push((low.clone(), end.cloned()));
        }
        Self::mark_dirty(&self.trained, &mut self.dirty, low, end);
    }

    fn mark_dirty(trained: &[Trained<S>], dirty: &mut BTreeSet<usize>, low: &S, end: Option<&S>) {
        let first = Self::index_of(trained, low);
        let reaches = |index: &usize| *index == first || end.is_none_or(|end| trained[*index].first < *end);
        dirty.extend((first..trained.len()).take_while(reaches));
    }

    /// Whether [`Models::maintain`] has something to do.
    pub fn has_work(&self) -> bool {
        !self.dirty.is_empty() || self.growing.is_some() || self.top.is_none()
    }

    /// Trains some of what is to be trained. The root of the table stands in the word `root`. `Err`: there is
    /// no room for it now.
    pub fn maintain(&mut self, image: &mut Image, blocks: &Blocks<S>, root: Place) -> Result<(), NoRoom> {
        for _ in 0..TRAINED_A_STEP {
            let Some(index) = self.dirty.first().copied() else { break };
            if index < self.trained.len() {
                self.train_anew(image, blocks, index)?;
            }
            self.dirty.remove(&index);
        }
        if self.growing.is_none() && self.wants_top(blocks) {
            let next = Some(blocks.separator(blocks.first()).clone());
            self.growing = Some(Growing { trained: Vec::new(), next, touched: Vec::new() });
        }
        self.grow(image, blocks, root)
    }

    /// Whether all is to be made anew: because there are many more leaves, or because a sub-model has too
    /// many and enough has changed that it pays, or because many leaves are not told apart.
    fn wants_top(&self, blocks: &Blocks<S>) -> bool {
        let (leaves, fair) = (blocks.len(), self.trained.len() * LEAVES_WANTED);
        self.top.is_none()
            || leaves > 2 * fair.max(self.leaves_then)
            || (self.overfull && self.changed > 64 + self.leaves_then / 16)
            || self.blurred > BLURRED_MIN.max(leaves / BLURRED_SHARE)
            || leaves + LEAVES_WANTED < self.leaves_then / 4
    }

    /// Trains the sub-model that begins at a separator, and says where the next one begins.
    fn train_next(
        &mut self,
        image: &mut Image,
        blocks: &Blocks<S>,
        first: &S,
    ) -> Result<(Trained<S>, Option<S>), NoRoom> {
        let begins = blocks.find(first);
        // The first leaf has keys from nothing on, far from those of the others.
        let wanted = if begins == blocks.first() { 1 } else { LEAVES_WANTED };
        let mut leaves = leaves_from(blocks, begins, wanted + 1);
        let draw = |count: usize| {
            let end = leaves.get(count).map(|end| blocks.separator(*end));
            let sketch = Sketch::draw(blocks, first, &leaves[..count], end);
            let fits = (sketch.line.error() <= ERROR_WANTED || count <= LEAVES_MIN)
                && sketch.words() <= TABLE_WORDS_MAX;
            Some(sketch).filter(|sketch| count == 1 || (fits && sketch.blurred::<S>(SPARE_BITS) == 0))
        };
        // As many as fit: half of them, until they do, and then what can be added.
        let (mut count, mut too_many) = (leaves.len().min(wanted), leaves.len() + 1);
        let mut fitting = draw(count);
        while fitting.is_none() {
            too_many = count;
            count = count.div_ceil(2);
            fitting = draw(count);
        }
        while too_many - count > 1 && count < wanted {
            let middle = count + (too_many - count) / 2;
            match draw(middle) {
                Some(more) => (count, fitting) = (middle, Some(more)),
                None => too_many = middle,
            }
        }
        let sketch = fitting.expect("one leaf fits");
        let next = leaves.get(count).map(|next| blocks.separator(*next).clone());
        leaves.truncate(count);
        let model = self.publish_table(image, blocks, &leaves, &sketch)?;
        Ok((Trained { first: first.clone(), model, blurred: 0 }, next))
    }

    /// Trains a sub-model anew, whose leaves have changed.
    fn train_anew(&mut self, image: &mut Image, blocks: &Blocks<S>, index: usize) -> Result<(), NoRoom> {
        if index + 1 == self.trained.len() {
            return self.train_last(image, blocks);
        }
        let (first, end) = (&self.trained[index].first, &self.trained[index + 1].first);
        let mut leaves = leaves_from(blocks, blocks.find(first), LEAVES_MAX + 1);
        let inside = leaves.iter().skip(1).take_while(|leaf| blocks.separator(**leaf) < end).count() + 1;
        self.overfull |= inside > LEAVES_MAX;
        leaves.truncate(inside.min(LEAVES_MAX));
        let mut sketch = Sketch::draw(blocks, first, &leaves, Some(end));
        while sketch.words() > TABLE_WORDS_MAX {
            // The others are found by the shard until all is made anew.
            self.overfull = true;
            leaves.truncate(leaves.len() / 2);
            sketch = Sketch::draw(blocks, first, &leaves, Some(end));
        }
        let model = self.publish_table(image, blocks, &leaves, &sketch)?;
        self.put_in_place(image, index, model);
        let before = std::mem::replace(&mut self.trained[index].blurred, sketch.blurred::<S>(0));
        self.blurred = self.blurred - before + self.trained[index].blurred;
        Ok(())
    }

    /// Trains the last sub-model anew, and adds others behind it if it has grown.
    fn train_last(&mut self, image: &mut Image, blocks: &Blocks<S>) -> Result<(), NoRoom> {
        let index = self.trained.len() - 1;
        let first = self.trained[index].first.clone();
        let (trained, mut next) = self.train_next(image, blocks, &first)?;
        self.put_in_place(image, index, trained.model);
        self.blurred -= std::mem::take(&mut self.trained[index].blurred);
        while let Some(first) = next {
            if !self.has_room(&first) {
                self.overfull = true;
                break;
            }
            let (trained, after) = self.train_next(image, blocks, &first)?;
            self.append(image, trained);
            next = after;
        }
        Ok(())
    }

    /// Writes a translation table. Nothing names it yet.
    fn publish_table(
        &mut self,
        image: &mut Image,
        blocks: &Blocks<S>,
        leaves: &[Position],
        sketch: &Sketch,
    ) -> Result<SubModel, NoRoom> {
        let words = sketch.words();
        let class = (words - TABLE_HEADER_WORDS).div_ceil(16).next_power_of_two().trailing_zeros();
        let place = image.allocate(Kind::table(class))?;
        let places: Vec<Place> = leaves.iter().map(|leaf| blocks.place(*leaf)).collect();
        let table = image.words(place, Kind::table(class).slot_bytes() as usize / 8);
        sub_model::write_table(table, sketch.base, &sketch.codes, &sketch.bytes, &places);
        image.make_live(place);
        self.counts.trained += 1;
        Ok(SubModel {
            index: 0,
            head: 0,
            table: Some(place),
            class,
            leaves: leaves.len(),
            prefix_bytes: sketch.prefix_bytes,
            line: sketch.line,
            words,
        })
    }

    /// Has an entry of the top model name another table.
    fn put_in_place(&mut self, image: &mut Image, index: usize, model: SubModel) {
        let top = self.top.expect("a top model whose sub-models are trained anew");
        let entry = entry_words(image, &top, index);
        entry.publish(2, model.line_word(S::NUMBERS));
        entry.publish(1, model.pointer_word());
        let old = std::mem::replace(&mut self.trained[index].model, model);
        self.count(&old, -1);
        self.count(&model, 1);
        release_table(image, &old);
    }

    /// Whether a sub-model that begins there can be added to the top model in place.
    fn has_room(&self, first: &S) -> bool {
        let Some(top) = self.top else { return false };
        let last = &self.trained.last().expect("a first one").first;
        let prefix_bytes = top.shape.prefix_bytes;
        self.trained.len() < top.shape.capacity
            && top.strings + first.bytes().len().div_ceil(8) <= top.strings_room
            && (prefix_bytes == 0 || first.shared(last) >= prefix_bytes)
    }

    /// Adds a sub-model behind the last one.
    fn append(&mut self, image: &Image, trained: Trained<S>) {
        let (top, index) = (self.top.as_mut().expect("one with room"), self.trained.len());
        write_entry(image, top, index, &trained);
        image.words(top.place, TOP_HEADER_WORDS).publish(COUNT_WORD, index as u64 + 1);
        self.count(&trained.model, 1);
        self.trained.push(trained);
        mark!("sub-model added");
    }

    /// Goes on with a new top model, and puts it in force when it is whole.
    fn grow(&mut self, image: &mut Image, blocks: &Blocks<S>, root: Place) -> Result<(), NoRoom> {
        let Some(mut growing) = self.growing.take() else { return Ok(()) };
        for _ in 0..TRAINED_A_STEP {
            let Some(first) = growing.next.take() else { break };
            match self.train_next(image, blocks, &first) {
                Ok((trained, next)) => {
                    growing.trained.push(trained);
                    growing.next = next;
                }
                Err(no_room) => return Self::give_up(image, growing, no_room),
            }
        }
        if growing.next.is_some() {
            self.growing = Some(growing);
            return Ok(());
        }
        match make_top(image, self.table, &growing.trained) {
            Ok(top) => self.put_in_force(image, blocks, root, top, growing),
            Err(no_room) => return Self::give_up(image, growing, no_room),
        }
        Ok(())
    }

    /// There is no room for a new top model now.
    fn give_up(image: &mut Image, growing: Growing<S>, no_room: NoRoom) -> Result<(), NoRoom> {
        growing.trained.iter().for_each(|trained| release_table(image, &trained.model));
        Err(no_room)
    }

    fn put_in_force(
        &mut self,
        image: &mut Image,
        blocks: &Blocks<S>,
        root: Place,
        top: InForce,
        growing: Growing<S>,
    ) {
        image.make_live(top.place);
        image.words(root, 1).publish(0, top.place.0 / PLACE_ALIGN);
        if let Some(old) = self.top.replace(top) {
            image.drop_live(old.place);
            image.release(old.kind, old.place);
        }
        let old = std::mem::replace(&mut self.trained, growing.trained);
        old.iter().for_each(|trained| release_table(image, &trained.model));
        (self.counts.table_bytes, self.counts.errors) = (0, 0);
        for index in 0..self.trained.len() {
            let model = self.trained[index].model;
            self.count(&model, 1);
        }
        self.dirty.clear();
        for (low, end) in &growing.touched {
            Self::mark_dirty(&self.trained, &mut self.dirty, low, end.as_ref());
        }
        (self.leaves_then, self.changed, self.overfull, self.blurred) = (blocks.len(), 0, false, 0);
        self.counts.tops += 1;
        mark!("top model made anew");
    }

    /// Moves what stands in a segment being emptied.
    pub fn leave(&mut self, image: &mut Image, root: Place) -> Result<(), NoRoom> {
        for index in 0..self.trained.len() {
            if let Some(model) = move_table(image, &self.trained[index].model)? {
                self.put_in_place(image, index, model);
            }
        }
        for trained in self.growing.iter_mut().flat_map(|growing| &mut growing.trained) {
            if let Some(model) = move_table(image, &trained.model)? {
                release_table(image, &trained.model);
                trained.model = model;
            }
        }
        let Some(top) = self.top.filter(|top| image.is_leaving(top.place)) else { return Ok(()) };
        let place = copy_object(image, top.kind, top.place)?;
        image.words(root, 1).publish(0, place.0 / PLACE_ALIGN);
        image.drop_live(top.place);
        image.release(top.kind, top.place);
        self.top = Some(InForce { place, ..top });
        mark!("top model moved");
        Ok(())
    }

    /// Tells the sub-model of a key as it is now: the top model's guardian, the sub-model's number, its
    /// entry, its table.
    pub fn tell(&self, image: &Image, key: &S, words: &mut Vec<u64>) {
        let Some(top) = self.top else { return };
        let index = Self::index_of(&self.trained, key);
        let model = &self.trained[index].model;
        words.extend([image.words(top.place, 1).load(0), index as u64]);
        let mut copy = |from: Words<'_>| {
            let first = words.len();
            words.resize(first + from.count(), 0);
            from.copy_out(0, &mut words[first..]);
        };
        copy(entry_words(image, &top, index));
        let table = model.table.expect("a table that was written");
        copy(image.words(table, model.words));
    }

    /// Every slot of memory that the models use, for checks.
    pub fn for_each_block(&self, mut visit: impl FnMut(Kind, Place)) {
        self.top.iter().for_each(|top| visit(top.kind, top.place));
        let growing = self.growing.iter().flat_map(|growing| &growing.trained);
        for Trained { model, .. } in self.trained.iter().chain(growing) {
            model.table.iter().for_each(|place| visit(Kind::table(model.class), *place));
        }
    }
}

/// What is to be known of the leaves of a sub-model to find one.
pub(crate) struct Sketch {
    /// What entries say of each separator.
    codes: Vec<u64>,
    base: u64,
    prefix_bytes: usize,
    line: Line,
    /// Bytes of strings, to which codes lead.
    bytes: Vec<u8>,
}

impl Sketch {
    /// Draws the leaves of a sub-model that begins at `first` and ends at `end`.
    fn draw<S: Separator>(blocks: &Blocks<S>, first: &S, leaves: &[Position], end: Option<&S>) -> Sketch {
        let mut separators: Vec<&S> = leaves.iter().map(|leaf| blocks.separator(*leaf)).collect();
        // Of a leaf that became one with the one before only what is left counts.
        separators[0] = first;
        S::sketch(&separators, end, leaves[0] == blocks.first())
    }

    /// Draws a line through numbers. Below the second leaf of all there is no first key to count from.
    fn of_numbers(numbers: &[&u64], end: Option<u64>, from_nothing: bool) -> Sketch {
        let mut words: Vec<u64> = numbers.iter().map(|number| **number).collect();
        let count = words.len();
        let base = match from_nothing && count > 1 {
            true => words[1].saturating_sub((words[count - 1] - words[1]) / count as u64 + 1),
            false => words[0],
        };
        words[0] = words[0].max(base);
        let (line, codes) = sub_model::train(&words, base, end);
        Sketch { codes, base, prefix_bytes: 0, line, bytes: Vec::new() }
    }

    /// Says how strings differ.
    fn of_strings(strings: &[&[u8]]) -> Sketch {
        let prefix_bytes = common_prefix(strings[0], strings[strings.len() - 1]).min(PREFIX_MAX);
        let (codes, bytes) = sub_model::string_codes(strings, prefix_bytes);
        Sketch { codes, base: 0, prefix_bytes, line: Line::from_word(0), bytes }
    }

    /// Leaves of numbers that are not told apart when so many bits of their positions do not count.
    fn blurred<S: Separator>(&self, spare_bits: u32) -> usize {
        if S::NUMBERS { sub_model::blurred(&self.codes, spare_bits) } else { 0 }
    }

    /// Words of its translation table.
    fn words(&self) -> usize {
        TABLE_HEADER_WORDS + self.codes.len() + self.bytes.len().div_ceil(8)
    }
}

/// At most `most` leaves from one on.
fn leaves_from<S: Separator>(blocks: &Blocks<S>, begins: Position, most: usize) -> Vec<Position> {
    std::iter::successors(Some(begins), |leaf| blocks.next(*leaf)).take(most).collect()
}

/// Writes a top model for these sub-models. Nothing names it yet.
fn make_top<S: Separator>(
    image: &mut Image,
    table: TableId,
    trained: &[Trained<S>],
) -> Result<InForce, NoRoom> {
    let count = trained.len();
    // The first begins at nothing.
    let (second, last) = (&trained[1.min(count - 1)].first, &trained[count - 1].first);
    let prefix_bytes = if count > 2 { second.shared(last).min(PREFIX_MAX) } else { 0 };
    let cell_bits = (usize::BITS - count.leading_zeros()).min(24);
    let base = second.word(prefix_bytes);
    let span = last.word(prefix_bytes) - base;
    let shift = (64 - span.leading_zeros()).saturating_sub(cell_bits);
    let capacity = count + count / 2 + 16;
    let shape = Shape { built: count, base, shift, cell_bits, capacity, prefix_bytes };
    let of_strings: usize = trained.iter().map(|trained| trained.first.bytes().len().div_ceil(8)).sum();
    let prefix_words = prefix_bytes.div_ceil(8);
    let spare = if table.kind().has_numbers() { 0 } else { 64 + of_strings / 2 };
    let words = shape.strings() + prefix_words + of_strings + spare;
    let bits = (words * 8).next_power_of_two().trailing_zeros().max(*Kind::TOP_BITS.start());
    if bits > *Kind::TOP_BITS.end() {
        return Err(NoRoom { wait: false });
    }
    let kind = Kind::top(bits);
    let place = image.allocate(kind)?;
    let room = kind.slot_bytes() as usize / 8;
    let strings_room = if spare == 0 { 0 } else { room - shape.strings() };
    let mut top = InForce { place, kind, shape, strings: prefix_words, strings_room };
    let words = image.words(place, room);
    words.copy_in(1, &shape.words(table));
    let all = if spare == 0 { shape.strings() } else { room };
    words.copy_in(COUNT_WORD, &[count as u64, all as u64, 0, 0]);
    let mut prefix = vec![0; prefix_words];
    bytes_of_mut(&mut prefix)[..prefix_bytes].copy_from_slice(&second.bytes()[..prefix_bytes]);
    words.copy_in(shape.strings(), &prefix);
    let mut cells = vec![0u64; shape.entries() - TOP_HEADER_WORDS];
    let mut cell = 0;
    for (index, trained) in trained.iter().enumerate() {
        let head = head_of(&shape, index, &trained.first);
        while cell <= shape.cell(head) {
            cells[cell / 2] |= (index as u64) << (cell % 2 * 32);
            cell += 1;
        }
        write_entry(image, &mut top, index, trained);
    }
    while cell < 1 << cell_bits {
        cells[cell / 2] |= (count as u64) << (cell % 2 * 32);
        cell += 1;
    }
    image.words(place, room).copy_in(TOP_HEADER_WORDS, &cells);
    Ok(top)
}

/// The first sub-model takes whatever is below the second.
fn head_of<S: Separator>(shape: &Shape, index: usize, first: &S) -> u64 {
    if index == 0 { 0 } else { first.word(shape.prefix_bytes) }
}

/// Writes an entry that nobody looks at yet.
fn write_entry<S: Separator>(image: &Image, top: &mut InForce, index: usize, trained: &Trained<S>) {
    let (first, bytes) = (&trained.first, trained.first.bytes());
    let mut string = vec![0; bytes.len().div_ceil(8)];
    bytes_of_mut(&mut string)[..bytes.len()].copy_from_slice(bytes);
    let at = top.strings;
    top.strings += string.len();
    image.words(top.place, top.shape.strings() + top.strings).copy_in(top.shape.strings() + at, &string);
    let model = &trained.model;
    let head = head_of(&top.shape, index, first);
    let words = [head, model.pointer_word(), model.line_word(S::NUMBERS), string_word(at, bytes.len())];
    entry_words(image, top, index).copy_in(0, &words);
}

fn entry_words<'a>(image: &'a Image, top: &InForce, index: usize) -> Words<'a> {
    let first = top.shape.entries() + index * TOP_ENTRY_WORDS;
    image.words(top.place.plus(first as u64 * 8), TOP_ENTRY_WORDS)
}

fn release_table(image: &mut Image, model: &SubModel) {
    let place = model.table.expect("a table that was written");
    image.drop_live(place);
    image.release(Kind::table(model.class), place);
}

/// Copies an object to another place, where it is live under another name.
fn copy_object(image: &mut Image, kind: Kind, from: Place) -> Result<Place, NoRoom> {
    let place = image.allocate(kind)?;
    let mut words = vec![0; kind.slot_bytes() as usize / 8];
    image.words(from, words.len()).copy_out(0, &mut words);
    image.words(place, words.len()).copy_in(1, &words[1..]);
    image.make_live(place);
    Ok(place)
}

/// Copies a table that must leave. `None`: it may stay.
fn move_table(image: &mut Image, model: &SubModel) -> Result<Option<SubModel>, NoRoom> {
    let place = model.table.expect("a table that was written");
    if !image.is_leaving(place) {
        return Ok(None);
    }
    let table = copy_object(image, Kind::table(model.class), place)?;
    mark!("translation table moved");
    Ok(Some(SubModel { table: Some(table), ..*model }))
}
