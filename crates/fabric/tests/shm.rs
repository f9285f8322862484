//! The conformance suite on the shared-memory fabric, put together as server and client do it: sealed memfds,
//! mapped anew and read-only by the client, an authority page in a file, mailboxes mapped by both, a wake-up
//! pair and a socket whose hang-up says that the other side is gone.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use kelix_fabric::conformance::{Network, Side, Testbed, lay_out};
use kelix_fabric::shm::{
    AUTHORITY_BYTES, AUTHORITY_TERM, LocalEndpoint, MappedImage, Memfd, MemfdSegments, Peer, SleepWord,
    Waker, WakerHandle, Way, map_file,
};
use kelix_fabric::{Direct, Mailbox, Waiter};
use kelix_image::{Header, MemoryMap, Span, header_word};
use kelix_types::limits::MESSAGE_RING_BYTES;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

/// Words before the message ring in a mailbox; a client's sleep word is among them, as in `kelix_wire::ring`.
const RING: usize = 64;
const SLEEPS: usize = 8;
const MAILBOX_BYTES: u64 = (RING * 8 + MESSAGE_RING_BYTES) as u64;

struct Shm;

/// Maps memory a second time, as the process does that is sent its descriptor.
fn received(memfd: &Memfd, writable: bool) -> Span {
    let fd = memfd.fd().try_clone_to_owned().unwrap();
    Memfd::receive(fd, memfd.bytes()).unwrap().map(writable).unwrap()
}

/// The server's memory, which every client maps for itself.
struct Memory {
    header: Memfd,
    segments: MemfdSegments,
    authority: File,
}

impl Memory {
    fn map(&self) -> (Span, MemoryMap) {
        let header = received(&self.header, false);
        let mut map = MemoryMap::default();
        map.add(0, header.clone());
        for segment in self.segments.list() {
            map.add(segment.first, received(&segment.memory, false));
        }
        (header, map)
    }
}

fn connect(
    memory: &Memory,
    server: &mut LocalEndpoint,
    link: &UnixStream,
) -> (kelix_fabric::PeerId, Side<LocalEndpoint>) {
    let (requests, server_inbox) = Memfd::create("kelix-requests", MAILBOX_BYTES, false).unwrap();
    let (replies, server_outbox) = Memfd::create("kelix-replies", MAILBOX_BYTES, false).unwrap();
    let (server_end, client_end) = WakerHandle::pair().unwrap();

    let wake_key = server.waker().add(server_end).unwrap();
    let client_id = server.add(Peer {
        memory: None,
        inbox: server_inbox,
        way: Way::Shared {
            sleeps: SleepWord { span: server_outbox.clone(), word: SLEEPS },
            outbox: server_outbox,
            wake_key,
        },
    });

    let (header, map) = memory.map();
    let inbox = received(&replies, true);
    let mut waker = Waker::create().unwrap();
    waker.add_socket(link.as_fd()).unwrap();
    let wake_key = waker.add(client_end).unwrap();
    let mut endpoint = LocalEndpoint::new(waker);
    endpoint.add_sleep_word(SleepWord { span: inbox.clone(), word: SLEEPS });
    let authority = map_file(&memory.authority, AUTHORITY_BYTES, false).unwrap();
    let page = Header::open(header.clone()).unwrap();
    let direct = Direct::new(Arc::new(map), &page, authority.word(AUTHORITY_TERM));
    let server_id = endpoint.add(Peer {
        memory: Some(MappedImage { header: page, direct }),
        inbox,
        way: Way::Shared {
            outbox: received(&requests, true),
            sleeps: SleepWord { span: header, word: header_word::SLEEPING },
            wake_key,
        },
    });
    (client_id, Side { endpoint, peers: vec![server_id], holds: Box::new(()) })
}

impl Testbed for Shm {
    type Endpoint = LocalEndpoint;

    fn network(&self, clients: usize) -> Network<LocalEndpoint> {
        let (header_memfd, header_span) = Memfd::create("kelix-header", Header::BYTES, true).unwrap();
        let mut segments = MemfdSegments::default();
        let (map, header) = lay_out(&header_span, &mut segments);
        let authority = tempfile();
        authority.set_len(AUTHORITY_BYTES).unwrap();
        let authority_span = map_file(&authority, AUTHORITY_BYTES, true).unwrap();
        let memory = Memory { header: header_memfd, segments, authority };

        let mut endpoint = LocalEndpoint::new(Waker::create().unwrap());
        endpoint.add_sleep_word(SleepWord { span: header_span, word: header_word::SLEEPING });
        let (mut peers, mut links, mut sides) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..clients {
            let (server_link, client_link) = UnixStream::pair().unwrap();
            let (peer, side) = connect(&memory, &mut endpoint, &client_link);
            sides.push(Side { holds: Box::new(client_link), ..side });
            peers.push(peer);
            links.push(server_link);
        }
        Network {
            server: Side { endpoint, peers, holds: Box::new(links) },
            clients: sides,
            map,
            header,
            authority: authority_span,
            mailbox: RING..(MAILBOX_BYTES / 8) as usize,
        }
    }
}

/// A file that nobody else can find: its name is gone when this returns.
fn tempfile() -> File {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("kelix-authority-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}

kelix_fabric::conformance_tests! {
    bed: Shm,
    ordered_placement: yes,
    ordered_loads: yes,
    reads_at_once: yes,
    notices_clients: no,
}

/// Who looks on for an answer keeps the one who is to give it from the core that both are on.
#[test]
fn both_ends_know_that_they_share_a_core() {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).unwrap();
    let mut network = Shm.network(2);
    let [first, second] = &mut network.clients[..] else { panic!("two clients") };
    let server = &mut network.server;
    first.endpoint.wake(first.peers[0]);
    assert!(!first.endpoint.shares_core(), "nobody has said where the server is");
    server.endpoint.wake(server.peers[0]);
    assert!(server.endpoint.shares_core() && first.endpoint.shares_core());
    server.endpoint.wake(server.peers[1]);
    assert!(!server.endpoint.shares_core(), "the second client has not said where it is");
    // Who wakes the other one says where it is before it may lose the core.
    second.endpoint.announce_sleep();
    server.endpoint.announce_sleep();
    network.header.words().store(header_word::CORE, 0);
    assert!(!first.endpoint.shares_core());
    server.endpoint.wake(server.peers[1]);
    assert!(first.endpoint.shares_core());
    second.endpoint.wake(second.peers[0]);
    assert!(server.endpoint.shares_core());
    network.header.words().store(header_word::CORE, sched_getcpu() as u64 + 2);
    assert!(!first.endpoint.shares_core(), "the server is elsewhere");
}
