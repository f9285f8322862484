//! Batches, against a server in this process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kelix::{Client, FabricChoice, NewItem, Outcome, Path, SessionOptions, TableKind, Values};
use kelix_server::{Server, ServerConfig};

fn serve(test: &str) -> (PathBuf, Server) {
    let directory = std::env::temp_dir().join(format!("kelix-batch-{test}-{}", std::process::id()));
    let config =
        ServerConfig { directory: directory.clone(), memory_bytes: 64 << 20, ..ServerConfig::default() };
    let server = Server::start(&config).expect("it starts");
    (directory, server)
}

/// How often the shard has gone to sleep so far, and so how often it was woken.
fn sleeps(client: &Client) -> u64 {
    client.statistics().expect("the server answers").shards[0].sleeps
}

/// `kelix demo` showed a server that used up to a quarter of a core while nobody sent it anything: a batch
/// that had read all its items by itself rang the shard's bell all the same, and so did a poll without
/// anything to begin.
#[test]
fn a_batch_that_asks_nothing_wakes_nobody() {
    let (directory, server) = serve("asks-nothing");
    let client = Client::connect(&directory).expect("it answers");
    let mut session = client.session().expect("it answers");
    let table = session.create_table("t").expect("there is room");
    session.put(table, b"k", b"v").expect("there is room");
    let keys = [&b"k"[..]; 8];
    session.multi_get(table, &keys).expect("it is there");

    const BATCHES: u64 = 400;
    let (messages, before) = (session.cost().messages, sleeps(&client));
    for _ in 0..BATCHES {
        let items = session.multi_get(table, &keys).expect("they are there");
        assert!(items.iter().all(Option::is_some));
        session.poll(&mut Vec::new()).expect("nothing to do");
        // Long enough for the shard to fall asleep again, if the batch has woken it.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1) {
            std::thread::yield_now();
        }
    }
    assert_eq!(session.cost().messages, messages);
    let woken = sleeps(&client) - before;
    assert!(woken < BATCHES / 10, "woken {woken} times by {BATCHES} batches that sent nothing");
    server.stop();
    let _ = std::fs::remove_dir_all(directory);
}

#[test]
fn submitted_items_have_their_attributes_and_links() {
    const ITEMS: usize = 300;
    let (directory, server) = serve("items");
    let client = Client::connect(&directory).expect("it answers");
    let mut session = client.session().expect("it answers");
    let table = session.create_table("t").expect("there is room");
    let mut tickets = Vec::new();
    for number in 0..ITEMS {
        let mut item = NewItem::new();
        item = item.bytes("number", number.to_string().as_bytes());
        if number > 0 {
            item = item.link("before", table, (number - 1).to_string().as_bytes());
        }
        let key = number.to_string();
        tickets.push(session.submit_item(table, key.as_bytes(), &item).expect("it is short"));
    }
    // A plain item takes another way through the library, a large one yet another.
    let large = vec![7; 3 << 20];
    tickets.push(session.submit_item(table, b"large", &NewItem::new().bytes("", &large)).expect("it fits"));
    tickets.push(session.submit_item(table, b"empty", &NewItem::new()).expect("it is short"));

    let mut completions = Vec::new();
    let began = Instant::now();
    while session.outstanding() > 0 {
        session.poll(&mut completions).expect("the server is there");
        assert!(began.elapsed() < Duration::from_secs(60), "{} never end", session.outstanding());
        std::thread::yield_now();
    }
    for completion in &completions {
        assert!(matches!(completion.outcome, Ok(Outcome::Written(_))), "{completion:?}");
    }
    let mut ended: Vec<_> = completions.iter().map(|completion| completion.ticket).collect();
    ended.sort_unstable();
    assert_eq!(ended, tickets, "each of them once");

    let mut item = session.get(table, (ITEMS - 1).to_string().as_bytes()).expect("read").expect("put");
    for number in (0..ITEMS - 1).rev() {
        item = session.follow(&item, "before").expect("read").expect("put");
        assert_eq!(item.bytes("number"), Some(number.to_string().as_bytes()));
    }
    assert_eq!(session.get(table, b"large").expect("read").expect("put").value(), large);
    assert_eq!(session.get(table, b"empty").expect("read").expect("put").value(), b"");
    server.stop();
    let _ = std::fs::remove_dir_all(directory);
}

