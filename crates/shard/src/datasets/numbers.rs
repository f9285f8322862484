//! Numbers of tables: given, and given again.
//!
//! A number stands in every item of its table and has 14 bits for each kind of table, so numbers of dropped
//! tables have to come back. Whoever still used an old one would read and write another table's items. So a
//! number rests until few are left that were never given. Then, for all that rest:
//!
//! ```text
//! sessions that were there when a table was dropped end; the next ones are in another life of the store,
//! where old handles lead nowhere
//!   -> every shard looks through its items for links to the tables
//!   -> names of the tables' attributes go
//!   -> every shard takes the numbers for such as were never given
//!   -> they are free
//! ```
//!
//! A number rests on while a session that may know it goes on, or an item that links to it exists. Only
//! whoever drops a table itself may go on: it says so by its request (docs/wire-format.md, request 19, Drop).

use std::collections::{BTreeSet, HashMap, VecDeque};

use kelix_image::NoRoom;
use kelix_types::limits::{NAMES_MAX, TABLES_MAX};
use kelix_types::{NameId, TableId, TableKind, mark};
use kelix_wire::catalogue;

use crate::clients::Clients;
use crate::shard::Now;
use crate::store::Store;

/// Numbers of a kind that were never given, below which those that rest are looked for.
const FEW: usize = 2048;
/// Numbers that rest, and did not do so when it was last looked for them, that are worth it.
const MANY: usize = 512;
/// How long is waited for sessions to end.
const FAREWELL_NS: u64 = 1_000_000_000;
/// Between two tries where there are none left.
const BETWEEN_TRIES_NS: u64 = 10_000_000_000;
/// Names of attributes that go in one step.
const NAMES_A_STEP: u16 = 64;

/// A number that rests.
#[derive(Clone, Copy, Debug)]
struct Resting {
    table: TableId,
    /// How many tables had been dropped with it.
    drop: u64,
    /// The connection of who dropped it, if that one uses it no more.
    by: Option<u64>,
}

impl Resting {
    /// Whether a connection may have a handle of the table that knows none of so many that were dropped
    /// first.
    fn is_known(&self, (knows, connection): (u64, u64)) -> bool {
        knows < self.drop && self.by != Some(connection)
    }
}

/// How far the numbers that rest have come on their way back.
enum Stage {
    /// Sessions are told to end; so many are waited for.
    Sessions { told: bool, changed: bool, until_ns: u64 },
    /// So many shards look for links; these were found.
    Links { left: usize, linked: BTreeSet<TableId> },
    /// Names of attributes go: those of so many tables have gone, and so many of the next one.
    Names { gone: usize, of: u16 },
    /// So many shards have yet to forget them.
    Forget { left: usize },
}

/// Numbers on their way back.
struct Pass {
    tables: Vec<Resting>,
    stage: Stage,
}

/// What comes next of the numbers on their way back.
pub(super) enum Return {
    /// Nothing before that moment, if there is one.
    Waits(Option<u64>),
    /// More, in the next step.
    GoesOn,
    /// Every shard looks for links to these tables.
    FindLinks(Vec<TableId>),
    /// Every shard takes these tables for such as never were.
    Forget(Vec<TableId>),
}

/// What shard 0 knows of numbers.
#[derive(Default)]
pub(crate) struct Numbers {
    /// Names given so far, by table, and those of tables by their kind.
    given: HashMap<(u16, TableKind), u16>,
    free: [VecDeque<TableId>; TableKind::ALL.len()],
    /// How many rest of each kind, those of the pass among them.
    rest: [usize; TableKind::ALL.len()],
    resting: Vec<Resting>,
    /// Tables dropped so far, and before the last step.
    drops: u64,
    drops_before: u64,
    /// Whoever knew tables that were dropped with this one or earlier must not go on.
    returned: u64,
    pass: Option<Pass>,
    /// How many rested when it was last looked for them.
    stuck: usize,
    /// A number was wanted, and there was none.
    wanted: bool,
    next_try_ns: u64,
    /// Connections that were ended whose processes may go on to read, and what they may know.
    lingering: HashMap<u64, u64>,
}

/// What is told of numbers of a kind of table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NumberCounts {
    /// Tables and generations have them.
    pub used: usize,
    /// Those of dropped tables that are not given again yet.
    pub resting: usize,
    /// Those that may be given.
    pub left: usize,
}

impl Numbers {
    /// What a client may know that joins now: it may have been let in while the last step was done.
    pub fn known_to_a_newcomer(&self) -> u64 {
        self.drops_before
    }

