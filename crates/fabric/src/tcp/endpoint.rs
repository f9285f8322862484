//! A client's end of a connection.

use std::net::TcpStream;
use std::time::Duration;

use kelix_image::Span;
use kelix_image::words::{Words, bytes_of_mut};
use kelix_types::limits::{READ_EPOCHS_MAX, SESSION_READS_MAX};
use kelix_types::{Error, ErrorKind, Location, Result};
use rustix::fd::BorrowedFd;

use super::beside::Beside;
#[cfg(target_os = "linux")]
use super::feed::FeedLink;
use super::frame::{Head, Kind, READ_WORDS_MAX};
use super::stream::Stream;
use super::tls::ClientTls;
use crate::{
    Broken, Clock, Contention, Fabric, Find, FindState, Mailbox, PeerId, Promises, Read, ReadState,
    RemoteMemory, SET_UP_BYTES_MAX, Sampled, Waiter, WorkQueue, place,
};

/// Pieces of one READ that are under way at once.
const PIECES: usize = 16;
/// A READ's buffer that is longer is not kept.
const KEPT_WORDS: usize = 128 << 10;
/// Bytes that may wait to be sent, and how long they may do so before the connection is given up.
const UNSENT_BYTES_MAX: usize = 4 << 20;
const NAP: Duration = Duration::from_millis(100);
const NAPS: u32 = 100;
/// READs that the agent has not answered, those that nobody waits for any more among them.
const SLOTS: usize = 4 * SESSION_READS_MAX;
/// Bits of a tag that number the pieces of a READ, again and again from 0; the rest are the slot.
const PIECE_BITS: u32 = 12;

/// The tag of a piece.
fn tag_of(slot: usize, piece: usize) -> u32 {
    (slot as u32) << PIECE_BITS | (piece as u32 & ((1 << PIECE_BITS) - 1))
}

/// A READ under way. Its pieces are answered in their order.
#[derive(Default)]
struct Slot {
    state: State,
    shard: u8,
    place: u64,
    words: Vec<u64>,
    /// Of a FIND, where the item stands; or if there is none, the generations.
    found: u64,
    is_find: bool,
    /// Of a FIND, the frame that was the answer.
    answer: Option<Kind>,
    /// Pieces asked for, and answered.
    asked: usize,
    answered: usize,
    sampled: Sampled,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Free,
    UnderWay,
    Done,
    Outside,
    /// Nobody waits for it any more; its answers are still to come.
    Abandoned,
}

impl Slot {
    fn pieces(&self) -> usize {
        self.words.len().div_ceil(READ_WORDS_MAX)
    }

    /// Asks for more pieces, if the READ has more.
    fn ask(&mut self, slot: usize, out: &mut Vec<u64>) {
        while self.asked < self.pieces() && self.asked - self.answered < PIECES {
            let first = self.asked * READ_WORDS_MAX;
            let count = READ_WORDS_MAX.min(self.words.len() - first);
            out.push(Head::new(Kind::Read, self.shard, tag_of(slot, self.asked), count).word());
            out.push(self.place + first as u64 * 8);
            self.asked += 1;
        }
    }

    /// Nothing more comes for it.
    fn is_answered(&self) -> bool {
        self.answered == self.asked
    }
}

/// A connection on which a client and a server get to know each other.
pub struct Greeting {
    stream: Stream,
    patience: Duration,
}

impl Greeting {
    /// Over a connected socket, with TLS if that is given together with the host that the server must be. The
    /// server's WRITEs will have at most so many words, and each of its answers here may take so long.
    pub fn new(
        socket: TcpStream,
        tls: Option<(&ClientTls, &str)>,
        write_words: usize,
        patience: Duration,
    ) -> Result<Greeting> {
        let tls = tls.map(|(tls, host)| tls.connect(host)).transpose()?;
        let longest = 1 + (SET_UP_BYTES_MAX / 8).max(write_words);
        let stream = Stream::new(socket, tls, longest)
            .map_err(|source| Error::system("connect", "the system refused to set up the socket", source))?;
        Ok(Greeting { stream, patience })
    }

