//! Requests under way, from the ring to the answer.

use std::cmp::Reverse;

use kelix_fabric::{Mailbox, RemoteMemory};
use kelix_image::Committed;
use kelix_types::limits::SEQUENCES_KEPT;
use kelix_types::{Error, ErrorKind, Guardian, Incarnation, Location, Version, mark};
use kelix_wire::{FrameBuffer, Op, Reply, RequestHead, Sequence, Status, encode_request, puts};

use super::mirror::{Lost, state_of};
use super::{ShardState, Transport, fault};
use crate::hints::Hints;
use crate::pointers::Pointer;

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub status: Status,
    pub version: u64,
    /// Whether the key is there.
    pub(super) present: bool,
    pub location: Option<Location>,
    /// Words of the item, if it was sent.
    pub item: Vec<u64>,
    /// It answers a write.
    write: bool,
    /// The station that has answered: the shard, or that of the primary.
    pub station: usize,
}

impl Answer {
    /// Where the item stands and which one it is, if the answer tells: a put's version is the new item's
    /// incarnation; a get sends the item itself.
    pub fn pointer(&self) -> Option<Pointer> {
        if self.status != Status::Ok {
            return None;
        }
        let incarnation = match self.item.first() {
            Some(guardian) => Guardian(*guardian).incarnation(),
            None if self.write => Incarnation(self.version),
            None => return None,
        };
        self.location.map(|location| Pointer { location, incarnation })
    }

    /// Whether it answers a request that may have changed something.
    pub fn is_of_write(&self) -> bool {
        self.write
    }

    pub fn version(&self) -> Option<Version> {
        self.present.then_some(Version(self.version))
    }

    /// The answers to the first of several puts, as many as were tried. `None`: they make no sense.
    pub fn of_puts(&self) -> Option<impl Iterator<Item = Answer>> {
        let replies = puts::outcomes(&self.item)?;
        Some(replies.map(|reply| Answer::of(&reply, self.write, self.station)))
    }

    /// A reply of a station, to a request that is a write or not.
    #[inline]
    fn of(reply: &Reply<'_>, write: bool, station: usize) -> Answer {
        Answer {
            status: reply.head.status,
            version: reply.head.version,
            present: reply.head.location != 0,
            location: reply.location(),
            item: reply.item.to_vec(),
            write,
            station,
        }
    }
}

/// A request under way.
pub(super) struct Pending {
    /// High half of the request's id; replies to abandoned requests carry another.
    generation: u16,
    pub(super) state: PendingState,
    /// Of a session that may ask again: the request, to which station it went, and when among all requests.
    pub(super) kept: FrameBuffer,
    pub(super) shard: u16,
    pub(super) order: u64,
    /// The answer may be an item.
    is_get: bool,
}

pub(super) enum PendingState {
    Free,
    Waiting {
        write: bool,
        wanted: bool,
    },
    /// Given up, and not answered yet: until then no other request has its id, which comes again after 65,536
    /// others.
    Abandoned,
    Answered(Answer),
    /// The connection to the primary was lost before the answer came.
    Lost(Lost),
}

/// Names a request under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestId(pub u32);

/// Why a request could not be posted.
pub(crate) enum PostError {
    /// The ring or the table of requests is full: look for replies first.
    Full,
    Failed(Error),
}

/// Most requests under way.
const REQUESTS_MAX: usize = 1 << 12;

/// The requests of a session.
#[derive(Default)]
pub(super) struct Requests {
    pub(super) pending: Vec<Pending>,
    free: Vec<u16>,
    frame: FrameBuffer,
    payload: Vec<u64>,
    /// Requests are kept until they are answered, so that they can be asked again.
    kept: bool,
    /// How many were posted.
    posted: u64,
    /// Those that are to be asked again, the first at the end.
    pub(super) again: Vec<u16>,
}

impl Requests {
    /// Whether there is one to a station, in a state, as wanted.
    pub(super) fn any(&self, wanted: impl Fn(u16, &PendingState) -> bool) -> bool {
        self.pending.iter().any(|pending| wanted(pending.shard, &pending.state))
    }

