//! Gets: from memory in straight code where that is possible, else by a [`Fetch`], an operation that reads
//! one-sidedly and asks the shard for what cannot be had so. A plain call waits for one, a batch for many,
//! and polls advance those that were submitted.

use std::ops::ControlFlow;
use std::time::Duration;

use kelix_fabric::Clock;
use kelix_image::PlainItem;
use kelix_types::limits::KEY_BYTES_MAX;
use kelix_types::{Error, ErrorKind, KeyHash, Result, TableId, Version, mark};
use kelix_wire::{Op, RequestHead, Status};

use super::{Connection, End, Engine, LOST, Patience, check_answer, is_passing, nanoseconds};
use crate::ordered::Looked;
use crate::pointers::Pointer;
use crate::read::{Landing, ReadOp, Step};
use crate::transport::{Answer, Path, PostError, RequestId, bytes_from};

/// Rounds of asking and reading before a get gives up on an item that is never the same twice.
const ROUNDS_MAX: u32 = 16;
/// Between two more, where the item may stand in a segment that is not registered yet.
const ROUND: Duration = Duration::from_millis(2);
/// The tag of the READs of a plain call, of which one is under way.
const PLAIN: u32 = 0;

/// An item that is looked for: by key, and first by a pointer if one is known.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'k> {
    pub table: TableId,
    pub key: &'k [u8],
    pub pointer: Option<Pointer>,
}

/// What a get that never waits has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TryGet {
    /// The value's length in bytes, and its version.
    Found(usize, Version),
    /// The key is absent.
    Absent,
    /// Nothing: to know more takes a message, a system call or a READ that is waited for.
    WouldWait,
}

/// Copies a value, if the buffer has room for it. Returns its length.
#[inline(always)]
fn copy_value(item: PlainItem<'_>, buffer: &mut [u8]) -> Option<usize> {
    if let Some(target) = buffer.get_mut(..item.value_bytes()) {
        item.copy_value(target)?;
    }
    Some(item.value_bytes())
}

/// A part of a value that was copied into a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValuePart {
    /// Bytes that were copied: fewer than the buffer has where the value ends.
    pub copied: usize,
    /// Bytes of the whole value.
    pub value_bytes: usize,
    /// The version that the part is of.
    pub version: Version,
}

/// What straight code knows of a value: its length and version.
enum AtHand {
    Value(usize, Version),
    Absent,
    Unknown,
}

/// A get under way. [`Fetch::advance`] takes it as far as it goes without waiting.
pub(crate) struct Fetch {
    table: TableId,
    hash: KeyHash,
    shard: usize,
    /// Tells its READs from those of others under way.
    tag: u32,
    state: State,
    /// The pointer that the read began with.
    known: Option<Pointer>,
    /// The connections of the session, counted up, over which its READs were posted.
    ways: u32,
    /// Answers so far that named an item which was another when it was read.
    rounds: u32,
    /// As of [`Step::AbsentIfKnown`].
    absent_if_known: Option<u64>,
    registering: Patience,
}

#[expect(clippy::large_enum_variant, reason = "most are reads, and a box would be an allocation for each")]
enum State {
    Reading(ReadOp),
    /// The shard is to be asked, once there is room for the request.
    Unsent,
    Asked(RequestId),
    /// The shard has answered, or the get was given up.
    Ended,
}

impl Fetch {
    /// A get by message, not sent yet.
    fn unsent(tag: u32, table: TableId, (hash, shard): (KeyHash, usize)) -> Fetch {
        let (state, registering) = (State::Unsent, Patience::default());
        let (known, absent_if_known) = (None, None);
        Fetch { table, hash, shard, tag, state, known, ways: 0, rounds: 0, absent_if_known, registering }
    }

    /// Whether the shard is to be asked: by [`Fetch::ask`], since a get does not know what else is sent with
    /// it.
    pub fn is_unsent(&self) -> bool {
        matches!(self.state, State::Unsent)
    }

    /// Whether the shard was asked and has not answered yet.
    pub fn is_asked(&self) -> bool {
        matches!(self.state, State::Asked(_))
    }

