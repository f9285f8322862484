//! The agent: READs and WRITEs of all TCP clients of a server, by one thread.

mod answers;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelix_image::words::full_fence;
use kelix_image::{Header, IndexReader, LeasedTerm, MemoryMap, Span, header_word};
use kelix_types::{Error, Place, Result};
use rtrb::Consumer;
use rustix::event::epoll;
use rustix::thread::sched_getcpu;

use answers::{bring_near, find, read, tell};

use super::beside::Alone;
use super::feed::FeedLink;
use super::frame::Kind;
use super::link::{AgentBell, AgentLink};
use super::stream::Stream;
use super::tls::ServerTls;
use crate::shm::{MemfdSegments, WakerHandle};
use crate::{Contention, Direct, timespec};

/// Bytes that wait for a slow reader before nothing more is taken from it.
const UNSENT_BYTES_MAX: usize = 256 << 10;
/// Longest frame of whoever has not been let in: a greeting, or a token. A head alone must not make this side
/// hold more.
const STRANGER_WORDS_MAX: usize = 1 + (32 << 10) / 8;
/// Events of one look.
const EVENTS: usize = 64;
/// How long no more connections are taken after none could be.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two looks at what rarely changes.
const TICK: Duration = Duration::from_millis(250);
/// Turns with work between two looks at the clock.
const TURNS_A_CLOCK: u32 = 64;
/// Looks for a shard's answer before the core is given away: as many as a shard that polls needs to answer.
const LOOKS_FOR_ANSWER: u32 = 100;

const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;
const WATCHED: u64 = u64::MAX - 2;

/// Has a shard do what has arrived for it, in the place of its thread. `false`: the thread is to do so, since
/// it does not sleep, or is to wake for something else.
pub type StepIn = Arc<dyn Fn() -> bool + Send + Sync>;

/// What the agent reads and writes for one shard.
pub struct AgentShard {
    /// The header page.
    pub header: Span,
    /// The segments, as the shard makes and retires them.
    pub segments: MemfdSegments,
    /// Wakes the shard's thread.
    pub waker: Arc<WakerHandle>,
    /// Steps in for the shard's thread, if that may be.
    pub step_in: Option<StepIn>,
}

struct Shard {
    header: Header,
    memory: AgentShard,
    direct: Direct,
    /// Which segments its map has.
    version: Option<u64>,
    /// Something was written into one of its mailboxes since it was last woken.
    written: bool,
}

impl Shard {
    fn new(memory: AgentShard, authority: &LeasedTerm) -> Result<Shard> {
        let header = Header::open(memory.header.clone())?;
        let direct = Direct::new(Arc::default(), &header, authority.clone());
        Ok(Shard { header, memory, direct, version: None, written: false })
    }

    /// Takes note of segments that came or went.
    fn look(&mut self) {
        let version = self.header.segments_version();
        if self.version == Some(version) {
            return;
        }
        let mut map = MemoryMap::default();
        map.add(0, self.memory.header.clone());
        for segment in self.memory.segments.list() {
            map.add(segment.first, segment.span);
        }
        self.direct.map = Arc::new(map);
        self.version = Some(version);
    }

    /// Lets segments that were retired go.
    fn forget(&mut self) {
        (self.direct.map, self.version) = (Arc::default(), None);
    }

    /// Wakes its thread if something was written for it, or does what that would do if it sleeps and the
    /// agent `steps_in`. Whether an answer of the thread's may be expected. SYNC: as in
    /// `LocalEndpoint::wake`.
    fn wake(&mut self, steps_in: bool) -> bool {
        let written = std::mem::take(&mut self.written);
        if written {
            full_fence();
            if self.memory.header.words().load(header_word::SLEEPING) != 0 {
                if self.memory.step_in.as_ref().filter(|_| steps_in).is_some_and(|step_in| step_in()) {
                    return false;
                }
                self.memory.waker.wake();
            }
        }
        written
    }
}

/// What a connection is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionId {
    slot: usize,
    number: u64,
}

