//! A shard and clients, one after another, that ask for anything at all, in requests that parse and others,
//! and go in the middle of it. When the last has gone nothing is left of any: no state, nothing to do, no
//! memory.

#![no_main]

use std::collections::HashMap;
use std::sync::LazyLock;

use kelix_fuzz::{Input, Mailboxes, words};
use kelix_image::words::bytes_of;
use kelix_image::{AttributeBuilder, ItemFlags, ItemView};
use kelix_shard::Order;
use kelix_shard::harness::Harness;
use kelix_types::{Location, NameId, TableId, TableKind, Version};
use kelix_wire::control::Caller;
use kelix_wire::generation::{
    DROP_DATASET, LoadedTable, NewItem, RESOLVED, any_of, decode_tables, encode_tables,
};
use kelix_wire::puts::{self, PutsBody};
use kelix_wire::{
    Expiry, FrameBuffer, Op, Reply, ReplyHead, Request, RequestHead, ScanArgument, ScanEntry, ScanReply,
    Sequence, Status, encode_request,
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
    TableId::new(TableKind::Strings, 2),
];

/// What a client asks for who builds a generation, or reads one.
const BUILDS: [Op; 16] = [
    Op::Build,
    Op::Build,
    Op::Build,
    Op::Load,
    Op::Load,
    Op::Resolve,
    Op::Resolve,
    Op::Switch,
    Op::Switch,
    Op::Abandon,
    Op::Hold,
    Op::Hold,
    Op::Freeze,
    Op::Overlays,
    Op::Put,
    Op::Drop,
];
const DATASETS: [&str; 4] = ["one", "other", "", "none"];

/// Beyond this nothing ends: an expiry of a request that was made by chance.
const NEVER_NS: u64 = 1 << 62;
/// Steps until a shard that nobody asks for anything has nothing to do. Each does a part of what is due.
const STEPS_MAX: usize = 20_000;

/// This is the first of so many: some links lead to another shard.
const SHARDS: usize = 2;

struct World {
    server: Harness,
    /// The connection there is.
    connection: u64,
    /// The generation begun last, and its tables.
    built: (u64, Vec<LoadedTable>),
    /// Of a client that may ask again: its next write.
    sequence: u64,
    /// What plain puts left: client flags and value.
    model: HashMap<(TableId, Vec<u8>), (u32, Vec<u8>)>,
    version: u64,
    location: u64,
}

fuzz_target!(|data: &[u8]| {
    let server = Harness::new(SHARDS, &MAILBOXES);
    let mut world = World {
        server,
        connection: 1,
        built: (0, Vec::new()),
        sequence: 0,
        model: HashMap::new(),
        version: 0,
        location: 0,
    };
    world.name_tables();
    let mut input = Input(data);
    while !input.is_empty() {
        if !world.step(&mut input) {
            world.comes_next(0);
        }
        world.do_as_others();
    }
    world.server.leave();
    world.come_to_rest();
    world.server.wipe();
});

impl World {
    /// The tables that anybody writes to, so that those of generations are others.
    fn name_tables(&mut self) {
        for table in &TABLES[1..] {
            let argument = Some(table.kind() as u64);
            let head = RequestHead { argument, ..RequestHead::new(Op::Intern, 0, TableId::CATALOGUE) };
            let given = self.server.call(head, table.0.to_string().as_bytes(), &[]);
            assert_eq!(given.version, u64::from(table.0));
        }
    }

    /// Another client in place of the one that goes, or has gone.
    fn comes_next(&mut self, how: u8) {
        self.server.leave();
        self.connection += 1;
        let number = u64::from(how & 3);
        let caller = (number > 0).then_some(Caller { number, again: how & 4 != 0 });
        self.server.join(self.connection, caller, how & 8 == 0);
    }

    /// What another shard does with what it is told.
    fn do_as_others(&mut self) {
        for order in std::mem::take(&mut self.server.orders) {
            assert_eq!(order.is_for(0, SHARDS), 1..SHARDS);
            let told = match order {
                Order::Drop { generation: 0, .. } | Order::Begin { .. } => continue,
                Order::Drop { generation, .. } => Order::Dropped { generation },
                Order::Ask { generation, from, question, .. } => {
                    let told = question.targets.iter().map(|asked| (asked.link, None));
                    Order::Tell { generation, to: from, told: told.collect() }
                }
                Order::FindLinks { .. } => Order::LinksFound { tables: Vec::new() },
                Order::Forget { .. } => Order::Forgotten,
                Order::Reconcile { .. } => panic!("nothing is gone on with here"),
                Order::Tell { .. } | Order::Dropped { .. } | Order::LinksFound { .. } | Order::Forgotten => {
                    panic!("an answer to nothing")
                }
            };
            // Of a shard that keeps no records.
            self.server.shard.handle_order(told, (1, 0));
        }
    }

