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

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

use kelix_fabric::PeerId;
use kelix_image::{NoRoom, header_word};
use kelix_types::limits::{NAME_BYTES_MAX, TABLES_MAX};
use kelix_types::{NameId, TableId, TableKind, mark};
use kelix_wire::generation::{LoadedTable, decode_tables, encode_tables};
use kelix_wire::{FrameBuffer, Op, ReplyHead, Request, RequestHead, Status, catalogue, encode_reply};

use crate::asked::{LinkPlace, Question, Questions, Target};
use crate::execute::Answer;
use crate::leaving::Leaving;
use crate::overlay::Listing;
use crate::shard::{Now, Shard};

/// What one shard has to tell others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
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
    pub leaving: VecDeque<Leaving>,
    pub orders: Vec<Order>,
    pub listings: HashMap<u64, Listing>,
    pub questions: HashMap<u64, Questions>,
    /// Generations whose builders took too long.
    thawed: Vec<u64>,
    pub given: u64,
    lease_ns: u64,
}

impl Generations {
    pub fn new(lease_ns: u64) -> Generations {
        Generations {
            uses: HashMap::new(),
            datasets: BTreeMap::new(),
            leaving: VecDeque::new(),
            orders: Vec::new(),
            listings: HashMap::new(),
            questions: HashMap::new(),
            thawed: Vec::new(),
            given: 0,
            lease_ns,
        }
    }

    /// Why a request cannot be done, where that is for its table's sake.
    #[inline]
    pub fn forbid(&mut self, now: Now, head: &RequestHead) -> Option<Status> {
        if self.uses.is_empty() { None } else { self.forbid_use(now, head) }
    }

