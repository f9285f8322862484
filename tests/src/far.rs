//! The fabric of sessions that do not share the server's memory: TCP, or what `KELIX_TEST_FABRIC` says.
//!
//! `KELIX_TEST_FABRIC=verbs` needs a device for RDMA at `KELIX_RDMA_ADDRESS` (192.168.77.1, if not told otherwise). Virtual
//! machines with one of software, which `scripts/test-verbs` starts, are slow: `KELIX_TEST_SCALE=n` divides how often things
//! are done, where [`fewer`] is asked.

use std::net::SocketAddr;

use kelix::{Client, Cost, FabricChoice, Session, SessionOptions};
use kelix_types::limits::READ_RETRIES_MAX;

fn variable<T: std::str::FromStr>(name: &str, usual: T) -> T {
    std::env::var(name).map_or(usual, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name}={text}: this is not what stands there"))
    })
}

/// The fabric that is not shared memory.
pub fn far() -> FabricChoice {
    match variable("KELIX_TEST_FABRIC", "tcp".to_string()).as_str() {
        "tcp" => FabricChoice::Tcp,
        "verbs" => FabricChoice::Verbs,
        other => panic!("KELIX_TEST_FABRIC={other}: there are tcp and verbs"),
    }
}

/// Shared memory and the other one; where that is verbs it alone, since machines are slow there and others do the rest.
pub fn fabrics() -> Vec<FabricChoice> {
    match far() {
        FabricChoice::Verbs => vec![FabricChoice::Verbs],
        far => vec![FabricChoice::Shm, far],
    }
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
    let options = SessionOptions { fabric: Some(fabric), ..options };
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

/// Asserts that no shard was asked for what could be read, but for READs that were too slow each time because others had the
/// core: these are counted.
#[track_caller]
pub fn check_one_sided(cost: Cost, what: &str) {
    let slow = cost.retries / READ_RETRIES_MAX;
    assert!(cost.messages == cost.fallbacks && cost.fallbacks <= slow, "{what}: {cost:?}");
}

/// As many, or fewer where machines are slow, but one at least.
pub fn fewer(count: u64) -> u64 {
    count.div_ceil(variable("KELIX_TEST_SCALE", 1))
}
