//! Puts into a primary that mirrors follow against the same into one that nobody follows.
//!
//! A block of one begins when all mirrors of the one before have come to rest.

use std::time::{Duration, Instant};

use kelix_report::interleave::{self, compared as between};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, as_rate, compared};

use super::data::{BATCH, Kind, Marker, Reader, Tally, Writer};
use super::hosts::Hosts;
use super::{MEMORY_BYTES_MIN, RECORD_BYTES, Size};

/// Rounds, and how long a block is.
const FULL: (usize, Duration) = (25, Duration::from_millis(400));
const SMALL: (usize, Duration) = (2, Duration::from_millis(20));
/// Records, at most.
const RECORDS: u64 = 100_000;

/// A primary with mirrors, who puts there, and who looks when it has come to rest.
struct Side {
    writer: Writer,
    marker: Marker,
    readers: Vec<Reader>,
    /// Puts that were measured, and from the first of a block until rest processor time of the primary and of
    /// who puts, and of the mirrors.
    puts: u64,
    processor: [Duration; 2],
    // Dropped behind all sessions.
    hosts: Hosts,
}

impl Side {
    fn start(name: &str, mirrors: usize, records: u64) -> Result<Side, String> {
        let mut hosts = Hosts::start(name, (records * RECORD_BYTES).max(MEMORY_BYTES_MIN))?;
        let mut writer = Writer::open(&hosts, records, 1)?;
        Kind::ALL.into_iter().try_for_each(|kind| writer.load(kind))?;
        (0..mirrors).try_for_each(|_| hosts.attach())?;
        let open = |mirror| Reader::open(mirror, &writer, 7);
        let readers = hosts.mirrors.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let marker = Marker::open(&hosts)?;
        Ok(Side { writer, marker, readers, puts: 0, processor: [Duration::ZERO; 2], hosts })
    }

    /// Puts for so long. Nanoseconds for a put.
    fn block(&mut self, time: Duration) -> Result<f64, String> {
        let (before, began, mut puts) = (self.hosts.processor_times(), Instant::now(), 0);
        while began.elapsed() < time {
            self.writer.put(Kind::Records, BATCH)?;
            puts += BATCH as u64;
        }
        let time = began.elapsed();
        for reader in &mut self.readers {
            reader.wait_for(&mut self.marker)?;
        }
        self.puts += puts;
        let after = self.hosts.processor_times();
        for (sum, (before, after)) in self.processor.iter_mut().zip(before.into_iter().zip(after)) {
            *sum += after.saturating_sub(before);
        }
        Ok(time.as_nanos() as f64 / puts as f64)
    }

    /// Processor time of a put where the primary is, and where the mirrors are, in nanoseconds.
    fn processor_ns(&self) -> [f64; 2] {
        self.processor.map(|time| time.as_nanos() as f64 / self.puts.max(1) as f64)
    }
}

/// The rows.
pub(super) fn rows(size: Size, tally: &mut Tally) -> Result<Vec<Row>, String> {
    progress::show("put_rate");
    let (rounds, block) = size.choose(FULL, SMALL);
    let records = size.records.min(RECORDS);
    let mut sides = [
        Side::start("rate-alone", 0, records)?,
        Side::start("rate-one", 1, records)?,
        Side::start("rate-four", 4, records)?,
    ];
    let times = interleave::take_blocks(rounds, sides.len(), |side| sides[side].block(block))?;
    for Side { readers, writer, .. } in &mut sides {
        for reader in readers {
            reader.read_all(Kind::Records, writer)?;
            tally.add(reader.tally);
        }
    }
    let row = |id, name, side: usize, wanted| {
        let comparison = as_rate(between(&times[side], &times[0]));
        let ([there, of_mirrors], [alone, _]) = (sides[side].processor_ns(), sides[0].processor_ns());
        let note = format!(
            "ratio of rates; processor time of the primary and of who puts {there:.0} ns a put against \
             {alone:.0} ns ({:.2}), and of the mirrors {of_mirrors:.0} ns; mirrors were let go {} times; ",
            alone / there,
            sides[side].hosts.let_go()
        );
        Row { sense: Sense::AtLeast, ..compared(id, name, "ns a put", wanted, comparison, &note) }
    };
    Ok(vec![
        row("put_rate_1", "puts with 64 under way into a server that a mirror follows / none", 1, 0.85),
        row("put_rate_4", "the same with four mirrors / none", 2, 0.6),
    ])
}
