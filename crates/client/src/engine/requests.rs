//! Requests and their answers: one that is waited for, and many under way together.

use std::collections::VecDeque;

use kelix_fabric::{Clock, WorkQueue};
use kelix_types::{Effect, Error, ErrorKind, Result};
use kelix_wire::{RequestHead, Status};

use super::waiting::LOOKS_A_CLOCK;
use super::{Engine, Patience};
use crate::transport::{Answer, PostError, RequestId};

/// Requests under way together, whose answers are taken in the order in which they were posted. Each carries
/// what its sender wants to know again when the answer is there.
pub(crate) struct Pipeline<T> {
    under_way: VecDeque<(RequestId, T)>,
}

impl<T> Default for Pipeline<T> {
    fn default() -> Pipeline<T> {
        Pipeline { under_way: VecDeque::new() }
    }
}

impl<T> Pipeline<T> {
    /// With room for so many requests.
    pub fn with_capacity(requests: usize) -> Pipeline<T> {
        Pipeline { under_way: VecDeque::with_capacity(requests) }
    }

    /// How many requests are under way.
    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Takes note of a request that was posted.
    pub fn push(&mut self, id: RequestId, what: T) {
        self.under_way.push_back((id, what));
    }

    /// Waits for the answer to the request that was posted first. `None`: nothing is under way.
    pub fn next(&mut self, engine: &mut Engine, patience: &mut Patience) -> Option<(Result<Answer>, T)> {
        let (id, what) = self.under_way.pop_front()?;
        Some((engine.wait_for(id, patience), what))
    }

    /// Gives up what is under way.
    pub fn abandon(&mut self, engine: &mut Engine) {
        for (id, _) in self.under_way.drain(..) {
            engine.transport.abandon(id);
        }
    }
}

impl Engine {
    /// Posts a request whose answer is awaited, if there is a server and room for it now.
    pub fn try_post(
        &mut self,
        shard: usize,
        mut head: RequestHead,
        key: &[u8],
        body: &[u8],
    ) -> std::result::Result<RequestId, PostError> {
        let properties = head.op.properties();
        let station = match self.transport.is_on_mirror() {
            true => self.station_for(shard, head.op).map_err(PostError::Failed)?,
            false => shard,
        };
        head.durable = match properties.needs_writer && properties.has_effect {
            true => self.connection.options.durable,
            false => self.transport.confirms(station),
        };
        self.check_server(station).map_err(PostError::Failed)?;
        let posted = self.transport.post(station, head, key, body, true);
        if let Err(PostError::Failed(_)) = posted {
            // Over verbs the lease of the authority may last longer than the connection.
            self.note_broken();
        }
        posted
    }

    /// Posts a request whose answer nobody will ask for, if there is room for it and it goes where there is a
    /// connection already. Returns whether it was sent.
    pub fn post_unawaited(&mut self, shard: usize, head: RequestHead, key: &[u8], body: &[u8]) -> bool {
        let station = match self.transport.is_on_mirror() {
            true if !self.transport.is_primary_connected() => return false,
            true => self.transport.primary_of(shard),
            false => shard,
        };
        let posted = self.transport.post(station, head, key, body, false).is_ok();
        if posted {
            self.transport.send(shard);
        }
        posted
    }

    /// Posts a request, waiting for room in the ring if need be.
    pub fn post(
        &mut self,
        shard: usize,
        head: RequestHead,
        key: &[u8],
        body: &[u8],
        patience: &mut Patience,
    ) -> Result<RequestId> {
        loop {
            match self.try_post(shard, head, key, body) {
                Ok(id) => return Ok(id),
                Err(PostError::Failed(error)) => self.recover(patience, error)?,
                Err(PostError::Full) => self.make_room(shard, patience)?,
            }
        }
    }

    /// Waits a little for room in the ring of a shard.
    #[cold]
    pub fn make_room(&mut self, shard: usize, patience: &mut Patience) -> Result<()> {
        self.transport.send(shard);
        self.transport.fabric.progress();
        self.transport.poll_replies()?;
        self.give_core();
        // A ring that is full is not written to, so no WRITE tells that the connection is over.
        patience.looks = patience.looks.wrapping_add(1);
        if patience.looks % LOOKS_A_CLOCK == 0 {
            self.transport.fabric.look();
            self.note_broken();
        }
        let waited = patience.waited(self.transport.fabric.now_ns());
        self.note_progress(patience, waited);
        if waited > self.connection.options.timeout && patience.since_ns.is_some() {
            let context = "the server does not take requests";
            let error = Error::unnamed(ErrorKind::TimedOut, context);
            self.recover(patience, error)?;
        }
        Ok(())
    }

