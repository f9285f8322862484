//! A long way to a server over TCP, which may be cut at any byte: each byte arrives some time after it was
//! sent, in its order.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::Random;

/// Bytes that travel together, and how many such pieces a way carries at once: more than a link of 1 Gbit/s
/// has under way in 20 ms.
const PIECE: usize = 16 << 10;
const PIECES: usize = 256;

/// Between two looks whether a way is held.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// What all connections of a way share.
struct Shared {
    delay: Duration,
    /// The next connection breaks when it has carried that many bytes towards the client at most: a number
    /// below it is drawn. 0: it does not break.
    most: AtomicU64,
    random: Mutex<Random>,
    cuts: AtomicU64,
    /// Nothing arrives at the server.
    is_held: AtomicBool,
    is_over: AtomicBool,
}

/// A way that takes some time in each direction.
pub struct LongWay {
    /// Where it begins.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl LongWay {
    /// A way to a server at an address. Where it is cut follows from the random numbers.
    pub fn to(behind: String, delay: Duration, random: Random) -> LongWay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let shared = Shared {
            delay,
            most: AtomicU64::new(0),
            random: Mutex::new(random),
            cuts: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        };
        let shared = Arc::new(shared);
        let way = LongWay { address, shared: shared.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.is_over.load(Ordering::SeqCst) {
                    break;
                }
                // Whoever finds no server is told so by the end of his connection.
                let Ok(server) = TcpStream::connect(&behind) else { continue };
                let ends = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
                let (Some((to_server, from_client)), Some((to_client, from_server))) =
                    (ends().map(|(client, server)| (server, client)), ends())
                else {
                    continue;
                };
                carry(from_client, to_server, None, shared.clone());
                carry(from_server, to_client, Some(shared.life()), shared.clone());
            }
        });
        way
    }

    /// From now on each new connection is cut before it has brought so many bytes; 0: none is.
    pub fn cut_within(&self, bytes: u64) {
        self.shared.most.store(bytes, Ordering::SeqCst);
    }

    /// Has nothing arrive at the server, or all of it again.
    pub fn hold(&self, is_held: bool) {
        self.shared.is_held.store(is_held, Ordering::SeqCst);
    }

    /// How often a connection was cut.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for LongWay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // The thread that accepts looks.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    /// After how many bytes the next connection is cut.
    fn life(&self) -> u64 {
        match self.most.load(Ordering::SeqCst) {
            0 => u64::MAX,
            most => self.random.lock().expect("no panic under this lock").below(most),
        }
    }
}

/// Carries bytes in one direction, by two threads: one takes them in, one gives them out when they are due.
/// Towards a client it is cut when so many have arrived; towards a server it may be held.
fn carry(mut from: TcpStream, to: TcpStream, life: Option<u64>, shared: Arc<Shared>) {
    let (under_way, arrives): (SyncSender<(Instant, Vec<u8>)>, _) = sync_channel(PIECES);
    let delay = shared.delay;
    let source = from.try_clone();
    std::thread::spawn(move || give_out(&arrives, (source, to), life, &shared));
    std::thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if under_way.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
    });
}

fn give_out(
    arrives: &Receiver<(Instant, Vec<u8>)>,
    (source, mut to): (std::io::Result<TcpStream>, TcpStream),
    life: Option<u64>,
    shared: &Shared,
) {
    let mut left = life.unwrap_or(u64::MAX);
    for (due, bytes) in arrives {
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(early);
        }
        while life.is_none() && shared.is_held.load(Ordering::SeqCst) {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        let count = left.min(bytes.len() as u64);
        left -= count;
        let is_given = to.write_all(&bytes[..count as usize]).is_ok();
        if is_given && count as usize == bytes.len() {
            continue;
        }
        shared.cuts.fetch_add(u64::from(is_given), Ordering::SeqCst);
        break;
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = source.map(|source| source.shutdown(Shutdown::Both));
}
