//! Scans: ranges of ordered tables, all of hash tables; pages, counts.
//!
//! A scan is a row of pages, each of which goes on behind the last key of the one before. It is not one
//! moment of the table: a key that is there from the scan's beginning to its end comes exactly once, one that
//! is put or deleted meanwhile at most once.

mod cursor;
mod page;

use std::collections::VecDeque;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::ops::RangeBounds;
use std::sync::Arc;

use kelix_image::inline_item;
use kelix_types::limits::{KEY_BYTES_MAX, SCAN_KEYS_MAX};
use kelix_types::{Error, ErrorKind, Result, TableId};
use kelix_wire::ScanArgument;

use crate::Table;
use crate::catalogue::BoundTable;
use crate::engine::{Engine, check_key};
use crate::item::{Item, Names};
use crate::ordered::Hint;
use crate::rows::Rows;
use crate::session::Session;

pub(crate) use cursor::{Cursor, Found, Range};
use cursor::{after_prefix, after_string, nonsense, number_of};
pub(crate) use page::PageRead;
pub use page::ScanPage;

/// Keys of one page of a [`Scanner`], and of a submitted one.
const PAGE_KEYS: u64 = 256;

/// Scans that begin together.
const SCANS_AT_ONCE: usize = 16;

/// Which keys of a table, and in which order: all of them upwards, unless something else is said. A hash
/// table has no order: its keys come in any, and only all of them or the first so many can be had.
///
/// ```
/// use kelix::Scan;
/// let of_march = Scan::all().range(b"2026-03"..b"2026-04").limit(100);
/// let small = Scan::all().numbers(..=1000);
/// let newest = Scan::all().backwards().limit(10);
/// let of_user = Scan::prefix(b"user17:");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    prefix: Vec<u8>,
    backwards: bool,
    limit: Option<u64>,
    place: Option<Vec<u8>>,
}

impl Default for Scan {
    fn default() -> Scan {
        let prefix = Vec::new();
        Scan { lower: Unbounded, upper: Unbounded, prefix, backwards: false, limit: None, place: None }
    }
}

fn key_of(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Unbounded => None,
        Included(key) | Excluded(key) => Some(key),
    }
}

impl Scan {
    /// All keys.
    pub fn all() -> Scan {
        Scan::default()
    }

    /// The keys that begin with these bytes.
    pub fn prefix(prefix: &[u8]) -> Scan {
        Scan { prefix: prefix.to_vec(), ..Scan::all() }
    }

    /// The keys of a range: `b"2026-03"..b"2026-04"`, or a pair of [`Bound`]s where its ends are of another
    /// sort.
    pub fn range<'k, K: AsRef<[u8]> + ?Sized + 'k>(mut self, range: impl RangeBounds<&'k K>) -> Scan {
        self.lower = range.start_bound().map(|key| key.as_ref().to_vec());
        self.upper = range.end_bound().map(|key| key.as_ref().to_vec());
        self
    }

    /// The keys of a range of numbers, in a table whose keys are numbers.
    pub fn numbers(self, range: impl RangeBounds<u64>) -> Scan {
        let bytes = |bound: Bound<&u64>| bound.map(|number| number.to_be_bytes());
        let (lower, upper) = (bytes(range.start_bound()), bytes(range.end_bound()));
        self.range((lower.as_ref(), upper.as_ref()))
    }

    /// From the greatest key downwards.
    pub fn backwards(mut self) -> Scan {
        self.backwards = true;
        self
    }

    /// No more keys than this.
    pub fn limit(mut self, keys: u64) -> Scan {
        self.limit = Some(keys);
        self
    }

    /// Goes on where another scan upwards was, as [`Scanner::place`] told: also in another session, and at
    /// another time.
    pub fn resume_at(mut self, place: &[u8]) -> Scan {
        self.place = Some(place.to_vec());
        self
    }

