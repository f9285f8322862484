//! Frames with descriptors over a Unix socket: how connections are set up.
//!
//! ```text
//! frame: [ magic "KLX1" 32 | kind 16 | descriptors 16 | bytes 32 | 0 32 ] then the bytes
//! ```

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use kelix_types::{Error, ErrorKind, Result};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::SET_UP_BYTES_MAX;

const MAGIC: u32 = u32::from_le_bytes(*b"KLX1");
/// Most descriptors of one frame (the kernel's own limit is 253).
const DESCRIPTORS_MAX: usize = 64;

fn lost(source: impl Into<std::io::Error>) -> Error {
    let source = source.into();
    let (kind, context) = match source.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            (ErrorKind::TimedOut, "no answer in time; is the server stopped?")
        }
        std::io::ErrorKind::UnexpectedEof => (ErrorKind::Unavailable, "the other side closed the connection"),
        _ => (ErrorKind::Unavailable, "the connection broke"),
    };
    Error::new(kind, "talk to the server", context).with_source(source)
}

fn protocol(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, "talk to the server", what.to_string())
}

/// Sends one frame.
pub fn send_frame(
    stream: &UnixStream,
    kind: u16,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<()> {
    if bytes.len() > SET_UP_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
        return Err(protocol("a frame larger than the protocol allows"));
    }
    let mut frame = Vec::with_capacity(16 + bytes.len());
    frame.extend_from_slice(&MAGIC.to_le_bytes());
    frame.extend_from_slice(&kind.to_le_bytes());
    frame.extend_from_slice(&(descriptors.len() as u16).to_le_bytes());
    frame.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(bytes);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "space for all descriptors");
    }
    // A process that was stopped and goes on finds its calls interrupted.
    let sent = retry_on_intr(|| {
        rustix::net::sendmsg(stream, &[IoSlice::new(&frame)], &mut control, SendFlags::NOSIGNAL)
    })
    .map_err(lost)?;
    (&mut &*stream).write_all(&frame[sent..]).map_err(lost)
}

/// Receives one frame: its kind, bytes and descriptors. Everything in it is checked by its reader.
pub fn receive_frame(stream: &UnixStream) -> Result<(u16, Vec<u8>, Vec<OwnedFd>)> {
    receive(stream, &|| Ok(()))
}

/// The same, and all of the frame has to be here within a time: the time-out of a socket is for each of its
/// bytes. Changes that time-out.
pub fn receive_frame_within(stream: &UnixStream, time: Duration) -> Result<(u16, Vec<u8>, Vec<OwnedFd>)> {
    let began = Instant::now();
    receive(stream, &|| {
        let left = time.checked_sub(began.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(std::io::ErrorKind::TimedOut)?))
    })
}

/// What came of a frame that has begun to arrive and did not arrive whole. Nobody knows where the next one
/// begins, so the connection ends for both sides.
fn broken_off(stream: &UnixStream, source: impl Into<std::io::Error>) -> Error {
    let _ = stream.shutdown(std::net::Shutdown::Both);
    lost(source)
}

