//! The records in the primary, their writer, and readers that check what they find.
//!
//! There are three tables with the same records. Each value tells how often its record was put, by a checksum
//! that only this record's have. Records are put in the order of their numbers, round after round, so it is
//! known how often each was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix::{Completion, Cost, ErrorKind, Item, NewItem, Outcome, Rows, Scan, Session, Table, TableKind};
use kelix_report::report::{Row, told};

use super::hosts::{Host, Hosts};
use super::{PATIENCE, text};
use crate::store::{Numbers, Walk, key_of, number_of, numbered_value};

/// Puts that are under way at once.
pub(super) const BATCH: usize = 64;
/// Keys of a scan.
pub(super) const SCAN_KEYS: u64 = 100;
/// Bytes of a value, of which large ones have several.
pub(super) const VALUE_BYTES: usize = 32;
/// Reads of a call.
const GETS: u64 = 64;
const SCANS: u64 = 4;
/// The name of a chain's links.
const NEXT: &str = "next";
/// The key of the item that a measurement puts and then waits for.
const MARKER: &str = "marker";
/// Batches a second of a stream, at most, while they are not larger than [`BATCH`].
const BATCHES: u64 = 1500;
/// How much a stream may be late before it gives up catching up.
const LATE: Duration = Duration::from_millis(20);

/// A table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of plain items.
    Records,
    /// Of items with links, which lead through all of them.
    Chain,
    /// Of numbers in order.
    Ordered,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Records, Kind::Chain, Kind::Ordered];

    fn table(self) -> (&'static str, TableKind) {
        match self {
            Kind::Records => ("records", TableKind::Hash),
            Kind::Chain => ("chain", TableKind::Hash),
            Kind::Ordered => ("ordered", TableKind::Numbers),
        }
    }

    /// What a record of this table is in its values, which differ from the other tables'.
    pub fn named(self, record: u64) -> u64 {
        record | (self as u64 + 1) << 56
    }

    fn write_key(self, record: u64, into: &mut Vec<u8>) {
        match self {
            Kind::Ordered => into.extend_from_slice(&record.to_be_bytes()),
            Kind::Records | Kind::Chain => into.extend_from_slice(&key_of(record)),
        }
    }
}

/// Opens the tables, or makes them.
fn tables(session: &mut Session) -> Result<[Table; 3], String> {
    let mut open = |kind: Kind| {
        let (name, kind) = kind.table();
        session.create_table_of(kind, name).map_err(text)
    };
    Ok([open(Kind::Records)?, open(Kind::Chain)?, open(Kind::Ordered)?])
}

/// Who puts the records. There is one at a time.
pub(super) struct Writer {
    session: Session,
    tables: [Table; 3],
    walk: Walk,
    pub records: u64,
    /// How often a value stands in what is put, one behind the other.
    copies: usize,
    /// Puts into each table so far.
    puts: [u64; 3],
    keys: Vec<u8>,
    values: Vec<u8>,
    completions: Vec<Completion>,
}

impl Writer {
    /// Somebody who puts so many records.
    pub fn open(hosts: &Hosts, records: u64, copies: usize) -> Result<Writer, String> {
        let mut session = hosts.primary.session()?;
        let tables = tables(&mut session)?;
        Ok(Writer {
            session,
            tables,
            walk: Walk::over(records),
            records,
            copies,
            puts: [0; 3],
            keys: Vec::new(),
            values: Vec::new(),
            completions: Vec::new(),
        })
    }

    /// Puts all records of a table once.
    pub fn load(&mut self, kind: Kind) -> Result<(), String> {
        let mut left = self.records;
        while left > 0 {
            let count = left.min(BATCH as u64) as usize;
            self.put(kind, count)?;
            left -= count as u64;
        }
        Ok(())
    }

