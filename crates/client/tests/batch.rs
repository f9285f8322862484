//! Batches, against a server in this process.

use std::time::{Duration, Instant};

use kelix::Client;
use kelix_server::{Server, ServerConfig};

/// How often the shard has gone to sleep so far, and so how often it was woken.
fn sleeps(client: &Client) -> u64 {
    let statistics = client.statistics().expect("the server answers");
    let (_, number) = statistics.split_once("\"sleeps\":").expect("it tells");
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// `kelix demo` showed a server that used up to a quarter of a core while nobody sent it anything: a batch that had
/// read all its items by itself rang the shard's bell all the same, and so did a poll without anything to begin.
#[test]
fn a_batch_that_asks_nothing_wakes_nobody() {
    let directory = std::env::temp_dir().join(format!("kelix-batch-{}", std::process::id()));
    let config =
        ServerConfig { directory: directory.clone(), memory_bytes: 64 << 20, ..ServerConfig::default() };
    let server = Server::start(&config).expect("it starts");
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