    /// Sends a frame of the set-up conversation that is not answered, together with the next that is.
    pub fn tell(&mut self, kind: u16, bytes: &[u8]) {
        self.stream.control(kind, bytes);
    }

    /// Sends a frame of the set-up conversation and waits for the one that answers it: its kind and bytes,
    /// which its reader checks.
    pub fn ask(&mut self, kind: u16, bytes: &[u8]) -> Result<(u16, Vec<u8>)> {
        self.stream.control(kind, bytes);
        self.stream.answer("connect", self.patience, |_, _| true)
    }

    /// The endpoint over verbs of a session that has told the server of its mailboxes, with what the server
    /// has told of itself.
    #[cfg(target_os = "linux")]
    pub fn verbs_endpoint(
        self,
        joining: crate::verbs::Joining,
        server: crate::verbs::ServerCard,
    ) -> Result<crate::verbs::VerbsEndpoint> {
        let failed =
            |source| Error::system("connect", "no memory or descriptors for a session over verbs", source);
        joining.endpoint(self.stream, server).map_err(failed)
    }

    /// The connection of a mirror that has attached: it carries the feed from here on.
    #[cfg(target_os = "linux")]
    pub fn into_feed_link(self) -> FeedLink {
        FeedLink::new(self.stream)
    }

    /// The endpoint of a session that was set up under a term, with a mailbox of so many bytes for each
    /// shard.
    pub fn endpoint(mut self, term: u64, shards: usize, mailbox_bytes: u64) -> Result<TcpEndpoint> {
        let inboxes = (0..shards).map(|_| Span::try_private(mailbox_bytes)).collect::<Option<_>>();
        let inboxes = inboxes.ok_or_else(|| {
            let context =
                format!("no memory for {shards} mailboxes of {mailbox_bytes} bytes; see `ulimit -v`");
            Error::new(ErrorKind::System, "connect", context)
        })?;
        self.stream.block_briefly();
        let beside = Beside::of(&self.stream);
        Ok(TcpEndpoint {
            stream: self.stream,
            inboxes,
            slots: Vec::new(),
            free: Vec::new(),
            tags: Vec::new(),
            term,
            news: false,
            unseen: false,
            contention: Contention::default(),
            beside,
            finds: false,
        })
    }
}

/// A client's endpoint: one connection, whose peers are the shards of the server, by their numbers.
pub struct TcpEndpoint {
    stream: Stream,
    /// This side's mailbox for each shard.
    inboxes: Vec<Span>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Slot of the READ with a tag.
    tags: Vec<Option<usize>>,
    term: u64,
    /// Something has arrived since this side last slept, or was told of; and since it last asked.
    news: bool,
    unseen: bool,
    contention: Contention,
    /// Where the server is.
    beside: Beside,
    finds: bool,
}

impl TcpEndpoint {
    /// FINDs may be posted: the server answers such.
    pub fn may_find(&mut self) {
        self.finds = true;
    }

    /// A slot for what is asked for under a tag. `None`: there is none, or nobody to ask.
    fn take_slot(&mut self, tag: u32) -> Option<usize> {
        let tag = tag as usize;
        if self.tags.len() <= tag {
            self.tags.resize(tag + 1, None);
        }
        if let Some(old) = self.tags[tag].take() {
            // The slot's reader has given it up.
            if self.slots[old].is_answered() {
                self.free_slot(old);
            } else {
                // Words that are still to come are not kept.
                (self.slots[old].state, self.slots[old].words) = (State::Abandoned, Vec::new());
            }
        }
        if self.stream.over().is_some() {
            return None;
        }
        let number = self.free.pop().unwrap_or(self.slots.len());
        if number == SLOTS {
            // An agent that has not answered for so long is as good as gone: without a slot the READ is
            // broken.
            return None;
        }
        if number == self.slots.len() {
            self.slots.push(Slot::default());
        }
        self.tags[tag] = Some(number);
        Some(number)
    }

    fn free_slot(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        slot.state = State::Free;
        if slot.words.len() > KEPT_WORDS {
            slot.words = Vec::new();
        }
        self.free.push(number);
    }