    /// Puts the next records of a table.
    pub fn put(&mut self, kind: Kind, count: usize) -> Result<(), String> {
        self.keys.clear();
        self.values.clear();
        let begin = self.puts[kind as usize];
        self.puts[kind as usize] += count as u64;
        for put in begin..begin + count as u64 {
            let (record, number) = (put % self.records, put / self.records + 1);
            kind.write_key(record, &mut self.keys);
            let value = numbered_value(kind.named(record), number);
            (0..self.copies).for_each(|_| self.values.extend_from_slice(&value));
        }
        let keys = self.keys.chunks_exact(self.keys.len() / count);
        let items = keys.zip(self.values.chunks_exact(self.copies * VALUE_BYTES));
        let table = self.tables[kind as usize];
        if kind != Kind::Chain {
            let items: Vec<(&[u8], &[u8])> = items.collect();
            if let [(key, value)] = items[..] {
                return self.session.put(table, key, value).map(drop).map_err(text);
            }
            let results = self.session.multi_put(table, &items).map_err(text)?;
            return results.into_iter().try_for_each(|result| result.map(drop).map_err(text));
        }
        for (put, (key, value)) in (begin..).zip(items) {
            let next = next_of(self.walk, put % self.records, self.records);
            let item = NewItem::new().bytes("", value).link(NEXT, table, &key_of(next));
            self.session.submit_item(table, key, &item).map_err(text)?;
        }
        let mut left = count;
        while left > 0 {
            left -= self.session.poll(&mut self.completions).map_err(text)?;
            for Completion { outcome, .. } in self.completions.drain(..) {
                let Outcome::Written(_) = outcome.map_err(text)? else {
                    return Err("no put has ended".into());
                };
            }
        }
        Ok(())
    }

    /// How often a record was put.
    pub fn number_of(&self, kind: Kind, record: u64) -> u64 {
        let puts = self.puts[kind as usize];
        puts / self.records + u64::from(record < puts % self.records)
    }
}

/// The record that the link of one leads to.
fn next_of(walk: Walk, record: u64, records: u64) -> u64 {
    (record + walk.step_of(1)) % records
}

/// Puts that go on beside something else.
pub(super) struct Stream {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Result<(Writer, f64), String>>,
}

impl Stream {
    /// Begins to put records of a table, so many a second or as many as there is time for.
    pub fn start(mut writer: Writer, kind: Kind, a_second: u64) -> Stream {
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let count = a_second.div_ceil(BATCHES).clamp(1, BATCH as u64);
        let put = move || {
            let (began, mut puts) = (Instant::now(), 0);
            // Moments at which batches are due; a stream that is far behind begins anew from now on.
            let between = Duration::from_secs_f64(count as f64 / a_second as f64);
            let mut due = began;
            // SYNC: only a flag; the thread is joined.
            while !told.load(Ordering::Relaxed) {
                writer.put(kind, count as usize)?;
                puts += count;
                due += between;
                let now = Instant::now();
                match due.checked_duration_since(now) {
                    Some(left) => std::thread::sleep(left),
                    None if now - due > LATE => due = now,
                    None => {}
                }
            }
            Ok((writer, puts as f64 / began.elapsed().as_secs_f64()))
        };
        Stream { ends, thread: std::thread::spawn(put) }
    }

    /// Ends it. Who put, and how many a second these were.
    pub fn end(self) -> Result<(Writer, f64), String> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "a thread has panicked")?
    }
}

/// Who puts something to be waited for. Numbers never go back, whoever puts them.
pub(super) struct Marker {
    session: Session,
    table: Table,
}

/// The last number of any marker.
static MARKED: AtomicU64 = AtomicU64::new(0);

impl Marker {
    pub fn open(hosts: &Hosts) -> Result<Marker, String> {
        let mut session = hosts.primary.session()?;
        let [table, ..] = tables(&mut session)?;
        Ok(Marker { session, table })
    }

    /// Puts a number, which is told.
    pub fn put(&mut self) -> Result<u64, String> {
        // SYNC: only a number that nobody else has.
        let number = MARKED.fetch_add(1, Ordering::Relaxed) + 1;
        let value = numbered_value(u64::MAX, number);
        self.session.put(self.table, MARKER, &value).map_err(text)?;
        Ok(number)
    }
}

