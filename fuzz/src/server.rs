//! A shard and its one client, without threads: what is sent is handled at once.

use kelix_image::{Header, ImageConfig, PrivateSegments, Span};
use kelix_shard::{Now, Progress, Shard, ShardConfig};
use kelix_types::limits::{EPOCH_NS_MIN, SHARD_BYTES_MIN};
use kelix_wire::{FrameBuffer, RingReader, RingWriter, View};

use crate::{Mailboxes, PEER};

/// Steps after which a request is answered, whatever it waits for: an epoch each.
const STEPS_MAX: usize = 100;

/// The first shard of a server, with the smallest memory there is, and the client's end of its rings.
pub struct Server {
    shard: Shard,
    shard_side: Mailboxes,
    client_side: Mailboxes,
    writer: RingWriter,
    reader: RingReader,
    /// What the clocks show.
    pub now_ns: u64,
}

impl Server {
    /// Seed of the key hash.
    pub const SEED: u64 = 42;
    /// Term of the image.
    pub const TERM: u64 = 3;

    /// Makes it, with one client.
    pub fn new(view: View, mailboxes: &Mailboxes, header: Span, segments: PrivateSegments) -> Server {
        let image = ImageConfig {
            image_id: 1,
            hash_seed: Server::SEED,
            term: Server::TERM,
            epoch_ns: EPOCH_NS_MIN,
            memory_bytes: SHARD_BYTES_MIN,
            segment_bytes_first: SHARD_BYTES_MIN,
            segment_bytes_max: SHARD_BYTES_MIN,
        };
        let config = ShardConfig { number: 0, view, image };
        let mut shard = Shard::create(config, header, Box::new(segments)).expect("an empty shard");
        shard.join(PEER, true);
        Server {
            shard,
            shard_side: mailboxes.clone(),
            client_side: mailboxes.turned(),
            writer: RingWriter::new(true),
            reader: RingReader::new(true),
            now_ns: 1,
        }
    }

    /// The same without others that look at its memory.
    pub fn alone(view: View, mailboxes: &Mailboxes) -> Server {
        Server::new(view, mailboxes, Span::private(Header::BYTES), PrivateSegments::default())
    }

    /// Lets the shard do what is to be done.
    pub fn step(&mut self) -> Progress {
        let now = Now { monotonic_ns: self.now_ns, wall_ns: self.now_ns };
        self.shard.step(now, &mut self.shard_side)
    }

    /// Sends a message, and lets the shard look at it.
    pub fn send(&mut self, frame: &mut FrameBuffer) -> Progress {
        assert_eq!(self.writer.push(&mut self.client_side, PEER, frame), Ok(true));
        self.step()
    }

    /// The answer to what was sent, for which time may have to pass. `None`: it never comes.
    pub fn answer(&mut self) -> Option<Vec<u64>> {
        let mut payload = Vec::new();
        for _ in 0..STEPS_MAX {
            if self.reader.pop(&mut self.client_side, PEER, &mut payload).expect("a ring of the shard's") {
                return Some(payload);
            }
            self.now_ns += EPOCH_NS_MIN;
            assert!(self.step().faulty.is_empty());
        }
        None
    }

    /// Whether something else has come.
    pub fn has_more(&mut self) -> bool {
        self.reader.pop(&mut self.client_side, PEER, &mut Vec::new()).expect("a ring of the shard's")
    }

    /// Leaves mailboxes as if they were new.
    pub fn wipe(mut self) {
        self.client_side.wipe();
        self.shard_side.wipe();
    }
}
