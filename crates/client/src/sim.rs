//! Sessions over a simulator's fabric. Only built with `--cfg kelix_sim`.

use std::sync::Arc;

use kelix_fabric::{Endpoint, Fabric, PeerId};
use kelix_image::{MemoryMap, Span};
use kelix_types::Result;
use kelix_types::limits::POINTER_TABLE_BYTES;
use kelix_wire::View;

use crate::connect::{Address, Setup};
use crate::core::Core;
use crate::pointers::PointerCache;
use crate::{Session, SessionOptions};

/// Tells a shard's segments as they are now.
pub type MapSource = Box<dyn FnMut(u16) -> Result<Arc<MemoryMap>>>;

/// What a simulator has set up for a session.
pub struct Connected {
    /// The client's side of the connections.
    pub fabric: Box<dyn Fabric>,
    /// The server's view.
    pub view: View,
    /// The term of its images.
    pub term: u64,
    /// The connection to each shard.
    pub peers: Vec<PeerId>,
    /// Where segments are learnt of.
    pub maps: MapSource,
    /// The memory of the pointer cache, if it is shared with other sessions.
    pub pointers: Option<Span>,
}

impl Session {
    /// A session over a simulated fabric.
    pub fn simulated(connected: Connected, options: SessionOptions) -> Result<Session> {
        let Connected { fabric, view, term, peers, maps, pointers } = connected;
        let pointers = pointers.unwrap_or_else(|| Span::private(POINTER_TABLE_BYTES));
        let core = Core::new(Endpoint::Sim(fabric), view, term, &peers, PointerCache::new(pointers));
        // Nobody connects to it again.
        let address = Arc::new(Address::Directory("a simulated server".into()));
        Session::over((address, Arc::default()), Setup::Sim(maps), core, options)
    }
}
