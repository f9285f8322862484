//! What a reader may believe where writes count only when they are committed (docs/read-rule.md, "What is not
//! committed"): of an item its incarnation tells, of a leaf the set of leaves that were changed lately.

use std::cell::Cell;

use kelix_fabric::{Direct, RemoteMemory};
use kelix_image::watermark::{SET_WORDS, is_pending, set_of};
use kelix_image::words::load_fence;
use kelix_image::{Committed, header_word};
use kelix_types::{Incarnation, Place, mark};

use super::{Freshness, Landing, ReadOp, ShardReader, State, Step};

/// The words of a header page that say up to where changes are committed, and which record changed a leaf
/// last.
pub(crate) const LINE: Place = Place(header_word::COMMITTED as u64 * 8);
pub(crate) const LINE_WORDS: usize = 3;

/// The word of a header page that says which record removed a key of a hash table last.
const REMOVALS: Place = Place(header_word::REMOVALS_RECORD as u64 * 8);

/// The place of the set of a leaf.
pub(crate) fn set_place(leaf: Incarnation) -> Place {
    Place(set_of(leaf) as u64 * 8)
}

/// Up to where changes of a shard are committed, as far as a reader knows.
pub(crate) struct Watermark {
    incarnation: Cell<u64>,
    record: Cell<u64>,
    /// Of a mirror that may be read for a while only. All that is read is above the watermark then, so that
    /// nobody else looks here.
    freshness: Option<Freshness>,
}

impl Watermark {
    /// Of a shard whose changes count at once, or of one of which nothing is known yet.
    pub fn new(commits: bool) -> Watermark {
        let Committed { incarnation, record } = if commits { Committed::NONE } else { Committed::ALL };
        Watermark { incarnation: Cell::new(incarnation), record: Cell::new(record), freshness: None }
    }

    /// Of a shard of a mirror that may be read for a while only.
    pub fn of_mirror(freshness: Freshness) -> Watermark {
        Watermark { freshness: Some(freshness), ..Watermark::new(true) }
    }

    /// Until when a mirror may be read, if that has an end.
    pub fn freshness(&self) -> Option<&Freshness> {
        self.freshness.as_ref()
    }

    /// Takes note of what the header page says. Whether no leaf has changed that is not committed.
    pub fn note(&self, [incarnation, record, leaves]: [u64; LINE_WORDS]) -> bool {
        self.incarnation.set(self.incarnation.get().max(incarnation));
        self.record.set(self.record.get().max(record));
        leaves <= record
    }

    /// The last record that is known to be committed.
    pub fn record(&self) -> u64 {
        self.record.get()
    }

    /// Whether everything counts at once.
    #[inline(always)]
    pub fn covers_all(&self) -> bool {
        self.record.get() == u64::MAX
    }

    /// Whether what has an incarnation is known to be committed.
    #[inline(always)]
    pub fn covers(&self, incarnation: Incarnation) -> bool {
        incarnation.0 <= self.incarnation.get()
    }

    /// Whether what has an incarnation is committed by now.
    #[inline(always)]
    pub fn covers_item(&self, direct: &Direct, incarnation: Incarnation) -> bool {
        self.covers(incarnation) || self.look(direct, incarnation)
    }

    #[cold]
    #[inline(never)]
    fn look(&self, direct: &Direct, incarnation: Incarnation) -> bool {
        if let Some(freshness) = &self.freshness {
            return freshness.covers(direct);
        }
        self.note_line(direct);
        let covers = self.covers(incarnation);
        mark!(if covers { "watermark looked at again" } else { "item that is not committed" });
        covers
    }

    /// Loads what the header page says. Whether no leaf has changed that is not committed.
    fn note_line(&self, direct: &Direct) -> bool {
        let Some(line) = direct.map.view().words(LINE, LINE_WORDS) else { return false };
        // The record of leaves first: what it was then is to be committed by now.
        let leaves = line.load_acquire(2);
        self.note([line.load_acquire(0), line.load_acquire(1), leaves])
    }

    /// Whether all removals of keys from hash tables are committed that may show in words which were loaded
    /// before.
    #[inline(always)]
    pub fn covers_removals(&self, direct: &Direct) -> bool {
        self.covers_all() || self.look_at_removals(direct)
    }

    #[cold]
    #[inline(never)]
    fn look_at_removals(&self, direct: &Direct) -> bool {
        if let Some(freshness) = &self.freshness {
            return freshness.covers(direct);
        }
        // SYNC: pairs with the store of `Watermark::note_removal` in the image's writer, which stays before
        // that of the slot.
        load_fence();
        let Some(removals) = direct.map.view().words(REMOVALS, 1) else { return false };
        let removals = removals.load_acquire(0);
        self.note_line(direct);
        let covers = removals <= self.record();
        mark!(if covers {
            "absence where all removals are committed"
        } else {
            "absence that is not committed"
        });
        covers
    }

