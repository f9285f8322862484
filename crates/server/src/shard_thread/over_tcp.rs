//! What the thread leaves to the agent, which asks it for what clients over TCP want.
//!
//! A thread that is woken for a request takes its time to wake, and then wakes the agent to send the answer:
//! two switches of threads, which take longer than the request. So where the agent serves one client that
//! asks for one thing after the other, or where others compute, it steps in: it has the shard do what has
//! arrived itself, while the thread sleeps. The thread sleeps at once then if what it was asked for was all
//! over TCP. A client in shared memory wakes it, and ends that for a while.
//!
//! The shard is its thread's, by a lock that the thread has for as long as it is awake. So nothing is shared
//! between the two but the moments of falling asleep and of waking.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use kelix_fabric::tcp::StepIn;
use kelix_fabric::{Clock, Spin, Waiter};

use super::looking::SPIN;
use super::{REPORT, ShardThread, cpu_time};

/// Steps in a row with requests of the agent's alone, behind which no others are expected.
const STEPS: u32 = 16;

/// Locks the shard for its thread.
pub(super) fn awake(shared: &Mutex<ShardThread>) -> MutexGuard<'_, ShardThread> {
    shared.lock().expect("no panic under this lock")
}

/// What the agent is given. The shard ends with its thread.
pub(super) fn step_in(shared: &Arc<Mutex<ShardThread>>) -> StepIn {
    let shared = Arc::downgrade(shared);
    let steps_in = |shared: &Mutex<ShardThread>| shared.try_lock().is_ok_and(|mut thread| thread.steps_in());
    Arc::new(move || shared.upgrade().is_some_and(|shared| steps_in(&shared)))
}

/// A sleep of the thread's, and what goes before one.
#[derive(Clone, Copy)]
pub(super) struct Sleep {
    /// When it is over by itself, while it lasts.
    until_ns: Option<u64>,
    /// The agent has stepped in since a report was published.
    is_unreported: bool,
    /// For how long the thread looks for news before one without giving its core away.
    pub spin: Spin,
}

impl Default for Sleep {
    fn default() -> Sleep {
        Sleep { until_ns: None, is_unreported: false, spin: Spin::new(SPIN) }
    }
}

impl ShardThread {
    /// Behind a step with requests: gives the core to the agent if that has something to send.
    pub(super) fn lets_agent_answer(&mut self) {
        self.over_tcp = if self.endpoint.take_rung() { self.over_tcp.saturating_add(1) } else { 0 };
        if self.over_tcp > 0 {
            self.endpoint.tell_core();
            if !self.endpoint.is_contended() && !self.rests() {
                self.endpoint.yield_now();
            }
        }
    }

    /// Whether to sleep at once in place of looking for more.
    pub(super) fn rests(&self) -> bool {
        self.over_tcp >= STEPS && self.endpoint.agent_steps_in()
    }

    /// Sleeps until something happens or the time is over, and leaves the shard to the agent meanwhile.
    pub(super) fn sleep<'s>(
        mut thread: MutexGuard<'s, ShardThread>,
        shared: &'s Mutex<ShardThread>,
        next_ns: Option<u64>,
    ) -> MutexGuard<'s, ShardThread> {
        thread.publish_report(cpu_time());
        thread.endpoint.announce_sleep();
        if thread.has_news() || thread.stop.load(Ordering::SeqCst) {
            thread.endpoint.sleep(Some(0));
            return thread;
        }
        thread.sleeps += 1;
        // What the agent has done is told no later than what the thread does.
        let report = std::mem::take(&mut thread.sleep.is_unreported).then_some(REPORT.as_nanos() as u64);
        let until_ns =
            [next_ns, report.map(|report| thread.endpoint.now_ns() + report)].into_iter().flatten().min();
        loop {
            let left_ns = until_ns.map(|until| until.saturating_sub(thread.endpoint.now_ns()));
            if left_ns == Some(0) {
                break;
            }
            let (nap_ns, sleeper) = thread.endpoint.nap(left_ns);
            thread.sleep.until_ns = Some(until_ns.unwrap_or(u64::MAX));
            drop(thread);
            let heard = sleeper.wait(nap_ns);
            thread = awake(shared);
            thread.sleep.until_ns = None;
            if thread.endpoint.wakes(&heard) {
                break;
            }
        }
        thread.endpoint.sleep(Some(0));
        thread
    }

    /// Does a step in the place of the thread, if that sleeps. `false`: it is to wake.
    fn steps_in(&mut self) -> bool {
        let Some(until_ns) = self.sleep.until_ns else { return false };
        if self.is_wanted() || self.shard.is_behind() {
            return false;
        }
        let now = self.now();
        let progress = self.step(now);
        self.endpoint.take_rung();
        self.sleep.is_unreported = true;
        // The thread does what is due, also what the agent has given it to do, and tells what was done.
        let report_ns = now.monotonic_ns + REPORT.as_nanos() as u64;
        let due_ns = progress.next_ns.map_or(report_ns, |next| next.min(report_ns));
        due_ns >= until_ns && !self.shard.is_behind() && !self.endpoint.is_tending() && !self.has_news()
    }
}
