//! Submit and poll: operations that go on while their caller does something else.

use std::collections::VecDeque;
use std::time::Duration;

use kelix_fabric::Fabric;
use kelix_types::limits::{MESSAGE_VALUE_BYTES_MAX, SESSION_READS_MAX};
use kelix_types::{Effect, Error, ErrorKind, Result, Version};
use kelix_wire::{Op, RequestHead, Status};

use crate::Table;
use crate::connection::End;
use crate::core::{Answer, Path, PostError, RequestId};
use crate::item::{Item, NewItem};
use crate::pointers::Pointer;
use crate::read::{Landing, ReadOp};
use crate::session::{Session, check_answer, check_key};
use crate::views::BoundTable;
use crate::waiting::{Patience, is_passing};
use crate::writes::check_value;

/// Names a submitted operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// A submitted operation that has ended.
#[derive(Debug)]
pub struct Completion {
    /// Which one.
    pub ticket: Ticket,
    /// How it ended.
    pub outcome: Result<Outcome>,
}

/// What a submitted operation brought.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A get: the item, `None` if the key is absent.
    Item(Option<Item>),
    /// A put: the new version.
    Written(Version),
    /// A delete: whether the key was there.
    Deleted(bool),
}

/// A submitted operation.
struct Queued {
    ticket: Ticket,
    head: RequestHead,
    key: Vec<u8>,
    value: Vec<u8>,
    /// That of the table; 0: none.
    generation: u64,
}

/// A submitted operation whose request is under way.
pub(crate) struct Waiting {
    queued: Queued,
    id: RequestId,
    pub(crate) since_ns: u64,
}

/// A submitted get whose item is being read.
pub(crate) struct Reading {
    queued: Queued,
    op: ReadOp,
    known: Option<Pointer>,
    landing: Landing,
    pub(crate) since_ns: u64,
    /// Over which of the session's connections.
    connection: u32,
}

/// Tags of the READs of submitted gets begin here; below are those of whoever waits.
const SUBMITTED: u32 = SESSION_READS_MAX as u32;

/// All that was submitted and has not been returned yet.
#[derive(Default)]
pub(crate) struct Submitted {
    /// Not looked at yet.
    queue: VecDeque<Queued>,
    /// Gets that are being read.
    pub readings: Vec<Option<Reading>>,
    /// What the shards are to be asked for, by shard, and how long none of it could be sent.
    unsent: Vec<VecDeque<Queued>>,
    sending: Patience,
    pub waiting: Vec<Waiting>,
    /// Whether [`Session::poll`] has announced that its caller may sleep.
    pub announced: bool,
    pub finished: VecDeque<Completion>,
    pub next_ticket: u64,
    /// Since when polls have had no connection that answers.
    pub lost_ns: Option<u64>,
    /// Bytes that had moved when enough of them had last moved, when that was, and when somebody last looked.
    pub moved: u64,
    pub moved_ns: u64,
    pub looked_ns: u64,
}

impl Submitted {
    pub fn to(shards: usize) -> Submitted {
        Submitted { unsent: (0..shards).map(|_| VecDeque::new()).collect(), ..Submitted::default() }
    }
}

impl Session {
    fn submit(&mut self, op: Op, table: Table, key: &[u8], value: &[u8]) -> Result<Ticket> {
        self.operate("submit", |session| {
            let BoundTable { id, generation } = session.check_table(table)?;
            session.enqueue(RequestHead::new(op, 0, id), key, value.to_vec(), generation)
        })
    }

    fn enqueue(&mut self, head: RequestHead, key: &[u8], value: Vec<u8>, generation: u64) -> Result<Ticket> {
        check_key(head.table, key)?;
        check_value(&head, &value)?;
        let ticket = Ticket(self.submitted.next_ticket);
        self.submitted.next_ticket += 1;
        self.submitted.queue.push_back(Queued { ticket, head, key: key.to_vec(), value, generation });
        Ok(ticket)
    }

    /// Submits a get. It begins with the next [`Session::poll`], together with all others submitted until then.
    pub fn submit_get(&mut self, table: Table, key: &[u8]) -> Result<Ticket> {
        self.submit(Op::Get, table, key, &[])
    }

    /// Submits a put.
    pub fn submit_put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<Ticket> {
        self.submit(Op::Put, table, key, value)
    }

