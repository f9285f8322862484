//! A slow way to a server over TCP, which may also break: what clients meet in other networks than a
//! loopback.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kelix::Address;
use rustix::net::sockopt;

use crate::Random;

/// Bytes that a way carries at once.
const STEP: usize = 8 << 10;
/// Of all ways of this process.
static CUTS: AtomicU64 = AtomicU64::new(0);
/// What a socket on the way may hold back, about. By itself it would be megabytes, which a sender takes for
/// sent.
const BUFFER: usize = 64 << 10;

/// A way of so many bytes a second in each direction.
pub struct SlowWay {
    /// Where it begins.
    pub address: Address,
    cuts: Arc<AtomicU64>,
}

impl SlowWay {
    /// A way to a server at an address. With `cuts_after` each connection breaks when it has carried so many
    /// bytes in one direction, or fewer: how many, the random numbers say.
    pub fn to(behind: String, bytes_a_second: u64, cuts_after: Option<(u64, Random)>) -> SlowWay {
        let mut random = cuts_after;
        SlowWay::carrying(behind, bytes_a_second, move || {
            random.as_mut().map_or(u64::MAX, |(most, random)| 1 + random.below(*most))
        })
    }

    /// A way that is slow and breaks each connection when it has carried some bytes in one direction: 64 MiB
    /// at most, and often so few that not even a session is set up. All orders of magnitude are equally
    /// likely, so the largest values arrive in the end.
    pub fn that_breaks(behind: String, seed: u64) -> SlowWay {
        let mut random = Random(seed);
        SlowWay::carrying(behind, 8 << 20, move || {
            let most = 32 << random.below(22);
            1 + random.below(most)
        })
    }

    /// A way each direction of each connection of which breaks when it has carried as many bytes as `life`
    /// says.
    fn carrying(
        behind: String,
        bytes_a_second: u64,
        mut life: impl FnMut() -> u64 + Send + 'static,
    ) -> SlowWay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        // Those that it accepts have it from here.
        sockopt::set_socket_recv_buffer_size(&listener, BUFFER).expect("a size of a buffer");
        sockopt::set_socket_send_buffer_size(&listener, BUFFER).expect("a size of a buffer");
        let address = Address::Tcp(listener.local_addr().expect("a bound socket").to_string());
        let way = SlowWay { address, cuts: Arc::default() };
        let cuts = way.cuts.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&behind) else { continue };
                let ends = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
                let (Some(there), Some((to, from))) = (ends(), ends()) else { continue };
                for (from, to) in [there, (from, to)] {
                    let (left, cuts) = (life(), cuts.clone());
                    std::thread::spawn(move || carry(from, to, bytes_a_second, left, &cuts));
                }
            }
        });
        way
    }

    /// How often it broke.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }
}

/// How often connections broke in this process.
pub fn cuts() -> u64 {
    CUTS.load(Ordering::SeqCst)
}

fn carry(mut from: TcpStream, mut to: TcpStream, bytes_a_second: u64, mut left: u64, cuts: &AtomicU64) {
    let mut buffer = vec![0; STEP];
    let (mut began, mut carried) = (Instant::now(), 0);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let count = left.min(count as u64);
        if to.write_all(&buffer[..count as usize]).is_err() {
            break;
        }
        carried += count;
        left -= count;
        if left == 0 {
            cuts.fetch_add(1, Ordering::SeqCst);
            CUTS.fetch_add(1, Ordering::SeqCst);
            break;
        }
        // A way that was idle has saved nothing up.
        let due = Duration::from_nanos(carried * 1_000_000_000 / bytes_a_second);
        match due.checked_sub(began.elapsed()) {
            // The system wakes nobody as soon as that.
            Some(early) if early < Duration::from_millis(1) => {}
            Some(early) => std::thread::sleep(early),
            None => (began, carried) = (Instant::now(), 0),
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
