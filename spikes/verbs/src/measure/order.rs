//! Which orders hold between work requests of one queue pair.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kelix_image::words::{full_fence, load_fence};
use kelix_verbs_spike::verbs::Work;

use super::rig::End;

const ROUNDS: u64 = 5000;

pub fn order() {
    read_finds_the_write_before_it();
    writes_and_looks();
    reads_and_stores();
}

/// A WRITE of several words and a READ of its last one, with one doorbell.
fn read_finds_the_write_before_it() {
    for count in [1, 512, 2048] {
        let (this, other) = End::connected();
        let (from, to, into) = (this.region(count), other.region(count), this.region(1));
        let mut older = 0;
        for round in 1..=ROUNDS / 2 {
            (0..count).for_each(|index| from.words().store(index, round));
            this.done(&[
                (Work::Write, from.part(0, count), to.remote()),
                (Work::Read, into.part(0, 1), to.remote().word(count - 1)),
            ]);
            older += u64::from(into.words().load(0) != round);
        }
        println!(
            "order: WRITE of {} B, then READ of its last word: {older} of {} find an older one",
            count * 8,
            ROUNDS / 2
        );
    }
}

/// Two WRITEs with one doorbell, a large one and then a small one; the owner looks at the second first.
fn writes_and_looks() {
    const COUNT: usize = 512;
    let (this, other) = End::connected();
    let (from, to) = (this.region(COUNT + 1), other.region(COUNT + 1));
    let over = AtomicBool::new(false);
    let (mut looks, mut between, mut overtaken) = (0u64, 0u64, 0u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                (0..=COUNT).for_each(|index| from.words().store(index, round));
                this.done(&[
                    (Work::Write, from.part(0, COUNT), to.remote()),
                    (Work::Write, from.part(COUNT, 1), to.remote().word(COUNT)),
                ]);
            }
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            let second = to.words().load_acquire(COUNT);
            let first = to.words().load_acquire(COUNT - 1);
            looks += 1;
            between += u64::from(first > second);
            overtaken += u64::from(first < second);
        }
    });
    println!(
        "order: WRITE of {} B, then of 8 B: {looks} looks, {between} between, {overtaken} see the second first",
        COUNT * 8
    );
}

/// Two READs with one doorbell beside a writer that stores to the second's word, then to the first's.
fn reads_and_stores() {
    for count in [1, 512] {
        let (this, other) = End::connected();
        let (memory, into) = (other.region(count + 1), this.region(count + 1));
        let over = AtomicBool::new(false);
        let (mut before, mut power) = (0u64, 0u64);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1u64.. {
                    memory.words().publish(count, round);
                    full_fence();
                    (0..count).for_each(|index| memory.words().store(index, round));
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let data = (Work::Read, into.part(0, count), memory.remote());
            let authority = (Work::Read, into.part(count, 1), memory.remote().word(count));
            for round in 0..ROUNDS {
                let as_wanted = round % 2 == 0;
                this.done(&if as_wanted { [data, authority] } else { [authority, data] });
                let authority = into.words().load(count);
                let newest = (0..count).map(|index| into.words().load(index)).max().expect("a word");
                before += u64::from(as_wanted && authority < newest);
                power += u64::from(!as_wanted && authority < newest);
            }
            over.store(true, Ordering::Relaxed);
        });
        println!(
            "order: READ of {} B, then READ of 8 B: {before} of {} times the second was sampled before the \
             first; posted the other way round {power} times",
            count * 8,
            ROUNDS / 2
        );
    }
}

/// The sleeper stores its word, fences, and loads the message; the waker WRITEs the message and READs the
/// word, with one doorbell. If neither sees the other a wake-up is lost.
pub fn handshake() {
    const ROUNDS: u64 = 10_000;
    let (this, other) = End::connected();
    // Message and sleep word on lines of their own.
    let (from, to, into) = (this.region(1), other.region(64), this.region(1));
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let saw = AtomicBool::new(false);
    let mut outcomes = [[0u64; 2]; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                while begun.load(Ordering::Acquire) < round {}
                // Anywhere around the moment when the WRITE is placed.
                (0..round * 7919 % 2500).for_each(|_| std::hint::spin_loop());
                to.words().store(32, round);
                full_fence();
                let message = to.words().load(0);
                load_fence();
                saw.store(message == round, Ordering::Relaxed);
                ended.store(round, Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            from.words().store(0, round);
            begun.store(round, Ordering::Release);
            this.done(&[
                (Work::Write, from.part(0, 1), to.remote()),
                (Work::Read, into.part(0, 1), to.remote().word(32)),
            ]);
            while ended.load(Ordering::Acquire) < round {}
            let waker_saw = into.words().load(0) == round;
            outcomes[usize::from(saw.load(Ordering::Relaxed))][usize::from(waker_saw)] += 1;
        }
    });
    println!(
        "handshake: of {ROUNDS} rounds both saw {}, only the sleeper {}, only the waker {}, neither {}",
        outcomes[1][1], outcomes[1][0], outcomes[0][1], outcomes[0][0]
    );
}
