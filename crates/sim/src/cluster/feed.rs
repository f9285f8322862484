//! The task that feeds one replica, as a server's thread does, and decides nothing by itself.
//!
//! ```text
//! books of all shards -> memory, a piece at a time -> where it is whole -> records, cuts and questions
//! what is lacking of the last records --------------------------------> records, cuts and questions
//! ```

use std::collections::VecDeque;
use std::rc::Rc;

use kelix_image::{Committed, PrivateSegments};
use kelix_log::{Gatherer, Reader};
use kelix_shard::Shard;
use kelix_shard::replicas::{PlacedEnd, Placing, counts};
use kelix_types::{Error, Place, mark};
use kelix_wire::control::StreamPosition;
use kelix_wire::feed::{FeedBooks, FeedCut, FeedPart, FeedPlaced, FeedPosition, pieces};

use super::link::Link;
use super::primary::PrimaryServer;
use crate::fabric::Bell;
use crate::scheduler::{self, Shared};

/// Before all other frames: whether the replica goes on behind its position, of which lineage all is that
/// comes, and which life of the store that is.
pub const ATTACHED: u32 = u32::MAX;
/// Words of memory in one frame, at most.
const PIECE_WORDS_MAX: u64 = 1 << 17;
/// Pieces of memory that are sent between two looks at the streams, on average.
const PIECES_A_TURN: u64 = 16;
/// Between two looks at the streams, at most.
const NAP_NS_MAX: u64 = 6_000;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long a replica may leave a question unanswered.
    pub late_ns: u64,
    /// How long nothing is asked while there is nothing new.
    pub quiet_ns: u64,
}

/// What a shard has told.
enum Told {
    Began { books: FeedBooks, histories: Vec<u64>, stretches: Vec<(Place, u64)>, gatherer: Box<Gatherer> },
    Covers(u64),
    Holds(Reader, u64),
}

/// What shards have told and nobody has heard yet.
type Tell = Shared<VecDeque<(usize, Told)>>;

/// The feed of a replica has ended.
struct End;

impl From<Error> for End {
    fn from(_: Error) -> End {
        End
    }
}

/// A feed, owned by its task.
pub struct Feeding {
    pub primary: Rc<PrimaryServer>,
    pub link: Link,
    pub boot: u64,
    pub position: Option<StreamPosition>,
    pub patience: Patience,
}

struct Feed<'a> {
    primary: &'a Rc<PrimaryServer>,
    link: &'a Link,
    placing: Placing,
    patience: Patience,
    bell: Bell,
    gatherers: Vec<Gatherer>,
    last: Vec<u64>,
    cuts: VecDeque<FeedCut>,
    told: Tell,
    follows: bool,
}

impl Feeding {
    /// Feeds the replica until it is lost, or this server is over.
    pub fn run(self) {
        let Feeding { primary, link, boot, position, patience } = self;
        let bell = Bell::of(scheduler::current());
        link.ring(&bell);
        let placing = Placing::new(&primary.replication, (boot, 0), scheduler::now_ns());
        let mut feed = Feed {
            primary: &primary,
            link: &link,
            placing,
            patience,
            bell,
            gatherers: Vec::new(),
            last: vec![0; primary.shards.len()],
            cuts: VecDeque::new(),
            told: Tell::default(),
            follows: false,
        };
        let Err(End) = feed.feed(position.as_ref());
        let Feed { placing, gatherers, .. } = feed;
        placing.end((&primary.replication, &*primary));
        drop(gatherers);
        primary.shards.iter().for_each(|shard| shard.node.bell.ring());
    }
}

