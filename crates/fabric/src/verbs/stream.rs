//! A stream of words over a queue pair that two threads have to themselves: SENDs into posted receives.
//!
//! Nothing of either side can be READ or WRITten by the other one. The first word of a message says how many
//! messages with words its sender has taken in so far; a side has at most [`WINDOW`] on their way that the
//! other one has not taken in. So there is a receive for every message, and a side that takes nothing in
//! holds the other one back. A side that has taken in half of that and has nothing to say reports it with a
//! message without words. The other side has to take messages in to send any, so reports are never many, and
//! [`REPORTS`] receives beside the window are enough.

use std::collections::VecDeque;
use std::io::{Error, Result};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use super::Ticket;
use super::cm::{Events, Id};
use super::device::{Access, Device, Domain, Region};
use super::ffi::constant::{SEND_SIGNALED, WR_SEND};
use super::ffi::{SendWr, Wc};
use super::queue::{Channel, Completions, Pair, TAKEN};

/// Words of one message at most, the first one included.
const MESSAGE_WORDS: usize = 4 << 10;
/// Messages with words that may be on their way to one side.
const WINDOW: usize = 32;
/// Receives for messages without any.
const REPORTS: usize = 8;
const RECEIVES: usize = WINDOW + REPORTS;
/// Messages of this side that the device may be at work on.
const SENDS: usize = 16;

/// How many messages with words are on their way to each side, as far as one side knows.
#[derive(Default)]
struct Window {
    /// Messages that this side has posted, and how many of them the other side has taken in.
    given: u64,
    accepted: u64,
    /// Messages of the other side that this one has taken in, and how many of them the other side knows of.
    taken: u64,
    told: u64,
}

impl Window {
    /// Whether there is a receive for one more message.
    fn has_room(&self) -> bool {
        self.given - self.accepted < WINDOW as u64
    }

    /// Takes note of how many messages the other side says to have taken in. `false`: that makes no sense.
    fn accept(&mut self, accepted: u64) -> bool {
        // No message overtakes another one.
        let makes_sense = (self.accepted..=self.given).contains(&accepted);
        if makes_sense {
            self.accepted = accepted;
        }
        makes_sense
    }

    /// What a message is to say.
    fn tell(&mut self) -> u64 {
        self.told = self.taken;
        self.taken
    }

    /// Whether the other side is to be told, if only of what was taken in.
    fn owes_report(&self) -> bool {
        self.taken - self.told >= WINDOW as u64 / 2
    }
}

/// One end of a stream.
pub struct VerbsStream {
    // Dropped first, so that the device is done with all memory.
    pair: Pair,
    sends: Completions,
    receives: Completions,
    channel: Arc<Channel>,
    /// Held for as long as the connection is to be.
    _id: Id,
    outgoing: Region,
    incoming: Region,
    /// Words that are to be sent, and how many of them stand in messages already.
    pub out: Vec<u64>,
    placed: usize,
    /// Messages that were posted, how many of them are complete, and the words of each that is not.
    posted: u64,
    complete: u64,
    words: VecDeque<usize>,
    window: Window,
    /// Messages that have arrived and were not taken in whole: which receive, and which words of it are left.
    arrived: VecDeque<(usize, std::ops::Range<usize>)>,
    /// Words that have arrived at the other side, and here.
    sent_words: u64,
    received_words: u64,
    broken: bool,
}

impl VerbsStream {
    /// Connects a stream to a server that has given a ticket for one, from an address of this host if that is
    /// given.
    pub(super) fn connect(
        ticket: &Ticket,
        (from, to): (Option<IpAddr>, SocketAddr),
        patience: Duration,
    ) -> Result<VerbsStream> {
        let id = Id::resolve(&Events::new()?, from, to, patience)?;
        let device = Device::open(&id.device()?)?;
        VerbsStream::new(&device, |pair| id.connect(pair, &device, ticket, patience).map(|()| id))
    }

    /// Accepts the request for one, which has come by a device.
    pub(super) fn accept(id: Id, device: &Arc<Device>) -> Result<VerbsStream> {
        VerbsStream::new(device, |pair| id.accept(pair, device).map(|()| id))
    }

