//! The conformance suite's testbed: server and clients in one process, each with the device opened for itself.

use std::os::unix::net::UnixStream;

use kelix_fabric::conformance::{Network, SEGMENTS, Side, Testbed};
use kelix_fabric::shm::{AUTHORITY_BYTES, Memfd, MemfdSegments, map_file};
use kelix_image::{Header, MemoryMap, SegmentSource};
use kelix_types::limits::{EPOCH_NS_MIN, MESSAGE_RING_BYTES};

use crate::endpoint::VerbsEndpoint;

/// Words before the message ring in a mailbox.
const RING: usize = 64;
const MAILBOX_BYTES: u64 = (RING * 8 + MESSAGE_RING_BYTES) as u64;

/// Verbs. The memory is what the server makes for shared memory: sealed memfds and a page of a file,
/// registered as they are. `ordered`: see [`VerbsEndpoint::new`].
pub struct Verbs {
    /// Whether WRITEs are posted in two pieces.
    pub ordered: bool,
}

impl Testbed for Verbs {
    type Endpoint = VerbsEndpoint;

    fn network(&self, clients: usize) -> Network<VerbsEndpoint> {
        let (_, header_span) = Memfd::create("kelix-header", Header::BYTES, true).expect("memory");
        let header = Header::create(header_span.clone(), 1, 2, EPOCH_NS_MIN, 3);
        let mut segments = MemfdSegments::default();
        let mut map = MemoryMap::default();
        map.add(0, header_span.clone());
        let mut server = VerbsEndpoint::new(self.ordered).expect("a verbs device");
        server.share(0, header_span).expect("memory to register");
        for (first, bytes) in SEGMENTS {
            let span = segments.create(first, bytes).expect("memory");
            map.add(first, span.clone());
            server.share(first, span).expect("memory to register");
        }
        let path = std::env::temp_dir().join(format!("kelix-authority-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.expect("a file");
        file.set_len(AUTHORITY_BYTES).expect("a page");
        let authority = map_file(&file, AUTHORITY_BYTES, true).expect("a page");
        server.share_authority(authority.clone()).expect("memory to register");

        let (mut peers, mut sides) = (Vec::new(), Vec::new());
        for _ in 0..clients {
            let mut client = VerbsEndpoint::new(self.ordered).expect("a verbs device");
            let (server_link, client_link) = UnixStream::pair().expect("sockets");
            let (server_offer, server_card) = server.offer(MAILBOX_BYTES).expect("a queue pair");
            let (client_offer, client_card) = client.offer(MAILBOX_BYTES).expect("a queue pair");
            peers.push(server.accept(server_offer, client_card, server_link).expect("a connection"));
            let peer = client.accept(client_offer, server_card, client_link).expect("a connection");
            client.open(peer);
            sides.push(Side { endpoint: client, peers: vec![peer], holds: Box::new(()) });
        }
        Network {
            server: Side { endpoint: server, peers, holds: Box::new(()) },
            clients: sides,
            map,
            header,
            authority,
            mailbox: RING..(MAILBOX_BYTES / 8) as usize,
        }
    }
}
