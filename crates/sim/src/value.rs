//! Values that prove themselves: an id, and as many bytes as it says, all of which follow from it.

use crate::history::ValueId;
use crate::random::Random;

/// How long the values of a run are. It stands in the top byte of their ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizes {
    /// Several size classes, mostly short ones.
    Mixed = 0,
    /// All in one short class, so that the memory of one is soon that of another.
    Short = 1,
    /// All in one long class.
    Long = 2,
}

impl Sizes {
    /// The id before the first value of such a run.
    pub fn first_value(self) -> ValueId {
        ValueId((self as u64) << 56)
    }
}

/// The bytes of a value.
pub fn encode(id: ValueId) -> Vec<u8> {
    let mut random = Random::new(id.0);
    let length = match id.0 >> 56 {
        1 => 40,
        2 => 400,
        _ => {
            8 + {
                let longest = [8, 40, 40, 100, 300][random.below(5) as usize];
                random.below(longest) as usize
            }
        }
    };
    let mut bytes = id.0.to_le_bytes().to_vec();
    while bytes.len() < length {
        bytes.extend_from_slice(&random.bits().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The id of a value. `Err`: these bytes were never written.
pub fn decode(bytes: &[u8]) -> Result<ValueId, String> {
    let Some(head) = bytes.first_chunk::<8>() else {
        return Err(format!("{} bytes are no value", bytes.len()));
    };
    let id = ValueId(u64::from_le_bytes(*head));
    if encode(id) == bytes {
        Ok(id)
    } else {
        Err(format!("bytes of {id:?} that were never written: {bytes:02x?}"))
    }
}
