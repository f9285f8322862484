//! Numbers of tables: given, and given again.
//!
//! A number stands in every item of its table and has 14 bits for each kind of table, so numbers of dropped tables have to come back. Whoever
//! still used an old one would read and write another table's items. So a number rests until few are left that were never given.
//! Then, for all that rest:
//!
//! ```text
//! sessions that were there when a table was dropped end; the next ones are in another life of the store, where old handles lead nowhere
//!   -> every shard looks through its items for links to the tables
//!   -> names of the tables' attributes go
//!   -> every shard takes the numbers for such as were never given
//!   -> they are free
//! ```
//!
//! A number rests on while a session that may know it goes on, or an item that links to it exists. Only whoever drops a table itself may go on:
//! it says so by its request (docs/wire-format.md, request 19, Drop).

use std::collections::{BTreeSet, HashMap, VecDeque};

use kelix_image::words::bytes_of;
use kelix_image::{ItemFlags, ItemHeader, LargeBody, link_tables};
use kelix_index::{ScanFrom, location_of};
use kelix_types::limits::{NAMES_MAX, TABLES_MAX};
use kelix_types::{Location, NameId, Place, TableId, TableKind, mark};
use kelix_wire::catalogue;

use crate::execute::NewItem;
use crate::generations::{Order, Use};
use crate::shard::{Now, Shard};

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
/// Keys of an ordered table that are looked at in one step.
const KEYS_A_STEP: usize = 64;

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
    /// Whether a connection may have a handle of the table that knows none of so many that were dropped first.
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

/// What shard 0 knows of numbers.
#[derive(Default)]
pub(crate) struct Numbers {
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

/// A look through the items of a shard for links to tables that are no more.
pub(crate) struct LinkSearch {
    /// So many drops come first, so that the tables are empty.
    pub ahead: usize,
    /// In their order.
    tables: Vec<TableId>,
    linked: BTreeSet<TableId>,
    /// Where to go on in the hash index; `None`: that is done.
    cursor: Option<u64>,
    /// Ordered tables, and the last key that was looked at of the first.
    ordered: VecDeque<TableId>,
    key: Option<Vec<u8>>,
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
}

impl Shard {
    /// A number for a table: one that is free again, or one that was never given. `None`: there are none.
    pub(crate) fn give_number(&mut self, kind: TableKind) -> Option<TableId> {
        if let Some(table) = self.numbers.free[kind as usize].pop_front() {
            mark!("number of a table given again");
            return Some(table);
        }
        let given = self.names.entry((0, kind)).or_default();
        if usize::from(*given) == TABLES_MAX {
            self.numbers.wanted = true;
            return None;
        }
        *given += 1;
        Some(TableId::new(kind, *given))
    }

    /// A number that was given, and is not wanted after all.
    pub(crate) fn take_number_back(&mut self, table: TableId) {
        self.numbers.free[table.kind() as usize].push_front(table);
    }

    /// Lets the number of a dropped table rest.
    pub(crate) fn rest_number(&mut self, table: TableId, by: Option<u64>) {
        self.numbers.drops += 1;
        self.numbers.rest(table, self.numbers.drops, by);
    }

    /// Numbers of a kind that may be given.
    fn numbers_left(&self, kind: TableKind) -> usize {
        let given = usize::from(self.names.get(&(0, kind)).copied().unwrap_or(0));
        TABLES_MAX - given + self.numbers.free[kind as usize].len()
    }

    /// The same of one that was dropped in an earlier life of the store.
    pub(crate) fn rest_number_of_the_past(&mut self, table: TableId) {
        self.numbers.rest(table, 0, None);
    }

    /// How many numbers there are of each kind of table.
    pub fn number_counts(&self) -> [NumberCounts; TableKind::ALL.len()] {
        TableKind::ALL.map(|kind| {
            let (left, resting) = (self.numbers_left(kind), self.numbers.rest[kind as usize]);
            NumberCounts { used: TABLES_MAX - left - resting, resting, left }
        })
    }

    /// A connection has ended, but its process may read on until it says that it does not.
    pub fn linger(&mut self, connection: u64) {
        let known = self.clients.iter().find(|client| client.connection == connection);
        if let Some(client) = known.filter(|_| self.number == 0) {
            self.numbers.lingering.insert(connection, client.knows);
        }
    }

    /// A process whose connection has ended reads no more.
    pub fn end_lingering(&mut self, connection: u64) {
        if self.numbers.lingering.remove(&connection).is_some() {
            self.numbers.note_gone();
        }
    }

    /// Sessions that begin from now on are in another life of the store, and others are ending.
    pub fn begin_life(&mut self) {
        if let Some(Pass { stage: Stage::Sessions { told, changed, .. }, .. }) = &mut self.numbers.pass {
            (*told, *changed) = (true, true);
        }
    }

