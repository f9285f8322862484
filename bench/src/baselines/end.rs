//! An end of a connection that carries message rings and nothing else, and the waiting at it. Nothing is READ
//! over it.

use std::time::{Duration, Instant};

use kelix_fabric::{Broken, Clock, Mailbox, PeerId, WorkQueue};
use kelix_image::Span;
use kelix_image::words::Words;

/// The only peer of an end.
pub(super) const PEER: PeerId = PeerId(0);

/// Looking without giving the core away, where nobody needs it, and then while giving it away, as the store's
/// shard does.
const SPIN: Duration = Duration::from_micros(20);
const YIELD: Duration = Duration::from_micros(100);
/// Looks between two looks at the clock.
const LOOKS: u32 = 16;

/// How words leave an end, and how it sleeps.
pub(crate) trait Way {
    /// Writes words into the mailbox that they are for.
    fn write(&mut self, first: usize, words: &[u64]);
    /// Sends off what was written, where that is a step of its own.
    fn send(&mut self) {}
    /// Puts what has arrived into this end's mailbox, where others do not.
    fn take_in(&mut self, _inbox: &Span) {}
    /// Wakes whoever takes what was written, if it sleeps.
    fn wake(&mut self) {}
    /// Announces that this end is about to sleep.
    fn announce_sleep(&mut self) {}
    /// Sleeps until it is woken or the time has passed, and takes the announcement back.
    fn sleep(&mut self, timeout_ns: Option<u64>);
    /// Whether the connection has ended.
    fn has_ended(&self) -> bool;
    /// Ends it.
    fn end(&mut self);
}

/// Places a WRITE in a mailbox, its first word last.
pub(super) fn place_words(mailbox: &Span, first: usize, words: &[u64]) {
    mailbox.words().copy_in(first + 1, &words[1..]);
    mailbox.words().publish(first, words[0]);
}

/// An end of a connection: a mailbox, and the way to the other end.
pub(super) struct End<W: Way> {
    inbox: Span,
    pub way: W,
    /// Nobody it waits for needs the core that it is on.
    has_core: bool,
    began: Instant,
}

impl<W: Way> End<W> {
    pub fn new(inbox: Span, way: W, has_core: bool) -> End<W> {
        End { inbox, way, has_core, began: Instant::now() }
    }

    /// Waits for news, until a time at the latest.
    pub fn wait(&mut self, until_ns: Option<u64>, has_news: impl Fn(&Self) -> bool) {
        let began_ns = self.now_ns();
        let has_news = |end: &Self| has_news(end) || end.way.has_ended();
        let looks = if self.has_core { LOOKS } else { 1 };
        loop {
            for look in 1..=looks {
                self.progress();
                if has_news(self) {
                    return;
                }
                if look % 8 == 0 {
                    std::hint::spin_loop();
                }
            }
            let now_ns = self.now_ns();
            let waited = Duration::from_nanos(now_ns - began_ns);
            if waited > YIELD || until_ns.is_some_and(|until| until <= now_ns) {
                break;
            }
            if !self.has_core || waited > SPIN {
                std::thread::yield_now();
            }
        }
        self.way.announce_sleep();
        self.progress();
        let left_ns = until_ns.map(|until| until.saturating_sub(self.now_ns()));
        let timeout_ns = if has_news(self) { Some(0) } else { left_ns };
        self.way.sleep(timeout_ns);
    }
}

/// Whichever end goes, and why ever, the others do not wait for it.
impl<W: Way> Drop for End<W> {
    fn drop(&mut self) {
        self.way.end();
    }
}

impl<W: Way> WorkQueue for End<W> {
    fn doorbell(&mut self) {
        self.way.send();
    }

    fn progress(&mut self) -> bool {
        self.way.take_in(&self.inbox);
        true
    }

    fn look(&mut self) {}

    fn is_broken(&self, _: PeerId) -> bool {
        self.way.has_ended()
    }
}

impl<W: Way> Mailbox for End<W> {
    fn post_write(&mut self, _: PeerId, first: usize, words: &[u64]) -> Result<(), Broken> {
        self.way.write(first, words);
        Ok(())
    }

    fn inbox(&self, _: PeerId) -> Words<'_> {
        self.inbox.words()
    }

    fn wake(&mut self, _: PeerId) {
        self.way.wake();
    }
}

impl<W: Way> Clock for End<W> {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}
