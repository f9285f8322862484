//! The memory of a tree, and what serves it.

use kelix_fabric::Direct;
use kelix_fabric::shm::{AUTHORITY_BYTES, AUTHORITY_TERM, MemfdSegments};
use kelix_image::words::Words;
use kelix_image::{Header, MemoryMap, SegmentSource, Span};
use kelix_types::limits::{EPOCH_NS, GRANULE_BYTES};
use kelix_types::{Incarnation, Place};

use super::agent::AgentThread;
use super::grown::grown;
use super::node::{Child, LEAF_KEYS, LEAF_WORDS, Shape, leaf};
use super::{Here, Remote};

/// Term of the server.
pub(super) const TERM: u64 = 3;
/// Where the nodes begin: behind the granule of the header page.
const FIRST_GRANULE: usize = 1;

/// A tree in shared memory, and a thread that answers READs of it over TCP.
pub(crate) struct TreeServer {
    top: Top,
    /// Inner nodes of each level, from the lowest up.
    levels: Vec<usize>,
    header: Span,
    segments: MemfdSegments,
    authority: Span,
    agent: AgentThread,
}

/// What a client has to know to begin.
#[derive(Clone, Copy)]
pub(super) struct Top {
    pub shape: Shape,
    pub root: Child,
    /// Levels of inner nodes.
    pub levels: usize,
    /// Inner nodes, and leaves.
    pub nodes: usize,
    leaves: usize,
}

/// Words of a tree on their way into memory.
struct Writer<'a> {
    words: Words<'a>,
    used: usize,
}

impl Writer<'_> {
    /// Where nodes of so many words begin, of which there are so many.
    fn take(&mut self, nodes: usize, words: usize) -> Place {
        let place = Place(FIRST_GRANULE as u64 * GRANULE_BYTES + self.used as u64 * 8);
        self.used += nodes * words;
        place
    }

    fn write(&mut self, place: Place, node: &[u64]) {
        let first = (place.0 - FIRST_GRANULE as u64 * GRANULE_BYTES) / 8;
        self.words.copy_in(first as usize, node);
    }
}

impl TreeServer {
    /// Serves a tree into which these keys came in this order, with inner nodes of so many bytes.
    pub fn start(
        keys: &[u64],
        value_of: impl Fn(u64) -> u64,
        node_bytes: usize,
    ) -> Result<TreeServer, String> {
        let mut segments = MemfdSegments::default();
        let (top, levels) = plant(&mut segments, keys, value_of, Shape::of_bytes(node_bytes))?;
        let header = Span::private(Header::BYTES);
        Header::create(header.clone(), 1, 1, EPOCH_NS, TERM);
        let authority = Span::private(AUTHORITY_BYTES);
        authority.words().store(AUTHORITY_TERM, TERM);
        let agent = AgentThread::start(header.clone(), segments.clone(), authority.word(AUTHORITY_TERM))?;
        Ok(TreeServer { top, levels, header, segments, authority, agent })
    }

    /// A client in shared memory, with copies of inner nodes of so many bytes.
    pub fn here(&self, cache_bytes: usize) -> Result<Here, String> {
        let mut map = MemoryMap::default();
        map.add(0, self.header.clone());
        for segment in self.segments.list() {
            // As a client of another process would have it.
            let span = segment.memory.map(false).map_err(|error| error.to_string())?;
            map.add(segment.first, span);
        }
        let header = Header::open(self.header.clone()).map_err(|error| error.to_string())?;
        let direct = |map: MemoryMap| Direct::new(map.into(), &header, self.authority.word(AUTHORITY_TERM));
        Here::new(map, direct, self.top, cache_bytes)
    }

    /// A client over TCP.
    pub fn remote(&self, cache_bytes: usize) -> Result<Remote, String> {
        Remote::new(self.agent.connect()?, self.top, cache_bytes)
    }

    /// Bytes of all inner nodes.
    pub fn inner_bytes(&self) -> usize {
        self.top.nodes * self.top.shape.words * 8
    }

    /// Bytes of all inner nodes but those of so many levels from the lowest up.
    pub fn bytes_above(&self, lowest: usize) -> usize {
        self.levels.iter().skip(lowest).sum::<usize>() * self.top.shape.words * 8
    }

    /// The tree, in words.
    pub fn words(&self) -> String {
        let Top { shape, levels, nodes, leaves, .. } = self.top;
        format!("{leaves} leaves, {nodes} inner nodes of {} bytes in {levels} levels", shape.words * 8)
    }
}

/// Makes a segment and writes a tree into it, nodes of a level in the order in which they came to be.
fn plant(
    segments: &mut MemfdSegments,
    keys: &[u64],
    value_of: impl Fn(u64) -> u64,
    shape: Shape,
) -> Result<(Top, Vec<usize>), String> {
    let leaves = grown(keys, LEAF_KEYS);
    let mut inner = vec![grown(&leaves.firsts, shape.most)];
    while inner[inner.len() - 1].nodes.len() > 1 {
        inner.push(grown(&inner[inner.len() - 1].firsts, shape.most));
    }
    let nodes: usize = inner.iter().map(|level| level.nodes.len()).sum();
    let bytes = (leaves.nodes.len() * LEAF_WORDS + nodes * shape.words) as u64 * 8;
    let memory = segments.create(FIRST_GRANULE, bytes.next_multiple_of(4096));
    let memory = memory.map_err(|error| error.to_string())?;
    let mut writer = Writer { words: memory.words(), used: 0 };

    let mut incarnation = Incarnation::first_of_term(TERM);
    let mut live = || {
        incarnation = incarnation.next().expect("few nodes");
        incarnation.live()
    };
    let mut below = writer.take(leaves.nodes.len(), LEAF_WORDS);
    let mut ends = leaves.nodes.keys().skip(1).copied();
    for (first, (number, keys)) in &leaves.nodes {
        let entries: Vec<_> = keys.iter().map(|key| (*key, value_of(*key))).collect();
        let last = ends.next().map_or(u64::MAX - 1, |end| end - 1);
        let place = below.plus((number * LEAF_WORDS) as u64 * 8);
        writer.write(place, &leaf(live(), &entries, [*first, last]));
    }
    let (mut children, mut words) = (&leaves, LEAF_WORDS);
    for level in &inner {
        let here = writer.take(level.nodes.len(), shape.words);
        let child = |first: &u64| {
            let (number, _) = children.nodes[first];
            (*first, Child::at(below.plus((number * words) as u64 * 8)))
        };
        for (number, firsts) in level.nodes.values() {
            let node = shape.inner(live(), &firsts.iter().map(child).collect::<Vec<_>>());
            writer.write(here.plus((number * shape.words) as u64 * 8), &node);
        }
        (children, words, below) = (level, shape.words, here);
    }
    let top = Top { shape, root: Child::at(below), levels: inner.len(), nodes, leaves: leaves.nodes.len() };
    Ok((top, inner.iter().map(|level| level.nodes.len()).collect()))
}
