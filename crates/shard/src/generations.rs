//! Generations of datasets (KELI, section 4): built beside the one in force, put in force by one change of the catalogue,
//! and dropped when nobody reads them any more.
//!
//! ```text
//! being built -> in force -> superseded: views hold it -> unlisted: for a lease -> dropped
//!      `------------------------------------------------------------------------^
//! ```
//!
//! A generation is a set of tables with ids of their own, so nothing of two generations can be mixed. Whoever reads one looks
//! from time to time, and after what took long, whether it is still listed in the catalogue. Only when it has not been for a lease
//! is what is in it dropped, and only when that is done on all shards are its tables' ids given to another generation
//! (docs/design/0007-links-at-work.md).
//!
//! Shard 0 keeps the datasets, and orders what others are to drop. Each shard knows which of its tables are loaded.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

use kelix_fabric::PeerId;
use kelix_image::{NoRoom, header_word};
use kelix_types::limits::NAME_BYTES_MAX;
use kelix_types::{TableId, TableKind, mark};
use kelix_wire::generation::{BuildRefusal, LoadedTable, decode_tables, encode_tables};
use kelix_wire::{Expiry, FrameBuffer, Op, ReplyHead, Request, RequestHead, Status, catalogue, encode_reply};

use crate::execute::Answer;
use crate::overlay::Listing;
use crate::remote_links::{LinkPlace, Question, Questions, Target};
use crate::shard::{Now, Shard};
use crate::table_purge::TablePurge;

/// What one shard has to tell others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// From shard 0 to all others: who has this connection builds a generation, of these tables, each with whether clients may write to it. Only it may
    /// fill them, and say that they are complete.
    Begin {
        /// Which one it is.
        generation: u64,
        /// Whose connection.
        connection: u64,
        /// Its tables.
        tables: Vec<(TableId, bool)>,
    },
    /// From shard 0 to all others: what is in these tables is to be dropped.
    Drop {
        /// Which one it is.
        generation: u64,
        /// Its tables.
        tables: Vec<TableId>,
        /// It was never in force.
        given_up: bool,
    },
    /// From others to shard 0: that is done.
    Dropped {
        /// Which one it is.
        generation: u64,
    },
    /// From shard 0 to all others: which of these tables, which were dropped, do links of items lead to?
    FindLinks {
        /// In their order.
        tables: Vec<TableId>,
    },
    /// From others to shard 0: to these.
    LinksFound {
        /// In their order.
        tables: Vec<TableId>,
    },
    /// From shard 0 to all others: these tables, which were dropped, are such as never were.
    Forget {
        /// In their order.
        tables: Vec<TableId>,
    },
    /// From others to shard 0: they are.
    Forgotten,
    /// Where are these targets of links?
    Ask {
        /// The generation that is built.
        generation: u64,
        /// Who asks.
        from: usize,
        /// Who has them.
        to: usize,
        /// Which ones.
        question: Question,
    },
    /// The answer.
    Tell {
        /// The generation that is built.
        generation: u64,
        /// Who asked.
        to: usize,
        /// Where they are.
        told: Vec<(LinkPlace, Target)>,
    },
}

impl Order {
    /// For which shards it is, if this one has to tell it.
    pub fn is_for(&self, from: usize, shards: usize) -> Range<usize> {
        match self {
            Order::Ask { to, .. } | Order::Tell { to, .. } => *to..to + 1,
            _ if from == 0 => 1..shards,
            _ => 0..1,
        }
    }
}

/// What may be done with a table that is or was of a generation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is being filled by the builder of this generation.
    Filled { generation: u64, overlay: bool },
    /// It is read.
    Read { overlay: bool },
    /// It is read, and takes no writes before this moment, unless the generation that follows it is given up earlier.
    Frozen { follower: u64, until_ns: u64 },
    /// Nothing: what was in it went with this generation.
    Gone(u64),
}

/// How far a generation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Its builder fills it.
    Built,
    /// New views see it.
    InForce,
    /// Another one is in force, since this moment; views hold this one, or whoever looks names up from time to time reads it yet.
    Superseded(u64),
    /// Nobody can begin to read it, since this moment.
    Unlisted(u64),
    /// So many shards still drop what is in it.
    Dropped(usize),
}

