//! Many operations at once.
//!
//! Operations of one batch have no order among each other. Their memory accesses and messages overlap.

use kelix_fabric::WorkQueue;
use kelix_types::limits::SESSION_READS_MAX;
use kelix_types::{Effect, Result, TableId, Version};

use crate::Table;
use crate::catalogue::{BoundTable, IN_FORCE, is_between};
use crate::engine::{Engine, Fetch, Patience, Wanted, check_key};
use crate::item::{Item, Values};
use crate::puts::{PUTS_A_WAVE, Puts};
use crate::read::Landing;
use crate::session::Session;
use crate::transport::{Path, PostError};

/// READs of a batch between two doorbells: while this side goes on to the next, the other can begin.
const READS_A_BELL: usize = 128;
/// How many keys ahead pointers are prefetched.
const PREFETCHED: usize = 16;
/// Requests of gets that are sent together. Twice as many are under way, so that the shard is never without.
const REQUESTS_A_WAVE: usize = 64;

/// One of the gets of a batch.
#[derive(Default)]
struct Slot {
    /// Which item of the batch.
    index: usize,
    fetch: Option<Fetch>,
    landing: Landing,
}

/// What batches fetch into, kept from batch to batch.
#[derive(Default)]
pub(crate) struct Batch {
    slots: Vec<Slot>,
    /// Keys of a batch that are not the common case.
    rest: Vec<usize>,
}

/// The gets of a batch that are under way.
#[derive(Clone, Copy, Default)]
struct UnderWay {
    begun: usize,
    ended: usize,
    /// Requests that are not answered yet.
    asked: usize,
}

impl Batch {
    /// Fetches items and calls `found` with the slot of each that exists: [`SESSION_READS_MAX`] are under way
    /// at once, and another begins where one has ended. `wanted` has to name the same items each time.
    fn fetch<'k>(
        &mut self,
        engine: &mut Engine,
        count: usize,
        wanted: impl Fn(usize) -> Wanted<'k>,
        patience: &mut Patience,
        mut found: impl FnMut(&mut Slot),
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let Wanted { table, key, .. } = wanted(0);
        if table.kind().is_ordered() {
            engine.copy_models_for_gets(table, engine.transport.route(table, key).1)?;
        }
        let at_once = count.min(SESSION_READS_MAX);
        if self.slots.len() < at_once {
            self.slots.resize_with(at_once, Slot::default);
        }
        let slots = &mut self.slots[..at_once];
        let mut under_way = UnderWay::default();
        let fetched = fetch_all(engine, slots, (count, &wanted), patience, &mut under_way, &mut found);
        let Err(error) = fetched else { return Ok(()) };
        let mut left = Vec::new();
        for (at, slot) in slots.iter_mut().enumerate() {
            if let Some(mut fetch) = slot.fetch.take() {
                fetch.abandon(engine);
                left.push((at, slot.index));
            }
        }
        if !engine.is_alone(table, &error) {
            return Err(error);
        }
        // The last state of a server that has gone is looked through for one after the other, each in its own
        // slot.
        left.extend((under_way.begun..count).map(|index| (0, index)));
        for (at, index) in left {
            let slot = &mut slots[at];
            slot.index = index;
            if engine.fetch(wanted(index), &mut slot.landing)?.is_some() {
                found(slot);
            }
        }
        Ok(())
    }

    /// Fetches many items, and calls `found` with the index of each that exists and where it has landed. By
    /// then none is under way, so `found` may wait for something else.
    pub fn fetch_many<'k>(
        &mut self,
        engine: &mut Engine,
        count: usize,
        wanted: impl Fn(usize) -> Wanted<'k>,
        mut found: impl FnMut(&mut Engine, usize, &mut Landing) -> Result<()>,
    ) -> Result<()> {
        for base in (0..count).step_by(SESSION_READS_MAX) {
            // No more than there are slots, so that each item has its own until all have ended.
            let here = SESSION_READS_MAX.min(count - base);
            let wanted = |index: usize| wanted(base + index);
            for index in 0..here {
                check_key(wanted(index).table, wanted(index).key)?;
            }
            engine.note_operation()?;
            let mut exist = Vec::with_capacity(here);
            let patience = &mut Patience::default();
            self.fetch(engine, here, wanted, patience, |slot| exist.push(slot.index))?;
            for index in exist {
                found(engine, base + index, &mut self.slots[index].landing)?;
            }
        }
        Ok(())
    }

    /// The values of keys whose entries begin at `base`.
    fn fetch_values(
        &mut self,
        engine: &mut Engine,
        table: TableId,
        keys: &[&[u8]],
        (values, base): (&mut Values, usize),
        patience: &mut Patience,
    ) -> Result<()> {
        engine.note_operation_of(table, keys.iter().copied())?;
        let mut rest = std::mem::take(&mut self.rest);
        rest.clear();
        let transport = &mut engine.transport;
        if transport.begins_with_index() && table.kind().is_ordered() {
            transport.reader_in_order(table).look_for_many(table, keys, (&mut *values, base), &mut rest);
        } else if transport.begins_with_index() {
            transport.read_many_direct(table, keys, values, base, &mut rest);
        } else {
            rest.extend(0..keys.len());
        }
        let mut fetched = Ok(());
        if !rest.is_empty() {
            // What is left goes the whole way, and keys that are no keys are among it.
            rest.iter().try_for_each(|index| check_key(table, keys[*index]))?;
            let wanted = |index: usize| Wanted { table, key: keys[rest[index]], pointer: None };
            fetched = self.fetch(engine, rest.len(), wanted, patience, |slot| {
                values.set_item(base + rest[slot.index], &slot.landing);
                slot.landing.shrink();
            });
        }
        self.rest = rest;
        fetched
    }
}

