//! Submit and poll: operations that go on while their caller does something else.

mod session;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use kelix_fabric::{Clock, PROGRESS_BYTES, WorkQueue};
use kelix_types::limits::{MESSAGE_VALUE_BYTES_MAX, SESSION_READS_MAX};
use kelix_types::{Effect, Error, ErrorKind, Result, Version};
use kelix_wire::{Op, RequestHead, Status};

use crate::catalogue::Catalogue;
use crate::engine::{Buffers, Engine, Fetch, Patience, between_tries, check_answer, is_passing, nanoseconds};
use crate::item::Item;
use crate::links::KeptOrigin;
use crate::pointers::Pointer;
use crate::read::Landing;
use crate::scan::{PageRead, ScanPage};
use crate::session::{CompareAndSet, compared};
use crate::transport::{Answer, PostError, RequestId};

/// Names a submitted operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// A submitted operation that has ended.
#[derive(Debug)]
pub struct Completion {
    /// Which one.
    pub ticket: Ticket,
    /// The number that its caller gave it ([`Session::set_number`](crate::Session::set_number)), else 0.
    pub number: u64,
    /// How it ended.
    pub outcome: Result<Outcome>,
}

/// What a submitted operation brought.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A get, or a read along a link: the item, `None` if the key is absent.
    Item(Option<Item>),
    /// A put: the new version.
    Written(Version),
    /// A delete: whether the key was there.
    Deleted(bool),
    /// A write that was to be done only if the key had the expected version: whether it was.
    Compared(CompareAndSet),
    /// A page of a scan.
    Page(ScanPage),
}

/// A submitted operation.
struct Operation {
    ticket: Ticket,
    head: RequestHead,
    key: Vec<u8>,
    value: Vec<u8>,
    /// Of a get along a link.
    link: Option<Box<LinkEnd>>,
    /// That of the table; 0: none.
    generation: u64,
    state: State,
    /// When what is under way was begun.
    since_ns: u64,
}

/// What a link says of its target, and where the link itself stands, for its repair.
struct LinkEnd {
    pointer: Option<Pointer>,
    origin: Option<KeptOrigin>,
}

enum State {
    /// A get whose item is looked for.
    Fetching(Box<(Fetch, Landing)>),
    /// A page of a scan.
    Scanning(Box<PageRead>),
    /// There is to be a request, once there is room for it.
    Unsent,
    /// The request is under way.
    Asked(RequestId),
}

/// Tags of the READs of submitted gets begin here; below are those of whoever waits.
const TAGS: u32 = SESSION_READS_MAX as u32;
/// Most submitted operations that are begun before others have ended.
const UNDER_WAY_MAX: usize = 1 << 12;

/// All that was submitted and has not been returned yet.
#[derive(Default)]
pub(crate) struct Submitted {
    /// Operations that have not begun.
    queue: VecDeque<Operation>,
    /// Those that have, in the order in which they were submitted.
    under_way: Vec<Operation>,
    /// Tags of READs that no get uses, of as many as were ever used.
    free_tags: Vec<u32>,
    tags: u32,
    sending: Sending,
    pub finished: VecDeque<Completion>,
    /// Numbers that callers gave to what has not ended.
    numbers: HashMap<Ticket, u64>,
    pub next_ticket: u64,
    /// Since when polls have had no connection that answers.
    lost_ns: Option<u64>,
    /// Bytes that had moved when enough of them had last moved, when that was, and when somebody last looked.
    moved: u64,
    moved_ns: u64,
    looked_ns: u64,
}

/// The sending of requests in one round of a poll.
#[derive(Default)]
struct Sending {
    /// The shards for which there is no more room, so that what comes later waits for what came first.
    full: Vec<bool>,
    /// A value was sent that does not fit one message, which takes long.
    sent_large: bool,
    sent: bool,
    /// How long nothing could be sent, from round to round.
    patience: Patience,
}

impl Sending {
    fn begin_round(&mut self, shards: usize) {
        self.full.clear();
        self.full.resize(shards, false);
        (self.sent_large, self.sent) = (false, false);
    }

