//! A socket that does not block, with what is to be sent and what has arrived.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_types::{Error, ErrorKind};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use rustls::Connection;

use super::frame::{self, Head, Kind};
use crate::{PROGRESS_BYTES, SET_UP_BYTES_MAX, timespec};

/// Words that are received at once at most, unless a frame is longer; and at first, which is enough for who
/// asks for one thing after the other. There may be thousands of connections, and most of them are silent.
const RECEIVE_WORDS: usize = 8 << 10;
const RECEIVE_WORDS_FIRST: usize = 512;

/// Longest sleep in a receive.
const SLEEP: Duration = Duration::from_millis(1);
/// No send, and as a rule no receive, sleeps, whatever the socket's own mode is; and a connection that broke
/// is no signal. Where that cannot be said of a single call the socket's mode says it.
#[cfg(target_os = "linux")]
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
#[cfg(all(unix, not(target_os = "linux")))]
const SEND: SendFlags = SendFlags::DONTWAIT;
#[cfg(not(unix))]
const SEND: SendFlags = SendFlags::empty();
#[cfg(unix)]
const RECEIVE: RecvFlags = RecvFlags::DONTWAIT;
#[cfg(not(unix))]
const RECEIVE: RecvFlags = RecvFlags::empty();

/// Frames that are looked at ahead.
pub(super) const AHEAD: usize = 32;

/// The error where text came, which no frame of Kelix begins with: another service answers there.
fn other_service(arrived: &[u8]) -> Option<String> {
    let begin = &arrived[..arrived.len().min(SHOWN)];
    let is_text = |byte: &u8| byte.is_ascii_graphic() || b" \r\n".contains(byte);
    let line = begin.split(|byte| b"\r\n".contains(byte)).next().unwrap_or_default();
    let is_other = line.len() >= TEXT_MIN && begin.iter().all(is_text);
    is_other.then(|| {
        format!("no server of Kelix answers there: what came begins with {:?}", String::from_utf8_lossy(line))
    })
}

/// Bytes of an answer that are shown, and with which it may be text.
const SHOWN: usize = 32;
const TEXT_MIN: usize = 4;

const SECURED: &str = "the server speaks TLS, and this client does not: name the certificates to trust, with --tls-ca FILE or Credentials::tls";
const PLAIN: &str = "the server does not speak TLS, and this client does: start it with --tls-cert and --tls-key, or leave --tls-ca out";

/// Bytes that were written to a socket and that the other side's system has not said to have. Where that
/// cannot be known, none.
fn unacknowledged(socket: &TcpStream) -> u64 {
    #[cfg(target_os = "linux")]
    {
        use rustix::ioctl::{Getter, ioctl};
        /// SIOCOUTQ, for which the system's headers use the number of TIOCOUTQ.
        const OUTQ: rustix::ioctl::Opcode = 0x5411;
        // SAFETY: this call writes one `int`, and reads nothing of this process.
        let bytes = unsafe { ioctl(socket, Getter::<OUTQ, std::ffi::c_int>::new()) };
        bytes.map_or(0, |bytes| u64::try_from(bytes).unwrap_or(0))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        0
    }
}

/// One end of a connection.
pub(crate) struct Stream {
    socket: TcpStream,
    tls: Option<Box<Connection>>,
    /// What TLS says of the other side, if that is why the connection is over.
    distrust: Option<rustls::Error>,
    /// Words to be sent, and how many bytes of them have been.
    pub out: Vec<u64>,
    sent: usize,
    arrived: Vec<u64>,
    /// Bytes that have arrived, and words of them that were taken.
    arrived_bytes: usize,
    taken: usize,
    /// Words that are received at once: more, once so many have come.
    receives: usize,
    /// Longest frame that is accepted, in words.
    longest: usize,
    /// Bytes that the socket has taken and given so far.
    written: u64,
    received: u64,
    /// Receives may sleep.
    blocks: bool,
    /// Why the connection is over.
    over: Option<&'static str>,
}

