//! Attaching to a primary: connecting, greeting, and the copy of its memory beside its writes, or where that
//! has a log that reaches back, what was done since this mirror was there last.

use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use kelix_fabric::host_clock_ns;
use kelix_fabric::shm::MemfdSegments;
use kelix_fabric::tcp::{FeedLink, Greeting};
use kelix_fabric::verbs::{self, Offer, VerbsStream};
use kelix_log::StreamMemory;
use kelix_shard::replicas::Intake;
use kelix_snapshot::NamespaceDescription;
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::control::{
    Caller, DENIED, FEATURE_COMMITS, FEATURE_HINTS, FEATURE_MIRROR, FEATURES_NEEDED, Frame, Purpose,
    StreamPosition,
};
use kelix_wire::feed::FeedPart;
use kelix_wire::{MAILBOX_BYTES, SPOKEN, View};
use tracing::info;

use super::copies::{Kept, Source};
use super::{FeedFabric, MirrorConfig, Shadow, make_segments, streams};
use crate::server::random_u64;

/// How long the primary may take to answer while the two get to know each other.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two words of how far a copy is.
const PROGRESS: Duration = Duration::from_secs(5);
/// How long nothing may come of a copy.
const SILENCE: Duration = Duration::from_secs(30);
/// Frames that are taken in before anything else is looked at.
const FRAMES_A_TURN: usize = 64;
/// How long is waited for something to come.
const ROUND: Duration = Duration::from_millis(20);

/// A namespace that is followed.
pub(crate) struct Attached {
    pub name: String,
    /// None, once the primary is lost: then this is what there was.
    pub link: Option<FeedLink>,
    pub intake: Intake<MemfdSegments>,
    pub view: View,
    /// The number of the primary's life of the namespace.
    pub life: u64,
    /// The lineage of its records; 0: it has no log.
    pub lineage: u64,
    /// Where writes go, which is not the primary where that is a mirror, too.
    pub writes_go_to: String,
    /// By the host's clock, when there was nothing yet that the copy would not have; 0: nobody knows.
    pub fresh_ns: u64,
    /// It may let items go, and wants to know what is read.
    pub is_cache: bool,
    /// The primary's life and lineage, if what there is comes of an earlier one.
    pub next: Option<(u64, u64)>,
    /// The number of the last question to the primary.
    pub question: u64,
    /// Of a replica: the primary's streams.
    pub streams: Vec<StreamMemory>,
    /// Of a replica: it says what it has. Not before it could go on in the primary's place, which may be lost with
    /// the next word: whoever says so is in sync.
    pub says_what_it_has: bool,
}

/// What a mirror has of a namespace, and in which life of it; none, if nobody has used it.
pub(crate) struct Past {
    pub life: Option<u64>,
    pub position: StreamPosition,
}

/// A connection over which records come from a position on, and of what they are.
pub(crate) struct Resumed {
    pub link: FeedLink,
    pub life: u64,
    pub lineage: u64,
    pub writes_go_to: String,
    pub is_cache: bool,
    pub streams: Vec<StreamMemory>,
}

/// What came of attaching.
pub(crate) enum Joined {
    /// All memory was copied.
    Copied(Box<Attached>),
    /// Records come from the position on.
    Resumed(Box<Resumed>),
}

fn failed(kind: ErrorKind, primary: &str, what: impl std::fmt::Display) -> Error {
    Error::new(kind, "follow", format!("{primary}: {what}"))
}

/// The connection to the primary, and its address.
fn open(primary: &str) -> Result<(TcpStream, IpAddr)> {
    let unavailable = |source: std::io::Error| {
        failed(ErrorKind::Unavailable, primary, "no server answers there")
            .with_source(source)
            .with_retry(true)
    };
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in primary.to_socket_addrs().map_err(unavailable)? {
        match TcpStream::connect_timeout(&address, ANSWER) {
            Ok(stream) => return Ok((stream, address.ip())),
            Err(source) => last = source,
        }
    }
    Err(unavailable(last))
}

fn ask(primary: &str, greeting: &mut Greeting, frame: &Frame) -> Result<Frame> {
    let (kind, bytes) = frame.encode();
    let (kind, bytes) = greeting.ask(kind, &bytes)?;
    match Frame::decode(kind, &bytes) {
        Some(Frame::Refused { text }) => {
            let kind = if text.starts_with(DENIED) { ErrorKind::Denied } else { ErrorKind::Unavailable };
            let may_pass = kind == ErrorKind::Unavailable;
            Err(failed(kind, primary, format!("it refused: {text}")).with_retry(may_pass))
        }
        Some(frame) => Ok(frame),
        None => Err(failed(ErrorKind::Protocol, primary, "it sent a frame that this release does not know")),
    }
}

