//! A client's endpoint: one session's place on a lane, and the connection beside it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use kelix_image::words::{Words, full_fence};
use kelix_types::limits::{AUTHORITY_LEASE_NS, GRANULE_BYTES, GRANULES_MAX, SEGMENTS_KNOWN_NS, SHARDS_MAX};
use kelix_types::{Place, Result};
use rustix::event::epoll;

use super::device::{Access, Region, Remote};
use super::landing::{Buffer, Landing};
use super::lane::{Lane, Seat, Work};
use super::sender::Sender;
use crate::tcp::stream::Stream;
use crate::tcp::{ASK_TERM, REGIONS_CHANGED, TERM};
use crate::{
    Broken, Clock, Fabric, Mailbox, PeerId, Promises, Read, ReadState, RemoteMemory, Sampled, Waiter,
    WorkQueue, timespec,
};

/// How long an authority that was read is in force: a successor waits for longer, by any clock (see the
/// module's text).
const LEASE_NS: u64 = AUTHORITY_LEASE_NS / 4 * 3;
/// Between two questions for the term, while a server with a lease does not say that it is in force.
const QUESTIONS_APART_NS: u64 = 10_000_000;
/// Looks between two looks at the clock and the connection while nothing else happens.
const LOOKS: u32 = 1024;
/// The word of `control` that nobody looks at.
const SPARE: usize = 1 + SHARDS_MAX;
/// How long whoever is about to sleep waits for the other side to know it.
const ANNOUNCED: Duration = Duration::from_millis(500);
/// Announcements of one sleep: wake-ups for earlier ones may still arrive.
const ANNOUNCEMENTS: usize = 3;

/// A segment that may be READ: its first granule, length in bytes, and memory.
pub type RemoteSegment = (u64, u64, Remote);

/// Where a shard's memory is, for one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardCard {
    /// The mailbox into which the session WRITEs.
    pub mailbox: Remote,
    /// The word that says whether the shard sleeps, and which sleep it is.
    pub sleeps: Remote,
    /// The word of the mailbox in which the session says which sleep it is about to begin.
    pub announce: usize,
    /// The number that wakes the shard.
    pub wakes: u32,
}

/// What a session is told of the server.
pub struct ServerCard {
    /// The term that it serves in.
    pub term: u64,
    /// The word with the term in force.
    pub authority: Remote,
    /// Whether the term is in force by a lease: the word alone does not tell, and the server is asked.
    pub leased: bool,
    /// L of the read rule, the least of all its shards.
    pub epoch_ns: u64,
    /// Its shards.
    pub shards: Vec<ShardCard>,
}

/// A session that has a place on a lane and mailboxes, of which the server does not know yet.
pub struct Joining {
    lane: Arc<Lane>,
    seat: Arc<Seat>,
    number: usize,
    inboxes: Vec<Region>,
}

impl Joining {
    pub(super) fn new(lane: &Arc<Lane>, shards: usize, mailbox_bytes: u64) -> std::io::Result<Joining> {
        let words = (mailbox_bytes / 8) as usize;
        let inbox = |_| Region::private(&lane.domain, words, Access::Writable);
        let inboxes = (0..shards).map(inbox).collect::<std::io::Result<_>>()?;
        let (number, seat) = lane.sit()?;
        Ok(Joining { lane: lane.clone(), seat, number, inboxes })
    }

    /// What names the lane to the server.
    pub fn ticket(&self) -> super::Ticket {
        self.lane.ticket
    }

    /// The session's number on the lane.
    pub fn number(&self) -> u32 {
        self.number as u32
    }

    /// The session's mailbox for each shard.
    pub fn mailboxes(&self) -> Vec<Remote> {
        self.inboxes.iter().map(Region::remote).collect()
    }

