//! Clients: their rings, what waits for room in these, and who is looked at in which step.
//!
//! Many clients may be connected of whom few do anything. Those that sent something not long ago are *recent*
//! and looked at in each step; of the others a few are looked at each time, in turn:
//!
//! ```text
//! join -> others --- has sent something ---> recent
//!           ^------ 4096 silent steps ---------'
//! ```
//!
//! 1. A connected client is either recent or one of the others ([`Clients::join`], [`Clients::leave`],
//!    [`Turns`]).
//! 2. A client is blocked exactly while replies wait in its backlog; nothing more is taken from its ring then
//!    ([`Clients::reply`], [`Clients::flush`]).
//! 3. Of who has gone nothing is left but the history of one that may come again ([`Clients::remains`],
//!    asserted by [`Shard::audit_departed`](crate::Shard::audit_departed)).

use std::collections::VecDeque;

use kelix_fabric::{Mailbox, PeerId};
use kelix_image::{Journal, event};
use kelix_types::limits::SHARD_BATCH;
use kelix_types::mark;
use kelix_wire::control::Caller;
use kelix_wire::{
    FrameBuffer, Op, Reply, ReplyHead, RequestHead, RequestShape, RingFault, RingReader, RingWriter,
    Sequence, Status,
};

use crate::datasets::Numbers;
use crate::deduplication::{Departed, History};
use crate::held::Held;
use crate::large::Upload;
use crate::recorder::{Reached, Recorder};
use crate::request::Task;
use crate::shard::ClientParameters;
use crate::store::Store;
use crate::waiting::PARKED_MAX;

/// Steps without a request after which a client is no longer looked at in each.
const QUIET_STEPS: u32 = 4096;
/// Clients that are not recent which are looked at in each step all the same, in turn.
const OTHERS_A_STEP: usize = 8;

/// Answers of one client that may wait for the log: more than it has under way in good faith.
pub(crate) const HELD_MAX: usize = 1024;

