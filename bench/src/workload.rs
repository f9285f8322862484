//! Workloads as data: records, how often which is asked for, and batches of gets and puts of them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::Error;
use crate::store::{Numbers, Walk};

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 16;

/// Values from so many bytes on are compared in part, pieces of so many bytes by their first so many.
const LONG: usize = 1 << 10;
const PIECE: usize = 1 << 10;
const COMPARED: usize = 64;

/// The key of a record: printable, since some protocols are text.
pub(crate) fn key(record: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"user000000000000";
    let mut rest = record;
    for digit in key.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The records under measurement: how many, and how long their values are.
#[derive(Clone, Copy)]
pub(crate) struct Records {
    pub count: u64,
    pub value_bytes: usize,
    walk: Walk,
}

impl Records {
    /// So many records with values of so many bytes: a multiple of 8, and 32 at least.
    pub fn new(count: u64, value_bytes: usize) -> Records {
        assert!(value_bytes >= 32 && value_bytes % 8 == 0, "values of {value_bytes} bytes");
        Records { count, value_bytes, walk: Walk::over(count) }
    }

    /// Whether bytes that came are the wanted ones. Of long values 64 bytes of each KiB are compared, and the
    /// last, so that comparing is not what is measured.
    pub fn same(&self, bytes: &[u8], wanted: &[u8]) -> bool {
        if bytes.len() != wanted.len() || self.value_bytes < LONG {
            return bytes == wanted;
        }
        let begin = |piece: &[u8]| piece.len().min(COMPARED);
        let mut pieces = bytes.chunks(PIECE).zip(wanted.chunks(PIECE));
        let end = bytes.len() - begin(bytes);
        pieces.all(|(piece, wanted)| piece[..begin(piece)] == wanted[..begin(wanted)])
            && bytes[end..] == wanted[end..]
    }

    /// Appends a record's value: which record follows, whose it is, what both fix, and words that follow from
    /// its number.
    pub fn write_value(&self, record: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.walk.value_of(record));
        for index in 4..self.value_bytes as u64 / 8 {
            out.extend_from_slice(&(record.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index).to_le_bytes());
        }
    }
}

/// How often which record is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keys {
    /// All alike.
    Uniform,
    /// The k-th most popular 1 / k^0.99 as often as the first.
    Zipf,
    /// The same, where those that were put last are the most popular.
    Latest,
    /// As in a trace, over and over.
    Trace(Arc<[u64]>),
}

impl Keys {
    /// Reads a choice: `uniform`, `zipf`, `latest`, or `trace` and a file with a key a line.
    pub fn parse(choice: &str, file: Option<&Path>) -> Result<Keys, Error> {
        let wrong = |text: String| Err(Error::Usage(text));
        match (choice, file) {
            ("uniform", None) => Ok(Keys::Uniform),
            ("zipf", None) => Ok(Keys::Zipf),
            ("latest", None) => Ok(Keys::Latest),
            ("trace", Some(file)) => Keys::read(file),
            ("trace", None) => wrong("trace needs a file: --keys trace FILE".into()),
            ("uniform" | "zipf" | "latest", Some(_)) => wrong(format!("{choice} takes no file")),
            _ => wrong(format!("no such keys: {choice}; there are uniform, zipf, latest and trace FILE")),
        }
    }

    /// Numbers the keys of a trace in the order in which each comes first.
    fn read(file: &Path) -> Result<Keys, Error> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let mut numbers: HashMap<&str, u64> = HashMap::new();
        let keys = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let trace: Arc<[u64]> = keys
            .map(|key| {
                let next = numbers.len() as u64;
                *numbers.entry(key).or_insert(next)
            })
            .collect();
        if trace.is_empty() {
            let text = format!("{}: there is no key in it; it is to have one a line", file.display());
            return Err(Error::Usage(text));
        }
        Ok(Keys::Trace(trace))
    }

    /// How it is called in rows and notes.
    pub fn name(&self) -> &'static str {
        match self {
            Keys::Uniform => "uniform",
            Keys::Zipf => "Zipf",
            Keys::Latest => "latest",
            Keys::Trace(_) => "trace",
        }
    }

    /// So many records drawn. A trace of more keys than there are records begins again with the first.
    pub(crate) fn draw(&self, seed: u64, records: u64, count: usize) -> Vec<u64> {
        match self {
            Keys::Uniform => Numbers(seed).records(records, count),
            Keys::Zipf => Numbers(seed).popular(records, count),
            Keys::Latest => {
                let ranks = Numbers(seed).popular(records, count);
                ranks.into_iter().map(|rank| records - 1 - rank).collect()
            }
            Keys::Trace(trace) => trace.iter().cycle().take(count).map(|number| number % records).collect(),
        }
    }
}

