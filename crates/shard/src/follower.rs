//! Somebody who follows a shard by its records, and can go on in its place.
//!
//! Records are applied whole, one after another, none left out: so what a follower has is what there was
//! between two steps of the shard.

use std::collections::BTreeMap;

use kelix_image::{Books, Committed, Image, MemoryMap, Replica, SegmentSource, Span, Turn, event};
use kelix_index::{Index, OrderedTables};
use kelix_log::Record;
use kelix_types::{Error, ErrorKind, Result};

use crate::deduplication::History;
use crate::restore::{Past, check_index, find_ordered};
use crate::shard::{Shard, ShardConfig};

/// What was told of a shard so far.
pub struct Follower {
    replica: Replica,
    kept: Vec<u64>,
    /// Of clients that may ask again, by their numbers. None, where nobody told what they were answered before:
    /// whoever only shows the shard needs none.
    histories: Option<BTreeMap<u64, History>>,
    /// The last record that was applied.
    applied: u64,
    last_incarnation: u64,
    /// Whether the hash index is known to lead to nothing but memory that is here.
    index_is_checked: bool,
    /// The indexes of ordered tables, where somebody has followed them up to the last record that was
    /// applied.
    ordered: Option<OrderedTables>,
}

fn senseless() -> Error {
    Error::new(ErrorKind::Damaged, "follow shard", "what a shard had answered makes no sense")
}

impl Follower {
    /// Follows a shard of at most so much memory from its first record on.
    pub fn new(source: Box<dyn SegmentSource>, memory_bytes: u64) -> Follower {
        let follower = Follower::of(Replica::new(source, memory_bytes), Vec::new(), 0, 0);
        Follower { index_is_checked: true, ..follower }
    }

    /// Follows a shard from the record after `applied` on, of which these are the books and what it kept at
    /// that moment. Its memory is copied with [`Follower::copy`] before the first record. What clients were
    /// answered is passed over.
    pub fn of_books(
        source: Box<dyn SegmentSource>,
        memory_bytes: u64,
        (books, kept): (&Books, &[u64]),
        applied: u64,
    ) -> Result<Follower> {
        let replica = Replica::of_books(source, memory_bytes, books)?;
        let follower = Follower::of(replica, kept.to_vec(), applied, books.incarnation);
        Ok(Follower { histories: None, ..follower })
    }

    /// Follows a shard from a moment on whose snapshot somebody has: books and what it kept, what it told of
    /// its position ([`Shard::position`]), and its memory, which `fill` writes.
    pub fn of_snapshot(
        source: Box<dyn SegmentSource>,
        (books, kept, position): (&Books, &[u64], &[u64]),
        fill: impl FnOnce(&MemoryMap) -> Result<()>,
    ) -> Result<Follower> {
        let mut replica = Replica::of_books(source, u64::MAX / 2, books)?;
        fill(replica.map())?;
        replica.take_stock(books.incarnation)?;
        let (applied, words) = position.split_first().ok_or_else(senseless)?;
        let mut follower = Follower::of(replica, kept.to_vec(), *applied, books.incarnation);
        follower.remember(words)?;
        Ok(follower)
    }

    /// Takes note of what clients were answered so far ([`Shard::histories`]), and from now on of what records
    /// tell of that.
    pub fn remember(&mut self, mut words: &[u64]) -> Result<()> {
        let histories = self.histories.insert(BTreeMap::new());
        while !words.is_empty() {
            let history = History::take_words(&mut words).ok_or_else(senseless)?;
            histories.insert(history.number(), history);
        }
        Ok(())
    }

    /// Passes over what clients were answered from now on: a mirror, which only shows the shard, needs no
    /// answers.
    pub fn forget_clients(&mut self) {
        self.histories = None;
    }

    /// Takes new segments from this source from now on.
    pub fn set_source(&mut self, source: Box<dyn SegmentSource>) {
        self.replica.set_source(source);
    }

