//! Server nodes: shards of production code, each with the loop around it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use kelix::sim::{Connected, Host, Primary, Source};
use kelix_fabric::shm::{AUTHORITY_TERM, AUTHORITY_UNTIL, term_in_force};
use kelix_fabric::{Clock, Fabric, PeerId, Waiter, WorkQueue};
use kelix_image::{Header, ImageConfig, PrivateSegments, SegmentSource, Span, header_word};
use kelix_log::{Lag, LogControl, Reader};
use kelix_shard::{ClientParameters, Follower, Now, Order, Shard, ShardConfig};
use kelix_types::{Result, mark};
use kelix_wire::control::Caller;
use kelix_wire::{LAP_NEAR, MAILBOX_BYTES, RingShape, View, mailbox_word};

use crate::client::VIEW_LEASE_EPOCHS;
use crate::disk::{Disk, LogEnd};
use crate::fabric::{Bell, Kind, Peer, SimEndpoint, SleepWord, Wire};
use crate::mirror::{self, Shown};
use crate::scheduler::{self, HostClock, Shared, TaskId};

/// A client that wants to be served.
pub(crate) struct Join {
    server_mailbox: Span,
    client_mailbox: Span,
    client_bell: Bell,
    wire: Wire,
    connection: u64,
    caller: Option<Caller>,
    tells_sequence: bool,
    is_ordered: bool,
}

/// A shard of a server, as its clients see it.
#[derive(Clone)]
pub(crate) struct ShardNode {
    pub task: TaskId,
    pub bell: Bell,
    pub header: Span,
    pub segments: PrivateSegments,
    pub joins: Shared<VecDeque<Join>>,
    /// Mirrors that want to copy it, and follow it from there on.
    pub feeds: Shared<VecDeque<Shared<Option<mirror::Stream>>>>,
    /// What others of its node have to ask it.
    pub commands: Commands,
}

/// What is asked of a shard between two steps.
pub(crate) type Commands = Shared<VecDeque<Box<dyn FnOnce(&mut Shard)>>>;

impl ShardNode {
    /// Asks something of the shard.
    pub fn command(&self, command: impl FnOnce(&mut Shard) + 'static) {
        self.commands.borrow_mut().push_back(Box::new(command));
        self.bell.ring();
    }
}

/// A shard that is about to serve.
pub(crate) struct Begun {
    pub shard: Shard,
    pub config: ShardConfig,
    pub header: Span,
    pub segments: PrivateSegments,
}

impl Join {
    /// Lets the client in at a shard.
    pub fn enter(self, shard: &mut Shard, endpoint: &mut SimEndpoint, may_write: bool) -> PeerId {
        let Join { server_mailbox, client_mailbox, client_bell, wire, connection, caller, .. } = self;
        let (tells_sequence, is_ordered) = (self.tells_sequence, self.is_ordered);
        let peer = endpoint.add(Peer {
            memory: None,
            maps: None,
            is_ordered,
            authority: None,
            far: None,
            sleeps: SleepWord(client_mailbox.clone(), mailbox_word::SLEEPS),
            outbox: client_mailbox,
            inbox: server_mailbox,
            bell: client_bell,
            wire,
        });
        let ring = RingShape::of_messages(endpoint.promises(peer).ordered_placement).in_laps(LAP_NEAR);
        let old = shard.join(peer, ClientParameters { ring, connection, caller, may_write, tells_sequence });
        old.into_iter().for_each(|old| endpoint.cut(old));
        peer
    }
}

/// A server, as its clients see it.
#[derive(Clone)]
pub struct Server {
    /// The term of its images.
    pub term: u64,
    /// The term in which its store began, and what no other life of a store is called.
    pub store: u64,
    pub(crate) life: u64,
    pub(crate) kind: Kind,
    pub(crate) view: View,
    pub(crate) authority: Span,
    /// The clock of its host, by which clients know whether they are there.
    pub(crate) clock: HostClock,
    pub(crate) shards: Vec<ShardNode>,
    /// Who writes its log.
    pub(crate) log: Option<TaskId>,
    /// What stands in memory counts only when it is committed.
    pub(crate) commits: bool,
    /// Connections so far.
    pub(crate) connections: Rc<Cell<u64>>,
    /// The connections of clients on other hosts.
    pub(crate) far: Shared<Vec<Wire>>,
    /// Its mirror, once that can be read.
    pub mirror: Shared<Option<Server>>,
}

