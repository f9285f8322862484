//! The successor's side: it follows what the server has, as a mirror does, and goes on with it.

use std::io::ErrorKind as IoErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix_fabric::host_clock_ns;
use kelix_fabric::shm::{Memfd, MemfdSegments, RunDirectory, receive_frame_within};
use kelix_fabric::tcp::FeedLink;
use kelix_image::{Header, ImageConfig};
use kelix_log::Record;
use kelix_log::files::Position;
use kelix_shard::replicas::Intake;
use kelix_shard::{Shard, ShardConfig};
use kelix_snapshot::NamespaceDescription;
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::control::{DENIED, Frame, Purpose};
use kelix_wire::{SPOKEN, View};
use tracing::{info, warn};

use super::{STANDS_STILL, send};
use crate::authority::Authority;
use crate::memory::memory_of_host;
use crate::mirror::streams::connect;
use crate::mirror::{Shadow, image_of_mirror, make_segments};
use crate::namespace::NamespaceConfig;
use crate::server::{ServerConfig, random_u64};
use crate::shard_thread::LoggedSegments;
use crate::shard_thread::mirrored::what_is_shown;
use crate::snapshots::check_served;
use crate::wal::{Layout, Replayed};

/// How long a server may take to answer that is not known to stand still.
const ANSWER: Duration = Duration::from_secs(10);
/// How long nothing may come of a copy.
const SILENCE: Duration = Duration::from_secs(30);
/// How often what there is is copied, where the store changes faster than that can be told.
const TRIES: usize = 5;
/// How long is waited for something to come.
const ROUND: Duration = Duration::from_millis(1);
/// Frames that are taken in before anything else is looked at.
const FRAMES_A_TURN: usize = 64;

/// What a server that is to be superseded has, where that one runs and hands it over: followed, and all here
/// but what comes in this moment. Whoever wants to begin empty wants nothing of it.
pub(crate) fn succession(
    config: &ServerConfig,
    namespaces: &[&NamespaceConfig],
    authority: &mut Authority,
) -> Result<Option<Succession>> {
    let is_fresh = config.snapshots.as_ref().is_some_and(|snapshots| snapshots.fresh);
    if !authority.supersedes() || is_fresh {
        return Ok(None);
    }
    let is_stopped = authority.superseded().is_some_and(|holder| holder.is_stopped());
    if config.wal.is_some() && !is_stopped {
        let context =
            "a server that begins with a log does not go on with what one has that runs: end it first";
        return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
    }
    let begin = || Succession::begin(config, namespaces, authority.term);
    let mut succession = if is_stopped { Ok(None) } else { begin() };
    for _ in 1..TRIES {
        let Some(error) = succession.as_ref().err().filter(|error| error.retry()) else { break };
        warn!(%error, "what the server before has is copied once more");
        succession = begin();
    }
    let succession = succession?;
    if succession.is_none() {
        warn!(
            "the server that is superseded stands still: what it has is not handed over, and lost but for the \
             newest snapshot"
        );
    } else if config.rdma.is_empty() {
        authority.is_handed_over();
    }
    Ok(succession)
}

/// A server that takes over has its memory beside that of the other one, for as long as that serves. The
/// system would end one of them if there is too little for both.
pub(crate) fn check_room(memory_bytes: u64) -> Result<()> {
    match memory_of_host("MemAvailable") {
        Some(bytes) if bytes < memory_bytes => {
            let context = format!(
                "what there is takes {memory_bytes} bytes of memory, and {} kB are to be had while the other server \
                 has its own: end that one first",
                bytes / 1024
            );
            Err(Error::new(ErrorKind::OutOfMemory, "serve", context))
        }
        _ => Ok(()),
    }
}

/// What a thread that follows is to reach: these records, of the shards of its namespace, or nothing any
/// more.
type Target = Arc<OnceLock<Option<Vec<u64>>>>;

/// A namespace of the server, followed by a thread.
struct Followed {
    description: NamespaceDescription,
    life: u64,
    thread: JoinHandle<Result<Vec<Shadow>>>,
    target: Target,
}

impl Followed {
    /// What it has, once it is where it was to come to.
    fn end(self) -> Result<Vec<Shadow>> {
        self.thread.join().expect("it does its work or says why not")
    }
}

