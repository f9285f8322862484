//! Models of a stream: what its reader gets is what was pushed, in its order, and nothing else. And of
//! batches of a log, which are cut where nothing is missing.

use kelix_image::model::{explore, share, spawn};
use kelix_image::words::full_fence;
use kelix_image::{Committed, Span};

use crate::gather::is_earlier;
use crate::{Lag, LetGo, LogControl, LogSleep, Stream};

/// What a follower has read when all is over.
fn read_beside(lag: Lag, pushes: u64, reads: usize) -> (Vec<u64>, bool) {
    let mut stream = Stream::new(2);
    let mut reader = stream.follow(lag, 0);
    reader.share();
    let writer = spawn(move || {
        for word in 1..=pushes {
            if stream.push(&[word]) == 0 {
                break;
            }
        }
    });
    let follower = spawn(move || {
        let (mut words, mut lost) = (Vec::new(), false);
        for _ in 0..reads {
            match reader.read(&mut words, 2) {
                Ok(_) => {}
                Err(LetGo) => lost = true,
            }
            if lost {
                break;
            }
        }
        (words, lost)
    });
    writer.join().expect("no panic");
    let (words, lost) = follower.join().expect("no panic");
    assert!(words.iter().copied().eq(1..=words.len() as u64), "{words:?}");
    (words, lost)
}

#[test]
fn a_reader_that_is_waited_for_loses_nothing() {
    let outcomes = explore("a stream and a reader that is waited for", 3, || read_beside(Lag::Wait, 4, 3));
    assert!(outcomes.keys().all(|(_, lost)| !lost));
    assert!(
        outcomes.keys().any(|(words, _)| words.len() > 2),
        "a word took the place of one that was read: not met"
    );
}

#[test]
fn a_reader_that_is_let_go_reads_nothing_that_took_the_place_of_something_else() {
    let outcomes = explore("a stream and a reader that is let go", 3, || read_beside(Lag::LetGo, 4, 2));
    assert!(outcomes.keys().any(|(_, lost)| *lost), "let go: not met");
    assert!(outcomes.keys().any(|(words, lost)| !lost && !words.is_empty()), "not let go: not met");
}

/// A client writes to one shard, sees the answer, and writes to another one. A batch that has the second
/// record has the first one. Somebody else may begin batches, too.
fn gather_beside(name: &'static str, is_alone: bool) {
    let outcomes = explore(name, if is_alone { 3 } else { 2 }, move || {
        let control = LogControl::new();
        let (first, second) = (control.shard(Committed::NONE), control.shard(Committed::NONE));
        first.share();
        let (mut streams, mut readers) = ([Stream::new(2), Stream::new(2)], Vec::new());
        for stream in &mut streams {
            let reader = stream.follow(Lag::Wait, 0);
            reader.share();
            readers.push(reader);
        }
        let [mut one, mut other] = streams;
        let answer = Span::private(64);
        share(answer.words().part(0, 1));
        let answered = answer.clone();
        let cause = spawn(move || {
            one.push(&[first.batch()]);
            full_fence();
            answer.words().publish(0, 1);
        });
        let effect = spawn(move || {
            if answered.words().load_acquire(0) == 1 {
                other.push(&[second.batch()]);
            }
        });
        let others = control.clone();
        let begins = (!is_alone).then(|| spawn(move || others.begin_batch()));
        let log = spawn(move || {
            let later = control.begin_batch();
            let mut has = [false; 2];
            for (has, reader) in has.iter_mut().zip(&mut readers) {
                let mut words = Vec::new();
                reader.read(&mut words, 2).expect("waited for");
                *has = words.first().is_some_and(|batch| is_earlier(*batch as u16, later));
            }
            (later, has)
        });
        cause.join().expect("no panic");
        effect.join().expect("no panic");
        let (later, [cause, effect]) = log.join().expect("no panic");
        assert!(begins.is_none_or(|begins| begins.join().expect("no panic") != later), "a number twice");
        assert!(cause || !effect, "an effect without its cause");
        (cause, effect)
    });
    assert!(outcomes.contains_key(&(true, true)) && outcomes.contains_key(&(true, false)));
    assert!(outcomes.contains_key(&(false, false)));
}

#[test]
fn a_batch_has_the_cause_of_what_it_has() {
    gather_beside("a batch of two shards and a client of both", true);
}

#[test]
fn a_batch_has_the_cause_of_what_it_has_whoever_else_gathers() {
    gather_beside("a batch of two shards, a client of both, and somebody else who gathers", false);
}

/// A record that is pushed while the log's thread is about to sleep is seen by the thread, or wakes it.
#[test]
fn nobody_sleeps_through_a_record() {
    let outcomes = explore("a shard and a log's thread that is about to sleep", 3, || {
        let control = LogControl::new();
        let shard = control.shard(Committed::NONE);
        shard.share();
        let mut stream = Stream::new(2);
        let reader = stream.follow(Lag::Wait, 0);
        reader.share();
        let pushes = spawn(move || {
            stream.push(&[1]);
            full_fence();
            shard.sleep() == LogSleep::Sleeps
        });
        let sleeps = spawn(move || {
            control.announce(LogSleep::Sleeps);
            reader.waiting() > 0
        });
        let (wakes, sees) = (pushes.join().expect("no panic"), sleeps.join().expect("no panic"));
        assert!(wakes || sees, "a record that nobody writes");
        (wakes, sees)
    });
    assert!(outcomes.len() > 1, "{outcomes:?}");
}
