//! The primitives through which all remotely readable memory is stored to and loaded from.
//!
//! A [`Words`] is a bounds-checked view of aligned 8-byte words that other threads, other processes or a NIC
//! may read or write at the same time. Only a single aligned word is ever assumed to be read or written
//! whole; the read rule (docs/read-rule.md) is built on that alone. Because every store and load of such
//! memory passes through this file, the rule can be checked here, and a simulator can let a reader fall
//! between any two stores.
//!
//! On x86-64 copies use 16-byte loads and stores in assembly, so that the compiler neither assumes that the
//! memory stands still nor splits a word; elsewhere, under Miri, in the simulator and in model tests, they go
//! word by word through atomics. In model tests these are loom's.
//!
//! | store | load | what it orders |
//! |---|---|---|
//! | [`Words::copy_in`], [`Words::store`] | [`Words::copy_out`], [`Words::load`] | nothing: a body not yet live, a body under check |
//! | [`Words::publish`] | [`Words::load_acquire`] | all earlier stores before it, all later loads after it |
//! | [`full_fence`] | [`full_fence`] | a store before a later load: the sleeper's and the waker's handshake |

#[cfg(target_endian = "big")]
compile_error!(
    "Kelix images are little-endian and this build has no byte swapping: use a little-endian target"
);

use std::marker::PhantomData;
use std::sync::atomic::Ordering;
#[cfg(not(kelix_loom))]
use std::sync::atomic::{AtomicU64, fence};

#[cfg(kelix_loom)]
use crate::model::{AtomicU64, fence};

/// Where a simulator comes in: before each access to a single word of shared memory it may let others go on.
/// Only built with `--cfg kelix_sim`; without it nothing of this is left.
#[cfg(kelix_sim)]
pub mod moment {
    use std::cell::Cell;

    /// What is about to happen.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Access {
        /// A load.
        Load,
        /// A store.
        Store,
    }

    thread_local! {
        static HOOK: Cell<Option<fn(Access)>> = const { Cell::new(None) };
    }

    /// Sets what this thread calls before each access, or nothing.
    pub fn set_hook(hook: Option<fn(Access)>) {
        HOOK.set(hook);
    }

    pub(super) fn pass(access: Access) {
        if let Some(hook) = HOOK.get() {
            hook(access);
        }
    }
}

macro_rules! moment {
    ($access:ident) => {
        #[cfg(kelix_sim)]
        moment::pass(moment::Access::$access)
    };
}

/// A view of words that others may touch meanwhile. It carries no right to tear: each access is one word or a
/// copy whose words are each whole.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    base: *const AtomicU64,
    count: usize,
    owner: PhantomData<&'a AtomicU64>,
}

// SAFETY: all access through a `Words` is atomic per word (or in assembly, which the language treats alike),
// so views may be shared and sent between threads.
unsafe impl Send for Words<'_> {}
// SAFETY: as above.
unsafe impl Sync for Words<'_> {}

