//! The server's side: who may connect, what is registered for whom, and wake-ups.

use std::collections::HashMap;
use std::io::{Error, Result};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelix_image::{Header, Span, header_word};
use kelix_types::limits::SEGMENTS_LEFT_NS;
use rustix::event::epoll;

use super::Ticket;
use super::cm::{Event, Events, Id, IdName};
use super::device::{Access, Device, Domain, Region, Remote};
use super::endpoint::{RemoteSegment, ServerCard, ShardCard};
use super::ffi::constant::*;
use super::lane::{Lane, wake_number};
use super::link::VerbsLink;
use super::queue::Channel;
use super::registrar::{Registrar, Task};
use super::stream::VerbsStream;
use crate::shm::{AUTHORITY_TERM, AUTHORITY_UNTIL, MemfdSegments, WakerHandle};

/// Requests of one lane under way: WRITEs, of which those to one session become one.
const SENDS: usize = 128;
/// How long a ticket may go unused, and a lane be without a session.
const UNUSED: Duration = Duration::from_secs(10);
/// How long a segment that has gone is left to those who say nothing of it.
const LEFT: Duration = Duration::from_nanos(SEGMENTS_LEFT_NS);

const CONNECTIONS: u64 = 0;
const REGISTRAR: u64 = 1;
const CHANNELS: u64 = 2;

/// A shard that may be READ over verbs.
pub struct HostShard {
    /// The namespace that it is of, by number.
    pub namespace: usize,
    /// The header page.
    pub header: Span,
    /// The segments, as the shard makes and retires them.
    pub segments: MemfdSegments,
    /// Wakes the shard's thread.
    pub waker: Arc<WakerHandle>,
}

/// What others are to be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostEvent {
    /// A session: segments that it may READ came or went.
    Changed(u64),
    /// A session: its lane is over.
    Over(u64),
    /// Whoever looks after the server: something could not be done, and what that means.
    Trouble(String),
}

/// A segment in a domain.
struct Segment {
    first: usize,
    bytes: u64,
    state: State,
}

enum State {
    /// It is being registered.
    Coming,
    There(Region),
    /// It cannot be, and is read by message.
    Refused,
}

impl Segment {
    fn region(&self) -> Option<&Region> {
        match &self.state {
            State::There(region) => Some(region),
            _ => None,
        }
    }
}

/// What there is of a shard in a domain.
struct Memory {
    shard: usize,
    header: Region,
    /// Of the list of those that are registered.
    version: u64,
    segments: Vec<Segment>,
    /// Segments that the shard has retired, from which version on the list is without them, and since when.
    retired: Vec<(Region, u64, Instant)>,
    /// The version of the shard's own list that this is from.
    seen: Option<u64>,
}

/// The memory of a namespace, registered with one device.
struct Registered {
    namespace: usize,
    domain: Arc<Domain>,
    authority: Region,
    shards: Vec<Memory>,
}

impl Registered {
    fn of(&self, shard: usize) -> &Memory {
        self.shards.iter().find(|of| of.shard == shard).expect("all of a namespace")
    }

    fn of_mut(&mut self, shard: usize) -> &mut Memory {
        self.shards.iter_mut().find(|of| of.shard == shard).expect("all of a namespace")
    }
}

struct OfClient {
    lane: Arc<Lane>,
    id: IdName,
    namespace: usize,
    /// Which of `registered`.
    memory: usize,
    /// Sessions on it, and since when there is none.
    sessions: usize,
    unused_since: Instant,
}

struct OfSession {
    number: u64,
    lane: Arc<Lane>,
    memory: usize,
    shards: Range<usize>,
    _inboxes: Vec<Region>,
    /// By shard: the version of the list from before which it READs nothing any more.
    let_go: Vec<u64>,
}

impl OfSession {
    fn reads(&self, memory: usize, shard: usize) -> bool {
        self.memory == memory && self.shards.contains(&shard)
    }
}

/// What a queue pair may be connected for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To READ a namespace.
    Lane { namespace: usize },
    /// To be the stream of the client of this number.
    Stream { number: u64 },
}