/// How servers of a run are made.
#[derive(Clone)]
pub struct ServerPlan {
    /// The fabric.
    pub kind: Kind,
    /// Number of shards.
    pub shards: usize,
    /// Most memory of all images together.
    pub memory_bytes: u64,
    /// The page that says which term is in force.
    pub authority: Span,
    /// The clock of the host that servers are on.
    pub clock: HostClock,
    /// How wrong clocks may be.
    pub drift_ppm_max: u64,
    /// What is wrong, found on the way.
    pub findings: Shared<Vec<String>>,
    /// Where servers log what they do, and begin with what the one before did. Without it they begin empty.
    pub disk: Option<Disk>,
    /// What their mirrors show, if they have any.
    pub mirrors: Option<Shown>,
}

impl ServerPlan {
    /// Starts a server that supersedes the one before.
    pub fn start(&self) -> Server {
        // It is in force before it says anything.
        let term = scheduler::unnoticed(|| self.authority.words().add(AUTHORITY_TERM, 1));
        // What stands on a disk has its places by the hash.
        let hash_seed = match &self.disk {
            Some(disk) => disk.hash_seed,
            None => scheduler::random_below(u64::MAX),
        };
        let view = View::of_shards(term, hash_seed, self.shards);
        let batches = LogControl::new();
        let mut log = self.disk.as_ref().map(|disk| {
            let memory_bytes = self.memory_bytes / self.shards as u64;
            scheduler::unnoticed(|| LogEnd::replay(disk.clone(), self.shards, memory_bytes))
        });
        let begin = |number| {
            let config = self.config(number, (&view, hash_seed), (term, true));
            let begun = self.begin_shard(config, log.as_mut());
            // Who begins in the middle would have to copy the memory first.
            let follows = self.disk.is_none();
            (begun, follows)
        };
        let begun: Vec<(Begun, bool)> = (0..self.shards).map(begin).collect();
        let shards = self.run_shards(term, begun, &batches);
        let log = log.map(|log| {
            let bells = shards.iter().map(|shard| shard.bell.clone()).collect();
            let writes = scheduler::unnoticed(|| log.begin(term, bells));
            scheduler::spawn(&format!("log of server {term}"), move || writes.run())
        });
        let server = Server {
            term,
            // What is logged is one store for ever.
            store: if self.disk.is_some() { 1 } else { term },
            life: view.hash_seed ^ term,
            kind: self.kind,
            view,
            authority: self.authority.clone(),
            clock: self.clock,
            shards,
            log,
            commits: log.is_some(),
            connections: Rc::default(),
            far: Rc::default(),
            mirror: Rc::default(),
        };
        if let Some(shown) = &self.mirrors {
            mirror::start(&server, &batches, (shown.clone(), self.findings.clone()));
        }
        server
    }

    /// A server of shards that serve in a term, which is in force, of a store that may have begun in an
    /// earlier one.
    pub(crate) fn server(
        &self,
        (term, store): (u64, u64),
        (view, life): (View, u64),
        shards: Vec<ShardNode>,
    ) -> Server {
        Server {
            term,
            store,
            life,
            kind: self.kind,
            view,
            authority: self.authority.clone(),
            clock: self.clock,
            shards,
            log: None,
            commits: true,
            connections: Rc::default(),
            far: Rc::default(),
            mirror: Rc::default(),
        }
    }

    /// A shard's configuration, in a term of its image.
    pub(crate) fn config(
        &self,
        number: usize,
        (view, hash_seed): (&View, u64),
        (term, keeps_journal): (u64, bool),
    ) -> ShardConfig {
        ShardConfig {
            number,
            view: view.clone(),
            image: ImageConfig {
                image_id: hash_seed.wrapping_add(number as u64).wrapping_add(term << 32),
                hash_seed,
                term,
                incarnation: kelix_types::Incarnation::first_of_term(term),
                epoch_ns: self.kind.epoch_ns,
                epoch_ns_usual: self.kind.epoch_ns_usual,
                memory_bytes: self.memory_bytes / self.shards as u64,
                segment_bytes_first: 4 << 20,
                segment_bytes_max: 4 << 20,
                keeps_journal,
            },
            view_lease_ns: VIEW_LEASE_EPOCHS * self.kind.epoch_ns,
            is_cache: false,
        }
    }

