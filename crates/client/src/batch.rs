//! Many operations at once.
//!
//! Operations of one batch have no order among each other. Their memory accesses and messages overlap.

use std::collections::VecDeque;

use kelix_fabric::Fabric;
use kelix_types::limits::{MESSAGE_VALUE_BYTES_MAX, SESSION_READS_MAX};
use kelix_types::{Effect, Error, ErrorKind, KeyHash, Result, TableId, Version};
use kelix_wire::{Op, RequestHead};

use crate::Table;
use crate::connection::End;
use crate::core::{Answer, Path, RequestId};
use crate::item::{Item, Values};
use crate::pointers::Pointer;
use crate::read::{Landing, ReadOp};
use crate::session::{Session, check_answer, check_key};
use crate::views::{BoundTable, IN_FORCE, is_between};
use crate::waiting::Patience;
use crate::writes::check_value;

/// One put of a batch.
enum Posted {
    UnderWay(KeyHash, RequestId),
    Ended(Result<Answer>),
}

/// The puts of a batch: those to come, those under way, and how the others ended.
struct Puts<'p> {
    /// Named in the error of each put.
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
            check_key(table, key)?;
            check_value(&RequestHead::new(Op::Put, 0, table), value)
        })?;
        let posted = VecDeque::with_capacity(items.len().min(2 * REQUESTS_A_WAVE));
        let results = Vec::with_capacity(items.len());
        Ok(Puts { operation, table, items, posted, results, patience: Patience::default(), lost: None })
    }
}

/// What kind of error this is, if it says that the server does not answer.
fn loss<T>(result: &Result<T>) -> Option<ErrorKind> {
    let kind = result.as_ref().err()?.kind();
    let answered = matches!(
        kind,
        ErrorKind::OutOfMemory
            | ErrorKind::InvalidArgument
            | ErrorKind::Denied
            | ErrorKind::Frozen
            | ErrorKind::ViewExpired
    );
    if answered { None } else { Some(kind) }
}

/// An item that is looked for: by key, and first by a pointer if one is known.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'k> {
    pub table: TableId,
    pub key: &'k [u8],
    pub pointer: Option<Pointer>,
}

/// READs of a batch between two doorbells: while this side goes on to the next, the other can begin.
const READS_A_BELL: usize = 128;
/// How many keys ahead pointers are prefetched.
const PREFETCHED: usize = 16;
/// Requests of a batch that are sent together. Twice as many are under way, so that the shard is never without.
const REQUESTS_A_WAVE: usize = 64;

/// One of the reads of a batch.
#[derive(Default)]
struct ReadSlot {
    /// Which item of the batch.
    index: usize,
    op: Option<ReadOp>,
    known: Option<Pointer>,
    found: Option<Pointer>,
    landing: Landing,
}

