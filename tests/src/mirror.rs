//! A mirror made by hand: it speaks the protocol of a feed, and has a follower for each shard.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use kelix_fabric::tcp::{ClientTls, FeedLink, Greeting};
use kelix_image::{Books, Header, ImageConfig, ItemView, PrivateSegments, Span};
use kelix_log::Record;
use kelix_shard::harness::Harness;
use kelix_shard::{Follower, ShardConfig};
use kelix_types::limits::{EPOCH_NS, FRAME_BYTES_MAX, SEGMENT_BYTES_FIRST, SEGMENT_BYTES_MAX, VIEW_LEASE_NS};
use kelix_types::{Incarnation, Place, TableId};
use kelix_wire::control::{Frame, Purpose};
use kelix_wire::feed::{FeedAsk, FeedBooks, FeedCut, FeedPart};
use kelix_wire::mailboxes::Mailboxes;
use kelix_wire::{FrameBuffer, Op, Reply, RequestHead, SPOKEN, Status, View, encode_request};

/// How long a primary may take for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most memory of a shard.
const MEMORY: u64 = 4 << 30;

/// How a mirror attaches.
#[derive(Clone, Default)]
pub struct Attach<'a> {
    /// Its name.
    pub name: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// Bytes of memory a second; 0: as fast as it goes.
    pub copy_rate: u64,
    /// With TLS, and the host that the primary must be.
    pub tls: Option<(&'a ClientTls, &'a str)>,
    /// The word that lets it in.
    pub token: Option<&'a str>,
}

/// What there is of a shard.
#[derive(Default)]
struct Shard {
    books: Vec<u64>,
    follower: Option<Follower>,
    /// Records that have come and were not applied.
    records: Vec<u64>,
    /// The record with which its memory is whole.
    copied: Option<u64>,
}

/// It.
pub struct Mirror {
    /// Its connection.
    pub link: FeedLink,
    /// The primary's view.
    pub view: View,
    /// Bytes of the primary's memory, as it said first.
    pub memory_bytes: u64,
    /// The cuts that were told, in their order.
    pub cuts: Vec<FeedCut>,
    /// Bytes of memory that were copied.
    pub copied_bytes: u64,
    /// The epochs of use that shards have told, in the order in which they came.
    pub epochs: Vec<(usize, u64)>,
    shards: Vec<Shard>,
    question: u64,
}

fn ask(greeting: &mut Greeting, frame: &Frame) -> Result<Frame, String> {
    let (kind, bytes) = frame.encode();
    let (kind, bytes) = greeting.ask(kind, &bytes).map_err(|error| error.to_string())?;
    match Frame::decode(kind, &bytes) {
        Some(Frame::Refused { text }) => Err(text),
        Some(frame) => Ok(frame),
        None => Err("no frame".into()),
    }
}

impl Mirror {
    /// Attaches to a primary. An error: what that says.
    pub fn attach(primary: SocketAddr, how: &Attach<'_>) -> Result<Mirror, String> {
        let socket = TcpStream::connect(primary).map_err(|error| error.to_string())?;
        let greeting = Greeting::new(socket, how.tls, FRAME_BYTES_MAX / 8, PATIENCE);
        let mut greeting = greeting.map_err(|error| error.to_string())?;
        if let Some(token) = how.token {
            let (kind, bytes) = Frame::Token { token: token.as_bytes().to_vec() }.encode();
            greeting.tell(kind, &bytes);
        }
        let hello = Frame::Hello {
            versions: SPOKEN,
            features: 0,
            purpose: Purpose::Follow,
            caller: None,
            namespace: how.namespace.into(),
        };
        let Frame::Welcome { view, .. } = ask(&mut greeting, &hello)? else {
            return Err("no welcome".into());
        };
        let attach = Frame::Attach { copy_rate: how.copy_rate, position: None, name: how.name.into() };
        let Frame::Attached { memory_bytes, .. } = ask(&mut greeting, &attach)? else {
            return Err("not attached".into());
        };
        let shards = (0..view.shards()).map(|_| Shard::default()).collect();
        let link = greeting.into_feed_link();
        Ok(Mirror {
            link,
            view,
            memory_bytes,
            cuts: Vec::new(),
            copied_bytes: 0,
            epochs: Vec::new(),
            shards,
            question: 0,
        })
    }

    /// Whether all memory is whole.
    pub fn is_whole(&self) -> bool {
        let is_whole = |shard: &Shard| {
            let applied = shard.follower.as_ref().map(Follower::applied);
            shard.copied.is_some_and(|copied| applied >= Some(copied))
        };
        self.shards.iter().all(is_whole)
    }

