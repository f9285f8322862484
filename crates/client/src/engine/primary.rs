//! The way of a session on a mirror to the primary: a connection of its own, with its own credentials, which
//! is opened by the first request that needs it. When that breaks, what was under way there has failed, or is
//! asked again by a session that may (`SessionOptions::retry_for`); the mirror is read on.

use std::time::Duration;

use kelix_fabric::{Clock, Endpoint, host_clock_ns};
use kelix_types::{Effect, Error, ErrorKind, Result, mark};
use kelix_wire::Op;
use kelix_wire::control::Caller;

use super::waiting::{BETWEEN_TRIES, nanoseconds};
use super::{Connection, Engine, LOST, Patience};
use crate::transport::{Answer, Lost};

/// The last try to connect that failed.
#[derive(Default)]
pub(super) struct Tries {
    failed: Option<(ErrorKind, String, bool)>,
    /// Before that nobody tries again: a primary that is not there is not waited for by every operation.
    next_ns: u64,
}

impl Engine {
    /// The station of a session on a mirror to which a request goes, to which there is a connection then.
    #[cold]
    pub(super) fn station_for(&mut self, shard: usize, op: Op) -> Result<usize> {
        // A forked child leaves its parent's connection alone.
        self.transport.countdown.check()?;
        let properties = op.properties();
        let at_primary = properties.needs_writer || properties.has_effect;
        if at_primary || self.transport.reads_at_primary(shard) {
            if !at_primary {
                self.note_mirror(shard);
            }
            self.reach_primary()?;
            return Ok(self.transport.primary_of(shard));
        }
        if !self.transport.is_stale(shard) {
            return Ok(shard);
        }
        Err(if self.note_mirror(shard) { self.connection.superseded() } else { self.stale() })
    }

    /// Takes note of a mirror that has gone. Returns whether another server is in force in its place. Where
    /// the mirror's memory is not read, because it is too old, nothing else tells of either, and the memory of
    /// the next server may be new enough.
    fn note_mirror(&mut self, shard: usize) -> bool {
        let is_superseded = self.transport.in_force(shard) == Some(false);
        if is_superseded {
            self.connection.server = LOST;
        } else {
            self.note_broken();
        }
        is_superseded
    }

    /// Sees to it that there is a connection to the primary.
    pub(super) fn reach_primary(&mut self) -> Result<()> {
        self.note_primary();
        if self.transport.is_primary_connected() {
            return Ok(());
        }
        let began_ns = self.transport.fabric.now_ns();
        if let Some((kind, context, retry)) =
            self.tries.failed.as_ref().filter(|_| began_ns < self.tries.next_ns)
        {
            return Err(Error::unnamed(*kind, context.clone()).with_retry(*retry));
        }
        self.tries.failed = None;
        let connected = self.connect_primary();
        if let Err(error) = &connected {
            let now_ns = self.transport.fabric.now_ns();
            self.tries.next_ns = now_ns + (now_ns - began_ns).max(nanoseconds(BETWEEN_TRIES));
            self.tries.failed = Some((error.kind(), error.context().to_string(), error.retry()));
        }
        connected
    }

    fn connect_primary(&mut self) -> Result<()> {
        let address = self.transport.primary_address().expect("a session on a mirror").to_string();
        let again = self.transport.had_primary();
        let caller = self.connection.caller.map(|number| Caller { number, again });
        let Connection { client, options, setup, .. } = &mut self.connection;
        let joined = setup.connect_primary(&address, &client.credentials, options, caller);
        let (endpoint, server) = joined.map_err(|error| unreachable(&address, error))?;
        if !self.transport.is_of_store(&server) {
            // Nobody can say any more what became of what was asked of the life before.
            self.transport.lose_primary(false);
            if self.transport.in_force(0) == Some(false) {
                // The mirror has followed it, which a session that only writes has not seen.
                return Err(self.connection.superseded());
            }
            let context = format!(
                "this is a mirror of {address}, where another life of the store has begun that the mirror has \
                 yet to follow; try again when it does"
            );
            return Err(Error::unnamed(ErrorKind::Unavailable, context));
        }
        self.transport.fabric.join_primary(endpoint)?;
        self.transport.connect_primary(&server, Endpoint::of_primary);
        self.connection.ways += 1;
        mark!("session on a mirror connected to the primary");
        self.ask_again(&mut Patience::default())
    }