impl<'a> Words<'a> {
    /// A view of `count` words at `base`.
    ///
    /// # Safety
    /// 1. `base` is aligned to 8 bytes and `count` words from it are mapped for all of `'a`.
    /// 2. The memory is never accessed except through `Words`, system calls, or another process or device.
    /// 3. Storing methods are called only when the memory is mapped writable.
    #[inline]
    pub const unsafe fn new(base: *const u64, count: usize) -> Words<'a> {
        Words { base: base.cast(), count, owner: PhantomData }
    }

    /// A view of nothing.
    pub const EMPTY: Words<'static> =
        Words { base: std::ptr::dangling::<AtomicU64>(), count: 0, owner: PhantomData };

    /// Number of words in view.
    #[inline]
    pub const fn count(self) -> usize {
        self.count
    }

    /// Where the view begins, for those who look without these methods (a NIC, a measurement).
    pub const fn as_ptr(self) -> *const u64 {
        self.base.cast()
    }

    /// The part of the view from word `first` on, `count` words of it.
    #[inline(always)]
    pub fn part(self, first: usize, count: usize) -> Words<'a> {
        assert!(first <= self.count && count <= self.count - first, "view of words out of bounds");
        // SAFETY: in bounds by the assertion, so still inside the caller's promise of `new`.
        Words { base: unsafe { self.base.add(first) }, count, owner: PhantomData }
    }

    #[inline(always)]
    fn word(self, index: usize) -> &'a AtomicU64 {
        if index >= self.count {
            out_of_view(index, self.count);
        }
        // SAFETY: in bounds, aligned and mapped for 'a by the promise of `new`.
        unsafe { &*self.base.add(index) }
    }

    /// Loads one word, ordered after nothing.
    #[inline(always)]
    pub fn load(self, index: usize) -> u64 {
        let word = self.word(index);
        moment!(Load);
        word.load(Ordering::Relaxed)
    }

    /// Loads one word before all later loads.
    ///
    /// SYNC: pairs with [`Words::publish`] of the same word.
    #[inline(always)]
    pub fn load_acquire(self, index: usize) -> u64 {
        // Of read-only mappings the language promises relaxed loads only, hence the fence beside it.
        let value = self.load(index);
        fence(Ordering::Acquire);
        value
    }

    /// Stores one word that is not yet reachable, or whose order does not matter.
    #[inline]
    pub fn store(self, index: usize, value: u64) {
        let word = self.word(index);
        moment!(Store);
        word.store(value, Ordering::Relaxed);
    }

    /// Stores one word after all earlier stores: drops or raises a guardian, publishes a pointer.
    ///
    /// SYNC: pairs with [`Words::load_acquire`], and with the fence of [`load_fence`] after a plain load.
    #[inline]
    pub fn publish(self, index: usize, value: u64) {
        let word = self.word(index);
        moment!(Store);
        word.store(value, Ordering::Release);
    }

    /// Adds to one word and returns the sum. For words with several writers (the authority word).
    pub fn add(self, index: usize, value: u64) -> u64 {
        let word = self.word(index);
        moment!(Store);
        word.fetch_add(value, Ordering::SeqCst) + value
    }

    /// Stores one word if it still is `expected`; else returns what it is. For words with several writers.
    pub fn compare_exchange(self, index: usize, expected: u64, value: u64) -> Result<u64, u64> {
        let word = self.word(index);
        moment!(Store);
        word.compare_exchange(expected, value, Ordering::SeqCst, Ordering::SeqCst)
    }

    /// Copies words out, in any order, each whole.
    #[inline(always)]
    pub fn copy_out(self, first: usize, into: &mut [u64]) {
        let from = self.part(first, into.len());
        if let Ok(line) = <&mut [u64; 8]>::try_from(&mut *into) {
            // One cache line: a bucket, or the slot of most items.
            // SAFETY: as below, with a length the compiler knows.
            return unsafe { copy_from_shared(from.base.cast(), line.as_mut_ptr(), 8) };
        }
        // SAFETY: `part` checked the source; the destination is an exclusive slice of the same length.
        unsafe { copy_from_shared(from.base.cast(), into.as_mut_ptr(), into.len()) }
    }

    /// Eight bytes from any byte on. They may come from two words that were loaded at different moments, so
    /// this is for bytes that are written once: the key and value of an item.
    #[inline(always)]
    pub fn load_bytes(self, at: usize) -> u64 {
        assert!(at + 8 <= self.count * 8, "bytes of words out of bounds");
        // SAFETY: in bounds by the assertion.
        unsafe { load_unaligned(self.base.cast::<u8>().add(at)) }
    }

    /// Copies bytes from any byte on, for bytes that are written once, as with [`Words::load_bytes`].
    /// `false`: they are not all in view, and nothing was copied.
    #[inline(always)]
    #[must_use]
    pub fn copy_bytes_out(self, at: usize, into: &mut [u8]) -> bool {
        let (all, count) = (self.count * 8, into.len());
        if at > all || count > all - at {
            return false;
        }
        if count < 16 {
            for (index, byte) in into.iter_mut().enumerate() {
                *byte = (self.load((at + index) / 8) >> ((at + index) % 8 * 8)) as u8;
            }
            return true;
        }
        let from = self.base.cast::<u8>();
        let (mut done, last) = (self.copy_long_out(at, into), count - 16);
        while done < last {
            // SAFETY: 16 bytes from there on are in view, by the check above.
            into[done..][..16].copy_from_slice(&unsafe { load_unaligned_pair(from, at + done) });
            done += 16;
        }
        // SAFETY: as above. Some of these bytes may have been copied already.
        into[last..].copy_from_slice(&unsafe { load_unaligned_pair(from, at + last) });
        true
    }

    /// Copies the whole lines of many bytes, and says how many bytes these were. Asks for each line long
    /// before it is copied: the processor by itself does not go on from one page to the next, which takes a
    /// tenth of the time of a long copy.
    #[inline(always)]
    fn copy_long_out(self, at: usize, into: &mut [u8]) -> usize {
        const LONG: usize = 16 << 10;
        #[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
        if into.len() >= LONG && at % 8 == 0 {
            let lines = into.len() / 64;
            // SAFETY: the caller checked that so many bytes are in view; they are whole words.
            unsafe { copy_lines_from_shared(self.base.add(at / 8).cast(), into.as_mut_ptr(), lines) };
            return lines * 64;
        }
        let _ = (at, into, LONG);
        0
    }

    /// The first of words 1 to 7 whose upper quarter is `wanted`; none where fewer than eight words are in
    /// view.
    #[inline(always)]
    pub fn find_upper_quarter(self, wanted: u16) -> Option<usize> {
        if self.count < 8 {
            return None;
        }
        #[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
        {
            use std::arch::x86_64::*;
            // SAFETY: SSE2 is part of x86-64, and the loads are inside the eight words.
            let found = unsafe {
                let words = self.base.cast();
                let low = upper_halves(load_pair::<0>(words), load_pair::<16>(words));
                let high = upper_halves(load_pair::<32>(words), load_pair::<48>(words));
                // The upper quarters as eight lanes of 16 bits, then two bits a lane.
                let quarters = _mm_packs_epi32(_mm_srai_epi32::<16>(low), _mm_srai_epi32::<16>(high));
                _mm_movemask_epi8(_mm_cmpeq_epi16(quarters, _mm_set1_epi16(wanted as i16)))
            };
            let found = found & 0x5554;
            if found == 0 { None } else { Some(found.trailing_zeros() as usize / 2) }
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom)))))]
        (1..8).find(|at| self.load(*at) >> 48 == u64::from(wanted))
    }

    /// Copies words in, in any order, each whole.
    #[inline]
    pub fn copy_in(self, first: usize, from: &[u64]) {
        let into = self.part(first, from.len());
        // SAFETY: `part` checked the destination, writable by the promise of `new`; the source is a slice.
        unsafe { copy_to_shared(from.as_ptr(), into.base.cast_mut().cast(), from.len()) }
    }

    /// Stores zeros from word `first` on.
    #[inline]
    pub fn clear(self, first: usize, count: usize) {
        let part = self.part(first, count);
        for index in 0..count {
            part.store(index, 0);
        }
    }

    /// Asks the processor to bring the first `words` words near, for reading.
    #[inline]
    pub fn prefetch(self, words: usize) {
        let lines = words.min(self.count).div_ceil(8).min(4);
        for line in 0..lines {
            prefetch_line::<false>(self.base.wrapping_add(line * 8));
        }
    }

    /// Asks the processor to bring all words near, for reading.
    #[inline(always)]
    pub fn prefetch_all(self) {
        (0..self.count).step_by(8).for_each(|word| prefetch_line::<false>(self.base.wrapping_add(word)));
    }

    /// Asks the processor to bring the first cache line near, for reading.
    #[inline(always)]
    pub fn prefetch_line(self) {
        prefetch_line::<false>(self.base);
    }

    /// Asks the processor to bring the first `words` words near, for writing.
    #[inline]
    pub fn prefetch_write(self, words: usize) {
        let lines = words.min(self.count).div_ceil(8).min(4);
        for line in 0..lines {
            prefetch_line::<true>(self.base.wrapping_add(line * 8));
        }
    }
}

