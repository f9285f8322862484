//! Connecting over TCP: a greeting and an answer, then the socket is the session's.

use std::net::{TcpStream, ToSocketAddrs};

use kelix_fabric::tcp::{TcpEndpoint, receive_control, send_control};
use kelix_fabric::{Endpoint, PeerId};
use kelix_image::Span;
use kelix_types::limits::POINTER_TABLE_BYTES;
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::MAILBOX_BYTES;
use kelix_wire::control::{Frame, Purpose};

use super::shm::ANSWER;
use super::{greeting, protocol, understand};
use crate::core::Core;
use crate::pointers::PointerCache;

fn unavailable(address: &str, hint: &str, source: std::io::Error) -> Error {
    let kind = match source.kind() {
        std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => ErrorKind::TimedOut,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "connect", format!("no server at {address}: {hint}")).with_source(source)
}

/// Connects to an address, trying all that its name stands for.
pub(super) fn open(address: &str) -> Result<TcpStream> {
    let found = address
        .to_socket_addrs()
        .map_err(|source| unavailable(address, "the name cannot be looked up", source))?;
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in found {
        match TcpStream::connect_timeout(&address, ANSWER) {
            Ok(stream) => {
                let limited = stream
                    .set_read_timeout(Some(ANSWER))
                    .and_then(|()| stream.set_write_timeout(Some(ANSWER)))
                    .and_then(|()| stream.set_nodelay(true));
                return limited.map(|()| stream).map_err(|source| {
                    Error::system("connect", "the system refused to set up the socket", source)
                });
            }
            Err(source) => last = source,
        }
    }
    let hint = "start one with `kelix serve --listen PORT` there, or look for a firewall between";
    Err(unavailable(address, hint, last))
}

fn ask(stream: &TcpStream, frame: &Frame) -> Result<Frame> {
    let (kind, bytes) = frame.encode();
    send_control(stream, kind, &bytes)?;
    receive(stream)
}

fn receive(stream: &TcpStream) -> Result<Frame> {
    let (kind, bytes) = receive_control(stream)?;
    understand(kind, &bytes)
}

pub(super) fn statistics(address: &str) -> Result<String> {
    let stream = open(address)?;
    let Frame::Welcome { .. } = ask(&stream, &greeting(Purpose::Statistics))? else {
        return Err(protocol("the server did not greet"));
    };
    match ask(&stream, &Frame::AskStatistics)? {
        Frame::Statistics { text } => Ok(text),
        _ => Err(protocol("the server did not send statistics")),
    }
}

pub(super) fn session(address: &str) -> Result<Core<Endpoint>> {
    let stream = open(address)?;
    let Frame::Welcome { term, view, .. } = ask(&stream, &greeting(Purpose::Session))? else {
        return Err(protocol("the server did not greet"));
    };
    let endpoint = TcpEndpoint::new(stream, term, view.shards(), MAILBOX_BYTES)
        .map_err(|source| Error::system("connect", "the system refused to set up the socket", source))?;
    let peers: Vec<PeerId> = (0..view.shards() as u32).map(PeerId).collect();
    // Not shared with other processes: what they have in common is a run directory.
    let pointers = PointerCache::new(Span::private(POINTER_TABLE_BYTES));
    Ok(Core::new(Endpoint::Tcp(endpoint), view, term, &peers, pointers))
}
