//! The rows.

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::Engines;
use super::engine::Engine;
use crate::workload::{Batch, Keys, batches};
use kelix_report::cores::{cores, pin_to};
use kelix_report::interleave::{Comparison, compared, median, take_turns};
use kelix_report::report::{Row, Sense, as_rate};

/// Sizes of a batch that each engine is tried with, and most bytes of the values of one.
const SIZES: [usize; 5] = [1, 16, 64, 256, 1024];
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// For how long each is tried, for each round of the row.
const TRIAL: Duration = Duration::from_millis(3);
/// Operations that are prepared for a row, and most bytes of their values.
const PREPARED: usize = 1 << 17;
const PREPARED_BYTES: usize = 64 << 20;
/// Of these a small run, which only checks that all works, has one in so many.
const PREPARED_SMALL: usize = 16;
/// Operations of one call between two looks at the clock.
const CALL: usize = 1 << 12;
const CALL_BYTES: usize = 8 << 20;
/// How busy a peer's server must be to be measured by its rate.
const BUSY: f64 = 0.95;

/// What a row does: keys, and how many operations in a hundred are gets.
pub(super) struct Work {
    pub keys: Keys,
    pub gets_percent: u64,
}

/// Gets only, and puts only.
pub(super) const GETS: u64 = 100;
pub(super) const PUTS: u64 = 0;
/// HydraDB's mixes, section 6.1, with what is wanted of batches and of one operation at a time.
const MIXES: [(&str, u64, f64, f64); 3] =
    [("c", 100, 10.0, 40.0), ("b", 90, 8.0, 25.0), ("a", 50, 8.0, 15.0)];

impl Engines {
    /// The keys of rows that are about something else.
    pub fn keys(&self) -> Keys {
        self.setup.keys.clone().unwrap_or(Keys::Uniform)
    }

    /// The keys of mixes.
    fn mixed_keys(&self) -> Vec<Keys> {
        self.setup.keys.clone().map_or(vec![Keys::Uniform, Keys::Zipf], |keys| vec![keys])
    }

    fn gets(&self) -> Work {
        Work { keys: self.keys(), gets_percent: GETS }
    }

    fn puts(&self) -> Work {
        Work { keys: self.keys(), gets_percent: PUTS }
    }

    /// Operations of a row, cut into batches.
    fn work(&self, work: &Work, size: usize) -> Vec<Batch> {
        let share = if self.setup.is_small() { PREPARED_SMALL } else { 1 };
        let count = (PREPARED.min(PREPARED_BYTES / self.records.value_bytes) / share).max(size);
        batches(&work.keys.draw(5, self.records.count, count), size, work.gets_percent)
    }

    /// Batches of one call.
    fn call(&self, size: usize) -> usize {
        (CALL.min(CALL_BYTES / self.records.value_bytes) / size).max(1)
    }

    /// Measures all engines by the same calls, which differ by the size of each engine's batches.
    fn measure(
        &mut self,
        mut call: impl FnMut(&mut dyn Engine, usize) -> Result<u64, String>,
    ) -> Result<Measured, String> {
        self.all.iter_mut().for_each(|engine| {
            engine.take_busy();
            engine.take_cost();
        });
        let all = &mut self.all;
        let times = take_turns(self.setup.rounds, all.len(), |side| call(all[side].as_mut(), side))?;
        let busy = all.iter_mut().map(|engine| engine.take_busy()).collect();
        Ok(Measured { times, busy, cost: all[0].take_cost(), compared: self.compared, sizes: Vec::new() })
    }

    /// Batches one after the other, or several at once.
    fn measure_batches(&mut self, sizes: &[usize], together: bool) -> Result<Measured, String> {
        // To begin several threads takes a while.
        let few = if self.setup.clients == 1 { 16 } else { 256 };
        let calls: Vec<usize> =
            sizes.iter().map(|size| if together { self.call(*size) } else { few }).collect();
        let measured = self.measure(|engine, index| engine.run(calls[index], together))?;
        Ok(Measured { sizes: sizes.to_vec(), ..measured })
    }

