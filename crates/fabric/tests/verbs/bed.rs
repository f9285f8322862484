//! A testbed on verbs: the server's endpoint of shared memory on one side, whose links lead to queue pairs,
//! and clients of the same process on the other. Needs a device for RDMA at `KELIX_RDMA_ADDRESS`
//! (192.168.77.1, if not told otherwise); `make test-verbs` gives it one of software.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use kelix_fabric::conformance::{Network, Side, Testbed, lay_out};
use kelix_fabric::shm::{
    AUTHORITY_BYTES, LocalEndpoint, Memfd, MemfdSegments, Peer, SleepWord, Waker, WakerHandle, Way,
};
use kelix_fabric::tcp::Greeting;
use kelix_fabric::verbs::{self, Host, HostShard, Offer, VerbsEndpoint};
use kelix_fabric::{Endpoint, PeerId};
use kelix_image::{Header, MemoryMap, Span, header_word};
use kelix_types::limits::{AUTHORITY_LEASE_NS, MESSAGE_RING_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Words before those that the cases use; in the first a client says that it sleeps.
const RING: usize = 64;
const MAILBOX_BYTES: u64 = (RING * 8 + MESSAGE_RING_BYTES) as u64;
/// Longest time between two turns of the server's thread.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// How long connecting may take.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Testbeds of this process, each with a port of its own.
static BEDS: AtomicU64 = AtomicU64::new(0);

/// The conformance suite's testbed.
pub struct Verbs;

/// The server's side beside its shard, and the thread that serves it.
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    sockets: Vec<TcpStream>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// A server: one shard without an index, whose memory is the suite's.
pub struct Bed {
    pub host: Arc<Mutex<Host>>,
    pub segments: MemfdSegments,
    pub map: MemoryMap,
    pub header: Header,
    pub authority: Span,
    /// The shard's side of the connections.
    pub shard: LocalEndpoint,
    listener: TcpListener,
    address: SocketAddr,
    clients: u64,
    running: Running,
}

/// A client's endpoint, and what the server calls it.
pub struct Client {
    pub endpoint: VerbsEndpoint,
    /// At the host.
    pub number: u64,
    /// At the shard.
    pub peer: PeerId,
}

fn address() -> SocketAddr {
    let ip = std::env::var("KELIX_RDMA_ADDRESS").unwrap_or("192.168.77.1".into());
    let port = 20_000 + std::process::id() as u64 % 1000 * 40 + BEDS.fetch_add(1, Ordering::Relaxed) % 40;
    SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port as u16)
}

impl Bed {
    pub fn new() -> Bed {
        let (_, header_span) = Memfd::create("kelix-header", Header::BYTES, true).unwrap();
        let mut segments = MemfdSegments::default();
        let (map, header) = lay_out(&header_span, &mut segments);
        let authority = Span::private(AUTHORITY_BYTES);

        let (waker, server_end) = WakerHandle::pair().unwrap();
        let mut shard = LocalEndpoint::new(Waker::create().unwrap());
        shard.waker().add(server_end).unwrap();
        shard.add_sleep_word(SleepWord { span: header_span.clone(), word: header_word::SLEEPING });

        let (segments_too, waker) = (segments.clone(), Arc::new(waker));
        let readable = HostShard { namespace: 0, header: header_span, segments: segments_too, waker };
        let address = address();
        let host = Host::listen(&[address], vec![readable], authority.clone(), 0).expect("a device for RDMA");
        let host = Arc::new(Mutex::new(host));
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, served) = (stop.clone(), host.clone());
        let ready = host.lock().unwrap().fd().try_clone_to_owned().unwrap();
        let thread = std::thread::spawn(move || {
            let mut news = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                served.lock().unwrap().turn(&mut news);
                news.clear();
                let _ = poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&TURN));
            }
        });
        let running = Running { stop, thread: Some(thread), sockets: Vec::new() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Bed { host, segments, map, header, authority, shard, listener, address, clients: 0, running }
    }

    /// One more client, on one of so many lanes of this process.
    pub fn connect(&mut self, lanes: usize) -> Client {
        let number = self.clients;
        self.clients += 1;
        let socket = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        self.running.sockets.push(self.listener.accept().unwrap().0);
        let offer = {
            let mut host = self.host.lock().unwrap();
            let (ticket, addresses) = (host.ticket(0).unwrap(), host.addresses().to_vec());
            Offer { server: u64::from(self.address.port()), ticket, addresses }
        };
        let joining =
            verbs::join(&offer, (lanes, None), (1, MAILBOX_BYTES), PATIENCE).expect("a device for RDMA");
        let inbox = Span::private(MAILBOX_BYTES);
        let (mut links, card) = {
            let mut host = self.host.lock().unwrap();
            let seat = (&joining.ticket(), joining.number());
            host.join(number, seat, &joining.mailboxes(), (0..1, &[inbox.clone()], 0)).unwrap()
        };
        let greeting = Greeting::new(socket, None, MAILBOX_BYTES as usize / 8, PATIENCE).unwrap();
        let endpoint = greeting.verbs_endpoint(joining, card).unwrap();
        let peer = self.shard.add(Peer { memory: None, inbox, way: Way::Verbs(links.remove(0)) });
        let mut client = Client { endpoint, number, peer };
        // The header page, and all segments once they are registered.
        while self.tell(&mut client) < 1 + self.segments.list().len() {
            std::thread::sleep(Duration::from_millis(1));
        }
        client
    }

    /// The server's end of the connection beside the queue pair of the client that came last.
    pub fn beside(&self) -> TcpStream {
        self.running.sockets.last().expect("a client").try_clone().unwrap()
    }

    /// What the client of a number connects a stream with.
    pub fn offer_stream(&self, number: u64) -> Offer {
        let mut host = self.host.lock().unwrap();
        let (ticket, addresses) = (host.stream_ticket(number).unwrap(), host.addresses().to_vec());
        Offer { server: 0, ticket, addresses }
    }

    /// Tells a client which segments there are, and lets the host know. Returns how many.
    pub fn tell(&mut self, client: &mut Client) -> usize {
        let (version, _, segments) = self.host.lock().unwrap().segments(client.number, 0).unwrap();
        client.endpoint.set_segments(PeerId(0), &segments);
        self.host.lock().unwrap().let_go(client.number, 0, version);
        segments.len()
    }
}

impl Testbed for Verbs {
    type Endpoint = Endpoint;

    fn authority_lease(&self) -> Duration {
        Duration::from_nanos(AUTHORITY_LEASE_NS)
    }

    fn slowness(&self) -> u64 {
        4
    }

    fn network(&self, clients: usize) -> Network<Endpoint> {
        let mut bed = Bed::new();
        let clients: Vec<Client> = (0..clients).map(|_| bed.connect(4)).collect();
        let peers = clients.iter().map(|client| client.peer).collect();
        let side = |Client { endpoint, .. }| Side {
            endpoint: Endpoint::Verbs(Box::new(endpoint)),
            peers: vec![PeerId(0)],
            holds: Box::new(()),
        };
        let Bed { map, header, authority, shard, running, .. } = bed;
        Network {
            server: Side { endpoint: Endpoint::Local(shard), peers, holds: Box::new(running) },
            clients: clients.into_iter().map(side).collect(),
            map,
            header,
            authority,
            mailbox: RING..(MAILBOX_BYTES / 8) as usize,
        }
    }
}
