//! Sessions on a mirror, as far as they can be had without one: a server's socket is stood in for by a relay
//! that lets the server say of itself that it is a mirror of itself, and its address by a way that can be cut.
//! What the mirror shows is then always what its primary has.

#![cfg(target_os = "linux")]

use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kelix::{
    Client, Completion, Credentials, Effect, ErrorKind, NewItem, Outcome, Scan, Session, SessionOptions,
    TableKind,
};
use kelix_fabric::shm::{RunDirectory, receive_frame, send_frame};
use kelix_server::{Server, ServerConfig, Token};
use kelix_wire::control::{FEATURE_MIRROR, Frame};

/// A way over TCP that can be cut.
struct Way {
    address: SocketAddr,
    leads_nowhere: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(server: SocketAddr) -> Way {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (leads_nowhere, streams) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
        let way = Way { address, leads_nowhere: leads_nowhere.clone(), streams: streams.clone() };
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                if leads_nowhere.load(Ordering::SeqCst) {
                    continue;
                }
                let far = TcpStream::connect(server).unwrap();
                for stream in [&near, &far] {
                    stream.set_nodelay(true).unwrap();
                    streams.lock().unwrap().push(stream.try_clone().unwrap());
                }
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        way
    }

    fn cut(&self) {
        self.streams.lock().unwrap().drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

/// Passes the frames of a set-up connection on, those of the server as a mirror's.
fn relay(client: UnixStream, server: UnixStream, primary: &str) {
    let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        while let Ok((kind, bytes, _)) = receive_frame(&from_client) {
            if send_frame(&to_server, kind, &bytes, &[]).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Both);
    });
    let primary = Frame::Primary { address: primary.into() }.encode();
    while let Ok((kind, mut bytes, descriptors)) = receive_frame(&server) {
        let mut frame = Frame::decode(kind, &bytes);
        let is_greeting = matches!(frame, Some(Frame::Welcome { .. }));
        if let Some(Frame::Welcome { features, may_write, .. }) = &mut frame {
            (*features, *may_write) = (*features | FEATURE_MIRROR, false);
            bytes = frame.unwrap().encode().1;
        }
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        if send_frame(&client, kind, &bytes, &descriptors).is_err()
            || is_greeting && send_frame(&client, primary.0, &primary.1, &[]).is_err()
        {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

struct Mirrored {
    directory: PathBuf,
    server: Option<Server>,
    way: Way,
}

impl Mirrored {
    fn new(test: &str, shards: usize) -> Mirrored {
        Mirrored::with(test, ServerConfig { shards, ..ServerConfig::default() })
    }

    fn with(test: &str, config: ServerConfig) -> Mirrored {
        let directory = std::env::temp_dir().join(format!("kelix-mirror-{test}-{}", std::process::id()));
        let config = ServerConfig {
            directory: directory.clone(),
            memory_bytes: 256 << 20,
            listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
            pin: false,
            ..config
        };
        let server = Server::start(&config).expect("a directory of its own");
        let way = Way::to(server.tcp_address().expect("it listens"));
        let (real, shown) = (RunDirectory(directory.clone()), RunDirectory(directory.join("mirror")));
        std::fs::create_dir_all(&shown.0).unwrap();
        std::fs::hard_link(real.authority(), shown.authority()).unwrap();
        let term = real.term().unwrap();
        let listener = UnixListener::bind(shown.socket(term)).unwrap();
        let (socket, primary) = (real.socket(term), way.address.to_string());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, primary) = (client.unwrap(), primary.clone());
                let Ok(server) = UnixStream::connect(&socket) else { break };
                std::thread::spawn(move || relay(client, server, &primary));
            }
        });
        Mirrored { directory, server: Some(server), way }
    }

    fn client(&self) -> Client {
        Client::connect(self.directory.join("mirror")).expect("it answers")
    }

    fn session(&self, options: SessionOptions) -> Session {
        self.client().session_with(options.private_caches(true)).expect("it answers")
    }
}