/// What a server needs to be READ over verbs. Used by one thread.
pub struct Host {
    events: Arc<Events>,
    _listeners: Vec<Id>,
    addresses: Vec<SocketAddr>,
    epoll: OwnedFd,
    shards: Vec<HostShard>,
    authority: Span,
    term: u64,
    devices: HashMap<String, (Arc<Device>, Arc<Channel>)>,
    channels: Vec<Arc<Channel>>,
    registered: Vec<Registered>,
    registrar: Registrar,
    tickets: Vec<(Ticket, Purpose, Instant)>,
    /// Streams that were asked for and not taken, by the number of their clients.
    streams: Vec<(u64, Result<VerbsStream>)>,
    /// By the name of their completion queues.
    lanes: Vec<Option<OfClient>>,
    /// Lanes that are over, which shards may still hold.
    over: Vec<Arc<Lane>>,
    sessions: Vec<OfSession>,
    news: Vec<HostEvent>,
    /// Nobody READs any more, nor ever will.
    closed: bool,
}

impl Host {
    /// Listens at addresses of RDMA devices, for a server of this term.
    pub fn listen(
        addresses: &[SocketAddr],
        shards: Vec<HostShard>,
        authority: Span,
        term: u64,
    ) -> Result<Host> {
        let events = Events::new()?;
        let listeners =
            addresses.iter().map(|address| Id::listen(&events, *address)).collect::<Result<_>>()?;
        let registrar = Registrar::start()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let host = Host {
            events,
            _listeners: listeners,
            addresses: addresses.to_vec(),
            epoll,
            shards,
            authority,
            term,
            devices: HashMap::new(),
            channels: Vec::new(),
            registered: Vec::new(),
            registrar,
            tickets: Vec::new(),
            streams: Vec::new(),
            lanes: Vec::new(),
            over: Vec::new(),
            sessions: Vec::new(),
            news: Vec::new(),
            closed: false,
        };
        host.watch(host.events.fd(), CONNECTIONS)?;
        host.watch(host.registrar.fd(), REGISTRAR)?;
        Ok(host)
    }

    fn watch(&self, fd: BorrowedFd<'_>, name: u64) -> Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(name), epoll::EventFlags::IN)?)
    }

    /// Readable when there is something to do in [`Host::turn`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Where clients connect.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How many queue pairs are connected.
    pub fn lanes(&self) -> usize {
        self.lanes.iter().flatten().count()
    }

    /// A ticket with which a client that may read a namespace can connect a queue pair.
    pub fn ticket(&mut self, namespace: usize) -> Result<Ticket> {
        self.ticket_for(Purpose::Lane { namespace })
    }

    /// A ticket with which the client of this number can connect a stream, in place of any that it has.
    pub fn stream_ticket(&mut self, number: u64) -> Result<Ticket> {
        self.forget_stream(number);
        self.ticket_for(Purpose::Stream { number })
    }

    fn forget_stream(&mut self, number: u64) {
        self.tickets.retain(|(_, purpose, _)| *purpose != Purpose::Stream { number });
        self.streams.retain(|(of, _)| *of != number);
    }

    /// Ends the queue pairs of all sessions: what arrives from now on reads nothing, and no other is
    /// connected. A server that was deposed says that nobody believes it any more, and its sessions would for
    /// as long as they know its lease to last.
    pub fn close(&mut self) {
        self.closed = true;
        self.tickets.clear();
        self.lanes.iter().flatten().for_each(|client| client.lane.fail());
    }

    fn ticket_for(&mut self, purpose: Purpose) -> Result<Ticket> {
        if self.closed {
            return Err(Error::other("this server is not the one in force any more"));
        }
        let mut ticket = Ticket::default();
        rustix::rand::getrandom(&mut ticket, rustix::rand::GetRandomFlags::empty())?;
        self.tickets.push((ticket, purpose, Instant::now()));
        Ok(ticket)
    }

    /// The stream that the client of this number has connected, if it has. An error: why that failed, which
    /// the client may not know.
    pub fn take_stream(&mut self, number: u64) -> Result<Option<VerbsStream>> {
        let index = self.streams.iter().position(|(of, _)| *of == number);
        index.map(|index| self.streams.swap_remove(index).1).transpose()
    }