/// More than are under way at once, of gets and of puts, whatever way the gets take.
#[test]
fn a_batch_of_any_length_gets_and_puts() {
    const ITEMS: u64 = 1500;
    let (directory, server) = serve("long");
    let client = Client::connect(&directory).expect("it answers");
    let mut session = client.session().expect("it answers");
    let table = session.create_table("t").expect("there is room");
    let key = |round: u64, number: u64| format!("{round} {number}").into_bytes();
    let mut values = Values::new();
    for (round, path) in
        [Path::Auto, Path::Auto, Path::Index, Path::Pointer, Path::Message].into_iter().enumerate()
    {
        session.set_path(path);
        let round = round as u64;
        let wanted: Vec<Vec<u8>> =
            (0..2 * ITEMS).map(|number| key(round.saturating_sub(1), number / 2)).collect();
        let wanted: Vec<&[u8]> = wanted.iter().map(|key| &key[..]).collect();
        // A few of them are large.
        let value =
            |number: u64| vec![round as u8; if number % 500 == 3 { 40_000 } else { number as usize % 90 }];
        let items: Vec<(Vec<u8>, Vec<u8>)> =
            (0..ITEMS).map(|number| (key(round, number), value(number))).collect();
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let results = session.multi_get_put(table, &wanted, &mut values, &items).expect("it answers");
        assert_eq!((results.len(), values.len()), (items.len(), wanted.len()));
        for (result, (key, value)) in results.into_iter().zip(&items) {
            let item = session.get(table, key).expect("it answers").expect("it was put");
            assert_eq!((item.version(), item.value()), (result.expect("there is room"), *value));
        }
        for (index, number) in (0..2 * ITEMS).map(|index| (index as usize, index / 2)) {
            let bytes = values.get(index).map(|value| (value.len(), value.first().copied()));
            // In the first round the same keys are put, and there or not there yet.
            let before = value(number);
            let before = (before.len(), before.first().map(|_| round.saturating_sub(1) as u8));
            assert!(bytes == Some(before) || round == 0 && bytes.is_none(), "{round} {number}: {bytes:?}");
        }
    }
    server.stop();
    let _ = std::fs::remove_dir_all(directory);
}

/// Batches that ask the shard for more keys than are asked for at once stood still when the first had been
/// answered.
#[test]
fn batches_of_all_lengths_are_read_along_all_paths() {
    let directory = std::env::temp_dir().join(format!("kelix-batch-paths-{}", std::process::id()));
    let config = ServerConfig {
        directory: directory.clone(),
        memory_bytes: 64 << 20,
        listen: Some("127.0.0.1:0".parse().expect("an address")),
        ..ServerConfig::default()
    };
    let server = Server::start(&config).expect("it starts");
    let client = Client::connect(&directory).expect("it answers");
    for kind in TableKind::ALL {
        let name = kind.to_string();
        let mut writer = client.session().expect("it answers");
        let table = writer.create_table_of(kind, &name).expect("there is room");
        for number in 0..1000u64 {
            writer.put(table, number, &number.to_le_bytes()).expect("there is room");
        }
        for fabric in [FabricChoice::Shm, FabricChoice::Tcp] {
            for path in [Path::Auto, Path::Index, Path::Pointer, Path::Message] {
                let options = SessionOptions::default().path(path).fabric(fabric).private_caches(true);
                let mut session = client.session_with(options).expect("it answers");
                let table = session.table(&name).expect("just made");
                let mut values = Values::new();
                for length in [1, 64, 65, 200, 1500] {
                    // One in three is not there.
                    let numbers: Vec<u64> = (0..length).map(|at| at * 7 % 1500).collect();
                    let keys: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_be_bytes()).collect();
                    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                    session.multi_get_into(table, &keys, &mut values).expect("it answers");
                    for (index, number) in numbers.iter().enumerate() {
                        let value = number.to_le_bytes();
                        let wanted = (*number < 1000).then_some(&value[..]);
                        assert_eq!(values.get(index), wanted, "{kind} {fabric:?} {path:?} {length} {number}");
                    }
                }
            }
        }
    }
    server.stop();
    let _ = std::fs::remove_dir_all(directory);
}
