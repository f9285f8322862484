//! A client over TCP and a server that sends anything: a greeting is answered or fails, READs end with words
//! that the server sent, and nothing lands outside the mailboxes.

#![no_main]

use std::net::TcpListener;
use std::sync::LazyLock;
use std::time::Duration;

use kelix_fabric::tcp::{Greeting, TcpEndpoint};
use kelix_fabric::{Find, FindState, Mailbox, PeerId, Read, ReadState, RemoteMemory, Waiter, WorkQueue};
use kelix_fuzz::Input;
use kelix_fuzz::tcp::{End, control, head, hello};
use kelix_types::limits::SESSION_READS_MAX;
use kelix_types::{KeyHash, Place, TableId};
use kelix_wire::control::Frame;
use libfuzzer_sys::fuzz_target;

const SHARDS: usize = 2;
const MAILBOX_BYTES: u64 = 4096;
const PIECE_WORDS: usize = 8 << 10;
const KEY: &[u8] = b"a key, say";
/// Where the item of each key stands, in a slot of some class.
const LOCATION: u64 = 2 << 40 | 4;
/// Looks after which what was sent has arrived.
const LOOKS: usize = 64;

static LISTENER: LazyLock<TcpListener> = LazyLock::new(|| TcpListener::bind("127.0.0.1:0").expect("a port"));

struct World {
    endpoint: TcpEndpoint,
    server: End,
    /// READs under way by tag, and FINDs, which are marked; and how many of them there were.
    reads: Vec<Option<(Read, bool)>>,
    posted: usize,
    /// READ frames that the server has and has not answered: tag on the wire and words; none of a FIND.
    asked: Vec<(u32, Option<u32>)>,
    seen: usize,
    /// The server kept to the protocol so far.
    honest: bool,
    term: u64,
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (mut server, socket) = End::connect(&LISTENER);
    let mut greeting =
        Greeting::new(socket, None, MAILBOX_BYTES as usize / 8, Duration::from_millis(1)).expect("a socket");
    let what = input.u8();
    let answered = match what & 3 {
        0 => true,
        1 => {
            let length = usize::from(input.u8());
            server.send(&control(u16::from(what >> 2), input.bytes(length)));
            greet(&mut greeting)
        }
        _ => {
            let length = usize::from(input.u8());
            server.send(input.bytes(length));
            if what & 4 != 0 {
                server.finish();
            }
            greet(&mut greeting)
        }
    };
    if !answered {
        return;
    }
    let endpoint = greeting.endpoint(1, SHARDS, MAILBOX_BYTES);
    let reads = (0..SESSION_READS_MAX).map(|_| None).collect();
    let honest = what & 3 == 0;
    let (asked, seen) = (Vec::new(), 0);
    let endpoint = endpoint.expect("memory for mailboxes");
    let mut world = World { endpoint, server, reads, posted: 0, asked, seen, honest, term: 1 };
    while !input.is_empty() {
        world.step(&mut input);
    }
    world.end();
});

/// Whether it was answered by something.
fn greet(greeting: &mut Greeting) -> bool {
    let (kind, bytes) = hello();
    match greeting.ask(kind, &bytes) {
        Ok((kind, bytes)) => {
            if let Some(Frame::Welcome { view, .. }) = Frame::decode(kind, &bytes) {
                assert!(view.shards() <= kelix_types::limits::SHARDS_MAX);
            }
            true
        }
        Err(_) => false,
    }
}

