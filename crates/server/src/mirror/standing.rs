//! How a mirror is doing, for whoever wants to know.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use kelix_fabric::host_clock_ns;
use kelix_types::Error;
use serde_json::{Value, json};

use super::attach::{Attached, Resumed};

/// Time over which the rate of what is applied is told.
const RATE: Duration = Duration::from_secs(1);

/// What is known of a mirrored namespace.
pub(crate) struct Standing {
    primary: String,
    records: AtomicU64,
    bytes: AtomicU64,
    /// As of when all is here; 0: not known yet.
    fresh_ns: AtomicU64,
    reads: AtomicU64,
    /// How often something came of the primary.
    heard: AtomicU64,
    rate: Mutex<Rate>,
    stop: (Mutex<Option<Stop>>, Condvar),
    /// For the thread that applies records, what it is to do.
    orders: Mutex<Orders>,
    /// Set when it is to give up, or to detach, since it looks for that at all times.
    has_orders: AtomicBool,
    detaches: AtomicBool,
    is_detached: AtomicBool,
    /// What is here could be gone on with from this disk, too, if that is to be so.
    is_kept: AtomicBool,
}

/// Why nothing is applied.
enum Stop {
    /// There is no primary, for this reason. `may_resume`: what is here is good, so records behind that will
    /// do.
    Lost { why: String, may_resume: bool },
    /// What comes next is of another life of the namespace.
    LifeEnds,
}

/// What the thread that applies records is to do.
#[derive(Default)]
struct Orders {
    /// To take records from another connection.
    resume: Option<Resumed>,
    /// To give all up that there is.
    give_up: Option<Successor>,
    /// To follow the primary no more, for this reason.
    detach: Option<&'static str>,
}

/// To whom all is given up that there is.
pub(crate) struct Successor {
    pub to: Sender<Attached>,
    /// It goes on in the primary's place, so that what came counts, whoever else has it.
    pub is_chosen: bool,
}

/// What was applied until a moment, and how much a second before that.
struct Rate {
    since: Instant,
    bytes: u64,
    bytes_a_second: f64,
}

impl Standing {
    pub fn new(primary: &str, is_kept: bool) -> Standing {
        Standing {
            primary: primary.into(),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            fresh_ns: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            rate: Mutex::new(Rate { since: Instant::now(), bytes: 0, bytes_a_second: 0.0 }),
            stop: Default::default(),
            orders: Mutex::default(),
            has_orders: AtomicBool::new(false),
            detaches: AtomicBool::new(false),
            is_detached: AtomicBool::new(false),
            is_kept: AtomicBool::new(is_kept),
        }
    }

