//! The fabric trait on reliable connected queue pairs, one a connection.
//!
//! | trait | verbs |
//! |---|---|
//! | a READ | RDMA READ into a registered buffer of the endpoint's own, copied out when it is polled |
//! | a WRITE | RDMA WRITE, inline if it is small, else from a registered buffer |
//! | a stamp | this side's clock |
//! | the authority, the version of the map | an RDMA READ of one word, waited for |
//! | to announce a sleep | arms the completion channel, then numbers the sleep in a word that peers may READ |
//! | to wake | a READ of that word behind the WRITE; if the peer sleeps, an empty WRITE with immediate data |
//! | a connection that ends | the hang-up of a socket beside it, or a completion with an error |
//!
//! Why no wake-up is lost: the sleeper stores its word, fences, and looks for WRITEs. The waker's READ of the
//! word is executed after its WRITE was placed, since both use one queue pair. So either the READ finds the
//! word, or the word was stored after the WRITE was placed and the look finds the WRITE. One wake-up a sleep
//! and peer suffices, so a few receives are enough, and a peer that is awake spends nothing on wake-ups.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use kelix_fabric::shm::AUTHORITY_TERM;
use kelix_fabric::{Broken, Fabric, PeerId, Promises, Read, ReadState, Sampled};
use kelix_image::words::{Words, full_fence};
use kelix_image::{Span, header_word};
use kelix_types::Place;
use kelix_types::limits::{EPOCH_NS_MIN, GRANULE_BYTES, PAGE_BYTES};
use rustix::event::{Timespec, epoll};

use crate::ffi::constant::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use crate::ffi::{Sge, Wc};
use crate::verbs::{Address, Completions, Device, PATIENCE, Pair, Region, Remote, Work};

/// Work requests of a connection under way.
const SENDS_MAX: usize = 512;
/// At most one wake-up is on its way for each sleep, and each announcement takes the old ones away.
const RECEIVES: u64 = 16;
/// Completions of an endpoint.
const COMPLETIONS: usize = 16 << 10;
/// Larger WRITEs go through a registered buffer.
const INLINE_BYTES: u32 = 256;
/// Word of an endpoint's own page in which it says that it sleeps.
const SLEEPS: usize = 0;

/// What a side tells the other to be reached: all that goes over a control connection.
#[derive(Clone)]
pub struct Card {
    address: Address,
    mailbox: Remote,
    page: Remote,
    /// First granule, bytes and memory of what may be READ, the header page first.
    segments: Vec<(usize, u64, Remote)>,
    authority: Option<Remote>,
}

/// A connection that waits for the other side's card.
pub struct Offer {
    pair: Pair,
    inbox: Region,
}

struct Connection {
    // Dropped first, so that nothing writes into memory that goes.
    pair: Pair,
    inbox: Region,
    peer: Card,
    link: UnixStream,
}

enum Buffer {
    Free,
    Busy,
    Done,
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    Fetch,
    Wake,
}

enum UnderWay {
    /// Its number, and when the READ was posted.
    Buffer(usize, u64),
    Outside,
    Refused,
}

#[derive(Default)]
struct State {
    buffers: Vec<(Region, Buffer)>,
    reads: HashMap<(PeerId, u32), UnderWay>,
    fetched: bool,
    /// By connection.
    queued: Vec<Vec<(u64, Work, Sge, Remote)>>,
    outstanding: Vec<usize>,
    broken: Vec<bool>,
    last_woken: Vec<u64>,
}

/// One side's endpoint.
pub struct VerbsEndpoint {
    connections: Vec<Connection>,
    state: RefCell<State>,
    shared: Vec<(usize, Region)>,
    authority: Option<Region>,
    page: Region,
    sleep_number: u64,
    woken: bool,
    sends: Arc<Completions>,
    receives: Arc<Completions>,
    epoll: OwnedFd,
    device: Arc<Device>,
    window_ns: u64,
    began: Instant,
    ordered: bool,
}

impl VerbsEndpoint {
    /// An endpoint without connections. `ordered`: it posts the first word of a WRITE as a WRITE of its own, after
    /// the others.
    pub fn new(ordered: bool) -> Result<VerbsEndpoint> {
        let device = Device::open()?;
        let receives = Completions::new(&device, 1024)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, receives.fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(VerbsEndpoint {
            connections: Vec::new(),
            state: RefCell::default(),
            shared: Vec::new(),
            authority: None,
            page: Region::register(&device, Span::private(PAGE_BYTES), ACCESS_REMOTE_READ)?,
            sleep_number: 0,
            woken: false,
            sends: Completions::new(&device, COMPLETIONS)?,
            receives,
            epoll,
            device,
            window_ns: EPOCH_NS_MIN / 4 * 3,
            began: Instant::now(),
            ordered,
        })
    }