    /// Tells its READs from those of others under way.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// The shard that has the key.
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// READs and bytes of the read under way.
    pub fn read_cost(&self) -> (u64, u64) {
        match &self.state {
            State::Reading(read) => (read.cost().reads, read.cost().read_bytes),
            _ => (0, 0),
        }
    }

    /// Asks the shard, if there is room for the request now.
    pub fn ask(&mut self, engine: &mut Engine, key: &[u8]) -> std::result::Result<(), PostError> {
        let head = engine.get_head(self.table, self.shard);
        self.state = State::Asked(engine.try_post(self.shard, head, key, &[])?);
        Ok(())
    }

    /// Goes on as far as that takes no waiting. Whether the item exists, which is in `landing` then; `None`:
    /// a READ or an answer is under way, or the shard is to be asked.
    #[inline]
    pub fn advance(
        &mut self,
        engine: &mut Engine,
        key: &[u8],
        landing: &mut Landing,
    ) -> Result<Option<bool>> {
        loop {
            match &mut self.state {
                State::Reading(read) => {
                    let Engine { transport, connection: Connection { ways, .. }, .. } = engine;
                    // READs over a connection that broke are lost.
                    let anew = std::mem::replace(&mut self.ways, *ways) != *ways;
                    let from = (self.known, anew);
                    let end = match engine.connection.advance(transport, read, key, landing, from) {
                        Ok(Some(end)) => end,
                        Ok(None) => return Ok(None),
                        // A message is waited for, and asked again, for as long as the session may.
                        Err(error) if engine.connection.caller.is_some() && is_passing(&error) => {
                            self.state = State::Unsent;
                            return Ok(None);
                        }
                        Err(error) => return self.go_on_elsewhere(engine, error),
                    };
                    landing.pointer = read.pointer;
                    match end {
                        End::Found => return Ok(Some(true)),
                        End::Absent => return Ok(Some(false)),
                        End::AbsentIfKnown(generations) => {
                            self.absent_if_known = Some(generations);
                            self.end_round(engine)?;
                        }
                        End::Ask => self.end_round(engine)?,
                    }
                }
                State::Unsent | State::Ended => return Ok(None),
                State::Asked(id) => {
                    let answer = match engine.arrived(*id) {
                        Ok(Some(answer)) => answer,
                        Ok(None) => return Ok(None),
                        Err(error) => return self.go_on_elsewhere(engine, error),
                    };
                    if let Some(exists) = self.take(engine, key, landing, answer)? {
                        return Ok(Some(exists));
                    }
                }
            }
        }
    }

    /// After an error: where another server may go on with what this one had, that one is to be asked.
    #[cold]
    fn go_on_elsewhere(&mut self, engine: &Engine, error: Error) -> Result<Option<bool>> {
        if !engine.may_go_on_elsewhere(&error) {
            return Err(error);
        }
        self.state = State::Unsent;
        Ok(None)
    }

    /// Goes on as [`Fetch::advance`] does, also behind READs that are done as soon as they are posted:
    /// nothing tells of these later.
    pub fn run(&mut self, engine: &mut Engine, key: &[u8], landing: &mut Landing) -> Result<Option<bool>> {
        loop {
            let posted = self.read_cost().0;
            match self.advance(engine, key, landing)? {
                None if !self.is_unsent() && self.read_cost().0 != posted => {}
                end => return Ok(end),
            }
        }
    }

    /// After a read that came to nothing: the shard is to be asked, unless that was done often enough.
    fn end_round(&mut self, engine: &mut Engine) -> Result<()> {
        self.state = State::Unsent;
        if self.rounds == 0 {
            engine.transport.total.fallbacks += 1;
        }
        if self.rounds >= ROUNDS_MAX && !engine.may_become_readable(&mut self.registering) {
            let context = "the item changed each time it was read, or stands in memory that is not registered; try again";
            return Err(Error::unnamed(ErrorKind::TimedOut, context));
        }
        Ok(())
    }