    fn begin_shard(&self, config: ShardConfig, log: Option<&mut LogEnd>) -> Begun {
        let segments = PrivateSegments::default();
        let header = Span::private(Header::BYTES);
        let (shard, segments) = scheduler::unnoticed(|| match log {
            Some(log) => log.begin_shard(config.number, config.clone(), header.clone()),
            None => {
                let source: Box<dyn SegmentSource> = Box::new(segments.clone());
                let shard = Shard::create(config.clone(), header.clone(), source);
                (shard.expect("enough memory for an image"), segments)
            }
        });
        Begun { shard, config, header, segments }
    }

    /// Lets shards of a server serve in a term, each of which somebody follows or not.
    pub(crate) fn run_shards(
        &self,
        term: u64,
        begun: Vec<(Begun, bool)>,
        batches: &LogControl,
    ) -> Vec<ShardNode> {
        let orders: Orders = begun.iter().map(|_| Default::default()).collect();
        let run = |(begun, follows)| self.run_shard(term, (begun, follows), (&orders, batches));
        begun.into_iter().map(run).collect()
    }

    fn run_shard(
        &self,
        term: u64,
        (Begun { mut shard, config, header, segments }, follows): (Begun, bool),
        (orders, batches): (&Orders, &LogControl),
    ) -> ShardNode {
        let number = config.number;
        let following = follows.then(|| Following {
            config: config.clone(),
            follower: Follower::new(Box::new(PrivateSegments::default()), config.image.memory_bytes),
            reader: shard.follow(Lag::Wait),
            words: Vec::new(),
        });
        let joins: Shared<VecDeque<Join>> = Rc::default();
        let feeds: Shared<VecDeque<_>> = Rc::default();
        let commands = Commands::default();
        let bell = orders[number].1.clone();
        let node = Node {
            shard,
            following,
            term,
            authority: self.authority.clone(),
            header: header.clone(),
            kind: self.kind,
            drift_ppm: drift_ppm(self.drift_ppm_max),
            joins: joins.clone(),
            feeds: feeds.clone(),
            commands: commands.clone(),
            config,
            batches: batches.clone(),
            number,
            orders: orders.clone(),
            bell: bell.clone(),
            findings: self.findings.clone(),
        };
        let task = scheduler::spawn(&format!("server {term} shard {number}"), move || node.run());
        *bell.borrow_mut() = Some(Bell::of(task));
        let bell = bell.borrow().clone().expect("just set");
        ShardNode { task, bell, header, segments, joins, feeds, commands }
    }
}

/// What shards of a server have to tell each other, by who is to know, and whose bell is rung then.
type Orders = Rc<[(Shared<VecDeque<(Order, (usize, u64))>>, Shared<Option<Bell>>)]>;

/// How wrong one node's clock is, in parts per million.
pub fn drift_ppm(most: u64) -> i64 {
    scheduler::random_below(2 * most + 1) as i64 - most as i64
}

/// The client's side of the connections to a server.
#[derive(Clone)]
pub struct Side {
    /// How its clock runs.
    pub drift_ppm: i64,
    /// What its session shares with others.
    pub host: Host,
    /// The connections, to be cut.
    pub wire: Wire,
    /// What answers wake.
    pub bell: Bell,
}

/// Connects a session once more.
pub type Again = Box<dyn FnMut(Option<Caller>) -> Result<Connected>>;

