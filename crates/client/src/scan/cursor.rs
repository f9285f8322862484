//! Where a scan is, and asking the shard for what comes next.

use kelix_image::ItemView;
use kelix_types::limits::{FRAME_BYTES_MAX, KEY_BYTES_MAX};
use kelix_types::{Error, ErrorKind, Result, TableId};
use kelix_wire::{Op, RequestHead, ScanArgument, ScanEntry, ScanReply};

use crate::engine::{Buffers, Engine, check_answer};
use crate::ordered::Hint;
use crate::transport::Answer;

/// Bytes of both ends of a range in one message.
const BOUNDS_BYTES_MAX: usize = FRAME_BYTES_MAX - 256;

/// What a scan has found.
pub(crate) enum Found<'a> {
    /// Numbers and their values.
    Values(&'a [[u64; 2]]),
    Item(ItemView<'a>),
    /// The key of an item that has to be fetched by itself.
    Key(&'a [u8]),
}

/// The keys that are still to come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Range {
    /// From the first of two numbers to the second.
    Numbers(u64, u64),
    /// From a string on to below another; none: to the end.
    Strings(Vec<u8>, Option<Vec<u8>>),
    /// Of a hash table: from a position of a shard on, and all of the shards behind it.
    Unordered { shard: usize, position: u64 },
}

impl Range {
    /// Where it begins, in bytes: the first key, or of a hash table the seed of the hashes, the shard and the
    /// position.
    pub fn place(&self, seed: u64) -> Vec<u8> {
        match self {
            Range::Numbers(low, _) => low.to_be_bytes().to_vec(),
            Range::Strings(lower, _) => lower.clone(),
            Range::Unordered { shard, position } => {
                [seed, *shard as u64, *position].into_iter().flat_map(u64::to_be_bytes).collect()
            }
        }
    }

    /// The range of a hash table from a place on; `None`: it is of another store, or none.
    pub fn of_place(place: &[u8], seed: u64) -> Option<Range> {
        let words: Vec<[u8; 8]> = place.chunks(8).map(|word| word.try_into().ok()).collect::<Option<_>>()?;
        let [of, shard, position] = <[_; 3]>::try_from(words).ok()?.map(u64::from_be_bytes);
        (of == seed).then_some(Range::Unordered { shard: shard as usize, position })
    }
}

/// A scan under way.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    pub table: TableId,
    pub range: Range,
    pub backwards: bool,
    pub left: u64,
    pub done: bool,
    /// Where the next leaf probably is, where leaves are read.
    pub hint: Hint,
    /// How often in a row leaves were read in vain.
    pub in_vain: u64,
}

pub(crate) fn number_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("a key of this table"))
}

/// The first key behind all those that begin with these bytes; `None`: they are the last.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut key = prefix.to_vec();
    while key.last() == Some(&u8::MAX) {
        key.pop();
    }
    *key.last_mut()? += 1;
    Some(key)
}

/// The first string above another.
pub(crate) fn after_string(key: &[u8]) -> Option<Vec<u8>> {
    // No key is longer.
    if key.len() == KEY_BYTES_MAX { after_prefix(key) } else { Some([key, &[0][..]].concat()) }
}

pub(crate) fn nonsense() -> Error {
    Error::unnamed(ErrorKind::Protocol, "a page of a scan that makes no sense")
}

impl Cursor {
    /// The number that it looks for first, as a key; none in a table of strings.
    pub fn first_number(&self) -> Option<[u8; 8]> {
        match self.range {
            Range::Numbers(low, high) => Some(if self.backwards { high } else { low }.to_be_bytes()),
            Range::Strings(..) | Range::Unordered { .. } => None,
        }
    }

    /// Whether there is nothing left to look for.
    pub fn is_over(&self) -> bool {
        let empty = match &self.range {
            Range::Numbers(low, high) => low > high,
            Range::Strings(lower, upper) => upper.as_ref().is_some_and(|upper| lower >= upper),
            Range::Unordered { .. } => false,
        };
        self.done || self.left == 0 || empty
    }

