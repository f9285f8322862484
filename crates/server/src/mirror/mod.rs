//! A mirror: a server whose images are those of another one, its primary, which it follows.
//!
//! ```text
//! attach      connects, and copies the primary's memory beside its writes, into images that nobody reads
//! (intake)    what comes of the feed, in the order in which it counts (`kelix_shard::replicas`)
//! (prepare)   the images get models and header pages of their own, and are served
//! thread      applies records to them, and answers requests
//! (supervise) when the primary is lost: attaches anew, and goes on with what was copied then, in the place of
//!             what is served, as a server does that takes over
//! (take up)   when another server goes on with the primary's log: goes on with the memory that is served, in
//!             other images and under another term, before any record of that server is applied
//! copies      what it keeps on its own disk, and begins with
//! standing    how it is doing
//! streams     of a replica: the primary's streams, in memory
//! ```

mod attach;
pub(crate) mod copies;
mod standing;
pub(crate) mod streams;
mod thread;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kelix_fabric::shm::{Memfd, MemfdSegments, RunDirectory};
use kelix_fabric::tcp::ClientTls;
use kelix_image::{Header, ImageConfig, SegmentSource};
use kelix_log::LogControl;
use kelix_log::files::Feed;
use kelix_shard::{Durability, Shard, ShardConfig};
use kelix_types::limits::{EPOCH_NS, EPOCH_NS_MIN, SEGMENT_BYTES_FIRST, SEGMENT_BYTES_MAX};
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::control::StreamPosition;
use tracing::{info, warn};

use crate::authority::Authority;
use crate::cluster::NodeStatus;
use crate::current::{Current, Serving};
use crate::listening::Reserved;
use crate::namespace::{Mirrored, Namespace, NamespaceConfig, first_incarnation};
use crate::server::{Prepared, ServerConfig, Shared, check_access, random_u64};
use crate::shard_thread::{LoggedSegments, News, ShardHandle, ShardThread};
use crate::store::term_of_clock;
use crate::wal::ShardsLog;
use attach::{Joined, Past, Resumed};
use copies::{Copies, Kept, Source};
use thread::MirrorThread;

pub(crate) use attach::Attached;
pub(crate) use kelix_shard::replicas::Backlog;
pub(crate) use standing::Standing;

/// A shard that is followed.
pub(crate) type Shadow = kelix_shard::replicas::Shadow<MemfdSegments>;

/// The memory of a shard that is followed.
pub(crate) fn make_segments(shard: usize) -> (MemfdSegments, Box<dyn SegmentSource>) {
    let segments = MemfdSegments::default();
    let source = Box::new(LoggedSegments::new(segments.clone(), shard));
    (segments, source)
}

/// What a feed may go over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeedFabric {
    /// A connection.
    Tcp,
    /// A queue pair, which is connected by what is said over TCP.
    Verbs,
}

/// Whom to follow, and how.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    /// Host and port of the primary.
    pub primary: String,
    /// The word that it knows this mirror by.
    pub token: Option<String>,
    /// Speak TLS with it.
    pub tls: Option<ClientTls>,
    /// The fabric that the feed is to go over; verbs where both sides have RDMA, else TCP, if there is none.
    pub fabric: Option<FeedFabric>,
    /// The address of this host whose device for RDMA is to be used, if not any that leads to the primary.
    pub rdma_address: Option<IpAddr>,
    /// The namespaces to show.
    pub namespaces: Vec<String>,
    /// Most bytes a second of a copy; 0: as many as come.
    pub copy_rate: u64,
    /// For how long the mirror may be read without hearing of its primary; for ever, if there is none.
    pub max_lag: Option<Duration>,
    /// What the primary's statistics call it.
    pub name: String,
    /// Most memory of each namespace; as much as the primary has, if there is none.
    pub memory_bytes: Option<u64>,
    /// For how long to try if the primary cannot be reached to begin with.
    pub retry_for: Duration,
    /// Be a replica of a cluster's primary.
    pub replica: Option<ReplicaConfig>,
}