    /// Whether numbers were given again that somebody may know who was there so long ago.
    pub fn are_strange_to(&self, known: u64) -> bool {
        known < self.returned
    }

    /// Connections that were ended whose processes may go on to read.
    pub fn lingering(&self) -> usize {
        self.lingering.len()
    }

    /// A step begins.
    pub fn begin_step(&mut self) {
        self.drops_before = self.drops;
    }

    fn rest(&mut self, table: TableId, drop: u64, by: Option<u64>) {
        self.rest[table.kind() as usize] += 1;
        self.resting.push(Resting { table, drop, by });
    }

    /// Somebody has gone.
    pub fn note_gone(&mut self) {
        self.stuck = 0;
        if let Some(Pass { stage: Stage::Sessions { changed, .. }, .. }) = &mut self.pass {
            *changed = true;
        }
    }

    // ---- giving ----

    /// A number for a table: one that is free again, or one that was never given. `None`: there are none.
    fn give(&mut self, kind: TableKind) -> Option<TableId> {
        if let Some(table) = self.free[kind as usize].pop_front() {
            mark!("number of a table given again");
            return Some(table);
        }
        let given = self.given.entry((0, kind)).or_default();
        if usize::from(*given) == TABLES_MAX {
            self.wanted = true;
            return None;
        }
        *given += 1;
        Some(TableId::new(kind, *given))
    }

    /// A number for a table of this kind and name. `Ok(None)`: there are none left.
    pub fn give_named(
        &mut self,
        store: &mut Store,
        kind: TableKind,
        name: &[u8],
    ) -> Result<Option<TableId>, NoRoom> {
        let Some(table) = self.give(kind) else { return Ok(None) };
        let put = store.put_catalogue(&catalogue::name_key(TableId::CATALOGUE, NameId(table.0)), name);
        if put.is_err() {
            self.take_back(table);
        }
        put.map(|()| Some(table))
    }

    /// A number that was given, and is not wanted after all.
    pub fn take_back(&mut self, table: TableId) {
        self.free[table.kind() as usize].push_front(table);
    }

    /// The next id for a name of an attribute. `None`: its table has as many as it may have. It counts as
    /// given with [`Numbers::note_given`].
    pub fn next_attribute(&self, table: TableId) -> Option<NameId> {
        let given = self.given.get(&(table.0, TableKind::Hash)).copied().unwrap_or(0);
        (usize::from(given) < NAMES_MAX).then_some(NameId(given + 1))
    }

    /// An id was given, of a table (`of` is 0) or of an attribute of one, and so were those before it.
    pub fn note_given(&mut self, of: u16, kind: TableKind, which: u16) {
        let given = self.given.entry((of, kind)).or_default();
        *given = which.max(*given);
    }

    /// Numbers of a kind that may be given.
    fn left(&self, kind: TableKind) -> usize {
        let given = usize::from(self.given.get(&(0, kind)).copied().unwrap_or(0));
        TABLES_MAX - given + self.free[kind as usize].len()
    }

    /// How many numbers there are of each kind of table.
    pub fn counts(&self) -> [NumberCounts; TableKind::ALL.len()] {
        TableKind::ALL.map(|kind| {
            let (left, resting) = (self.left(kind), self.rest[kind as usize]);
            NumberCounts { used: TABLES_MAX - left - resting, resting, left }
        })
    }

    // ---- resting ----

    /// Lets the number of a dropped table rest.
    pub fn rest_dropped(&mut self, table: TableId, by: Option<u64>) {
        self.drops += 1;
        self.rest(table, self.drops, by);
    }

    /// The same of one that was dropped in an earlier life of the store.
    pub fn rest_of_the_past(&mut self, table: TableId) {
        self.rest(table, 0, None);
    }

    /// A connection has ended, but its process, which knows so much, may read on until it says that it does
    /// not.
    pub fn linger(&mut self, connection: u64, knows: u64) {
        self.lingering.insert(connection, knows);
    }

    /// A process whose connection has ended reads no more.
    pub fn end_lingering(&mut self, connection: u64) {
        if self.lingering.remove(&connection).is_some() {
            self.note_gone();
        }
    }

    // ---- coming back ----

    /// Sessions that begin from now on are in another life of the store, and others are ending.
    pub fn begin_life(&mut self) {
        if let Some(Pass { stage: Stage::Sessions { told, changed, .. }, .. }) = &mut self.pass {
            (*told, *changed) = (true, true);
        }
    }