impl Drop for Mirrored {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Nobody says of this server's answers how far a mirror has to be.
fn plain() -> SessionOptions {
    SessionOptions::default().own_writes(false)
}

fn poll_all(session: &mut Session, count: usize) -> Vec<Completion> {
    let (mut completions, began) = (Vec::new(), Instant::now());
    while completions.len() < count {
        session.poll(&mut completions).unwrap();
        assert!(began.elapsed() < Duration::from_secs(60), "{completions:?}");
    }
    completions
}

#[test]
fn writes_go_to_the_primary_and_reads_do_not() {
    let mirrored = Mirrored::new("writes", 2);
    let mut session = mirrored.session(plain());
    assert!(session.is_mirror() && session.primary() == Some(&mirrored.way.address.to_string()[..]));
    assert_eq!((session.fabric(), session.lag()), ("shm", None));
    assert!(mirrored.way.streams.lock().unwrap().is_empty(), "a session that only reads connects nowhere");
    assert_eq!(session.tables().unwrap(), Vec::<String>::new());
    assert!(mirrored.way.streams.lock().unwrap().is_empty());
    let table = session.create_table("t").unwrap();
    assert_eq!(mirrored.way.streams.lock().unwrap().len(), 2);
    for number in 0..100u64 {
        session.put(table, &format!("key{number}"), &number.to_le_bytes()).unwrap();
    }
    let before = session.cost();
    let mut buffer = [0; 8];
    for number in 0..100u64 {
        assert_eq!(session.get_into(table, &format!("key{number}"), &mut buffer).unwrap().unwrap().0, 8);
        assert_eq!(u64::from_le_bytes(buffer), number);
    }
    // Some are not where straight code looks, and none is asked for more than once.
    assert!(session.cost().since(before).messages < 10, "{:?}", session.cost().since(before));
    assert!(session.get(table, "absent").unwrap().is_none());
    assert!(session.delete(table, "key7").unwrap() && session.get(table, "key7").unwrap().is_none());
    // A link that is stale is repaired over the connection that is there.
    session.put_item(table, "from", &NewItem::new().link("to", table, "target")).unwrap();
    session.put(table, "target", b"new").unwrap();
    let item = session.get(table, "from").unwrap().unwrap();
    assert_eq!(session.follow(&item, "to").unwrap().unwrap().value(), b"new");
    let tickets: Vec<_> =
        (0..50).map(|n| session.submit_put(table, &format!("s{n}"), b"v").unwrap()).collect();
    assert_eq!(poll_all(&mut session, tickets.len()).len(), tickets.len());
    assert!(session.drop_table("t").unwrap());
    assert_eq!(session.table("t").unwrap_err().kind(), ErrorKind::NoSuchTable);
}

/// What is read of a shard whose memory is out of reach is the primary's, in each kind of call.
#[test]
fn a_strict_session_reads_everything_at_the_primary() {
    let mirrored = Mirrored::new("strict", 2);
    let mut session = mirrored.session(SessionOptions::default().strict(true));
    let table = session.create_table("t").unwrap();
    let ordered = session.create_table_of(TableKind::Inline, "o").unwrap();
    let strings = session.create_table_of(TableKind::Strings, "s").unwrap();
    let large = vec![7; 3 << 20];
    session.put(table, "large", &large).unwrap();
    session.put(table, "middle", &large[..60_000]).unwrap();
    for number in 0..300u64 {
        session.put(table, &format!("k{number}"), &number.to_le_bytes()).unwrap();
        session.put(ordered, number, &(number * 2).to_le_bytes()).unwrap();
        session.put(strings, &format!("k{number:03}"), &number.to_le_bytes()).unwrap();
    }
    let before = session.cost();
    assert_eq!(session.get(table, "k7").unwrap().unwrap().value(), 7u64.to_le_bytes());
    assert_eq!(session.cost().since(before).messages, 1);
    assert_eq!(session.cost().since(before).reads, 0);
    assert!(session.get(table, "absent").unwrap().is_none());
    assert_eq!(session.get(table, "large").unwrap().unwrap().value(), large);
    assert_eq!(session.get(table, "middle").unwrap().unwrap().value(), &large[..60_000]);
    let mut part = [0; 100];
    let got = session.get_range_into(table, "large", 1 << 20, &mut part).unwrap().unwrap();
    assert_eq!((got.copied, got.value_bytes, part), (100, large.len(), [7; 100]));
    assert_eq!(session.get(ordered, 77u64).unwrap().unwrap().value(), 154u64.to_le_bytes());
    assert!(session.get(ordered, 7777u64).unwrap().is_none());
    let keys: Vec<Vec<u8>> = (0..300).map(|number| format!("k{number}").into_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut values = kelix::Values::default();
    session.multi_get_into(table, &keys, &mut values).unwrap();
    let items = session.multi_get(table, &keys).unwrap();
    for (number, item) in items.iter().enumerate() {
        let value = (number as u64).to_le_bytes();
        assert_eq!(item.as_ref().unwrap().value(), value);
        assert_eq!(values.get(number).unwrap(), value);
    }
    for scan in [Scan::all(), Scan::all().backwards()] {
        for table in [ordered, strings] {
            let keys: Vec<_> =
                session.scan(table, &scan).unwrap().map(|item| item.unwrap().key().to_vec()).collect();
            assert!(keys.len() == 300 && keys.is_sorted_by(|a, b| (a < b) == (scan == Scan::all())));
        }
    }
    assert_eq!(session.scan(table, &Scan::all()).unwrap().count(), 302);
    assert_eq!(session.count(ordered, &Scan::all().numbers(..100)).unwrap(), 100);
    session
        .put_item(table, "from", &NewItem::new().link("to", table, "k7").link("big", table, "large"))
        .unwrap();
    let from = session.get(table, "from").unwrap().unwrap();
    assert_eq!(session.follow(&from, "to").unwrap().unwrap().key(), b"k7");
    assert_eq!(session.follow_all(&from, "big").unwrap()[0].as_ref().unwrap().value(), large);
    let mut frontier = kelix::Frontier::new();
    frontier.add_links(&from, "to", |_| true);
    frontier.add(table, "absent");
    let mut seen = Vec::new();
    session
        .visit(&frontier, |_, item| {
            seen.push(item.map(|item| item.key().to_vec()));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(seen, [Some(b"k7".to_vec()), None]);
    session.submit_get(table, "k9").unwrap();
    session.submit_get(table, "large").unwrap();
    session.submit_follow(&from, "to").unwrap();
    session.submit_scan(ordered, &Scan::all()).unwrap();
    let mut bodies = poll_all(&mut session, 4);
    bodies.sort_by_key(|completion| completion.ticket);
    let lengths: Vec<usize> = bodies
        .into_iter()
        .map(|completion| match completion.outcome.unwrap() {
            Outcome::Item(item) => item.unwrap().value().len(),
            Outcome::Page(page) => page.items().len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lengths, [8, large.len(), 8, 256]);
    let before = session.cost();
    assert_eq!(session.get(table, "k1").unwrap().unwrap().value(), 1u64.to_le_bytes());
    assert_eq!(session.cost().since(before).reads, 0, "memory is out of reach all the time");
}

#[test]
fn a_session_sleeps_on_both_ways() {
    let mirrored = Mirrored::new("sleep", 1);
    let mut session = mirrored.session(plain());
    let table = session.create_table("t").unwrap();
    let wait = |session: &Session| {
        // SAFETY: the session has it for as long as it lives.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(session.fd()) };
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let within = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&within)).unwrap(), 1, "nothing has woken it");
    };
    let began = Instant::now();
    for round in 0..200u32 {
        // One is answered by the primary, the other by the mirror.
        session.submit_put(table, "k", &round.to_le_bytes()).unwrap();
        session.submit_get(table, "absent").unwrap();
        let mut completions = Vec::new();
        while completions.len() < 2 {
            if session.poll(&mut completions).unwrap() == 0 {
                wait(&session);
            }
        }
    }
    // Large ones wait for room on the way.
    let value = vec![1; 30_000];
    for _ in 0..500 {
        session.submit_put(table, "k", &value).unwrap();
    }
    let mut completions = Vec::new();
    while completions.len() < 500 {
        if session.poll(&mut completions).unwrap() == 0 {
            wait(&session);
        }
    }
    assert!(began.elapsed() < Duration::from_secs(40));
}

#[test]
fn a_primary_that_is_lost_is_connected_to_again() {
    let mirrored = Mirrored::new("lost", 1);
    let mut session = mirrored.session(plain().timeout(Duration::from_secs(2)));
    let table = session.create_table("t").unwrap();
    session.put(table, "k", b"1").unwrap();
    mirrored.way.cut();
    // It may notice only when it waits.
    match session.put(table, "k", b"2") {
        Ok(_) => {}
        Err(error) => {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error}");
            assert!(error.to_string().contains("is lost"), "{error}");
        }
    }
    session.put(table, "k", b"3").unwrap();
    assert_eq!(session.get(table, "k").unwrap().unwrap().value(), b"3");
    // While there is no way, reads go on and writes say what is wrong.
    mirrored.way.leads_nowhere.store(true, Ordering::SeqCst);
    mirrored.way.cut();
    let _ = session.put(table, "k", b"4");
    let error = session.put(table, "k", b"4").unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::No), "{error}");
    let address = mirrored.way.address.to_string();
    assert!(error.to_string().contains(&format!("this is a mirror of {address}")), "{error}");
    assert!(!session.is_detached());
    assert!(session.get(table, "k").unwrap().is_some());
    assert!(session.get(table, "absent").unwrap().is_none());
    session.submit_put(table, "k", b"5").unwrap();
    session.submit_get(table, "k").unwrap();
    let outcomes: Vec<bool> = poll_all(&mut session, 2).into_iter().map(|it| it.outcome.is_ok()).collect();
    assert_eq!(outcomes.iter().filter(|ok| **ok).count(), 1);
    mirrored.way.leads_nowhere.store(false, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(100));
    session.put(table, "k", b"6").unwrap();
    assert_eq!(session.get(table, "k").unwrap().unwrap().value(), b"6");
}

