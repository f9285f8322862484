//! Which register, in which ZooKeeper, and how long to wait for it.

use std::fmt;
use std::time::Duration;

use kelix_types::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::{NAME_CHARACTERS_MAX, OPERATION};

/// How many servers may be named.
const SERVERS_MAX: usize = 64;
/// Time limits of calls. A session of ZooKeeper is a multiple of them, and has limits of its own.
const TIME_LIMIT_MIN: Duration = Duration::from_millis(20);
const TIME_LIMIT_MAX: Duration = Duration::from_secs(10);
/// The shortest session that is asked for. A server whose ticks are longer gives a longer one.
const SESSION_MIN: Duration = Duration::from_secs(2);

/// What a session says to be let in. Its text is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials(pub(super) String);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Where a register is, who uses it, and how long a call may take.
#[derive(Clone, Debug)]
pub struct ZooKeeperOptions {
    pub(super) servers: Vec<String>,
    pub(super) paths: Paths,
    pub(super) time_limit: Duration,
    pub(super) credentials: Option<Credentials>,
}

/// The nodes of a register.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// The directory of all registers.
    pub root: &'static str,
    /// What all of this register is below.
    pub cluster: String,
    /// What says that this is a register, and whose creation is the register's identity.
    pub format: String,
    /// The document of the view.
    pub view: String,
    /// Below it each node of the cluster has one.
    pub beats: String,
    /// What this node writes.
    pub beat: String,
}

fn refuse<T>(context: String) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidArgument, OPERATION, context))
}

fn check_server(server: &str) -> Result<String> {
    let is_host = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        match inner {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(is_plain),
        }
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match server.rsplit_once(':') {
        Some((host, port)) if is_host(host) && is_port(port) => Ok(server.to_string()),
        _ => refuse(format!("the address {server:?} of a ZooKeeper server is not HOST:PORT")),
    }
}

/// A name as one component of a path: letters, digits, `_` and `-` as they are, all else as `%XX`.
fn component(name: &str) -> String {
    let mut component = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => component.push(byte as char),
            _ => component += &format!("%{byte:02X}"),
        }
    }
    component
}

impl Paths {
    fn new(cluster: &str, node: &str) -> Paths {
        let cluster = format!("/kelix/{cluster}");
        let beats = format!("{cluster}/beats");
        Paths {
            root: "/kelix",
            format: format!("{cluster}/format"),
            view: format!("{cluster}/view"),
            beat: format!("{beats}/{}", component(node)),
            beats,
            cluster,
        }
    }
}

impl ZooKeeperOptions {
    /// The register of the cluster `cluster`, used by `node`, which is the name of this node alone, in the
    /// ZooKeeper of these servers: `HOST:PORT`, several with commas between them. Calls may take a second.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] of servers that are no such list, of a cluster's name that has other
    /// characters than ASCII letters, digits, `_`, `-`, or is longer than [`NAME_CHARACTERS_MAX`], and of a
    /// node's name that a [`crate::Member`] could not have.
    pub fn new(servers: &str, cluster: &str, node: &str) -> Result<ZooKeeperOptions> {
        if servers.trim().is_empty() {
            return refuse("no ZooKeeper server is named: give HOST:PORT, several with commas".into());
        }
        let servers: Vec<String> =
            servers.split(',').map(|server| check_server(server.trim())).collect::<Result<_>>()?;
        if servers.len() > SERVERS_MAX {
            return refuse(format!("at most {SERVERS_MAX} ZooKeeper servers can be named"));
        }
        let is_length = |name: &str| (1..=NAME_CHARACTERS_MAX).contains(&name.chars().count());
        if !is_length(cluster) || component(cluster) != cluster {
            return refuse(format!(
                "the name {cluster:?} of a cluster has other characters than letters, digits, _ and -, or \
                 not 1 to {NAME_CHARACTERS_MAX}"
            ));
        }
        if !is_length(node) || node.chars().any(char::is_control) {
            return refuse(format!("{node:?} is no name of a node"));
        }
        let paths = Paths::new(cluster, node);
        Ok(ZooKeeperOptions { servers, paths, time_limit: Duration::from_secs(1), credentials: None })
    }

