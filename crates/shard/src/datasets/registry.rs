//! The datasets of a server and their generations, which shard 0 keeps.
//!
//! ```text
//! being built -> in force -> superseded: views hold it -> unlisted: for a lease -> dropped
//!      `------------------------------------------------------------------------^
//! ```
//!
//! 1. Of a dataset at most one generation is being built and at most one is in force ([`Dataset::at`]).
//! 2. What a view holds is not unlisted before that says so, or was silent for a lease ([`Registry::look`]).
//! 3. A generation that is unlisted stays for a lease, since whoever reads it looks only from time to time
//!    whether it is still listed ([`Registry::look`]).

use std::collections::{BTreeMap, HashMap};

use kelix_fabric::PeerId;
use kelix_types::{TableId, TableKind};
use kelix_wire::generation::LoadedTable;
use kelix_wire::{Expiry, RequestHead, Status};

use crate::shard::Now;
use crate::store::Answer;

/// How far a generation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Its builder fills it.
    Built,
    /// New views see it.
    InForce,
    /// Another one is in force, since this moment; views hold this one, or whoever looks names up from time
    /// to time reads it yet.
    Superseded(u64),
    /// Nobody can begin to read it, since this moment.
    Unlisted(u64),
    /// So many shards still drop what is in it.
    Dropped(usize),
}

/// One load of a dataset.
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
pub(super) const NOBODY: PeerId = PeerId(u32::MAX);
/// Who holds a generation until then does so for a lease from the next look on; one that is superseded since
/// then is since the next look.
pub(super) const FOR_A_LEASE: u64 = u64::MAX;

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

/// Tables that are loaded together, and replaced at once.
#[derive(Default)]
pub(crate) struct Dataset {
    pub generations: Vec<Generation>,
    /// Of each table's name and kind: its id, and the tables that were made for it so far.
    pub names: HashMap<(String, TableKind), (TableId, Vec<TableId>)>,
}

impl Dataset {
    /// One that has neither generations nor tables is none.
    pub fn is_empty(&self) -> bool {
        self.generations.is_empty() && self.names.is_empty()
    }

    /// The generation at a stage that one can be at.
    pub fn at(&mut self, stage: Stage) -> Option<&mut Generation> {
        self.generations.iter_mut().find(|generation| generation.stage == stage)
    }

    /// Whether a generation has a table.
    pub fn uses(&self, table: TableId) -> bool {
        let mut tables = self.generations.iter().flat_map(|generation| &generation.tables);
        tables.any(|of_generation| of_generation.table == table)
    }
}

/// All datasets.
pub(crate) struct Registry {
    pub datasets: BTreeMap<String, Dataset>,
    /// Whose generations are, by their numbers: there may be thousands of datasets.
    pub owners: HashMap<u64, String>,
    /// Generations begun so far, of which each has the next number.
    pub given: u64,
    /// How long a view holds its generation without a sign of life.
    lease_ns: u64,
    /// When there is to be looked for what is due, unless something changes before.
    due_ns: Option<u64>,
    changed: bool,
}

impl Registry {
    pub fn new(lease_ns: u64) -> Registry {
        Registry {
            datasets: BTreeMap::new(),
            owners: HashMap::new(),
            given: 0,
            lease_ns,
            due_ns: None,
            changed: true,
        }
    }

    pub fn lease_ns(&self) -> u64 {
        self.lease_ns
    }

    /// Something has changed that may make a generation due.
    pub fn note_change(&mut self) {
        self.changed = true;
    }

    /// What there is of generations, the oldest of each dataset first.
    pub fn reports(&self) -> impl Iterator<Item = GenerationReport> {
        self.datasets.iter().flat_map(|(name, dataset)| {
            dataset.generations.iter().map(move |generation| GenerationReport {
                dataset: name.clone(),
                number: generation.number,
                stage: generation.stage,
                tables: generation.tables.len(),
                holders: generation.holds.iter().map(|(peer, _)| *peer).collect(),
            })
        })
    }

    /// The generation of a number that can be read, or was not long ago.
    pub fn find(&mut self, number: u64) -> Option<(&String, &mut Generation)> {
        let owner = self.owners.get(&number)?;
        let generations = &mut self.datasets.get_mut(owner)?.generations;
        let generation = generations.iter_mut().find(|generation| generation.number == number)?;
        Some((owner, generation))
    }

    /// The generation of a number, if this client builds it.
    pub fn find_built(&mut self, number: u64, builder: PeerId) -> Option<(&String, &mut Generation)> {
        self.find(number).filter(|(_, of)| of.stage == Stage::Built && of.builder == builder)
    }

    /// The generation that is built comes into force, and the one before is superseded, if there is one.
    pub fn put_in_force(&mut self, now: Now, dataset: &str) {
        self.supersede(now, dataset);
        let generation = self.datasets.get_mut(dataset).and_then(|dataset| dataset.at(Stage::Built));
        generation.expect("one that is complete").stage = Stage::InForce;
    }