/// How a mirror counts for its primary.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// The node that the replica is.
    pub(crate) status: Arc<NodeStatus>,
    /// The run directory of whoever is primary, on this host, whose streams are to be mapped; else what counts
    /// is what was sent.
    pub(crate) run: Option<PathBuf>,
    /// What the node keeps on its disk.
    pub(crate) copies: Option<Arc<Copies>>,
    /// The namespaces that the node serves once it is primary.
    pub(crate) serves: Vec<NamespaceConfig>,
}

/// Between two tries to attach, at first and at most.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);
const BETWEEN_TRIES_MAX: Duration = Duration::from_secs(2);
/// How often the supervisor looks whether the server is to end.
const ROUND: Duration = Duration::from_millis(200);

/// How long the thread of a namespace may take to give up what it has.
const GIVES_UP_WITHIN: Duration = Duration::from_secs(10);

/// What there is on this host of all namespaces, and what is kept of that on its disk.
struct Copy {
    followed: Vec<Attached>,
    kept: Option<Kept>,
    batches: LogControl,
}

/// What came of attaching to namespaces.
enum Rejoined {
    /// Of each the records behind its past come.
    Resumed(Vec<(usize, Resumed)>),
    /// All namespaces of the mirror were copied, since of one the past was of no use.
    Copied(Vec<Attached>),
}

/// Attaches to namespaces, each with what there is of it here: records behind that will do if that can be
/// said of all of them.
fn rejoin(
    config: &MirrorConfig,
    pasts: impl Iterator<Item = (usize, Option<Past>)>,
    ends: &dyn Fn() -> bool,
) -> Result<Rejoined> {
    let names = &config.namespaces;
    let (mut resumed, mut copied) = (Vec::new(), BTreeMap::new());
    for (index, past) in pasts {
        match attach::attach(config, &names[index], past, ends)? {
            Joined::Resumed(of) => resumed.push((index, *of)),
            Joined::Copied(attached) => drop(copied.insert(index, *attached)),
        }
    }
    if copied.is_empty() {
        return Ok(Rejoined::Resumed(resumed));
    }
    // What is copied goes into force as a whole.
    drop(resumed);
    for (index, name) in names.iter().enumerate() {
        if copied.contains_key(&index) {
            continue;
        }
        if let Joined::Copied(attached) = attach::attach(config, name, None, ends)? {
            copied.insert(index, *attached);
        }
    }
    Ok(Rejoined::Copied(copied.into_values().collect()))
}

/// What a mirror begins with: what it has on its disk, and what its primary has. An error: neither is to be
/// had.
fn begin(config: &ServerConfig, authority: &Authority, copies: Option<&Copies>) -> Result<Copy> {
    let mirror = config.mirror.as_ref().expect("a mirror's configuration");
    let batches = LogControl::of_mirror();
    // A replica copies what its primary has: the records of another one would be others.
    let keeps = copies.filter(|_| mirror.replica.is_none());
    let restored = keeps.map(|copies| copies.restore(config, authority, &batches)).transpose()?.flatten();
    let restored = restored.map(|(mut kept, source)| (Attached::of_kept(&mut kept, &source), kept));
    let past = |index: usize| restored.as_ref().and_then(|(followed, _)| followed[index].past());
    let (began, mut said) = (Instant::now(), false);
    let rejoined = loop {
        let pasts = (0..mirror.namespaces.len()).map(|index| (index, past(index)));
        match rejoin(mirror, pasts, &|| false) {
            Ok(rejoined) => break Some(rejoined),
            Err(error) if error.retry() && began.elapsed() < mirror.retry_for => {
                if !std::mem::replace(&mut said, true) {
                    warn!(%error, "this mirror waits for its primary");
                }
                std::thread::sleep(BETWEEN_TRIES);
            }
            Err(error) if error.retry() && restored.is_some() => {
                warn!(%error, "this mirror shows what it has on its disk");
                break None;
            }
            Err(error) => return Err(error),
        }
    };
    let resumed = match rejoined {
        Some(Rejoined::Copied(followed)) => return keep(config, authority, copies, followed, batches),
        Some(Rejoined::Resumed(resumed)) => resumed,
        None => Vec::new(),
    };
    let (mut followed, kept) = restored.expect("only what is on the disk is gone on with");
    if !resumed.is_empty() {
        resumed.into_iter().for_each(|(index, of)| followed[index].resume(of));
        followed[0].source().write(kept.store.path())?;
    }
    Ok(Copy { followed, kept: Some(kept), batches })
}