/// What the feed is to go over if that is not TCP: a queue pair that is connected now.
fn connect_stream(config: &MirrorConfig, greeting: &mut Greeting, came_to: IpAddr) -> Result<VerbsStream> {
    let primary = &config.primary;
    let Frame::Offer { server, ticket, addresses } = ask(primary, greeting, &Frame::AskVerbs)? else {
        return Err(failed(ErrorKind::Protocol, primary, "it did not say where queue pairs are connected"));
    };
    let offer = Offer::parse(server, ticket, &addresses, Some(came_to))
        .ok_or_else(|| failed(ErrorKind::Protocol, primary, "it said an address that is none"))?;
    offer.connect_stream(config.rdma_address, ANSWER).map_err(|source| {
        let what = format!("no queue pair to it: {source}; see `kelix fabric` on both sides");
        failed(ErrorKind::Unavailable, primary, what).with_source(source).with_retry(true)
    })
}

/// A primary that has greeted.
struct Greeted {
    greeting: Greeting,
    /// What the feed goes over, if that is not the connection.
    stream: Option<VerbsStream>,
    features: u64,
    view: View,
    life: u64,
    term: u64,
}

fn greet(config: &MirrorConfig, fabric: FeedFabric, namespace: &str) -> Result<Greeted> {
    let primary = &config.primary;
    let host = primary.rsplit_once(':').map_or(&primary[..], |(host, _)| host);
    let tls = config.tls.as_ref().map(|tls| (tls, host));
    let (socket, came_to) = open(primary)?;
    let mut greeting = Greeting::new(socket, tls, MAILBOX_BYTES as usize / 8, ANSWER)?;
    if let Some(token) = &config.token {
        let (kind, bytes) = Frame::Token { token: token.as_bytes().into() }.encode();
        greeting.tell(kind, &bytes);
    }
    let hello = Frame::Hello {
        versions: SPOKEN,
        features: 0,
        purpose: if config.replica.is_some() { Purpose::Replicate } else { Purpose::Follow },
        caller: config.replica.as_ref().map(|of| Caller { number: of.status.boot(), again: false }),
        namespace: namespace.into(),
    };
    let Frame::Welcome { version, features, view, life, term, .. } = ask(primary, &mut greeting, &hello)?
    else {
        return Err(failed(ErrorKind::Protocol, primary, "it did not greet"));
    };
    let strange = features & FEATURES_NEEDED & !(FEATURE_COMMITS | FEATURE_MIRROR) != 0;
    if !(SPOKEN.oldest..=SPOKEN.newest).contains(&version) || strange {
        let what =
            format!("it speaks version {version} with features {features:#x}, and this release {SPOKEN}");
        return Err(failed(ErrorKind::Incompatible, primary, what));
    }
    let stream = match fabric {
        FeedFabric::Verbs => Some(connect_stream(config, &mut greeting, came_to)?),
        FeedFabric::Tcp => None,
    };
    Ok(Greeted { greeting, stream, features, view, life, term })
}