    /// One operation at a time.
    pub fn one_at_a_time(&mut self, work: &Work) -> Result<Measured, String> {
        let batches = self.work(work, 1);
        self.all.iter_mut().for_each(|engine| engine.prepare(&batches));
        self.measure_batches(&vec![1; self.all.len()], false)
    }

    /// Batches, of the size that is best for each engine.
    pub fn at_best(&mut self, work: &Work) -> Result<(Measured, String), String> {
        let value_bytes = self.records.value_bytes;
        let mut sizes = Vec::new();
        for index in 0..self.all.len() {
            let mut best = (f64::MAX, 0);
            for size in SIZES.into_iter().filter(|size| *size == 1 || size * value_bytes <= BATCH_BYTES) {
                let (batches, call) = (self.work(work, size), self.call(size));
                let engine = &mut self.all[index];
                engine.prepare(&batches);
                engine.run(call, true)?;
                let (began, mut operations) = (Instant::now(), 0);
                while began.elapsed() < TRIAL * self.setup.rounds as u32 {
                    operations += engine.run(call, true)?;
                }
                let time = began.elapsed().as_secs_f64() / operations as f64;
                if time < best.0 {
                    best = (time, size);
                }
            }
            let batches = self.work(work, best.1);
            self.all[index].prepare(&batches);
            sizes.push(best.1);
        }
        let said: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        Ok((self.measure_batches(&sizes, true)?, format!("batches of {}; ", said.join(", "))))
    }

    /// A row of how many times better we are than the better peer.
    pub fn row(
        &self,
        id: String,
        name: &str,
        wanted: impl Into<Option<f64>>,
        measured: &Measured,
        note: &str,
    ) -> Row {
        let (peer, comparison) = measured.better_peer();
        let mut all = measured.cost.as_ref().map_or(String::new(), |cost| format!("{cost}; "));
        for (index, engine) in self.all.iter().enumerate().skip(1) {
            let _ = write!(all, "{} {:.0} ns", engine.name(), median(&measured.times[index]));
            if let Some(busy) = measured.busy[index] {
                let low = if busy < BUSY { ", not enough" } else { "" };
                let _ = write!(all, " ({:.0} % busy{low})", busy * 100.0);
            }
            all.push_str("; ");
        }
        Row {
            id: id.into(),
            name: format!("{name} / {}", self.all[peer].name()).into(),
            ours: comparison.ours_ns,
            other: Some(comparison.other_ns),
            unit: "ns",
            ratio: comparison.ratio,
            wanted: wanted.into(),
            sense: Sense::AtLeast,
            note: format!("{all}{note}{}", comparison.spread()),
        }
    }
}

/// Times of all engines, by engine and round, and how busy their servers were.
pub(super) struct Measured {
    times: Vec<Vec<f64>>,
    busy: Vec<Option<f64>>,
    /// What ours cost.
    cost: Option<String>,
    compared: usize,
    /// Operations of a batch, by engine.
    sizes: Vec<usize>,
}

impl Measured {
    /// The better peer, and how many times better we are.
    fn better_peer(&self) -> (usize, Comparison) {
        let peer = (1..self.compared)
            .min_by(|a, b| median(&self.times[*a]).total_cmp(&median(&self.times[*b])))
            .expect("there are peers");
        (peer, as_rate(compared(&self.times[0], &self.times[peer])))
    }

    fn ours_ns(&self) -> f64 {
        median(&self.times[0])
    }
}

