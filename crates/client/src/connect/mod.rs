//! Connecting: where the server is, and over which fabric.

#[cfg(target_os = "linux")]
mod shm;
#[cfg(not(target_os = "linux"))]
#[path = "no_shm.rs"]
mod shm;
mod tcp;
#[cfg(target_os = "linux")]
mod verbs;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kelix_fabric::tcp::ClientTls;
use kelix_fabric::{Endpoint, PeerId, RemoteMemory, WAIT_MAX};
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::SPOKEN;
use kelix_wire::control::{
    Caller, DENIED, FEATURE_COMMITS, FEATURE_FINDS, FEATURE_HINTS, FEATURE_LAPS, FEATURE_LEASED,
    FEATURE_MIRROR, FEATURE_PUT_MANY, FEATURE_REPLICATED, FEATURE_SEQUENCES, FEATURES_NEEDED, Frame, Purpose,
};

use crate::client::Client;
use crate::engine;
use crate::session::SessionOptions;
use crate::transport::{ServerIdentity, Transport};
use shm::Link;

/// How long the server may take to answer a set-up frame.
pub(crate) const ANSWER: Duration = Duration::from_millis(900);
/// How long it may take where nobody needs the answer yet.
#[cfg(target_os = "linux")]
const ANSWER_BRIEFLY: Duration = Duration::from_millis(100);

/// The same for a session, whose requests may be given longer.
fn answer_within(options: &SessionOptions) -> Duration {
    options.timeout.clamp(ANSWER, WAIT_MAX)
}

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// On this host: its run directory. Shared memory is there on Linux only; elsewhere nothing answers here.
    Directory(PathBuf),
    /// Over TCP: host and port. Of a cluster on several hosts those of all nodes, with commas between: whichever
    /// is primary takes clients.
    Tcp(String),
}

impl From<&Path> for Address {
    fn from(directory: &Path) -> Address {
        Address::Directory(directory.to_path_buf())
    }
}

impl From<&PathBuf> for Address {
    fn from(directory: &PathBuf) -> Address {
        Address::Directory(directory.clone())
    }
}

impl From<PathBuf> for Address {
    fn from(directory: PathBuf) -> Address {
        Address::Directory(directory)
    }
}

impl From<&Address> for Address {
    fn from(address: &Address) -> Address {
        address.clone()
    }
}

/// `HOST:PORT`, or several with commas between, is over TCP, and all else a directory. What is neither is found out when it is connected to;
/// [`Address::from_str`] tells it at once.
impl From<&str> for Address {
    fn from(text: &str) -> Address {
        match text.contains('/') || !text.contains(':') {
            true => Address::Directory(text.into()),
            false => Address::Tcp(text.into()),
        }
    }
}

impl From<String> for Address {
    fn from(text: String) -> Address {
        Address::from(&text[..])
    }
}

impl FromStr for Address {
    type Err = Error;

    /// `HOST:PORT`, or several with commas between; or a directory, which has a `/` in its name or no `:`.
    fn from_str(text: &str) -> Result<Address> {
        if text.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "connect", "an empty address"));
        }
        if text.contains('/') || !text.contains(':') {
            return Ok(Address::Directory(text.into()));
        }
        let has_port = |host: &str| {
            let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            port.is_some_and(|port| port > 0)
        };
        if let Some(host) = text.split(',').find(|host| !has_port(host)) {
            let context = format!("{host:?} is no HOST:PORT; a directory with a colon is written ./{text}");
            return Err(Error::new(ErrorKind::InvalidArgument, "connect", context));
        }
        Ok(Address::Tcp(text.into()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Directory(directory) => write!(f, "{}", directory.display()),
            Address::Tcp(address) => f.write_str(address),
        }
    }
}

/// What a client wants of its server, and has to say for itself over TCP.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Credentials {
    /// The namespace; empty: the default one.
    pub namespace: String,
    /// A word that the server knows.
    pub token: Option<String>,
    /// Speak TLS.
    pub tls: Option<ClientTls>,
}

