//! Scans of ordered tables: ranges, pages, counts.
//!
//! A scan is a row of pages, each of which goes on behind the last key of the one before. It is not one moment of the table: a
//! key that is there from the scan's beginning to its end comes exactly once, one that is put or deleted meanwhile at most
//! once.

use std::collections::VecDeque;
use std::sync::Arc;

use kelix_image::{ItemFlags, ItemHeader, ItemView, inline_item};
use kelix_types::limits::{FRAME_BYTES_MAX, KEY_BYTES_MAX, READ_RETRIES_MAX, SCAN_KEYS_MAX};
use kelix_types::{Error, ErrorKind, Result, TableId, TableKind};
use kelix_wire::{Op, RequestHead, ScanArgument, ScanEntry, ScanReply};

use crate::Table;
use crate::core::Answer;
use crate::item::Item;
use crate::ordered::{Hint, LeafPage};
use crate::rows::Rows;
use crate::session::{Session, check_answer, check_key};

/// Keys of one page of a [`Scanner`].
const PAGE_KEYS: u32 = 256;

const SCAN: &str = "scan";

/// Bytes of both ends of a range in one message.
const BOUNDS_BYTES_MAX: usize = FRAME_BYTES_MAX - 256;

/// Which keys of an ordered table, and in which order: all of them upwards, unless something else is said.
///
/// ```
/// use kelix::Scan;
/// let of_march = Scan::all().from(b"2026-03").until(b"2026-04").limit(100);
/// let newest = Scan::all().backwards().limit(10);
/// let of_user = Scan::prefix(b"user17:");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scan {
    lower: Bound,
    upper: Bound,
    prefix: Vec<u8>,
    backwards: bool,
    limit: Option<u64>,
}

/// Where a range ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Bound {
    #[default]
    None,
    /// Between the keys below this one and this one.
    Before(Vec<u8>),
    /// Between this key and those above it.
    After(Vec<u8>),
}

impl Bound {
    /// The first key above it; `Ok(None)`: all are above it, `Err`: none is.
    fn first_above(&self, kind: TableKind) -> std::result::Result<Option<Vec<u8>>, ()> {
        match self {
            Bound::None => Ok(None),
            Bound::Before(key) => Ok(Some(key.clone())),
            Bound::After(key) if kind.has_numbers() => {
                let number = u64::from_be_bytes(key[..].try_into().expect("a key of this table"));
                Ok(Some(number.checked_add(1).ok_or(())?.to_be_bytes().to_vec()))
            }
            // No key is longer.
            Bound::After(key) if key.len() == KEY_BYTES_MAX => {
                first_after_prefix(kind, key).ok_or(()).map(Some)
            }
            Bound::After(key) => Ok(Some([key, &[0][..]].concat())),
        }
    }

    fn key(&self) -> Option<&[u8]> {
        match self {
            Bound::None => None,
            Bound::Before(key) | Bound::After(key) => Some(key),
        }
    }
}

impl Scan {
    /// All keys.
    pub fn all() -> Scan {
        Scan::default()
    }

    /// The keys that begin with these bytes.
    pub fn prefix(prefix: &[u8]) -> Scan {
        Scan { prefix: prefix.to_vec(), ..Scan::default() }
    }

    /// No keys below this one.
    pub fn from(mut self, key: &[u8]) -> Scan {
        self.lower = Bound::Before(key.to_vec());
        self
    }

    /// No keys but those above this one.
    pub fn after(mut self, key: &[u8]) -> Scan {
        self.lower = Bound::After(key.to_vec());
        self
    }

    /// No keys but those below this one.
    pub fn until(mut self, key: &[u8]) -> Scan {
        self.upper = Bound::Before(key.to_vec());
        self
    }