    /// Sends a request to a shard, if there is room for it.
    fn send<T>(
        &mut self,
        engine: &mut Engine,
        shard: usize,
        post: impl FnOnce(&mut Engine) -> std::result::Result<T, PostError>,
    ) -> Result<Option<T>> {
        if self.full[shard] {
            return Ok(None);
        }
        match post(engine) {
            Ok(posted) => {
                (self.sent, self.patience) = (true, Patience::default());
                Ok(Some(posted))
            }
            // The next poll sees to a connection that was lost.
            Err(PostError::Failed(error))
                if engine.connection.caller.is_none()
                    || !is_passing(&error) && !engine.may_go_on_elsewhere(&error) =>
            {
                Err(error)
            }
            Err(_) => {
                self.full[shard] = true;
                Ok(None)
            }
        }
    }
}

impl Operation {
    /// One that has not begun, and has no ticket yet.
    fn new(head: RequestHead, key: &[u8], value: Vec<u8>, generation: u64) -> Operation {
        let (ticket, key, state) = (Ticket(0), key.to_vec(), State::Unsent);
        Operation { ticket, head, key, value, link: None, generation, state, since_ns: 0 }
    }

    fn is_unsent(&self) -> bool {
        match &self.state {
            State::Fetching(fetching) => fetching.0.is_unsent(),
            State::Scanning(page) => page.is_unsent(),
            State::Unsent => true,
            State::Asked(_) => false,
        }
    }

    /// The shard that it asks.
    fn shard(&self, engine: &Engine) -> usize {
        match &self.state {
            State::Scanning(page) => page.shard(engine),
            _ => engine.transport.route(self.head.table, &self.key).1,
        }
    }

    /// Goes on as far as that takes no waiting. `None`: something is under way, or is to be sent.
    fn advance(
        &mut self,
        engine: &mut Engine,
        catalogue: &mut Catalogue,
        scanned: &mut Buffers,
        sending: &mut Sending,
    ) -> Result<Option<Outcome>> {
        let shard = self.shard(engine);
        match &mut self.state {
            State::Fetching(fetching) => {
                let (fetch, landing) = &mut **fetching;
                if let Some(exists) = fetch.run(engine, &self.key, landing)? {
                    return self.item(engine, catalogue, exists).map(Some);
                }
                let is_sent = fetch.is_unsent()
                    && sending.send(engine, shard, |engine| fetch.ask(engine, &self.key))?.is_some();
                if is_sent {
                    self.since_ns = engine.transport.fabric.now_ns();
                }
                Ok(None)
            }
            State::Scanning(page) => {
                if let Some(page) = page.advance(engine, catalogue, scanned)? {
                    return Ok(Some(Outcome::Page(page)));
                }
                let shard = page.shard(engine);
                if page.is_unsent() && sending.send(engine, shard, |engine| page.ask(engine))?.is_some() {
                    self.since_ns = engine.transport.fabric.now_ns();
                }
                Ok(None)
            }
            State::Unsent if self.value.len() > MESSAGE_VALUE_BYTES_MAX => {
                if sending.full[shard] || std::mem::replace(&mut sending.sent_large, true) {
                    sending.full[shard] = true;
                    return Ok(None);
                }
                let waits = engine.connection.caller.is_some() && !engine.transport.is_on_mirror();
                if waits && engine.check_server(shard).is_err() {
                    return Ok(None);
                }
                let answer = engine.write(self.head, &self.key, &self.value)?;
                // Those behind have waited for this one, which had patience of its own. If that was used up,
                // so is theirs.
                sending.patience = Patience::default();
                Ok(Some(self.outcome(&answer)))
            }
            State::Unsent => {
                let (key, value) = (&self.key, &self.value);
                let posted =
                    sending.send(engine, shard, |engine| engine.try_post(shard, self.head, key, value))?;
                if let Some(id) = posted {
                    (self.state, self.since_ns) = (State::Asked(id), engine.transport.fabric.now_ns());
                }
                Ok(None)
            }
            State::Asked(id) => match engine.arrived(*id)? {
                Some(answer) => self.written(engine, answer).map(Some),
                None => Ok(None),
            },
        }
    }

