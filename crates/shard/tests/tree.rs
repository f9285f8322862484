//! A thousand mirrors in three levels, as a simulation: production code takes the streams, cuts them, tells
//! records once more and applies them; which mirror does something next, and how much, chance decides.
//!
//! A client writes to two shards in turn, each write behind the answer of the one before. So no mirror, on
//! whichever level, may have a write without all that were answered before it, wherever all up to a cut is
//! applied. Mirrors are lost and copy anew, those with all that follow them, too. In the end each has the
//! root's memory, word for word, and the root has told its own children only.
//!
//! `KELIX_TEST_SEED` chooses what happens.

use kelix_image::{Header, PrivateSegments, Span};
use kelix_log::{Gatherer, LogControl, Record};
use kelix_shard::harness::Harness;
use kelix_shard::{Follower, Now, Shard, ShardConfig, Streams};
use kelix_types::TableId;
use kelix_types::limits::SHARD_BYTES_MIN;
use kelix_wire::mailboxes::Mailboxes;
use kelix_wire::{Op, RequestHead};

const SHARDS: usize = 2;
/// Mirrors that follow the root, mirrors that follow the first ones, and all mirrors.
const FIRST: usize = 10;
const SECOND: usize = 90;
const MIRRORS: usize = 1000;
const WRITES: u64 = 600;
const KEYS: u64 = 50;
/// Mirrors that do something, on average, for each write.
const TURNS: u64 = 40;
/// One in so many turns a mirror is lost, and copies anew.
const TURNS_A_LOSS: u64 = 1000;
/// Words of records of a turn.
const TURN_WORDS: u64 = 400;
/// Words of memory that are copied at once; those that are zero are left out.
const PIECE: usize = 512;

struct Random(u64);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % count
    }
}

fn config(number: usize, image_id: u64) -> ShardConfig {
    let mut config = Harness::config(SHARDS, SHARD_BYTES_MIN);
    (config.number, config.image.image_id) = (number, image_id);
    config
}

/// One shard of a mirror: those that nobody follows need no image.
enum Shadow {
    Followed(Box<Shard>),
    Alone(Box<Follower>),
}

impl Shadow {
    fn follower(&self) -> &Follower {
        match self {
            Shadow::Followed(shard) => shard.follower().expect("a mirror"),
            Shadow::Alone(follower) => follower,
        }
    }

    fn apply(&mut self, record: &Record<'_>) -> kelix_types::Result<()> {
        match self {
            Shadow::Followed(shard) => shard.apply(record, 1),
            Shadow::Alone(follower) => follower.apply(record),
        }
    }
}

/// A mirror.
struct Node {
    /// None: the root.
    parent: Option<usize>,
    shadows: Vec<Shadow>,
    gatherers: Vec<Gatherer>,
    streams: Streams,
    /// Of what it tells.
    batches: LogControl,
    is_retelling: bool,
    /// All that was copied is whole behind such a cut: its memory may have been copied between two.
    whole_at: Option<Vec<u64>>,
    /// Words that it was told.
    told: u64,
}

/// What there is of the root.
struct Root {
    shards: Vec<Harness>,
    batches: LogControl,
    /// The shard of each write, and the record that has it.
    writes: Vec<(usize, u64)>,
}

impl Root {
    fn new() -> Root {
        let shards = (0..SHARDS).map(|number| {
            let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
            let mut config = config(number, 1);
            config.image.keeps_journal = true;
            let shard = Shard::create(config, header.clone(), Box::new(segments.clone()));
            Harness::of(shard.expect("an empty shard"), (header, segments), &Mailboxes::default())
        });
        Root { shards: shards.collect(), batches: LogControl::new(), writes: Vec::new() }
    }

    fn write(&mut self) {
        let number = self.writes.len() as u64;
        let shard = &mut self.shards[number as usize % SHARDS];
        let (key, value) = ((number % KEYS).to_be_bytes(), number.to_le_bytes());
        shard.call(RequestHead::new(Op::Put, 0, TableId(1)), &key, &value);
        self.writes.push((number as usize % SHARDS, shard.shard.sequence()));
    }