/// Begins to fetch an item of a batch.
fn begin<'k>(engine: &mut Engine, tag: usize, slot: &mut Slot, index: usize, wanted: Wanted<'k>) {
    let Wanted { table, key, pointer } = wanted;
    let route = engine.transport.route(table, key);
    let known = pointer.or_else(|| engine.transport.known_pointer(route.0));
    slot.index = index;
    slot.fetch = Some(engine.begin_fetch(tag as u32, (table, key), route, known));
}

/// Fetches items, as many at once as there are slots. After an error `under_way` says how many were begun.
fn fetch_all<'k>(
    engine: &mut Engine,
    slots: &mut [Slot],
    (count, wanted): (usize, &impl Fn(usize) -> Wanted<'k>),
    patience: &mut Patience,
    under_way: &mut UnderWay,
    found: &mut impl FnMut(&mut Slot),
) -> Result<()> {
    let prefetch = |engine: &Engine, index: usize| {
        if index < count && engine.transport.path() != Path::Message {
            let Wanted { table, key, .. } = wanted(index);
            engine.transport.prefetch_pointer(engine.transport.hash(table, key));
        }
    };
    (0..slots.len().min(PREFETCHED)).for_each(|index| prefetch(engine, index));
    for (index, slot) in slots.iter_mut().enumerate() {
        prefetch(engine, index + PREFETCHED);
        begin(engine, index, slot, index, wanted(index));
        under_way.begun += 1;
        if under_way.begun % READS_A_BELL == 0 {
            engine.transport.fabric.doorbell();
        }
    }
    while under_way.ended < count {
        let before = *under_way;
        let mut room = if under_way.asked > REQUESTS_A_WAVE { 0 } else { REQUESTS_A_WAVE };
        let (mut posted, mut unsent, mut full) = (false, false, None);
        let (mut moved, mut read_nothing) = (false, false);
        for (tag, slot) in slots.iter_mut().enumerate() {
            let Some(fetch) = slot.fetch.as_mut() else { continue };
            let key = wanted(slot.index).key;
            if !fetch.is_unsent() {
                let stood = (fetch.is_asked(), fetch.read_cost());
                let exists = fetch.advance(engine, key, &mut slot.landing)?;
                under_way.asked = under_way.asked + usize::from(fetch.is_asked()) - usize::from(stood.0);
                moved |= stood != (fetch.is_asked(), fetch.read_cost());
                if let Some(exists) = exists {
                    read_nothing |= fetch.read_cost().0 == 0;
                    under_way.ended += 1;
                    slot.fetch = None;
                    if exists {
                        found(slot);
                    }
                    if under_way.begun < count {
                        prefetch(engine, under_way.begun + PREFETCHED);
                        begin(engine, tag, slot, under_way.begun, wanted(under_way.begun));
                        under_way.begun += 1;
                        unsent |= slot.fetch.as_ref().is_some_and(Fetch::is_unsent);
                        if under_way.begun % READS_A_BELL == 0 {
                            engine.transport.fabric.doorbell();
                        }
                    }
                    continue;
                }
            }
            if fetch.is_unsent() && (room == 0 || full.is_some()) {
                unsent = true;
            } else if fetch.is_unsent() {
                match fetch.ask(engine, key) {
                    Ok(()) => {
                        (under_way.asked, room, posted) = (under_way.asked + 1, room - 1, true);
                    }
                    Err(PostError::Full) => full = Some(fetch.shard()),
                    Err(PostError::Failed(error)) => {
                        engine.recover(patience, error)?;
                        unsent = true;
                    }
                }
            }
        }
        if posted {
            engine.send_all();
        }
        if under_way.ended > before.ended {
            *patience = Patience::default();
        } else if moved {
            // What was waited for has come, and in shared memory nothing wakes whoever sleeps before the next
            // READ.
            patience.begin_anew();
        }
        // Others may be sent, now that so many were answered.
        let is_next_wave = unsent && full.is_none() && under_way.asked <= REQUESTS_A_WAVE;
        if under_way.ended == count || read_nothing || is_next_wave {
            continue;
        }
        match full {
            Some(shard) if under_way.asked == 0 => engine.make_room(shard, patience)?,
            // An answer may be taken in by whoever looks whether the server is still there.
            _ if under_way.asked > 0 => drop(engine.pause(patience)?),
            _ => drop(engine.until_progress(patience)?),
        }
    }
    Ok(())
}