    /// Whether there may be something to be done for numbers that come back: to be asked in each step.
    #[inline]
    pub(crate) fn numbers_may_return(&self) -> bool {
        let Numbers { resting, pass, stuck, wanted, .. } = &self.numbers;
        resting.len() >= stuck + MANY || *wanted || pass.is_some() || self.link_search.is_some()
    }

    /// Goes on with that, and says when to go on. `renewed`: the connections that are to end for it.
    #[cold]
    pub(crate) fn return_numbers(&mut self, now: Now, renewed: &mut Option<Vec<u64>>) -> Option<u64> {
        let dues = [self.search_links(now), self.tend_numbers(now, renewed)];
        dues.into_iter().flatten().min()
    }

    fn tend_numbers(&mut self, now: Now, renewed: &mut Option<Vec<u64>>) -> Option<u64> {
        if self.numbers.pass.is_none() && !self.begin_pass(now, renewed) {
            return None;
        }
        let pass = self.numbers.pass.as_mut()?;
        match &mut pass.stage {
            Stage::Sessions { told: false, .. } => return None,
            Stage::Sessions { changed, until_ns, .. } => {
                let until_ns = *until_ns;
                let late = until_ns <= now.monotonic_ns;
                if !std::mem::take(changed) && !late {
                    return Some(until_ns);
                }
                return self.end_sessions(now, late, until_ns);
            }
            Stage::Links { left: 0, .. } => self.end_search(now),
            Stage::Names { .. } => self.forget_names(),
            Stage::Forget { left: 0 } => self.free_numbers(now),
            Stage::Links { .. } | Stage::Forget { .. } => return None,
        }
        Some(now.monotonic_ns)
    }

    /// Begins to bring numbers back, if that is due.
    fn begin_pass(&mut self, now: Now, renewed: &mut Option<Vec<u64>>) -> bool {
        let Numbers { resting, stuck, wanted, next_try_ns, .. } = &self.numbers;
        let urgent = *wanted && *next_try_ns <= now.monotonic_ns;
        if self.number != 0 || resting.len() < *stuck + MANY && !urgent {
            return false;
        }
        if TableKind::ALL.iter().all(|kind| self.numbers_left(*kind) >= FEW) {
            return false;
        }
        self.rest_numbers_of_datasets();
        let numbers = &mut self.numbers;
        numbers.wanted = false;
        let mut tables = std::mem::take(&mut numbers.resting);
        if tables.is_empty() {
            numbers.next_try_ns = now.monotonic_ns + BETWEEN_TRIES_NS;
            return false;
        }
        mark!("numbers of dropped tables are looked for");
        // Tables that were dropped last stand first, so that a client which came late is done with at once.
        tables.sort_unstable_by_key(|of| std::cmp::Reverse(of.drop));
        let clients = self.clients.iter().map(|client| (client.knows, client.connection));
        let ending = clients.filter(|client| {
            tables.iter().take_while(|of| client.0 < of.drop).any(|of| of.is_known(*client))
        });
        *renewed = Some(ending.map(|(_, connection)| connection).collect());
        let until_ns = now.monotonic_ns + FAREWELL_NS;
        numbers.pass =
            Some(Pass { tables, stage: Stage::Sessions { told: false, changed: false, until_ns } });
        true
    }

    /// Lets the numbers of datasets rest that have no generation any more.
    fn rest_numbers_of_datasets(&mut self) {
        let mut tables: Vec<TableId> = Vec::new();
        self.generations.datasets.retain(|_, dataset| {
            let over = dataset.generations.is_empty();
            if over {
                tables.extend(dataset.names.values().flat_map(|(id, made)| made.iter().chain([id])));
            }
            !over
        });
        if tables.is_empty() {
            return;
        }
        for table in &tables {
            // Without room its old name stays, which leads nowhere.
            let _ = self.put_catalogue(&catalogue::name_key(TableId::CATALOGUE, NameId(table.0)), b"");
            self.rest_number(*table, None);
        }
        self.drop_tables(tables);
    }

    /// Goes on with those numbers that nobody may know any more, once all have gone or it is late.
    fn end_sessions(&mut self, now: Now, late: bool, until_ns: u64) -> Option<u64> {
        let clients = self.clients.iter().map(|client| (client.knows, client.connection));
        let lingering = self.numbers.lingering.iter().map(|(connection, knows)| (*knows, *connection));
        let mut known: Vec<(u64, u64)> = clients.chain(lingering).collect();
        known.sort_unstable();
        // The two clients that know least decide: a table that the first of them dropped itself is known if the second knows it.
        known.truncate(2);
        let is_known = |of: &Resting| known.iter().any(|client| of.is_known(*client));
        let numbers = &mut self.numbers;
        let pass = numbers.pass.as_mut()?;
        if !late && pass.tables.iter().any(is_known) {
            return Some(until_ns);
        }
        let (known, mut tables): (Vec<_>, Vec<_>) = pass.tables.drain(..).partition(is_known);
        numbers.resting.extend(known);
        if tables.is_empty() {
            self.end_pass(now);
            return None;
        }
        tables.sort_unstable_by_key(|of| of.table);
        numbers.returned = tables.iter().map(|of| of.drop).fold(numbers.returned, u64::max);
        let names: Vec<TableId> = tables.iter().map(|of| of.table).collect();
        *pass = Pass { tables, stage: Stage::Links { left: self.view.shards(), linked: BTreeSet::new() } };
        if self.view.shards() > 1 {
            self.generations.orders.push(Order::FindLinks { tables: names.clone() });
        }
        self.begin_link_search(names);
        Some(now.monotonic_ns)
    }