/// Takes its arguments by value, so that the data path need not keep them in memory to point at.
#[cold]
#[inline(never)]
fn out_of_view(index: usize, count: usize) -> ! {
    panic!("word {index} of a view of {count}")
}

/// Orders every earlier load before every later one.
///
/// SYNC: with the releases of [`Words::publish`]: a load before this fence that saw a published word also
/// sees everything stored before it in the loads after the fence.
#[inline]
pub fn load_fence() {
    fence(Ordering::Acquire);
}

/// Orders every earlier store before every later load. For the handshake between a sleeper, who announces its
/// sleep and then looks once more, and a waker, who stores a message and then looks for sleepers.
#[inline]
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

#[inline]
fn prefetch_line<const WRITE: bool>(line: *const AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address has no effect a program can observe.
        unsafe {
            if WRITE {
                _mm_prefetch::<_MM_HINT_ET0>(line.cast())
            } else {
                _mm_prefetch::<_MM_HINT_T0>(line.cast())
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom)))))]
    let _ = line;
}

/// Loads the 16 bytes `OFFSET` bytes further on, from memory that others may be storing to. Aligned to 8
/// bytes, they are two whole words.
///
/// # Safety
/// These 16 bytes are mapped.
#[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
#[inline(always)]
unsafe fn load_pair<const OFFSET: usize>(from: *const u64) -> std::arch::x86_64::__m128i {
    let pair;
    // SAFETY: a load from mapped memory. In assembly, so that the compiler neither assumes that the memory
    // stands still nor splits a word; a 16-byte move of 8-byte aligned words never splits one
    // (docs/read-rule.md, "Words").
    unsafe {
        std::arch::asm!(
            "movdqu {pair}, [{from} + {offset}]",
            from = in(reg) from, pair = out(xmm_reg) pair, offset = const OFFSET,
            options(readonly, nostack, preserves_flags)
        );
    }
    pair
}

