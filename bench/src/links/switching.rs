//! What a reader notices of generations that are built and put in force: whether all that it reads is right,
//! and how long it takes.
//!
//! ```text
//! before | building | switching: finish, and a while after it | dropping
//! as long, or longer      ^ another generation in force
//! ```

use std::time::{Duration, Instant};

use kelix::{NewTable, Session, TableKind};
use kelix_server::ServerConfig;

use super::FULL_RECORDS;
use super::chain::text;
use super::generations::wait_until_one_is_left;
use super::reading::{NAME, Phase, Reader, Seen, Signals};
use crate::store::{Store, key_of, numbered_value};
use kelix_report::cores::{cores, pin, unpin};
use kelix_report::interleave;
use kelix_report::report::{Row, Sense, compared};

/// Items, switches, and the lease of views. A small run is a check that all works.
const ITEMS: u64 = 200_000;
const FULL: usize = 11;
const SMALL: usize = 2;
const LEASE: Duration = Duration::from_secs(1);
const LEASE_SMALL: Duration = Duration::from_millis(200);
/// How long a switch is looked at when it is done, and how long the reader reads before anything counts.
const AFTER: Duration = Duration::from_millis(50);
const WARM: Duration = Duration::from_millis(300);
/// The least time that reads before a build are looked at: one in a thousand of them has to be many.
const BEFORE: Duration = Duration::from_millis(100);
const SLOW: f64 = 0.999;

/// Builds generation after generation.
struct Builder<'b> {
    session: Session,
    signals: &'b Signals,
    items: u64,
}

impl Builder<'_> {
    /// Builds a generation and puts it in force. How long it took until only the last step was to be done.
    fn build(&mut self, switch: usize, generation: u64) -> Result<Duration, String> {
        let began = Instant::now();
        let new = [NewTable::new(NAME, TableKind::Hash)];
        let mut build = self.session.build(NAME, &new).map_err(text)?;
        for record in 0..self.items {
            build.put(0, &key_of(record), &numbered_value(record, generation)).map_err(text)?;
        }
        let took = began.elapsed();
        self.signals.begin(switch, Phase::Switching);
        self.signals.switches_to(generation);
        let built = build.finish().map_err(text)?.items;
        self.signals.has_switched_to(generation);
        if built == self.items { Ok(took) } else { Err(format!("{built} items were built")) }
    }

    /// Switches, with what is to be looked at before and after it.
    fn switch(&mut self, store: &Store, switch: usize, before: Duration) -> Result<(), String> {
        self.signals.begin(switch, Phase::Before);
        std::thread::sleep(before);
        self.signals.begin(switch, Phase::Building);
        // One was built before the first switch.
        self.build(switch, switch as u64 + 2)?;
        std::thread::sleep(AFTER);
        self.signals.begin(switch, Phase::Dropping);
        wait_until_one_is_left(store)
    }
}

/// Lets somebody read while so many generations are switched.
fn watch(items: u64, switches: usize, lease: Duration) -> Result<Seen, String> {
    let memory_bytes = (items * 1024).max(256 << 20);
    let store =
        Store::start("switch", ServerConfig { memory_bytes, view_lease: lease, ..ServerConfig::default() })?;
    let signals = Signals::default();
    pin(cores() - 1);
    let session = store.client.session().map_err(text)?;
    let mut builder = Builder { session, signals: &signals, items };
    let before = builder.build(0, 1)?.max(BEFORE);
    signals.begin(0, Phase::Dropping);
    let reader = Reader::new(&store.client, items, &signals, switches)?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            pin(0);
            reader.read()
        });
        std::thread::sleep(WARM);
        let done = (0..switches).try_for_each(|switch| builder.switch(&store, switch, before));
        signals.end();
        let seen = reader.join().expect("a reader does not panic");
        done.map(|()| seen)
    })
}

/// How much longer one in a thousand gets takes in a phase than before it.
fn slow(seen: &Seen, switches: usize, id: &'static str, phase: Phase, wanted: f64) -> Row {
    let times = |phase| (0..switches).map(move |switch| seen.times(switch, phase));
    let slow = |phase| times(phase).map(|times| times.quantile_ns(SLOW) as f64).collect::<Vec<_>>();
    let longest = |phase| times(phase).map(|times| times.longest_ns()).max().unwrap_or(0) / 1000;
    let count = |phase| times(phase).map(|times| times.count()).sum::<u64>();
    let comparison = interleave::compared(&slow(phase), &slow(Phase::Before));
    let name = match phase {
        Phase::Switching => "p99.9 of gets while a generation comes into force / before it was built",
        _ => "p99.9 of gets while a generation is built / before that",
    };
    let note = format!(
        "{} gets against {}, the longest {} us against {} us; reader on the first core, shard and builder on the last; ",
        count(phase),
        count(Phase::Before),
        longest(phase),
        longest(Phase::Before)
    );
    compared(id, name, "ns", wanted, comparison, &note)
}

/// A row of what was counted.
fn counted(id: &'static str, name: &'static str, count: u64, wanted: Option<f64>, note: String) -> Row {
    let ours = count as f64;
    let (id, name) = (id.into(), name.into());
    Row { id, name, ours, other: None, unit: "reads", ratio: ours, wanted, sense: Sense::AtMost, note }
}

/// The rows.
pub(super) fn rows(records: Option<u64>) -> Result<Vec<Row>, String> {
    let items = records.map_or(ITEMS, |records| records.clamp(1000, ITEMS));
    let (switches, lease) = if items < FULL_RECORDS { (SMALL, LEASE_SMALL) } else { (FULL, LEASE) };
    let seen = watch(items, switches, lease);
    unpin();
    let seen = seen?;
    let Seen { by_name, by_view, batches, views, wrong, .. } = seen;
    let all = format!(
        "{switches} switches of {items} items, {by_name} gets by name, {by_view} through views, {batches} batches of 16 through {views} views"
    );
    let first = seen.first_wrong.as_ref().map_or(String::new(), |first| format!("the first: {first}"));
    Ok(vec![
        counted(
            "switch_total",
            "reads while generations are switched",
            by_name + by_view + batches,
            None,
            all,
        ),
        counted(
            "switch_reads",
            "reads that failed, were mixed, or were of another generation",
            wrong,
            Some(0.0),
            first,
        ),
        slow(&seen, switches, "switch_p999", Phase::Switching, 10.0),
        slow(&seen, switches, "build_p999", Phase::Building, 3.0),
    ])
}
