//! What every command has at hand: where the server is, how to print, how to measure.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use kelix::{
    Address, Client, ConnectOptions, Cost, Credentials, ErrorKind, FabricChoice, Path, Session,
    SessionOptions, Table, TableKind,
};
use rustix::fs::OFlags;
use serde_json::{Value, json};

pub(crate) use kelix_program::output::say;

use crate::config::nearest;
use crate::kept::{Kept, Lent};
use crate::trust::TrustArgs;
use crate::{Exit, Failure};

/// The global options.
#[derive(Clone)]
pub(crate) struct Context {
    /// Where the server is.
    pub address: Address,
    /// The name of the cluster whose primary that is, if it is one's.
    pub cluster: Option<String>,
    /// The fabric to insist on.
    pub fabric: Option<FabricChoice>,
    /// The namespace; empty: the default one.
    pub namespace: String,
    /// Who is trusted over TCP.
    pub trust: TrustArgs,
    /// For how long to ask again.
    pub retry: Option<Duration>,
    /// How long the server may take, where that is not as usual.
    pub timeout: Option<Duration>,
    /// Which device for RDMA is to be used.
    pub rdma_address: Option<IpAddr>,
    /// On a mirror: whether reads go to the primary, too, and how old they may be.
    pub strict: bool,
    pub max_lag: Option<Duration>,
    /// Whether results and errors are printed as JSON.
    pub json: bool,
    /// In a shell: what it keeps from command to command.
    pub kept: Option<Kept>,
    /// Whether standard input is the commands of a shell, so that no value can be read there.
    pub input_is_script: bool,
}

/// Whether this process began without standard input. The runtime has put /dev/null in its place by then, open
/// for reading and writing, as nobody opens what is only to be read.
fn is_input_closed() -> bool {
    let input = std::io::stdin();
    let is_null = || -> std::io::Result<bool> {
        Ok(rustix::fs::fstat(&input)?.st_rdev == std::fs::metadata("/dev/null")?.rdev())
    };
    let mode = rustix::fs::fcntl_getfl(&input);
    mode.is_ok_and(|mode| mode & OFlags::RWMODE == OFlags::RDWR) && is_null().unwrap_or(false)
}

impl Context {
    /// Whether standard input can be read; what else to give, if not.
    pub fn check_input(&self, operation: &'static str, instead: &str) -> Result<(), Failure> {
        if self.input_is_script {
            let context = format!("standard input is the shell's commands: give {instead}");
            return Err(Failure::usage(operation, context));
        }
        if is_input_closed() {
            // Nothing would be read, and an empty value written in the place of the one that was to come.
            let context = format!("standard input is closed: give {instead}");
            return Err(Failure::usage(operation, context));
        }
        Ok(())
    }

    /// Connects to the server, unless that is kept.
    pub fn client(&self) -> Result<Client, Failure> {
        if let Some(client) = self.kept.as_ref().and_then(Kept::client) {
            return Ok(client);
        }
        let client = self.connect()?;
        if let Some(kept) = &self.kept {
            kept.keep_client(&client);
        }
        Ok(client)
    }

    fn connect(&self) -> Result<Client, Failure> {
        let SessionOptions { timeout, retry_for, .. } = self.options();
        let options = ConnectOptions::default().timeout(timeout).retry_for(retry_for.unwrap_or_default());
        self.connect_to(&self.address, options)
    }

    /// Connects to some server.
    pub fn connect_to(&self, address: &Address, options: ConnectOptions) -> Result<Client, Failure> {
        let is_directory = matches!(address, Address::Directory(_));
        let is_shm = is_directory && matches!(self.fabric, None | Some(FabricChoice::Shm));
        let credentials = match self.trust.credentials() {
            // Nobody asks for credentials in shared memory, unless the directory is a mirror's, which is not known
            // yet.
            Err(_) if is_shm => Credentials::default(),
            credentials => credentials?,
        };
        Ok(Client::connect_within(address, credentials.namespace(self.namespace.clone()), options)?)
    }

    /// The run directory, for commands that need one.
    pub fn run_directory(&self, operation: &str) -> Result<PathBuf, Failure> {
        match &self.address {
            Address::Directory(directory) => Ok(directory.clone()),
            Address::Tcp(_) => Err(Failure::usage(
                operation,
                "this needs a run directory, not --server or KELIX_SERVER: name one with --dir".to_string(),
            )),
        }
    }

    /// Opens a session, or lends the one that is kept.
    pub fn session(&self) -> Result<Lent, Failure> {
        self.session_by(Path::Auto)
    }