    /// Submits a put of an item with attributes and links. Waits only where the server has yet to be asked for the
    /// number of an attribute's name.
    pub fn submit_item(&mut self, table: Table, key: &[u8], item: &NewItem) -> Result<Ticket> {
        self.operate("submit", |session| {
            let BoundTable { id, generation } = session.check_table(table)?;
            let (head, body) = session.encode_item(id, None, item)?;
            session.enqueue(head, key, body.into_owned(), generation)
        })
    }

    /// Submits a delete.
    pub fn submit_delete(&mut self, table: Table, key: &[u8]) -> Result<Ticket> {
        self.submit(Op::Delete, table, key, &[])
    }

    /// Begins what was submitted and moves what has ended to `completions`; returns how many. Waits only to send a
    /// value that does not fit one message, for one such value at most, and to map memory that is new.
    ///
    /// After a poll that returned 0, and until the next call of this session, [`Session::fd`] becomes readable when
    /// there is more. An operation that is not answered in time ends with the next poll after that, so wait for the
    /// descriptor with a time-out. A session that goes on after it has lost its connection
    /// ([`SessionOptions::retry_for`]) connects again in here, and then has another descriptor.
    ///
    /// [`SessionOptions::retry_for`]: crate::SessionOptions::retry_for
    pub fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize> {
        let before = completions.len();
        if self.submitted.announced {
            // Wake-ups that came are over now, and so is a server that went.
            self.core.fabric.look();
            self.core.fabric.sleep(Some(0));
            self.submitted.announced = false;
        }
        let now_ns = self.core.fabric.now_ns();
        self.note_moved(now_ns);
        self.connect_for_poll();
        loop {
            self.operate("poll", Session::move_on)?;
            completions.extend(self.submitted.finished.drain(..));
            if completions.len() > before || self.outstanding() == 0 {
                break;
            }
            // What came before the announcement wakes nobody, so there is one more look after it.
            if self.submitted.announced && !self.core.fabric.unseen() {
                break;
            }
            self.core.fabric.announce_sleep();
            self.submitted.announced = true;
        }
        Ok(completions.len() - before)
    }

    /// Takes in what has come, and does what can be done without waiting for more.
    fn move_on(&mut self) -> Result<()> {
        self.core.fabric.progress();
        while self.begin_queued() || self.advance_readings() {}
        self.core.fabric.doorbell();
        self.send_unsent();
        self.collect()
    }

    /// How many submitted operations have not been returned by [`Session::poll`] yet.
    pub fn outstanding(&self) -> usize {
        let unsent: usize = self.submitted.unsent.iter().map(VecDeque::len).sum();
        let reading = self.submitted.readings.iter().flatten().count();
        self.submitted.queue.len()
            + reading
            + unsent
            + self.submitted.waiting.len()
            + self.submitted.finished.len()
    }

    /// Begins what was submitted, as far as there is room: gets are read one-sidedly, the rest is to be sent. Returns whether
    /// that was anything.
    fn begin_queued(&mut self) -> bool {
        let mut began = false;
        while let Some(queued) = self.submitted.queue.pop_front() {
            if queued.head.op != Op::Get || self.core.path == Path::Message {
                self.ask_for(queued);
            } else if let Some(index) = self.room_for_reading() {
                self.begin_reading(index, queued);
            } else {
                self.submitted.queue.push_front(queued);
                break;
            }
            began = true;
        }
        began
    }

    fn room_for_reading(&mut self) -> Option<usize> {
        let free = self.submitted.readings.iter().position(Option::is_none);
        if free.is_none() && self.submitted.readings.len() < SESSION_READS_MAX {
            self.submitted.readings.push(None);
            return Some(self.submitted.readings.len() - 1);
        }
        free
    }

    fn begin_reading(&mut self, index: usize, queued: Queued) {
        if let Err(error) = self.note_operation() {
            return self.finish(queued.ticket, Err(error));
        }
        let (table, since_ns) = (queued.head.table, self.core.fabric.now_ns());
        let route = self.core.route(table, &queued.key);
        if table.kind().is_ordered() {
            if let Err(error) = self.copy_models(table, route.1) {
                return self.finish(queued.ticket, Err(error));
            }
        }
        let known = self.core.known_pointer(route.0);
        let op = self.core.start_read(SUBMITTED + index as u32, (table, &queued.key), route, known);
        let (landing, connection) = (Landing::default(), self.connection.connections);
        self.submitted.readings[index] = Some(Reading { queued, op, known, landing, since_ns, connection });
    }