/// Begins to keep what was copied, if the mirror keeps anything.
fn keep(
    config: &ServerConfig,
    authority: &Authority,
    copies: Option<&Copies>,
    followed: Vec<Attached>,
    batches: LogControl,
) -> Result<Copy> {
    let Some(copies) = copies else { return Ok(Copy { followed, kept: None, batches }) };
    let namespaces = followed.iter().map(Attached::describe);
    let sequences = followed.iter().flat_map(|of| of.intake.applied()).collect();
    let replica = config.mirror.as_ref().and_then(|mirror| mirror.replica.as_ref());
    let boot = replica.map_or(0, |replica| replica.status.boot());
    let source = Source { boot, ..followed[0].source() };
    let kept = copies.begin(config, authority, &batches, (namespaces.collect(), sequences), &source)?;
    Ok(Copy { followed, kept: Some(kept), batches })
}

pub(crate) fn standing(of: &Namespace) -> &Standing {
    &of.mirrored.as_ref().expect("a mirror's namespace").standing
}

/// Of a replica that has lost its primary: follows another one that was chosen, behind what it has. An error,
/// which may pass: it cannot yet; else it has to copy.
pub(crate) fn follow_chosen(config: &MirrorConfig, namespaces: &[Arc<Namespace>]) -> Result<()> {
    let copies = || {
        Error::new(ErrorKind::Unavailable, "follow", "the chosen primary does not go on with what is here")
    };
    let resume = |(index, of): (usize, &Arc<Namespace>)| {
        let past = past(of).ok_or_else(copies)?;
        match attach::attach(config, &config.namespaces[index], Some(past), &|| true)? {
            Joined::Resumed(resumed) => Ok(resumed),
            Joined::Copied(_) => Err(copies()),
        }
    };
    let resumed: Vec<_> = namespaces.iter().enumerate().map(resume).collect::<Result<_>>()?;
    for (of, resumed) in namespaces.iter().zip(resumed) {
        let mirrored = of.mirrored.as_ref().expect("a mirror's namespace");
        mirrored.primary.lock().expect("no panic under this lock").clone_from(&config.primary);
        mirrored.lineage.store(resumed.lineage, Ordering::Release);
        standing(of).resume(*resumed);
        of.shards[0].wake();
    }
    Ok(())
}

/// What a mirror has of a namespace whose primary is lost, if it is good.
fn past(of: &Namespace) -> Option<Past> {
    let lineage = of.mirrored.as_ref()?.lineage.load(Ordering::Acquire);
    let sequences = of.shards.iter().map(|shard| shard.applied().record).collect();
    let past = Past { life: Some(of.life()), position: StreamPosition { lineage, sequences } };
    (lineage != 0 && standing(of).may_resume()).then_some(past)
}

/// The memory of a namespace that is shown, with what runs it.
struct Shown {
    namespace: Namespace,
    thread: MirrorThread,
}

/// Until when what was as new as the primary at a moment may be read; 0: for ever. What is of no known moment
/// (0) is too old for whoever has a limit.
fn until_ns(max_lag: Option<Duration>, fresh_ns: u64) -> u64 {
    match max_lag {
        None => 0,
        Some(_) if fresh_ns == 0 => 1,
        Some(lag) => fresh_ns.saturating_add(lag.as_nanos() as u64),
    }
}

/// How an image is made that shows another one's.
pub(crate) fn image_of_mirror(hash_seed: u64, term: u64) -> Result<ImageConfig> {
    Ok(ImageConfig {
        image_id: random_u64()?,
        hash_seed,
        term,
        incarnation: first_incarnation(term_of_clock(), random_u64()?),
        epoch_ns: EPOCH_NS_MIN,
        epoch_ns_usual: EPOCH_NS,
        // Of its own models; the rest is as large as it is.
        memory_bytes: u64::MAX / 4,
        segment_bytes_first: SEGMENT_BYTES_FIRST,
        segment_bytes_max: SEGMENT_BYTES_MAX,
        keeps_journal: false,
    })
}

