//! Items by key, in stores that know no links: where a link would stand, stands the key of its target.

use std::ops::ControlFlow;

/// Keys in one buffer, which is kept when it is cleared.
#[derive(Clone, Default, Debug)]
pub struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    /// No keys.
    pub fn new() -> Keys {
        Keys::default()
    }

    /// Adds what is written as a key: printable, without spaces, at most 250 bytes, as memcached wants it.
    pub fn push(&mut self, key: std::fmt::Arguments<'_>) {
        use std::io::Write;
        self.bytes.write_fmt(key).expect("memory takes all");
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// One of them.
    pub fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Takes all keys out.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// A store of values by key.
pub trait Keyed {
    /// Puts values.
    fn put(&mut self, items: &[(Vec<u8>, Vec<u8>)]) -> Result<(), String>;

    /// Gets the values of keys, as many at once as it was made for, and shows them in order until told to
    /// break off; `None`: there is none.
    fn get(
        &mut self,
        keys: &Keys,
        each: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), String>;
}