pub(crate) struct Generation {
    pub number: u64,
    pub tables: Vec<LoadedTable>,
    pub stage: Stage,
    /// Who builds it.
    pub builder: PeerId,
    /// Who reads it, and until when if nothing more is heard.
    pub holds: Vec<(PeerId, u64)>,
}

/// In place of who has gone: a number that no client has.
pub(crate) const NOBODY: PeerId = PeerId(u32::MAX);
/// Who holds a generation until then does so for a lease from the next look on.
const FOR_A_LEASE: u64 = u64::MAX;

/// What is told of a generation.
#[derive(Clone, Debug)]
pub struct GenerationReport {
    /// Whose it is.
    pub dataset: String,
    /// Its number.
    pub number: u64,
    /// How far it is.
    pub stage: Stage,
    /// How many tables it has.
    pub tables: usize,
    /// Who holds it.
    pub holders: Vec<PeerId>,
}

#[derive(Default)]
pub(crate) struct Dataset {
    pub generations: Vec<Generation>,
    /// Of each table's name and kind: its id, and the tables that were made for it so far.
    pub names: HashMap<(String, TableKind), (TableId, Vec<TableId>)>,
}

impl Dataset {
    pub fn is_empty(&self) -> bool {
        self.generations.is_empty() && self.names.is_empty()
    }

    fn at(&mut self, stage: Stage) -> Option<&mut Generation> {
        self.generations.iter_mut().find(|generation| generation.stage == stage)
    }

    fn uses(&self, table: TableId) -> bool {
        let mut tables = self.generations.iter().flat_map(|generation| &generation.tables);
        tables.any(|of_generation| of_generation.table == table)
    }
}

/// What a shard knows of generations.
pub(crate) struct Generations {
    pub uses: HashMap<TableId, Use>,
    pub datasets: BTreeMap<String, Dataset>,
    /// Whose generations are, by their numbers: there may be thousands of datasets.
    pub owners: HashMap<u64, String>,
    /// Generations for which tables were frozen.
    pub followers: HashSet<u64>,
    pub leaving: VecDeque<TablePurge>,
    /// Tables whose items the walk of the index under way takes away, in their order, and how far it is.
    pub walked: Vec<TableId>,
    pub cursor: u64,
    pub orders: Vec<Order>,
    pub listings: HashMap<u64, Listing>,
    pub questions: HashMap<u64, Questions>,
    /// Generations that are being built, and the connections of those who build them.
    pub built_by: HashMap<u64, u64>,
    /// Generations whose builders took too long.
    pub thawed: Vec<u64>,
    /// When there is to be looked for what is due, unless something changes before.
    due_ns: Option<u64>,
    changed: bool,
    pub given: u64,
    lease_ns: u64,
    /// A bit for each table: it may be one that was dropped. Without any, empty.
    dropped: Vec<u64>,
}

impl Generations {
    pub fn new(lease_ns: u64) -> Generations {
        Generations {
            uses: HashMap::new(),
            datasets: BTreeMap::new(),
            owners: HashMap::new(),
            followers: HashSet::new(),
            leaving: VecDeque::new(),
            walked: Vec::new(),
            cursor: 0,
            orders: Vec::new(),
            listings: HashMap::new(),
            questions: HashMap::new(),
            built_by: HashMap::new(),
            thawed: Vec::new(),
            due_ns: None,
            changed: true,
            given: 0,
            lease_ns,
            dropped: Vec::new(),
        }
    }

    /// Finds out anew which tables were dropped.
    pub fn count_dropped(&mut self) {
        self.dropped.clear();
        for (table, used) in &self.uses {
            if *used == Use::Gone(0) {
                note_dropped(&mut self.dropped, *table);
            }
        }
    }

