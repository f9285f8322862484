//! The thread that runs one shard: polls, yields, sleeps.

mod drain;
mod feed;
mod looking;
pub(crate) mod mirrored;
mod over_tcp;
mod snapshot_feed;
mod still;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use kelix_fabric::shm::{
    LocalEndpoint, Memfd, MemfdSegments, NumaNode, Peer, SleepWord, Waker, WakerHandle, Way,
};
use kelix_fabric::tcp::{AgentLink, AgentShard, StepIn};
use kelix_fabric::verbs::{HostShard, VerbsLink};
use kelix_fabric::{Clock, Fabric, PeerId};
use kelix_image::words::full_fence;
use kelix_image::{
    Committed, Header, ImageState, KindUse, MemoryMap, MemoryUse, SegmentSource, Span, features, header_word,
};
use kelix_log::files::Feed;
use kelix_log::{Gatherer, LogControl, Reader, ShardLog, StreamMemory};
use kelix_shard::replicas::counts_at_first;
use kelix_shard::{
    ClientParameters, GenerationReport, ModelCounts, Now, NumberCounts, Order, Progress, STREAM_WORDS, Shard,
    ShardConfig, ShardCounters,
};
use kelix_snapshot::{Snapshot, Which};
use kelix_types::{Error, Result, TableId, TableKind};
use kelix_wire::control::{Caller, FEATURE_LAPS, FEATURE_SEQUENCES};
use kelix_wire::{RingShape, mailbox_word};
use tracing::warn;

use self::over_tcp::{Sleep, awake, step_in};
use crate::authority::Authority;
use crate::feed::Fed;
use crate::moment::Moment;
use crate::snapshots::Follow;
use crate::wal::{LogWaker, Shadow, ShardsLog};

/// Steps between two looks at the clock while requests keep coming.
const STEPS_A_CLOCK: u32 = 16;
/// How long followers are given to make room before it is looked for again.
const BEHIND: Duration = Duration::from_micros(100);
/// Bytes of the page that says how much stands in a stream.
pub(crate) const STREAM_HEAD_BYTES: u64 = 4096;

/// Most time between two reports while busy.
const REPORT: Duration = Duration::from_millis(50);

/// Most ordered tables that a shard tells of one by one, so that a report stays cheap.
pub(crate) const ORDERED_REPORTED: usize = 1000;
/// Most generations of datasets that it tells of, for the same reason: the names of datasets may be long.
const GENERATIONS_REPORTED: usize = 200;

/// What there is of an ordered table.
#[derive(Clone, Copy)]
pub(crate) struct OrderedReport {
    pub table: TableId,
    pub keys: u64,
    pub leaves: u64,
    pub splits: u64,
    pub merges: u64,
    pub laid_out: u64,
    pub models: ModelCounts,
}

/// What a shard tells the rest of the server.
#[derive(Clone, Default)]
pub(crate) struct Report {
    pub counters: ShardCounters,
    pub memory: MemoryUse,
    /// What its slabs are used for, by kind of slot.
    pub kinds: Vec<KindUse>,
    /// Writes that wait for memory now.
    pub writes_waiting: usize,
    pub epoch: u64,
    pub splits: u64,
    pub merges: u64,
    /// The ordered tables that ever had a key, in the order of their numbers, and how many more there are.
    pub ordered: Vec<OrderedReport>,
    pub ordered_not_listed: usize,
    /// Generations of datasets, and the connections of those who hold them. Of shard 0.
    pub generations: Vec<(GenerationReport, Vec<u64>)>,
    pub generations_not_listed: usize,
    /// Numbers of tables, by kind. Of shard 0.
    pub numbers: [NumberCounts; TableKind::ALL.len()],
    pub cpu: Duration,
    pub sleeps: u64,
}

/// What a client may do, and what it wants to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    /// It may write.
    pub may_write: bool,
    /// It is told with each answer which record has all that the answer tells of.
    pub tells_sequence: bool,
    /// Its rings go back to the start behind a lap.
    pub has_laps: bool,
}

