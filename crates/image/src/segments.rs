//! Where segments' memory comes from.

use std::sync::{Arc, Mutex};

use kelix_types::{Error, ErrorKind, Result};

use crate::map::{MemoryMap, Span};

/// Where segments' memory comes from: memfds in production, [`PrivateSegments`] in tests and simulation.
pub trait SegmentSource: Send {
    /// Zeroed memory for the segment that begins at granule `first`.
    fn create(&mut self, first: usize, bytes: u64) -> Result<Span>;
    /// The segment is no longer part of the image.
    fn retired(&mut self, first: usize);
}

/// Segments in private memory. A copy shows the same segments, so that others of this process can map them.
#[derive(Clone, Default)]
pub struct PrivateSegments(Arc<Mutex<Vec<(usize, Span)>>>);

impl PrivateSegments {
    /// The memory of the image whose header page is `header`, as it is now.
    pub fn map(&self, header: &Span) -> Arc<MemoryMap> {
        let mut map = MemoryMap::default();
        map.add(0, header.clone());
        let segments = self.0.lock().expect("nobody panicked with it");
        segments.iter().for_each(|(first, span)| map.add(*first, span.clone()));
        Arc::new(map)
    }
}

impl SegmentSource for PrivateSegments {
    fn create(&mut self, first: usize, bytes: u64) -> Result<Span> {
        let context = || format!("no memory for a segment of {bytes} bytes; see `ulimit -v`");
        let span =
            Span::try_private(bytes).ok_or_else(|| Error::new(ErrorKind::System, "map memory", context()))?;
        self.0.lock().expect("nobody panicked with it").push((first, span.clone()));
        Ok(span)
    }

    fn retired(&mut self, first: usize) {
        self.0.lock().expect("nobody panicked with it").retain(|(start, _)| *start != first);
    }
}