    pub fn has_dropped_tables(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Whether a table was dropped, and is not of a generation again.
    pub fn is_dropped(&self, table: TableId) -> bool {
        let word = self.dropped.get(usize::from(table.0) / 64);
        let noted = word.is_some_and(|word| word >> (table.0 % 64) & 1 == 1);
        noted && self.uses.get(&table) == Some(&Use::Gone(0))
    }

    /// Why a request cannot be done, where that is for its table's sake.
    fn forbid(&mut self, now: Now, connection: u64, head: &RequestHead) -> Option<Status> {
        let writes = head.op.properties().changes_items;
        let used = self.uses.get_mut(&head.table)?;
        match *used {
            Use::Gone(_) if head.op != Op::Build => Some(Status::Gone),
            Use::Filled { generation, .. }
                if writes
                    && (head.argument != Some(generation)
                        || self.built_by.get(&generation) != Some(&connection)) =>
            {
                Some(Status::Loaded)
            }
            Use::Read { overlay: false } if writes => Some(Status::Loaded),
            Use::Frozen { follower, until_ns } if writes && until_ns <= now.monotonic_ns => {
                // Its builder took too long, and must not go on: what is written now it would not take over.
                mark!("table thawed by itself");
                *used = Use::Read { overlay: true };
                self.thawed.push(follower);
                None
            }
            Use::Frozen { .. } if writes => Some(Status::Frozen),
            _ => None,
        }
    }

    pub fn has_no_tables(&self) -> bool {
        self.uses.is_empty()
    }

    pub fn table_use(&self, table: TableId) -> Option<Use> {
        self.uses.get(&table).copied()
    }

    /// Whether tables are being filled for a generation.
    pub fn is_built(&self, number: u64) -> bool {
        let filled = |used: &Use| matches!(used, Use::Filled { generation, .. } if *generation == number);
        self.uses.values().any(filled)
    }

    /// Takes no writes to a table for as long as its follower takes to come into force, but for two leases at most. `false`: it cannot be
    /// frozen.
    pub fn freeze(&mut self, now: Now, table: TableId, follower: u64) -> bool {
        let until_ns = now.monotonic_ns + 2 * self.lease_ns;
        if !self.is_built(follower) {
            return false;
        }
        let Some(used) = self.uses.get_mut(&table) else { return false };
        match *used {
            Use::Read { overlay: true } => {}
            Use::Frozen { follower: before, .. } if follower == before => {}
            _ => return false,
        }
        *used = Use::Frozen { follower, until_ns };
        self.followers.insert(follower);
        true
    }

    /// Its builder goes on.
    pub fn stay_frozen(&mut self, now: Now, table: TableId, follower: u64) {
        if matches!(self.table_use(table), Some(Use::Frozen { .. })) {
            self.freeze(now, table, follower);
        }
    }

    /// The follower of frozen tables is complete here: they take no writes any more unless it is given up.
    fn freeze_for_good(&mut self, follower: u64) {
        if !self.followers.contains(&follower) {
            return;
        }
        for used in self.uses.values_mut() {
            match used {
                Use::Frozen { follower: of, until_ns } if *of == follower => *until_ns = u64::MAX,
                _ => {}
            }
        }
    }

    /// The follower of frozen tables is given up.
    fn thaw(&mut self, follower: u64) {
        if !self.followers.remove(&follower) {
            return;
        }
        for used in self.uses.values_mut() {
            if matches!(used, Use::Frozen { follower: of, .. } if *of == follower) {
                *used = Use::Read { overlay: true };
            }
        }
    }

    /// The generation for which a table is being filled.
    pub fn filled(&self, table: TableId) -> Option<u64> {
        match self.uses.get(&table) {
            Some(Use::Filled { generation, .. }) => Some(*generation),
            _ => None,
        }
    }

    /// The generation of a number that can be read, or was not long ago.
    fn find(&mut self, number: u64) -> Option<(&String, &mut Generation)> {
        let owner = self.owners.get(&number)?;
        let generations = &mut self.datasets.get_mut(owner)?.generations;
        let generation = generations.iter_mut().find(|generation| generation.number == number)?;
        Some((owner, generation))
    }

    /// Somebody has gone. What it held it holds no more, unless it may come again: then for its lease. Tells which generations it was
    /// building.
    fn let_go(&mut self, peer: PeerId, comes_again: bool) -> Vec<u64> {
        self.changed = true;
        let mut building = Vec::new();
        for generation in self.datasets.values_mut().flat_map(|dataset| &mut dataset.generations) {
            match generation.holds.iter_mut().find(|(holder, _)| *holder == peer) {
                // Whoever is given its number next has nothing to do with that.
                Some(held) if comes_again => *held = (NOBODY, FOR_A_LEASE),
                _ => generation.holds.retain(|(holder, _)| *holder != peer),
            }
            if generation.stage == Stage::Built && generation.builder == peer {
                building.push(generation.number);
            }
        }
        building
    }

    /// What those held who have gone since the look before, and may come again, they hold for a lease from now on.
    fn begin_leases(&mut self, now: Now) {
        let generations = self.datasets.values_mut().flat_map(|dataset| &mut dataset.generations);
        let holds = generations.flat_map(|generation| &mut generation.holds);
        for (_, until) in holds.filter(|(_, until)| *until == FOR_A_LEASE) {
            *until = now.monotonic_ns + self.lease_ns;
        }
    }
}

fn note_dropped(dropped: &mut Vec<u64>, table: TableId) {
    dropped.resize(1 << 10, 0);
    dropped[usize::from(table.0) / 64] |= 1 << (table.0 % 64);
}

fn is_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && std::str::from_utf8(name).is_ok()
}

