//! A shard and a client that asks for anything at all, in requests that parse and others.

#![no_main]

use std::collections::HashMap;
use std::sync::LazyLock;

use kelix_fuzz::{Input, Mailboxes, words};
use kelix_image::{ItemFlags, ItemView};
use kelix_shard::alone::Alone;
use kelix_types::{Location, TableId, TableKind, Version};
use kelix_wire::{
    Expiry, FrameBuffer, Op, Reply, Request, RequestHead, ScanArgument, ScanEntry, ScanReply, Status,
    encode_request,
};
use libfuzzer_sys::fuzz_target;

static MAILBOXES: LazyLock<Mailboxes> = LazyLock::new(Mailboxes::new);

const OPS: [Op; 10] = [
    Op::Get,
    Op::Put,
    Op::Delete,
    Op::Intern,
    Op::RepairLink,
    Op::LargeBegin,
    Op::LargePiece,
    Op::LargeCommit,
    Op::Ping,
    Op::Scan,
];

/// The catalogue, and tables of each kind.
const TABLES: [TableId; 8] = [
    TableId(0),
    TableId(1),
    TableId(2),
    TableId::new(TableKind::Inline, 1),
    TableId::new(TableKind::Inline, 2),
    TableId::new(TableKind::Numbers, 1),
    TableId::new(TableKind::Strings, 1),
    TableId::new(TableKind::Strings, 9),
];

/// This is the first of so many: some links lead to another shard.
const SHARDS: usize = 2;

struct World {
    server: Alone,
    /// What plain puts left: client flags and value.
    model: HashMap<(TableId, Vec<u8>), (u32, Vec<u8>)>,
    version: u64,
    location: u64,
}

fuzz_target!(|data: &[u8]| {
    let server = Alone::new(SHARDS, &MAILBOXES);
    let mut world = World { server, model: HashMap::new(), version: 0, location: 0 };
    let mut input = Input(data);
    while !input.is_empty() && world.step(&mut input) {}
    world.server.wipe();
});

impl World {
    /// `false`: the connection has ended.
    fn step(&mut self, input: &mut Input<'_>) -> bool {
        let what = input.u8();
        let mut frame = FrameBuffer::default();
        match what >> 4 {
            0..10 => self.compose(OPS[usize::from(what >> 4)], what, input, &mut frame),
            10 => {
                self.server.now_ns += u64::from(input.u16()) << 20;
                self.server.step();
                return true;
            }
            _ => {
                frame.clear();
                let length = usize::from(input.u8());
                words(input.bytes(length)).into_iter().for_each(|word| frame.push(word));
            }
        }
        let payload = frame.payload().to_vec();
        let progress = self.server.send(&mut frame);
        let Some(request) = Request::parse(&payload) else {
            assert_eq!(progress.faulty.len(), 1, "nonsense that was taken");
            return false;
        };
        assert!(progress.faulty.is_empty(), "{:?} of {request:?}", progress.faulty);
        self.answer(&request);
        true
    }

    /// A request that parses. What was answered last comes back in it now and then.
    fn compose(&self, op: Op, what: u8, input: &mut Input<'_>, frame: &mut FrameBuffer) {
        let mut head = RequestHead::new(op, u32::from(what), TABLES[usize::from(input.u8() & 7)]);
        let flags = input.u8();
        if what & 1 != 0 {
            head.expect = Some(match flags & 3 {
                0 => None,
                1 => Some(Version(input.u64().max(1))),
                _ => Some(Version(self.version.max(1))),
            });
        }
        if what & 2 != 0 {
            head.expiry = Some(Expiry::In(u64::from(input.u16()) << 20));
        }
        if flags & 32 != 0 {
            head.client_flags = 1 << (flags & 31);
        }
        if what & 4 != 0 {
            head.argument = Some(if flags & 4 == 0 { u64::from(input.u16()) } else { input.u64() });
        }
        head.attributes = what & 8 != 0;
        let key_bytes = if flags & 16 != 0 { 8 } else { usize::from(input.u8() & 31) };
        let key = input.bytes(key_bytes);
        let body_bytes = usize::from(input.u16() & 0x3ff);
        let mut body = input.bytes(body_bytes).to_vec();
        if flags & 8 != 0 {
            // A body longer than the input, as a piece of a large value needs.
            body.resize(usize::from(flags >> 4) << 11, b'x');
        }
        if flags & 3 == 3 && body.len() >= 8 {
            body[..8].copy_from_slice(&self.location.to_le_bytes());
        }
        encode_request(frame, head, key, &body);
    }