/// Attaches to a namespace, and copies it, unless what is behind the past can be had. `ends` is asked now and
/// then whether that is still wanted.
pub(crate) fn attach(
    config: &MirrorConfig,
    namespace: &str,
    past: Option<Past>,
    ends: &dyn Fn() -> bool,
) -> Result<Joined> {
    let primary = &config.primary;
    let over_tcp = || greet(config, FeedFabric::Tcp, namespace);
    let greeted = match config.fabric {
        Some(fabric) => greet(config, fabric, namespace)?,
        None if !verbs::is_usable() => over_tcp()?,
        None => greet(config, FeedFabric::Verbs, namespace).or_else(|error| {
            let greeted = over_tcp()?;
            info!(primary, why = error.context(), "it is followed over TCP, since it cannot be over verbs");
            Ok(greeted)
        })?,
    };
    let Greeted { mut greeting, stream, features, view, life, term } = greeted;
    // A node that could not serve as much once it is primary is none to count on until then.
    let serves = config.replica.as_ref().and_then(|of| of.serves.iter().find(|of| of.name == namespace));
    if let Some(of) = serves.filter(|of| of.shards != view.shards()) {
        let (there, here) = (view.shards(), of.shards);
        let what = format!(
            "it has {there} shards in namespace \"{namespace}\", and this node {here}: start it with as many"
        );
        return Err(failed(ErrorKind::InvalidArgument, primary, what));
    }
    let streams = match &config.replica {
        Some(replica) => streams::receive(replica, namespace, (term, view.shards()))?,
        None => Vec::new(),
    };
    let (of_life, position) = past.map_or((None, None), |Past { life, position }| (life, Some(position)));
    let of_lineage = position.as_ref().map(|position| position.lineage);
    let (asked_ns, name) = (host_clock_ns(false), config.name.clone());
    let wish = Frame::Attach { copy_rate: config.copy_rate, position, name };
    let Frame::Attached { memory_bytes, lineage, resumes, primary: root } =
        ask(primary, &mut greeting, &wish)?
    else {
        return Err(failed(ErrorKind::Protocol, primary, "it did not say that it lets this one follow"));
    };
    let (is_root, is_cache) = (root.is_empty(), features & FEATURE_HINTS != 0);
    let writes_go_to = if is_root { primary.clone() } else { root };
    let goes_on = config.replica.is_some() || of_lineage == Some(lineage);
    if resumes && goes_on && of_life.is_some_and(|of| of != life) {
        // Numbers of tables were given again meanwhile, and sessions here know the old ones.
        drop((greeting, stream));
        return attach(config, namespace, None, ends);
    }
    let link = greeting.into_feed_link().over_verbs(stream);
    if resumes && of_lineage.is_some() {
        let resumed = Resumed { link, life, lineage, writes_go_to, is_cache, streams };
        return Ok(Joined::Resumed(Box::new(resumed)));
    }
    let most = serves.map(|of| of.memory_bytes).or(config.memory_bytes);
    let of_shard = most.map_or(u64::MAX / 2, |bytes| bytes / view.shards() as u64);
    let mut attached = Attached {
        name: namespace.into(),
        link: Some(link),
        intake: Intake::new(view.shards(), of_shard, make_segments),
        view,
        life,
        lineage,
        writes_go_to,
        // What a mirror has is as old as it is, and nobody has told that yet.
        fresh_ns: if is_root { asked_ns } else { 0 },
        is_cache,
        next: None,
        question: 0,
        streams,
        says_what_it_has: false,
    };
    if config.replica.is_some() {
        attached.intake.keep_backlogs();
    }
    attached.copy(primary, memory_bytes, ends)?;
    Ok(Joined::Copied(Box::new(attached)))
}

impl Attached {
    /// What a copy on the disk has, of all its namespaces.
    pub fn of_kept(kept: &mut Kept, source: &Source) -> Vec<Attached> {
        let mut shards = kept.replayed.shards.iter_mut().map(Option::take);
        let namespaces = kept.replayed.layout.0.iter();
        let of = namespaces.map(|of| {
            let shadows = shards.by_ref().take(of.shards).flatten();
            let shadows = shadows.map(|(segments, follower)| Shadow { segments, follower: *follower });
            Attached {
                name: of.name.clone(),
                link: None,
                intake: Intake::of_shadows(shadows.collect(), make_segments),
                view: View::of_shards(1, of.hash_seed, of.shards),
                // Nobody else knows this one: so what is got by it is told from what the primary gives.
                life: random_u64().unwrap_or(1),
                lineage: source.lineage,
                writes_go_to: source.writes_go_to.clone(),
                fresh_ns: 0,
                is_cache: false,
                next: None,
                question: 0,
                streams: Vec::new(),
                says_what_it_has: false,
            }
        });
        of.collect()
    }

    /// What there is of the namespace, which nobody reads yet, so that its life does not matter. `None`: the
    /// primary had no log.
    pub fn past(&self) -> Option<Past> {
        let position = StreamPosition { lineage: self.lineage, sequences: self.intake.applied() };
        (self.lineage != 0).then_some(Past { life: None, position })
    }

    /// The namespace, as snapshots and logs have it.
    pub fn describe(&self) -> NamespaceDescription {
        let (hash_seed, shards) = (self.view.hash_seed, self.view.shards());
        NamespaceDescription { name: self.name.clone(), hash_seed, shards }
    }

    /// Where the records are from.
    pub fn source(&self) -> Source {
        Source { lineage: self.lineage, writes_go_to: self.writes_go_to.clone(), boot: 0 }
    }