impl Shard {
    /// What there is of generations, the oldest of each dataset first.
    pub fn generations(&self) -> impl Iterator<Item = GenerationReport> {
        self.generations.datasets.iter().flat_map(|(name, dataset)| {
            dataset.generations.iter().map(move |generation| GenerationReport {
                dataset: name.clone(),
                number: generation.number,
                stage: generation.stage,
                tables: generation.tables.len(),
                holders: generation.holds.iter().map(|(peer, _)| *peer).collect(),
            })
        })
    }

    /// Does what another shard has to tell.
    pub fn handle_order(&mut self, order: Order) {
        match order {
            Order::Begin { generation, connection, tables } => {
                self.begin_here(generation, connection, &tables)
            }
            Order::Drop { generation, tables, given_up } => {
                self.begin_leaving(generation, tables, given_up);
            }
            Order::Dropped { generation } => self.shard_has_dropped(generation),
            Order::FindLinks { tables } => self.begin_link_search(tables),
            Order::LinksFound { tables } => self.take_links(tables),
            Order::Forget { tables } => {
                self.forget_tables(&tables);
                self.generations.orders.push(Order::Forgotten);
            }
            Order::Forgotten => self.shard_has_forgotten(),
            Order::Ask { generation, from, question, .. } => self.answer_shard(generation, from, &question),
            Order::Tell { generation, told, .. } => self.take_told(generation, &told),
        }
    }

    /// Executes a request about generations.
    pub(crate) fn execute_generation(
        &mut self,
        now: Now,
        peer: PeerId,
        request: &Request<'_>,
        frame: &mut FrameBuffer,
    ) -> Result<(), NoRoom> {
        let (head, argument) = (&request.head, request.head.argument);
        if let Some(status) = self.refuse_stranger(peer, head) {
            encode_reply(frame, ReplyHead { id: head.id, status, version: 0, location: 0 });
            return Ok(());
        }
        let answer = match head.op {
            Op::Build if self.number == 0 => return self.build(peer, request, frame),
            // Shard 0 has told of the tables.
            Op::Build => Answer::of(Status::Ok),
            Op::Load => self.load(now, request)?,
            Op::Resolve => {
                self.resolve(request, frame);
                return Ok(());
            }
            Op::Overlays => {
                self.tell_overlays(now, request, frame);
                return Ok(());
            }
            Op::Freeze => self.freeze(now, request),
            Op::Switch => self.switch(now, peer, argument.unwrap_or(0))?,
            Op::Abandon => self.abandon(peer, argument.unwrap_or(0)),
            _ => self.hold(now, peer, head),
        };
        let Answer { status, version, location } = answer;
        encode_reply(frame, ReplyHead { id: head.id, status, version, location });
        Ok(())
    }

    /// Why a request cannot be done, where that is for its table's sake.
    #[inline]
    pub(crate) fn forbid(&mut self, now: Now, peer: PeerId, head: &RequestHead) -> Option<Status> {
        if self.generations.uses.is_empty() {
            return None;
        }
        let connection = self.connection(peer);
        self.generations.forbid(now, connection, head)
    }

