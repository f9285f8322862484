//! Messages through a Unix socket: each WRITE of a ring is sent as its place, its length and its words.

use std::os::unix::net::UnixStream;

use kelix_image::Span;
use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_wire::MAILBOX_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::caller::Caller;
use super::end::{End, Way, place_words};
use super::server::{make_shard, serve};
use kelix_report::cores::pin;

/// Words that are received at once at most.
const RECEIVE_WORDS: usize = 8 << 10;

/// The way through a socket.
pub(crate) struct SocketWay {
    socket: UnixStream,
    outgoing: Vec<u64>,
    incoming: Vec<u64>,
    /// Bytes at the start of `incoming` that were received.
    held: usize,
    ended: bool,
}

impl SocketWay {
    fn new(socket: UnixStream) -> SocketWay {
        SocketWay { socket, outgoing: Vec::new(), incoming: vec![0; RECEIVE_WORDS], held: 0, ended: false }
    }

    /// Puts the WRITEs that have arrived whole into the mailbox, and keeps the beginning of the next.
    fn place_arrived(&mut self, inbox: &Span) {
        let words = &self.incoming[..self.held / 8];
        let mut at = 0;
        while let Some(&head) = words.get(at) {
            let (first, count) = (head as u32 as usize, (head >> 32) as usize);
            let Some(write) = words.get(at + 1..at + 1 + count) else { break };
            place_words(inbox, first, write);
            at += 1 + count;
        }
        if at > 0 {
            bytes_of_mut(&mut self.incoming).copy_within(at * 8..self.held, 0);
            self.held -= at * 8;
        }
    }
}

impl Way for SocketWay {
    fn write(&mut self, first: usize, words: &[u64]) {
        self.outgoing.push(first as u64 | (words.len() as u64) << 32);
        self.outgoing.extend_from_slice(words);
    }

    fn send(&mut self) {
        let mut left = bytes_of(&self.outgoing);
        while !left.is_empty() && !self.ended {
            match send(&self.socket, left, SendFlags::NOSIGNAL) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::INTR) => {}
                Err(_) => self.ended = true,
            }
        }
        self.outgoing.clear();
    }

    fn take_in(&mut self, inbox: &Span) {
        let room = &mut bytes_of_mut(&mut self.incoming)[self.held..];
        match recv(&self.socket, room, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok((received, _)) if received > 0 => self.held += received,
            _ => self.ended = true,
        }
        self.place_arrived(inbox);
    }

    fn sleep(&mut self, timeout_ns: Option<u64>) {
        let timeout = timeout_ns.map(|time| Timespec {
            tv_sec: (time / 1_000_000_000) as i64,
            tv_nsec: (time % 1_000_000_000) as _,
        });
        // Whatever ends it, the caller looks again.
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout.as_ref());
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn end(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// Where the thread of the shard runs.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// On a core of its own, this one.
    Core(usize),
    /// On the core of whoever asks, so that both give it away instead of looking on.
    CallersCore,
}

/// A shard of so much memory, in a thread of its own that receives, executes and sends, and who asks it.
pub(crate) fn over_socket(memory_bytes: u64, place: Place) -> Result<Caller<SocketWay>, String> {
    let shard = make_shard(memory_bytes)?;
    let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
    let has_core = matches!(place, Place::Core(_));
    let end = |socket| End::new(Span::private(MAILBOX_BYTES), SocketWay::new(socket), has_core);
    let (ours, theirs) = (end(ours), end(theirs));
    let server = std::thread::spawn(move || {
        // It begins on its maker's core.
        if let Place::Core(core) = place {
            pin(core);
        }
        serve(shard, theirs);
    });
    Ok(Caller::new(ours, vec![server]))
}
