//! What is different where the nodes of a cluster are on several hosts: who is primary is so by a lease, and its
//! successor waits until that is over (docs/design/0019-several-hosts.md).
//!
//! The decisions stand in `kelix_shard::replicas`:
//!
//! 1. A primary counts until s + 3/4 L of its host's clock, where s is a moment before a question to the register
//!    that was answered by: that view is the newest ([`Lease::ask`]).
//! 2. A successor serves when L has passed on its host's clock since its view was chosen, or when the member that
//!    it follows is none any more ([`outwait`]). A member that was primary takes itself out of the view behind
//!    voiding its authority page, and a node puts its next member in when the page is void or L has passed.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use kelix_fabric::host_clock_ns;
use kelix_fabric::shm::RunDirectory;
use kelix_fabric::tcp::ClientTls;
use kelix_register::{Membership, View, ZooKeeperOptions};
use kelix_shard::replicas::{self, Lease};
use kelix_types::{Error, ErrorKind, Result};

use crate::authority::Authority;
use crate::server::Token;

/// How to be a node on one of several hosts.
#[derive(Clone, Debug)]
pub struct HostsConfig {
    /// Where the register is.
    pub zookeeper: ZooKeeperOptions,
    /// L: for how long a primary may be read, and answer, without hearing that it still is, and a quarter more.
    pub lease: Duration,
    /// Where this node is fed from and takes clients while it is primary.
    pub listen: SocketAddr,
    /// The address of this host's RDMA device from which it follows over verbs, if not any.
    pub rdma_address: Option<IpAddr>,
    /// HOST:PORT by which other nodes and clients know that; the address itself, if there is none.
    pub advertise: Option<String>,
    /// The word by which nodes know each other.
    pub token: String,
    /// Other clients' words.
    pub tokens: Vec<Token>,
    /// Speak TLS with other nodes.
    pub tls: Option<ClientTls>,
}

/// The shortest lease: readers look at a clock of ticks, and a register takes its time.
pub const LEASE_MIN: Duration = Duration::from_millis(400);
/// The lease unless somebody says otherwise.
pub const LEASE_USUAL: Duration = Duration::from_secs(2);

/// Between two looks for the end of an earlier primary's lease.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Asks whether a member is primary. Over, if nobody says so.
pub(super) fn lease_of_primary(membership: &Membership, length: Duration) -> Lease {
    let asked = Lease::ask(membership, length.as_nanos() as u64, now_ns);
    asked.ok().and_then(|(_, lease)| lease).unwrap_or(Lease::OVER)
}

/// The host's clock.
pub(super) fn now_ns() -> u64 {
    host_clock_ns(false)
}

/// Waits until nothing counts any more that an earlier primary does. An error: another one was chosen meanwhile, or
/// the node is to end.
pub(super) fn outwait(
    membership: &Membership,
    (earlier, length): (u64, Duration),
    ends: impl Fn() -> bool,
) -> Result<()> {
    replicas::outwait(membership, (earlier, length.as_nanos() as u64), now_ns, |left_ns| {
        if ends() {
            return Err(Error::new(ErrorKind::Unavailable, "join cluster", "this node is to end"));
        }
        std::thread::sleep(BETWEEN_LOOKS.min(Duration::from_nanos(left_ns)));
        Ok(())
    })
}

/// Sees to it that nothing counts any more that an earlier instance of a node does, before a new one takes its
/// place among the members.
pub(super) fn end_earlier(run: &Path, view: Option<&View>, node: &str, length: Duration) {
    let directory = RunDirectory(run.to_path_buf());
    let void = || {
        let over_verbs = Authority::was_read_over_verbs(&directory);
        Authority::void(&directory)?;
        match over_verbs {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::Unavailable,
                "join cluster",
                "who reads over verbs does not look there",
            )),
        }
    };
    replicas::end_earlier(view, node, void, || std::thread::sleep(length));
}