    fn of(replica: Replica, kept: Vec<u64>, applied: u64, last_incarnation: u64) -> Follower {
        let histories = Some(BTreeMap::new());
        Follower {
            replica,
            kept,
            histories,
            applied,
            last_incarnation,
            index_is_checked: false,
            ordered: None,
        }
    }

    /// The last record that was applied.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Its memory.
    pub fn map(&self) -> &MemoryMap {
        self.replica.map()
    }

    /// Bytes of its memory.
    pub fn memory_bytes(&self) -> u64 {
        self.replica.segments().map(|(_, span)| span.bytes()).sum()
    }

    /// What its memory is. Slots are told of that may never have been used.
    pub fn books(&self) -> Books {
        self.replica.books(self.last_incarnation)
    }

    /// Whether a segment of its memory begins with a granule.
    pub fn has_segment(&self, first: usize) -> bool {
        self.replica.segments().any(|(of, _)| of == first)
    }

    /// What the shard kept beside its memory.
    pub fn kept(&self) -> &[u64] {
        &self.kept
    }

    /// Takes over words of the shard's memory.
    pub fn copy(&mut self, place: kelix_types::Place, words: &[u64]) {
        self.replica.copy(place, words);
    }

    /// Applies the records that are whole in these words, and returns the words behind them. An error: as of
    /// [`Follower::apply`].
    pub fn apply_all<'w>(&mut self, mut words: &'w [u64]) -> Result<&'w [u64]> {
        while let Some((record, behind)) = Record::split(words)? {
            self.apply(&record)?;
            words = behind;
        }
        Ok(words)
    }

    /// Applies the next record. An error: it is not the next one, or makes no sense, and this follower is of
    /// no use any more.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<()> {
        self.apply_and(record, |_, _, _| Ok(()))
    }

    /// The same; `heed` is told of each event where it stands among the stores.
    pub(crate) fn apply_and(
        &mut self,
        record: &Record<'_>,
        mut heed: impl FnMut(&Replica, u16, &[u64]) -> Result<()>,
    ) -> Result<()> {
        let damaged = |what: String| Error::new(ErrorKind::Damaged, "apply record", what);
        if record.head.sequence != self.applied + 1 {
            let (applied, sequence) = (self.applied, record.head.sequence);
            return Err(damaged(format!("record {sequence} comes after record {applied}")));
        }
        self.ordered = None;
        let Follower { replica, kept, histories, .. } = self;
        replica.apply(record.notes, |replica, kind, words| {
            match (kind, words) {
                (event::SEGMENT | event::RETIRED | event::SLAB | event::HEADER | event::AFTER, _) => {}
                (event::CALLER | event::ANSWER | event::GONE, _) if histories.is_none() => {}
                (event::CALLER, &[number, complete_from]) => {
                    let histories = histories.get_or_insert_default();
                    histories.entry(number).or_insert_with(|| History::restored(number, complete_from));
                }
                (event::ANSWER, words) => {
                    let known = words
                        .split_first()
                        .and_then(|(number, answer)| histories.as_mut()?.get_mut(number)?.note_words(answer));
                    known.ok_or_else(|| damaged("an answer makes no sense".to_string()))?;
                }
                (event::GONE, [number]) => drop(histories.as_mut().and_then(|of| of.remove(number))),
                (event::KEPT, words) => *kept = words.to_vec(),
                _ => return Err(damaged(format!("an event of kind {kind} is not known to this release"))),
            }
            heed(replica, kind, words)
        })?;
        (self.applied, self.last_incarnation) = (record.head.sequence, record.head.last_incarnation);
        Ok(())
    }

    /// The last record that was applied, and the last incarnation up to there.
    pub fn end(&self) -> Committed {
        Committed { record: self.applied, incarnation: self.last_incarnation }
    }

    pub(crate) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// From now on takes note of what becomes of objects.
    pub(crate) fn watch(&mut self) {
        self.replica.watch();
    }

    pub(crate) fn take_turns(&mut self, turns: &mut Vec<Turn>) {
        self.replica.take_turns(turns);
    }

    /// Looks at all items, where that was not done: what was copied is whole. From here on records tell what
    /// there is. An error: an item makes no sense.
    pub(crate) fn take_stock(&mut self) -> Result<()> {
        self.replica.take_stock(self.last_incarnation)
    }

    /// How many keys each hash table has, by its number, where stock was taken.
    pub(crate) fn keys(&self) -> &[u64] {
        self.replica.stock().map_or(&[], |stock| &stock.tables)
    }

    /// Looks whether the hash index leads to nothing but memory that is here, where that was not done.
    /// Records are whole, follow each other from there on, and have checksums: what they change leads to
    /// where the shard's own index led.
    pub(crate) fn check_index(&mut self, index: &Index, image: &Image) -> Result<()> {
        if !self.index_is_checked {
            check_index(index, image)?;
        }
        self.index_is_checked = true;
        Ok(())
    }

    /// This follower with the indexes of its ordered tables, as they are now.
    pub(crate) fn with_ordered(self, ordered: OrderedTables) -> Follower {
        Follower { ordered: Some(ordered), ..self }
    }

    /// The indexes of its ordered tables, for an image with its memory.
    pub(crate) fn take_ordered(&mut self, image: &Image) -> Result<OrderedTables> {
        self.ordered.take().map_or_else(|| find_ordered(image, &self.replica.leaves()), Ok)
    }

    /// The shard goes on here, in an image whose header page stands in `header`. Its next record follows the
    /// last one that was applied.
    pub fn into_shard(mut self, config: ShardConfig, header: Span) -> Result<Shard> {
        self.take_stock()?;
        let Follower { replica, kept, histories, applied, last_incarnation, .. } = self;
        let (index_is_checked, ordered) = (self.index_is_checked, self.ordered);
        let past = Past { replica, last_incarnation, kept: &kept, index_is_checked, ordered };
        let mut shard = Shard::go_on(config, header, past)?;
        shard.clients.restore_histories(histories.unwrap_or_default().into_values());
        shard.recorder.go_on_behind(applied);
        Ok(shard)
    }
}