/// Records to get and records to put, sent together.
#[derive(Clone, Default)]
pub(crate) struct Batch {
    pub gets: Vec<u64>,
    pub puts: Vec<u64>,
}

impl Batch {
    /// Number of operations.
    pub fn len(&self) -> usize {
        self.gets.len() + self.puts.len()
    }
}

/// Cuts records into batches of this size; so many operations in a hundred are gets.
pub(crate) fn batches(drawn: &[u64], size: usize, gets_percent: u64) -> Vec<Batch> {
    let mut numbers = Numbers(7);
    let mut batch = |records: &[u64]| {
        let mut batch = Batch::default();
        for record in records {
            let get = numbers.share() * 100.0 < gets_percent as f64;
            if get { &mut batch.gets } else { &mut batch.puts }.push(*record);
        }
        batch
    };
    drawn.chunks_exact(size).map(&mut batch).collect()
}

/// Batches with their keys and values, in memory one after the other, as what is said to a peer is.
#[derive(Default)]
pub(crate) struct Prepared {
    keys: Vec<[u8; KEY_BYTES]>,
    values: Vec<u8>,
    value_bytes: usize,
    /// Where the gets of each batch end among the keys, and then its puts.
    ends: Vec<(usize, usize)>,
}

impl Prepared {
    pub fn new(batches: &[Batch], records: Records) -> Prepared {
        let mut prepared = Prepared { value_bytes: records.value_bytes, ..Prepared::default() };
        for batch in batches {
            for record in batch.gets.iter().chain(&batch.puts) {
                prepared.keys.push(key(*record));
                records.write_value(*record, &mut prepared.values);
            }
            let end = prepared.keys.len();
            prepared.ends.push((end - batch.puts.len(), end));
        }
        prepared
    }

    /// Number of batches.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    pub fn batch(&self, index: usize) -> Keyed<'_> {
        let first = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (gets_end, end) = self.ends[index];
        Keyed {
            keys: &self.keys[first..end],
            values: &self.values[first * self.value_bytes..end * self.value_bytes],
            value_bytes: self.value_bytes,
            gets: gets_end - first,
        }
    }
}

/// A batch with its keys and values: those to be got with what is to come, and then those to be put.
#[derive(Clone, Copy)]
pub(crate) struct Keyed<'p> {
    keys: &'p [[u8; KEY_BYTES]],
    values: &'p [u8],
    value_bytes: usize,
    gets: usize,
}

impl<'p> Keyed<'p> {
    /// Keys to get, with the values that are to come.
    pub fn gets(self) -> impl Iterator<Item = (&'p [u8], &'p [u8])> {
        self.items().take(self.gets)
    }

    /// Keys to put, with their values.
    pub fn puts(self) -> impl Iterator<Item = (&'p [u8], &'p [u8])> {
        self.items().skip(self.gets)
    }

    fn items(self) -> impl Iterator<Item = (&'p [u8], &'p [u8])> {
        self.keys.iter().map(|key| &key[..]).zip(self.values.chunks_exact(self.value_bytes))
    }

    /// How many keys are got, and put.
    pub fn counts(self) -> (usize, usize) {
        (self.gets, self.keys.len() - self.gets)
    }