/// Loads eight bytes that need not be one word, from memory that others may be storing to.
///
/// # Safety
/// The words that hold them are mapped.
#[inline(always)]
unsafe fn load_unaligned(from: *const u8) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
    {
        let bytes;
        // SAFETY: a load from mapped memory, in assembly as in `load_pair`.
        unsafe {
            std::arch::asm!(
                "mov {bytes}, [{from}]",
                from = in(reg) from, bytes = out(reg) bytes,
                options(readonly, nostack, preserves_flags)
            );
        }
        bytes
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom)))))]
    {
        let beyond = from.addr() % 8;
        moment!(Load);
        // SAFETY: the words are mapped, and the second is looked at only if it holds some of the bytes.
        unsafe {
            let word = from.sub(beyond).cast::<AtomicU64>();
            let low = (*word).load(Ordering::Relaxed) >> (beyond * 8);
            if beyond == 0 { low } else { low | (*word.add(1)).load(Ordering::Relaxed) << (64 - beyond * 8) }
        }
    }
}

/// The same for sixteen bytes, from byte `at` on.
///
/// # Safety
/// As for `load_unaligned`.
#[inline(always)]
unsafe fn load_unaligned_pair(from: *const u8, at: usize) -> [u8; 16] {
    #[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
    {
        let pair: std::arch::x86_64::__m128i;
        // SAFETY: a load from mapped memory, in assembly as in `load_pair`; any bytes are an array of bytes.
        unsafe {
            std::arch::asm!(
                "movdqu {pair}, [{from} + {at}]",
                from = in(reg) from, at = in(reg) at, pair = out(xmm_reg) pair,
                options(readonly, nostack, preserves_flags)
            );
            std::mem::transmute(pair)
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom)))))]
    {
        let mut bytes = [0; 16];
        // SAFETY: as promised by the caller.
        let (low, high) = unsafe { (load_unaligned(from.add(at)), load_unaligned(from.add(at + 8))) };
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&high.to_le_bytes());
        bytes
    }
}