    /// The endpoint, once the server has told the rest; `stream` is the connection over which it did.
    pub(crate) fn endpoint(self, stream: Stream, server: ServerCard) -> std::io::Result<VerbsEndpoint> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch =
            |fd: BorrowedFd<'_>| epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        watch(stream.fd())?;
        watch(self.lane.channel().fd())?;
        self.seat.bell().map(watch).transpose()?;
        let Joining { lane, seat, number, inboxes } = self;
        let peers = server.shards.into_iter().map(|card| Peer {
            card,
            segments: Vec::new(),
            written: false,
            wanted: false,
            look: None,
            woken: 0,
            announced: false,
        });
        let peers: Vec<Peer> = peers.collect();
        let memory = Memory {
            landing: Landing::new(&lane.domain)?,
            control: Region::private(&lane.domain, SPARE + 1, Access::Landing)?,
            inboxes,
        };
        Ok(VerbsEndpoint {
            sender: Sender::new(lane, (Some(number), seat), memory)?,
            slots: Vec::new(),
            awaited: VecDeque::new(),
            abandoned: Vec::new(),
            seen: 0,
            window_ns: server.epoch_ns / 4 * 3,
            authority: server.authority,
            term: server.term,
            term_seen: server.term,
            leased: server.leased,
            lease_until_ns: 0,
            margin_ns: LEASE_NS / 2,
            renewal: None,
            told_ns: None,
            judging: false,
            sleeps: 0,
            looks: 0,
            unseen: false,
            news: false,
            armed: false,
            closed: false,
            changes: 0,
            owed: 0,
            peers,
            epoll,
            stream,
        })
    }
}

/// All that the device reads and writes here.
struct Memory {
    landing: Landing,
    /// Where the authority lands, and behind it the sleep word of each peer.
    control: Region,
    /// The mailboxes, by peer.
    inboxes: Vec<Region>,
}

struct Peer {
    card: ShardCard,
    /// By granule.
    segments: Vec<Option<(u32, u64, Remote)>>,
    /// Something was WRITten since it was last to be woken.
    written: bool,
    /// It is to be looked whether it sleeps; and the number of the READ that looks.
    wanted: bool,
    look: Option<u64>,
    /// The sleep that it was last woken from.
    woken: u64,
    /// It knows that this side is about to sleep, or would be if it had anything to say.
    announced: bool,
}

impl Peer {
    fn find(&self, place: Place, words: usize) -> Option<Remote> {
        let granule = (place.0 / GRANULE_BYTES) as usize;
        let (first, bytes, remote) = self.segments.get(granule).copied().flatten()?;
        let offset = place.0 - u64::from(first) * GRANULE_BYTES;
        let fits = place.0 % 8 == 0 && offset < bytes && words as u64 * 8 <= bytes - offset;
        fits.then(|| remote.word((offset / 8) as usize))
    }
}

#[derive(Clone, Copy, Default)]
enum Slot {
    #[default]
    Free,
    /// Its buffer, its number, when it was posted, and when it was first seen to be done.
    UnderWay {
        buffer: Buffer,
        number: u64,
        before: u64,
        after: u64,
    },
    Outside,
    Broken,
}

/// How the term in force is about to be learnt.
#[derive(Clone, Copy)]
enum Renewal {
    /// The READ of the authority of this number.
    Read(u64),
    /// A question over the connection beside.
    Question,
}

/// One session's endpoint.
pub struct VerbsEndpoint {
    sender: Sender<Memory>,
    /// READs by tag.
    slots: Vec<Slot>,
    /// The numbers of READs that their reader waits for.
    awaited: VecDeque<u64>,
    /// Buffers of READs that were given up, and the READs' numbers.
    abandoned: Vec<(u64, Buffer)>,
    /// Requests that were complete when it was last looked.
    seen: u64,
    window_ns: u64,
    authority: Remote,
    term: u64,
    term_seen: u64,
    /// The server is asked for its term, which is in force by a lease.
    leased: bool,
    /// Until when the term that was seen is certainly in force, and how long before that it is renewed.
    lease_until_ns: u64,
    margin_ns: u64,
    /// What will tell the term in force, and since when that is under way.
    renewal: Option<(Renewal, u64)>,
    /// When the server last answered for its term.
    told_ns: Option<u64>,
    /// A READ that is done waits for it.
    judging: bool,
    /// Counts this side's sleeps.
    sleeps: u64,
    looks: u32,
    /// As over TCP: something was taken in since this side last asked, or last slept.
    unseen: bool,
    news: bool,
    armed: bool,
    /// The connection beside is over.
    closed: bool,
    /// How often the server has said that segments came or went.
    changes: u64,
    /// Answers of the server that have not come yet.
    owed: usize,
    peers: Vec<Peer>,
    epoll: OwnedFd,
    stream: Stream,
}

