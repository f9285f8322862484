//! Submit and poll, as a session offers both.

use std::ops::Range;

use kelix_fabric::{Clock, Waiter, WorkQueue};
use kelix_types::{Result, Version};
use kelix_wire::{Op, RequestHead};

use super::{Completion, LinkEnd, Operation, State, Submitted, Ticket, landed};
use crate::Table;
use crate::catalogue::BoundTable;
use crate::engine::{Engine, Wanted, check_key, check_value};
use crate::frontier::Frontier;
use crate::item::{Item, NewItem};
use crate::key::Key;
use crate::links::{KeptOrigin, Origin};
use crate::scan::{PageRead, PausedScan, Scan};
use crate::session::Session;

impl Session {
    fn submit(
        &mut self,
        op: Op,
        table: Table,
        (key, value): (&[u8], &[u8]),
        expect: Option<Option<Version>>,
    ) -> Result<Ticket> {
        self.operate("submit", |session| {
            let BoundTable { id, generation } = session.check_table(table)?;
            let head = RequestHead { expect, ..RequestHead::new(op, 0, id) };
            session.enqueue(head, key, value.to_vec(), generation)
        })
    }

    fn enqueue(&mut self, head: RequestHead, key: &[u8], value: Vec<u8>, generation: u64) -> Result<Ticket> {
        check_key(head.table, key)?;
        check_value(&head, &value)?;
        Ok(self.submitted.enqueue(Operation::new(head, key, value, generation)))
    }

    fn enqueue_item(
        &mut self,
        table: Table,
        key: &[u8],
        expect: Option<Option<Version>>,
        item: &NewItem,
    ) -> Result<Ticket> {
        self.operate("submit", |session| {
            let BoundTable { id, generation } = session.check_table(table)?;
            let Session { engine, catalogue, .. } = session;
            let (head, body) = catalogue.encode_item(engine, id, expect, item)?;
            session.enqueue(head, key, body.into_owned(), generation)
        })
    }

    /// Submits the read of a link's target, which was found in a generation (0: in none). What straight code
    /// finds has ended then.
    fn submit_target(
        &mut self,
        wanted: Wanted<'_>,
        origin: Option<Origin<'_>>,
        generation: u64,
    ) -> Result<Ticket> {
        let Session { engine, catalogue, submitted, landing, .. } = self;
        if let Some(exists) = engine.land_at_hand(wanted, origin, landing)? {
            let outcome = landed(engine, catalogue, landing, exists, generation);
            return Ok(submitted.end_at_once(outcome));
        }
        let Wanted { table, key, pointer } = wanted;
        check_key(table, key)?;
        let link = Some(Box::new(LinkEnd { pointer, origin: origin.map(KeptOrigin::of) }));
        let get = Operation::new(RequestHead::new(Op::Get, 0, table), key, Vec::new(), generation);
        Ok(submitted.enqueue(Operation { link, ..get }))
    }

    /// Gives what was submitted a number of the caller's own, which its [`Completion`] carries: so a caller
    /// finds what it belongs to without a map of tickets. Without effect on what was returned by a poll.
    pub fn set_number(&mut self, ticket: Ticket, number: u64) {
        let Submitted { finished, under_way, queue, numbers, .. } = &mut self.submitted;
        let is_it = |operation: &Operation| operation.ticket == ticket;
        // Mostly what was submitted last: among many that have ended it is not looked for.
        if queue.back().is_some_and(is_it) {
            numbers.insert(ticket, number);
        } else if let Some(ended) = finished.iter_mut().rev().find(|ended| ended.ticket == ticket) {
            ended.number = number;
        } else if queue.iter().chain(under_way.iter()).any(is_it) {
            numbers.insert(ticket, number);
        }
    }

    /// Submits a get. It begins with the next [`Session::poll`], together with all others submitted until
    /// then.
    pub fn submit_get(&mut self, table: Table, key: impl Key) -> Result<Ticket> {
        self.submit(Op::Get, table, (key.into_bytes().as_ref(), &[]), None)
    }

    /// Submits the read along an item's first link under this name, as [`Session::follow`] does it. Its
    /// outcome is an [`Outcome::Item`](crate::Outcome::Item). In shared memory it has mostly ended then, and
    /// the next poll tells of it.
    pub fn submit_follow(&mut self, item: &Item, name: &str) -> Result<Ticket> {
        self.operate("submit", |session| {
            session.heal()?;
            session.catalogue.check_item(&session.engine, item.life)?;
            let link = item.raw_links(name).next().ok_or_else(|| item.has_no_link(name))?;
            session.submit_target(item.target(&link), item.origin(&link), item.generation)
        })
    }