/// What batches read into and what is left of them, kept from batch to batch.
#[derive(Default)]
pub(crate) struct BatchBuffers {
    slots: Vec<ReadSlot>,
    rest: Vec<usize>,
    missing: Vec<usize>,
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
            self.copy_models(table, self.core.route(table, key).1)?;
        }
        let mut slots = std::mem::take(&mut self.batch.slots);
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
                let Session { core, connection, handles, .. } = &mut *self;
                let key = wanted(slot.index).key;
                let advanced =
                    connection.advance(core, handles, op, key, &mut slot.landing, (slot.known, anew));
                let end = match advanced {
                    Ok(None) => continue,
                    Ok(Some(end)) => end,
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                };
                ended += 1;
                read_nothing |= op.cost().reads == 0;
                slot.found = op.pointer;
                slot.op = None;
                match end {
                    End::Found => found(slot),
                    End::Absent => {}
                    End::Ask => {
                        self.core.total.fallbacks += 1;
                        missing.push(slot.index);
                    }
                }
                if begun < count {
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
                let progress = self.until_progress(patience);
                anew = matches!(progress, Ok(true));
                result = progress.map(drop);
            }
        }
        self.batch.slots = slots;
        result
    }

    /// Fetches many items, one-sidedly or by message, and calls `found` with the index of each once it is in
    /// `self.landing`. `wanted` has to name the same items each time.
    pub(crate) fn fetch_many<'k>(
        &mut self,
        count: usize,
        wanted: impl Fn(usize) -> Wanted<'k>,
        mut found: impl FnMut(&mut Session, usize) -> Result<()>,
    ) -> Result<()> {
        let mut missing = Vec::new();
        for base in (0..count).step_by(SESSION_READS_MAX) {
            let here = SESSION_READS_MAX.min(count - base);
            let wanted = |index: usize| wanted(base + index);
            for index in 0..here {
                check_key(wanted(index).table, wanted(index).key)?;
            }
            self.note_operation()?;
            let mut valid = Vec::with_capacity(here);
            // No more than there are slots, so that each item has its own until here.
            let patience = &mut Patience::default();
            self.read_many(here, wanted, &mut missing, patience, |slot| valid.push(slot.index))?;
            for index in valid {
                let slot = &mut self.batch.slots[index];
                std::mem::swap(&mut self.landing, &mut slot.landing);
                self.pointer = slot.found;
                found(self, base + index)?;
            }
            self.ask_many(wanted, &missing, patience, |session, index| found(session, base + index))?;
        }
        Ok(())
    }

    /// Asks the shards for the items at the indices in `missing`, all at once; calls `found` with the index of each
    /// that exists, once it is in `self.landing`.
    fn ask_many<'k>(
        &mut self,
        wanted: impl Fn(usize) -> Wanted<'k>,
        missing: &[usize],
        patience: &mut Patience,
        mut found: impl FnMut(&mut Session, usize) -> Result<()>,
    ) -> Result<()> {
        let mut answered = 0;
        let result = self.ask_shards(&wanted, missing, patience, |session, index, exists| {
            answered += 1;
            if exists { found(session, index) } else { Ok(()) }
        });
        let Err(error) = result else { return Ok(()) };
        let Some(rest) = missing.get(answered..).filter(|rest| !rest.is_empty()) else { return Err(error) };
        if !self.is_alone(wanted(rest[0]).table, &error) {
            return Err(error);
        }
        rest.iter().try_for_each(|index| {
            let Wanted { table, key, .. } = wanted(*index);
            match self.fetch(table, key)? {
                Some(_) => found(self, *index),
                None => Ok(()),
            }
        })
    }

    /// Asks the shards only; calls `answered` with the index of each, and whether its item exists.
    fn ask_shards<'k>(
        &mut self,
        wanted: impl Fn(usize) -> Wanted<'k>,
        missing: &[usize],
        patience: &mut Patience,
        mut answered: impl FnMut(&mut Session, usize, bool) -> Result<()>,
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
                match self.post(shard, head, key, &[], patience) {
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
                result = self.wait_for(id, patience).and_then(|answer| {
                    let Wanted { table, key, .. } = wanted(index);
                    let item = self.take_item(table, key, answer)?;
                    answered(self, index, item.is_some())
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
        self.read_table("multi_get", table, |session, BoundTable { id: table, generation }| {
            let mut items = vec![None; keys.len()];
            let wanted = |index: usize| Wanted { table, key: keys[index], pointer: None };
            session.fetch_many(keys.len(), wanted, |session, index| {
                items[index] = Some(session.make_item(generation)?);
                Ok(())
            })?;
            Ok(items)
        })
    }

    /// Gets the values of many plain items (or their unnamed attributes) into a buffer that is reused from batch to
    /// batch, without allocating once it has grown.
    pub fn multi_get_into(&mut self, table: Table, keys: &[&[u8]], values: &mut Values) -> Result<()> {
        self.read_table("multi_get_into", table, |session, table| {
            values.reset(keys.len());
            session.get_values(table.id, keys, (values, 0), &mut Patience::default())
        })
    }

    /// The values of keys whose entries begin at `base`.
    fn get_values(
        &mut self,
        table: TableId,
        keys: &[&[u8]],
        (values, base): (&mut Values, usize),
        patience: &mut Patience,
    ) -> Result<()> {
        self.note_operation()?;
        let (mut rest, mut missing) =
            (std::mem::take(&mut self.batch.rest), std::mem::take(&mut self.batch.missing));
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
            rest.iter().try_for_each(|index| check_key(table, keys[*index]))?;
            let wanted = |index: usize| Wanted { table, key: keys[rest[index]], pointer: None };
            self.read_many(rest.len(), wanted, &mut missing, patience, |slot| {
                values.set_item(base + rest[slot.index], &slot.landing);
                slot.landing.shrink();
            })?;
            self.ask_many(wanted, &missing, patience, |session, index| {
                values.set_item(base + rest[index], &session.landing);
                Ok(())
            })?;
        }
        (self.batch.rest, self.batch.missing) = (rest, missing);
        Ok(())
    }

    /// Puts many plain items. The result has one entry an item, in order: its version, or why it failed. Once the
    /// server has failed to answer one, the rest is not sent.
    pub fn multi_put(&mut self, table: Table, items: &[(&[u8], &[u8])]) -> Result<Vec<Result<Version>>> {
        const OPERATION: &str = "multi_put";
        self.operate(OPERATION, |session| {
            let BoundTable { id, .. } = session.check_table(table)?;
            let mut puts = Puts::new(OPERATION, id, items)?;
            session.note_operation()?;
            while session.send_puts(&mut puts) {
                session.end_puts(&mut puts, REQUESTS_A_WAVE);
            }
            session.end_puts(&mut puts, 0);
            Ok(session.put_after_switch(table, items, puts.results))
        })
    }

    /// Puts again what came between two generations of a table.
    #[inline]
    fn put_after_switch(
        &mut self,
        table: Table,
        items: &[(&[u8], &[u8])],
        mut results: Vec<Result<Version>>,
    ) -> Vec<Result<Version>> {
        if table.generation == IN_FORCE {
            for ((key, value), result) in items.iter().zip(&mut results) {
                if result.as_ref().is_err_and(is_between) {
                    *result = self.put(table, key, value);
                }
            }
        }
        results
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
        self.operate(OPERATION, |session| {
            let BoundTable { id, generation } = session.check_table(table)?;
            let mut puts = Puts::new(OPERATION, id, items)?;
            keys.iter().try_for_each(|key| check_key(id, key))?;
            session.note_operation()?;
            values.reset(keys.len());
            // The gets are spread over the waves of puts, and go at once if there are none.
            let a_wave = keys.len().div_ceil(items.len().div_ceil(REQUESTS_A_WAVE).max(1)).max(1);
            let mut waves = keys.chunks(a_wave).enumerate();
            let mut outcome = Ok(());
            loop {
                let sent = session.send_puts(&mut puts);
                let wave = waves.next();
                if let Some((wave, keys)) = wave {
                    let target = (&mut *values, wave * a_wave);
                    outcome = session.get_values(id, keys, target, &mut puts.patience);
                }
                if outcome.is_err() || !sent && wave.is_none() {
                    break;
                }
                session.end_puts(&mut puts, REQUESTS_A_WAVE);
            }
            session.end_puts(&mut puts, 0);
            match outcome.and_then(|()| session.check_generation(generation)) {
                Ok(()) => Ok(session.put_after_switch(table, items, puts.results)),
                Err(error) if puts.results.is_empty() => Err(error),
                Err(error) => Err(error.with_effect(Effect::Unknown)),
            }
        })
    }

    /// Sends a wave of puts, unless an earlier one was not answered. `false`: there was none left.
    fn send_puts(&mut self, puts: &mut Puts<'_>) -> bool {
        let (wave, later) = puts.items.split_at(puts.items.len().min(REQUESTS_A_WAVE));
        puts.items = later;
        for (key, value) in wave {
            let put = match puts.lost {
                None => self.begin_put(puts.table, key, value, &mut puts.patience),
                Some(kind) => {
                    let context = "not sent, because the server did not answer an earlier one of the batch";
                    Posted::Ended(Err(Error::unnamed(kind, context)))
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
                    let answer = self.wait_for(request, &mut puts.patience);
                    answer.and_then(|answer| {
                        check_answer(&answer)?;
                        self.core.learn(hash, &answer);
                        Ok(answer)
                    })
                }
            };
            puts.lost = puts.lost.or(loss(&answer));
            let operation = puts.operation;
            puts.results.push(match answer {
                Ok(answer) => Ok(Version(answer.version)),
                Err(error) => Err(error.of(operation)),
            });
        }
    }

    fn begin_put(&mut self, table: TableId, key: &[u8], value: &[u8], patience: &mut Patience) -> Posted {
        let (hash, shard) = self.core.route(table, key);
        let head = RequestHead::new(Op::Put, 0, table);
        if value.len() > MESSAGE_VALUE_BYTES_MAX {
            return Posted::Ended(self.write(head, key, value));
        }
        match self.post(shard, head, key, value, patience) {
            Ok(request) => Posted::UnderWay(hash, request),
            Err(error) => Posted::Ended(Err(error)),
        }
    }
}