/// Copies `count` words out of memory that others may be storing to: each whole, in any order.
///
/// # Safety
/// Both ranges are mapped and aligned to 8 bytes, the destination is private, and they do not overlap.
#[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
#[inline(always)]
unsafe fn copy_from_shared(mut from: *const u64, mut into: *mut u64, mut count: usize) {
    use std::arch::x86_64::_mm_storeu_si128;
    // SAFETY: every access below is inside the ranges the caller promised.
    unsafe {
        while count >= 8 {
            let pairs =
                [load_pair::<0>(from), load_pair::<16>(from), load_pair::<32>(from), load_pair::<48>(from)];
            for (index, pair) in pairs.into_iter().enumerate() {
                _mm_storeu_si128(into.add(index * 2).cast(), pair);
            }
            (from, into, count) = (from.add(8), into.add(8), count - 8);
        }
        while count >= 2 {
            _mm_storeu_si128(into.cast(), load_pair::<0>(from));
            (from, into, count) = (from.add(2), into.add(2), count - 2);
        }
        if count == 1 {
            *into = (*from.cast::<AtomicU64>()).load(Ordering::Relaxed);
        }
    }
}

/// Copies lines of 64 bytes out of memory that others may be storing to, each word whole, in any order.
///
/// # Safety
/// Both ranges are mapped, the source aligned to 8 bytes, the destination private, and they do not overlap.
#[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
#[inline(never)]
unsafe fn copy_lines_from_shared(mut from: *const u64, mut into: *mut u8, lines: usize) {
    use std::arch::x86_64::_mm_storeu_si128;
    const WORDS_AHEAD: usize = 256;
    for _ in 0..lines {
        prefetch_line::<false>(from.wrapping_add(WORDS_AHEAD).cast());
        // SAFETY: every access is inside the ranges the caller promised.
        unsafe {
            let pairs =
                [load_pair::<0>(from), load_pair::<16>(from), load_pair::<32>(from), load_pair::<48>(from)];
            for (index, pair) in pairs.into_iter().enumerate() {
                _mm_storeu_si128(into.add(index * 16).cast(), pair);
            }
            (from, into) = (from.add(8), into.add(64));
        }
    }
}

/// Copies `count` words into memory that others may be loading from: each whole, in any order.
///
/// # Safety
/// Both ranges are mapped and aligned to 8 bytes, the source is private, the destination writable, and they
/// do not overlap.
#[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
#[inline(always)]
unsafe fn copy_to_shared(mut from: *const u64, mut into: *mut u64, mut count: usize) {
    use std::arch::x86_64::_mm_loadu_si128;
    // SAFETY: every access below is inside the ranges the caller promised; the stores are in assembly for the
    // same reason as the loads of `load_pair`.
    unsafe {
        while count >= 2 {
            let pair = _mm_loadu_si128(from.cast());
            std::arch::asm!(
                "movdqu [{into}], {pair}",
                into = in(reg) into, pair = in(xmm_reg) pair,
                options(nostack, preserves_flags)
            );
            (from, into, count) = (from.add(2), into.add(2), count - 2);
        }
        if count == 1 {
            (*into.cast::<AtomicU64>()).store(*from, Ordering::Relaxed);
        }
    }
}