/// Memory an item.
pub(super) fn memory(engines: &mut Engines) -> Vec<Row> {
    let count = engines.records.count as f64;
    let bytes: Vec<f64> = engines.all.iter_mut().map(|engine| engine.memory_bytes() as f64 / count).collect();
    let (ours, other) = (bytes[0], bytes[1..engines.compared].iter().copied().fold(f64::MAX, f64::min));
    let each: Vec<String> = engines
        .all
        .iter()
        .zip(&bytes)
        .map(|(engine, bytes)| format!("{} {bytes:.0}", engine.name()))
        .collect();
    vec![Row {
        id: "memory".into(),
        name: "memory an item, all that the server has from the system".into(),
        ours,
        other: Some(other),
        unit: "bytes",
        ratio: ours / other,
        wanted: Some(0.7),
        sense: Sense::AtMost,
        note: format!("16-byte keys, 32-byte values; {}", each.join(", ")),
    }]
}

/// One operation at a time.
pub(super) fn latencies(engines: &mut Engines) -> Result<Vec<Row>, String> {
    let get = engines.one_at_a_time(&engines.gets())?;
    let mut at = vec![1; engines.all.len()];
    let dependent = engines.measure(|engine, index| {
        for _ in 0..16 {
            at[index] = engine.follow(at[index])?;
        }
        Ok(16)
    })?;
    let put = engines.one_at_a_time(&engines.puts())?;
    // Where client and server share a core no other core has to wake for an answer.
    let cores = cores();
    let for_servers = engines.setup.threads.min(cores - 1).max(1);
    pin_to(cores - for_servers..cores);
    let near = engines.one_at_a_time(&engines.gets());
    pin_to(0..(cores - for_servers).max(1));
    let name = "get, one at a time, the client on the servers' cores";
    let near = Row { wanted: None, ..engines.row("get_latency_near".into(), name, 40.0, &near?, "") };
    Ok(vec![
        engines.row("get_latency".into(), "get, one at a time", 40.0, &get, ""),
        near,
        engines.row("get_latency_dep".into(), "get, next key from the last answer", 20.0, &dependent, ""),
        engines.row("put_latency".into(), "put, one at a time", 10.0, &put, ""),
    ])
}

/// Batches of gets, and of puts.
pub(super) fn rates(engines: &mut Engines) -> Result<Vec<Row>, String> {
    let (get, get_note) = engines.at_best(&engines.gets())?;
    let (put, put_note) = engines.at_best(&engines.puts())?;
    Ok(vec![
        engines.row("multiget_rate".into(), "gets at the best batch", 10.0, &get, &get_note),
        engines.row("put_rate".into(), "puts at the best batch", 5.0, &put, &put_note),
    ])
}

/// HydraDB's mixes, in batches and one at a time, and how much dearer puts make them.
pub(super) fn mixes(engines: &mut Engines) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for keys in engines.mixed_keys() {
        let suffix = keys.name().to_lowercase();
        let mut ours = Vec::new();
        for (mix, gets_percent, in_batches, alone) in MIXES {
            let work = Work { keys: keys.clone(), gets_percent };
            let name = format!("{gets_percent}:{} {}", 100 - gets_percent, keys.name());
            let (measured, note) = engines.at_best(&work)?;
            let id = format!("mix_{mix}_{suffix}");
            rows.push(engines.row(id, &format!("{name} at the best batch"), in_batches, &measured, &note));
            let measured = engines.one_at_a_time(&work)?;
            let id = format!("sync_{mix}_{suffix}");
            rows.push(engines.row(id, &format!("{name}, one at a time"), alone, &measured, ""));
            ours.push(measured.ours_ns());
        }
        let theirs = match keys {
            Keys::Uniform => Some(2.83),
            Keys::Zipf => Some(3.46),
            Keys::Latest | Keys::Trace(_) => None,
        };
        rows.push(Row {
            id: format!("get_ratio_{suffix}").into(),
            name: "our rate at 100 % gets against 50 %, one at a time".into(),
            ours: ours[0],
            other: Some(ours[2]),
            unit: "ns",
            ratio: ours[2] / ours[0],
            wanted: theirs,
            sense: Sense::AtLeast,
            note: theirs.map_or(String::new(), |theirs| format!("HydraDB, section 6.1: {theirs} x")),
        });
    }
    Ok(rows)
}