    /// The generation in force is no more. While it was in force nobody had to say that it is read.
    pub fn supersede(&mut self, now: Now, dataset: &str) {
        self.changed = true;
        let until_ns = now.monotonic_ns + self.lease_ns;
        let before = self.datasets.get_mut(dataset).and_then(|dataset| dataset.at(Stage::InForce));
        if let Some(before) = before {
            before.stage = Stage::Superseded(now.monotonic_ns);
            before.holds.iter_mut().for_each(|(_, until)| *until = until_ns);
        }
    }

    /// Somebody reads a generation, and holds it for a lease, or with a lease of zero no more.
    pub fn hold(&mut self, now: Now, peer: PeerId, head: &RequestHead) -> Answer {
        let until = now.monotonic_ns + self.lease_ns;
        let Some((_, generation)) = self.find(head.argument.unwrap_or(0)) else {
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
        self.changed = true;
        Answer { status, version: in_force, location: 0 }
    }

    /// Somebody has gone. What it held it holds no more, unless it may come again: then for its lease. Tells
    /// which generations it was building.
    pub fn let_go(&mut self, peer: PeerId, comes_again: bool) -> Vec<u64> {
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

    /// What those held who have gone since the look before, and may come again, they hold for a lease from
    /// now on. So is what was superseded when this server took the image over: views of the server before may
    /// come again.
    fn begin_leases(&mut self, now: Now) {
        for generation in self.datasets.values_mut().flat_map(|dataset| &mut dataset.generations) {
            if generation.stage == Stage::Superseded(FOR_A_LEASE) {
                generation.stage = Stage::Superseded(now.monotonic_ns);
            }
            for (_, until) in generation.holds.iter_mut().filter(|(_, until)| *until == FOR_A_LEASE) {
                *until = now.monotonic_ns + self.lease_ns;
            }
        }
    }

    /// Whether there is something to look for.
    #[inline]
    pub fn is_due(&self, now: Now) -> bool {
        self.changed || self.due_ns.is_some_and(|due| due <= now.monotonic_ns)
    }

    /// When there is something to be looked for again.
    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Looks for generations that are not read any more: superseded ones that nobody holds, and unlisted ones
    /// whose lease is over.
    pub fn look(&mut self, now: Now) -> Vec<u64> {
        self.changed = false;
        self.begin_leases(now);
        let lease_ns = self.lease_ns;
        let mut next: Option<u64> = None;
        let mut wake = |at: u64| next = Some(next.map_or(at, |next| next.min(at)));
        let mut due = Vec::new();
        for generation in self.datasets.values_mut().flat_map(|dataset| &mut dataset.generations) {
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
        self.due_ns = next;
        due
    }

    /// A generation that is due is unlisted, for a lease. `false`: it has been, and is to be dropped.
    pub fn unlist(&mut self, now: Now, number: u64) -> bool {
        let (_, generation) = self.find(number).expect("just seen");
        let is_listed = matches!(generation.stage, Stage::Superseded(_));
        if is_listed {
            generation.stage = Stage::Unlisted(now.monotonic_ns);
            let until_ns = now.monotonic_ns + self.lease_ns;
            self.due_ns = Some(self.due_ns.map_or(until_ns, |due| due.min(until_ns)));
        }
        is_listed
    }

    /// What is in a generation is dropped from now on, by so many shards. Its tables, and whether it was
    /// never in force.
    pub fn begin_drop(&mut self, number: u64, shards: usize) -> (Vec<TableId>, bool) {
        let (_, generation) = self.find(number).expect("one that is known");
        let given_up = generation.stage == Stage::Built;
        generation.stage = Stage::Dropped(shards);
        (generation.tables.iter().map(|table| table.table).collect(), given_up)
    }

    /// Nothing of a generation is left on one shard more. `true`: nor on any.
    pub fn shard_has_dropped(&mut self, number: u64) -> bool {
        let Some((name, Generation { stage: Stage::Dropped(left), .. })) = self.find(number) else {
            return false;
        };
        *left -= 1;
        if *left > 0 {
            return false;
        }
        let name = name.clone();
        self.owners.remove(&number);
        if let Some(dataset) = self.datasets.get_mut(&name) {
            dataset.generations.retain(|generation| generation.number != number);
            if dataset.is_empty() {
                self.datasets.remove(&name);
            }
        }
        true
    }

    /// Forgets the datasets that have no generation any more. The ids of their names, and their tables.
    pub fn take_empty(&mut self) -> Vec<TableId> {
        let mut tables: Vec<TableId> = Vec::new();
        self.datasets.retain(|_, dataset| {
            let over = dataset.generations.is_empty();
            if over {
                tables.extend(dataset.names.values().flat_map(|(id, made)| made.iter().chain([id])));
            }
            !over
        });
        tables
    }

    /// What is left of clients, in words and numbers.
    pub fn remains(&self) -> [(&'static str, usize); 4] {
        let generations = || self.datasets.values().flat_map(|dataset| &dataset.generations);
        [
            ("generations that nobody reads", generations().filter(|of| of.stage != Stage::InForce).count()),
            ("holds", generations().map(|of| of.holds.len()).sum()),
            ("datasets of nothing", self.datasets.values().filter(|dataset| dataset.is_empty()).count()),
            ("owners of generations", self.owners.len().abs_diff(generations().count())),
        ]
    }
}