    /// The first write that is missing though one is there that was called behind its answer.
    fn missing(&self, applied: impl Fn(usize) -> u64) -> Option<usize> {
        let is_there = |(shard, record): &(usize, u64)| applied(*shard) >= *record;
        let last = self.writes.iter().rposition(is_there)?;
        self.writes[..last].iter().position(|write| !is_there(write))
    }
}

/// A copy of a shard's memory, and what is taken of its stream from there on.
fn copy(shard: &mut Shard, batches: &LogControl, segments: &PrivateSegments) -> (Follower, Gatherer) {
    let reader = shard.feed(batches);
    let last = kelix_image::Committed { record: shard.sequence(), ..shard.end() };
    let gatherer = Gatherer::new(reader, batches, last);
    let (source, books, kept) = (Box::new(segments.clone()), shard.books(), shard.kept());
    let follower = Follower::of_books(source, u64::MAX / 2, (&books, &kept), shard.sequence());
    let mut follower = follower.expect("books of a shard");
    let map = shard.follower().map_or_else(|| shard.image().map(), Follower::map);
    for segment in &books.segments {
        let first = kelix_types::Place(segment.first_granule * kelix_types::limits::GRANULE_BYTES);
        let mut words = vec![0; PIECE];
        for at in (0..segment.bytes).step_by(PIECE * 8) {
            map.words(first.plus(at), PIECE).expect("memory of the shard").copy_out(0, &mut words);
            if words.iter().any(|word| *word != 0) {
                follower.copy(first.plus(at), &words);
            }
        }
    }
    (follower, gatherer)
}

/// The root and all mirrors.
struct Tree {
    root: Root,
    nodes: Vec<Node>,
    random: Random,
    losses: usize,
}

impl Tree {
    /// Whom a mirror follows, if not the root.
    fn parent(node: usize) -> Option<usize> {
        match node {
            0..FIRST => None,
            _ if node < FIRST + SECOND => Some(node % FIRST),
            _ => Some(FIRST + node % SECOND),
        }
    }

    /// Has a mirror copy what there is to be followed.
    fn attach(&mut self, node: usize) -> Node {
        let (parent, is_followed) = (Tree::parent(node), node < FIRST + SECOND);
        let (mut shadows, mut gatherers, mut whole_at) = (Vec::new(), Vec::new(), Vec::new());
        let mut streams = Streams::new(SHARDS);
        for number in 0..SHARDS {
            let segments = PrivateSegments::default();
            let (shard, batches) = match parent.map(|parent| &mut self.nodes[parent]) {
                None => (&mut self.root.shards[number].shard, &self.root.batches),
                Some(Node { shadows, batches, .. }) => match &mut shadows[number] {
                    Shadow::Followed(shard) => (&mut **shard, &*batches),
                    Shadow::Alone(_) => unreachable!("it is followed"),
                },
            };
            let (follower, gatherer) = copy(shard, batches, &segments);
            streams.begin(number, follower.applied());
            whole_at.push(follower.applied());
            gatherers.push(gatherer);
            shadows.push(match is_followed {
                false => Shadow::Alone(Box::new(follower)),
                true => {
                    let (header, config) = (Span::private(Header::BYTES), config(number, 2 + node as u64));
                    let shard = Shard::mirror(follower, config, header, Box::new(segments));
                    Shadow::Followed(Box::new(shard.expect("an image")))
                }
            });
        }
        let (batches, whole_at) = (LogControl::of_mirror(), Some(whole_at));
        Node { parent, shadows, gatherers, streams, batches, is_retelling: false, whole_at, told: 0 }
    }

    /// A mirror is lost, and those that follow it with it: each copies anew.
    fn lose(&mut self, node: usize) {
        self.losses += 1;
        self.nodes[node] = self.attach(node);
        let children: Vec<usize> =
            (0..self.nodes.len()).filter(|child| self.nodes[*child].parent == Some(node)).collect();
        children.into_iter().for_each(|child| self.lose(child));
    }