/// Makes images of what was copied, and what serves them.
fn show(
    config: &ServerConfig,
    mut attached: Attached,
    (index, first_in_agent): (usize, usize),
    serving: (&Arc<Authority>, &Arc<AtomicBool>),
    (news, batches, log): (&Sender<News>, &LogControl, Option<&ShardsLog>),
) -> Result<Shown> {
    let mirror = config.mirror.as_ref().expect("a mirror's configuration");
    let (authority, stop) = serving;
    let is_replica = mirror.replica.is_some();
    // The disk of a replica keeps what comes, before it counts and is applied.
    let receipts = log.filter(|_| is_replica).map(|log| {
        let counts = log.durability == Durability::Commit;
        attached.intake.keep_log(&log.control, counts)
    });
    let receipts = receipts.transpose()?;
    let shadows = attached.intake.take_shadows();
    let (view, term, is_cache) = (attached.view.clone(), authority.term, attached.is_cache);
    let make = move || -> Result<Vec<(ShardHandle, _)>> {
        let mut receipts = receipts.map(Vec::into_iter);
        let mut shards: Vec<(ShardHandle, _)> = Vec::new();
        for (number, Shadow { segments, follower }) in shadows.into_iter().enumerate() {
            let (header, header_span) = Memfd::create("kelix-header", Header::BYTES, true)?;
            let image = image_of_mirror(view.hash_seed, term)?;
            let shard = ShardConfig { number, view: view.clone(), image, view_lease_ns: 0, is_cache };
            let source = Box::new(LoggedSegments::new(segments.clone(), number));
            let mut shard = Shard::mirror(follower, shard, header_span.clone(), source)?;
            let log_end = match &mut receipts {
                Some(receipts) => receipts.next().map(|(reader, log)| Feed::new(reader, log)),
                None => log.map(|ShardsLog { control, .. }| {
                    let log = control.shard(shard.end());
                    Feed::new(shard.write_mirrored_log(control), log)
                }),
            };
            let (mut handle, thread) = ShardHandle::around(
                shard,
                (header, header_span, segments),
                (authority.clone(), stop.clone()),
                (news.clone(), index),
                (log.map(|log| log.waker.clone()), batches.clone()),
            )?;
            handle.logs_by(log_end);
            if let Some((first, _)) = shards.first() {
                handle.runs_with(first);
            }
            shards.push((handle, thread));
        }
        Ok(shards)
    };
    let (handles, threads): (Vec<_>, Vec<_>) = attached.receive_during(make)?.into_iter().unzip();
    let standing = Arc::new(Standing::new(&mirror.primary, !(is_replica && log.is_some())));
    // Before anybody connects, who would take a shard without a limit for one that is never too old.
    let until_ns = until_ns(mirror.max_lag, attached.fresh_ns);
    threads.iter().for_each(|shard: &ShardThread| shard.set_fresh(attached.fresh_ns, until_ns));
    standing.note_fresh(attached.fresh_ns);
    let (primary, lineage) = (attached.writes_go_to.clone(), attached.lineage);
    let (primary, lineage) = (Mutex::new(primary), AtomicU64::new(lineage));
    let mirrored = Mirrored { primary, lineage, standing: standing.clone() };
    let (name, view, life) = (attached.name.clone(), attached.view.clone(), attached.life);
    // A replica knows who may read what it may come to serve.
    let known = config.namespaces.iter().find(|of| of.name == name);
    let rights = known.map_or(&config.rights, |of| &of.rights).clone();
    let mut namespace = Namespace::of_mirror((name, rights), (view, life), handles, first_in_agent, mirrored);
    namespace.is_cache = is_cache;
    let thread = MirrorThread {
        attached,
        lost: None,
        is_retelling: false,
        shards: threads,
        authority: authority.clone(),
        // Whoever gathers what comes does not wait for what is applied.
        batches: if is_replica { LogControl::of_mirror() } else { batches.clone() },
        stop: stop.clone(),
        standing,
        max_lag: mirror.max_lag,
    };
    Ok(Shown { namespace, thread })
}