    /// What it means for a table of a server whose keys have hashes of this seed.
    fn resolve(&self, table: TableId, seed: u64) -> Result<Cursor> {
        let kind = table.kind();
        if !kind.is_ordered() {
            return self.resolve_unordered(table, seed);
        }
        if let Some(place) = &self.place {
            let rest = Scan { lower: Included(place.clone()), place: None, ..self.clone() };
            return rest.resolve(table, seed);
        }
        for key in [&self.lower, &self.upper].into_iter().filter_map(key_of) {
            check_key(table, key)?;
        }
        let longest = if kind.has_numbers() { 8 } else { KEY_BYTES_MAX };
        let range = match self.prefix.len() <= longest {
            true if kind.has_numbers() => self.number_range(),
            true => self.string_range(),
            false => None,
        };
        Ok(Cursor {
            table,
            done: range.is_none(),
            range: range.unwrap_or(Range::Strings(Vec::new(), None)),
            backwards: self.backwards,
            left: self.limit.unwrap_or(u64::MAX),
            hint: Hint::default(),
            in_vain: 0,
        })
    }

    /// What it means for a hash table.
    fn resolve_unordered(&self, table: TableId, seed: u64) -> Result<Cursor> {
        let all = Scan { limit: self.limit, place: self.place.clone(), ..Scan::all() };
        if *self != all {
            let context = "a hash table has no order, and is scanned as a whole; ranges are for tables made with `kelix table \
                           create --ordered`";
            return Err(Error::unnamed(ErrorKind::InvalidArgument, context));
        }
        let start = Range::Unordered { shard: 0, position: 0 };
        let range = self.place.as_ref().map_or(Some(start), |place| Range::of_place(place, seed));
        let range = range.ok_or_else(|| {
            let context = "the scan that is to go on was of another store";
            Error::unnamed(ErrorKind::InvalidArgument, context)
        })?;
        Ok(Cursor {
            table,
            range,
            backwards: false,
            left: self.limit.unwrap_or(u64::MAX),
            done: false,
            hint: Hint::default(),
            in_vain: 0,
        })
    }

    /// The numbers from the first to the last; `None`: there are none.
    fn number_range(&self) -> Option<Range> {
        let low = match &self.lower {
            Unbounded => 0,
            Included(key) => number_of(key),
            Excluded(key) => number_of(key).checked_add(1)?,
        };
        let high = match &self.upper {
            Unbounded => u64::MAX,
            Excluded(key) => number_of(key).checked_sub(1)?,
            Included(key) => number_of(key),
        };
        let with_prefix = |byte: u8| {
            let mut key = [byte; 8];
            key[..self.prefix.len()].copy_from_slice(&self.prefix);
            u64::from_be_bytes(key)
        };
        Some(Range::Numbers(low.max(with_prefix(0)), high.min(with_prefix(u8::MAX))))
    }

    /// The strings from the first on to below the second; `None`: there are none.
    fn string_range(&self) -> Option<Range> {
        let lower = match &self.lower {
            Unbounded => Vec::new(),
            Included(key) => key.clone(),
            Excluded(key) => after_string(key)?,
        };
        let upper = match &self.upper {
            Unbounded => None,
            Excluded(key) => Some(key.clone()),
            Included(key) => after_string(key),
        };
        let of_prefix = after_prefix(&self.prefix);
        let upper = [upper, of_prefix].into_iter().flatten().min();
        Some(Range::Strings(lower.max(self.prefix.clone()), upper))
    }
}

/// A scan that brings one item after another, and asks for the next page when one has been used up. As an
/// iterator it ends behind an error.
pub struct Scanner<'s> {
    session: &'s mut Session,
    scan: PausedScan,
}

/// A scan that was set aside: it holds no borrow of its session, which can do something else meanwhile.
#[derive(Clone, Debug)]
pub struct PausedScan {
    cursor: Cursor,
    page: VecDeque<Item>,
    /// That of the table; 0: none.
    generation: u64,
    /// The life of the store that it is of.
    life: u64,
}

