//! Where a server is, and how a program is begun there.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

/// The ports that ZooKeeper has where nobody says others.
const USUAL_PORTS: [u16; 3] = [2181, 2888, 3888];
/// The ports of servers on loopback.
const OWN_PORTS: Range<u16> = 2181..9981;

/// Where a server is to be.
///
/// ```
/// // On a host that is a network namespace, which the process 4711 keeps.
/// let within = ["nsenter", "--no-fork", "--net=/proc/4711/ns/net", "--"];
/// let place = kelix_zookeeper::Place::new([10, 99, 0, 1].into(), &within);
/// assert_eq!(place.client_address(), "10.99.0.1:2181");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The address of the host.
    pub address: Ipv4Addr,
    /// The ports for clients, for followers and for elections.
    pub ports: [u16; 3],
    /// A program, with its arguments, that executes what stands behind them at the host; empty: the host is
    /// the one of whoever starts it.
    pub within: Vec<String>,
}

impl Place {
    /// A place with the usual ports: 2181, 2888 and 3888.
    pub fn new(address: Ipv4Addr, within: &[&str]) -> Place {
        let within = within.iter().map(|argument| argument.to_string()).collect();
        Place { address, ports: USUAL_PORTS, within }
    }

    /// Places on loopback whose ports nobody uses, for servers that may be killed and begun again.
    ///
    /// The address is this process' own, and the ports are below those that the system gives to whoever asks
    /// for any: else a connection, also one that is tried while a server does not run, could take its port.
    ///
    /// # Errors
    ///
    /// That of the last port, where too few are free.
    pub fn on_loopback(count: usize) -> std::io::Result<Vec<Place>> {
        static NEXT: AtomicU16 = AtomicU16::new(OWN_PORTS.start);
        let address = own_address(std::process::id());
        let mut places = Vec::with_capacity(count);
        while places.len() < count {
            let first = NEXT.fetch_add(3, Ordering::Relaxed);
            let ports = [first, first + 1, first + 2];
            let free = ports.iter().try_for_each(|port| TcpListener::bind((address, *port)).map(drop));
            match free {
                Ok(()) => places.push(Place { ports, ..Place::new(address, &[]) }),
                Err(error) if first >= OWN_PORTS.end => return Err(error),
                Err(_) => {}
            }
        }
        Ok(places)
    }

    /// HOST:PORT for clients.
    pub fn client_address(&self) -> String {
        format!("{}:{}", self.address, self.ports[0])
    }

    /// A program that is to run there. It ends when the thread ends that starts it: whoever is killed cannot
    /// end its children, so the system does.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(&self.within).arg(program);
        command
    }
}

/// The address on loopback of a process. None ends with 255, at which Java does not listen: it takes such an
/// address for one that is everybody's.
fn own_address(process: u32) -> Ipv4Addr {
    let [_, high, middle, _] = (process / 255 * 256).to_be_bytes();
    Ipv4Addr::new(127, 64 + high % 64, middle, (process % 255) as u8)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// One process in 256 could start no ZooKeeper.
    #[test]
    fn processes_have_addresses_of_their_own_at_which_java_listens() {
        let processes = (1..100_000).chain(4_000_000..4_100_000);
        let addresses: HashSet<Ipv4Addr> = processes.clone().map(own_address).collect();
        assert_eq!(addresses.len(), processes.count());
        assert!(addresses.iter().all(|address| address.is_loopback() && address.octets()[3] != 255));
        assert_ne!(own_address(6911), Ipv4Addr::new(127, 64, 26, 255));
    }
}
