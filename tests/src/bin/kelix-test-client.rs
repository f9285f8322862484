//! Clients for the tests, which check what they read and can be stopped and killed.
//!
//! `kelix-test-client read DIRECTORY TABLE KEYS SEED` reads keys 0 to KEYS - 1, and the links to them in
//! table `links`, over and over, and checks: each is there, each value proves itself, and no key's counter
//! ever goes back. It prints `reading` when it has read each key, and ends with `read GETS retries RETRIES
//! reads READS` when its input ends.
//!
//! `kelix-test-client churn DIRECTORY TABLE SEED` puts values of all sizes, several at once, until it is
//! killed. It prints `churning` when it has begun.
//!
//! `kelix-test-client hoard DIRECTORY TABLE KEYS GETS` prints `ready`; told a line, it submits so many gets
//! by message of keys 0 to KEYS - 1 and prints `posted`; told another, it takes the answers, checks them and
//! prints `took GETS`.
//!
//! `kelix-test-client crowd DIRECTORY TABLE FIRST COUNT ROUND` opens so many sessions, every second one over
//! the fabric that is not shared memory, each with a key of its own, FIRST and on. From ROUND on it puts the
//! round's number under each, gets it back, and prints `round ROUND` when all have it, until it is killed.
//!
//! `kelix-test-client cramped DIRECTORY TABLE KEYS` prints `ready`; told a line, it gets keys 0 to KEYS - 1,
//! opens another session, and prints `got GETS failed TIMES session ok` or an error in place of `ok`, then
//! `last` and the last get's error.
//!
//! `kelix-test-client idle DIRECTORY TABLE` opens a session, reads once and prints `idle`.
//!
//! `kelix-test-client rest DIRECTORY kinds SESSIONS` opens so many sessions, reads tables of all kinds in
//! each and prints `resting`; told a number, it reads all again, which must have that counter, and prints
//! `read ok` or the kind of an error.
//!
//! `kelix-test-client stream DIRECTORY kinds` reads in batches, so many keys at once that the session seldom
//! looks around, and checks that no counter goes back below what all had before. It prints `streaming`, and
//! `streamed BATCHES` when its input ends.
//!
//! `kelix-test-client fork DIRECTORY TABLE` forks over and over with a session that works. The child wants to
//! be refused by what it inherits, and drops it; the parent goes on meanwhile, and prints `forked ok`.
//!
//! Given a server's address over TCP in place of its directory, a client insists on the fabric that is not
//! shared memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kelix::{
    Address, Client, ErrorKind, FabricChoice, Frontier, Item, NewTable, Outcome, Path, Scan, Session,
    SessionOptions, Table, TableKind, Values,
};
use kelix_tests::kinds::Kinds;
use kelix_tests::process::patient;
use kelix_tests::{Random, client_at, far, session_over, value};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, directory, table, rest @ ..] = &arguments[..] else { panic!("see the source") };
    let server = Server::new(directory.parse().expect("an address"));
    let numbers: Vec<u64> = rest.iter().map(|number| number.parse().expect("a number")).collect();
    match (mode.as_str(), &numbers[..]) {
        ("read", [keys, seed]) => Reader::new(&server, table, *keys, *seed).run(),
        ("churn", [seed]) => churn(&server, table, *seed),
        ("hoard", [keys, gets]) => hoard(&server, table, *keys, *gets),
        ("crowd", [first, count, round]) => crowd(&server, table, *first, *count, *round),
        ("cramped", [keys]) => cramped(&server, table, *keys),
        ("idle", []) => {
            let mut session = server.session(patient());
            let table = session.table(table).expect("a table");
            session.get(table, b"no such key").expect("an answer");
            println!("idle");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        ("rest", [sessions]) => rest_between(&server, *sessions),
        ("stream", []) => stream(&server),
        ("fork", []) => fork(&server, table),
        _ => panic!("see the source"),
    }
}

/// Where the sessions of a client lead to.
struct Server {
    client: Client,
    fabric: FabricChoice,
}

impl Server {
    fn new(address: Address) -> Server {
        let client = client_at(&address);
        let fabric = if matches!(address, Address::Tcp(_)) { far() } else { FabricChoice::Shm };
        Server { client, fabric }
    }

    fn session(&self, options: SessionOptions) -> Session {
        session_over(self.fabric, &self.client, options)
    }
}

/// A flag that is set when the input ends.
fn end_of_input() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = flag.clone();
    std::thread::spawn(move || {
        while std::io::stdin().read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0) {}
        set.store(true, Ordering::Relaxed);
    });
    flag
}

struct Reader {
    session: Session,
    table: Table,
    links: Table,
    random: Random,
    /// The highest counter seen of each key.
    seen: Vec<u64>,
    gets: u64,
}