impl PausedScan {
    /// Goes on with the scan. An error: it is of another server than the session.
    pub fn resume(self, session: &mut Session) -> Result<Scanner<'_>> {
        session.operate("scan", |session| self.check_life(session))?;
        Ok(Scanner { session, scan: self })
    }

    /// Reads the next keys, at most so many and at least one, into buffers that are reused from page to page.
    /// `Ok(false)`: these were the last. After an error the scan stands where it stood, and the same call
    /// goes on from there.
    pub fn next_rows(&mut self, session: &mut Session, rows: &mut Rows, most: u64) -> Result<bool> {
        session.operate("scan", |session| {
            self.check_life(session)?;
            session.begin_rows(self.cursor.table, rows)?;
            let most = most.max(1);
            // What a scanner left.
            let left = self.page.len().min(usize::try_from(most).unwrap_or(usize::MAX));
            self.page.iter().take(left).for_each(|item| rows.push_item(item));
            let mut cursor = self.cursor.clone();
            while rows.is_empty() && !cursor.is_over() {
                session.fill_rows(&mut cursor, most, rows)?;
            }
            session.check_generation(self.generation)?;
            self.page.drain(..left);
            self.cursor = cursor;
            Ok(!self.page.is_empty() || !self.cursor.is_over())
        })
    }

    /// Refuses a session with another server than the scan's.
    pub(crate) fn check_life(&self, session: &mut Session) -> Result<()> {
        session.heal()?;
        session.catalogue.check_life(&session.engine, self.life, "scan", "begin anew")
    }

    /// The table that it reads.
    pub(crate) fn table(&self) -> TableId {
        self.cursor.table
    }
}

/// Adds what a scan has found to its page, with the names of attributes that are at hand. `Some`: the key of
/// an item that has to be fetched by itself.
fn add_found<'f>(
    page: &mut VecDeque<Item>,
    found: Found<'f>,
    table: TableId,
    names: &(TableId, Arc<Names>),
    of: (u64, u64),
) -> Option<&'f [u8]> {
    let item = |words: &[u64]| Item::of(words.to_vec(), None, names, of);
    match found {
        Found::Values(values) => page
            .extend(values.iter().map(|value| item(&inline_item(table, value[0].to_be_bytes(), value[1])))),
        Found::Item(view) => page.push_back(item(view.words())),
        Found::Key(key) => return Some(key),
    }
    None
}

impl Scanner<'_> {
    /// The next item; `None`: that was the last.
    pub fn next_item(&mut self) -> Result<Option<Item>> {
        self.next_of_page().map_err(|error| error.of("scan"))
    }

    fn next_of_page(&mut self) -> Result<Option<Item>> {
        let Scanner { session, scan: PausedScan { cursor, page, generation, .. } } = self;
        let Session { engine, catalogue, landing, scanned, .. } = &mut **session;
        let (table, generation) = (cursor.table, *generation);
        loop {
            if let Some(item) = page.pop_front() {
                return catalogue.name_attributes(engine, item).map(Some);
            }
            if cursor.is_over() {
                return Ok(None);
            }
            cursor.next_page(engine, scanned, PAGE_KEYS, &mut |engine: &mut Engine, found: Found<'_>| {
                let before = page.len();
                let of = (generation, engine.transport.handles());
                if let Some(key) = add_found(page, found, table, &catalogue.names.last, of) {
                    let table = BoundTable { id: table, generation };
                    page.extend(catalogue.fetch_item(engine, landing, table, key)?);
                }
                Ok((page.len() - before) as u64)
            })?;
            catalogue.check_generation(engine, generation)?;
        }
    }

    /// Where another scan goes on behind what this one has brought, for [`Scan::resume_at`]. `None`: in the
    /// middle of a page, and downwards.
    pub fn place(&self) -> Option<Vec<u8>> {
        let PausedScan { cursor, page, .. } = &self.scan;
        let told = page.is_empty() && !cursor.backwards && !cursor.is_over();
        told.then(|| cursor.range.place(self.session.engine.transport.seed()))
    }

    /// Sets the scan aside, so that its session can do something else until [`PausedScan::resume`].
    pub fn pause(self) -> PausedScan {
        self.scan
    }
}

