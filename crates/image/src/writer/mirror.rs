//! The image of a mirror: the memory of another image, at the same places, which that one's writer changes,
//! and behind all that a part of its own, with an allocator of its own, for what a mirror makes itself.
//!
//! The epoch is one for both parts. It steps where the other image's did ([`Image::follow_header`]), between
//! the same stores, and also where the own part waits for that. More steps than the other image made do no
//! harm: what its writer reused had waited for two of them.

use kelix_types::limits::GRANULES_MAX;

use super::{Image, ImageConfig};
use crate::header::{Header, header_word};
use crate::map::Span;
use crate::segments::SegmentSource;
use crate::watermark::Committed;

/// The own part begins so many times further from the beginning than the other image reaches now, and no
/// nearer than this granule.
const AHEAD: usize = 4;
const OWN_FIRST_MIN: usize = 4096;

impl Image {
    /// An image that shows another one whose segments end before a granule. Its own part has no segments yet.
    pub fn mirror(config: ImageConfig, header: Span, source: Box<dyn SegmentSource>, end: usize) -> Image {
        let mut image = Image::without_segments(config, header, source);
        let own_first = (end * AHEAD).clamp(OWN_FIRST_MIN, GRANULES_MAX / 4 * 3);
        image.granules.resize(own_first.max(end), u32::MAX);
        image
    }

    /// Whether a segment of the other image has its place apart from the own part.
    pub fn has_room_for(&self, first: usize, bytes: u64) -> bool {
        self.map.has_room(first, bytes) && self.segments.first().is_none_or(|own| first < own.first_granule)
    }

    /// Shows a segment of the other image.
    pub fn show_segment(&mut self, first: usize, span: Span) {
        self.map.add(first, span);
        self.bump_segments_version();
    }

    /// A segment of the other image is no part of it any more.
    pub fn hide_segment(&mut self, first: usize) {
        self.map.remove(first);
        self.header.note_retired(first);
        self.bump_segments_version();
    }

    /// A word of the other image's header page has changed. `now_ns` is the time of this image's clock.
    ///
    /// SYNC: as in [`Image::advance_epoch`]: what is stored next may be into memory that this step set free.
    pub fn follow_header(&mut self, word: u64, value: u64, now_ns: u64) {
        const EPOCH: u64 = header_word::EPOCH as u64;
        const SHARED: [u64; 2] = [header_word::DIRECTORY as u64, header_word::GENERATIONS as u64];
        match word {
            EPOCH => self.step_epoch(|| now_ns),
            // What another release may tell besides is of no use here.
            _ if !SHARED.contains(&word) => {}
            word => self.header.words().publish(word as usize, value),
        }
    }

    /// Says up to where the other image's changes are here.
    ///
    /// SYNC: the publishing stores stay behind those of the changes.
    pub fn note_applied(&self, applied: Committed) {
        let words = self.header.words();
        words.publish(header_word::COMMITTED, applied.incarnation);
        words.publish(header_word::COMMITTED_RECORD, applied.record);
    }
}

/// What readers of a mirror find in its header pages.
impl Header {
    /// Says as of when all is known to be here, by the system's monotonic clock, and until when the image may
    /// be read without anything newer; 0: for ever.
    pub fn set_fresh(&self, fresh_ns: u64, until_ns: u64) {
        self.words().publish(header_word::FRESH, fresh_ns);
        self.words().publish(header_word::LEASE, until_ns);
    }
}
