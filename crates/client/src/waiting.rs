//! The waiting of a session: for answers, for room in a ring, for a server that was lost.

use std::time::Duration;

use kelix_fabric::{Fabric, PROGRESS_BYTES};
use kelix_types::{Effect, Error, ErrorKind, Result, mark};
use kelix_wire::RequestHead;
use kelix_wire::control::Caller;

use crate::core::{Answer, PostError, RequestId};
use crate::healing::LOST;
use crate::session::Session;

/// Looking again and again without giving the core away.
const SPIN: Duration = Duration::from_micros(40);
/// Most looks meanwhile: a clock may stand still for as long as nothing is looked at.
const LOOKS_MAX: u32 = 1 << 14;
/// Looks between two looks at the clock.
const LOOKS_A_CLOCK: u32 = 64;
/// Polling while giving the core to whoever wants it.
const YIELD: Duration = Duration::from_micros(200);
/// A sleep in place of a yield.
const BRIEFLY: Duration = Duration::from_micros(100);
/// Between two tries to connect again.
pub(crate) const BETWEEN_TRIES: Duration = Duration::from_millis(20);
/// Longer than anybody waits.
const LIMIT_MAX: Duration = Duration::from_secs(1 << 30);

/// How long has been waited since something last came of it. Requests that are under way together share one, so that a
/// batch at a server that stands still ends when one request would.
#[derive(Default)]
pub(crate) struct Patience {
    since_ns: Option<u64>,
    /// When trying to connect again ends, once it has begun.
    until_ns: Option<u64>,
    /// Bytes that had moved when somebody last looked, which is when enough of them had, or a while after the waiting began.
    moved: Option<u64>,
    /// Bytes that READs had brought by then.
    read_bytes: u64,
    looks: u32,
    /// It has been looked for long enough without giving the core away.
    spun: bool,
}

impl Patience {
    pub(crate) fn waited(&mut self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns - *self.since_ns.get_or_insert(now_ns))
    }

    /// Notes how many bytes READs have brought so far. Enough of them are progress, by which waiting begins anew, but not the trying to
    /// connect again after a connection was lost.
    #[inline]
    pub(crate) fn note_read(&mut self, bytes: u64) {
        if bytes - self.read_bytes >= PROGRESS_BYTES {
            (self.read_bytes, self.since_ns, self.moved) = (bytes, None, None);
        }
    }
}

/// A time in nanoseconds, as far as they go.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the server of an error may yet come back.
pub(crate) fn is_passing(error: &Error) -> bool {
    error.retry() && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut)
}

impl Session {
    /// Whether there is still a server to ask.
    pub(crate) fn check_server(&mut self) -> Result<()> {
        match self.core.in_force() {
            Some(false) => Err(self.handles.superseded()),
            Some(true) if !self.connection.detached => Ok(()),
            _ => {
                self.connection.detached = true;
                Err(self.gone())
            }
        }
    }

    /// Posts a request whose answer is awaited, if there is room for it now.
    pub(crate) fn try_post(
        &mut self,
        shard: usize,
        head: RequestHead,
        key: &[u8],
        body: &[u8],
    ) -> std::result::Result<RequestId, PostError> {
        let posted = self.core.post(shard, head, key, body, true);
        if let Err(PostError::Failed(_)) = posted {
            // Over verbs the lease of the authority may last longer than the connection.
            self.note_broken();
        }
        posted
    }

    /// Posts a request, waiting for room in the ring if need be.
    pub(crate) fn post(
        &mut self,
        shard: usize,
        head: RequestHead,
        key: &[u8],
        body: &[u8],
        patience: &mut Patience,
    ) -> Result<RequestId> {
        loop {
            let posted = match self.check_server() {
                Ok(()) => self.try_post(shard, head, key, body),
                Err(error) => Err(PostError::Failed(error)),
            };
            match posted {
                Ok(id) => return Ok(id),
                Err(PostError::Failed(error)) => self.recover(patience, error)?,
                Err(PostError::Full) => self.make_room(shard, patience)?,
            }
        }
    }