    /// No keys above this one.
    pub fn to(mut self, key: &[u8]) -> Scan {
        self.upper = Bound::After(key.to_vec());
        self
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

    /// What it means for a table.
    fn resolve(&self, operation: &'static str, table: TableId) -> Result<Cursor> {
        let kind = table.kind();
        if !kind.is_ordered() {
            let context =
                "a hash table has no order; scans are for tables made with `kelix table create --ordered`";
            return Err(Error::new(ErrorKind::InvalidArgument, operation, context));
        }
        for key in [&self.lower, &self.upper].into_iter().filter_map(Bound::key) {
            check_key(operation, table, key)?;
        }
        let mut cursor = Cursor {
            table,
            lower: None,
            upper: None,
            backwards: self.backwards,
            last: None,
            left: self.limit.unwrap_or(u64::MAX),
            done: self.limit == Some(0),
            hint: Hint::default(),
        };
        match (self.lower.first_above(kind), self.upper.first_above(kind)) {
            (Ok(lower), upper) => (cursor.lower, cursor.upper) = (lower, upper.unwrap_or(None)),
            (Err(()), _) => cursor.done = true,
        }
        let longest = if kind.has_numbers() { 8 } else { KEY_BYTES_MAX };
        if self.prefix.len() > longest {
            cursor.done = true;
        } else if !self.prefix.is_empty() {
            cursor.keep_to(first_with_prefix(kind, &self.prefix), first_after_prefix(kind, &self.prefix));
        }
        Ok(cursor)
    }
}

/// The first key that begins with these bytes, or would.
fn first_with_prefix(kind: TableKind, prefix: &[u8]) -> Vec<u8> {
    let mut key = prefix.to_vec();
    if kind.has_numbers() {
        key.resize(8, 0);
    }
    key
}

/// The first key behind all those that begin with these bytes; `None`: they are the last.
fn first_after_prefix(kind: TableKind, prefix: &[u8]) -> Option<Vec<u8>> {
    let mut key = prefix.to_vec();
    while key.last() == Some(&u8::MAX) {
        key.pop();
    }
    *key.last_mut()? += 1;
    if kind.has_numbers() {
        key.resize(8, 0);
    }
    Some(key)
}

/// What became of an entry of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Yes,
    /// The item has been replaced meanwhile: the page is to be taken again.
    Again,
    /// It is one that only the shard can bring.
    No,
}

/// A scan under way.
#[derive(Clone, Debug)]
struct Cursor {
    table: TableId,
    /// The first key of the range, and the first behind it.
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    backwards: bool,
    /// The last key that came.
    last: Option<Vec<u8>>,
    left: u64,
    done: bool,
    /// Where the next leaf probably is, where leaves are read.
    hint: Hint,
}

impl Cursor {
    /// Keeps to a range.
    fn keep_to(&mut self, lower: Vec<u8>, upper: Option<Vec<u8>>) {
        if self.lower.as_ref().is_none_or(|known| *known < lower) {
            self.lower = Some(lower);
        }
        if let Some(upper) = upper.filter(|upper| self.upper.as_ref().is_none_or(|known| known > upper)) {
            self.upper = Some(upper);
        }
    }

    /// Asks the shard for the next page, or the next count.
    fn ask(
        &mut self,
        session: &mut Session,
        operation: &'static str,
        most: u32,
        wanted: ScanArgument,
    ) -> Result<Option<Answer>> {
        if self.is_over_now() {
            return Ok(None);
        }
        let (begin, end) = match self.backwards {
            false => (&self.lower, &self.upper),
            true => (&self.upper, &self.lower),
        };
        let from = self.last.as_ref().or(begin.as_ref());
        // Where both are so long that they do not fit one message, the end is looked for here.
        let bytes = |key: Option<&Vec<u8>>| key.map_or(0, |key| key.len().next_multiple_of(8));
        let end = end.as_ref().filter(|end| bytes(from) + bytes(Some(end)) <= BOUNDS_BYTES_MAX);
        let argument = ScanArgument {
            limit: self.left.min(u64::from(most)) as u32,
            after: self.last.is_some() || self.backwards,
            from: from.is_some(),
            until: end.is_some(),
            backwards: self.backwards,
            ..wanted
        };
        let head =
            RequestHead { argument: Some(argument.word()), ..RequestHead::new(Op::Scan, 0, self.table) };
        let key = from.map_or(&[][..], |key| key);
        let shard = session.core.route(self.table, key).1;
        let answer = session.call(operation, shard, head, key, end.map_or(&[][..], |end| end))?;
        check_answer(operation, &answer)?;
        Ok(Some(answer))
    }