impl Access {
    /// Of a client that greeted with these features.
    pub fn of(may_write: bool, features: u64) -> Access {
        let has = |feature: u64| features & feature != 0;
        Access { may_write, tells_sequence: has(FEATURE_SEQUENCES), has_laps: has(FEATURE_LAPS) }
    }
}

/// What those who set connections up ask of the shard thread.
pub(crate) enum Command {
    Join {
        connection: u64,
        inbox: Span,
        outbox: Outbox,
        caller: Option<Caller>,
        access: Access,
    },
    /// A client has gone. If it was told to linger, its process reads no more now.
    Leave {
        connection: u64,
    },
    /// A client is gone for the shard, but its process may read on until it hears of that.
    Linger {
        connection: u64,
    },
    /// Those who connect from now on are in another life of the store.
    BeginLife,
    /// What another shard has to tell, and behind which of its records.
    Order(Order, (usize, u64)),
    /// Tell all changes from now on.
    Follow(Follow),
    /// Tell no more, and what there is at this moment.
    Cut(Arc<Moment>),
    /// Tell a mirror all changes from now on, as the shard of this number; a replica also what clients were
    /// answered.
    Feed {
        shard: usize,
        to_replica: bool,
        tell: Sender<Fed>,
    },
    /// Tell which record has all that is in memory now.
    Covers {
        shard: usize,
        tell: Sender<Fed>,
    },
    /// Hold what stands in the stream from now on, and tell which record is the last before that.
    Hold {
        shard: usize,
        tell: Sender<Fed>,
    },
    /// What clients of a mirror have read there, as the shard of this number. The epoch of use is the answer.
    Used {
        shard: usize,
        locations: Vec<u64>,
        tell: Sender<(usize, u64)>,
    },
    /// Do nothing more for as long as this is so, and tell what the last record is, as the shard of this
    /// number; `None`: not all that has changed is told in records.
    StandStill {
        shard: usize,
        still: Arc<AtomicBool>,
        tell: Sender<(usize, Option<u64>)>,
    },
    /// Says that the thread is still going round.
    Answer(Sender<()>),
}

/// What a shard thread has for others to do.
pub(crate) enum News {
    /// A connection is to be ended, for this reason.
    Fault(u64, &'static str),
    /// A shard of a namespace has something to tell others.
    Order { namespace: usize, cause: (usize, u64), order: Order },
    /// Another life of a namespace is to begin, and these connections are to end for it.
    Renew { namespace: usize, connections: Vec<u64> },
}

/// Where the answers to a client go.
pub(crate) enum Outbox {
    /// Into its mailbox; the other end of the pair wakes it.
    Mailbox { memory: Span, waker: WakerHandle },
    /// To the agent.
    Agent(AgentLink),
    /// Over verbs.
    Verbs(Box<VerbsLink>),
}

/// The rest of the server's handle to a shard.
pub(crate) struct ShardHandle {
    pub header: Arc<Memfd>,
    header_span: Span,
    pub segments: MemfdSegments,
    pub report: Arc<Mutex<Report>>,
    commands: Sender<Command>,
    pending: Arc<AtomicUsize>,
    waker: Arc<WakerHandle>,
    stop: Arc<AtomicBool>,
    authority: Arc<Authority>,
    /// For the thread that writes the log, until that takes it.
    log: Mutex<Option<Feed>>,
    /// Of a primary's: how much its replicas have.
    pub replicas: Option<ShardLog>,
    /// All that it does from its beginning on, for replicas that are expected to go on with what they have.
    expected: Mutex<Vec<(Gatherer, Reader)>>,
    /// Of a primary's: the memory of its stream, and of the page that says how much stands there.
    pub stream: Option<(Memfd, Memfd)>,
    /// A mirror's is that of several.
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
    /// Of a shard with a thread of its own.
    step_in: Option<StepIn>,
    /// The core that its thread is pinned to, and that one's node, where the host has several.
    place: Option<(usize, Option<NumaNode>)>,
}

/// What a shard begins with.
pub(crate) enum Origin<'a> {
    /// Nothing.
    Empty,
    /// What there was in a snapshot.
    Snapshot(&'a Snapshot, Which),
    /// What was replayed of a log.
    Log(Shadow),
}

/// A server that could not be started lets go of the shards that it has.
impl Drop for ShardHandle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.join();
    }
}