    /// Submits the reads of some targets of a frontier, as [`Session::visit_batch`] does them: a ticket each,
    /// in their order. Each ends by itself, as an [`Outcome::Item`](crate::Outcome::Item).
    pub fn submit_visit(&mut self, frontier: &Frontier, targets: Range<usize>) -> Result<Vec<Ticket>> {
        let mut tickets = Vec::with_capacity(targets.len());
        self.submit_each(frontier, targets, |_, ticket| tickets.push(ticket))?;
        Ok(tickets)
    }

    /// Submits the reads of some targets of a frontier, and shows each ticket when it is given.
    pub(crate) fn submit_each(
        &mut self,
        frontier: &Frontier,
        targets: Range<usize>,
        mut each: impl FnMut(&mut Session, Ticket),
    ) -> Result<()> {
        self.operate("submit", |session| {
            session.heal()?;
            let targets = frontier.targets.get(targets).ok_or_else(|| frontier.has_no_such())?;
            for target in targets {
                let bound = session.bind_target(frontier, target);
                let submitted = bound.and_then(|(wanted, generation)| {
                    session.submit_target(wanted, frontier.origin(target), generation)
                });
                // Those before it are under way.
                let ticket = submitted.unwrap_or_else(|error| session.submitted.end_at_once(Err(error)));
                each(session, ticket);
            }
            Ok(())
        })
    }

    /// Submits a put.
    pub fn submit_put(&mut self, table: Table, key: impl Key, value: &[u8]) -> Result<Ticket> {
        self.submit(Op::Put, table, (key.into_bytes().as_ref(), value), None)
    }

    /// Submits a put that is done if the key's version is still the expected one (`None`: if it is absent),
    /// as by [`Session::compare_and_set`]. Its outcome is an [`Outcome::Compared`](crate::Outcome::Compared).
    pub fn submit_compare_and_set(
        &mut self,
        table: Table,
        key: impl Key,
        expected: Option<Version>,
        value: &[u8],
    ) -> Result<Ticket> {
        self.submit(Op::Put, table, (key.into_bytes().as_ref(), value), Some(expected))
    }

    /// Submits a put of an item with attributes and links. Waits only where the server has yet to be asked
    /// for the number of an attribute's name.
    pub fn submit_item(&mut self, table: Table, key: impl Key, item: &NewItem) -> Result<Ticket> {
        self.enqueue_item(table, key.into_bytes().as_ref(), None, item)
    }

    /// Submits a put of an item that is done if the key's version is still the expected one (`None`: if it is
    /// absent), as by [`Session::compare_and_set_item`]. Its outcome is an
    /// [`Outcome::Compared`](crate::Outcome::Compared). Waits where [`Session::submit_item`] does.
    pub fn submit_compare_and_set_item(
        &mut self,
        table: Table,
        key: impl Key,
        expected: Option<Version>,
        item: &NewItem,
    ) -> Result<Ticket> {
        self.enqueue_item(table, key.into_bytes().as_ref(), Some(expected), item)
    }

    /// Submits a delete.
    pub fn submit_delete(&mut self, table: Table, key: impl Key) -> Result<Ticket> {
        self.submit(Op::Delete, table, (key.into_bytes().as_ref(), &[]), None)
    }

    /// Submits a delete that is done if the key's version is still the expected one, as by
    /// [`Session::compare_and_delete`]. Its outcome is an [`Outcome::Compared`](crate::Outcome::Compared).
    pub fn submit_compare_and_delete(
        &mut self,
        table: Table,
        key: impl Key,
        expected: Version,
    ) -> Result<Ticket> {
        self.submit(Op::Delete, table, (key.into_bytes().as_ref(), &[]), Some(Some(expected)))
    }

    /// Submits the first page of a scan. Its outcome is an [`Outcome::Page`](crate::Outcome::Page), whose rest
    /// [`Session::submit_page`] takes. In shared memory a page is read in the poll where it begins; elsewhere
    /// the shard is asked for it.
    pub fn submit_scan(&mut self, table: Table, scan: &Scan) -> Result<Ticket> {
        self.operate("submit", |session| {
            let scan = session.begin_scan(table, scan)?;
            Ok(session.enqueue_page(scan))
        })
    }

