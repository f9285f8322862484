//! Ports that are taken before a server begins, and listened at when it has.
//!
//! A start may still fail at what comes after, and then nobody has connected in vain: a socket that has its
//! port and does not listen yet takes no connections. A server that takes over shares the port of the one
//! before it, which goes on listening until it ends.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use kelix_fabric::shm::RunDirectory;
use kelix_types::{Error, ErrorKind, Result};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use crate::authority::Lock;
use crate::holder::Holder;

/// Connections that may wait to be taken.
const BACKLOG: i32 = 4096;

/// A port of this host that nobody else gets, and that takes no connections yet.
#[derive(Debug)]
pub struct Reserved {
    socket: OwnedFd,
    address: SocketAddr,
}

fn cannot(address: SocketAddr, source: impl Into<std::io::Error>) -> Error {
    Error::system("serve", format!("cannot listen on {address}"), source.into())
}

impl Reserved {
    /// Takes a port; port 0 is any that is free. `taken_over` is the run directory of a server that is going
    /// to be superseded: a port at which that server listens is shared with it. An error, if the port is
    /// another program's.
    pub fn bind(address: SocketAddr, taken_over: Option<&Path>) -> Result<Reserved> {
        let holder = taken_over.and_then(|directory| Lock::holder(&RunDirectory(directory.to_path_buf())));
        Reserved::share(address, holder.as_ref())
    }

    pub(crate) fn share(address: SocketAddr, holder: Option<&Holder>) -> Result<Reserved> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|source| cannot(address, source))?;
        let bound = set_socket_reuseaddr(&socket, true).and_then(|()| match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if holder.is_some_and(|holder| holder.listens_at(address)) => {
                set_socket_reuseport(&socket, true).and_then(|()| bind(&socket, &address))
            }
            bound => bound,
        });
        // Shared with this server's successor, not with others: whoever asks for the port as everybody does
        // is refused it.
        let bound = bound.and_then(|()| set_socket_reuseport(&socket, true));
        let bound = bound.and_then(|()| set_socket_reuseaddr(&socket, false));
        bound.map_err(|source| cannot(address, source))?;
        let name = rustix::net::getsockname(&socket).map_err(|source| cannot(address, source))?;
        let address = name.try_into().map_err(|_| {
            Error::new(ErrorKind::System, "serve", format!("{address} became the address of no TCP socket"))
        })?;
        Ok(Reserved { socket, address })
    }

    /// The same port, for the next one of this process.
    pub(crate) fn try_clone(&self) -> Result<Reserved> {
        let socket = self.socket.try_clone().map_err(|source| cannot(self.address, source))?;
        Ok(Reserved { socket, address: self.address })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Another descriptor of the socket, as a listener that takes connections once [`Reserved::listen`] was
    /// called.
    pub(crate) fn listener(&self) -> Result<TcpListener> {
        let socket = self.socket.as_fd().try_clone_to_owned();
        socket.map(TcpListener::from).map_err(|source| cannot(self.address, source))
    }

    /// Takes connections from now on.
    pub fn listen(self) -> Result<TcpListener> {
        // Connections of an earlier server may not have run out yet.
        let listens = set_socket_reuseaddr(&self.socket, true).and_then(|()| listen(&self.socket, BACKLOG));
        listens.map_err(|source| cannot(self.address, source))?;
        Ok(self.socket.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_port_is_nobody_elses_and_takes_connections_when_it_is_listened_at() {
        let any = "127.0.0.1:0".parse().unwrap();
        let reserved = Reserved::bind(any, None).unwrap();
        let address = reserved.address();
        assert_ne!(address.port(), 0);
        assert!(TcpStream::connect(address).is_err(), "nobody listens yet");
        let refused = Reserved::bind(address, None).unwrap_err();
        assert!(refused.context().contains(&address.to_string()), "{refused}");
        let listener = reserved.listen().unwrap();
        TcpStream::connect(address).unwrap();
        assert!(TcpListener::bind(address).is_err());
        assert!(Reserved::bind(address, None).is_err(), "two servers do not share a port by mistake");
        drop(listener);
        // Connections that were taken keep the port in another state, which does not matter to who listens.
        Reserved::bind(address, None).unwrap().listen().unwrap();
    }
}
