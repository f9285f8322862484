//! Clients over TCP that break the protocol, say nothing or read nothing, and servers without descriptors.
//! What holds over any fabric is in `far.rs`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use kelix::{Address, Client, ErrorKind, FabricChoice, NewItem, Path};
use kelix_tests::bystander::Bystander;
use kelix_tests::filled::{check, fill};
use kelix_tests::process::{ServerProcess, ServerProgram, patient};
use kelix_tests::{Random, RunDir, asked_sum, raw, statistics, until, watchdog};
use kelix_wire::control::{Frame, Purpose};
use kelix_wire::{SPOKEN, Versions, View};

fn serve(run: &RunDir, take_over: bool) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 256 << 20, take_over }.serve()
}

/// A connection that has not said anything.
fn connect(server: &ServerProcess) -> TcpStream {
    let stream = TcpStream::connect(server.tcp_address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// A connection that has greeted.
fn greet(server: &ServerProcess, purpose: Purpose) -> TcpStream {
    let stream = connect(server);
    say(&stream, &raw::hello(SPOKEN, purpose));
    assert!(matches!(heard(&stream), Some(Frame::Welcome { .. })));
    stream
}

fn say(mut stream: &TcpStream, frame: &Frame) {
    let (kind, bytes) = frame.encode();
    let mut frame = head(CONTROL, 0, u64::from(kind), bytes.len() as u64).to_le_bytes().to_vec();
    frame.extend_from_slice(&bytes);
    frame.resize(frame.len().next_multiple_of(8), 0);
    stream.write_all(&frame).unwrap();
}

/// Receives a frame of the set-up conversation.
fn heard(mut stream: &TcpStream) -> Option<Frame> {
    let mut first = [0; 8];
    stream.read_exact(&mut first).unwrap();
    let first = u64::from_le_bytes(first);
    assert_eq!(first & 0xff, CONTROL);
    let count = (first >> 40) as usize;
    let mut bytes = vec![0; count.next_multiple_of(8)];
    stream.read_exact(&mut bytes).unwrap();
    Frame::decode((first >> 16) as u16, &bytes[..count])
}

/// Reads to the end of a connection; false if it is still open after a while.
fn is_closed(mut stream: &TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// The first word of a frame: kind, shard, tag or first word, count.
fn head(kind: u64, shard: u64, name: u64, count: u64) -> u64 {
    kind | shard << 8 | name << 16 | count << 40
}

const READ: u64 = 1;
const WRITE: u64 = 4;
const CONTROL: u64 = 6;

#[test]
fn frames_that_make_no_sense_end_their_sender_alone() {
    let _watchdog = watchdog("hostile frames over TCP");
    let run = RunDir::new();
    let server = serve(&run, false);
    let (bystander, before) = (Bystander::start(&server), server.held_at_rest());
    let mailbox_words = kelix_wire::MAILBOX_BYTES / 8;
    let frames: [(&str, Vec<u64>); 13] = [
        ("nothing known", vec![0]),
        ("another protocol", vec![u64::from_le_bytes(*b"GET / HT")]),
        ("an agent's frame", vec![head(2, 0, 0, 1), 0, 0]),
        ("a term", vec![head(5, 0, 0, 0), 77]),
        ("a READ of nothing", vec![head(READ, 0, 0, 0), 0]),
        ("a READ that is too long", vec![head(READ, 0, 0, 8193), 0]),
        ("a READ of another shard", vec![head(READ, 2, 0, 1), 0]),
        ("a WRITE of nothing", vec![head(WRITE, 0, 0, 0)]),
        ("a WRITE beyond the mailbox", vec![head(WRITE, 0, mailbox_words, 1), 0]),
        ("a WRITE across its end", vec![head(WRITE, 1, mailbox_words - 1, 2), 0, 0]),
        ("a WRITE to another shard", vec![head(WRITE, 2, 0, 1), 0]),
        ("a WRITE that is too long", vec![head(WRITE, 0, 0, 1 << 23)]),
        // As long as the server's own may be: by its head alone it took a megabyte of the server's memory.
        ("a set-up frame that is too long", vec![head(CONTROL, 0, 0, 1 << 20)]),
    ];
    for (what, words) in &frames {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for greeted in [true, false] {
            let mut stream = if greeted { greet(&server, Purpose::Session) } else { connect(&server) };
            stream.write_all(&bytes).unwrap();
            assert!(is_closed(&stream), "{what}, greeted: {greeted}");
        }
    }
    // What makes sense only after a greeting, or only once, or only from the server.
    for words in [vec![head(READ, 0, 0, 1), 0], vec![head(WRITE, 0, 64, 1), 0]] {
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        for mut stream in [connect(&server), greet(&server, Purpose::Statistics)] {
            stream.write_all(&bytes).unwrap();
            assert!(is_closed(&stream), "{words:x?} without a session");
        }
    }
    let hello = raw::hello(SPOKEN, Purpose::Session);
    for frame in [hello, Frame::AskSegments { shard: 0 }, Frame::Refused { text: "no".into() }] {
        let stream = greet(&server, Purpose::Session);
        say(&stream, &frame);
        assert!(is_closed(&stream), "{frame:?}");
    }
    let stream = connect(&server);
    say(&stream, &raw::hello(Versions { oldest: 77, newest: 77 }, Purpose::Session));
    let Some(Frame::Refused { text }) = heard(&stream) else { panic!("not refused") };
    assert!(text.contains("version 77"), "{text}");
    // Nor may a stranger say much.
    let mut stream = connect(&server);
    stream.write_all(&head(CONTROL, 0, 10, 33 << 10).to_le_bytes()).unwrap();
    assert!(is_closed(&stream), "a token of 33 KiB");
    bystander.goes_on();
    server.until_given_back(before);
    bystander.end();
}

/// Servers and clients of releases that follow each other have a version in common.
#[test]
fn the_newest_version_that_both_sides_know_is_spoken() {
    let _watchdog = watchdog("versions");
    let run = RunDir::new();
    let server = serve(&run, false);
    let hello = |oldest, newest| raw::hello(Versions { oldest, newest }, Purpose::Statistics);
    let (oldest, newest) = (SPOKEN.oldest, SPOKEN.newest);
    for later in [newest, newest + 1, u16::MAX] {
        let stream = connect(&server);
        say(&stream, &hello(oldest, later));
        let Some(Frame::Welcome { version, .. }) = heard(&stream) else { panic!("not welcome: {later}") };
        assert_eq!(version, newest);
        say(&stream, &Frame::AskStatistics);
        assert!(matches!(heard(&stream), Some(Frame::Statistics { .. })));
    }
    for (from, to) in [(newest + 1, newest + 2), (0, oldest - 1), (newest, oldest - 1)] {
        let stream = connect(&server);
        say(&stream, &hello(from, to));
        assert!(matches!(heard(&stream), Some(Frame::Refused { .. })), "{from} to {to}");
        assert!(is_closed(&stream));
    }
    // A server that answers in a version that the client did not offer.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap().to_string());
    let other = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let Some(Frame::Hello { versions, .. }) = heard(&stream) else { panic!("no greeting") };
        assert_eq!(versions, SPOKEN);
        let (version, view) = (newest + 1, View::of_shards(1, 1, 1));
        say(
            &stream,
            &Frame::Welcome { version, features: 0, pid: 1, term: 1, may_write: true, view, life: 1 },
        );
    });
    let error = Client::connect(address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    other.join().unwrap();
}

#[test]
fn random_bytes_end_their_sender_alone() {
    let _watchdog = watchdog("random bytes over TCP");
    let run = RunDir::new();
    let server = serve(&run, false);
    let (bystander, before) = (Bystander::start(&server), server.held_at_rest());
    let mut random = Random(5);
    for round in 0..200 {
        let mut stream = if round % 2 == 0 { greet(&server, Purpose::Session) } else { connect(&server) };
        let mut bytes = Vec::new();
        for _ in 0..random.below(200) {
            // Mostly heads of real kinds with random fields.
            let word =
                if random.once_in(3) { random.next() } else { random.next() & !0xff | random.below(8) };
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        // It may be thrown out before it has said everything.
        let _ = stream.write_all(&bytes);
    }
    bystander.goes_on();
    server.until_given_back(before);
    bystander.end();
}

#[test]
fn whoever_says_nothing_is_not_waited_for() {
    let _watchdog = watchdog("silent connections");
    let run = RunDir::new();
    let server = serve(&run, false);
    let (bystander, before) = (Bystander::start(&server), server.held_at_rest());
    let silent: Vec<TcpStream> = (0..50).map(|_| connect(&server)).collect();
    let mut slow = connect(&server);
    slow.write_all(&[6, 0, 1]).unwrap();
    bystander.goes_on();
    assert!(silent.iter().chain([&slow]).all(is_closed), "a connection that does not greet is closed");
    server.until_given_back(before);
    bystander.end();
}

#[test]
fn whoever_asks_and_never_reads_fills_no_memory() {
    let _watchdog = watchdog("a client that reads nothing");
    let run = RunDir::new();
    let server = serve(&run, false);
    let mut session = server.tcp_session_by(Path::Pointer);
    let table = fill(&mut session, 1);
    let bystander = Bystander::start(&server);
    let before = server.process.size("VmRSS");
    let greedy: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = greet(&server, Purpose::Session);
            stream.set_nonblocking(true).unwrap();
            // 64 KiB for each 16 bytes, from the beginning of the first segment.
            let asked =
                [head(READ, 0, 1, 8192).to_le_bytes(), (64u64 << 20).to_le_bytes()].concat().repeat(4096);
            let mut sent = 0;
            // As much as the system takes while nobody reads the answers.
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(300) {
                match stream.write(&asked) {
                    Ok(bytes) => sent += bytes,
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
            assert!(sent > 0);
            stream
        })
        .collect();
    bystander.goes_on();
    check(&mut session, table, 1);
    let grown = server.process.size("VmRSS").saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for four clients that read nothing");
    drop(greedy);
    bystander.end();
}

#[test]
fn a_server_without_descriptors_serves_whom_it_has_and_others_later() {
    let _watchdog = watchdog("no descriptors left");
    let run = RunDir::new();
    let server = serve(&run, false);
    let mut session = server.tcp_session_by(Path::Pointer);
    let table = fill(&mut session, 1);
    let bystander = Bystander::start(&server);
    let pid = rustix::process::Pid::from_raw(server.process.pid() as i32);
    let resource = rustix::process::Resource::Nofile;
    let usual = rustix::process::getrlimit(resource);
    let open = server.held().descriptors as u64 + 16;
    let limit = |current| {
        let limit = rustix::process::Rlimit { current: Some(current), maximum: usual.maximum };
        rustix::process::prlimit(pid, resource, limit).expect("limits of a child");
    };
    limit(open + 4);
    let waiting: Vec<TcpStream> = (0..40)
        .map(|_| {
            let stream = connect(&server);
            say(&stream, &raw::hello(SPOKEN, Purpose::Statistics));
            stream
        })
        .collect();
    bystander.goes_on();
    check(&mut session, table, 1);
    limit(usual.current.unwrap_or(1 << 16));
    for stream in &waiting {
        // Late, but it comes.
        assert!(matches!(heard(stream), Some(Frame::Welcome { .. })));
    }
    bystander.end();
}

/// The answer to the repair of a link stayed in the ring while a READ was awaited. So the session looked for
/// the READ again and again without sleeping, and saw the end of its connection when the time for the READ
/// was over.
#[test]
fn an_answer_that_nobody_awaits_hides_no_end() {
    let _watchdog = watchdog("an end beside an answer");
    let run = RunDir::new();
    let mut server = serve(&run, false);
    let mut near = server.session();
    let of_near = near.create_table("t").unwrap();
    near.put(of_near, b"target", b"one").unwrap();
    near.put_item(of_near, b"source", &NewItem::new().link("to", of_near, b"target")).unwrap();
    let mut session = server.tcp_session_by(Path::Pointer);
    let table = session.table("t").unwrap();
    let source = session.get(table, b"source").unwrap().expect("put");
    near.put(of_near, b"target", b"two").unwrap();
    session.follow(&source, "to").unwrap().expect("put");
    until("the link is repaired", || asked_sum(&server.client(), "links_repaired") > 0);
    // The answer arrives with the next READ.
    std::thread::sleep(Duration::from_millis(100));
    session.get(table, b"source").unwrap().expect("put");
    server.process.stop_still();
    let began = Instant::now();
    let error = std::thread::scope(|scope| {
        let reading = scope.spawn(|| session.get(table, b"source").unwrap_err());
        std::thread::sleep(Duration::from_millis(300));
        server.process.kill();
        reading.join().unwrap()
    });
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(began.elapsed() < patient().timeout / 2, "{:?}", began.elapsed());
}

#[test]
fn the_fabric_is_visible_and_can_be_insisted_on() {
    let run = RunDir::new();
    let server = serve(&run, false);
    let over = |address: Address, fabric| {
        let options = patient().fabric(fabric);
        Client::connect(address).unwrap().session_with(options)
    };
    let (directory, tcp) = (Address::from(run.path()), Address::Tcp(server.tcp_address()));
    for (address, fabric, got) in [
        (&directory, None, "shm"),
        (&directory, Some(FabricChoice::Shm), "shm"),
        (&directory, Some(FabricChoice::Tcp), "tcp"),
        (&tcp, None, "tcp"),
        (&tcp, Some(FabricChoice::Tcp), "tcp"),
    ] {
        let session = over(address.clone(), fabric).unwrap();
        assert_eq!(session.fabric(), got);
        let all = statistics(&server.client());
        let fabrics: Vec<_> = all["clients"].as_array().unwrap().iter().map(|it| &it["fabric"]).collect();
        assert_eq!(fabrics, [got], "{address}, {fabric:?}");
        drop(session);
        until("it has gone", || statistics(&server.client())["clients"].as_array().unwrap().is_empty());
    }
    assert_eq!(over(tcp, Some(FabricChoice::Shm)).err().unwrap().kind(), ErrorKind::InvalidArgument);
}
