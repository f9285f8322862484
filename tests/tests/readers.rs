//! Readers in processes of their own while a writer changes things: no torn value, none of another key,
//! nothing reported absent that is always there, and no key's counter going back. Memory is small, so that it
//! is reused as fast as the quarantine allows, and the index grows and shrinks meanwhile.

use kelix::{NewItem, Session, Table};
use kelix_tests::process::{Process, ServerProcess, ServerProgram};
use kelix_tests::value::{self, HEAD_BYTES};
use kelix_tests::{Random, RunDir, asked_sum, fewer, until, watchdog};

fn server(run: &RunDir, shards: usize, memory_bytes: u64) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards, memory_bytes, take_over: false }.serve()
}

/// Two readers in shared memory and one over the other fabric, which have begun.
fn readers(run: &RunDir, server: &ServerProcess, keys: u64) -> Vec<Process> {
    let program = env!("CARGO_BIN_EXE_kelix-test-client");
    let start = |seed: u64| {
        let address = if seed == 3 { server.tcp_address() } else { run.path().display().to_string() };
        Process::start(program, &["read".into(), address, "t".into(), keys.to_string(), seed.to_string()])
    };
    let mut readers: Vec<Process> = (1..=3).map(start).collect();
    for reader in &mut readers {
        reader.expect("reading");
    }
    readers
}

/// Asks a reader to end, and returns how many values it has checked.
#[track_caller]
fn end(reader: &mut Process) -> u64 {
    reader.close();
    let said = reader.expect("read ");
    eprintln!("a reader says: read {said}");
    assert!(reader.end().success());
    said.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

struct Writer {
    session: Session,
    table: Table,
    links: Table,
    random: Random,
    counters: Vec<u64>,
    /// Sizes of values: from, up to.
    bytes: (u64, u64),
}

impl Writer {
    fn new(server: &ServerProcess, keys: u64, bytes: (u64, u64)) -> Writer {
        let mut session = server.session();
        let table = session.create_table("t").unwrap();
        let links = session.create_table("links").unwrap();
        let counters = vec![0; keys as usize];
        let mut writer = Writer { session, table, links, random: Random(keys), counters, bytes };
        for key in 0..keys {
            writer.put(key);
            writer.put_links(key);
        }
        writer
    }

    fn keys(&self) -> u64 {
        self.counters.len() as u64
    }

    fn next_value(&mut self, key: u64) -> Vec<u8> {
        self.counters[key as usize] += 1;
        let (from, to) = self.bytes;
        let bytes = HEAD_BYTES as u64 + from + self.random.below(to - from);
        value::make(key, self.counters[key as usize], bytes as usize)
    }

    fn put(&mut self, key: u64) {
        let value = self.next_value(key);
        self.session.put(self.table, &key.to_le_bytes(), &value).unwrap();
    }

    /// Links to the key itself and its two neighbours, as the readers expect.
    fn put_links(&mut self, key: u64) {
        let mut item = NewItem::new();
        for step in 0..3 {
            item = item.link("to", self.table, &((key + step) % self.keys()).to_le_bytes());
        }
        self.session.put_item(self.links, &key.to_le_bytes(), &item).unwrap();
    }

    /// Puts a batch of different keys.
    fn put_many(&mut self, count: u64) {
        let first = self.random.below(self.keys());
        let keys: Vec<u64> = (0..count).map(|step| (first + step) % self.keys()).collect();
        let items: Vec<([u8; 8], Vec<u8>)> =
            keys.iter().map(|key| (key.to_le_bytes(), self.next_value(*key))).collect();
        let slices: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        for result in self.session.multi_put(self.table, &slices).unwrap() {
            result.unwrap();
        }
    }

    /// Adds or removes other keys, so that the index splits and merges.
    fn others(&mut self, range: std::ops::Range<u64>, put: bool) {
        let keys: Vec<[u8; 8]> = range.map(|key| (1 << 32 | key).to_le_bytes()).collect();
        if put {
            let items: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"another one"[..])).collect();
            for result in self.session.multi_put(self.table, &items).unwrap() {
                result.unwrap();
            }
            return;
        }
        for key in &keys {
            self.session.submit_delete(self.table, key).unwrap();
        }
        let mut completions = Vec::new();
        while self.session.outstanding() > 0 {
            self.session.poll(&mut completions).unwrap();
        }
    }
}