    /// What a shard has found.
    pub(crate) fn take_links(&mut self, found: Vec<TableId>) {
        if let Some(Pass { stage: Stage::Links { left, linked }, .. }) = &mut self.numbers.pass {
            *left = left.saturating_sub(1);
            linked.extend(found);
        }
    }

    fn end_search(&mut self, now: Now) {
        let numbers = &mut self.numbers;
        let Some(Pass { tables, stage: Stage::Links { linked, .. } }) = &mut numbers.pass else { return };
        let linked = std::mem::take(linked);
        let (resting, tables): (Vec<_>, Vec<_>) = tables.drain(..).partition(|of| linked.contains(&of.table));
        numbers.resting.extend(resting);
        match tables.is_empty() {
            true => self.end_pass(now),
            false => numbers.pass = Some(Pass { tables, stage: Stage::Names { gone: 0, of: 0 } }),
        }
    }

    /// Takes away names of attributes that items of the tables had.
    fn forget_names(&mut self) {
        let Some(mut pass) = self.numbers.pass.take() else { return };
        if let Stage::Names { gone, of } = &mut pass.stage {
            let mut budget = NAMES_A_STEP;
            while let Some(Resting { table, .. }) = pass.tables.get(*gone).filter(|_| budget > 0) {
                let given = self.names.get(&(table.0, TableKind::Hash)).copied().unwrap_or(0);
                if *of == given {
                    self.names.remove(&(table.0, TableKind::Hash));
                    (*gone, *of) = (*gone + 1, 0);
                    continue;
                }
                (*of, budget) = (*of + 1, budget - 1);
                let key = catalogue::name_key(*table, NameId(*of));
                if let Some(text) = self.catalogue_body(&key) {
                    self.remove_key(TableId::CATALOGUE, &catalogue::id_key(*table, &text));
                    self.remove_key(TableId::CATALOGUE, &key);
                }
            }
            if *gone == pass.tables.len() {
                let tables: Vec<TableId> = pass.tables.iter().map(|of| of.table).collect();
                self.forget_tables(&tables);
                if self.view.shards() > 1 {
                    self.generations.orders.push(Order::Forget { tables });
                }
                pass.stage = Stage::Forget { left: self.view.shards() - 1 };
            }
        }
        self.numbers.pass = Some(pass);
    }

    /// Another shard takes the tables for such as never were.
    pub(crate) fn shard_has_forgotten(&mut self) {
        if let Some(Pass { stage: Stage::Forget { left }, .. }) = &mut self.numbers.pass {
            *left = left.saturating_sub(1);
        }
    }

    fn free_numbers(&mut self, now: Now) {
        let tables = self.numbers.pass.as_mut().map(|pass| std::mem::take(&mut pass.tables));
        for Resting { table, .. } in tables.into_iter().flatten() {
            self.numbers.rest[table.kind() as usize] -= 1;
            self.numbers.free[table.kind() as usize].push_back(table);
        }
        self.end_pass(now);
    }

    fn end_pass(&mut self, now: Now) {
        self.numbers.pass = None;
        self.numbers.stuck = self.numbers.resting.len();
        self.numbers.next_try_ns = now.monotonic_ns + BETWEEN_TRIES_NS;
    }

    // ---- on each shard ----

    /// Takes tables for such as never were.
    pub(crate) fn forget_tables(&mut self, tables: &[TableId]) {
        for table in tables {
            if matches!(self.generations.uses.get(table), Some(Use::Gone(0))) {
                self.generations.uses.remove(table);
            }
        }
        self.generations.count_dropped();
    }

    /// Begins to look for links to tables.
    pub(crate) fn begin_link_search(&mut self, tables: Vec<TableId>) {
        let ordered = self.index.ordered_counts().map(|(table, ..)| table);
        let ordered = ordered.filter(|table| table.kind().has_items()).collect();
        let (ahead, linked) = (self.generations.leaving.len(), BTreeSet::new());
        self.link_search = Some(LinkSearch { ahead, tables, linked, cursor: Some(0), ordered, key: None });
    }