/// All that are followed. Threads that are not wanted any more end.
#[derive(Default)]
struct Threads(Vec<Followed>);

impl Drop for Threads {
    fn drop(&mut self) {
        for of in self.0.drain(..) {
            let _ = of.target.set(None);
            drop(of.thread.join());
        }
    }
}

/// A server that is followed, to be gone on with.
pub(crate) struct Succession {
    control: UnixStream,
    followed: Threads,
}

/// What a server had that stands still.
pub(crate) struct Handed {
    pub replayed: Replayed,
    /// Of the namespaces of this server, in its order.
    pub lives: Vec<u64>,
    pub handover: Handover,
}

/// A server stands still until this is gone.
pub(crate) struct Handover {
    /// Its end tells the server that this one takes over no more, unless the term is raised by then.
    _control: UnixStream,
    began: Instant,
}

impl Handover {
    /// For how long nobody has been served.
    pub fn time(&self) -> Duration {
        self.began.elapsed()
    }
}

fn failed(kind: ErrorKind, what: impl std::fmt::Display) -> Error {
    Error::new(kind, "take over", format!("the server that has the directory {what}"))
}

/// The server's next frame, and its descriptors.
fn receive(stream: &UnixStream, within: Duration) -> Result<(Frame, Vec<OwnedFd>)> {
    let (kind, bytes, descriptors) = receive_frame_within(stream, within)?;
    match Frame::decode(kind, &bytes) {
        Some(Frame::Refused { text }) => {
            let kind = if text.starts_with(DENIED) { ErrorKind::Denied } else { ErrorKind::Unavailable };
            Err(failed(kind, format!("does not hand over: {text}; end it first")))
        }
        Some(frame) => Ok((frame, descriptors)),
        None => Err(failed(ErrorKind::Protocol, "sent a frame that this release does not know")),
    }
}

/// What a server says to its successor first.
struct Greeted {
    stream: UnixStream,
    view: View,
    life: u64,
    names: Vec<String>,
}

/// Greets the server for one of its namespaces. An error also where its memory is laid out in another way
/// than this release knows.
fn greet(run: &RunDirectory, namespace: &str) -> Result<Greeted> {
    let stream = connect(run).map_err(|source| {
        let kind = match source.kind() {
            IoErrorKind::WouldBlock | IoErrorKind::TimedOut => ErrorKind::TimedOut,
            _ => ErrorKind::Unavailable,
        };
        failed(kind, "takes no connections; try again").with_source(source)
    })?;
    let (versions, purpose, namespace) = (SPOKEN, Purpose::Succeed, namespace.to_string());
    send(&stream, &Frame::Hello { versions, features: 0, purpose, caller: None, namespace }, &[])?;
    let (Frame::Welcome { version, view, life, .. }, _) = receive(&stream, ANSWER)? else {
        return Err(failed(ErrorKind::Protocol, "did not greet"));
    };
    if !(SPOKEN.oldest..=SPOKEN.newest).contains(&version) {
        let what =
            format!("speaks version {version} of the protocol, and this release {SPOKEN}; end it first");
        return Err(failed(ErrorKind::Incompatible, what));
    }
    let (Frame::Namespaces { bytes, names }, header) = receive(&stream, ANSWER)? else {
        return Err(failed(ErrorKind::Protocol, "did not say what it serves"));
    };
    let Some(header) = header.into_iter().next() else {
        return Err(failed(ErrorKind::Protocol, "did not give its header page"));
    };
    Header::open(Memfd::receive(header, bytes)?.map(false)?).map_err(|error| {
        failed(error.kind(), format!("has other memory: {}; end it first", error.context()))
    })?;
    Ok(Greeted { stream, view, life, names: names.lines().map(str::to_string).collect() })
}