    /// How sessions are opened.
    pub fn options(&self) -> SessionOptions {
        let usual = SessionOptions::default();
        let timeout = self.timeout.unwrap_or(usual.timeout);
        // Another node takes over within less.
        let usual_retry = self.cluster.as_ref().map(|_| SessionOptions::CLUSTER_RETRY);
        let retry_for = self.retry.or(usual_retry);
        let usual = usual.fabric(self.fabric).timeout(timeout).retry_for(retry_for);
        usual.rdma_address(self.rdma_address).strict(self.strict).max_lag(self.max_lag)
    }

    /// The same whose gets take one path.
    pub fn session_by(&self, path: Path) -> Result<Lent, Failure> {
        let session = match self.kept.as_ref().and_then(Kept::take_session) {
            Some(mut session) => {
                if self.kept.as_ref().is_some_and(Kept::looks) {
                    self.connect()?;
                }
                session.set_path(path);
                session.set_durable(false);
                session
            }
            None => {
                let session = self.client()?.session_with(self.options().path(path))?;
                if session.is_mirror() {
                    // A mirror's writes go to the primary with these credentials.
                    self.trust.credentials()?;
                }
                session
            }
        };
        Ok(Lent::new(session, self.kept.clone()))
    }

    /// Whether it is a command of a shell.
    pub fn is_of_shell(&self) -> bool {
        self.kept.is_some()
    }

    /// Whether the command is to end before it is done.
    pub fn is_interrupted(&self) -> bool {
        self.kept.as_ref().is_some_and(Kept::is_interrupted)
    }

    /// Prints one JSON value: indented for people, on one line for programs.
    pub fn print_json(&self, value: &Value) -> Result<(), Failure> {
        kelix_program::output::print_json(value)
    }
}

/// Opens a table for writing, of whatever kind. It is made if it does not exist, unless its name could not be
/// written in a link.
pub(crate) fn create_table(session: &mut Session, operation: &str, name: &str) -> Result<Table, Failure> {
    match table_if_any(session, operation, name)? {
        Some(table) => Ok(table),
        None => Ok(session.create_table(name)?),
    }
}

/// The same, and fails if there is a table of another kind.
pub(crate) fn create_table_of(
    session: &mut Session,
    operation: &str,
    kind: TableKind,
    name: &str,
) -> Result<Table, Failure> {
    match table_if_any(session, operation, name)?.filter(|table| table.kind() == kind) {
        Some(table) => Ok(table),
        None => Ok(session.create_table_of(kind, name)?),
    }
}

/// Opens a table that is to be there. If it is not, its name may be a slip, and those that are there are
/// told.
pub(crate) fn open_table(session: &mut Session, operation: &str, name: &str) -> Result<Table, Failure> {
    let error = match session.table(name) {
        Err(error) if error.kind() == ErrorKind::NoSuchTable => error,
        found => return Ok(found?),
    };
    let names = session.tables()?;
    let near = nearest(name, names.iter().map(String::as_str), name.chars().count().div_ceil(3));
    let hint = match near {
        Some(near) => format!("perhaps \"{near}\" is meant"),
        None if names.is_empty() => return Err(error.into()),
        None => format!("there are {}", some_of(&names)),
    };
    let context = format!("there is no table \"{name}\"; {hint}");
    Err(Failure::new(Exit::NotThere, operation, context).named(error.kind().name()))
}

/// Looks for a table before it is made: most exist, and looking needs neither the server nor the right to
/// write.
fn table_if_any(session: &mut Session, operation: &str, name: &str) -> Result<Option<Table>, Failure> {
    if name.contains('/') {
        let context = format!("a table's name cannot contain /, which ends it in links: \"{name}\"");
        return Err(Failure::usage(operation, context));
    }
    match session.table(name) {
        Err(error) if error.kind() == ErrorKind::NoSuchTable => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// What an operation cost: its result and what the session's counters grew by.
pub(crate) fn measured<T>(
    session: &mut Session,
    operation: impl FnOnce(&mut Session) -> Result<T, Failure>,
) -> Result<(T, Cost), Failure> {
    let before = session.cost();
    let result = operation(session)?;
    Ok((result, session.cost().since(before)))
}

/// A cost as JSON.
pub(crate) fn cost_json(cost: Cost) -> Value {
    json!({
        "reads": cost.reads,
        "read_bytes": cost.read_bytes,
        "messages": cost.messages,
        "retries": cost.retries,
        "fallbacks": cost.fallbacks,
    })
}

/// A count of something.
pub(crate) fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The most things that a message names.
const NAMED_MAX: usize = 10;

/// The first of many things, and how many more there are.
pub(crate) fn some_of(all: &[String]) -> String {
    let named = all[..all.len().min(NAMED_MAX)].join(", ");
    match all.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}

/// A cost in words.
pub(crate) fn cost_words(cost: Cost) -> String {
    let mut words = plural(cost.reads, "remote read");
    if cost.reads > 0 {
        words += &format!(" of {} bytes", cost.read_bytes);
    }
    words + ", " + &plural(cost.messages, "message")
}
