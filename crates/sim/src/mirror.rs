//! Mirrors: one task that shows all shards of a server, as production code does, a little later.
//!
//! ```text
//! attach   each shard copies its memory, between two steps, and is followed from there on
//! follow   the streams of all shards are cut where nothing is missing, and records are applied up to a cut
//! show     what was copied is whole behind a cut: it is read from now on
//! anew     what is read stays as it is, while all of this is done once more beside it; then sessions go over
//! ```
//!
//! Cuts are made by the code that makes them for mirrors and for the log ([`Gatherer`], [`LogControl`]), while
//! shards go on sealing records.

mod shown;

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use kelix_fabric::shm::AUTHORITY_TERM;
use kelix_fabric::{Clock, PeerId, Waiter, WorkQueue};
use kelix_image::{Header, PrivateSegments, Span, header_word};
use kelix_log::{Gatherer, LogControl, Record};
use kelix_shard::{Follower, Now, Shard, ShardConfig, Streams};
use kelix_types::{Error, ErrorKind, Result, mark};
use kelix_wire::View;

use crate::fabric::{Bell, Kind, SimEndpoint, SleepWord};
use crate::scheduler::{self, Shared};
use crate::server::{Join, Server, ShardNode};
pub use shown::{Change, Cut, Shown};

/// One in so many looks for records is in vain, so that they come many at once.
const LOOKS_IN_VAIN: u64 = 3;
/// How long a mirror sleeps between two looks, at most.
const SLEEP_NS_MAX: u64 = 4_000;
/// One in so many times it stands still for much longer.
const SLEEPS_A_LONG_ONE: u64 = 60;
const LONG_SLEEP_NS_MAX: u64 = 100_000;
/// How long it sleeps at most when its primary is over, and only who reads it has anything to say, and rings.
const OVER_SLEEP_NS_MAX: u64 = 1_000_000;
/// After so many looks, on average, there is something to be read.
const UNREAD_LOOKS: u64 = 4;
/// After so many looks, on average, the mirror loses its primary, and copies anew; and how long it takes until
/// it does, at most.
const LOOKS_A_COPY: u64 = 20_000;
const LOST_NS_MAX: u64 = 200_000;
/// One in so many records is followed by a look at all the mirror's own memory.
const RECORDS_AN_AUDIT: u64 = 200;
/// Words of records of a turn, where requests are looked at before all records of a cut are applied.
const TURN_WORDS_MAX: u64 = 300;
/// So many words of a stream are taken out as others go on; where there are more, in one go.
const NOTICED_WORDS: usize = 2_000;

/// What a mirror begins with of a shard.
pub struct Stream {
    config: ShardConfig,
    gatherer: Gatherer,
    follower: Follower,
    segments: PrivateSegments,
}

impl Stream {
    /// Copies the memory of a shard, and follows it from there on.
    pub fn begin(shard: &mut Shard, config: ShardConfig, batches: &LogControl) -> Stream {
        let reader = shard.feed(batches);
        let gatherer = Gatherer::new(reader, batches, shard.end());
        let segments = PrivateSegments::default();
        let source = Box::new(segments.clone());
        let (books, kept) = (shard.image().books(), shard.kept());
        let followed =
            Follower::of_books(source, config.image.memory_bytes, (&books, &kept), shard.sequence());
        let mut follower = followed.expect("books of a shard");
        for (place, bytes) in shard.image().stretches() {
            let mut words = vec![0; (bytes / 8) as usize];
            let memory = shard.image().map().words(place, words.len()).expect("memory of the shard");
            memory.copy_out(0, &mut words);
            follower.copy(place, &words);
        }
        Stream { config, gatherer, follower, segments }
    }
}

/// A shard that is shown.
struct ShownShard {
    config: ShardConfig,
    gatherer: Gatherer,
    /// Until there is a mirror to be read.
    follower: Option<Follower>,
    shard: Option<Shard>,
    header: Span,
    segments: PrivateSegments,
    joins: Shared<VecDeque<Join>>,
}

