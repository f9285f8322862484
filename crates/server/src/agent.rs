//! The agent thread: clients over TCP, their set-up and their data.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix_fabric::shm::{return_free_memory, term_in_force};
use kelix_fabric::tcp::{Agent, AgentBell, AgentLimits, AgentShard, ConnectionId, Event};
use kelix_fabric::verbs::HostEvent;
use kelix_image::Span;
use kelix_types::limits::{CLIENTS_MAX, FRAME_BYTES_MAX, GREETING_NS};
use kelix_types::{Error, Result};
use kelix_wire::MAILBOX_BYTES;
use kelix_wire::control::{Caller, DENIED, Frame, Purpose};
use subtle::ConstantTimeEq;
use tracing::{debug, warn};

use crate::clients::{ClientRecord, ClientWay};
use crate::connection::agree;
use crate::feed::{Attach, Feeds};
use crate::namespace::{Namespace, Visitor};
use crate::server::{ServerConfig, Shared, Token};
use crate::shard_thread::{Access, Command, Outbox};
use crate::verbs::VerbsThread;

/// Clients that go before the memory that they had is given back to the system, in a moment without work.
const GONE_MAX: usize = 64;
/// Looking for work while giving the core to whoever wants it.
const YIELD: Duration = Duration::from_micros(50);
/// How long a server that is to end waits for a moment in which nothing arrives. Clients that never pause
/// must not keep it.
const PASSED_ON: Duration = Duration::from_millis(500);
/// How long an agent that is to end waits for clients to take in what they were answered.
const FAREWELL: Duration = Duration::from_secs(1);
/// Words that a shard may have written for a client and the agent not yet taken: what a ring holds, with a
/// head for each message in it.
const QUEUE_WORDS: usize = MAILBOX_BYTES as usize / 8 * 3 / 2;