    /// Those to stations from `first` on will not be answered, unless they are kept to be asked again.
    pub(super) fn lose(&mut self, first: usize, keep: bool) {
        self.again.retain(|slot| usize::from(self.pending[usize::from(*slot)].shard) < first);
        for (slot, pending) in self.pending.iter_mut().enumerate() {
            if usize::from(pending.shard) < first {
                continue;
            }
            match pending.state {
                PendingState::Waiting { wanted: true, .. } if keep => {}
                PendingState::Waiting { wanted: true, write } => {
                    pending.state = PendingState::Lost(Lost { has_effect: write });
                }
                PendingState::Waiting { wanted: false, .. } | PendingState::Abandoned => {
                    pending.state = PendingState::Free;
                    self.free.push(slot as u16);
                }
                PendingState::Free | PendingState::Answered(_) | PendingState::Lost(_) => {}
            }
        }
    }
}

impl<F: RemoteMemory + Mailbox> Transport<F> {
    /// Keeps requests from now on until they are answered, so that they can be asked again over another
    /// connection.
    pub fn keep_requests(&mut self) {
        self.requests.kept = true;
    }

    /// Posts a request to a station. With `wanted` false nobody will ask for the answer.
    pub fn post(
        &mut self,
        station: usize,
        mut head: RequestHead,
        key: &[u8],
        body: &[u8],
        wanted: bool,
    ) -> Result<RequestId, PostError> {
        self.countdown.check().map_err(PostError::Failed)?;
        // A write can be told from others only while it is among the last.
        let counts = self.requests.kept && head.op.properties().is_deduplicated;
        let writes = puts::writes(head.op, body);
        if counts && !self.may_count(station, writes) {
            return Err(PostError::Full);
        }
        let slot = match self.requests.free.pop() {
            Some(slot) => slot,
            None if self.requests.pending.len() < REQUESTS_MAX => {
                self.requests.pending.push(Pending {
                    generation: 0,
                    state: PendingState::Free,
                    kept: FrameBuffer::default(),
                    shard: 0,
                    order: 0,
                    is_get: false,
                });
                (self.requests.pending.len() - 1) as u16
            }
            None => return Err(PostError::Full),
        };
        let pending = &mut self.requests.pending[usize::from(slot)];
        pending.generation = pending.generation.wrapping_add(1);
        head.id = u32::from(slot) | u32::from(pending.generation) << 16;
        let state = state_of(&mut self.shards, &mut self.mirror, station);
        head.sequence = counts.then(|| Sequence { number: state.sequence + 1, again: false });
        let frame = if self.requests.kept { &mut pending.kept } else { &mut self.requests.frame };
        encode_request(frame, head, key, body);
        match state.writer.push(&mut self.fabric, state.reader.peer, frame) {
            Ok(true) => {}
            Ok(false) => {
                self.requests.free.push(slot);
                return Err(PostError::Full);
            }
            Err(ring_fault) => {
                self.requests.free.push(slot);
                return Err(PostError::Failed(fault(ring_fault)));
            }
        }
        let write = head.op.properties().has_effect;
        pending.state = PendingState::Waiting { write, wanted };
        if counts {
            state.unanswered.push_back((state.sequence + 1, slot, pending.generation));
            state.sequence += writes;
        }
        (pending.shard, pending.order) = (station as u16, self.requests.posted);
        pending.is_get = head.op == Op::Get;
        self.requests.posted += 1;
        state.outstanding += 1;
        self.total.messages += 1;
        Ok(RequestId(head.id))
    }

    /// Whether so many more writes may be under way to a station which is to know the answer to each.
    fn may_count(&mut self, station: usize, writes: u64) -> bool {
        let ShardState { sequence, unanswered, .. } = state_of(&mut self.shards, &mut self.mirror, station);
        while let Some((first, slot, generation)) = unanswered.front() {
            let pending = &self.requests.pending[usize::from(*slot)];
            let waits = matches!(pending.state, PendingState::Waiting { .. });
            if waits && pending.generation == *generation {
                return *sequence + writes - first < SEQUENCES_KEPT as u64;
            }
            unanswered.pop_front();
        }
        true
    }