    /// Whether a key is behind the end.
    fn is_over(&self, key: &[u8]) -> bool {
        match self.backwards {
            false => self.upper.as_ref().is_some_and(|upper| key >= &upper[..]),
            true => self.lower.as_ref().is_some_and(|lower| key < &lower[..]),
        }
    }

    /// Whether the ends fit one message whatever key stands in place of one of them.
    fn fits_one_message(&self) -> bool {
        let end = if self.backwards { &self.lower } else { &self.upper };
        end.as_ref().is_none_or(|end| end.len() + KEY_BYTES_MAX <= BOUNDS_BYTES_MAX)
    }

    fn reply<'a>(&self, operation: &'static str, answer: &'a Answer) -> Result<ScanReply<'a>> {
        ScanReply::new(self.table, &answer.item).ok_or_else(|| nonsense(operation))
    }

    /// Whether there is nothing left to look for.
    fn is_over_now(&self) -> bool {
        let empty = matches!((&self.lower, &self.upper), (Some(a), Some(b)) if a >= b);
        self.done || self.left == 0 || empty
    }

    /// The numbers that are still to come, in a table of numbers: from the first to the last.
    fn numbers(&self) -> Option<(u64, u64)> {
        let number = |key: &Vec<u8>| u64::from_be_bytes(key[..].try_into().expect("a key of this table"));
        let (mut low, mut high) = (self.lower.as_ref().map_or(0, number), u64::MAX);
        if let Some(upper) = &self.upper {
            high = number(upper).checked_sub(1)?;
        }
        match self.last.as_ref().map(number) {
            Some(last) if self.backwards => high = high.min(last.checked_sub(1)?),
            Some(last) => low = low.max(last.checked_add(1)?),
            None => {}
        }
        (low <= high).then_some((low, high))
    }

    /// The range that is still to come, where leaves are read.
    fn keep_numbers(&mut self, low: u64, high: u64) {
        self.last = None;
        if self.backwards {
            self.upper = high.checked_add(1).map(|upper| upper.to_be_bytes().to_vec());
        } else {
            self.lower = Some(low.to_be_bytes().to_vec());
        }
    }