impl Credentials {
    /// Sets [`Credentials::namespace`].
    pub fn namespace(self, namespace: impl Into<String>) -> Credentials {
        Credentials { namespace: namespace.into(), ..self }
    }

    /// Sets [`Credentials::token`].
    pub fn token(self, token: impl Into<Option<String>>) -> Credentials {
        Credentials { token: token.into(), ..self }
    }

    /// Sets [`Credentials::tls`].
    pub fn tls(self, tls: impl Into<Option<ClientTls>>) -> Credentials {
        Credentials { tls: tls.into(), ..self }
    }
}

/// A fabric to insist on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricChoice {
    /// Shared memory, which is there on Linux only.
    Shm,
    /// RDMA: InfiniBand, RoCE or iWARP. There on Linux only.
    Verbs,
    /// TCP.
    Tcp,
}

impl FromStr for FabricChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<FabricChoice> {
        match text {
            "shm" => Ok(FabricChoice::Shm),
            "verbs" => Ok(FabricChoice::Verbs),
            "tcp" => Ok(FabricChoice::Tcp),
            _ => {
                let context = format!("no fabric is called {text}; there are shm, verbs and tcp");
                Err(Error::new(ErrorKind::InvalidArgument, "connect", context))
            }
        }
    }
}

/// How a session was set up, and how it learns of new segments.
pub(crate) enum Setup {
    /// Over the socket of a run directory.
    Shm(Link),
    /// Over TCP, where nothing is mapped.
    Tcp,
    /// Over verbs.
    #[cfg(target_os = "linux")]
    Verbs(verbs::Asked),
    /// By a simulator, which knows the segments.
    #[cfg(kelix_sim)]
    Sim(crate::sim::Source),
}

impl Setup {
    /// Brings what is known of a shard's segments up to date. Returns whether they are mapped here.
    ///
    /// `briefly`: nobody needs it yet, and a server that stands still may cost little time. Of shared memory
    /// it is known before anything is asked.
    pub fn refresh_map(
        &mut self,
        shard: u16,
        peer: PeerId,
        fabric: &mut Endpoint,
        #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "there are no verbs"))]
        briefly: bool,
    ) -> Result<bool> {
        let map = match self {
            Setup::Tcp => return Ok(false),
            #[cfg(target_os = "linux")]
            Setup::Verbs(asked) => {
                if let Endpoint::Verbs(endpoint) = fabric {
                    let within = if briefly { ANSWER_BRIEFLY } else { ANSWER };
                    asked.refresh(usize::from(shard), endpoint, within)?;
                }
                return Ok(false);
            }
            Setup::Shm(link) => link.refresh_map(shard, fabric.map(peer).expect("memory that is mapped"))?,
            #[cfg(kelix_sim)]
            Setup::Sim(source) => (source.maps)(shard)?,
        };
        fabric.set_map(peer, map);
        Ok(true)
    }

