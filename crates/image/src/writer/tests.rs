//! What is given out and taken back, when, and what an emptied segment leaves behind.

use super::*;
use crate::PrivateSegments;

const L: u64 = limits::EPOCH_NS;

pub(super) fn image(memory_bytes: u64) -> Image {
    image_of(memory_bytes, L)
}

fn image_of(memory_bytes: u64, epoch_ns: u64) -> Image {
    let config = ImageConfig {
        image_id: 1,
        hash_seed: 2,
        term: 1,
        incarnation: Incarnation::first_of_term(1),
        epoch_ns,
        epoch_ns_usual: L,
        memory_bytes,
        segment_bytes_first: 4 << 20,
        segment_bytes_max: 8 << 20,
        keeps_journal: false,
    };
    Image::create(config, Span::private(Header::BYTES), Box::new(PrivateSegments::default())).unwrap()
}

pub(super) fn pass_epochs(image: &mut Image, count: u64) {
    for _ in 0..count {
        let due = image.epoch_step_ns + L;
        image.advance_epoch(due, || due);
    }
}

fn fill(image: &mut Image, bytes: usize) -> Vec<Location> {
    std::iter::from_fn(|| image.allocate_item(bytes).ok()).collect()
}

#[test]
fn epochs_follow_sooner_while_there_is_a_hurry() {
    const SOON: u64 = L / 25;
    let mut image = image_of(4 << 20, SOON);
    let held = fill(&mut image, 4096);
    let mut now = 10 * L;
    let mut steps_after = |image: &mut Image, distance: u64| {
        let due = image.epoch_due().expect("something waits");
        let before = image.epoch();
        image.advance_epoch(due - 1, || unreachable!("too soon"));
        image.advance_epoch(due, || due);
        assert_eq!((image.epoch(), due), (before + 1, now + distance));
        now = due;
    };
    // A write waits, so for two epochs.
    image.epoch_step_ns = 10 * L;
    image.release_item(held[0]);
    image.hurry();
    steps_after(&mut image, SOON);
    image.release_item(held[1]);
    steps_after(&mut image, SOON);
    image.release_item(held[2]);
    steps_after(&mut image, L);
    // Much is in quarantine.
    held[3..23].iter().for_each(|location| image.release_item(*location));
    steps_after(&mut image, SOON);
    steps_after(&mut image, SOON);
    image.release_item(held[23]);
    steps_after(&mut image, L);
}

/// The other form of check (b) rests on that.
#[test]
fn an_epoch_lasts_from_when_it_could_be_seen() {
    let mut image = image(4 << 20);
    let location = image.allocate_item(100).unwrap();
    image.release_item(location);
    // Stopped for 2 L between a look at the clock and the step.
    assert_eq!(image.advance_epoch(L, || 3 * L), Some(4 * L));
    let stepped = image.epoch();
    image.advance_epoch(4 * L - 1, || 4 * L - 1);
    assert_eq!(image.epoch(), stepped);
    image.advance_epoch(4 * L, || 4 * L);
    assert_eq!(image.epoch(), stepped + 1);
}

#[test]
fn a_dead_slot_is_reused_after_two_epochs_and_not_before() {
    let mut image = image(4 << 20);
    let all = fill(&mut image, 4096);
    assert_eq!(image.allocate_item(4096), Err(NoRoom { wait: true }));
    image.release_item(all[0]);
    assert_eq!(image.allocate_item(4096), Err(NoRoom { wait: true }));
    assert_eq!(image.memory_use().quarantined, 4096);
    assert_eq!(image.advance_epoch(L, || L), Some(2 * L));
    assert_eq!(image.advance_epoch(2 * L - 1, || 2 * L - 1), Some(2 * L));
    assert!(image.allocate_item(4096).is_err());
    assert_eq!(image.advance_epoch(2 * L, || 2 * L), None);
    assert_eq!(image.allocate_item(4096), Ok(all[0]));
    assert_eq!(image.memory_use().quarantined, 0);
    assert_eq!(image.advance_epoch(9 * L, || 9 * L), None, "nothing waits, so the epoch stands still");
    assert_eq!(image.epoch(), 3);
}

