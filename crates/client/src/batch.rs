//! Many operations at once: batches, and submit and poll.
//!
//! Operations of one batch have no order among each other. Their memory accesses and messages overlap.

use std::collections::VecDeque;
use std::time::Duration;

use kelix_fabric::Fabric;
use kelix_types::limits::{MESSAGE_VALUE_BYTES_MAX, SESSION_READS_MAX};
use kelix_types::{Effect, Error, ErrorKind, KeyHash, Result, TableId, Version};
use kelix_wire::{Op, RequestHead, Status};

use crate::Table;
use crate::core::{Answer, Path, PostError, RequestId};
use crate::item::{Item, NewItem, Values};
use crate::pointers::Pointer;
use crate::read::{Landing, ReadOp, Step};
use crate::session::{Session, check_answer, check_key, check_value, no_memory};
use crate::waiting::{Patience, is_passing};

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
pub(crate) struct Queued {
    ticket: Ticket,
    head: RequestHead,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// One put of a batch.
enum Posted {
    UnderWay(KeyHash, RequestId),
    Ended(Result<Answer>),
}

/// The puts of a batch: those to come, those under way, and how the others ended.
struct Puts<'p> {
    operation: &'static str,
    table: TableId,
    items: &'p [(&'p [u8], &'p [u8])],
    posted: VecDeque<Posted>,
    results: Vec<Result<Version>>,
    patience: Patience,
    /// What the server failed with when it did not answer one.
    lost: Option<ErrorKind>,
}

impl<'p> Puts<'p> {
    fn new(operation: &'static str, table: TableId, items: &'p [(&'p [u8], &'p [u8])]) -> Result<Puts<'p>> {
        items.iter().try_for_each(|(key, value)| {
            check_key(operation, table, key)?;
            check_value(operation, &RequestHead::new(Op::Put, 0, table), value)
        })?;
        let posted = VecDeque::with_capacity(items.len().min(2 * REQUESTS_A_WAVE));
        let results = Vec::with_capacity(items.len());
        Ok(Puts { operation, table, items, posted, results, patience: Patience::default(), lost: None })
    }
}

/// What kind of error this is, if it says that the server does not answer.
fn loss<T>(result: &Result<T>) -> Option<ErrorKind> {
    let kind = result.as_ref().err()?.kind();
    let answered = matches!(kind, ErrorKind::OutOfMemory | ErrorKind::InvalidArgument | ErrorKind::Denied);
    if answered { None } else { Some(kind) }
}

/// An item that is looked for: by key, and first by a pointer if one is known.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'k> {
    pub table: TableId,
    pub key: &'k [u8],
    pub pointer: Option<Pointer>,
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

/// READs of a batch between two doorbells: while this side goes on to the next, the other can begin.
const READS_A_BELL: usize = 128;
/// How many keys ahead pointers are prefetched.
const PREFETCHED: usize = 16;
/// Requests of a batch that are sent together. Twice as many are under way, so that the shard is never without.
const REQUESTS_A_WAVE: usize = 64;

/// Tags of the READs of submitted gets begin here; below are those of whoever waits.
const SUBMITTED: u32 = SESSION_READS_MAX as u32;

/// One of the reads of a batch.
#[derive(Default)]
pub(crate) struct ReadSlot {
    /// Which item of the batch.
    index: usize,
    op: Option<ReadOp>,
    known: Option<Pointer>,
    found: Option<Pointer>,
    landing: Landing,
}

impl Session {
    /// Begins to read an item of a batch.
    fn begin_read(&mut self, tag: usize, slot: &mut ReadSlot, index: usize, wanted: Wanted<'_>) {
        let route = self.core.route(wanted.table, wanted.key);
        slot.index = index;
        slot.known = wanted.pointer.or_else(|| self.core.known_pointer(route.0));
        slot.op = Some(self.core.start_read(tag as u32, (wanted.table, wanted.key), route, slot.known));
    }