    /// A stream of a queue pair that is connected here.
    fn new(device: &Arc<Device>, connect: impl FnOnce(&Pair) -> Result<Id>) -> Result<VerbsStream> {
        if (device.limits.max_qp_wr as usize) < RECEIVES {
            return Err(Error::other(format!("{} takes too few requests at once", device.name)));
        }
        let domain = Domain::new(device)?;
        let channel = Channel::new(device)?;
        let sends = Completions::new(&channel, SENDS, 0)?;
        let receives = Completions::new(&channel, RECEIVES, 0)?;
        let pair = Pair::new(&domain, (&sends, &receives), (SENDS, RECEIVES), 0)?;
        let outgoing = Region::private(&domain, SENDS * MESSAGE_WORDS, Access::Source)?;
        let incoming = Region::private(&domain, RECEIVES * MESSAGE_WORDS, Access::Landing)?;
        let stream = VerbsStream {
            _id: connect(&pair)?,
            pair,
            sends,
            receives,
            channel,
            outgoing,
            incoming,
            out: Vec::new(),
            placed: 0,
            posted: 0,
            complete: 0,
            words: VecDeque::new(),
            window: Window::default(),
            arrived: VecDeque::new(),
            sent_words: 0,
            received_words: 0,
            broken: false,
        };
        (0..RECEIVES).try_for_each(|place| stream.post_receive(place))?;
        Ok(stream)
    }

    fn post_receive(&self, place: usize) -> Result<()> {
        let into = self.incoming.part(place * MESSAGE_WORDS, MESSAGE_WORDS);
        // SAFETY: the pair is dropped before the memory, and nothing of this receive is read until a message is
        // complete there.
        unsafe { self.pair.post_receive(place as u64, into) }
    }

    /// Whether the other side cannot be reached any more. What has arrived can still be received.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Sends as much of what is queued as may be on its way, and takes note of what has arrived on either
    /// side.
    pub fn flush(&mut self) {
        self.poll();
        while self.placed < self.out.len() && self.window.has_room() {
            let count = (self.out.len() - self.placed).min(MESSAGE_WORDS - 1);
            if !self.post(count) {
                break;
            }
            self.window.given += 1;
        }
        if self.placed == self.out.len() {
            self.out.clear();
            self.placed = 0;
        } else if self.placed > self.out.len() / 2 {
            self.out.drain(..self.placed);
            self.placed = 0;
        }
        if self.window.owes_report() {
            self.post(0);
        }
    }

    /// Whether the device takes one more message.
    fn takes_more(&self) -> bool {
        self.posted - self.complete < SENDS as u64
    }

    /// Posts a message with so many of the queued words. `false`: the device takes no more now.
    fn post(&mut self, count: usize) -> bool {
        if self.broken || !self.takes_more() {
            return false;
        }
        let place = (self.posted % SENDS as u64) as usize * MESSAGE_WORDS;
        let words = self.outgoing.words();
        words.store(place, self.window.tell());
        words.copy_in(place + 1, &self.out[self.placed..self.placed + count]);
        let mut message = self.outgoing.part(place, 1 + count);
        let mut request = SendWr {
            wr_id: 0,
            next: null_mut(),
            sg_list: &mut message,
            num_sge: 1,
            opcode: WR_SEND,
            send_flags: SEND_SIGNALED,
            imm_data: 0,
            remote_addr: 0,
            rkey: 0,
            unused: [0; 9],
        };
        // SAFETY: one request, which is there until the call returns. Its words are not written again before
        // it is complete, and stay registered until the pair is gone.
        if unsafe { self.pair.post(&mut request) }.is_err() {
            self.broken = true;
            return false;
        }
        self.placed += count;
        self.posted += 1;
        self.words.push_back(count);
        true
    }

    /// Takes completions in.
    fn poll(&mut self) {
        let mut completions = [Wc::default(); TAKEN];
        loop {
            let sent = self.sends.poll(&mut completions);
            let count = sent.len();
            self.broken |= sent.iter().any(|completion| completion.status != 0);
            if self.broken {
                break;
            }
            self.complete += count as u64;
            self.sent_words += self.words.drain(..count).sum::<usize>() as u64;
            if count < TAKEN {
                break;
            }
        }
        loop {
            let messages = self.receives.poll(&mut completions);
            for message in messages {
                let (place, count) = (message.wr_id as usize, message.byte_len as usize / 8);
                // Every message has the first word, and they are of whole words.
                if message.status != 0 || count == 0 || message.byte_len % 8 != 0 {
                    self.broken = true;
                    return;
                }
                if !self.window.accept(self.incoming.words().load(place * MESSAGE_WORDS)) {
                    self.broken = true;
                    return;
                }
                if count > 1 {
                    self.arrived.push_back((place, 1..count));
                } else if self.post_receive(place).is_err() {
                    self.broken = true;
                }
            }
            if messages.len() < TAKEN {
                return;
            }
        }
    }

