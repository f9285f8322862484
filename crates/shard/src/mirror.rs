//! A shard that shows what another one does, elsewhere: a mirror's.
//!
//! It follows the other's records, and its image is read meanwhile. Stores come in the order in which the
//! other shard made them, each single word published, and the epoch steps between the same stores as there:
//! so readers may believe what they may believe of the other image, as it was a little earlier
//! (docs/read-rule.md, "Mirrors"). Requests that read are answered between two records. Nothing else is
//! done by itself: no key expires, moves or goes before the other shard says so. Models are the mirror's own.
//!
//! 1. Records are applied whole, one after another, none left out ([`Follower::begin`]).
//! 2. What says how far a mirror is moves behind the record's stores ([`Image::note_applied`]).
//! 3. A mirror's own objects stand behind all that the other shard uses ([`Image::mirror`]).
//!
//! [`Image::note_applied`]: kelix_image::Image::note_applied
//! [`Image::mirror`]: kelix_image::Image::mirror

use std::collections::HashSet;

use kelix_image::{Image, SegmentSource, Span, Turn, event, header_word};
use kelix_index::{Index, OrderedIndex};
use kelix_log::Record;
use kelix_types::limits::{EPOCH_NS, GRANULE_BYTES};
use kelix_types::{Error, ErrorKind, Result, mark};

use crate::datasets::tables_of;
use crate::follower::Follower;
use crate::heard::Heard;
use crate::shard::{Now, ShardConfig};
use crate::store::Store;

/// What a mirror knows of the shard that it shows.
pub(crate) struct Mirrored {
    follower: Follower,
    /// What became of leaves by a record.
    turns: Vec<Turn>,
    /// Models find room when memory comes back, if they found none.
    training_again_ns: u64,
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, "follow a shard", what.to_string())
}

impl Mirrored {
    /// Makes something to be read of what somebody has followed so far, in an image whose header page stands
    /// in `header` and whose own part has its segments from `source`.
    pub fn begin(
        mut follower: Follower,
        config: ShardConfig,
        header: Span,
        source: Box<dyn SegmentSource>,
    ) -> Result<(Store, Mirrored)> {
        let ends = follower.replica().segments();
        let ends = ends.map(|(first, span)| first + span.bytes().div_ceil(GRANULE_BYTES) as usize);
        let end = ends.max().unwrap_or(1);
        let mut image = Image::mirror(config.image, header, source, end);
        for (first, span) in follower.replica().segments() {
            image.show_segment(first, span.clone());
        }
        follower.take_stock()?;
        image.follow_header(header_word::DIRECTORY as u64, follower.replica().directory(), 0);
        let mut index = Index::restore(&image).ok_or_else(|| wrong("its index makes no sense"))?;
        follower.check_index(&index, &image)?;
        let ordered = follower.take_ordered(&image)?;
        match index.restore_ordered(&mut image, ordered) {
            Some(Ok(())) => {}
            Some(Err(_)) => return Err(no_room()),
            None => return Err(wrong("its ordered tables make no sense")),
        }
        image.note_applied(follower.end());
        image.serve();
        let heard = config.is_cache.then(Heard::new);
        let mut store = Store::new(ShardConfig { is_cache: false, ..config }, image, index);
        store.heard = heard;
        store.keys.set(follower.keys());
        store.tables = tables_of(follower.kept()).ok_or_else(senseless_kept)?;
        follower.watch();
        Ok((store, Mirrored { follower, turns: Vec::new(), training_again_ns: 0 }))
    }

    /// What was followed so far.
    pub fn follower(&self) -> &Follower {
        &self.follower
    }

    /// Gives up what was followed, with the index of it, to be shown or gone on with in another image.
    pub fn into_follower(self, index: Index) -> Follower {
        self.follower.with_ordered(index.into_ordered())
    }

    /// Applies the next record of the shard that is shown. An error: it is not the next one, makes no sense,
    /// or finds no room, and this mirror is of no use any more.
    pub fn apply(&mut self, store: &mut Store, record: &Record<'_>, now_ns: u64) -> Result<()> {
        let image = &mut store.image;
        self.follower.apply_and(record, |replica, kind, words| {
            match (kind, words) {
                (event::HEADER, &[word, value]) => image.follow_header(word, value, now_ns),
                (event::SEGMENT, &[first, bytes]) => {
                    if !image.has_room_for(first as usize, bytes) {
                        return Err(wrong("it has grown to where this mirror has its models"));
                    }
                    let span = replica.segments().find(|(of, _)| *of == first as usize);
                    let (first, span) = span.ok_or_else(|| wrong("a segment"))?;
                    image.show_segment(first, span.clone());
                }
                (event::RETIRED, &[first]) => image.hide_segment(first as usize),
                (event::KEPT, words) => store.tables = tables_of(words).ok_or_else(senseless_kept)?,
                _ => {}
            }
            Ok(())
        })?;
        mark!("record applied to a mirror");
        store.keys.set(self.follower.keys());
        self.follower.take_turns(&mut self.turns);
        count(store, &self.turns);
        match store.index.follow(&mut store.image, &self.turns) {
            Some(Ok(())) => {}
            Some(Err(_)) => return Err(no_room()),
            None => return Err(wrong("leaves of ordered tables make no sense")),
        }
        store.image.note_applied(self.follower.end());
        Ok(())
    }