    /// The outcome of a write.
    fn written(&self, engine: &mut Engine, answer: Answer) -> Result<Outcome> {
        check_answer(&answer)?;
        let hash = engine.transport.route(self.head.table, &self.key).0;
        engine.transport.learn(hash, &answer);
        Ok(self.outcome(&answer))
    }

    /// What an answer says that is no refusal.
    fn outcome(&self, answer: &Answer) -> Outcome {
        match self.head.op {
            op if self.head.expect.is_some() => Outcome::Compared(compared(op, answer)),
            Op::Delete => Outcome::Deleted(answer.status == Status::Ok),
            _ => Outcome::Written(Version(answer.version)),
        }
    }

    /// The outcome of a get whose item has landed, if the item exists. A link that led elsewhere is repaired.
    fn item(&mut self, engine: &mut Engine, catalogue: &mut Catalogue, exists: bool) -> Result<Outcome> {
        let State::Fetching(fetching) = &mut self.state else { unreachable!("a get") };
        let landing = &mut fetching.1;
        if let Some(LinkEnd { pointer, origin }) = self.link.as_deref().filter(|_| exists) {
            engine.repair(origin.as_ref().map(KeptOrigin::get), *pointer, landing.pointer)?;
        }
        landed(engine, catalogue, landing, exists, self.generation)
    }

    /// Gives the operation up. Whether it may have had an effect.
    fn abandon(&mut self, engine: &mut Engine) -> Effect {
        match &mut self.state {
            State::Fetching(fetching) => fetching.0.abandon(engine),
            State::Scanning(page) => page.abandon(engine),
            State::Asked(id) if engine.transport.abandon(*id) => return Effect::Unknown,
            State::Unsent | State::Asked(_) => {}
        }
        Effect::No
    }

    /// Ends what the shard could not be asked for, or has not answered.
    fn fail(
        &mut self,
        engine: &mut Engine,
        catalogue: &mut Catalogue,
        scanned: &mut Buffers,
        error: Error,
    ) -> Result<Outcome> {
        let effect = self.abandon(engine);
        let table = self.head.table;
        match &mut self.state {
            State::Fetching(fetching) if engine.is_alone(table, &error) => {
                let route = engine.transport.route(table, &self.key);
                let found = engine.fetch_alone((table, &self.key), route, error, &mut fetching.1)?;
                self.item(engine, catalogue, found.is_some())
            }
            State::Scanning(page) if engine.is_alone(table, &error) => {
                page.finish_alone(engine, catalogue, scanned, error).map(Outcome::Page)
            }
            _ if effect == Effect::Unknown => Err(error.with_effect(effect)),
            _ => Err(error),
        }
    }
}

impl Submitted {
    /// How many have not been returned yet.
    fn outstanding(&self) -> usize {
        self.queue.len() + self.under_way.len() + self.finished.len()
    }