    /// Reads leaves, and hands at most `most` entries to `take`. `false`: what is left has to be asked for.
    #[inline]
    fn read(
        &mut self,
        session: &mut Session,
        most: u64,
        mut take: impl FnMut(&mut Session, &LeafPage, [u64; 2]) -> Taken,
    ) -> bool {
        let Some((mut low, mut high)) = self.numbers() else {
            self.done = true;
            return true;
        };
        let mut room = most.min(self.left);
        let before = room;
        let mut again = 0;
        let mut found_all = false;
        'pages: while again <= READ_RETRIES_MAX {
            let wanted = if self.backwards { high } else { low };
            if self.backwards {
                self.hint = Hint::default();
            }
            let page = session.core.reader_in_order(self.table).read_page(self.table, wanted, &mut self.hint);
            let Some(page) = page else { break };
            let entries = page.entries();
            for index in 0..entries.len() {
                let entry = entries[if self.backwards { entries.len() - 1 - index } else { index }];
                if entry[0] < low || entry[0] > high {
                    continue;
                }
                if room == 0 {
                    found_all = true;
                    break 'pages;
                }
                match take(session, &page, entry) {
                    Taken::Yes => {}
                    Taken::Again => {
                        (again, self.hint) = (again + 1, Hint::default());
                        continue 'pages;
                    }
                    Taken::No => break 'pages,
                }
                room -= 1;
                // What has been taken is not taken again.
                let next = if self.backwards { entry[0].checked_sub(1) } else { entry[0].checked_add(1) };
                match next {
                    Some(next) if self.backwards => high = next,
                    Some(next) => low = next,
                    None => self.done = true,
                }
            }
            again = 0;
            self.done |= if self.backwards { page.low <= low } else { page.high >= high };
            if self.done || low > high {
                (self.done, found_all) = (true, true);
                break;
            }
            (low, high) = if self.backwards { (low, page.low - 1) } else { (page.high + 1, high) };
        }
        self.left -= before - room;
        self.keep_numbers(low, high);
        found_all
    }

    /// Reads leaves upwards whose keys have inline values: nothing can be wrong with those of a page. `false`: what is left has
    /// to be asked for.
    fn read_values(&mut self, session: &mut Session, rows: &mut Rows) -> bool {
        let Some((mut low, high)) = self.numbers() else {
            self.done = true;
            return true;
        };
        let reader = session.core.reader_in_order(self.table);
        while let Some(page) = reader.read_page(self.table, low, &mut self.hint) {
            let entries = page.entries();
            let first = entries.iter().take_while(|entry| entry[0] < low).count();
            let inside = entries[first..].iter().take_while(|entry| entry[0] <= high).count();
            let taken = self.left.min(inside as u64) as usize;
            entries[first..first + taken].iter().for_each(|entry| rows.push_inline(entry[0], entry[1]));
            self.left -= taken as u64;
            self.done |= page.high >= high;
            if self.done || self.left == 0 {
                return true;
            }
            low = page.high + 1;
        }
        self.keep_numbers(low, high);
        false
    }

    /// Takes note of what a page brought.
    fn note(&mut self, end: bool, keys: u64, last: Option<Vec<u8>>) {
        self.left -= keys.min(self.left);
        self.done = end || keys == 0;
        self.last = last.or(self.last.take());
    }
}

fn nonsense(operation: &'static str) -> Error {
    Error::new(ErrorKind::Protocol, operation, "a page of a scan that makes no sense")
}

/// A scan that brings one item after another, and asks for the next page when one has been used up.
pub struct Scanner<'s> {
    session: &'s mut Session,
    cursor: Cursor,
    page: VecDeque<Item>,
}

impl Scanner<'_> {
    /// The next item; `None`: that was the last.
    pub fn next_item(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.page.pop_front() {
                return self.session.name_attributes(SCAN, item).map(Some);
            }
            if self.cursor.is_over_now() {
                return Ok(None);
            }
            if !self.session.reads_leaves(self.cursor.table) || !self.read_page() {
                self.ask_for_page()?;
            }
        }
    }

    /// Reads the next page. `false`: it has to be asked for.
    fn read_page(&mut self) -> bool {
        let Scanner { session, cursor, page } = self;
        let (table, mut words) = (cursor.table, Vec::new());
        let read = cursor.read(session, u64::from(PAGE_KEYS), |session, leaf, entry| {
            let taken = session.take_entry(table, leaf, entry, &mut words);
            if taken == Taken::Yes {
                page.push_back(Item { words: words.clone(), large: None, names: Arc::default() });
            }
            taken
        });
        if !read {
            session.core.total.fallbacks += 1;
        }
        read || !page.is_empty()
    }

    fn ask_for_page(&mut self) -> Result<()> {
        let Some(answer) = self.cursor.ask(self.session, SCAN, PAGE_KEYS, ScanArgument::default())? else {
            return Ok(());
        };
        let reply = self.cursor.reply(SCAN, &answer)?;
        let (mut keys, mut last, mut over) = (0, None, false);
        for entry in reply {
            let entry = entry.ok_or_else(|| nonsense(SCAN))?;
            keys += 1;
            let item = self.session.item_of(SCAN, self.cursor.table, entry, &mut last)?;
            over = last.as_ref().is_some_and(|last| self.cursor.is_over(last));
            if over {
                break;
            }
            self.page.extend(item);
        }
        self.cursor.note(reply.end || over, keys, last);
        Ok(())
    }
}

