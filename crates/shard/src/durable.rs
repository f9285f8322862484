//! Two shards, one log on a disk that loses power, and a client that writes to both, each write behind the
//! answer of the one before. Whatever the order of steps, gathering, writes and syncs, and wherever the power
//! fails: what the next server begins with is what there was after some write, and of those that were
//! acknowledged as durable none is missing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use kelix_image::{Header, ImageConfig, ItemView, PrivateSegments, Span};
use kelix_log::LogControl;
use kelix_log::files::{Batch, Feed, Identity, Log, LogWriter, MemoryDisk, Position};
use kelix_types::{Incarnation, TableId};
use kelix_wire::mailboxes::Mailboxes;
use kelix_wire::{FrameBuffer, Op, Reply, RequestHead, Status, encode_request};

use crate::follower::Follower;
use crate::harness::Harness;
use crate::held::Durability;
use crate::shard::{Shard, ShardConfig};

const SHARDS: usize = 2;
const KEYS: u64 = 5;
const TABLE: TableId = TableId(1);
const MEMORY: u64 = 64 << 20;
/// Files are so small that a run has several.
const FILE_BYTES: u64 = 16 << 10;
const SERVERS: u64 = 4;
const TURNS: u64 = 400;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let word = self.0 ^ self.0 >> 33;
        word.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ word >> 29
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }
}

/// A write: to which shard and key. Its value is its place in the history.
#[derive(Clone, Copy, Debug)]
struct Write {
    shard: usize,
    key: u64,
}

/// The values of keys of both shards after so many writes.
fn state_after(history: &[Write]) -> BTreeMap<(usize, u64), u64> {
    let numbered = (1..).zip(history);
    numbered.map(|(number, write)| ((write.shard, write.key), number)).collect()
}

/// A server, from its start to its end.
struct Server {
    shards: Vec<Harness>,
    control: LogControl,
    feeds: Vec<Feed>,
    writer: LogWriter,
    batch: Batch,
    /// The number of the next batch while one is gathered, and how many shards have been.
    gathering: Option<(u64, usize)>,
}

fn config(number: usize, term: u64) -> ShardConfig {
    let config = Harness::config(SHARDS, MEMORY);
    let incarnation = Incarnation::first_of_term(Harness::TERM + term);
    ShardConfig { number, image: ImageConfig { incarnation, keeps_journal: true, ..config.image }, ..config }
}

impl Server {
    /// Begins with what there is on a disk.
    fn start(disk: &MemoryDisk, term: u64, durability: Durability) -> Server {
        let mut followers: Vec<Follower> =
            (0..SHARDS).map(|_| Follower::new(Box::new(PrivateSegments::default()), MEMORY)).collect();
        let log = Log::open(Box::new(disk.clone())).unwrap();
        let end = log.read(0, |batch| {
            for (shard, records) in batch.parts() {
                followers[shard as usize].apply_all(records)?;
            }
            Ok(ControlFlow::Continue(()))
        });
        let sequences = followers.iter().map(Follower::applied).collect();
        let position = Position { sequences, ..end.unwrap().last };
        let control = LogControl::new();
        let (mut shards, mut feeds) = (Vec::new(), Vec::new());
        for (number, follower) in followers.into_iter().enumerate() {
            let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
            let config = config(number, term);
            let shard = match follower.applied() {
                0 => Shard::create(config, header.clone(), Box::new(segments.clone())),
                _ => follower.into_shard(config, header.clone()),
            };
            let mut shard = shard.unwrap();
            let log = control.shard(shard.end());
            feeds.push(Feed::new(shard.write_log(log.clone(), durability), log));
            let mut alone = Harness::of(shard, (header, segments), &Mailboxes::default());
            alone.now_ns = 1 + term * (1 << 40);
            shards.push(alone);
        }
        let identity = Identity { store: 1, life: term + 1, description: String::new() };
        let writer = LogWriter::create(log, identity, position, FILE_BYTES).unwrap();
        Server { shards, control, feeds, writer, batch: Batch::default(), gathering: None }
    }

    /// The thread of the log does one thing of what it does. Whether that was to write a batch.
    fn advance_log(&mut self, random: &mut Random) -> bool {
        match self.gathering {
            None => {
                self.batch.begin();
                self.gathering = Some((self.control.begin_batch(), 0));
                false
            }
            Some((later, gathered)) if gathered < SHARDS => {
                assert!(self.feeds[gathered].gather(gathered as u32, later, &mut self.batch).unwrap());
                self.gathering = Some((later, gathered + 1));
                false
            }
            Some(_) => {
                self.gathering = None;
                if !self.batch.is_empty() {
                    self.writer.write(&self.batch, 1).unwrap();
                }
                if random.below(2) == 0 {
                    self.writer.sync().unwrap();
                    for (feed, sequence) in self.feeds.iter_mut().zip(self.writer.sequences()) {
                        feed.set_durable(*sequence);
                    }
                }
                true
            }
        }
    }