    /// Whether there may be something to be done for numbers that come back: to be asked in each step.
    #[inline]
    pub fn may_return(&self) -> bool {
        self.resting.len() >= self.stuck + MANY || self.wanted || self.pass.is_some()
    }

    /// Whether numbers are on their way back.
    pub fn is_under_way(&self) -> bool {
        self.pass.is_some()
    }

    /// Whether few numbers are left of a kind, and it is time to look for those that rest.
    pub fn is_worth_a_pass(&self, now: Now) -> bool {
        let urgent = self.wanted && self.next_try_ns <= now.monotonic_ns;
        (self.resting.len() >= self.stuck + MANY || urgent)
            && TableKind::ALL.iter().any(|kind| self.left(*kind) < FEW)
    }

    /// Begins to bring back all that rest, if any do. The connections that are to end for it.
    pub fn begin_pass(&mut self, now: Now, clients: &Clients) -> Option<Vec<u64>> {
        self.wanted = false;
        let mut tables = std::mem::take(&mut self.resting);
        if tables.is_empty() {
            self.next_try_ns = now.monotonic_ns + BETWEEN_TRIES_NS;
            return None;
        }
        mark!("numbers of dropped tables are looked for");
        // Tables that were dropped last stand first, so that a client which came late is done with at once.
        tables.sort_unstable_by_key(|of| std::cmp::Reverse(of.drop));
        let clients = clients.iter().map(|client| (client.knows, client.connection));
        let ending = clients.filter(|client| {
            tables.iter().take_while(|of| client.0 < of.drop).any(|of| of.is_known(*client))
        });
        let ending = ending.map(|(_, connection)| connection).collect();
        let until_ns = now.monotonic_ns + FAREWELL_NS;
        self.pass = Some(Pass { tables, stage: Stage::Sessions { told: false, changed: false, until_ns } });
        Some(ending)
    }

    /// Goes on with those that are on their way.
    pub(super) fn advance(&mut self, now: Now, store: &mut Store, clients: &Clients) -> Return {
        let Some(pass) = &mut self.pass else { return Return::Waits(None) };
        match &mut pass.stage {
            Stage::Sessions { told: false, .. } => Return::Waits(None),
            Stage::Sessions { changed, until_ns, .. } => {
                let until_ns = *until_ns;
                let late = until_ns <= now.monotonic_ns;
                if !std::mem::take(changed) && !late {
                    return Return::Waits(Some(until_ns));
                }
                self.end_sessions(now, (late, until_ns), store.partition.shards(), clients)
            }
            Stage::Links { left: 0, .. } => {
                self.end_search(now);
                Return::GoesOn
            }
            Stage::Names { .. } => self.forget_names(store),
            Stage::Forget { left: 0 } => {
                self.free_all(now);
                Return::GoesOn
            }
            Stage::Links { .. } | Stage::Forget { .. } => Return::Waits(None),
        }
    }

    /// Goes on with those numbers that nobody may know any more, once all have gone or it is late.
    fn end_sessions(
        &mut self,
        now: Now,
        (late, until_ns): (bool, u64),
        shards: usize,
        clients: &Clients,
    ) -> Return {
        let clients = clients.iter().map(|client| (client.knows, client.connection));
        let lingering = self.lingering.iter().map(|(connection, knows)| (*knows, *connection));
        let mut known: Vec<(u64, u64)> = clients.chain(lingering).collect();
        known.sort_unstable();
        // The two clients that know least decide: a table that the first of them dropped itself is known if
        // the second knows it.
        known.truncate(2);
        let is_known = |of: &Resting| known.iter().any(|client| of.is_known(*client));
        let Some(pass) = &mut self.pass else { return Return::Waits(None) };
        if !late && pass.tables.iter().any(is_known) {
            return Return::Waits(Some(until_ns));
        }
        let (known, mut tables): (Vec<_>, Vec<_>) = pass.tables.drain(..).partition(is_known);
        self.resting.extend(known);
        if tables.is_empty() {
            self.end_pass(now);
            return Return::Waits(None);
        }
        tables.sort_unstable_by_key(|of| of.table);
        self.returned = tables.iter().map(|of| of.drop).fold(self.returned, u64::max);
        let names: Vec<TableId> = tables.iter().map(|of| of.table).collect();
        *pass = Pass { tables, stage: Stage::Links { left: shards, linked: BTreeSet::new() } };
        Return::FindLinks(names)
    }

    /// What a shard has found.
    pub fn take_links(&mut self, found: Vec<TableId>) {
        if let Some(Pass { stage: Stage::Links { left, linked }, .. }) = &mut self.pass {
            *left = left.saturating_sub(1);
            linked.extend(found);
        }
    }

