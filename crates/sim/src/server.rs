//! A server node: one shard of production code, and the loop around it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use kelix::sim::Connected;
use kelix_fabric::{Fabric, PeerId};
use kelix_image::{Header, ImageConfig, MemoryMap, SegmentSource, Span, header_word};
use kelix_shard::{Now, Shard, ShardConfig, ShardCounters};
use kelix_types::Result;
use kelix_wire::{MAILBOX_BYTES, View, mailbox_word};

use crate::fabric::{AUTHORITY_TERM, Bell, Kind, Peer, ReadCounts, SimEndpoint, SleepWord, Wire};
use crate::scheduler::{self, Shared, TaskId};

/// Segments in private memory, and who asks for them.
#[derive(Clone, Default)]
struct Segments(Arc<Mutex<Vec<(usize, Span)>>>);

impl SegmentSource for Segments {
    fn create(&mut self, first: usize, bytes: u64) -> Result<Span> {
        let span = Span::private(bytes);
        self.0.lock().expect("one thread").push((first, span.clone()));
        Ok(span)
    }

    fn retired(&mut self, first: usize) {
        self.0.lock().expect("one thread").retain(|(start, _)| *start != first);
    }
}

/// A client that wants to be served.
struct Join {
    server_mailbox: Span,
    client_mailbox: Span,
    client_bell: Bell,
    wire: Wire,
}

/// What a shard has done, as it says after each step.
#[derive(Clone, Copy, Default, Debug)]
pub struct Report {
    /// Its counters.
    pub counters: ShardCounters,
    /// Index blocks split.
    pub splits: u64,
    /// Index blocks merged.
    pub merges: u64,
    /// The reclamation epoch.
    pub epoch: u64,
}

/// A server, as its clients see it.
#[derive(Clone)]
pub struct Server {
    /// Its task.
    pub task: TaskId,
    /// The term of its image.
    pub term: u64,
    /// What it has done.
    pub report: Shared<Report>,
    bell: Bell,
    kind: Kind,
    view: View,
    header: Span,
    authority: Span,
    segments: Segments,
    joins: Shared<VecDeque<Join>>,
    counts: Shared<ReadCounts>,
}

/// How servers of a run are made.
#[derive(Clone)]
pub struct ServerPlan {
    /// The fabric.
    pub kind: Kind,
    /// Most memory of the image.
    pub memory_bytes: u64,
    /// The page that says which term is in force.
    pub authority: Span,
    /// What is counted about READs.
    pub counts: Shared<ReadCounts>,
}

impl ServerPlan {
    /// Starts a server that supersedes the one before.
    pub fn start(&self) -> Server {
        // It is in force before it says anything.
        let term = scheduler::unnoticed(|| self.authority.words().add(AUTHORITY_TERM, 1));
        let hash_seed = scheduler::random_below(u64::MAX);
        let view = View::of_shards(term, hash_seed, 1);
        let segments = Segments::default();
        let header = Span::private(Header::BYTES);
        let config = ShardConfig {
            number: 0,
            view: view.clone(),
            image: ImageConfig {
                image_id: hash_seed,
                hash_seed,
                term,
                epoch_ns: self.kind.epoch_ns,
                memory_bytes: self.memory_bytes,
                segment_bytes_first: 4 << 20,
                segment_bytes_max: 4 << 20,
            },
        };
        let shard =
            scheduler::unnoticed(|| Shard::create(config, header.clone(), Box::new(segments.clone())));
        let shard = shard.expect("enough memory for an image");
        let joins: Shared<VecDeque<Join>> = Rc::default();
        let report: Shared<Report> = Rc::default();
        let bell: Shared<Option<Bell>> = Rc::default();
        let node = Node {
            shard,
            term,
            authority: self.authority.clone(),
            header: header.clone(),
            kind: self.kind,
            joins: joins.clone(),
            report: report.clone(),
            counts: self.counts.clone(),
            bell: bell.clone(),
        };
        let task = scheduler::spawn(&format!("server {term}"), move || node.run());
        let own_bell = Bell::of(task);
        *bell.borrow_mut() = Some(own_bell.clone());
        Server {
            task,
            term,
            report,
            bell: own_bell,
            kind: self.kind,
            view,
            header,
            authority: self.authority.clone(),
            segments,
            joins,
            counts: self.counts.clone(),
        }
    }
}