    fn forbid_use(&mut self, now: Now, head: &RequestHead) -> Option<Status> {
        let writes = matches!(head.op, Op::Put | Op::Delete | Op::LargeCommit);
        let used = self.uses.get_mut(&head.table)?;
        match *used {
            Use::Gone(_) if head.op != Op::Build => Some(Status::Gone),
            Use::Filled { generation, .. } if writes && head.argument != Some(generation) => {
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
        for used in self.uses.values_mut() {
            match used {
                Use::Frozen { follower: of, until_ns } if *of == follower => *until_ns = u64::MAX,
                _ => {}
            }
        }
    }

    /// The follower of frozen tables is given up.
    fn thaw(&mut self, follower: u64) {
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
        let of = |dataset: &'_ mut Dataset| -> Option<usize> {
            dataset.generations.iter().position(|generation| generation.number == number)
        };
        self.datasets.iter_mut().find_map(|(name, dataset)| {
            let index = of(dataset)?;
            Some((name, &mut dataset.generations[index]))
        })
    }

    /// Somebody has gone. What it held it holds no more, unless it may come again: then for its lease. Tells which generation it was
    /// building.
    fn let_go(&mut self, peer: PeerId, comes_again: bool) -> Option<u64> {
        let mut building = None;
        for generation in self.datasets.values_mut().flat_map(|dataset| &mut dataset.generations) {
            generation.holds.retain(|(holder, _)| comes_again || *holder != peer);
            if generation.stage == Stage::Built && generation.builder == peer {
                building = Some(generation.number);
            }
        }
        building
    }
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
    pub fn obey(&mut self, order: Order) {
        match order {
            Order::Drop { generation, tables, given_up } => {
                self.begin_leaving(generation, tables, given_up);
            }
            Order::Dropped { generation } => self.shard_has_dropped(generation),
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
        let answer = match head.op {
            Op::Build if self.number == 0 => return self.build(peer, request, frame),
            Op::Build => self.build_here(request),
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
        let mut dataset = self.generations.datasets.remove(&name).unwrap_or_default();
        let free = dataset.at(Stage::Built).is_none()
            && tables.iter().all(|table| self.name_is_free(&table.name, &name));
        let given = if free { self.give_ids(&mut dataset, &mut tables) } else { Ok(false) };
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
        }
        self.generations.datasets.insert(name, dataset);
        match given? {
            true => reply(Status::Ok, number, &tables),
            false => reply(Status::Taken, 0, &[]),
        }
    }

    /// Whether nothing else has a table's name.
    fn name_is_free(&mut self, name: &str, dataset: &str) -> bool {
        let owner = self.catalogue_body(&catalogue::id_key(TableId::CATALOGUE, name.as_bytes()));
        owner.is_none_or(|owner| &owner[2..] == dataset.as_bytes() && !dataset.is_empty())
    }

    /// Gives tables their ids: for each name one of a table that no generation has, or a new one. `Ok(false)`: there are none left.
    fn give_ids(&mut self, dataset: &mut Dataset, tables: &mut [LoadedTable]) -> Result<bool, NoRoom> {
        for index in 0..tables.len() {
            let kind = tables[index].name_id.kind();
            let name = tables[index].name.clone();
            if tables[..index].iter().any(|other| other.name == name) {
                return Ok(false);
            }
            let known = dataset.names.get(&(name.clone(), kind)).cloned();
            let (name_id, mut made) = match known {
                Some(known) => known,
                None => match self.give_table_id(kind, &name)? {
                    Some(id) => (id, Vec::new()),
                    None => return Ok(false),
                },
            };
            let table = match made.iter().find(|table| !dataset.uses(**table)) {
                Some(free) => *free,
                None => {
                    let Some(id) = self.give_table_id(kind, &name)? else { return Ok(false) };
                    made.push(id);
                    id
                }
            };
            dataset.names.insert((name, kind), (name_id, made));
            (tables[index].name_id, tables[index].table) = (name_id, table);
        }
        Ok(true)
    }

    /// The next id of a kind, for a table of this name.
    fn give_table_id(&mut self, kind: TableKind, name: &str) -> Result<Option<TableId>, NoRoom> {
        let given = self.names.get(&(0, kind)).copied().unwrap_or(0);
        if usize::from(given) == TABLES_MAX {
            return Ok(None);
        }
        let id = TableId::new(kind, given + 1);
        self.put_catalogue(&catalogue::name_key(TableId::CATALOGUE, NameId(id.0)), name.as_bytes())?;
        self.names.insert((0, kind), given + 1);
        Ok(Some(id))
    }

    /// A table of another shard's generation is going to be filled here, too.
    fn build_here(&mut self, request: &Request<'_>) -> Answer {
        let RequestHead { table, argument, .. } = request.head;
        let (Some(generation), [overlay @ 0..=1]) = (argument, request.body) else {
            return Answer::of(Status::Refused);
        };
        match self.generations.uses.get(&table) {
            _ if self.is_leaving(table) => return Answer::of(Status::Taken),
            None => {}
            // A builder that is gone may have been heard here last.
            Some(Use::Gone(before)) if generation > *before => {}
            Some(_) => return Answer::of(Status::Refused),
        }
        self.generations.uses.insert(table, Use::Filled { generation, overlay: *overlay == 1 });
        Answer::of(Status::Ok)
    }

    /// A generation is complete. On shard 0 it comes into force, by one change of the catalogue.
    fn switch(&mut self, now: Now, peer: PeerId, number: u64) -> Result<Answer, NoRoom> {
        let lease_ns = self.generations.lease_ns;
        self.generations.listings.remove(&number);
        self.generations.questions.remove(&number);
        if self.generations.thawed.contains(&number) {
            return Ok(Answer::of(Status::Gone));
        }
        if self.number != 0 {
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
        match (generation.stage, head.expires_in) {
            (_, Some(0)) => {}
            (Stage::InForce | Stage::Superseded(_), _) => generation.holds.push((peer, until)),
            _ => return Answer::of(Status::Gone),
        }
        let in_force = u64::from(generation.stage == Stage::InForce);
        Answer { status: Status::Ok, version: in_force, location: 0 }
    }

    /// A client has gone.
    pub(crate) fn let_generations_go(&mut self, peer: PeerId, comes_again: bool) {
        if let Some(number) = self.generations.let_go(peer, comes_again) {
            mark!("builder of a generation gone");
            self.drop_generation(number);
        }
    }

    /// Goes on with what is not read any more, and says when to look again.
    pub(crate) fn tend_generations(&mut self, now: Now) -> Option<u64> {
        if self.generations.datasets.is_empty() {
            return None;
        }
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
        self.generations.thawed.retain(|thawed| *thawed != generation);
        if given_up {
            self.generations.thaw(generation);
        }
        for table in &tables {
            self.generations.uses.insert(*table, Use::Gone(generation));
        }
        // Whoever reads on sees that before anything is gone.
        self.note_generations();
        self.generations.leaving.push_back(Leaving::new(generation, tables));
    }

    /// Nothing of a generation is left on this shard.
    pub(crate) fn has_dropped(&mut self, generation: u64) {
        match self.number {
            0 => self.shard_has_dropped(generation),
            _ => self.generations.orders.push(Order::Dropped { generation }),
        }
    }

    fn shard_has_dropped(&mut self, number: u64) {
        for dataset in self.generations.datasets.values_mut() {
            dataset.generations.retain_mut(|generation| match &mut generation.stage {
                Stage::Dropped(left) if generation.number == number => {
                    *left -= 1;
                    *left > 0
                }
                _ => true,
            });
        }
        mark!("generation dropped");
    }
}
