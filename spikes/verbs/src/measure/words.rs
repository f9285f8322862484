//! Is a word ever torn, and in which order are the words of one READ or WRITE handled?
//!
//! All words of a stretch hold the number of the round they were stored in, in both halves. A READ beside a
//! writer that stores from the first word on proves by `word i < word j`, where i < j, that i was sampled
//! before j: when j was stored, i had that round already. Beside a writer that stores from the last word on,
//! `word i > word j` proves the opposite. So each direction of storing makes one order of sampling visible. A
//! WRITE is looked at in the same two ways.

use std::sync::atomic::{AtomicBool, Ordering};

use kelix_image::words::{Words, load_fence};
use kelix_verbs_spike::verbs::Work;

use super::rig::{End, doubled, is_torn};

/// Words to a READ or WRITE, and how many of them are done at each place and direction.
const SIZES: [(usize, usize); 4] = [(1, 16_000), (8, 8000), (32, 8000), (512, 2000)];
/// Words from the start of a page: aligned to 16 bytes and not, in a line and across lines, across pages.
const PLACES: [usize; 4] = [0, 1, 6, 509];

#[derive(Default)]
struct Tally {
    /// Copies looked at: READs, or looks at what is being WRITten.
    transfers: u64,
    words: u64,
    torn: u64,
    /// Copies with words of different rounds.
    mixed: u64,
    /// Copies that prove an order.
    ascending: u64,
    descending: u64,
}

impl Tally {
    fn add(&mut self, words: &[u64]) {
        self.transfers += 1;
        self.words += words.len() as u64;
        self.torn += words.iter().filter(|word| is_torn(**word)).count() as u64;
        self.mixed += u64::from(words.iter().any(|word| *word != words[0]));
    }

    /// Whether some word is older than a later one, and whether some is newer. Torn words have no age.
    fn ages(words: &[u64]) -> (bool, bool) {
        let (mut least, mut most) = (u64::MAX, 0);
        let (mut older, mut newer) = (false, false);
        for word in words.iter().filter(|word| !is_torn(**word)) {
            (least, most) = (least.min(*word), most.max(*word));
            (older, newer) = (older | (least < *word), newer | (most > *word));
        }
        (older, newer)
    }

    fn print(&self, what: &str, count: usize) {
        let Tally { transfers, words, torn, mixed, ascending, descending } = self;
        println!(
            "words: {what} of {:4} B: {words:8} words, {torn} torn; {transfers:7} copies, {mixed} mixed, \
             an earlier word first {ascending}, a later word first {descending}",
            count * 8
        );
    }
}

pub fn words() {
    for (count, transfers) in SIZES {
        let (mut reads, mut writes) = (Tally::default(), Tally::default());
        for place in PLACES {
            for ascending in [true, false] {
                read(count, transfers / 2, place, ascending, &mut reads);
                write(count, transfers / 16, place, ascending, &mut writes);
            }
        }
        reads.print("READs ", count);
        writes.print("WRITEs", count);
    }
}

/// Stores or loads at each index, in a direction.
fn each(count: usize, ascending: bool, mut at: impl FnMut(usize)) {
    (0..count).for_each(|index| at(if ascending { index } else { count - 1 - index }));
}

fn read(count: usize, transfers: usize, place: usize, ascending: bool, tally: &mut Tally) {
    /// READs of one doorbell.
    const BATCH: usize = 8;
    let (reader, owner) = End::connected();
    // A page more, so that some place is the start of one.
    let (from, into) = (owner.region(2048), reader.region(BATCH * count));
    let page = (512 - from.words().as_ptr().addr() / 8 % 512) % 512;
    let memory = from.words().part(page + place, count);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1u64.. {
                each(count, ascending, |index| memory.store(index, doubled(round & 0xffff_ffff)));
                if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let work: Vec<_> = (0..BATCH)
            .map(|index| (Work::Read, into.part(index * count, count), from.remote().word(page + place)))
            .collect();
        let mut words = vec![0; count];
        for _ in 0..transfers / BATCH {
            reader.done(&work);
            for index in 0..BATCH {
                into.words().copy_out(index * count, &mut words);
                tally.add(&words);
                let (older, newer) = Tally::ages(&words);
                tally.ascending += u64::from(ascending && older);
                tally.descending += u64::from(!ascending && newer);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

fn write(count: usize, transfers: usize, place: usize, ascending: bool, tally: &mut Tally) {
    let (writer, owner) = End::connected();
    let (from, into) = (writer.region(count), owner.region(2048));
    let page = (512 - into.words().as_ptr().addr() / 8 % 512) % 512;
    let memory: Words<'_> = into.words().part(page + place, count);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // One WRITE after the other, so that all words of the one before have landed.
            for round in 1..=transfers as u64 {
                (0..count).for_each(|index| from.words().store(index, doubled(round)));
                writer.done(&[(Work::Write, from.part(0, count), into.remote().word(page + place))]);
            }
            over.store(true, Ordering::Relaxed);
        });
        let mut words = vec![0; count];
        while !over.load(Ordering::Relaxed) {
            each(count, ascending, |index| {
                words[index] = memory.load(index);
                load_fence();
            });
            tally.add(&words);
            // Loaded from the first on: an earlier word that is newer was placed before the later one. Loaded
            // from the last on: a later word that is newer was placed before the earlier one.
            let (older, newer) = Tally::ages(&words);
            tally.ascending += u64::from(ascending && newer);
            tally.descending += u64::from(!ascending && older);
        }
    });
}

/// Copies by `rep movsb`, as kernels make them where the processor says that it is fast, beside local stores.
/// Needs no device, so it tells about a real processor too: run the program outside of the machine.
pub fn copies() {
    const COUNT: usize = 32;
    const COPIES: u64 = 300_000;
    let memory = kelix_image::Span::private(COUNT as u64 * 8);
    let over = AtomicBool::new(false);
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1u64.. {
                each(COUNT, true, |index| memory.words().store(index, doubled(round & 0xffff_ffff)));
                if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let mut words = [0u64; COUNT];
        for _ in 0..COPIES {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: both stretches are mapped and as long; the assembly may do anything to memory, as far as the
            // compiler knows.
            unsafe {
                std::arch::asm!(
                    "rep movsb",
                    inout("rsi") memory.words().as_ptr() => _,
                    inout("rdi") words.as_mut_ptr() => _,
                    inout("rcx") COUNT * 8 => _,
                    options(nostack, preserves_flags)
                );
            }
            tally.add(&words);
        }
        over.store(true, Ordering::Relaxed);
    });
    let Tally { words, torn, mixed, .. } = tally;
    println!(
        "copies: rep movsb of {} B: {words} words, {torn} torn; {COPIES} copies, {mixed} mixed",
        COUNT * 8
    );
}