    /// The last record applied of each shard.
    pub fn applied(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.follower.as_ref().map_or(0, Follower::applied)).collect()
    }

    /// Asks, as a mirror that was so old a moment ago.
    pub fn ask(&mut self, lag_ns: u64) -> u64 {
        self.question += 1;
        let applied = self.applied();
        let asked = FeedAsk { question: self.question, lag_ns, bytes: 1 << 20, reads: 7, applied };
        self.link.push(FeedPart::Ask as u32, 0, &asked.words());
        self.link.flush();
        self.question
    }

    /// Says that these locations of a shard were read.
    pub fn say_used(&mut self, shard: u8, locations: &[u64]) {
        self.link.push(FeedPart::Used as u32, shard, locations);
        self.link.flush();
    }

    /// Takes in what has arrived. `false`: nothing had.
    pub fn turn(&mut self) -> bool {
        self.link.flush();
        let Some(frame) = self.link.receive() else { return false };
        let (shard, words) = (usize::from(frame.shard), frame.words);
        match FeedPart::of(frame.part).expect("a part of a feed") {
            FeedPart::Books => {
                let shard = &mut self.shards[shard];
                assert!(shard.follower.is_none() && self.copied_bytes == 0, "books come first");
                if FeedBooks::gather(&mut shard.books, words).expect("a piece of books") {
                    let books = FeedBooks::of(&shard.books).expect("books");
                    let of = Books::of_words(&books.books).expect("books of a shard");
                    let source = Box::new(PrivateSegments::default());
                    let follower = Follower::of_books(source, MEMORY, (&of, &books.kept), books.sequence);
                    shard.follower = Some(follower.expect("memory"));
                }
            }
            FeedPart::Copy => {
                let follower = self.shards[shard].follower.as_mut().expect("books come first");
                follower.copy(Place(words[0]), &words[1..]);
                self.copied_bytes += (words.len() as u64 - 1) * 8;
            }
            FeedPart::Copied => {
                let [sequence] = *words else { panic!("{} words", words.len()) };
                assert!(self.shards[shard].copied.replace(sequence).is_none(), "copied twice");
            }
            FeedPart::Records => self.shards[shard].records.extend_from_slice(words),
            FeedPart::Cut => {
                let cut = FeedCut::of(words, self.shards.len()).expect("a cut");
                for (shard, sequence) in self.shards.iter_mut().zip(&cut.sequences) {
                    shard.apply(*sequence);
                }
                self.cuts.push(cut);
            }
            FeedPart::UseEpoch => {
                let [epoch] = *words else { panic!("{} words", words.len()) };
                self.epochs.push((shard, epoch));
            }
            FeedPart::Ask | FeedPart::Used => panic!("a primary asks and reads nothing"),
            FeedPart::Lineage => panic!("what is copied is of one lineage"),
            FeedPart::Histories | FeedPart::Placing | FeedPart::Placed | FeedPart::Position => {
                panic!("a mirror is no replica")
            }
        }
        true
    }

    /// Takes in what comes until something holds.
    #[track_caller]
    pub fn until(&mut self, what: &str, holds: impl Fn(&Mirror) -> bool) {
        let reached = self.reach(what, holds);
        assert_eq!(reached, Ok(()), "over while waiting until {what}");
    }

    /// The same, unless the connection is over before: then why that is.
    #[track_caller]
    pub fn reach(&mut self, what: &str, holds: impl Fn(&Mirror) -> bool) -> Result<(), String> {
        let began = Instant::now();
        while !holds(self) {
            if let Some(why) = self.link.over() {
                return Err(why.to_string());
            }
            assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
            if !self.turn() {
                self.link.wait(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Takes in what comes until the connection is over, and tells why that is.
    #[track_caller]
    pub fn until_over(&mut self) -> String {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "it goes on");
            if !self.turn() {
                if let Some(why) = self.link.over() {
                    return why.to_string();
                }
                self.link.wait(Duration::from_millis(20));
            }
        }
    }

    /// Has all that was done until now.
    #[track_caller]
    pub fn catch_up(&mut self) {
        let question = self.ask(0);
        let answers = |mirror: &Mirror| mirror.cuts.last().is_some_and(|cut| cut.question >= question);
        self.until("the question is answered", |mirror| mirror.is_whole() && answers(mirror));
    }

    /// The shards go on here.
    pub fn into_shards(self) -> Vec<Harness> {
        let view = self.view;
        let shards = self.shards.into_iter().enumerate();
        let begun = shards.map(|(number, shard)| {
            let image = ImageConfig {
                image_id: 1,
                hash_seed: view.hash_seed,
                term: 1,
                incarnation: Incarnation::first_of_term(1),
                epoch_ns: EPOCH_NS,
                epoch_ns_usual: EPOCH_NS,
                memory_bytes: MEMORY,
                segment_bytes_first: SEGMENT_BYTES_FIRST,
                segment_bytes_max: SEGMENT_BYTES_MAX,
                keeps_journal: false,
            };
            let (view, view_lease_ns) = (view.clone(), VIEW_LEASE_NS);
            let config = ShardConfig { number, view, image, view_lease_ns, is_cache: false };
            let header = Span::private(Header::BYTES);
            let shard = shard.follower.expect("books").into_shard(config, header.clone()).expect("a shard");
            Harness::of(shard, (header, PrivateSegments::default()), &Mailboxes::default())
        });
        begun.collect()
    }
}

impl Shard {
    /// Applies the records up to one, which have come.
    fn apply(&mut self, sequence: u64) {
        let follower = self.follower.as_mut().expect("books come first");
        let mut rest = &self.records[..];
        while follower.applied() < sequence {
            let (record, behind) = Record::split(rest).expect("records").expect("whole ones up to a cut");
            follower.apply(&record).expect("the next record");
            rest = behind;
        }
        let applied = self.records.len() - rest.len();
        self.records.drain(..applied);
    }
}

/// What a shard has under a key.
pub fn get(shard: &mut Harness, table: TableId, key: &[u8]) -> Option<Vec<u8>> {
    let (mut frame, mut payload) = (FrameBuffer::default(), Vec::new());
    encode_request(&mut frame, RequestHead::new(Op::Get, 7, table), key, &[]);
    shard.send(&mut frame);
    assert!(shard.pop(&mut payload), "an answer at once");
    let reply = Reply::parse(&payload).expect("a reply");
    if reply.head.status == Status::Absent {
        return None;
    }
    Some(ItemView::new(reply.item).expect("an item").body().to_vec())
}
