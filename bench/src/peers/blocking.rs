//! A connection to a peer as most of its clients have one: each answer is waited for in the system.

use std::marker::PhantomData;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::engine::text;
use super::protocol::Protocol;
use crate::workload::{Batch, Records};
use kelix_report::daemon::Daemon;
use kelix_report::socket::send_all;

/// Most bytes of a line that are received at once.
const LINE: usize = 256;
/// Bytes by which answers are told from each other.
const BEGIN: usize = 4;

/// A connection, with the memory of what was said last.
pub(crate) struct Blocking<P> {
    socket: OwnedFd,
    records: Records,
    request: Vec<u8>,
    wanted: Vec<u8>,
    answer: Vec<u8>,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Protocol> Blocking<P> {
    pub fn open(daemon: &Daemon, records: Records) -> Result<Blocking<P>, String> {
        let (request, wanted, answer, protocol) = Default::default();
        Ok(Blocking { socket: daemon.connect()?, records, request, wanted, answer, protocol })
    }

    /// Does a batch whose records to get are all there, and for which there is room, and verifies the answer.
    pub fn run(&mut self, batch: &Batch) -> Result<(), String> {
        if self.ask(batch, &[])? { Ok(()) } else { Err(self.surprise()) }
    }

    /// Gets a record, whose value is verified. Returns whether the record is there.
    pub fn get(&mut self, record: u64) -> Result<bool, String> {
        self.ask(&Batch { gets: vec![record], puts: Vec::new() }, P::ABSENT)
    }

    /// Puts a record. Returns whether there was room.
    pub fn put(&mut self, record: u64) -> Result<bool, String> {
        self.ask(&Batch { gets: Vec::new(), puts: vec![record] }, P::FULL)
    }

    /// Sends a batch and waits for its answer. Returns whether that is the wanted one; otherwise it is a line
    /// that begins with `otherwise`.
    fn ask(&mut self, batch: &Batch, otherwise: &[u8]) -> Result<bool, String> {
        self.request.clear();
        self.wanted.clear();
        P::say(batch, self.records, &mut self.request, &mut self.wanted);
        send_all(&self.socket, &self.request).map_err(text)?;
        self.answer.clear();
        while self.answer.len() < self.wanted.len() {
            self.receive(self.wanted.len() - self.answer.len())?;
            if otherwise.get(..BEGIN).is_some_and(|begin| self.answer.starts_with(begin)) {
                while !self.answer.ends_with(b"\n") {
                    self.receive(LINE)?;
                }
                return if self.answer.starts_with(otherwise) { Ok(false) } else { Err(self.surprise()) };
            }
        }
        if self.answer == self.wanted { Ok(true) } else { Err(self.surprise()) }
    }

    /// Receives so many more bytes at most, of which one has to come.
    fn receive(&mut self, most: usize) -> Result<(), String> {
        let held = self.answer.len();
        self.answer.resize(held + most, 0);
        loop {
            match recv(&self.socket, &mut self.answer[held..], RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok((_, bytes)) if bytes > 0 => {
                    self.answer.truncate(held + bytes);
                    return Ok(());
                }
                Ok(_) => return Err(format!("{} has ended the connection", P::PROGRAM)),
                Err(error) => return Err(format!("{} does not answer: {error}", P::PROGRAM)),
            }
        }
    }

    fn surprise(&self) -> String {
        format!("{} answered {:?}", P::PROGRAM, String::from_utf8_lossy(&self.answer))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::super::protocol::Memcached;
    use super::*;

    /// An answer of another kind is received to its end, so that the next one is found.
    #[test]
    fn answers_that_are_others_are_told_from_those_that_make_no_sense() {
        let (ours, mut server) = UnixStream::pair().unwrap();
        let records = Records::new(10, 32);
        let (request, wanted, answer, protocol) = Default::default();
        let socket = ours.into();
        let mut client: Blocking<Memcached> = Blocking { socket, records, request, wanted, answer, protocol };
        let mut say = |answer: &[u8]| server.write_all(answer).unwrap();
        say(b"END\r\n");
        assert_eq!(client.get(1), Ok(false));
        say(b"SERVER_ERROR out of memory storing object\r\n");
        assert_eq!(client.put(1), Ok(false));
        say(b"HD\r\n");
        assert_eq!(client.put(1), Ok(true));
        say(b"SERVER_ERROR object too large for cache\r\n");
        assert!(client.put(1).is_err_and(|why| why.contains("too large")));
        say(b"END\r\n");
        assert_eq!(client.get(2), Ok(false));
        let mut value = Vec::new();
        records.write_value(4, &mut value);
        say(&[b"VALUE user000000000003 0 32\r\n", &value[..], b"\r\nEND\r\n"].concat());
        assert!(client.get(3).is_err(), "the value of another");
    }
}
