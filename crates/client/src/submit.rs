//! Submit and poll: operations that go on while their caller does something else.

use std::collections::VecDeque;
use std::time::Duration;

use kelix_fabric::{Clock, PROGRESS_BYTES, Waiter, WorkQueue};
use kelix_types::limits::{MESSAGE_VALUE_BYTES_MAX, SESSION_READS_MAX};
use kelix_types::{Effect, Error, ErrorKind, Result, Version};
use kelix_wire::{Op, RequestHead, Status};

use crate::Table;
use crate::catalogue::{BoundTable, Catalogue};
use crate::engine::{
    BETWEEN_TRIES, Engine, Fetch, Patience, check_answer, check_key, check_value, is_passing, nanoseconds,
};
use crate::item::{Item, NewItem};
use crate::key::Key;
use crate::read::Landing;
use crate::session::Session;
use crate::transport::{Answer, PostError, RequestId};

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
struct Operation {
    ticket: Ticket,
    head: RequestHead,
    key: Vec<u8>,
    value: Vec<u8>,
    /// That of the table; 0: none.
    generation: u64,
    state: State,
    /// When what is under way was begun.
    since_ns: u64,
}

enum State {
    /// A get whose item is looked for.
    Fetching(Box<(Fetch, Landing)>),
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
    fn is_unsent(&self) -> bool {
        match &self.state {
            State::Fetching(fetching) => fetching.0.is_unsent(),
            State::Unsent => true,
            State::Asked(_) => false,
        }
    }

