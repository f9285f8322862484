//! Values that prove themselves: an id, and as many bytes and links as it says, all of which follow from it.

use crate::history::ValueId;
use crate::random::Random;

/// How a value is made. It stands in the top byte of its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One of several size classes, mostly short ones.
    Mixed = 0,
    /// All in one short class, so that the memory of one is soon that of another.
    Short = 1,
    /// All in one long class.
    Long = 2,
    /// With links to keys that are wanted all the time.
    Linked = 3,
    /// A sixteenth of a page, to fill memory.
    Bulk = 4,
    /// A little more, so that the memory of the others is of no use to it.
    OtherBulk = 5,
    /// Too long for one message.
    Pieces = 6,
    /// Too long for one slot.
    Runs = 7,
    /// Of eight bytes, which stand beside their key.
    Number = 8,
}

/// Most links of a value.
const LINKS_MAX: u64 = 3;

impl Shape {
    /// The id of the value with this number.
    pub fn id(self, number: u64) -> ValueId {
        ValueId((self as u64) << 56 | number)
    }

    /// The shape of a value.
    pub fn of(id: ValueId) -> Option<Shape> {
        let all = [
            Shape::Mixed,
            Shape::Short,
            Shape::Long,
            Shape::Linked,
            Shape::Bulk,
            Shape::OtherBulk,
            Shape::Pieces,
            Shape::Runs,
            Shape::Number,
        ];
        all.get((id.0 >> 56) as usize).copied()
    }
}

/// The bytes of a value.
pub fn encode(id: ValueId) -> Vec<u8> {
    let mut random = Random::new(id.0);
    let length = match Shape::of(id) {
        Some(Shape::Number) => 8,
        Some(Shape::Short | Shape::Linked) => 40,
        Some(Shape::Long) => 400,
        Some(Shape::Bulk) => 4_000,
        Some(Shape::OtherBulk) => 5_000,
        Some(Shape::Pieces) => 40_000 + random.below(30_000) as usize,
        Some(Shape::Runs) => (1 << 20) + 1 + random.below(100_000) as usize,
        Some(Shape::Mixed) | None => {
            8 + {
                let longest = [8, 40, 40, 100, 300][random.below(5) as usize];
                random.below(longest) as usize
            }
        }
    };
    let mut bytes = Vec::with_capacity(length + 8);
    bytes.extend_from_slice(&id.0.to_le_bytes());
    while bytes.len() < length {
        bytes.extend_from_slice(&random.bits().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The keys, of so many, that a value links to.
pub fn links(id: ValueId, keys: u64) -> Vec<u64> {
    let mut random = Random::new(!id.0);
    match Shape::of(id) {
        Some(Shape::Linked) => (0..=random.below(LINKS_MAX)).map(|_| random.below(keys)).collect(),
        _ => Vec::new(),
    }
}

/// The id of a value. `Err`: these bytes were never written.
pub fn decode(bytes: &[u8]) -> Result<ValueId, String> {
    let Some(head) = bytes.first_chunk::<8>() else {
        return Err(format!("{} bytes are no value", bytes.len()));
    };
    let id = ValueId(u64::from_le_bytes(*head));
    let written = encode(id);
    if written == bytes {
        return Ok(id);
    }
    let at = written.iter().zip(bytes).position(|(written, read)| written != read);
    let at = at.unwrap_or(written.len().min(bytes.len()));
    let near = &bytes[at / 8 * 8..(at / 8 * 8 + 64).min(bytes.len())];
    Err(format!(
        "{} bytes of {id:?} of {}, which were never written, from byte {at} on: {near:02x?}",
        bytes.len(),
        written.len()
    ))
}
