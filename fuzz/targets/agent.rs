//! The agent and a client that sends anything, in any pieces: answers against a slow reading of the frames,
//! from memory whose words say where they stand. What is asked of other memory, or before it may be, is never
//! answered.

#![no_main]

use std::net::TcpListener;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use kelix_fabric::conformance::{SEGMENTS, lay_out};
use kelix_fabric::shm::{AUTHORITY_BYTES, AUTHORITY_TERM, MemfdSegments, WakerHandle};
use kelix_fabric::tcp::{Agent, AgentLimits, AgentShard, ConnectionId, Event, REFUSED};
use kelix_fuzz::Input;
use kelix_fuzz::tcp::{End, control, head};
use kelix_image::{Finding, Header, IndexReader, MemoryMap, Span, Take, Wanted, inline_item};
use kelix_types::limits::{GRANULE_BYTES, KEY_BYTES_MAX};
use kelix_types::{Guardian, Location, Place, SizeClass, TableId};
use libfuzzer_sys::fuzz_target;

const SHARDS: usize = 2;
/// Most that a client is let READ, of which some may be the same.
const OPEN_MAX: usize = 3;
const MAILBOX_WORDS: usize = 600;
const WRITE_WORDS: usize = 5000;
const STRANGER_WORDS: usize = 1 + 4096;
const READ_WORDS: u32 = 8192;
const FEED_WORDS: u32 = 8192;
const FOUND_WORDS: u32 = SET_UP_BYTES / 8 - 2;
const SET_UP_BYTES: u32 = 1 << 20;
/// Only waited for when something is broken.
const PATIENCE: Duration = Duration::from_secs(5);

struct World {
    agent: Agent,
    listener: TcpListener,
    map: MemoryMap,
    epoch: u64,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
    let (mut shards, mut memory) = (Vec::new(), None);
    for _ in 0..SHARDS {
        let header_span = Span::private(Header::BYTES);
        let mut segments = MemfdSegments::default();
        let (map, header) = lay_out(&header_span, &mut segments);
        for (first, bytes) in SEGMENTS {
            let place = Place(first as u64 * GRANULE_BYTES);
            // The beginning and the end; what is between stays as it is.
            for index in (0..20_000).chain(bytes / 8 - 20_000..bytes / 8) {
                let word = map.words(place.plus(index * 8), 1).expect("a segment");
                word.store(0, place.0 + index * 8);
            }
        }
        map.words(FOUND, 5).expect("a segment").copy_in(0, &item());
        // Zeros would be an item: of table 0, with an empty key.
        map.words(NO_ITEM, 2).expect("a segment").copy_in(0, &[u64::MAX; 2]);
        let waker = Arc::new(WakerHandle::pair().expect("descriptors").0);
        shards.push(AgentShard { header: header_span, segments, waker, step_in: None });
        memory = Some((map, header.epoch()));
    }
    let authority = Span::private(AUTHORITY_BYTES).word(AUTHORITY_TERM);
    let limits =
        AgentLimits { connections: 2, greeting: PATIENCE * 2, write_words: WRITE_WORDS, index: INDEX };
    let agent = Agent::new(shards, authority, 0, limits).expect("descriptors");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (map, epoch) = memory.expect("a shard");
    Mutex::new(World { agent, listener, map, epoch })
});

/// Where an item stands, in memory that nothing else is in.
const FOUND: Place = Place(GRANULE_BYTES + 30_000 * 8);
/// Where words stand that are no item of any key.
const NO_ITEM: Place = FOUND.plus(64);
const CLASS: SizeClass = SizeClass(3);
const TABLE: TableId = TableId(3);
const KEY: [u8; 8] = *b"8 bytes.";

fn item() -> [u64; 5] {
    inline_item(TABLE, KEY, 7)
}

const INDEX: IndexReader = IndexReader { find: index, ..IndexReader::NONE };