/// The segments of a shard, with a word in the log when the system gives no memory for one.
pub(crate) struct LoggedSegments {
    segments: MemfdSegments,
    shard: usize,
    /// Said since there was memory last.
    said: bool,
}

impl LoggedSegments {
    /// Of a shard, whose segments are kept there.
    pub fn new(segments: MemfdSegments, shard: usize) -> LoggedSegments {
        LoggedSegments { segments, shard, said: false }
    }
}

impl SegmentSource for LoggedSegments {
    fn create(&mut self, first: usize, bytes: u64) -> Result<Span> {
        let created = self.segments.create(first, bytes);
        if let Err(error) = &created {
            if !std::mem::replace(&mut self.said, true) {
                let shard = self.shard;
                warn!(%error, shard, bytes, "the system gives no memory: writes go on with what there is");
            }
        }
        self.said &= created.is_err();
        created
    }

    fn retired(&mut self, first: usize) {
        self.segments.retired(first);
    }
}

impl ShardHandle {
    /// Starts a shard.
    pub fn start(
        mut config: ShardConfig,
        origin: Origin<'_>,
        authority: Arc<Authority>,
        stop: Arc<AtomicBool>,
        (news, namespace): (Sender<News>, usize),
        (log, batches): (Option<&ShardsLog>, &LogControl),
        core: Option<usize>,
    ) -> Result<ShardHandle> {
        let (header, header_span) = Memfd::create("kelix-header", Header::BYTES, true)?;
        let number = config.number;
        // What it does from here on is in the log, too.
        let begins_empty = matches!(origin, Origin::Empty);
        config.image.keeps_journal =
            log.is_some_and(|log| log.has_files && (begins_empty || !log.of_replicas));
        let node = core.and_then(NumaNode::of_core);
        let segments = match &origin {
            Origin::Log((segments, _)) => segments.clone(),
            Origin::Empty | Origin::Snapshot(..) => MemfdSegments::default(),
        };
        if let Some(node) = node {
            segments.prefer(node);
        }
        let source = || Box::new(LoggedSegments::new(segments.clone(), number));
        let mut shard = match origin {
            Origin::Empty => Shard::create(config, header_span.clone(), source())?,
            Origin::Snapshot(snapshot, which) => {
                let (books, kept) = snapshot.beside(which)?;
                let fill = |map: &MemoryMap| snapshot.fill(which, map);
                Shard::restore(config, header_span.clone(), source(), (&books, &kept), fill)?
            }
            Origin::Log((_, follower)) => follower.into_shard(config, header_span.clone())?,
        };
        let (mut log_end, mut replicas, mut expected, mut stream) = (None, None, Vec::new(), None);
        if let Some(of @ ShardsLog { control, durability, expected: count, .. }) = log {
            let log = control.shard(counts_at_first(shard.end(), *count));
            if of.of_replicas {
                let (ring, words) = Memfd::create("kelix-stream", STREAM_WORDS as u64 * 8, true)?;
                let (page, head) = Memfd::create("kelix-stream-head", STREAM_HEAD_BYTES, true)?;
                let (stream_memory, on_disk) = (StreamMemory { words, head }, of.counts_on_disk());
                let files = shard.replicate(log.clone(), stream_memory, on_disk);
                log_end = of.has_files.then(|| Feed::new(files, control.shard(shard.end())));
                (replicas, stream) = (Some(log), Some((ring, page)));
                expected.extend((0..*count).map(|_| shard.expect(batches)));
            } else {
                log_end = Some(Feed::new(shard.write_log(log.clone(), *durability), log));
            }
        }
        let (mut handle, thread) = ShardHandle::around(
            shard,
            (header, header_span, segments),
            (authority, stop),
            (news, namespace),
            (log.map(|log| log.waker.clone()), batches.clone()),
        )?;
        handle.place = core.map(|core| (core, node));
        (handle.log, handle.replicas) = (Mutex::new(log_end), replicas);
        (handle.expected, handle.stream) = (Mutex::new(expected), stream);
        let shared = Arc::new(Mutex::new(thread));
        handle.step_in = Some(step_in(&shared));
        let thread = std::thread::Builder::new()
            .name(format!("kelix-shard-{number}"))
            .spawn(move || {
                if let Some(core) = core {
                    let mut set = rustix::thread::CpuSet::new();
                    set.set(core);
                    // A refusal (a container's limits, say) costs only locality.
                    let _ = rustix::thread::sched_setaffinity(None, &set);
                }
                ShardThread::run(&shared);
            })
            .map_err(|source| Error::system("serve", "cannot start a shard thread", source))?;
        handle.runs_in(thread);
        Ok(handle)
    }