impl Server {
    /// The tasks of its shards.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.shards.iter().map(|shard| shard.task)
    }

    /// Who writes its log.
    pub fn log(&self) -> Option<TaskId> {
        self.log
    }

    /// Whether its term is in force by a lease.
    fn is_leased(&self) -> bool {
        scheduler::unnoticed(|| self.authority.words().load(AUTHORITY_UNTIL) != 0)
    }

    /// Whether it takes no clients, because its lease is over.
    pub fn is_silent(&self) -> bool {
        let term = || {
            scheduler::unnoticed(|| scheduler::on_host(self.clock, || term_in_force(&self.authority).load()))
        };
        self.is_leased() && term() != self.term
    }

    /// The same server, as it is reached over TCP.
    pub fn over_tcp(&self) -> Server {
        Server { kind: Kind { ordered: true, ..self.kind }, ..self.clone() }
    }

    /// Sets up a session. What connects it once more, and with the server that a mirror follows, is the
    /// business of whoever has it. The caller's number, and whether it is told of records.
    pub fn connect(
        &self,
        side: &Side,
        caller: (Option<Caller>, bool),
        (again, primary): (Again, Option<Primary>),
    ) -> Connected {
        let mut endpoint = SimEndpoint::new(self.kind, side.bell.clone(), side.drift_ppm);
        let connection = self.connections.get() + 1;
        if scheduler::clock() != self.clock {
            mark!("client on another host");
            self.far.borrow_mut().push(side.wire.clone());
        }
        let joined = |shard| self.join(&mut endpoint, shard, side, (connection, caller));
        let peers = self.shards.iter().map(joined).collect();
        let server = self.clone();
        self.connections.set(connection);
        Connected {
            fabric: Box::new(endpoint),
            view: self.view.clone(),
            term: self.term,
            life: self.life,
            commits: self.commits,
            is_leased: self.is_leased(),
            peers,
            source: Source {
                maps: Box::new(move |shard| {
                    let shard = &server.shards[usize::from(shard)];
                    Ok(shard.segments.map(&shard.header))
                }),
                again,
                primary,
                nap: Box::new(|time| scheduler::sleep(time.as_nanos() as u64)),
            },
            host: side.host.clone(),
        }
    }

    fn join(
        &self,
        endpoint: &mut SimEndpoint,
        shard: &ShardNode,
        Side { bell, wire, .. }: &Side,
        (connection, (caller, tells_sequence)): (u64, (Option<Caller>, bool)),
    ) -> PeerId {
        let (server_mailbox, client_mailbox) = (Span::private(MAILBOX_BYTES), Span::private(MAILBOX_BYTES));
        shard.joins.borrow_mut().push_back(Join {
            server_mailbox: server_mailbox.clone(),
            client_mailbox: client_mailbox.clone(),
            client_bell: bell.clone(),
            wire: wire.clone(),
            connection,
            caller,
            tells_sequence,
            is_ordered: self.kind.ordered,
        });
        shard.bell.ring();
        endpoint.add_sleep_word(SleepWord(client_mailbox.clone(), mailbox_word::SLEEPS));
        let header =
            scheduler::unnoticed(|| Header::open(shard.header.clone())).expect("a sound header page");
        let (segments, page) = (shard.segments.clone(), shard.header.clone());
        endpoint.add(Peer {
            memory: Some((shard.segments.map(&shard.header), header)),
            maps: Some(Rc::new(move || scheduler::unnoticed(|| segments.map(&page)))),
            is_ordered: self.kind.ordered,
            authority: Some(self.authority.clone()),
            far: (scheduler::clock() != self.clock).then_some((self.clock, self.term)),
            outbox: server_mailbox,
            inbox: client_mailbox,
            sleeps: SleepWord(shard.header.clone(), header_word::SLEEPING),
            bell: shard.bell.clone(),
            wire: wire.clone(),
        })
    }
}

/// A shard that sleeps looks at least this often whether its server is still in force.
const AUTHORITY_NS: u64 = 1_000_000;

/// One in so many steps is followed by a look at all the shard's memory.
const STEPS_AN_AUDIT: u64 = 400;

/// Somebody who follows a shard, whose memory no simulated process looks at.
struct Following {
    config: ShardConfig,
    follower: Follower,
    reader: Reader,
    words: Vec<u64>,
}

impl Following {
    /// Applies what the shard has told.
    fn apply(&mut self) -> Result<()> {
        let Following { follower, reader, words, .. } = self;
        words.clear();
        reader.read(words, usize::MAX).expect("nobody who is waited for is let go");
        assert!(follower.apply_all(words)?.is_empty(), "a step's record is whole");
        Ok(())
    }

    /// Goes on in the shard's place, and looks whether that makes sense.
    fn take_over(self) -> std::result::Result<(), String> {
        mark!("follower took a shard over");
        let shard = self.follower.into_shard(self.config, Span::private(Header::BYTES));
        shard.map_err(|error| error.to_string())?.audit()
    }
}

/// The server's side of a shard, owned by its task.
struct Node {
    shard: Shard,
    following: Option<Following>,
    term: u64,
    authority: Span,
    header: Span,
    kind: Kind,
    drift_ppm: i64,
    joins: Shared<VecDeque<Join>>,
    feeds: Shared<VecDeque<Shared<Option<mirror::Stream>>>>,
    commands: Commands,
    config: ShardConfig,
    batches: LogControl,
    number: usize,
    orders: Orders,
    bell: Shared<Option<Bell>>,
    findings: Shared<Vec<String>>,
}