    fn end_search(&mut self, now: Now) {
        let Some(Pass { tables, stage: Stage::Links { linked, .. } }) = &mut self.pass else { return };
        let linked = std::mem::take(linked);
        let (resting, tables): (Vec<_>, Vec<_>) = tables.drain(..).partition(|of| linked.contains(&of.table));
        self.resting.extend(resting);
        match tables.is_empty() {
            true => self.end_pass(now),
            false => self.pass = Some(Pass { tables, stage: Stage::Names { gone: 0, of: 0 } }),
        }
    }

    /// Takes away names of attributes that items of the tables had.
    fn forget_names(&mut self, store: &mut Store) -> Return {
        let Some(Pass { tables, stage }) = &mut self.pass else { return Return::Waits(None) };
        let Stage::Names { gone, of } = stage else { return Return::Waits(None) };
        let mut budget = NAMES_A_STEP;
        while let Some(Resting { table, .. }) = tables.get(*gone).filter(|_| budget > 0) {
            let given = self.given.get(&(table.0, TableKind::Hash)).copied().unwrap_or(0);
            if *of == given {
                self.given.remove(&(table.0, TableKind::Hash));
                (*gone, *of) = (*gone + 1, 0);
                continue;
            }
            (*of, budget) = (*of + 1, budget - 1);
            let key = catalogue::name_key(*table, NameId(*of));
            if let Some(text) = store.catalogue_body(&key) {
                store.remove_key(TableId::CATALOGUE, &catalogue::id_key(*table, &text));
                store.remove_key(TableId::CATALOGUE, &key);
            }
        }
        if *gone < tables.len() {
            return Return::GoesOn;
        }
        *stage = Stage::Forget { left: store.partition.shards() - 1 };
        Return::Forget(tables.iter().map(|of| of.table).collect())
    }

    /// Another shard takes the tables for such as never were.
    pub fn shard_has_forgotten(&mut self) {
        if let Some(Pass { stage: Stage::Forget { left }, .. }) = &mut self.pass {
            *left = left.saturating_sub(1);
        }
    }

    fn free_all(&mut self, now: Now) {
        let tables = self.pass.as_mut().map(|pass| std::mem::take(&mut pass.tables));
        for Resting { table, .. } in tables.into_iter().flatten() {
            self.rest[table.kind() as usize] -= 1;
            self.free[table.kind() as usize].push_back(table);
        }
        self.end_pass(now);
    }

    fn end_pass(&mut self, now: Now) {
        self.pass = None;
        self.stuck = self.resting.len();
        self.next_try_ns = now.monotonic_ns + BETWEEN_TRIES_NS;
    }
}