/// For tests and the simulator: whether what was told is what there is. It looks at all there is.
impl Follower {
    /// Compares itself with the shard it follows, of which it has applied all records, between two steps.
    /// `Err`: what differs.
    pub fn compare(&self, shard: &Shard) -> std::result::Result<(), String> {
        let image = shard.image();
        let last = image.last_incarnation();
        // A shard that goes on in a later term has told of none of that term before its next record.
        let is_last =
            self.last_incarnation == last.0 || last.counter() == 0 && self.last_incarnation < last.0;
        if self.applied != shard.sequence() || !is_last {
            let is = (shard.sequence(), last);
            return Err(format!("record {} of {is:?} was the last one applied", self.applied));
        }
        if self.kept != shard.kept() {
            return Err(format!("{:x?} is kept here, and {:x?} there", self.kept, shard.kept()));
        }
        for (place, bytes) in image.stretches() {
            let words = (bytes / 8) as usize;
            let (there, here) = (image.map().words(place, words), self.map().words(place, words));
            let (Some(there), Some(here)) = (there, here) else {
                return Err(format!("the {bytes} bytes at {place:?} are not here"));
            };
            if let Some(word) = (0..words).find(|word| there.load(*word) != here.load(*word)) {
                let (place, here, there) = (place.plus(word as u64 * 8), here.load(word), there.load(word));
                return Err(format!("the word at {place:?} is {here:#x} here, and {there:#x} there"));
            }
        }
        self.replica.check_live()?;
        let (there, Some(here)) = (shard.clients.histories(), &self.histories) else { return Ok(()) };
        if here.len() != there.len() {
            return Err(format!("{} histories are here, and {} there", here.len(), there.len()));
        }
        match there
            .into_iter()
            .find(|history| here.get(&history.number()).is_none_or(|here| !here.answers_as(history)))
        {
            Some(history) => Err(format!("what client {} was answered differs", history.number())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kelix_image::{Header, PrivateSegments};
    use kelix_log::{Lag, Reader};
    use kelix_types::TableId;
    use kelix_types::limits::{EPOCH_NS, SEQUENCES_KEPT, VIEW_LEASE_NS};
    use kelix_wire::control::Caller;
    use kelix_wire::mailboxes::Mailboxes;
    use kelix_wire::{Expiry, FrameBuffer, Op, RequestHead, Sequence, Status, encode_request};

    use super::*;
    use crate::audit::tests::build;
    use crate::datasets::Order;
    use crate::harness::Harness;
    use crate::restore::tests::{MEMORY, World};
    use crate::stocktaking::SLOTS_A_STEP;

    fn config() -> ShardConfig {
        let mut config = Harness::config(1, MEMORY);
        config.image.keeps_journal = true;
        config
    }

    /// A shard that is followed from its beginning.
    fn followed() -> (Harness, Reader) {
        let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
        let mut shard = Shard::create(config(), header.clone(), Box::new(segments.clone())).unwrap();
        let reader = shard.follow(Lag::Wait);
        (Harness::of(shard, (header, segments), &Mailboxes::default()), reader)
    }

    /// The shard goes on where somebody followed it, at a later time.
    fn taken_over(follower: Follower, now_ns: u64) -> (Harness, Reader) {
        let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
        let mut shard = follower.into_shard(config(), header.clone()).unwrap();
        let reader = shard.follow(Lag::Wait);
        let mut alone = Harness::of(shard, (header, segments), &Mailboxes::default());
        alone.now_ns = now_ns;
        (alone, reader)
    }

    /// Lets followers apply what there is.
    fn apply(reader: &mut Reader, followers: &mut [Follower]) {
        let mut words = Vec::new();
        reader.read(&mut words, usize::MAX).unwrap();
        apply_words(&words, followers);
    }

    fn apply_words(words: &[u64], followers: &mut [Follower]) {
        for follower in followers {
            assert!(follower.apply_all(words).unwrap().is_empty());
        }
    }

    #[test]
    fn a_follower_is_what_the_shard_is_and_goes_on_in_its_place() {
        for seed in 1..3 {
            let (alone, mut reader) = followed();
            let mut world = World::new(alone, seed);
            // One takes over each time, and the last follows all of them.
            let follower = || Follower::new(Box::new(PrivateSegments::default()), MEMORY);
            let mut followers: Vec<Follower> = (0..4).map(|_| follower()).collect();
            while followers.len() > 1 {
                for action in 0..6000 {
                    world.act();
                    if world.below(40) == 0 {
                        world.alone.pass_epoch();
                    }
                    apply(&mut reader, &mut followers);
                    if action % 1000 == 999 {
                        for follower in &followers {
                            assert_eq!(follower.compare(&world.alone.shard), Ok(()), "action {action}");
                        }
                    }
                }
                let next = followers.pop().unwrap();
                (world.alone, reader) = taken_over(next, world.alone.now_ns + 1);
                world.check();
            }
        }
    }

    /// When items end, a shard that goes on finds while it serves, and those that ended meanwhile go as well.
    #[test]
    fn items_end_where_a_shard_goes_on() {
        const ITEMS: u64 = 2000;
        let (alone, mut reader) = followed();
        let mut followers = [Follower::new(Box::new(PrivateSegments::default()), MEMORY)];
        let mut world = World::new(alone, 1);
        let put = RequestHead::new(Op::Put, 0, TableId(1));
        for number in 0..ITEMS {
            let expiry = (number % 2 == 0).then_some(Expiry::In(EPOCH_NS * (1 + number)));
            let head = RequestHead { expiry, ..put };
            assert_eq!(world.ask(head, &number.to_be_bytes(), b"value").0, Status::Ok);
        }
        apply(&mut reader, &mut followers);
        assert_eq!(followers[0].compare(&world.alone.shard), Ok(()));
        let [follower] = followers;
        let (mut alone, _reader) = taken_over(follower, world.alone.now_ns + EPOCH_NS * ITEMS / 2);
        let steps = (1..).find(|_| alone.step().next_ns.is_none_or(|next| next > alone.now_ns)).unwrap();
        assert!(steps as u64 > ITEMS / SLOTS_A_STEP, "{steps} steps");
        assert_eq!(alone.shard.counters().expired, ITEMS / 4);
        while let Some(next) = alone.step().next_ns {
            alone.now_ns = alone.now_ns.max(next);
        }
        let counters = alone.shard.counters();
        assert_eq!((counters.expired, counters.items), (ITEMS / 2, ITEMS / 2));
        assert_eq!(alone.shard.audit(), Ok(()));
    }

    /// Writes that were answered before a shard was taken over are answered alike after it, and not done
    /// again.
    #[test]
    fn answers_are_known_where_their_effects_are() {
        let (mut alone, mut reader) = followed();
        let mut followers = [Follower::new(Box::new(PrivateSegments::default()), MEMORY)];
        let table = TableId(1);
        let put = |number: u64, again: bool| RequestHead {
            sequence: Some(Sequence { number, again }),
            ..RequestHead::new(Op::Put, 0, table)
        };
        alone.leave();
        alone.join(2, Some(Caller { number: 7, again: false }), true);
        let versions: Vec<u64> = (1..=SEQUENCES_KEPT as u64 + 1)
            .map(|number| alone.call(put(number, false), b"key", b"a").version)
            .collect();
        apply(&mut reader, &mut followers);
        assert_eq!(followers[0].compare(&alone.shard), Ok(()));
        let now_ns = alone.now_ns;
        let [follower] = followers;
        let (alone, mut reader) = taken_over(follower, now_ns);
        let mut world = World::new(alone, 1);
        world.alone.leave();
        world.alone.join(3, Some(Caller { number: 7, again: true }), true);
        let last = versions.len() as u64;
        let again = world.alone.call(put(last, true), b"key", b"a").version;
        assert_eq!(again, versions[versions.len() - 1], "answered as before");
        assert_eq!(world.alone.shard.counters().repeated, 1);
        assert_eq!(world.ask(put(1, true), b"key", b"a").0, Status::Forgotten);
        let next = world.alone.call(put(last + 1, false), b"key", b"b").version;
        assert!(next > again);
        let mut words = Vec::new();
        assert!(reader.read(&mut words, usize::MAX).unwrap() > 0);
    }

    #[test]
    fn records_that_are_not_the_next_or_make_no_sense_are_refused() {
        let (mut alone, mut reader) = followed();
        alone.call(RequestHead::new(Op::Put, 0, TableId(1)), b"key", b"value");
        let mut words = Vec::new();
        reader.read(&mut words, usize::MAX).unwrap();
        let (record, _) = Record::split(&words).unwrap().unwrap();
        let follower = || Follower::new(Box::new(PrivateSegments::default()), MEMORY);
        let refused = |record: Record<'_>| follower().apply(&record).unwrap_err().kind();
        let mut later = record;
        later.head.sequence = 2;
        assert_eq!(refused(later), ErrorKind::Damaged);
        for cut in 1..record.notes.len() {
            let mut short = record;
            short.notes = &record.notes[..cut];
            // A note that ends there may be all there is.
            let _ = follower().apply(&short);
        }
        let mut random = 1u64;
        for at in 0..record.notes.len() {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let mut notes = record.notes.to_vec();
            notes[at] ^= 1 << (random >> 58);
            let changed = Record { head: record.head, notes: &notes };
            let _ = follower().apply(&changed);
        }
        let segment = [2 << 41 | (8192 + 2), 2, MEMORY + (64 << 20)];
        assert_eq!(refused(Record { head: record.head, notes: &segment }), ErrorKind::Damaged);
        let unknown = [1 << 41 | (8192 + 99), 5];
        assert_eq!(refused(Record { head: record.head, notes: &unknown }), ErrorKind::Damaged);
    }

    /// What was superseded shortly before a shard was taken over was due at once in the next one: a view that
    /// held it, and came again, found it gone.
    #[test]
    fn a_view_may_come_again_where_a_shard_goes_on() {
        let (mut alone, mut reader) = followed();
        let mut followers = [Follower::new(Box::new(PrivateSegments::default()), MEMORY)];
        let first = build(&mut alone, TableId(2));
        alone.call(RequestHead { op: Op::Switch, ..first }, &[], &[]);
        let second = build(&mut alone, TableId(3));
        alone.call(RequestHead { op: Op::Switch, ..second }, &[], &[]);
        apply(&mut reader, &mut followers);
        let [follower] = followers;
        // Clocks of another process have gone on.
        let now_ns = alone.now_ns + 100 * VIEW_LEASE_NS;
        let (mut alone, _reader) = taken_over(follower, now_ns);
        alone.step();
        alone.call(RequestHead { op: Op::Hold, ..first }, &[], &[]);
        alone.now_ns += VIEW_LEASE_NS / 2;
        alone.step();
        alone.call(RequestHead { op: Op::Hold, ..first }, &[], &[]);
        while let Some(next) = alone.step().next_ns {
            alone.now_ns = alone.now_ns.max(next);
        }
        let mut world = World::new(alone, 1);
        assert_eq!(world.ask(RequestHead { op: Op::Hold, ..first }, &[], &[]).0, Status::Gone, "for a lease");
        assert_eq!(world.ask(RequestHead { op: Op::Hold, ..second }, &[], &[]).0, Status::Ok);
    }

    /// A generation that was being built when a shard was taken over has no builder any more, and never comes
    /// into force: nor do shards that know nothing of a generation say that it is complete.
    #[test]
    fn what_was_being_built_ends_where_a_shard_goes_on() {
        let (mut alone, mut reader) = followed();
        let mut followers = [Follower::new(Box::new(PrivateSegments::default()), MEMORY)];
        let built = build(&mut alone, TableId(2));
        apply(&mut reader, &mut followers);
        let [follower] = followers;
        let (alone, _reader) = taken_over(follower, alone.now_ns);
        let mut world = World::new(alone, 1);
        assert_eq!(world.ask(RequestHead { op: Op::Switch, ..built }, &[], &[]).0, Status::Gone);
        while let Some(next) = world.alone.step().next_ns {
            world.alone.now_ns = world.alone.now_ns.max(next);
        }
        assert_eq!(world.alone.shard.audit(), Ok(()));
        // The catalogue is another's on other shards, and so is the order that a generation begins.
        let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
        let second = ShardConfig { number: 1, ..Harness::config(2, MEMORY) };
        let shard = Shard::create(second, header.clone(), Box::new(segments.clone())).unwrap();
        let alone = Harness::of(shard, (header, segments), &Mailboxes::default());
        let answered = World::new(alone, 1).ask(RequestHead { op: Op::Switch, ..built }, &[], &[]).0;
        assert_eq!(answered, Status::Gone);
    }

    /// An order to drop a table that was under way when a server ended is in no record: what was in the table
    /// stayed on the other shards, for the next table of that number.
    #[test]
    fn shards_are_told_again_which_tables_were_dropped() {
        let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
        let mut config = Harness::config(2, MEMORY);
        config.image.keeps_journal = true;
        let mut shard = Shard::create(config.clone(), header.clone(), Box::new(segments.clone())).unwrap();
        let mut reader = shard.follow(Lag::Wait);
        let mut first = Harness::of(shard, (header, segments), &Mailboxes::default());
        let intern = RequestHead::new(Op::Intern, 0, TableId::CATALOGUE);
        let table = TableId(first.call(intern, b"t", &[]).version as u16);
        first.call(RequestHead::new(Op::Drop, 0, TableId::CATALOGUE), b"t", &[]);
        assert!(first.orders.iter().any(|order| matches!(order, Order::Drop { .. })), "and it gets lost");
        first.step();
        let mut followers = [Follower::new(Box::new(PrivateSegments::default()), MEMORY)];
        apply(&mut reader, &mut followers);
        let [follower] = followers;
        let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
        let shard = follower.into_shard(config, header.clone()).unwrap();
        let mut first = Harness::of(shard, (header, segments), &Mailboxes::default());
        first.step();
        let told = Order::Reconcile { dropped: vec![table] };
        assert_eq!(first.orders, std::slice::from_ref(&told));

        let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
        let second = ShardConfig { number: 1, ..Harness::config(2, MEMORY) };
        let shard = Shard::create(second, header.clone(), Box::new(segments.clone())).unwrap();
        let alone = Harness::of(shard, (header, segments), &Mailboxes::default());
        let mut world = World::new(alone, 1);
        let (put, get) = (RequestHead::new(Op::Put, 0, table), RequestHead::new(Op::Get, 0, table));
        assert_eq!(world.ask(put, b"key", b"of the table that was dropped").0, Status::Ok);
        world.alone.shard.handle_order(told.clone(), (0, 0));
        while let Some(next) = world.alone.step().next_ns {
            world.alone.now_ns = world.alone.now_ns.max(next);
        }
        assert_eq!(world.alone.orders, [Order::Dropped { generation: 0 }]);
        assert_eq!(world.alone.shard.counters().items, 0);
        assert_eq!(world.ask(get, b"key", &[]).0, Status::Gone);
        // Shard 0 has forgotten it, and this one was not told.
        world.alone.shard.handle_order(Order::Reconcile { dropped: Vec::new() }, (0, 0));
        assert_eq!(world.ask(get, b"key", &[]).0, Status::Absent);
        assert_eq!(world.ask(put, b"key", b"of another table").0, Status::Ok);
    }

    /// A shard whose followers make no room takes no more requests, loses nothing, and goes on when they do.
    /// Who begins to follow meanwhile begins with a whole record.
    #[test]
    fn a_shard_waits_for_those_who_count() {
        let (mut alone, mut reader) = followed();
        let mut followers = [Follower::new(Box::new(PrivateSegments::default()), MEMORY)];
        let value = vec![7; 16 << 10];
        let mut frame = FrameBuffer::default();
        let mut puts = 0;
        while !alone.shard.is_behind() {
            assert!(puts < 2000, "the stream has no end");
            alone.call(RequestHead::new(Op::Put, 0, TableId(1)), b"key", &value);
            puts += 1;
        }
        encode_request(&mut frame, RequestHead::new(Op::Put, 0, TableId(1)), b"other", b"value");
        // Nor does it do anything by itself: a mirror whose record had several epochs in it counted keys in memory
        // that was gone by then, and ended.
        let epoch = alone.shard.image().epoch();
        for _ in 0..10 {
            alone.now_ns += 2 * EPOCH_NS;
            let progress = alone.step();
            assert!(progress.requests == 0 && progress.next_ns.is_some());
        }
        assert_eq!(alone.shard.image().epoch(), epoch);
        assert_eq!(alone.send(&mut frame).requests, 0, "not taken");
        let mut late = alone.shard.follow(Lag::Wait);
        let sequence = alone.shard.sequence();
        let mut words = Vec::new();
        reader.read(&mut words, usize::MAX).unwrap();
        assert_eq!(alone.step().requests, 0, "what was left is told first");
        assert_eq!(alone.step().requests, 1);
        alone.answer().expect("an answer");
        reader.read(&mut words, usize::MAX).unwrap();
        apply_words(&words, &mut followers);
        assert_eq!(followers[0].compare(&alone.shard), Ok(()));
        let mut words = Vec::new();
        late.read(&mut words, usize::MAX).unwrap();
        let (record, _) = Record::split(&words).unwrap().unwrap();
        assert!(record.head.sequence > sequence, "{record:?}");
    }
}
