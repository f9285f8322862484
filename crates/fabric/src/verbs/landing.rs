//! Where the words of READs land: registered memory, kept from READ to READ.

use std::io::Result;
use std::sync::Arc;

use kelix_types::limits::SESSION_READS_MAX;

use super::device::{Access, Domain, Region};
use super::ffi::Sge;

/// Words of a small buffer: a leaf, a bucket, most items.
const SMALL_WORDS: usize = 64;
/// Small buffers: for all READs under way, and as many that were given up.
const SMALL: usize = 2 * SESSION_READS_MAX;
/// Bytes of larger buffers that are kept for the next READ.
const KEPT_BYTES: usize = 4 << 20;

/// Where one READ lands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Buffer {
    /// One of the small ones.
    Small(usize),
    /// One of the larger ones.
    Large(usize),
}

/// The buffers of one session.
pub(super) struct Landing {
    domain: Arc<Domain>,
    small: Region,
    free: Vec<usize>,
    /// Larger ones, and whether they are in use; a place without one may be used again.
    large: Vec<Option<(Region, bool)>>,
}

impl Landing {
    pub fn new(domain: &Arc<Domain>) -> Result<Landing> {
        let small = Region::private(domain, SMALL * SMALL_WORDS, Access::Landing)?;
        Ok(Landing { domain: domain.clone(), small, free: (0..SMALL).rev().collect(), large: Vec::new() })
    }

    /// A buffer for so many words. `None`: there is no memory for it.
    pub fn take(&mut self, words: usize) -> Option<Buffer> {
        if words <= SMALL_WORDS {
            if let Some(index) = self.free.pop() {
                return Some(Buffer::Small(index));
            }
        }
        self.take_large(words)
    }

    #[cold]
    fn take_large(&mut self, words: usize) -> Option<Buffer> {
        let fits = |(region, busy): &(Region, bool)| {
            !busy && (words..=4 * words.max(SMALL_WORDS)).contains(&region.words().count())
        };
        if let Some(index) = self.large.iter().position(|kept| kept.as_ref().is_some_and(fits)) {
            self.large[index].as_mut().expect("just seen").1 = true;
            return Some(Buffer::Large(index));
        }
        let region = Region::private(&self.domain, words.next_power_of_two(), Access::Landing).ok()?;
        let index = self.large.iter().position(Option::is_none).unwrap_or(self.large.len());
        if index == self.large.len() {
            self.large.push(None);
        }
        self.large[index] = Some((region, true));
        Some(Buffer::Large(index))
    }

    /// Gives a buffer back that nothing lands in any more.
    pub fn give(&mut self, buffer: Buffer) {
        match buffer {
            Buffer::Small(index) => self.free.push(index),
            Buffer::Large(index) => {
                let bytes = |kept: &Option<(Region, bool)>| {
                    kept.as_ref().map_or(0, |(region, _)| region.words().count() * 8)
                };
                let kept: usize = self.large.iter().map(bytes).sum();
                let Some((_, busy)) = &mut self.large[index] else { return };
                *busy = false;
                if kept > KEPT_BYTES {
                    self.large[index] = None;
                }
            }
        }
    }

    fn region(&self, buffer: Buffer) -> (&Region, usize) {
        match buffer {
            Buffer::Small(index) => (&self.small, index * SMALL_WORDS),
            Buffer::Large(index) => (&self.large[index].as_ref().expect("a buffer in use").0, 0),
        }
    }

    /// The first words of a buffer, for a work request.
    pub fn part(&self, buffer: Buffer, words: usize) -> Sge {
        let (region, first) = self.region(buffer);
        region.part(first, words)
    }

    /// Copies what has landed.
    pub fn copy_out(&self, buffer: Buffer, into: &mut [u64]) {
        let (region, first) = self.region(buffer);
        region.words().copy_out(first, into);
    }
}