    /// Whether what is here could be gone on with from this disk, too, if that is to be so.
    pub fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire)
    }

    /// What is here could be gone on with from this disk from now on.
    pub fn note_kept(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// So much was applied so far.
    pub fn note_applied(&self, records: u64, bytes: u64) {
        self.records.store(records, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// All that there was at a moment is here.
    pub fn note_fresh(&self, fresh_ns: u64) {
        self.fresh_ns.store(fresh_ns, Ordering::Relaxed);
    }

    /// As of when all is here; 0: not known yet.
    pub fn fresh_ns(&self) -> u64 {
        self.fresh_ns.load(Ordering::Relaxed)
    }

    /// How old what is here may be; `None`: not known yet.
    pub fn lag_ns(&self) -> Option<u64> {
        let fresh_ns = self.fresh_ns.load(Ordering::Relaxed);
        (fresh_ns > 0).then(|| host_clock_ns(false).saturating_sub(fresh_ns))
    }

    /// Something came of the primary.
    pub fn note_heard(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something came of it.
    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Its clients have read so often.
    pub fn note_reads(&self, reads: u64) {
        self.reads.store(reads, Ordering::Relaxed);
    }

    /// Reads of its clients when that was last looked for.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn stop(&self) -> MutexGuard<'_, Option<Stop>> {
        self.stop.0.lock().expect("no panic under this lock")
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().expect("no panic under this lock")
    }

    /// The primary is lost, for this reason. An error that may pass is one of the connection; any other says
    /// that what is here is of no use.
    pub fn lose(&self, why: &Error) {
        *self.stop() = Some(Stop::Lost { why: why.to_string(), may_resume: why.retry() });
        self.stop.1.notify_all();
    }

    /// All of a life is applied, and what comes next is of another one.
    pub fn end_life(&self) {
        *self.stop() = Some(Stop::LifeEnds);
        self.stop.1.notify_all();
    }

    /// Waits for so long, or until nothing more is applied.
    pub fn wait_for_stop(&self, time: Duration) {
        drop(self.stop.1.wait_timeout_while(self.stop(), time, |stop| stop.is_none()));
    }

    /// Whether the primary is lost.
    pub fn is_lost(&self) -> bool {
        matches!(&*self.stop(), Some(Stop::Lost { .. }))
    }

    /// Whether a life has ended, and what comes next is of another one.
    pub fn has_life_ended(&self) -> bool {
        matches!(&*self.stop(), Some(Stop::LifeEnds))
    }

    /// Whether the primary is lost, and what is here is good.
    pub fn may_resume(&self) -> bool {
        matches!(&*self.stop(), Some(Stop::Lost { may_resume: true, .. }))
    }

    /// The primary is there again, over another connection.
    pub fn resume(&self, resumed: Resumed) {
        let mut stop = self.stop();
        self.orders().resume = Some(resumed);
        self.is_detached.store(false, Ordering::Release);
        self.detaches.store(false, Ordering::SeqCst);
        *stop = None;
    }

    /// The connection over which records come again, once.
    pub fn take_resumed(&self) -> Option<Resumed> {
        self.orders().resume.take()
    }

    /// Has the thread end, and give up what there is.
    pub fn give_up(&self, to: Sender<Attached>, is_chosen: bool) {
        self.orders().give_up = Some(Successor { to, is_chosen });
        self.has_orders.store(true, Ordering::Release);
    }

    /// Has the thread follow the primary no more, as one that is lost, with all that this one has told.
    pub fn detach(&self, why: &'static str) {
        // Once, until it follows again: a later order would be for whom it follows then.
        if self.detaches.swap(true, Ordering::SeqCst) {
            return;
        }
        self.orders().detach = Some(why);
        self.has_orders.store(true, Ordering::Release);
    }

    /// That was done.
    pub fn note_detached(&self) {
        self.is_detached.store(true, Ordering::Release);
    }

    /// Whether all is here that the primary has told, which is followed no more.
    pub fn is_detached(&self) -> bool {
        self.is_detached.load(Ordering::Acquire)
    }

    /// Why the primary is to be followed no more, once.
    pub fn take_detach(&self) -> Option<&'static str> {
        if self.has_orders.load(Ordering::Acquire) { self.orders().detach.take() } else { None }
    }

    /// To whom everything is to be given up, once.
    pub fn take_successor(&self) -> Option<Successor> {
        if self.has_orders.load(Ordering::Acquire) { self.orders().give_up.take() } else { None }
    }

    /// For statistics, with the last record of each shard that was applied.
    pub fn json(&self, applied: &[u64]) -> Value {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let bytes_a_second = {
            let mut rate = self.rate.lock().expect("no panic under this lock");
            let passed = rate.since.elapsed();
            if passed > RATE {
                let a_second = (bytes - rate.bytes) as f64 / passed.as_secs_f64();
                *rate = Rate { since: Instant::now(), bytes, bytes_a_second: a_second };
            }
            rate.bytes_a_second
        };
        let lost = match &*self.stop() {
            Some(Stop::Lost { why, .. }) => Some(why.clone()),
            Some(Stop::LifeEnds) | None => None,
        };
        json!({
            "primary": self.primary,
            "state": if lost.is_some() { "lost" } else { "following" },
            "lost": lost,
            "lag_ms": self.lag_ns().map(|lag| lag as f64 / 1e6),
            "records": self.records.load(Ordering::Relaxed),
            "applied": applied,
            "applied_bytes": bytes,
            "applied_bytes_per_second": bytes_a_second,
        })
    }
}