impl Feed<'_> {
    fn feed(&mut self, position: Option<&StreamPosition>) -> Result<std::convert::Infallible, End> {
        let of = (&self.primary.replication, &**self.primary);
        let resumption = position.and_then(|position| self.placing.resume(of, position));
        match resumption {
            Some((words, gatherers)) => {
                self.link.push(ATTACHED, 0, &[1, self.primary.replication.lineage(), self.primary.life]);
                self.last = gatherers.iter().map(|gatherer| gatherer.last().record).collect();
                self.gatherers = gatherers;
                for (shard, words) in words.iter().enumerate() {
                    self.link.push(FeedPart::Records as u32, shard, words);
                    self.tell_position(shard, false);
                }
            }
            None => {
                self.link.push(ATTACHED, 0, &[0, self.primary.replication.lineage(), self.primary.life]);
                self.copy()?;
            }
        }
        self.follows = true;
        self.ask();
        loop {
            let has_come = self.turn()?;
            if self.placing.is_quiet(scheduler::now_ns(), self.patience.quiet_ns) {
                self.ask();
            }
            if !has_come {
                self.bell.sleep(1 + scheduler::random_below(NAP_NS_MAX));
            }
        }
    }

    fn ask(&mut self) {
        let ends = self.gatherers.iter().map(PlacedEnd::of).collect();
        let placing = self.placing.ask(ends, scheduler::now_ns());
        self.link.push(FeedPart::Placing as u32, 0, &placing.words());
    }

    fn tell_position(&self, shard: usize, in_memory: bool) {
        let position = FeedPosition { words: self.gatherers[shard].position(), in_memory };
        self.link.push(FeedPart::Position as u32, shard, &position.words());
    }

    /// Asks something of a shard, which rings.
    fn command(&self, shard: usize, command: impl FnOnce(&mut Shard) -> Told + 'static) {
        let (told, bell) = (self.told.clone(), self.bell.clone());
        self.primary.shards[shard].node.command(move |of| {
            told.borrow_mut().push_back((shard, command(of)));
            bell.ring();
        });
    }

    fn hear(&mut self) -> Result<(usize, Told), End> {
        loop {
            if let Some(told) = self.told.borrow_mut().pop_front() {
                return Ok(told);
            }
            self.look()?;
            self.bell.sleep(NAP_NS_MAX);
        }
    }

    /// Copies all memory, beside the records of what changes meanwhile.
    fn copy(&mut self) -> Result<(), End> {
        let count = self.primary.shards.len();
        for shard in 0..count {
            let batches = self.primary.batches.clone();
            self.command(shard, move |of| {
                let reader = of.feed(&batches);
                let sequence = of.sequence();
                let last = Committed { record: sequence, ..of.end() };
                let gatherer = Box::new(Gatherer::new(reader, &batches, last));
                let books = FeedBooks { sequence, books: of.books().words(), kept: of.kept() };
                let stretches = of.image().stretches().into_iter().collect();
                Told::Began { books, histories: of.histories(), stretches, gatherer }
            });
        }
        let mut began: Vec<_> = (0..count).map(|_| None).collect();
        while began.iter().any(Option::is_none) {
            let (shard, told) = self.hear()?;
            began[shard] = Some(told);
        }
        let mut left = Vec::new();
        for (shard, told) in began.into_iter().flatten().enumerate() {
            let Told::Began { books, histories, stretches, gatherer } = told else { return Err(End) };
            self.last[shard] = books.sequence;
            self.gatherers.push(*gatherer);
            left.push(stretches);
            books.frames().iter().for_each(|frame| self.link.push(FeedPart::Books as u32, shard, frame));
            let histories = pieces(&histories);
            histories.iter().for_each(|frame| self.link.push(FeedPart::Histories as u32, shard, frame));
            self.tell_position(shard, false);
        }
        for (shard, stretches) in left.into_iter().enumerate() {
            for (place, bytes) in stretches {
                self.copy_stretch(shard, place, bytes)?;
            }
            self.command(shard, |of| Told::Covers(of.covers()));
        }
        for _ in 0..count {
            let (shard, told) = self.hear()?;
            let Told::Covers(sequence) = told else { return Err(End) };
            self.link.push(FeedPart::Copied as u32, shard, &[sequence]);
            self.turn()?;
        }
        Ok(())
    }

    fn copy_stretch(&mut self, shard: usize, place: Place, bytes: u64) -> Result<(), End> {
        let (segments, header) = {
            let node = &self.primary.shards[shard].node;
            (node.segments.clone(), node.header.clone())
        };
        let (words, mut first) = (bytes / 8, 0);
        while first < words {
            if scheduler::random_below(PIECES_A_TURN) == 0 {
                self.turn()?;
            }
            let count = (1 + scheduler::random_below(PIECE_WORDS_MAX)).min(words - first);
            let place = place.plus(first * 8);
            first += count;
            let words = scheduler::unnoticed(|| words_of(&segments, &header, place, count as usize));
            if let Some(words) = words {
                self.link.push(FeedPart::Copy as u32, shard, &[&[place.0], &words[..]].concat());
            }
        }
        Ok(())
    }

    /// Takes in what the replica says.
    fn look(&mut self) -> Result<(), End> {
        while let Some(frame) = self.link.receive() {
            let placed = FeedPlaced::of(&frame.words).expect("a replica says what it has");
            let of = (&self.primary.replication, &**self.primary);
            assert!(self.placing.take(of, placed), "a replica has what it was not told");
        }
        let is_late = self.placing.is_late(scheduler::now_ns(), self.patience.late_ns);
        if is_late {
            mark!("replica too late");
        }
        if self.link.is_over() || kelix_shard::replicas::Primary::is_over(&**self.primary) || is_late {
            return Err(End);
        }
        self.gatherers.iter().try_for_each(Gatherer::check)?;
        Ok(())
    }

    /// Does what there is to do. Whether there were records.
    fn turn(&mut self) -> Result<bool, End> {
        self.look()?;
        let has_come = self.gather()?;
        if self.placing.begin_to_read_streams(self.gatherers.iter().map(Gatherer::position)) {
            (0..self.gatherers.len()).for_each(|shard| self.tell_position(shard, true));
        }
        self.tell_cuts();
        if self.follows {
            self.join();
        }
        Ok(has_come)
    }

    fn gather(&mut self) -> Result<bool, End> {
        let has_come = self.gatherers.len() == self.primary.shards.len()
            && self.gatherers.iter().any(Gatherer::has_more);
        if !has_come {
            return Ok(false);
        }
        let Feed { gatherers, link, primary, placing, .. } = self;
        let reads_streams = placing.reads_streams();
        primary.batches.gather(|later| {
            gatherers.iter_mut().enumerate().try_fold(true, |all, (shard, gatherer)| {
                if scheduler::random_below(2) == 0 {
                    scheduler::give_way();
                }
                let taken = gatherer.take(later, |words, _| {
                    if !reads_streams {
                        link.push(FeedPart::Records as u32, shard, words);
                    }
                });
                Ok(all & taken?)
            })
        })?;
        let sequences: Vec<u64> = self.gatherers.iter().map(|gatherer| gatherer.last().record).collect();
        if sequences != self.last {
            self.last.clone_from(&sequences);
            self.cuts.push_back(FeedCut { question: 0, lag_ns: 0, sequences });
            self.ask();
        }
        Ok(true)
    }

    /// Has what a replica that follows has count, and hears what shards have sealed before that.
    fn join(&mut self) {
        let mut holds = Vec::new();
        self.placing.join((&self.primary.replication, &**self.primary), |shard| holds.push(shard));
        for shard in holds {
            self.command(shard, |of| {
                let (hold, sequence) = of.hold();
                Told::Holds(hold, sequence)
            });
        }
        while let Some((shard, told)) = self.told.borrow_mut().pop_front() {
            if let Told::Holds(hold, sequence) = told {
                let of = (&self.primary.replication, &**self.primary);
                self.placing.note_held(of, (shard, hold), sequence);
            }
        }
    }

    fn tell_cuts(&mut self) {
        let count = self.cuts.iter().take_while(|cut| counts(&self.primary.logs, cut)).count();
        if let Some(cut) = self.cuts.drain(..count).next_back() {
            self.link.push(FeedPart::Cut as u32, 0, &cut.words());
        }
    }
}

/// Words of a shard's memory as they are now; `None`: they are there no more.
fn words_of(
    segments: &PrivateSegments,
    header: &kelix_image::Span,
    place: Place,
    count: usize,
) -> Option<Vec<u64>> {
    let map = segments.map(header);
    let mut words = vec![0; count];
    map.words(place, count)?.copy_out(0, &mut words);
    Some(words)
}
