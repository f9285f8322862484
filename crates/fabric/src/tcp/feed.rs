//! A connection that carries the feed of a mirror, at either end, for a thread that does nothing else with
//! its time; or the queue pair beside it, if the two have one ([`FeedLink::over_verbs`]). Then the connection
//! carries what is said before the feed and behind it, and its end is that of both: frames of the set-up
//! conversation, and why the feed ends.
//!
//! Nothing here waits but [`FeedLink::wait`]. What is queued and not taken by the other side is kept, so
//! whoever queues looks at [`FeedLink::unsent`] first; what arrives is received only as it is taken, so that
//! it is a frame or two.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use kelix_types::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};

use super::REFUSED;
use super::frame::{self, FEED_WORDS_MAX, Head, Kind};
use super::stream::Stream;
use crate::timespec;
use crate::verbs::VerbsStream;

/// Longest pause between two looks whether an end is still waited for.
const LOOK: Duration = Duration::from_millis(20);
/// Words that are taken from a queue pair at once.
const RECEIVE_WORDS: usize = 8 << 10;
/// What was acknowledged by this side's device before the connection said something can be seen so much
/// later.
const VISIBLE: Duration = Duration::from_millis(5);

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

/// The queue pair beside a connection, and what has come over it.
struct Verbs {
    stream: VerbsStream,
    arrived: Vec<u64>,
    /// Words of that that were taken.
    taken: usize,
    /// Since when the connection has something to say, or is over: nothing is said over the queue pair any
    /// more, and what was is to be taken first.
    ends: Option<Instant>,
}

impl Verbs {
    /// Where the next frame of the feed stands that has arrived whole. An error: what came is none.
    fn next(&mut self) -> std::result::Result<Option<(Head, Range<usize>)>, &'static str> {
        loop {
            match frame::next(&self.arrived[self.taken..], 1 + FEED_WORDS_MAX)? {
                Some((head, body)) if head.kind == Kind::Feed => {
                    let at = self.taken;
                    self.taken += body.end;
                    return Ok(Some((head, at + body.start..at + body.end)));
                }
                Some(_) => return Err("a frame that makes no sense here"),
                None => {}
            }
            self.arrived.drain(..self.taken);
            self.taken = 0;
            if !self.stream.receive(&mut self.arrived, RECEIVE_WORDS) {
                return Ok(None);
            }
        }
    }
}

/// One end of a connection that carries a feed.
pub struct FeedLink {
    stream: Stream,
    verbs: Option<Verbs>,
    /// What the other side said when it ended the connection.
    refused: Option<String>,
}

impl FeedLink {
    /// Of a connection whose two sides know each other. What has arrived and was not taken is kept.
    pub(super) fn new(stream: Stream) -> FeedLink {
        FeedLink { stream, verbs: None, refused: None }
    }

    /// Of a connection between two processes of a host, whose set-up conversation is over.
    pub fn local(socket: UnixStream) -> Result<FeedLink> {
        let stream = Stream::local(socket, 1 + FEED_WORDS_MAX);
        stream
            .map(FeedLink::new)
            .map_err(|source| Error::system("follow", "the system refused to set up the socket", source))
    }

    /// The feed goes over a queue pair from here on, if the two sides have one.
    pub fn over_verbs(self, stream: Option<VerbsStream>) -> FeedLink {
        let verbs = stream.map(|stream| Verbs { stream, arrived: Vec::new(), taken: 0, ends: None });
        FeedLink { verbs, ..self }
    }