#[test]
fn runs_return_to_any_use_cleared() {
    let mut image = image(4 << 20);
    let (place, bytes) = image.allocate_run(64 << 20).unwrap();
    assert_eq!(bytes, 4 << 20);
    image.words(place, 1).store(0, u64::MAX);
    assert!(image.allocate_item(64).is_err());
    image.release_run(place, bytes);
    image.advance_epoch(L, || L);
    image.advance_epoch(2 * L, || 2 * L);
    let item = image.allocate_item(64).unwrap();
    assert_eq!(image.slot(item).load(0), 0, "a slab page must begin with dead guardians");
}

/// The newest slab may end where all memory ends.
#[test]
fn a_slab_begins_while_a_segment_is_emptied_and_the_last_one_is_used_up() {
    let config = ImageConfig {
        memory_bytes: 2 * GRANULE_BYTES,
        segment_bytes_first: GRANULE_BYTES,
        segment_bytes_max: GRANULE_BYTES,
        ..image(4 << 20).config
    };
    let source = Box::new(PrivateSegments::default());
    let mut image = Image::create(config, Span::private(Header::BYTES), source).unwrap();
    let all = fill(&mut image, 4096);
    assert!(image.begin_to_empty(all[0].place().granule()));
    assert_eq!(image.allocate_item(4096), Err(NoRoom { wait: true }));
}

#[test]
fn a_sparse_segment_is_emptied_retired_and_its_offsets_never_return() {
    let mut image = image(16 << 20);
    let all = fill(&mut image, 60_000);
    let keep = all[0];
    all[1..].iter().for_each(|location| image.release_item(*location));
    image.advance_epoch(L, || L);
    image.advance_epoch(2 * L, || 2 * L);
    assert!(image.begin_evacuation_for_write(50, image.openings()));
    let mut moved = Vec::new();
    while let Some((kind, first, slots)) = image.next_leaving_slab() {
        for slot in 0..slots {
            let place = first.plus(slot as u64 * kind.slot_bytes());
            if place == keep.place() {
                moved.push(image.allocate_item(60_000).unwrap());
                image.release(kind, place);
            }
        }
    }
    let version = image.header().segments_version();
    let segments: Vec<_> = image.segments().collect();
    assert!(image.finish_evacuation());
    image.advance_epoch(3 * L, || 3 * L);
    image.advance_epoch(4 * L, || 4 * L);
    assert!(!image.is_evacuating() && image.header().segments_version() == version + 1);
    let gone: Vec<_> = segments.into_iter().filter(|s| !image.segments().any(|t| t == *s)).collect();
    assert_eq!(gone.len(), 1);
    let is_retired = |segment: &SegmentSummary| image.header().is_retired(segment.first_granule);
    assert!(is_retired(&gone[0]) && !image.segments().any(|segment| is_retired(&segment)));
    let start = gone[0].first_granule as u64 * GRANULE_BYTES;
    assert!(image.map().words(Place(start), 1).is_none());
    // What is counted by kind goes with the slabs.
    let kept = *moved.last().unwrap_or(&keep);
    let kind = Kind::item(kept.class());
    image.audit(&InUse { slots: vec![(kind, kept.place())], runs: Vec::new() }).unwrap();
    let uses: Vec<KindUse> = image.kind_uses().collect();
    assert_eq!(uses, [KindUse { kind, slots: 1, slab_bytes: image.memory_use().pages }]);
    assert_eq!(image.memory_use().live, kind.slot_bytes());
    let again = fill(&mut image, 128);
    assert!(again.iter().all(|l| !(start..start + gone[0].bytes).contains(&l.place().0)));
}

/// An image of segments in which a quarter of the slots is used, and no page is free.
fn sparse() -> Image {
    let mut image = image(16 << 20);
    let all = fill(&mut image, 60_000);
    let gone = all.iter().enumerate().filter(|(index, _)| index % 4 != 0);
    gone.for_each(|(_, location)| image.release_item(*location));
    image.advance_epoch(L, || L);
    image.advance_epoch(2 * L, || 2 * L);
    image
}