    /// What is said of a key whose value was not the wanted one.
    pub fn wrong(key: &[u8]) -> String {
        format!("{} has a value that was not put", String::from_utf8_lossy(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_keys_and_values_of_their_own() {
        assert_eq!(&key(0), b"user000000000000");
        assert_eq!(&key(9_876_543_210), b"user009876543210");
        let records = Records::new(100, 40);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        records.write_value(1, &mut one);
        records.write_value(2, &mut other);
        assert_eq!((one.len(), other.len()), (40, 40));
        assert_ne!(one[32..], other[32..]);
        assert!(records.same(&one, &one) && !records.same(&one, &other) && !records.same(&one, &one[1..]));
    }

    #[test]
    fn a_long_value_that_is_cut_or_another_is_not_the_same() {
        let records = Records::new(100, 5000);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        records.write_value(1, &mut one);
        records.write_value(1, &mut other);
        assert!(records.same(&one, &other));
        other[4999] ^= 1;
        assert!(!records.same(&one, &other));
        assert!(!records.same(&one, &one[..4992]));
    }

    #[test]
    fn a_trace_is_read_and_followed() {
        let file = std::env::temp_dir().join(format!("kelix-bench-trace-{}", std::process::id()));
        std::fs::write(&file, "a\nb\n\n a \nc\n").unwrap();
        let keys = Keys::parse("trace", Some(&file)).unwrap();
        assert_eq!(keys.draw(1, 100, 6), [0, 1, 0, 2, 0, 1]);
        assert_eq!(keys.draw(1, 2, 4), [0, 1, 0, 0], "no more records than there are");
        std::fs::write(&file, "\n").unwrap();
        assert!(
            matches!(Keys::parse("trace", Some(&file)), Err(Error::Usage(text)) if text.contains("no key"))
        );
        std::fs::remove_file(&file).unwrap();
        assert!(Keys::parse("trace", Some(&file)).is_err() && Keys::parse("trace", None).is_err());
        assert!(Keys::parse("zipf", Some(&file)).is_err() && Keys::parse("others", None).is_err());
    }

    /// Each step of the search for a rank had drawn another number, so that popular records were less popular
    /// than they should be.
    #[test]
    fn popular_records_are_as_popular_as_they_should_be() {
        let power = |rank: u64| (rank as f64).powf(-0.99);
        let share = |count| (1..=count).map(power).sum::<f64>() / (1..=1000).map(power).sum::<f64>();
        let (popular, latest) = (Keys::Zipf.draw(1, 1000, 100_000), Keys::Latest.draw(1, 1000, 100_000));
        for count in [1, 10, 100] {
            let first = popular.iter().filter(|record| **record < count).count() as f64 / 100_000.0;
            let last = latest.iter().filter(|record| **record >= 1000 - count).count() as f64 / 100_000.0;
            assert!((first - share(count)).abs() < 0.01, "{first} of the first {count}");
            assert!((last - share(count)).abs() < 0.01, "{last} of the last {count}");
        }
    }

    #[test]
    fn batches_are_prepared_in_their_order() {
        let records = Records::new(100, 32);
        let batches = [
            Batch { gets: vec![3], puts: vec![] },
            Batch { gets: vec![1], puts: vec![2, 4] },
            Batch::default(),
        ];
        let prepared = Prepared::new(&batches, records);
        assert_eq!(
            (prepared.len(), prepared.batch(0).counts(), prepared.batch(2).counts()),
            (3, (1, 0), (0, 0))
        );
        let second = prepared.batch(1);
        assert!(second.gets().map(|(key, _)| key).eq([&key(1)[..]]));
        for ((said, value), record) in second.puts().zip([2, 4]) {
            let mut wanted = Vec::new();
            records.write_value(record, &mut wanted);
            assert_eq!((said, value), (&key(record)[..], &wanted[..]));
        }
        assert_eq!(second.puts().count(), 2);
    }

    #[test]
    fn batches_have_the_share_of_gets_that_was_asked_for() {
        let drawn = Keys::Uniform.draw(1, 1000, 10_000);
        let (gets, all) = batches(&drawn, 64, 90)
            .iter()
            .fold((0, 0), |(gets, all), batch| (gets + batch.gets.len(), all + batch.len()));
        assert_eq!(all, 10_000 / 64 * 64);
        assert!((0.88..0.92).contains(&(gets as f64 / all as f64)), "{gets} of {all}");
        assert!(batches(&drawn, 1, 100).iter().all(|batch| batch.puts.is_empty()));
    }
}