    /// Waits a little for room in the ring of a shard.
    #[cold]
    fn make_room(&mut self, shard: usize, patience: &mut Patience) -> Result<()> {
        self.core.send(shard);
        self.core.fabric.progress();
        self.core.poll_replies()?;
        self.give_core();
        // A ring that is full is not written to, so no WRITE tells that the connection is over.
        patience.looks = patience.looks.wrapping_add(1);
        if patience.looks % LOOKS_A_CLOCK == 0 {
            self.core.fabric.look();
            self.note_broken();
        }
        let waited = patience.waited(self.core.fabric.now_ns());
        self.note_progress(patience, waited);
        if waited > self.connection.options.timeout && patience.since_ns.is_some() {
            let context = "the server does not take requests";
            let error = Error::unnamed(ErrorKind::TimedOut, context);
            self.recover(patience, error)?;
        }
        Ok(())
    }

    /// A request and its answer.
    pub(crate) fn call(
        &mut self,
        shard: usize,
        head: RequestHead,
        key: &[u8],
        body: &[u8],
    ) -> Result<Answer> {
        let mut patience = Patience::default();
        let id = self.post(shard, head, key, body, &mut patience)?;
        self.core.send(shard);
        self.wait_for(id, &mut patience)
    }

    /// Lets whoever is to make room have the core: for a moment, or asleep where others would take it for long.
    fn give_core(&mut self) {
        if !self.core.fabric.is_contended() {
            return self.core.fabric.yield_now();
        }
        self.core.fabric.announce_sleep();
        let nap = if self.core.has_news() { Duration::ZERO } else { BRIEFLY };
        self.core.fabric.sleep(Some(nap.as_nanos() as u64));
    }

    /// Waits for one answer.
    pub(crate) fn wait_for(&mut self, id: RequestId, patience: &mut Patience) -> Result<Answer> {
        loop {
            if let Some(answer) = self.arrived(id)? {
                *patience = Patience::default();
                return Ok(answer);
            }
            if let Err(error) = self.pause(patience) {
                // It may have come in the last moment.
                if let Some(answer) = self.arrived(id)? {
                    return Ok(answer);
                }
                let effect = if self.core.abandon(id) { Effect::Unknown } else { Effect::No };
                return Err(error.with_effect(effect));
            }
        }
    }

    /// Between two looks for what has to arrive: takes in what has come, and if that lasts gives the core away, and then
    /// sleeps. `Ok(false)`: certainly nothing has come yet. An error if there is nothing to wait for any more.
    #[inline]
    pub(crate) fn pause(&mut self, patience: &mut Patience) -> Result<bool> {
        let progress = self.core.fabric.await_progress();
        patience.looks = patience.looks.wrapping_add(1);
        // A pause of the processor takes as long as a cache line on its way, so not every look has one.
        if patience.looks % 8 == 0 {
            std::hint::spin_loop();
        }
        // One that slept is worth a look at the clock.
        if patience.looks % LOOKS_A_CLOCK == 0 || !progress && self.core.fabric.is_contended() {
            self.wait_a_little(patience)?;
        }
        Ok(progress)
    }

    /// The answer to a request, if it has come: alone or together with an earlier one.
    #[inline]
    fn arrived(&mut self, id: RequestId) -> Result<Option<Answer>> {
        if self.core.has_news() {
            self.core.poll_replies()?;
        }
        self.core.take(id).map(|answer| self.check_authority(answer)).transpose()
    }

    /// Check (c) for answers: only the server in force may give them.
    pub(crate) fn check_authority(&mut self, answer: Answer) -> Result<Answer> {
        match self.core.in_force() {
            Some(false) => Err(self.handles.superseded().with_effect(Effect::Unknown)),
            // If it cannot be told any more, it could when the answer was taken.
            Some(true) | None => Ok(answer),
        }
    }

    pub(crate) fn timed_out(&self) -> Error {
        let deadline = self.limit().as_millis();
        let context = format!("no answer within {deadline} ms; is the server stopped?");
        Error::unnamed(ErrorKind::TimedOut, context)
    }