/// What was read, and what of that was wrong.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    reads: u64,
    /// Older than what the same session had read before, or than it has to be.
    stale: u64,
    /// Nothing that was ever put, or at the end of a link that leads elsewhere.
    mixed: u64,
    /// How often a session was told that its mirror had been copied anew, and read once more.
    anew: u64,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.reads += other.reads;
        self.stale += other.stale;
        self.mixed += other.mixed;
        self.anew += other.anew;
    }

    /// The row about it.
    pub fn row(self) -> Row {
        let name = "reads of all rows that are older than one before of the same session, or mixed";
        let wrong = (self.stale + self.mixed) as f64;
        let note = format!(
            "{} reads: {} stale, {} mixed; {} were done again since their mirror had been copied anew",
            self.reads, self.stale, self.mixed, self.anew
        );
        Row { note, ..told("stale_reads", name, "reads", wrong, Some(0.0)) }
    }
}

/// Reads, and once more where the mirror was copied anew meanwhile: a session goes over to that with its next
/// call.
#[inline(always)]
fn patiently<T>(tally: &mut Tally, mut read: impl FnMut() -> kelix::Result<T>) -> Result<T, String> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Superseded => tally.anew += 1,
            done => return done.map_err(text),
        }
    }
}

/// A session that reads, of a mirror or of its primary.
pub(super) struct Reader {
    session: Session,
    tables: [Table; 3],
    walk: Walk,
    records: u64,
    copies: usize,
    /// By table and record the number that was read last.
    seen: [Vec<u32>; 3],
    seen_marker: u64,
    pub tally: Tally,
    buffer: Vec<u8>,
    draw: Numbers,
    /// Where in the chain it is.
    item: Item,
    record: u64,
    rows: Rows,
}

impl Reader {
    /// A session of a server that has what the writer has put.
    pub fn open(host: &Host, writer: &Writer, seed: u64) -> Result<Reader, String> {
        let mut session = host.session()?;
        let open = |session: &mut Session, kind: Kind| session.table(kind.table().0).map_err(text);
        let tables = [
            open(&mut session, Kind::Records)?,
            open(&mut session, Kind::Chain)?,
            open(&mut session, Kind::Ordered)?,
        ];
        let item = session.get(tables[Kind::Chain as usize], &key_of(0)).map_err(text)?;
        Ok(Reader {
            session,
            tables,
            walk: writer.walk,
            records: writer.records,
            copies: writer.copies,
            seen: std::array::from_fn(|_| vec![0; writer.records as usize]),
            seen_marker: 0,
            tally: Tally::default(),
            buffer: vec![0; writer.copies * VALUE_BYTES],
            draw: Numbers(seed),
            item: item.unwrap_or_default(),
            record: 0,
            rows: Rows::new(),
        })
    }

    pub fn cost(&self) -> Cost {
        self.session.cost()
    }

    /// How old what the mirror shows may be, as it says.
    pub fn lag(&self) -> Option<Duration> {
        self.session.lag()
    }

    /// Reads some records of a table, and tells how many.
    pub fn read(&mut self, kind: Kind) -> Result<u64, String> {
        let below = |draw: &mut Numbers, end: u64| ((u128::from(draw.next()) * u128::from(end)) >> 64) as u64;
        match kind {
            Kind::Records => {
                for _ in 0..GETS {
                    let record = below(&mut self.draw, self.records);
                    self.get(record)?;
                }
                Ok(GETS)
            }
            Kind::Chain => (0..GETS).try_for_each(|_| self.step()).map(|()| GETS),
            Kind::Ordered => {
                for _ in 0..SCANS {
                    let first = below(&mut self.draw, self.records - SCAN_KEYS);
                    self.scan(first)?;
                }
                Ok(SCANS * SCAN_KEYS)
            }
        }
    }

    /// Gets a record.
    pub fn get(&mut self, record: u64) -> Result<(), String> {
        let table = self.tables[Kind::Records as usize];
        let Reader { session, tally, buffer, .. } = self;
        let got = patiently(tally, || session.get_into(table, &key_of(record), buffer))?;
        let (bytes, _) = got.ok_or_else(|| format!("record {record} is absent"))?;
        let all = self.copies * VALUE_BYTES;
        let number = if bytes == all { whole(&self.buffer, Kind::Records.named(record)) } else { None };
        self.note(Kind::Records, record, number);
        Ok(())
    }

