//! The conformance suite on the TCP fabric: the server's endpoint of shared memory on one side, with an agent
//! thread between it and clients on sockets of the loopback interface.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kelix_fabric::conformance::{Network, Side, Testbed, lay_out};
use kelix_fabric::shm::{
    AUTHORITY_BYTES, AUTHORITY_TERM, LocalEndpoint, MemfdSegments, Peer, SleepWord, Waker, WakerHandle, Way,
};
use kelix_fabric::tcp::{Agent, AgentBell, AgentLimits, AgentLink, AgentShard, Greeting, TcpEndpoint};
use kelix_fabric::{Endpoint, PeerId};
use kelix_image::{Header, IndexReader, Span, header_word};
use kelix_types::limits::MESSAGE_RING_BYTES;

const MAILBOX_BYTES: u64 = MESSAGE_RING_BYTES as u64;
const LIMITS: AgentLimits = AgentLimits {
    connections: 8,
    greeting: Duration::from_secs(60),
    write_words: MAILBOX_BYTES as usize / 8,
    index: IndexReader::NONE,
};

struct Tcp;

/// Ends the agent's thread.
struct Running {
    stop: Arc<AtomicBool>,
    bell: Arc<AgentBell>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.wake();
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn connect(agent: &mut Agent, listener: &TcpListener, mailbox: &Span) -> (AgentLink, TcpEndpoint) {
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let connection = agent.add(listener.accept().unwrap().0).unwrap();
    agent.establish(connection);
    let link = agent.open(connection, 0, mailbox.clone(), MAILBOX_BYTES as usize / 4).unwrap();
    let greeting = Greeting::new(socket, None, MAILBOX_BYTES as usize / 8, Duration::ZERO).unwrap();
    (link, greeting.endpoint(0, 1, MAILBOX_BYTES).expect("memory"))
}

impl Testbed for Tcp {
    type Endpoint = Endpoint;

    fn network(&self, clients: usize) -> Network<Endpoint> {
        let header_span = Span::private(Header::BYTES);
        let mut segments = MemfdSegments::default();
        let (map, header) = lay_out(&header_span, &mut segments);
        let authority = Span::private(AUTHORITY_BYTES);

        let (waker, server_end) = WakerHandle::pair().unwrap();
        let mut endpoint = LocalEndpoint::new(Waker::create().unwrap());
        endpoint.waker().add(server_end).unwrap();
        endpoint.add_sleep_word(SleepWord { span: header_span.clone(), word: header_word::SLEEPING });

        let shard = AgentShard { header: header_span, segments, waker: Arc::new(waker), step_in: None };
        let mut agent = Agent::new(vec![shard], authority.word(AUTHORITY_TERM), 0, LIMITS).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut peers, mut sides) = (Vec::new(), Vec::new());
        for _ in 0..clients {
            let inbox = Span::private(MAILBOX_BYTES);
            let (link, client) = connect(&mut agent, &listener, &inbox);
            peers.push(endpoint.add(Peer { memory: None, inbox, way: Way::Agent(link) }));
            let endpoint = Endpoint::Tcp(client);
            sides.push(Side { endpoint, peers: vec![PeerId(0)], holds: Box::new(()) });
        }
        let (stop, bell) = (Arc::new(AtomicBool::new(false)), agent.bell());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut events = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                if !agent.turn(&mut events) {
                    agent.wait();
                }
                events.clear();
            }
        });
        Network {
            server: Side {
                endpoint: Endpoint::Local(endpoint),
                peers,
                holds: Box::new(Running { stop, bell, thread: Some(thread) }),
            },
            clients: sides,
            map,
            header,
            authority,
            mailbox: 0..(MAILBOX_BYTES / 8) as usize,
        }
    }
}

kelix_fabric::conformance_tests! {
    bed: Tcp,
    ordered_placement: yes,
    ordered_loads: yes,
    reads_at_once: no,
    notices_clients: no,
}