    /// Whether all that the words of a leaf said which were loaded before is committed.
    #[inline(always)]
    pub fn covers_leaf(&self, direct: &Direct, leaf: Incarnation) -> bool {
        self.covers_all() || self.look_at_leaf(direct, leaf)
    }

    #[cold]
    #[inline(never)]
    fn look_at_leaf(&self, direct: &Direct, leaf: Incarnation) -> bool {
        if let Some(freshness) = &self.freshness {
            return freshness.covers(direct);
        }
        // SYNC: pairs with the stores of `Watermark::note_leaf` in the image's writer, which stay before
        // those of the leaf.
        load_fence();
        if self.note_line(direct) {
            return true;
        }
        let Some(set) = direct.map.view().words(set_place(leaf), SET_WORDS) else { return false };
        let mut words = [0; SET_WORDS];
        set.copy_out(0, &mut words);
        let covers = !is_pending(&words, leaf, self.record());
        mark!(if covers {
            "leaf beside others that are not committed"
        } else {
            "leaf that is not committed"
        });
        covers
    }
}

/// What was found, and counts if it is committed.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Unproven {
    /// An item of this version.
    Item(Incarnation),
    /// What a leaf says.
    Leaf(LeafSays),
}

/// What a leaf says of the key: a value, or that the key is absent.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct LeafSays {
    leaf: Incarnation,
    is_absent: bool,
}

impl LeafSays {
    /// The end of a read that believes the leaf.
    fn step(self) -> Step {
        if self.is_absent { Step::Absent } else { Step::Valid }
    }
}

impl ReadOp {
    /// The item at hand is valid, and counts if it is committed.
    #[inline(always)]
    pub(super) fn believe_item<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        landing: &Landing,
    ) -> Step {
        if shard.watermark.covers_all() {
            return Step::Valid;
        }
        // One that was moved is what it was before.
        let version = Incarnation(landing.view().version().0);
        if shard.watermark.covers(version) {
            return Step::Valid;
        }
        self.post_line(fabric, shard, Unproven::Item(version))
    }

    /// A leaf says that the key has a value, or is absent, which counts if it is committed.
    #[inline(always)]
    pub(super) fn believe_leaf<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        leaf: Incarnation,
        is_absent: bool,
    ) -> Step {
        let says = LeafSays { leaf, is_absent };
        if shard.watermark.covers_all() {
            return says.step();
        }
        self.post_line(fabric, shard, Unproven::Leaf(says))
    }

    #[cold]
    #[inline(never)]
    fn post_line<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader, what: Unproven) -> Step {
        if let Some(freshness) = shard.watermark.freshness() {
            return match what {
                _ if !freshness.holds() => Step::Ask,
                Unproven::Item(_) => Step::Valid,
                Unproven::Leaf(says) => says.step(),
            };
        }
        self.state = State::Watermark(what);
        self.post(fabric, shard, LINE, LINE_WORDS);
        Step::Pending
    }

    /// Polls a READ of words of the header page, which count while the image is in force.
    fn poll_header<F: RemoteMemory, const WORDS: usize>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
    ) -> Result<[u64; WORDS], Step> {
        let mut words = [0; WORDS];
        match self.poll(fabric, shard, &mut words) {
            Ok(sampled) if sampled.term == shard.term => Ok(words),
            Ok(_) => Err(Step::Superseded),
            Err(Step::Pending) => Err(Step::Pending),
            Err(_) => Err(Step::Ask),
        }
    }

    /// Looks at what the header page says of what is committed.
    pub(super) fn on_watermark<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        what: Unproven,
    ) -> Step {
        let line = match self.poll_header(fabric, shard) {
            Ok(line) => line,
            Err(step) => return step,
        };
        let no_leaf_is_pending = shard.watermark.note(line);
        match what {
            Unproven::Item(version) if shard.watermark.covers(version) => {
                mark!("watermark looked at again");
                Step::Valid
            }
            Unproven::Item(_) => {
                mark!("item that is not committed");
                Step::Ask
            }
            Unproven::Leaf(says) if no_leaf_is_pending => says.step(),
            Unproven::Leaf(says) => {
                self.state = State::LeafSet(says);
                self.post(fabric, shard, set_place(says.leaf), SET_WORDS);
                Step::Pending
            }
        }
    }

    /// Looks at the set of leaves that were changed lately.
    pub(super) fn on_leaf_set<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        says: LeafSays,
    ) -> Step {
        let set = match self.poll_header(fabric, shard) {
            Ok(set) => set,
            Err(step) => return step,
        };
        if is_pending(&set, says.leaf, shard.watermark.record()) {
            mark!("leaf that is not committed");
            return Step::Ask;
        }
        mark!("leaf beside others that are not committed");
        says.step()
    }
}