    /// Goes on with the gets that are being read. Returns whether one of them has ended, so that there is room for another.
    fn advance_readings(&mut self) -> bool {
        let mut ended = false;
        let now_ns = self.core.fabric.now_ns();
        for index in 0..self.submitted.readings.len() {
            let Some(mut reading) = self.submitted.readings[index].take() else { continue };
            match self.advance_reading(&mut reading, now_ns) {
                None => self.submitted.readings[index] = Some(reading),
                Some(outcome) => {
                    ended = true;
                    match outcome.transpose() {
                        Some(outcome) => self.finish(reading.queued.ticket, outcome),
                        None => self.ask_for(reading.queued),
                    }
                }
            }
        }
        ended
    }

    /// Goes on with one of them. `None`: it is still under way; `Ok(None)`: the shard must be asked.
    fn advance_reading(&mut self, reading: &mut Reading, now_ns: u64) -> Option<Result<Option<Outcome>>> {
        let Reading { queued, op, known, landing, since_ns, connection } = reading;
        let mut lost =
            std::mem::replace(connection, self.connection.connections) != self.connection.connections;
        let end = loop {
            let posted = op.cost().reads;
            let Session { core, connection, handles, .. } = &mut *self;
            let from = (*known, std::mem::take(&mut lost));
            match connection.advance(core, handles, op, &queued.key, landing, from) {
                Ok(Some(end)) => break end,
                // What was posted may be done already: nothing tells of it then.
                Ok(None) if op.cost().reads != posted => {}
                Ok(None) => return self.given_up(*since_ns, now_ns).map(Err),
                Err(error) => return Some(Err(error)),
            }
        };
        Some(match end {
            End::Found => {
                std::mem::swap(&mut self.landing, landing);
                self.item_of(queued, true).map(Some)
            }
            End::Absent => self.item_of(queued, false).map(Some),
            End::Ask => {
                self.core.total.fallbacks += 1;
                Ok(None)
            }
        })
    }

    /// Ends everything that was submitted and has not ended: its server is gone for good.
    pub(crate) fn give_up_submitted(&mut self) {
        for Waiting { queued, id, .. } in std::mem::take(&mut self.submitted.waiting) {
            let effect = if self.core.abandon(id) { Effect::Unknown } else { Effect::No };
            let error = self.gone().with_effect(effect);
            self.finish(queued.ticket, Err(error));
        }
        let readings =
            std::mem::take(&mut self.submitted.readings).into_iter().flatten().map(|reading| reading.queued);
        let unsent = self.submitted.unsent.iter_mut().flat_map(std::mem::take);
        let queue = std::mem::take(&mut self.submitted.queue);
        for queued in readings.chain(unsent).chain(queue).collect::<Vec<_>>() {
            let error = self.gone();
            self.finish(queued.ticket, Err(error));
        }
    }

    /// Why something is not waited for any longer, which was begun then.
    fn given_up(&mut self, since_ns: u64, now_ns: u64) -> Option<Error> {
        let waited = Duration::from_nanos(now_ns.saturating_sub(since_ns.max(self.submitted.moved_ns)));
        match self.check_server() {
            // A server that is superseded gives no more answers; one that has gone may be found again.
            Err(error) if self.connection.caller.is_none() || error.kind() == ErrorKind::Superseded => {
                Some(error)
            }
            Err(error) if self.has_tried_enough(now_ns) => Some(error),
            _ if waited >= self.limit() => Some(self.timed_out()),
            _ => None,
        }
    }

    fn finish(&mut self, ticket: Ticket, outcome: Result<Outcome>) {
        let outcome = outcome.map_err(|error| error.of("poll"));
        self.submitted.finished.push_back(Completion { ticket, outcome });
    }

    fn ask_for(&mut self, queued: Queued) {
        let (_, shard) = self.core.route(queued.head.table, &queued.key);
        self.submitted.unsent[shard].push_back(queued);
    }