/// Makes a server of what there is, which has not taken possession yet.
fn prepare_with(
    config: &ServerConfig,
    authority: Arc<Authority>,
    Copy { followed, kept, batches }: Copy,
    reserved: Option<Reserved>,
) -> Result<Prepared> {
    let stop = Arc::new(AtomicBool::new(false));
    let (news, received) = channel();
    let log = kept.as_ref().map(|kept| &kept.log.shards);
    let (mut namespaces, mut threads, mut first) = (Vec::new(), Vec::new(), 0);
    for (index, attached) in followed.into_iter().enumerate() {
        let with = (&news, &batches, log);
        let Shown { namespace, thread } = show(config, attached, (index, first), (&authority, &stop), with)?;
        first += namespace.shards.len();
        namespaces.push(Arc::new(namespace));
        threads.push(thread);
    }
    for (namespace, thread) in namespaces.iter().zip(threads) {
        let name = std::thread::Builder::new().name("kelix-mirror".into());
        let thread = name.spawn(move || thread.run());
        let thread = thread.map_err(|source| Error::system("serve", "cannot start a thread", source))?;
        namespace.shards[0].runs_in(thread);
    }
    let listener = authority.listen()?;
    let tcp = reserved.as_ref().map(Reserved::address);
    authority.note_address(tcp)?;
    let mut shared = Shared::of_namespaces(authority, namespaces, (tcp, config.mirrors), batches);
    let replica = config.mirror.as_ref().and_then(|mirror| mirror.replica.as_ref());
    shared.node = replica.map(|replica| replica.status.clone());
    let (mut asked, mut writer) = (None, None);
    if let Some(kept) = kept {
        let (received, streams) = kept.go_on(&mut shared, &config.directory, random_u64()?)?;
        (asked, writer) = (Some(received), streams);
    }
    let shared = Arc::new(shared);
    if let (Some(wal), Some((writer, ends))) = (&shared.wal, writer) {
        wal.start(&shared, writer, ends)?;
    }
    Prepared::of_serving(Serving { shared, stop }, config, (listener, asked, reserved), received)
}

/// Does everything that the start of a mirror may fail at: copies the memory of its primary, and makes
/// images of it.
pub(crate) fn prepare(config: &ServerConfig) -> Result<Prepared> {
    let directory = RunDirectory(config.directory.clone());
    check_access(config)?;
    if config.snapshots.is_some() && config.wal.as_ref().is_none_or(|wal| wal.until.is_some()) {
        let context =
            "a mirror keeps snapshots together with a log of what it applies, and shows the present";
        return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
    }
    let authority = Arc::new(Authority::prepare(directory, config.take_over)?);
    let holder = authority.superseded();
    let reserved = config.listen.map(|address| Reserved::share(address, holder.as_ref())).transpose()?;
    let replica = config.mirror.as_ref().and_then(|mirror| mirror.replica.as_ref());
    let copies = match replica {
        Some(replica) => replica.copies.clone(),
        None => config.snapshots.as_ref().map(|of| Copies::open(&of.directory)).transpose()?.map(Arc::new),
    };
    let copy = begin(config, &authority, copies.as_deref())?;
    Ok(prepare_with(config, authority, copy, reserved)?.with_copies(copies))
}

/// Whether what there is of a namespace can be gone on with.
pub(crate) fn is_good(of: &Namespace) -> bool {
    !standing(of).is_lost() || standing(of).may_resume()
}

/// Takes up what there is of all namespaces, to go on with that in another life of them; or where this one is
/// `chosen` to be primary, in the same, with all that came and may count. `None`: it is not to be had, and has to
/// be copied. In either case nobody else applies anything any more.
pub(crate) fn take_up(namespaces: &[Arc<Namespace>], chosen: bool) -> Option<Vec<Attached>> {
    let taken = namespaces.iter().all(|of| is_good(of)).then(|| {
        let ask = |of: &Arc<Namespace>| {
            let (to, given_up) = channel();
            standing(of).give_up(to, chosen);
            of.shards[0].wake();
            given_up
        };
        let given_up: Vec<_> = namespaces.iter().map(ask).collect();
        given_up.into_iter().map(|given_up| given_up.recv_timeout(GIVES_UP_WITHIN).ok()).collect()
    });
    let why = Error::new(ErrorKind::Unavailable, "follow", "what there was of it is served anew");
    namespaces.iter().for_each(|of| standing(of).lose(&why));
    taken.flatten()
}

