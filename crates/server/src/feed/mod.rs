//! Mirrors that follow this server: each is fed by a thread of its own.
//!
//! A mirror greets the agent, attaches, and gets a connection to itself, which its thread has from then on
//! ([`Feeds::attach`]). The thread lets each shard of the namespace tell all changes from now on, copies
//! their memory beside that, and cuts the streams where nothing is missing ([`feeding`]). Clients never wait
//! for a mirror: one that is too slow is let go, and told so. Of a mirror that has gone nothing is left.

mod feeding;
mod placing;
mod used;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix_fabric::tcp::FeedLink;
use kelix_log::{Gatherer, Reader};
use kelix_types::{Error, Place};
use kelix_wire::control::StreamPosition;
use kelix_wire::feed::{FeedAsk, FeedBooks};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::namespace::Namespace;
use crate::server::Shared;

/// How long a mirror may take to hear that it follows no more, and why: also when the server ends.
const FAREWELL: Duration = Duration::from_secs(10);
const LAST_FAREWELL: Duration = Duration::from_secs(1);

/// What a shard tells whoever feeds a mirror.
pub(crate) enum Fed {
    /// All changes behind the books' record can be taken. These stretches of memory hold something.
    Began {
        shard: usize,
        books: FeedBooks,
        /// What clients were answered, where a replica is fed.
        histories: Vec<u64>,
        stretches: Vec<(Place, u64)>,
        gatherer: Box<Gatherer>,
    },
    /// All that stood in its memory when it was asked is in the records up to this one.
    Covers { shard: usize, sequence: u64 },
    /// What stands in its stream behind this record is held.
    Holds { shard: usize, sequence: u64, hold: Reader },
}

/// What a mirror is given.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// Memory, and the records of what changes in it meanwhile.
    #[default]
    Copying,
    /// Records out of the log.
    CatchingUp,
    /// Records as they are made.
    Following,
}

/// How far a mirror is.
#[derive(Clone, Default)]
struct Progress {
    stage: Stage,
    /// Bytes of memory that were copied, of those that are to be.
    copied: u64,
    of: u64,
    /// Bytes that the connection has taken.
    sent: u64,
    /// The last records that were taken for it, and what it said last of itself.
    taken: Vec<u64>,
    asked: Option<FeedAsk>,
}

/// A mirror that follows.
pub(crate) struct Mirror {
    namespace: Arc<Namespace>,
    /// What it calls itself, and where it is.
    name: String,
    /// None of one on this host.
    address: Option<SocketAddr>,
    /// It is to go on in the server's place, and so is told what clients were answered.
    succeeds: bool,
    /// What its feed goes over.
    fabric: &'static str,
    since: Instant,
    progress: Mutex<Progress>,
    /// Why it is to follow no more.
    ends: OnceLock<&'static str>,
    /// It follows no more, and may have to be told so.
    has_ended: AtomicBool,
}

impl Mirror {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no panic under this lock")
    }

    /// Where it is, in words.
    fn from(&self) -> String {
        self.address.map_or_else(|| "this host".into(), |address| address.to_string())
    }

    /// Has it end.
    fn end(&self, why: &'static str) {
        self.ends.get_or_init(|| why);
    }

    /// Why it is to end, if it is.
    fn ends(&self) -> Option<&'static str> {
        self.ends.get().copied()
    }

    fn json(&self) -> Value {
        let progress = self.progress().clone();
        let asked = progress.asked.as_ref();
        let behind = asked.map(|asked| {
            let shards = progress.taken.iter().zip(&asked.applied);
            shards.map(|(taken, applied)| taken.saturating_sub(*applied)).sum::<u64>()
        });
        json!({
            "name": self.name,
            "address": self.from(),
            "fabric": self.fabric,
            "state": match progress.stage {
                Stage::Copying => "copying",
                Stage::CatchingUp => "catching up",
                Stage::Following => "following",
            },
            "copied_bytes": progress.copied,
            "of_bytes": progress.of,
            "sent_bytes": progress.sent,
            "applied_records": asked.map(|asked| asked.applied.iter().sum::<u64>()),
            "lag_records": behind,
            "lag_ms": asked.map(|asked| asked.lag_ns as f64 / 1e6),
            "bytes": asked.map(|asked| asked.bytes),
            "reads": asked.map(|asked| asked.reads),
            "since_seconds": self.since.elapsed().as_secs_f64(),
        })
    }
}

/// A mirror, and the thread that feeds it.
struct Attached {
    mirror: Arc<Mirror>,
    thread: JoinHandle<()>,
}

/// Those that follow, or begin to.
fn following(attached: &[Attached]) -> impl Iterator<Item = &Mirror> {
    let mirrors = attached.iter().map(|attached| &*attached.mirror);
    mirrors.filter(|mirror| !mirror.has_ended.load(Ordering::SeqCst))
}

/// What a mirror asks for when it attaches.
pub(crate) struct Attach {
    pub name: String,
    /// Bytes of memory a second; 0: as fast as it goes.
    pub copy_rate: u64,
    /// What it has already.
    pub position: Option<StreamPosition>,
    /// Of a replica: the number of the member of the cluster.
    pub boot: Option<u64>,
    /// It is to go on in the server's place.
    pub succeeds: bool,
}

