//! The servers, with the records in them.

use kelix::FabricChoice;

use super::caller::{Caller, Ours};
use crate::peers::blocking::Blocking;
use crate::peers::protocol::{Memcached, Protocol, Redis, Valkey};
use crate::served::{Home, Served};
use crate::store::memory_for;
use crate::workload::Records;
use kelix_report::daemon::{Daemon, Transport, is_installed};
use kelix_report::progress;

/// Bytes of a value.
const VALUE_BYTES: usize = 32;
/// Records that are put at once while they are loaded.
const LOAD: u64 = 64;

/// Our server, where the system places its threads.
pub(super) struct Kelix {
    pub served: Served,
    _home: Home,
}

impl Kelix {
    /// Starts one with so much memory, over shared memory and TCP.
    pub fn start(memory_bytes: u64, options: &[&str]) -> Result<Kelix, String> {
        let home = Home::new("tails", memory_bytes)?;
        let served = home.serve(&[&["--no-pin", "--listen", "127.0.0.1:0"], options].concat())?;
        Ok(Kelix { served, _home: home })
    }

    /// A session over a fabric.
    pub fn open(&self, fabric: FabricChoice, records: Records) -> Result<Ours, String> {
        Ours::open(&self.served.client()?, fabric, records)
    }
}

/// A client that was opened, or why it was not.
pub(super) type Opened = Result<Box<dyn Caller>, String>;

/// A peer of one thread, with the records in it.
struct Peer {
    name: &'static str,
    daemon: Daemon,
    open: fn(&Daemon, Records) -> Opened,
}

impl Peer {
    fn start<P: Protocol + 'static>(
        name: &'static str,
        transport: Transport,
        records: Records,
    ) -> Result<Peer, String> {
        let arguments = |address: &_, folder: &_| P::arguments(address, folder, records, 1);
        let daemon = Daemon::start_as(&name.replace(' ', "-"), P::PROGRAM, transport, arguments)?;
        let peer = Peer {
            name,
            daemon,
            open: |daemon, records| Ok(Box::new(Blocking::<P>::open(daemon, records)?)),
        };
        load(name, (peer.open)(&peer.daemon, records)?.as_mut(), records.count)?;
        Ok(peer)
    }
}

/// A client of a system.
pub(super) struct Side {
    /// The system and its transport.
    pub name: &'static str,
    /// The server's process.
    pub pid: u32,
    pub caller: Box<dyn Caller>,
}

/// Sides that rows are about: ours, and memcached's on transports that are alike.
pub(super) const OURS: [&str; 2] = ["kelix shm", "kelix tcp"];
pub(super) const BASELINES: [&str; 2] = ["memcached unix", "memcached tcp"];

/// Puts all records.
pub(crate) fn load(name: &str, caller: &mut dyn Caller, records: u64) -> Result<(), String> {
    progress::show(&format!("loading {name}"));
    let batch = |first: u64| (first..records.min(first + LOAD)).collect::<Vec<_>>();
    (0..records).step_by(LOAD as usize).try_for_each(|first| caller.put_batch(&batch(first)))
}

/// All servers.
pub(super) struct Systems {
    pub kelix: Kelix,
    peers: Vec<Peer>,
    pub records: Records,
}

impl Systems {
    /// Starts all that are there and loads so many records into each.
    pub fn start(count: u64) -> Result<Systems, String> {
        let records = Records::new(count, VALUE_BYTES);
        let kelix = Kelix::start(memory_for(count), &[])?;
        load("kelix", &mut kelix.open(FabricChoice::Shm, records)?, count)?;
        let [unix, tcp] = BASELINES;
        let mut peers = vec![
            Peer::start::<Memcached>(unix, Transport::Unix, records)?,
            Peer::start::<Memcached>(tcp, Transport::Tcp, records)?,
        ];
        if is_installed(Redis::PROGRAM) {
            peers.push(Peer::start::<Redis>("redis tcp", Transport::Tcp, records)?);
        } else {
            let program = Redis::PROGRAM;
            eprintln!(
                "redis is left out: {program} is not installed; on Debian: apt-get install redis-server"
            );
        }
        if Valkey::is_there() {
            peers.push(Peer::start::<Valkey>("valkey tcp", Transport::Tcp, records)?);
        }
        Ok(Systems { kelix, peers, records })
    }

    /// A new client of each: first ours, in the order of [`OURS`], then memcached's, in that of
    /// [`BASELINES`], then the others.
    pub fn sides(&self) -> Result<Vec<Side>, String> {
        let mut sides = Vec::new();
        for (name, fabric) in OURS.into_iter().zip([FabricChoice::Shm, FabricChoice::Tcp]) {
            let caller = Box::new(self.kelix.open(fabric, self.records)?);
            sides.push(Side { name, pid: self.kelix.served.pid(), caller });
        }
        for Peer { name, daemon, open } in &self.peers {
            sides.push(Side { name, pid: daemon.pid(), caller: open(daemon, self.records)? });
        }
        Ok(sides)
    }

    /// A connection to memcached over TCP.
    pub fn memcached(&self) -> Result<Blocking<Memcached>, String> {
        Blocking::open(&self.peers[1].daemon, self.records)
    }
}