    /// Whether segments cannot be READ before the server has registered them.
    pub fn waits_for_segments(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Setup::Verbs(_) => true,
            _ => false,
        }
    }

    /// Whether a session that has lost its server goes over to another one. Where a simulator sets sessions up,
    /// those on mirrors do.
    pub fn opens_sessions(&self) -> bool {
        match self {
            #[cfg(kelix_sim)]
            Setup::Sim(source) => source.primary.is_some(),
            _ => true,
        }
    }

    /// Connects to the same server once more.
    pub fn connect_again(
        &mut self,
        client: &Client,
        options: &SessionOptions,
        caller: Caller,
    ) -> Result<(Setup, Transport<Endpoint>)> {
        match self {
            #[cfg(kelix_sim)]
            Setup::Sim(source) => (source.again)(Some(caller)).map(|connected| connected.open(options)),
            _ => session(client, options, Some(caller)),
        }
    }

    /// Opens a session that takes the place of the one with this number, if that had one.
    pub fn open_beside(
        &mut self,
        client: &Client,
        options: &mut SessionOptions,
        #[cfg_attr(not(kelix_sim), expect(unused_variables, reason = "only a simulator counts sessions"))]
        caller: Option<u64>,
    ) -> Result<Numbered> {
        match self {
            #[cfg(kelix_sim)]
            Setup::Sim(source) => {
                let greeting = caller.map(|number| Caller { number, again: false });
                (source.again)(greeting).map(|connected| (connected.open(options), caller))
            }
            _ => numbered_session(client, options),
        }
    }

    /// Connects a session on a mirror to the server at the address, which the mirror follows.
    pub fn connect_primary(
        &mut self,
        address: &str,
        credentials: &Credentials,
        options: &SessionOptions,
        caller: Option<Caller>,
    ) -> Result<(Endpoint, ServerIdentity)> {
        match self {
            #[cfg(kelix_sim)]
            Setup::Sim(crate::sim::Source { primary: Some(primary), .. }) => {
                let wants_records = wants_records(options);
                let connected = (primary.connect)(caller, wants_records)?;
                Ok(connected.into_primary(wants_records))
            }
            _ => primary(address, credentials, options, caller),
        }
    }

    /// Waits, without a connection.
    pub fn nap(&mut self, time: Duration) {
        match self {
            #[cfg(kelix_sim)]
            Setup::Sim(source) => (source.nap)(time),
            _ => std::thread::sleep(time),
        }
    }
}

/// An address and the fabric that leads there.
enum Route<'a> {
    Shm(&'a Path),
    Verbs(String),
    Tcp(String),
    /// Whatever leads there, the faster first.
    Any(String),
}

fn route(address: &Address, wanted: Option<FabricChoice>) -> Result<Route<'_>> {
    match (address, wanted) {
        (Address::Directory(directory), None | Some(FabricChoice::Shm)) => Ok(Route::Shm(directory)),
        (Address::Directory(directory), Some(FabricChoice::Verbs)) => {
            shm::listens_at(directory).map(Route::Verbs)
        }
        (Address::Directory(directory), Some(FabricChoice::Tcp)) => {
            shm::listens_at(directory).map(Route::Tcp)
        }
        (Address::Tcp(address), Some(FabricChoice::Verbs)) => Ok(Route::Verbs(address.clone())),
        (Address::Tcp(address), Some(FabricChoice::Tcp)) => Ok(Route::Tcp(address.clone())),
        (Address::Tcp(address), None) => Ok(Route::Any(address.clone())),
        (Address::Tcp(address), Some(FabricChoice::Shm)) => {
            let context =
                format!("{address} is reached over TCP; shared memory needs the server's run directory");
            Err(Error::new(ErrorKind::InvalidArgument, "connect", context))
        }
    }
}

/// Finds out whether a server answers.
pub(crate) fn knock(address: &Address, credentials: &Credentials, answer: Duration) -> Result<()> {
    match route(address, None)? {
        Route::Shm(directory) => Link::open(directory, answer).map(drop),
        // A socket that takes connections may be anybody's.
        Route::Verbs(hosts) | Route::Tcp(hosts) | Route::Any(hosts) => {
            at_each(&hosts, |address| tcp::knock(address, credentials, answer))
        }
    }
}

/// Which host of a list took a client last.
static TOOK: Mutex<Vec<(String, usize)>> = Mutex::new(Vec::new());

/// Tries the hosts of a list one after another, until one takes this client: first the one that did last.
fn at_each<T>(list: &str, mut attempt: impl FnMut(&str) -> Result<T>) -> Result<T> {
    let hosts: Vec<&str> = list.split(',').collect();
    if let [host] = hosts[..] {
        return attempt(host);
    }
    let took = || TOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let first = took().iter().find(|(of, _)| of == list).map_or(0, |(_, host)| *host);
    let (mut kind, mut why) = (ErrorKind::Unavailable, String::new());
    for host in (first..hosts.len()).chain(0..first) {
        match attempt(hosts[host]) {
            Err(error) if engine::is_passing(&error) => {
                kind = error.kind();
                why = format!("{why}; {}", error.context());
            }
            Err(error) => return Err(error),
            Ok(taken) => {
                let mut took = took();
                took.retain(|(of, _)| of != list);
                took.push((list.to_string(), host));
                return Ok(taken);
            }
        }
    }
    Err(Error::new(kind, "connect", format!("no host of {list} takes clients{why}")))
}