    /// Lets a session use the lane that a ticket names, if that is of the namespace of these shards: into
    /// `inboxes` it will WRITE what is for them, into `mailboxes` they what is for it. `announce`: the word
    /// of an inbox in which it says that it is about to sleep.
    pub fn join(
        &mut self,
        number: u64,
        (ticket, seat): (&Ticket, u32),
        mailboxes: &[Remote],
        (shards, inboxes, announce): (Range<usize>, &[Span], usize),
    ) -> Result<(Vec<Box<VerbsLink>>, ServerCard)> {
        let refused = |what: &str| Error::other(what.to_string());
        let client = self.lanes.iter_mut().flatten().find(|client| client.lane.ticket == *ticket);
        let client = client.ok_or_else(|| refused("there is no queue pair of this ticket"))?;
        if self.sessions.iter().any(|session| session.number == number) {
            return Err(refused("it has joined one already"));
        }
        let memory = client.memory;
        let lane = client.lane.clone();
        let namespace = shards.clone().all(|shard| self.shards[shard].namespace == client.namespace);
        if !namespace || mailboxes.len() != shards.len() || inboxes.len() != shards.len() || seat >= 1 << 24 {
            return Err(refused("the queue pair is of another namespace"));
        }
        let of = &self.registered[memory];
        let (mut links, mut cards, mut regions) = (Vec::new(), Vec::new(), Vec::new());
        let mut epoch_ns = u64::MAX;
        for (peer, ((shard, inbox), mailbox)) in shards.clone().zip(inboxes).zip(mailboxes).enumerate() {
            let region = Region::register(&of.domain, inbox.clone(), Access::Writable)?;
            let header = &of.of(shard).header;
            cards.push(ShardCard {
                mailbox: region.remote(),
                sleeps: header.remote().word(header_word::SLEEPING),
                announce,
                wakes: shard as u32,
            });
            regions.push(region);
            let wakes = wake_number(seat, peer as u32);
            links.push(Box::new(VerbsLink::new(&lane, *mailbox, (inbox.clone(), announce), wakes)?));
            epoch_ns = epoch_ns.min(self.shards[shard].header.words().load(header_word::EPOCH_NS));
        }
        let card = ServerCard {
            term: self.term,
            authority: of.authority.remote().word(AUTHORITY_TERM),
            leased: self.authority.words().load_acquire(AUTHORITY_UNTIL) != 0,
            epoch_ns,
            shards: cards,
        };
        client.sessions += 1;
        let let_go = vec![0; shards.len()];
        self.sessions.push(OfSession { number, lane, memory, shards, _inboxes: regions, let_go });
        Ok((links, card))
    }

    /// The segments of a session's shard that are registered, the version of their list, and whether these
    /// are all that ever will be. `None`: there is no such session or shard.
    pub fn segments(&mut self, number: u64, shard: usize) -> Option<(u64, bool, Vec<RemoteSegment>)> {
        let session = self.sessions.iter().find(|session| session.number == number)?;
        let (memory, shard) = (session.memory, session.shards.clone().nth(shard)?);
        self.look_at(memory, shard);
        let of = self.registered[memory].of(shard);
        let header = (0, Header::BYTES, of.header.remote());
        let listed = of
            .segments
            .iter()
            .filter_map(|segment| Some((segment.first as u64, segment.bytes, segment.region()?.remote())));
        let whole = !of.segments.iter().any(|segment| matches!(segment.state, State::Coming));
        Some((of.version, whole, [header].into_iter().chain(listed).collect()))
    }

    /// A session READs nothing of a shard any more that is not in the list of this version.
    pub fn let_go(&mut self, number: u64, shard: usize, version: u64) {
        let session = self.sessions.iter_mut().find(|session| session.number == number);
        if let Some(session) = session.filter(|session| shard < session.shards.len()) {
            session.let_go[shard] = session.let_go[shard].max(version);
            let (memory, shard) = (session.memory, session.shards.start + shard);
            self.forget(memory, shard);
        }
    }

    /// A client has gone.
    pub fn leave(&mut self, number: u64) {
        self.forget_stream(number);
        let Some(index) = self.sessions.iter().position(|session| session.number == number) else { return };
        let OfSession { memory, shards, lane, .. } = self.sessions.swap_remove(index);
        shards.for_each(|shard| self.forget(memory, shard));
        let of = self.lanes.iter_mut().flatten().find(|client| Arc::ptr_eq(&client.lane, &lane));
        if let Some(client) = of {
            client.sessions -= 1;
            client.unused_since = Instant::now();
        }
    }