/// A client that broke the protocol, and how.
pub(crate) type Fault = (PeerId, &'static str);

/// One client.
pub(crate) struct Client {
    reader: RingReader,
    writer: RingWriter,
    /// Replies that found the client's ring full. While there are any, nothing more is taken from it.
    backlog: VecDeque<FrameBuffer>,
    /// Requests that wait for memory.
    parked: usize,
    /// Answers that wait for the log.
    held: usize,
    pub upload: Option<Upload>,
    /// Of one that may ask again: what it was answered.
    history: Option<History>,
    pub connection: u64,
    pub may_write: bool,
    /// It is told with each answer which record has all that the answer tells of.
    tells_sequence: bool,
    /// It may have handles of tables that were dropped later than so many.
    pub knows: u64,
    /// It has sent nothing in so many steps, while it was among the recent ones.
    quiet: u32,
}

impl Client {
    /// Whether requests are taken from it: not while many writes wait for memory, or answers for the log, so
    /// that its ring holds it back.
    fn is_served(&self) -> bool {
        self.parked < PARKED_MAX && self.held < HELD_MAX
    }

    /// Whether a request or room for a blocked reply waits. Costs one load.
    fn has_news(&self, fabric: &impl Mailbox, peer: PeerId) -> bool {
        if self.backlog.is_empty() {
            self.is_served() && self.reader.has_news(fabric, peer)
        } else {
            self.writer.has_news(fabric, peer)
        }
    }
}

/// What a client that has gone leaves to be ended.
pub(crate) struct Departure {
    /// The large value that it had on its way in.
    pub upload: Option<Upload>,
    /// It may come again, and go on where it was.
    pub comes_again: bool,
}

/// Whose turn it is to be looked at.
#[derive(Default)]
struct Turns {
    recent: Vec<PeerId>,
    next_recent: usize,
    others: Vec<PeerId>,
    next_other: usize,
}

impl Turns {
    fn forget(&mut self, peer: PeerId) {
        self.recent.retain(|recent| *recent != peer);
        self.others.retain(|other| *other != peer);
    }
}

/// All clients of a shard.
#[derive(Default)]
pub(crate) struct Clients {
    connected: Vec<Option<Client>>,
    /// Clients that have gone and may come again.
    departed: Departed,
    turns: Turns,
    /// Clients with replies in their backlog.
    blocked: Vec<PeerId>,
    /// Clients to be woken when the step ends.
    replied: Vec<PeerId>,
    /// Clients that have come again with handles which are of other tables now.
    strangers: Vec<PeerId>,
    /// Writes asked for again that were done, and were answered as before.
    repeated: u64,
    /// Answers that wait for the log.
    pub held: Held,
}

impl Clients {
    /// The client of a connection, unless it has gone.
    #[inline]
    pub fn get(&self, peer: PeerId) -> Option<&Client> {
        self.connected[peer.0 as usize].as_ref()
    }

    #[inline]
    fn get_mut(&mut self, peer: PeerId) -> Option<&mut Client> {
        self.connected[peer.0 as usize].as_mut()
    }

    /// Those that are connected.
    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.connected.iter().flatten()
    }

    /// The number of a client's connection; 0: it has gone.
    pub fn connection(&self, peer: PeerId) -> u64 {
        self.get(peer).map_or(0, |client| client.connection)
    }

    /// The large value that a client has on its way in.
    pub fn upload(&mut self, peer: PeerId) -> &mut Option<Upload> {
        &mut self.get_mut(peer).expect("a connected client").upload
    }

    /// Counts a request of a client that begins to wait for memory. What a client that has gone had parked
    /// went with it.
    pub fn note_parked(&mut self, peer: PeerId) {
        if let Some(client) = self.get_mut(peer) {
            client.parked += 1;
        }
    }

    /// Counts a request of a client that waits no more.
    pub fn note_unparked(&mut self, peer: PeerId) {
        if let Some(client) = self.get_mut(peer) {
            client.parked -= 1;
        }
    }

    /// Clients of another server that may ask again, whose place this one takes.
    pub fn restore_histories(&mut self, histories: impl Iterator<Item = History>) {
        for history in histories {
            self.departed.remember(history);
        }
    }

    /// What is known of clients that may ask again, whether they are connected or have gone.
    pub fn histories(&self) -> Vec<&History> {
        let connected = self.iter().filter_map(|client| client.history.as_ref());
        connected.chain(self.departed.iter()).collect()
    }

    /// Writes that were answered as before.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// The connection of a client that may ask again.
    pub fn of_caller(&self, caller: Caller) -> Option<PeerId> {
        let is_it = |client: &Client| client.history.as_ref().is_some_and(|history| history.is_of(caller));
        let index = self.connected.iter().position(|client| client.as_ref().is_some_and(is_it))?;
        Some(PeerId(index as u32))
    }

    /// A client's mailboxes are connected, and it has no other connection any more.
    pub fn join(&mut self, peer: PeerId, parameters: ClientParameters, numbers: &Numbers, journal: &Journal) {
        let ClientParameters { ring, connection, caller, may_write, tells_sequence } = parameters;
        let history = caller.map(|caller| self.departed.take(caller));
        if let Some(history) = &history {
            journal.event(event::CALLER, &history.caller_words());
        }
        let new = numbers.known_to_a_newcomer();
        let knows = history.as_ref().map_or(new, |history: &History| history.knows.unwrap_or(new));
        if numbers.are_strange_to(knows) {
            mark!("client came again when numbers of tables had been given again");
            self.strangers.push(peer);
        }
        let index = peer.0 as usize;
        if self.connected.len() <= index {
            self.connected.resize_with(index + 1, || None);
        }
        self.connected[index] = Some(Client {
            reader: RingReader::new(ring),
            writer: RingWriter::new(ring),
            backlog: VecDeque::new(),
            parked: 0,
            held: 0,
            upload: None,
            history,
            connection,
            may_write,
            tells_sequence,
            knows,
            quiet: 0,
        });
        self.turns.others.push(peer);
    }

    /// A client has gone, if it has not before. What it was answered is remembered if it may come again.
    pub fn leave(&mut self, peer: PeerId, journal: &Journal) -> Option<Departure> {
        let client = self.connected.get_mut(peer.0 as usize).and_then(Option::take)?;
        self.turns.forget(peer);
        self.held.forget(peer);
        self.blocked.retain(|blocked| *blocked != peer);
        self.strangers.retain(|stranger| *stranger != peer);
        let comes_again = client.history.is_some();
        if let Some(mut history) = client.history {
            history.knows = Some(client.knows);
            if let Some(forgotten) = self.departed.remember(history) {
                journal.event(event::GONE, &[forgotten.number()]);
            }
        }
        Some(Departure { upload: client.upload, comes_again })
    }

    /// A client that must not go on, since numbers of tables that it knows were given again.
    #[inline]
    pub fn next_stranger(&mut self) -> Option<PeerId> {
        self.strangers.pop()
    }

    /// Whether a request or room for a blocked reply waits. Costs one load a client.
    pub fn has_news(&self, fabric: &impl Mailbox) -> bool {
        if self.held.has_news() {
            return true;
        }
        let mut clients = self.connected.iter().enumerate();
        clients.any(|(index, client)| {
            client.as_ref().is_some_and(|client| client.has_news(fabric, PeerId(index as u32)))
        })
    }

    /// The same of recent clients and one of the others.
    pub fn glance(&mut self, fabric: &impl Mailbox) -> bool {
        self.look_at_others(fabric, 1);
        if self.held.has_news() {
            return true;
        }
        self.turns
            .recent
            .iter()
            .any(|peer| self.get(*peer).is_some_and(|client| client.has_news(fabric, *peer)))
    }

    /// Whether a reply waits for room, or for the log.
    pub fn owes_replies(&self) -> bool {
        !self.blocked.is_empty() || self.held.len() > 0
    }

    /// Looks at the next clients that are not recent; those that have sent something are recent from now on.
    fn look_at_others(&mut self, fabric: &impl Mailbox, count: usize) {
        let Clients { connected, turns, .. } = self;
        for _ in 0..count.min(turns.others.len()) {
            if turns.next_other >= turns.others.len() {
                turns.next_other = 0;
            }
            let peer = turns.others[turns.next_other];
            let client = connected[peer.0 as usize].as_mut().expect("a client that has not left");
            if client.has_news(fabric, peer) {
                client.quiet = 0;
                turns.others.swap_remove(turns.next_other);
                turns.recent.push(peer);
            } else {
                turns.next_other += 1;
            }
        }
    }

    /// Copies waiting requests out of the rings, one client after another, beginning with another one each
    /// time, and has each prepared. Returns how many of the batch are new.
    #[inline(always)]
    pub fn take_requests(
        &mut self,
        fabric: &mut impl Mailbox,
        batch: &mut Vec<Task>,
        faulty: &mut Vec<Fault>,
        prepare: impl Fn(&mut Task, usize),
    ) -> usize {
        self.look_at_others(fabric, OTHERS_A_STEP);
        let Clients { connected, turns, .. } = self;
        let clients = turns.recent.len();
        let (mut count, mut writes) = (0, 0);
        for turn in 0..clients {
            let peer = turns.recent[(turns.next_recent + turn) % clients];
            let Some(client) = connected[peer.0 as usize].as_mut() else { continue };
            let before = count;
            while writes < SHARD_BATCH && client.backlog.is_empty() && client.is_served() {
                if batch.len() == count {
                    batch.push(Task::idle(peer));
                }
                let task = &mut batch[count];
                match client.reader.pop(fabric, peer, &mut task.payload) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(RingFault(what)) => {
                        faulty.push((peer, what));
                        break;
                    }
                }
                let Some(shape) = RequestShape::parse(&task.payload) else {
                    faulty.push((peer, "a request that makes no sense"));
                    break;
                };
                (task.peer, task.shape) = (peer, shape);
                prepare(task, count);
                count += 1;
                writes += task.writes();
            }
            // With replies to send, or some that wait, it is not silent.
            let waits = client.parked + client.held > 0;
            let silent = count == before && client.backlog.is_empty() && !waits;
            client.quiet = if silent { client.quiet + 1 } else { 0 };
        }
        turns.next_recent = (turns.next_recent + 1) % clients.max(1);
        let Turns { recent, others, .. } = turns;
        recent.retain(|peer| {
            let quiet = connected[peer.0 as usize].as_ref().is_some_and(|client| client.quiet >= QUIET_STEPS);
            if quiet {
                others.push(*peer);
            }
            !quiet
        });
        count
    }

    /// Whether a request is to be done. `Err`: what it was answered before.
    #[inline]
    pub fn deduplicate(&mut self, task: &Task) -> Result<(), ReplyHead> {
        let RequestHead { id, op, sequence, .. } = task.shape.head;
        match sequence {
            // Each of its items has a number.
            Some(sequence) if op != Op::PutMany => {
                self.find_answer(task.peer, sequence).map_err(|known| ReplyHead { id, ..known })
            }
            _ => Ok(()),
        }
    }

    /// Whether a write of a client is to be done. `Err`: what it was answered before.
    pub fn find_answer(&mut self, peer: PeerId, sequence: Sequence) -> Result<(), ReplyHead> {
        let Some(history) = self.get_mut(peer).and_then(|client| client.history.as_mut()) else {
            return Ok(());
        };
        let known = match history.find(sequence) {
            Ok(None) => {
                if sequence.again {
                    mark!("write asked for again that had not been done");
                }
                return Ok(());
            }
            Ok(Some(answer)) => {
                mark!("write asked for again that had been done");
                self.repeated += 1;
                answer
            }
            Err(()) => ReplyHead { id: 0, status: Status::Forgotten, version: 0, location: 0 },
        };
        Err(known)
    }

    /// Keeps the answer to a write that may be asked for again, and tells it to who follows.
    pub fn note_answer(&mut self, peer: PeerId, number: u64, answer: ReplyHead, journal: &Journal) {
        if let Some(history) = self.get_mut(peer).and_then(|client| client.history.as_mut()) {
            history.note(number, answer);
            journal.event(event::ANSWER, &history.answer_words(number, &answer));
        }
    }

    /// Sends the answer to a request, and keeps it where it may be asked for again.
    pub fn answer(
        &mut self,
        fabric: &mut impl Mailbox,
        task: &Task,
        frame: &mut FrameBuffer,
        (store, recorder): (&Store, &Recorder),
    ) {
        if let Some(sequence) = task.shape.head.sequence {
            let reply = Reply::parse(frame.payload()).expect("an answer of this shard");
            self.note_answer(task.peer, sequence.number, reply.head, store.image.journal());
        }
        self.reply(fabric, task, frame, (store, recorder));
    }

    /// Replies to a request: when what it did is a record, where that is logged or mirrored.
    pub fn reply(
        &mut self,
        fabric: &mut impl Mailbox,
        task: &Task,
        frame: &mut FrameBuffer,
        (store, recorder): (&Store, &Recorder),
    ) {
        if !self.held.is_on() {
            self.post(fabric, task.peer, frame, || recorder.reached(store).covers);
        } else if let Some(client) = self.get_mut(task.peer) {
            client.held += 1;
            self.held.hold(task, frame);
        }
    }

    /// Replies at once that a request was not done, which tells of no record: nobody is kept waiting for those of
    /// others to be told why.
    pub fn refuse(&mut self, fabric: &mut impl Mailbox, task: &Task, frame: &mut FrameBuffer) {
        self.post(fabric, task.peer, frame, || 0);
    }

    /// What was done has become a record: posts the replies that waited for no more than that, or for what
    /// was on the disk at the last look there ([`Held::look_at_disk`]). Whether whoever writes the log is to
    /// be woken.
    #[inline]
    pub fn end_record(&mut self, fabric: &mut impl Mailbox, reached: Reached) -> bool {
        if !self.held.is_on() {
            return false;
        }
        let wakes = self.held.end_record(reached);
        while let Some((peer, mut frame, sequence)) = self.held.next(reached.in_stream) {
            if let Some(client) = self.get_mut(peer) {
                client.held -= 1;
            }
            self.post(fabric, peer, &mut frame, || sequence);
            self.held.give_back(frame);
        }
        wakes
    }

    /// Posts a reply, with the record that has all that the reply tells of, if the client wants to know that.
    /// If the client's ring is full the reply waits in the backlog.
    fn post(
        &mut self,
        fabric: &mut impl Mailbox,
        peer: PeerId,
        frame: &mut FrameBuffer,
        covers: impl FnOnce() -> u64,
    ) {
        let Some(client) = self.connected[peer.0 as usize].as_mut() else { return };
        if client.tells_sequence {
            frame.push(covers());
        }
        // A writer's fault shows again in the flush, which reports it.
        if !client.backlog.is_empty() || !client.writer.push(fabric, peer, frame).unwrap_or(false) {
            mark!("answer waited for room in a ring");
            if client.backlog.is_empty() {
                self.blocked.push(peer);
            }
            client.backlog.push_back(frame.clone());
        }
        if self.replied.last() != Some(&peer) {
            self.replied.push(peer);
        }
    }

    /// Sends what waits in backlogs and wakes everybody who got something.
    pub fn flush(&mut self, fabric: &mut impl Mailbox, faulty: &mut Vec<Fault>) {
        let Clients { blocked, connected, replied, .. } = self;
        blocked.retain(|peer| {
            let peer = *peer;
            let Some(client) = connected[peer.0 as usize].as_mut() else { return false };
            while let Some(frame) = client.backlog.front_mut() {
                match client.writer.push(fabric, peer, frame) {
                    Ok(true) => {
                        client.backlog.pop_front();
                        replied.push(peer);
                    }
                    Ok(false) => break,
                    Err(RingFault(what)) => {
                        faulty.push((peer, what));
                        break;
                    }
                }
            }
            !client.backlog.is_empty()
        });
        if !replied.is_empty() {
            fabric.doorbell();
            for peer in replied.drain(..) {
                fabric.wake(peer);
            }
        }
    }

    /// What is left of clients, in words and numbers.
    pub fn remains(&self) -> [(&'static str, usize); 3] {
        let turns = self.turns.recent.len() + self.turns.others.len();
        let turns = turns + self.blocked.len() + self.replied.len() + self.strangers.len();
        [
            ("clients", self.iter().count()),
            ("places in turns", turns),
            ("answers that wait for the log", self.held.len()),
        ]
    }
}
