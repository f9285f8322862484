//! A register for the nodes of several hosts: the node `view` in a ZooKeeper, version 3.8 or later.
//!
//! ```text
//! /kelix/NAME/format       "kelix register 1"
//! /kelix/NAME/view         the document; its version, as ZooKeeper counts it, is the view's number less one
//! /kelix/NAME/beats/NODE   written by each question of that node; empty
//! ```
//!
//! 1. A number is given once: ZooKeeper creates `view` once, and sets it where it has the version that was
//!    expected ([`connection`]).
//! 2. What [`Register::read`] and [`Register::is_current`] say was so after they were called, and each write
//!    of a beat that this takes went through a quorum then. Nothing that is plainly read is believed.
//! 3. A swap whose outcome is unknown is settled by the next call that is answered: what was sent before
//!    takes effect before that or never, through whichever server and session ([`connection`]).
//! 4. A view that is gone, was made anew or has gone back ends the handle: [`ZooKeeperRegister::observe`].
//! 5. A call is answered or fails within its time limit, and asks another server when one does not answer in
//!    half of it ([`link`]).
//!
//! Sessions mean nothing here. There are no ephemeral nodes, and no watches: a session that expires is
//! replaced by another one. A process that is killed leaves a session that ZooKeeper ends, and its beat, which
//! stays.
//!
//! Each handle has a thread of its own, and all handles of a process share those that the client library
//! begins: one for sockets, and some for names of hosts while these are looked up.
//!
//! [`Register::is_current`] and [`Register::read`] cost one round trip, a synced write of a quorum among it,
//! and so does [`Register::swap`].

mod connection;
mod diagnosis;
mod link;
mod options;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use kelix_types::{Effect, Error, ErrorKind, Result};

pub use self::options::ZooKeeperOptions;

use self::connection::{Look, Put, Seen, lost};
use self::link::{Link, Missed, Reply, Request};
use crate::{OPERATION, Register, Swapped, View, check_expected, check_proposal, document};

/// A register in a ZooKeeper.
///
/// A node has one handle: two under one name work, but disturb each other's swaps.
#[derive(Debug)]
pub struct ZooKeeperRegister {
    link: Link,
    options: ZooKeeperOptions,
    /// The newest view that was seen.
    known: Option<Seen>,
    /// Why the register is lost, once it is.
    ended: Option<String>,
}

/// The answer of the other kind than the request's. The thread answers what it is asked.
fn mixed_up() -> Error {
    Error::new(ErrorKind::Protocol, OPERATION, "another request's answer came")
}

impl ZooKeeperRegister {
    /// Opens the register, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] and [`ErrorKind::TimedOut`] where no server of the list answers in time,
    /// [`ErrorKind::Denied`] where ZooKeeper lets this node do nothing, [`ErrorKind::Damaged`] where
    /// something else than a register has the name, [`ErrorKind::Incompatible`] of a register in a later format.
    pub fn open(options: &ZooKeeperOptions) -> Result<ZooKeeperRegister> {
        let link = Link::start(options)?;
        let mut register = ZooKeeperRegister { link, options: options.clone(), known: None, ended: None };
        register.within_limit(|register, deadline| register.look(None, deadline))?;
        Ok(register)
    }

    /// The server that answers this handle at present; None: none does.
    pub fn server(&self) -> Option<String> {
        self.link.server()
    }

    /// Makes a call, unless the register is lost, and remembers if it is lost then.
    fn within_limit<T>(&mut self, call: impl FnOnce(&mut Self, Instant) -> Result<T>) -> Result<T> {
        if let Some(context) = &self.ended {
            return Err(Error::new(ErrorKind::Superseded, OPERATION, context.clone()).with_retry(false));
        }
        let deadline = Instant::now() + self.options.time_limit;
        let done = call(self, deadline);
        let error = done.as_ref().err().filter(|error| error.kind() == ErrorKind::Superseded);
        if let Some(error) = error {
            self.ended = Some(error.context().to_string());
        }
        done
    }

    fn lost(&self, what: &str) -> Error {
        lost(&self.options.paths.cluster, what)
    }

    /// Remembers what was found, or says that it cannot have become of what was known.
    fn observe(&mut self, found: Option<Seen>) -> Result<()> {
        match (self.known, found) {
            (Some(_), None) => return Err(self.lost("has no view any more")),
            (Some(known), Some(found)) if known.created != found.created => {
                return Err(self.lost("was removed and made anew"));
            }
            (Some(known), Some(found)) if known.version > found.version => {
                let (known, found) = (known.number(), found.number());
                return Err(self.lost(&format!("was put back from an old copy (view {known}, then {found})")));
            }
            _ => self.known = found,
        }
        Ok(())
    }