    /// A mirror takes in what it is told, and applies some of that.
    fn turn(&mut self, node: usize, words: usize) {
        let parent = self.nodes[node].parent;
        let (batches, is_retelling) = match parent.map(|parent| &self.nodes[parent]) {
            None => (self.root.batches.clone(), false),
            Some(parent) => (parent.batches.clone(), parent.is_retelling),
        };
        let Node { shadows, gatherers, streams, batches: own, is_retelling: retells, told, whole_at, .. } =
            &mut self.nodes[node];
        // Nobody gathers while only some of a cut is told: production code waits for that.
        if !is_retelling {
            let gathered = batches.gather(|later| {
                let mut each = gatherers.iter_mut().enumerate();
                each.try_fold(true, |all, (shard, gatherer)| {
                    let taken = gatherer.take(later, |words, _| {
                        *told += words.len() as u64;
                        streams.push(shard, words);
                    });
                    Ok(all & taken?)
                })
            });
            assert!(gathered.expect("whole records"));
            gatherers.iter().enumerate().for_each(|(shard, of)| streams.cut(shard, of.last().record));
        }
        if !*retells && streams.is_all_applied() {
            return;
        }
        if !std::mem::replace(retells, true) {
            own.begin_retelling();
        }
        let applied = streams.apply(words, |shard, record| shadows[shard].apply(record));
        applied.expect("records that follow each other");
        if !streams.is_at_cut() {
            return;
        }
        own.end_retelling();
        *retells = false;
        // What was copied in the middle of a cut is whole with the next one.
        whole_at.take_if(|whole_at| whole_at.iter().enumerate().all(|(at, of)| streams.applied(at) > *of));
        if whole_at.is_none() {
            let missing = self.root.missing(|shard| self.nodes[node].streams.applied(shard));
            assert_eq!(missing, None, "mirror {node} has a write without one that was answered before");
        }
    }
}

#[test]
fn a_thousand_mirrors_have_no_effect_without_its_cause() {
    let seed = std::env::var("KELIX_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("KELIX_TEST_SEED={seed}");
    let mut tree = Tree { root: Root::new(), nodes: Vec::new(), random: Random(seed), losses: 0 };
    (0..KEYS).for_each(|_| tree.root.write());
    for node in 0..MIRRORS {
        let node = tree.attach(node);
        tree.nodes.push(node);
    }
    for _ in 0..WRITES {
        tree.root.write();
        for _ in 0..tree.random.below(2 * TURNS) {
            // Mirrors that are followed do something as often as all others.
            let among = if tree.random.below(2) == 0 { FIRST + SECOND } else { MIRRORS };
            let node = tree.random.below(among as u64) as usize;
            if tree.random.below(TURNS_A_LOSS) == 0 {
                tree.lose(node);
            }
            let words = tree.random.below(TURN_WORDS) as usize;
            tree.turn(node, words);
        }
    }
    // Records that are on their way come to all mirrors, a level after the other.
    for node in 0..MIRRORS {
        while tree.nodes[node].is_retelling {
            tree.turn(node, usize::MAX);
        }
        tree.turn(node, usize::MAX);
    }
    for (index, node) in tree.nodes.iter().enumerate() {
        for (shadow, root) in node.shadows.iter().zip(&tree.root.shards) {
            assert_eq!(shadow.follower().compare(&root.shard), Ok(()), "mirror {index}");
        }
    }
    let told = |nodes: &[Node]| nodes.iter().map(|node| node.told).sum::<u64>();
    let (by_root, all) = (told(&tree.nodes[..FIRST]), told(&tree.nodes));
    println!("{MIRRORS} mirrors, {} copies anew; the root told {by_root} words, all {all}", tree.losses);
    assert!(tree.losses > 0 && by_root * 20 < all, "{by_root} of {all} words are told by the root");
    let now = Now { monotonic_ns: 1, wall_ns: 1 };
    for node in &mut tree.nodes[..FIRST + SECOND] {
        for shadow in &mut node.shadows {
            let Shadow::Followed(shard) = shadow else { unreachable!("it is followed") };
            shard.step(now, &mut Mailboxes::default());
            assert_eq!(shard.audit(), Ok(()));
        }
    }
}