    /// A handle to a shard that a thread is to run, and what the thread runs.
    pub fn around(
        shard: Shard,
        (header, header_span, segments): (Memfd, Span, MemfdSegments),
        (authority, stop): (Arc<Authority>, Arc<AtomicBool>),
        (news, namespace): (Sender<News>, usize),
        (log, batches): (Option<LogWaker>, LogControl),
    ) -> Result<(ShardHandle, ShardThread)> {
        let (waker_handle, threads_end) = WakerHandle::within()?;
        let mut waker = Waker::create()?;
        waker.add(threads_end)?;
        let mut endpoint = LocalEndpoint::new(waker);
        endpoint.add_sleep_word(SleepWord { span: header_span.clone(), word: header_word::SLEEPING });
        let (commands, received) = channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let report = Arc::new(Mutex::new(Report::default()));
        let mut thread = ShardThread {
            shard,
            endpoint,
            authority: authority.clone(),
            stop: stop.clone(),
            news,
            namespace,
            received,
            pending: pending.clone(),
            report: report.clone(),
            reported: Instant::now(),
            connections: Vec::new(),
            sleeps: 0,
            over_tcp: 0,
            sleep: Sleep::default(),
            log,
            batches,
            following: None,
            awaited: None,
            segments: segments.clone(),
            is_over: false,
        };
        // Who connects before the thread has come round is told the truth, too.
        thread.publish_report(Duration::ZERO);
        let handle = ShardHandle {
            header: Arc::new(header),
            header_span,
            segments,
            report,
            commands,
            pending,
            waker: Arc::new(waker_handle),
            stop,
            authority,
            log: Mutex::new(None),
            replicas: None,
            expected: Mutex::default(),
            stream: None,
            thread: Arc::default(),
            step_in: None,
            place: None,
        };
        Ok((handle, thread))
    }

    /// Of a mirror's: what the thread that writes its log needs.
    pub fn logs_by(&mut self, log: Option<Feed>) {
        self.log = Mutex::new(log);
    }

    /// The NUMA node of the core that its thread is pinned to, where the host has several.
    pub fn node(&self) -> Option<NumaNode> {
        self.place?.1
    }

    /// The core that its thread is pinned to.
    pub fn core(&self) -> Option<usize> {
        self.place.map(|(core, _)| core)
    }

    /// The thread that runs it, which is waited for with it.
    pub fn runs_in(&self, thread: JoinHandle<()>) {
        *self.thread.lock().expect("no panic under this lock") = Some(thread);
    }

    /// The thread that runs another shard runs this one, too.
    pub fn runs_with(&mut self, other: &ShardHandle) {
        self.thread = other.thread.clone();
    }

    /// What the thread that writes the log needs of it, once.
    pub fn take_log(&self) -> Option<Feed> {
        self.log.lock().expect("no panic under this lock").take()
    }

    /// All that it has done since it began, for a replica that is expected; and what holds that for it.
    pub fn take_expected(&self) -> Option<(Gatherer, Reader)> {
        self.expected.lock().expect("no panic under this lock").pop()
    }