/// What a mirror shows, or is about to show, in a term of its own.
struct Images {
    term: u64,
    shards: Vec<ShownShard>,
    streams: Streams,
    /// When the question was asked that is to be answered.
    asked_ns: Option<u64>,
}

/// What all that a mirror does, in whichever term, shares.
#[derive(Clone)]
struct Mirror {
    /// The server that is mirrored.
    primary: Server,
    batches: LogControl,
    authority: Span,
    kind: Kind,
    view: View,
    shown: Shown,
    findings: Shared<Vec<String>>,
}

/// What is copied beside what is read.
enum Anew {
    /// The primary is lost until then.
    At(u64),
    Asked(Vec<Shared<Option<Stream>>>),
    Followed(Images),
}

/// A mirror, owned by its task.
struct Node {
    mirror: Mirror,
    bell: Bell,
    /// What is read, and follows as long as nothing is copied anew.
    images: Option<Images>,
    anew: Option<Anew>,
    /// What each key has now.
    values: HashMap<u64, u64>,
}

/// Begins to show a server whose records belong to these batches.
pub fn start(primary: &Server, batches: &LogControl, (shown, findings): (Shown, Shared<Vec<String>>)) {
    let authority = Span::private(4096);
    // Whatever the server's clients use, a mirror is read where it is.
    let kind = Kind { ordered: true, ..primary.kind };
    let (primary, batches, view) = (primary.clone(), batches.clone(), primary.view.clone());
    shown.views.borrow_mut().insert(primary.store, view.clone());
    let mirror = Mirror { primary, batches, authority, kind, view, shown, findings };
    let name = format!("mirror of server {}", mirror.primary.term);
    scheduler::spawn(&name, move || {
        let (bell, anew) = (Bell::of(scheduler::current()), Some(Anew::At(0)));
        let mut node = Node { mirror: mirror.clone(), bell, images: None, anew, values: HashMap::new() };
        if let Err(what) = node.run() {
            mirror.find(&what);
        }
    });
}

impl ShownShard {
    fn of(Stream { config, gatherer, follower, segments }: Stream) -> ShownShard {
        ShownShard {
            config,
            gatherer,
            follower: Some(follower),
            shard: None,
            header: Span::private(Header::BYTES),
            segments,
            joins: Rc::default(),
        }
    }

    /// Applies a record.
    fn apply(&mut self, record: &Record<'_>, now_ns: u64) -> Result<()> {
        match (&mut self.shard, &mut self.follower) {
            (Some(shard), _) => shard.apply(record, now_ns),
            (None, Some(follower)) => scheduler::unnoticed(|| follower.apply(record)),
            (None, None) => unreachable!("one of the two is there"),
        }
    }

    /// Makes something to be read, in a term, of what was followed so far.
    fn show(&mut self, term: u64) -> std::result::Result<(), String> {
        let follower = self.follower.take().expect("not shown yet");
        let mut config = self.config.clone();
        config.image.image_id = (!config.image.image_id).wrapping_add(term);
        config.image.term = term;
        // Of its models.
        config.image.segment_bytes_first = 4 << 20;
        config.image.segment_bytes_max = 4 << 20;
        config.image.memory_bytes = 64 << 20;
        let source = Box::new(self.segments.clone());
        let shard = Shard::mirror(follower, config, self.header.clone(), source);
        self.shard = Some(shard.map_err(|error| error.to_string())?);
        Ok(())
    }
}

/// Why a mirror does not follow any more.
enum End {
    /// It was too slow.
    LetGo,
    /// Something cannot be.
    Found(String),
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        if error.kind() == ErrorKind::TimedOut { End::LetGo } else { End::Found(error.to_string()) }
    }
}

