//! A session with one server of ZooKeeper, and the three requests that a register consists of.
//!
//! ```text
//! look    check(view, version) and set(beat), at once   ── and behind it: exists(view)
//! fetch   set(beat)                                     ── and behind it: get(view)
//! put     check(beat, fence) and create or set(view, version), at once
//! ```
//!
//! 1. What `look` and `fetch` say was so at a moment after they were called: their write went through a
//!    quorum after that, and a server answers a session's read from a state that has the session's writes
//!    before it. A plain read, or one behind `sync`, may be of a server that was deposed.
//! 2. A `put` whose answer did not come takes effect before the handle's next `look` or `fetch` is answered,
//!    or never: each of them raises the version of the beat, which `put` compares with the one that it knows
//!    ([`Connection::put`]). So does the first request of a new session ([`Connection::open`]).
//! 3. Requests are never sent twice. The library fails all that was sent when a connection breaks, and the
//!    connection is given up then, before the library's own reconnects matter (`link`).

use kelix_types::{Error, ErrorKind};
use tokio::time::timeout;
use zookeeper_client::{
    Acl, Acls, AuthId, Client, CreateMode, Error as Refusal, MultiWriteError, MultiWriteResult, Permission,
    Stat, StateWatcher,
};

use super::diagnosis::diagnose;
use super::options::{Credentials, Paths, ZooKeeperOptions};
use crate::OPERATION;

/// The beginning of what a register's node `format` has, before the number of the format.
const FORMAT_BEGINNING: &str = "kelix register ";
/// The format that is written, and the newest that is understood.
const FORMAT: u64 = 1;
/// How often nodes may be found missing and made, while others do the same. Each takes a turn or two.
const TURNS_MAX: usize = 16;

/// Everybody may make a register beside the others, and nobody remove another's.
fn shared_acls() -> [Acl; 2] {
    [
        Acl::new(Permission::ALL, AuthId::authed()),
        Acl::new(Permission::READ | Permission::CREATE, AuthId::anyone()),
    ]
}

/// How a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection is of no more use. What was sent may have taken effect.
    Broken(String),
    /// The server has answered, and asking again is of no use. Nothing took effect.
    Refused(Error),
}

pub(super) type Answer<T> = Result<T, Failure>;

/// A view as ZooKeeper counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    /// The transaction that created the node: another one where it was removed and made anew.
    pub created: i64,
    /// How often the node was written since: the number of the view, less one.
    pub version: i32,
}

impl Seen {
    pub fn number(self) -> u64 {
        u64::try_from(self.version).map_or(0, |version| version + 1)
    }
}

impl From<Stat> for Seen {
    fn from(stat: Stat) -> Seen {
        Seen { created: stat.czxid, version: stat.version }
    }
}

/// What `look` found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Whether the view had the version that was asked about.
    pub is_version: bool,
    /// The view then, or right behind it.
    pub view: Option<Seen>,
}

/// How `put` ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Put {
    /// The view is in force, and this is what it is, if the server says so.
    Done(Option<Seen>),
    /// It is not, and will not be: another version was there, or something else has raised the fence.
    Refused,
}

/// A session.
pub(super) struct Connection {
    client: Client,
    paths: Paths,
    acls: Acls<'static>,
    has_credentials: bool,
    /// The version of this node's beat when it was last written.
    fence: i32,
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::Broken(error.to_string())
}

fn refused(kind: ErrorKind, context: String) -> Failure {
    Failure::Refused(Error::new(kind, OPERATION, context))
}

/// What an answer means that is not among those that are expected.
fn failure(refusal: Refusal, path: &str) -> Failure {
    match refusal {
        Refusal::NoAuth | Refusal::AuthFailed => {
            refused(ErrorKind::Denied, format!("ZooKeeper does not let this node use {path}"))
        }
        Refusal::QuotaExceeded => {
            refused(ErrorKind::OutOfMemory, format!("ZooKeeper's quota on {path} is used up"))
        }
        other => broken(format!("{path}: {other}")),
    }
}

/// The node at which a request of several failed, counted from 0, and why.
fn failed_at(error: MultiWriteError) -> Result<(usize, Refusal), Refusal> {
    match error {
        MultiWriteError::OperationFailed { index, source } => Ok((index, source)),
        MultiWriteError::RequestFailed { source } => Err(source),
    }
}