    /// No more replicas are expected.
    pub fn expect_none(&self) {
        self.expected.lock().expect("no panic under this lock").clear();
    }

    /// Whether what stands in its memory counts only when it is committed.
    pub fn commits(&self) -> bool {
        self.header_span.words().load(header_word::FEATURES) & features::COMMITS != 0
    }

    /// Of a mirror's: the last record that is here.
    pub fn applied(&self) -> Committed {
        let words = self.header_span.words();
        let record = words.load_acquire(header_word::COMMITTED_RECORD);
        Committed { record, incarnation: words.load_acquire(header_word::COMMITTED) }
    }

    /// Wakes the thread if it sleeps, for it to look at what was told to it in memory.
    pub fn wake_if_asleep(&self) {
        // SYNC: between what was told and the load: the thread looks once more behind its announcement.
        full_fence();
        if self.header_span.words().load(header_word::SLEEPING) != 0 {
            self.waker.wake();
        }
    }

    /// What the agent needs of it.
    pub fn for_agent(&self) -> AgentShard {
        AgentShard {
            header: self.header_span.clone(),
            segments: self.segments.clone(),
            waker: self.waker.clone(),
            step_in: self.step_in.clone(),
        }
    }

    /// What whoever serves clients over verbs needs of it.
    pub fn for_host(&self, namespace: usize) -> HostShard {
        HostShard {
            namespace,
            header: self.header_span.clone(),
            segments: self.segments.clone(),
            waker: self.waker.clone(),
        }
    }

    /// Sends a command and wakes the thread.
    pub fn command(&self, command: Command) {
        // SYNC: the thread looks at `pending` after it has announced its sleep, and the socket keeps the
        // wake-up.
        if self.commands.send(command).is_ok() {
            self.pending.fetch_add(1, Ordering::SeqCst);
        }
        self.waker.wake();
    }

    /// Wakes the thread, for it to look at the stop flag.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Does so, and waits for its end.
    pub fn join(&self) {
        // It may be the end of a server that never was in force.
        self.authority.begin();
        self.wake();
        if let Some(thread) = self.thread.lock().expect("no panic under this lock").take() {
            let _ = thread.join();
        }
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.lock().expect("no panic under this lock").as_ref().is_none_or(JoinHandle::is_finished)
    }
}

/// What the thread of a shard has; a mirror's runs several.
pub(crate) struct ShardThread {
    shard: Shard,
    endpoint: LocalEndpoint,
    authority: Arc<Authority>,
    stop: Arc<AtomicBool>,
    news: Sender<News>,
    /// Which namespace it is of.
    namespace: usize,
    received: Receiver<Command>,
    pending: Arc<AtomicUsize>,
    report: Arc<Mutex<Report>>,
    /// When it was last told.
    reported: Instant,
    connections: Vec<Connection>,
    sleeps: u64,
    /// Steps in a row whose requests came over TCP: the agent may need this thread's core to send the
    /// answers.
    over_tcp: u32,
    sleep: Sleep,
    /// The thread that writes the log.
    log: Option<LogWaker>,
    /// Whoever gathers records gathers batches of these numbers.
    batches: LogControl,
    /// Whoever takes a snapshot.
    following: Option<Follow>,
    /// Of a mirror's: the moment of the snapshot, to which its thread brings all its shards.
    awaited: Option<Arc<Moment>>,
    segments: MemfdSegments,
    /// The last snapshot was taken: nothing more is executed.
    is_over: bool,
}