impl Images {
    /// Takes out of the streams what was sealed before a moment, of all shards.
    fn gather(&mut self, batches: &LogControl) -> Result<()> {
        let Images { shards, streams, .. } = self;
        batches.gather(|later| {
            shards.iter_mut().enumerate().try_fold(true, |all, (index, ShownShard { gatherer, .. })| {
                if scheduler::random_below(2) == 0 {
                    scheduler::give_way();
                }
                let is_much = gatherer.waiting() > NOTICED_WORDS;
                let mut take = || gatherer.take(later, |words, _| streams.push(index, words));
                let taken = if is_much { scheduler::unnoticed(take) } else { take() };
                Ok(all & taken?)
            })
        })?;
        for (index, ShownShard { gatherer, .. }) in shards.iter().enumerate() {
            streams.cut(index, gatherer.last().record);
        }
        Ok(())
    }

    /// Takes in records, and applies some of those that count. Whether that was any, and whether all that
    /// count are applied.
    fn follow(
        &mut self,
        mirror: &Mirror,
        values: &mut HashMap<u64, u64>,
    ) -> std::result::Result<(bool, bool), End> {
        if scheduler::random_below(LOOKS_IN_VAIN) == 0 {
            return Ok((false, false));
        }
        // The primary answers with what it gathers then.
        self.asked_ns.get_or_insert(scheduler::now_ns());
        self.gather(&mirror.batches)?;
        let is_turn = scheduler::random_below(2) == 0;
        let words = if is_turn { scheduler::random_below(TURN_WORDS_MAX) as usize } else { usize::MAX };
        let (shards, mut worked) = (&mut self.shards, false);
        let all = self.streams.apply(words, |index, record| {
            let from_ns = scheduler::now_ns();
            shards[index].apply(record, from_ns)?;
            worked = true;
            mirror.note_changes(&shards[index], index, values, from_ns);
            let is_audited = scheduler::random_below(RECORDS_AN_AUDIT) == 0;
            if let Some(shard) = shards[index].shard.as_mut().filter(|_| is_audited) {
                if let Err(what) = scheduler::unnoticed(|| shard.audit()) {
                    mirror.find(&what);
                }
            }
            Ok(())
        })?;
        if all {
            self.tell_fresh(mirror);
        }
        Ok((worked, all))
    }

    /// Says as of when all is known to be here.
    fn tell_fresh(&mut self, mirror: &Mirror) {
        let Some(asked_ns) = self.asked_ns.take() else { return };
        let until_ns = mirror.shown.max_lag_ns.map_or(0, |lag_ns| asked_ns + lag_ns);
        let shards = self.shards.iter().filter_map(|shown| shown.shard.as_ref());
        shards.for_each(|shard| shard.image().header().set_fresh(asked_ns, until_ns));
    }

    /// Makes something to be read of what was followed so far.
    fn show(&mut self, mirror: &Mirror) -> std::result::Result<(), String> {
        let term = self.term;
        scheduler::unnoticed(|| self.shards.iter_mut().try_for_each(|shown| shown.show(term)))?;
        // Sessions look once, when they begin, whether there is a limit: so it is there before any answer of
        // the primary, and has passed.
        let shards = self.shards.iter().filter_map(|shown| shown.shard.as_ref());
        let limited = shards.filter(|_| mirror.shown.max_lag_ns.is_some());
        limited.for_each(|shard| shard.image().header().set_fresh(0, 1));
        Ok(())
    }
}

impl Mirror {
    fn find(&self, what: &str) {
        self.findings.borrow_mut().push(format!("mirror of server {}: {what}", self.primary.term));
    }

    fn primary_is_there(&self) -> bool {
        self.primary.authority.words().load_acquire(AUTHORITY_TERM) == self.primary.term
    }

    /// Asks each shard for its memory, and to be followed from there on.
    fn ask(&self) -> Vec<Shared<Option<Stream>>> {
        let ask = |shard: &ShardNode| {
            let answer: Shared<Option<Stream>> = Rc::default();
            shard.feeds.borrow_mut().push_back(answer.clone());
            shard.bell.ring();
            answer
        };
        self.primary.shards.iter().map(ask).collect()
    }

    /// What is to be shown in a term, once all shards have answered.
    fn images(&self, term: u64, answers: &[Shared<Option<Stream>>]) -> Option<Images> {
        if answers.iter().any(|answer| answer.borrow().is_none()) {
            return None;
        }
        let mut streams = Streams::new(answers.len());
        let shards = answers.iter().enumerate().filter_map(|(index, answer)| {
            let stream = answer.borrow_mut().take()?;
            streams.begin(index, stream.follower.applied());
            Some(ShownShard::of(stream))
        });
        let shards = shards.collect();
        Some(Images { term, shards, streams, asked_ns: None })
    }