    /// Follows the link of the record that it is at.
    fn step(&mut self) -> Result<(), String> {
        let next = next_of(self.walk, self.record, self.records);
        let (table, at) = (self.tables[Kind::Chain as usize], key_of(self.record));
        let Reader { session, tally, item, .. } = self;
        let mut is_lost = false;
        let found = patiently(tally, || {
            // After an error an item is of no use.
            if std::mem::replace(&mut is_lost, true) {
                session.get_item_into(table, &at, item)?;
            }
            session.follow_into(item, NEXT)
        })?;
        if !found {
            return Err(format!("record {next} of the chain is absent"));
        }
        self.record = next;
        let is_it = self.item.key() == key_of(next);
        let number = whole(self.item.value(), Kind::Chain.named(next)).filter(|_| is_it);
        self.note(Kind::Chain, next, number);
        Ok(())
    }

    /// Scans some numbers from one on.
    fn scan(&mut self, first: u64) -> Result<(), String> {
        let scan = Scan::all().numbers(first..).limit(SCAN_KEYS);
        let table = self.tables[Kind::Ordered as usize];
        let Reader { session, tally, rows, .. } = self;
        patiently(tally, || session.scan_into(table, &scan, rows))?;
        if self.rows.len() as u64 != SCAN_KEYS {
            return Err(format!("a scan from {first} brought {} keys", self.rows.len()));
        }
        for index in 0..SCAN_KEYS as usize {
            let record = first + index as u64;
            let is_it = self.rows.key(index) == record.to_be_bytes();
            let number = whole(self.rows.value(index), Kind::Ordered.named(record)).filter(|_| is_it);
            self.note(Kind::Ordered, record, number);
        }
        Ok(())
    }

    /// Notes what was read of a record: `None`, if that was nothing that it ever had.
    #[inline]
    fn note(&mut self, kind: Kind, record: u64, number: Option<u64>) {
        let seen = &mut self.seen[kind as usize][record as usize];
        self.tally.reads += 1;
        match number {
            None => self.tally.mixed += 1,
            Some(number) if number < u64::from(*seen) => self.tally.stale += 1,
            Some(number) => *seen = number as u32,
        }
    }

    /// Whether what was put by a [`Marker`] under this number is there.
    pub fn sees(&mut self, number: u64) -> Result<bool, String> {
        let mut value = [0; VALUE_BYTES];
        let table = self.tables[Kind::Records as usize];
        let Reader { session, tally, .. } = self;
        let got = patiently(tally, || session.get_into(table, MARKER, &mut value))?;
        let found = got.map_or(Some(0), |_| number_of(&value, u64::MAX));
        self.tally.reads += 1;
        match found {
            None => self.tally.mixed += 1,
            Some(found) if found < self.seen_marker => self.tally.stale += 1,
            Some(found) => self.seen_marker = found,
        }
        Ok(self.seen_marker >= number)
    }

    /// Waits until all is there that was put before this.
    pub fn wait_for(&mut self, marker: &mut Marker) -> Result<(), String> {
        let (number, began) = (marker.put()?, Instant::now());
        while !self.sees(number)? {
            if began.elapsed() > PATIENCE {
                return Err("a mirror does not come to what its primary has".into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Reads all records of a table, which were put before and are put no more: each has to be as it was put
    /// last.
    pub fn read_all(&mut self, kind: Kind, writer: &Writer) -> Result<(), String> {
        match kind {
            Kind::Records => (0..self.records).try_for_each(|record| self.get(record))?,
            Kind::Chain => (0..self.records).try_for_each(|_| self.step())?,
            Kind::Ordered => {
                let end = self.records - SCAN_KEYS;
                let firsts = (0..end).step_by(SCAN_KEYS as usize).chain([end]);
                firsts.into_iter().try_for_each(|first| self.scan(first))?;
            }
        }
        let is_old = |record: &u64| {
            let seen = u64::from(self.seen[kind as usize][*record as usize]);
            seen != writer.number_of(kind, *record)
        };
        self.tally.stale += (0..self.records).filter(is_old).count() as u64;
        Ok(())
    }
}

/// The number that a value of a record carries, if all of it belongs together.
fn whole(value: &[u8], named: u64) -> Option<u64> {
    let (first, others) = value.split_at_checked(VALUE_BYTES)?;
    let number = number_of(first, named)?;
    others.chunks(VALUE_BYTES).all(|other| other == first).then_some(number)
}
