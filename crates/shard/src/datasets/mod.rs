//! Datasets: tables that are loaded together and replaced at once (KELI, section 4), and the numbers and
//! names of all tables.
//!
//! What happens to a generation, and which file says so:
//!
//! ```text
//! build          it begins: its tables get ids
//! load           items are put, many in a message, and the links in them are resolved
//! remote_links   links whose targets other shards have
//! overlay        what clients wrote into the generation before is taken over
//! switch         it comes into force, by one change of the catalogue
//! registry       how far each generation is, who holds it, and when nobody reads it any more
//! table_purge    what is in its tables goes, some keys a step
//! ```
//!
//! Names and numbers of tables are given by `catalogue` and `numbers`; before a number is given again,
//! `link_search` looks for links to the table that had it. `orders` are what shards tell each other, and
//! `manifest` is what no item says, for whoever goes on with the image.
//!
//! A generation is a set of tables with ids of their own, so nothing of two generations can be mixed. Whoever
//! reads one looks from time to time, and after what took long, whether it is still listed in the catalogue.
//! Only when it has not been for a lease is what is in it dropped, and only when that is done on all shards
//! are its tables' ids given to another generation (docs/design/0007-links-at-work.md).
//!
//! Shard 0 keeps the datasets and the catalogue, and orders what others are to do. Each shard knows which of
//! its tables are loaded ([`Tables`](crate::tables::Tables)).

mod build;
mod catalogue;
mod link_search;
mod load;
mod manifest;
mod numbers;
mod orders;
mod overlay;
mod registry;
mod remote_links;
mod switch;
mod table_purge;

use kelix_fabric::PeerId;
use kelix_image::NoRoom;
use kelix_types::{TableId, TableKind, mark};
use kelix_wire::catalogue::generation_key;
use kelix_wire::{FrameBuffer, Op, ReplyHead, Request, RequestHead, Status, encode_reply};

pub(crate) use link_search::links_to_dropped;
pub(crate) use manifest::tables_of;
pub(crate) use numbers::Numbers;
pub(crate) use overlay::{Overlay, is_overlay, mark_overlay};

pub use numbers::NumberCounts;
pub use orders::Order;
pub use registry::{GenerationReport, Stage};

use crate::clients::Clients;
use crate::shard::Now;
use crate::store::{Answer, Store};
use crate::tables::Use;
use link_search::LinkSearch;
use numbers::Return;
use overlay::Listings;
use registry::Registry;
use remote_links::RemoteLinks;
use table_purge::TablePurges;

/// What a shard knows of datasets and of the numbers of tables: shard 0 all, others their part of what it
/// orders.
pub(crate) struct Datasets {
    registry: Registry,
    numbers: Numbers,
    listings: Listings,
    remote_links: RemoteLinks,
    purges: TablePurges,
    search: Option<LinkSearch>,
    /// What other shards are to be told when the step ends.
    orders: Vec<Order>,
    /// What is kept for whoever goes on with the image ([`Datasets::keep`]) may be other than it was.
    changed: bool,
}

impl Datasets {
    /// Of a store without any.
    pub fn new(view_lease_ns: u64) -> Datasets {
        Datasets {
            registry: Registry::new(view_lease_ns),
            numbers: Numbers::default(),
            listings: Listings::default(),
            remote_links: RemoteLinks::default(),
            purges: TablePurges::default(),
            search: None,
            orders: Vec::new(),
            changed: false,
        }
    }

    /// Whether what is kept may have changed since this was last asked.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// What there is of generations, the oldest of each dataset first.
    pub fn reports(&self) -> impl Iterator<Item = GenerationReport> {
        self.registry.reports()
    }

    /// How many numbers there are of each kind of table.
    pub fn number_counts(&self) -> [NumberCounts; TableKind::ALL.len()] {
        self.numbers.counts()
    }

    /// The numbers of tables, which those who come and go may know.
    pub fn numbers(&mut self) -> &mut Numbers {
        &mut self.numbers
    }

    /// What other shards are to be told.
    pub fn take_orders(&mut self, orders: &mut Vec<Order>) {
        orders.append(&mut self.orders);
    }

    // ---- requests ----

    /// Executes a request about generations.
    pub fn execute(
        &mut self,
        now: Now,
        store: &mut Store,
        (peer, connection): (PeerId, u64),
        request: &Request<'_>,
        frame: &mut FrameBuffer,
    ) -> Result<(), NoRoom> {
        let (head, argument) = (&request.head, request.head.argument);
        if let Some(status) = refuse_stranger(store, connection, head) {
            encode_reply(frame, ReplyHead { id: head.id, status, version: 0, location: 0 });
            return Ok(());
        }
        self.changed |= matches!(head.op, Op::Build | Op::Switch | Op::Abandon);
        let frozen_until_ns = now.monotonic_ns + 2 * self.registry.lease_ns();
        let answer = match head.op {
            Op::Build if store.partition.is_first() => {
                return self.build(store, (peer, connection), request, frame);
            }
            // Shard 0 has told of the tables.
            Op::Build => Answer::of(Status::Ok),
            Op::Load => load::load(now, store, request)?,
            Op::Resolve => {
                load::resolve(store, &mut self.remote_links, &mut self.orders, request, frame);
                return Ok(());
            }
            Op::Overlays => {
                self.listings.tell(store, frozen_until_ns, request, frame);
                return Ok(());
            }
            Op::Freeze => overlay::freeze(store, frozen_until_ns, head),
            Op::Switch => self.switch(now, store, peer, argument.unwrap_or(0))?,
            Op::Abandon => self.abandon(store, peer, argument.unwrap_or(0)),
            _ => self.registry.hold(now, peer, head),
        };
        let Answer { status, version, location } = answer;
        encode_reply(frame, ReplyHead { id: head.id, status, version, location });
        Ok(())
    }