    /// A client asks a shard. The answer comes when it comes.
    fn send(&mut self, Write { shard, key }: Write, number: u64, durable: bool) {
        let mut frame = FrameBuffer::default();
        let head = RequestHead { durable, ..RequestHead::new(Op::Put, number as u32, TABLE) };
        encode_request(&mut frame, head, &key.to_le_bytes(), &number.to_le_bytes());
        self.shards[shard].push(&mut frame);
    }

    /// Whether the answer of a shard has come.
    fn is_answered(&mut self, shard: usize) -> bool {
        let mut payload = Vec::new();
        let has_come = self.shards[shard].pop(&mut payload);
        assert!(!has_come || Reply::parse(&payload).unwrap().head.status == Status::Ok);
        has_come
    }

    /// What is in the shards, as their memory says.
    fn state(&mut self) -> BTreeMap<(usize, u64), u64> {
        let mut state = BTreeMap::new();
        for (shard, alone) in self.shards.iter_mut().enumerate() {
            alone.shard.audit().unwrap();
            for key in 0..KEYS {
                let hash = alone.shard.store.index.hash(TABLE, &key.to_le_bytes());
                let found =
                    alone.shard.store.index.find(&alone.shard.store.image, hash, TABLE, &key.to_le_bytes());
                let Some(location) = found.map(|found| found.location) else { continue };
                let slot = alone.shard.store.image.slot(location);
                let mut words = vec![0; location.class().words()];
                slot.copy_out(0, &mut words);
                let item = ItemView::new(&words).expect("an item");
                state.insert((shard, key), u64::from_le_bytes(item.body().try_into().unwrap()));
            }
        }
        state
    }
}

/// What came of a run: servers that ended with an acknowledged write that was not the last one, to say that
/// the run says something.
fn run(seed: u64, durability: Durability) -> (u64, u64) {
    let mut random = Random(seed);
    let disk = MemoryDisk::new();
    let mut history: Vec<Write> = Vec::new();
    // Of those so many were acknowledged as durable.
    let (mut certain, mut acknowledged, mut lost) = (0, 0, 0);
    for term in 0..SERVERS {
        let mut server = Server::start(&disk, term, durability);
        let found = server.state();
        let kept = (certain..=history.len()).rev().find(|count| state_after(&history[..*count]) == found);
        let kept = kept.unwrap_or_else(|| {
            panic!("seed {seed}: server {term} has {found:?}, and {certain} were certain of {history:?}")
        });
        lost += (history.len() - kept) as u64;
        history.truncate(kept);
        let mut under_way: Option<(usize, bool)> = None;
        // How seldom the log's thread has the processor: while it gathers much may happen.
        let seldom = 1 + random.below(10);
        for _ in 0..random.below(TURNS) {
            match random.below(8) {
                0..=2 if random.below(seldom) > 0 => {}
                // Often the power fails right behind a batch.
                0..=2 if server.advance_log(&mut random) && random.below(8) == 0 => break,
                0..=2 => {}
                3..=5 => {
                    let shard = random.below(SHARDS as u64) as usize;
                    server.shards[shard].step();
                }
                6 => {
                    let shard = random.below(SHARDS as u64) as usize;
                    server.shards[shard].pass_epoch();
                }
                _ => match under_way {
                    Some((shard, _)) if !server.is_answered(shard) => {}
                    answered => {
                        acknowledged += u64::from(answered.is_some());
                        if answered.is_some_and(|(_, durable)| durable) {
                            certain = history.len();
                        }
                        let write =
                            Write { shard: random.below(SHARDS as u64) as usize, key: random.below(KEYS) };
                        let durable = durability == Durability::Commit || random.below(4) == 0;
                        history.push(write);
                        server.send(write, history.len() as u64, durable);
                        under_way = Some((write.shard, durable));
                    }
                },
            }
        }
        drop(server);
        disk.crash(|| random.next());
    }
    (acknowledged, lost)
}

/// What came of a run of each seed, together.
fn run_all(seeds: std::ops::Range<u64>, durability: Durability) -> (u64, u64) {
    let runs = seeds.map(|seed| run(seed, durability));
    runs.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1))
}

#[test]
fn what_was_acknowledged_as_durable_survives_the_power() {
    let (acknowledged, lost) = run_all(0..150, Durability::Commit);
    // Writes that were not acknowledged may be lost, or the power fails too seldom to say anything.
    assert!(acknowledged > 300 && lost > 100, "{acknowledged} writes acknowledged, {lost} lost");
}

#[test]
fn what_survives_has_the_cause_of_whatever_it_has() {
    let (acknowledged, lost) = run_all(1000..1150, Durability::Lazy);
    assert!(acknowledged > 1000 && lost > 300, "{acknowledged} writes acknowledged, {lost} lost");
}