    /// Goes on behind a number.
    pub fn pass_number(&mut self, number: u64) {
        let Range::Numbers(low, high) = &mut self.range else { unreachable!("a table of numbers") };
        let (end, next) = match self.backwards {
            false => (low, number.checked_add(1)),
            true => (high, number.checked_sub(1)),
        };
        match next {
            Some(next) => *end = next,
            None => self.done = true,
        }
    }

    /// Goes on behind a key.
    pub fn pass(&mut self, key: &[u8]) {
        match &mut self.range {
            Range::Numbers(..) => self.pass_number(number_of(key)),
            Range::Strings(_, upper) if self.backwards => *upper = Some(key.to_vec()),
            Range::Strings(lower, _) => match after_string(key) {
                Some(next) => *lower = next,
                None => self.done = true,
            },
            // Only pages know where they end.
            Range::Unordered { .. } => {}
        }
    }

    /// Goes on behind a page of a hash table. `Ok(false)`: it is of another.
    pub fn pass_page(&mut self, engine: &Engine, reply: &ScanReply<'_>) -> Result<bool> {
        match &mut self.range {
            // A page may be empty, but leads on.
            Range::Unordered { position, .. } if !reply.end && reply.position <= *position => Err(nonsense()),
            Range::Unordered { position, .. } if !reply.end => {
                *position = reply.position;
                Ok(true)
            }
            Range::Unordered { .. } => {
                self.done = !self.pass_shard(engine);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Goes on with the next shard of a hash table. `false`: there is none.
    pub fn pass_shard(&mut self, engine: &Engine) -> bool {
        match &mut self.range {
            Range::Unordered { shard, position } if *shard + 1 < engine.transport.shards() => {
                (*shard, *position) = (*shard + 1, 0);
                true
            }
            _ => false,
        }
    }

    /// Whether a key is behind the end of the range.
    fn is_behind(&self, key: &[u8]) -> bool {
        match (&self.range, self.backwards) {
            (Range::Numbers(_, high), false) => number_of(key) > *high,
            (Range::Numbers(low, _), true) => number_of(key) < *low,
            (Range::Strings(_, upper), false) => upper.as_ref().is_some_and(|upper| key >= &upper[..]),
            (Range::Strings(lower, _), true) => key < &lower[..],
            (Range::Unordered { .. }, _) => false,
        }
    }

    /// The ends of the range as messages have them: the first key, and the first behind the last. None: there
    /// is no such end.
    fn ends(&self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        match &self.range {
            Range::Numbers(low, high) => (
                (*low > 0).then(|| low.to_be_bytes().to_vec()),
                high.checked_add(1).map(|end| end.to_be_bytes().to_vec()),
            ),
            Range::Strings(lower, upper) => {
                (Some(lower).filter(|lower| !lower.is_empty()).cloned(), upper.clone())
            }
            Range::Unordered { position, .. } => (Some(position.to_be_bytes().to_vec()), None),
        }
    }

    /// Whether both ends go into one message whatever key stands in place of the one from which the scan goes
    /// on.
    pub fn fits_one_message(&self) -> bool {
        let (lower, upper) = self.ends();
        let end = if self.backwards { lower } else { upper };
        end.is_none_or(|end| end.len() + KEY_BYTES_MAX <= BOUNDS_BYTES_MAX)
    }

    /// The shard that has what comes next.
    pub fn shard(&self, engine: &Engine) -> usize {
        match self.range {
            Range::Unordered { shard, .. } => shard,
            // An ordered table is all on one.
            _ => engine.transport.route(self.table, &[]).1,
        }
    }

    /// The request for the next page, or the next count: its head, its key and its body.
    pub fn request(&self, most: u64, wanted: ScanArgument) -> (RequestHead, Vec<u8>, Vec<u8>) {
        let (lower, upper) = self.ends();
        let (from, end) = if self.backwards { (upper, lower) } else { (lower, upper) };
        // Where both are so long that they do not go into one message, the end is looked for here.
        let bytes = |key: &Option<Vec<u8>>| key.as_ref().map_or(0, |key| key.len().next_multiple_of(8));
        let end = if bytes(&from) + bytes(&end) <= BOUNDS_BYTES_MAX { end } else { None };
        let argument = ScanArgument {
            limit: self.left.min(most).min(u64::from(u32::MAX)) as u32,
            after: self.backwards,
            from: from.is_some(),
            until: end.is_some(),
            backwards: self.backwards,
            ..wanted
        };
        let head =
            RequestHead { argument: Some(argument.word()), ..RequestHead::new(Op::Scan, 0, self.table) };
        (head, from.unwrap_or_default(), end.unwrap_or_default())
    }

    /// Asks the shard for the next page, or the next count.
    pub fn ask(&self, engine: &mut Engine, most: u64, wanted: ScanArgument) -> Result<Answer> {
        let (head, from, end) = self.request(most, wanted);
        let answer = engine.call(self.shard(engine), head, &from, &end)?;
        check_answer(&answer)?;
        Ok(answer)
    }

    /// Brings the next keys, at most so many, from memory or from the shard.
    #[inline]
    pub fn next_page(
        &mut self,
        engine: &mut Engine,
        buffers: &mut Buffers,
        most: u64,
        take: &mut impl FnMut(&mut Engine, Found<'_>) -> Result<u64>,
    ) -> Result<()> {
        engine.note_operation()?;
        if engine.read_pages(self, most, buffers, take)? {
            return Ok(());
        }
        match self.ask_page(engine, most, take) {
            // Where nobody can be asked it looks further for a leaf by itself.
            Err(error) if engine.is_alone(self.table, &error) => {
                self.in_vain = 0;
                let found = engine.read_pages(self, most, buffers, take)?;
                if found { Ok(()) } else { Err(error) }
            }
            asked => asked,
        }
    }

    /// Asks the shard for the next page, and hands what it brings to `take`, which says how many of them
    /// count.
    pub fn ask_page(
        &mut self,
        engine: &mut Engine,
        most: u64,
        take: &mut impl FnMut(&mut Engine, Found<'_>) -> Result<u64>,
    ) -> Result<()> {
        let answer = self.ask(engine, most, ScanArgument::default())?;
        self.take_page(engine, &answer, take)
    }

    /// Hands what an answer brings to `take`, which says how many of it count.
    pub fn take_page(
        &mut self,
        engine: &mut Engine,
        answer: &Answer,
        take: &mut impl FnMut(&mut Engine, Found<'_>) -> Result<u64>,
    ) -> Result<()> {
        let reply = self.reply(answer)?;
        let mut any = false;
        self.in_vain = 0;
        for entry in reply {
            let entry = entry.ok_or_else(nonsense)?;
            any = true;
            let value;
            let (key, found) = match &entry {
                ScanEntry::Inline(number, of_number) => {
                    value = [[*number, *of_number]];
                    (&number.to_be_bytes()[..], Found::Values(&value))
                }
                ScanEntry::Item(view) => (view.key(), Found::Item(*view)),
                ScanEntry::Key(key) => (*key, Found::Key(key)),
            };
            if self.is_behind(key) {
                self.done = true;
                return Ok(());
            }
            self.pass(key);
            self.left -= take(engine, found)?.min(self.left);
        }
        if !self.pass_page(engine, &reply)? {
            self.done |= reply.end || !any;
        }
        Ok(())
    }

    pub fn reply<'a>(&self, answer: &'a Answer) -> Result<ScanReply<'a>> {
        ScanReply::new(self.table, &answer.item).ok_or_else(nonsense)
    }
}