    /// Takes the shard's answer. A long item stays where it is and is read from there: `None`, and the read
    /// has begun.
    fn take(
        &mut self,
        engine: &mut Engine,
        key: &[u8],
        landing: &mut Landing,
        mut answer: Answer,
    ) -> Result<Option<bool>> {
        self.state = State::Ended;
        check_answer(&answer)?;
        let station = answer.station;
        engine.transport.take_model(self.table, self.shard, &mut answer);
        if answer.status != Status::Ok {
            if let Some(generations) = self.absent_if_known {
                engine.transport.reader(self.shard).known_tables.note(self.table, generations);
            }
            return Ok(Some(false));
        }
        engine.transport.learn(self.hash, &answer);
        let pointer = answer.pointer();
        if landing.accept(&answer.item, self.table, key) {
            landing.pointer = pointer;
            return Ok(Some(true));
        }
        self.rounds += 1;
        self.begin_read(engine, station, key, pointer);
        Ok(None)
    }

    fn begin_read(&mut self, engine: &mut Engine, station: usize, key: &[u8], known: Option<Pointer>) {
        let route = (self.hash, station);
        let known = known.filter(|known| engine.transport.may_follow(station, *known));
        (self.known, self.ways) = (known, engine.connection.ways);
        self.state = State::Reading(engine.transport.start_read(self.tag, (self.table, key), route, known));
    }

    /// Gives the get up.
    pub fn abandon(&mut self, engine: &mut Engine) {
        if let State::Asked(id) = self.state {
            engine.transport.abandon(id);
        }
        self.state = State::Ended;
    }
}

impl Engine {
    /// Begins a get, whose READs have this tag: by reading, by a pointer if one is known, where the path is
    /// not that by message.
    pub fn begin_fetch(
        &mut self,
        tag: u32,
        (table, key): (TableId, &[u8]),
        (hash, shard): (KeyHash, usize),
        known: Option<Pointer>,
    ) -> Fetch {
        let mut fetch = Fetch::unsent(tag, table, (hash, shard));
        if self.transport.path() != Path::Message && !self.transport.reads_at_primary(shard) {
            fetch.begin_read(self, shard, key, known);
        }
        fetch
    }

    /// Fetches an item.
    #[inline]
    pub fn fetch(&mut self, wanted: Wanted<'_>, landing: &mut Landing) -> Result<Option<Version>> {
        let Wanted { table, key, .. } = wanted;
        self.begin(table, key)?;
        let route = self.transport.route(table, key);
        match self.look_at_hand(wanted, route.0, landing) {
            ControlFlow::Break(found) => Ok(found),
            ControlFlow::Continue(known) => self.fetch_from((table, key), route, known, landing),
        }
    }

    /// Looks for an item in straight code, where memory is within reach of loads and no pointer is known.
    /// Goes on from the pointer that is known, where that is not the end of it.
    #[inline(always)]
    pub fn look_at_hand(
        &mut self,
        Wanted { table, key, pointer }: Wanted<'_>,
        hash: KeyHash,
        landing: &mut Landing,
    ) -> ControlFlow<Option<Version>, Option<Pointer>> {
        if self.transport.path() == Path::Message {
            return ControlFlow::Continue(pointer);
        }
        let known = pointer.or_else(|| self.transport.known_pointer(hash));
        if known.is_some() {
            return ControlFlow::Continue(known);
        }
        if table.kind().is_ordered() {
            return self.look_in_order(table, key, hash, landing);
        }
        landing.pointer = self.transport.read_guessed(table, hash, key, landing);
        if landing.pointer.is_none() {
            return ControlFlow::Continue(None);
        }
        self.transport.keep_pointer(hash, landing.pointer);
        ControlFlow::Break(Some(landing.view().version()))
    }