impl VerbsEndpoint {
    fn is_over(&self) -> bool {
        self.closed || self.sender.lane.is_broken()
    }

    /// Sends a frame of the set-up conversation, and waits for the one that answers it.
    pub fn ask(&mut self, kind: u16, bytes: &[u8], patience: Duration) -> Result<(u16, Vec<u8>)> {
        self.stream.control(kind, bytes);
        self.owed += 1;
        let VerbsEndpoint { stream, owed, changes, .. } = self;
        let mut told = None;
        // Answers to questions that were given up come first.
        let answer = stream.answer("ask the server", patience, |kind, bytes| match kind {
            TERM => {
                told = Some(bytes.to_vec());
                false
            }
            _ => take_note(kind, owed, changes) && *owed == 0,
        });
        told.into_iter().for_each(|bytes| self.take_term(&bytes));
        if self.stream.over().is_some() {
            self.close();
        }
        answer
    }

    /// Sends a frame of the set-up conversation that is not answered.
    pub fn tell(&mut self, kind: u16, bytes: &[u8]) {
        self.stream.control(kind, bytes);
        self.stream.flush();
    }

    /// The segments of a peer are these from now on. READs under way elsewhere are over when this returns.
    pub fn set_segments(&mut self, peer: PeerId, list: &[RemoteSegment]) {
        self.take_in();
        // A READ of a segment that goes would end the connection for everybody on the lane.
        let until = self.sender.next();
        while self.sender.done() < until && !self.is_over() {
            self.take_in();
            self.yield_now();
        }
        let peer = &mut self.peers[peer.0 as usize];
        peer.segments.clear();
        for (first, bytes, remote) in list {
            let first = *first as usize;
            let granules = bytes.div_ceil(GRANULE_BYTES) as usize;
            if granules > GRANULES_MAX || first > GRANULES_MAX - granules {
                continue;
            }
            if peer.segments.len() < first + granules {
                peer.segments.resize(first + granules, None);
            }
            peer.segments[first..first + granules].fill(Some((first as u32, *bytes, *remote)));
        }
    }

    /// Counts how often the server has said that segments came or went.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Ends the connection beside, and with it this side's part in the lane.
    fn close(&mut self) {
        self.closed = true;
        let _ = epoll::delete(&self.epoll, self.stream.fd());
    }

    /// Gives what waits to the lane, as far as there is room.
    fn post(&mut self) {
        match self.is_over() {
            true => self.sender.give_up(),
            false => self.sender.post(),
        }
    }

    /// Has the authority read again, or the server asked, well before the term has to be known again.
    fn keep_lease(&mut self, now_ns: u64) {
        if self.renewal.is_some() || now_ns + self.margin_ns <= self.lease_until_ns || self.is_over() {
            return;
        }
        let renewal = if !self.leased {
            let lands = self.sender.memory.control.part(0, 1);
            Renewal::Read(self.sender.push(Work::Read, lands, self.authority))
        } else if self.may_ask(now_ns) {
            self.stream.control(ASK_TERM, &[]);
            self.stream.flush();
            Renewal::Question
        } else {
            return;
        };
        self.renewal = Some((renewal, now_ns));
    }

    /// Takes the server's answer for its term, which holds from the question on: whatever the server knew was
    /// so when it had the question. One that makes no sense says nothing.
    fn take_term(&mut self, bytes: &[u8]) {
        let Some((Renewal::Question, asked_ns)) = self.renewal else { return };
        self.renewal = None;
        self.told_ns = Some(self.now_ns());
        self.unseen |= std::mem::take(&mut self.judging);
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if let (Some(term), Some(left_ns)) = (word(0), word(8)) {
            self.term_seen = term;
            if left_ns > 0 {
                self.lease_until_ns = asked_ns.saturating_add(left_ns);
                self.margin_ns = left_ns / 2;
            }
        }
    }