/// Begins to watch over a mirror that serves: whenever its primary is lost, it attaches anew.
pub(crate) fn supervise(
    config: &ServerConfig,
    current: &Current,
    (reserved, copies): (Option<Reserved>, Option<Arc<Copies>>),
) -> Result<()> {
    let (config, current) = (config.clone(), current.clone());
    let name = std::thread::Builder::new().name("kelix-follow".into());
    let thread = name.spawn(move || {
        let host = (reserved.as_ref(), copies.as_deref());
        while go_on(&config, &current, host) {}
    });
    thread.map(drop).map_err(|source| Error::system("serve", "cannot start a thread", source))
}

/// What is kept of what is served, until it has a snapshot and so the place of what was kept before.
struct Keeping<'a> {
    copies: &'a Copies,
    shared: &'a Shared,
    is_alone: bool,
}

impl<'a> Keeping<'a> {
    fn begin(copies: &'a Copies, shared: &'a Shared) -> Keeping<'a> {
        if let Some(snapshots) = shared.snapshots.as_ref().filter(|snapshots| !snapshots.has_any()) {
            // Nobody waits for it; the thread says how it went.
            let _ = snapshots.ask(false);
        }
        Keeping { copies, shared, is_alone: false }
    }

    fn look(&mut self) {
        let Shared { snapshots: Some(snapshots), store: Some(store), .. } = self.shared else { return };
        if !self.is_alone && snapshots.has_any() {
            self.copies.keep_only(store.path());
            self.is_alone = true;
        }
    }
}

/// Waits until the primary is lost, and goes on when it is there again. `false`: the mirror is to end.
fn go_on(
    config: &ServerConfig,
    current: &Current,
    (reserved, copies): (Option<&Reserved>, Option<&Copies>),
) -> bool {
    let serving = current.get();
    let mut keeping = copies.map(|copies| Keeping::begin(copies, &serving.shared));
    let has_ended = || current.ends() || !serving.shared.authority.in_force();
    let namespaces = &serving.shared.namespaces;
    while !namespaces.iter().any(|of| standing(of).is_lost() || standing(of).has_life_ended()) {
        if has_ended() {
            return false;
        }
        for of in namespaces {
            standing(of).note_reads(crate::statistics::reads(&serving.shared, of));
        }
        keeping.iter_mut().for_each(Keeping::look);
        standing(&namespaces[0]).wait_for_stop(ROUND);
    }
    let mirror = config.mirror.as_ref().expect("a mirror's configuration");
    let (mut pause, mut said) = (BETWEEN_TRIES, false);
    let attached = loop {
        if has_ended() {
            return false;
        }
        if namespaces.iter().any(|of| standing(of).has_life_ended()) {
            match take_up(namespaces, false) {
                Some(attached) => break attached,
                None => continue,
            }
        }
        let lost = namespaces.iter().enumerate().filter(|(_, of)| standing(of).is_lost());
        match rejoin(mirror, lost.map(|(index, of)| (index, past(of))), &has_ended) {
            Ok(Rejoined::Copied(attached)) => break attached,
            Ok(Rejoined::Resumed(resumed)) => {
                for (index, of) in resumed {
                    standing(&namespaces[index]).resume(of);
                    namespaces[index].shards[0].wake();
                }
                return true;
            }
            Err(_) if has_ended() => return false,
            Err(error) => {
                if !std::mem::replace(&mut said, true) {
                    warn!(%error, "cannot attach anew yet; trying on");
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(BETWEEN_TRIES_MAX);
            }
        }
    };
    let succeeded = serving.shared.authority.succeed().and_then(|authority| {
        let reserved = reserved.map(Reserved::try_clone).transpose()?;
        let copy = keep(config, &authority, copies, attached, LogControl::of_mirror())?;
        let prepared = prepare_with(config, Arc::new(authority), copy, reserved)?;
        current.succeed(|| prepared.take_over())
    });
    match succeeded {
        Ok(Some(old)) => {
            info!(term = current.get().shared.authority.term, "this mirror begins anew: sessions go over");
            old.stop(|| {});
            true
        }
        Ok(None) => false,
        Err(error) if error.kind() == ErrorKind::Superseded => false,
        Err(error) => {
            warn!(%error, "what this mirror has now cannot be served; once more");
            std::thread::sleep(BETWEEN_TRIES_MAX);
            true
        }
    }
}