    /// The builder of a generation gives it up.
    fn abandon(&mut self, store: &mut Store, peer: PeerId, number: u64) -> Answer {
        if self.registry.find_built(number, peer).is_none() {
            return Answer::of(Status::Gone);
        }
        self.drop_generation(store, number);
        Answer::of(Status::Ok)
    }

    /// Nothing more is taken for a generation: it is complete, or dropped.
    fn end_build(&mut self, store: &mut Store, number: u64) {
        self.listings.end(number);
        self.remote_links.end(number);
        store.linked.end_all(number);
        self.registry.note_change();
    }

    // ---- what others tell ----

    /// Does what another shard has to tell.
    pub fn handle_order(&mut self, store: &mut Store, order: Order) {
        self.changed = true;
        match order {
            // Shard 0 has given tables to a generation, which are going to be filled here, too.
            Order::Begin { generation, connection, tables } => {
                store.tables.begin(generation, connection, tables.into_iter());
            }
            Order::Drop { generation, tables, given_up } => {
                self.begin_purge(store, generation, tables, given_up);
            }
            Order::Reconcile { dropped } => self.reconcile(store, dropped),
            Order::Dropped { generation } => self.shard_has_dropped(generation),
            Order::FindLinks { tables } => self.begin_link_search(store, tables),
            Order::LinksFound { tables } => self.numbers.take_links(tables),
            Order::Forget { tables } => {
                store.tables.forget(&tables);
                self.orders.push(Order::Forgotten);
            }
            Order::Forgotten => self.numbers.shard_has_forgotten(),
            Order::Ask { generation, from, question, .. } => {
                self.orders.push(remote_links::answer(store, generation, from, &question));
            }
            Order::Tell { generation, told, .. } => self.remote_links.take_told(store, generation, &told),
        }
    }

    // ---- what is due ----

    /// A client has gone. The generations that it built are given up.
    pub fn leave(&mut self, store: &mut Store, peer: PeerId, comes_again: bool) {
        for number in self.registry.let_go(peer, comes_again) {
            mark!("builder of a generation gone");
            self.drop_generation(store, number);
        }
        self.numbers.note_gone();
    }

    /// Goes on with what is not read any more, and with numbers that come back, and says when to go on.
    /// `renewed`: the connections that are to end for it.
    #[inline]
    pub fn maintain(
        &mut self,
        now: Now,
        store: &mut Store,
        clients: &Clients,
        renewed: &mut Option<Vec<u64>>,
    ) -> [Option<u64>; 3] {
        if self.registry.is_due(now) {
            self.retire(now, store);
        }
        let retiring_due = self.registry.due_ns();
        if let Some(generation) = self.purges.advance(store) {
            self.has_purged(store, generation);
        }
        self.changed |= self.purges.take_emptied();
        let purging_due = (!self.purges.is_empty()).then_some(now.monotonic_ns);
        let numbers_due = if self.search.is_some() || self.numbers.may_return() {
            self.return_numbers(now, store, clients, renewed)
        } else {
            None
        };
        [retiring_due, purging_due, numbers_due]
    }

    /// Unlists what nobody holds any more, and drops what has not been listed for a lease.
    fn retire(&mut self, now: Now, store: &mut Store) {
        for number in self.registry.look(now) {
            self.changed = true;
            if self.registry.unlist(now, number) {
                store.remove_key(TableId::CATALOGUE, &generation_key(number));
            } else {
                self.drop_generation(store, number);
            }
        }
    }

    /// Drops what is in a generation that nobody reads, on all shards.
    fn drop_generation(&mut self, store: &mut Store, number: u64) {
        let shards = store.partition.shards();
        let (tables, given_up) = self.registry.begin_drop(number, shards);
        if shards > 1 {
            self.orders.push(Order::Drop { generation: number, tables: tables.clone(), given_up });
        }
        self.begin_purge(store, number, tables, given_up);
    }

    /// Drops what is in tables that are of no generation, on all shards.
    fn drop_tables(&mut self, store: &mut Store, tables: Vec<TableId>) {
        if store.partition.shards() > 1 {
            self.orders.push(Order::Drop { generation: 0, tables: tables.clone(), given_up: false });
        }
        self.begin_purge(store, 0, tables, false);
    }