    /// The name of the fabric that the feed goes over.
    pub fn fabric(&self) -> &'static str {
        if self.verbs.is_some() { "verbs" } else { "tcp" }
    }

    /// Queues a frame of the set-up conversation.
    pub fn tell(&mut self, kind: u16, bytes: &[u8]) {
        self.stream.control(kind, bytes);
    }

    /// Queues a frame of the feed.
    pub fn push(&mut self, part: u32, shard: u8, words: &[u64]) {
        let Some(out) = self.begin_frame(part, shard, words.len()) else { return };
        out.extend_from_slice(words);
    }

    /// Queues a frame of so many words, which `fill` writes.
    pub fn push_with(&mut self, part: u32, shard: u8, words: usize, fill: impl FnOnce(&mut [u64])) {
        let Some(out) = self.begin_frame(part, shard, words) else { return };
        let begin = out.len();
        out.resize(begin + words, 0);
        fill(&mut out[begin..]);
    }

    /// Where the words of a frame are queued. `None`: the connection is over.
    fn begin_frame(&mut self, part: u32, shard: u8, words: usize) -> Option<&mut Vec<u64>> {
        assert!((1..=FEED_WORDS_MAX).contains(&words), "{words} words are no frame of a feed");
        if self.stream.over().is_some() {
            return None;
        }
        let out = self.verbs.as_mut().map_or(&mut self.stream.out, |verbs| &mut verbs.stream.out);
        out.push(Head::new(Kind::Feed, shard, part, words).word());
        Some(out)
    }

    /// Sends as much of what is queued as is taken.
    pub fn flush(&mut self) {
        self.stream.flush();
        self.verbs.iter_mut().for_each(|verbs| verbs.stream.flush());
    }

    /// Bytes that are queued, about.
    pub fn unsent(&self) -> usize {
        self.stream.unsent() + self.unsent_over_verbs()
    }

    fn unsent_over_verbs(&self) -> usize {
        self.verbs.as_ref().map_or(0, |verbs| verbs.stream.unsent())
    }

    /// Bytes that were taken so far.
    pub fn sent(&self) -> u64 {
        self.stream.written() + self.verbs.as_ref().map_or(0, |verbs| verbs.stream.sent())
    }

    /// Bytes that have moved either way so far.
    pub fn moved(&self) -> u64 {
        self.stream.moved() + self.verbs.as_ref().map_or(0, |verbs| verbs.stream.moved())
    }

    /// The next frame, if one has arrived whole. Whoever wants no more waits before it asks again.
    pub fn receive(&mut self) -> Option<FeedFrame<'_>> {
        if let Some(verbs) = &mut self.verbs {
            match verbs.next() {
                Ok(Some((head, body))) => {
                    // Found again, since a frame that is given away cannot be borrowed on one way only.
                    let words = &self.verbs.as_ref().expect("just seen").arrived[body];
                    return Some(FeedFrame { part: head.name, shard: head.small, words });
                }
                Ok(None) => self.look_beside(),
                Err(why) => self.end(why),
            }
            if self.verbs.is_some() {
                return None;
            }
        }
        let (head, body) = self.next().or_else(|| {
            self.stream.fill();
            self.next()
        })?;
        Some(FeedFrame { part: head.name, shard: head.small, words: &self.stream.words()[body] })
    }

    /// Nothing has come over the queue pair. If the connection has something to say, that is what follows,
    /// once all that was sent before is here.
    fn look_beside(&mut self) {
        let Some(verbs) = &mut self.verbs else { return };
        if self.stream.fill() || self.stream.over().is_some() {
            verbs.ends.get_or_insert_with(Instant::now);
        }
        self.verbs.take_if(|verbs| verbs.ends.is_some_and(|since| since.elapsed() > VISIBLE));
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
    pub fn wait(&mut self, timeout: Duration) {
        if self.verbs.is_none() {
            return self.stream.wait(Some(timeout));
        }
        if let Some(fds) = self.watch() {
            // Whatever it says, all is looked at again.
            let _ = poll(&mut fds.collect::<Vec<_>>(), Some(&timespec(timeout)));
        }
    }

    /// What to wait for, together with others. `None`: there is something to do already.
    pub fn watch(&mut self) -> Option<impl Iterator<Item = PollFd<'_>>> {
        if self.verbs.as_mut().is_some_and(|verbs| verbs.ends.is_some() || !verbs.stream.arm()) {
            return None;
        }
        let verbs = self.verbs.as_ref();
        let verbs = verbs.map(|verbs| PollFd::from_borrowed_fd(verbs.stream.fd(), PollFlags::IN));
        Some([self.stream.watch()].into_iter().chain(verbs))
    }

    /// The other side's address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.stream.peer()
    }

    /// Why the connection is over, if it is.
    pub fn over(&self) -> Option<&str> {
        match &self.verbs {
            Some(verbs) if verbs.stream.is_broken() => Some("its queue pair broke"),
            Some(_) => None,
            None => self.refused.as_deref().or(self.stream.over()),
        }
    }

    /// Ends the connection, as one of which nothing sensible came.
    pub fn end(&mut self, why: &'static str) {
        self.verbs = None;
        self.stream.end(why);
    }

    /// Tells the other side behind all that is queued why the connection ends, and ends it once that was
    /// taken in, or when this side does not wait any more: `gives_up` is asked after how long.
    pub fn refuse(mut self, text: &str, mut gives_up: impl FnMut(Duration) -> bool) {
        let (began, mut is_queued, mut is_said) = (Instant::now(), false, false);
        loop {
            if self.unsent_over_verbs() == 0 && !std::mem::replace(&mut is_queued, true) {
                self.stream.control(REFUSED, text.as_bytes());
            }
            self.flush();
            if self.stream.over().is_some() || gives_up(began.elapsed()) {
                break;
            }
            if is_queued && self.stream.unsent() == 0 && !std::mem::replace(&mut is_said, true) {
                self.stream.say_no_more();
            }
            // What arrives is taken, or the system ends the connection at once, and forgets what it has to
            // send; or the other side waits for a place for its messages, and takes nothing in meanwhile.
            self.stream.fill();
            while self.stream.next().is_some() {}
            if let Some(verbs) = &mut self.verbs {
                verbs.arrived.clear();
                verbs.stream.receive(&mut verbs.arrived, RECEIVE_WORDS);
            }
            self.wait(LOOK);
        }
        self.end("refused");
    }
}