impl Iterator for Scanner<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Result<Item>> {
        self.next_item().transpose()
    }
}

impl Session {
    /// Scans an ordered table: the items come one after another, and are fetched in pages.
    pub fn scan(&mut self, table: Table, scan: &Scan) -> Result<Scanner<'_>> {
        let id = self.check_table(SCAN, table)?;
        let cursor = scan.resolve(SCAN, id)?;
        Ok(Scanner { session: self, cursor, page: VecDeque::new() })
    }

    /// Scans an ordered table into a buffer that is reused from scan to scan: keys, and plain values (or the unnamed
    /// attributes).
    pub fn scan_into(&mut self, table: Table, scan: &Scan, rows: &mut Rows) -> Result<()> {
        const OPERATION: &str = "scan_into";
        let id = self.check_table(OPERATION, table)?;
        let mut cursor = scan.resolve(OPERATION, id)?;
        rows.clear();
        if !cursor.fits_one_message() {
            for item in self.scan(table, scan)? {
                let item = item?;
                rows.push(item.key(), item.value(), item.version());
            }
            return Ok(());
        }
        while !cursor.is_over_now() {
            if self.reads_leaves(id) && self.read_rows(&mut cursor, rows) {
                continue;
            }
            let Some(answer) = cursor.ask(self, OPERATION, SCAN_KEYS_MAX as u32, ScanArgument::default())?
            else {
                break;
            };
            let reply = cursor.reply(OPERATION, &answer)?;
            let (mut keys, before) = (0, rows.len());
            let mut last = None;
            for entry in reply {
                keys += 1;
                match entry.ok_or_else(|| nonsense(OPERATION))? {
                    ScanEntry::Inline(key, value) => rows.push_inline(key, value),
                    entry => {
                        if let Some(item) = self.item_of(OPERATION, id, entry, &mut last)? {
                            rows.push(item.key(), item.value(), item.version());
                        }
                    }
                }
            }
            let last = last.or_else(|| (rows.len() > before).then(|| rows.key(rows.len() - 1).to_vec()));
            cursor.note(reply.end, keys, last);
        }
        Ok(())
    }

    /// Reads as many rows as leaves tell. `false`: the next has to be asked for.
    fn read_rows(&mut self, cursor: &mut Cursor, rows: &mut Rows) -> bool {
        if !cursor.table.kind().has_items() && !cursor.backwards {
            return cursor.read_values(self, rows);
        }
        let (table, mut words) = (cursor.table, std::mem::take(&mut self.landing.item));
        let read = cursor.read(self, u64::MAX, |session, leaf, entry| {
            let taken = session.take_entry(table, leaf, entry, &mut words);
            if taken == Taken::Yes {
                let view = ItemView::new(&words).expect("an item that was taken");
                if view.header().flags.has(ItemFlags::ATTRIBUTES) {
                    let item = Item { words: words.clone(), large: None, names: Arc::default() };
                    rows.push(item.key(), item.value(), item.version());
                } else {
                    rows.push(view.key(), view.body(), view.version());
                }
            }
            taken
        });
        self.landing.item = words;
        if !read {
            self.core.total.fallbacks += 1;
        }
        read
    }

    /// Whether pages of a table are read where they stand.
    fn reads_leaves(&self, table: TableId) -> bool {
        self.core.begins_with_index() && table.kind().has_numbers()
    }

    /// Takes the item of an entry into `words`, or what it would be.
    fn take_entry(
        &mut self,
        table: TableId,
        leaf: &LeafPage,
        entry: [u64; 2],
        words: &mut Vec<u64>,
    ) -> Taken {
        if !table.kind().has_items() {
            words.clear();
            words.extend_from_slice(&inline_item(table, entry[0].to_be_bytes(), entry[1]));
            return Taken::Yes;
        }
        if self.core.reader_in_order(table).read_item_of(table, leaf, entry, words).is_none() {
            return Taken::Again;
        }
        let large = ItemHeader::from_word(words[1]).is_some_and(|header| header.flags.has(ItemFlags::LARGE));
        if large { Taken::No } else { Taken::Yes }
    }

    /// The item with the least key of an ordered table.
    pub fn first(&mut self, table: Table) -> Result<Option<Item>> {
        self.scan(table, &Scan::all().limit(1))?.next_item()
    }

    /// The item with the greatest key of an ordered table.
    pub fn last(&mut self, table: Table) -> Result<Option<Item>> {
        self.scan(table, &Scan::all().backwards().limit(1))?.next_item()
    }

    /// Counts the keys of a range, each once.
    pub fn count(&mut self, table: Table, scan: &Scan) -> Result<u64> {
        const OPERATION: &str = "count";
        let id = self.check_table(OPERATION, table)?;
        let mut cursor = scan.resolve(OPERATION, id)?;
        if !cursor.fits_one_message() {
            return self.scan(table, scan)?.try_fold(0, |all, item| item.map(|_| all + 1));
        }
        let mut all = 0;
        let counted = ScanArgument { count: true, ..ScanArgument::default() };
        while let Some(answer) = cursor.ask(self, OPERATION, u32::MAX, counted)? {
            let reply = cursor.reply(OPERATION, &answer)?;
            let last = reply.last_key().map(<[u8]>::to_vec);
            all += answer.version;
            cursor.note(reply.end, answer.version, last);
        }
        Ok(all)
    }

    /// About how many keys a range has, without looking at each: exact for a few, and for more what leaves have on average.
    pub fn estimate(&mut self, table: Table, scan: &Scan) -> Result<u64> {
        const OPERATION: &str = "estimate";
        let id = self.check_table(OPERATION, table)?;
        let mut cursor = Scan { backwards: false, ..scan.clone() }.resolve(OPERATION, id)?;
        if !cursor.fits_one_message() {
            let context = "the end of the range is too long for an estimate; count the keys instead";
            return Err(Error::new(ErrorKind::InvalidArgument, OPERATION, context));
        }
        let about = ScanArgument { estimate: true, ..ScanArgument::default() };
        let answer = cursor.ask(self, OPERATION, u32::MAX, about)?;
        Ok(answer.map_or(0, |answer| answer.version).min(cursor.left))
    }

    /// The item of an entry; `last` becomes its key. None: it is long, and was deleted before it was read.
    fn item_of(
        &mut self,
        operation: &'static str,
        table: TableId,
        entry: ScanEntry<'_>,
        last: &mut Option<Vec<u8>>,
    ) -> Result<Option<Item>> {
        let words = match entry {
            ScanEntry::Inline(key, value) => inline_item(table, key.to_be_bytes(), value).to_vec(),
            ScanEntry::Item(view) => view.words().to_vec(),
            ScanEntry::Key(key) => {
                *last = Some(key.to_vec());
                let found = self.fetch(operation, table, key)?;
                return found.map(|_| self.make_item(operation)).transpose();
            }
        };
        let item = Item { words, large: None, names: Arc::default() };
        let item = self.name_attributes(operation, item)?;
        *last = Some(item.key().to_vec());
        Ok(Some(item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prefix that is longer than any key went to the shard as a key, which ends the connection; of one that was longer
    /// than a number only the first 8 bytes counted.
    #[test]
    fn no_key_begins_with_more_bytes_than_keys_have() {
        for (kind, longest) in [(TableKind::Strings, KEY_BYTES_MAX), (TableKind::Inline, 8)] {
            let cursor = |bytes: usize| {
                Scan::prefix(&vec![1; bytes])
                    .resolve("scan", TableId::new(kind, 1))
                    .expect("an ordered table")
            };
            assert!(!cursor(longest).done && cursor(longest + 1).done);
        }
    }
}