    /// Fetches an item, beginning with a pointer if one is known, by an operation that is waited for.
    fn fetch_from(
        &mut self,
        (table, key): (TableId, &[u8]),
        route: (KeyHash, usize),
        known: Option<Pointer>,
        landing: &mut Landing,
    ) -> Result<Option<Version>> {
        if known.is_none() && table.kind().is_ordered() {
            self.copy_models_for_gets(table, route.1)?;
        }
        let mut fetch = self.begin_fetch(PLAIN, (table, key), route, known);
        match self.finish(&mut fetch, key, landing) {
            Err(error) if self.is_alone(table, &error) => {
                self.fetch_alone((table, key), route, error, landing)
            }
            found => found,
        }
    }

    /// Waits for the end of a get.
    pub fn finish(
        &mut self,
        fetch: &mut Fetch,
        key: &[u8],
        landing: &mut Landing,
    ) -> Result<Option<Version>> {
        self.within_budget(|engine| {
            let exists = engine.finish_in_time(fetch, key, landing)?;
            Ok(exists.then(|| landing.view().version()))
        })
    }

    fn finish_in_time(&mut self, fetch: &mut Fetch, key: &[u8], landing: &mut Landing) -> Result<bool> {
        let mut patience = Patience::default();
        loop {
            match fetch.state {
                State::Unsent => {
                    patience = Patience::default();
                    let head = self.get_head(fetch.table, fetch.shard);
                    let id = self.post(fetch.shard, head, key, &[], &mut patience)?;
                    self.transport.send(fetch.shard);
                    fetch.state = State::Asked(id);
                }
                State::Asked(id) => {
                    let answer = self.wait_for(id, &mut patience)?;
                    if let Some(exists) = fetch.take(self, key, landing, answer)? {
                        return Ok(exists);
                    }
                }
                State::Reading(_) | State::Ended => {
                    if let Some(exists) = fetch.advance(self, key, landing)? {
                        return Ok(exists);
                    }
                    if !fetch.is_unsent() {
                        // What was asked for before has arrived.
                        patience.note_read(fetch.read_cost().1);
                        self.until_progress(&mut patience)?;
                    }
                }
            }
        }
    }

    /// Asks the shard for an item.
    pub fn ask(
        &mut self,
        (table, key): (TableId, &[u8]),
        route: (KeyHash, usize),
        landing: &mut Landing,
    ) -> Result<Option<Version>> {
        let mut fetch = Fetch::unsent(PLAIN, table, route);
        self.finish(&mut fetch, key, landing)
    }

    /// The body of an item of the catalogue, which lives on shard 0, wherever the ring would put its keys.
    pub fn catalogue_body(&mut self, key: &[u8], landing: &mut Landing) -> Result<Option<Vec<u8>>> {
        let hash = self.transport.route(TableId::CATALOGUE, key).0;
        let mut fetch = Fetch::unsent(PLAIN, TableId::CATALOGUE, (hash, 0));
        if !self.transport.reads_at_primary(0) {
            fetch.begin_read(self, 0, key, None);
        }
        let found = self.finish(&mut fetch, key, landing)?;
        Ok(found.map(|_| landing.view().body().to_vec()))
    }

    /// Looks for a key of an ordered table, whose item has landed if it was found, and goes on from its place
    /// if only that is known.
    #[inline]
    fn look_in_order(
        &mut self,
        table: TableId,
        key: &[u8],
        hash: KeyHash,
        landing: &mut Landing,
    ) -> ControlFlow<Option<Version>, Option<Pointer>> {
        let reader = self.transport.reader_in_order(table);
        match reader.look_in_order(table, key, |item| landing.copy(item)) {
            Looked::Copied(pointer, ()) => {
                landing.pointer = Some(pointer);
                self.transport.keep_pointer(hash, landing.pointer);
                ControlFlow::Break(Some(Version(pointer.incarnation.0)))
            }
            Looked::Inline(value) => {
                landing.set_inline(table, key, value);
                landing.pointer = None;
                ControlFlow::Break(Some(Version(value)))
            }
            Looked::Absent => ControlFlow::Break(None),
            Looked::At(pointer) => ControlFlow::Continue(Some(pointer)),
            Looked::Unknown => ControlFlow::Continue(None),
        }
    }

