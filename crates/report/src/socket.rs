//! Waiting at a socket as the store's clients do: looking for a while, then sleeping.

use std::io::Result;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Looking again and again before sleeping.
const SPIN: Duration = Duration::from_micros(50);

/// Receives what is there, waiting until there is something, or the socket's own time limit is over; nothing
/// at the connection's end.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> Result<usize> {
    let began = Instant::now();
    let mut looks = 0u32;
    let mut flags = RecvFlags::DONTWAIT;
    loop {
        match recv(&socket, &mut *into, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if flags == RecvFlags::DONTWAIT => looks += 1,
            done => return Ok(done?.1),
        }
        if looks % 16 == 0 && began.elapsed() > SPIN {
            flags = RecvFlags::empty();
        }
    }
}

/// Sends all of it.
pub fn send_all(socket: impl AsFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match send(&socket, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => bytes = &bytes[sent?..],
        }
    }
    Ok(())
}
