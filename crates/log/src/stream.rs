//! A ring of words between the one who writes records and those who follow.
//!
//! ```text
//!   tail of the slowest          tail of another            head
//!   |                            |                          |
//! --[ not read yet by somebody ][ ........................ ]-----> free again, up to a turn behind the first
//! ```
//!
//! 1. Words before `head` are whole, and stay as they are until all tails are beyond them ([`Stream::push`]).
//! 2. A tail is stored by its follower only, and never goes beyond `head` ([`Reader::read`]).
//! 3. Who writes never waits here: what finds no room is kept by the caller. A follower that may not hold
//!    others back is let go before it does ([`Lag::LetGo`]).

use std::sync::Arc;

use kelix_image::Span;
use kelix_image::words::{full_fence, load_fence};

/// What happens when a follower is slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lag {
    /// The shard waits for it.
    Wait,
    /// It is let go.
    LetGo,
}

/// The words, and how many were ever written.
struct Ring {
    words: Span,
    /// Words in the ring: a power of two.
    count: u64,
    head: Span,
}

/// Words of what both ends know of a follower: how many it has read, whether it was let go so that what it
/// has not read may be overwritten, and whether it has gone.
const READ: usize = 0;
const LET_GO: usize = 1;
const GONE: usize = 2;

struct Tail {
    state: Span,
    lag: Lag,
}

impl Tail {
    fn has_gone(&self) -> bool {
        self.state.words().load_acquire(GONE) != 0
    }

    /// SYNC: pairs with the store in [`Reader::read`], whose loads are over.
    fn read(&self) -> u64 {
        self.state.words().load_acquire(READ)
    }
}

/// Bytes of a few words that are in nobody else's cache line.
const STATE_BYTES: u64 = 64;

/// The end of a stream that is written to.
pub struct Stream {
    ring: Arc<Ring>,
    head: u64,
    tails: Vec<Tail>,
    /// Up to here there is room, whatever followers have read since.
    room_until: u64,
}

impl Stream {
    /// A stream that holds so many words, rounded up to a power of two. Their memory is used once they are.
    pub fn new(words: usize) -> Stream {
        let count = words.next_power_of_two() as u64;
        Stream::over(StreamMemory { words: Span::private(count * 8), head: Span::private(STATE_BYTES) })
    }

    /// A stream in memory that others may read, too: a power of two of words, all of them zero.
    pub fn over(memory: StreamMemory) -> Stream {
        let count = memory.words.bytes() / 8;
        assert!(count.is_power_of_two(), "{count} words are no ring");
        let ring = Ring { words: memory.words, count, head: memory.head };
        Stream { ring: Arc::new(ring), head: 0, tails: Vec::new(), room_until: 0 }
    }

    /// Begins to follow: behind so many words that have yet to be pushed, which are the rest of a record.
    pub fn follow(&mut self, lag: Lag, behind: usize) -> Reader {
        let state = Span::private(STATE_BYTES);
        let read = self.head + behind as u64;
        state.words().store(READ, read);
        self.tails.push(Tail { state: state.clone(), lag });
        Reader { ring: self.ring.clone(), state, read }
    }

    /// Whether anybody follows.
    pub fn is_followed(&mut self) -> bool {
        self.tails.retain(|tail| !tail.has_gone());
        !self.tails.is_empty()
    }

    /// Pushes as many of these words as there is room for, and says how many.
    pub fn push(&mut self, words: &[u64]) -> usize {
        if self.head + words.len() as u64 > self.room_until {
            self.find_room(words.len() as u64);
        }
        let count = (self.room_until - self.head).min(words.len() as u64);
        if count == 0 {
            return 0;
        }
        let words = &words[..count as usize];
        let at = (self.head & (self.ring.count - 1)) as usize;
        let (here, behind) = words.split_at(words.len().min(self.ring.count as usize - at));
        self.ring.words.words().copy_in(at, here);
        self.ring.words.words().copy_in(0, behind);
        self.head += count;
        // SYNC: pairs with the load in `Reader::waiting`: who sees the head sees the words before it.
        self.ring.head.words().publish(0, self.head);
        words.len()
    }

    /// Looks how far followers are, and lets those go that may not be waited for.
    #[cold]
    fn find_room(&mut self, wanted: u64) {
        let turn = self.ring.count;
        let needed = (self.head + wanted.min(turn)).saturating_sub(turn);
        self.tails.retain(|tail| {
            let is_late = tail.lag == Lag::LetGo && tail.read() < needed;
            if is_late {
                tail.state.words().publish(LET_GO, 1);
            }
            !is_late && !tail.has_gone()
        });
        // SYNC: whoever sees a word that is stored from here on sees that it was let go; pairs with the fence
        // in `Reader::read`.
        full_fence();
        let slowest = self.tails.iter().map(Tail::read).min();
        self.room_until = slowest.unwrap_or(self.head) + turn;
    }
}