    /// The slot of a READ under way.
    fn slot(&self, tag: u32) -> Option<usize> {
        self.tags.get(tag as usize).copied().flatten()
    }

    /// Sends what waits, and takes in what has arrived.
    pub(crate) fn receive(&mut self) {
        self.stream.flush();
        if self.stream.fill() {
            self.take_all();
        }
    }

    /// Whether something has arrived since this side last slept, or was told of: then whoever sleeps here
    /// with others has to look first.
    #[cfg(target_os = "linux")]
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Takes note that its caller looks now for what has arrived.
    #[cfg(target_os = "linux")]
    pub(crate) fn take_unseen(&mut self) -> bool {
        let unseen = std::mem::take(&mut self.unseen);
        self.news |= unseen;
        unseen
    }

    /// Whether something waits for room on the way.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_held_up(&self) -> bool {
        self.stream.unsent() > 0
    }

    /// The same, asleep for some milliseconds if nothing is there.
    fn receive_asleep(&mut self) {
        self.stream.flush();
        if self.stream.fill_asleep() {
            self.take_all();
        }
    }

    fn take_all(&mut self) {
        (self.news, self.unseen) = (true, true);
        self.beside.note(&self.stream);
        self.take();
        // Further pieces of long READs.
        self.stream.flush();
    }

    /// Takes the frames that have arrived.
    fn take(&mut self) {
        while let Some((head, body)) = self.stream.next() {
            let (words, out) = self.stream.parts();
            let body = &words[body];
            let understood = match head.kind {
                Kind::Term => {
                    self.term = body[0];
                    true
                }
                Kind::Write => {
                    let inbox = self.inboxes.get(usize::from(head.small));
                    inbox.is_some_and(|inbox| place(inbox, head.name as usize, body))
                }
                Kind::Sampled | Kind::Outside => {
                    let slot = (head.name >> PIECE_BITS) as usize;
                    match self.slots.get_mut(slot) {
                        Some(it)
                            if head.name == tag_of(slot, it.answered) && !it.is_answered() && !it.is_find =>
                        {
                            let sampled = (head.kind == Kind::Sampled).then(|| Sampled {
                                before: body[0],
                                after: later(body[0], head.small),
                                term: self.term,
                            });
                            let landed = land(it, slot, sampled, body.get(1..).unwrap_or(&[]), out);
                            if it.state == State::Abandoned && it.is_answered() {
                                self.free_slot(slot);
                            }
                            landed
                        }
                        _ => false,
                    }
                }
                Kind::Found | Kind::Absent | Kind::Leaf => {
                    let slot = (head.name >> PIECE_BITS) as usize;
                    let term = self.term;
                    match self.slots.get_mut(slot) {
                        Some(it) if it.is_find && head.name == tag_of(slot, 0) && !it.is_answered() => {
                            it.answered = 1;
                            if it.state == State::Abandoned {
                                self.free_slot(slot);
                            } else if let [before, words @ ..] = body {
                                let after = later(*before, head.small);
                                it.sampled = Sampled { before: *before, after, term };
                                it.answer = Some(head.kind);
                                let words = match (head.kind, words) {
                                    (Kind::Found | Kind::Absent, [found, words @ ..]) => {
                                        it.found = *found;
                                        words
                                    }
                                    _ => words,
                                };
                                it.words.extend_from_slice(words);
                                it.state = State::Done;
                            } else {
                                it.state = State::Outside;
                            }
                            true
                        }
                        _ => false,
                    }
                }
                // Why the connection ends, if anything.
                Kind::Control => true,
                Kind::Read | Kind::Find | Kind::Feed => false,
            };
            if !understood {
                self.stream.end("the server sent a frame that makes no sense here");
                break;
            }
        }
    }
}

/// The stamp so many epochs after another one. How many more than 254 it were is not told: too many.
fn later(before: u64, passed: u8) -> u64 {
    if passed == u8::MAX { u64::MAX } else { before.wrapping_add(u64::from(passed)) }
}

