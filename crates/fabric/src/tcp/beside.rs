//! Whether both ends of a connection are on one core.
//!
//! On cores of their own a client and the agent look for what comes from the other, since a core that sleeps
//! is woken later than an answer comes. On one core nothing comes before it is given away, and whoever sleeps
//! in the system does that with a single call, in place of a look in vain, a yield and another look. The
//! system also switches from who sends to who sleeps right then. So whoever is beside the other end sleeps at
//! once.
//!
//! The agent brings that about: it goes to the core of a client on this host that asks for one thing after
//! the other. Such a client has no use for its core while the agent works, so the exchange takes as long as
//! before, and one core in place of two. One that has much under way at once works while the agent does, and
//! is left alone.
//!
//! Where the other end is tells the kernel, of a socket over the loopback interface: the core that took in
//! what was last sent is the one that it was sent from. Each question is a call of the system, so it is asked
//! now and then.

#[cfg(target_os = "linux")]
use rustix::thread::sched_getcpu;

#[cfg(target_os = "linux")]
use super::nearness::Nearness;
use super::stream::Stream;

/// Exchanges between two questions to the system.
const EXCHANGES: u32 = 16;
/// Frames of one operation, at most, as they arrive at once.
#[cfg(target_os = "linux")]
const FRAMES: u32 = 2;

/// What a client knows of the agent's core.
pub(super) struct Beside {
    is_near: bool,
    exchanges: u32,
    is_so: bool,
}

impl Beside {
    /// Of a connection over which nothing was asked for yet.
    pub fn of(stream: &Stream) -> Beside {
        Beside { is_near: stream.is_near(), exchanges: 0, is_so: false }
    }

    /// Notes that something has arrived.
    pub fn note(&mut self, stream: &Stream) {
        if self.is_near {
            self.exchanges += 1;
            if self.exchanges % EXCHANGES == 0 {
                self.is_so = is_beside(stream);
            }
        }
    }

    /// Whether the other end was seen on this core.
    pub fn is_so(&self) -> bool {
        self.is_so
    }
}

#[cfg(target_os = "linux")]
fn is_beside(stream: &Stream) -> bool {
    stream.core() == Some(sched_getcpu())
}

/// Other systems do not tell.
#[cfg(not(target_os = "linux"))]
fn is_beside(_: &Stream) -> bool {
    false
}

/// The client that is alone in asking the agent for one thing after the other.
#[cfg(target_os = "linux")]
#[derive(Default)]
pub(super) struct Alone {
    slot: usize,
    exchanges: u32,
    is_beside: bool,
    nearness: Nearness,
}

#[cfg(target_os = "linux")]
impl Alone {
    /// Notes that so many frames of a connection were answered at once, and goes to the core of its client
    /// now and then. `core` asks the system where the client is, if on this host. Where others compute,
    /// clients and the agent sleep anyway, so there it goes also to one that has much under way.
    pub fn note(
        &mut self,
        slot: usize,
        frames: u32,
        is_contended: bool,
        core: impl FnOnce() -> Option<usize>,
    ) {
        if slot != self.slot || frames > FRAMES && !is_contended {
            (self.slot, self.exchanges, self.is_beside) = (slot, 0, false);
        }
        self.exchanges += 1;
        if self.exchanges % EXCHANGES == 0 {
            self.is_beside = core().is_some_and(|core| {
                self.nearness.go(core);
                core == sched_getcpu()
            });
        }
    }

    /// Whether the one who is alone was seen on this core.
    pub fn is_beside(&self) -> bool {
        self.is_beside
    }
}

#[cfg(all(test, target_os = "linux", not(kelix_loom)))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use kelix_image::words::bytes_of;
    use rustix::thread::{CpuSet, sched_setaffinity};

    use super::super::frame::{Head, Kind};
    use super::*;

    /// Has this thread stay where it is.
    fn stay() {
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        // The thread is the test's own.
        sched_setaffinity(None, &here).unwrap();
    }

    /// All that arrives was sent by this thread.
    #[test]
    fn who_is_answered_from_its_own_core_notices() {
        stay();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let [mut here, mut there] =
            [TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0]
                .map(|socket| Stream::new(socket, None, 10).unwrap());
        let mut beside = Beside::of(&here);
        for exchange in 1..=EXCHANGES {
            assert!(!beside.is_so());
            there.out.push(Head::new(Kind::Control, 0, 7, 0).word());
            let bytes = bytes_of(&there.out).len() as u64 * u64::from(exchange);
            there.flush();
            here.wait(None);
            assert!(here.fill() && here.moved() >= bytes);
            beside.note(&here);
        }
        assert!(beside.is_so());
    }

    #[test]
    fn the_agent_is_beside_one_client_that_asks_for_one_thing_after_the_other() {
        stay();
        let here = || Some(sched_getcpu());
        let asks = |alone: &mut Alone, times: u32, slot, frames, is_contended| {
            (0..times).for_each(|_| alone.note(slot, frames, is_contended, here));
            alone.is_beside()
        };
        let mut alone = Alone::default();
        assert!(!asks(&mut alone, EXCHANGES - 1, 3, 1, false));
        assert!(asks(&mut alone, 1, 3, 1, false));
        // Another one, and one that has much under way, unless all sleep anyway.
        assert!(!asks(&mut alone, 1, 4, 1, false));
        assert!(asks(&mut alone, EXCHANGES, 4, 1, false));
        assert!(!asks(&mut alone, 10 * EXCHANGES, 4, FRAMES + 1, false));
        assert!(asks(&mut alone, EXCHANGES, 4, FRAMES + 1, true));
        // One on another host.
        (0..EXCHANGES).for_each(|_| alone.note(4, 1, false, || None));
        assert!(!alone.is_beside());
    }

    /// Two clients in turn have a core each, as a rule.
    #[test]
    fn the_agent_is_beside_none_of_two() {
        let mut alone = Alone::default();
        for exchange in 0..10 * EXCHANGES as usize {
            alone.note(exchange % 2, 1, false, || unreachable!("nobody is alone"));
        }
    }
}