    /// Reads items one-sidedly and calls `found` with each: [`SESSION_READS_MAX`] at once, and another where one has ended.
    /// `missing` receives the indices of those that the shard must be asked for.
    fn read_many<'k>(
        &mut self,
        operation: &'static str,
        count: usize,
        wanted: impl Fn(usize) -> Wanted<'k>,
        missing: &mut Vec<usize>,
        patience: &mut Patience,
        mut found: impl FnMut(&mut ReadSlot),
    ) -> Result<()> {
        missing.clear();
        if self.core.path == Path::Message {
            missing.extend(0..count);
            return Ok(());
        }
        if count > 0 && wanted(0).table.kind().is_ordered() {
            let Wanted { table, key, .. } = wanted(0);
            self.copy_models(operation, table, self.core.route(table, key).1)?;
        }
        let mut slots = std::mem::take(&mut self.slots);
        let at_once = count.min(SESSION_READS_MAX);
        if slots.len() < at_once {
            slots.resize_with(at_once, ReadSlot::default);
        }
        let prefetch = |session: &Session, index: usize| {
            if index < count {
                let Wanted { table, key, .. } = wanted(index);
                session.core.prefetch_pointer(session.core.hash(table, key));
            }
        };
        (0..at_once.min(PREFETCHED)).for_each(|index| prefetch(self, index));
        for (index, slot) in slots[..at_once].iter_mut().enumerate() {
            prefetch(self, index + PREFETCHED);
            self.begin_read(index, slot, index, wanted(index));
            if (index + 1) % READS_A_BELL == 0 {
                self.core.fabric.doorbell();
            }
        }
        let mut result = Ok(());
        let (mut begun, mut ended) = (at_once, 0);
        let mut anew = false;
        while ended < count && result.is_ok() {
            let before = ended;
            let mut read_nothing = false;
            for (tag, slot) in slots[..at_once].iter_mut().enumerate() {
                let Some(op) = slot.op.as_mut() else { continue };
                let step = match anew {
                    false => self.core.advance_read(op, wanted(slot.index).key, &mut slot.landing),
                    true => self.core.restart_read(op, wanted(slot.index).key),
                };
                let (mut valid, mut absent) = (false, false);
                match step {
                    Step::Pending => continue,
                    Step::Valid => valid = true,
                    Step::Absent => absent = true,
                    Step::Ask => {}
                    Step::UnknownSegment => match self.renew_map(op, wanted(slot.index).key) {
                        Ok(true) => continue,
                        Ok(false) => {}
                        Err(error) => result = Err(error),
                    },
                    Step::Superseded => result = Err(Session::superseded(operation)),
                    Step::NoMemory => result = Err(no_memory(operation)),
                }
                ended += 1;
                read_nothing |= op.cost().reads == 0;
                self.core.finish_read(op, slot.known);
                slot.found = op.pointer;
                slot.op = None;
                if valid {
                    found(slot);
                } else if !absent {
                    self.core.total.fallbacks += 1;
                    missing.push(slot.index);
                }
                if begun < count && result.is_ok() {
                    prefetch(self, begun + PREFETCHED);
                    self.begin_read(tag, slot, begun, wanted(begun));
                    begun += 1;
                    if begun % READS_A_BELL == 0 {
                        self.core.fabric.doorbell();
                    }
                }
            }
            if ended > before {
                *patience = Patience::default();
            }
            if ended < count && result.is_ok() && !read_nothing {
                let progress = self.until_progress(operation, patience);
                anew = matches!(progress, Ok(true));
                result = progress.map(drop);
            }
        }
        self.slots = slots;
        result
    }

    /// Fetches many items, one-sidedly or by message, and calls `found` with the index of each once it is in
    /// `self.landing`. `wanted` has to name the same items each time.
    pub(crate) fn fetch_many<'k>(
        &mut self,
        operation: &'static str,
        count: usize,
        wanted: impl Fn(usize) -> Wanted<'k>,
        mut found: impl FnMut(&mut Session, usize) -> Result<()>,
    ) -> Result<()> {
        let mut missing = Vec::new();
        for base in (0..count).step_by(SESSION_READS_MAX) {
            let here = SESSION_READS_MAX.min(count - base);
            let wanted = |index: usize| wanted(base + index);
            for index in 0..here {
                check_key(operation, wanted(index).table, wanted(index).key)?;
            }
            self.note_operation()?;
            let mut valid = Vec::with_capacity(here);
            // No more than there are slots, so that each item has its own until here.
            let patience = &mut Patience::default();
            self.read_many(operation, here, wanted, &mut missing, patience, |slot| valid.push(slot.index))?;
            for index in valid {
                let slot = &mut self.slots[index];
                std::mem::swap(&mut self.landing, &mut slot.landing);
                self.pointer = slot.found;
                found(self, base + index)?;
            }
            self.ask_many(operation, wanted, &missing, patience, |session, index| {
                found(session, base + index)
            })?;
        }
        Ok(())
    }

    /// Asks the shards for the items at the indices in `missing`, all at once; calls `found` with the index of each
    /// that exists, once it is in `self.landing`.
    fn ask_many<'k>(
        &mut self,
        operation: &'static str,
        wanted: impl Fn(usize) -> Wanted<'k>,
        missing: &[usize],
        patience: &mut Patience,
        mut found: impl FnMut(&mut Session, usize) -> Result<()>,
    ) -> Result<()> {
        // Most batches miss nothing, and allocate nothing.
        let mut asked: VecDeque<(usize, RequestId)> =
            VecDeque::with_capacity(missing.len().min(2 * REQUESTS_A_WAVE));
        let mut result = Ok(());
        let mut waves = missing.chunks(REQUESTS_A_WAVE);
        while let Some(wave) = waves.next().filter(|_| result.is_ok()) {
            for index in wave {
                let Wanted { table, key, .. } = wanted(*index);
                let (_, shard) = self.core.route(table, key);
                let head = self.get_head(table);
                match self.post(operation, shard, head, key, &[], patience) {
                    Ok(id) => asked.push_back((*index, id)),
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
            }
            self.send_all();
            let left = if waves.len() == 0 { 0 } else { REQUESTS_A_WAVE };
            while asked.len() > left || result.is_err() {
                let Some((index, id)) = asked.pop_front() else { break };
                if result.is_err() {
                    // Nobody waits for the others any more.
                    self.core.abandon(id);
                    continue;
                }
                result = self.wait_for(operation, id, patience).and_then(|answer| {
                    let Wanted { table, key, .. } = wanted(index);
                    match self.take_item(operation, table, key, answer)? {
                        Some(_) => found(self, index),
                        None => Ok(()),
                    }
                });
            }
        }
        result
    }

    pub(crate) fn send_all(&mut self) {
        for shard in 0..self.core.shards() {
            self.core.send(shard);
        }
    }

    /// Gets many items. The result has one entry a key, in order; `None`: absent.
    pub fn multi_get(&mut self, table: Table, keys: &[&[u8]]) -> Result<Vec<Option<Item>>> {
        let table = self.check_table("multi_get", table)?;
        let mut items = vec![None; keys.len()];
        let wanted = |index: usize| Wanted { table, key: keys[index], pointer: None };
        self.fetch_many("multi_get", keys.len(), wanted, |session, index| {
            items[index] = Some(session.make_item("multi_get")?);
            Ok(())
        })?;
        Ok(items)
    }

    /// Gets the values of many plain items (or their unnamed attributes) into a buffer that is reused from batch to
    /// batch, without allocating once it has grown.
    pub fn multi_get_into(&mut self, table: Table, keys: &[&[u8]], values: &mut Values) -> Result<()> {
        const OPERATION: &str = "multi_get_into";
        let table = self.check_table(OPERATION, table)?;
        values.reset(keys.len());
        self.get_values(OPERATION, table, keys, (values, 0), &mut Patience::default())
    }

    /// The values of keys whose entries begin at `base`.
    fn get_values(
        &mut self,
        operation: &'static str,
        table: TableId,
        keys: &[&[u8]],
        (values, base): (&mut Values, usize),
        patience: &mut Patience,
    ) -> Result<()> {
        self.note_operation()?;
        let (mut rest, mut missing) = (std::mem::take(&mut self.rest), std::mem::take(&mut self.missing));
        rest.clear();
        if self.core.begins_with_index() && table.kind().is_ordered() {
            self.core.reader_in_order(table).look_for_many(table, keys, (&mut *values, base), &mut rest);
        } else if self.core.begins_with_index() {
            self.core.read_many_direct(table, keys, values, base, &mut rest);
        } else {
            rest.extend(0..keys.len());
        }
        if !rest.is_empty() {
            // What is left goes the whole way, and keys that are no keys are among it.
            rest.iter().try_for_each(|index| check_key(operation, table, keys[*index]))?;
            let wanted = |index: usize| Wanted { table, key: keys[rest[index]], pointer: None };
            self.read_many(operation, rest.len(), wanted, &mut missing, patience, |slot| {
                values.set_item(base + rest[slot.index], &slot.landing);
                slot.landing.shrink();
            })?;
            self.ask_many(operation, wanted, &missing, patience, |session, index| {
                values.set_item(base + rest[index], &session.landing);
                Ok(())
            })?;
        }
        (self.rest, self.missing) = (rest, missing);
        Ok(())
    }

    /// Puts many plain items. The result has one entry an item, in order: its version, or why it failed. Once the
    /// server has failed to answer one, the rest is not sent.
    pub fn multi_put(&mut self, table: Table, items: &[(&[u8], &[u8])]) -> Result<Vec<Result<Version>>> {
        const OPERATION: &str = "multi_put";
        let table = self.check_table(OPERATION, table)?;
        let mut puts = Puts::new(OPERATION, table, items)?;
        self.note_operation()?;
        while self.send_puts(&mut puts) {
            self.end_puts(&mut puts, REQUESTS_A_WAVE);
        }
        self.end_puts(&mut puts, 0);
        Ok(puts.results)
    }

    /// Gets the values of many items, as [`Session::multi_get_into`], and puts many items, as [`Session::multi_put`], at
    /// once: the client reads while the shard writes. A get of a key that is also put finds the value before or after.
    ///
    /// An error is one of the gets; the puts have ended then too, and it says whether one may have had an effect.
    pub fn multi_get_put(
        &mut self,
        table: Table,
        keys: &[&[u8]],
        values: &mut Values,
        items: &[(&[u8], &[u8])],
    ) -> Result<Vec<Result<Version>>> {
        const OPERATION: &str = "multi_get_put";
        let table = self.check_table(OPERATION, table)?;
        let mut puts = Puts::new(OPERATION, table, items)?;
        keys.iter().try_for_each(|key| check_key(OPERATION, table, key))?;
        self.note_operation()?;
        values.reset(keys.len());
        // The gets are spread over the waves of puts, and go at once if there are none.
        let a_wave = keys.len().div_ceil(items.len().div_ceil(REQUESTS_A_WAVE).max(1)).max(1);
        let mut waves = keys.chunks(a_wave).enumerate();
        let mut outcome = Ok(());
        loop {
            let sent = self.send_puts(&mut puts);
            let wave = waves.next();
            if let Some((wave, keys)) = wave {
                let target = (&mut *values, wave * a_wave);
                outcome = self.get_values(OPERATION, table, keys, target, &mut puts.patience);
            }
            if outcome.is_err() || !sent && wave.is_none() {
                break;
            }
            self.end_puts(&mut puts, REQUESTS_A_WAVE);
        }
        self.end_puts(&mut puts, 0);
        match outcome {
            Ok(()) => Ok(puts.results),
            Err(error) if puts.results.is_empty() => Err(error),
            Err(error) => Err(error.with_effect(Effect::Unknown)),
        }
    }

    /// Sends a wave of puts, unless an earlier one was not answered. `false`: there was none left.
    fn send_puts(&mut self, puts: &mut Puts<'_>) -> bool {
        let (wave, later) = puts.items.split_at(puts.items.len().min(REQUESTS_A_WAVE));
        puts.items = later;
        for (key, value) in wave {
            let put = match puts.lost {
                None => self.begin_put(puts.operation, puts.table, key, value, &mut puts.patience),
                Some(kind) => {
                    let context = "not sent, because the server did not answer an earlier one of the batch";
                    Posted::Ended(Err(Error::new(kind, puts.operation, context)))
                }
            };
            if let Posted::Ended(answer) = &put {
                puts.lost = puts.lost.or(loss(answer));
            }
            puts.posted.push_back(put);
        }
        if wave.is_empty() {
            // Nor is there anything to send: a sleeping shard is not to be woken for it.
            return false;
        }
        self.send_all();
        true
    }

    /// Waits until no more than so many puts are under way.
    fn end_puts(&mut self, puts: &mut Puts<'_>, left: usize) {
        while puts.posted.len() > left {
            let Some(put) = puts.posted.pop_front() else { break };
            let answer = match put {
                Posted::Ended(answer) => answer,
                Posted::UnderWay(hash, request) => {
                    let answer = self.wait_for(puts.operation, request, &mut puts.patience);
                    answer.and_then(|answer| {
                        check_answer(puts.operation, &answer)?;
                        self.core.learn(hash, &answer);
                        Ok(answer)
                    })
                }
            };
            puts.lost = puts.lost.or(loss(&answer));
            puts.results.push(answer.map(|answer| Version(answer.version)));
        }
    }

    fn begin_put(
        &mut self,
        operation: &'static str,
        table: TableId,
        key: &[u8],
        value: &[u8],
        patience: &mut Patience,
    ) -> Posted {
        let (hash, shard) = self.core.route(table, key);
        let head = RequestHead::new(Op::Put, 0, table);
        if value.len() > MESSAGE_VALUE_BYTES_MAX {
            return Posted::Ended(self.write(operation, head, key, value));
        }
        match self.post(operation, shard, head, key, value, patience) {
            Ok(request) => Posted::UnderWay(hash, request),
            Err(error) => Posted::Ended(Err(error)),
        }
    }

    fn submit(&mut self, head: RequestHead, key: &[u8], value: Vec<u8>) -> Result<Ticket> {
        check_key("submit", head.table, key)?;
        check_value("submit", &head, &value)?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.queue.push_back(Queued { ticket, head, key: key.to_vec(), value });
        Ok(ticket)
    }

    fn submit_head(&self, op: Op, table: Table) -> Result<RequestHead> {
        Ok(RequestHead::new(op, 0, self.check_table("submit", table)?))
    }

    /// Submits a get. It begins with the next [`Session::poll`], together with all others submitted until then.
    pub fn submit_get(&mut self, table: Table, key: &[u8]) -> Result<Ticket> {
        self.submit(self.submit_head(Op::Get, table)?, key, Vec::new())
    }

    /// Submits a put.
    pub fn submit_put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<Ticket> {
        self.submit(self.submit_head(Op::Put, table)?, key, value.to_vec())
    }

    /// Submits a put of an item with attributes and links. Waits only where the server has yet to be asked for the
    /// number of an attribute's name.
    pub fn submit_item(&mut self, table: Table, key: &[u8], item: &NewItem) -> Result<Ticket> {
        let table = self.check_table("submit", table)?;
        let (head, body) = self.encode_item("submit", table, None, item)?;
        self.submit(head, key, body.into_owned())
    }

    /// Submits a delete.
    pub fn submit_delete(&mut self, table: Table, key: &[u8]) -> Result<Ticket> {
        self.submit(self.submit_head(Op::Delete, table)?, key, Vec::new())
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
        if self.announced {
            // Wake-ups that came are over now, and so is a server that went.
            self.core.fabric.look();
            self.core.fabric.sleep(Some(0));
            self.announced = false;
        }
        self.connect_for_poll();
        loop {
            self.move_on()?;
            completions.extend(self.finished.drain(..));
            if completions.len() > before || self.outstanding() == 0 {
                break;
            }
            // What came before the announcement wakes nobody, so there is one more look after it.
            if self.announced && !self.core.fabric.unseen() {
                break;
            }
            self.core.fabric.announce_sleep();
            self.announced = true;
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
        let unsent: usize = self.unsent.iter().map(VecDeque::len).sum();
        let reading = self.readings.iter().flatten().count();
        self.queue.len() + reading + unsent + self.waiting.len() + self.finished.len()
    }

    /// Begins what was submitted, as far as there is room: gets are read one-sidedly, the rest is to be sent. Returns whether
    /// that was anything.
    fn begin_queued(&mut self) -> bool {
        let mut began = false;
        while let Some(queued) = self.queue.pop_front() {
            if queued.head.op != Op::Get || self.core.path == Path::Message {
                self.ask_for(queued);
            } else if let Some(index) = self.room_for_reading() {
                self.begin_reading(index, queued);
            } else {
                self.queue.push_front(queued);
                break;
            }
            began = true;
        }
        began
    }

    fn room_for_reading(&mut self) -> Option<usize> {
        let free = self.readings.iter().position(Option::is_none);
        if free.is_none() && self.readings.len() < SESSION_READS_MAX {
            self.readings.push(None);
            return Some(self.readings.len() - 1);
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
            if let Err(error) = self.copy_models("poll", table, route.1) {
                return self.finish(queued.ticket, Err(error));
            }
        }
        let known = self.core.known_pointer(route.0);
        let op = self.core.start_read(SUBMITTED + index as u32, (table, &queued.key), route, known);
        let (landing, connection) = (Landing::default(), self.connections);
        self.readings[index] = Some(Reading { queued, op, known, landing, since_ns, connection });
    }

    /// Goes on with the gets that are being read. Returns whether one of them has ended, so that there is room for another.
    fn advance_readings(&mut self) -> bool {
        let mut ended = false;
        let now_ns = self.core.fabric.now_ns();
        for index in 0..self.readings.len() {
            let Some(mut reading) = self.readings[index].take() else { continue };
            match self.advance_reading(&mut reading, now_ns) {
                None => self.readings[index] = Some(reading),
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
        let mut lost = std::mem::replace(connection, self.connections) != self.connections;
        let step = loop {
            let posted = op.cost().reads;
            let step = match std::mem::take(&mut lost) {
                false => self.core.advance_read(op, &queued.key, landing),
                true => self.core.restart_read(op, &queued.key),
            };
            match step {
                Step::UnknownSegment => match self.renew_map(op, &queued.key) {
                    Ok(true) => {}
                    Ok(false) => break Step::Ask,
                    Err(error) => return Some(Err(error)),
                },
                // What was posted may be done already: nothing tells of it then.
                Step::Pending if op.cost().reads != posted => {}
                step => break step,
            }
        };
        if step == Step::Pending {
            return self.given_up(*since_ns, now_ns).map(Err);
        }
        self.core.finish_read(op, *known);
        Some(match step {
            Step::Valid => {
                std::mem::swap(&mut self.landing, landing);
                self.make_item("get").map(|item| Some(Outcome::Item(Some(item))))
            }
            Step::Absent => Ok(Some(Outcome::Item(None))),
            Step::Superseded => Err(Session::superseded("poll")),
            Step::NoMemory => Err(no_memory("poll")),
            _ => {
                self.core.total.fallbacks += 1;
                Ok(None)
            }
        })
    }

    /// Why something is not waited for any longer, which was begun then.
    fn given_up(&self, since_ns: u64, now_ns: u64) -> Option<Error> {
        let waited = Duration::from_nanos(now_ns - since_ns);
        match self.check_server("poll") {
            // A server that is superseded gives no more answers; one that has gone may be found again.
            Err(error) if self.caller.is_none() || error.kind() == ErrorKind::Superseded => Some(error),
            _ if waited >= self.limit() => Some(self.timed_out("poll")),
            _ => None,
        }
    }

    fn finish(&mut self, ticket: Ticket, outcome: Result<Outcome>) {
        self.finished.push_back(Completion { ticket, outcome });
    }

    fn ask_for(&mut self, queued: Queued) {
        let (_, shard) = self.core.route(queued.head.table, &queued.key);
        self.unsent[shard].push_back(queued);
    }

    /// Sends as much as finds room.
    fn send_unsent(&mut self) {
        if self.unsent.iter().all(VecDeque::is_empty) {
            return;
        }
        let lost = self.check_server("poll").err();
        if lost.is_some() && self.caller.is_some() {
            return self.end_unsent();
        }
        let mut sent_large = false;
        for shard in 0..self.unsent.len() {
            while let Some(queued) = self.unsent[shard].pop_front() {
                let large = queued.value.len() > MESSAGE_VALUE_BYTES_MAX;
                let posted = if let Some(error) = &lost {
                    Err(PostError::Failed(Error::new(error.kind(), "poll", error.context())))
                } else if !large {
                    self.core.post(shard, queued.head, &queued.key, &queued.value, true)
                } else if !sent_large {
                    sent_large = true;
                    let answer = self.write("put", queued.head, &queued.key, &queued.value);
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
                        self.sending = Patience::default();
                        let since_ns = self.core.fabric.now_ns();
                        self.waiting.push(Waiting { queued, id, since_ns });
                    }
                    Err(PostError::Failed(error)) if self.caller.is_some() && is_passing(&error) => {
                        // The next poll sees to the connection.
                        self.unsent[shard].push_front(queued);
                        break;
                    }
                    Err(PostError::Full) => {
                        self.unsent[shard].push_front(queued);
                        break;
                    }
                    Err(PostError::Failed(error)) => self.finish(queued.ticket, Err(error)),
                }
            }
        }
        self.send_all();
        self.end_unsent();
    }

    /// Gives up what could not be sent for too long.
    fn end_unsent(&mut self) {
        if self.unsent.iter().any(|unsent| !unsent.is_empty())
            && self.sending.waited(self.core.fabric.now_ns()) >= self.limit()
        {
            for queued in self.unsent.iter_mut().flat_map(std::mem::take).collect::<Vec<_>>() {
                self.finish(queued.ticket, Err(self.timed_out("poll")));
            }
        }
    }

    /// Turns answers that have arrived into completions.
    fn collect(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.core.poll_replies()?;
        self.note_broken();
        let now_ns = self.core.fabric.now_ns();
        for Waiting { queued, id, since_ns } in std::mem::take(&mut self.waiting) {
            let outcome = if let Some(answer) = self.core.take(id) {
                self.sending = Patience::default();
                self.believe("poll", answer).and_then(|answer| self.outcome_of(&queued, answer))
            } else if let Some(error) = self.given_up(since_ns, now_ns) {
                let effect = if self.core.abandon(id) { Effect::Unknown } else { Effect::No };
                Err(error.with_effect(effect))
            } else {
                self.waiting.push(Waiting { queued, id, since_ns });
                continue;
            };
            self.finish(queued.ticket, outcome);
        }
        Ok(())
    }

    fn outcome_of(&mut self, queued: &Queued, answer: Answer) -> Result<Outcome> {
        check_answer("poll", &answer)?;
        let route = self.core.route(queued.head.table, &queued.key);
        self.core.learn(route.0, &answer);
        match queued.head.op {
            Op::Put => Ok(Outcome::Written(Version(answer.version))),
            Op::Delete => Ok(Outcome::Deleted(answer.status == Status::Ok)),
            _ => {
                let found = self.take_item("get", queued.head.table, &queued.key, answer)?;
                let item = found.map(|_| self.make_item("get")).transpose()?;
                Ok(Outcome::Item(item))
            }
        }
    }
}