    /// Sends as much as finds room.
    fn send_unsent(&mut self) {
        if self.submitted.unsent.iter().all(VecDeque::is_empty) {
            return;
        }
        let lost = self.check_server().err();
        if lost.is_some() && self.connection.caller.is_some() {
            return self.end_unsent();
        }
        let mut sent_large = false;
        for shard in 0..self.submitted.unsent.len() {
            while let Some(queued) = self.submitted.unsent[shard].pop_front() {
                let large = queued.value.len() > MESSAGE_VALUE_BYTES_MAX;
                let posted = if let Some(error) = &lost {
                    Err(PostError::Failed(Error::unnamed(error.kind(), error.context())))
                } else if !large {
                    self.try_post(shard, queued.head, &queued.key, &queued.value)
                } else if !sent_large {
                    sent_large = true;
                    let answer = self.write(queued.head, &queued.key, &queued.value);
                    // Those behind have waited for this one, which had patience of its own. If that was used up, so is theirs.
                    if answer.is_ok() {
                        self.submitted.sending = Patience::default();
                    }
                    self.finish(
                        queued.ticket,
                        answer.map(|answer| Outcome::Written(Version(answer.version))),
                    );
                    continue;
                } else {
                    Err(PostError::Full)
                };
                match posted {
                    Ok(id) => {
                        self.submitted.sending = Patience::default();
                        let since_ns = self.core.fabric.now_ns();
                        self.submitted.waiting.push(Waiting { queued, id, since_ns });
                    }
                    Err(PostError::Failed(error))
                        if self.connection.caller.is_some() && is_passing(&error) =>
                    {
                        // The next poll sees to the connection.
                        self.submitted.unsent[shard].push_front(queued);
                        break;
                    }
                    Err(PostError::Full) => {
                        self.submitted.unsent[shard].push_front(queued);
                        break;
                    }
                    Err(PostError::Failed(error)) => self.fail(queued, error),
                }
            }
        }
        self.send_all();
        self.end_unsent();
    }

    /// Gives up what could not be sent for too long.
    fn end_unsent(&mut self) {
        if self.submitted.unsent.iter().all(VecDeque::is_empty) {
            return;
        }
        let now_ns = self.core.fabric.now_ns();
        let gone = self.has_tried_enough(now_ns);
        if gone || self.submitted.sending.waited(now_ns) >= self.limit() {
            for queued in self.submitted.unsent.iter_mut().flat_map(std::mem::take).collect::<Vec<_>>() {
                let error = if gone { self.gone() } else { self.timed_out() };
                self.fail(queued, error);
            }
        }
    }

    /// Ends what the shard could not be asked for.
    fn fail(&mut self, queued: Queued, error: Error) {
        let (table, key) = (queued.head.table, &queued.key[..]);
        let outcome = if queued.head.op == Op::Get && self.is_alone(table, &error) {
            let route = self.core.route(table, key);
            let found = self.fetch_alone((table, key), route, error);
            found.and_then(|found| self.item_of(&queued, found.is_some()))
        } else {
            Err(error)
        };
        self.finish(queued.ticket, outcome);
    }

    /// The outcome of a get that has fetched its item, if there is one.
    fn item_of(&mut self, queued: &Queued, exists: bool) -> Result<Outcome> {
        let item = exists.then(|| self.make_item(queued.generation)).transpose()?;
        self.check_generation(queued.generation)?;
        Ok(Outcome::Item(item))
    }

    /// Turns answers that have arrived into completions.
    fn collect(&mut self) -> Result<()> {
        if self.submitted.waiting.is_empty() {
            return Ok(());
        }
        self.core.poll_replies()?;
        self.note_broken();
        let now_ns = self.core.fabric.now_ns();
        for Waiting { queued, id, since_ns } in std::mem::take(&mut self.submitted.waiting) {
            let outcome = if let Some(answer) = self.core.take(id) {
                self.submitted.sending = Patience::default();
                self.check_authority(answer).and_then(|answer| self.outcome_of(&queued, answer))
            } else if let Some(error) = self.given_up(since_ns, now_ns) {
                let effect = if self.core.abandon(id) { Effect::Unknown } else { Effect::No };
                self.fail(queued, error.with_effect(effect));
                continue;
            } else {
                self.submitted.waiting.push(Waiting { queued, id, since_ns });
                continue;
            };
            self.finish(queued.ticket, outcome);
        }
        Ok(())
    }

    fn outcome_of(&mut self, queued: &Queued, answer: Answer) -> Result<Outcome> {
        check_answer(&answer)?;
        let route = self.core.route(queued.head.table, &queued.key);
        self.core.learn(route.0, &answer);
        match queued.head.op {
            Op::Put => Ok(Outcome::Written(Version(answer.version))),
            Op::Delete => Ok(Outcome::Deleted(answer.status == Status::Ok)),
            _ => {
                let found = self.take_item(queued.head.table, &queued.key, answer)?;
                self.item_of(queued, found.is_some())
            }
        }
    }
}
