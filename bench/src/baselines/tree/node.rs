//! The words of nodes, wherever they stand.

use kelix_types::limits::GRANULE_BYTES;
use kelix_types::{Guardian, Place};

/// Words of a leaf, and how many keys it has room for: as in ordered tables.
pub(super) const LEAF_WORDS: usize = 40;
pub(super) const LEAF_KEYS: usize = 16;
/// Word numbers in a leaf, of which the second and the third are those of an inner node too.
const COUNT: usize = 1;
const KEYS: usize = 2;
const VALUES: usize = KEYS + LEAF_KEYS;
const FENCES: usize = VALUES + LEAF_KEYS;
/// Stands where there is no key.
const NO_KEY: u64 = u64::MAX;
/// What nodes are aligned to.
pub(super) const ALIGN: u64 = 64;

/// Where a client has its copies: at places that no node of a server has.
pub(super) const COPIES: Place = Place((COPIES_GRANULE as u64) * GRANULE_BYTES);
pub(super) const COPIES_GRANULE: usize = 2048;

/// Where a child of an inner node stands: a node of the server's, or a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Child(u32);

impl Child {
    pub fn at(place: Place) -> Child {
        assert!(place.0 % ALIGN == 0 && place.0 / ALIGN <= u64::from(u32::MAX));
        Child((place.0 / ALIGN) as u32)
    }

    #[inline(always)]
    pub fn place(self) -> Place {
        Place(u64::from(self.0) * ALIGN)
    }

    #[inline(always)]
    pub fn is_copy(self) -> bool {
        u64::from(self.0) >= COPIES.0 / ALIGN
    }
}

/// All bits if so, else none, in a way that the compiler makes no branch of: nobody could foresee where it
/// leads.
#[inline(always)]
fn all_if(so: bool) -> usize {
    let mut bits = usize::from(so);
    // SAFETY: there is no instruction. The compiler only has to believe that anything may have become of the
    // bits.
    unsafe {
        std::arch::asm!("/* {bits} */", bits = inout(reg) bits, options(pure, nomem, nostack, preserves_flags));
    }
    bits.wrapping_neg()
}

/// How large inner nodes are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub words: usize,
    /// Children that one has room for.
    pub most: usize,
}

impl Shape {
    /// Nodes of so many bytes: of each child a key and half a word.
    pub const fn of_bytes(bytes: usize) -> Shape {
        Shape { words: bytes / 8, most: (bytes / 8 - KEYS) * 2 / 3 }
    }

    /// The words of a node with these children, and their first keys.
    pub fn inner(self, guardian: Guardian, children: &[(u64, Child)]) -> Vec<u64> {
        let mut words = vec![0; self.words];
        (words[0], words[COUNT]) = (guardian.0, children.len() as u64);
        for (entry, (first, child)) in children.iter().enumerate() {
            words[KEYS + entry] = *first;
            self.set_child(&mut words, entry, *child);
        }
        words
    }

    /// The entry of a node that has a number, and the child that it names.
    #[inline(always)]
    pub fn search(self, load: impl Fn(usize) -> u64, number: u64) -> (usize, Child) {
        // Whatever the words are, the search stays inside.
        let (mut entry, mut count) = (0, (load(COUNT) as usize).min(self.most));
        while count > 1 {
            let half = count / 2;
            entry += half & all_if(load(KEYS + entry + half) <= number);
            count -= half;
        }
        let two = load(KEYS + self.most + entry / 2);
        (entry, Child((two >> (entry % 2 * 32)) as u32))
    }

    /// A node's children.
    pub fn children(self, words: &[u64]) -> Vec<Child> {
        let count = (words[COUNT] as usize).min(self.most);
        let child = |entry: usize| (words[KEYS + self.most + entry / 2] >> (entry % 2 * 32)) as u32;
        (0..count).map(|entry| Child(child(entry))).collect()
    }

    /// Has an entry of a node name another child.
    pub fn set_child(self, words: &mut [u64], entry: usize, child: Child) {
        let (word, shift) = (&mut words[KEYS + self.most + entry / 2], entry % 2 * 32);
        *word = *word & !(0xffff_ffff << shift) | u64::from(child.0) << shift;
    }
}

/// The words of a leaf with these keys and values, which may hold keys from the first of two on, up to the
/// second.
pub(super) fn leaf(guardian: Guardian, entries: &[(u64, u64)], fences: [u64; 2]) -> Vec<u64> {
    let mut words = vec![NO_KEY; LEAF_WORDS];
    (words[0], words[COUNT]) = (guardian.0, entries.len() as u64);
    for (slot, (key, value)) in entries.iter().enumerate() {
        (words[KEYS + slot], words[VALUES + slot]) = (*key, *value);
    }
    words[FENCES..][..2].copy_from_slice(&fences);
    words
}

/// The slot of a leaf that has a number, if any has.
#[inline(always)]
pub(super) fn find_slot(load: impl Fn(usize) -> u64, number: u64) -> usize {
    let mut slot = 0;
    for half in [8, 4, 2, 1] {
        slot += half & all_if(load(KEYS + slot + half) <= number);
    }
    slot
}

/// The words that tell whether a slot has a number, and its value.
pub(super) const fn slot_words(slot: usize) -> [usize; 2] {
    [KEYS + slot, VALUES + slot]
}

/// Why a leaf has no value for a number: it is not there, or this is not its leaf.
#[cold]
pub(super) fn missing(load: impl Fn(usize) -> u64, number: u64) -> String {
    let holds = load(FENCES) <= number && number <= load(FENCES + 1);
    if holds { format!("the tree has no {number}") } else { format!("the tree led {number} to a wrong leaf") }
}

const _: () = assert!(FENCES + 2 <= LEAF_WORDS && LEAF_WORDS as u64 * 8 % ALIGN == 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_found_where_it_is() {
        let live = Guardian(1 << 63);
        for bytes in [320, 512, 1024] {
            let shape = Shape::of_bytes(bytes);
            assert!(KEYS + shape.most + shape.most.div_ceil(2) <= shape.words);
            for count in 1..=shape.most {
                let children: Vec<_> =
                    (0..count as u64).map(|at| (at * 10, Child::at(Place(at * 64)))).collect();
                let mut node = shape.inner(live, &children);
                let copy = Child::at(COPIES.plus(64));
                shape.set_child(&mut node, count - 1, copy);
                for number in 0..count as u64 * 10 {
                    let (entry, child) = shape.search(|word| node[word], number);
                    assert_eq!(entry as u64, number / 10);
                    assert_eq!(child, shape.children(&node)[entry]);
                    let is_last = entry + 1 == count;
                    assert!(is_last || child == children[entry].1);
                    assert_eq!((child.is_copy(), child == copy), (is_last, is_last));
                }
            }
        }
        for count in 1..=LEAF_KEYS as u64 {
            let entries: Vec<_> = (0..count).map(|at| (at * 10 + 5, at)).collect();
            let leaf = leaf(live, &entries, [0, 999]);
            for number in 0..count * 10 {
                let [key, value] = slot_words(find_slot(|word| leaf[word], number)).map(|word| leaf[word]);
                assert_eq!(key == number, number % 10 == 5);
                assert!(key != number || value == number / 10);
            }
            assert!(
                missing(|word| leaf[word], 999).contains("has no")
                    && missing(|word| leaf[word], 1000).contains("wrong")
            );
        }
    }
}