/// Asks a server for statistics, as JSON.
pub(crate) fn statistics(address: &Address, credentials: &Credentials, answer: Duration) -> Result<String> {
    match route(address, None)? {
        Route::Shm(directory) => {
            Link::statistics(directory, &greeting(Purpose::Statistics, None, credentials), answer)
        }
        Route::Verbs(hosts) | Route::Tcp(hosts) | Route::Any(hosts) => {
            at_each(&hosts, |address| tcp::statistics(address, credentials, answer))
        }
    }
}

/// Has a server take a snapshot. Where it is, or why there is none, as JSON.
pub(crate) fn snapshot(address: &Address, credentials: &Credentials, answer: Duration) -> Result<String> {
    match route(address, None)? {
        Route::Shm(directory) => {
            Link::snapshot(directory, &greeting(Purpose::Statistics, None, credentials), answer)
        }
        Route::Verbs(_) | Route::Tcp(_) | Route::Any(_) => {
            let context = "snapshots are taken by who is on the server's host: name its run directory";
            Err(Error::new(ErrorKind::InvalidArgument, "snapshot", context))
        }
    }
}

/// A session that was opened, and its number if it goes on when it has lost its connection.
pub(crate) type Numbered = ((Setup, Transport<Endpoint>), Option<u64>);

/// Opens a session, with a number if it is to go on over other connections. Where nobody has said so, that
/// is as the server is, and noted in the options.
pub(crate) fn numbered_session(client: &Client, options: &mut SessionOptions) -> Result<Numbered> {
    if options.retry_for.is_none() {
        let connected = session(client, options, None)?;
        if !connected.1.is_replicated() {
            return Ok((connected, None));
        }
        options.retry_for = Some(SessionOptions::CLUSTER_RETRY);
    }
    // As hard to guess as the keys that the standard library's hash tables get.
    let caller = RandomState::new().hash_one(std::process::id()).max(1);
    let caller = Some(caller).filter(|_| !options.retries_for().is_zero());
    let greeting = caller.map(|number| Caller { number, again: false });
    Ok((session(client, options, greeting)?, caller))
}

/// Opens a session.
pub(crate) fn session(
    client: &Client,
    options: &SessionOptions,
    caller: Option<Caller>,
) -> Result<(Setup, Transport<Endpoint>)> {
    match route(&client.address, options.fabric)? {
        Route::Shm(directory) => {
            let greeting = greeting(Purpose::Session, caller, &client.credentials);
            Link::session(directory, &greeting, options)
                .map(|(link, transport)| (Setup::Shm(link), transport))
        }
        Route::Verbs(hosts) => at_each(&hosts, |address| verbs_session(address, client, options, caller)),
        Route::Tcp(hosts) => at_each(&hosts, |address| tcp_session(address, client, options, caller)),
        Route::Any(hosts) => at_each(&hosts, |address| {
            // Where there is no way over verbs, for whatever reason, there is one over TCP.
            if may_have_way(address) {
                match verbs_session(address, client, options, caller) {
                    Err(error) if engine::is_passing(&error) || error.kind() == ErrorKind::System => {
                        let mut known = NO_WAY.lock().unwrap_or_else(PoisonError::into_inner);
                        known.push((address.to_string(), Instant::now()));
                    }
                    result => return result,
                }
            }
            tcp_session(address, client, options, caller)
        }),
    }
}

/// Whether a session on a mirror is to know which record has what an answer tells of. Who always reads at the
/// primary need not know how far the mirror is.
fn wants_records(options: &SessionOptions) -> bool {
    options.own_writes && !options.strict
}