/// The memory of a stream, where others map it that are to have what stands in it whatever becomes of its
/// writer.
#[derive(Clone)]
pub struct StreamMemory {
    /// The ring, of a power of two of words.
    pub words: Span,
    /// The page with the number of words that were ever written.
    pub head: Span,
}

impl StreamMemory {
    /// Appends all words from the one with a number on. `None`: some are not there any more, or that is not
    /// where a stream can be.
    pub fn read_behind(&self, first: u64, words: &mut Vec<u64>) -> Option<()> {
        let ring = self.words.bytes() / 8;
        // SYNC: pairs with the store of the head in `Stream::push`.
        let waiting = self.head.words().load_acquire(0).checked_sub(first).filter(|count| *count <= ring)?;
        let from = words.len();
        words.resize(from + waiting as usize, 0);
        let at = (first & (ring - 1)) as usize;
        let (here, behind) = words[from..].split_at_mut((waiting as usize).min(ring as usize - at));
        self.words.words().copy_out(at, here);
        self.words.words().copy_out(0, behind);
        Some(())
    }
}

/// The end of a stream that one follower reads. Dropped, it follows no more.
pub struct Reader {
    ring: Arc<Ring>,
    state: Span,
    read: u64,
}

/// A follower was too slow, and was let go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LetGo;

impl Reader {
    /// Words that can be read now.
    pub fn waiting(&self) -> usize {
        self.ring.head.words().load_acquire(0).saturating_sub(self.read) as usize
    }

    /// How many words of the stream are before those that it reads next.
    pub fn position(&self) -> u64 {
        self.read
    }

    /// What is before a position is not wanted any more, by somebody who does not read here but in the memory.
    pub fn pass_to(&mut self, position: u64) {
        self.read = self.read.max(position);
        // SYNC: as in `Reader::read`; the loads were those of whoever said so.
        self.state.words().publish(READ, self.read);
    }

    /// Whether it was let go: what it has not read may be lost.
    pub fn is_let_go(&self) -> bool {
        self.state.words().load_acquire(LET_GO) != 0
    }

    /// Appends what can be read, but no more than so many words, to `words`; says how many. `Err`: some were
    /// lost, and nothing was appended.
    pub fn read(&mut self, words: &mut Vec<u64>, most: usize) -> Result<usize, LetGo> {
        let waiting = self.waiting();
        if waiting as u64 > self.ring.count {
            // More than there is room for: it was let go before that was pushed.
            return Err(LetGo);
        }
        let count = waiting.min(most);
        let first = words.len();
        words.resize(first + count, 0);
        let at = (self.read & (self.ring.count - 1)) as usize;
        let (here, behind) = words[first..].split_at_mut(count.min(self.ring.count as usize - at));
        self.ring.words.words().copy_out(at, here);
        self.ring.words.words().copy_out(0, behind);
        self.read += count as u64;
        // SYNC: behind the loads of the words. It was let go before one of them was overwritten.
        load_fence();
        if self.state.words().load(LET_GO) != 0 {
            words.truncate(first);
            return Err(LetGo);
        }
        // SYNC: pairs with the loads in `Tail::read`: the words' loads are over.
        self.state.words().publish(READ, self.read);
        Ok(count)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.state.words().publish(GONE, 1);
    }
}