    /// Adds words that have arrived to the end of `into`, no more than so many. Returns whether there were
    /// any.
    pub fn receive(&mut self, into: &mut Vec<u64>, most: usize) -> bool {
        self.poll();
        let before = into.len();
        while let Some((place, left)) = self.arrived.front_mut() {
            let count = left.len().min(most - (into.len() - before));
            if count == 0 {
                break;
            }
            let begin = into.len();
            into.resize(begin + count, 0);
            self.incoming.words().copy_out(*place * MESSAGE_WORDS + left.start, &mut into[begin..]);
            left.start += count;
            if left.start == left.end {
                let place = *place;
                self.arrived.pop_front();
                self.window.taken += 1;
                if self.post_receive(place).is_err() {
                    self.broken = true;
                }
            }
        }
        let count = into.len() - before;
        self.received_words += count as u64;
        if self.window.owes_report() {
            self.flush();
        }
        count > 0
    }

    /// Bytes that are queued, or that the other side's device has not acknowledged.
    pub fn unsent(&self) -> usize {
        (self.out.len() - self.placed + self.words.iter().sum::<usize>()) * 8
    }

    /// Bytes that the other side's device has acknowledged.
    pub fn sent(&self) -> u64 {
        self.sent_words * 8
    }

    /// Bytes that have moved either way so far.
    pub fn moved(&self) -> u64 {
        (self.sent_words + self.received_words) * 8
    }

    /// Makes [`VerbsStream::fd`] readable once something arrives, here or there. `false`: something has
    /// meanwhile, or more can be sent now.
    pub fn arm(&mut self) -> bool {
        while self.channel.take().is_some() {}
        self.sends.arm();
        self.receives.arm();
        let complete = self.complete;
        self.poll();
        // Of what is complete by now there is no event.
        let is_new = self.complete > complete || !self.arrived.is_empty() || self.broken;
        let has_words = self.placed < self.out.len() && self.window.has_room();
        !is_new && !(self.takes_more() && (has_words || self.window.owes_report()))
    }

    /// What is readable after [`VerbsStream::arm`] when something arrives.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::{RECEIVES, Window};

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut window = Window { given: 9, accepted: 3, ..Window::default() };
        for accepted in [2, 10, u64::MAX] {
            assert!(!window.accept(accepted), "{accepted} of 3 to 9");
        }
        assert!(window.accept(3) && window.accept(9) && !window.accept(8));
    }

    /// One side of a stream: what is on its way to it, and what waits to be taken in.
    #[derive(Default)]
    struct Side {
        window: Window,
        /// What each message says, and whether it has words.
        coming: VecDeque<(u64, bool)>,
        arrived: u64,
    }

    impl Side {
        /// Receives that are in use.
        fn used(&self) -> usize {
            self.coming.len() + self.arrived as usize
        }

        fn poll(&mut self) {
            for (accepted, has_words) in self.coming.drain(..) {
                assert!(self.window.accept(accepted));
                self.arrived += u64::from(has_words);
            }
        }
    }

    /// Two sides that have a lot to say, in any order of their steps: there is always a receive, and neither
    /// waits for the other for ever.
    #[test]
    fn there_is_a_receive_for_every_message() {
        const MESSAGES: u64 = 20_000;
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut sides = [Side::default(), Side::default()];
        let mut steps = 0u64;
        while sides.iter().any(|side| side.window.taken < MESSAGES) {
            steps += 1;
            assert!(steps < 100 * MESSAGES, "they wait for each other");
            let which = random(2) as usize;
            // Each side stands still now and then.
            if steps / 1000 % 4 == which as u64 {
                continue;
            }
            sides[which].poll();
            if random(3) == 0 {
                let count = random(1 + sides[which].arrived.min(5));
                let side = &mut sides[which];
                side.arrived -= count;
                side.window.taken += count;
            }
            let mut messages = Vec::new();
            let window = &mut sides[which].window;
            for _ in 0..random(5) {
                if window.given < MESSAGES && window.has_room() {
                    messages.push((window.tell(), true));
                    window.given += 1;
                }
            }
            if window.owes_report() {
                messages.push((window.tell(), false));
            }
            let other = &mut sides[1 - which];
            other.coming.extend(messages);
            assert!(other.used() <= RECEIVES, "{} messages, and {RECEIVES} receives", other.used());
        }
    }
}