fn find(Read { peer, tag, .. }: Read) -> Find<'static> {
    Find { peer, hash: KeyHash(7), table: TableId(3), key: KEY, tag }
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        match what & 7 {
            0 | 1 => self.post(input, what >> 3),
            2 => self.poll(usize::from(what >> 3)),
            3 => self.answer(input, what >> 3),
            4 => {
                // Words for a mailbox.
                let (first, count) = (input.u16() % 520, input.u8());
                let shard = what >> 3 & 3;
                self.honest &=
                    count > 0 && usize::from(shard) < SHARDS && first as usize + usize::from(count) <= 512;
                let mut bytes = head(4, shard, u32::from(first), u32::from(count)).to_le_bytes().to_vec();
                bytes.resize(8 + usize::from(count) * 8, what);
                self.send(&bytes);
            }
            5 => {
                self.honest = false;
                let length = usize::from(input.u8());
                self.send(input.bytes(length));
            }
            6 => {
                self.honest = false;
                let first = head(input.u8() % 11, input.u8(), input.u32(), input.u32() >> 8);
                self.send(&first.to_le_bytes());
            }
            _ => match what >> 3 & 7 {
                0 => {
                    let words = vec![7; 1 + usize::from(what >> 6)];
                    let posted = self.endpoint.post_write(PeerId(u32::from(what >> 6) & 1), 9, &words);
                    assert!(posted.is_ok() || !self.honest);
                    self.endpoint.doorbell();
                }
                1 => {
                    self.term = self.term.wrapping_add(u64::from(what >> 6));
                    let bytes = [head(5, 0, 0, 0).to_le_bytes(), self.term.to_le_bytes()].concat();
                    self.send(&bytes);
                }
                2 => self.endpoint.sleep(Some(0)),
                3 => {
                    self.honest = false;
                    self.server.finish();
                }
                _ => {
                    self.endpoint.progress();
                }
            },
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut sent = 0;
        for _ in 0..LOOKS {
            sent += self.server.send(&bytes[sent..]);
            if sent == bytes.len() {
                return;
            }
            self.endpoint.look();
        }
    }

    fn post(&mut self, input: &mut Input<'_>, tag: u8) {
        self.posted += 1;
        // Few take several pieces: each is 64 KiB to answer.
        let words = match input.u8() {
            many @ 250.. => PIECE_WORDS * usize::from(many - 249) * 3 + 1,
            few => usize::from(few) + 1,
        };
        let peer = PeerId(u32::from(tag) % SHARDS as u32);
        let read = Read { peer, place: Place(u64::from(input.u16()) * 8), words, tag: u32::from(tag) };
        let finds = input.u8() & 3 == 0;
        match finds {
            true => self.endpoint.post_find(find(read)),
            false => self.endpoint.post_read(read),
        }
        self.endpoint.doorbell();
        self.reads[usize::from(tag)] = Some((read, finds));
    }

    fn poll(&mut self, tag: usize) {
        let Some((read, finds)) = self.reads[tag] else { return };
        let mut words = vec![u64::MAX; read.words];
        self.endpoint.look();
        if finds {
            match self.endpoint.poll_find(find(read), &mut words) {
                FindState::Pending => return,
                FindState::Found(location, sampled) => {
                    let numbered = words.iter().zip(0..).all(|(word, at)| *word == at);
                    assert!(!self.honest || numbered && !words.is_empty(), "other words of {read:?}");
                    assert!(!self.honest || (sampled.before, location.word()) == (5, LOCATION));
                }
                FindState::Absent(generations, sampled) => {
                    assert!(!self.honest || (sampled.before, generations) == (5, LOCATION));
                }
                FindState::Leaf(sampled) => {
                    let said: [&[u64]; 2] = [&[0], &[0, 1]];
                    assert!(!self.honest || sampled.before == 5 && said.contains(&&words[..]));
                }
                FindState::Nothing => {}
                FindState::Broken => assert!(!self.honest || self.posted > SESSION_READS_MAX),
            }
            self.reads[tag] = None;
            return;
        }
        match self.endpoint.poll_read(read, &mut words) {
            ReadState::Pending => return,
            ReadState::Done(sampled) => {
                // Honest answers are numbered from the beginning of each piece.
                let numbered = |at: usize| words[at] == (at % PIECE_WORDS) as u64;
                assert!(!self.honest || (0..read.words).all(numbered), "other words of {read:?}");
                assert!(!self.honest || sampled.before == 5);
            }
            ReadState::Outside => {}
            ReadState::Broken => assert!(!self.honest || self.posted > SESSION_READS_MAX),
        }
        self.reads[tag] = None;
    }

    /// Answers a READ as an agent would.
    fn answer(&mut self, input: &mut Input<'_>, what: u8) {
        self.endpoint.doorbell();
        self.server.receive();
        while let Some(first) = self.server.received[self.seen..].first_chunk::<8>() {
            let first = u64::from_le_bytes(*first);
            let (count, name) = ((first >> 40) as u32, (first >> 16) as u32 & 0xff_ffff);
            let words = match first as u8 {
                1 => 1,
                4 => count as usize,
                8 => 2 + (count as usize).div_ceil(8),
                _ => (count as usize).div_ceil(8),
            };
            if self.server.received.len() < self.seen + 8 + words * 8 {
                break;
            }
            self.seen += 8 + words * 8;
            if first as u8 == 1 {
                assert!((1..=PIECE_WORDS as u32).contains(&count));
                self.asked.push((name, Some(count)));
            }
            if first as u8 == 8 {
                assert_eq!(count as usize, KEY.len());
                self.asked.push((name, None));
            }
        }
        if self.asked.is_empty() {
            return;
        }
        // Those of one READ in their order, those of different ones in any; or one that is not the first.
        let index = usize::from(input.u8()) % self.asked.len();
        let slot = |tag: u32| tag >> 12;
        let wanted = slot(self.asked[index].0);
        let first = self.asked.iter().position(|(tag, _)| slot(*tag) == wanted).expect("one at least");
        self.honest &= first == index || what & 1 == 0;
        let (tag, count) = self.asked.remove(if what & 1 == 0 { first } else { index });
        let Some(count) = count else {
            let words = u64::from(what >> 2 & 1) * u64::from(what);
            let (kind, words) = match what & 18 {
                0 => (9, words),
                16 => (11, 1 + words % 2),
                _ => (10, 0),
            };
            let mut bytes = head(kind, what >> 2, tag, words as u32).to_le_bytes().to_vec();
            let before: &[u64] = match kind {
                9 if words == 0 => &[],
                11 => &[5],
                _ => &[5, LOCATION],
            };
            before.iter().copied().chain(0..words).for_each(|word| bytes.extend(word.to_le_bytes()));
            return self.send(&bytes);
        };
        if what & 2 != 0 {
            return self.send(&head(3, 0, tag, 0).to_le_bytes());
        }
        let mut bytes = head(2, what >> 2, tag, count).to_le_bytes().to_vec();
        bytes.extend(5u64.to_le_bytes());
        (0..u64::from(count)).for_each(|word| bytes.extend(word.to_le_bytes()));
        self.send(&bytes);
    }

    /// A server that has gone leaves no READ under way, and an honest one was believed until then.
    fn end(mut self) {
        assert!(!self.honest || !self.endpoint.is_broken(PeerId(0)));
        drop(self.server);
        for _ in 0..1 << 20 {
            if self.endpoint.is_broken(PeerId(0)) {
                break;
            }
            self.endpoint.look();
        }
        assert!(self.endpoint.is_broken(PeerId(0)), "the server has gone");
        for (read, finds) in self.reads.into_iter().flatten() {
            let mut words = vec![0; read.words];
            let is_pending = match finds {
                true => self.endpoint.poll_find(find(read), &mut words) == FindState::Pending,
                false => self.endpoint.poll_read(read, &mut words) == ReadState::Pending,
            };
            assert!(!is_pending);
        }
    }
}