    /// Does what a mirror has to do by itself, and says when there is something to do again: trains models,
    /// and steps the epoch for those that were replaced.
    pub fn upkeep(&mut self, store: &mut Store, now: Now, clock: impl FnOnce() -> u64) -> Option<u64> {
        let mut training_due = Some(self.training_again_ns).filter(|due| *due > now.monotonic_ns);
        if training_due.is_none() {
            training_due = match store.index.maintain(&mut store.image) {
                Ok(more) => more.then_some(now.monotonic_ns),
                Err(_) => Some(now.monotonic_ns + EPOCH_NS),
            };
            self.training_again_ns = training_due.unwrap_or(0);
        }
        store.image.advance_epoch(now.monotonic_ns, clock);
        [store.image.epoch_due(), training_due].into_iter().flatten().min()
    }
}

fn senseless_kept() -> Error {
    wrong("what it keeps of its tables makes no sense")
}

fn no_room() -> Error {
    let context = "there is no memory for the models of its ordered tables";
    Error::new(ErrorKind::OutOfMemory, "follow a shard", context)
}

/// Counts the keys of ordered tables that came and went.
fn count(store: &mut Store, turns: &[Turn]) {
    let mut born = HashSet::new();
    born.extend(turns.iter().filter_map(|turn| match *turn {
        Turn::Born(place) => Some(place),
        _ => None,
    }));
    for turn in turns {
        let (leaf, more) = match *turn {
            // Those of a leaf that has come are counted as they are now, and of one that has gone, too, those
            // that it had then; of one that did both none was ever counted.
            Turn::Born(place) => {
                let lives = OrderedIndex::leaf_at(&store.image, place).is_some_and(|(_, live)| live);
                (place, if lives { OrderedIndex::keys_of_leaf(&store.image, place) } else { 0 })
            }
            Turn::Died(place) if !born.contains(&place) => {
                (place, -OrderedIndex::keys_of_leaf(&store.image, place))
            }
            Turn::Key(place, came) if !born.contains(&place) => (place, if came { 1 } else { -1 }),
            Turn::Died(_) | Turn::Key(..) => continue,
        };
        if let Some((table, _)) = OrderedIndex::leaf_at(&store.image, leaf) {
            store.index.count_keys(table, more);
        }
    }
}

#[cfg(test)]
mod tests {
    use kelix_image::{Header, PrivateSegments};
    use kelix_log::{Lag, Reader};
    use kelix_types::TableId;
    use kelix_types::limits::SHARD_BYTES_MIN;
    use kelix_wire::mailboxes::Mailboxes;
    use kelix_wire::{FrameBuffer, Op, Reply, RequestHead, Status, encode_request};

    use super::*;
    use crate::Shard;
    use crate::harness::Harness;
    use crate::restore::tests::{MEMORY, World};

    /// A shard that is followed from its beginning.
    fn followed() -> (Harness, Reader) {
        let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
        let mut config = Harness::config(1, MEMORY);
        config.image.keeps_journal = true;
        let mut shard = Shard::create(config, header.clone(), Box::new(segments.clone())).unwrap();
        let reader = shard.follow(Lag::Wait);
        (Harness::of(shard, (header, segments), &Mailboxes::default()), reader)
    }

    /// A mirror of what somebody has followed, whose segments are these.
    fn mirror(follower: Follower, segments: PrivateSegments) -> Harness {
        let header = Span::private(Header::BYTES);
        let mut config = Harness::config(1, MEMORY);
        config.image.image_id = 2;
        config.image.segment_bytes_first = SHARD_BYTES_MIN;
        let shard = Shard::mirror(follower, config, header.clone(), Box::new(segments.clone())).unwrap();
        Harness::of(shard, (header, segments), &Mailboxes::default())
    }

    fn apply(reader: &mut Reader, mirror: &mut Harness) {
        let mut words = Vec::new();
        reader.read(&mut words, usize::MAX).unwrap();
        let mut rest = &words[..];
        while let Some((record, behind)) = Record::split(rest).unwrap() {
            mirror.shard.apply(&record, mirror.now_ns).unwrap();
            rest = behind;
        }
        assert!(rest.is_empty());
    }