    /// Within this time each call is answered or fails. A server that has not answered after half of it is
    /// given up for another one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] of less than 20 ms or more than 10 s.
    pub fn time_limit(self, time_limit: Duration) -> Result<ZooKeeperOptions> {
        if !(TIME_LIMIT_MIN..=TIME_LIMIT_MAX).contains(&time_limit) {
            return refuse(format!(
                "calls to ZooKeeper may take {TIME_LIMIT_MIN:?} to {TIME_LIMIT_MAX:?}, and not {time_limit:?}"
            ));
        }
        Ok(ZooKeeperOptions { time_limit, ..self })
    }

    /// Says who this is, by ZooKeeper's scheme `digest`, and lets nobody else use the nodes that this handle
    /// creates. It goes over the network as it is, as all else: what reads the connection reads it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] of a user without a name, or with a colon in it.
    pub fn digest(self, user: &str, password: &str) -> Result<ZooKeeperOptions> {
        if user.is_empty() || user.contains(':') {
            return refuse("the name of a user of ZooKeeper is empty or has a colon".into());
        }
        Ok(ZooKeeperOptions { credentials: Some(Credentials(format!("{user}:{password}"))), ..self })
    }

    /// The number of the server that is asked first. Nodes begin at different ones.
    pub(super) fn first_server(&self) -> usize {
        xxh3_64(self.paths.beat.as_bytes()) as usize % self.servers.len()
    }

    /// How long one server is waited for.
    pub(super) fn patience(&self) -> Duration {
        self.time_limit / 2
    }

    /// How long a session is to outlive its connection. Nothing that Kelix does depends on it.
    pub(super) fn session(&self) -> Duration {
        (4 * self.time_limit).max(SESSION_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(servers: &str, cluster: &str, node: &str) -> String {
        let error = ZooKeeperOptions::new(servers, cluster, node).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.context().to_string()
    }

    #[test]
    fn servers_are_a_list_of_addresses() {
        let options = ZooKeeperOptions::new("z1.example:2181, [::1]:2182", "prod", "1").unwrap();
        assert_eq!(options.servers, ["z1.example:2181", "[::1]:2182"]);
        assert!(refusal("", "prod", "1").contains("no ZooKeeper server is named"));
        for server in [
            "z1",
            ":1",
            "z1:",
            "z1:0",
            "z1:70000",
            "z1:1,",
            "z1:1/a",
            "tcp://z1:1",
            "z 1:1",
            "::1:1",
            "[z]:1",
        ] {
            assert!(refusal(server, "prod", "1").contains("is not HOST:PORT"), "{server}");
        }
        assert!(refusal(&["z:1"; 65].join(","), "prod", "1").contains("at most 64"));
    }

    #[test]
    fn names_are_one_component_of_a_path() {
        let paths = ZooKeeperOptions::new("z:1", "prod_2-a", "a/b. ö").unwrap().paths;
        assert_eq!(paths.view, "/kelix/prod_2-a/view");
        assert_eq!(paths.beat, "/kelix/prod_2-a/beats/a%2Fb%2E%20%C3%B6");
        for cluster in ["", "a/b", "..", "a b", "ö", "%", &"x".repeat(65)] {
            assert!(refusal("z:1", cluster, "1").contains("of a cluster"), "{cluster}");
        }
        for node in ["", "a\n", &"x".repeat(65)] {
            assert!(refusal("z:1", "prod", node).contains("no name of a node"), "{node}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let options = ZooKeeperOptions::new("z:1", "prod", "1").unwrap().digest("ada", "secret").unwrap();
        assert!(!format!("{options:?}").contains("secret"));
        assert!(options.clone().digest("a:b", "c").is_err() && options.digest("", "c").is_err());
    }

    #[test]
    fn time_limits_have_limits() {
        let options = ZooKeeperOptions::new("z:1", "prod", "1").unwrap();
        assert!(options.clone().time_limit(Duration::ZERO).is_err());
        assert!(options.clone().time_limit(Duration::from_secs(11)).is_err());
        assert_eq!(options.time_limit(Duration::from_millis(50)).unwrap().session(), SESSION_MIN);
    }
}