    /// A get by message. Of an ordered table whose models are copied the answer brings the key's sub-model
    /// too.
    fn get_head(&self, table: TableId, shard: usize) -> RequestHead {
        let copied = !self.transport.reads_directly()
            && !self.transport.finds(shard)
            && self.transport.reads_itself()
            && self.connection.options.model_bytes > 0;
        let argument = (table.kind().is_ordered() && copied).then_some(1);
        RequestHead { argument, ..RequestHead::new(Op::Get, 0, table) }
    }

    /// Over verbs a segment cannot be READ before the server has registered it: waits a little, if that may
    /// yet be. Gets of one batch wait together: if each did by itself, a dozen would take longer than a READ
    /// may until it is looked at, and none would ever end.
    fn may_become_readable(&mut self, patience: &mut Patience) -> bool {
        let waits = self.connection.setup.waits_for_segments();
        let now_ns = self.transport.fabric.now_ns();
        if waits && now_ns - self.napped_ns >= nanoseconds(ROUND) {
            self.connection.setup.nap(ROUND);
            self.napped_ns = self.transport.fabric.now_ns();
        }
        waits && patience.waited(now_ns) < self.connection.options.timeout
    }

    /// Gets a value into a buffer: its length and version. It says once more what [`Engine::copy_at_hand`]
    /// says: through a result of three cases it is so many instructions longer that a processor does not come
    /// to the next get while it waits for the memory of this one.
    #[inline(always)]
    pub fn fetch_into(
        &mut self,
        id: TableId,
        key: &[u8],
        buffer: &mut [u8],
        landing: &mut Landing,
    ) -> Result<Option<(usize, Version)>> {
        self.begin(id, key)?;
        if self.transport.begins_with_index() && !id.kind().is_ordered() {
            let hash = self.transport.hash(id, key);
            let found = self.transport.read_direct(id, hash, key, |item| copy_value(item, buffer));
            if let Some((_, incarnation, length)) = found {
                let fits = length <= buffer.len();
                let version = Version(incarnation.0);
                return if fits { Ok(Some((length, version))) } else { Err(too_small(length, buffer)) };
            }
        } else if self.transport.begins_with_index() {
            let reader = self.transport.reader_in_order(id);
            let looked = reader.look_in_order(id, key, |item| copy_value(item, buffer));
            let (length, version) = match looked {
                Looked::Inline(value) => {
                    if let Some(target) = buffer.get_mut(..8) {
                        target.copy_from_slice(&value.to_le_bytes());
                    }
                    (8, Version(value))
                }
                Looked::Copied(pointer, length) => (length, Version(pointer.incarnation.0)),
                Looked::Absent => return Ok(None),
                Looked::At(_) | Looked::Unknown => return self.fetch_into_slowly(id, key, buffer, landing),
            };
            let fits = length <= buffer.len();
            return if fits { Ok(Some((length, version))) } else { Err(too_small(length, buffer)) };
        }
        self.fetch_into_slowly(id, key, buffer, landing)
    }

    /// Gets a value into a buffer as [`Engine::fetch_into`] does, if that takes no look around, no message
    /// and no READ that is waited for.
    #[inline(always)]
    pub fn try_fetch_into(
        &mut self,
        id: TableId,
        key: &[u8],
        buffer: &mut [u8],
        landing: &mut Landing,
    ) -> Result<TryGet> {
        check_key(id, key)?;
        if !self.transport.countdown.has_more() {
            return Ok(TryGet::WouldWait);
        }
        self.transport.countdown.is_over();
        match self.copy_at_hand(id, key, buffer) {
            AtHand::Value(length, version) if length <= buffer.len() => Ok(TryGet::Found(length, version)),
            AtHand::Value(length, _) => Err(too_small(length, buffer)),
            AtHand::Absent => Ok(TryGet::Absent),
            AtHand::Unknown => self.try_read_into(id, key, buffer, landing),
        }
    }