    /// Submits the next page of a scan: of one whose last page was submitted, or that was set aside
    /// ([`Scanner::pause`](crate::Scanner::pause)).
    pub fn submit_page(&mut self, scan: PausedScan) -> Result<Ticket> {
        self.operate("submit", |session| {
            scan.check_life(session)?;
            Ok(session.enqueue_page(scan))
        })
    }

    fn enqueue_page(&mut self, scan: PausedScan) -> Ticket {
        let page = Operation::new(RequestHead::new(Op::Scan, 0, scan.table()), &[], Vec::new(), 0);
        let state = State::Scanning(Box::new(PageRead::new(scan)));
        self.submitted.enqueue(Operation { state, ..page })
    }

    /// The outcome of what was submitted last, if it has ended already.
    #[cfg(all(feature = "aio", unix))]
    pub(crate) fn take_last(&mut self, ticket: Ticket) -> Option<Result<super::Outcome>> {
        self.submitted.finished.back().filter(|last| last.ticket == ticket)?;
        self.submitted.finished.pop_back().map(|last| last.outcome)
    }

    /// Begins what was submitted and moves what has ended to `completions`; returns how many. Waits only to
    /// send a value that does not fit one message, for one such value at most, and to map memory that is new.
    ///
    /// After a poll that returned 0, and until the next call of this session, [`Session::fd`] becomes
    /// readable when there is more. An operation that is not answered in time ends with the next poll after
    /// that, so wait for the descriptor with a time-out. A session that goes on after it has lost its
    /// connection ([`SessionOptions::retry_for`]) connects again in here, and then has another descriptor.
    ///
    /// [`SessionOptions::retry_for`]: crate::SessionOptions::retry_for
    pub fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize> {
        self.poll_at_most(completions, usize::MAX)
    }

    /// The same, for no more than so many completions. What has ended beyond that the next poll returns.
    pub fn poll_at_most(&mut self, completions: &mut Vec<Completion>, most: usize) -> Result<usize> {
        self.operate("poll", |session| session.engine.transport.countdown.check())?;
        let Session { engine, submitted, .. } = self;
        let before = completions.len();
        if engine.connection.announced {
            // Wake-ups that came are over now, and so is a server that went.
            engine.transport.fabric.look();
            engine.transport.fabric.sleep(Some(0));
            engine.connection.announced = false;
        }
        let now_ns = engine.transport.fabric.now_ns();
        submitted.note_moved(engine, now_ns);
        submitted.connect_again(engine);
        loop {
            self.operate("poll", Session::move_on)?;
            let finished = &mut self.submitted.finished;
            completions.extend(finished.drain(..finished.len().min(most)));
            if completions.len() > before || self.outstanding() == 0 || most == 0 {
                break;
            }
            // What came before the announcement wakes nobody, so there is one more look after it.
            let Engine { transport, connection, .. } = &mut self.engine;
            if connection.announced && !transport.fabric.unseen() {
                break;
            }
            transport.fabric.announce_sleep();
            connection.announced = true;
        }
        Ok(completions.len() - before)
    }

    /// Takes in what has come, and does what can be done without waiting for more.
    fn move_on(&mut self) -> Result<()> {
        let Session { engine, catalogue, submitted, scanned, .. } = self;
        engine.transport.fabric.progress();
        engine.transport.poll_replies()?;
        engine.note_broken();
        while submitted.begin_queued(engine) | submitted.advance(engine, catalogue, scanned) {}
        engine.transport.fabric.doorbell();
        Ok(())
    }

    /// How many submitted operations have not been returned by [`Session::poll`] yet.
    pub fn outstanding(&self) -> usize {
        self.submitted.outstanding()
    }

    /// Ends everything that was submitted and has not ended: its server is gone for good.
    pub(crate) fn give_up_submitted(&mut self) {
        let Session { engine, submitted, .. } = self;
        let under_way = std::mem::take(&mut submitted.under_way);
        for mut operation in under_way.into_iter().chain(std::mem::take(&mut submitted.queue)) {
            let effect = operation.abandon(engine);
            let error = engine.gone().with_effect(effect);
            submitted.finish(operation.ticket, Err(error));
        }
    }
}