    /// Goes on over another connection to the same server, where what was not answered is to be asked again.
    /// A node of a cluster may be a mirror now that was the primary, or the reverse.
    pub fn resume_on(&mut self, mut other: Transport<F>) {
        other.inherit(self);
        let count = self.shards.len();
        self.fabric = other.fabric;
        for (state, before) in self.shards.iter_mut().zip(&mut other.shards) {
            std::mem::swap(state, before);
            state.reader.direct_gets = before.reader.direct_gets;
            std::mem::swap(&mut state.reader.ordered, &mut before.reader.ordered);
            (state.sequence, state.unanswered) = (before.sequence, std::mem::take(&mut before.unanswered));
        }
        match (self.mirror.is_some(), other.mirror) {
            (true, Some(other)) => {
                self.mirror.as_mut().expect("just seen").go_on_as(*other);
                self.suspend_again();
            }
            (false, Some(mirror)) => self.begin_at_mirror(mirror, other.shards),
            (true, None) => self.end_at_mirror(),
            (false, None) => {}
        }
        self.server.go_on_as(&other.server);
        // The node may have a lease now, which strict reads do not believe.
        self.set_path(self.path());
        self.requests.again.clear();
        self.hints.iter_mut().for_each(Hints::begin_anew);
        for (slot, pending) in self.requests.pending.iter_mut().enumerate() {
            // The way to the primary is another connection.
            if usize::from(pending.shard) >= count {
                continue;
            }
            match pending.state {
                // A server of another release would take it for nonsense.
                PendingState::Waiting { wanted: true, .. }
                    if pending.kept.is_for(Op::PutMany) && !self.server.puts_many =>
                {
                    pending.state = PendingState::Lost(Lost { has_effect: true });
                }
                PendingState::Waiting { wanted: true, .. } => {
                    self.requests.again.push(slot as u16);
                    pending.kept.ask_again();
                }
                PendingState::Waiting { wanted: false, .. } | PendingState::Abandoned => {
                    pending.state = PendingState::Free;
                    self.requests.free.push(slot as u16);
                }
                PendingState::Free | PendingState::Answered(_) | PendingState::Lost(_) => {}
            }
        }
        let Requests { again, pending, .. } = &mut self.requests;
        again.sort_by_key(|slot| Reverse(pending[usize::from(*slot)].order));
    }

    /// Asks again, as far as there is room. `true`: for all.
    pub fn post_again(&mut self) -> Result<bool, Error> {
        while let Some(slot) = self.requests.again.last() {
            let pending = &mut self.requests.pending[usize::from(*slot)];
            let state = state_of(&mut self.shards, &mut self.mirror, pending.shard.into());
            let peer = state.reader.peer;
            if !state.writer.push(&mut self.fabric, peer, &mut pending.kept).map_err(fault)? {
                return Ok(false);
            }
            state.outstanding += 1;
            self.total.messages += 1;
            self.requests.again.pop();
        }
        Ok(true)
    }

