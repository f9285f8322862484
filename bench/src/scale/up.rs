//! One server of more and more shards under the same crowd: how many operations a second of processor time
//! brings, of clients and server together (HydraDB, figure 12 c and d, which has a core a shard; rates say
//! nothing about shards that share two cores).

use std::time::Duration;

use kelix::FabricChoice;
use kelix_report::daemon::processor_time;
use kelix_report::interleave::{compared, median, take_blocks};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, as_rate, figure};

use super::crowd::{self, CLIENTS, VALUE_BYTES, mixes};
use crate::served::{Home, Served};
use crate::tails::{Caller, Ours, load, own_time};
use crate::workload::Records;

/// Shards of the servers.
const SHARDS: [usize; 4] = [1, 2, 4, 8];
const MEMORY_BYTES: u64 = 256 << 20;
/// The least that eight shards bring of what one brings.
const WANTED: f64 = 0.9;

/// A server, its clients, and the folder of what it keeps.
struct Side {
    clients: Vec<Box<dyn Caller>>,
    served: Served,
    _home: Home,
}

impl Side {
    fn start(shards: usize, records: Records) -> Result<Side, String> {
        let home = Home::new(&format!("scale-up-{shards}"), MEMORY_BYTES)?;
        let served = home.serve(&["--shards", &shards.to_string(), "--no-pin"])?;
        let client = served.client()?;
        let open = || Ok(Box::new(Ours::open(&client, FabricChoice::Shm, records)?) as Box<dyn Caller>);
        let mut clients = (0..CLIENTS).map(|_| open()).collect::<Result<Vec<_>, String>>()?;
        load(&format!("{shards} shards"), clients[0].as_mut(), records.count)?;
        Ok(Side { clients, served, _home: home })
    }

    /// Nanoseconds of processor time for an operation.
    fn block(&mut self, mix: &crowd::Mix, block: (usize, Duration)) -> Result<f64, String> {
        let before = own_time() + processor_time(self.served.pid());
        let done = crowd::run(&mut self.clients, mix, block, false)?;
        let taken = (own_time() + processor_time(self.served.pid())).saturating_sub(before);
        Ok(taken.as_nanos() as f64 / done.operations as f64)
    }
}

/// A row for each mix.
pub(super) fn rows(records: u64, is_full: bool) -> Result<Vec<Row>, String> {
    let (rounds, length) = crowd::blocks(is_full);
    let stored = Records::new(records, VALUE_BYTES);
    let mut sides =
        SHARDS.into_iter().map(|shards| Side::start(shards, stored)).collect::<Result<Vec<_>, _>>()?;
    let mixes = mixes(records);
    let count = SHARDS.len();
    let mut blocks = 0;
    let times = take_blocks(rounds, count * mixes.len(), |turn| {
        progress::show(&format!("{CLIENTS} clients: block {blocks}"));
        blocks += 1;
        sides[turn % count].block(&mixes[turn / count], (blocks, length))
    })?;
    let row = |(mix, times): (&crowd::Mix, &[Vec<f64>])| {
        let comparison = as_rate(compared(&times[count - 1], &times[0]));
        let told: Vec<String> = SHARDS
            .iter()
            .zip(times)
            .map(|(shards, times)| format!("{shards}: {}", figure(median(times))))
            .collect();
        Row {
            id: format!("scale_up_{}", mix.id).into(),
            name: format!("processor time of an operation, 8 shards, against 1: {}", mix.name).into(),
            ours: comparison.ours_ns,
            other: Some(comparison.other_ns),
            unit: "ns",
            ratio: comparison.ratio,
            wanted: Some(WANTED),
            sense: Sense::AtLeast,
            note: format!("by shards, {}; {CLIENTS} clients; {}", told.join(", "), comparison.spread()),
        }
    };
    drop(sides);
    Ok(mixes.iter().zip(times.chunks(count)).map(row).collect())
}