    /// Takes in what is complete.
    fn take_in(&mut self) {
        self.sender.lane.poll();
        let done = self.sender.done();
        if done != self.seen {
            self.take_in_until(done);
        }
        if !self.sender.is_clear() {
            self.post();
        }
    }

    fn take_in_until(&mut self, done: u64) {
        self.seen = done;
        while self.awaited.front().is_some_and(|number| *number < done) {
            self.awaited.pop_front();
            self.unseen = true;
        }
        if let Some((Renewal::Read(number), posted_ns)) = self.renewal {
            if number < done {
                self.term_seen = self.sender.memory.control.words().load(0);
                self.lease_until_ns = posted_ns + LEASE_NS;
                self.renewal = None;
                self.unseen |= std::mem::take(&mut self.judging);
            }
        }
        self.wake_sleepers();
        let landing = &mut self.sender.memory.landing;
        self.abandoned.retain(|(number, buffer)| {
            if *number < done {
                landing.give(*buffer);
            }
            *number >= done
        });
    }

    /// Wakes the peers that were seen to sleep, and looks where it is to be looked: behind what was WRITten.
    fn wake_sleepers(&mut self) {
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if peer.look.is_some_and(|number| number < self.seen) {
                peer.look = None;
                let sleep = self.sender.memory.control.words().load(1 + index);
                if sleep != 0 && sleep != peer.woken {
                    peer.woken = sleep;
                    self.sender.push(Work::Wake(peer.card.wakes), Default::default(), peer.card.mailbox);
                }
            }
            if peer.wanted && peer.look.is_none() {
                peer.wanted = false;
                self.sender.give();
                let lands = self.sender.memory.control.part(1 + index, 1);
                peer.look = Some(self.sender.push(Work::Read, lands, peer.card.sleeps));
            }
        }
    }

    /// Takes in what the connection beside brings: news of segments, or its end.
    fn take_frames(&mut self) {
        if self.closed {
            return;
        }
        self.stream.flush();
        self.stream.fill();
        while let Some((kind, bytes)) = self.stream.next_control() {
            match kind {
                TERM => self.take_term(&bytes),
                _ => _ = take_note(kind, &mut self.owed, &mut self.changes),
            }
        }
        if self.stream.over().is_some() {
            self.close();
            self.unseen = true;
        }
    }

    /// Takes back events, asks for further ones, and takes in what there is, in this order: so nothing
    /// arrives without being taken here or making an event. Has others learn what is theirs. Returns whether
    /// a peer has woken this side.
    fn take_events(&mut self) -> bool {
        while self.sender.lane.channel().take().is_some() {}
        self.sender.seat.hush();
        self.sender.lane.arm(true);
        self.take_in();
        self.sender.lane.pass_wake_ups_on();
        let woken = self.sender.seat.take_woken();
        for (index, peer) in self.peers.iter_mut().enumerate() {
            peer.announced &= woken >> index & 1 == 0;
        }
        woken != 0
    }

    /// Tells the peers that do not know it that this side is about to sleep, and waits until they do.
    fn announce(&mut self) {
        let sleeps = self.sleeps;
        let mut any = false;
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if !std::mem::replace(&mut peer.announced, true) {
                let ShardCard { mailbox, announce, .. } = peer.card;
                any |= self.place(mailbox.word(announce), &[sleeps]).is_ok();
            }
        }
        if !any {
            return;
        }
        // Answered, whatever it reads, once what was WRITten is visible to whoever looks there.
        self.sender.give();
        let lands = self.sender.memory.control.part(SPARE, 1);
        self.sender.push(Work::Read, lands, self.authority);
        self.post();
        let (until, began) = (self.sender.next(), self.now_ns());
        while self.sender.done() < until && !self.is_over() {
            self.take_in();
            if self.now_ns() - began > ANNOUNCED.as_nanos() as u64 {
                break;
            }
            self.yield_now();
        }
    }

    /// Takes words to be WRITten, and waits for room if need be.
    fn place(&mut self, to: Remote, words: &[u64]) -> std::result::Result<(), Broken> {
        loop {
            if self.sender.place(to, words) {
                return Ok(());
            }
            if self.is_over() {
                return Err(Broken);
            }
            // What waits stands in the way.
            self.post();
            self.take_in();
            self.yield_now();
        }
    }

    /// Whether the term in force will be known soon. `false`: a server with a lease has just not said that it
    /// is in force, and it knows best whether what it has counts.
    fn learns_term(&self) -> bool {
        !self.leased || self.renewal.is_some() || self.may_ask(self.now_ns())
    }

    /// Whether the last answer for the term is so long ago that another one may say more.
    fn may_ask(&self, now_ns: u64) -> bool {
        self.told_ns.is_none_or(|told_ns| now_ns - told_ns >= QUESTIONS_APART_NS)
    }

    /// The term in force at a time not later than now; `None`: it has to be read first.
    fn term_at(&self, at_ns: u64) -> Option<u64> {
        (self.term_seen != self.term || at_ns < self.lease_until_ns).then_some(self.term_seen)
    }
}

