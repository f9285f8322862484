//! One step of a shard, as words.
//!
//! ```text
//! word 0   "RC" 63 48 | batch 47 32 | words of notes 31 0
//!      1   sequence: one more than that of the record before
//!      2   the last incarnation that was given when the step ended
//!      3.. notes, as `kelix_image::Notes` reads them
//! ```

use kelix_types::{Error, ErrorKind, Result};

/// Words of a record before its notes.
pub const RECORD_WORDS: usize = 3;

const MAGIC: u64 = u16::from_le_bytes(*b"RC") as u64;

/// What a record says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    /// Which one it is. The first is 1.
    pub sequence: u64,
    /// The last incarnation that had been given when the step ended.
    pub last_incarnation: u64,
    /// The number of the batch that it was sealed for, modulo 2^16; 0 where nobody gathers any.
    pub batch: u16,
    /// Words of its notes.
    pub words: usize,
}

impl RecordHead {
    /// As words.
    pub fn words(self) -> [u64; RECORD_WORDS] {
        [MAGIC << 48 | u64::from(self.batch) << 32 | self.words as u64, self.sequence, self.last_incarnation]
    }

    /// Reads the words. `None`: no record begins here.
    pub fn of_words(words: [u64; RECORD_WORDS]) -> Option<RecordHead> {
        let [first, sequence, last_incarnation] = words;
        let (batch, words) = ((first >> 32) as u16, first as u32 as usize);
        (first >> 48 == MAGIC).then_some(RecordHead { sequence, last_incarnation, batch, words })
    }
}

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'w> {
    /// What it says of itself.
    pub head: RecordHead,
    /// What was changed.
    pub notes: &'w [u64],
}

impl<'w> Record<'w> {
    /// The record that begins with the first of these words, and what is behind it. `Ok(None)`: it is not
    /// whole yet. An error: it is none.
    pub fn split(words: &'w [u64]) -> Result<Option<(Record<'w>, &'w [u64])>> {
        let Some((head, rest)) = words.split_first_chunk::<RECORD_WORDS>() else { return Ok(None) };
        let head = RecordHead::of_words(*head).ok_or_else(|| {
            Error::new(ErrorKind::Damaged, "read records", format!("{:#x} begins no record", head[0]))
        })?;
        let Some((notes, rest)) = rest.split_at_checked(head.words) else { return Ok(None) };
        Ok(Some((Record { head, notes }, rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_record_and_cuts() {
        let head = RecordHead { sequence: 7, last_incarnation: 0x3_0000_0005, batch: 9, words: 2 };
        let words = [head.words().as_slice(), &[11, 12, 13]].concat();
        assert_eq!(words[..3], [0x4352_0009_0000_0002, 7, 0x3_0000_0005]);
        let (record, rest) = Record::split(&words).unwrap().unwrap();
        assert_eq!((record.head, record.notes, rest), (head, &[11, 12][..], &[13][..]));
        for cut in 0..5 {
            assert_eq!(Record::split(&words[..cut]).unwrap(), None, "{cut} words");
        }
        assert_eq!(Record::split(&[1, 2, 3, 4]).unwrap_err().kind(), ErrorKind::Damaged);
    }
}