#[test]
fn a_slot_that_nobody_saw_needs_no_quarantine() {
    let mut image = image(4 << 20);
    let all = fill(&mut image, 4096);
    image.release_item(all[0]);
    image.advance_epoch(L, || L);
    image.release_item(all[1]);
    image.advance_epoch(2 * L, || 2 * L);
    for _ in 0..3 {
        assert_eq!(image.allocate_item(4096), Ok(all[0]));
        image.discard_item(all[0]);
        assert_eq!(image.memory_use().quarantined, 4096, "that of the other");
    }
}

#[test]
fn each_segment_is_chosen_once_for_a_write() {
    let mut image = sparse();
    let (segments, openings) = (image.segments().count(), image.openings());
    assert!(image.allocate_run(1 << 20).is_err());
    for _ in 0..segments {
        assert!(image.begin_evacuation_for_write(75, openings));
        assert!(!image.begin_evacuation_for_write(75, openings), "one at a time");
        image.abandon_evacuation();
    }
    assert!(!image.begin_evacuation_for_write(75, openings));
    assert!(image.begin_evacuation_for_write(75, image.openings()), "for a write that comes now");
    image.abandon_evacuation();
    assert!(image.allocate_run(13 << 20).is_err());
    assert!(!image.begin_evacuation_for_write(75, image.openings()), "more than all would give back");
}

#[test]
fn only_what_leaves_may_exceed_the_limit_before_the_segment_is_empty() {
    let mut image = sparse();
    assert!(image.allocate_run(1 << 20).is_err());
    assert!(image.begin_evacuation_for_write(75, image.openings()));
    assert!(image.allocate_run(1 << 20).is_err());
    image.set_moving(true);
    assert!(image.allocate_run(1 << 20).is_ok());
    let now = image.memory_use();
    assert!(now.segments > now.limit);
    // Others took pages of the new segment, and with them the room for what had yet to leave.
    image.set_moving(false);
    assert!(image.allocate_run(1 << 20).is_err());
    image.set_moving(true);
    assert!(image.allocate_run(1 << 20).is_ok());
    image.set_moving(false);
    image.abandon_evacuation();
    assert!(image.allocate_run(1 << 20).is_ok());
}

/// The slots of a slab that had yet to be used when its segment was to be emptied, and was not, were used
/// later and not looked at when the segment was to be emptied again.
#[test]
fn slots_used_after_an_emptying_was_given_up_are_found_by_the_next() {
    let mut image = image(16 << 20);
    let kept = image.allocate_item(4096).unwrap();
    image.advance_epoch(L, || L);
    fill(&mut image, 60_000).iter().for_each(|location| image.release_item(*location));
    image.advance_epoch(2 * L, || 2 * L);
    image.advance_epoch(3 * L, || 3 * L);
    let audit = |image: &Image, used: &[Location]| {
        let slots = used.iter().map(|it| (Kind::item(it.class()), it.place())).collect();
        image.audit(&InUse { slots, runs: Vec::new() }).unwrap();
    };
    let openings = image.openings();
    assert!(image.begin_evacuation_for_write(75, openings));
    while !image.is_leaving(kept.place()) {
        image.abandon_evacuation();
        assert!(image.begin_evacuation_for_write(75, openings), "each is chosen once");
    }
    assert!(image.allocate_item(4096).is_err(), "no page is free elsewhere");
    audit(&image, &[kept]);
    image.abandon_evacuation();
    let back: Vec<Location> = fill(&mut image, 4096);
    audit(&image, &[&[kept], &back[..]].concat());
    let slab = back.iter().filter(|location| location.place().0 >> 16 == kept.place().0 >> 16).count();
    assert_eq!(slab, 15, "the slots beside the first one");
}

#[test]
fn incarnations_never_repeat_even_when_the_counter_ends() {
    let mut image = image(4 << 20);
    image.incarnation = Incarnation((2 << 32) - 2);
    let names: Vec<u64> = (0..3).map(|_| image.next_incarnation().0).collect();
    assert_eq!(names, [(2 << 32) - 1, 2 << 32, (2 << 32) + 1]);
}
