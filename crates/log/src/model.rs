//! Models of a stream: what its reader gets is what was pushed, in its order, and nothing else.

use kelix_image::model::{explore, spawn};

use crate::{Lag, LetGo, Stream};

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