impl Reader {
    fn new(server: &Server, table: &str, keys: u64, seed: u64) -> Reader {
        let options = patient().private_caches(seed % 2 == 0);
        let mut session = server.session(options);
        let table = session.table(table).expect("a table");
        let links = session.table("links").expect("a table");
        Reader { session, table, links, random: Random(seed), seen: vec![0; keys as usize], gets: 0 }
    }

    fn run(mut self) {
        let stop = end_of_input();
        for key in 0..self.seen.len() as u64 {
            self.get(key);
        }
        println!("reading");
        let mut values = Values::new();
        let mut buffer = vec![0; 8 << 20];
        while !stop.load(Ordering::Relaxed) {
            let path = [Path::Auto, Path::Pointer, Path::Index, Path::Pointer, Path::Index, Path::Message]
                [self.random.below(6) as usize];
            self.session.set_path(path);
            // By message it is the shard that is tested, and that takes long.
            let rounds = if path == Path::Message { 10 } else { 100 };
            for _ in (0..rounds).take_while(|_| !stop.load(Ordering::Relaxed)) {
                self.look(&mut values, &mut buffer);
            }
        }
        let cost = self.session.cost();
        println!("read {} retries {} reads {}", self.gets, cost.retries, cost.reads);
    }

    fn some_key(&mut self) -> u64 {
        self.random.below(self.seen.len() as u64)
    }

    fn look(&mut self, values: &mut Values, buffer: &mut [u8]) {
        let key = self.some_key();
        match self.random.below(8) {
            0..=2 => self.get(key),
            3..=4 => {
                let found = self.session.get_into(self.table, &key.to_le_bytes(), buffer).expect("a get");
                let (length, _) = found.unwrap_or_else(|| panic!("key {key} is reported absent"));
                self.check(key, &buffer[..length]);
            }
            5 => self.get_many(values),
            6 => self.follow(key),
            _ => self.get_many_items(),
        }
    }

    fn get(&mut self, key: u64) {
        let item = self.session.get(self.table, &key.to_le_bytes()).expect("a get");
        self.check_item(key, item.as_ref());
    }

    /// Different keys: the operations of one batch have no order, so only one of them may ask for a key.
    fn keys(&mut self) -> Vec<[u8; 8]> {
        let count = self.random.below(100);
        let mut keys: Vec<u64> = (0..count).map(|_| self.some_key()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().map(u64::to_le_bytes).collect()
    }

    fn get_many(&mut self, values: &mut Values) {
        let keys = self.keys();
        let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        self.session.multi_get_into(self.table, &slices, values).expect("a batch");
        for (index, key) in keys.iter().enumerate() {
            let key = u64::from_le_bytes(*key);
            let value = values.get(index).unwrap_or_else(|| panic!("key {key} is reported absent"));
            self.check(key, value);
        }
    }

    fn get_many_items(&mut self) {
        let keys = self.keys();
        let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let items = self.session.multi_get(self.table, &slices).expect("a batch");
        for (key, item) in keys.iter().zip(&items) {
            self.check_item(u64::from_le_bytes(*key), item.as_ref());
        }
    }

    /// Follows the links of item `key` of the links' table, which lead to `key` and its two neighbours.
    fn follow(&mut self, key: u64) {
        let source = self.session.get(self.links, &key.to_le_bytes()).expect("a get");
        let source = source.unwrap_or_else(|| panic!("link {key} is reported absent"));
        let count = self.seen.len() as u64;
        let targets = self.session.follow_all(&source, "to").expect("links to follow");
        for (step, target) in targets.iter().enumerate() {
            self.check_item((key + step as u64) % count, target.as_ref());
        }
    }

    fn check_item(&mut self, key: u64, item: Option<&Item>) {
        let item = item.unwrap_or_else(|| panic!("key {key} is reported absent"));
        assert_eq!(item.key(), key.to_le_bytes(), "an item of another key");
        self.check(key, item.value());
    }

    fn check(&mut self, key: u64, bytes: &[u8]) {
        let counter = value::check(key, bytes).unwrap_or_else(|what| panic!("a wrong read: {what}"));
        let seen = &mut self.seen[key as usize];
        assert!(counter >= *seen, "key {key} went back from {seen} to {counter}");
        *seen = counter;
        self.gets += 1;
    }
}

fn churn(server: &Server, table: &str, seed: u64) {
    let mut session = server.session(patient());
    let table = session.table(table).expect("a table");
    let mut random = Random(seed);
    let mut completions = Vec::new();
    println!("churning");
    loop {
        for _ in 0..200 {
            let key = random.below(1000);
            let bytes = value::make(key, seed, random.below(3000) as usize);
            session.submit_put(table, &key.to_le_bytes(), &bytes).expect("submitted");
        }
        session.poll(&mut completions).expect("a poll");
        let key = 1000 + seed;
        let bytes = value::make(key, seed, (1 << 20) + random.below(3 << 20) as usize);
        session.put(table, &key.to_le_bytes(), &bytes).expect("a large put");
        session.poll(&mut completions).expect("a poll");
        completions.clear();
    }
}

fn crowd(server: &Server, table: &str, first: u64, count: u64, round: u64) {
    let open = |key: u64| {
        let mut session =
            session_over(if key % 2 == 0 { FabricChoice::Shm } else { far() }, &server.client, patient());
        let table = session.table(table).expect("a table");
        (key, session, table)
    };
    let mut sessions: Vec<(u64, Session, Table)> = (first..first + count).map(open).collect();
    for round in round.. {
        for (key, session, table) in &mut sessions {
            let bytes = value::make(*key, round, 100 + (*key * 37 + round) as usize % 3000);
            session.put(*table, &key.to_le_bytes(), &bytes).expect("a put");
            let item = session.get(*table, &key.to_le_bytes()).expect("a get").expect("just put");
            assert_eq!(value::check(*key, item.value()), Ok(round), "key {key}");
        }
        println!("round {round}");
    }
}

fn cramped(server: &Server, table: &str, keys: u64) {
    let mut session = server.session(patient());
    let table = session.table(table).expect("a table");
    println!("ready");
    while std::io::stdin().read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0) {
        let (mut got, mut failed, mut last) = (0, 0, String::new());
        for key in 0..keys {
            match session.get(table, &key.to_le_bytes()) {
                Ok(item) => {
                    let item = item.unwrap_or_else(|| panic!("key {key} is reported absent"));
                    value::check(key, item.value()).unwrap_or_else(|what| panic!("a wrong read: {what}"));
                    got += 1;
                }
                Err(error) => {
                    failed += 1;
                    last = format!("{}: {error}", error.kind().name());
                }
            }
        }
        let another =
            server.client.session_with(patient()).map_or_else(|error| error.to_string(), |_| "ok".into());
        println!("got {got} failed {failed} session {another}");
        println!("last {last}");
    }
}

