//! Where a server is, and how a program is begun there.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

/// The ports that ZooKeeper has where nobody says others.
const USUAL_PORTS: [u16; 3] = [2181, 2888, 3888];

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

    /// Places on loopback whose ports nobody uses. Nobody else is likely to take them before the servers do.
    ///
    /// # Errors
    ///
    /// Those of the system, which may have no port left.
    pub fn on_loopback(count: usize) -> std::io::Result<Vec<Place>> {
        // All of them are held until all of them are known, so that no port comes twice.
        let held = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let held: Vec<TcpListener> = (0..3 * count).map(|_| held()).collect::<std::io::Result<_>>()?;
        let port = |socket: &TcpListener| Ok(socket.local_addr()?.port());
        let ports: Vec<u16> = held.iter().map(port).collect::<std::io::Result<_>>()?;
        let place = |ports: &[u16; 3]| Place { ports: *ports, ..Place::new(Ipv4Addr::LOCALHOST, &[]) };
        Ok(ports.chunks(3).filter_map(|ports| ports.try_into().ok()).map(place).collect())
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
