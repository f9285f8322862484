//! Futures over a session, against a server in this process, with the smallest runtime there can be: a task
//! is a thread, and a driver's thread waits for the descriptor itself.

#![cfg(all(feature = "aio", target_os = "linux"))]

use std::future::Future;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use kelix::aio::{AsyncSession, Driver};
use kelix::{
    Client, CompareAndSet, Effect, ErrorKind, Frontier, Item, NewItem, Scan, Session, SessionOptions, Table,
    TableKind,
};
use kelix_server::{Server, ServerConfig};

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future in this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park_timeout(Duration::from_secs(30)),
        }
    }
}

/// Runs a driver in a thread of its own. Counts how often it waited for the descriptor.
fn drive(driver: Driver) -> (JoinHandle<()>, Arc<AtomicUsize>) {
    let waits = Arc::new(AtomicUsize::new(0));
    let counted = waits.clone();
    let readable = move |descriptor: Option<Arc<OwnedFd>>, time: Duration| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            let Some(descriptor) = descriptor else { return std::thread::park_timeout(time) };
            let time = rustix::event::Timespec {
                tv_sec: time.as_secs() as i64,
                tv_nsec: time.subsec_nanos() as i64,
            };
            let mut descriptors = [rustix::event::PollFd::new(&*descriptor, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut descriptors, Some(&time));
        }
    };
    (std::thread::spawn(move || block_on(driver.run(readable))), waits)
}

struct Served {
    directory: PathBuf,
    server: Option<Server>,
}

impl Served {
    fn new(test: &str) -> Served {
        let directory = std::env::temp_dir().join(format!("kelix-aio-{test}-{}", std::process::id()));
        let mut served = Served { directory, server: None };
        served.start();
        served
    }

