//! Models of absence (docs/read-rule.md, "Absence"): while the shard of production moves a key between its
//! two buckets, nobody takes it for absent.

use std::sync::{Arc, OnceLock};

use kelix_image::model::{explore, share, spawn};
use kelix_image::{MemoryMap, header_word};
use kelix_index::{BUCKET_WORDS, DirectoryRoot, alternate, names_none};
use kelix_shard::harness::Harness;
use kelix_types::{KeyHash, Place, TableId, key_hash};
use kelix_wire::mailboxes::Mailboxes;
use kelix_wire::{Op, RequestHead, Status};

const TABLE: TableId = TableId(1);
/// Slots of a bucket.
const SLOTS: usize = BUCKET_WORDS - 1;
/// Keys that are looked through for such as meet in a bucket.
const KEYS: u64 = 100_000;

type Key = [u8; 8];

fn hash(key: Key) -> KeyHash {
    key_hash(Harness::SEED, TABLE, &key)
}

/// Keys that fill three buckets of a store, in the order in which they are put.
struct Keys {
    /// The key that is read, which stands in its main bucket, and six more of that bucket.
    of_main: [Key; SLOTS],
    /// Keys that fill the alternate bucket of `comes`.
    of_other: Vec<Key>,
    /// One of the main bucket, for which there is room only where the first one goes away.
    comes: Key,
    /// Keys that fill what is then left of the bucket to which the first one went.
    of_refuge: Vec<Key>,
    /// Keys that fill the alternate bucket of `sends_home`.
    of_last: Vec<Key>,
    /// One of the bucket to which the first one went, for which there is room only where that comes home.
    sends_home: Key,
}

/// Finds such keys: buckets in which they meet must be three others.
fn keys() -> &'static Keys {
    static KEYS_FOUND: OnceLock<Keys> = OnceLock::new();
    KEYS_FOUND.get_or_init(|| {
        let mut of_bucket: Vec<Vec<Key>> = vec![Vec::new(); kelix_index::BUCKETS];
        (0..KEYS).map(u64::to_le_bytes).for_each(|key| of_bucket[hash(key).bucket()].push(key));
        let main = 0;
        let of_main: [Key; SLOTS] = of_bucket[main][..SLOTS].try_into().expect("as many");
        let other_of = |key: Key| alternate(hash(key).bucket(), hash(key).signature());
        let refuge = other_of(of_main[0]);
        let comes = of_bucket[main][SLOTS..].iter().copied().find(|key| other_of(*key) != refuge);
        let comes = comes.expect("one of so many");
        let other = other_of(comes);
        let is_free = |bucket| ![main, refuge, other].contains(&bucket);
        let sends_home = of_bucket[refuge][SLOTS..].iter().copied().find(|key| is_free(other_of(*key)));
        let sends_home = sends_home.expect("one of so many");
        Keys {
            of_main,
            of_other: of_bucket[other][..SLOTS].to_vec(),
            comes,
            of_refuge: of_bucket[refuge][..SLOTS - 1].to_vec(),
            of_last: of_bucket[other_of(sends_home)][..SLOTS].to_vec(),
            sends_home,
        }
    })
}

fn put(server: &mut Harness, key: Key) {
    let reply = server.call(RequestHead::new(Op::Put, 0, TABLE), &key, b"a value.");
    assert_eq!(reply.status, Status::Ok);
}

/// Who looks whether the key is absent.
struct Reader {
    map: Arc<MemoryMap>,
    subtable: Place,
    hash: KeyHash,
}

impl Reader {
    fn new(server: &Harness, key: Key) -> Reader {
        let map = server.map();
        let root = DirectoryRoot::from_word(server.header().words().load(header_word::DIRECTORY));
        let entry = map.words(root.expect("a root").first_entry(), 1).expect("a directory").load(0);
        Reader { map, subtable: Place(entry), hash: hash(key) }
    }

    fn place(&self, bucket: usize) -> Place {
        self.subtable.plus((bucket * BUCKET_WORDS * 8) as u64)
    }

    /// Names the words that change under a reader.
    fn share(&self) {
        for bucket in [self.hash.bucket(), alternate(self.hash.bucket(), self.hash.signature())] {
            share(self.map.words(self.place(bucket), BUCKET_WORDS).expect("a bucket"));
        }
    }

    fn is_absent(&self) -> bool {
        names_none(self.map.view(), self.hash, |bucket| Some(self.place(bucket)))
    }

    /// Whether the key stands in its main bucket.
    fn is_home(&self) -> bool {
        let main = self.map.words(self.place(self.hash.bucket()), BUCKET_WORDS).expect("a bucket");
        main.find_upper_quarter(self.hash.signature()).is_some()
    }
}

/// Lets one thread put a key while another looks whether one that is there all the time is absent, and then
/// whether that stands in its main bucket.
fn race(mut server: Harness, reader: Reader, key: Key) -> (bool, bool) {
    let writer = spawn(move || {
        put(&mut server, key);
        server
    });
    let looks = spawn(move || (reader.is_absent(), reader.is_home()));
    let server = writer.join().unwrap();
    let seen = looks.join().unwrap();
    server.wipe();
    assert!(!seen.0, "the key was there all the time");
    seen
}

/// A key goes away from its main bucket, since another one needs its slot.
#[test]
fn a_key_goes_away() {
    let (mailboxes, keys) = (Mailboxes::new(), keys());
    explore("a look for a key that goes to its alternate bucket", 3, move || {
        let mut server = Harness::new(1, &mailboxes);
        keys.of_main.iter().chain(&keys.of_other).for_each(|key| put(&mut server, *key));
        let reader = Reader::new(&server, keys.of_main[0]);
        assert!(reader.is_home() && !reader.is_absent());
        reader.share();
        race(server, reader, keys.comes)
    });
}

/// A key comes home to its main bucket, since another one needs its slot.
#[test]
fn a_key_comes_home() {
    let (mailboxes, keys) = (Mailboxes::new(), keys());
    explore("a look for a key that comes home to its main bucket", 3, move || {
        let mut server = Harness::new(1, &mailboxes);
        keys.of_main.iter().chain(&keys.of_other).for_each(|key| put(&mut server, *key));
        put(&mut server, keys.comes);
        let reader = Reader::new(&server, keys.of_main[0]);
        assert!(!reader.is_home() && !reader.is_absent());
        keys.of_refuge.iter().chain(&keys.of_last).for_each(|key| put(&mut server, *key));
        let reply = server.call(RequestHead::new(Op::Delete, 0, TABLE), &keys.of_main[1], &[]);
        assert_eq!(reply.status, Status::Ok);
        reader.share();
        race(server, reader, keys.sends_home)
    });
}
