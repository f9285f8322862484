//! How many reads go on without a message directly behind a failover: pointers that were learnt before are
//! still good, and the next primary's memory is mapped.

use std::time::{Duration, Instant};

use kelix::{Session, Table};
use kelix_report::interleave::median;
use kelix_report::progress;
use kelix_report::report::{Row, Sense, told};

use super::failover::NODES;
use super::nodes::Nodes;
use super::puts::memory_for;
use super::{Plan, text};
use crate::store::{Numbers, key_of, number_of, numbered_value};

/// Failovers, in a measurement and else.
const FULL: usize = 11;
const SMALL: usize = 2;
/// For how long reads are counted.
const TIME: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(100));
/// Reads between two looks at the time.
const CALLS: u64 = 64;

struct Reader {
    session: Session,
    table: Table,
    records: u64,
    draw: Numbers,
}

impl Reader {
    fn read(&mut self) -> Result<(), String> {
        let (record, mut value) = (self.draw.next() % self.records, [0; 32]);
        let found = self.session.get_into(self.table, &key_of(record), &mut value).map_err(text)?;
        let is_good = found.is_some() && number_of(&value, record) == Some(1);
        if is_good { Ok(()) } else { Err(format!("record {record} is not what was put")) }
    }

    /// The share of reads without a message, in percent, of so much time.
    fn hits(&mut self, time: Duration) -> Result<f64, String> {
        let (began, before, mut reads) = (Instant::now(), self.session.cost().messages, 0);
        while began.elapsed() < time {
            (0..CALLS).try_for_each(|_| self.read())?;
            reads += CALLS;
        }
        let messages = self.session.cost().messages - before;
        Ok(100.0 * (1.0 - messages as f64 / reads as f64).max(0.0))
    }
}

/// The row.
pub(super) fn row(plan: Plan) -> Result<Row, String> {
    const ID: &str = "warm_after";
    let time = plan.choose(TIME.0, TIME.1);
    let mut nodes = Nodes::start("warm", NODES, memory_for(plan.records))?;
    let (session, table) = nodes.session()?;
    let mut reader = Reader { session, table, records: plan.records, draw: Numbers(23) };
    for record in 0..plan.records {
        reader.session.put(table, &key_of(record), &numbered_value(record, 1)).map_err(text)?;
    }
    for record in 0..plan.records {
        reader.session.get(table, &key_of(record)).map_err(text)?;
    }
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let times = plan.choose(FULL, SMALL);
    for round in 0..times {
        progress::show(&format!("{ID}: {} of {times}", round + 1));
        nodes.wait_until_in_sync(NODES)?;
        before.push(reader.hits(time)?);
        let primary = nodes.primary()?;
        nodes.kill(primary)?;
        // The next primary answers this one.
        reader.session.put(table, &key_of(0), &numbered_value(0, 1)).map_err(text)?;
        after.push(reader.hits(time)?);
        nodes.begin(primary)?;
    }
    let ratios: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after / before).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let note = format!("median of {times}, at least {least:.3}; in shared memory, {} records", plan.records);
    let name = "reads without a message in the first second behind a failover / before it";
    let row = told(ID, name, "% of reads", median(&after), Some(0.95));
    Ok(Row { other: Some(median(&before)), ratio: median(&ratios), sense: Sense::AtLeast, note, ..row })
}