    pub(crate) fn connection(&self, peer: PeerId) -> u64 {
        self.clients.connection(peer)
    }

    /// Why a request about a generation that is being built is not done: only who builds it may ask for anything, on each shard alike.
    fn refuse_stranger(&self, peer: PeerId, head: &RequestHead) -> Option<Status> {
        let generation = match head.op {
            Op::Build if self.number == 0 => return None,
            Op::Hold => return None,
            Op::Resolve => self.generations.filled(head.table),
            _ => head.argument,
        };
        let builder = generation.and_then(|generation| self.generations.built_by.get(&generation));
        match builder {
            Some(connection) if *connection == self.connection(peer) => None,
            // What shard 0 has to tell of it may be on its way.
            None if head.op == Op::Build => Some(Status::Frozen),
            _ => Some(Status::Gone),
        }
    }

    /// Begins a generation, whose tables get names and ids.
    fn build(&mut self, peer: PeerId, request: &Request<'_>, frame: &mut FrameBuffer) -> Result<(), NoRoom> {
        let mut reply = |status, version, tables: &[LoadedTable]| {
            encode_reply(frame, ReplyHead { id: request.head.id, status, version, location: 0 });
            let bytes = encode_tables(tables);
            frame.push(bytes.len() as u64);
            let words = frame.reserve(bytes.len().div_ceil(8));
            kelix_image::words::bytes_of_mut(words)[..bytes.len()].copy_from_slice(&bytes);
            Ok(())
        };
        let Some(mut tables) = decode_tables(request.body).filter(|_| is_name(request.key)) else {
            return reply(Status::Refused, 0, &[]);
        };
        let name = String::from_utf8_lossy(request.key).into_owned();
        if tables.iter().any(|table| table.overlay && !table.name_id.kind().has_items()) {
            return reply(Status::Refused, 0, &[]);
        }
        if let Some(refusal) = self.refuse_build(&name, &tables) {
            return reply(Status::Taken, refusal.word(), &[]);
        }
        let mut dataset = self.generations.datasets.remove(&name).unwrap_or_default();
        let given = self.give_ids(&mut dataset, &mut tables);
        let number = self.generations.given + 1;
        if matches!(given, Ok(true)) {
            for table in &tables {
                let filled = Use::Filled { generation: number, overlay: table.overlay };
                self.generations.uses.insert(table.table, filled);
            }
            self.generations.given = number;
            let stage = Stage::Built;
            let generation =
                Generation { number, tables: tables.clone(), stage, builder: peer, holds: vec![] };
            dataset.generations.push(generation);
            self.generations.owners.insert(number, name.clone());
            let connection = self.connection(peer);
            self.generations.built_by.insert(number, connection);
            if self.view.shards() > 1 {
                let tables = tables.iter().map(|table| (table.table, table.overlay)).collect();
                self.generations.orders.push(Order::Begin { generation: number, connection, tables });
            }
        }
        // A dataset that has neither generations nor tables is none, whatever was asked of it.
        if !dataset.is_empty() {
            self.generations.datasets.insert(name, dataset);
        }
        self.generations.changed = true;
        match given? {
            true => reply(Status::Ok, number, &tables),
            false => reply(Status::Taken, BuildRefusal::NoTables.word(), &[]),
        }
    }

    /// Why a generation cannot be begun, as far as that can be told before anything is done.
    fn refuse_build(&mut self, dataset: &str, tables: &[LoadedTable]) -> Option<BuildRefusal> {
        let known = self.generations.datasets.get_mut(dataset);
        if known.is_some_and(|known| known.at(Stage::Built).is_some()) {
            return Some(BuildRefusal::UnderWay);
        }
        tables.iter().enumerate().find_map(|(index, table)| {
            let twice = tables[..index].iter().any(|other| other.name == table.name);
            (twice || !self.name_is_free(&table.name, dataset)).then_some(BuildRefusal::NameTaken(index))
        })
    }

    /// Whether nothing else has a table's name.
    fn name_is_free(&mut self, name: &str, dataset: &str) -> bool {
        let owner = self.catalogue_body(&catalogue::id_key(TableId::CATALOGUE, name.as_bytes()));
        owner.is_none_or(|owner| owner.get(2..) == Some(dataset.as_bytes()) && !dataset.is_empty())
    }