struct Connection {
    number: u64,
    peer: PeerId,
    /// Its end of a wake-up pair in the epoll set, if it has one.
    wake_key: Option<usize>,
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl ShardThread {
    fn now(&self) -> Now {
        // In this order: a thread that loses its core in between dates what it serves too late, by what has
        // passed since the first clock was read, and ends no item before its time.
        let monotonic_ns = self.endpoint.now_ns();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { monotonic_ns, wall_ns: wall.as_nanos() as u64 }
    }

    /// Runs the shard until it is to end. It is this thread's but for its sleeps.
    fn run(shared: &Mutex<ShardThread>) {
        let mut thread = awake(shared);
        thread.authority.wait_for_begin();
        let mut now = thread.now();
        let mut steps = 0;
        while !thread.stop.load(Ordering::Relaxed) && thread.authority.in_force() {
            thread.handle_commands();
            if thread.is_over {
                break;
            }
            let progress = thread.step(now);
            if thread.shard.is_behind() {
                std::thread::sleep(BEHIND);
            }
            if progress.requests > 0 {
                thread.lets_agent_answer();
            }
            steps += 1;
            if progress.requests > 0 && steps % STEPS_A_CLOCK != 0 {
                continue;
            }
            thread.endpoint.maintain();
            now = thread.now();
            if thread.reported.elapsed() > REPORT {
                thread.publish_report(cpu_time());
            }
            if progress.requests == 0 && progress.next_ns.is_none_or(|next| next > now.monotonic_ns) {
                if !thread.looks_on(progress.next_ns) {
                    thread = ShardThread::sleep(thread, shared, progress.next_ns);
                }
                now = thread.now();
            }
        }
        if !thread.is_over {
            thread.drain();
        }
        thread.publish_report(cpu_time());
        thread.shard.image().header().set_state(ImageState::Stopped);
    }

    /// Has the shard do what has arrived, and others what it leaves to them.
    fn step(&mut self, now: Now) -> Progress {
        let mut progress = self.shard.step(now, &mut self.endpoint);
        for (peer, what) in &progress.faulty {
            self.report_fault(*peer, what);
        }
        for order in progress.orders.drain(..) {
            let (namespace, cause) = (self.namespace, self.shard.cause());
            let _ = self.news.send(News::Order { namespace, cause, order });
        }
        if let Some(log) = self.log.as_ref().filter(|_| progress.wakes_log) {
            log.wake_sleepers(&self.batches);
        }
        if let Some(connections) = progress.renewed.take() {
            let _ = self.news.send(News::Renew { namespace: self.namespace, connections });
        }
        progress
    }

    /// Lets a connection be ended.
    fn report_fault(&self, peer: PeerId, what: &'static str) {
        if let Some(connection) = self.connections.iter().find(|connection| connection.peer == peer) {
            let _ = self.news.send(News::Fault(connection.number, what));
        }
    }

    pub fn glance(&mut self) -> bool {
        self.shard.glance(&self.endpoint) || self.pending.load(Ordering::Relaxed) > 0
    }

    pub fn has_news(&self) -> bool {
        self.shard.has_news(&self.endpoint) || self.pending.load(Ordering::SeqCst) > 0
    }

    /// Whether something is to be done that is commanded, or the shard is to end.
    fn is_wanted(&self) -> bool {
        let is_commanded = self.pending.load(Ordering::SeqCst) > 0;
        is_commanded || self.stop.load(Ordering::SeqCst) || !self.authority.in_force()
    }

    fn publish_report(&mut self, cpu: Duration) {
        self.reported = Instant::now();
        let (splits, merges) = self.shard.splits_and_merges();
        let mut report = self.report.lock().expect("no panic under this lock");
        // The lists' memory is used again and again.
        let mut ordered = std::mem::take(&mut report.ordered);
        ordered.clear();
        let mut kinds = std::mem::take(&mut report.kinds);
        kinds.clear();
        kinds.extend(self.shard.image().kind_uses());
        let mut tables = self.shard.ordered_counts();
        ordered.extend(tables.by_ref().take(ORDERED_REPORTED).map(|(table, counts, models)| OrderedReport {
            table,
            keys: counts.keys,
            leaves: counts.leaves,
            splits: counts.splits,
            merges: counts.merges,
            laid_out: counts.laid_out,
            models,
        }));
        let connection = |peer: &PeerId| {
            let known = self.connections.iter().find(|connection| connection.peer == *peer);
            known.map(|connection| connection.number)
        };
        let mut all = self.shard.generations();
        let generations = all.by_ref().take(GENERATIONS_REPORTED).map(|generation| {
            let holders = generation.holders.iter().filter_map(connection).collect();
            (generation, holders)
        });
        let generations: Vec<_> = generations.collect();
        let generations_not_listed = all.count();
        *report = Report {
            counters: self.shard.counters(),
            memory: self.shard.memory_use(),
            kinds,
            writes_waiting: self.shard.writes_waiting(),
            epoch: self.shard.image().epoch(),
            splits,
            merges,
            ordered,
            ordered_not_listed: tables.count(),
            generations,
            generations_not_listed,
            numbers: self.shard.number_counts(),
            cpu,
            sleeps: self.sleeps,
        };
    }

    /// Does what those who set connections up ask for.
    fn handle_commands(&mut self) {
        if self.pending.load(Ordering::Relaxed) == 0 {
            return;
        }
        while let Ok(command) = self.received.try_recv() {
            self.pending.fetch_sub(1, Ordering::SeqCst);
            match command {
                Command::Order(order, cause) => self.shard.handle_order(order, cause),
                Command::Follow(follow) => self.begin_to_tell(follow),
                Command::Cut(moment) if self.shard.is_mirror() => self.awaited = Some(moment),
                Command::Cut(moment) => self.cut(&moment),
                Command::Feed { shard, to_replica, tell } => self.begin_feed(shard, to_replica, &tell),
                Command::Covers { shard, tell } => self.tell_covers(shard, &tell),
                Command::Hold { shard, tell } => self.hold(shard, &tell),
                Command::Used { shard, locations, tell } => self.hear(shard, &locations, &tell),
                Command::StandStill { shard, still, tell } => self.stand_still(shard, &still, &tell),
                // Whoever asked may have stopped waiting.
                Command::Answer(asker) => drop(asker.send(())),
                Command::Join { connection, inbox, outbox, caller, access } => {
                    self.join(connection, inbox, outbox, (caller, access));
                }
                Command::Leave { connection } => {
                    self.leave(connection);
                    self.shard.end_lingering(connection);
                }
                Command::Linger { connection } => {
                    self.shard.linger(connection);
                    self.leave(connection);
                }
                Command::BeginLife => self.shard.begin_life(),
            }
        }
    }

    fn leave(&mut self, connection: u64) {
        let known = self.connections.iter().position(|known| known.number == connection);
        let Some(index) = known else { return };
        let Connection { peer, wake_key, .. } = self.connections.swap_remove(index);
        self.shard.leave(peer);
        self.endpoint.remove(peer);
        wake_key.into_iter().for_each(|key| self.endpoint.waker().remove(key));
    }

    fn join(
        &mut self,
        connection: u64,
        inbox: Span,
        outbox: Outbox,
        (caller, Access { may_write, tells_sequence, has_laps }): (Option<Caller>, Access),
    ) {
        let (way, wake_key) = match outbox {
            Outbox::Mailbox { memory, waker } => {
                // Without a place in the epoll set the client could not wake us; its connection ends.
                let Ok(wake_key) = self.endpoint.waker().add(waker) else {
                    let _ = self.news.send(News::Fault(connection, "no descriptor to watch it with"));
                    return;
                };
                let sleeps = SleepWord { span: memory.clone(), word: mailbox_word::SLEEPS };
                (Way::Shared { outbox: memory, sleeps, wake_key }, Some(wake_key))
            }
            Outbox::Agent(link) => (Way::Agent(link), None),
            Outbox::Verbs(link) => (Way::Verbs(link), None),
        };
        let peer = self.endpoint.add(Peer { memory: None, inbox, way });
        let mut ring = RingShape::of_messages(self.endpoint.promises(peer).ordered_placement);
        if has_laps {
            ring = ring.in_laps_of_session(wake_key.is_some());
        }
        let guest = ClientParameters { ring, connection, caller, may_write, tells_sequence };
        if let Some(old) = self.shard.join(peer, guest) {
            self.report_fault(old, "it has connected anew");
        }
        self.connections.push(Connection { number: connection, peer, wake_key });
    }
}
