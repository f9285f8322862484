//! Many operations at once: batches, and submit and poll.
//!
//! Operations of one batch have no order among each other. Their memory accesses and messages overlap.

use std::time::Instant;

use kelix_fabric::Fabric;
use kelix_types::limits::{MESSAGE_VALUE_BYTES_MAX, SESSION_READS_MAX};
use kelix_types::{Effect, Error, ErrorKind, Result, TableId, Version};
use kelix_wire::{Op, RequestHead, Status};

use crate::Table;
use crate::core::{Answer, Path, RequestId};
use crate::item::{Item, NewItem, Values};
use crate::pointers::Pointer;
use crate::read::{Landing, ReadOp, Step};
use crate::session::{Session, check_answer, check_key};

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
    since: Instant,
}

/// One of the reads of a batch.
#[derive(Default)]
pub(crate) struct ReadSlot {
    op: Option<ReadOp>,
    known: Option<Pointer>,
    found: Option<Pointer>,
    landing: Landing,
}

impl Session {
    /// Reads up to [`SESSION_READS_MAX`] items one-sidedly, their READs overlapping, and calls `found` with each;
    /// `missing` receives the indices of those that the shard must be asked for.
    fn read_wave<'k>(
        &mut self,
        operation: &'static str,
        count: usize,
        wanted: impl Fn(usize) -> Wanted<'k>,
        missing: &mut Vec<usize>,
        mut found: impl FnMut(usize, &ReadSlot),
    ) -> Result<()> {
        missing.clear();
        if self.core.path == Path::Message {
            missing.extend(0..count);
            return Ok(());
        }
        let mut slots = std::mem::take(&mut self.slots);
        if slots.len() < count {
            slots.resize_with(count, ReadSlot::default);
        }
        for (index, slot) in slots[..count].iter_mut().enumerate() {
            let Wanted { table, key, pointer } = wanted(index);
            let route = self.core.route(table, key);
            slot.known = pointer.or_else(|| self.core.known_pointer(route.0));
            slot.op = Some(self.core.start_read(index as u32, table, route, slot.known));
        }
        let mut result = Ok(());
        let mut under_way = count;
        while under_way > 0 {
            for (index, slot) in slots[..count].iter_mut().enumerate() {
                let Some(op) = slot.op.as_mut() else { continue };
                let step = self.core.advance_read(op, wanted(index).key, &mut slot.landing);
                let valid = match step {
                    Step::Pending => continue,
                    Step::Valid => true,
                    Step::Ask => false,
                    Step::UnknownSegment => match self.renew_map(op) {
                        Ok(true) => continue,
                        Ok(false) => false,
                        Err(error) => {
                            result = Err(error);
                            false
                        }
                    },
                    Step::Superseded => {
                        result = Err(Session::superseded(operation));
                        false
                    }
                };
                under_way -= 1;
                self.core.finish_read(op, slot.known);
                slot.found = op.pointer;
                slot.op = None;
                if valid {
                    found(index, slot);
                } else {
                    self.core.total.fallbacks += 1;
                    missing.push(index);
                }
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
                check_key(operation, wanted(index).key)?;
            }
            self.note_operation()?;
            let mut valid = Vec::with_capacity(here);
            self.read_wave(operation, here, wanted, &mut missing, |index, _| valid.push(index))?;
            for index in valid {
                let slot = &mut self.slots[index];
                std::mem::swap(&mut self.landing, &mut slot.landing);
                self.pointer = slot.found;
                found(self, base + index)?;
            }
            self.ask_many(operation, wanted, &missing, |session, index| found(session, base + index))?;
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
        mut found: impl FnMut(&mut Session, usize) -> Result<()>,
    ) -> Result<()> {
        if missing.is_empty() {
            // Nor is there anything to send: a sleeping shard is not to be woken for it.
            return Ok(());
        }
        let mut asked: Vec<RequestId> = Vec::with_capacity(missing.len());
        for index in missing {
            let Wanted { table, key, .. } = wanted(*index);
            let (_, shard) = self.core.route(table, key);
            asked.push(self.post(operation, shard, RequestHead::new(Op::Get, 0, table), key, &[])?);
        }
        self.send_all();
        for (index, id) in missing.iter().zip(asked) {
            let answer = self.wait_for(operation, id)?;
            let Wanted { table, key, .. } = wanted(*index);
            if self.take_item(operation, table, key, answer)?.is_some() {
                found(self, *index)?;
            }
        }
        Ok(())
    }

    fn send_all(&mut self) {
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
        let (mut rest, mut missing) = (std::mem::take(&mut self.rest), std::mem::take(&mut self.missing));
        for (wave, keys) in keys.chunks(SESSION_READS_MAX).enumerate() {
            let base = wave * SESSION_READS_MAX;
            for key in keys {
                check_key(OPERATION, key)?;
            }
            self.note_operation()?;
            rest.clear();
            if self.core.begins_with_index() {
                self.core.read_many_direct(table, keys, &mut self.landing, &mut rest, |index, landing| {
                    values.set_item(base + index, landing);
                });
            } else {
                rest.extend(0..keys.len());
            }
            if rest.is_empty() {
                continue;
            }
            // What is left goes the whole way.
            let wanted = |index: usize| Wanted { table, key: keys[rest[index]], pointer: None };
            self.read_wave(OPERATION, rest.len(), wanted, &mut missing, |index, slot| {
                values.set_item(base + rest[index], &slot.landing);
            })?;
            self.ask_many(OPERATION, wanted, &missing, |session, index| {
                values.set_item(base + rest[index], &session.landing);
                Ok(())
            })?;
        }
        (self.rest, self.missing) = (rest, missing);
        Ok(())
    }

    /// Puts many plain items. The result has one entry an item, in order: its version, or why it failed.
    pub fn multi_put(&mut self, table: Table, items: &[(&[u8], &[u8])]) -> Result<Vec<Result<Version>>> {
        let id = self.check_table("multi_put", table)?;
        for (key, _) in items {
            check_key("multi_put", key)?;
        }
        self.note_operation()?;
        let mut results: Vec<Result<Version>> = Vec::with_capacity(items.len());
        for items in items.chunks(SESSION_READS_MAX) {
            let mut posted = Vec::with_capacity(items.len());
            for (key, value) in items {
                let (hash, shard) = self.core.route(id, key);
                let head = RequestHead::new(Op::Put, 0, id);
                posted.push(if value.len() > MESSAGE_VALUE_BYTES_MAX {
                    Err(self.write("multi_put", head, key, value))
                } else {
                    Ok((hash, self.post("multi_put", shard, head, key, value)?))
                });
            }
            self.send_all();
            for posted in posted {
                let answer = match posted {
                    Err(answer) => answer,
                    Ok((hash, request)) => self.wait_for("multi_put", request).and_then(|answer| {
                        check_answer("multi_put", &answer)?;
                        self.core.learn(hash, &answer);
                        Ok(answer)
                    }),
                };
                results.push(answer.map(|answer| Version(answer.version)));
            }
        }
        Ok(results)
    }

    fn submit(&mut self, head: RequestHead, key: &[u8], value: Vec<u8>) -> Result<Ticket> {
        check_key("submit", key)?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.queue.push(Queued { ticket, head, key: key.to_vec(), value });
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

    /// Begins what was submitted and moves what has ended to `completions`; returns how many. Does not wait. After
    /// a poll that returned 0, [`Session::fd`] becomes readable when there is more.
    ///
    /// The session's other calls listen on the same descriptor: after one of them, poll before waiting for it again.
    pub fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize> {
        let before = completions.len();
        self.begin_queued()?;
        self.core.fabric.sleep(Some(0));
        self.core.fabric.look();
        self.collect()?;
        completions.extend(self.finished.drain(..));
        if completions.len() == before && !self.waiting.is_empty() {
            self.core.fabric.announce_sleep();
            self.collect()?;
            completions.extend(self.finished.drain(..));
        }
        Ok(completions.len() - before)
    }

    /// How many submitted operations have not been returned by [`Session::poll`] yet.
    pub fn outstanding(&self) -> usize {
        self.queue.len() + self.waiting.len() + self.finished.len()
    }

    fn begin_queued(&mut self) -> Result<()> {
        let (gets, queue): (Vec<Queued>, Vec<Queued>) =
            std::mem::take(&mut self.queue).into_iter().partition(|queued| queued.head.op == Op::Get);
        let mut unread = Vec::new();
        let mut gets = gets.into_iter().peekable();
        while gets.peek().is_some() {
            let wave: Vec<Queued> = gets.by_ref().take(SESSION_READS_MAX).collect();
            let wanted =
                |index: usize| Wanted { table: wave[index].head.table, key: &wave[index].key, pointer: None };
            let (mut valid, mut missing) = (Vec::new(), Vec::new());
            let read = self.note_operation().and_then(|()| {
                self.read_wave("get", wave.len(), wanted, &mut missing, |index, _| valid.push(index))
            });
            if let Err(error) = read {
                // Every ticket ends, and each with the reason.
                for queued in wave {
                    let outcome = Err(Error::new(error.kind(), "poll", error.context()));
                    self.finished.push_back(Completion { ticket: queued.ticket, outcome });
                }
                continue;
            }
            for index in valid {
                let slot = &mut self.slots[index];
                std::mem::swap(&mut self.landing, &mut slot.landing);
                let outcome = self.make_item("get").map(|item| Outcome::Item(Some(item)));
                self.finished.push_back(Completion { ticket: wave[index].ticket, outcome });
            }
            let asked = wave.into_iter().enumerate().filter(|(index, _)| missing.contains(index));
            unread.extend(asked.map(|(_, queued)| queued));
        }
        if unread.is_empty() && queue.is_empty() {
            return Ok(());
        }
        for queued in unread.into_iter().chain(queue) {
            let (_, shard) = self.core.route(queued.head.table, &queued.key);
            if queued.value.len() > MESSAGE_VALUE_BYTES_MAX {
                let answer = self.write("put", queued.head, &queued.key, &queued.value);
                let outcome = answer.map(|answer| Outcome::Written(Version(answer.version)));
                self.finished.push_back(Completion { ticket: queued.ticket, outcome });
                continue;
            }
            match self.post("submit", shard, queued.head, &queued.key, &queued.value) {
                Ok(id) => self.waiting.push(Waiting { queued, id, since: Instant::now() }),
                Err(error) => {
                    self.finished.push_back(Completion { ticket: queued.ticket, outcome: Err(error) })
                }
            }
        }
        self.send_all();
        Ok(())
    }

    /// Turns answers that have arrived into completions.
    fn collect(&mut self) -> Result<()> {
        self.core.poll_replies()?;
        let broken = self.core.fabric.is_broken(self.core.peer(0));
        let in_force = self.core.in_force();
        let waiting = std::mem::take(&mut self.waiting);
        for Waiting { queued, id, since } in waiting {
            let late = since.elapsed() > self.options.timeout;
            let outcome = match self.core.take(id) {
                Some(_) if !in_force => Err(Self::superseded("poll").with_effect(Effect::Unknown)),
                Some(answer) => self.outcome_of(&queued, answer),
                None if broken || !in_force || late => {
                    let effect = if self.core.abandon(id) { Effect::Unknown } else { Effect::No };
                    let error = if !in_force {
                        Self::superseded("poll")
                    } else if broken {
                        let context = "the server has gone before it answered";
                        Error::new(ErrorKind::Unavailable, "poll", context)
                    } else {
                        Error::new(ErrorKind::TimedOut, "poll", "no answer in time; is the server stopped?")
                    };
                    Err(error.with_effect(effect))
                }
                None => {
                    self.waiting.push(Waiting { queued, id, since });
                    continue;
                }
            };
            self.finished.push_back(Completion { ticket: queued.ticket, outcome });
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