fn run(shards: usize, memory_bytes: u64, bytes: (u64, u64), keys: u64, waves: u64) {
    let run = RunDir::new();
    let server = server(&run, shards, memory_bytes);
    let client = server.client();
    let mut writer = Writer::new(&server, keys, bytes);
    let mut readers = readers(&run, &server, keys);
    let others = 16_000;
    for _ in 0..fewer(waves) {
        for put in [true, false] {
            for step in (0..others).step_by(200) {
                writer.others(step..step + 200, put);
                writer.put_many(64);
                let key = writer.random.below(keys);
                writer.put(key);
                if step % 1000 == 0 {
                    writer.put_links(key);
                }
            }
        }
    }
    let splits = asked_sum(&client, "index_splits");
    until("the index has shrunk again", || asked_sum(&client, "index_merges") > 0);
    // Elsewhere than in shared memory a look costs a system call or two.
    for (reader, enough) in readers.iter_mut().zip([10_000, 10_000, 1000].map(fewer)) {
        let checked = end(reader);
        eprintln!("{checked} values were read");
        assert!(checked > enough, "only {checked} values were read");
    }
    assert!(splits > 50, "{splits} splits");
    assert_eq!(asked_sum(&client, "writes_refused"), 0);
}

#[test]
fn small_values_are_never_torn_or_lost() {
    let _watchdog = watchdog("readers of small values");
    run(1, 64 << 20, (0, 600), 2000, 8);
}

#[test]
fn values_of_many_sizes_in_two_shards_are_never_torn_or_lost() {
    let _watchdog = watchdog("readers of values of many sizes");
    run(2, 128 << 20, (0, 30_000), 400, 3);
}

#[test]
fn a_reader_that_was_stopped_in_the_middle_never_answers_wrongly() {
    let _watchdog = watchdog("a stopped reader");
    let run = RunDir::new();
    let server = server(&run, 1, 96 << 20);
    let keys = 60;
    // Long enough that most of a reader's time is spent in the middle of copying one.
    let mut writer = Writer::new(&server, keys, (60_000, 140_000));
    let mut readers = readers(&run, &server, keys);
    // Each is stopped.
    for round in 0..fewer(16).max(3) as usize {
        let reader = &readers[round % readers.len()];
        reader.stop_still();
        // Each key is put many times, and each slot is reused: the quarantine passes several times over.
        let epoch = asked_sum(&server.client(), "epoch");
        until("several epochs have passed", || {
            writer.put_many(keys);
            asked_sum(&server.client(), "epoch") > epoch + 4
        });
        reader.go_on();
        for _ in 0..3 {
            writer.put_many(20);
        }
    }
    for reader in &mut readers {
        end(reader);
    }
}

/// Values that stand in page runs are read in pieces, and their memory becomes anything else afterwards.
#[test]
fn large_values_are_whole_while_they_are_replaced() {
    let _watchdog = watchdog("readers of large values");
    let run = RunDir::new();
    let server = server(&run, 1, 64 << 20);
    let keys = 4;
    let mut writer = Writer::new(&server, keys, (1 << 20, 5 << 20));
    let mut readers = readers(&run, &server, keys);
    for round in 0..fewer(25).max(11) as usize {
        writer.put_many(keys);
        if round % 5 == 0 {
            let reader = &readers[round % readers.len()];
            reader.stop_still();
            writer.put_many(keys);
            writer.put_many(keys);
            reader.go_on();
        }
    }
    for reader in &mut readers {
        end(reader);
    }
}
