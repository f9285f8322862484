//! A tap on the wire: it stands between a client over TCP and the server, passes everything on, and counts
//! the verbs.
//!
//! The frames of the TCP fabric are the verbs (docs/wire-format.md, "Over TCP"): READ and its answer, WRITE.
//! So what is counted is what the client and the server really say to each other, messages and their bytes
//! included, which a session does not count.
//!
//! A **round** begins when the client sends a READ or a request while it waits for nothing: what it sends
//! then it could not send before. It is a round of messages if a request is in it.
//!
//! Requests that follow each other in memory and are sent together count as one WRITE as well as one each
//! (`bursts`).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use kelix_wire::control::FEATURE_FINDS;
use kelix_wire::mailbox_word;

/// Kinds of frames, of docs/wire-format.md.
const READ: u64 = 1;
const SAMPLED: u64 = 2;
const OUTSIDE: u64 = 3;
const WRITE: u64 = 4;
const TERM: u64 = 5;
const CONTROL: u64 = 6;
/// Of these, what a server that takes a client says first.
const WELCOME: u64 = 2;
const FIELD: u64 = (1 << 24) - 1;
const WORD: usize = 8;

/// What has passed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Counts {
    pub reads: u64,
    pub read_words: u64,
    pub requests: u64,
    pub request_words: u64,
    /// Requests that follow each other in the ring and came together, counted as one.
    pub bursts: u64,
    pub replies: u64,
    pub reply_words: u64,
    /// WRITEs of one side that are no messages: what it has consumed, its counters.
    pub other_writes: u64,
    pub other_words: u64,
    pub read_rounds: u64,
    pub message_rounds: u64,
}

impl Counts {
    /// What was added since they were `before`.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            reads: self.reads - before.reads,
            read_words: self.read_words - before.read_words,
            requests: self.requests - before.requests,
            request_words: self.request_words - before.request_words,
            bursts: self.bursts - before.bursts,
            replies: self.replies - before.replies,
            reply_words: self.reply_words - before.reply_words,
            other_writes: self.other_writes - before.other_writes,
            other_words: self.other_words - before.other_words,
            read_rounds: self.read_rounds - before.read_rounds,
            message_rounds: self.message_rounds - before.message_rounds,
        }
    }
}

/// The counts of a connection, and what its client waits for.
#[derive(Default)]
struct Passing {
    counts: Counts,
    /// READs and requests that were not answered.
    waits_for: u64,
    /// The round under way has a request in it.
    has_request: bool,
}

impl Passing {
    /// The client sends something that is answered.
    fn asks(&mut self, request: bool) {
        if self.waits_for == 0 {
            self.has_request = request;
            *if request { &mut self.counts.message_rounds } else { &mut self.counts.read_rounds } += 1;
        } else if request && !self.has_request {
            self.has_request = true;
            self.counts.read_rounds -= 1;
            self.counts.message_rounds += 1;
        }
        self.waits_for += 1;
    }

    /// A frame, and where the last request of the same chunk of the stream ended in the ring.
    fn note(&mut self, head: u64, to_server: bool, end: &mut Option<u64>) {
        let (kind, name, count) = (head & 0xff, head >> 16 & FIELD, head >> 40);
        // A frame of a ring has two words at least, but for the one that says "go on at the beginning".
        let message = name >= mailbox_word::RING as u64 && count > 1;
        match kind {
            READ => {
                self.asks(false);
                self.counts.reads += 1;
                self.counts.read_words += count;
            }
            SAMPLED | OUTSIDE => self.waits_for = self.waits_for.saturating_sub(1),
            WRITE if message && to_server => {
                self.asks(true);
                self.counts.requests += 1;
                self.counts.request_words += count;
                self.counts.bursts += u64::from(*end != Some(name));
                *end = Some(name + count);
            }
            WRITE if message => {
                self.waits_for = self.waits_for.saturating_sub(1);
                self.counts.replies += 1;
                self.counts.reply_words += count;
            }
            WRITE => {
                self.counts.other_writes += 1;
                self.counts.other_words += count;
            }
            _ => {}
        }
    }
}

/// Cuts a stream into frames.
#[derive(Default)]
struct Cutter {
    head: [u8; WORD],
    have: usize,
    /// Bytes of the frame's body that are still to come.
    body: usize,
}