const _: () = assert!(FEW < TABLES_MAX && NAMES_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use kelix_image::AttributeBuilder;
    use kelix_wire::mailboxes::{Mailboxes, PEER};
    use kelix_wire::{FrameBuffer, Op, Reply, RequestHead, Status, encode_request};

    use super::*;
    use crate::harness::{CLIENT, Harness};
    use crate::shard::{ClientParameters, Progress};

    const MEMORY: u64 = 64 << 20;

    struct World {
        alone: Harness,
        renewed: Vec<Vec<u64>>,
    }

    impl World {
        fn new(mailboxes: &Mailboxes) -> World {
            World { alone: Harness::with(1, MEMORY, mailboxes), renewed: Vec::new() }
        }

        /// Does what a server does.
        fn see_to(&mut self, progress: Progress) {
            if let Some(connections) = progress.renewed {
                self.renewed.push(connections);
                self.alone.shard.begin_life();
            }
        }

        fn ask(&mut self, head: RequestHead, key: &[u8], body: &[u8]) -> (Status, u64) {
            let mut frame = FrameBuffer::default();
            encode_request(&mut frame, head, key, body);
            let progress = self.alone.send(&mut frame);
            self.see_to(progress);
            let payload = self.alone.answer().expect("an answer");
            let head = Reply::parse(&payload).expect("a reply").head;
            (head.status, head.version)
        }

        fn make(&mut self, name: &str) -> Option<TableId> {
            let (status, id) =
                self.ask(RequestHead::new(Op::Intern, 0, TableId::CATALOGUE), name.as_bytes(), &[]);
            (status == Status::Ok).then_some(TableId(id as u16))
        }

        fn drop(&mut self, name: &str) {
            let (status, _) =
                self.ask(RequestHead::new(Op::Drop, 0, TableId::CATALOGUE), name.as_bytes(), &[]);
            assert_eq!(status, Status::Ok);
        }

        fn put(&mut self, table: TableId, key: &[u8], link: Option<TableId>) -> Status {
            let head = RequestHead::new(Op::Put, 0, table);
            let Some(target) = link else { return self.ask(head, key, b"value").0 };
            let mut section = AttributeBuilder::default();
            section.link(NameId(1), target, b"target", &[]);
            self.ask(RequestHead { attributes: true, ..head }, key, &section.finish()).0
        }

        fn pass(&mut self, steps: usize) {
            for _ in 0..steps {
                let progress = self.alone.step();
                self.see_to(progress);
            }
        }
    }

    /// There were 16,383 tables of a kind in the life of a store, those that were dropped among them.
    #[test]
    fn numbers_of_dropped_tables_are_given_again() {
        let mailboxes = Mailboxes::default();
        let mut world = World::new(&mailboxes);
        let kept = world.make("kept").unwrap();
        let mut seen = BTreeSet::new();
        let mut again = 0;
        for round in 0..2 * TABLES_MAX {
            let table = world.make("scratch").unwrap_or_else(|| panic!("no number in round {round}"));
            assert_ne!(table, kept);
            let is_again = !seen.insert(table);
            again += usize::from(is_again);
            if round % 100 == 0 {
                // A number that is used again brings nothing along.
                assert_eq!(world.put(table, b"key", None), Status::Ok);
                let name = world.ask(RequestHead::new(Op::Intern, 0, table), b"attribute", &[]);
                assert_eq!(name, (Status::Ok, 1));
            }
            world.drop("scratch");
            world.pass(1);
        }
        assert!(again > TABLES_MAX / 2, "{again}");
        assert!(world.renewed.iter().all(Vec::is_empty), "who dropped the tables may go on");
        world.alone.shard.audit().unwrap();
        let counts = world.alone.shard.number_counts()[TableKind::Hash as usize];
        assert_eq!(counts.used, 1);
        assert_eq!(counts.used + counts.resting + counts.left, TABLES_MAX);
        world.alone.wipe();
    }

    /// An item that links to a dropped table would lead to another one's.
    #[test]
    fn numbers_that_items_link_to_rest_until_they_do_not() {
        let mailboxes = Mailboxes::default();
        let mut world = World::new(&mailboxes);
        let kept = world.make("kept").unwrap();
        let target = world.make("target").unwrap();
        assert_eq!(world.put(kept, b"item", Some(target)), Status::Ok);
        world.drop("target");
        assert_eq!(world.put(kept, b"another", Some(target)), Status::Gone);
        for _ in 0..2 * TABLES_MAX {
            assert_ne!(world.make("scratch"), Some(target));
            world.drop("scratch");
            world.pass(1);
        }
        assert_eq!(world.ask(RequestHead::new(Op::Delete, 0, kept), b"item", &[]).0, Status::Ok);
        let mut found = false;
        for _ in 0..2 * TABLES_MAX {
            found |= world.make("scratch") == Some(target);
            world.drop("scratch");
            world.pass(1);
        }
        assert!(found, "nothing links to it any more");
        world.alone.wipe();
    }

    /// Somebody else may have a handle.
    #[test]
    fn numbers_that_a_client_may_know_rest_until_it_has_gone() {
        let mailboxes = Mailboxes::default();
        let mut world = World::new(&mailboxes);
        let other = kelix_fabric::PeerId(PEER.0 + 1);
        world.alone.shard.join(other, ClientParameters { connection: 2, ..CLIENT });
        let mut seen = BTreeSet::new();
        for round in 0.. {
            let Some(table) = world.make("scratch") else { break };
            assert!(seen.insert(table), "round {round}: the other one may know it");
            world.drop("scratch");
            world.pass(1);
        }
        assert_eq!(seen.len(), TABLES_MAX);
        assert!(world.renewed.contains(&vec![2]), "it was asked to go");
        world.alone.shard.linger(2);
        world.alone.shard.leave(other);
        world.alone.now_ns += 2 * BETWEEN_TRIES_NS;
        world.pass(100);
        world.alone.now_ns += 2 * FAREWELL_NS;
        world.pass(100);
        assert_eq!(world.make("scratch"), None, "its process may read on");
        world.alone.shard.end_lingering(2);
        world.alone.now_ns += 2 * BETWEEN_TRIES_NS;
        world.pass(100_000);
        let table = world.make("scratch").expect("nobody knows any");
        assert!(!seen.insert(table));
        world.alone.wipe();
    }
}
