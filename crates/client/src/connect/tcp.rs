//! Connecting over TCP: a greeting and an answer, then the socket is the session's.

use std::net::{TcpStream, ToSocketAddrs};

use kelix_fabric::tcp::Greeting;
use kelix_fabric::{Endpoint, PeerId};
use kelix_image::Span;
use kelix_types::limits::POINTER_TABLE_BYTES;
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::MAILBOX_BYTES;
use kelix_wire::control::{Frame, Purpose};

use super::{ANSWER, Credentials, greeted, greeting, protocol, understand};
use crate::core::{Core, OfServer};
use crate::pointers::PointerCache;
use crate::shelf::Shelf;

fn unavailable(address: &str, hint: &str, source: std::io::Error) -> Error {
    let kind = match source.kind() {
        std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => ErrorKind::TimedOut,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "connect", format!("no server at {address}: {hint}")).with_source(source)
}

/// Connects to an address, trying all that its name stands for.
fn open(address: &str) -> Result<TcpStream> {
    let found = address
        .to_socket_addrs()
        .map_err(|source| unavailable(address, "the name cannot be looked up", source))?;
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in found {
        match TcpStream::connect_timeout(&address, ANSWER) {
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
) -> Result<(Greeting, OfServer)> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let tls = credentials.tls.as_ref().map(|tls| (tls, host));
    let mut server = Greeting::new(open(address)?, tls, MAILBOX_BYTES as usize / 8, ANSWER)?;
    if let Some(token) = &credentials.token {
        let (kind, bytes) = Frame::Token { token: token.as_bytes().into() }.encode();
        server.tell(kind, &bytes);
    }
    let answer = ask(&mut server, greeting).map_err(|error| about_tls(error, credentials.tls.is_some()))?;
    Ok((server, greeted(answer)?))
}

/// A server and a client of which one speaks TLS and the other does not tell each other nothing: the first frame ends the connection.
fn about_tls(error: Error, speaks_tls: bool) -> Error {
    let ended =
        error.context().contains("closed the connection") || error.context().contains("connection broke");
    let hint = match speaks_tls {
        true if error.context().starts_with("TLS: ") || ended => {
            "does the server speak TLS? without, leave --tls-ca out"
        }
        false if ended || error.kind() == ErrorKind::Protocol => "it may want TLS: give --tls-ca",
        _ => return error,
    };
    Error::new(error.kind(), error.operation(), format!("{}; {hint}", error.context()))
}

pub(super) fn ask(server: &mut Greeting, frame: &Frame) -> Result<Frame> {
    let (kind, bytes) = frame.encode();
    let (kind, bytes) = server.ask(kind, &bytes)?;
    understand(kind, &bytes)
}

/// Finds out whether a server answers, and takes this client.
pub(super) fn knock(address: &str, credentials: &Credentials) -> Result<()> {
    greet(address, credentials, &greeting(Purpose::Statistics, None, credentials)).map(drop)
}

pub(super) fn statistics(address: &str, credentials: &Credentials) -> Result<String> {
    let greeting = greeting(Purpose::Statistics, None, credentials);
    let (mut server, _) = greet(address, credentials, &greeting)?;
    match ask(&mut server, &Frame::AskStatistics)? {
        Frame::Statistics { text } => Ok(text),
        _ => Err(protocol("the server did not send statistics")),
    }
}

pub(super) fn session(
    address: &str,
    credentials: &Credentials,
    greeting: &Frame,
    private_caches: bool,
) -> Result<Core<Endpoint>> {
    let (server, of_server) = greet(address, credentials, greeting)?;
    let shards = of_server.view.shards();
    let endpoint = server.endpoint(of_server.term, shards, MAILBOX_BYTES);
    let peers: Vec<PeerId> = (0..shards as u32).map(PeerId).collect();
    // A table of this size is made at once where it is shared, which is much for a process that ends soon.
    let pointers = PointerCache::new(Span::private(POINTER_TABLE_BYTES));
    let shelf = if private_caches { Shelf::Private } else { Shelf::of_user() };
    Ok(Core::new(Endpoint::Tcp(endpoint), of_server, &peers, pointers, shelf))
}
