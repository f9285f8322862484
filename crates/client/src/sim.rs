//! Sessions over a simulator's fabric. Only built with `--cfg kelix_sim`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kelix_fabric::{Endpoint, PeerId, SimFabric};
use kelix_image::{MemoryMap, Span};
use kelix_types::Result;
use kelix_types::limits::POINTER_TABLE_BYTES;
use kelix_wire::View;
use kelix_wire::control::Caller;

use crate::connect::{Address, Setup};
use crate::pointers::PointerCache;
use crate::shelf::Shelf;
use crate::transport::{ServerIdentity, Transport};
use crate::{Client, Item, Session, SessionOptions};

/// Tells a shard's segments as they are now.
pub type MapSource = Box<dyn FnMut(u16) -> Result<Arc<MemoryMap>>>;

/// Where a session learns what it cannot know by itself.
pub struct Source {
    /// Where segments are learnt of.
    pub maps: MapSource,
    /// Connects the session once more, or one that takes its place and has no number.
    pub again: Box<dyn FnMut(Option<Caller>) -> Result<Connected>>,
    /// Of a session on a mirror: its primary.
    pub primary: Option<Primary>,
    /// Waits.
    pub nap: Box<dyn FnMut(Duration)>,
}

/// The server that a mirror follows.
pub struct Primary {
    /// What it is called.
    pub address: String,
    /// Connects a session to it, whose answers tell the record that has what they tell of, if that is wanted.
    pub connect: Box<dyn FnMut(Option<Caller>, bool) -> Result<Connected>>,
}

/// What a simulator has set up for a session.
pub struct Connected {
    /// The client's side of the connections.
    pub fabric: Box<dyn SimFabric>,
    /// The server's view.
    pub view: View,
    /// The term of its images.
    pub term: u64,
    /// The number of this life of its store.
    pub life: u64,
    /// Whether what stands in memory counts only when it is committed.
    pub commits: bool,
    /// Whether its term is in force by a lease.
    pub is_leased: bool,
    /// The connection to each shard.
    pub peers: Vec<PeerId>,
    /// Where the rest comes from.
    pub source: Source,
    /// What it shares with others.
    pub host: Host,
}

/// What sessions of a host share: cached pointers, and copies of models.
#[derive(Clone)]
pub struct Host {
    pointers: Span,
    models: Arc<Mutex<HashMap<String, Span>>>,
}

impl Default for Host {
    fn default() -> Host {
        Host { pointers: Span::private(POINTER_TABLE_BYTES), models: Arc::default() }
    }
}

impl Connected {
    pub(crate) fn open(self, options: &SessionOptions) -> (Setup, Transport<Endpoint>) {
        let server = self.identity(false);
        let Connected { fabric, peers, source, host, .. } = self;
        let (pointers, shelf) = (PointerCache::new(host.pointers), Shelf::Simulated(host.models));
        let mut transport = Transport::new(Endpoint::Sim(fabric), server, &peers, pointers, shelf);
        if let Some(primary) = &source.primary {
            transport.begin_mirror(primary.address.clone(), options);
        }
        (Setup::Sim(source), transport)
    }

    /// The way to the server that a mirror follows, and what that says of itself.
    pub(crate) fn into_primary(self, tells_records: bool) -> (Endpoint, ServerIdentity) {
        let server = self.identity(tells_records);
        (Endpoint::Sim(self.fabric), server)
    }

    fn identity(&self, tells_records: bool) -> ServerIdentity {
        ServerIdentity {
            term: self.term,
            view: self.view.clone(),
            life: self.life,
            may_write: true,
            wants_hints: false,
            commits: self.commits,
            is_mirror: self.source.primary.is_some(),
            tells_records,
            is_replicated: false,
            is_leased: self.is_leased,
            finds: true,
            puts_many: true,
            has_laps: true,
        }
    }
}

/// A session over a simulated fabric, with a number if it is to go on over other connections.
pub fn session(connected: Connected, options: SessionOptions, caller: Option<u64>) -> Result<Session> {
    let address = Arc::new(Address::Directory("a simulated server".into()));
    let client = Client { address, credentials: Arc::default(), patience: Default::default() };
    Session::over(&client, connected.open(&options), options, caller)
}

/// Tells the shard that has an item that the target of a link of its stands where the item stands that was
/// got last, as a client might that is broken or means ill.
pub fn claim_falsely(session: &mut Session, item: &Item, name: &str) -> Result<()> {
    let origin = item.raw_links(name).next().and_then(|link| item.origin(&link));
    session.engine.repair(origin, None, session.landing.pointer)
}
