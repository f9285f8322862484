//! A reader that goes on while generations are built and switched: in a closed loop, by a table's name and
//! through views, with every value checked and every single get timed.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use kelix::{Client, Session, Table, Values, View};

use super::chain::text;
use crate::store::{Numbers, key_of, number_of};
use crate::times::Times;

/// The dataset, and its only table.
pub(super) const NAME: &str = "switched";
/// Gets by name, and through the view, from one batch to the next, and keys of a batch, which are of one
/// generation.
const GETS: usize = 32;
const BATCH: usize = 16;
/// Batches until another view is opened.
const BATCHES_A_VIEW: u64 = 256;

/// What is being done while it reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Nothing.
    Before,
    /// A generation is built.
    Building,
    /// It comes into force.
    Switching,
    /// The one before is dropped.
    Dropping,
}

const PHASES: usize = 4;

/// What reader and builder tell each other. Generations are counted from 1.
#[derive(Default)]
pub(super) struct Signals {
    phase: AtomicUsize,
    may_be_in_force: AtomicU64,
    in_force: AtomicU64,
    end: AtomicBool,
}

impl Signals {
    /// Another phase of a switch begins.
    pub fn begin(&self, switch: usize, phase: Phase) {
        // SYNC: says only where times are counted.
        self.phase.store(switch * PHASES + phase as usize, Ordering::Relaxed);
    }

    /// A generation may come into force from now on.
    pub fn switches_to(&self, generation: u64) {
        // SYNC: whoever reads the generation has this store behind it, through the shard that put it in
        // force.
        self.may_be_in_force.store(generation, Ordering::Release);
    }

    /// It has.
    pub fn has_switched_to(&self, generation: u64) {
        // SYNC: pairs with the load in `Reader::oldest`; a read that begins after it meets the shard's word
        // of the switch.
        self.in_force.store(generation, Ordering::Release);
    }

    /// The reader is to come to its end.
    pub fn end(&self) {
        // SYNC: only a flag; the thread is joined.
        self.end.store(true, Ordering::Relaxed);
    }
}

/// What was read.
pub(super) struct Seen {
    /// How long single gets took, by switch and phase.
    times: Vec<Times>,
    /// Gets by name and through views, batches, and views.
    pub by_name: u64,
    pub by_view: u64,
    pub batches: u64,
    pub views: u64,
    /// Reads that failed, or brought something else than they should have, and what the first of them was.
    pub wrong: u64,
    pub first_wrong: Option<String>,
}

impl Seen {
    /// How long gets took in a phase of a switch.
    pub fn times(&self, switch: usize, phase: Phase) -> &Times {
        &self.times[switch * PHASES + phase as usize]
    }

    /// Says of a read whether it was as it should be.
    fn note(&mut self, read: Result<(), String>) {
        if let Err(wrong) = read {
            self.wrong += 1;
            self.first_wrong.get_or_insert(wrong);
        }
    }
}

/// A view, and the generation that everything in it has to be of.
struct Seeing {
    _view: View,
    table: Table,
    generation: u64,
}

/// Somebody who reads.
pub(super) struct Reader<'s> {
    session: Session,
    table: Table,
    signals: &'s Signals,
    numbers: Numbers,
    records: u64,
    seen: Seen,
}

impl<'s> Reader<'s> {
    pub fn new(client: &Client, records: u64, signals: &'s Signals, switches: usize) -> Result<Self, String> {
        let mut session = client.session().map_err(text)?;
        let table = session.table(NAME).map_err(text)?;
        let times = vec![Times::new(); switches * PHASES];
        let seen = Seen { times, by_name: 0, by_view: 0, batches: 0, views: 0, wrong: 0, first_wrong: None };
        Ok(Reader { session, table, signals, numbers: Numbers(91), records, seen })
    }