#[cfg(kelix_loom)]
impl Reader {
    /// Names the words that both ends of this follower use, for model tests.
    pub(crate) fn share(&self) {
        kelix_image::model::share(self.ring.words.words());
        kelix_image::model::share(self.ring.head.words().part(0, 1));
        kelix_image::model::share(self.state.words().part(0, 3));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(follower: &mut Reader) -> Vec<u64> {
        let mut words = Vec::new();
        while follower.read(&mut words, 5).unwrap() > 0 {}
        words
    }

    #[test]
    fn words_come_in_their_order_over_many_turns() {
        let mut stream = Stream::new(16);
        assert!(!stream.is_followed());
        let (mut one, mut other) = (stream.follow(Lag::Wait, 0), stream.follow(Lag::Wait, 0));
        let (mut pushed, mut seen) = (0u64, [0u64; 2]);
        for round in 0..1000 {
            let words: Vec<u64> = (pushed..pushed + round % 13).collect();
            pushed += stream.push(&words) as u64;
            for (which, follower) in [&mut one, &mut other].into_iter().enumerate() {
                if round % (which as u64 + 1) == 0 {
                    for word in all(follower) {
                        assert_eq!(word, seen[which]);
                        seen[which] += 1;
                    }
                }
            }
        }
        assert!(pushed > 3000, "{pushed}");
    }

    #[test]
    fn who_writes_keeps_what_finds_no_room() {
        let mut stream = Stream::new(8);
        let mut follower = stream.follow(Lag::Wait, 0);
        assert_eq!(stream.push(&[1; 6]), 6);
        assert_eq!(stream.push(&[2; 6]), 2);
        assert_eq!(stream.push(&[2; 4]), 0);
        assert_eq!(all(&mut follower), [1, 1, 1, 1, 1, 1, 2, 2]);
        assert_eq!(stream.push(&[3; 20]), 8);
        drop(follower);
        assert_eq!(stream.push(&[4; 8]), 8, "nobody is waited for any more");
        assert!(!stream.is_followed());
    }

    #[test]
    fn who_begins_in_the_middle_of_a_record_begins_behind_it() {
        let mut stream = Stream::new(8);
        let mut first = stream.follow(Lag::Wait, 0);
        assert_eq!(stream.push(&[1; 10]), 8);
        let mut second = stream.follow(Lag::Wait, 2);
        assert_eq!((all(&mut first).len(), second.waiting()), (8, 0));
        assert_eq!((stream.push(&[1; 2]), second.waiting()), (2, 0));
        assert_eq!(stream.push(&[2; 3]), 3);
        assert_eq!((all(&mut first), all(&mut second)), (vec![1, 1, 2, 2, 2], vec![2; 3]));
    }

    #[test]
    fn the_slow_are_let_go() {
        let mut stream = Stream::new(8);
        let (mut slow, mut other) = (stream.follow(Lag::LetGo, 0), stream.follow(Lag::Wait, 0));
        assert_eq!(stream.push(&[1; 8]), 8);
        assert_eq!(all(&mut other).len(), 8);
        assert_eq!(stream.push(&[2; 4]), 4);
        let mut words = vec![9];
        assert!(slow.is_let_go() && !other.is_let_go());
        assert_eq!((slow.read(&mut words, 100), &words[..]), (Err(LetGo), &[9][..]));
        // A whole turn and more behind, too.
        assert_eq!((all(&mut other).len(), stream.push(&[3; 8])), (4, 8));
        assert_eq!((slow.read(&mut words, usize::MAX), &words[..]), (Err(LetGo), &[9][..]));
        assert!(stream.is_followed());
        drop(other);
        assert!(!stream.is_followed());
    }

    #[test]
    fn whoever_maps_the_memory_finds_what_is_held_for_it() {
        let memory = StreamMemory { words: Span::private(16 * 8), head: Span::private(64) };
        let mut stream = Stream::over(memory.clone());
        assert_eq!(stream.push(&[1, 2, 3]), 3);
        let (mut hold, mut reader) = (stream.follow(Lag::Wait, 0), stream.follow(Lag::LetGo, 0));
        assert_eq!((hold.position(), reader.position()), (3, 3));
        let mut next = 4;
        for round in 0..20 {
            let words: Vec<u64> = (next..next + 9).collect();
            let before = next;
            next += stream.push(&words) as u64;
            assert_eq!(all(&mut reader), (before..next).collect::<Vec<u64>>());
            let mut found = Vec::new();
            memory.read_behind(hold.position(), &mut found).unwrap();
            assert_eq!(found, (hold.position() + 1..next).collect::<Vec<u64>>());
            assert!(found.len() <= 16);
            // Not as far as it could, so that the ring gets full.
            if round % 3 == 2 {
                hold.pass_to(next - 4);
                hold.pass_to(next - 6);
            }
        }
        assert!(next > 60 && !hold.is_let_go(), "{next}");
        assert_eq!(memory.read_behind(next, &mut Vec::new()), None, "that is to come");
        assert_eq!(memory.read_behind(0, &mut Vec::new()), None, "that is gone");
    }

    #[test]
    fn threads_see_whole_words() {
        let mut stream = Stream::new(64);
        let mut follower = stream.follow(Lag::Wait, 0);
        let reader = std::thread::spawn(move || {
            let (mut words, mut next) = (Vec::new(), 0u64);
            while next < 100_000 {
                words.clear();
                if follower.read(&mut words, 50).unwrap() == 0 {
                    std::thread::yield_now();
                }
                for word in &words {
                    assert_eq!(*word, next);
                    next += 1;
                }
            }
        });
        let mut next = 0;
        while next < 100_000u64 {
            let words: Vec<u64> = (next..(next + 17).min(100_000)).collect();
            next += stream.push(&words) as u64;
            std::thread::yield_now();
        }
        reader.join().unwrap();
    }
}