/// A shard that a connection may READ.
struct Opened {
    /// Which of the agent's.
    shard: usize,
    /// The mailbox into which the client WRITEs.
    mailbox: Span,
    /// What the shard has written.
    written: Consumer<u64>,
}

struct Connection {
    number: u64,
    stream: Stream,
    /// The term that the client was last told.
    told: u64,
    /// The shards that it may READ, in the order that the client knows them by.
    shards: Vec<Opened>,
    /// The client is on this host.
    is_near: bool,
    /// Frames that were looked at when it was last served.
    frames: u32,
    /// Until when it has to be established.
    deadline: Option<Instant>,
    /// It is to be served in the next turn.
    touched: bool,
    /// Something may have arrived.
    readable: bool,
    /// Frames have arrived that were not looked at, because too much waits to be sent.
    left: bool,
    /// What the epoll set watches for.
    watches: epoll::EventFlags,
    /// Something has arrived since the last tick.
    busy: bool,
}

/// What happened that is not the agent's business alone.
#[derive(Debug)]
pub enum Event {
    /// A frame of the set-up conversation.
    Control(ConnectionId, u16, Vec<u8>),
    /// A connection is over, and why. Nothing comes of it any more.
    Over(ConnectionId, &'static str),
    /// A descriptor that is watched for somebody is readable.
    Ready,
}

/// How many may connect, and how long they may take to say who they are.
#[derive(Clone, Copy, Debug)]
pub struct AgentLimits {
    /// Most connections at once.
    pub connections: usize,
    /// Time until [`Agent::establish`] has to be called for a connection.
    pub greeting: Duration,
    /// Longest WRITE of a client, in words.
    pub write_words: usize,
    /// What FINDs are answered by.
    pub index: IndexReader,
}

/// One thread's agent.
pub struct Agent {
    epoll: OwnedFd,
    listener: Option<TcpListener>,
    tls: Option<ServerTls>,
    /// Since when no connections are taken, if so.
    paused: Option<Instant>,
    limits: AgentLimits,
    shards: Vec<Shard>,
    authority: LeasedTerm,
    /// The term of the server, and the one in force when it was last looked for.
    own_term: u64,
    term: u64,
    connections: Vec<Option<Connection>>,
    next_number: u64,
    bell: Arc<AgentBell>,
    bell_end: WakerHandle,
    touched: Vec<usize>,
    ticked: Instant,
    turns: u32,
    /// Since the last `give_way`: a shard was asked for something, whose header said this of its core;
    /// answers were sent.
    asked: Option<u64>,
    answered: bool,
    contention: Contention,
    /// The client that is alone in asking for something, if one is.
    alone: Alone,
    /// Something has woken it, which is to be served before it looks for more.
    heard: bool,
    /// There is nothing to be done before something happens, as far as was known behind the last turn.
    rests: bool,
    events: Vec<Event>,
}

fn system(what: &'static str, source: impl Into<std::io::Error>) -> Error {
    Error::system("serve over TCP", what, source.into())
}

impl Agent {
    /// An agent for the shards of a server of this term, which counts while the term is in force. Nobody is
    /// connected.
    pub fn new(
        shards: Vec<AgentShard>,
        authority: impl Into<LeasedTerm>,
        term: u64,
        limits: AgentLimits,
    ) -> Result<Agent> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|source| system("no descriptor for an epoll set", source))?;
        let authority = authority.into();
        let (bell, bell_end) = AgentBell::new(limits.connections)?;
        let data = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, &bell_end, data, bell_end.watches())
            .map_err(|source| system("cannot watch the bell", source))?;
        Ok(Agent {
            epoll,
            listener: None,
            tls: None,
            paused: None,
            limits,
            shards: shards.into_iter().map(|shard| Shard::new(shard, &authority)).collect::<Result<_>>()?,
            authority,
            own_term: term,
            term,
            connections: Vec::new(),
            next_number: 1,
            bell: Arc::new(bell),
            bell_end,
            touched: Vec::new(),
            ticked: Instant::now(),
            turns: 0,
            asked: None,
            answered: false,
            contention: Contention::default(),
            alone: Alone::default(),
            heard: false,
            rests: false,
            events: Vec::new(),
        })
    }

    /// What wakes it.
    pub fn bell(&self) -> Arc<AgentBell> {
        self.bell.clone()
    }

    /// Takes connections from now on, with TLS if that is given.
    pub fn listen(&mut self, listener: TcpListener, tls: Option<ServerTls>) -> Result<()> {
        self.tls = tls;
        listener.set_nonblocking(true).map_err(|source| system("a socket that blocks", source))?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&self.epoll, &listener, data, epoll::EventFlags::IN)
            .map_err(|source| system("cannot watch the socket", source))?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Takes no more connections.
    pub fn stop_listening(&mut self) {
        self.listener = None;
    }

    /// Whether something waits to be sent.
    pub fn has_unsent(&self) -> bool {
        self.connections.iter().flatten().any(|connection| connection.stream.unsent() > 0)
    }

    /// Also wakes, with [`Event::Ready`], when a descriptor is readable.
    pub fn watch(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        let data = epoll::EventData::new_u64(WATCHED);
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)
            .map_err(|source| system("cannot watch a descriptor", source))
    }

    /// Whether anybody is connected.
    fn has_connections(&self) -> bool {
        self.connections.iter().any(Option::is_some)
    }

    /// Serves a connection that was taken elsewhere.
    pub fn add(&mut self, socket: TcpStream) -> std::io::Result<ConnectionId> {
        let slot = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        if slot == self.limits.connections {
            // Best effort: whoever asks too often is told so, if the words find room.
            if self.tls.is_none() {
                let stream = Stream::new(socket, None, STRANGER_WORDS_MAX);
                let why = "too many connections";
                let _ = stream.map(|mut stream| stream.refuse(why, why));
            }
            return Err(std::io::Error::other("too many connections"));
        }
        let tls = self.tls.as_ref().map(ServerTls::accept).transpose()?;
        let stream = Stream::new(socket, tls, STRANGER_WORDS_MAX)?;
        let (watches, is_near) = (epoll::EventFlags::IN, stream.is_near());
        epoll::add(&self.epoll, stream.fd(), epoll::EventData::new_u64(slot as u64), watches)?;
        let number = self.next_number;
        self.next_number += 1;
        if slot == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[slot] = Some(Connection {
            number,
            stream,
            told: self.own_term,
            shards: Vec::new(),
            is_near,
            frames: 0,
            deadline: Some(Instant::now() + self.limits.greeting),
            touched: false,
            readable: false,
            left: false,
            watches,
            busy: true,
        });
        Ok(ConnectionId { slot, number })
    }

    fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(id.slot)?.as_mut();
        connection.filter(|connection| connection.number == id.number)
    }

    /// Where a connection comes from.
    pub fn address(&mut self, id: ConnectionId) -> Option<SocketAddr> {
        self.find(id)?.stream.peer()
    }

    /// Whether a connection's client has shown a certificate for a name.
    pub fn is_certified_for(&self, id: ConnectionId, name: &str) -> bool {
        let connection = self.connections.get(id.slot).and_then(Option::as_ref);
        connection.is_some_and(|it| it.number == id.number && it.stream.is_certified_for(name))
    }

    /// Says that a connection is known, and may stay for as long as it likes.
    pub fn establish(&mut self, id: ConnectionId) {
        if let Some(connection) = self.find(id) {
            connection.deadline = None;
        }
    }

    /// Queues a frame of the set-up conversation.
    pub fn send(&mut self, id: ConnectionId, kind: u16, bytes: &[u8]) {
        if let Some(connection) = self.find(id) {
            connection.stream.control(kind, bytes);
            self.touch(id.slot);
        }
    }

    /// Lets a connection READ a shard's memory and WRITE into a mailbox of its. Its client calls the shards
    /// that are opened for it 0, 1 and so on. Returns the shard's way back, with room for so many words.
    /// `None`: the connection has gone, or there is no memory for it.
    pub fn open(&mut self, id: ConnectionId, shard: usize, mailbox: Span, words: usize) -> Option<AgentLink> {
        let (bell, write_words) = (self.bell.clone(), self.limits.write_words);
        let connection = self.find(id)?;
        connection.stream.allow(1 + write_words);
        let (link, written) = AgentLink::new(words, bell, id.slot, connection.shards.len() as u8)?;
        connection.shards.push(Opened { shard, mailbox, written });
        Some(link)
    }

    /// Gives a connection up that is to carry a feed from here on: another thread is to have it. What it has
    /// sent already goes with it. `None`: it has gone.
    pub fn release(&mut self, id: ConnectionId) -> Option<FeedLink> {
        self.find(id)?;
        let connection = self.connections[id.slot].take()?;
        let _ = epoll::delete(&self.epoll, connection.stream.fd());
        Some(FeedLink::new(connection.stream))
    }

    /// Tells a connection why it is refused, and ends it.
    pub fn refuse(&mut self, id: ConnectionId, text: &str, why: &'static str) {
        if let Some(connection) = self.find(id) {
            connection.stream.refuse(text, why);
            self.touch(id.slot);
        }
    }

    fn touch(&mut self, slot: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(slot) {
            if !connection.touched {
                connection.touched = true;
                self.touched.push(slot);
            }
        }
    }

    /// Does what there is to do, without waiting. Returns whether there was anything, or its bell's `wake`
    /// was called.
    pub fn turn(&mut self, events: &mut Vec<Event>) -> bool {
        let (bell, mut rung) = (self.bell.clone(), false);
        let called = bell.take(self.connections.len(), |slot| {
            rung = true;
            self.take_written(slot);
            self.touch(slot);
        });
        self.turns = self.turns.wrapping_add(1);
        // Answers go first, but not for ever.
        if !std::mem::take(&mut self.heard) && (!rung || self.turns % 2 == 0) {
            self.look(Some(Duration::ZERO));
        }
        let mut touched = std::mem::take(&mut self.touched);
        let mut served = 0;
        for slot in touched.drain(..) {
            served += 1;
            self.serve(slot);
            self.note_served(slot);
        }
        if self.touched.is_empty() {
            self.touched = touched;
        }
        let steps_in = self.steps_in();
        self.bell.tell_steps_in(steps_in);
        for shard in &mut self.shards {
            if shard.wake(steps_in) {
                self.asked = Some(shard.memory.header.words().load(header_word::CORE));
            }
        }
        self.answered |= rung;
        if (self.turns % TURNS_A_CLOCK == 0 || served == 0) && self.ticked.elapsed() >= TICK {
            self.tick();
        }
        events.append(&mut self.events);
        // Whoever called has something that this side's caller looks at between two turns.
        self.rests = self.alone.is_beside() && !called;
        called || served > 0 || !events.is_empty()
    }

    /// Gives this core to those for whom something was passed on since this was called last, who may need it:
    /// shards, and clients on this host. Not before a shard on another core has had time to answer. If it
    /// `may_rest`, it sleeps at once where it is on the core of the client that it serves.
    pub fn give_way(&mut self, may_rest: bool) {
        let asked = self.asked.take();
        if !std::mem::take(&mut self.answered) && asked.is_none() {
            return;
        }
        if asked.is_some_and(|core| core != sched_getcpu() as u64 + 1) {
            for _ in 0..LOOKS_FOR_ANSWER {
                if self.bell.has_rung(self.connections.len()) {
                    return;
                }
                std::hint::spin_loop();
            }
        }
        if may_rest && self.rests {
            return self.wait();
        }
        // Asleep it does so too.
        self.give_core();
    }

    /// Gives this core to whoever wants it for a moment. `false`: that would be for long, or the client that
    /// it serves wants it, and it is to `wait` instead.
    pub fn give_core(&mut self) -> bool {
        let gives = !self.alone.is_beside() && !self.contention.is_contended_now();
        if gives {
            self.contention.yield_now();
        }
        gives
    }

    /// Sleeps until something happens.
    pub fn wait(&mut self) {
        // Ticks have work only while somebody is connected.
        let tick = (self.has_connections() || self.paused.is_some()).then_some(TICK);
        if self.bell.begin_sleep(self.connections.len()) && self.touched.is_empty() {
            self.heard = self.look(tick);
        }
        self.bell.end_sleep();
    }

    /// Notes who is ready. Returns whether anybody was.
    fn look(&mut self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.map(timespec);
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut ready = [none; EVENTS];
        let waited = epoll::wait(&self.epoll, &mut ready[..], timeout.as_ref());
        let count = crate::events(waited, timeout.as_ref());
        let mut knocks = false;
        for event in &ready[..count] {
            match event.data.u64() {
                LISTENER => knocks = true,
                BELL => self.bell_end.drain(),
                WATCHED => self.events.push(Event::Ready),
                slot => {
                    if let Some(Some(connection)) = self.connections.get_mut(slot as usize) {
                        (connection.busy, connection.readable) = (true, true);
                    }
                    self.touch(slot as usize);
                }
            }
        }
        if knocks {
            self.accept();
        }
        count > 0
    }

    /// Whether to step in for the threads of shards that sleep. Where one client asks for one thing after the
    /// other, a thread that is woken for it only makes it wait; and where others compute, each switch of
    /// threads takes a core from them. Several clients are served sooner by several threads.
    fn steps_in(&self) -> bool {
        self.alone.is_beside() || self.contention.is_contended_now()
    }

    /// Goes to the core of a client that is alone in asking for something.
    fn note_served(&mut self, slot: usize) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        let frames = std::mem::take(&mut connection.frames);
        if frames > 0 {
            let core = || if connection.is_near { connection.stream.core() } else { None };
            let is_contended = self.contention.is_contended_now();
            self.alone.note(slot, frames, is_contended, core);
        }
    }

    fn accept(&mut self) {
        let Some(listener) = self.listener.take() else { return };
        for _ in 0..EVENTS {
            match listener.accept() {
                Ok((socket, _)) => {
                    let _ = self.add(socket);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
                // Out of descriptors or memory: those who are connected go on, new ones wait in the socket's
                // queue.
                Err(_) => {
                    self.paused = Some(Instant::now());
                    self.watch_listener(&listener, epoll::EventFlags::empty());
                    break;
                }
            }
        }
        self.listener = Some(listener);
    }

    fn watch_listener(&self, listener: &TcpListener, events: epoll::EventFlags) {
        let _ = epoll::modify(&self.epoll, listener, epoll::EventData::new_u64(LISTENER), events);
    }

    /// Does what has no moment of its own.
    fn tick(&mut self) {
        self.ticked = Instant::now();
        if self.paused.is_some_and(|since| since.elapsed() >= PAUSE) {
            self.paused = None;
            if let Some(listener) = &self.listener {
                self.watch_listener(listener, epoll::EventFlags::IN);
            }
        }
        let now = Instant::now();
        for slot in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[slot] else { continue };
            if connection.deadline.is_some_and(|deadline| deadline < now) {
                connection.stream.end("no greeting in time");
                self.serve(slot);
            } else if !std::mem::take(&mut connection.busy) {
                connection.stream.shrink();
            }
        }
        let look = if self.has_connections() { Shard::look } else { Shard::forget };
        self.shards.iter_mut().for_each(look);
        if self.told_term_is_old() {
            (0..self.connections.len()).for_each(|slot| self.touch(slot));
        }
    }

    fn told_term_is_old(&mut self) -> bool {
        let term = self.authority.load();
        std::mem::replace(&mut self.term, term) != term
    }

    /// Moves what shards have written to a connection's stream.
    fn take_written(&mut self, slot: usize) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        for Opened { written, .. } in &mut connection.shards {
            let Ok(chunk) = written.read_chunk(written.slots()) else { continue };
            if chunk.is_empty() {
                continue;
            }
            // Looked at after what is sent under it.
            let term = self.authority.load();
            let out = &mut connection.stream.out;
            tell(&mut connection.told, term, out, out.len());
            let (front, back) = chunk.as_slices();
            out.extend_from_slice(front);
            out.extend_from_slice(back);
            chunk.commit_all();
        }
    }

    /// Receives, answers and sends what a connection has.
    fn serve(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else { return };
        let id = ConnectionId { slot, number: connection.number };
        connection.touched = false;
        let out = &mut connection.stream.out;
        tell(&mut connection.told, self.term, out, out.len());
        // Whoever was refused is not listened to any more.
        if connection.stream.over().is_none() && connection.stream.unsent() <= UNSENT_BYTES_MAX {
            // What is left comes first, so that a client who asks and asks fills no memory.
            if connection.readable && !connection.left {
                connection.readable = false;
                connection.stream.fill();
            }
            let index = self.limits.index;
            connection.left = answer(connection, id, (&mut self.shards, index), &mut self.events);
        }
        connection.stream.flush();
        if let Some(why) = connection.stream.over() {
            let _ = epoll::delete(&self.epoll, connection.stream.fd());
            self.connections[slot] = None;
            self.events.push(Event::Over(id, why));
            return;
        }
        let unsent = connection.stream.unsent();
        let mut watches = epoll::EventFlags::empty();
        if unsent <= UNSENT_BYTES_MAX {
            watches |= epoll::EventFlags::IN;
        }
        if unsent > 0 {
            watches |= epoll::EventFlags::OUT;
        }
        if watches != connection.watches {
            connection.watches = watches;
            let data = epoll::EventData::new_u64(slot as u64);
            if epoll::modify(&self.epoll, connection.stream.fd(), data, watches).is_err() {
                connection.stream.end("the system cannot watch it");
            }
        }
        if connection.left && unsent <= UNSENT_BYTES_MAX {
            // The others first.
            self.touch(slot);
        }
    }
}