    /// Reads until it is told to end. A view that has failed is given up for another.
    pub fn read(mut self) -> Seen {
        let (mut seeing, mut values) = (None, Values::new());
        // SYNC: only a flag.
        while !self.signals.end.load(Ordering::Relaxed) {
            (0..GETS).for_each(|_| self.get_by_name());
            if self.seen.batches % BATCHES_A_VIEW == 0 {
                seeing = None;
            }
            self.seen.batches += 1;
            let read = self.read_in_view(&mut seeing, &mut values);
            if read.is_err() {
                seeing = None;
            }
            self.seen.note(read);
        }
        self.seen
    }

    /// The oldest generation that a read by name that begins now may be of.
    fn oldest(&self) -> u64 {
        // SYNC: pairs with the store in `has_switched_to`.
        self.signals.in_force.load(Ordering::Acquire)
    }

    /// Whether a generation was in force at some time since that was the oldest.
    fn check_in_force(&self, generation: u64, oldest: u64) -> Result<(), String> {
        // SYNC: pairs with the store in `switches_to`.
        let newest = self.signals.may_be_in_force.load(Ordering::Acquire);
        match (oldest..=newest).contains(&generation) {
            true => Ok(()),
            false => Err(format!("generation {generation} was read when {oldest} to {newest} were in force")),
        }
    }

    fn get_by_name(&mut self) {
        let oldest = self.oldest();
        let generation = self.get(self.table);
        let read = generation.and_then(|generation| self.check_in_force(generation, oldest));
        self.seen.by_name += 1;
        self.seen.note(read);
    }

    /// Gets any record, and tells which generation it is of.
    fn get(&mut self, table: Table) -> Result<u64, String> {
        let record = self.draw();
        let mut value = [0; 32];
        // SYNC: says only where the time is counted.
        let phase = self.signals.phase.load(Ordering::Relaxed);
        let began = Instant::now();
        let found = self.session.get_into(table, &key_of(record), &mut value);
        self.seen.times[phase].note(began.elapsed().as_nanos() as u64);
        found.map_err(text)?.ok_or_else(|| format!("no record {record}"))?;
        number_of(&value, record).ok_or_else(|| format!("record {record} has no value of its own"))
    }

    fn draw(&mut self) -> u64 {
        ((u128::from(self.numbers.next()) * u128::from(self.records)) >> 64) as u64
    }

    /// Some gets and a batch through a view, all of its generation.
    fn read_in_view(&mut self, seeing: &mut Option<Seeing>, values: &mut Values) -> Result<(), String> {
        let Seeing { table, generation, .. } = match seeing {
            Some(seeing) => seeing,
            None => seeing.insert(self.see()?),
        };
        let (table, wanted) = (*table, *generation);
        let check = |generation| match generation == wanted {
            true => Ok(()),
            false => Err(format!("generation {generation} was read in a view of {wanted}")),
        };
        for _ in 0..GETS {
            self.seen.by_view += 1;
            check(self.get(table)?)?;
        }
        let records: [u64; BATCH] = std::array::from_fn(|_| self.draw());
        let keys = records.map(key_of);
        let keys: [&[u8]; BATCH] = std::array::from_fn(|index| &keys[index][..]);
        self.session.multi_get_into(table, &keys, values).map_err(text)?;
        for (index, record) in records.into_iter().enumerate() {
            let value = values.get(index).ok_or_else(|| format!("no record {record}"))?;
            let generation = number_of(value, record);
            check(generation.ok_or_else(|| format!("record {record} has no value of its own"))?)?;
        }
        Ok(())
    }

    /// Opens a view.
    fn see(&mut self) -> Result<Seeing, String> {
        let oldest = self.oldest();
        self.seen.views += 1;
        let view = self.session.view(NAME).map_err(text)?;
        let table = view.table(NAME).map_err(text)?;
        let generation = self.get(table)?;
        self.check_in_force(generation, oldest)?;
        self.seen.by_view += 1;
        Ok(Seeing { _view: view, table, generation })
    }
}
