//! Frames of the set-up conversation over a socket that blocks: what a client does before it has an endpoint.

use std::io::{Read, Write};
use std::net::TcpStream;

use kelix_types::{Error, ErrorKind, Result};

use super::frame::{Head, Kind};
use crate::lost;

fn protocol(what: &'static str) -> Error {
    Error::new(ErrorKind::Protocol, "talk to the server", what)
}

/// Sends one frame.
pub fn send_control(mut stream: &TcpStream, kind: u16, bytes: &[u8]) -> Result<()> {
    if bytes.len() > super::CONTROL_BYTES_MAX {
        return Err(protocol("a frame larger than the protocol allows"));
    }
    let head = Head::new(Kind::Control, 0, u32::from(kind), bytes.len());
    let mut frame = head.word().to_le_bytes().to_vec();
    frame.extend_from_slice(bytes);
    frame.resize(8 + head.body_words() * 8, 0);
    stream.write_all(&frame).map_err(lost)
}

/// Receives one frame: its kind and bytes, which its reader checks.
pub fn receive_control(mut stream: &TcpStream) -> Result<(u16, Vec<u8>)> {
    let mut first = [0; 8];
    stream.read_exact(&mut first).map_err(lost)?;
    let head = Head::parse(u64::from_le_bytes(first)).filter(|head| head.kind == Kind::Control);
    let Some(head) = head else { return Err(protocol("the other side does not speak Kelix over TCP")) };
    let mut bytes = vec![0; head.body_words() * 8];
    stream.read_exact(&mut bytes).map_err(lost)?;
    bytes.truncate(head.count as usize);
    Ok((head.name as u16, bytes))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn frames_carry_their_bytes() {
        let (a, b) = pair();
        for bytes in [&b""[..], b"1", b"12345678", &[7; 100_001]] {
            std::thread::scope(|scope| {
                scope.spawn(|| send_control(&a, 3, bytes).unwrap());
                assert_eq!(receive_control(&b).unwrap(), (3, bytes.to_vec()));
            });
        }
    }

    #[test]
    fn strangers_are_refused() {
        let (mut a, b) = pair();
        a.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        assert_eq!(receive_control(&b).unwrap_err().kind(), ErrorKind::Protocol);
        drop(a);
        let (a, b) = pair();
        drop(a);
        assert_eq!(receive_control(&b).unwrap_err().kind(), ErrorKind::Unavailable);
    }
}