impl Cutter {
    /// Gives the first word of each frame that begins in these bytes.
    fn cut(&mut self, mut bytes: &[u8], mut found: impl FnMut(u64)) {
        while !bytes.is_empty() {
            if self.body > 0 {
                let taken = self.body.min(bytes.len());
                (self.body, bytes) = (self.body - taken, &bytes[taken..]);
                continue;
            }
            let taken = (WORD - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            (self.have, bytes) = (self.have + taken, &bytes[taken..]);
            if self.have == WORD {
                self.have = 0;
                let head = u64::from_le_bytes(self.head);
                self.body = WORD * body_words(head);
                found(head);
            }
        }
    }
}

/// Words behind the first one of a frame.
fn body_words(head: u64) -> usize {
    let count = (head >> 40) as usize;
    match head & 0xff {
        READ | TERM => 1,
        SAMPLED => 1 + count,
        WRITE => count,
        CONTROL => count.div_ceil(WORD),
        _ => 0,
    }
}

/// Has a server say in its first frame that it answers no FINDs, which no NIC does.
fn hide_finds(begin: &mut [u8; 2 * WORD]) {
    let (head, body) = begin.split_at_mut(WORD);
    let head = u64::from_le_bytes(head.try_into().expect("a word"));
    // Else it is a refusal, and text.
    if (head & 0xff, head >> 16 & FIELD) == (CONTROL, WELCOME) {
        // Behind the version, of two bytes.
        body[2 + 4] &= !((FEATURE_FINDS >> 32) as u8);
    }
}

/// Passes one direction on until its sender ends it.
fn pass(mut from: TcpStream, mut to: TcpStream, to_server: bool, passing: &Mutex<Passing>) {
    let (mut cutter, mut buffer) = (Cutter::default(), vec![0; 1 << 16]);
    let mut begin = [0; 2 * WORD];
    if !to_server && from.read_exact(&mut begin).is_ok() {
        hide_finds(&mut begin);
        cutter.cut(&begin, |_| {});
        let _ = to.write_all(&begin);
    }
    while let Ok(got @ 1..) = from.read(&mut buffer) {
        // Counted before it is passed on: whoever has an answer finds it counted.
        {
            let (mut passing, mut end) = (lock(passing), None);
            cutter.cut(&buffer[..got], |head| passing.note(head, to_server, &mut end));
        }
        if to.write_all(&buffer[..got]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn lock(passing: &Mutex<Passing>) -> MutexGuard<'_, Passing> {
    passing.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tap. One client at a time goes through it.
pub(super) struct Tap {
    address: SocketAddr,
    passing: Arc<Mutex<Passing>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tap {
    /// A tap before the server at an address.
    pub fn before(server: &str) -> Result<Tap, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let (passing, ended) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (counted, over, server) = (Arc::clone(&passing), ended.clone(), server.to_string());
        let thread = std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // SYNC: only a flag.
                if over.load(Ordering::Relaxed) {
                    return;
                }
                serve(client, &server, &counted);
            }
        });
        Ok(Tap { address, passing, ended, thread: Some(thread) })
    }

    /// Where clients connect.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        lock(&self.passing).counts
    }
}

/// Connects a client with the server, each direction in a thread that ends with the connection.
fn serve(client: TcpStream, server: &str, passing: &Arc<Mutex<Passing>>) {
    let connected = || {
        let server = TcpStream::connect(server)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        Ok::<_, std::io::Error>([(client.try_clone()?, server.try_clone()?), (server, client.try_clone()?)])
    };
    // A client that cannot be passed on loses its connection, and says so.
    let Ok([there, back]) = connected() else { return };
    lock(passing).waits_for = 0;
    for ((from, to), to_server) in [(there, true), (back, false)] {
        let passing = Arc::clone(passing);
        std::thread::spawn(move || pass(from, to, to_server, &passing));
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // So that it looks.
        let woken = TcpStream::connect(self.address);
        if let (Some(thread), Ok(_)) = (self.thread.take(), woken) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: u64, name: u64, count: u64) -> u64 {
        kind | name << 16 | count << 40
    }

    #[test]
    fn frames_are_cut_wherever_the_stream_is() {
        let frames = [(head(READ, 1, 40), 1), (head(SAMPLED, 1, 40), 41), (head(CONTROL, 9, 13), 2)];
        let mut bytes = Vec::new();
        for (head, body) in frames {
            bytes.extend(head.to_le_bytes());
            bytes.extend(vec![0xff; body * WORD]);
        }
        for size in [1, 3, 8, 64, 1000] {
            let (mut cutter, mut found) = (Cutter::default(), Vec::new());
            bytes.chunks(size).for_each(|chunk| cutter.cut(chunk, |head| found.push(head)));
            assert_eq!(found, frames.map(|(head, _)| head), "chunks of {size}");
        }
    }

    #[test]
    fn rounds_are_what_could_not_be_sent_before() {
        let mut passing = Passing::default();
        let mut note = |heads: &[(u64, bool)]| {
            let mut end = None;
            heads.iter().for_each(|(head, to_server)| passing.note(*head, *to_server, &mut end));
            (passing.counts.read_rounds, passing.counts.message_rounds, passing.counts.bursts)
        };
        let (read, sampled) = ((head(READ, 1, 8), true), (head(SAMPLED, 1, 8), false));
        assert_eq!(note(&[read, read, sampled, sampled]), (1, 0, 0));
        assert_eq!(note(&[read, sampled, read, sampled]), (3, 0, 0));
        let reply = (head(WRITE, 200, 12), false);
        // Two requests side by side, and one elsewhere; then one that makes a round of READs one of messages.
        let requests = [(head(WRITE, 100, 6), true), (head(WRITE, 106, 6), true), (head(WRITE, 64, 6), true)];
        assert_eq!(note(&requests), (3, 1, 2));
        assert_eq!(note(&[reply, reply, reply]), (3, 1, 2));
        assert_eq!(note(&[read, requests[0], sampled, reply]), (3, 2, 3));
        // What was consumed, and the jump to the beginning of the ring, are no messages.
        assert_eq!(note(&[(head(WRITE, 0, 1), true), (head(WRITE, 65_000, 1), true)]), (3, 2, 3));
        assert_eq!((passing.counts.other_writes, passing.waits_for), (2, 0));
    }
}