    /// A request and its answer.
    pub fn call(&mut self, shard: usize, head: RequestHead, key: &[u8], body: &[u8]) -> Result<Answer> {
        let mut patience = Patience::default();
        let id = self.post(shard, head, key, body, &mut patience)?;
        self.transport.send(shard);
        self.wait_for(id, &mut patience)
    }

    /// Waits for one answer.
    pub fn wait_for(&mut self, id: RequestId, patience: &mut Patience) -> Result<Answer> {
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
                let effect = if self.transport.abandon(id) { Effect::Unknown } else { Effect::No };
                return Err(error.with_effect(effect));
            }
        }
    }

    /// The answer to a request, if it has come: alone or together with an earlier one.
    #[inline]
    pub fn arrived(&mut self, id: RequestId) -> Result<Option<Answer>> {
        let mut outcome = self.transport.take(id);
        if outcome.is_none() && self.transport.has_news() {
            self.transport.poll_replies()?;
            outcome = self.transport.take(id);
        }
        match outcome {
            Some(Ok(answer)) => self.check_authority(answer).map(Some),
            Some(Err(lost)) => Err(self.lost_with_primary(&lost)),
            None => Ok(None),
        }
    }

    /// Check (c) for answers: only the server in force may give them. A server with replicas has looked by
    /// itself whether it is, behind what an answer tells of (docs/read-rule.md, "Answers of a server with
    /// replicas").
    #[inline]
    pub fn check_authority(&mut self, answer: Answer) -> Result<Answer> {
        if self.transport.is_on_mirror() {
            return self.check_mirrored(answer);
        }
        if self.transport.is_replicated() {
            return Ok(answer);
        }
        match self.transport.in_force(answer.station) {
            // Whatever it says: a read, or a piece of a large value, has changed nothing.
            Some(false) => {
                let effect = if answer.is_of_write() { Effect::Unknown } else { Effect::No };
                self.reach_successor().map_err(|error| error.with_effect(effect))?;
                Ok(answer)
            }
            // If it cannot be told any more, it could when the answer was taken.
            Some(true) | None => Ok(answer),
        }
    }
}

impl Engine {
    /// Goes over to a server that has taken over. An error: that one does not go on with what this one had,
    /// so that nothing counts that this one has answered.
    #[cold]
    fn reach_successor(&mut self) -> Result<()> {
        let (ways, mut patience) = (self.connection.ways, Patience::default());
        while self.connection.ways == ways {
            let error = self.connection.superseded();
            self.recover(&mut patience, error)?;
        }
        Ok(())
    }
}

/// Turns refusals into errors.
pub(crate) fn check_answer(answer: &Answer) -> Result<()> {
    match answer.status {
        Status::Ok | Status::Absent | Status::Mismatch => Ok(()),
        Status::NoRoom => Err(Error::unnamed(
            ErrorKind::OutOfMemory,
            "the shard's memory is full and none comes back; delete something, or serve with more --memory",
        )),
        Status::Refused => Err(Error::unnamed(ErrorKind::InvalidArgument, "the server refused the request")),
        Status::Denied => {
            Err(Error::unnamed(ErrorKind::Denied, "this client may read this namespace, and not write"))
        }
        Status::Gone => {
            let context =
                "the table was dropped, or the generation of it is not there any more; open it again";
            Err(Error::unnamed(ErrorKind::ViewExpired, context))
        }
        Status::Loaded => {
            let context = "the table was loaded: it takes no writes but those of the next load, and goes with its dataset only";
            Err(Error::unnamed(ErrorKind::Denied, context))
        }
        Status::Frozen => {
            let context =
                "the table's next generation is coming into force; write by the table's name, and try again";
            Err(Error::unnamed(ErrorKind::Frozen, context))
        }
        Status::ReadOnly => Err(Error::unnamed(
            ErrorKind::Unavailable,
            "the server takes no writes now, since the disk of its log is full or has failed, or too few nodes of its cluster are in sync (`kelix stat` says which); reads go on",
        )),
        Status::NotDurable => {
            let context = "the server's log has failed before the write was on the disk; reads go on";
            Err(Error::unnamed(ErrorKind::Unavailable, context).with_effect(Effect::Unknown))
        }
        Status::NoLog => Err(Error::unnamed(
            ErrorKind::InvalidArgument,
            "the write was to be on the disk before its answer, and the server writes no log; serve with --wal DIRECTORY",
        )),
        Status::Taken => Err(Error::unnamed(ErrorKind::InvalidArgument, "a loaded table has that name")),
        Status::Forgotten => {
            let context =
                "the server no longer knows whether it was done: too many other clients came and went";
            Err(Error::unnamed(ErrorKind::Unavailable, context).with_effect(Effect::Unknown))
        }
    }
}