impl Iterator for Scanner<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Result<Item>> {
        let next = self.next_item().transpose();
        if let Some(Err(_)) = &next {
            // A loop over all items that passes over errors would never end.
            self.scan.cursor.left = 0;
        }
        next
    }
}

impl Session {
    /// Scans a table: the items come one after another, and are fetched in pages.
    pub fn scan(&mut self, table: Table, scan: &Scan) -> Result<Scanner<'_>> {
        let scan = self.open_scan(table, scan)?;
        Ok(Scanner { session: self, scan })
    }

    /// Begins a scan that holds no borrow of the session, and has read nothing yet. Pages of it are read by
    /// [`PausedScan::next_rows`].
    pub fn open_scan(&mut self, table: Table, scan: &Scan) -> Result<PausedScan> {
        self.operate("scan", |session| session.begin_scan(table, scan))
    }

    /// A scan that has read nothing yet.
    pub(crate) fn begin_scan(&mut self, table: Table, scan: &Scan) -> Result<PausedScan> {
        let BoundTable { id, generation } = self.check_table(table)?;
        let transport = &self.engine.transport;
        let (cursor, life) = (scan.resolve(id, transport.seed())?, transport.handles());
        Ok(PausedScan { cursor, page: VecDeque::new(), generation, life })
    }

    /// Scans a table into a buffer that is reused from scan to scan: keys, and plain values (or the unnamed
    /// attributes).
    pub fn scan_into(&mut self, table: Table, scan: &Scan, rows: &mut Rows) -> Result<()> {
        self.read_table("scan_into", table, |session, BoundTable { id, .. }| {
            let cursor = scan.resolve(id, session.engine.transport.seed())?;
            session.scan_range(cursor, rows)
        })
    }

    /// Scans a table many times: does with each scan, and the buffer of the same number, what
    /// [`Session::scan_into`] does. Where memory is within reach of loads, all of them begin at once.
    pub fn multi_scan_into(&mut self, table: Table, scans: &[Scan], rows: &mut [Rows]) -> Result<()> {
        self.read_table("multi_scan_into", table, |session, BoundTable { id, .. }| {
            if scans.len() != rows.len() {
                let context =
                    format!("{} scans, and {} buffers for what they bring", scans.len(), rows.len());
                return Err(Error::unnamed(ErrorKind::InvalidArgument, context));
            }
            for (scans, rows) in scans.chunks(SCANS_AT_ONCE).zip(rows.chunks_mut(SCANS_AT_ONCE)) {
                let seed = session.engine.transport.seed();
                let cursors: Vec<Cursor> =
                    scans.iter().map(|scan| scan.resolve(id, seed)).collect::<Result<_>>()?;
                let begins: Vec<[u8; 8]> = cursors.iter().filter_map(Cursor::first_number).collect();
                let begins: Vec<&[u8]> = begins.iter().map(|begin| &begin[..]).collect();
                if session.engine.transport.begins_with_index() && id.kind().is_ordered() {
                    session.engine.transport.reader_in_order(id).bring_near(id, &begins);
                }
                for (cursor, rows) in cursors.into_iter().zip(rows) {
                    session.scan_range(cursor, rows)?;
                }
            }
            Ok(())
        })
    }

    fn scan_range(&mut self, mut cursor: Cursor, rows: &mut Rows) -> Result<()> {
        self.begin_rows(cursor.table, rows)?;
        while !cursor.is_over() {
            self.fill_rows(&mut cursor, SCAN_KEYS_MAX as u64, rows)?;
        }
        Ok(())
    }

    /// Empties the buffers for rows of a table, whose numbers of the names that are wanted are looked up.
    fn begin_rows(&mut self, table: TableId, rows: &mut Rows) -> Result<()> {
        let Session { engine, catalogue, .. } = self;
        let mut ids = Vec::new();
        if !rows.names().is_empty() {
            let of = catalogue.names_table(engine, table)?;
            for name in rows.names() {
                ids.push(catalogue.known_name(engine, of, name)?);
            }
        }
        rows.begin(ids.into_iter());
        Ok(())
    }

    /// Adds the next keys of a scan, at most so many.
    fn fill_rows(&mut self, cursor: &mut Cursor, most: u64, rows: &mut Rows) -> Result<()> {
        let table = cursor.table;
        let Session { engine, catalogue, landing, scanned, .. } = self;
        cursor.next_page(engine, scanned, most, &mut |engine: &mut Engine, found: Found<'_>| {
            let before = rows.len();
            match found {
                Found::Values(values) => rows.extend(values),
                Found::Item(view) => rows.push(view),
                Found::Key(key) => {
                    let table = BoundTable { id: table, generation: 0 };
                    if let Some(item) = catalogue.fetch_item(engine, landing, table, key)? {
                        rows.push_item(&item);
                    }
                }
            }
            Ok((rows.len() - before) as u64)
        })
    }

    /// The item with the least key of an ordered table.
    pub fn first(&mut self, table: Table) -> Result<Option<Item>> {
        self.read_table("first", table, |session, _| session.scan(table, &Scan::all().limit(1))?.next_item())
    }

    /// The item with the greatest key of an ordered table.
    pub fn last(&mut self, table: Table) -> Result<Option<Item>> {
        let last = Scan::all().backwards().limit(1);
        self.read_table("last", table, |session, _| session.scan(table, &last)?.next_item())
    }

    /// Counts the keys of a range, each once.
    pub fn count(&mut self, table: Table, scan: &Scan) -> Result<u64> {
        self.read_table("count", table, |session, BoundTable { id, .. }| {
            let mut cursor = scan.resolve(id, session.engine.transport.seed())?;
            if !cursor.fits_one_message() {
                return session.scan(table, scan)?.try_fold(0, |all, item| item.map(|_| all + 1));
            }
            let mut all = 0;
            let counted = ScanArgument { count: true, ..ScanArgument::default() };
            while !cursor.is_over() {
                let answer = cursor.ask(&mut session.engine, u64::MAX, counted)?;
                let reply = cursor.reply(&answer)?;
                all += answer.version;
                cursor.left -= answer.version.min(cursor.left);
                if cursor.pass_page(&session.engine, &reply)? {
                    continue;
                }
                cursor.done |= reply.end || answer.version == 0;
                if !cursor.done {
                    cursor.pass(reply.last_key().ok_or_else(nonsense)?);
                }
            }
            Ok(all)
        })
    }

    /// About how many keys a range has, without looking at each: exact for a few, and for more what leaves
    /// have on average. Of a hash table how many there are.
    pub fn estimate(&mut self, table: Table, scan: &Scan) -> Result<u64> {
        self.read_table("estimate", table, |session, BoundTable { id, .. }| {
            let mut cursor =
                Scan { backwards: false, ..scan.clone() }.resolve(id, session.engine.transport.seed())?;
            if !cursor.fits_one_message() {
                let context = "the end of the range is too long for an estimate; count the keys instead";
                return Err(Error::unnamed(ErrorKind::InvalidArgument, context));
            }
            let about = ScanArgument { estimate: true, ..ScanArgument::default() };
            if cursor.is_over() {
                return Ok(0);
            }
            let mut all = cursor.ask(&mut session.engine, u64::MAX, about)?.version;
            while cursor.pass_shard(&session.engine) {
                all += cursor.ask(&mut session.engine, u64::MAX, about)?.version;
            }
            Ok(all.min(cursor.left))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelix_types::TableKind;

    /// A prefix that is longer than any key went to the shard as a key, which ends the connection; of one
    /// that was longer than a number only the first 8 bytes counted.
    #[test]
    fn no_key_begins_with_more_bytes_than_keys_have() {
        for (kind, longest) in [(TableKind::Strings, KEY_BYTES_MAX), (TableKind::Inline, 8)] {
            let cursor = |bytes: usize| {
                Scan::prefix(&vec![1; bytes]).resolve(TableId::new(kind, 1), 0).expect("an ordered table")
            };
            assert!(!cursor(longest).done && cursor(longest + 1).done);
        }
    }
}