    /// Every request gets one answer, which makes sense for it; a write may wait for memory.
    fn answer(&mut self, request: &Request<'_>) {
        let payload = self.server.answer().unwrap_or_else(|| panic!("no answer to {request:?}"));
        let reply = Reply::parse(&payload).expect("a reply");
        assert_eq!(reply.head.id, request.head.id);
        (self.version, self.location) = (reply.head.version, reply.head.location);
        let key = (request.head.table, request.key.to_vec());
        let done = reply.head.status == Status::Ok;
        match request.head.op {
            Op::Get => self.got(&key, &reply),
            Op::Scan => self.scanned(request, &reply),
            Op::Put if done && request.head.expiry.is_none() && !request.head.attributes => {
                self.model.insert(key, (request.head.client_flags, request.body.to_vec()));
            }
            Op::Put | Op::Delete | Op::LargeCommit if done => drop(self.model.remove(&key)),
            _ => {}
        }
        assert!(!self.server.has_more(), "two answers to {request:?}");
    }

    /// A scan brings keys of its range in their order; which of them there are, gets tell.
    fn scanned(&self, request: &Request<'_>, reply: &Reply<'_>) {
        let (table, argument) = (request.head.table, request.head.argument.and_then(ScanArgument::from_word));
        if reply.head.status == Status::Refused {
            return;
        }
        let argument = argument.expect("an argument that was taken");
        let page = ScanReply::new(table, reply.item).expect("a page");
        assert!(reply.head.version <= u64::from(argument.limit));
        if argument.count {
            assert_eq!(page.last_key().is_some(), reply.head.version > 0);
            return;
        }
        let keys: Vec<Vec<u8>> = page
            .map(|entry| match entry.expect("an entry that makes sense") {
                ScanEntry::Inline(key, _) => key.to_be_bytes().to_vec(),
                ScanEntry::Item(view) => view.key().to_vec(),
                ScanEntry::Key(key) => key.to_vec(),
            })
            .collect();
        assert_eq!(keys.len() as u64, reply.head.version);
        let in_order =
            |pair: &[Vec<u8>]| if argument.backwards { pair[0] > pair[1] } else { pair[0] < pair[1] };
        assert!(keys.windows(2).all(in_order), "{keys:?}");
        for key in &keys {
            let (from, until) = (request.key, request.body);
            let (begins, ends) = match argument.backwards {
                false => (&key[..] >= from, &key[..] < until),
                true => (&key[..] <= from, &key[..] >= until),
            };
            assert!((begins || !argument.from) && (ends || !argument.until), "{key:?} of {request:?}");
            assert!(!(argument.from && argument.after && key == from));
        }
    }

    fn got(&self, key: &(TableId, Vec<u8>), reply: &Reply<'_>) {
        let known = self.model.get(key);
        if !key.0.kind().takes_key(&key.1) {
            assert_eq!(reply.head.status, Status::Refused);
            return;
        }
        if reply.head.status != Status::Ok {
            assert!(reply.head.status == Status::Absent && known.is_none(), "{key:?} was lost");
            return;
        }
        let inline = !key.0.kind().has_items();
        assert!(Location::from_word(reply.head.location).is_some() != inline);
        let Some(item) = ItemView::new(reply.item) else {
            assert!(reply.item.len() == 1 && known.is_none());
            return;
        };
        assert!((inline || item.guardian().is_live()) && item.is_for(key.0, &key.1));
        assert_eq!(item.version().0, reply.head.version);
        if let Some((client_flags, body)) = known {
            let flags = if inline { ItemFlags::MOVED } else { ItemFlags::default() };
            let flags = if *client_flags != 0 { flags.with(ItemFlags::CLIENT_FLAGS) } else { flags };
            assert_eq!((item.header().flags, item.body()), (flags, &body[..]));
            assert_eq!(item.client_flags(), *client_flags);
        }
    }
}