/// All mirrors of a server.
pub(crate) struct Feeds {
    most: usize,
    attached: Mutex<Vec<Attached>>,
    /// The server ends.
    is_over: AtomicBool,
}

impl Feeds {
    /// Of a server that so many may follow at once.
    pub fn new(most: usize) -> Feeds {
        Feeds { most, attached: Mutex::default(), is_over: AtomicBool::new(false) }
    }

    /// Whether the server ends.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Those whose threads have not ended.
    fn attached(&self) -> MutexGuard<'_, Vec<Attached>> {
        let mut attached = self.attached.lock().expect("no panic under this lock");
        attached.retain(|attached| !attached.thread.is_finished());
        attached
    }

    /// How it goes with the mirrors of a namespace, for statistics.
    pub fn json(&self, namespace: &Namespace) -> Vec<Value> {
        let attached = self.attached();
        let of = following(&attached).filter(|mirror| mirror.namespace.name == namespace.name);
        of.map(Mirror::json).collect()
    }

    /// Why no other mirror may follow, if none may.
    fn refuse(&self, attached: &[Attached], succeeds: bool) -> Option<String> {
        if self.is_over.load(Ordering::SeqCst) {
            return Some("the server ends".into());
        }
        if succeeds {
            return None;
        }
        if self.most == 0 {
            return Some("no mirror may follow it; see `kelix help serve`, --mirrors".into());
        }
        let names = following(attached).filter_map(|mirror| Some((&mirror.name, mirror.address?.ip())));
        let names = names.map(|(name, address)| format!("{name} ({address})"));
        let names: Vec<String> = names.collect();
        let (count, names) = (names.len(), names.join(", "));
        // Those that hear why they are let go are not many, either.
        (count >= self.most || attached.len() >= 2 * self.most).then(|| {
            format!(
                "{count} mirrors follow it, and no more may (--mirrors): follow one of these instead: {names}"
            )
        })
    }

    /// Has a mirror follow a namespace over a connection of its own. A mirror that may not is told why.
    pub fn attach(
        shared: &Arc<Shared>,
        namespace: &Arc<Namespace>,
        (link, address): (FeedLink, Option<SocketAddr>),
        Attach { name, copy_rate, position, boot, succeeds }: Attach,
    ) {
        // It stands in logs, statistics and labels of metrics.
        let name = name.replace(char::is_control, "\u{fffd}");
        let mirror = Arc::new(Mirror {
            namespace: namespace.clone(),
            name,
            address,
            succeeds,
            fabric: link.fabric(),
            since: Instant::now(),
            progress: Mutex::default(),
            ends: OnceLock::new(),
            has_ended: AtomicBool::new(false),
        });
        let mut attached = shared.feeds.attached();
        if let Some(why) = shared.feeds.refuse(&attached, succeeds) {
            drop(attached);
            warn!(mirror = mirror.name, address = mirror.from(), why, "a mirror is refused");
            return link.refuse(&why, |_| true);
        }
        let (shared_too, its, address) = (shared.clone(), mirror.clone(), mirror.from());
        let feed = move || feeding::feed(&shared_too, &its, link, (copy_rate, position, boot));
        match std::thread::Builder::new().name("kelix-feed".into()).spawn(feed) {
            Ok(thread) => attached.push(Attached { mirror, thread }),
            Err(error) => warn!(%error, address, "no thread for a mirror: its connection ends"),
        }
    }

    /// Ends those that a condition holds for, and waits until they have.
    fn end_those(&self, why: &'static str, which: impl Fn(&Mirror) -> bool) {
        let mut attached = self.attached();
        let (those, others) = attached.drain(..).partition::<Vec<_>, _>(|it| which(&it.mirror));
        *attached = others;
        drop(attached);
        those.iter().for_each(|attached| attached.mirror.end(why));
        those.into_iter().for_each(|attached| drop(attached.thread.join()));
    }

    /// Ends all of them with the server, whose shards have ended: what they said last is told.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.end_those("the server ends", |_| true);
    }

    /// Ends those of a namespace which begins another life: numbers of tables that their clients may know are
    /// given again.
    pub fn end_life(&self, namespace: &Namespace) {
        let why = "numbers of dropped tables are given again: attach anew";
        self.end_those(why, |mirror| mirror.namespace.name == namespace.name);
    }
}

/// Why a feed ends.
enum End {
    /// The mirror is told.
    Refused(String),
    /// It has gone, or its connection is broken.
    Gone(String),
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        End::Refused(format!("{}; attach anew", error.context()))
    }
}

impl Mirror {
    /// Says that it has ended, and tells the mirror why, if it is still there.
    fn say_end(&self, link: FeedLink, end: End) {
        let (name, address) = (&self.name, self.from());
        self.has_ended.store(true, Ordering::SeqCst);
        let why = match end {
            End::Gone(why) => return info!(mirror = name, address, why, "a mirror has gone"),
            End::Refused(why) => why,
        };
        match self.ends() {
            Some(_) => info!(mirror = name, address, why, "a mirror follows no more"),
            None => warn!(mirror = name, address, why, "a mirror is let go"),
        }
        link.refuse(&why, |waited| waited > FAREWELL || self.ends().is_some() && waited > LAST_FAREWELL);
    }
}