    fn new_ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }

    /// Takes in an operation that begins with the next poll.
    fn enqueue(&mut self, operation: Operation) -> Ticket {
        let ticket = self.new_ticket();
        self.queue.push_back(Operation { ticket, ..operation });
        ticket
    }

    /// Takes in an operation that is over.
    fn end_at_once(&mut self, outcome: Result<Outcome>) -> Ticket {
        let ticket = self.new_ticket();
        self.finish(ticket, outcome);
        ticket
    }

    fn finish(&mut self, ticket: Ticket, outcome: Result<Outcome>) {
        let outcome = outcome.map_err(|error| error.of("poll"));
        let number = if self.numbers.is_empty() { None } else { self.numbers.remove(&ticket) };
        self.finished.push_back(Completion { ticket, number: number.unwrap_or(0), outcome });
    }

    fn free_tag(&mut self) -> Option<u32> {
        self.free_tags.pop().or_else(|| {
            let tag = self.tags;
            self.tags += u32::from(tag < TAGS);
            Some(TAGS + tag).filter(|_| tag < TAGS)
        })
    }

    /// Begins what was submitted, as far as there is room. Returns whether that was anything.
    fn begin_queued(&mut self, engine: &mut Engine) -> bool {
        let mut began = false;
        while self.under_way.len() < UNDER_WAY_MAX {
            let Some(mut operation) = self.queue.pop_front() else { break };
            if !operation.head.op.properties().has_effect {
                let Some(tag) = self.free_tag() else {
                    self.queue.push_front(operation);
                    break;
                };
                if let Err(error) = begin_read(engine, tag, &mut operation) {
                    self.free_tags.push(tag);
                    self.finish(operation.ticket, Err(error));
                    continue;
                }
            }
            operation.since_ns = engine.transport.fabric.now_ns();
            self.under_way.push(operation);
            began = true;
        }
        began
    }

    /// Goes on with all that are under way. Returns whether one of them has ended, so that there is room for
    /// another.
    fn advance(&mut self, engine: &mut Engine, catalogue: &mut Catalogue, scanned: &mut Buffers) -> bool {
        let before = self.under_way.len();
        let now_ns = engine.transport.fabric.now_ns();
        self.sending.begin_round(engine.transport.shards());
        let mut under_way = std::mem::take(&mut self.under_way);
        under_way.retain_mut(|operation| {
            let advanced = operation.advance(engine, catalogue, scanned, &mut self.sending);
            let outcome = match advanced.transpose() {
                // The state of a server that has gone is looked through further.
                Some(Err(error)) => operation.fail(engine, catalogue, scanned, error),
                Some(outcome) => outcome,
                None if operation.is_unsent() => return true,
                None => match self.given_up(engine, operation, now_ns) {
                    Some(error) => operation.fail(engine, catalogue, scanned, error),
                    None => return true,
                },
            };
            self.end(operation, outcome);
            false
        });
        if self.sending.sent {
            engine.send_all();
        }
        if under_way.iter().any(Operation::is_unsent) {
            self.end_unsent(engine, catalogue, scanned, &mut under_way);
        }
        self.under_way = under_way;
        self.under_way.len() < before
    }

    /// Takes note of how an operation has ended.
    fn end(&mut self, operation: &Operation, outcome: Result<Outcome>) {
        match &operation.state {
            State::Fetching(fetching) => self.free_tags.push(fetching.0.tag()),
            State::Scanning(page) => self.free_tags.push(page.tag()),
            State::Unsent | State::Asked(_) => {}
        }
        self.finish(operation.ticket, outcome);
    }

    /// Gives up what could not be sent for too long.
    fn end_unsent(
        &mut self,
        engine: &mut Engine,
        catalogue: &mut Catalogue,
        scanned: &mut Buffers,
        under_way: &mut Vec<Operation>,
    ) {
        let now_ns = engine.transport.fabric.now_ns();
        let gone = self.has_tried_enough(engine, now_ns);
        if !gone && self.sending.patience.waited(now_ns) < engine.limit() {
            return;
        }
        under_way.retain_mut(|operation| {
            let unsent = operation.is_unsent();
            if unsent {
                let error = if gone { engine.gone() } else { engine.timed_out() };
                let outcome = operation.fail(engine, catalogue, scanned, error);
                self.end(operation, outcome);
            }
            !unsent
        });
    }

    /// Why an operation is not waited for any longer.
    fn given_up(&self, engine: &mut Engine, operation: &Operation, now_ns: u64) -> Option<Error> {
        let waited = Duration::from_nanos(now_ns.saturating_sub(operation.since_ns.max(self.moved_ns)));
        let shard = operation.shard(engine);
        match engine.check_asked(shard) {
            // A server that is superseded gives no more answers; one that has gone may be found again.
            Err(error)
                if engine.connection.caller.is_none()
                    || error.kind() == ErrorKind::Superseded && !engine.may_go_on_elsewhere(&error) =>
            {
                Some(error)
            }
            Err(error) if self.has_tried_enough(engine, now_ns) => Some(error),
            _ if waited >= engine.limit() => Some(engine.timed_out()),
            _ => None,
        }
    }

    /// Whether polls have tried to connect again for as long as they may.
    fn has_tried_enough(&self, engine: &Engine, now_ns: u64) -> bool {
        let since_ns = self.lost_ns.unwrap_or(now_ns);
        let retry_for = engine.connection.options.retries_for();
        engine.connection.detached && now_ns.saturating_sub(since_ns) >= nanoseconds(retry_for)
    }

    /// Looks between polls whether enough has moved on a slow way while all that is under way was waited for.
    fn note_moved(&mut self, engine: &Engine, now_ns: u64) {
        if now_ns - self.looked_ns < nanoseconds(engine.connection.options.timeout / 4) {
            return;
        }
        self.looked_ns = now_ns;
        let Some(now) = engine.transport.fabric.moved_bytes() else { return };
        // Another connection counts from its beginning.
        if now < self.moved || now >= self.moved + PROGRESS_BYTES {
            (self.moved, self.moved_ns) = (now, now_ns);
        }
    }

    /// Connects once more where the connection was lost, or nothing is answered. Each poll may only try once
    /// in a while.
    fn connect_again(&mut self, engine: &mut Engine) {
        let Some(caller) = engine.connection.caller.filter(|_| self.outstanding() > 0) else { return };
        engine.transport.fabric.look();
        engine.note_broken();
        if engine.transport.is_owed_by_primary() {
            // It is asked again by whoever tries once in a while.
            let _ = engine.reach_primary_again(false);
            return;
        }
        if engine.transport.in_force(0) == Some(false) {
            engine.connection.detached = true;
        }
        let now_ns = engine.transport.fabric.now_ns();
        let connection = &mut engine.connection;
        let timeout_ns = nanoseconds(connection.options.timeout);
        let awaited = self.under_way.iter().filter(|operation| !operation.is_unsent());
        let is_late = |operation: &Operation| {
            now_ns - operation.since_ns.max(connection.connected_ns).max(self.moved_ns) >= timeout_ns
        };
        let mut late = awaited.filter(|operation| is_late(operation));
        if !connection.detached && late.next().is_none() {
            self.lost_ns = None;
            return;
        }
        self.lost_ns.get_or_insert(now_ns);
        if connection.detached {
            // The descriptor of a connection that is over is always readable, and its caller would come again
            // at once.
            connection.setup.nap(Duration::from_nanos(connection.next_try_ns.saturating_sub(now_ns)));
        } else if now_ns < connection.next_try_ns {
            return;
        }
        match engine.connect_again(caller) {
            Ok(()) => self.lost_ns = None,
            // What is under way ends as it does without a caller.
            Err(error) if !is_passing(&error) => engine.connection.caller = None,
            Err(_) => {}
        }
        let now_ns = engine.transport.fabric.now_ns();
        let tried_for = Duration::from_nanos(now_ns - self.lost_ns.unwrap_or(now_ns));
        engine.connection.next_try_ns = now_ns + nanoseconds(between_tries(tried_for));
    }
}

/// Begins a get or a page, whose READs have this tag.
fn begin_read(engine: &mut Engine, tag: u32, read: &mut Operation) -> Result<()> {
    if let State::Scanning(page) = &mut read.state {
        page.set_tag(tag);
        return Ok(());
    }
    engine.note_operation()?;
    let table = read.head.table;
    let route = engine.transport.route(table, &read.key);
    let of_link = read.link.as_ref().and_then(|link| link.pointer);
    let known = of_link.or_else(|| engine.transport.known_pointer(route.0));
    if known.is_none() && table.kind().is_ordered() {
        engine.copy_models_for_gets(table, route.1)?;
    }
    let fetch = engine.begin_fetch(tag, (table, &read.key), route, known);
    read.state = State::Fetching(Box::new((fetch, Landing::default())));
    Ok(())
}

/// The outcome of a get whose item has landed, if the item exists.
fn landed(
    engine: &mut Engine,
    catalogue: &mut Catalogue,
    landing: &mut Landing,
    exists: bool,
    generation: u64,
) -> Result<Outcome> {
    let item = exists.then(|| catalogue.make_item(engine, landing, generation)).transpose()?;
    catalogue.check_generation(engine, generation)?;
    Ok(Outcome::Item(item))
}
