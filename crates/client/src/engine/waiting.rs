//! The waiting of a session: for answers, for room in a ring, for a server that was lost.

use std::time::Duration;

use kelix_fabric::{Clock, PROGRESS_BYTES, Waiter, WorkQueue};
use kelix_types::{Error, ErrorKind, Result, mark};
use kelix_wire::control::Caller;

use super::{Engine, LOST};

/// Looking again and again without giving the core away, at most.
pub(super) const SPIN: Duration = Duration::from_micros(40);
/// Most looks meanwhile: a clock may stand still for as long as nothing is looked at.
const LOOKS_MAX: u32 = 1 << 14;
/// Looks between two looks at the clock.
pub(super) const LOOKS_A_CLOCK: u32 = 64;
/// Polling while giving the core to whoever wants it.
const YIELD: Duration = Duration::from_micros(200);
/// A sleep in place of a yield.
const BRIEFLY: Duration = Duration::from_micros(100);
/// Between two tries to connect again, at most.
pub(crate) const BETWEEN_TRIES: Duration = Duration::from_millis(20);
/// Between the first two.
const BETWEEN_FIRST_TRIES: Duration = Duration::from_millis(1);
/// Longer than anybody waits.
pub(super) const LIMIT_MAX: Duration = Duration::from_secs(1 << 30);

/// How long has been waited since something last came of it. Requests that are under way together share one,
/// so that a batch at a server that stands still ends when one request would.
#[derive(Default)]
pub(crate) struct Patience {
    pub(super) since_ns: Option<u64>,
    /// When trying to connect again ends, once it has begun.
    until_ns: Option<u64>,
    /// Bytes that had moved when somebody last looked, which is when enough of them had, or a while after the
    /// waiting began.
    moved: Option<u64>,
    /// Bytes that READs had brought by then.
    read_bytes: u64,
    pub(super) looks: u32,
    /// It has been looked for long enough without giving the core away.
    spun: bool,
}

impl Patience {
    pub fn waited(&mut self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns - *self.since_ns.get_or_insert(now_ns))
    }

    /// Something has come, by which waiting begins anew, but not the trying to connect again after a
    /// connection was lost.
    pub fn begin_anew(&mut self) {
        *self = Patience { until_ns: self.until_ns, ..Patience::default() };
    }

    /// Notes how many bytes READs have brought so far. Enough of them are progress, by which waiting begins
    /// anew, but not the trying to connect again after a connection was lost.
    #[inline]
    pub fn note_read(&mut self, bytes: u64) {
        if bytes - self.read_bytes >= PROGRESS_BYTES {
            (self.read_bytes, self.since_ns, self.moved) = (bytes, None, None);
        }
    }
}

/// A time in nanoseconds, as far as they go.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How long to wait for the next try to connect, having tried for so long: another node of a cluster may be
/// there within milliseconds, and a server that is started again within seconds.
pub(crate) fn between_tries(tried_for: Duration) -> Duration {
    (tried_for / 4).clamp(BETWEEN_FIRST_TRIES, BETWEEN_TRIES)
}

/// Whether the server of an error may yet come back.
pub fn is_passing(error: &Error) -> bool {
    error.retry() && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut)
}

impl Engine {
    /// Lets whoever is to make room have the core: for a moment, or asleep where others would take it for
    /// long.
    pub(super) fn give_core(&mut self) {
        if !self.transport.fabric.is_contended() {
            return self.transport.fabric.yield_now();
        }
        self.transport.fabric.announce_sleep();
        let nap = if self.transport.has_news() { Duration::ZERO } else { BRIEFLY };
        self.transport.fabric.sleep(Some(nap.as_nanos() as u64));
    }

    /// Between two looks for what has to arrive: takes in what has come, and if that lasts gives the core
    /// away, and then sleeps. `Ok(false)`: certainly nothing has come yet. An error if there is nothing to
    /// wait for any more.
    #[inline]
    pub fn pause(&mut self, patience: &mut Patience) -> Result<bool> {
        let progress = self.transport.fabric.await_progress();
        patience.looks = patience.looks.wrapping_add(1);
        // A pause of the processor takes as long as a cache line on its way, so not every look has one.
        if patience.looks % 8 == 0 {
            std::hint::spin_loop();
        }
        // One that slept is worth a look at the clock.
        if patience.looks % LOOKS_A_CLOCK == 0 || !progress && self.transport.fabric.is_contended() {
            self.wait_a_little(patience)?;
        }
        Ok(progress)
    }