impl WorkQueue for VerbsEndpoint {
    fn doorbell(&mut self) {
        self.keep_lease(self.now_ns());
        self.post();
    }

    fn progress(&mut self) -> bool {
        if self.armed {
            self.take_events();
            self.armed = false;
        }
        self.take_in();
        if self.judging && self.leased {
            self.take_frames();
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks % LOOKS == 0 {
            self.look();
        }
        if std::mem::take(&mut self.unseen) {
            // Its caller looks only now.
            self.news = true;
        }
        // Words in a mailbox arrive without a sign.
        true
    }

    fn unseen(&self) -> bool {
        self.unseen
    }

    fn look(&mut self) {
        self.take_frames();
        self.keep_lease(self.now_ns());
        self.post();
        self.take_in();
    }

    fn is_broken(&self, _: PeerId) -> bool {
        self.is_over()
    }
}

impl RemoteMemory for VerbsEndpoint {
    fn map_version(&self, _: PeerId) -> u64 {
        self.changes
    }

    fn post_read(&mut self, read: Read) {
        let tag = read.tag as usize;
        if self.slots.len() <= tag {
            self.slots.resize(tag + 1, Slot::Free);
        }
        if let Slot::UnderWay { buffer, number, .. } = std::mem::take(&mut self.slots[tag]) {
            // Its reader has given it up.
            self.abandoned.push((number, buffer));
        }
        self.slots[tag] = if self.is_over() {
            Slot::Broken
        } else if let Some((remote, buffer)) = self.peers[read.peer.0 as usize]
            .find(read.place, read.words)
            .and_then(|remote| Some((remote, self.sender.memory.landing.take(read.words)?)))
        {
            let lands = self.sender.memory.landing.part(buffer, read.words);
            let number = self.sender.push(Work::Read, lands, remote);
            self.awaited.push_back(number);
            Slot::UnderWay { buffer, number, before: crate::now_ns(), after: 0 }
        } else {
            Slot::Outside
        };
    }

    fn poll_read(&mut self, read: Read, into: &mut [u64]) -> ReadState {
        let slot = self.slots.get(read.tag as usize).copied().unwrap_or(Slot::Broken);
        let (state, buffer) = match slot {
            Slot::Free | Slot::Broken => (ReadState::Broken, None),
            Slot::Outside => (ReadState::Outside, None),
            Slot::UnderWay { buffer, number, before, after } => {
                if self.sender.done() <= number {
                    if !self.is_over() {
                        return ReadState::Pending;
                    }
                    // Words may still land in its buffer, which is not used again.
                    (ReadState::Broken, None)
                } else {
                    let after = if after == 0 { self.now_ns() } else { after };
                    match self.term_at(after) {
                        Some(term) => {
                            self.sender.memory.landing.copy_out(buffer, into);
                            (ReadState::Done(Sampled { before, after, term }), Some(buffer))
                        }
                        None if self.is_over() || !self.learns_term() => (ReadState::Broken, Some(buffer)),
                        None => {
                            self.slots[read.tag as usize] = Slot::UnderWay { buffer, number, before, after };
                            self.judging = true;
                            self.keep_lease(after);
                            self.post();
                            return ReadState::Pending;
                        }
                    }
                }
            }
        };
        if let Some(buffer) = buffer {
            self.sender.memory.landing.give(buffer);
        }
        if let Some(slot) = self.slots.get_mut(read.tag as usize) {
            *slot = Slot::Free;
        }
        state
    }