impl Server {
    fn map(&self) -> Arc<MemoryMap> {
        let mut map = MemoryMap::default();
        map.add(0, self.header.clone());
        let segments = self.segments.0.lock().expect("one thread");
        segments.iter().for_each(|(first, span)| map.add(*first, span.clone()));
        Arc::new(map)
    }

    /// Sets up a session of the running task. Also returns the connection, to be cut.
    pub fn connect(&self, drift_ppm: i64, pointers: Span) -> (Connected, Wire) {
        let own_bell = Bell::of(scheduler::current());
        let (server_mailbox, client_mailbox) = (Span::private(MAILBOX_BYTES), Span::private(MAILBOX_BYTES));
        let wire = Wire::sound();
        self.joins.borrow_mut().push_back(Join {
            server_mailbox: server_mailbox.clone(),
            client_mailbox: client_mailbox.clone(),
            client_bell: own_bell.clone(),
            wire: wire.clone(),
        });
        self.bell.ring();
        let mut endpoint = SimEndpoint::new(self.kind, own_bell, drift_ppm, self.counts.clone());
        endpoint.add_sleep_word(SleepWord(client_mailbox.clone(), mailbox_word::SLEEPS));
        let header = scheduler::unnoticed(|| Header::open(self.header.clone())).expect("a sound header page");
        let peer = endpoint.add(Peer {
            memory: Some((self.map(), header)),
            authority: Some(self.authority.clone()),
            outbox: server_mailbox,
            inbox: client_mailbox,
            sleeps: SleepWord(self.header.clone(), header_word::SLEEPING),
            bell: self.bell.clone(),
            wire: wire.clone(),
        });
        let server = self.clone();
        let connected = Connected {
            fabric: Box::new(endpoint),
            view: self.view.clone(),
            term: self.term,
            peers: vec![peer],
            maps: Box::new(move |_| Ok(server.map())),
            pointers: Some(pointers),
        };
        (connected, wire)
    }
}

/// The server's side, owned by its task.
struct Node {
    shard: Shard,
    term: u64,
    authority: Span,
    header: Span,
    kind: Kind,
    joins: Shared<VecDeque<Join>>,
    report: Shared<Report>,
    counts: Shared<ReadCounts>,
    bell: Shared<Option<Bell>>,
}

impl Node {
    fn run(mut self) {
        let bell = self.bell.borrow().clone().expect("set when the task was made");
        let mut endpoint = SimEndpoint::new(self.kind, bell, 0, self.counts.clone());
        endpoint.add_sleep_word(SleepWord(self.header.clone(), header_word::SLEEPING));
        let mut peers: Vec<PeerId> = Vec::new();
        while self.authority.words().load_acquire(AUTHORITY_TERM) == self.term {
            self.obey(&mut endpoint, &mut peers);
            let now_ns = endpoint.now_ns();
            let progress = self.shard.step(Now { monotonic_ns: now_ns, wall_ns: now_ns }, &mut endpoint);
            let faulty = progress.faulty.iter().map(|(peer, _)| *peer);
            for peer in faulty.chain(endpoint.broken()) {
                if let Some(index) = peers.iter().position(|known| *known == peer) {
                    peers.swap_remove(index);
                    self.shard.leave(peer);
                    endpoint.remove(peer);
                }
            }
            let (splits, merges) = self.shard.splits_and_merges();
            let epoch = self.shard.image().epoch();
            *self.report.borrow_mut() = Report { counters: self.shard.counters(), splits, merges, epoch };
            if progress.requests == 0 && progress.next_ns.is_none_or(|next| next > now_ns) {
                endpoint.announce_sleep();
                let idle = !self.shard.has_news(&endpoint) && self.joins.borrow().is_empty();
                let until = progress.next_ns.map(|next| next.saturating_sub(endpoint.now_ns()).max(1));
                endpoint.sleep(if idle { until } else { Some(0) });
            }
        }
    }

    fn obey(&mut self, endpoint: &mut SimEndpoint, peers: &mut Vec<PeerId>) {
        let joins: Vec<Join> = self.joins.borrow_mut().drain(..).collect();
        for Join { server_mailbox, client_mailbox, client_bell, wire } in joins {
            let peer = endpoint.add(Peer {
                memory: None,
                authority: None,
                sleeps: SleepWord(client_mailbox.clone(), mailbox_word::SLEEPS),
                outbox: client_mailbox,
                inbox: server_mailbox,
                bell: client_bell,
                wire,
            });
            self.shard.join(peer, endpoint.promises().ordered_placement);
            peers.push(peer);
        }
    }
}