/// An error unless these are the contents of the node `format` of a register that is understood.
fn check_format(contents: &[u8], path: &str) -> Answer<()> {
    let text = std::str::from_utf8(contents).unwrap_or_default();
    let number = text.strip_prefix(FORMAT_BEGINNING).and_then(|rest| rest.trim_end().parse::<u64>().ok());
    match number {
        Some(FORMAT) => Ok(()),
        Some(number) if number > FORMAT => Err(refused(
            ErrorKind::Incompatible,
            format!(
                "{path} in ZooKeeper has format {number}, and this release understands up to {FORMAT}: use a \
                 later release of Kelix"
            ),
        )),
        _ => Err(refused(
            ErrorKind::Damaged,
            format!("{path} in ZooKeeper does not say that this is a register of Kelix: use another name"),
        )),
    }
}

/// The error of a register that is not there any more, which no later call on it mends.
pub(super) fn lost(cluster: &str, what: &str) -> Error {
    let context = format!("the register {cluster} in ZooKeeper {what}: this node is of no cluster any more");
    Error::new(ErrorKind::Superseded, OPERATION, context).with_retry(false)
}

impl Connection {
    /// Gets a session from a server, makes what is missing of the register, and raises the fence.
    ///
    /// `identity` is the creation of the register that the handle began with, and is set with its first
    /// connection.
    pub async fn open(
        options: &ZooKeeperOptions,
        server: &str,
        identity: &mut Option<i64>,
    ) -> Answer<Connection> {
        let mut connector = Client::connector()
            .with_session_timeout(options.session())
            .with_connection_timeout(options.time_limit)
            .with_fail_eagerly();
        if let Some(Credentials(credentials)) = &options.credentials {
            connector = connector.with_auth("digest", credentials.as_bytes());
        }
        let client = match timeout(options.patience(), connector.connect(server)).await {
            Ok(Ok(client)) => client,
            Ok(Err(Refusal::AuthFailed)) => return Err(failure(Refusal::AuthFailed, "itself")),
            _ => return Err(broken(diagnose(server).await)),
        };
        let has_credentials = options.credentials.is_some();
        let acls = if has_credentials { Acls::creator_all() } else { Acls::anyone_all() };
        let paths = options.paths.clone();
        let mut connection = Connection { client, paths, acls, has_credentials, fence: 0 };
        match timeout(options.patience(), connection.prepare(identity)).await {
            Ok(prepared) => prepared.map(|()| connection),
            Err(_) => Err(broken("gave a session, and answered no write in time")),
        }
    }

    /// Tells what becomes of the session.
    pub fn watch(&self) -> StateWatcher {
        self.client.state_watcher()
    }

    #[cfg(test)]
    pub fn session(&self) -> zookeeper_client::SessionInfo {
        self.client.session().clone()
    }

    async fn prepare(&mut self, identity: &mut Option<i64>) -> Answer<()> {
        for _ in 0..TURNS_MAX {
            let beat = self.client.set_data(&self.paths.beat, &[], None);
            // Behind a write, also one that failed: what is missing was missing, and is not only late here.
            let format = self.client.get_data(&self.paths.format);
            let beat = match beat.await {
                Ok(stat) => Some(stat.version),
                Err(Refusal::NoNode) => None,
                Err(error) => return Err(failure(error, &self.paths.beat)),
            };
            let format = match format.await {
                Ok(found) => Some(found),
                Err(Refusal::NoNode) => None,
                Err(error) => return Err(failure(error, &self.paths.format)),
            };
            match format {
                Some((contents, stat)) => {
                    check_format(&contents, &self.paths.format)?;
                    if identity.is_some_and(|identity| identity != stat.czxid) {
                        return Err(Failure::Refused(lost(&self.paths.cluster, "was removed and made anew")));
                    }
                    *identity = Some(stat.czxid);
                    if let Some(version) = beat {
                        self.fence = version;
                        return Ok(());
                    }
                    self.make(&self.paths.beats, &[], self.acls).await?;
                    self.make(&self.paths.beat, &[], self.acls).await?;
                }
                None if identity.is_some() => {
                    return Err(Failure::Refused(lost(&self.paths.cluster, "was removed")));
                }
                None => self.make_register().await?,
            }
        }
        Err(broken("nodes of the register are removed as fast as they are made"))
    }

    /// Makes a node, unless it is there.
    async fn make(&self, path: &str, contents: &[u8], acls: Acls<'_>) -> Answer<()> {
        match self.client.create(path, contents, &CreateMode::Persistent.with_acls(acls)).await {
            Ok(_) | Err(Refusal::NodeExists) => Ok(()),
            // What it is below was removed: the next turn finds that.
            Err(Refusal::NoNode) => Ok(()),
            Err(error) => Err(failure(error, path)),
        }
    }

