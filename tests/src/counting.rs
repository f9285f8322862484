//! Clients that go on whichever node of a cluster is primary: some that write, and one that counts, whom others read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kelix::{Session, Table};

use crate::ledger::{Ledger, Tables};
use crate::until;

const WRITERS: u64 = 2;
const READERS: usize = 2;

/// Clients that write until they are told to end, none of whose writes may fail.
pub struct Writers {
    threads: Vec<JoinHandle<Ledger>>,
    done: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
}

impl Writers {
    /// Begins to write, by sessions that are opened so.
    pub fn start(seed: u64, open: impl Fn() -> Session) -> Writers {
        let (done, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let start = |number: u64| {
            let mut session = open();
            let tables = Tables::open(&mut session).unwrap();
            let (done, ends) = (done.clone(), ends.clone());
            std::thread::spawn(move || {
                let mut ledger = Ledger::new(number, seed, true);
                while !ends.load(Ordering::SeqCst) {
                    if let Err(error) = ledger.write(&mut session, &tables) {
                        panic!("writer {number}: {error} ({:?})", error.effect());
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
                ledger
            })
        };
        Writers { threads: (0..WRITERS).map(start).collect(), done, ends }
    }

    /// Waits until so many more writes were acknowledged.
    #[track_caller]
    pub fn until_more(&self, writes: u64) {
        let before = self.done.load(Ordering::SeqCst);
        until("writes are acknowledged", || {
            assert!(!self.threads.iter().any(JoinHandle::is_finished), "a writer has ended");
            self.done.load(Ordering::SeqCst) >= before + writes
        });
    }

    /// Writes that were acknowledged so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Ends them. What each has written.
    pub fn end(self) -> Vec<Ledger> {
        self.ends.store(true, Ordering::SeqCst);
        self.threads.into_iter().map(|thread| thread.join().expect("a writer")).collect()
    }
}

/// One who counts, and others who read the count: each finds what was acknowledged before it began to read, and
/// none goes back.
pub struct Counting {
    threads: Vec<JoinHandle<u64>>,
    ends: Arc<AtomicBool>,
}

impl Counting {
    /// Begins to count and to read, by sessions that are opened so.
    pub fn start(open: impl Fn() -> Session) -> Counting {
        let mut session = open();
        let table = session.create_table("counts").unwrap();
        session.put(table, b"count", &0u64.to_le_bytes()).unwrap();
        let (ends, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut threads = Vec::new();
        for _ in 0..READERS {
            let (ends, acknowledged, mut session) = (ends.clone(), acknowledged.clone(), open());
            let table = session.table("counts").unwrap();
            threads.push(std::thread::spawn(move || {
                let (mut last, mut reads) = (0, 0);
                while !ends.load(Ordering::SeqCst) {
                    let before = acknowledged.load(Ordering::SeqCst);
                    let found = read_count(&mut session, table);
                    assert!(found >= before, "{found} is older than {before}, which was acknowledged");
                    assert!(found >= last, "{found} behind {last}");
                    (last, reads) = (found, reads + 1);
                    // Others need the processor, too.
                    if reads % 64 == 0 {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                }
                reads
            }));
        }
        let told = ends.clone();
        threads.push(std::thread::spawn(move || {
            let mut count = 0u64;
            while !told.load(Ordering::SeqCst) {
                count += 1;
                session.put(table, b"count", &count.to_le_bytes()).unwrap();
                acknowledged.store(count, Ordering::SeqCst);
            }
            assert_eq!(read_count(&mut session, table), count);
            count
        }));
        Counting { threads, ends }
    }

    /// Ends them, each of whom has found what it was to.
    pub fn end(self) {
        self.ends.store(true, Ordering::SeqCst);
        for thread in self.threads {
            assert!(thread.join().expect("it finds what it is to") > 0);
        }
    }
}

/// The count.
pub fn read_count(session: &mut Session, table: Table) -> u64 {
    let item = session.get(table, b"count").unwrap().expect("it was put");
    u64::from_le_bytes(item.value().try_into().unwrap())
}
