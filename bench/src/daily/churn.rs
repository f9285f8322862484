//! Memory after an hour in which values have changed their sizes, against a fresh load of the same values.
//!
//! ```text
//! middle of the sizes, bytes    1024      _         _                  each value is half to twice as long; any record is
//!                                       /   \     /   \                put, 10,000 of them a second for an hour, here as fast
//!                                128  _/     \___/     \_              as it goes; memory is looked at where the dots are
//!                                              . .  . .
//! ```
//!
//! Which value a record has follows from the number of its last put, so all are checked before memory is
//! looked at.

use std::time::{Duration, Instant};

use kelix::{Session, Table, Values};

use super::text;
use crate::served::{Home, Served};
use crate::store::{Numbers, key_of};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, figure};

/// Puts of an hour, and how often sizes rise and fall in it.
const PUTS: u64 = 36_000_000;
const WAVES: u64 = 6;
/// Looks at memory in the last wave: at a quarter, the top, three quarters and the end.
const LOOKS: u64 = 4;
/// Bytes of the middle of sizes, at least and how often it doubles. Values are half to twice as long.
const MIDDLE: f64 = 128.0;
const DOUBLINGS: f64 = 3.0;
/// Records, and puts of each in a small run.
const RECORDS: u64 = 500_000;
const PUTS_SMALL: u64 = 24;
/// Memory of a server for each record: more than it ever needs, so that nobody waits for memory.
const RECORD_BYTES: u64 = 6 << 10;
const MEMORY_MIN: u64 = 256 << 20;
/// Records that are put or got at once.
const BATCH: usize = 64;
/// How long memory has to stay as it is to be looked at, and how long that is waited for.
const STILL: Duration = Duration::from_secs(2);
const STILL_SMALL: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(60);

/// Number and length of a record's last put.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Last {
    number: u32,
    bytes: u32,
}

impl Last {
    /// The put with this number, of so many in a wave.
    fn of(number: u64, wave: u64, numbers: &mut Numbers) -> Last {
        let at = number as f64 / wave as f64 * std::f64::consts::TAU;
        let middle = MIDDLE * 2f64.powf(DOUBLINGS * (1.0 - at.cos()) / 2.0);
        let bytes = middle * 2f64.powf(2.0 * numbers.share() - 1.0);
        Last { number: number as u32, bytes: bytes as u32 }
    }

    /// Its value: whose it is and the number of the put, mixed, and from then on what follows from that.
    fn value(self, record: u64, into: &mut Vec<u8>) {
        into.clear();
        let mut numbers = Numbers(record << 32 | u64::from(self.number));
        while into.len() < self.bytes as usize {
            into.extend_from_slice(&numbers.next().to_le_bytes());
        }
        into.truncate(self.bytes as usize);
    }
}

/// A server, and a session of it.
struct Place {
    server: Served,
    _home: Home,
    session: Session,
    table: Table,
    values: Vec<Vec<u8>>,
}

impl Place {
    fn start(name: &str, records: u64) -> Result<Place, String> {
        let home = Home::new(name, (records * RECORD_BYTES).max(MEMORY_MIN))?;
        let server = home.serve(&[])?;
        let mut session = server.session()?;
        let table = session.create_table("records").map_err(text)?;
        Ok(Place { server, _home: home, session, table, values: vec![Vec::new(); BATCH] })
    }

    /// Puts these, in one batch.
    fn put(&mut self, batch: &[(u64, Last)]) -> Result<(), String> {
        for ((record, last), value) in batch.iter().zip(&mut self.values) {
            last.value(*record, value);
        }
        let keys: Vec<[u8; 16]> = batch.iter().map(|(record, _)| key_of(*record)).collect();
        let items: Vec<(&[u8], &[u8])> =
            keys.iter().zip(&self.values).map(|(key, value)| (&key[..], &value[..])).collect();
        let results = self.session.multi_put(self.table, &items).map_err(text)?;
        results.into_iter().try_for_each(|result| result.map(drop).map_err(text))
    }

    /// Gets all, which are to be these.
    fn verify(&mut self, all: &[Last]) -> Result<(), String> {
        let (mut found, mut wanted) = (Values::new(), Vec::new());
        for (chunk, lasts) in all.chunks(BATCH).enumerate() {
            let records = (0..lasts.len()).map(|index| (chunk * BATCH + index) as u64);
            let keys: Vec<[u8; 16]> = records.clone().map(key_of).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            self.session.multi_get_into(self.table, &keys, &mut found).map_err(text)?;
            for ((index, record), last) in records.enumerate().zip(lasts) {
                last.value(record, &mut wanted);
                if found.get(index) != Some(&wanted[..]) {
                    return Err(format!("record {record} has not the value of its last put"));
                }
            }
        }
        Ok(())
    }