    fn search_links(&mut self, now: Now) -> Option<u64> {
        let mut search = self.link_search.take_if(|search| search.ahead == 0)?;
        match (search.cursor, search.ordered.front().copied()) {
            (Some(cursor), _) => {
                let mut found = Vec::new();
                let next = self.index.sweep(&self.image, cursor, |location| found.push(location));
                found.into_iter().for_each(|location| self.look_for_links(location, &mut search));
                search.cursor = Some(next).filter(|next| *next != 0);
            }
            (None, Some(table)) => self.search_ordered(table, &mut search),
            (None, None) => {
                let linked = search.linked.into_iter().collect();
                match self.number {
                    0 => self.take_links(linked),
                    _ => self.generations.orders.push(Order::LinksFound { tables: linked }),
                }
                return Some(now.monotonic_ns);
            }
        }
        self.link_search = Some(search);
        Some(now.monotonic_ns)
    }

    fn search_ordered(&mut self, table: TableId, search: &mut LinkSearch) {
        let mut found = Vec::new();
        if let Some(index) = self.index.ordered(table) {
            let from = ScanFrom { key: search.key.as_deref(), after: true, backwards: false };
            index.scan(&self.image, from, |_, second| {
                found.push(location_of(second));
                found.len() < KEYS_A_STEP
            });
        }
        match found.last() {
            Some(last) => search.key = Some(self.copy_item(*last, |item| item.key().to_vec())),
            None => {
                search.ordered.pop_front();
                search.key = None;
            }
        }
        found.into_iter().for_each(|location| self.look_for_links(location, search));
    }

    fn look_for_links(&mut self, location: Location, search: &mut LinkSearch) {
        let slot = self.image.slot(location);
        let Some(header) = ItemHeader::from_word(slot.load(1)) else { return };
        let is_one = |table: TableId| search.tables.binary_search(&table).is_ok();
        if is_one(header.table) {
            // Nobody puts there any more.
            search.linked.insert(header.table);
        }
        if !header.flags.has(ItemFlags::ATTRIBUTES) {
            return;
        }
        let linked = &mut search.linked;
        let note = |table: TableId| {
            if is_one(table) {
                linked.insert(table);
            }
        };
        let first = header.body_start() / 8;
        let sound = self.visit_linked(header, |word| slot.load(first + word), note);
        if !sound {
            // Links that nobody can read are no links to whoever follows them, but may be all the same.
            search.linked.extend(&search.tables);
        }
    }

    /// Visits the tables that the links of an item with attributes lead to, the words of whose body `word` loads. `false`: its section makes no sense.
    fn visit_linked(
        &self,
        header: ItemHeader,
        word: impl Fn(usize) -> u64,
        visit: impl FnMut(TableId),
    ) -> bool {
        let words = header.body_bytes / 8;
        if !header.flags.has(ItemFlags::LARGE) {
            return link_tables(|at| (at < words).then(|| word(at)), visit);
        }
        let body: Vec<u64> = (0..words).map(word).collect();
        LargeBody::parse(bytes_of(&body)).is_some_and(|body| self.tables_in_runs(&body, visit))
    }

    /// Visits the tables that links of an attribute section in runs lead to. `false`: it makes no sense.
    fn tables_in_runs(&self, body: &LargeBody, visit: impl FnMut(TableId)) -> bool {
        let starts: Vec<(u64, Place)> = body
            .runs
            .iter()
            .scan(0, |next, (place, bytes)| {
                let start = *next;
                *next += bytes;
                Some((start, *place))
            })
            .collect();
        let word = |word: usize| {
            let at = word as u64 * 8;
            if at + 8 > body.bytes {
                return None;
            }
            let (start, place) = starts[starts.partition_point(|(start, _)| *start <= at) - 1];
            Some(self.image.map().words(place.plus(at - start), 1)?.load(0))
        };
        link_tables(word, visit)
    }

    /// Whether an item with attributes that is to be put links to a table that was dropped.
    #[cold]
    pub(crate) fn links_to_dropped(&self, item: &NewItem<'_>) -> bool {
        let mut found = false;
        let visit = |table: TableId| found |= self.generations.is_dropped(table);
        let first = (item.header.body_start() - item.header.key_start()) / 8;
        let sound = self.visit_linked(item.header, |word| item.tail[first + word], visit);
        found || !sound
    }
}

const _: () = assert!(FEW < TABLES_MAX && NAMES_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use kelix_image::AttributeBuilder;
    use kelix_wire::mailboxes::{Mailboxes, PEER};
    use kelix_wire::{FrameBuffer, Op, Reply, RequestHead, Status, encode_request};

    use super::*;
    use crate::harness::Harness;
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
        let guest =
            ClientParameters { ordered_placement: true, connection: 2, caller: None, may_write: true };
        world.alone.shard.join(other, guest);
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
