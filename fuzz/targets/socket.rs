//! Frames with descriptors on a real socket: any bytes, with any number of descriptors at the first of them.

#![no_main]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use kelix_fabric::shm::{receive_frame, send_frame};
use kelix_types::ErrorKind;
// Its heap has bounds.
use kelix_fuzz as _;
use libfuzzer_sys::fuzz_target;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const DESCRIPTORS_MAX: usize = 7;
/// Fits the socket's buffer, so that nobody waits.
const BYTES_MAX: usize = 32 << 10;
/// The last four bytes of a header are not looked at.
const HEADER_USED: usize = 12;

fuzz_target!(|data: &[u8]| {
    let Some((first, sent)) = data.split_first() else { return };
    let sent = &sent[..sent.len().min(BYTES_MAX)];
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let descriptors = vec![ours.as_fd(); usize::from(*first) % (DESCRIPTORS_MAX + 1)];
    if !sent.is_empty() {
        send(&theirs, sent, &descriptors);
    }
    theirs.shutdown(Shutdown::Write).expect("an end");
    let mut rest = sent;
    let mut expected = descriptors.len();
    loop {
        match receive_frame(&ours) {
            Ok((kind, bytes, received)) => {
                let (frame, behind) = rest.split_at(16 + bytes.len());
                rest = behind;
                assert_eq!(received.len(), expected);
                // Sent again, it is the same.
                let (a, b) = UnixStream::pair().expect("a socket pair");
                send_frame(&a, kind, &bytes, &descriptors[..expected]).expect("room");
                let mut again = vec![0; frame.len()];
                rustix::net::recv(&b, &mut again, rustix::net::RecvFlags::PEEK).expect("a frame");
                assert_eq!((&again[..HEADER_USED], &again[16..]), (&frame[..HEADER_USED], &frame[16..]));
                let (kind_again, bytes_again, received) = receive_frame(&b).expect("a frame");
                assert_eq!((kind_again, bytes_again, received.len()), (kind, bytes, expected));
                expected = 0;
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Unavailable), "{error}");
                break;
            }
        }
    }
});

fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()));
}