    /// The same by an operation whose READs are done when they are posted: for keys that are not in their
    /// main bucket, and items that are not plain.
    #[cold]
    fn try_read_into(
        &mut self,
        table: TableId,
        key: &[u8],
        buffer: &mut [u8],
        landing: &mut Landing,
    ) -> Result<TryGet> {
        if !self.transport.begins_with_index() || table.kind().is_ordered() {
            return Ok(TryGet::WouldWait);
        }
        // Of a large value no piece is read.
        landing.want_part(0..0);
        let route = self.transport.route(table, key);
        if self.transport.is_suspended(route.1) {
            return Ok(TryGet::WouldWait);
        }
        let mut read = self.transport.start_read(PLAIN, (table, key), route, None);
        let step = loop {
            let posted = read.cost().reads;
            match self.transport.advance_read(&mut read, key, landing) {
                Step::Pending if read.cost().reads != posted => {}
                step => break step,
            }
        };
        landing.want_whole();
        if step == Step::Absent {
            return Ok(TryGet::Absent);
        }
        if step != Step::Valid || landing.is_large() {
            return Ok(TryGet::WouldWait);
        }
        self.transport.finish_read(&read, None);
        let value = landing.value();
        match buffer.get_mut(..value.len()) {
            Some(target) => target.copy_from_slice(value),
            None => return Err(too_small(value.len(), buffer)),
        }
        Ok(TryGet::Found(value.len(), landing.view().version()))
    }

    /// Copies a value in straight code, where memory is within reach of loads and the value stands in its
    /// item or its leaf: if the buffer has room for it.
    #[inline(always)]
    fn copy_at_hand(&mut self, id: TableId, key: &[u8], buffer: &mut [u8]) -> AtHand {
        if !self.transport.begins_with_index() {
            return AtHand::Unknown;
        }
        if !id.kind().is_ordered() {
            let hash = self.transport.hash(id, key);
            return match self.transport.read_direct(id, hash, key, |item| copy_value(item, buffer)) {
                Some((_, incarnation, length)) => AtHand::Value(length, Version(incarnation.0)),
                None => AtHand::Unknown,
            };
        }
        let reader = self.transport.reader_in_order(id);
        match reader.look_in_order(id, key, |item| copy_value(item, buffer)) {
            Looked::Inline(value) => {
                if let Some(target) = buffer.get_mut(..8) {
                    target.copy_from_slice(&value.to_le_bytes());
                }
                AtHand::Value(8, Version(value))
            }
            Looked::Copied(pointer, length) => AtHand::Value(length, Version(pointer.incarnation.0)),
            Looked::Absent => AtHand::Absent,
            Looked::At(_) | Looked::Unknown => AtHand::Unknown,
        }
    }

    #[cold]
    fn fetch_into_slowly(
        &mut self,
        table: TableId,
        key: &[u8],
        buffer: &mut [u8],
        landing: &mut Landing,
    ) -> Result<Option<(usize, Version)>> {
        if self.transport.begins_with_index() && !table.kind().is_ordered() {
            if self.transport.is_absent(table, self.transport.hash(table, key)) {
                return Ok(None);
            }
            let slot = &mut landing.item;
            if let Some((version, length)) =
                self.transport.read_large_direct((table, key), slot, None, buffer)
            {
                let fits = length <= buffer.len();
                return if fits { Ok(Some((length, version))) } else { Err(too_small(length, buffer)) };
            }
        }
        let wanted = Wanted { table, key, pointer: None };
        let Some(version) = self.fetch(wanted, landing)? else { return Ok(None) };
        let value = landing.value();
        match buffer.get_mut(..value.len()) {
            Some(target) => target.copy_from_slice(value),
            None => return Err(too_small(value.len(), buffer)),
        }
        Ok(Some((value.len(), version)))
    }