    /// Takes note of what a record of a shard has changed.
    fn note_changes(&self, shown: &ShownShard, index: usize, values: &mut HashMap<u64, u64>, from_ns: u64) {
        let Some(shard) = &shown.shard else { return };
        let Shown { table, keys, changes, .. } = &self.shown;
        scheduler::unnoticed(|| {
            for key in 0..*keys {
                let bytes = key.to_be_bytes();
                let hash = kelix_types::key_hash(self.view.hash_seed, *table, &bytes);
                if self.view.shard_of(*table, hash) != index {
                    continue;
                }
                let now = shard.value_or_version(*table, &bytes);
                let before = match now {
                    Some(now) => values.insert(key, now),
                    None => values.remove(&key),
                };
                if before != now {
                    let (key, until_ns) = (self.primary.store << 32 | key, scheduler::now_ns());
                    changes.borrow_mut().push(Change { key, from_ns, until_ns, now });
                }
            }
        });
    }

    /// All images are whole: they are read from now on, in place of those that were.
    fn publish(&self, images: &Images, values: &mut HashMap<u64, u64>, bell: &Bell) {
        let from_ns = scheduler::now_ns();
        self.authority.words().publish(AUTHORITY_TERM, images.term);
        for (index, shown) in images.shards.iter().enumerate() {
            self.note_changes(shown, index, values, from_ns);
        }
        let shards = images.shards.iter().map(|shown| ShardNode {
            task: scheduler::current(),
            bell: bell.clone(),
            header: shown.header.clone(),
            segments: shown.segments.clone(),
            joins: shown.joins.clone(),
            feeds: Rc::default(),
            commands: Rc::default(),
        });
        let server = Server {
            term: images.term,
            store: self.primary.store,
            life: self.primary.life,
            kind: self.kind,
            view: self.view.clone(),
            authority: self.authority.clone(),
            shards: shards.collect(),
            log: None,
            commits: false,
            clock: Default::default(),
            far: Rc::default(),
            connections: Rc::default(),
            mirror: Rc::default(),
        };
        mark!("mirror began to be read");
        if images.term > 1 {
            mark!("mirror copied anew");
        }
        *self.primary.mirror.borrow_mut() = Some(server);
    }
}

impl Node {
    fn run(&mut self) -> std::result::Result<(), String> {
        loop {
            let mut endpoint = SimEndpoint::new(self.mirror.kind, self.bell.clone(), 0);
            let shown = self.images.iter().flat_map(|images| &images.shards);
            shown.for_each(|shown| {
                endpoint.add_sleep_word(SleepWord(shown.header.clone(), header_word::SLEEPING));
            });
            self.serve(&mut endpoint)?;
        }
    }

    /// Follows, and answers whoever asks, until something else is to be read.
    fn serve(&mut self, endpoint: &mut SimEndpoint) -> std::result::Result<(), String> {
        let mut peers: Vec<(usize, PeerId)> = Vec::new();
        loop {
            let mut worked = self.follow()?;
            if self.copy_anew()? {
                return Ok(());
            }
            for (index, shown) in self.images.iter_mut().flat_map(|images| &mut images.shards).enumerate() {
                let faulty;
                (worked, faulty) = shown.step(index, endpoint, &mut peers, worked);
                if faulty > 0 {
                    self.mirror.find(&format!("{faulty} clients are faulty"));
                }
            }
            if worked {
                continue;
            }
            endpoint.announce_sleep();
            let is_idle = self.images.iter().flat_map(|images| &images.shards).all(|shown| {
                let news = shown.shard.as_ref().is_some_and(|shard| shard.has_news(endpoint));
                !news && shown.joins.borrow().is_empty()
            });
            let is_long = scheduler::random_below(SLEEPS_A_LONG_ONE) == 0;
            let most_ns = match (self.mirror.primary_is_there(), is_long) {
                (false, _) => OVER_SLEEP_NS_MAX,
                (true, true) => LONG_SLEEP_NS_MAX,
                (true, false) => SLEEP_NS_MAX,
            };
            let nap_ns = 1 + scheduler::random_below(most_ns);
            endpoint.sleep(Some(if is_idle { nap_ns } else { 0 }));
        }
    }

