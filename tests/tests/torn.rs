//! Reads over verbs while the server's writer changes the same items as fast as it can: every byte of what a
//! get returns is of one version. The same words READ without the checks of the read rule are of several
//! versions now and then, so the checks have something to do.
//!
//! `KELIX_TORN_READS` says how many READs (50,000). Needs a device for RDMA; `make test-verbs` and `make
//! test-verbs-long` give it one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use kelix::{Client, FabricChoice, Path, Session, Table, measure};
use kelix_server::{Server, ServerConfig};
use kelix_tests::process::patient;
use kelix_tests::{Random, RunDir, Watchdog};
use kelix_types::Place;

const KEYS: u64 = 64;
/// Words of a value: a READ of an item is of several packets on most networks.
const WORDS: usize = 1000;
/// Memory that is soon used again.
const MEMORY_BYTES: u64 = 16 << 20;
/// Places of items, also of such as are no more, that are READ without checks.
const PLACES: usize = 2000;
/// Torn READs that are enough to believe that there are some.
const TORN: u64 = 10;

/// Each word of a value tells whose it is, of which version, and where it stands.
fn word(key: u64, version: u64, at: usize) -> u64 {
    key << 48 | (version & 0xffff_ffff) << 16 | at as u64
}

fn value(key: u64, version: u64) -> Vec<u8> {
    (0..WORDS).flat_map(|at| word(key, version, at).to_le_bytes()).collect()
}

/// The version of a value of a key, if all of it is of one.
fn version(key: u64, bytes: &[u8]) -> Option<u64> {
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let version = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?) >> 16 & 0xffff_ffff;
    let whole = words.enumerate().all(|(at, found)| found == word(key, version, at));
    (whole && bytes.len() == WORDS * 8).then_some(version)
}

/// How the words of a place contradict each other: words of values that tell their place and are of two
/// versions or keys.
fn is_torn(words: &[u64]) -> bool {
    let begins = words
        .windows(3)
        .position(|three| [0, 1, 2] == [three[0], three[1], three[2]].map(|word| word & 0xffff));
    let Some(first) = begins.filter(|first| words.len() - first >= WORDS) else { return false };
    let of_value = words[first..first + WORDS].iter().enumerate();
    let told: Vec<u64> =
        of_value.filter(|(at, word)| **word & 0xffff == *at as u64).map(|(_, word)| word >> 16).collect();
    // Of a place that holds something else nothing is said.
    told.len() == WORDS && told.iter().any(|of| *of != told[0])
}

/// Ends the writer also when a reader has panicked.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn write(client: &Client, over: &AtomicBool) -> u64 {
    let mut session = client.session_with(patient()).unwrap();
    let table = session.create_table("t").unwrap();
    let (mut random, mut versions, mut writes) = (Random(1), vec![0; KEYS as usize], 0);
    while !over.load(Ordering::Relaxed) {
        let batch: Vec<([u8; 8], Vec<u8>)> = (0..16)
            .map(|_| {
                let key = random.below(KEYS);
                versions[key as usize] += 1;
                (key.to_le_bytes(), value(key, versions[key as usize]))
            })
            .collect();
        let items: Vec<(&[u8], &[u8])> = batch.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let puts = session.multi_put(table, &items).unwrap();
        writes += puts.into_iter().map(kelix::Result::unwrap).count() as u64;
    }
    writes
}

/// A session over verbs, and the table, once all keys are there.
fn reader(client: &Client, path: Path) -> (Session, Table) {
    let options = patient().fabric(FabricChoice::Verbs).path(path);
    let mut session = client.session_with(options).expect("a device for RDMA");
    assert_eq!(session.fabric(), "verbs");
    let table = session.create_table("t").unwrap();
    let mut buffer = vec![0; WORDS * 8];
    for key in 0..KEYS {
        while session.get_into(table, &key.to_le_bytes(), &mut buffer).unwrap().is_none() {}
    }
    (session, table)
}