    /// Lets peers that connect from now on READ a segment; the header page is granule 0.
    pub fn share(&mut self, first: usize, span: Span) -> Result<()> {
        self.shared.push((first, Region::register(&self.device, span, ACCESS_REMOTE_READ)?));
        Ok(())
    }

    /// Lets them READ the authority page.
    pub fn share_authority(&mut self, span: Span) -> Result<()> {
        self.authority = Some(Region::register(&self.device, span, ACCESS_REMOTE_READ)?);
        Ok(())
    }

    /// Begins a connection.
    pub fn offer(&self, mailbox_bytes: u64) -> Result<(Offer, Card)> {
        let pair = Pair::new(&self.sends, &self.receives, (SENDS_MAX as u32, RECEIVES as u32), INLINE_BYTES)?;
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE;
        let inbox = Region::register(&self.device, Span::private(mailbox_bytes), access)?;
        let card = Card {
            address: pair.address(),
            mailbox: inbox.remote(),
            page: self.page.remote(),
            segments: self
                .shared
                .iter()
                .map(|(first, region)| (*first, region.words().count() as u64 * 8, region.remote()))
                .collect(),
            authority: self.authority.as_ref().map(Region::remote),
        };
        Ok((Offer { pair, inbox }, card))
    }

    /// Connects the queue pair. Once both sides have, [`VerbsEndpoint::open`] may follow.
    pub fn accept(&mut self, offer: Offer, peer: Card, link: UnixStream) -> Result<PeerId> {
        let Offer { pair, inbox } = offer;
        pair.connect(peer.address, PATIENCE)?;
        let index = self.connections.len();
        for _ in 0..RECEIVES {
            pair.post_receive(index as u64)?;
        }
        let data = epoll::EventData::new_u64(index as u64 + 1);
        epoll::add(&self.epoll, &link, data, epoll::EventFlags::RDHUP)?;
        self.connections.push(Connection { pair, inbox, peer, link });
        let state = self.state.get_mut();
        state.queued.push(Vec::new());
        state.outstanding.push(0);
        state.broken.push(false);
        state.last_woken.push(0);
        Ok(PeerId(index as u32))
    }

    /// READs what must be known of the peer's image.
    pub fn open(&mut self, peer: PeerId) {
        if let Some((0, _, header)) = self.connections[peer.0 as usize].peer.segments.first() {
            let epoch_ns = self.fetch(peer, header.word(header_word::EPOCH_NS)).expect("a fresh connection");
            self.window_ns = self.window_ns.min(epoch_ns / 4 * 3);
        }
    }

    fn find(&self, read: Read) -> Option<Remote> {
        let Read { peer, place, words, .. } = read;
        let segments = &self.connections[peer.0 as usize].peer.segments;
        let (first, _, base) = segments.iter().find(|(first, bytes, _)| {
            let start = *first as u64 * GRANULE_BYTES;
            let offset = place.0.checked_sub(start);
            offset.is_some_and(|offset| offset < *bytes && words as u64 * 8 <= *bytes - offset)
        })?;
        let Place(place) = place;
        let word = (place - *first as u64 * GRANULE_BYTES) / 8;
        (place % 8 == 0).then(|| base.word(word as usize))
    }

    /// A registered buffer of at least so many words.
    fn buffer(&self, state: &mut State, words: usize) -> usize {
        let fits = |(region, buffer): &(Region, Buffer)| {
            matches!(buffer, Buffer::Free) && (words..=4 * words.max(64)).contains(&region.words().count())
        };
        let index = state.buffers.iter().position(fits).unwrap_or_else(|| {
            let span = Span::private(words.next_power_of_two().max(64) as u64 * 8);
            let region =
                Region::register(&self.device, span, ACCESS_LOCAL_WRITE).expect("memory to register");
            state.buffers.push((region, Buffer::Free));
            state.buffers.len() - 1
        });
        state.buffers[index].1 = Buffer::Busy;
        index
    }

    fn post(&self, state: &mut State, peer: PeerId, mut work: Vec<(u64, Work, Sge, Remote)>) {
        let index = peer.0 as usize;
        while state.outstanding[index] + work.len() > SENDS_MAX {
            self.take_completions(state);
        }
        state.outstanding[index] += work.len();
        // SAFETY: memory is that of buffers, which are registered, busy until their completion, and dropped
        // after the pair; or it is inline and borrowed by the caller.
        let posted = unsafe { self.connections[index].pair.post(&mut work) };
        posted.expect("a queue with room");
    }