/// An index that knows one item, by hashes with an even number, and by others what is none, or what a leaf
/// says; or nothing.
fn index(map: &MemoryMap, (hash, _, _): Wanted<'_>, take: &mut Take<'_>) -> Finding {
    match hash.0 % 16 {
        3 => return Finding::Leaf(Guardian(3), None),
        7 => return Finding::Leaf(Guardian(3), Some(hash.0)),
        11 | 15 => return Finding::Absent,
        _ => {}
    }
    let location = Location::new(if hash.0 % 2 == 0 { FOUND } else { NO_ITEM }, CLASS);
    let taken = take(location, map.words(location.place(), CLASS.words()).expect("a segment"));
    assert!(hash.0 % 2 == 0 || !taken);
    Finding::Nothing
}

/// What the server does about a frame of the set-up conversation.
#[derive(Clone, Copy)]
enum Deed {
    Open(usize),
    Answer,
    Refuse,
    Nothing,
}

fn deed(kind: u16, bytes: &[u8]) -> Deed {
    match kind % 8 {
        shard @ 0..2 => Deed::Open(usize::from(shard)),
        2 if bytes.is_empty() => Deed::Refuse,
        3..6 => Deed::Answer,
        _ => Deed::Nothing,
    }
}

/// What is to come of all that was sent.
#[derive(Default)]
struct Model {
    answers: Vec<u8>,
    /// Of the shards that were opened, in their order: that is how the client calls them.
    mailboxes: Vec<Vec<u64>>,
    ends: bool,
}

impl Model {
    fn take(&mut self, world: &World, mut bytes: &[u8]) {
        while !self.ends {
            let Some((first, rest)) = bytes.split_first_chunk::<8>() else { return };
            let first = u64::from_le_bytes(*first);
            let (kind, small) = (first as u8, usize::from((first >> 8) as u8));
            let (name, count) = ((first >> 16) as u32 & 0xff_ffff, (first >> 40) as u32);
            let body = match kind {
                1 if (1..=READ_WORDS).contains(&count) => 1,
                2 if (1..=READ_WORDS).contains(&count) => 1 + count as usize,
                3 if count == 0 => 0,
                4 if count > 0 => count as usize,
                5 if count == 0 => 1,
                6 if count <= SET_UP_BYTES => (count as usize).div_ceil(8),
                // Words of a feed, which nobody follows here.
                7 if (1..=FEED_WORDS).contains(&count) => count as usize,
                8 if count as usize <= KEY_BYTES_MAX => 2 + (count as usize).div_ceil(8),
                9 if count <= FOUND_WORDS => {
                    if count == 0 {
                        0
                    } else {
                        2 + count as usize
                    }
                }
                10 if count == 0 => 2,
                11 if (1..=2).contains(&count) => 1 + count as usize,
                _ => return self.ends = true,
            };
            let opened = !self.mailboxes.is_empty();
            if 1 + body > if opened { 1 + WRITE_WORDS } else { STRANGER_WORDS } {
                return self.ends = true;
            }
            if rest.len() < body * 8 {
                return;
            }
            let (body, behind) = rest.split_at(body * 8);
            bytes = behind;
            let words = kelix_fuzz::words(body);
            match (kind, self.mailboxes.get_mut(small)) {
                (1, Some(_)) => self.read(world, name, words[0], count as usize),
                (8, Some(_)) if words[1] > u64::from(u16::MAX) => self.ends = true,
                (8, Some(_)) if words[0] % 4 == 3 => {
                    // The stamp; then what a leaf says, or no generations that were counted.
                    let told = match words[0] % 16 {
                        3 => vec![head(11, 0, name, 1), world.epoch, 3],
                        7 => vec![head(11, 0, name, 2), world.epoch, 3, words[0]],
                        _ => vec![head(10, 0, name, 0), world.epoch, 0],
                    };
                    told.into_iter().for_each(|word| self.answers.extend(word.to_le_bytes()));
                }
                (8, Some(_)) => {
                    let key = &body[16..16 + count as usize];
                    let is_it = words[0] % 2 == 0 && words[1] == u64::from(TABLE.0) && key == KEY;
                    let item = item();
                    let item = if is_it { &item[..] } else { &[] };
                    self.answers.extend(head(9, 0, name, item.len() as u32).to_le_bytes());
                    let place = Location::new(FOUND, CLASS).word();
                    let told = [world.epoch, place].into_iter().filter(|_| is_it).chain(item.iter().copied());
                    told.for_each(|word| self.answers.extend(word.to_le_bytes()));
                }
                (4, Some(mailbox)) => {
                    let first = name as usize;
                    let Some(target) = mailbox.get_mut(first..first + words.len()) else {
                        return self.ends = true;
                    };
                    target.copy_from_slice(&words);
                }
                (6, _) => self.deed(name as u16, &body[..count as usize]),
                _ => self.ends = true,
            }
        }
    }