    #[cold]
    fn wait_a_little(&mut self, patience: &mut Patience) -> Result<()> {
        let waited = patience.waited(self.core.fabric.now_ns());
        let spins = !patience.spun && waited < SPIN && patience.looks < LOOKS_MAX;
        if spins && !self.core.fabric.shares_core() {
            return Ok(());
        }
        patience.spun = true;
        // From now on each look is worth a while.
        patience.looks = LOOKS_A_CLOCK - 1;
        let deadline = self.connection.options.timeout;
        if self.core.in_force() == Some(false) {
            return Err(self.handles.superseded());
        }
        if waited >= deadline {
            self.note_progress(patience, waited);
            if patience.since_ns.is_none() {
                return Ok(());
            }
            return self.recover(patience, self.timed_out());
        }
        if waited < YIELD && !self.core.fabric.is_contended() {
            self.core.fabric.yield_now();
            return Ok(());
        }
        self.note_progress(patience, waited);
        self.core.fabric.announce_sleep();
        // What is only sent wakes nobody when it arrives.
        let left = (deadline - waited).min(deadline / 4);
        let nap = if self.core.has_news() { 0 } else { nanoseconds(left) };
        self.core.fabric.sleep(Some(nap));
        // An answer may be nobody's who waits here: to a repair, say, while a READ is awaited. If it was left in the ring, this side would neither
        // sleep nor see that the connection is over.
        let took = self.core.has_news() && self.core.poll_replies()?;
        if self.core.fabric.is_broken(self.core.peer(0)) && !took {
            self.connection.detached = true;
            let error = self.gone();
            return self.recover(patience, error);
        }
        Ok(())
    }

    /// Looks whether enough has moved on a slow way while this was waited for: then waiting begins anew. Most requests end long before the first look,
    /// and cost no call of the system for this.
    fn note_progress(&self, patience: &mut Patience, waited: Duration) {
        if waited < self.connection.options.timeout / 4 {
            return;
        }
        let Some(now) = self.core.fabric.moved_bytes() else { return };
        match patience.moved {
            Some(before) if now < before + PROGRESS_BYTES => {}
            // Whoever had no time to look until it was too late has not waited.
            None if waited < self.connection.options.timeout => patience.moved = Some(now),
            _ => (patience.moved, patience.since_ns) = (Some(now), None),
        }
    }