    /// Asks until a connection answers, or the deadline has passed. What is asked has no effect.
    fn ask(&self, request: &Request, deadline: Instant) -> Result<Reply> {
        loop {
            match self.link.ask(request.clone(), deadline) {
                Ok(reply) => return Ok(reply),
                Err(Missed { is_worth_asking_again: true, .. }) => {}
                Err(missed) => return Err(missed.error),
            }
        }
    }

    fn look(&mut self, version: Option<i32>, deadline: Instant) -> Result<Look> {
        let Reply::Look(look) = self.ask(&Request::Look(version), deadline)? else { return Err(mixed_up()) };
        if look.is_version && version.is_some() && look.view.is_none() {
            return Err(self.lost("has no view any more"));
        }
        self.observe(look.view)?;
        Ok(look)
    }

    /// The view and its document.
    fn fetch(&mut self, deadline: Instant) -> Result<Option<(Seen, Vec<u8>)>> {
        let Reply::Fetch(fetched) = self.ask(&Request::Fetch, deadline)? else { return Err(mixed_up()) };
        self.observe(fetched.as_ref().map(|(seen, _)| *seen))?;
        Ok(fetched)
    }

    fn decode(&self, seen: Seen, document: &[u8]) -> Result<View> {
        let name = format!("{} in ZooKeeper", self.options.paths.view);
        document::decode(document, seen.number(), &name)
    }

    /// The swap is done, as ZooKeeper says.
    fn done(&mut self, seen: Option<Seen>, deadline: Instant) -> Result<Swapped> {
        let found = match seen {
            Some(seen) => self.observe(Some(seen)),
            // It was created: by which transaction is worth a question, and not an error.
            None => match self.look(None, deadline) {
                Err(error) if error.kind() == ErrorKind::Superseded => Err(error),
                _ => Ok(()),
            },
        };
        found.map(|()| Swapped::Done).map_err(|error| error.with_effect(Effect::Unknown))
    }

    /// Puts a view, and finds out what became of it if nothing says so.
    fn put(&mut self, expected: u64, view: &View, document: Arc<[u8]>, deadline: Instant) -> Result<Swapped> {
        let version = match expected.checked_sub(1) {
            None => None,
            Some(version) => Some(i32::try_from(version).map_err(|_| self.out_of_numbers(expected))?),
        };
        let mut effect = Effect::No;
        loop {
            let request = Request::Put { version, document: Arc::clone(&document) };
            match self.link.ask(request, deadline) {
                Ok(Reply::Put(Put::Done(seen))) => return self.done(seen, deadline),
                Ok(Reply::Put(Put::Refused)) => {}
                Ok(_) => return Err(mixed_up().with_effect(Effect::Unknown)),
                Err(missed) => {
                    if missed.is_sent {
                        effect = Effect::Unknown;
                    }
                    if !missed.is_worth_asking_again {
                        return Err(missed.error.with_effect(effect));
                    }
                }
            }
            let fetched = self.fetch(deadline).map_err(|error| error.with_effect(effect))?;
            let newest = fetched.as_ref().map_or(0, |(seen, _)| seen.number());
            check_expected(expected, newest)?;
            if let Some((seen, document)) = fetched.filter(|_| newest > expected) {
                // Whether a view that cannot be read is this caller's cannot be told.
                let read =
                    self.decode(seen, &document).map_err(|error| error.with_effect(Effect::Unknown))?;
                return Ok(if read == *view { Swapped::Done } else { Swapped::Lost });
            }
            // What was sent before is void: it has not taken effect, and the fence is higher now.
            effect = Effect::No;
        }
    }

    fn out_of_numbers(&self, expected: u64) -> Error {
        let context = format!("view {expected} is expected, and ZooKeeper counts to {}", i32::MAX);
        Error::new(ErrorKind::InvalidArgument, OPERATION, context)
    }
}

impl Register for ZooKeeperRegister {
    fn read(&mut self) -> Result<Option<View>> {
        self.within_limit(|register, deadline| {
            let fetched = register.fetch(deadline)?;
            fetched.map(|(seen, document)| register.decode(seen, &document)).transpose()
        })
    }

    fn is_current(&mut self, number: u64) -> Result<bool> {
        let version = number.checked_sub(1).and_then(|version| i32::try_from(version).ok());
        self.within_limit(|register, deadline| {
            let look = register.look(version, deadline)?;
            Ok(match version {
                Some(_) => look.is_version,
                None => number == 0 && look.view.is_none(),
            })
        })
    }

    fn swap(&mut self, expected: u64, view: &View) -> Result<Swapped> {
        check_proposal(expected, view)?;
        let document: Arc<[u8]> = document::encode(view)?.into();
        self.within_limit(|register, deadline| register.put(expected, view, document, deadline))
    }
}