/// A session that tries again asks the primary again for what was not answered, and each write is done once.
#[test]
fn a_session_that_tries_again_loses_no_write() {
    let mirrored = Mirrored::new("again", 2);
    let mut session = mirrored.session(plain().retry_for(Duration::from_secs(30)));
    let table = session.create_table("t").unwrap();
    let (way, ends) = (&mirrored.way, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(30));
                way.cut();
            }
        });
        let mut version = session.put(table, "k", b"0").unwrap();
        let began = Instant::now();
        let mut round = 0u32;
        while began.elapsed() < Duration::from_secs(2) {
            round += 1;
            // A write that was done twice would find another version.
            let done = session.compare_and_set(table, "k", Some(version), &round.to_le_bytes()).unwrap();
            let kelix::CompareAndSet::Done(Some(now)) = done else { panic!("{done:?}") };
            version = now;
            session.submit_put(table, &format!("s{round}"), &round.to_le_bytes()).unwrap();
        }
        let completions = poll_all(&mut session, round as usize);
        ends.store(true, Ordering::SeqCst);
        assert!(completions.iter().all(|completion| completion.outcome.is_ok()), "{completions:?}");
        assert_eq!(session.get(table, "k").unwrap().unwrap().value(), round.to_le_bytes());
        assert_eq!(session.scan(table, &Scan::all()).unwrap().count(), round as usize + 1);
    });
}