    fn read(&mut self, world: &World, tag: u32, place: u64, count: usize) {
        let inside = (0..count as u64).all(|index| {
            let at = place.wrapping_add(index * 8);
            let segment = |(first, bytes): (usize, u64)| {
                let begin = first as u64 * GRANULE_BYTES;
                at >= begin && at < begin + bytes
            };
            place % 8 == 0 && (at < Header::BYTES || SEGMENTS.into_iter().any(segment))
        });
        // No READ crosses from one segment into another.
        let last = place.wrapping_add(count as u64 * 8 - 8);
        let of = |at: u64| SEGMENTS.iter().rposition(|(first, _)| at >= *first as u64 * GRANULE_BYTES);
        if !inside || of(place) != of(last) {
            return self.answers.extend(head(3, 0, tag, 0).to_le_bytes());
        }
        self.answers.extend(head(2, 0, tag, count as u32).to_le_bytes());
        self.answers.extend(world.epoch.to_le_bytes());
        for index in 0..count as u64 {
            let word = world.map.words(Place(place + index * 8), 1).expect("inside").load(0);
            self.answers.extend(word.to_le_bytes());
        }
    }

    fn deed(&mut self, kind: u16, bytes: &[u8]) {
        match deed(kind, bytes) {
            Deed::Open(_) if self.mailboxes.len() == OPEN_MAX => {}
            Deed::Open(_) => self.mailboxes.push(vec![0; MAILBOX_WORDS]),
            Deed::Answer => self.answers.extend(control(kind, bytes)),
            Deed::Refuse => {
                self.answers.extend(control(REFUSED, b"no"));
                self.ends = true;
            }
            Deed::Nothing => {}
        }
    }
}

/// The bytes that are sent, and where they are cut.
fn compose(input: &mut Input<'_>) -> (Vec<u8>, Vec<usize>) {
    let (mut sent, mut cuts) = (Vec::new(), Vec::new());
    while !input.is_empty() {
        let what = input.u8();
        match what & 7 {
            // A READ near a place where something is, or ends.
            0 | 1 => {
                let (first, bytes) = SEGMENTS[usize::from(what >> 3) % SEGMENTS.len()];
                let near = i64::from(input.u16() as i16) * if what & 64 == 0 { 8 } else { 1 };
                let from = if what & 128 == 0 { 0 } else { bytes };
                let from =
                    if what & 7 == 1 { from } else { (first as u64 * GRANULE_BYTES).wrapping_add(from) };
                let count = u32::from(input.u16()) % (READ_WORDS + 2);
                let shard = input.u8() % 3;
                sent.extend(head(1, shard, u32::from(what), count).to_le_bytes());
                sent.extend(from.wrapping_add_signed(near).to_le_bytes());
            }
            2 => {
                let (first, count) = (input.u16() % 610, input.u8());
                let shard = input.u8() % 3;
                sent.extend(head(4, shard, u32::from(first), u32::from(count)).to_le_bytes());
                let begin = sent.len();
                sent.extend_from_slice(input.bytes(usize::from(count) * 8));
                sent.resize(begin + usize::from(count) * 8, what);
            }
            3 | 4 => {
                let length = usize::from(input.u8());
                let kind = u16::from(what >> 3);
                sent.extend(control(kind, input.bytes(length)));
            }
            5 => {
                let length = usize::from(input.u8());
                sent.extend_from_slice(input.bytes(length));
            }
            7 if what & 8 != 0 => {
                // A FIND, of what there is or of something like that.
                let (other, length) = (input.u8(), if what & 128 == 0 { 8 } else { input.u8() });
                sent.extend(head(8, input.u8() % 3, u32::from(what), length.into()).to_le_bytes());
                sent.extend(u64::from(what >> 4).to_le_bytes());
                sent.extend((u64::from(TABLE.0) + u64::from(other & 1) * 70_000).to_le_bytes());
                let begin = sent.len();
                sent.extend_from_slice(if other & 2 == 0 { &KEY } else { input.bytes(8) });
                sent.resize(begin + usize::from(length).next_multiple_of(8), 0);
            }
            6 => sent.extend(head(input.u8() % 12, input.u8(), input.u32(), input.u32() >> 8).to_le_bytes()),
            _ => cuts.push(sent.len().saturating_sub(usize::from(what >> 3))),
        }
    }
    cuts.push(sent.len());
    (sent, cuts)
}

