//! A session beside what a test does to the server or to other clients, which shows that it is not disturbed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kelix::{Path, Session, Table};

use crate::process::ServerProcess;
use crate::{until, value};

/// Enough that every shard has some.
const KEYS: u64 = 12;

/// Puts, gets on every path and checks, on a thread of its own, until it is ended. A wrong answer and an
/// error end it at once, and the test with it.
pub struct Bystander {
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bystander {
    /// Begins, and returns once each of its keys is there.
    #[track_caller]
    pub fn start(server: &ServerProcess) -> Bystander {
        let mut session = server.session_by(Path::Index);
        let table = session.create_table("bystander").expect("a table");
        let (rounds, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stopped) = (rounds.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                round(&mut session, table, counted.load(Ordering::Relaxed));
                counted.fetch_add(1, Ordering::Relaxed);
                // What it is there to look at needs the processor too.
                std::thread::park_timeout(Duration::from_millis(1));
            }
        });
        let bystander = Bystander { rounds, stop, thread: Some(thread) };
        bystander.goes_on();
        bystander
    }

    /// Waits until it has begun and ended a round more.
    #[track_caller]
    pub fn goes_on(&self) {
        let before = self.rounds.load(Ordering::Relaxed);
        until("the session beside has gone on", || {
            assert!(!self.thread.as_ref().is_some_and(JoinHandle::is_finished), "the session beside failed");
            self.rounds.load(Ordering::Relaxed) > before + 1
        });
    }

    /// Ends it.
    #[track_caller]
    pub fn end(mut self) {
        self.goes_on();
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("not ended yet").join().expect("the session beside failed");
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn round(session: &mut Session, table: Table, counter: u64) {
    for key in 0..KEYS {
        let put = session.put(table, &key.to_le_bytes(), &value::make(key, counter, 200));
        put.unwrap_or_else(|error| panic!("a put beside: {error}"));
    }
    for path in [Path::Index, Path::Pointer, Path::Message] {
        session.set_path(path);
        for key in 0..KEYS {
            let item = session.get(table, &key.to_le_bytes());
            let item = item.unwrap_or_else(|error| panic!("a get beside: {error}"));
            let item = item.unwrap_or_else(|| panic!("key {key} beside is reported absent"));
            assert_eq!(value::check(key, item.value()), Ok(counter), "key {key} beside, {path:?}");
        }
    }
}