    /// Takes in what has come, and applies it. `false`: there was nothing.
    fn follow(&mut self) -> std::result::Result<bool, String> {
        let Node { mirror, images, anew: None, values, .. } = self else { return Ok(false) };
        let Some(images) = images else { return Ok(false) };
        match images.follow(mirror, values) {
            Ok((worked, all)) => {
                if worked && all {
                    mirror.shown.note_cut(mirror.primary.store);
                }
                Ok(worked)
            }
            Err(End::LetGo) => {
                mark!("mirror let go");
                self.anew = Some(Anew::At(0));
                Ok(false)
            }
            Err(End::Found(what)) => Err(what),
        }
    }

    /// Goes on with what is copied anew, if anything is. `true`: from now on that is read.
    fn copy_anew(&mut self) -> std::result::Result<bool, String> {
        let Node { mirror, bell, images, anew, values } = self;
        let now_ns = scheduler::now_ns();
        *anew = match anew.take() {
            None if scheduler::random_below(LOOKS_A_COPY) > 0 => None,
            None => Some(Anew::At(now_ns + scheduler::random_below(LOST_NS_MAX))),
            Some(Anew::At(at_ns)) if now_ns < at_ns || !mirror.primary_is_there() => Some(Anew::At(at_ns)),
            Some(Anew::At(_)) => Some(Anew::Asked(mirror.ask())),
            Some(Anew::Asked(answers)) => {
                let term = images.as_ref().map_or(1, |images| images.term + 1);
                Some(mirror.images(term, &answers).map_or(Anew::Asked(answers), Anew::Followed))
            }
            Some(Anew::Followed(mut next)) => match next.follow(mirror, &mut HashMap::new()) {
                // Some records come before anybody reads.
                Ok((_, true)) if scheduler::random_below(UNREAD_LOOKS) == 0 => {
                    next.show(mirror)?;
                    mirror.publish(&next, values, bell);
                    mirror.shown.note_cut(mirror.primary.store);
                    *images = Some(next);
                    return Ok(true);
                }
                Ok(_) => Some(Anew::Followed(next)),
                Err(End::LetGo) => Some(Anew::At(now_ns)),
                Err(End::Found(what)) => return Err(what),
            },
        };
        Ok(false)
    }
}

impl ShownShard {
    /// Lets in whoever wants to be served, and answers. Whether something was done, and how many clients were
    /// faulty.
    fn step(
        &mut self,
        index: usize,
        endpoint: &mut SimEndpoint,
        peers: &mut Vec<(usize, PeerId)>,
        mut worked: bool,
    ) -> (bool, usize) {
        let ShownShard { shard: Some(shard), joins, .. } = self else { return (worked, 0) };
        let came: Vec<Join> = joins.borrow_mut().drain(..).collect();
        for join in came {
            peers.push((index, join.enter(shard, endpoint, false)));
        }
        let now_ns = endpoint.now_ns();
        let progress = shard.step(Now { monotonic_ns: now_ns, wall_ns: now_ns }, endpoint);
        worked |= progress.requests > 0 || progress.next_ns.is_some_and(|next_ns| next_ns <= now_ns);
        let faulty: Vec<PeerId> = progress.faulty.iter().map(|(peer, _)| *peer).collect();
        let sound = faulty.iter().filter(|peer| !endpoint.is_broken(**peer)).count();
        for peer in faulty.into_iter().chain(endpoint.broken()) {
            if let Some(at) = peers.iter().position(|known| *known == (index, peer)) {
                peers.swap_remove(at);
                shard.leave(peer);
                endpoint.remove(peer);
            }
        }
        (worked, sound)
    }
}
