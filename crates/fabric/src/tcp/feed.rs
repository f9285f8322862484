//! A connection that carries the feed of a mirror, at either end, for a thread that does nothing else with
//! its time.
//!
//! Nothing here waits but [`FeedLink::wait`]. What is queued and not taken by the other side is kept, so
//! whoever queues looks at [`FeedLink::unsent`] first; what arrives is received only as it is taken, so that
//! it is a frame or two.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;

use super::REFUSED;
use super::frame::{FEED_WORDS_MAX, Head, Kind};
use super::stream::Stream;

/// Longest pause between two looks whether an end is still waited for.
const LOOK: Duration = Duration::from_millis(20);

/// A frame of the feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedFrame<'w> {
    /// What the words are.
    pub part: u32,
    /// Which shard they are of.
    pub shard: u8,
    /// At least one, and no more than [`FEED_WORDS_MAX`].
    pub words: &'w [u64],
}

/// One end of a connection that carries a feed.
pub struct FeedLink {
    stream: Stream,
    /// What the other side said when it ended the connection.
    refused: Option<String>,
}

impl FeedLink {
    /// Of a connection whose two sides know each other. What has arrived and was not taken is kept.
    pub(super) fn new(stream: Stream) -> FeedLink {
        FeedLink { stream, refused: None }
    }

    /// Queues a frame of the set-up conversation.
    pub fn tell(&mut self, kind: u16, bytes: &[u8]) {
        self.stream.control(kind, bytes);
    }

    /// Queues a frame of the feed.
    pub fn push(&mut self, part: u32, shard: u8, words: &[u64]) {
        self.push_with(part, shard, words.len(), |into| into.copy_from_slice(words));
    }

    /// Queues a frame of so many words, which `fill` writes.
    pub fn push_with(&mut self, part: u32, shard: u8, words: usize, fill: impl FnOnce(&mut [u64])) {
        assert!((1..=FEED_WORDS_MAX).contains(&words), "{words} words are no frame of a feed");
        if self.stream.over().is_some() {
            return;
        }
        let out = &mut self.stream.out;
        out.push(Head::new(Kind::Feed, shard, part, words).word());
        let begin = out.len();
        out.resize(begin + words, 0);
        fill(&mut out[begin..]);
    }

    /// Sends as much of what is queued as the socket takes.
    pub fn flush(&mut self) {
        self.stream.flush();
    }

    /// Bytes that are queued, about.
    pub fn unsent(&self) -> usize {
        self.stream.unsent()
    }

    /// Bytes that the socket has taken so far.
    pub fn sent(&self) -> u64 {
        self.stream.written()
    }

    /// Bytes that have moved either way so far.
    pub fn moved(&self) -> u64 {
        self.stream.moved()
    }

    /// The next frame, if one has arrived whole. Whoever wants no more waits before it asks again.
    pub fn receive(&mut self) -> Option<FeedFrame<'_>> {
        let (head, body) = self.next().or_else(|| {
            self.stream.fill();
            self.next()
        })?;
        Some(FeedFrame { part: head.name, shard: head.small, words: &self.stream.words()[body] })
    }

    fn next(&mut self) -> Option<(Head, Range<usize>)> {
        let (head, body) = self.stream.next().filter(|_| self.refused.is_none())?;
        match head.kind {
            Kind::Feed => return Some((head, body)),
            Kind::Control if head.name == u32::from(REFUSED) => {
                let bytes = kelix_image::words::bytes_of(&self.stream.words()[body]);
                let text = String::from_utf8_lossy(&bytes[..head.count as usize]).into_owned();
                self.refused = Some(text);
                self.stream.end("the other side ended it");
            }
            _ => self.stream.end("a frame that makes no sense here"),
        }
        None
    }

    /// Waits until something arrives, or what is queued can be sent, or the time is over.
    pub fn wait(&self, timeout: Duration) {
        self.stream.wait(Some(timeout));
    }

    /// What is readable when something has arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.fd()
    }

    /// The other side's address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.stream.peer()
    }

    /// Why the connection is over, if it is.
    pub fn over(&self) -> Option<&str> {
        self.refused.as_deref().or(self.stream.over())
    }

    /// Ends the connection, as one of which nothing sensible came.
    pub fn end(&mut self, why: &'static str) {
        self.stream.end(why);
    }

    /// Tells the other side behind all that is queued why the connection ends, and ends it once that was
    /// taken in, or when this side does not wait any more: `gives_up` is asked after how long.
    pub fn refuse(mut self, text: &str, mut gives_up: impl FnMut(Duration) -> bool) {
        let (began, mut is_said) = (Instant::now(), false);
        self.stream.control(REFUSED, text.as_bytes());
        self.stream.flush();
        while self.stream.over().is_none() && !gives_up(began.elapsed()) {
            if self.stream.unsent() == 0 && !std::mem::replace(&mut is_said, true) {
                self.stream.say_no_more();
            }
            // What arrives is taken, or the system ends the connection at once, and forgets what it has to
            // send.
            self.stream.fill();
            while self.stream.next().is_some() {}
            self.stream.wait(Some(LOOK));
            self.stream.flush();
        }
        self.stream.end("refused");
    }
}
