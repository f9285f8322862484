//! Submit and poll: operations that go on while their caller does something else.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use kelix_fabric::{Clock, PROGRESS_BYTES, Waiter, WorkQueue};
use kelix_types::limits::{MESSAGE_VALUE_BYTES_MAX, SESSION_READS_MAX};
use kelix_types::{Effect, Error, ErrorKind, Result, Version};
use kelix_wire::{Op, RequestHead, Status};

use crate::Table;
use crate::catalogue::{BoundTable, Catalogue};
use crate::engine::{
    BETWEEN_TRIES, Buffers, Engine, Fetch, Patience, Wanted, check_answer, check_key, check_value,
    is_passing, nanoseconds,
};
use crate::frontier::Frontier;
use crate::item::{Item, NewItem};
use crate::key::Key;
use crate::links::{KeptOrigin, Origin};
use crate::pointers::Pointer;
use crate::read::Landing;
use crate::scan::{PageRead, PausedScan, Scan, ScanPage};
use crate::session::{CompareAndSet, Session, compared};
use crate::transport::{Answer, PostError, RequestId};

/// Names a submitted operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// A submitted operation that has ended.
#[derive(Debug)]
pub struct Completion {
    /// Which one.
    pub ticket: Ticket,
    /// The number that its caller gave it ([`Session::set_number`]), else 0.
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
            Err(PostError::Failed(error)) if engine.connection.caller.is_none() || !is_passing(&error) => {
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
                if engine.check_server(shard).is_err() && engine.connection.caller.is_some() {
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
        match engine.check_server(shard) {
            // A server that is superseded gives no more answers; one that has gone may be found again.
            Err(error) if engine.connection.caller.is_none() || error.kind() == ErrorKind::Superseded => {
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
        let retry_for = engine.connection.options.retry_for;
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
        engine.connection.next_try_ns = engine.transport.fabric.now_ns() + nanoseconds(BETWEEN_TRIES);
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
        engine.copy_models(table, route.1)?;
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

impl Session {
    fn submit(
        &mut self,
        op: Op,
        table: Table,
        (key, value): (&[u8], &[u8]),
        expect: Option<Option<Version>>,
    ) -> Result<Ticket> {
        self.operate("submit", |session| {
            let BoundTable { id, generation } = session.check_table(table)?;
            let head = RequestHead { expect, ..RequestHead::new(op, 0, id) };
            session.enqueue(head, key, value.to_vec(), generation)
        })
    }

    fn enqueue(&mut self, head: RequestHead, key: &[u8], value: Vec<u8>, generation: u64) -> Result<Ticket> {
        check_key(head.table, key)?;
        check_value(&head, &value)?;
        Ok(self.submitted.enqueue(Operation::new(head, key, value, generation)))
    }

    fn enqueue_item(
        &mut self,
        table: Table,
        key: &[u8],
        expect: Option<Option<Version>>,
        item: &NewItem,
    ) -> Result<Ticket> {
        self.operate("submit", |session| {
            let BoundTable { id, generation } = session.check_table(table)?;
            let Session { engine, catalogue, .. } = session;
            let (head, body) = catalogue.encode_item(engine, id, expect, item)?;
            session.enqueue(head, key, body.into_owned(), generation)
        })
    }

    /// Submits the read of a link's target, which was found in a generation (0: in none). What straight code
    /// finds has ended then.
    fn submit_target(
        &mut self,
        wanted: Wanted<'_>,
        origin: Option<Origin<'_>>,
        generation: u64,
    ) -> Result<Ticket> {
        let Session { engine, catalogue, submitted, landing, .. } = self;
        if let Some(exists) = engine.land_at_hand(wanted, origin, landing)? {
            let outcome = landed(engine, catalogue, landing, exists, generation);
            return Ok(submitted.end_at_once(outcome));
        }
        let Wanted { table, key, pointer } = wanted;
        check_key(table, key)?;
        let link = Some(Box::new(LinkEnd { pointer, origin: origin.map(KeptOrigin::of) }));
        let get = Operation::new(RequestHead::new(Op::Get, 0, table), key, Vec::new(), generation);
        Ok(submitted.enqueue(Operation { link, ..get }))
    }

    /// Gives what was submitted a number of the caller's own, which its [`Completion`] carries: so a caller
    /// finds what it belongs to without a map of tickets. Without effect on what was returned by a poll.
    pub fn set_number(&mut self, ticket: Ticket, number: u64) {
        let Submitted { finished, under_way, queue, numbers, .. } = &mut self.submitted;
        let is_it = |operation: &Operation| operation.ticket == ticket;
        // Mostly what was submitted last: among many that have ended it is not looked for.
        if queue.back().is_some_and(is_it) {
            numbers.insert(ticket, number);
        } else if let Some(ended) = finished.iter_mut().rev().find(|ended| ended.ticket == ticket) {
            ended.number = number;
        } else if queue.iter().chain(under_way.iter()).any(is_it) {
            numbers.insert(ticket, number);
        }
    }

    /// Submits a get. It begins with the next [`Session::poll`], together with all others submitted until
    /// then.
    pub fn submit_get(&mut self, table: Table, key: impl Key) -> Result<Ticket> {
        self.submit(Op::Get, table, (key.into_bytes().as_ref(), &[]), None)
    }

    /// Submits the read along an item's first link under this name, as [`Session::follow`] does it. Its
    /// outcome is an [`Outcome::Item`]. In shared memory it has mostly ended then, and the next poll tells of
    /// it.
    pub fn submit_follow(&mut self, item: &Item, name: &str) -> Result<Ticket> {
        self.operate("submit", |session| {
            session.heal()?;
            session.catalogue.check_item(&session.engine, item.life)?;
            let link = item.raw_links(name).next().ok_or_else(|| item.has_no_link(name))?;
            session.submit_target(item.target(&link), item.origin(&link), item.generation)
        })
    }

    /// Submits the reads of some targets of a frontier, as [`Session::visit_batch`] does them: a ticket each,
    /// in their order. Each ends by itself, as an [`Outcome::Item`].
    pub fn submit_visit(&mut self, frontier: &Frontier, targets: Range<usize>) -> Result<Vec<Ticket>> {
        let mut tickets = Vec::with_capacity(targets.len());
        self.submit_each(frontier, targets, |_, ticket| tickets.push(ticket))?;
        Ok(tickets)
    }

    /// Submits the reads of some targets of a frontier, and shows each ticket when it is given.
    pub(crate) fn submit_each(
        &mut self,
        frontier: &Frontier,
        targets: Range<usize>,
        mut each: impl FnMut(&mut Session, Ticket),
    ) -> Result<()> {
        self.operate("submit", |session| {
            session.heal()?;
            let targets = frontier.targets.get(targets).ok_or_else(|| frontier.has_no_such())?;
            for target in targets {
                let bound = session.bind_target(frontier, target);
                let submitted = bound.and_then(|(wanted, generation)| {
                    session.submit_target(wanted, frontier.origin(target), generation)
                });
                // Those before it are under way.
                let ticket = submitted.unwrap_or_else(|error| session.submitted.end_at_once(Err(error)));
                each(session, ticket);
            }
            Ok(())
        })
    }

    /// Submits a put.
    pub fn submit_put(&mut self, table: Table, key: impl Key, value: &[u8]) -> Result<Ticket> {
        self.submit(Op::Put, table, (key.into_bytes().as_ref(), value), None)
    }

    /// Submits a put that is done if the key's version is still the expected one (`None`: if it is absent),
    /// as by [`Session::compare_and_set`]. Its outcome is an [`Outcome::Compared`].
    pub fn submit_compare_and_set(
        &mut self,
        table: Table,
        key: impl Key,
        expected: Option<Version>,
        value: &[u8],
    ) -> Result<Ticket> {
        self.submit(Op::Put, table, (key.into_bytes().as_ref(), value), Some(expected))
    }

    /// Submits a put of an item with attributes and links. Waits only where the server has yet to be asked
    /// for the number of an attribute's name.
    pub fn submit_item(&mut self, table: Table, key: impl Key, item: &NewItem) -> Result<Ticket> {
        self.enqueue_item(table, key.into_bytes().as_ref(), None, item)
    }

    /// Submits a put of an item that is done if the key's version is still the expected one (`None`: if it is
    /// absent), as by [`Session::compare_and_set_item`]. Its outcome is an [`Outcome::Compared`]. Waits where
    /// [`Session::submit_item`] does.
    pub fn submit_compare_and_set_item(
        &mut self,
        table: Table,
        key: impl Key,
        expected: Option<Version>,
        item: &NewItem,
    ) -> Result<Ticket> {
        self.enqueue_item(table, key.into_bytes().as_ref(), Some(expected), item)
    }

    /// Submits a delete.
    pub fn submit_delete(&mut self, table: Table, key: impl Key) -> Result<Ticket> {
        self.submit(Op::Delete, table, (key.into_bytes().as_ref(), &[]), None)
    }

    /// Submits a delete that is done if the key's version is still the expected one, as by
    /// [`Session::compare_and_delete`]. Its outcome is an [`Outcome::Compared`].
    pub fn submit_compare_and_delete(
        &mut self,
        table: Table,
        key: impl Key,
        expected: Version,
    ) -> Result<Ticket> {
        self.submit(Op::Delete, table, (key.into_bytes().as_ref(), &[]), Some(Some(expected)))
    }

    /// Submits the first page of a scan. Its outcome is an [`Outcome::Page`], whose rest
    /// [`Session::submit_page`] takes. In shared memory a page is read in the poll where it begins; elsewhere
    /// the shard is asked for it.
    pub fn submit_scan(&mut self, table: Table, scan: &Scan) -> Result<Ticket> {
        self.operate("submit", |session| {
            let scan = session.begin_scan(table, scan)?;
            Ok(session.enqueue_page(scan))
        })
    }

    /// Submits the next page of a scan: of one whose last page was submitted, or that was set aside
    /// ([`Scanner::pause`](crate::Scanner::pause)).
    pub fn submit_page(&mut self, scan: PausedScan) -> Result<Ticket> {
        self.operate("submit", |session| {
            scan.check_life(session)?;
            Ok(session.enqueue_page(scan))
        })
    }

    fn enqueue_page(&mut self, scan: PausedScan) -> Ticket {
        let page = Operation::new(RequestHead::new(Op::Scan, 0, scan.table()), &[], Vec::new(), 0);
        let state = State::Scanning(Box::new(PageRead::new(scan)));
        self.submitted.enqueue(Operation { state, ..page })
    }

    /// The outcome of what was submitted last, if it has ended already.
    #[cfg(all(feature = "aio", unix))]
    pub(crate) fn take_last(&mut self, ticket: Ticket) -> Option<Result<Outcome>> {
        self.submitted.finished.back().filter(|last| last.ticket == ticket)?;
        self.submitted.finished.pop_back().map(|last| last.outcome)
    }

    /// Begins what was submitted and moves what has ended to `completions`; returns how many. Waits only to
    /// send a value that does not fit one message, for one such value at most, and to map memory that is new.
    ///
    /// After a poll that returned 0, and until the next call of this session, [`Session::fd`] becomes
    /// readable when there is more. An operation that is not answered in time ends with the next poll after
    /// that, so wait for the descriptor with a time-out. A session that goes on after it has lost its
    /// connection ([`SessionOptions::retry_for`]) connects again in here, and then has another descriptor.
    ///
    /// [`SessionOptions::retry_for`]: crate::SessionOptions::retry_for
    pub fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize> {
        self.poll_at_most(completions, usize::MAX)
    }

    /// The same, for no more than so many completions. What has ended beyond that the next poll returns.
    pub fn poll_at_most(&mut self, completions: &mut Vec<Completion>, most: usize) -> Result<usize> {
        self.operate("poll", |session| session.engine.transport.countdown.check())?;
        let Session { engine, submitted, .. } = self;
        let before = completions.len();
        if engine.connection.announced {
            // Wake-ups that came are over now, and so is a server that went.
            engine.transport.fabric.look();
            engine.transport.fabric.sleep(Some(0));
            engine.connection.announced = false;
        }
        let now_ns = engine.transport.fabric.now_ns();
        submitted.note_moved(engine, now_ns);
        submitted.connect_again(engine);
        loop {
            self.operate("poll", Session::move_on)?;
            let finished = &mut self.submitted.finished;
            completions.extend(finished.drain(..finished.len().min(most)));
            if completions.len() > before || self.outstanding() == 0 || most == 0 {
                break;
            }
            // What came before the announcement wakes nobody, so there is one more look after it.
            let Engine { transport, connection, .. } = &mut self.engine;
            if connection.announced && !transport.fabric.unseen() {
                break;
            }
            transport.fabric.announce_sleep();
            connection.announced = true;
        }
        Ok(completions.len() - before)
    }

    /// Takes in what has come, and does what can be done without waiting for more.
    fn move_on(&mut self) -> Result<()> {
        let Session { engine, catalogue, submitted, scanned, .. } = self;
        engine.transport.fabric.progress();
        engine.transport.poll_replies()?;
        engine.note_broken();
        while submitted.begin_queued(engine) | submitted.advance(engine, catalogue, scanned) {}
        engine.transport.fabric.doorbell();
        Ok(())
    }

    /// How many submitted operations have not been returned by [`Session::poll`] yet.
    pub fn outstanding(&self) -> usize {
        self.submitted.outstanding()
    }

    /// Ends everything that was submitted and has not ended: its server is gone for good.
    pub(crate) fn give_up_submitted(&mut self) {
        let Session { engine, submitted, .. } = self;
        let under_way = std::mem::take(&mut submitted.under_way);
        for mut operation in under_way.into_iter().chain(std::mem::take(&mut submitted.queue)) {
            let effect = operation.abandon(engine);
            let error = engine.gone().with_effect(effect);
            submitted.finish(operation.ticket, Err(error));
        }
    }
}
