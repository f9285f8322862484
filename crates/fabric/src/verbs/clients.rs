//! A client process's lanes: a few to each server and namespace, shared by its sessions.

use std::collections::HashMap;
use std::io::{Error, Result};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::Duration;

use super::Ticket;
use super::cm::{Events, Id};
use super::device::{Device, Domain};
use super::endpoint::Joining;
use super::lane::Lane;
use super::queue::Channel;
use super::stream::VerbsStream;

/// Requests of one lane under way: READs of several sessions, mostly.
const SENDS: usize = 512;

/// What a server offers to a session that would rather use verbs.
pub struct Offer {
    /// Tells this server and namespace from every other.
    pub server: u64,
    /// With which a queue pair can be connected.
    pub ticket: Ticket,
    /// Where; several where the server has several devices.
    pub addresses: Vec<SocketAddr>,
}

impl Offer {
    /// Of what a server says, its addresses with a space between two. One that is any of its own is the one
    /// that this client came to. `None`: one is no address.
    pub fn parse(server: u64, ticket: Ticket, addresses: &str, came_to: Option<IpAddr>) -> Option<Offer> {
        let address = |text: &str| {
            let mut address: SocketAddr = text.parse().ok()?;
            if address.ip().is_unspecified() {
                address.set_ip(came_to?);
            }
            Some(address)
        };
        let addresses = addresses.split(' ').map(address).collect::<Option<_>>()?;
        Some(Offer { server, ticket, addresses })
    }

    /// Where to connect for the `turn`-th time.
    fn address(&self, turn: usize) -> Result<SocketAddr> {
        let address = self.addresses.get(turn % self.addresses.len().max(1));
        address.copied().ok_or_else(|| Error::other("the server has no device for RDMA"))
    }

    /// Connects the stream that the ticket is for. `from`: the address of this host whose device is to be
    /// used, if not any that leads there.
    pub fn connect_stream(&self, from: Option<IpAddr>, patience: Duration) -> Result<VerbsStream> {
        VerbsStream::connect(&self.ticket, (from, self.address(0)?), patience)
    }
}

#[derive(Default)]
struct Process {
    /// By server.
    lanes: HashMap<u64, Vec<Weak<Lane>>>,
    /// By device and server: what is registered for one server cannot be reached by another.
    domains: HashMap<(String, u64), Weak<Domain>>,
}

static PROCESS: LazyLock<Mutex<Process>> = LazyLock::new(Mutex::default);

/// A place for a session on one of at most `most` lanes to a server: on a new one as long as there are fewer,
/// else on that with the fewest sessions. `from`: the address of this host whose device is to be used, if not
/// any that leads there.
pub fn join(
    offer: &Offer,
    (most, from): (usize, Option<IpAddr>),
    (shards, mailbox_bytes): (usize, u64),
    patience: Duration,
) -> Result<Joining> {
    // A child has what its parent was connected by, and none of it may be used there.
    super::ffi::libraries().map_err(Error::other)?;
    // Held while a lane is connected, so that there are never more.
    let mut process = PROCESS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    process.lanes.retain(|_, lanes| {
        lanes.retain(|lane| lane.upgrade().is_some_and(|lane| !lane.is_broken()));
        !lanes.is_empty()
    });
    process.domains.retain(|_, domain| domain.strong_count() > 0);
    let lanes = process.lanes.get(&offer.server);
    let lanes: Vec<Arc<Lane>> = lanes.into_iter().flatten().filter_map(Weak::upgrade).collect();
    let lane = match lanes.iter().min_by_key(|lane| lane.users()) {
        Some(lane) if lanes.len() >= most.max(1) => lane.clone(),
        _ => {
            // Processes with one lane each do not all take the first.
            let turn = lanes.len() + std::process::id() as usize;
            let address = offer.address(turn)?;
            let lane = Arc::new(connect(&mut process, offer, (from, address), patience)?);
            process.lanes.entry(offer.server).or_default().push(Arc::downgrade(&lane));
            lane
        }
    };
    Joining::new(&lane, shards, mailbox_bytes)
}

fn connect(
    process: &mut Process,
    Offer { server, ticket, .. }: &Offer,
    (from, to): (Option<IpAddr>, SocketAddr),
    patience: Duration,
) -> Result<Lane> {
    let id = Id::resolve(&Events::new()?, from, to, patience)?;
    let name = id.device()?;
    let name = (name, *server);
    let domain = match process.domains.get(&name).and_then(Weak::upgrade) {
        Some(domain) => domain,
        None => {
            let domain = Domain::new(&Device::open(&name.0)?)?;
            process.domains.insert(name, Arc::downgrade(&domain));
            domain
        }
    };
    let device = domain.device.clone();
    let lane = Lane::new(&domain, &Channel::new(&device)?, *ticket, SENDS, 0)?;
    id.connect(lane.pair(), &device, ticket, patience)?;
    lane.connected(id)?;
    Ok(lane)
}