/// The rest of the server's handle to the agent.
pub(crate) struct AgentHandle {
    orders: Sender<(ConnectionId, &'static str)>,
    bell: Arc<AgentBell>,
    ending: Arc<Ending>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How far the end of the server has come.
#[derive(Default)]
struct Ending {
    /// Nobody new is let in.
    begins: AtomicBool,
    /// What had arrived then is with the shards.
    passed_on: AtomicBool,
    /// The shards have ended, so the agent is to end too.
    ends: AtomicBool,
    /// Nobody is to read over verbs any more, and nobody does.
    closes_verbs: AtomicBool,
    verbs_closed: AtomicBool,
}

impl AgentHandle {
    /// Starts the agent's thread, which takes clients from a listener as the configuration says, and of these
    /// also such as come over verbs.
    pub fn start(
        shared: Arc<Shared>,
        (listener, config): (TcpListener, &ServerConfig),
        shards: Vec<AgentShard>,
        verbs: Option<VerbsThread>,
    ) -> Result<AgentHandle> {
        let limits = AgentLimits {
            connections: CLIENTS_MAX,
            greeting: Duration::from_nanos(GREETING_NS),
            write_words: FRAME_BYTES_MAX / 8,
            index: kelix_index::READER,
        };
        let authority = term_in_force(&shared.authority.page);
        let mut agent = Agent::new(shards, authority, shared.authority.term, limits)?;
        agent.listen(listener, config.tls.clone())?;
        verbs.as_ref().map(|verbs| agent.watch(verbs.host.fd())).transpose()?;
        let (orders, ordered) = channel();
        let bell = agent.bell();
        let tokens = config.tokens.clone();
        let mut thread = AgentThread {
            agent,
            verbs,
            shared,
            ordered,
            tokens,
            known: Vec::new(),
            sessions: Vec::new(),
            gone: 0,
        };
        let ending = Arc::new(Ending::default());
        let told = ending.clone();
        let thread = std::thread::Builder::new()
            .name("kelix-agent".into())
            .spawn(move || thread.run(&told))
            .map_err(|source| Error::system("serve", "cannot start the agent thread", source))?;
        Ok(AgentHandle { orders, bell, ending, thread: Mutex::new(Some(thread)) })
    }

    /// Ends a client's connection.
    pub fn close(&self, connection: ConnectionId, why: &'static str) {
        let _ = self.orders.send((connection, why));
        self.bell.wake();
    }

    /// Lets nobody new in, and waits until the shards have what has arrived, as far as clients pause within
    /// [`PASSED_ON`].
    pub fn pass_on(&self) {
        self.tell(&self.ending.begins, &self.ending.passed_on);
    }

    /// Has nobody read over verbs any more, since sessions would believe for some time yet what they READ
    /// here. `false`: it is not known whether somebody still does.
    pub fn close_verbs(&self) -> bool {
        self.tell(&self.ending.closes_verbs, &self.ending.verbs_closed)
    }

    /// Tells the thread something, and waits until that is done, at most for [`PASSED_ON`]. Whether it is.
    fn tell(&self, order: &AtomicBool, done: &AtomicBool) -> bool {
        order.store(true, Ordering::SeqCst);
        self.bell.wake();
        let began = Instant::now();
        while !done.load(Ordering::SeqCst) && began.elapsed() < PASSED_ON {
            std::thread::sleep(Duration::from_millis(1));
        }
        done.load(Ordering::SeqCst)
    }

    /// Tells the thread to end, now that the shards have, and waits for that.
    pub fn join(&self) {
        self.ending.ends.store(true, Ordering::SeqCst);
        self.bell.wake();
        if let Some(thread) = self.thread.lock().expect("no panic under this lock").take() {
            let _ = thread.join();
        }
    }
}

struct AgentThread {
    agent: Agent,
    /// Serves those who come over verbs, if they may.
    verbs: Option<VerbsThread>,
    shared: Arc<Shared>,
    ordered: Receiver<(ConnectionId, &'static str)>,
    /// Words of which clients must know one, if there are any; and those who did, and have not greeted yet.
    tokens: Vec<Token>,
    known: Vec<(ConnectionId, usize)>,
    /// Those who have greeted.
    sessions: Vec<Greeted>,
    /// How many have gone since free memory was given back.
    gone: usize,
}

/// A client that has greeted.
pub(crate) struct Greeted {
    pub connection: ConnectionId,
    /// What the rest of the server knows it by.
    pub number: u64,
    pub namespace: Arc<Namespace>,
    pub caller: Option<Caller>,
    pub access: Access,
    /// It follows, as a mirror or a replica.
    pub follows: bool,
    /// Of a replica: the number of the member of the cluster.
    pub boot: Option<u64>,
}

/// How a client has greeted, in a version that is spoken.
struct Hello {
    version: u16,
    features: u64,
    purpose: Purpose,
    caller: Option<Caller>,
}

impl AgentThread {
    fn run(&mut self, ending: &Ending) {
        self.shared.authority.wait_for_begin();
        let mut events = Vec::new();
        let mut idle_since = None;
        while !ending.ends.load(Ordering::SeqCst) {
            let begins = ending.begins.load(Ordering::SeqCst);
            if begins {
                self.agent.stop_listening();
            }
            while let Ok((connection, why)) = self.ordered.try_recv() {
                self.refuse(connection, why);
            }
            if ending.closes_verbs.load(Ordering::SeqCst) && !ending.verbs_closed.load(Ordering::SeqCst) {
                self.verbs.iter_mut().for_each(|verbs| verbs.host.close());
                ending.verbs_closed.store(true, Ordering::SeqCst);
            }
            self.serve_verbs(false);
            if self.agent.turn(&mut events) {
                events.drain(..).for_each(|event| self.on(event));
                idle_since = None;
                self.agent.give_way(!begins);
                continue;
            }
            // Nothing was there to be taken, and the server's end had begun before that was looked for.
            ending.passed_on.fetch_or(begins, Ordering::SeqCst);
            let looks_on = idle_since.get_or_insert_with(Instant::now).elapsed() < YIELD;
            if !looks_on || !self.agent.give_core() {
                if self.gone >= GONE_MAX {
                    self.gone = 0;
                    return_free_memory();
                }
                self.agent.wait();
            }
        }
        self.send_the_rest(&mut events);
        for session in self.sessions.drain(..) {
            self.shared.leave(session.number);
        }
    }

    /// Sends what the shards said last, as far as clients take it in within [`FAREWELL`].
    fn send_the_rest(&mut self, events: &mut Vec<Event>) {
        let began = Instant::now();
        loop {
            self.agent.turn(events);
            events.drain(..).for_each(|event| self.on(event));
            if !self.agent.has_unsent() || began.elapsed() >= FAREWELL {
                return;
            }
            self.agent.wait();
        }
    }

    /// Does what there is to do for sessions over verbs: now, or if that was not done for a while.
    fn serve_verbs(&mut self, now: bool) {
        let Some(verbs) = &mut self.verbs else { return };
        for event in verbs.turn(now) {
            let number = match &event {
                HostEvent::Changed(number) | HostEvent::Over(number) => *number,
                HostEvent::Trouble(what) => {
                    warn!(what, "verbs");
                    continue;
                }
            };
            let Some(session) = self.sessions.iter().find(|session| session.number == number) else {
                continue;
            };
            let connection = session.connection;
            match event {
                HostEvent::Changed(_) => self.send(connection, &Frame::RegionsChanged),
                HostEvent::Over(_) | HostEvent::Trouble(_) => {
                    self.refuse(connection, "its queue pair is over")
                }
            }
        }
    }

    fn send(&mut self, connection: ConnectionId, frame: &Frame) {
        let (kind, bytes) = frame.encode();
        self.agent.send(connection, kind, &bytes);
    }

    fn refuse(&mut self, connection: ConnectionId, why: &'static str) {
        self.agent.refuse(connection, why, why);
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Over(connection, why) => {
                debug!(?connection, why, "connection over");
                self.gone += 1;
                self.known.retain(|(id, _)| *id != connection);
                let session = self.sessions.iter().position(|session| session.connection == connection);
                if let Some(index) = session {
                    let number = self.sessions.swap_remove(index).number;
                    self.verbs.iter_mut().for_each(|verbs| verbs.host.leave(number));
                    self.shared.leave(number);
                }
            }
            Event::Ready => self.serve_verbs(true),
            Event::Control(connection, kind, bytes) => {
                let greeted = self.sessions.iter().find(|session| session.connection == connection);
                match Frame::decode(kind, &bytes) {
                    Some(Frame::Hello { versions, features, purpose, caller, namespace })
                        if greeted.is_none() =>
                    {
                        match agree(versions, features) {
                            Ok(version) => {
                                let hello = Hello { version, features, purpose, caller };
                                self.greet(connection, hello, &namespace);
                            }
                            Err(text) => {
                                self.agent.refuse(connection, &text, "another protocol version");
                            }
                        }
                    }
                    Some(Frame::Token { token }) if greeted.is_none() => {
                        let known =
                            self.tokens.iter().position(|one| one.word.as_bytes().ct_eq(&token).into());
                        if let Some(known) = known {
                            self.known.retain(|(id, _)| *id != connection);
                            self.known.push((connection, known));
                        } else if !self.tokens.is_empty() {
                            warn!(?connection, "a client has a wrong token");
                            let why = format!("{DENIED} connect: its token is not one that the server knows");
                            self.agent.refuse(connection, &why, "a wrong token");
                        }
                    }
                    Some(Frame::AskStatistics) if greeted.is_some() => {
                        let namespace = &greeted.expect("just seen").namespace;
                        let text = crate::statistics::json(&self.shared, namespace).to_string();
                        self.send(connection, &Frame::Statistics { text });
                    }
                    Some(Frame::Attach { copy_rate, position, name })
                        if greeted.is_some_and(|greeted| greeted.follows) =>
                    {
                        let boot = greeted.and_then(|greeted| greeted.boot);
                        let attach = Attach { name, copy_rate, position, boot, succeeds: false };
                        self.attach(connection, attach);
                    }
                    Some(frame) if greeted.is_some() && self.verbs.is_some() => {
                        let (greeted, verbs) = (greeted.expect("just seen"), self.verbs.as_mut());
                        match verbs.expect("just seen").on(&self.shared, greeted, frame) {
                            Ok(Some(answer)) => self.send(connection, &answer),
                            Ok(None) => {}
                            Err(why) => self.agent.refuse(connection, &why, "it cannot be served over verbs"),
                        }
                    }
                    Some(Frame::AskVerbs) => self
                        .refuse(connection, "it does not serve over verbs; see `kelix help serve`, --rdma"),
                    _ => self.refuse(connection, "a frame that makes no sense here"),
                }
            }
        }
    }

    /// Gives a mirror its connection, with the queue pair beside it if there is one, and whoever feeds it.
    fn attach(&mut self, connection: ConnectionId, attach: Attach) {
        let address = self.agent.address(connection);
        let session = self.sessions.iter().position(|session| session.connection == connection);
        let (Some(address), Some(session)) = (address, session) else { return };
        let number = self.sessions[session].number;
        let taken = self.verbs.as_mut().map_or(Ok(None), |verbs| {
            let stream = verbs.host.take_stream(number);
            verbs.host.leave(number);
            stream
        });
        let stream = match taken {
            Ok(stream) => stream,
            Err(error) => {
                warn!(%address, %error, "a mirror cannot follow over verbs");
                let why = format!("no queue pair with this mirror: {error}");
                return self.agent.refuse(connection, &why, "it cannot follow over verbs");
            }
        };
        let Some(link) = self.agent.release(connection) else { return };
        let Greeted { namespace, .. } = self.sessions.swap_remove(session);
        self.shared.leave(number);
        let name = if attach.name.is_empty() { address.to_string() } else { attach.name };
        Feeds::attach(
            &self.shared,
            &namespace,
            (link.over_verbs(stream), Some(address)),
            Attach { name, ..attach },
        );
    }

    fn greet(
        &mut self,
        connection: ConnectionId,
        Hello { version, features, purpose, caller }: Hello,
        wanted: &str,
    ) {
        let Some(address) = self.agent.address(connection) else { return };
        let known = self.known.iter().position(|(id, _)| *id == connection);
        let token = known.map(|index| &self.tokens[self.known.swap_remove(index).1]);
        if token.is_none() && !self.tokens.is_empty() {
            let why = format!("{DENIED} connect without a token; see `kelix help`, --token-file");
            return self.agent.refuse(connection, &why, "no token");
        }
        let certified = |name: &str| self.agent.is_certified_for(connection, name);
        let token = token.map(|token| &token.name[..]).filter(|name| !name.is_empty());
        let visited = self.shared.visit(wanted, &Visitor { uid: None, token, certified: &certified });
        let (namespace, may_write) = match visited {
            Ok(visited) => visited,
            Err(error) => {
                warn!(%address, namespace = wanted, "a client may not read this namespace");
                return self.agent.refuse(connection, error.context(), "it may not read this namespace");
            }
        };
        if matches!(purpose, Purpose::Session | Purpose::Verbs) {
            if let Err(error) = self.shared.check_lease() {
                return self.agent.refuse(connection, error.context(), "its lease is over");
            }
        }
        let number = self.shared.next_connection.fetch_add(1, Ordering::Relaxed);
        let access = Access::of(may_write, features);
        let follows = matches!(purpose, Purpose::Follow | Purpose::Replicate);
        let boot = caller.filter(|_| purpose == Purpose::Replicate).map(|caller| caller.number);
        let greeted =
            Greeted { connection, number, namespace: namespace.clone(), caller, access, follows, boot };
        self.sessions.push(greeted);
        let mut mailboxes = Vec::new();
        if purpose == Purpose::Session {
            for (shard, handle) in namespace.shards.iter().enumerate() {
                let shard = namespace.first_in_agent + shard;
                // Without memory it is this client that has to wait, and nobody else.
                let mailbox = Span::try_private(MAILBOX_BYTES);
                let opened = mailbox.and_then(|mailbox| {
                    let link = self.agent.open(connection, shard, mailbox.clone(), QUEUE_WORDS)?;
                    Some((mailbox, link))
                });
                let Some((mailbox, link)) = opened else {
                    warn!(client = %address, "no memory for another client: it is refused");
                    return self.refuse(connection, "it has no memory for another client now; try again");
                };
                mailboxes.push(mailbox.clone());
                let outbox = Outbox::Agent(link);
                handle.command(Command::Join { connection: number, inbox: mailbox, outbox, caller, access });
            }
        }
        let way = match purpose {
            Purpose::Verbs => ClientWay::Verbs { connection, address },
            _ => ClientWay::Tcp { connection, address },
        };
        let welcome = self.shared.welcome(version, &namespace, access);
        self.shared.enter(ClientRecord { connection: number, namespace, mailboxes, way });
        self.agent.establish(connection);
        self.send(connection, &welcome);
    }
}