    /// Takes completions in.
    fn take_completions(&self, state: &mut State) {
        let mut completions = [Wc::default(); 32];
        for completion in self.sends.poll(&mut completions) {
            let id = completion.wr_id;
            let (peer, index) = ((id >> 32 & 0xffff) as usize, id as u32 as usize);
            state.outstanding[peer] -= 1;
            state.broken[peer] |= completion.status != 0;
            let kind = id >> 48;
            if kind == Kind::Read as u64 {
                state.buffers[index].1 = Buffer::Done;
            } else if kind == Kind::Write as u64 && index != INLINE {
                state.buffers[index].1 = Buffer::Free;
            } else if kind == Kind::Fetch as u64 {
                state.fetched = true;
            }
        }
    }

    /// Takes wake-ups in, and makes room for more.
    fn take_wake_ups(&self, state: &mut State) {
        let mut completions = [Wc::default(); 32];
        loop {
            let taken = self.receives.poll(&mut completions);
            for completion in taken {
                let index = completion.wr_id as usize;
                let failed = completion.status != 0
                    || self.connections[index].pair.post_receive(completion.wr_id).is_err();
                state.broken[index] |= failed;
            }
            if taken.is_empty() {
                return;
            }
        }
    }

    /// One word of a peer's memory, waited for.
    fn fetch(&self, peer: PeerId, from: Remote) -> Option<u64> {
        let state = &mut *self.state.borrow_mut();
        if state.broken[peer.0 as usize] {
            return None;
        }
        let index = self.buffer(state, 1);
        let local = state.buffers[index].0.part(0, 1);
        self.post(state, peer, vec![(identifier(Kind::Fetch, peer, index), Work::Read, local, from)]);
        state.fetched = false;
        for look in 1u64.. {
            self.take_completions(state);
            if state.fetched {
                break;
            }
            if look % 64 == 0 {
                std::thread::yield_now();
            }
        }
        state.buffers[index].1 = Buffer::Free;
        (!state.broken[peer.0 as usize]).then(|| state.buffers[index].0.words().load(0))
    }

    /// Waits for events, and notes which connections have ended.
    /// As `poll_read`, but for the term.
    fn poll_words(&self, read: Read, into: &mut [u64]) -> ReadState {
        let state = &mut *self.state.borrow_mut();
        let over = match state.reads.get(&(read.peer, read.tag)) {
            None | Some(UnderWay::Refused) => ReadState::Broken,
            Some(UnderWay::Outside) => ReadState::Outside,
            Some(UnderWay::Buffer(index, posted_ns)) => {
                let (index, before) = (*index, *posted_ns);
                self.take_completions(state);
                let (region, buffer) = &mut state.buffers[index];
                if !matches!(buffer, Buffer::Done) {
                    return ReadState::Pending;
                }
                *buffer = Buffer::Free;
                // A READ that was done before the connection broke counts as broken too: its completion is
                // not kept.
                if state.broken[read.peer.0 as usize] {
                    ReadState::Broken
                } else {
                    region.words().copy_out(0, into);
                    ReadState::Done(Sampled { before, after: self.now_ns(), term: 0 })
                }
            }
        };
        state.reads.remove(&(read.peer, read.tag));
        over
    }

    fn wait(&mut self, timeout_ns: Option<u64>) {
        let timeout = timeout_ns
            .map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ });
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; 16];
        let count = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()).unwrap_or(0);
        let state = self.state.get_mut();
        for event in &events[..count] {
            match (event.data.u64() as usize).checked_sub(1) {
                None => self.woken |= self.receives.news(),
                Some(index) => {
                    state.broken[index] = true;
                    self.connections[index].pair.fail();
                    let _ = epoll::delete(&self.epoll, &self.connections[index].link);
                }
            }
        }
    }
}

/// In place of a buffer's number.
const INLINE: usize = u32::MAX as usize;

fn identifier(kind: Kind, peer: PeerId, index: usize) -> u64 {
    (kind as u64) << 48 | u64::from(peer.0) << 32 | index as u64
}

impl Fabric for VerbsEndpoint {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn promises(&self) -> Promises {
        Promises { ordered_placement: self.ordered, ordered_loads: false }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn yield_now(&mut self) {
        std::thread::yield_now();
    }