    /// Gives tables their ids: for each name one of a table that no generation has, or a new one. `Ok(false)`: there are none left.
    fn give_ids(&mut self, dataset: &mut Dataset, tables: &mut [LoadedTable]) -> Result<bool, NoRoom> {
        for wanted in tables {
            let kind = wanted.name_id.kind();
            let name = wanted.name.clone();
            let known = dataset.names.get(&(name.clone(), kind)).cloned();
            let (name_id, mut made) = match known {
                Some(known) => known,
                None => match self.give_table_id(kind, name.as_bytes())? {
                    Some(id) => (id, Vec::new()),
                    None => return Ok(false),
                },
            };
            let table = match made.iter().find(|table| !dataset.uses(**table)) {
                Some(free) => *free,
                None => {
                    let Some(id) = self.give_table_id(kind, name.as_bytes())? else { return Ok(false) };
                    made.push(id);
                    id
                }
            };
            dataset.names.insert((name, kind), (name_id, made));
            (wanted.name_id, wanted.table) = (name_id, table);
        }
        Ok(true)
    }

    /// Shard 0 has given tables to a generation, which are going to be filled here, too.
    fn begin_here(&mut self, generation: u64, connection: u64, tables: &[(TableId, bool)]) {
        self.generations.built_by.insert(generation, connection);
        for (table, overlay) in tables {
            let filled = Use::Filled { generation, overlay: *overlay };
            self.generations.uses.insert(*table, filled);
        }
    }

    /// A generation is complete. On shard 0 it comes into force, by one change of the catalogue.
    fn switch(&mut self, now: Now, peer: PeerId, number: u64) -> Result<Answer, NoRoom> {
        let lease_ns = self.generations.lease_ns;
        self.generations.listings.remove(&number);
        self.generations.questions.remove(&number);
        self.noted.end_all(number);
        self.generations.changed = true;
        if self.generations.thawed.contains(&number) {
            return Ok(Answer::of(Status::Gone));
        }
        if self.number != 0 {
            self.generations.built_by.remove(&number);
            self.generations.freeze_for_good(number);
            for used in self.generations.uses.values_mut() {
                match *used {
                    Use::Filled { generation, overlay } if generation == number => {
                        *used = Use::Read { overlay }
                    }
                    _ => {}
                }
            }
            return Ok(Answer::of(Status::Ok));
        }
        let Some((name, generation)) = self.generations.find(number) else {
            return Ok(Answer::of(Status::Gone));
        };
        if generation.stage != Stage::Built || generation.builder != peer {
            return Ok(Answer::of(Status::Gone));
        }
        let (name, tables) = (name.clone(), generation.tables.clone());
        self.put_catalogue(&catalogue::generation_key(number), &encode_tables(&tables))?;
        for table in &tables {
            let leads = [&table.name_id.0.to_le_bytes()[..], name.as_bytes()].concat();
            let key = catalogue::id_key(TableId::CATALOGUE, table.name.as_bytes());
            if self.catalogue_body(&key).as_deref() != Some(&leads[..]) {
                self.put_catalogue(&key, &leads)?;
            }
        }
        let told = [number.to_le_bytes(), lease_ns.to_le_bytes()].concat();
        self.put_catalogue(&catalogue::dataset_key(name.as_bytes()), &told)?;
        for table in &tables {
            self.generations.uses.insert(table.table, Use::Read { overlay: table.overlay });
        }
        self.generations.built_by.remove(&number);
        self.free_names(&name, &tables);
        let dataset = self.generations.datasets.get_mut(&name).expect("just found");
        if let Some(before) = dataset.at(Stage::InForce) {
            before.stage = Stage::Superseded(now.monotonic_ns);
            // While it was in force nobody had to say so.
            before.holds.iter_mut().for_each(|(_, until)| *until = now.monotonic_ns + lease_ns);
        }
        dataset.at(Stage::Built).expect("just found").stage = Stage::InForce;
        self.generations.freeze_for_good(number);
        self.note_generations();
        mark!("generation came into force");
        Ok(Answer { status: Status::Ok, version: number, location: 0 })
    }

