//! The fabric of sessions that do not share the server's memory: TCP, or what `KELIX_TEST_FABRIC` says.
//!
//! `KELIX_TEST_FABRIC=slow` is TCP over a proxy that is slow and breaks each connection at a random place
//! ([`crate::slow`]). Sessions that were to have no time for connecting again have some there.
//!
//! `KELIX_TEST_FABRIC=verbs` needs a device for RDMA at `KELIX_RDMA_ADDRESS` (192.168.77.1, if not told
//! otherwise). Virtual machines with one of software, which `scripts/test-verbs` starts, are slow:
//! `KELIX_TEST_SCALE=n` divides how often things are done, where [`fewer`] is asked.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use kelix::{
    Address, Client, ConnectOptions, Cost, Credentials, Error, FabricChoice, Session, SessionOptions,
};
use kelix_fabric::shm::RunDirectory;
use kelix_server::{Server, ServerConfig};
use kelix_types::limits::READ_RETRIES_MAX;

use crate::seeds;
use crate::slow::SlowWay;

/// For how long sessions connect again whose connections break: many times what any operation of a test
/// takes.
const CARRY_ON: Duration = Duration::from_secs(60);

fn variable<T: std::str::FromStr>(name: &str, usual: T) -> T {
    std::env::var(name).map_or(usual, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name}={text}: this is not what stands there"))
    })
}

fn named() -> (FabricChoice, bool) {
    match variable("KELIX_TEST_FABRIC", "tcp".to_string()).as_str() {
        "tcp" => (FabricChoice::Tcp, false),
        "slow" => (FabricChoice::Tcp, true),
        "verbs" => (FabricChoice::Verbs, false),
        other => panic!("KELIX_TEST_FABRIC={other}: there are tcp, slow and verbs"),
    }
}

/// The fabric that is not shared memory.
pub fn far() -> FabricChoice {
    named().0
}

/// Whether connections to servers are slow and break. Nothing can be said there of how often something is
/// sent.
pub fn breaks() -> bool {
    named().1
}

/// Shared memory and the other one; that alone where it is not plain TCP, since tests are slow there and
/// other runs do the rest.
pub fn fabrics() -> Vec<FabricChoice> {
    match named() {
        (FabricChoice::Tcp, false) => vec![FabricChoice::Shm, FabricChoice::Tcp],
        (far, _) => vec![far],
    }
}

/// Starts a server in this process.
#[track_caller]
pub fn start(config: &ServerConfig) -> Server {
    let server = Server::start(config).expect("a server");
    lead_over_proxy(&config.directory);
    server
}

/// Has clients of the server that has just begun in a run directory go over a proxy, if that is what tests
/// are about.
pub(crate) fn lead_over_proxy(directory: &Path) {
    if breaks() {
        let seed = seeds(1)[0];
        println!("KELIX_TEST_SEED={seed}");
        let proxy = SlowWay::that_breaks(tcp_address(directory), seed);
        std::fs::write(RunDirectory(directory.into()).tcp(), proxy.address.to_string())
            .expect("a run directory");
    }
}

/// Where clients reach the server of a run directory over TCP.
pub fn tcp_address(directory: &Path) -> String {
    let told = std::fs::read_to_string(RunDirectory(directory.into()).tcp());
    told.expect("a server that listens").trim().to_string()
}

/// A client of the server there, which has time to connect where connections break.
#[track_caller]
pub fn client_at(address: impl Into<Address>) -> Client {
    client_with(address, Credentials::default()).expect("a server that serves")
}

/// A client with credentials, which has as much time.
pub fn client_with(address: impl Into<Address>, credentials: Credentials) -> Result<Client, Error> {
    let retry_for = if breaks() { CARRY_ON } else { Duration::ZERO };
    Client::connect_within(address, credentials, ConnectOptions::default().retry_for(retry_for))
}

/// Where a server takes clients over verbs: nowhere, if the tests are not about them.
pub fn rdma() -> Vec<SocketAddr> {
    if far() != FabricChoice::Verbs {
        return Vec::new();
    }
    vec![SocketAddr::new(variable("KELIX_RDMA_ADDRESS", [192, 168, 77, 1].into()), 0)]
}

/// Opens a session over a fabric, and over no other.
#[track_caller]
pub fn session_over(fabric: FabricChoice, client: &Client, options: SessionOptions) -> Session {
    let mut options = options.fabric(fabric);
    if breaks() && fabric != FabricChoice::Shm && options.retry_for.is_none_or(|time| time.is_zero()) {
        options.retry_for = Some(CARRY_ON);
    }
    let session = client.session_with(options).expect("a server that serves");
    check_fabric(&session, fabric);
    session
}

/// Asserts that a session is over a fabric.
#[track_caller]
pub fn check_fabric(session: &Session, fabric: FabricChoice) {
    let name = session.fabric();
    assert_eq!(name.parse::<FabricChoice>().expect("a fabric's name"), fabric, "the session is over {name}");
}

/// Asserts that no shard was asked for what could be read, but for READs that were too slow each time because
/// others had the core: these are counted.
#[track_caller]
pub fn check_one_sided(cost: Cost, what: &str) {
    let slow = cost.retries / READ_RETRIES_MAX;
    // READs over a connection that breaks are asked for, and so is what was not answered.
    assert!(breaks() || cost.messages == cost.fallbacks && cost.fallbacks <= slow, "{what}: {cost:?}");
}

/// As many, or fewer where machines are slow, but one at least.
pub fn fewer(count: u64) -> u64 {
    count.div_ceil(variable("KELIX_TEST_SCALE", 1))
}