    /// Looks whether the connection to the primary is over.
    pub(super) fn note_primary(&mut self) {
        if !self.transport.is_primary_gone() {
            return;
        }
        // What has arrived counts.
        while self.transport.has_news() && self.transport.poll_replies().is_ok_and(|took| took) {}
        self.drop_primary();
    }

    fn drop_primary(&mut self) {
        drop(self.transport.fabric.part_primary());
        self.transport.lose_primary(self.connection.caller.is_some());
    }

    /// Connects to the primary once more and asks again for what it has not answered, if that is what is
    /// wrong; waits a little if the mirror is there, and only too old. `None`: the mirror is to be connected
    /// to again.
    pub fn reach_primary_again(&mut self, is_late: bool) -> Option<Result<()>> {
        if !self.transport.is_on_mirror() {
            return None;
        }
        self.note_primary();
        if is_late && self.transport.is_primary_connected() && !self.transport.awaits_shards() {
            self.drop_primary();
            // Where another node of a cluster is primary by now, the mirror says so to who connects.
            return None;
        }
        let is_there = !self.connection.detached && !is_late;
        if self.transport.is_owed_by_primary() || is_there && self.tries.failed.is_some() {
            return Some(self.reach_primary());
        }
        is_there.then(|| {
            self.connection.setup.nap(BETWEEN_TRIES);
            Ok(())
        })
    }

    /// Whether there is still somebody to answer what was asked of a shard. A mirror that has gone matters
    /// only to who has asked it.
    pub fn check_asked(&mut self, shard: usize) -> Result<()> {
        if self.transport.awaits_shards() { self.check_server(shard) } else { Ok(()) }
    }

    /// What a request comes to that was lost with its connection.
    #[cold]
    pub(super) fn lost_with_primary(&self, lost: &Lost) -> Error {
        let effect = if lost.has_effect { Effect::Unknown } else { Effect::No };
        self.primary_is_gone().with_effect(effect)
    }

    pub(super) fn primary_is_gone(&self) -> Error {
        let address = self.transport.primary_address().unwrap_or_default();
        let context = format!(
            "the connection to {address}, of which this is a mirror, is lost; reads go on, writes need the \
             primary"
        );
        Error::unnamed(ErrorKind::Unavailable, context)
    }

    /// Check (c) of answers in a session on a mirror, and how old they may be.
    #[cold]
    pub(super) fn check_mirrored(&mut self, answer: Answer) -> Result<Answer> {
        let in_force = self.transport.in_force(answer.station);
        if self.transport.is_of_primary(answer.station) {
            if in_force == Some(false) {
                self.note_primary();
                return Err(self.primary_is_gone().with_effect(Effect::Unknown));
            }
        } else if in_force == Some(false) {
            return Err(self.connection.superseded().with_effect(Effect::Unknown));
        } else if !self.transport.is_fresh(answer.station) {
            return Err(self.stale());
        }
        Ok(answer)
    }

    /// How long ago the mirror is known to have had all that its primary had.
    pub fn lag(&self) -> Option<Duration> {
        let fresh_ns = self.transport.fresh_ns()?;
        host_clock_ns(false).checked_sub(fresh_ns).map(Duration::from_nanos)
    }

    /// What a read comes to that would show what is too old.
    #[cold]
    fn stale(&self) -> Error {
        let address = self.transport.primary_address().unwrap_or_default();
        let heard = match self.lag() {
            Some(lag) => format!("for {} ms", lag.as_millis()),
            None if self.transport.fresh_ns().is_some() => {
                let context = "this mirror has another clock than this process, whose time namespace is \
                               another: how old is what it shows cannot be told";
                return Error::unnamed(ErrorKind::Unavailable, context.to_string());
            }
            None => "yet".into(),
        };
        let context = format!(
            "this mirror has not heard from its primary {address} {heard}, and may not be read when that is so \
             long ago"
        );
        Error::unnamed(ErrorKind::Unavailable, context)
    }
}

/// Why there is no connection to the primary, and what would help.
fn unreachable(address: &str, error: Error) -> Error {
    let hint = match error.kind() {
        ErrorKind::Denied => {
            "; a session on a mirror writes with credentials of its own: give the primary's token with \
             --token-file or Credentials::token, and the certificates to trust with --tls-ca or \
             Credentials::tls"
        }
        _ => "",
    };
    let context = format!("this is a mirror of {address}; writes go there: {}{hint}", error.context());
    let (kind, retry) = (error.kind(), error.retry());
    Error::unnamed(kind, context).with_retry(retry).with_source(error)
}