/// The agent's caller, and the client's mailboxes.
struct Server {
    id: ConnectionId,
    mailboxes: Vec<Span>,
    over: bool,
}

impl Server {
    fn turn(&mut self, agent: &mut Agent) -> bool {
        let mut events = Vec::new();
        let busy = agent.turn(&mut events);
        for event in events {
            match event {
                Event::Ready => unreachable!("nothing is watched"),
                Event::Over(id, _) => {
                    assert!(id == self.id && !self.over, "one end each");
                    self.over = true;
                }
                Event::Control(id, kind, bytes) => {
                    assert!(id == self.id && !self.over);
                    match deed(kind, &bytes) {
                        Deed::Open(_) if self.mailboxes.len() == OPEN_MAX => {}
                        Deed::Open(shard) => {
                            let mailbox = Span::private(MAILBOX_WORDS as u64 * 8);
                            self.mailboxes.push(mailbox.clone());
                            agent.open(id, shard, mailbox, 64).expect("a connection that is there");
                        }
                        Deed::Answer => agent.send(id, kind, &bytes),
                        Deed::Refuse => agent.refuse(id, "no", "no"),
                        Deed::Nothing => {}
                    }
                }
            }
        }
        busy
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    // Whether the client reads what it gets only at the end.
    let lazy = input.u8() & 1 == 1;
    let (sent, cuts) = compose(&mut input);
    let mut world = WORLD.lock().expect("no panic before");
    let mut model = Model::default();
    model.take(&world, &sent);

    let world = &mut *world;
    let (mut end, socket) = End::connect(&world.listener);
    let id = world.agent.add(socket).expect("room");
    let mut server = Server { id, mailboxes: Vec::new(), over: false };
    let mut at = 0;
    for cut in cuts {
        let began = Instant::now();
        while at < cut && !end.over && !server.over {
            at += end.send(&sent[at..cut]);
            if !server.turn(&mut world.agent) && (!lazy || at < cut) {
                end.receive();
            }
            assert!(began.elapsed() < PATIENCE, "nothing is taken in any more");
        }
    }
    let began = Instant::now();
    while !server.over && (model.ends || end.received.len() < model.answers.len()) {
        server.turn(&mut world.agent);
        end.receive();
        assert!(began.elapsed() < PATIENCE, "{} of {} bytes", end.received.len(), model.answers.len());
    }
    assert!(server.over == model.ends, "over: {}", server.over);
    // What has no answer is behind it too; and something might come that should not.
    end.finish();
    while !server.over {
        server.turn(&mut world.agent);
        end.receive();
        assert!(began.elapsed() < PATIENCE, "a connection that never ends");
    }
    end.receive();
    assert!(model.answers.starts_with(&end.received), "other answers");
    assert!(model.ends || end.received.len() == model.answers.len());
    // What was written after the end of a connection is nobody's business.
    assert_eq!(server.mailboxes.len(), model.mailboxes.len());
    for (mailbox, model) in server.mailboxes.iter().zip(&model.mailboxes) {
        let mut words = vec![0; MAILBOX_WORDS];
        mailbox.words().copy_out(0, &mut words);
        assert!(*model == words, "other WRITEs");
    }
});