    #[cold]
    fn wait_a_little(&mut self, patience: &mut Patience) -> Result<()> {
        if patience.since_ns.is_none() {
            self.spin.note(std::mem::take(&mut self.spun_in_vain));
        }
        let waited = patience.waited(self.transport.fabric.now_ns());
        let spins = !patience.spun && waited < self.spin.time() && patience.looks < LOOKS_MAX;
        let shares_core = spins && self.transport.fabric.shares_core();
        if spins && !shares_core {
            return Ok(());
        }
        self.spun_in_vain |= !patience.spun && !shares_core;
        patience.spun = true;
        // From now on each look is worth a while.
        patience.looks = LOOKS_A_CLOCK - 1;
        let deadline = self.connection.options.timeout;
        let shards = if self.transport.awaits_shards() { self.transport.shards() } else { 0 };
        if (0..shards).any(|shard| self.transport.in_force(shard) == Some(false)) {
            let error = self.connection.superseded();
            return self.recover(patience, error);
        }
        if waited >= deadline {
            self.note_progress(patience, waited);
            if patience.since_ns.is_none() {
                return Ok(());
            }
            return self.recover(patience, self.timed_out());
        }
        if waited < YIELD && !self.transport.fabric.is_contended() {
            self.transport.fabric.yield_now();
            return Ok(());
        }
        self.note_progress(patience, waited);
        self.transport.fabric.announce_sleep();
        // What is only sent wakes nobody when it arrives.
        let left = (deadline - waited).min(deadline / 4);
        let nap = if self.transport.has_news() { 0 } else { nanoseconds(left) };
        self.transport.fabric.sleep(Some(nap));
        // An answer may be nobody's who waits here: to a repair, say, while a READ is awaited. If it was left
        // in the ring, this side would neither sleep nor see that the connection is over.
        let took = self.transport.has_news() && self.transport.poll_replies()?;
        if self.transport.fabric.is_broken(self.transport.peer(0)) && !took {
            // A server that was superseded ends its connections, too.
            if self.transport.awaits_shards() && self.transport.in_force(0) == Some(false) {
                let error = self.connection.superseded();
                return self.recover(patience, error);
            }
            self.connection.detached = true;
            let error = self.gone();
            if self.transport.awaits_shards() {
                return self.recover(patience, error);
            }
        }
        if self.transport.is_on_mirror() {
            self.note_primary();
            if self.transport.is_owed_by_primary() {
                let error = self.primary_is_gone();
                return self.recover(patience, error);
            }
        }
        Ok(())
    }

    /// Looks whether enough has moved on a slow way while this was waited for: then waiting begins anew. Most
    /// requests end long before the first look, and cost no call of the system for this.
    pub(super) fn note_progress(&self, patience: &mut Patience, waited: Duration) {
        if waited < self.connection.options.timeout / 4 {
            return;
        }
        let Some(now) = self.transport.fabric.moved_bytes() else { return };
        match patience.moved {
            Some(before) if now < before + PROGRESS_BYTES => {}
            // Whoever had no time to look until it was too late has not waited.
            None if waited < self.connection.options.timeout => patience.moved = Some(now),
            _ => (patience.moved, patience.since_ns) = (Some(now), None),
        }
    }

    /// Runs an operation that may ask several times for the same: all of it has one budget for connecting
    /// again.
    pub fn within_budget<T>(&mut self, operation: impl FnOnce(&mut Engine) -> T) -> T {
        let outermost = self.connection.budget.is_none();
        self.connection.budget.get_or_insert(None);
        let result = operation(self);
        if outermost {
            self.connection.budget = None;
        }
        result
    }

    /// Waits until something has come. `true`: a new connection, and READs that were under way are lost.
    #[inline]
    pub fn until_progress(&mut self, patience: &mut Patience) -> Result<bool> {
        let ways = self.connection.ways;
        while !self.pause(patience)? && self.connection.ways == ways {}
        Ok(self.connection.ways != ways)
    }

