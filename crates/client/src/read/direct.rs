//! Reads in straight code, where memory is within reach of loads, and those are ordered.

use kelix_fabric::Direct;
use kelix_image::words::Words;
use kelix_image::{ItemFlags, ItemHeader, ItemLayout, ItemView, LargeBody, PlainItem};
use kelix_types::limits::READ_EPOCHS_MAX;
use kelix_types::{Guardian, Incarnation, TableId, Version, mark};

use super::{Landing, Verdict, Watermark, judge};

/// The common case of a read where memory is within reach of loads, and those are ordered: a plain item of
/// this key at the place that somebody guessed. `None`: it is not that case; nothing is lost, begin a
/// [`ReadOp`]. What `copy` makes of the item counts only if this returns it. Where an item must be committed,
/// one whose last move is not is left to the [`ReadOp`], which looks at its version.
///
/// A guess suffices, because the guardian is sampled before the rest: see docs/read-rule.md, "Lemma 5".
#[inline(always)]
pub(crate) fn take_direct<R>(
    (direct, watermark): (&Direct, &Watermark),
    term: u64,
    place: Words<'_>,
    (table, key): (TableId, &[u8]),
    copy: impl FnOnce(PlainItem<'_>) -> Option<R>,
) -> Option<(Incarnation, R)> {
    let before = direct.begin();
    let item = PlainItem::find(place, table, key).filter(|item| item.guardian().is_live())?;
    let copied = copy(item)?;
    let verdict = judge(item.guardian(), direct.sampled(before), READ_EPOCHS_MAX, term);
    let incarnation = item.guardian().incarnation();
    let counts = verdict == Verdict::Valid && watermark.covers_item(direct, incarnation);
    counts.then_some((incarnation, copied))
}

/// An item, whatever it has but a large value, in straight code: the one that a pointer names, or without an
/// incarnation that of a key at the place that somebody guessed. `landing` receives it; `None`: it is not
/// that case, or the pointer is stale.
#[inline(always)]
pub(crate) fn take_item(
    (direct, watermark): (&Direct, &Watermark),
    term: u64,
    slot: Words<'_>,
    incarnation: Option<Incarnation>,
    (table, key): (TableId, &[u8]),
    landing: &mut Landing,
) -> Option<Incarnation> {
    if slot.count() < 2 {
        return None;
    }
    let before = direct.begin();
    let (guardian, meta) = (Guardian(slot.load_acquire(0)), slot.load(1));
    let is_it = incarnation.map_or(guardian.is_live(), |incarnation| guardian == incarnation.live());
    // Most items are laid out like the one before. Then nothing is computed from what was just loaded, and
    // the processor, which guesses how branches go, is further before that has come.
    if meta != landing.layout.meta() {
        landing.layout = ItemLayout::from_word(meta)?;
    }
    let layout = landing.layout;
    let words = layout.words();
    if !is_it || layout.table() != table || layout.has_any(ItemFlags::LARGE) || words > slot.count() {
        return None;
    }
    if landing.item.len() != words {
        landing.item.resize(words, 0);
    }
    slot.copy_out(0, &mut landing.item);
    landing.item[0] = guardian.0;
    // The meta word was loaded twice, and is written once: if it is another now, this is no item any more.
    let valid = landing.item[1] == meta
        && landing.view().is_for(table, key)
        && judge(guardian, direct.sampled(before), READ_EPOCHS_MAX, term) == Verdict::Valid
        && watermark.covers_item(direct, guardian.incarnation());
    valid.then(|| guardian.incarnation())
}

/// A large value that was found straight: its item was valid, and what it says where the value stands.
pub(crate) struct FoundLarge<'a> {
    place: Words<'a>,
    guardian: Guardian,
    body: LargeBody,
    pub version: Version,
    pub item_bytes: usize,
}

/// A large value of this key at the place that somebody guessed. `slot` receives the item, which is judged
/// like a plain one.
pub(crate) fn find_large_direct<'a>(
    (direct, watermark): (&Direct, &Watermark),
    term: u64,
    place: Words<'a>,
    (table, key): (TableId, &[u8]),
    slot: &mut Vec<u64>,
) -> Option<FoundLarge<'a>> {
    let is_large = |flags: ItemFlags| flags.has(ItemFlags::LARGE) && !flags.has(ItemFlags::ATTRIBUTES);
    if place.count() < 2 {
        return None;
    }
    let before = direct.begin();
    let guardian = Guardian(place.load_acquire(0));
    let header = ItemHeader::from_word(place.load(1)).filter(|header| is_large(header.flags))?;
    let words = header.item_bytes().div_ceil(8);
    if words > place.count() {
        return None;
    }
    slot.resize(words, 0);
    place.copy_out(0, slot);
    slot[0] = guardian.0;
    let view = ItemView::new(slot).filter(|view| is_large(view.header().flags) && view.is_for(table, key))?;
    let (body, version) = (LargeBody::parse(view.body())?, view.version());
    let valid = judge(guardian, direct.sampled(before), READ_EPOCHS_MAX, term) == Verdict::Valid
        && watermark.covers_item(direct, guardian.incarnation());
    valid.then_some(FoundLarge { place, guardian, body, version, item_bytes: words * 8 })
}

impl FoundLarge<'_> {
    /// Length of the value.
    pub fn length(&self) -> usize {
        self.body.bytes as usize
    }

    /// Copies the value from a byte on into a buffer of the length of that, from where it stands; says in how
    /// many runs. `None`: it died meanwhile, and what was copied is another's, or it stands where this side
    /// has no memory.
    ///
    /// Time does not count: its runs are not given back while the guardian lives, so the pieces are good if
    /// it lives still when they are all here, as in [`ReadOp`].
    pub fn copy(&self, direct: &Direct, term: u64, from: u64, mut into: &mut [u8]) -> Option<usize> {
        let map = direct.map.view();
        let (runs, mut before) = self.body.part(from..from + into.len() as u64);
        for (run, bytes) in &runs {
            let (piece, rest) = into.split_at_mut((bytes - before) as usize);
            let words = map.words(*run, bytes.div_ceil(8) as usize)?;
            words.copy_bytes_out(before as usize, piece).then_some(())?;
            (into, before) = (rest, 0);
        }
        // The guardian is loaded behind the pieces, by the fences of the stamp, and the term behind the
        // guardian.
        direct.begin();
        let lives = Guardian(self.place.load_acquire(0)) == self.guardian;
        let in_force = direct.term() == term;
        if !lives {
            mark!("item died before it was looked at again");
        }
        (in_force && lives).then_some(runs.len())
    }
}