    /// Takes the answers that have arrived, as long as it can be told whose word they are. Returns whether
    /// there were any.
    pub fn poll_replies(&mut self) -> Result<bool, Error> {
        let mut took = false;
        for station in 0..self.stations() {
            let outstanding = state_of(&mut self.shards, &mut self.mirror, station).outstanding;
            if outstanding == 0 || self.in_force(station).is_none() {
                continue;
            }
            let tells_record = self.tells_records(station);
            loop {
                let state = state_of(&mut self.shards, &mut self.mirror, station);
                if state.outstanding == 0
                    || !state
                        .ring
                        .pop(&mut self.fabric, state.reader.peer, &mut self.requests.payload)
                        .map_err(fault)?
                {
                    break;
                }
                took = true;
                let nonsense =
                    || Error::new(ErrorKind::Protocol, "talk to the server", "a reply that makes no sense");
                let mut reply = Reply::parse(&self.requests.payload).ok_or_else(nonsense)?;
                let mut record = 0;
                if tells_record {
                    let (last, item) = reply.item.split_last().ok_or_else(nonsense)?;
                    (record, reply.item) = (*last, item);
                }
                let (slot, generation) = (reply.head.id as u16, (reply.head.id >> 16) as u16);
                let Some(pending) = self.requests.pending.get_mut(usize::from(slot)) else { continue };
                // Replies to requests that were given up still count as no longer outstanding.
                state.outstanding -= 1;
                if pending.generation != generation {
                    continue;
                }
                let reached = tells_record.then(|| reached(&reply, record, pending.is_get));
                match pending.state {
                    PendingState::Waiting { wanted: true, write } => {
                        pending.state = PendingState::Answered(Answer::of(&reply, write, station));
                    }
                    PendingState::Waiting { wanted: false, .. } => {
                        pending.state = PendingState::Free;
                        self.requests.free.push(slot);
                        if let Some(hints) = &mut self.hints {
                            hints.answered(station, reply.head.id, reply.head.version);
                        }
                    }
                    PendingState::Abandoned => {
                        mark!("answer to a request that was given up");
                        pending.state = PendingState::Free;
                        self.requests.free.push(slot);
                    }
                    PendingState::Free | PendingState::Answered(_) | PendingState::Lost(_) => {}
                }
                if let Some(reached) = reached {
                    self.await_mirror(station - self.shards.len(), reached);
                }
            }
        }
        Ok(took)
    }

    /// The answer to a request, if it has arrived, or that there will be none.
    pub fn take(&mut self, id: RequestId) -> Option<Result<Answer, Lost>> {
        let slot = id.0 as u16;
        let pending = &mut self.requests.pending[usize::from(slot)];
        if !matches!(pending.state, PendingState::Answered(_) | PendingState::Lost(_)) {
            return None;
        }
        self.requests.free.push(slot);
        match std::mem::replace(&mut pending.state, PendingState::Free) {
            PendingState::Answered(answer) => Some(Ok(answer)),
            PendingState::Lost(lost) => Some(Err(lost)),
            _ => unreachable!("just seen"),
        }
    }

    /// Gives a request up, if it is not over. Returns whether it may have changed something.
    pub fn abandon(&mut self, id: RequestId) -> bool {
        let (slot, generation) = (id.0 as u16, (id.0 >> 16) as u16);
        let pending = &mut self.requests.pending[usize::from(slot)];
        if pending.generation != generation || matches!(pending.state, PendingState::Free) {
            return false;
        }
        let write = matches!(
            pending.state,
            PendingState::Waiting { write: true, .. } | PendingState::Lost(Lost { has_effect: true })
        );
        if matches!(pending.state, PendingState::Waiting { .. }) {
            pending.state = PendingState::Abandoned;
        } else {
            pending.state = PendingState::Free;
            self.requests.free.push(slot);
        }
        write
    }

    /// Whether an answer has begun to arrive.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.shards
            .iter()
            .any(|shard| shard.outstanding > 0 && shard.ring.has_news(&self.fabric, shard.reader.peer))
            || self.has_news_of_primary()
    }

    /// Sends off what was posted to a shard, or to its station at the primary.
    pub fn send(&mut self, shard: usize) {
        let ShardState { reader, outstanding, .. } = &self.shards[shard];
        // A mirror that is asked for nothing sleeps on while its primary is sent something.
        if self.mirror.is_none() || *outstanding > 0 {
            self.fabric.send(reader.peer);
        } else {
            self.fabric.doorbell();
        }
    }
}

/// What a mirror has to have applied for its session to find there what an answer tells of: the record, or
/// where that is an item, the item. An old one is there though the primary has gone on.
fn reached(reply: &Reply<'_>, record: u64, is_get: bool) -> Committed {
    let item = reply.item.first().filter(|_| is_get && reply.head.status == Status::Ok);
    match item.map(|guardian| Guardian(*guardian).incarnation()) {
        Some(incarnation) if incarnation.0 != 0 => Committed { record: 0, incarnation: incarnation.0 },
        _ => Committed { record, incarnation: 0 },
    }
}