/// Copies `count` words out of memory that others may be storing to: each whole, in any order.
///
/// # Safety
/// Both ranges are mapped and aligned to 8 bytes, the destination is private, and they do not overlap.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom)))))]
#[inline]
unsafe fn copy_from_shared(from: *const u64, into: *mut u64, count: usize) {
    for index in 0..count {
        moment!(Load);
        // SAFETY: inside the ranges the caller promised.
        unsafe { *into.add(index) = (*from.add(index).cast::<AtomicU64>()).load(Ordering::Relaxed) }
    }
}

/// Copies `count` words into memory that others may be loading from: each whole, in any order.
///
/// # Safety
/// Both ranges are mapped and aligned to 8 bytes, the source is private, the destination writable, and they
/// do not overlap.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom)))))]
#[inline]
unsafe fn copy_to_shared(from: *const u64, into: *mut u64, count: usize) {
    for index in 0..count {
        moment!(Store);
        // SAFETY: inside the ranges the caller promised.
        unsafe { (*into.add(index).cast::<AtomicU64>()).store(*from.add(index), Ordering::Relaxed) }
    }
}

/// Which of eight private words have `wanted` in the upper half under `mask`, as a bit mask.
#[inline(always)]
pub fn match_upper_halves(words: &[u64; 8], mask: u32, wanted: u32) -> u8 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
    {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is part of x86-64, and the loads are unaligned ones inside the array.
        unsafe {
            let pair = |at: usize| _mm_loadu_si128(words.as_ptr().add(at).cast());
            let (mask, wanted) = (_mm_set1_epi32(mask as i32), _mm_set1_epi32(wanted as i32));
            let equal = |at: usize| {
                let masked = _mm_and_si128(upper_halves(pair(at), pair(at + 2)), mask);
                _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(masked, wanted))) as u8
            };
            equal(0) | equal(4) << 4
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom)))))]
    {
        let equal = |word: u64| (word >> 32) as u32 & mask == wanted;
        (0..8).fold(0, |found, at| found | u8::from(equal(words[at])) << at)
    }
}

/// Which of sixteen bytes, the lowest of `low` first, are `wanted`, as a bit mask.
#[inline(always)]
pub fn match_bytes([low, high]: [u64; 2], wanted: u8) -> u16 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
    {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is part of x86-64, and everything stands in registers.
        unsafe {
            let bytes = _mm_set_epi64x(high as i64, low as i64);
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(wanted as i8))) as u16
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom)))))]
    {
        let bytes = low.to_le_bytes().into_iter().chain(high.to_le_bytes()).enumerate();
        bytes.fold(0, |found, (at, byte)| found | u16::from(byte == wanted) << at)
    }
}

/// The upper halves of four words.
///
/// # Safety
/// Of any processor that has SSE2, as all of x86-64 have.
#[cfg(all(target_arch = "x86_64", not(any(miri, kelix_sim, kelix_loom))))]
#[inline(always)]
unsafe fn upper_halves(
    low: std::arch::x86_64::__m128i,
    high: std::arch::x86_64::__m128i,
) -> std::arch::x86_64::__m128i {
    use std::arch::x86_64::{_mm_castps_si128, _mm_castsi128_ps, _mm_shuffle_ps};
    // SAFETY: as promised by the caller.
    unsafe {
        _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(_mm_castsi128_ps(low), _mm_castsi128_ps(high)))
    }
}

/// The bytes of private words.
#[inline]
pub fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: u8 has no alignment or validity needs, and the length in bytes is that of the words.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
}