    /// Makes a register where there is none. A directory that somebody made, with who may use it, is taken if
    /// it is empty.
    async fn make_register(&self) -> Answer<()> {
        let shared = shared_acls();
        let root_acls = if self.has_credentials { Acls::new(&shared) } else { self.acls };
        self.make(self.paths.root, &[], root_acls).await?;
        self.make(&self.paths.cluster, &[], self.acls).await?;
        let children = match self.client.list_children(&self.paths.cluster).await {
            Ok(children) => children,
            Err(Refusal::NoNode) => return Ok(()),
            Err(error) => return Err(failure(error, &self.paths.cluster)),
        };
        // Another node may have made the register meanwhile.
        if children.is_empty() || children.iter().any(|child| child == "format") {
            let contents = format!("{FORMAT_BEGINNING}{FORMAT}\n");
            return self.make(&self.paths.format, contents.as_bytes(), self.acls).await;
        }
        let context = format!(
            "{} in ZooKeeper has other nodes ({}), and is no register of Kelix: use another name",
            self.paths.cluster,
            children.join(", ")
        );
        Err(refused(ErrorKind::Damaged, context))
    }

    /// What a request found that has to write this node's beat. A beat that is not there is for a new
    /// connection to look into.
    fn beaten(&mut self, stat: Stat) {
        self.fence = stat.version;
    }

    /// Whether the view has this version, and what the view is; None: only what it is.
    pub async fn look(&mut self, version: Option<i32>) -> Answer<Look> {
        let mut both = self.client.new_multi_writer();
        if let Some(version) = version {
            both.add_check_version(&self.paths.view, version).map_err(broken)?;
        }
        both.add_set_data(&self.paths.beat, &[], None).map_err(broken)?;
        let written = both.commit();
        // Sent now, and behind the write.
        let view = self.client.check_stat(&self.paths.view);
        let written = written.await;
        let is_version = match written.map_err(failed_at) {
            Ok(results) => {
                if let Some(MultiWriteResult::SetData { stat }) = results.into_iter().next_back() {
                    self.beaten(stat);
                }
                true
            }
            Err(Ok((0, Refusal::BadVersion | Refusal::NoNode))) if version.is_some() => false,
            Err(Ok((_, refusal)) | Err(refusal)) => return Err(failure(refusal, &self.paths.beat)),
        };
        let view = view.await.map_err(|refusal| failure(refusal, &self.paths.view))?;
        Ok(Look { is_version, view: view.map(Seen::from) })
    }

    /// The view and its document; None: there is none.
    pub async fn fetch(&mut self) -> Answer<Option<(Seen, Vec<u8>)>> {
        let beat = self.client.set_data(&self.paths.beat, &[], None);
        // Sent now, and behind the write.
        let view = self.client.get_data(&self.paths.view);
        let stat = beat.await.map_err(|refusal| failure(refusal, &self.paths.beat))?;
        self.beaten(stat);
        match view.await {
            Ok((document, stat)) => Ok(Some((Seen::from(stat), document))),
            Err(Refusal::NoNode) => Ok(None),
            Err(refusal) => Err(failure(refusal, &self.paths.view)),
        }
    }

    /// Puts a document behind the view with this version; None: there is no view yet.
    pub async fn put(&self, version: Option<i32>, document: &[u8]) -> Answer<Put> {
        let mut both = self.client.new_multi_writer();
        both.add_check_version(&self.paths.beat, self.fence).map_err(broken)?;
        match version {
            Some(version) => both.add_set_data(&self.paths.view, document, Some(version)),
            None => {
                let options = CreateMode::Persistent.with_acls(self.acls);
                both.add_create(&self.paths.view, document, &options)
            }
        }
        .map_err(broken)?;
        match both.commit().await.map_err(failed_at) {
            Ok(results) => Ok(Put::Done(results.into_iter().next_back().and_then(seen))),
            Err(Ok((0, Refusal::BadVersion))) => Ok(Put::Refused),
            Err(Ok((1, Refusal::BadVersion | Refusal::NodeExists | Refusal::NoNode))) => Ok(Put::Refused),
            Err(Ok((_, refusal)) | Err(refusal)) => Err(failure(refusal, &self.paths.view)),
        }
    }
}

/// The view that a write made. ZooKeeper 3.8 does not say what it created within a request of several.
fn seen(result: MultiWriteResult) -> Option<Seen> {
    match result {
        MultiWriteResult::SetData { stat } => Some(Seen::from(stat)),
        MultiWriteResult::Create { stat, .. } if !stat.is_invalid() => Some(Seen::from(stat)),
        _ => None,
    }
}
