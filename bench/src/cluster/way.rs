//! A way to a server on loopback that can be cut, as a cable can be pulled out: nothing of what is sent
//! arrives any more, and nobody is told. What was sent meanwhile arrives when the way is there again.
//!
//! Each connection has two threads, one for each direction, which end with it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use super::text;

/// Between two looks whether a way is there again.
const LOOKS: Duration = Duration::from_millis(1);
/// Ports that the system gives nobody who asks for any: a server that begins anew finds its own one free.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// An address on loopback that is free, for a server that may end and begin again.
pub(super) fn own_address() -> Result<SocketAddr, String> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = std::process::id() as u16;
    for _ in PORTS {
        let number = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u16;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORTS.start + number));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err("no port is free".into())
}

/// What the threads of a way look at.
#[derive(Default)]
struct State {
    is_cut: AtomicBool,
    ends: AtomicBool,
}

impl State {
    /// Waits until the way is there. Whether it ends.
    fn wait(&self) -> bool {
        while self.is_cut.load(Ordering::SeqCst) && !self.ends.load(Ordering::SeqCst) {
            std::thread::sleep(LOOKS);
        }
        self.ends.load(Ordering::SeqCst)
    }
}

/// A way.
pub(super) struct Way {
    address: SocketAddr,
    state: Arc<State>,
}

/// Takes what comes from one end to the other, until one of them is closed.
fn forward(state: &State, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let bytes = match from.read(&mut buffer) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        // While the way is cut nobody hears of an end that is closed, either.
        if state.wait() || bytes == 0 || to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// Has a connection that has come go on to where the way leads.
fn connect(state: &Arc<State>, end: TcpStream, to: SocketAddr) -> std::io::Result<()> {
    if state.wait() {
        return Ok(());
    }
    let other = TcpStream::connect(to)?;
    for socket in [&end, &other] {
        socket.set_nodelay(true)?;
    }
    let (back, its_state) = ((other.try_clone()?, end.try_clone()?), state.clone());
    std::thread::spawn(move || forward(&its_state, back.0, back.1));
    forward(state, end, other);
    Ok(())
}

impl Way {
    /// A way to this address.
    pub fn to(address: SocketAddr) -> Result<Way, String> {
        let listener = TcpListener::bind(own_address()?).map_err(text)?;
        let (own, state) = (listener.local_addr().map_err(text)?, Arc::<State>::default());
        let its_state = state.clone();
        std::thread::spawn(move || {
            for end in listener.incoming() {
                if its_state.ends.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(end), state) = (end, its_state.clone()) else { continue };
                // Where nobody listens the connection is closed.
                std::thread::spawn(move || connect(&state, end, address));
            }
        });
        Ok(Way { address: own, state })
    }

    /// Where it begins.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts it, or has it be there again.
    pub fn cut(&self, is_cut: bool) {
        self.state.is_cut.store(is_cut, Ordering::SeqCst);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::SeqCst);
        // Has the thread that waits for connections look.
        let _ = TcpStream::connect(self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_while_a_way_is_cut_arrives_when_it_is_there_again() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let way = Way::to(listener.local_addr().unwrap()).unwrap();
        let mut near = TcpStream::connect(way.address()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut came = [0; 2];
        near.write_all(b"ab").unwrap();
        far.read_exact(&mut came).unwrap();
        assert_eq!(&came, b"ab");
        way.cut(true);
        near.write_all(b"cd").unwrap();
        far.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(far.read(&mut came).is_err());
        far.set_read_timeout(None).unwrap();
        way.cut(false);
        far.read_exact(&mut came).unwrap();
        assert_eq!(&came, b"cd");
        drop(far);
        assert_eq!(near.read(&mut came).unwrap_or(0), 0);
    }
}