    fn stamp_window(&self) -> u64 {
        self.window_ns
    }

    fn authority(&mut self, _: PeerId) -> Option<u64> {
        if self.leased {
            // A server with a lease looks by itself whether that lasts, behind what an answer tells of.
            return (!self.is_over()).then_some(self.term_seen);
        }
        loop {
            let now_ns = self.now_ns();
            if let Some(term) = self.term_at(now_ns) {
                return Some(term);
            }
            if self.is_over() {
                return None;
            }
            self.keep_lease(now_ns);
            self.post();
            self.take_in();
            self.yield_now();
        }
    }

    fn map_age_max_ns(&self) -> Option<u64> {
        Some(SEGMENTS_KNOWN_NS)
    }
}

impl Mailbox for VerbsEndpoint {
    fn post_write(&mut self, peer: PeerId, first: usize, words: &[u64]) -> std::result::Result<(), Broken> {
        if self.is_over() {
            return Err(Broken);
        }
        let peer = &mut self.peers[peer.0 as usize];
        peer.written = true;
        let to = peer.card.mailbox.word(first);
        self.place(to, words)
    }

    fn wake(&mut self, peer: PeerId) {
        self.send(peer);
    }

    /// The READ of the sleep word goes behind the WRITEs, with the same doorbell. See the module's text for
    /// why no wake-up is lost.
    fn send(&mut self, peer: PeerId) {
        let peer = &mut self.peers[peer.0 as usize];
        peer.wanted |= std::mem::take(&mut peer.written);
        self.wake_sleepers();
        self.doorbell();
        self.take_in();
    }

    fn inbox(&self, peer: PeerId) -> Words<'_> {
        self.sender.memory.inboxes[peer.0 as usize].words()
    }
}

impl Waiter for VerbsEndpoint {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn announce_sleep(&mut self) {
        for _ in 0..ANNOUNCEMENTS {
            self.sleeps += 1;
            self.announce();
            self.sender.seat.set_sleeps(true);
            self.armed = true;
            // Wake-ups that have arrived are for an earlier sleep, or for what the caller looks for now.
            if !self.take_events() || self.is_over() {
                break;
            }
        }
        self.look();
        full_fence();
    }

    fn sleep(&mut self, timeout_ns: Option<u64>) {
        let until_ns = timeout_ns.map(|timeout_ns| self.now_ns().saturating_add(timeout_ns));
        // What has been taken in since the last sleep may not have been looked at; and a peer that has woken
        // this side since its announcement would not do so again.
        let announced = self.peers.iter().all(|peer| peer.announced);
        let mut over = std::mem::take(&mut self.news) || timeout_ns == Some(0) || !announced;
        while !over && !self.unseen && !self.is_over() {
            let left = until_ns.map(|until_ns| until_ns.saturating_sub(self.now_ns()));
            if left == Some(0) {
                break;
            }
            let left = left.map(|left| timespec(Duration::from_nanos(left)));
            let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
            let waited = epoll::wait(&self.epoll, &mut [none; 4][..], left.as_ref());
            crate::events(waited, left.as_ref());
            over = self.take_events();
            self.take_frames();
        }
        self.sender.seat.set_sleeps(false);
    }
}

impl Clock for VerbsEndpoint {
    fn now_ns(&self) -> u64 {
        crate::now_ns()
    }
}

impl Fabric for VerbsEndpoint {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn promises(&self, _: PeerId) -> Promises {
        Promises { ordered_placement: false, ordered_loads: false }
    }
}

/// Takes note of a frame of the server: news of segments, or an answer. Returns whether it is an answer.
fn take_note(kind: u16, owed: &mut usize, changes: &mut u64) -> bool {
    let is_answer = kind != REGIONS_CHANGED;
    match is_answer {
        true => *owed = owed.saturating_sub(1),
        false => *changes += 1,
    }
    is_answer
}
