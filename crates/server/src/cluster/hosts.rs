//! What is different where the nodes of a cluster are on several hosts: who is primary is so by a lease, and its
//! successor waits until that is over (docs/design/0019-several-hosts.md).
//!
//! 1. A primary counts until s + 3/4 L of its host's clock, where s is a moment before a question to the register
//!    that was answered by: that view is the newest ([`Lease::renew`]). So it does not matter how long an answer
//!    was on its way, nor how long this process has stood still.
//! 2. A successor serves when L has passed on its host's clock since its view was chosen, or when the member that
//!    it follows is none any more ([`outwait`]). A member that was primary takes itself out of the view behind
//!    voiding its authority page, and a node puts its next member in when the page is void or L has passed.
//! 3. Only lengths of time are compared, so clocks need not agree. One may run a quarter faster than another.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use kelix_fabric::host_clock_ns;
use kelix_fabric::shm::RunDirectory;
use kelix_fabric::tcp::ClientTls;
use kelix_register::{Membership, View, ZooKeeperOptions};
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

/// When it was asked whether a term is in force, and until when the term is, by the host's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub asked_ns: u64,
    pub until_ns: u64,
}

impl Lease {
    /// A term that is in force from the first answer on.
    pub const OVER: Lease = Lease { asked_ns: 0, until_ns: 1 };

    /// Of a question that is going to be asked now.
    pub fn begin(length: Duration) -> Lease {
        let asked_ns = host_clock_ns(false);
        Lease { asked_ns, until_ns: asked_ns + length.as_nanos() as u64 / 4 * 3 }
    }

    /// Asks whether a member is primary. Over, if nobody says so.
    pub fn of_primary(membership: &Membership, length: Duration) -> Lease {
        let lease = Lease::begin(length);
        let is_primary = |view: Option<View>| view.is_some_and(|view| view.primary == membership.boot);
        if membership.look().is_ok_and(is_primary) { lease } else { Lease::OVER }
    }
}

/// Between two questions of a node: eight in a lease, so that it lasts though some are lost.
pub(super) fn between_questions(length: Duration) -> Duration {
    length / 8
}

/// Waits until nothing counts any more that an earlier primary does. An error: another one was chosen meanwhile, or
/// the node is to end.
pub(super) fn outwait(
    membership: &Membership,
    (earlier, length): (u64, Duration),
    ends: impl Fn() -> bool,
) -> Result<()> {
    let chosen = Instant::now();
    while chosen.elapsed() < length {
        if ends() {
            return Err(Error::new(ErrorKind::Unavailable, "join cluster", "this node is to end"));
        }
        // Without an answer the time is waited for.
        if let Ok(Some(view)) = membership.look() {
            if view.primary != membership.boot {
                let context = "another node was chosen to be primary while this one waited for that";
                return Err(Error::new(ErrorKind::Superseded, "join cluster", context));
            }
            if view.member(earlier).is_none() {
                return Ok(());
            }
        }
        std::thread::sleep(BETWEEN_LOOKS.min(length.saturating_sub(chosen.elapsed())));
    }
    Ok(())
}

/// Sees to it that nothing counts any more that an earlier instance of a node does, before a new one takes its
/// place among the members.
pub(super) fn end_earlier(run: &Path, view: Option<&View>, node: &str, length: Duration) {
    let was_member = view.is_some_and(|view| view.members.iter().any(|member| member.node == node));
    let directory = RunDirectory(run.to_path_buf());
    let had_far_readers = was_member && Authority::was_read_over_verbs(&directory);
    if was_member && (Authority::void(&directory).is_err() || had_far_readers) {
        // Its page may be mapped, and is not to be found, or sessions over verbs do not look there.
        std::thread::sleep(length);
    }
}
