//! The server that a node is while it is primary.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use kelix_fabric::shm::{AUTHORITY_ASKED, AUTHORITY_TERM, AUTHORITY_UNTIL, term_in_force};
use kelix_image::{Header, PrivateSegments, Span};
use kelix_log::files::{Feed, LogWriter};
use kelix_log::{Gatherer, LogControl, Reader, ShardLog, StreamMemory};
use kelix_register::{Membership, View};
use kelix_shard::replicas::{self, Backlog, Lease, Noted, Renewal, Replication, Shadow, counts_at_first};
use kelix_shard::{Shard, ShardConfig};
use kelix_types::{Result, mark};

use super::Cluster;
use super::disk::{Copy, Kept};
use crate::disk::{LogTask, Told, Written};
use crate::scheduler;
use crate::server::{Begun, ShardNode};

/// What a node has that goes on in the primary's place.
#[derive(Default)]
pub struct Past {
    /// Of each shard, if there ever was anything.
    pub shadows: Vec<Option<Shadow<PrivateSegments>>>,
    pub backlogs: Vec<Backlog>,
    /// Whose records that are.
    pub lineage: u64,
    /// The life of the store, if that goes on.
    pub life: Option<u64>,
}

/// What those know of a shard of a primary who feed replicas.
pub struct PrimaryShard {
    pub stream: StreamMemory,
    pub node: ShardNode,
    expected: RefCell<Vec<(Gatherer, Reader)>>,
}

/// A server that is primary.
pub struct PrimaryServer {
    pub replication: Replication,
    pub batches: LogControl,
    /// What each shard and its replicas know.
    pub logs: Vec<ShardLog>,
    pub shards: Vec<PrimaryShard>,
    /// What no other life of the store is called, in which clients are answered once.
    pub life: u64,
    /// The copy on the disk of its node that has what it does, if there is one, and what is known of the log.
    pub copy: Option<Rc<Copy>>,
    written: Option<Rc<Written>>,
    authority: Span,
    term: u64,
    is_over: Cell<bool>,
    cluster: Cluster,
}

/// A shard that is about to serve, with what its replicas need.
struct Replicated {
    begun: Begun,
    log: ShardLog,
    stream: StreamMemory,
    /// What tells this server's own log, if there is one.
    feed: Option<Feed>,
    expected: Vec<(Gatherer, Reader)>,
}

impl Replicated {
    fn begin(
        config: ShardConfig,
        shadow: Option<Shadow<PrivateSegments>>,
        control: &LogControl,
        (expected, stream_words, on_disk): (usize, u64, bool),
    ) -> Replicated {
        let header = Span::private(Header::BYTES);
        let (segments, shard) = match shadow {
            Some(Shadow { segments, follower }) => {
                (segments, follower.into_shard(config.clone(), header.clone()))
            }
            None => {
                let segments = PrivateSegments::default();
                let source = Box::new(segments.clone());
                (segments, Shard::create(config.clone(), header.clone(), source))
            }
        };
        let mut shard = shard.expect("what a replica has makes a shard");
        let log = control.shard(counts_at_first(shard.end(), expected));
        let stream = StreamMemory { words: Span::private(stream_words * 8), head: Span::private(64) };
        let reader = shard.replicate(log.clone(), stream.clone(), on_disk);
        let feed = on_disk.then(|| Feed::new(reader, control.shard(shard.end())));
        let expected = (0..expected).map(|_| shard.expect(control)).collect();
        Replicated { begun: Begun { shard, config, header, segments }, log, stream, feed, expected }
    }
}

