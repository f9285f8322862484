//! The last records that a replica has applied, for others that have applied a few less when it goes on in the
//! primary's place.

use kelix_log::{Record, RecordHead};

/// Words of records that are kept at least, of each shard: what is applied within some milliseconds.
const KEPT_WORDS: usize = 1 << 17;

/// Records of a shard, one behind the other, of which the first one has a number.
#[derive(Default)]
pub struct Backlog {
    words: Vec<u64>,
    first: u64,
}

impl Backlog {
    /// A record was applied, behind those before it.
    pub fn note(&mut self, record: &Record<'_>) {
        let RecordHead { sequence, .. } = record.head;
        if self.words.is_empty() {
            self.first = sequence;
        }
        self.words.extend_from_slice(&record.head.words());
        self.words.extend_from_slice(record.notes);
        if self.words.len() > 2 * KEPT_WORDS {
            self.forget();
        }
    }

    /// Forgets the first ones, as long as enough are kept. One stays, however long.
    fn forget(&mut self) {
        let mut rest = &self.words[..];
        while let Ok(Some((record, behind))) = Record::split(rest) {
            let may_go = behind.len() >= KEPT_WORDS || rest.len() > 2 * KEPT_WORDS && !behind.is_empty();
            if !may_go {
                break;
            }
            self.first = record.head.sequence + 1;
            rest = behind;
        }
        let forgotten = self.words.len() - rest.len();
        self.words.drain(..forgotten);
    }

    /// The words of all records behind one, up to `end`, which is the last. `None`: they are not all there.
    pub fn behind(&self, applied: u64, end: u64) -> Option<&[u64]> {
        if applied == end {
            return Some(&[]);
        }
        let mut rest = &self.words[..];
        if applied > end || self.words.is_empty() || applied + 1 < self.first {
            return None;
        }
        while let Ok(Some((record, behind))) = Record::split(rest) {
            if record.head.sequence > applied {
                return Some(rest);
            }
            rest = behind;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(backlog: &mut Backlog, sequence: u64, words: usize) {
        let notes = vec![sequence; words];
        let head = RecordHead { sequence, last_incarnation: 0, batch: 0, words };
        backlog.note(&Record { head, notes: &notes });
    }

    fn sequences(mut words: &[u64]) -> Vec<u64> {
        let mut sequences = Vec::new();
        while let Some((record, behind)) = Record::split(words).unwrap() {
            assert!(record.notes.iter().all(|word| *word == record.head.sequence));
            sequences.push(record.head.sequence);
            words = behind;
        }
        sequences
    }

    #[test]
    fn the_last_records_are_there() {
        let mut backlog = Backlog::default();
        assert_eq!((backlog.behind(4, 4), backlog.behind(3, 4)), (Some(&[][..]), None));
        (5..=9).for_each(|sequence| note(&mut backlog, sequence, 3));
        assert_eq!(sequences(backlog.behind(6, 9).unwrap()), [7, 8, 9]);
        assert_eq!(sequences(backlog.behind(4, 9).unwrap()), [5, 6, 7, 8, 9]);
        assert_eq!((backlog.behind(3, 9), backlog.behind(10, 9)), (None, None));
    }

    #[test]
    fn it_keeps_some_and_not_all() {
        let mut backlog = Backlog::default();
        (1..=10_000).for_each(|sequence| note(&mut backlog, sequence, 100));
        assert!(backlog.words.len() <= 2 * KEPT_WORDS);
        let kept = sequences(backlog.behind(backlog.first - 1, 10_000).unwrap());
        assert!(kept.len() * 103 >= KEPT_WORDS - 103, "{}", kept.len());
        assert_eq!((kept[0], *kept.last().unwrap()), (backlog.first, 10_000));
        // Of records as long as all that is kept, one stays.
        (10_001..=10_010).for_each(|sequence| note(&mut backlog, sequence, 3 * KEPT_WORDS));
        assert_eq!(sequences(backlog.behind(10_009, 10_010).unwrap()), [10_010]);
        assert!(backlog.words.len() <= 7 * KEPT_WORDS, "{}", backlog.words.len());
    }
}