    /// Runs an operation that may ask several times for the same: all of it has one budget for connecting again.
    pub(crate) fn within_budget<T>(&mut self, operation: impl FnOnce(&mut Session) -> T) -> T {
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
    pub(crate) fn until_progress(&mut self, patience: &mut Patience) -> Result<bool> {
        let connections = self.connection.connections;
        while !self.pause(patience)? && self.connection.connections == connections {}
        Ok(self.connection.connections != connections)
    }

    /// What becomes of waiting for a server that does not answer, or cannot be reached: it ends with the error; or this
    /// session is one that goes on, and tries to connect again.
    #[cold]
    pub(crate) fn recover(&mut self, patience: &mut Patience, error: Error) -> Result<()> {
        let Some(caller) = self.connection.caller.filter(|_| is_passing(&error)) else { return Err(error) };
        let now_ns = self.core.fabric.now_ns();
        // A connection that is lost early leaves nothing of the time for the answer.
        let ends_ns = now_ns.saturating_add(nanoseconds(self.connection.options.retry_for));
        let budget = self.connection.budget.as_mut().map_or(&mut patience.until_ns, |budget| budget);
        let until_ns = *budget.get_or_insert(ends_ns);
        if now_ns >= until_ns {
            return Err(error);
        }
        match self.connect_again(caller) {
            Ok(()) => (patience.since_ns, patience.moved) = (Some(self.core.fabric.now_ns()), None),
            Err(error) if is_passing(&error) => self.connection.setup.nap(BETWEEN_TRIES),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Connects once more to the server that was lost, and asks again for what it has not answered.
    pub(crate) fn connect_again(&mut self, caller: u64) -> Result<()> {
        let caller = Caller { number: caller, again: true };
        let (setup, core) =
            self.connection.setup.connect_again(&self.connection.client, &self.connection.options, caller)?;
        if !core.is_of_the_server_of(&self.core) {
            return Err(self.handles.superseded());
        }
        mark!("session went on over another connection");
        self.connection.setup = setup;
        self.core.resume_on(core);
        (self.connection.detached, self.submitted.announced) = (false, false);
        self.handles.server = self.core.handles();
        self.connection.connections += 1;
        self.connection.connected_ns = self.core.fabric.now_ns();
        self.connection.segments_versions.fill(0);
        let mut patience = Patience::default();
        while !self.core.post_again()? {
            self.send_all();
            self.core.fabric.progress();
            self.core.poll_replies()?;
            self.give_core();
            self.note_broken();
            let waited = patience.waited(self.core.fabric.now_ns());
            self.note_progress(&mut patience, waited);
            if self.connection.detached
                || waited > self.connection.options.timeout && patience.since_ns.is_some()
            {
                return Err(self.gone());
            }
        }
        self.send_all();
        Ok(())
    }

    /// The same between polls, of which each may only try once in a while.
    pub(crate) fn connect_for_poll(&mut self) {
        let Some(caller) = self.connection.caller.filter(|_| self.outstanding() > 0) else { return };
        self.core.fabric.look();
        self.note_broken();
        let now_ns = self.core.fabric.now_ns();
        let timeout_ns = nanoseconds(self.connection.options.timeout);
        let waiting = self.submitted.waiting.iter().map(|waiting| waiting.since_ns);
        let mut since =
            waiting.chain(self.submitted.readings.iter().flatten().map(|reading| reading.since_ns));
        let is_late = |since_ns: u64| {
            now_ns - since_ns.max(self.connection.connected_ns).max(self.submitted.moved_ns) >= timeout_ns
        };
        if !self.connection.detached && !since.any(is_late) {
            self.submitted.lost_ns = None;
            return;
        }
        self.submitted.lost_ns.get_or_insert(now_ns);
        if self.connection.detached {
            // The descriptor of a connection that is over is always readable, and its caller would come again at once.
            self.connection
                .setup
                .nap(Duration::from_nanos(self.connection.next_try_ns.saturating_sub(now_ns)));
        } else if now_ns < self.connection.next_try_ns {
            return;
        }
        match self.connect_again(caller) {
            Ok(()) => self.submitted.lost_ns = None,
            // What is under way ends as it does without a caller.
            Err(error) if !is_passing(&error) => self.connection.caller = None,
            Err(_) => {}
        }
        self.connection.next_try_ns = self.core.fabric.now_ns() + BETWEEN_TRIES.as_nanos() as u64;
    }

    /// Whether polls have tried to connect again for as long as they may.
    pub(crate) fn has_tried_enough(&self, now_ns: u64) -> bool {
        let since_ns = self.submitted.lost_ns.unwrap_or(now_ns);
        self.connection.detached
            && now_ns.saturating_sub(since_ns) >= nanoseconds(self.connection.options.retry_for)
    }

    /// The same as [`Session::note_progress`] for all that is under way between polls.
    pub(crate) fn note_moved(&mut self, now_ns: u64) {
        if now_ns - self.submitted.looked_ns < nanoseconds(self.connection.options.timeout / 4) {
            return;
        }
        self.submitted.looked_ns = now_ns;
        let Some(now) = self.core.fabric.moved_bytes() else { return };
        // Another connection counts from its beginning.
        if now < self.submitted.moved || now >= self.submitted.moved + PROGRESS_BYTES {
            (self.submitted.moved, self.submitted.moved_ns) = (now, now_ns);
        }
    }

    /// How long after a request was posted its outcome is awaited.
    pub(crate) fn limit(&self) -> Duration {
        let Some(_) = self.connection.caller else { return self.connection.options.timeout };
        self.connection.options.timeout.saturating_add(self.connection.options.retry_for).min(LIMIT_MAX)
    }

    pub(crate) fn gone(&mut self) -> Error {
        self.handles.server = LOST;
        let context =
            "the server has gone; in shared memory reads go on from its last state, writes need a server";
        Error::unnamed(ErrorKind::Unavailable, context)
    }
}