/// Takes in the answer to the next piece of a READ. `false`: it is none.
fn land(slot: &mut Slot, number: usize, sampled: Option<Sampled>, words: &[u64], out: &mut Vec<u64>) -> bool {
    let first = slot.answered * READ_WORDS_MAX;
    slot.answered += 1;
    match (slot.state, sampled) {
        (State::UnderWay, Some(sampled)) => {
            let end = slot.words.len().min(first + READ_WORDS_MAX);
            let Some(target) = slot.words.get_mut(first..end).filter(|target| target.len() == words.len())
            else {
                return false;
            };
            target.copy_from_slice(words);
            let before = if first == 0 { sampled.before } else { slot.sampled.before };
            slot.sampled = Sampled { before, ..sampled };
            slot.ask(number, out);
            if slot.is_answered() {
                slot.state = State::Done;
            }
        }
        // Some of its pieces may lie in a segment.
        (State::UnderWay | State::Outside, _) => slot.state = State::Outside,
        (State::Abandoned, _) => {}
        (State::Free | State::Done, _) => return false,
    }
    true
}

impl WorkQueue for TcpEndpoint {
    fn doorbell(&mut self) {
        self.stream.flush();
    }

    fn progress(&mut self) -> bool {
        self.receive();
        let unseen = std::mem::take(&mut self.unseen);
        if unseen {
            // Its caller looks only now.
            self.news = true;
        } else if !self.contention.is_contended_now() {
            // Whoever is to answer may have only this core to do it on.
            self.yield_now();
        }
        unseen
    }

    fn await_progress(&mut self) -> bool {
        // Asleep, this side is woken ahead of whoever computes, by a single call of the system; and whoever
        // is to answer on this core has it at once.
        if self.unseen || self.stream.over().is_some() || !self.is_contended() {
            return self.progress();
        }
        self.receive_asleep();
        let unseen = std::mem::take(&mut self.unseen);
        self.news |= unseen;
        unseen
    }

    fn unseen(&self) -> bool {
        self.unseen
    }

    fn look(&mut self) {
        self.receive();
    }

    fn moved_bytes(&self) -> Option<u64> {
        Some(self.stream.moved())
    }

    fn is_broken(&self, _: PeerId) -> bool {
        self.stream.over().is_some()
    }
}

impl RemoteMemory for TcpEndpoint {
    fn post_read(&mut self, read: Read) {
        let Some(number) = self.take_slot(read.tag) else { return };
        let slot = &mut self.slots[number];
        (slot.state, slot.is_find) = (State::UnderWay, false);
        (slot.shard, slot.place) = (read.peer.0 as u8, read.place.0);
        (slot.asked, slot.answered) = (0, 0);
        slot.words.resize(read.words, 0);
        slot.ask(number, &mut self.stream.out);
    }

    fn poll_read(&mut self, read: Read, into: &mut [u64]) -> ReadState {
        let Some(number) = self.slot(read.tag) else { return ReadState::Broken };
        let over = self.stream.over().is_some();
        let slot = &mut self.slots[number];
        let state = match slot.state {
            State::Done => {
                into.copy_from_slice(&slot.words);
                ReadState::Done(slot.sampled)
            }
            State::Outside if slot.is_answered() => ReadState::Outside,
            _ if over => ReadState::Broken,
            _ => return ReadState::Pending,
        };
        self.free_slot(number);
        self.tags[read.tag as usize] = None;
        state
    }

    fn finds(&self, _: PeerId) -> bool {
        self.finds
    }

    fn post_find(&mut self, Find { peer, hash, table, key, tag }: Find<'_>) {
        let Some(number) = self.take_slot(tag) else { return };
        let slot = &mut self.slots[number];
        (slot.state, slot.is_find) = (State::UnderWay, true);
        (slot.shard, slot.asked, slot.answered) = (peer.0 as u8, 1, 0);
        slot.words.clear();
        let out = &mut self.stream.out;
        out.push(Head::new(Kind::Find, slot.shard, tag_of(number, 0), key.len()).word());
        out.extend([hash.0, table.0.into()]);
        let begin = out.len();
        out.resize(begin + key.len().div_ceil(8), 0);
        bytes_of_mut(&mut out[begin..])[..key.len()].copy_from_slice(key);
    }