/// One operation at a time once more, where the system places clients and servers. They stay so.
pub(super) fn placed(engines: &mut Engines) -> Result<Vec<Row>, String> {
    engines.all.iter_mut().for_each(|engine| engine.unpin());
    let one = |engines: &mut Engines, id: String, name: &str, work: &Work| {
        let measured = engines.one_at_a_time(work)?;
        let name = format!("{name}, one at a time, placed by the system");
        Ok::<_, String>(engines.row(format!("{id}_placed"), &name, None, &measured, ""))
    };
    let (gets, puts) = (engines.gets(), engines.puts());
    let mut rows = vec![
        one(engines, "get_latency".into(), "get", &gets)?,
        one(engines, "put_latency".into(), "put", &puts)?,
    ];
    for keys in engines.mixed_keys() {
        for (mix, gets_percent, ..) in MIXES {
            let id = format!("sync_{mix}_{}", keys.name().to_lowercase());
            let name = format!("{gets_percent}:{} {}", 100 - gets_percent, keys.name());
            rows.push(one(engines, id, &name, &Work { keys: keys.clone(), gets_percent })?);
        }
    }
    Ok(rows)
}

/// Gets of long values, also against copying as many bytes.
pub(super) fn long(engines: &mut Engines, id: &'static str, name: &'static str) -> Result<Vec<Row>, String> {
    let (measured, note) = engines.at_best(&engines.gets())?;
    let mut rows = vec![engines.row(id.into(), name, 3.0, &measured, &note)];
    let copied = copies(engines, measured.sizes[0])?;
    rows.push(Row {
        id: format!("{id}_copy").into(),
        name: "the same against copying and comparing as many bytes".into(),
        ours: copied.ours_ns,
        other: Some(copied.other_ns),
        unit: "ns",
        ratio: copied.ratio,
        wanted: Some(0.5),
        sense: Sense::AtLeast,
        note: copied.spread(),
    });
    Ok(rows)
}

/// Gets, in batches of this size, against copies of as many bytes from as much memory. Both look at what they
/// got.
fn copies(engines: &mut Engines, size: usize) -> Result<Comparison, String> {
    let records = engines.records;
    let bytes = records.value_bytes;
    let drawn = engines.keys().draw(5, records.count, (PREPARED_BYTES / bytes).min(PREPARED));
    let mut memory = Vec::with_capacity(records.count as usize * bytes);
    (0..records.count).for_each(|record| records.write_value(record, &mut memory));
    let mut wanted = Vec::with_capacity(drawn.len() * bytes);
    drawn.iter().for_each(|record| records.write_value(*record, &mut wanted));
    let ours = &mut engines.all[0];
    ours.prepare(&batches(&drawn, size, GETS));
    let (mut buffer, mut at) = (vec![0; bytes], 0);
    let mut copy = || {
        let from = drawn[at] as usize * bytes;
        buffer.copy_from_slice(&memory[from..from + bytes]);
        assert!(records.same(&buffer, &wanted[at * bytes..(at + 1) * bytes]), "a copy");
        at = (at + 1) % drawn.len();
        Ok(1)
    };
    let times =
        take_turns(engines.setup.rounds, 2, |side| if side == 0 { ours.run(1, false) } else { copy() })?;
    Ok(as_rate(compared(&times[0], &times[1])))
}

/// One at a time and in batches, over TCP.
pub(super) fn over_tcp(engines: &mut Engines) -> Result<Vec<Row>, String> {
    let get = engines.one_at_a_time(&engines.gets())?;
    let (rate, note) = engines.at_best(&engines.gets())?;
    Ok(vec![
        engines.row("tcp_get".into(), "get over TCP, one at a time", 1.0, &get, ""),
        engines.row("tcp_rate".into(), "gets over TCP at the best batch", 4.0, &rate, &note),
    ])
}