/// Answers the frames that have arrived, as far as their answers may be queued. Returns whether frames are
/// left.
fn answer(
    connection: &mut Connection,
    id: ConnectionId,
    (shards, index): (&mut [Shard], IndexReader),
    events: &mut Vec<Event>,
) -> bool {
    let mut ahead = 0;
    while connection.stream.unsent() <= UNSENT_BYTES_MAX {
        if ahead == 0 {
            ahead = bring_near(connection, shards, index);
        }
        ahead = ahead.saturating_sub(1);
        let Some((head, body)) = connection.stream.next() else { return false };
        connection.frames += 1;
        let number = usize::from(head.small);
        let opened = connection.shards.get(number);
        match (head.kind, opened) {
            (Kind::Read, Some(opened)) => {
                let place = Place(connection.stream.words()[body.start]);
                let out = &mut connection.stream.out;
                read(&mut shards[opened.shard], head, place, &mut connection.told, out);
            }
            (Kind::Find, Some(opened)) => {
                let (words, out) = connection.stream.parts();
                let shard = &mut shards[opened.shard];
                if !find(shard, index, (head, &words[body]), &mut connection.told, out) {
                    connection.stream.end("a FIND that makes no sense");
                    return false;
                }
            }
            (Kind::Write, Some(Opened { shard, mailbox, .. })) => {
                let (words, first) = (&connection.stream.words()[body], head.name as usize);
                if !crate::place(mailbox, first, words) {
                    connection.stream.end("a WRITE beyond the mailbox");
                    return false;
                }
                shards[*shard].written = true;
            }
            (Kind::Control, _) => {
                let words = &connection.stream.words()[body];
                let bytes = kelix_image::words::bytes_of(words)[..head.count as usize].to_vec();
                events.push(Event::Control(id, head.name as u16, bytes));
                // What is answered to it counts before the next frame is looked at.
                return true;
            }
            _ => {
                connection.stream.end("a frame that makes no sense here");
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests;