    /// Goes on as far as that takes no waiting. `None`: something is under way, or is to be sent.
    fn advance(
        &mut self,
        engine: &mut Engine,
        catalogue: &mut Catalogue,
        sending: &mut Sending,
    ) -> Result<Option<Outcome>> {
        let shard = engine.transport.route(self.head.table, &self.key).1;
        match &mut self.state {
            State::Fetching(fetching) => {
                let (fetch, landing) = &mut **fetching;
                loop {
                    let posted = fetch.read_cost().0;
                    match fetch.advance(engine, &self.key, landing)? {
                        Some(exists) => return self.item(engine, catalogue, exists).map(Some),
                        None if fetch.is_unsent() => {
                            if sending.send(engine, shard, |engine| fetch.ask(engine, &self.key))?.is_some() {
                                self.since_ns = engine.transport.fabric.now_ns();
                            }
                            return Ok(None);
                        }
                        // What was posted may be done already: nothing tells of it then.
                        None if fetch.read_cost().0 != posted => {}
                        None => return Ok(None),
                    }
                }
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
                Ok(Some(Outcome::Written(Version(answer.version))))
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
        Ok(match self.head.op {
            Op::Delete => Outcome::Deleted(answer.status == Status::Ok),
            _ => Outcome::Written(Version(answer.version)),
        })
    }

    /// The outcome of a get whose item has landed, if the item exists.
    fn item(&mut self, engine: &mut Engine, catalogue: &mut Catalogue, exists: bool) -> Result<Outcome> {
        let State::Fetching(fetching) = &mut self.state else { unreachable!("a get") };
        let item =
            exists.then(|| catalogue.make_item(engine, &mut fetching.1, self.generation)).transpose()?;
        catalogue.check_generation(engine, self.generation)?;
        Ok(Outcome::Item(item))
    }

    /// Gives the operation up. Whether it may have had an effect.
    fn abandon(&mut self, engine: &mut Engine) -> Effect {
        match &mut self.state {
            State::Fetching(fetching) => fetching.0.abandon(engine),
            State::Asked(id) if engine.transport.abandon(*id) => return Effect::Unknown,
            State::Unsent | State::Asked(_) => {}
        }
        Effect::No
    }

    /// Ends what the shard could not be asked for, or has not answered.
    fn fail(&mut self, engine: &mut Engine, catalogue: &mut Catalogue, error: Error) -> Result<Outcome> {
        let effect = self.abandon(engine);
        let table = self.head.table;
        match &mut self.state {
            State::Fetching(fetching) if engine.is_alone(table, &error) => {
                let route = engine.transport.route(table, &self.key);
                let found = engine.fetch_alone((table, &self.key), route, error, &mut fetching.1)?;
                self.item(engine, catalogue, found.is_some())
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

    fn finish(&mut self, ticket: Ticket, outcome: Result<Outcome>) {
        let outcome = outcome.map_err(|error| error.of("poll"));
        self.finished.push_back(Completion { ticket, outcome });
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
            if operation.head.op == Op::Get {
                let Some(tag) = self.free_tag() else {
                    self.queue.push_front(operation);
                    break;
                };
                match begin_get(engine, tag, &operation) {
                    Ok(fetch) => operation.state = State::Fetching(Box::new((fetch, Landing::default()))),
                    Err(error) => {
                        self.free_tags.push(tag);
                        self.finish(operation.ticket, Err(error));
                        continue;
                    }
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
    fn advance(&mut self, engine: &mut Engine, catalogue: &mut Catalogue) -> bool {
        let before = self.under_way.len();
        let now_ns = engine.transport.fabric.now_ns();
        self.sending.begin_round(engine.transport.shards());
        let mut under_way = std::mem::take(&mut self.under_way);
        under_way.retain_mut(|operation| {
            let outcome = match operation.advance(engine, catalogue, &mut self.sending).transpose() {
                // The state of a server that has gone is looked through further.
                Some(Err(error)) => operation.fail(engine, catalogue, error),
                Some(outcome) => outcome,
                None if operation.is_unsent() => return true,
                None => match self.given_up(engine, operation, now_ns) {
                    Some(error) => operation.fail(engine, catalogue, error),
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
            self.end_unsent(engine, catalogue, &mut under_way);
        }
        self.under_way = under_way;
        self.under_way.len() < before
    }

    /// Takes note of how an operation has ended.
    fn end(&mut self, operation: &Operation, outcome: Result<Outcome>) {
        if let State::Fetching(fetching) = &operation.state {
            self.free_tags.push(fetching.0.tag());
        }
        self.finish(operation.ticket, outcome);
    }

    /// Gives up what could not be sent for too long.
    fn end_unsent(&mut self, engine: &mut Engine, catalogue: &mut Catalogue, under_way: &mut Vec<Operation>) {
        let now_ns = engine.transport.fabric.now_ns();
        let gone = self.has_tried_enough(engine, now_ns);
        if !gone && self.sending.patience.waited(now_ns) < engine.limit() {
            return;
        }
        under_way.retain_mut(|operation| {
            let unsent = operation.is_unsent();
            if unsent {
                let error = if gone { engine.gone() } else { engine.timed_out() };
                let outcome = operation.fail(engine, catalogue, error);
                self.end(operation, outcome);
            }
            !unsent
        });
    }

    /// Why an operation is not waited for any longer.
    fn given_up(&self, engine: &mut Engine, operation: &Operation, now_ns: u64) -> Option<Error> {
        let waited = Duration::from_nanos(now_ns.saturating_sub(operation.since_ns.max(self.moved_ns)));
        let shard = engine.transport.route(operation.head.table, &operation.key).1;
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

fn begin_get(engine: &mut Engine, tag: u32, get: &Operation) -> Result<Fetch> {
    engine.note_operation()?;
    let table = get.head.table;
    let route = engine.transport.route(table, &get.key);
    if table.kind().is_ordered() {
        engine.copy_models(table, route.1)?;
    }
    let known = engine.transport.known_pointer(route.0);
    Ok(engine.begin_fetch(tag, (table, &get.key), route, known))
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
        let (key, state) = (key.to_vec(), State::Unsent);
        let operation = Operation { ticket, head, key, value, generation, state, since_ns: 0 };
        self.submitted.queue.push_back(operation);
        Ok(ticket)
    }

    /// Submits a get. It begins with the next [`Session::poll`], together with all others submitted until
    /// then.
    pub fn submit_get(&mut self, table: Table, key: impl Key) -> Result<Ticket> {
        self.submit(Op::Get, table, key.into_bytes().as_ref(), &[])
    }

    /// Submits a put.
    pub fn submit_put(&mut self, table: Table, key: impl Key, value: &[u8]) -> Result<Ticket> {
        self.submit(Op::Put, table, key.into_bytes().as_ref(), value)
    }

    /// Submits a put of an item with attributes and links. Waits only where the server has yet to be asked
    /// for the number of an attribute's name.
    pub fn submit_item(&mut self, table: Table, key: impl Key, item: &NewItem) -> Result<Ticket> {
        self.operate("submit", |session| {
            let BoundTable { id, generation } = session.check_table(table)?;
            let Session { engine, catalogue, .. } = session;
            let (head, body) = catalogue.encode_item(engine, id, None, item)?;
            session.enqueue(head, key.into_bytes().as_ref(), body.into_owned(), generation)
        })
    }

    /// Submits a delete.
    pub fn submit_delete(&mut self, table: Table, key: impl Key) -> Result<Ticket> {
        self.submit(Op::Delete, table, key.into_bytes().as_ref(), &[])
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
            completions.extend(self.submitted.finished.drain(..));
            if completions.len() > before || self.outstanding() == 0 {
                break;
            }
            // What came before the announcement wakes nobody, so there is one more look after it.
            let Engine { transport, connection } = &mut self.engine;
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
        let Session { engine, catalogue, submitted, .. } = self;
        engine.transport.fabric.progress();
        engine.transport.poll_replies()?;
        engine.note_broken();
        while submitted.begin_queued(engine) | submitted.advance(engine, catalogue) {}
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