    /// Nobody is there any more: whatever is due is done some time, then nothing is to be done, and nothing
    /// is left.
    fn come_to_rest(&mut self) {
        let mut steps = 0..STEPS_MAX;
        loop {
            let next = self.server.step().next_ns.filter(|next| *next < NEVER_NS);
            if next.is_none() && self.server.orders.is_empty() {
                break;
            }
            assert!(steps.next().is_some(), "a shard that never comes to rest");
            self.server.now_ns = self.server.now_ns.max(next.unwrap_or(0));
            self.do_as_others();
        }
        assert_eq!(self.server.shard.audit_departed(), Ok(()));
        assert_eq!(self.server.shard.audit(), Ok(()));
    }

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
            11 => self.compose_build(BUILDS[usize::from(what & 15)], input, &mut frame),
            12 => {
                self.comes_next(what);
                return true;
            }
            14 => self.compose_puts(what, input, &mut frame),
            13 => {
                // It goes before it is answered: what it wanted may have been done.
                self.compose(OPS[usize::from(what & 15) % OPS.len()], 0, input, &mut frame);
                self.model.clear();
                self.server.send(&mut frame);
                return false;
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

    /// A request about a generation, as a rule the one that was begun last.
    fn compose_build(&self, op: Op, input: &mut Input<'_>, frame: &mut FrameBuffer) {
        let how = input.u8();
        let (number, tables) = &self.built;
        let table = tables.get(usize::from(how & 1)).map_or(TableId(1), |table| table.table);
        let number = if how & 2 == 0 { *number } else { u64::from(input.u8()) };
        let dataset = DATASETS[usize::from(how >> 2 & 3)].as_bytes();
        let key_bytes = if table.kind().has_numbers() { 8 } else { 1 };
        let key = vec![how >> 4; key_bytes];
        let mut section = AttributeBuilder::default();
        let target = TABLES[usize::from(how >> 4 & 3)];
        section.link(NameId(1), target, &[how >> 6], b"");
        let body = if how & 4 == 0 { section.finish() } else { b"8 bytes.".to_vec() };
        let of = |op, table| RequestHead { argument: Some(number), ..RequestHead::new(op, 0, table) };
        match op {
            Op::Build => {
                let kinds = [TableKind::Hash, TableKind::Numbers, TableKind::Inline, TableKind::Strings];
                let asked = (0..1 + (how & 1)).map(|table| LoadedTable {
                    table: TableId(0),
                    name_id: any_of(kinds[usize::from(how >> (4 + 2 * table) & 3)]),
                    name: ["first", "second"][usize::from(table)].to_string(),
                    overlay: how & 2 != 0,
                });
                let head = RequestHead::new(Op::Build, 0, TableId::CATALOGUE);
                encode_request(frame, head, dataset, &encode_tables(&asked.collect::<Vec<_>>()));
            }
            Op::Load => {
                let (mut items, attributes) = (Vec::new(), how & 4 == 0);
                let expiry = (how & 8 != 0).then_some(Expiry::In(1 << 30));
                NewItem { key: &key, body: &body, attributes, expiry, client_flags: 0 }.push(&mut items);
                encode_request(frame, of(op, table), &[], bytes_of(&items));
            }
            Op::Put => {
                let attributes = how & 4 == 0;
                let expect = (how & 8 != 0).then_some(None);
                encode_request(frame, RequestHead { attributes, expect, ..of(op, table) }, &key, &body);
            }
            Op::Resolve => {
                let argument = Some(if how & 4 == 0 { u64::from(how >> 4) } else { RESOLVED });
                encode_request(frame, RequestHead { argument, ..of(op, table) }, &[], &[]);
            }
            Op::Hold => {
                let expiry = (how & 4 != 0).then_some(Expiry::In(0));
                encode_request(frame, RequestHead { expiry, ..of(op, TableId::CATALOGUE) }, &[], &[]);
            }
            Op::Drop => {
                let argument = Some(DROP_DATASET);
                encode_request(frame, RequestHead { argument, ..of(op, TableId::CATALOGUE) }, dataset, &[]);
            }
            // Of a table of the generation, or one of those before.
            Op::Freeze | Op::Overlays => {
                let before = TableId(table.0.saturating_sub(u16::from(how >> 4 & 3)));
                encode_request(frame, of(op, before), &[], &[]);
            }
            _ => encode_request(frame, of(op, TableId::CATALOGUE), &[], &[]),
        }
    }

    /// A request that parses. What was answered last comes back in it now and then.
    fn compose(&mut self, op: Op, what: u8, input: &mut Input<'_>, frame: &mut FrameBuffer) {
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
        if flags & 64 != 0 {
            self.sequence += 1;
            head.sequence = Some(Sequence { number: self.sequence, again: false });
        }
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

    /// Several puts in one request.
    fn compose_puts(&mut self, what: u8, input: &mut Input<'_>, frame: &mut FrameBuffer) {
        let (mut body, count) = (PutsBody::default(), 1 + u64::from(what & 15));
        let table = TABLES[usize::from(input.u8() & 7)];
        let mut head = RequestHead::new(Op::PutMany, u32::from(what), table);
        if what & 1 != 0 {
            head.sequence = Some(Sequence { number: self.sequence + 1, again: false });
            self.sequence += count;
        }
        for _ in 0..count {
            let how = input.u8();
            let key = input.bytes(if how & 16 != 0 { 8 } else { usize::from(how & 3) });
            let value = input.bytes(usize::from(how >> 5) * 8);
            let expiry = (how & 12 == 12).then_some(Expiry::In(1 << 30));
            let client_flags = u32::from(how & 12 == 8);
            body.push(&NewItem { key, body: value, attributes: how & 15 == 15, expiry, client_flags });
        }
        encode_request(frame, head, &[], bytes_of(body.words()));
    }

    /// Some of several puts were tried, each with an answer of its own.
    fn put_many(&mut self, request: &Request<'_>, reply: &Reply<'_>) {
        let (mut items, answers) = (Vec::new(), puts::outcomes(reply.item).expect("answers"));
        let is_good = puts::take_items(request.tail, |arrived| items.push(arrived.item)).is_some();
        let answers: Vec<ReplyHead> = answers.map(|answer| answer.head).collect();
        assert_eq!(answers.len() as u64, reply.head.version);
        let is_done = is_good && reply.head.status == Status::Ok;
        assert!(answers.len() <= items.len() && (is_done || answers.is_empty()));
        for (answer, item) in answers.into_iter().zip(items) {
            let key = (request.head.table, item.key.to_vec());
            if answer.status != Status::Ok {
                continue;
            }
            if TABLES.contains(&key.0) && item.expiry.is_none() && !item.attributes {
                self.model.insert(key, (item.client_flags, item.body.to_vec()));
            } else {
                self.model.remove(&key);
            }
        }
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
            Op::PutMany => self.put_many(request, &reply),
            Op::Put
                if done
                    && TABLES.contains(&key.0)
                    && request.head.expiry.is_none()
                    && !request.head.attributes =>
            {
                self.model.insert(key, (request.head.client_flags, request.body.to_vec()));
            }
            Op::Put | Op::Delete | Op::LargeCommit if done => drop(self.model.remove(&key)),
            Op::Build if done => {
                let tables = bytes_of(&reply.item[1..]).get(..reply.item[0] as usize).and_then(decode_tables);
                self.built = (reply.head.version, tables.expect("tables"));
            }
            // Whose table it was, and which.
            Op::Drop if done => self.model.clear(),
            _ => {}
        }
        assert!(!self.server.has_more(), "two answers to {request:?}");
    }

    /// A scan brings keys of its range in their order; which of them there are, gets tell.
    fn scanned(&self, request: &Request<'_>, reply: &Reply<'_>) {
        let (table, argument) = (request.head.table, request.head.argument.and_then(ScanArgument::from_word));
        if matches!(reply.head.status, Status::Refused | Status::Gone) {
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
            let is_not_there = matches!(reply.head.status, Status::Absent | Status::Gone);
            assert!(is_not_there && known.is_none(), "{key:?} was lost");
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