#[test]
fn credentials_are_the_session_s_own() {
    let tokens = vec![Token { name: "w".into(), word: "open sesame".into() }];
    let mirrored = Mirrored::with("token", ServerConfig { tokens, ..ServerConfig::default() });
    let mut session = mirrored.session(plain());
    assert_eq!(session.tables().unwrap(), Vec::<String>::new());
    for _ in 0..2 {
        let error = session.create_table("t").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let text = error.to_string();
        assert!(text.contains("this is a mirror of") && text.contains("--token-file"), "{text}");
    }
    let known = Credentials::default().token("open sesame".to_string());
    let client = Client::connect_with(mirrored.directory.join("mirror"), known).unwrap();
    let mut session = client.session_with(plain()).unwrap();
    session.create_table("t").unwrap();
}

#[test]
fn a_mirror_that_has_not_heard_is_not_read() {
    let mirrored = Mirrored::new("stale", 1);
    let mut writer = mirrored.session(plain());
    let table = writer.create_table("t").unwrap();
    let ordered = writer.create_table_of(TableKind::Inline, "o").unwrap();
    writer.put(table, "k", b"v").unwrap();
    writer.put(ordered, 1u64, &2u64.to_le_bytes()).unwrap();
    // This server never says as of when it is fresh.
    let mut session = mirrored.session(plain().max_lag(Duration::from_secs(1)));
    let error = session.table("t").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("has not heard"), "{error}");
    for read in [session.get(table, "k").map(drop), session.get(table, "absent").map(drop)] {
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(session.multi_get(table, &[b"k"]).is_err());
    assert!(session.get(ordered, 1u64).is_err());
    assert!(session.scan(ordered, &Scan::all()).unwrap().next().unwrap().is_err());
    // By the host's clock, it was never long ago.
    let mut session = mirrored.session(plain().max_lag(Duration::MAX));
    let before = session.cost();
    for _ in 0..100 {
        assert_eq!(session.get(table, "k").unwrap().unwrap().value(), b"v");
        assert_eq!(session.get(ordered, 1u64).unwrap().unwrap().value(), 2u64.to_le_bytes());
    }
    assert_eq!(session.scan(ordered, &Scan::all()).unwrap().count(), 1);
    assert!(session.get(table, "absent").unwrap().is_none());
    assert!(session.cost().since(before).messages <= 3, "{:?}", session.cost().since(before));
}