fn rest_between(server: &Server, sessions: u64) {
    let open = |_| {
        let mut session = server.session(patient());
        let kinds = Kinds::open(&mut session).expect("tables");
        kinds.read(&mut session, |_| ()).expect("values");
        (session, kinds)
    };
    let mut sessions: Vec<(Session, Kinds)> = (0..sessions).map(open).collect();
    println!("resting");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let expected: u64 = line.parse().expect("a counter");
        let check = |counter| assert_eq!(counter, expected, "a value of another round");
        let mut last = "ok";
        for (session, kinds) in &mut sessions {
            if let Err(error) = kinds.read(session, check) {
                last = error.kind().name();
            }
        }
        println!("read {last}");
    }
}

fn stream(server: &Server) {
    let stop = end_of_input();
    let mut session = server.session(patient());
    let kinds = Kinds::open(&mut session).expect("tables");
    let (mut batches, mut least) = (0, 0);
    println!("streaming");
    while !stop.load(Ordering::Relaxed) {
        let mut lowest = u64::MAX;
        let check = |counter| {
            assert!(counter >= least, "a value of round {counter} after all of round {least}");
            lowest = lowest.min(counter);
        };
        kinds.read_batches(&mut session, check).expect("values");
        (batches, least) = (batches + 1, lowest);
    }
    println!("streamed {batches}");
}

fn hoard(server: &Server, table: &str, keys: u64, gets: u64) {
    let told = || std::io::stdin().read_line(&mut String::new()).expect("a line");
    let mut session = server.session(patient().path(Path::Message));
    let table = session.table(table).expect("a table");
    println!("ready");
    told();
    let mut asked = HashMap::new();
    for key in (0..keys).cycle().take(gets as usize) {
        asked.insert(session.submit_get(table, &key.to_le_bytes()).expect("submitted"), key);
    }
    let mut completions = Vec::new();
    session.poll(&mut completions).expect("a poll");
    println!("posted");
    told();
    while session.outstanding() > 0 {
        session.poll(&mut completions).expect("a poll");
    }
    for completion in completions {
        let key = asked.remove(&completion.ticket).expect("a ticket that was given and has not ended");
        let Ok(Outcome::Item(Some(item))) = completion.outcome else {
            panic!("key {key}: {:?}", completion.outcome)
        };
        value::check(key, item.value()).unwrap_or_else(|what| panic!("a wrong answer: {what}"));
    }
    assert!(asked.is_empty());
    println!("took {gets}");
}

