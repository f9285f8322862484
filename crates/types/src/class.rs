//! Size classes of slab slots.
//!
//! Multiples of 16 from 32 to 128 bytes, then eight steps a doubling (12.5 % at most) up to 1.25 MiB. A class
//! number is part of every location, so that a reader knows how many bytes to READ.

/// A size class, 0 to [`SizeClass::COUNT`] - 1, smallest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SizeClass(pub u8);

/// Classes at multiples of 16 bytes: 32, 48, ..., 128.
const SMALL: usize = 7;

impl SizeClass {
    /// Number of classes. Fits the 7 bits a location has for it.
    pub const COUNT: usize = SMALL + 13 * 8 + 2;

    /// Slot size of the largest class.
    pub const BYTES_MAX: usize = SizeClass(Self::COUNT as u8 - 1).compute_bytes();

    /// Slot size in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        BYTES[self.0 as usize & 127] as usize
    }

    const fn compute_bytes(self) -> usize {
        let class = self.0 as usize;
        if class < SMALL {
            return 32 + 16 * class;
        }
        let step = class - SMALL + 1;
        let doubling = (step - 1) / 8;
        let eighth = (step - 1) % 8 + 1;
        (128 << doubling) + eighth * (16 << doubling)
    }

    /// Slot size in 8-byte words.
    #[inline]
    pub const fn words(self) -> usize {
        self.bytes() / 8
    }

    /// The smallest class whose slot holds `bytes`, or `None` when none does.
    #[inline]
    pub const fn for_bytes(bytes: usize) -> Option<SizeClass> {
        if bytes > Self::BYTES_MAX {
            return None;
        }
        if bytes <= 128 {
            let class = if bytes <= 32 { 0 } else { bytes.div_ceil(16) - 2 };
            return Some(SizeClass(class as u8));
        }
        let doubling = ((bytes - 1) / 128).ilog2() as usize;
        let base = 128 << doubling;
        let eighth = (bytes - base).div_ceil(16 << doubling);
        Some(SizeClass((SMALL + doubling * 8 + eighth - 1) as u8))
    }

    /// The class with this number, if there is one. For numbers that come from shared memory or a message.
    #[inline]
    pub const fn from_number(number: u8) -> Option<SizeClass> {
        if (number as usize) < Self::COUNT { Some(SizeClass(number)) } else { None }
    }
}

/// Slot sizes, looked up on the data path: one for each number that fits a location, so that a lookup needs
/// no check.
const BYTES: [u32; 128] = {
    let mut bytes = [0; 128];
    let mut class = 0;
    while class < SizeClass::COUNT {
        bytes[class] = SizeClass(class as u8).compute_bytes() as u32;
        class += 1;
    }
    bytes
};

const _: () = assert!(SizeClass::COUNT <= 127 && SizeClass::BYTES_MAX == (1 << 20) + (256 << 10));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_slot_that_holds_it() {
        for bytes in 1..=SizeClass::BYTES_MAX {
            let class = SizeClass::for_bytes(bytes).unwrap();
            assert!(class.bytes() >= bytes, "{bytes} bytes in a slot of {}", class.bytes());
            if class.0 > 0 {
                assert!(SizeClass(class.0 - 1).bytes() < bytes, "{bytes} bytes fit a smaller slot");
            }
        }
        assert_eq!(SizeClass::for_bytes(SizeClass::BYTES_MAX + 1), None);
    }

    #[test]
    fn steps_are_at_most_an_eighth_from_128_bytes_on() {
        for class in 0..SizeClass::COUNT as u8 - 1 {
            let (small, large) = (SizeClass(class).bytes(), SizeClass(class + 1).bytes());
            assert_eq!(large % 16, 0);
            assert!(large - small == 16 || (large - small) * 8 <= small, "{small} -> {large}");
        }
    }
}