    /// Frees the names of tables that a dataset had until now, and has no more.
    fn free_names(&mut self, dataset: &str, tables: &[LoadedTable]) {
        let Some(known) = self.generations.datasets.get(dataset) else { return };
        let names = known.generations.iter().filter(|generation| generation.stage == Stage::InForce);
        let names = names.flat_map(|generation| &generation.tables).map(|table| table.name.clone());
        let gone: Vec<String> = names.filter(|name| tables.iter().all(|table| table.name != *name)).collect();
        for name in gone {
            let key = catalogue::id_key(TableId::CATALOGUE, name.as_bytes());
            if self.catalogue_body(&key).is_some_and(|leads| leads.get(2..) == Some(dataset.as_bytes())) {
                self.remove_key(TableId::CATALOGUE, &key);
            }
        }
    }

    /// Takes a dataset out of force: its tables' names are free at once, and what is in them goes when nobody holds it any more.
    pub(crate) fn drop_dataset(&mut self, now: Now, name: &[u8]) -> Answer {
        let lease_ns = self.generations.lease_ns;
        let name = String::from_utf8_lossy(name).into_owned();
        let Some(dataset) = self.generations.datasets.get_mut(&name) else {
            return Answer::of(Status::Absent);
        };
        if dataset.at(Stage::Built).is_some() {
            return Answer::of(Status::Taken);
        }
        let Some(in_force) = dataset.at(Stage::InForce) else { return Answer::of(Status::Absent) };
        in_force.holds.iter_mut().for_each(|(_, until)| *until = now.monotonic_ns + lease_ns);
        self.free_names(&name, &[]);
        let dataset = self.generations.datasets.get_mut(&name).expect("just found");
        dataset.at(Stage::InForce).expect("just found").stage = Stage::Superseded(now.monotonic_ns);
        self.remove_key(TableId::CATALOGUE, &catalogue::dataset_key(name.as_bytes()));
        self.generations.changed = true;
        self.note_generations();
        Answer::of(Status::Ok)
    }

    /// Readers look again what is in force, and what can be read.
    fn note_generations(&mut self) {
        self.image.header().words().add(header_word::GENERATIONS, 1);
    }

    fn abandon(&mut self, peer: PeerId, number: u64) -> Answer {
        let found = self.generations.find(number);
        let is_own = found
            .is_some_and(|(_, generation)| generation.stage == Stage::Built && generation.builder == peer);
        if !is_own {
            return Answer::of(Status::Gone);
        }
        self.drop_generation(number);
        Answer::of(Status::Ok)
    }

    fn hold(&mut self, now: Now, peer: PeerId, head: &RequestHead) -> Answer {
        let until = now.monotonic_ns + self.generations.lease_ns;
        let Some((_, generation)) = self.generations.find(head.argument.unwrap_or(0)) else {
            return Answer::of(Status::Gone);
        };
        generation.holds.retain(|(holder, _)| *holder != peer);
        let status = match (generation.stage, head.expiry) {
            (_, Some(Expiry::In(0))) => Status::Ok,
            (Stage::InForce | Stage::Superseded(_), _) => {
                generation.holds.push((peer, until));
                Status::Ok
            }
            _ => Status::Gone,
        };
        let in_force = u64::from(generation.stage == Stage::InForce);
        self.generations.changed = true;
        Answer { status, version: in_force, location: 0 }
    }

    /// A client has gone.
    pub(crate) fn let_generations_go(&mut self, peer: PeerId, comes_again: bool) {
        for number in self.generations.let_go(peer, comes_again) {
            mark!("builder of a generation gone");
            self.drop_generation(number);
        }
    }