/// Forks with sessions, builds, scans and submitted operations under way.
fn fork(server: &Server, table: &str) {
    unsafe extern "C" {
        #[link_name = "fork"]
        fn system_fork() -> std::ffi::c_int;
    }
    let mut session = server.session(patient());
    let table = session.table(table).expect("a table");
    for round in 0..10u64 {
        let put = |session: &mut Session, key: u64| {
            session.put(table, key, &(round * 1000 + key).to_le_bytes()).expect("a server that serves");
        };
        (0..100).for_each(|key| put(&mut session, key));
        let ticket = session.submit_put(table, 100u64, b"submitted").expect("a submitted put");
        if round % 2 == 0 {
            session.poll(&mut Vec::new()).expect("a poll");
        }
        let mut other = server.session(patient());
        let new = [NewTable::new("built", TableKind::Hash)];
        let mut build = other.build("set", &new).expect("a build");
        build.put(0, 1u64, b"built").expect("a put");
        // SAFETY: this process has one thread, so that the child may do whatever a process may.
        let child = unsafe { system_fork() };
        assert!(child >= 0, "no child");
        if child == 0 {
            drop(build);
            drop(other);
            // What goes on in a child that panics must not come to the parent's ends of what it has.
            let inherits = std::panic::AssertUnwindSafe(|| {
                check_inherited(session, table);
                if server.fabric != FabricChoice::Verbs {
                    let mut own = server.session(patient());
                    let found = own.get(table, 7u64).expect("a server that serves").expect("it is there");
                    assert_eq!(found.value(), (round * 1000 + 7).to_le_bytes());
                    own.put(table, 1000 + round, b"of a child").expect("a put");
                }
            });
            let is_fine = std::panic::catch_unwind(inherits).is_ok();
            std::process::exit(if is_fine { 0 } else { 1 });
        }
        // Beside the child.
        for key in 0..100 {
            let found = session.get(table, key).expect("a server that serves").expect("it is there");
            assert_eq!(found.value(), (round * 1000 + key).to_le_bytes());
            put(&mut session, key);
        }
        build.put(0, 2u64, b"built").expect("a put");
        build.finish().expect("the build is its parent's");
        let mut completions = Vec::new();
        while session.outstanding() > 0 {
            session.poll(&mut completions).expect("a poll");
        }
        assert!(round % 2 == 0 || completions.iter().any(|completion| completion.ticket == ticket));
        let pid = rustix::process::Pid::from_raw(child).expect("a process id");
        let ended = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        let (_, status) = ended.expect("a child").expect("it has ended");
        assert_eq!(status.exit_status(), Some(0), "the child, in round {round}");
    }
    let built = other_table(server);
    let mut session = server.session(patient());
    for key in [1u64, 2] {
        assert_eq!(session.get(built, key).expect("an answer").expect("it was built").value(), b"built");
    }
    println!("forked ok");
}

fn other_table(server: &Server) -> Table {
    server.session(patient()).table("built").expect("a table that was built")
}

/// Each operation of a session that a child inherits is refused.
fn check_inherited(mut session: Session, table: Table) {
    let refused = |what: &str, error: Option<kelix::Error>| {
        let kind = error.as_ref().map(kelix::Error::kind);
        assert_eq!(kind, Some(ErrorKind::Forked), "{what}: {error:?}");
    };
    let key = &7u64.to_be_bytes()[..];
    let mut frontier = Frontier::new();
    frontier.add(table, key);
    refused("get_into", session.get_into(table, key, &mut [0; 64]).err());
    refused("get", session.get(table, key).err());
    refused("get_range_into", session.get_range_into(table, key, 0, &mut [0; 64]).err());
    refused("multi_get", session.multi_get(table, &[key]).err());
    refused("multi_get_into", session.multi_get_into(table, &[key], &mut Values::new()).err());
    refused("multi_put", session.multi_put(table, &[(key, key)]).and_then(|mut put| put.remove(0)).err());
    refused("put", session.put(table, key, b"of a child").err());
    refused("delete", session.delete(table, key).err());
    refused("scan", session.scan(table, &Scan::all()).and_then(|mut scan| scan.next_item()).err());
    refused("count", session.count(table, &Scan::all()).err());
    refused("visit", session.visit(&frontier, |_, _| std::ops::ControlFlow::Continue(())).err());
    refused("poll", session.poll(&mut Vec::new()).err());
    refused("create_table", session.create_table("of a child").err());
    refused("build", session.build("of a child", &[]).err());
    let tried = session.try_get_into(table, key, &mut [0; 64]);
    assert_eq!(tried.expect("it never fails for that"), kelix::TryGet::WouldWait);
}