    fn poll_find(&mut self, find: Find<'_>, into: &mut Vec<u64>) -> FindState {
        let Some(number) = self.slot(find.tag) else { return FindState::Broken };
        let over = self.stream.over().is_some();
        let slot = &mut self.slots[number];
        let state = match slot.state {
            State::Done => {
                std::mem::swap(into, &mut slot.words);
                match (slot.answer, Location::from_word(slot.found)) {
                    (Some(Kind::Absent), _) => FindState::Absent(slot.found, slot.sampled),
                    (Some(Kind::Leaf), _) => FindState::Leaf(slot.sampled),
                    (_, Some(location)) => FindState::Found(location, slot.sampled),
                    _ => FindState::Nothing,
                }
            }
            State::Outside => FindState::Nothing,
            _ if over => FindState::Broken,
            _ => return FindState::Pending,
        };
        self.free_slot(number);
        self.tags[find.tag as usize] = None;
        state
    }

    fn stamp_window(&self) -> u64 {
        READ_EPOCHS_MAX
    }

    fn authority(&mut self, _: PeerId) -> Option<u64> {
        Some(self.term)
    }
}

impl Mailbox for TcpEndpoint {
    fn post_write(&mut self, peer: PeerId, first: usize, words: &[u64]) -> std::result::Result<(), Broken> {
        if self.stream.over().is_some() {
            return Err(Broken);
        }
        self.stream.out.push(Head::new(Kind::Write, peer.0 as u8, first as u32, words.len()).word());
        self.stream.out.extend_from_slice(words);
        // Rings hold their writers back long before; this bounds whoever is not held back.
        let mut naps = 0;
        while self.stream.unsent() > UNSENT_BYTES_MAX && self.stream.over().is_none() {
            let before = self.stream.unsent();
            self.stream.wait(Some(NAP));
            self.receive();
            naps = if self.stream.unsent() < before { 0 } else { naps + 1 };
            if naps == NAPS {
                self.stream.end("the server takes nothing in");
            }
        }
        Ok(())
    }

    fn inbox(&self, peer: PeerId) -> Words<'_> {
        self.inboxes[peer.0 as usize].words()
    }

    /// The agent wakes its shards.
    fn wake(&mut self, _: PeerId) {}
}

impl Waiter for TcpEndpoint {
    fn yield_now(&mut self) {
        self.contention.yield_now();
    }

    fn is_contended(&self) -> bool {
        self.beside.is_so() || self.contention.is_contended_now()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.fd())
    }

    fn announce_sleep(&mut self) {
        self.receive();
    }

    fn sleep(&mut self, timeout_ns: Option<u64>) {
        // What has arrived since the last sleep may not have been looked at.
        if std::mem::take(&mut self.news) || timeout_ns == Some(0) || self.stream.over().is_some() {
            return;
        }
        self.stream.wait(timeout_ns.map(Duration::from_nanos));
        self.receive();
    }
}

impl Clock for TcpEndpoint {
    fn now_ns(&self) -> u64 {
        crate::now_ns()
    }
}

impl Fabric for TcpEndpoint {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn promises(&self, _: PeerId) -> Promises {
        Promises { ordered_placement: true, ordered_loads: true }
    }
}

const _: () = assert!(SLOTS << PIECE_BITS <= 1 << 24 && PIECES < 1 << PIECE_BITS);

#[cfg(test)]
mod tests {
    use kelix_types::Place;

    use super::*;

    /// A server that answers nothing made a client keep room for the words of every READ that it had given
    /// up.
    #[test]
    fn reads_that_were_given_up_keep_no_memory() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let greeting = Greeting::new(socket, None, 64, Duration::ZERO).unwrap();
        let mut endpoint = greeting.endpoint(1, 1, 512).unwrap();
        for _ in 0..2 * SLOTS {
            endpoint.post_read(Read { peer: PeerId(0), place: Place(0), words: 1 << 20, tag: 3 });
        }
        let kept: usize = endpoint.slots.iter().map(|slot| slot.words.capacity()).sum();
        assert!(kept <= 1 << 20, "{kept} words");
        assert!(endpoint.slots.len() <= SLOTS);
    }
}