impl PrimaryServer {
    /// Has a server serve in a term of the authority page, if the one before is in force there, with what it
    /// begins with and what is kept on the disk of its node. `None`: the term is not in force, since another
    /// one was chosen meanwhile. An error: the disk takes nothing.
    pub fn start(
        (cluster, node): (&Cluster, usize),
        membership: &Arc<Membership>,
        (view, lease): (&View, Option<Lease>),
        (past, kept, term): (Past, Option<Kept>, u64),
    ) -> Result<Option<Rc<PrimaryServer>>> {
        let (plan, servers) = (cluster.plan(), cluster.servers_of(node));
        lease.into_iter().for_each(|lease| publish(&servers.authority, lease));
        let control = LogControl::fenced(term_in_force(&servers.authority), term);
        let (expected, on_disk) = (view.in_sync.len() - 1, kept.is_some());
        control.set_counts_at_once(expected == 0 && !on_disk);
        let life = past.life.unwrap_or_else(|| cluster.hash_seed() ^ term);
        let (shadows, past) = (past.shadows, (past.lineage, vec![past.backlogs]));
        let mut shadows = shadows.into_iter();
        let begin = |number| {
            let shadow = shadows.next().flatten();
            // What a shard does that begins empty is in its log, too.
            let keeps_journal = on_disk && shadow.is_none();
            let of = (view.term, keeps_journal);
            let config = servers.config(number, (&cluster.wire_view(), cluster.hash_seed()), of);
            Replicated::begin(config, shadow, &control, (expected, plan.stream_words, on_disk))
        };
        let shards: Vec<Replicated> = scheduler::unnoticed(|| (0..servers.shards).map(begin).collect());
        let of = (membership.clone(), control.clone());
        let times_ns = (scheduler::host_now_ns(), plan.round_ns());
        let mut replication = Replication::new(of, view, 1, past, times_ns);
        let copy = kept.as_ref().map(|kept| kept.copy.clone());
        let writer = kept.map(|kept| scheduler::unnoticed(|| kept.go_on(membership.boot))).transpose()?;
        if servers.authority.words().compare_exchange(AUTHORITY_TERM, term - 1, term).is_err() {
            mark!("node superseded before it served");
            return Ok(None);
        }
        cluster.views().note_served(membership.boot);
        let (mut begun, mut rest, mut logs, mut feeds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for Replicated { begun: shard, log, stream, feed, expected } in shards {
            begun.push((shard, false));
            rest.push((stream, expected));
            logs.push(log);
            feeds.extend(feed);
        }
        if on_disk {
            replication = replication.with_disk(vec![feeds.iter().map(|of| of.log().committed()).collect()]);
        }
        let nodes = servers.run_shards(term, begun, &control);
        let shards = rest.into_iter().zip(&nodes).map(|((stream, expected), node)| PrimaryShard {
            stream,
            node: node.clone(),
            expected: RefCell::new(expected),
        });
        let primary = Rc::new(PrimaryServer {
            replication,
            batches: control,
            logs,
            shards: shards.collect(),
            life,
            copy,
            written: writer.as_ref().map(Written::of),
            authority: servers.authority.clone(),
            term,
            is_over: Cell::new(false),
            cluster: cluster.clone(),
        });
        if let Some(writer) = writer {
            primary.write_log(node, writer, feeds);
        }
        cluster.serve(node, (term, life), nodes);
        Ok(Some(primary))
    }

    /// Begins to write its log.
    fn write_log(self: &Rc<Self>, node: usize, writer: LogWriter, feeds: Vec<Feed>) {
        let primary = self.clone();
        let tell = move |told: Told<'_>| match told {
            Told::Synced(feeds) => {
                let durable = feeds.iter().enumerate();
                let durable = durable.map(|(shard, feed)| ((0, shard), feed.log().committed()));
                primary.replication.note_disk(&*primary, durable);
            }
            // What replicas have said counts, so that what is not on the disk is not shown.
            Told::Failed => primary.replication.set_disk_accepts(false),
            Told::Over => primary.shards.iter().for_each(|shard| shard.node.bell.ring()),
        };
        let task = LogTask {
            delay_ns_max: self.cluster.disk(node).map_or(0, |disk| disk.delay_ns_max),
            control: self.batches.clone(),
            is_of_replica: false,
            feeds,
            writer,
            written: self.written.clone().expect("a server with a log"),
            tell: Box::new(tell),
        };
        self.cluster.spawn(node, &format!("log of node {node}"), move || task.run());
    }

    /// Whether its disk takes what is written, if there is a log.
    pub fn takes_writes(&self) -> bool {
        self.written.as_ref().is_none_or(|written| !written.has_failed())
    }

    /// Its lease lasts until another moment from now on: what had to wait for that counts.
    pub fn renew(&self, Renewal { lease, is_awaited }: Renewal) {
        let was_over = !replicas::Primary::counts(self);
        publish(&self.authority, lease);
        if was_over {
            mark!("lease renewed that was over");
            self.replication.look_again(self);
        }
        if was_over || is_awaited {
            self.shards.iter().for_each(|shard| shard.node.bell.ring());
        }
    }

    /// Ends what it does for replicas.
    pub fn end(&self) {
        self.is_over.set(true);
    }
}

/// Has the term of an authority page last as long as a lease.
fn publish(page: &Span, lease: Lease) {
    page.words().publish(AUTHORITY_ASKED, lease.asked_ns);
    page.words().publish(AUTHORITY_UNTIL, lease.until_ns);
}

impl replicas::Primary for PrimaryServer {
    fn shards(&self) -> Vec<usize> {
        vec![self.shards.len()]
    }

    fn log(&self, (_, shard): (usize, usize)) -> Option<&ShardLog> {
        Some(&self.logs[shard])
    }

    fn wake(&self, (_, shard): (usize, usize)) {
        self.shards[shard].node.bell.ring();
    }

    fn wake_if_asleep(&self, (_, shard): (usize, usize)) {
        self.shards[shard].node.bell.ring();
    }

    fn take_expected(&self, (_, shard): (usize, usize)) -> Option<(Gatherer, Reader)> {
        self.shards[shard].expected.borrow_mut().pop()
    }

    fn expect_none(&self) {
        let expected = |shard: &PrimaryShard| std::mem::take(&mut *shard.expected.borrow_mut());
        drop(self.shards.iter().map(expected).collect::<Vec<_>>());
    }

    fn in_force(&self) -> bool {
        self.authority.words().load_acquire(AUTHORITY_TERM) == self.term
    }

    fn counts(&self) -> bool {
        term_in_force(&self.authority).load() == self.term
    }

    fn is_over(&self) -> bool {
        self.is_over.get()
    }

    fn now_ns(&self) -> u64 {
        scheduler::host_now_ns()
    }

    fn pause(&self, time_ns: u64) {
        scheduler::sleep(time_ns);
    }

    fn note(&self, what: Noted<'_>) {
        let boot = |boot: u64| format!("{:04x}", boot >> 48);
        let what = match what {
            Noted::GoesOn(_) => "a replica goes on with what it has".to_string(),
            Noted::InSync(of) => format!("replica {} is in sync", boot(of)),
            Noted::OutOfSync(of) => format!("replica {} is out of sync", boot(of)),
            Noted::CannotBeListed(error) | Noted::CannotBeUnlisted(error) => error.to_string(),
        };
        self.cluster.tell(format!("primary {}: {what}", self.term));
    }
}