    /// Goes on with what is not read any more, and says when to look again.
    pub(crate) fn tend_generations(&mut self, now: Now) -> Option<u64> {
        let due = self.generations.due_ns.is_some_and(|due| due <= now.monotonic_ns);
        if !due && !self.generations.changed {
            return self.generations.due_ns;
        }
        self.generations.changed = false;
        self.generations.begin_leases(now);
        let lease_ns = self.generations.lease_ns;
        let mut next: Option<u64> = None;
        let mut wake = |at: u64| next = Some(next.map_or(at, |next| next.min(at)));
        let mut due = Vec::new();
        for generation in self.generations.datasets.values_mut().flat_map(|dataset| &mut dataset.generations)
        {
            match generation.stage {
                Stage::Superseded(since) => {
                    generation.holds.retain(|(_, until)| *until > now.monotonic_ns);
                    let holds = generation.holds.iter().map(|(_, until)| *until);
                    match holds.chain([since + lease_ns]).filter(|until| *until > now.monotonic_ns).min() {
                        Some(until) => wake(until),
                        None => due.push(generation.number),
                    }
                }
                // Whoever is there holds it without saying so.
                Stage::InForce => {
                    generation.holds.retain(|(holder, until)| *holder != NOBODY || *until > now.monotonic_ns);
                    let gone = generation.holds.iter().filter(|(holder, _)| *holder == NOBODY);
                    gone.map(|(_, until)| *until).min().into_iter().for_each(&mut wake);
                }
                Stage::Unlisted(since) if since + lease_ns <= now.monotonic_ns => due.push(generation.number),
                Stage::Unlisted(since) => wake(since + lease_ns),
                _ => {}
            }
        }
        for number in due {
            let (_, generation) = self.generations.find(number).expect("just seen");
            if matches!(generation.stage, Stage::Superseded(_)) {
                generation.stage = Stage::Unlisted(now.monotonic_ns);
                self.remove_key(TableId::CATALOGUE, &catalogue::generation_key(number));
                wake(now.monotonic_ns + lease_ns);
            } else {
                self.drop_generation(number);
            }
        }
        self.generations.due_ns = next;
        next
    }

    /// Drops what is in a generation that nobody reads, on all shards.
    fn drop_generation(&mut self, number: u64) {
        let shards = self.view.shards();
        let (_, generation) = self.generations.find(number).expect("one that is known");
        let given_up = generation.stage == Stage::Built;
        generation.stage = Stage::Dropped(shards);
        let tables: Vec<TableId> = generation.tables.iter().map(|table| table.table).collect();
        if shards > 1 {
            let order = Order::Drop { generation: number, tables: tables.clone(), given_up };
            self.generations.orders.push(order);
        }
        self.begin_leaving(number, tables, given_up);
    }

    /// Begins to drop what is in tables. A generation of 0 is none: the tables were dropped by a client.
    pub(crate) fn begin_leaving(&mut self, generation: u64, tables: Vec<TableId>, given_up: bool) {
        self.generations.listings.remove(&generation);
        self.generations.questions.remove(&generation);
        self.noted.end_all(generation);
        self.generations.thawed.retain(|thawed| *thawed != generation);
        self.generations.built_by.remove(&generation);
        self.generations.changed = true;
        if given_up {
            self.generations.thaw(generation);
        }
        for table in &tables {
            let used = self.generations.uses.insert(*table, Use::Gone(generation));
            if let Some(Use::Frozen { follower, .. }) = used {
                self.generations.followers.remove(&follower);
            }
            if generation == 0 {
                note_dropped(&mut self.generations.dropped, *table);
            }
        }
        // Whoever reads on sees that before anything is gone.
        self.note_generations();
        self.generations.leaving.push_back(TablePurge::new(generation, tables));
    }

    /// Nothing of a generation is left on this shard.
    pub(crate) fn has_dropped(&mut self, generation: u64) {
        match self.number {
            0 => self.shard_has_dropped(generation),
            _ => self.generations.orders.push(Order::Dropped { generation }),
        }
    }

    fn shard_has_dropped(&mut self, number: u64) {
        let Some((name, Generation { stage: Stage::Dropped(left), .. })) = self.generations.find(number)
        else {
            return;
        };
        *left -= 1;
        if *left > 0 {
            return;
        }
        let name = name.clone();
        self.generations.owners.remove(&number);
        if let Some(dataset) = self.generations.datasets.get_mut(&name) {
            dataset.generations.retain(|generation| generation.number != number);
            if dataset.is_empty() {
                self.generations.datasets.remove(&name);
            }
        }
        mark!("generation dropped");
    }
}
