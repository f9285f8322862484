//! Models of the read rule where loads are ordered (docs/read-rule.md, Lemma 5): the shard of production
//! writes, the client's reads in straight form look on. What they take is a value that the key had meanwhile,
//! whole, and never an older one than before.

use kelix_fabric::Direct;
use kelix_image::model::{explore, share, spawn};
use kelix_image::words::Words;
use kelix_image::{Header, PlainItem, Span, header_word};
use kelix_index::{BUCKET_WORDS, DirectoryRoot, guess};
use kelix_shard::harness::Harness;
use kelix_types::{KeyHash, Location, Place, TableId, key_hash};
use kelix_wire::mailboxes::Mailboxes;
use kelix_wire::{Op, RequestHead};

use crate::read::{Watermark, take_direct};

const TABLE: TableId = TableId(1);
/// The key that is read, and one that stands in another bucket.
const KEY: [u8; 8] = *b"the key.";
const OTHER: [u8; 8] = *b"another.";
/// Guardian, header word, key, value.
const ITEM_WORDS: usize = 4;

/// A value of the one word that each has here.
fn value(number: u64) -> [u8; 8] {
    (number << 32 | number).to_le_bytes()
}

fn put(server: &mut Harness, key: &[u8; 8], number: u64) -> Place {
    let reply = server.call(RequestHead::new(Op::Put, 0, TABLE), key, &value(number));
    Location::from_word(reply.location).expect("where it stands").place()
}

/// Who reads the key, as `Transport::read_direct` does.
struct Reader {
    direct: Direct,
    bucket: Place,
    hash: KeyHash,
}

impl Reader {
    /// A reader of what the shard has in memory now.
    fn new(server: &Harness, authority: &Span) -> Reader {
        let map = server.map();
        let hash = key_hash(Harness::SEED, TABLE, &KEY);
        let header = Header::open(server.header().clone()).expect("a header page");
        let direct = Direct::new(map.clone(), &header, authority.word(0));
        // A directory of one subtable: its only entry follows its guardian.
        let root = DirectoryRoot::from_word(server.header().words().load(header_word::DIRECTORY));
        let entry = map.words(root.expect("a root").first_entry(), 1).expect("a directory").load(0);
        Reader { direct, bucket: Place(entry).plus(hash.bucket() as u64 * 64), hash }
    }

    fn bucket(&self) -> Words<'_> {
        self.direct.map.words(self.bucket, BUCKET_WORDS).expect("a bucket")
    }

    /// The number of the value that is read.
    fn read(&self) -> Option<u64> {
        let slot = guess(self.bucket(), self.hash)?;
        let place = self.direct.map.view().words_from(Location::place_of(slot))?;
        let mut bytes = [0; 8];
        let copy = |item: PlainItem<'_>| item.copy_value(&mut bytes);
        take_direct((&self.direct, &Watermark::new(false)), Harness::TERM, place, (TABLE, &KEY), copy)?;
        let word = u64::from_le_bytes(bytes);
        assert_eq!(bytes, value(word >> 32), "a value that nobody wrote");
        Some(word >> 32)
    }

    /// Names the words that change under a reader: the epoch, the key's bucket, and the items at these
    /// places.
    fn share(&self, places: &[Place]) {
        let epoch = self.direct.epoch.words();
        share(epoch);
        share(self.bucket());
        places.iter().for_each(|place| share(self.item(*place)));
    }

    fn item(&self, place: Place) -> Words<'_> {
        self.direct.map.words(place, ITEM_WORDS).expect("a slot")
    }
}

fn authority(term: u64) -> Span {
    let page = Span::private(64);
    page.words().store(0, term);
    page
}

/// Lets one thread do something to the server while another reads; what that has seen.
fn race<T: Send + 'static>(
    mut server: Harness,
    write: impl FnOnce(&mut Harness) + Send + 'static,
    read: impl FnOnce() -> T + Send + 'static,
) -> T {
    let writer = spawn(move || {
        write(&mut server);
        server
    });
    let reader = spawn(read);
    let server = writer.join().unwrap();
    let seen = reader.join().unwrap();
    server.wipe();
    seen
}

/// The value is replaced by one in a slot where an older value of the same key stood. Of two reads the second
/// never finds what was before the first one's.
#[test]
fn a_value_is_replaced() {
    let mailboxes = Mailboxes::new();
    explore("reads of a value that is replaced", 3, move || {
        let mut server = Harness::new(1, &mailboxes);
        let older = put(&mut server, &KEY, 1);
        let old = put(&mut server, &KEY, 2);
        server.pass_epoch();
        server.pass_epoch();
        let reader = Reader::new(&server, &authority(Harness::TERM));
        reader.share(&[older, old]);
        let seen = race(
            server,
            move |server| assert_eq!(put(server, &KEY, 3), older, "its slot is used again"),
            move || (reader.read(), reader.read()),
        );
        for read in [seen.0, seen.1].into_iter().flatten() {
            assert!(read == 2 || read == 3, "{seen:?}: over before the reads began");
        }
        assert!(seen != (Some(3), Some(2)), "an older value after a newer one");
        seen
    });
}

/// The value is replaced, and once its quarantine has passed its slot gets a value of another key, while a
/// read may still look at it.
#[test]
fn a_slot_is_used_again() {
    let mailboxes = Mailboxes::new();
    explore("a read of a slot that is used again", 4, move || {
        let mut server = Harness::new(1, &mailboxes);
        let old = put(&mut server, &KEY, 1);
        let reader = Reader::new(&server, &authority(Harness::TERM));
        // Fresh memory is used in order.
        let new = old.plus(ITEM_WORDS as u64 * 8);
        reader.share(&[old, new]);
        let write = move |server: &mut Harness| {
            assert_eq!(put(server, &KEY, 2), new);
            server.pass_epoch();
            server.pass_epoch();
            assert_eq!(put(server, &OTHER, 3), old, "its quarantine has passed");
        };
        let seen = race(server, write, move || reader.read());
        assert!(seen.is_none_or(|seen| seen == 1 || seen == 2), "{seen:?}: a value of another key");
        seen
    });
}

/// A server is superseded, and its successor answers somebody. Who has heard of that answer takes nothing
/// from the old image any more.
#[test]
fn a_server_is_superseded() {
    let mailboxes = Mailboxes::new();
    explore("a read of an image that is superseded", 4, move || {
        let mut server = Harness::new(1, &mailboxes);
        put(&mut server, &KEY, 1);
        let (page, answer) = (authority(Harness::TERM), Span::private(64));
        let reader = Reader::new(&server, &page);
        share(page.words().part(0, 1));
        share(answer.words().part(0, 1));
        let answered = answer.clone();
        let succeed = move |_: &mut Harness| {
            // As `Authority::take` does.
            page.words().add(0, 1);
            answered.words().publish(0, 1);
        };
        let read = move || (answer.words().load_acquire(0) == 1, reader.read());
        let (heard, seen) = race(server, succeed, read);
        assert!(!heard || seen.is_none(), "a value of an image that was superseded");
        (heard, seen)
    });
}