/// `await_more` is called before each wait, and may end it.
fn receive(
    stream: &UnixStream,
    await_more: &dyn Fn() -> std::io::Result<()>,
) -> Result<(u16, Vec<u8>, Vec<OwnedFd>)> {
    let read_exact = |mut into: &mut [u8]| {
        while !into.is_empty() {
            await_more().map_err(|error| broken_off(stream, error))?;
            match (&mut &*stream).read(into) {
                Ok(0) => return Err(lost(std::io::Error::from(std::io::ErrorKind::UnexpectedEof))),
                Ok(bytes) => into = &mut into[bytes..],
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken_off(stream, error)),
            }
        }
        Ok(())
    };
    await_more().map_err(lost)?;
    let mut header = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| {
        rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut header)], &mut control, flags)
    })
    .map_err(lost)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    if received.bytes == 0 {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "talk to the server",
            "the other side closed the connection",
        ));
    }
    read_exact(&mut header[received.bytes..])?;
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
    if number(0) != MAGIC {
        return Err(protocol("the other side does not speak Kelix"));
    }
    let kind = number(4) as u16;
    if number(4) >> 16 != descriptors.len() as u32 {
        return Err(protocol("descriptors were lost on the way; see `ulimit -n`"));
    }
    let length = number(8) as usize;
    if length > SET_UP_BYTES_MAX {
        return Err(protocol("a frame larger than the protocol allows"));
    }
    let mut bytes = vec![0; length];
    read_exact(&mut bytes)?;
    Ok((kind, bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn frames_carry_bytes_and_descriptors() {
        let (a, b) = UnixStream::pair().unwrap();
        send_frame(&a, 7, b"hello", &[a.as_fd(), b.as_fd()]).unwrap();
        send_frame(&a, 8, b"", &[]).unwrap();
        let (kind, bytes, fds) = receive_frame(&b).unwrap();
        assert_eq!((kind, &bytes[..], fds.len()), (7, &b"hello"[..], 2));
        let (kind, bytes, fds) = receive_frame(&b).unwrap();
        assert_eq!((kind, bytes.len(), fds.len()), (8, 0, 0));
        drop((a, fds));
    }

    /// A frame came in two parts, the second of which was not waited for; when it came, it was taken for the
    /// beginning of the next one.
    #[test]
    fn a_frame_that_breaks_off_ends_the_connection() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut frame, time) = (Vec::new(), Duration::from_millis(20));
        send_frame(&a, 7, b"hello", &[]).unwrap();
        (&b).take(21).read_to_end(&mut frame).unwrap();
        assert_eq!(receive_frame_within(&b, time).unwrap_err().kind(), ErrorKind::TimedOut);
        (&a).write_all(&frame).unwrap();
        assert_eq!(receive_frame_within(&b, time).unwrap().0, 7, "nothing had come of it");
        for whole in [1, 15, 16, 20] {
            let (a, b) = UnixStream::pair().unwrap();
            (&a).write_all(&frame[..whole]).unwrap();
            assert_eq!(receive_frame_within(&b, time).unwrap_err().kind(), ErrorKind::TimedOut, "{whole}");
            let _ = (&a).write_all(&frame[whole..]);
            let error = receive_frame_within(&b, time).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{whole}");
        }
    }

    /// A server that sends a byte now and then kept its client for as long as it liked: the time-out was for
    /// each byte.
    #[test]
    fn a_frame_that_trickles_is_not_waited_for() {
        let (a, b) = UnixStream::pair().unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut bytes = b"KLX1\x02\0\0\0\x10\x27\0\0\0\0\0\0".iter().chain(std::iter::repeat(&0));
                while !over.load(std::sync::atomic::Ordering::SeqCst) {
                    let _ = (&a).write_all(&[*bytes.next().unwrap()]);
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let error = receive_frame_within(&b, Duration::from_millis(200)).unwrap_err();
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            error
        });
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn golden_frame() {
        let (a, b) = UnixStream::pair().unwrap();
        send_frame(&a, 0x0102, b"hi", &[]).unwrap();
        let mut bytes = [0; 18];
        (&b).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"KLX1\x02\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00hi");
    }

    #[test]
    fn strangers_and_giants_are_refused() {
        let (a, b) = UnixStream::pair().unwrap();
        (&a).write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(receive_frame(&b).unwrap_err().kind(), ErrorKind::Protocol);
        let (a, b) = UnixStream::pair().unwrap();
        let mut header = *b"KLX1\x01\0\0\0\xff\xff\xff\xff\0\0\0\0";
        (&a).write_all(&header).unwrap();
        assert_eq!(receive_frame(&b).unwrap_err().kind(), ErrorKind::Protocol);
        header[6] = 1;
        header[8..12].fill(0);
        (&a).write_all(&header).unwrap();
        assert!(receive_frame(&b).unwrap_err().context().contains("descriptors"));
        drop(a);
        assert_eq!(receive_frame(&b).unwrap_err().kind(), ErrorKind::Unavailable);
    }
}
