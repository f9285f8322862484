//! Connections over the loopback interface, whose other end a target plays.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use kelix_wire::SPOKEN;
use kelix_wire::control::{Frame, Purpose};

/// Words of a connection's first word: kind, shard, name, count.
pub fn head(kind: u8, small: u8, name: u32, count: u32) -> u64 {
    u64::from(kind) | u64::from(small) << 8 | u64::from(name & 0xff_ffff) << 16 | u64::from(count) << 40
}

/// A frame of the set-up conversation.
pub fn control(kind: u16, bytes: &[u8]) -> Vec<u8> {
    let mut frame = head(6, 0, u32::from(kind), bytes.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(bytes);
    frame.resize(frame.len().next_multiple_of(8), 0);
    frame
}

/// A client's greeting: kind and bytes.
pub fn hello() -> (u16, Vec<u8>) {
    let hello = Frame::Hello {
        versions: SPOKEN,
        features: 0,
        purpose: Purpose::Session,
        caller: None,
        namespace: String::new(),
    };
    hello.encode()
}

/// The end that a target plays. It breaks when it is dropped, so that nothing of it stays in the system.
pub struct End {
    stream: TcpStream,
    /// What was received.
    pub received: Vec<u8>,
    /// The other side has ended the connection.
    pub over: bool,
}

impl End {
    /// A connection to a listener.
    pub fn connect(listener: &TcpListener) -> (End, TcpStream) {
        let end = End::open(listener.local_addr().expect("an address"));
        (end, listener.accept().expect("the connection just made").0)
    }

    /// A connection to an address.
    pub fn open(address: std::net::SocketAddr) -> End {
        let stream = TcpStream::connect(address).expect("somebody who listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_nonblocking(true).expect("a socket");
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
        End { stream, received: Vec::new(), over: false }
    }

    /// Sends as much as the socket takes. Returns how much that was; all of it once the connection is over.
    pub fn send(&mut self, bytes: &[u8]) -> usize {
        match self.stream.write(bytes) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.over = true;
                bytes.len()
            }
        }
    }

    /// Says that nothing more comes.
    pub fn finish(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Receives what there is.
    pub fn receive(&mut self) {
        let mut room = [0; 16 << 10];
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => return self.over = true,
                Ok(bytes) => self.received.extend_from_slice(&room[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.over = true,
            }
        }
    }
}
