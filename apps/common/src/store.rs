//! The store that an application works on: one that runs, or one of its own.

use std::path::PathBuf;

use kelix::{Address, Client, Session};
use kelix_server::{Server, ServerConfig};

use crate::Failure;

/// Where the application's items are.
#[derive(clap::Args, Clone, Debug)]
pub struct StoreArgs {
    /// A running store: its run directory, or host:port [default: a store of the application's own, which
    /// ends with it]
    #[arg(long, value_name = "ADDRESS", global = true)]
    store: Option<Address>,
}

impl StoreArgs {
    /// Whether a running store was named.
    pub fn is_given(&self) -> bool {
        self.store.is_some()
    }
}

/// A store, and who may ask it.
pub struct Store {
    /// For sessions.
    pub client: Client,
    own: Option<Own>,
}

/// A server in this process.
struct Own {
    server: Option<Server>,
    directory: PathBuf,
}

impl Store {
    /// Connects to the store that was asked for, or starts one with so much memory in a run directory of its
    /// own.
    pub fn open(args: &StoreArgs, application: &str, memory_bytes: u64) -> Result<Store, Failure> {
        match &args.store {
            None => Store::start(application, memory_bytes),
            Some(address) => {
                let client = Client::connect(address)?;
                Ok(Store { client, own: None })
            }
        }
    }

    /// Starts one in this process.
    pub fn start(application: &str, memory_bytes: u64) -> Result<Store, Failure> {
        let directory = std::env::temp_dir().join(format!("kelix-{application}-{}", std::process::id()));
        let config = ServerConfig { directory: directory.clone(), memory_bytes, ..ServerConfig::default() };
        let server = Some(Server::start(&config)?);
        let own = Own { server, directory };
        let client = Client::connect(&own.directory)?;
        Ok(Store { client, own: Some(own) })
    }

    /// A session for the calling thread.
    pub fn session(&self) -> Result<Session, Failure> {
        Ok(self.client.session()?)
    }

    /// Where it is, in words for people.
    pub fn place(&self) -> String {
        match &self.own {
            Some(own) => format!("a store of its own in {}", own.directory.display()),
            None => "a store that was running".into(),
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