/// The bytes of private words, to be written.
#[inline]
pub fn bytes_of_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`, and any bytes are a valid u64.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(memory: &mut [u64]) -> Words<'_> {
        // SAFETY: the exclusive borrow lasts as long as the view and nobody else has the memory.
        unsafe { Words::new(memory.as_mut_ptr(), memory.len()) }
    }

    #[test]
    fn copies_of_every_length_and_start() {
        let source: Vec<u64> = (0..64).map(|i| i * 0x0101_0101_0101_0101).collect();
        for count in 0..40 {
            for first in 0..4 {
                let mut memory = vec![u64::MAX; 64];
                let words = view(&mut memory);
                words.copy_in(first, &source[..count]);
                let mut back = vec![7; count];
                words.copy_out(first, &mut back);
                assert_eq!(back, &source[..count]);
                assert!((0..64).all(|i| (first..first + count).contains(&i) || words.load(i) == u64::MAX));
            }
        }
    }

    #[test]
    fn upper_halves_match_where_they_are_equal() {
        let words = std::array::from_fn(|at| (at as u64 % 3) << 47 | 0xdead_beef);
        assert_eq!(match_upper_halves(&words, 0xffff_8000, 1 << 15), 0b1001_0010);
        assert_eq!(match_upper_halves(&words, 0xffff_8000, 0), 0b0100_1001);
        assert_eq!(match_upper_halves(&words, 0xffff_8000, 5 << 15), 0);
    }

    #[test]
    fn bytes_from_any_byte_on() {
        let mut memory: Vec<u64> = (0..16).map(|i| i * 0x0908_0706_0504_0302 + 77).collect();
        let bytes = bytes_of(&memory).to_vec();
        let words = view(&mut memory);
        for at in 0..=128 {
            for count in 0..=128 - at {
                let mut copy = vec![0; count];
                assert!(words.copy_bytes_out(at, &mut copy));
                assert_eq!(copy, bytes[at..at + count], "{count} bytes at {at}");
            }
            if at <= 120 {
                assert_eq!(words.load_bytes(at).to_le_bytes(), bytes[at..at + 8]);
            }
        }
    }

    #[test]
    fn many_bytes_from_any_byte_on() {
        let mut memory: Vec<u64> =
            (0..5000).map(|i| u64::wrapping_mul(i, 0x0908_0706_0504_0302).wrapping_add(77)).collect();
        let bytes = bytes_of(&memory).to_vec();
        let words = view(&mut memory);
        for at in [0, 8, 13, 64] {
            for count in [16 << 10, (16 << 10) + 1, 20_000, 20_015, 20_032, bytes.len() - at] {
                let mut copy = vec![0; count];
                assert!(words.copy_bytes_out(at, &mut copy));
                assert!(copy == bytes[at..at + count], "{count} bytes at {at}");
            }
        }
    }

    #[test]
    fn upper_quarters_are_found_but_for_the_first() {
        let mut memory: Vec<u64> = (0..8u64).map(|at| (0x7fff + at % 6) << 48 | at).collect();
        let words = view(&mut memory);
        let found: Vec<_> = (0x7ffe..0x8006).map(|wanted| words.find_upper_quarter(wanted)).collect();
        assert_eq!(found, [None, Some(6), Some(1), Some(2), Some(3), Some(4), Some(5), None]);
    }

    #[test]
    fn bytes_past_the_end_are_not_copied() {
        let mut memory = vec![0; 4];
        let words = view(&mut memory);
        assert!(!words.copy_bytes_out(17, &mut [0; 16]) && !words.copy_bytes_out(33, &mut []));
        assert!(words.copy_bytes_out(32, &mut []));
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_copy_past_the_end_is_refused() {
        let mut memory = vec![0; 4];
        view(&mut memory).copy_out(3, &mut [0, 0]);
    }

    #[test]
    fn a_copy_never_splits_a_word_while_a_writer_is_busy() {
        let memory = vec![0u64; 8];
        // SAFETY: `memory` outlives the scope below and is reached only through this view until then.
        let words: Words<'_> = unsafe { Words::new(memory.as_ptr(), 8) };
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for round in 0..rounds {
                    let value = if round % 2 == 0 { u64::MAX } else { 0 };
                    words.copy_in(0, &[value; 8]);
                    std::thread::yield_now();
                }
            });
            for _ in 0..rounds {
                let mut copy = [1; 8];
                words.copy_out(0, &mut copy);
                assert!(copy.iter().all(|&word| word == 0 || word == u64::MAX), "torn word: {copy:x?}");
            }
        });
        std::hint::black_box(&memory);
    }
}
