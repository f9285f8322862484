//! The conformance suite on the verbs fabric: the server's endpoint of shared memory on one side, whose links lead to queue
//! pairs, and clients of the same process on the other. Needs a device for RDMA at `KELIX_RDMA_ADDRESS` (192.168.77.1, if
//! not told otherwise); `make test-verbs` gives it one of software.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use kelix_fabric::conformance::{Network, Side, Testbed, lay_out};
use kelix_fabric::shm::{
    AUTHORITY_BYTES, Memfd, MemfdSegments, ShmEndpoint, ShmPeer, SleepWord, Waker, WakerHandle, Way,
};
use kelix_fabric::tcp::Greeting;
use kelix_fabric::verbs::{self, Host, HostShard, Offer, VerbsEndpoint};
use kelix_fabric::{Endpoint, PeerId};
use kelix_image::{Header, Span, header_word};
use kelix_types::limits::{AUTHORITY_LEASE_NS, MESSAGE_RING_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Words before those that the cases use; in the first a client says that it sleeps.
const RING: usize = 64;
const MAILBOX_BYTES: u64 = (RING * 8 + MESSAGE_RING_BYTES) as u64;
/// Longest time between two turns of the server's thread.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
const PATIENCE: Duration = Duration::from_secs(20);
/// Testbeds of this process, each with a port of its own.
static BEDS: AtomicU64 = AtomicU64::new(0);

struct Verbs;

/// The server's side beside its shard, and the thread that serves it.
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _sockets: Vec<TcpStream>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn address() -> SocketAddr {
    let ip = std::env::var("KELIX_RDMA_ADDRESS").unwrap_or("192.168.77.1".into());
    let port = 20_000 + std::process::id() as u64 % 1000 * 40 + BEDS.fetch_add(1, Ordering::Relaxed) % 40;
    SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port as u16)
}

/// A client on a lane, and the server's link to it.
fn connect(
    host: &Mutex<Host>,
    number: u64,
    server: u64,
    listener: &TcpListener,
    inbox: &Span,
) -> (Box<verbs::VerbsLink>, VerbsEndpoint, TcpStream) {
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    let offer = {
        let mut host = host.lock().unwrap();
        let ticket = host.ticket(0).unwrap();
        Offer { server, ticket, addresses: host.addresses().to_vec() }
    };
    let joining = verbs::join(&offer, (4, None), (1, MAILBOX_BYTES), PATIENCE).expect("a device for RDMA");
    let (mut links, card) = {
        let mut host = host.lock().unwrap();
        let seat = (&joining.ticket(), joining.number());
        host.join(number, seat, &joining.mailboxes(), (0..1, &[inbox.clone()], 0)).unwrap()
    };
    let greeting = Greeting::new(socket, None, MAILBOX_BYTES as usize / 8, PATIENCE).unwrap();
    let mut endpoint = greeting.verbs_endpoint(joining, card).unwrap();
    let segments = loop {
        let (_, segments) = host.lock().unwrap().segments(number, 0).unwrap();
        // The header page, and two segments once they are registered.
        if segments.len() == 3 {
            break segments;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    endpoint.set_segments(PeerId(0), &segments);
    (links.remove(0), endpoint, accepted)
}

impl Testbed for Verbs {
    type Endpoint = Endpoint;

    fn authority_lease(&self) -> Duration {
        Duration::from_nanos(AUTHORITY_LEASE_NS)
    }

    fn network(&self, clients: usize) -> Network<Endpoint> {
        let (_, header_span) = Memfd::create("kelix-header", Header::BYTES, true).unwrap();
        let mut segments = MemfdSegments::default();
        let (map, header) = lay_out(&header_span, &mut segments);
        let authority = Span::private(AUTHORITY_BYTES);

        let (waker, server_end) = WakerHandle::pair().unwrap();
        let mut endpoint = ShmEndpoint::new(Waker::create().unwrap());
        endpoint.waker().add(server_end).unwrap();
        endpoint.add_sleep_word(SleepWord { span: header_span.clone(), word: header_word::SLEEPING });

        let shard = HostShard { namespace: 0, header: header_span, segments, waker: Arc::new(waker) };
        let address = address();
        let host = Host::listen(&[address], vec![shard], authority.clone(), 0).expect("a device for RDMA");
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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut peers, mut sides, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..clients {
            let inbox = Span::private(MAILBOX_BYTES);
            let (link, client, socket) =
                connect(&host, number as u64, u64::from(address.port()), &listener, &inbox);
            sockets.push(socket);
            peers.push(endpoint.add(ShmPeer { memory: None, inbox, way: Way::Verbs(link) }));
            let endpoint = Endpoint::Verbs(Box::new(client));
            sides.push(Side { endpoint, peers: vec![PeerId(0)], holds: Box::new(()) });
        }
        Network {
            server: Side {
                endpoint: Endpoint::Shm(endpoint),
                peers,
                holds: Box::new(Running { stop, thread: Some(thread), _sockets: sockets }),
            },
            clients: sides,
            map,
            header,
            authority,
            mailbox: RING..(MAILBOX_BYTES / 8) as usize,
        }
    }
}

kelix_fabric::conformance_tests! {
    bed: Verbs,
    ordered_placement: no,
    ordered_loads: no,
    reads_at_once: no,
    notices_clients: no,
}