    fn start(&mut self) {
        let config = ServerConfig {
            directory: self.directory.clone(),
            memory_bytes: 64 << 20,
            listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
            pin: false,
            ..ServerConfig::default()
        };
        // The lock of the server before goes with the last of its threads, and whoever looks for a server has
        // it for a moment.
        let began = Instant::now();
        self.server = loop {
            match Server::start(&config) {
                Ok(server) => break Some(server),
                Err(error) => assert!(began.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::yield_now();
        };
    }

    fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }

    fn session(&self, options: SessionOptions) -> Session {
        let client = Client::connect(&self.directory).expect("it answers");
        client.session_with(options).expect("it answers")
    }

    fn tcp_session(&self) -> Session {
        let address = std::fs::read_to_string(self.directory.join("tcp")).expect("an address");
        let address: kelix::Address = address.trim().parse().expect("an address");
        Client::connect(address).expect("it answers").session().expect("it answers")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn share(mut session: Session) -> (AsyncSession, Driver, Table) {
    let table = session.create_table("t").expect("there is room");
    let (session, driver) = AsyncSession::new(session);
    (session, driver, table)
}

fn is_shared<T: Send + Sync>(_: &T) {}

#[test]
fn tasks_on_several_threads_share_a_session() {
    const TASKS: u32 = 4;
    const KEYS: u32 = 100;
    let served = Served::new("tasks");
    for session in [served.session(SessionOptions::default()), served.tcp_session()] {
        let (session, driver, table) = share(session);
        is_shared(&session);
        let (driver, _) = drive(driver);
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let session = session.clone();
                let work = async move {
                    for number in 0..KEYS {
                        let key = (task << 16 | number).to_be_bytes();
                        let item = session.get(table, &key).await.expect("it answers");
                        assert!(item.is_none());
                        let put = session.put(table, &key, &number.to_le_bytes());
                        let version = put.await.expect("there is room");
                        let item = session.get(table, &key).await.expect("it answers").expect("just put");
                        assert_eq!((item.value(), item.version()), (&number.to_le_bytes()[..], version));
                        assert!(session.delete(table, &key).await.expect("it answers"));
                        assert!(!session.delete(table, &key).await.expect("it answers"));
                    }
                };
                std::thread::spawn(move || block_on(work))
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().expect("it went well"));
        // With its last handle goes the driver.
        drop(session);
        driver.join().expect("it ends");
    }
}

#[test]
fn operations_made_together_go_together() {
    let served = Served::new("together");
    let (session, driver, table) = share(served.session(SessionOptions::default()));
    let (driver, waits) = drive(driver);
    block_on(async {
        let items: Vec<NewItem> = (0..100_u8).map(|n| NewItem::new().bytes("n", &[n]).clone()).collect();
        let puts: Vec<_> =
            items.iter().zip(0..).map(|(item, n)| session.put_item(table, &[n], item)).collect();
        for put in puts {
            put.await.expect("there is room");
        }
        let before = session.with(|session| session.cost());
        let waited = waits.load(Ordering::Relaxed);
        let gets: Vec<_> = (0..100_u8).map(|n| session.get(table, &[n])).collect();
        for (n, get) in (0..100_u8).zip(gets) {
            let item = get.await.expect("it answers").expect("just put");
            assert_eq!(item.bytes("n"), Some(&[n][..]));
        }
        // In shared memory they ended where they were awaited.
        assert_eq!(session.with(|session| session.cost()).since(before).messages, 0);
        assert_eq!(waits.load(Ordering::Relaxed), waited);
        // What is refused is told by the future.
        let error = session.get(table, &[0; 70_000]).await.expect_err("no key has so many bytes");
        assert_eq!(error.kind(), kelix::ErrorKind::InvalidArgument);
    });
    drop(session);
    driver.join().expect("it ends");
}

#[test]
fn futures_that_are_dropped_abandon_their_operations() {
    let served = Served::new("dropped");
    for session in [served.session(SessionOptions::default()), served.tcp_session()] {
        let (session, driver, table) = share(session);
        let (driver, _) = drive(driver);
        let mut context = Context::from_waker(Waker::noop());
        for number in 0..1000_u32 {
            let mut put = pin!(session.put(table, &number.to_be_bytes(), b"v"));
            let _ = put.as_mut().poll(&mut context);
            drop(session.get(table, &number.to_be_bytes()));
        }
        block_on(session.put(table, b"last", b"v")).expect("there is room");
        // A put after all of them is answered after all of them, and gets end by themselves.
        let began = Instant::now();
        while session.with(|session| session.outstanding()) > 0 {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        drop(session);
        driver.join().expect("it ends");
    }
}

/// An operation that nothing would answer any more waited without end.
#[test]
fn without_a_driver_operations_fail_that_are_not_answered_at_once() {
    let served = Served::new("driverless");
    let (session, driver, table) = share(served.tcp_session());
    let put = session.put(table, b"k", b"v");
    let waiting = session.clone();
    let task = std::thread::spawn(move || block_on(async move { waiting.put(table, b"l", b"v").await }));
    drop(driver);
    for outcome in [block_on(put), task.join().expect("it ends")] {
        if let Err(error) = outcome {
            assert_eq!(
                (error.kind(), error.effect()),
                (kelix::ErrorKind::Unavailable, kelix::Effect::Unknown)
            );
        }
    }
}

#[test]
fn a_session_goes_over_to_the_next_server_while_tasks_wait() {
    let mut served = Served::new("next");
    let retry_for = Duration::from_secs(60);
    let options = SessionOptions::default().retry_for(retry_for);
    let (session, driver, table) = share(served.session(options));
    let (driver, _) = drive(driver);
    block_on(session.put(table, b"k", b"before")).expect("there is room");
    served.stop();
    let tasks: Vec<_> = (0..4_u8)
        .map(|n| {
            let session = session.clone();
            std::thread::spawn(move || {
                let began = Instant::now();
                // What was under way at the old server ends by an error, which says that another try may be
                // of use.
                while let Err(error) = block_on(session.put(table, &[n], b"after")) {
                    assert!(began.elapsed() < Duration::from_secs(60), "{error}");
                    std::thread::yield_now();
                }
            })
        })
        .collect();
    served.start();
    served.session(SessionOptions::default()).create_table("t").expect("there is room");
    tasks.into_iter().for_each(|task| task.join().expect("it went well"));
    let item = block_on(session.get(table, &[3])).expect("it answers").expect("just put");
    assert_eq!(item.value(), b"after");
    drop(session);
    driver.join().expect("it ends");
}

#[test]
fn a_lost_server_ends_what_is_under_way() {
    let mut served = Served::new("lost");
    let (session, driver, table) = share(served.session(SessionOptions::default()));
    let (driver, _) = drive(driver);
    block_on(session.put(table, b"k", b"v")).expect("there is room");
    let putting = session.clone();
    let task = std::thread::spawn(move || {
        let began = Instant::now();
        while block_on(putting.put(table, b"k", b"v")).is_ok() {
            assert!(began.elapsed() < Duration::from_secs(60));
        }
    });
    served.stop();
    task.join().expect("it ends");
    // What was there last is read on.
    let item = block_on(session.get(table, b"k")).expect("from memory").expect("it was put");
    assert_eq!(item.value(), b"v");
    drop(session);
    driver.join().expect("it ends");
}

/// An item with links "next" to some numbers.
fn node(table: Table, targets: &[u32]) -> NewItem {
    targets.iter().fold(NewItem::new(), |item, target| item.link("next", table, &target.to_be_bytes()))
}

#[test]
fn links_are_followed_and_visited_by_futures() {
    const TARGETS: u32 = 600;
    let served = Served::new("links");
    for session in [served.session(SessionOptions::default()), served.tcp_session()] {
        let (session, driver, table) = share(session);
        let (driver, _) = drive(driver);
        block_on(async {
            let puts: Vec<_> = (0..TARGETS)
                .filter(|number| number % 3 > 0)
                .map(|number| session.put(table, &number.to_be_bytes(), b"before"))
                .collect();
            for put in puts {
                put.await.expect("there is room");
            }
            let all: Vec<u32> = (0..TARGETS).collect();
            session.put_item(table, b"all", &node(table, &all)).await.expect("there is room");
            session.put_item(table, b"one", &node(table, &[1])).await.expect("there is room");
            let get =
                async |key: &[u8]| session.get(table, key).await.expect("it answers").expect("just put");
            let (source, one) = (get(b"all").await, get(b"one").await);
            let follow = async || session.follow(&one, "next").await.expect("it answers");
            assert_eq!(follow().await.expect("it is there").value(), b"before");
            // The target moves, and goes.
            session.put(table, &1u32.to_be_bytes(), b"after").await.expect("there is room");
            assert_eq!(follow().await.expect("it is there").value(), b"after");
            session.delete(table, &1u32.to_be_bytes()).await.expect("it answers");
            assert!(follow().await.is_none());
            let error = session.follow(&one, "previous").await.expect_err("there is no such link");
            assert_eq!(error.kind(), ErrorKind::NoSuchAttribute);

            let mut frontier = Frontier::new();
            frontier.add_links(&source, "next", |_| true);
            frontier.add(table, "one");
            let found = session.visit_batch(&frontier, 0..frontier.len()).await.expect("it answers");
            assert_eq!(found.len(), TARGETS as usize + 1);
            let mut shown = 0;
            let show = |index: usize, item: Option<&Item>| {
                assert_eq!((index, item.map(Item::key)), (shown, found[index].as_ref().map(Item::key)));
                shown += 1;
                if shown == 500 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            session.visit(&frontier, show).await.expect("it answers");
            assert_eq!(shown, 500);
            for (number, item) in (0..TARGETS).zip(&found) {
                let is_there = number % 3 > 0 && number != 1;
                let wanted = is_there.then(|| number.to_be_bytes().to_vec());
                assert_eq!(item.as_ref().map(|item| item.key().to_vec()), wanted, "{number}");
            }
            assert_eq!(found.last().and_then(Option::as_ref).map(Item::key), Some(&b"one"[..]));
            assert!(session.visit_batch(&frontier, 0..0).await.expect("nothing is nothing").is_empty());
            let error = session.visit_batch(&frontier, 600..602).await.expect_err("it has not so many");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        });
        drop(session);
        driver.join().expect("it ends");
    }
}

#[test]
fn tasks_count_up_together_by_conditional_puts() {
    const TASKS: u64 = 4;
    const TIMES: u64 = 200;
    let served = Served::new("conditional");
    for session in [served.session(SessionOptions::default()), served.tcp_session()] {
        let (session, driver, table) = share(session);
        let (driver, _) = drive(driver);
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let session = session.clone();
                let work = async move {
                    let mut lost = 0;
                    for _ in 0..TIMES {
                        loop {
                            let known = session.get(table, b"count").await.expect("it answers");
                            let count = known.as_ref().map_or(0, |item| {
                                u64::from_le_bytes(item.value().try_into().expect("8 bytes"))
                            });
                            let version = known.map(|item| item.version());
                            let value = (count + 1).to_le_bytes();
                            let set = session.compare_and_set(table, b"count", version, &value);
                            match set.await.expect("it answers") {
                                CompareAndSet::Done(_) => break,
                                CompareAndSet::Mismatch(found) => assert_ne!(found, version),
                            }
                            lost += 1;
                        }
                    }
                    lost
                };
                std::thread::spawn(move || block_on(work))
            })
            .collect();
        let lost: u64 = tasks.into_iter().map(|task| task.join().expect("it went well")).sum();
        eprintln!("{lost} compare-and-sets came too late");
        block_on(async {
            let item = session.get(table, b"count").await.expect("it answers").expect("just put");
            assert_eq!(item.value(), (TASKS * TIMES).to_le_bytes());
            let stale = session.compare_and_delete(table, b"count", kelix::Version(1)).await;
            assert_eq!(stale.expect("it answers"), CompareAndSet::Mismatch(Some(item.version())));
            let new = NewItem::new().bytes("a", b"b");
            let put = session.compare_and_set_item(table, b"count", Some(item.version()), &new).await;
            let CompareAndSet::Done(Some(version)) = put.expect("it answers") else { panic!("it is new") };
            let deleted = session.compare_and_delete(table, b"count", version).await.expect("it answers");
            assert_eq!(deleted, CompareAndSet::Done(None));
            assert!(session.get(table, b"count").await.expect("it answers").is_none());
        });
        drop(session);
        driver.join().expect("it ends");
    }
}

#[test]
fn tables_are_scanned_by_pages_beside_writers() {
    const KEYS: u64 = 2000;
    let served = Served::new("pages");
    for mut session in [served.session(SessionOptions::default()), served.tcp_session()] {
        let numbers = session.create_table_of(TableKind::Numbers, "numbers").expect("there is room");
        let (session, driver, table) = share(session);
        let (driver, _) = drive(driver);
        block_on(async {
            let both = |number: u64| {
                let key = (number * 2).to_be_bytes();
                [session.put(numbers, &key, b"v"), session.put(table, &key, b"v")]
            };
            for put in (0..KEYS).flat_map(both).collect::<Vec<_>>() {
                put.await.expect("there is room");
            }
            for (table, scan) in
                [(numbers, Scan::all()), (numbers, Scan::all().backwards()), (table, Scan::all())]
            {
                let (mut found, mut pages) = (Vec::new(), 0u64);
                let mut page = session.scan(table, &scan).await.expect("it answers");
                loop {
                    let (items, rest) = page.into_parts();
                    found.extend(
                        items.iter().map(|item| u64::from_be_bytes(item.key().try_into().expect("8 bytes"))),
                    );
                    let Some(rest) = rest else { break };
                    // Keys that come meanwhile come at most once.
                    pages += 1;
                    let put = session.put(table, &(pages * 400 + 1).to_be_bytes(), b"v");
                    let (next, put) = (session.page(rest), put);
                    page = next.await.expect("it answers");
                    put.await.expect("there is room");
                }
                assert!(pages > 4, "{pages} pages");
                let even: Vec<u64> = found.iter().copied().filter(|number| number % 2 == 0).collect();
                assert_eq!(even.len() as u64, KEYS, "what is there all the time comes once");
                found.sort_unstable();
                found.dedup();
                assert!(found.len() as u64 <= KEYS + pages);
                assert_eq!(found.iter().filter(|number| *number % 2 == 0).count() as u64, KEYS);
            }
        });
        drop(session);
        driver.join().expect("it ends");
    }
}

#[test]
fn futures_of_reads_and_conditional_writes_that_are_dropped_leave_nothing() {
    let served = Served::new("dropped-too");
    for session in [served.session(SessionOptions::default()), served.tcp_session()] {
        let (session, driver, table) = share(session);
        let (driver, _) = drive(driver);
        let targets: Vec<u32> = (0..100).collect();
        block_on(session.put_item(table, b"source", &node(table, &targets))).expect("there is room");
        let source = block_on(session.get(table, b"source")).expect("it answers").expect("just put");
        let mut frontier = Frontier::new();
        frontier.add_links(&source, "next", |_| true);
        let mut context = Context::from_waker(Waker::noop());
        for number in 0..200_u32 {
            let value = number.to_le_bytes();
            let mut set = pin!(session.compare_and_set(table, &value, None, &value));
            let _ = set.as_mut().poll(&mut context);
            let mut visit = pin!(session.visit_batch(&frontier, 0..100));
            let _ = visit.as_mut().poll(&mut context);
            drop(session.follow(&source, "next"));
            drop(session.scan(table, &Scan::all()));
            let mut page = pin!(session.scan(table, &Scan::all()));
            let _ = page.as_mut().poll(&mut context);
        }
        let began = Instant::now();
        while session.with(|session| session.outstanding()) > 0 {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        // They were done or not, and never in part.
        for number in 0..200_u32 {
            let item = block_on(session.get(table, &number.to_le_bytes())).expect("it answers");
            assert!(item.is_none_or(|item| item.value() == number.to_le_bytes()));
        }
        drop(session);
        driver.join().expect("it ends");
    }
}

/// A conditional write that the end of the server overtakes says whether it may have been done.
#[test]
fn a_conditional_write_at_a_lost_server_says_what_is_unknown() {
    let mut served = Served::new("lost-conditional");
    let (session, driver, table) = share(served.session(SessionOptions::default()));
    let (driver, _) = drive(driver);
    let counting = session.clone();
    let task = std::thread::spawn(move || {
        let (mut version, began) = (None, Instant::now());
        loop {
            assert!(began.elapsed() < Duration::from_secs(60));
            match block_on(counting.compare_and_set(table, b"k", version, b"v")) {
                Ok(CompareAndSet::Done(new)) => version = new,
                Ok(CompareAndSet::Mismatch(found)) => panic!("nobody else writes: {found:?}, {version:?}"),
                Err(error) => return (error, version),
            }
        }
    });
    let began = Instant::now();
    while block_on(session.get(table, b"k")).expect("it answers").is_none() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
    served.stop();
    let (error, version) = task.join().expect("it ends");
    let item = block_on(session.get(table, b"k")).expect("from memory").expect("it was put");
    if error.effect() == Effect::No {
        assert_eq!(Some(item.version()), version, "{error}");
    }
    drop(session);
    driver.join().expect("it ends");
}
