//! What the fuzz targets share: input taken apart, and memory with an end that cannot be read across.
//!
//! A target takes any bytes and must neither panic nor hang. Where a parser accepts, the target writes the
//! result again and compares; bits that the format leaves to nobody are named in the target and left out of
//! the comparison.

pub mod exposition;
pub mod heap;
mod memory;
pub mod tcp;

pub use kelix_wire::mailboxes::{Mailboxes, PEER};
pub use memory::Guarded;

/// Input, taken from the front. What is not there any more is zero.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Whether everything was taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let bytes = self.bytes(N);
        taken[..bytes.len()].copy_from_slice(bytes);
        taken
    }

    /// A byte.
    pub fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    /// A number of two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    /// A word.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    /// So many bytes, or what there is.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Everything else as words; bytes that fill no word are dropped.
    pub fn words(&mut self) -> Vec<u64> {
        words(std::mem::take(&mut self.0))
    }
}

/// Bytes as words; bytes that fill no word are dropped.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect()
}