    fn map_version(&self, peer: PeerId) -> u64 {
        let header = self.connections[peer.0 as usize].peer.segments.first().map(|(_, _, base)| *base);
        header.and_then(|header| self.fetch(peer, header.word(header_word::SEGMENTS))).unwrap_or(0)
    }

    fn post_read(&mut self, read: Read) {
        let remote = self.find(read);
        let state = &mut *self.state.borrow_mut();
        let under_way = match remote {
            None => UnderWay::Outside,
            Some(_) if state.broken[read.peer.0 as usize] => UnderWay::Refused,
            Some(remote) => {
                let index = self.buffer(state, read.words);
                let local = state.buffers[index].0.part(0, read.words);
                let work = (identifier(Kind::Read, read.peer, index), Work::Read, local, remote);
                state.queued[read.peer.0 as usize].push(work);
                UnderWay::Buffer(index, self.now_ns())
            }
        };
        state.reads.insert((read.peer, read.tag), under_way);
    }

    fn poll_read(&mut self, read: Read, into: &mut [u64]) -> ReadState {
        match self.poll_words(read, into) {
            ReadState::Done(sampled) => {
                ReadState::Done(Sampled { term: self.authority(read.peer), ..sampled })
            }
            over => over,
        }
    }

    fn stamp_window(&self) -> u64 {
        self.window_ns
    }

    fn authority(&self, peer: PeerId) -> u64 {
        let page = self.connections[peer.0 as usize].peer.authority;
        page.and_then(|page| self.fetch(peer, page.word(AUTHORITY_TERM))).unwrap_or(0)
    }

    fn post_write(&mut self, peer: PeerId, first: usize, words: &[u64]) -> std::result::Result<(), Broken> {
        let state = &mut *self.state.borrow_mut();
        if state.broken[peer.0 as usize] {
            return Err(Broken);
        }
        let Connection { pair, peer: card, .. } = &self.connections[peer.0 as usize];
        // In order: a work request of its own for the first word, behind the others.
        let pieces =
            if self.ordered && words.len() > 1 { [1..words.len(), 0..1] } else { [0..words.len(), 0..0] };
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            let (to, words) = (card.mailbox.word(first + piece.start), &words[piece]);
            let (work, index, local) = if words.len() as u32 * 8 <= pair.inline_bytes {
                let addr = words.as_ptr().addr() as u64;
                (Work::WriteInline, INLINE, Sge { addr, length: words.len() as u32 * 8, lkey: 0 })
            } else {
                let index = self.buffer(state, words.len());
                let region = &state.buffers[index].0;
                region.words().copy_in(0, words);
                (Work::Write, index, region.part(0, words.len()))
            };
            self.post(state, peer, vec![(identifier(Kind::Write, peer, index), work, local, to)]);
        }
        Ok(())
    }

    fn doorbell(&mut self) {
        let state = &mut *self.state.borrow_mut();
        for index in 0..self.connections.len() {
            let queued = std::mem::take(&mut state.queued[index]);
            self.post(state, PeerId(index as u32), queued);
        }
        self.take_completions(state);
    }

    fn inbox(&self, peer: PeerId) -> Words<'_> {
        self.connections[peer.0 as usize].inbox.words()
    }

    fn look(&mut self) {
        self.wait(Some(0));
        self.take_completions(&mut self.state.borrow_mut());
    }

    fn is_broken(&self, peer: PeerId) -> bool {
        self.state.borrow().broken[peer.0 as usize]
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn wake(&mut self, peer: PeerId) {
        let (index, sleeps) = (peer.0 as usize, self.connections[peer.0 as usize].peer.page.word(SLEEPS));
        let number = self.fetch(peer, sleeps).unwrap_or(0);
        let state = &mut *self.state.borrow_mut();
        if number != 0 && number != state.last_woken[index] {
            state.last_woken[index] = number;
            let to = self.connections[index].peer.mailbox;
            let work = (identifier(Kind::Wake, peer, INLINE), Work::Wake, Sge::default(), to);
            self.post(state, peer, vec![work]);
        }
    }

    fn announce_sleep(&mut self) {
        self.receives.news();
        self.woken = false;
        self.receives.arm();
        self.take_wake_ups(&mut self.state.borrow_mut());
        self.sleep_number += 1;
        self.page.words().store(SLEEPS, self.sleep_number);
        full_fence();
    }

    fn sleep(&mut self, timeout_ns: Option<u64>) {
        let alone = !self.state.get_mut().broken.iter().any(|broken| !broken);
        if timeout_ns != Some(0) && !self.woken && !alone {
            self.wait(timeout_ns);
        }
        self.page.words().store(SLEEPS, 0);
    }
}