impl Session {
    /// Gets many items. The result has one entry a key, in order; `None`: absent.
    pub fn multi_get(&mut self, table: Table, keys: &[&[u8]]) -> Result<Vec<Option<Item>>> {
        self.read_table("multi_get", table, |session, BoundTable { id: table, generation }| {
            let mut items = vec![None; keys.len()];
            let wanted = |index: usize| Wanted { table, key: keys[index], pointer: None };
            let Session { engine, catalogue, batch, .. } = session;
            batch.fetch_many(engine, keys.len(), wanted, |engine, index, landing| {
                items[index] = Some(catalogue.make_item(engine, landing, generation)?);
                Ok(())
            })?;
            Ok(items)
        })
    }

    /// Gets the values of many plain items (or their unnamed attributes) into a buffer that is reused from
    /// batch to batch, without allocating once it has grown.
    pub fn multi_get_into(&mut self, table: Table, keys: &[&[u8]], values: &mut Values) -> Result<()> {
        self.read_table("multi_get_into", table, |session, table| {
            values.reset(keys.len());
            let Session { engine, batch, .. } = session;
            batch.fetch_values(engine, table.id, keys, (values, 0), &mut Patience::default())
        })
    }

    /// Puts many plain items, in any order: of several with one key any may stay. The result has one entry an
    /// item, in order: its version, or why it failed. Once the server has failed to answer one, the rest is
    /// not sent.
    pub fn multi_put(&mut self, table: Table, items: &[(&[u8], &[u8])]) -> Result<Vec<Result<Version>>> {
        const OPERATION: &str = "multi_put";
        self.operate(OPERATION, |session| {
            let BoundTable { id, .. } = session.check_table(table)?;
            let engine = &mut session.engine;
            let mut puts = Puts::new(engine, OPERATION, id, items)?;
            engine.note_operation_of(id, items.iter().map(|(key, _)| *key))?;
            while puts.send(engine) {
                puts.wait(engine, PUTS_A_WAVE);
            }
            puts.wait(engine, 0);
            Ok(session.put_after_switch(table, items, puts.results()))
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

    /// Gets the values of many items, as [`Session::multi_get_into`], and puts many items, as
    /// [`Session::multi_put`], at once: the client reads while the shard writes. A get of a key that is also
    /// put finds the value before or after.
    ///
    /// An error is one of the gets; the puts have ended then too, and it says whether one may have had an
    /// effect.
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
            let mut puts = Puts::new(&session.engine, OPERATION, id, items)?;
            keys.iter().try_for_each(|key| check_key(id, key))?;
            let Session { engine, batch, .. } = session;
            engine.note_operation_of(id, keys.iter().copied())?;
            values.reset(keys.len());
            // The gets are spread over the waves of puts, and go at once if there are none.
            let a_wave = keys.len().div_ceil(items.len().div_ceil(PUTS_A_WAVE).max(1)).max(1);
            let mut waves = keys.chunks(a_wave).enumerate();
            let mut outcome = Ok(());
            loop {
                let sent = puts.send(engine);
                let wave = waves.next();
                if let Some((wave, keys)) = wave {
                    let target = (&mut *values, wave * a_wave);
                    outcome = batch.fetch_values(engine, id, keys, target, puts.patience());
                }
                if outcome.is_err() || !sent && wave.is_none() {
                    break;
                }
                puts.wait(engine, PUTS_A_WAVE);
            }
            puts.wait(engine, 0);
            let none = !puts.have_begun();
            match outcome.and_then(|()| session.check_generation(generation)) {
                Ok(()) => Ok(session.put_after_switch(table, items, puts.results())),
                Err(error) if none => Err(error),
                Err(error) => Err(error.with_effect(Effect::Unknown)),
            }
        })
    }
}