impl Stream {
    /// `longest`: longest frame that the other side may send, in words.
    pub fn new(socket: TcpStream, tls: Option<Connection>, longest: usize) -> std::io::Result<Stream> {
        socket.set_nodelay(true)?;
        // A host that lost its power says nothing.
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, Duration::from_secs(30))?;
        sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(10))?;
        sockopt::set_tcp_keepcnt(&socket, 3)?;
        Stream::of_socket(socket, tls, longest)
    }

    /// A stream over a socket between two processes of this host, which `socket` is the handle of: the
    /// library's type is that of its calls, and all calls made here are those of any stream socket.
    #[cfg(target_os = "linux")]
    pub fn local(socket: std::os::unix::net::UnixStream, longest: usize) -> std::io::Result<Stream> {
        Stream::of_socket(std::os::fd::OwnedFd::from(socket).into(), None, longest)
    }

    fn of_socket(socket: TcpStream, tls: Option<Connection>, longest: usize) -> std::io::Result<Stream> {
        socket.set_nonblocking(true)?;
        Ok(Stream {
            socket,
            tls: tls.map(Box::new),
            distrust: None,
            out: Vec::new(),
            sent: 0,
            arrived: Vec::new(),
            arrived_bytes: 0,
            receives: RECEIVE_WORDS_FIRST,
            taken: 0,
            longest,
            written: 0,
            received: 0,
            blocks: false,
            over: None,
        })
    }

    /// Lets receives sleep if they are asked to: a socket without TLS, whose reads and writes are this type's
    /// own.
    pub fn block_briefly(&mut self) {
        let may = cfg!(unix) && self.tls.is_none() && self.socket.set_read_timeout(Some(SLEEP)).is_ok();
        self.blocks = may && self.socket.set_nonblocking(false).is_ok();
    }

    /// Takes frames of so many words from now on.
    pub fn allow(&mut self, longest: usize) {
        self.longest = self.longest.max(longest);
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The other side's address.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    /// Whether the other side is on this host.
    pub fn is_near(&self) -> bool {
        let ends = (self.socket.local_addr(), self.socket.peer_addr());
        matches!(ends, (Ok(here), Ok(there)) if here.ip() == there.ip())
    }

    /// Why the connection is over, if it is.
    pub fn over(&self) -> Option<&'static str> {
        self.over
    }

    /// Whether the other side has shown a certificate for a name.
    pub fn is_certified_for(&self, name: &str) -> bool {
        self.tls.as_ref().is_some_and(|tls| super::tls::is_certified_for(tls, name))
    }

    /// Tells the other side why it is refused, and ends the connection.
    pub fn refuse(&mut self, text: &str, why: &'static str) {
        self.control(super::REFUSED, text.as_bytes());
        self.flush();
        self.end(why);
    }

    /// Ends the connection.
    pub fn end(&mut self, why: &'static str) {
        self.over.get_or_insert(why);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Bytes that the socket has taken so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Sends nothing any more, and goes on to receive.
    pub fn say_no_more(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }

    /// Bytes that have moved either way so far. What was written counts once the other side's system has it:
    /// before that it says nothing of the way, since a socket takes megabytes at once.
    pub fn moved(&self) -> u64 {
        self.received + self.written.saturating_sub(unacknowledged(&self.socket))
    }

    /// Bytes that wait to be sent, about.
    pub fn unsent(&self) -> usize {
        let inside = self.tls.as_ref().is_some_and(|tls| tls.wants_write());
        self.out.len() * 8 - self.sent + usize::from(inside)
    }

    /// Queues a frame of the set-up conversation.
    pub fn control(&mut self, kind: u16, bytes: &[u8]) {
        if bytes.len() > SET_UP_BYTES_MAX {
            return self.end("an answer is longer than a frame may be");
        }
        self.out.push(Head::new(Kind::Control, 0, u32::from(kind), bytes.len()).word());
        let begin = self.out.len();
        self.out.resize(begin + bytes.len().div_ceil(8), 0);
        bytes_of_mut(&mut self.out[begin..])[..bytes.len()].copy_from_slice(bytes);
    }

    /// Sends as much as the socket takes.
    pub fn flush(&mut self) {
        if self.tls.is_some() {
            return self.flush_tls();
        }
        while self.sent < self.out.len() * 8 && self.over.is_none() {
            let rest = &bytes_of(&self.out)[self.sent..];
            match send(&self.socket, rest, SEND) {
                Ok(bytes) => {
                    self.sent += bytes;
                    self.written += bytes as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return self.forget_sent(),
                Err(_) => self.end("the connection broke"),
            }
        }
        self.out.clear();
        self.sent = 0;
    }

    /// What has been sent goes, once it is most of what there is.
    fn forget_sent(&mut self) {
        if self.sent > self.out.len() * 4 {
            self.out.drain(..self.sent / 8);
            self.sent %= 8;
        }
    }

    fn flush_tls(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        while self.over.is_none() {
            while tls.wants_write() {
                match tls.write_tls(&mut &self.socket) {
                    Ok(bytes) => self.written += bytes as u64,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.forget_sent(),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return self.end("the connection broke"),
                }
            }
            let rest = &bytes_of(&self.out)[self.sent..];
            if rest.is_empty() {
                break;
            }
            // Before the two sides know each other this takes a little, and then nothing more.
            match tls.writer().write(rest) {
                Ok(0) => return,
                Ok(bytes) => self.sent += bytes,
                Err(_) => return self.end("the connection broke"),
            }
        }
        self.out.clear();
        self.sent = 0;
    }

    /// Receives what is there, as far as there is room. Returns whether anything came.
    pub fn fill(&mut self) -> bool {
        self.fill_with(RECEIVE)
    }

    /// The same, but if nothing is there it sleeps until something comes, or for some milliseconds.
    pub fn fill_asleep(&mut self) -> bool {
        // What waits to be sent must not wait for what comes.
        if self.blocks && self.unsent() == 0 {
            return self.fill_with(RecvFlags::empty());
        }
        self.wait(Some(SLEEP));
        self.fill()
    }

    fn fill_with(&mut self, flags: RecvFlags) -> bool {
        if self.over.is_some() {
            return false;
        }
        self.make_room();
        if self.tls.is_some() {
            return self.fill_tls();
        }
        loop {
            let room = &mut bytes_of_mut(&mut self.arrived)[self.arrived_bytes..];
            let length = room.len();
            match recv(&self.socket, room, flags) {
                Ok((_, 0)) => self.end("the other side closed the connection"),
                Ok((_, bytes)) => {
                    if bytes == length {
                        self.receives = (self.receives * 4).min(RECEIVE_WORDS);
                    }
                    self.arrived_bytes += bytes;
                    self.received += bytes as u64;
                    return true;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(_) => self.end("the connection broke"),
            }
            return false;
        }
    }

    fn fill_tls(&mut self) -> bool {
        let Some(tls) = &mut self.tls else { return false };
        match tls.read_tls(&mut &self.socket) {
            Ok(0) => {
                self.end("the other side closed the connection");
                return false;
            }
            Ok(bytes) => self.received += bytes as u64,
            Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind()) => {
                return false;
            }
            Err(_) => {
                self.end("the connection broke");
                return false;
            }
        }
        let state = match tls.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // The other side is told.
                let _ = tls.write_tls(&mut &self.socket);
                self.distrust = Some(error);
                self.end("TLS was refused");
                return false;
            }
        };
        let bytes = state.plaintext_bytes_to_read();
        let end = self.arrived_bytes + bytes;
        if self.arrived.len() * 8 < end {
            self.arrived.resize(end.div_ceil(8), 0);
        }
        let room = &mut bytes_of_mut(&mut self.arrived)[self.arrived_bytes..end];
        match tls.reader().read_exact(room) {
            Ok(()) => self.arrived_bytes = end,
            Err(_) => self.end("the connection broke"),
        }
        if state.peer_has_closed() {
            self.end("the other side closed the connection");
        }
        bytes > 0
    }

    /// The core that took in what the other side last sent: where that is on this host, the one that it sent
    /// from.
    #[cfg(target_os = "linux")]
    pub fn core(&self) -> Option<usize> {
        sockopt::socket_incoming_cpu(&self.socket).ok().map(|core| core as usize)
    }

    /// Waits until something arrives, or what waits can be sent, or the time is over.
    pub fn wait(&self, timeout: Option<Duration>) {
        let timeout = timeout.map(timespec);
        let waited = poll(&mut [self.watch()], timeout.as_ref());
        crate::events(waited, timeout.as_ref());
    }

    /// What to wait for: that something arrives, or that what waits can be sent.
    pub fn watch(&self) -> PollFd<'_> {
        let mut events = PollFlags::IN;
        if self.unsent() > 0 {
            events |= PollFlags::OUT;
        }
        PollFd::from_borrowed_fd(self.fd(), events)
    }

    /// Moves what is left to the front, and has room for the whole of a frame that has begun.
    fn make_room(&mut self) {
        let left = self.arrived_bytes - self.taken * 8;
        if self.taken > 0 {
            let words = left.div_ceil(8);
            self.arrived.copy_within(self.taken..self.taken + words, 0);
            (self.taken, self.arrived_bytes) = (0, left);
        }
        let begun = (left >= 8).then(|| Head::parse(self.arrived[0])).flatten();
        let wanted = begun.map_or(0, |head| 1 + head.body_words()).min(self.longest).max(self.receives);
        // All of it may be whole frames that nobody took: then there is room for more.
        let wanted = wanted.max((left / 8 + 1).next_multiple_of(self.receives));
        if self.arrived.len() < wanted {
            self.arrived.resize(wanted, 0);
        }
    }

    /// Gives the memory of a connection that is silent back.
    pub fn shrink(&mut self) {
        if self.arrived_bytes == self.taken * 8 {
            (self.arrived, self.arrived_bytes, self.taken) = (Vec::new(), 0, 0);
            self.receives = RECEIVE_WORDS_FIRST;
        }
        if self.out.is_empty() {
            self.out = Vec::new();
        }
    }

    /// The next frame that has arrived whole, and where its body stands in [`Stream::words`]. Ends the
    /// connection if what came is no frame.
    pub fn next(&mut self) -> Option<(Head, Range<usize>)> {
        let whole = self.arrived_bytes / 8;
        match frame::next(&self.arrived[self.taken..whole.max(self.taken)], self.longest) {
            Ok(Some((head, body))) => {
                let at = self.taken;
                self.taken += body.end;
                Some((head, at + body.start..at + body.end))
            }
            Ok(None) => None,
            Err(why) => {
                self.end(why);
                None
            }
        }
    }

    /// The next frame, which can only be one of the set-up conversation: its kind and bytes. Ends the
    /// connection if it is none.
    pub fn next_control(&mut self) -> Option<(u16, Vec<u8>)> {
        let (head, body) = self.next()?;
        if head.kind != Kind::Control {
            self.end("the server sent a frame that makes no sense here");
            return None;
        }
        let bytes = bytes_of(&self.arrived[body]);
        Some((head.name as u16, bytes[..head.count as usize].to_vec()))
    }

    /// Sends what waits, and waits for the frame of the set-up conversation that answers it, which its kind
    /// and its bytes tell. `patience` is for [`PROGRESS_BYTES`] to move.
    pub fn answer(
        &mut self,
        operation: &'static str,
        patience: Duration,
        mut is_answer: impl FnMut(u16, &[u8]) -> bool,
    ) -> Result<(u16, Vec<u8>), Error> {
        let (mut began, mut moved) = (Instant::now(), self.moved());
        loop {
            self.flush();
            self.fill();
            while let Some((kind, bytes)) = self.next_control() {
                if is_answer(kind, &bytes) {
                    return Ok((kind, bytes));
                }
            }
            if let Some(why) = self.over {
                return Err(self.why_over(operation, why));
            }
            let now = self.moved();
            if now >= moved + PROGRESS_BYTES {
                (began, moved) = (Instant::now(), now);
            }
            let Some(left) = patience.checked_sub(began.elapsed()) else {
                return Err(match other_service(self.first()) {
                    Some(context) => Error::new(ErrorKind::Unavailable, operation, context).with_retry(false),
                    None => {
                        let context = "no answer in time; is the server stopped?";
                        Error::new(ErrorKind::TimedOut, operation, context)
                    }
                });
            };
            // What is only sent wakes nobody when it arrives.
            self.wait(Some(left.min(patience / 4)));
        }
    }

    /// What arrived first, as long as no frame of it was taken.
    fn first(&self) -> &[u8] {
        bytes_of(&self.arrived).get(..self.arrived_bytes).unwrap_or_default()
    }

    /// Why a conversation has ended that had hardly begun: most often one side speaks TLS, and the other does
    /// not.
    fn why_over(&mut self, operation: &'static str, why: &str) -> Error {
        // A record of TLS: an alert or a greeting, of any version.
        let is_tls = matches!(self.first(), [0x15 | 0x16, 3, ..]);
        let other = other_service(self.first());
        let (may_come, context) = match (&self.tls, self.distrust.take()) {
            (Some(_), Some(rustls::Error::InvalidMessage(_))) => (false, PLAIN.into()),
            (Some(_), Some(source)) => (false, format!("TLS: {source}")),
            (Some(tls), None) if tls.is_handshaking() && self.received == 0 => {
                (true, format!("{why}; perhaps {PLAIN}"))
            }
            (None, _) if is_tls => (false, SECURED.into()),
            (None, _) if other.is_some() => (false, other.unwrap_or_default()),
            (None, _) if self.received == 0 => (true, format!("{why}; perhaps {SECURED}")),
            _ => (true, why.into()),
        };
        Error::new(ErrorKind::Unavailable, operation, context).with_retry(may_come)
    }

    /// Tells the next frames, as far as they have arrived. Returns how many there are.
    pub fn ahead<'a>(&'a self, mut each: impl FnMut(Head, &'a [u64])) -> usize {
        let mut words = &self.arrived[self.taken..(self.arrived_bytes / 8).max(self.taken)];
        let mut frames = 0;
        while frames < AHEAD {
            let Ok(Some((head, body))) = frame::next(words, self.longest) else { break };
            each(head, &words[body.clone()]);
            words = &words[body.end..];
            frames += 1;
        }
        frames
    }

    /// What has arrived.
    pub fn words(&self) -> &[u64] {
        &self.arrived
    }

    /// What has arrived, and what is to be sent.
    pub fn parts(&mut self) -> (&[u64], &mut Vec<u64>) {
        (&self.arrived, &mut self.out)
    }
}