    /// Drops what is in tables that shard 0 knows as dropped, and forgets that others were, which it has
    /// forgotten.
    fn reconcile(&mut self, store: &mut Store, dropped: Vec<TableId>) {
        let known = store.tables.iter();
        let is_forgotten =
            |(table, used): &(TableId, Use)| matches!(used, Use::Gone(_)) && !dropped.contains(table);
        let forgotten: Vec<TableId> = known.filter(is_forgotten).map(|(table, _)| table).collect();
        store.tables.forget(&forgotten);
        if !dropped.is_empty() {
            self.begin_purge(store, 0, dropped, false);
        }
    }

    /// Begins to drop what is in tables here. A generation of 0 is none: the tables were dropped by a client.
    fn begin_purge(&mut self, store: &mut Store, generation: u64, tables: Vec<TableId>, given_up: bool) {
        self.changed = true;
        self.end_build(store, generation);
        store.tables.end(generation, &tables, given_up);
        // Whoever reads on sees that before anything is gone.
        store.note_generations();
        self.purges.begin(generation, tables);
    }

    /// Nothing of a generation is left on this shard.
    fn has_purged(&mut self, store: &Store, generation: u64) {
        self.changed = true;
        if let Some(search) = &mut self.search {
            search.ahead = search.ahead.saturating_sub(1);
        }
        match store.partition.is_first() {
            true => self.shard_has_dropped(generation),
            false => self.orders.push(Order::Dropped { generation }),
        }
    }

    fn shard_has_dropped(&mut self, generation: u64) {
        if self.registry.shard_has_dropped(generation) {
            mark!("generation dropped");
        }
    }

    /// Goes on with numbers that come back, and with the search for links to their tables, and says when to
    /// go on.
    #[cold]
    fn return_numbers(
        &mut self,
        now: Now,
        store: &mut Store,
        clients: &Clients,
        renewed: &mut Option<Vec<u64>>,
    ) -> Option<u64> {
        let search_due = self.search_links(store).then_some(now.monotonic_ns);
        if !self.numbers.is_under_way() {
            if !store.partition.is_first() || !self.numbers.is_worth_a_pass(now) {
                return search_due;
            }
            self.rest_numbers_of_datasets(store);
            let Some(ending) = self.numbers.begin_pass(now, clients) else { return search_due };
            *renewed = Some(ending);
        }
        let shards = store.partition.shards();
        let numbers_due = match self.numbers.advance(now, store, clients) {
            Return::Waits(until_ns) => until_ns,
            Return::GoesOn => Some(now.monotonic_ns),
            Return::FindLinks(tables) => {
                if shards > 1 {
                    self.orders.push(Order::FindLinks { tables: tables.clone() });
                }
                self.begin_link_search(store, tables);
                Some(now.monotonic_ns)
            }
            Return::Forget(tables) => {
                self.changed = true;
                store.tables.forget(&tables);
                if shards > 1 {
                    self.orders.push(Order::Forget { tables });
                }
                Some(now.monotonic_ns)
            }
        };
        [search_due, numbers_due].into_iter().flatten().min()
    }

    /// Lets the numbers of datasets rest that have no generation any more.
    fn rest_numbers_of_datasets(&mut self, store: &mut Store) {
        let tables = self.registry.take_empty();
        if tables.is_empty() {
            return;
        }
        for table in &tables {
            // Without room its old name stays, which leads nowhere.
            let _ = store.forget_table_name(*table);
            self.numbers.rest_dropped(*table, None);
        }
        self.drop_tables(store, tables);
    }

    /// Begins to look for links to tables.
    fn begin_link_search(&mut self, store: &Store, tables: Vec<TableId>) {
        self.search = Some(LinkSearch::new(store, self.purges.len(), tables));
    }

    /// Goes on looking for links. Whether it did.
    fn search_links(&mut self, store: &mut Store) -> bool {
        let Some(search) = self.search.as_mut().filter(|search| search.ahead == 0) else { return false };
        if let Some(tables) = search.advance(store) {
            self.search = None;
            match store.partition.is_first() {
                true => self.numbers.take_links(tables),
                false => self.orders.push(Order::LinksFound { tables }),
            }
        }
        true
    }

    /// What is left of clients, in words and numbers.
    pub fn remains(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let rest = [
            ("processes that may read on", self.numbers.lingering()),
            ("tables that are emptied", self.purges.remains()),
            ("lists of overlays", self.listings.len()),
            ("questions", self.remote_links.len()),
            ("orders", self.orders.len()),
        ];
        self.registry.remains().into_iter().chain(rest)
    }
}

/// Why a request about a generation that is being built is not done: only who builds it may ask for anything,
/// on each shard alike.
fn refuse_stranger(store: &Store, connection: u64, head: &RequestHead) -> Option<Status> {
    let generation = match head.op {
        Op::Build if store.partition.is_first() => return None,
        Op::Hold => return None,
        Op::Resolve => store.tables.filled(head.table),
        _ => head.argument,
    };
    let builder = generation.and_then(|generation| store.tables.builder(generation));
    match builder {
        Some(builder) if builder == connection => None,
        // What shard 0 has to tell of it may be on its way.
        None if head.op == Op::Build => Some(Status::Frozen),
        _ => Some(Status::Gone),
    }
}