    /// Goes on over another connection, with the records behind those that were applied.
    pub fn resume(&mut self, resumed: Resumed) {
        let Resumed { link, life, lineage, writes_go_to, is_cache, streams } = resumed;
        (self.link, self.streams) = (Some(link), streams);
        self.intake.resume();
        (self.writes_go_to, self.is_cache) = (writes_go_to, is_cache);
        // A replica goes on with what the next primary has, too.
        if self.lineage == lineage || self.intake.keeps_backlogs() {
            (self.life, self.lineage, self.next) = (life, lineage, None);
        } else {
            self.next = Some((life, lineage));
        }
    }

    /// The shards are here again, and all of their lineage is applied: what follows is of another life.
    pub fn begin_life(&mut self, shadows: Vec<Shadow>) -> Result<()> {
        let Some(lineage) = self.intake.begin_lineage(shadows) else { return Ok(()) };
        // Between the two there may have been servers whose lives have no name here.
        let is_last = |next: &mut (u64, u64)| next.1 == lineage;
        self.life = self.next.take_if(is_last).map_or_else(random_u64, |(life, _)| Ok(life))?;
        self.lineage = lineage;
        Ok(())
    }

    /// This one goes on in the primary's place: nothing more comes of that one, and all counts that has come, or
    /// stands in its streams.
    pub fn take_over(&mut self) -> Result<()> {
        self.link = None;
        self.intake.take_over(&std::mem::take(&mut self.streams))
    }

    /// Takes in what has come, without waiting. `false`: nothing had.
    pub fn receive(&mut self) -> Result<bool> {
        let Some(link) = &mut self.link else { return Ok(false) };
        link.flush();
        if !self.intake.flush_log() {
            // The primary waits for its answer, and does without this replica when that takes too long.
            return Ok(false);
        }
        let mut came = false;
        for _ in 0..FRAMES_A_TURN {
            if self.intake.next_lineage().is_some() {
                return Ok(came);
            }
            let Some(frame) = link.receive() else { break };
            self.intake.take(usize::from(frame.shard), frame.part, frame.words)?;
            came = true;
        }
        if let Some(placed) = self.intake.settle((came, self.says_what_it_has), &self.streams)? {
            link.push(FeedPart::Placed as u32, 0, &placed.words());
            link.flush();
        }
        match link.over() {
            Some(why) => Err(Error::new(ErrorKind::Unavailable, "follow", why.to_string()).with_retry(true)),
            None => Ok(came),
        }
    }

    fn copy(&mut self, primary: &str, memory_bytes: u64, ends: &dyn Fn() -> bool) -> Result<()> {
        let (began, mut told, mut came) = (Instant::now(), Instant::now(), Instant::now());
        while !self.intake.is_whole() {
            if ends() {
                return Err(failed(ErrorKind::Unavailable, primary, "this mirror is to end"));
            }
            if self.receive()? {
                came = Instant::now();
                self.intake.count_placed();
                self.intake.apply_unread()?;
            } else if came.elapsed() > SILENCE {
                let what = format!("nothing has come for {} s", SILENCE.as_secs());
                return Err(failed(ErrorKind::TimedOut, primary, what).with_retry(true));
            } else {
                self.link.iter_mut().for_each(|link| link.wait(ROUND));
            }
            if told.elapsed() > PROGRESS {
                told = Instant::now();
                let (copied, seconds) = (self.intake.copied_bytes(), began.elapsed().as_secs_f64());
                let percent = copied.saturating_mul(100) / memory_bytes.max(1);
                info!(
                    primary,
                    namespace = self.name,
                    percent,
                    bytes_a_second = copied as f64 / seconds,
                    "copying"
                );
            }
        }
        let (bytes, seconds) = (self.intake.copied_bytes(), began.elapsed().as_secs_f64());
        info!(primary, namespace = self.name, bytes, seconds, "copied");
        Ok(())
    }

    /// Takes in what comes while `work` is done, so that the primary is not kept waiting.
    pub fn receive_during<T: Send>(&mut self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        if self.link.is_none() {
            return work();
        }
        std::thread::scope(|scope| {
            let name = std::thread::Builder::new().name("kelix-mirror".into());
            let work = name.spawn_scoped(scope, work);
            let work = work.map_err(|source| Error::system("follow", "cannot start a thread", source))?;
            while !work.is_finished() {
                // What is wrong is found out again when it is looked at next.
                if !self.receive().unwrap_or(false) {
                    self.link.iter_mut().for_each(|link| link.wait(Duration::from_millis(1)));
                }
            }
            work.join().expect("it does its work or says why not")
        })
    }
}