    /// What becomes of waiting for a server that does not answer, or cannot be reached: it ends with the
    /// error; or this session is one that goes on, and tries to connect again.
    #[cold]
    pub fn recover(&mut self, patience: &mut Patience, error: Error) -> Result<()> {
        let goes_on = is_passing(&error) || self.may_go_on_elsewhere(&error);
        let Some(caller) = self.connection.caller.filter(|_| goes_on) else { return Err(error) };
        let now_ns = self.transport.fabric.now_ns();
        // A connection that is lost early leaves nothing of the time for the answer.
        let retry_ns = nanoseconds(self.connection.options.retries_for());
        let ends_ns = now_ns.saturating_add(retry_ns);
        let budget = self.connection.budget.as_mut().map_or(&mut patience.until_ns, |budget| budget);
        let until_ns = *budget.get_or_insert(ends_ns);
        if now_ns >= until_ns {
            return Err(error);
        }
        let tried_for = Duration::from_nanos(retry_ns.saturating_sub(until_ns - now_ns));
        let is_late = error.kind() == ErrorKind::TimedOut;
        let reached = match self.reach_primary_again(is_late) {
            None => self.connect_again(caller),
            // The mirror tells which node is primary by now.
            Some(Err(error)) if is_passing(&error) => {
                self.connection.setup.nap(between_tries(tried_for));
                self.connect_again(caller)
            }
            Some(reached) => reached,
        };
        match reached {
            Ok(()) => (patience.since_ns, patience.moved) = (Some(self.transport.fabric.now_ns()), None),
            Err(error) if is_passing(&error) => self.connection.setup.nap(between_tries(tried_for)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether an error says that another server has taken over which knows all that this one has answered:
    /// what was not answered can be asked there.
    pub fn goes_on_elsewhere(&self, error: &Error) -> bool {
        self.may_go_on_elsewhere(error) && self.transport.is_replicated()
    }

    /// Whether it may know that, since it was handed over: it does if it goes on with the same life. A mirror
    /// hands nothing over.
    pub fn may_go_on_elsewhere(&self, error: &Error) -> bool {
        self.connection.caller.is_some()
            && error.kind() == ErrorKind::Superseded
            && error.retry()
            && (self.transport.is_replicated() || !self.transport.is_on_mirror())
    }

    /// Connects once more to the server that was lost, and asks again for what it has not answered.
    pub fn connect_again(&mut self, caller: u64) -> Result<()> {
        let caller = Caller { number: caller, again: true };
        let (setup, mut transport) =
            self.connection.setup.connect_again(&self.connection.client, &self.connection.options, caller)?;
        if !transport.is_of_the_server_of(&self.transport) {
            self.connection.server = LOST;
            let context = "another server has taken over, which does not go on with what this one had; the session \
                           goes over to it with the next call";
            return Err(Error::unnamed(ErrorKind::Superseded, context));
        }
        mark!("session went on over another connection");
        self.connection.setup = setup;
        // The connection to the primary is as good as before, where the server is not the primary itself by
        // now.
        if let Some(primary) = self.transport.fabric.part_primary().filter(|_| transport.is_on_mirror()) {
            transport.fabric.join_primary(primary)?;
        }
        self.transport.resume_on(transport);
        (self.connection.detached, self.connection.announced) = (false, false);
        self.connection.server = self.transport.handles();
        self.connection.connections += 1;
        self.connection.ways += 1;
        self.connection.connected_ns = self.transport.fabric.now_ns();
        self.connection.segments_versions.fill(0);
        self.ask_again(&mut Patience::default())?;
        if self.transport.is_owed_by_primary() { self.reach_primary() } else { Ok(()) }
    }

    /// Asks again for what was not answered over a connection that was lost.
    pub(super) fn ask_again(&mut self, patience: &mut Patience) -> Result<()> {
        while !self.transport.post_again()? {
            self.send_all();
            self.transport.fabric.progress();
            self.transport.poll_replies()?;
            self.give_core();
            self.note_broken();
            let waited = patience.waited(self.transport.fabric.now_ns());
            self.note_progress(patience, waited);
            if self.connection.detached
                || waited > self.connection.options.timeout && patience.since_ns.is_some()
            {
                return Err(self.gone());
            }
        }
        self.send_all();
        Ok(())
    }
}