/// Connects a session on a mirror to the primary.
fn primary(
    address: &str,
    credentials: &Credentials,
    options: &SessionOptions,
    caller: Option<Caller>,
) -> Result<(Endpoint, ServerIdentity)> {
    let wants_records = wants_records(options);
    let wanted = if wants_records { FEATURE_SEQUENCES } else { 0 };
    let greeting = match greeting(Purpose::Session, caller, credentials) {
        Frame::Hello { versions, features, purpose, caller, namespace } => {
            Frame::Hello { versions, features: features | wanted, purpose, caller, namespace }
        }
        other => other,
    };
    let (endpoint, server) = tcp::endpoint(address, credentials, &greeting, options)?;
    if wants_records && !server.tells_records {
        let context = "the server does not tell which record has a write, so that nobody can say when a \
                       mirror has it; its release is too old";
        return Err(Error::new(ErrorKind::Incompatible, "connect", context));
    }
    Ok((Endpoint::Tcp(endpoint), server))
}

fn tcp_session(
    address: &str,
    client: &Client,
    options: &SessionOptions,
    caller: Option<Caller>,
) -> Result<(Setup, Transport<Endpoint>)> {
    let greeting = greeting(Purpose::Session, caller, &client.credentials);
    let transport = tcp::session(address, &client.credentials, &greeting, options)?;
    Ok((Setup::Tcp, transport))
}

#[cfg(target_os = "linux")]
fn verbs_session(
    address: &str,
    client: &Client,
    options: &SessionOptions,
    caller: Option<Caller>,
) -> Result<(Setup, Transport<Endpoint>)> {
    let greeting = greeting(Purpose::Verbs, caller, &client.credentials);
    let (asked, transport) = verbs::session(address, &client.credentials, &greeting, options)?;
    Ok((Setup::Verbs(asked), transport))
}

/// Servers that could not be reached over verbs, though both sides have it, and when that was tried.
static NO_WAY: Mutex<Vec<(String, Instant)>> = Mutex::new(Vec::new());
/// For how long that is believed.
const BELIEVED: Duration = Duration::from_secs(30);

/// Whether an address may be reached over verbs, as far as is known.
fn may_have_way(address: &str) -> bool {
    let mut known = NO_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(_, since)| since.elapsed() < BELIEVED);
    has_rdma() && !known.iter().any(|(of, _)| of == address)
}

#[cfg(target_os = "linux")]
fn has_rdma() -> bool {
    kelix_fabric::verbs::is_usable()
}

#[cfg(not(target_os = "linux"))]
fn verbs_session(
    _: &str,
    _: &Client,
    _: &SessionOptions,
    _: Option<Caller>,
) -> Result<(Setup, Transport<Endpoint>)> {
    Err(Error::new(ErrorKind::InvalidArgument, "connect", "RDMA is there on Linux only"))
}

#[cfg(not(target_os = "linux"))]
fn has_rdma() -> bool {
    false
}

fn protocol(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, "connect", what.to_string())
}

/// The client's first frame.
fn greeting(purpose: Purpose, caller: Option<Caller>, credentials: &Credentials) -> Frame {
    let namespace = credentials.namespace.clone();
    Frame::Hello { versions: SPOKEN, features: FEATURE_LAPS, purpose, caller, namespace }
}

/// Understands a frame of the server; a refusal is an error.
fn understand(kind: u16, bytes: &[u8]) -> Result<Frame> {
    match Frame::decode(kind, bytes) {
        Some(Frame::Refused { text }) => {
            let kind = match () {
                () if text.starts_with(DENIED) => ErrorKind::Denied,
                () if text.contains("version") => ErrorKind::Incompatible,
                () => ErrorKind::Unavailable,
            };
            Err(Error::new(kind, "connect", format!("the server refused: {text}")))
        }
        Some(frame) => Ok(frame),
        None => Err(protocol("the server sent a frame that this release does not know")),
    }
}