    /// Gets as much of a value from a byte on as the buffer has room for.
    pub fn fetch_part(
        &mut self,
        (table, key): (TableId, &[u8]),
        from: u64,
        buffer: &mut [u8],
        landing: &mut Landing,
    ) -> Result<Option<ValuePart>> {
        self.begin(table, key)?;
        if self.transport.begins_with_index() && !table.kind().is_ordered() {
            let hash = self.transport.hash(table, key);
            let found = self.transport.read_direct(table, hash, key, |item| {
                Some((item.copy_part(from, buffer)?, item.value_bytes()))
            });
            if let Some((_, incarnation, (copied, value_bytes))) = found {
                return Ok(Some(ValuePart { copied, value_bytes, version: Version(incarnation.0) }));
            }
            let slot = &mut landing.item;
            let found = self.transport.read_large_direct((table, key), slot, Some(from), buffer);
            if let Some((version, value_bytes)) = found {
                let copied = buffer.len().min(bytes_from(value_bytes, from));
                return Ok(Some(ValuePart { copied, value_bytes, version }));
            }
        }
        landing.want_part(from..from.saturating_add(buffer.len() as u64));
        let found = self.fetch(Wanted { table, key, pointer: None }, landing);
        landing.want_whole();
        let Some(version) = found? else { return Ok(None) };
        let (part, value_bytes) = landing.part(from, buffer.len());
        buffer[..part.len()].copy_from_slice(part);
        Ok(Some(ValuePart { copied: part.len(), value_bytes, version }))
    }

    /// Brings an item into `landing`, if it stands where its pointer says, and that is within reach of loads.
    /// Whoever goes on to a [`Fetch`] where it is not should make up anew what that is given, so that here
    /// all can stay in registers.
    #[inline(always)]
    pub fn lands(&mut self, wanted: Wanted<'_>, landing: &mut Landing) -> Result<bool> {
        let Wanted { table, key, pointer } = wanted;
        let Some(pointer) = pointer.filter(|_| self.transport.path() != Path::Message) else {
            return Ok(false);
        };
        let landed = self.transport.read_pointed((table, key), pointer, landing);
        if landed {
            self.note_operation()?;
        }
        Ok(landed)
    }

    /// Whether an error of an operation says that its server has gone, and the last state of an ordered table
    /// is within reach. Reads look further from then on.
    pub fn is_alone(&mut self, table: TableId, error: &Error) -> bool {
        let gone = self.connection.server == LOST && error.kind() == ErrorKind::Unavailable;
        // A successor may be about to begin that knows better.
        let alone = gone
            && !self.transport.is_replicated()
            && table.kind().is_ordered()
            && self.transport.reads_directly()
            && self.transport.path() != Path::Message;
        if alone {
            self.transport.reader_in_order(table).ordered.alone = true;
        }
        alone
    }

    /// Fetches an item that no model leads to yet, in place of a shard that has gone; `lost` says so.
    #[cold]
    pub fn fetch_alone(
        &mut self,
        (table, key): (TableId, &[u8]),
        route: (KeyHash, usize),
        lost: Error,
        landing: &mut Landing,
    ) -> Result<Option<Version>> {
        let known = match self.look_in_order(table, key, route.0, landing) {
            ControlFlow::Break(found) => return Ok(found),
            ControlFlow::Continue(known) => known.ok_or(lost)?,
        };
        mark!("item of a server that has gone found without models");
        let mut fetch = self.begin_fetch(PLAIN, (table, key), route, Some(known));
        self.finish(&mut fetch, key, landing)
    }
}

pub(crate) fn check_key(table: TableId, key: &[u8]) -> Result<()> {
    if table.kind().takes_key(key) { Ok(()) } else { Err(no_key(table, key)) }
}

#[cold]
fn no_key(table: TableId, key: &[u8]) -> Error {
    let allowed = match table.kind().has_numbers() {
        true => "the keys of this table are numbers of 8 bytes, highest first".to_string(),
        false => format!("the longest allowed is {KEY_BYTES_MAX}"),
    };
    Error::unnamed(ErrorKind::InvalidArgument, format!("a key of {} bytes; {allowed}", key.len()))
}

#[cold]
fn too_small(value_bytes: usize, buffer: &[u8]) -> Error {
    let context = format!("the value has {value_bytes} bytes, the buffer {}", buffer.len());
    Error::unnamed(ErrorKind::BufferTooSmall, context).with_needed_bytes(value_bytes)
}