/// Gets until so many READs are made, and verifies every byte. Returns how many gets.
fn read_and_verify(client: &Client, path: Path, reads: u64) -> (u64, Session) {
    let (mut session, table) = reader(client, path);
    let (mut random, mut seen, mut gets) = (Random(2), vec![0; KEYS as usize], 0);
    let mut buffer = vec![0; WORDS * 8];
    while session.cost().reads < reads {
        let key = random.below(KEYS);
        let (bytes, _) =
            session.get_into(table, &key.to_le_bytes(), &mut buffer).unwrap().expect("never deleted");
        let Some(version) = version(key, &buffer[..bytes]) else {
            panic!("get {gets} of key {key}: a value of several versions: {:x?}", &buffer[..64]);
        };
        let seen = &mut seen[key as usize];
        assert!(version >= *seen, "key {key}: version {version} after {seen}");
        *seen = version;
        gets += 1;
    }
    (gets, session)
}

/// READs places without checks, until some were torn. Returns how many READs that took, and how many were
/// torn.
fn read_unchecked(client: &Client, reads_max: u64) -> (u64, u64) {
    let (mut session, table) = reader(client, Path::Index);
    let (mut random, mut places) = (Random(3), VecDeque::<Place>::new());
    let (mut reads, mut torn) = (0, 0);
    let (mut buffer, mut words) = (vec![0; WORDS * 8], vec![0; WORDS + 16]);
    while reads < reads_max && torn < TORN {
        if reads % 16 == 0 {
            let key = random.below(KEYS);
            session.get_into(table, &key.to_le_bytes(), &mut buffer).unwrap();
            places.extend(measure::last_place(&session));
            places.drain(..places.len().saturating_sub(PLACES));
        }
        // The last place of a segment has fewer words than are asked for.
        let place = places[random.below(places.len() as u64) as usize];
        torn += u64::from(measure::read_unchecked(&mut session, 0, place, &mut words) && is_torn(&words));
        reads += 1;
    }
    (reads, torn)
}

#[test]
fn no_get_over_verbs_is_torn_and_unchecked_reads_are() {
    let reads = std::env::var("KELIX_TORN_READS").map_or(50_000, |reads| reads.parse().expect("a number"));
    let rdma = std::env::var("KELIX_RDMA_ADDRESS").unwrap_or("192.168.77.1".into());
    let _watchdog = Watchdog::new("torn", std::time::Duration::from_secs(60 + reads / 100));
    let run = RunDir::new();
    let config = ServerConfig {
        directory: run.path().into(),
        memory_bytes: MEMORY_BYTES,
        pin: false,
        listen: Some((std::net::Ipv4Addr::LOCALHOST, 0).into()),
        rdma: vec![(rdma.parse::<std::net::IpAddr>().expect("an address"), 0).into()],
        ..ServerConfig::default()
    };
    let server = Server::start(&config).expect("a device for RDMA");
    let client = Client::connect(run.path()).unwrap();
    let over = AtomicBool::new(false);
    let (writes, gets, (unchecked, torn)) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&client, &over));
        let ended = Over(&over);
        let begun = std::time::Instant::now();
        let mut gets = 0;
        for path in [Path::Pointer, Path::Index] {
            let (these, session) = read_and_verify(&client, path, reads / 2);
            eprintln!("{path:?}: {these} gets, {:?}", session.cost());
            gets += these;
        }
        eprintln!("{reads} READs verified in {:?}", begun.elapsed());
        let torn = read_unchecked(&client, 10 * reads);
        drop(ended);
        (writer.join().unwrap(), gets, torn)
    });
    server.stop();
    println!(
        "{reads} READs, {gets} gets verified beside {writes} puts: none torn; unchecked: {torn} of {unchecked}"
    );
    assert!(gets > 0 && writes > 0);
    assert!(torn > 0, "READs without checks were never torn: nothing was tried");
}