    /// Deregisters what was retired and no session READs any more, if only because nobody may any more.
    fn forget(&mut self, memory: usize, shard: usize) {
        let readers = self.sessions.iter().filter(|session| session.reads(memory, shard));
        let least =
            readers.map(|session| session.let_go[shard - session.shards.start]).min().unwrap_or(u64::MAX);
        self.registered[memory]
            .of_mut(shard)
            .retired
            .retain(|(_, version, since)| *version > least && since.elapsed() < LEFT);
    }

    /// Does what there is to do, without waiting.
    pub fn turn(&mut self, news: &mut Vec<HostEvent>) {
        while let Some(event) = self.events.take() {
            self.on(&event);
        }
        for index in 0..self.channels.len() {
            while let Some(name) = self.channels[index].take() {
                self.wake_shards(name);
            }
        }
        while let Some((Task { memory, shard, first, .. }, region)) = self.registrar.take() {
            let of = self.registered[memory].of_mut(shard);
            // It may have been retired meanwhile.
            let segment = of.segments.iter_mut().find(|segment| segment.first == first);
            match (segment, region) {
                (Some(segment), Ok(region)) => {
                    segment.state = State::There(region);
                    of.version += 1;
                    self.tell(memory, shard);
                }
                (segment, Err(error)) => {
                    segment.into_iter().for_each(|segment| segment.state = State::Refused);
                    let what =
                        format!("a segment is read by message, since it cannot be registered: {error}");
                    self.news.push(HostEvent::Trouble(what));
                }
                (None, Ok(_)) => {}
            }
        }
        for memory in 0..self.registered.len() {
            for shard in 0..self.registered[memory].shards.len() {
                let of = &self.registered[memory].shards[shard];
                // Those that went first come first.
                let is_due = of.retired.first().is_some_and(|(.., since)| since.elapsed() >= LEFT);
                let number = of.shard;
                self.look_at(memory, number);
                if is_due {
                    self.forget(memory, number);
                }
            }
        }
        self.tidy();
        news.append(&mut self.news);
    }

    fn on(&mut self, event: &Event) {
        match event.kind {
            EVENT_CONNECT_REQUEST => {
                let id = Id::of_request(&self.events, event);
                let ticket = event.said.get(..size_of::<Ticket>());
                let known = self.tickets.iter().position(|(known, ..)| Some(&known[..]) == ticket);
                let Some((ticket, purpose, _)) = known.map(|index| self.tickets.swap_remove(index)) else {
                    return id.reject();
                };
                let namespace = match purpose {
                    Purpose::Lane { namespace } => namespace,
                    Purpose::Stream { number } => {
                        let stream =
                            self.device_of(&id).and_then(|(device, _)| VerbsStream::accept(id, &device));
                        return self.streams.push((number, stream));
                    }
                };
                if let Err(error) = self.let_in(id, ticket, namespace) {
                    self.news.push(HostEvent::Trouble(format!("a queue pair was refused: {error}")));
                }
            }
            EVENT_DISCONNECTED | EVENT_DEVICE_REMOVAL => {
                let lane = self.lanes.iter().flatten().find(|client| client.id == event.id);
                if let Some(client) = lane {
                    client.lane.fail();
                }
            }
            _ => {}
        }
    }

    /// The device that a request has come by, and the channel of its lanes.
    fn device_of(&mut self, id: &Id) -> Result<(Arc<Device>, Arc<Channel>)> {
        let name = id.device()?;
        if let Some(known) = self.devices.get(&name) {
            return Ok(known.clone());
        }
        let device = Device::open(&name)?;
        let channel = Channel::new(&device)?;
        self.watch(channel.fd(), CHANNELS + self.channels.len() as u64)?;
        self.channels.push(channel.clone());
        self.devices.insert(name, (device.clone(), channel.clone()));
        Ok((device, channel))
    }