    /// Used bytes and those of segments, once they stay as they are.
    fn memory(&self, still: Duration) -> Result<(u64, u64), String> {
        let (began, mut since, mut before) = (Instant::now(), Instant::now(), (0, 0));
        loop {
            let memory = self.server.shard()?["memory"].clone();
            let bytes = |name: &str| memory[name].as_u64().ok_or_else(|| format!("no {name}"));
            let now = (bytes("used_bytes")?, bytes("segment_bytes")?);
            if now != before || bytes("quarantined_bytes")? > 0 {
                (since, before) = (Instant::now(), now);
            }
            if since.elapsed() >= still || began.elapsed() >= PATIENCE {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What memory was at one moment, in bytes: used, and of segments.
struct Look {
    live: u64,
    churned: (u64, u64),
    fresh: (u64, u64),
}

impl Look {
    fn at(place: &mut Place, all: &[Last], still: Duration) -> Result<Look, String> {
        place.verify(all)?;
        let mut fresh = Place::start("fresh", all.len() as u64)?;
        let batches: Vec<(u64, Last)> = (0..).zip(all.iter().copied()).collect();
        batches.chunks(BATCH).try_for_each(|batch| fresh.put(batch))?;
        fresh.verify(all)?;
        let live = all.iter().map(|last| u64::from(last.bytes) + 16).sum();
        Ok(Look { live, churned: place.memory(still)?, fresh: fresh.memory(still)? })
    }

    fn ratio(&self) -> f64 {
        self.churned.0 as f64 / self.fresh.0 as f64
    }

    fn words(&self) -> String {
        let mb = |bytes: u64| figure(bytes as f64 / 1e6);
        format!(
            "{} of {} MB in segments of {} against {} in {}",
            figure(self.ratio()),
            mb(self.live),
            mb(self.churned.1),
            mb(self.fresh.0),
            mb(self.fresh.1)
        )
    }
}

/// Puts through all waves. What memory was at each look.
fn looks(records: u64, puts: u64, still: Duration) -> Result<Vec<Look>, String> {
    let (wave, mut numbers, mut looks) = (puts / WAVES, Numbers(29), Vec::new());
    let mut place = Place::start("churn", records)?;
    let mut all = vec![Last::default(); records as usize];
    let mut batch: Vec<(u64, Last)> = Vec::new();
    let look_at: Vec<u64> = (1..=LOOKS).map(|look| puts - wave + wave * look / LOOKS).collect();
    for number in 0..records + puts {
        // First each once, then any.
        let (record, put) = match number.checked_sub(records) {
            None => (number, 0),
            Some(put) => (((u128::from(numbers.next()) * u128::from(records)) >> 64) as u64, put + 1),
        };
        let last = Last::of(put, wave, &mut numbers);
        all[record as usize] = last;
        // Of two puts of a record in a batch the later one counts.
        batch.retain(|(other, _)| *other != record);
        batch.push((record, last));
        let is_look = look_at.contains(&put);
        if batch.len() == BATCH || is_look {
            place.put(&batch)?;
            batch.clear();
        }
        if is_look {
            looks.push(Look::at(&mut place, &all, still)?);
        }
        if put % (1 << 20) == 1 {
            progress::show(&format!("changing sizes: {} %", put * 100 / puts));
        }
    }
    Ok(looks)
}

/// The row.
pub(super) fn row(records: u64, is_full: bool) -> Result<Row, String> {
    let records = records.min(RECORDS);
    let (puts, still) = if is_full { (PUTS, STILL) } else { (records * PUTS_SMALL, STILL_SMALL) };
    let looks = looks(records, puts, still)?;
    let worst = looks.iter().max_by(|one, other| one.ratio().total_cmp(&other.ratio())).expect("some");
    let moments = ["rising", "highest", "falling", "lowest"];
    let told: Vec<String> =
        moments.iter().zip(&looks).map(|(moment, look)| format!("{moment} {}", look.words())).collect();
    Ok(Row {
        id: "churn".into(),
        name: "used segment bytes after an hour of changing sizes / of a fresh load".into(),
        ours: worst.churned.0 as f64 / 1e6,
        other: Some(worst.fresh.0 as f64 / 1e6),
        unit: "MB",
        ratio: worst.ratio(),
        wanted: Some(1.3),
        sense: Sense::AtMost,
        note: format!("{records} records, {puts} puts; the worst of: {}", told.join("; ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rise_and_fall_as_they_should() {
        let mut numbers = Numbers(1);
        for (at, middle) in [(0, 128.0), (250, 362.0), (500, 1024.0), (750, 362.0), (1000, 128.0)] {
            let sizes: Vec<f64> =
                (0..1000).map(|_| f64::from(Last::of(at, 1000, &mut numbers).bytes)).collect();
            assert!(sizes.iter().all(|bytes| (middle / 2.0 - 1.0..=middle * 2.0).contains(bytes)), "{at}");
            let below = sizes.iter().filter(|bytes| **bytes < middle).count();
            assert!((400..600).contains(&below), "{below} at {at}");
        }
    }

    #[test]
    fn values_are_of_one_record_and_one_put() {
        let mut values =
            [(7, 3, 100), (7, 4, 100), (8, 3, 100), (7, 3, 99)].map(|(record, number, bytes)| {
                let mut value = Vec::new();
                Last { number, bytes }.value(record, &mut value);
                assert_eq!(value.len(), bytes as usize);
                value
            });
        assert!(values[3][..] == values[0][..99], "the same, cut");
        values[3].push(0);
        values.sort_unstable();
        assert!(values.windows(2).all(|two| two[0] != two[1]));
    }
}