impl Succession {
    /// Follows the server that is to be superseded by one of this term, until all is here but what comes in
    /// this moment. `None`: it does not answer, and what it has is not to be had. An error: it serves on, and
    /// does not hand over.
    pub fn begin(
        config: &ServerConfig,
        namespaces: &[&NamespaceConfig],
        term: u64,
    ) -> Result<Option<Succession>> {
        let run = RunDirectory(config.directory.clone());
        let control = match greet(&run, "") {
            Ok(control) => control,
            Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut succession = Succession { control: control.stream, followed: Threads::default() };
        let (ready, are_ready) = channel();
        let shapes: Vec<(&str, usize)> = namespaces.iter().map(|of| (&of.name[..], of.shards)).collect();
        let (mut greeted, mut described, mut memory_bytes) = (Vec::new(), Vec::new(), 0);
        for name in control.names {
            let Greeted { stream, view, life, .. } = greet(&run, &name)?;
            let description = NamespaceDescription { name, hash_seed: view.hash_seed, shards: view.shards() };
            described.push(description.clone());
            greeted.push((stream, view, life, description));
        }
        check_served(&described, &shapes, ("the server that has it", &config.directory))?;
        for (stream, view, life, description) in greeted {
            let name = "successor".to_string();
            send(&stream, &Frame::Attach { copy_rate: 0, position: None, name }, &[])?;
            let (Frame::Attached { memory_bytes: bytes, .. }, _) = receive(&stream, ANSWER)? else {
                return Err(failed(ErrorKind::Protocol, "did not begin to tell what it has"));
            };
            memory_bytes += bytes;
            check_room(memory_bytes)?;
            let of = namespaces.iter().find(|of| of.name == description.name).expect("one that is served");
            if bytes > of.memory_bytes {
                let (name, most) = (&of.name, of.memory_bytes);
                let what = format!("has {bytes} bytes in namespace \"{name}\", and this one may have {most}");
                return Err(failed(ErrorKind::InvalidArgument, what));
            }
            let target = Target::default();
            let follower = Following {
                link: FeedLink::local(stream)?,
                view,
                shard_bytes: of.memory_bytes / of.shards as u64,
                is_cache: of.cache,
                term,
                target: target.clone(),
            };
            let (ready, which) = (ready.clone(), succession.followed.0.len());
            let run = move || {
                let tell = |is_ready| {
                    let _ = ready.send((which, is_ready));
                };
                follower.run(|| tell(true)).inspect_err(|_| tell(false))
            };
            let thread = std::thread::Builder::new().name("kelix-succeed".into()).spawn(run);
            let thread =
                thread.map_err(|source| Error::system("take over", "cannot start a thread", source))?;
            succession.followed.0.push(Followed { description, life, thread, target });
        }
        drop(ready);
        succession.wait(&are_ready)?;
        info!(bytes = memory_bytes, "what the server before has is here; it is followed");
        Ok(Some(succession))
    }

    /// Waits until all threads have what there is. An error: one of them says why not.
    fn wait(&mut self, are_ready: &Receiver<(usize, bool)>) -> Result<()> {
        for _ in 0..self.followed.0.len() {
            if let Ok((which, false)) = are_ready.recv() {
                return self.followed.0.swap_remove(which).end().map(drop);
            }
        }
        Ok(())
    }

    /// Has the server stand still, and takes up the last that it has done. An error: the server goes on.
    pub fn stand_still(self, namespaces: &[&NamespaceConfig]) -> Result<Handed> {
        let began = Instant::now();
        let Succession { control, mut followed } = self;
        send(&control, &Frame::StandStill, &[])?;
        let (Frame::StandsStill { sequences }, _) = receive(&control, STANDS_STILL)? else {
            return Err(failed(ErrorKind::Protocol, "does not stand still"));
        };
        let mut rest = &sequences[..];
        for of in &followed.0 {
            let Some((of_namespace, behind)) = rest.split_at_checked(of.description.shards) else {
                return Err(failed(ErrorKind::Protocol, "has other shards than it said"));
            };
            let _ = of.target.set(Some(of_namespace.to_vec()));
            rest = behind;
        }
        let layout = Layout(followed.0.iter().map(|of| of.description.clone()).collect());
        let mut replayed = Replayed::nothing(layout, Position::default());
        let (mut lives, mut shadows) = (Vec::new(), Vec::new());
        for of in std::mem::take(&mut followed.0) {
            lives.push((of.description.name.clone(), of.life));
            shadows.extend(of.end()?);
        }
        for (shard, Shadow { segments, follower }) in replayed.shards.iter_mut().zip(shadows) {
            *shard = Some((segments, Box::new(follower)));
        }
        // A namespace that is new begins its first life.
        let life = |of: &&NamespaceConfig| {
            let known = lives.iter().find(|(name, _)| *name == of.name);
            known.map_or_else(random_u64, |(_, life)| Ok(*life))
        };
        let lives = namespaces.iter().map(life).collect::<Result<_>>()?;
        Ok(Handed { replayed, lives, handover: Handover { _control: control, began } })
    }
}

/// What a thread has that follows a namespace.
struct Following {
    link: FeedLink,
    view: View,
    /// Most memory that a shard may have here.
    shard_bytes: u64,
    is_cache: bool,
    term: u64,
    target: Target,
}

impl Following {
    /// Copies what there is, follows it from there on, and gives it up when it is as far as it has to be.
    fn run(mut self, is_ready: impl Fn()) -> Result<Vec<Shadow>> {
        let mut intake = Intake::new(self.view.shards(), self.shard_bytes, make_segments);
        let mut came = Instant::now();
        while !intake.is_whole() {
            if self.receive(&mut intake)? {
                came = Instant::now();
                intake.apply_unread()?;
            } else if came.elapsed() > SILENCE {
                let what = format!("has told nothing for {} s", SILENCE.as_secs());
                return Err(failed(ErrorKind::TimedOut, what));
            }
        }
        let mut shown = self.show(&mut intake)?;
        let mut said = false;
        loop {
            let came = self.receive(&mut intake)?;
            let now_ns = host_clock_ns(false);
            intake.apply_all(|shard, record: &Record<'_>| shown[shard].0.apply(record, now_ns))?;
            if let Some(target) = self.target.get() {
                let target = target.as_ref().ok_or_else(|| failed(ErrorKind::Unavailable, "goes on"))?;
                if intake.applied() == *target {
                    break;
                }
            }
            if !came && !std::mem::replace(&mut said, true) {
                is_ready();
            }
        }
        let given = (0..).zip(shown).map(|(number, (shard, segments))| {
            what_is_shown(shard, &segments, number).ok_or_else(|| failed(ErrorKind::System, "is no mirror"))
        });
        given.collect()
    }

    /// Takes in what has come, or waits a little. `false`: nothing had. An error: the server is gone, or says
    /// why it tells no more.
    fn receive(&mut self, intake: &mut Intake<MemfdSegments>) -> Result<bool> {
        self.link.flush();
        let mut came = false;
        for _ in 0..FRAMES_A_TURN {
            let Some(frame) = self.link.receive() else { break };
            intake.take(usize::from(frame.shard), frame.part, frame.words)?;
            came = true;
        }
        if let Some(why) = self.link.over() {
            let what = format!("tells no more of what it has: {why}");
            return Err(failed(ErrorKind::Unavailable, what).with_retry(true));
        }
        if self.target.get().is_some_and(Option::is_none) {
            return Err(failed(ErrorKind::Unavailable, "is followed no more"));
        }
        if !came {
            self.link.wait(ROUND);
        }
        Ok(came)
    }

    /// Looks at all that was copied, and keeps its indexes up from now on, so that nothing of that is left to
    /// be done while the server stands still. Takes in what comes meanwhile.
    fn show(&mut self, intake: &mut Intake<MemfdSegments>) -> Result<Vec<(Shard, MemfdSegments)>> {
        let shadows = intake.take_shadows();
        let (view, term, is_cache) = (self.view.clone(), self.term, self.is_cache);
        let show = move || -> Result<Vec<(Shard, MemfdSegments)>> {
            let show = |(number, Shadow { segments, follower }): (usize, Shadow)| {
                let (_, header) = Memfd::create("kelix-header", Header::BYTES, true)?;
                let image: ImageConfig = image_of_mirror(view.hash_seed, term)?;
                let config = ShardConfig { number, view: view.clone(), image, view_lease_ns: 0, is_cache };
                let source = Box::new(LoggedSegments::new(segments.clone(), number));
                Ok((Shard::mirror(follower, config, header, source)?, segments))
            };
            shadows.into_iter().enumerate().map(show).collect()
        };
        std::thread::scope(|scope| {
            let shown = std::thread::Builder::new().name("kelix-succeed".into()).spawn_scoped(scope, show);
            let shown =
                shown.map_err(|source| Error::system("take over", "cannot start a thread", source))?;
            while !shown.is_finished() {
                if let Err(error) = self.receive(intake) {
                    warn!(%error, "nothing more comes");
                    break;
                }
            }
            shown.join().expect("it does its work or says why not")
        })
    }
}
