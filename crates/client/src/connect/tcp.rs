//! Connecting over TCP: a greeting and an answer, then the socket is the session's.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use kelix_fabric::tcp::{Greeting, TcpEndpoint};
use kelix_fabric::{Endpoint, PeerId};
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::MAILBOX_BYTES;
use kelix_wire::control::{Frame, Purpose};

use super::{Credentials, answer_within, greeted, greeting, protocol, understand};
use crate::pointers::PointerCache;
use crate::session::SessionOptions;
use crate::shelf::Shelf;
use crate::transport::{ServerIdentity, Transport};

fn unavailable(address: &str, hint: &str, source: std::io::Error) -> Error {
    let kind = match source.kind() {
        std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => ErrorKind::TimedOut,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "connect", format!("no server at {address}: {hint}")).with_source(source)
}

/// Connects to an address, trying all that its name stands for.
fn open(address: &str, answer: Duration) -> Result<TcpStream> {
    let found = address
        .to_socket_addrs()
        .map_err(|source| unavailable(address, "the name cannot be looked up", source))?;
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in found {
        match TcpStream::connect_timeout(&address, answer) {
            Ok(stream) => return Ok(stream),
            Err(source) => last = source,
        }
    }
    let hint = "start one with `kelix serve --listen PORT` there, or look for a firewall between";
    Err(unavailable(address, hint, last))
}

/// Connects, and says what this client has to say for itself.
pub(super) fn greet(
    address: &str,
    credentials: &Credentials,
    greeting: &Frame,
    answer: Duration,
) -> Result<(Greeting, ServerIdentity)> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let tls = credentials.tls.as_ref().map(|tls| (tls, host));
    let mut server = Greeting::new(open(address, answer)?, tls, MAILBOX_BYTES as usize / 8, answer)?;
    if let Some(token) = &credentials.token {
        let (kind, bytes) = Frame::Token { token: token.as_bytes().into() }.encode();
        server.tell(kind, &bytes);
    }
    let of_server = greeted(ask(&mut server, greeting)?)?;
    if of_server.is_mirror {
        let context = format!("the server at {address} is a mirror, which is read on its own host only");
        return Err(Error::new(ErrorKind::Incompatible, "connect", context));
    }
    Ok((server, of_server))
}

pub(super) fn ask(server: &mut Greeting, frame: &Frame) -> Result<Frame> {
    let (kind, bytes) = frame.encode();
    let (kind, bytes) = server.ask(kind, &bytes)?;
    understand(kind, &bytes)
}

/// Finds out whether a server answers, and takes this client.
pub(super) fn knock(address: &str, credentials: &Credentials, answer: Duration) -> Result<()> {
    greet(address, credentials, &greeting(Purpose::Statistics, None, credentials), answer).map(drop)
}

pub(super) fn statistics(address: &str, credentials: &Credentials, answer: Duration) -> Result<String> {
    let greeting = greeting(Purpose::Statistics, None, credentials);
    let (mut server, _) = greet(address, credentials, &greeting, answer)?;
    match ask(&mut server, &Frame::AskStatistics)? {
        Frame::Statistics { text } => Ok(text),
        _ => Err(protocol("the server did not send statistics")),
    }
}

/// The endpoint of a session, and what the server says of itself.
pub(super) fn endpoint(
    address: &str,
    credentials: &Credentials,
    greeting: &Frame,
    options: &SessionOptions,
) -> Result<(TcpEndpoint, ServerIdentity)> {
    let (server, of_server) = greet(address, credentials, greeting, answer_within(options))?;
    let mut endpoint = server.endpoint(of_server.term, of_server.view.shards(), MAILBOX_BYTES)?;
    if of_server.finds {
        endpoint.may_find();
    }
    Ok((endpoint, of_server))
}

pub(super) fn session(
    address: &str,
    credentials: &Credentials,
    greeting: &Frame,
    options: &SessionOptions,
) -> Result<Transport<Endpoint>> {
    let (endpoint, of_server) = endpoint(address, credentials, greeting, options)?;
    let peers: Vec<PeerId> = (0..of_server.view.shards() as u32).map(PeerId).collect();
    let shelf = if options.private_caches { Shelf::Private } else { Shelf::of_user() };
    let pointers = PointerCache::of_life(of_server.life, &shelf)?;
    Ok(Transport::new(Endpoint::Tcp(endpoint), of_server, &peers, pointers, shelf))
}