    fn let_in(&mut self, id: Id, ticket: Ticket, namespace: usize) -> Result<()> {
        let (device, channel) = self.device_of(&id)?;
        let memory = self.memory_of(&device, namespace)?;
        let index = self.lanes.iter().position(Option::is_none).unwrap_or(self.lanes.len());
        let lane = Lane::new(&self.registered[memory].domain, &channel, ticket, SENDS, index)?;
        id.accept(lane.pair(), &device)?;
        let of = id.name();
        lane.connected(id)?;
        lane.arm(false);
        if index == self.lanes.len() {
            self.lanes.push(None);
        }
        let (lane, unused_since) = (Arc::new(lane), Instant::now());
        self.lanes[index] = Some(OfClient { lane, id: of, namespace, memory, sessions: 0, unused_since });
        Ok(())
    }

    /// The memory of a namespace, registered with a device.
    fn memory_of(&mut self, device: &Arc<Device>, namespace: usize) -> Result<usize> {
        let same = |of: &Registered| of.namespace == namespace && of.domain.device.name == device.name;
        if let Some(index) = self.registered.iter().position(same) {
            return Ok(index);
        }
        let domain = Domain::new(device)?;
        let authority = Region::register(&domain, self.authority.clone(), Access::Readable)?;
        let mut shards = Vec::new();
        for (shard, of) in self.shards.iter().enumerate().filter(|(_, of)| of.namespace == namespace) {
            let header = Region::register(&domain, of.header.clone(), Access::Readable)?;
            let (segments, retired) = Default::default();
            shards.push(Memory { shard, header, version: 1, segments, retired, seen: None });
        }
        self.registered.push(Registered { namespace, domain, authority, shards });
        Ok(self.registered.len() - 1)
    }

    /// Takes note of segments that a shard has made or retired.
    fn look_at(&mut self, memory: usize, shard: usize) {
        let HostShard { header, segments, .. } = &self.shards[shard];
        let version = header.words().load_acquire(header_word::SEGMENTS);
        if self.registered[memory].of(shard).seen == Some(version) {
            return;
        }
        let domain = self.registered[memory].domain.clone();
        let of = self.registered[memory].of_mut(shard);
        of.seen = Some(version);
        let list = segments.list();
        let mut changed = false;
        let (kept, gone) = std::mem::take(&mut of.segments)
            .into_iter()
            .partition::<Vec<_>, _>(|segment| list.iter().any(|listed| listed.first == segment.first));
        of.segments = kept;
        for segment in gone {
            if let State::There(region) = segment.state {
                changed = true;
                of.retired.push((region, of.version + 1, Instant::now()));
            }
        }
        for listed in list {
            if of.segments.iter().any(|segment| segment.first == listed.first) {
                continue;
            }
            let (first, bytes) = (listed.first, listed.span.bytes());
            of.segments.push(Segment { first, bytes, state: State::Coming });
            self.registrar.register(Task { memory, shard, first, domain: domain.clone(), span: listed.span });
        }
        if changed {
            of.version += 1;
            self.tell(memory, shard);
            self.forget(memory, shard);
        }
    }

    /// Lets the sessions know whom it concerns.
    fn tell(&mut self, memory: usize, shard: usize) {
        let readers = self.sessions.iter().filter(|session| session.reads(memory, shard));
        self.news.extend(readers.map(|session| HostEvent::Changed(session.number)));
    }

    /// Wakes the shards that a client means, and takes note of errors.
    fn wake_shards(&mut self, name: usize) {
        let Some(Some(client)) = self.lanes.get(name) else { return };
        client.lane.arm(false);
        client.lane.poll_wake_ups(|shard| {
            if let Some(of) = self.shards.get(shard as usize).filter(|of| of.namespace == client.namespace) {
                of.waker.wake();
            }
        });
    }

    /// Ends what is over.
    fn tidy(&mut self) {
        self.tickets.retain(|(_, _, made)| made.elapsed() < UNUSED);
        for place in &mut self.lanes {
            let Some(client) = place else { continue };
            if client.sessions == 0 && client.unused_since.elapsed() > UNUSED {
                client.lane.fail();
            }
            if client.lane.is_broken() {
                let of = self.sessions.iter().filter(|session| Arc::ptr_eq(&session.lane, &client.lane));
                self.news.extend(of.map(|session| HostEvent::Over(session.number)));
                self.over.extend(place.take().map(|client| client.lane));
            }
        }
        // The last who holds one lets its queue pair go, and that is not to be a shard.
        self.over.retain(|lane| Arc::strong_count(lane) > 1);
    }
}