    /// The mirror has what its shard has, of all kinds of tables, while segments come and are emptied and go,
    /// leaves split and become one, values come in pieces; and counts as that does.
    #[test]
    fn a_mirror_answers_as_its_shard_does() {
        for seed in 1..4 {
            let (alone, mut reader) = followed();
            let mut world = World::new(alone, seed);
            for _ in 0..500 * seed {
                world.act();
            }
            let segments = PrivateSegments::default();
            let mut follower = Follower::new(Box::new(segments.clone()), MEMORY);
            let mut words = Vec::new();
            reader.read(&mut words, usize::MAX).unwrap();
            assert!(follower.apply_all(&words).unwrap().is_empty());
            let mut mirror = mirror(follower, segments);
            for action in 0..8000 {
                world.act();
                if world.below(40) == 0 {
                    world.alone.pass_epoch();
                }
                if world.below(3) > 0 {
                    apply(&mut reader, &mut mirror);
                }
                mirror.now_ns = mirror.now_ns.max(world.alone.now_ns);
                mirror.step();
                if action % 2000 == 1999 {
                    apply(&mut reader, &mut mirror);
                    let follower = mirror.shard.follower().expect("a mirror");
                    assert_eq!(follower.compare(&world.alone.shard), Ok(()), "action {action}");
                    let counts = |shard: &Shard| -> Vec<_> {
                        let counts = shard.ordered_counts();
                        counts.map(|(table, counts, _)| (table, counts.keys, counts.leaves)).collect()
                    };
                    assert_eq!(counts(&mirror.shard), counts(&world.alone.shard));
                    mirror = world.check_on(mirror);
                }
            }
            // It goes on with what the mirror has, or with that and some records behind it.
            let mut follower = mirror.shard.into_follower().expect("a mirror");
            if seed > 1 {
                (0..200).for_each(|_| world.act());
                let mut words = Vec::new();
                reader.read(&mut words, usize::MAX).unwrap();
                assert!(follower.apply_all(&words).unwrap().is_empty());
            }
            let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
            let shard = follower.into_shard(Harness::config(1, MEMORY), header.clone()).unwrap();
            let now_ns = world.alone.now_ns;
            world.alone = Harness::of(shard, (header, segments), &Mailboxes::default());
            world.alone.now_ns = now_ns;
            world.check();
            (0..2000).for_each(|_| world.act());
            world.check();
        }
    }

    /// A request that would change something is refused, whoever asks.
    #[test]
    fn a_mirror_changes_nothing_by_itself() {
        let (mut alone, mut reader) = followed();
        alone.call(RequestHead::new(Op::Put, 0, TableId(1)), b"key", b"value");
        let segments = PrivateSegments::default();
        let mut follower = Follower::new(Box::new(segments.clone()), MEMORY);
        let mut words = Vec::new();
        reader.read(&mut words, usize::MAX).unwrap();
        follower.apply_all(&words).unwrap();
        let mut world = World::new(mirror(follower, segments), 1);
        let head = |op| RequestHead::new(op, 0, TableId(1));
        for op in [Op::Put, Op::Delete, Op::Intern, Op::Drop, Op::RepairLink, Op::Build, Op::Hold] {
            assert_eq!(world.ask(head(op), b"key", b"other").0, Status::Denied, "{op:?}");
        }
        assert_eq!(world.ask(head(Op::Get), b"key", &[]), (Status::Ok, b"value".to_vec()));
        assert_eq!(world.ask(head(Op::Get), b"other", &[]).0, Status::Absent);
        assert_eq!(world.alone.shard.audit(), Ok(()));
    }

    /// A table that is dropped is gone on the mirror, by the record that says so.
    #[test]
    fn tables_go_with_their_record() {
        let (mut alone, mut reader) = followed();
        let intern = RequestHead::new(Op::Intern, 0, TableId::CATALOGUE);
        let table = TableId(alone.call(intern, b"people", &[]).version as u16);
        alone.call(RequestHead::new(Op::Put, 0, table), b"key", b"value");
        let segments = PrivateSegments::default();
        let mut mirror = {
            let mut follower = Follower::new(Box::new(segments.clone()), MEMORY);
            let mut words = Vec::new();
            reader.read(&mut words, usize::MAX).unwrap();
            follower.apply_all(&words).unwrap();
            mirror(follower, segments)
        };
        let get = |mirror: &mut Harness| {
            let mut frame = FrameBuffer::default();
            encode_request(&mut frame, RequestHead::new(Op::Get, 0, table), b"key", &[]);
            mirror.send(&mut frame);
            Reply::parse(&mirror.answer().expect("an answer")).expect("a reply").head.status
        };
        assert_eq!(get(&mut mirror), Status::Ok);
        alone.call(RequestHead::new(Op::Drop, 0, TableId::CATALOGUE), b"people", &[]);
        assert_eq!(get(&mut mirror), Status::Ok, "it does not know yet");
        apply(&mut reader, &mut mirror);
        assert_eq!(get(&mut mirror), Status::Gone);
        while let Some(next) = alone.step().next_ns {
            alone.now_ns = alone.now_ns.max(next);
        }
        apply(&mut reader, &mut mirror);
        assert_eq!((mirror.shard.counters().items, mirror.shard.audit()), (0, Ok(())));
    }
}