impl Node {
    fn run(mut self) {
        let bell = self.bell.borrow().clone().expect("set when the task was made");
        let mut endpoint = SimEndpoint::new(self.kind, bell, self.drift_ppm);
        endpoint.add_sleep_word(SleepWord(self.header.clone(), header_word::SLEEPING));
        let mut peers: Vec<PeerId> = Vec::new();
        while self.authority.words().load_acquire(AUTHORITY_TERM) == self.term {
            self.handle_orders(&mut endpoint, &mut peers);
            let now_ns = endpoint.now_ns();
            let progress = self.shard.step(Now { monotonic_ns: now_ns, wall_ns: now_ns }, &mut endpoint);
            for (_, what) in progress.faulty.iter().filter(|(peer, _)| !endpoint.is_broken(*peer)) {
                self.findings.borrow_mut().push(format!("server {}: a client is faulty: {what}", self.term));
            }
            let applied = |following: &mut Following| scheduler::unnoticed(|| following.apply());
            if let Some(Err(error)) = self.following.as_mut().map(applied) {
                self.findings.borrow_mut().push(format!("server {}: its follower: {error}", self.term));
            }
            if scheduler::random_below(STEPS_AN_AUDIT) == 0 {
                self.audit();
            }
            for order in &progress.orders {
                for (to, bell) in &self.orders[order.is_for(self.number, self.orders.len())] {
                    to.borrow_mut().push_back((order.clone(), self.shard.cause()));
                    bell.borrow().iter().for_each(Bell::ring);
                }
            }
            let faulty = progress.faulty.iter().map(|(peer, _)| *peer);
            for peer in faulty.chain(endpoint.broken()) {
                if let Some(index) = peers.iter().position(|known| *known == peer) {
                    peers.swap_remove(index);
                    self.shard.leave(peer);
                    endpoint.remove(peer);
                }
            }
            if progress.requests == 0 && progress.next_ns.is_none_or(|next| next > now_ns) {
                endpoint.announce_sleep();
                let is_wanted = !self.joins.borrow().is_empty()
                    || !self.feeds.borrow().is_empty()
                    || !self.commands.borrow().is_empty();
                let idle = !self.shard.has_news(&endpoint) && !is_wanted;
                let due_ns = progress.next_ns.map(|next| next.saturating_sub(endpoint.now_ns()).max(1));
                let longest_ns = due_ns.map_or(AUTHORITY_NS, |due_ns| due_ns.min(AUTHORITY_NS));
                endpoint.sleep(Some(if idle { longest_ns } else { 0 }));
            }
        }
        // What orders and departures changed after the last step.
        assert!(scheduler::unnoticed(|| self.shard.seal()), "room for a record");
        self.audit();
        let Node { following, term, findings, .. } = self;
        let took_over = |following: Following| scheduler::unnoticed(|| following.take_over());
        if let Some(Err(what)) = following.map(took_over) {
            findings.borrow_mut().push(format!("server {term}: where it goes on: {what}"));
        }
    }

    /// Looks, where all that changed is told, whether memory leaks or is used twice, and whether its follower
    /// has what it has.
    fn audit(&mut self) {
        mark!("memory audited");
        let Node { shard, following, .. } = self;
        let found = scheduler::unnoticed(|| {
            if let Some(following) = following {
                // Clients that were found to be faulty behind the step's record have left.
                assert!(shard.seal(), "room for a record");
                following.apply().map_err(|error| error.to_string())?;
                following.follower.compare(shard)?;
            }
            shard.audit()
        });
        if let Err(what) = found {
            self.findings.borrow_mut().push(format!("server {}: {what}", self.term));
        }
    }

    fn handle_orders(&mut self, endpoint: &mut SimEndpoint, peers: &mut Vec<PeerId>) {
        let orders: Vec<(Order, (usize, u64))> = self.orders[self.number].0.borrow_mut().drain(..).collect();
        orders.into_iter().for_each(|(order, cause)| self.shard.handle_order(order, cause));
        let joins: Vec<Join> = self.joins.borrow_mut().drain(..).collect();
        for join in joins {
            peers.push(join.enter(&mut self.shard, endpoint, true));
        }
        let commands: Vec<_> = self.commands.borrow_mut().drain(..).collect();
        commands.into_iter().for_each(|command| scheduler::unnoticed(|| command(&mut self.shard)));
        for feed in self.feeds.borrow_mut().drain(..) {
            let begin = || mirror::Stream::begin(&mut self.shard, self.config.clone(), &self.batches);
            *feed.borrow_mut() = Some(scheduler::unnoticed(begin));
        }
    }
}