/// Understands the answer to a greeting.
fn greeted(answer: Frame) -> Result<ServerIdentity> {
    let Frame::Welcome { version, features, term, may_write, view, life, .. } = answer else {
        return Err(protocol("the server did not greet"));
    };
    let strange = features & FEATURES_NEEDED & !(FEATURE_COMMITS | FEATURE_MIRROR) != 0;
    if !(SPOKEN.oldest..=SPOKEN.newest).contains(&version) || strange {
        let context = format!(
            "the server speaks protocol version {version} with features {features:#x}, this client version {SPOKEN}"
        );
        return Err(Error::new(ErrorKind::Incompatible, "connect", context));
    }
    let has = |feature: u64| features & feature != 0;
    Ok(ServerIdentity {
        term,
        may_write,
        wants_hints: has(FEATURE_HINTS),
        commits: has(FEATURE_COMMITS),
        is_mirror: has(FEATURE_MIRROR),
        tells_records: has(FEATURE_SEQUENCES),
        is_replicated: has(FEATURE_REPLICATED),
        is_leased: has(FEATURE_LEASED),
        finds: has(FEATURE_FINDS),
        puts_many: has(FEATURE_PUT_MANY),
        has_laps: has(FEATURE_LAPS),
        view,
        life,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_directories_or_hosts_with_ports() {
        let directory = |text: &str| Address::Directory(text.into());
        for text in ["/run/kelix", "kelix", "./a:1", "/tmp/a:7117"] {
            assert_eq!(text.parse::<Address>().unwrap(), directory(text));
            assert_eq!(Address::from(text), directory(text));
        }
        for text in ["localhost:7117", "127.0.0.1:1", "[::1]:65535", "a:1,b:2", "a:1,[::1]:2,c:3"] {
            assert_eq!(text.parse::<Address>().unwrap(), Address::Tcp(text.into()));
            assert_eq!(Address::from(text.to_string()), Address::Tcp(text.into()));
        }
        for text in ["", "localhost:", "localhost:x", "localhost:65536", "localhost:0", "a:1,", "a:1,b"] {
            assert_eq!(text.parse::<Address>().unwrap_err().kind(), ErrorKind::InvalidArgument, "{text}");
        }
    }

    #[test]
    fn of_several_hosts_the_one_that_took_this_client_is_asked_first() {
        let (mut asked, mut primary) = (Vec::new(), "c:3");
        let mut ask = |primary: &str, refused: ErrorKind| {
            asked.clear();
            let result = at_each("a:1,b:2,c:3", |host| {
                asked.push(host.to_string());
                match host == primary {
                    true => Ok(host.to_string()),
                    false => Err(Error::new(refused, "connect", format!("not {host}"))),
                }
            });
            (result, asked.join(" "))
        };
        let (taken, asked) = ask(primary, ErrorKind::Unavailable);
        assert_eq!((taken.unwrap().as_str(), asked.as_str()), ("c:3", "a:1 b:2 c:3"));
        primary = "b:2";
        let (taken, asked) = ask(primary, ErrorKind::TimedOut);
        assert_eq!((taken.unwrap().as_str(), asked.as_str()), ("b:2", "c:3 a:1 b:2"));
        let (refused, asked) = ask("nobody", ErrorKind::Unavailable);
        let refused = refused.unwrap_err();
        assert!(refused.retry() && refused.context().contains("not a:1"), "{refused}");
        assert_eq!(asked, "b:2 c:3 a:1");
        // What asking another host does not mend.
        let (refused, asked) = ask("nobody", ErrorKind::Denied);
        assert_eq!((refused.unwrap_err().kind(), asked.as_str()), (ErrorKind::Denied, "b:2"));
    }

    #[test]
    fn a_fabric_is_insisted_on() {
        let tcp = Address::Tcp("localhost:7117".into());
        let refused = route(&tcp, Some(FabricChoice::Shm)).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        let nowhere = Address::Directory("/nonexistent".into());
        let refused = route(&nowhere, Some(FabricChoice::Tcp)).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(matches!(route(&nowhere, None), Ok(Route::Shm(_))));
    }
}
