//! Who asks: the store's own requests through the store's own rings, and nothing of a session around them.

use std::thread::JoinHandle;

use kelix_fabric::{Mailbox, WorkQueue};
use kelix_image::ItemView;
use kelix_types::TableId;
use kelix_wire::{
    FrameBuffer, Op, Reply, RequestHead, RingReader, RingShape, RingWriter, Status, encode_request,
};

use super::end::{End, PEER, Way};
use crate::store::{Walk, key_of, verify};

const TABLE: TableId = TableId(1);
/// Records of a batch while loading.
const LOAD: u64 = 64;

/// One end of a connection to a shard, and the threads at the other end.
pub(crate) struct Caller<W: Way> {
    end: End<W>,
    writer: RingWriter,
    reader: RingReader,
    frame: FrameBuffer,
    payload: Vec<u64>,
    threads: Vec<JoinHandle<()>>,
}

impl<W: Way> Caller<W> {
    pub(super) fn new(end: End<W>, threads: Vec<JoinHandle<()>>) -> Caller<W> {
        Caller {
            end,
            writer: RingWriter::new(RingShape::of_messages(true)),
            reader: RingReader::new(RingShape::of_messages(true)),
            frame: FrameBuffer::default(),
            payload: Vec::new(),
            threads,
        }
    }

    /// Puts all records.
    pub fn load(&mut self, records: u64, walk: Walk) {
        for first in (0..records).step_by(LOAD as usize) {
            self.put(&(first..records.min(first + LOAD)).collect::<Vec<_>>(), walk);
        }
    }

    /// Puts these records, sent at once.
    pub fn put(&mut self, records: &[u64], walk: Walk) {
        for (id, record) in records.iter().enumerate() {
            self.post(Op::Put, id, *record, &walk.value_of(*record));
        }
        self.take_replies(records.len(), |_| {});
    }

    /// Gets these records, asked for at once.
    pub fn get(&mut self, records: &[u64]) {
        for (id, record) in records.iter().enumerate() {
            self.post(Op::Get, id, *record, &[]);
        }
        self.take_replies(records.len(), |reply| {
            let item = ItemView::new(reply.item).expect("an item");
            verify(item.body(), records[reply.head.id as usize]);
        });
    }

    fn post(&mut self, op: Op, id: usize, record: u64, body: &[u8]) {
        encode_request(&mut self.frame, RequestHead::new(op, id as u32, TABLE), &key_of(record), body);
        assert!(self.writer.push(&mut self.end, PEER, &mut self.frame).expect("a ring of the server's"));
    }

    /// Sends off what was posted and takes so many replies.
    fn take_replies(&mut self, count: usize, mut check: impl FnMut(Reply<'_>)) {
        let Caller { end, reader, payload, .. } = self;
        end.doorbell();
        end.wake(PEER);
        let mut taken = 0;
        while taken < count {
            if !reader.pop(end, PEER, payload).expect("a ring of the server's") {
                end.wait(None, |end| reader.has_news(end, PEER));
                assert!(!end.is_broken(PEER), "the baseline's server has gone");
                continue;
            }
            let reply = Reply::parse(payload).expect("a reply");
            assert_eq!(reply.head.status, Status::Ok);
            check(reply);
            taken += 1;
        }
    }
}

impl<W: Way> Drop for Caller<W> {
    fn drop(&mut self) {
        self.end.way.end();
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a thread of the baseline panicked");
        }
    }
}
