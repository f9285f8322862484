//! Sleeping until a peer wakes us: an epoll set of socket pairs and sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use kelix_types::{Error, Result};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::{Errno, fcntl_dupfd_cloexec, write};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use crate::timespec;

fn refused(source: Errno) -> Error {
    Error::system("make wake-up descriptors", "too many open files? see `ulimit -n`", source)
}

/// Most tries to wake somebody.
const WAKES_MAX: u32 = 16;

/// One end of a pair of connected sockets: what is written to one end makes the other readable.
///
/// Each side owns its end alone. The other side can neither read what is meant for this one nor change how
/// its calls behave, and every call here is non-blocking by itself, whatever the descriptor's flags: so a
/// hostile peer can disturb only itself.
///
/// Threads of one process share a counter instead, which takes half as long. Nobody reads it: whoever sleeps
/// is told of each time that it counts (`EPOLLET`), and it is never full.
pub struct WakerHandle {
    fd: OwnedFd,
    is_counter: bool,
}

impl WakerHandle {
    /// A connected pair.
    pub fn pair() -> Result<(WakerHandle, WakerHandle)> {
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let [a, b] = pair.map(|(a, b)| [a, b]).map_err(refused)?.map(WakerHandle::receive);
        Ok((a, b))
    }

    /// Two ends of a counter, for threads of one process: the first wakes whoever waits for the second.
    pub fn within() -> Result<(WakerHandle, WakerHandle)> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(refused)?;
        let other = fcntl_dupfd_cloexec(&counter, 0).map_err(refused)?;
        let [a, b] = [counter, other].map(|fd| WakerHandle { fd, is_counter: true });
        Ok((a, b))
    }

    /// What it is watched for.
    pub(crate) fn watches(&self) -> epoll::EventFlags {
        let edge = if self.is_counter { epoll::EventFlags::ET } else { epoll::EventFlags::empty() };
        epoll::EventFlags::IN | edge
    }

    /// Takes a descriptor that another process sent. If it is no socket its owner loses wake-ups, nobody
    /// else.
    pub fn receive(fd: OwnedFd) -> WakerHandle {
        WakerHandle { fd, is_counter: false }
    }

    /// Wakes the other end. A full socket means it has been woken already, and one whose other end has gone
    /// needs no waking. Whatever else the system refuses, for want of memory say, it is asked for again: a
    /// wake-up that is lost is a thread that sleeps on.
    pub fn wake(&self) {
        for _ in 0..WAKES_MAX {
            let sent = match self.is_counter {
                true => write(&self.fd, &1u64.to_ne_bytes()),
                false => send(&self.fd, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            };
            match sent {
                Ok(_) | Err(Errno::AGAIN | Errno::PIPE | Errno::NOTSOCK | Errno::BADF) => return,
                Err(_) => {}
            }
        }
    }

    /// Takes back wake-ups that have been heard. What is left, if the other end writes without end, only
    /// wakes again.
    pub(crate) fn drain(&self) {
        if !self.is_counter {
            let _ = recv(&self.fd, &mut [0u8; 256], RecvFlags::DONTWAIT);
        }
    }
}

impl AsFd for WakerHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What one thread sleeps on.
pub struct Waker {
    sleeper: Sleeper,
    /// Ends of socket pairs by key; they are drained when they fire.
    handles: Vec<Option<WakerHandle>>,
}

/// The part of a [`Waker`] that a thread waits with, which may leave the rest to others meanwhile.
#[derive(Clone)]
pub struct Sleeper(Arc<OwnedFd>);

/// What a [`Sleeper`] has heard, for its [`Waker`] to look at.
pub struct Heard {
    events: [epoll::Event; 16],
    count: usize,
}

impl Sleeper {
    /// Sleeps until something happens or the time is over.
    pub fn wait(&self, timeout_ns: Option<u64>) -> Heard {
        let timeout = timeout_ns.map(|ns| timespec(Duration::from_nanos(ns)));
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 16];
        let waited = epoll::wait(&*self.0, &mut events[..], timeout.as_ref());
        Heard { events, count: crate::events(waited, timeout.as_ref()) }
    }
}

/// What came of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waited {
    /// A socket hung up.
    pub hung_up: bool,
    /// It did not last its time.
    pub woken: bool,
}

/// Keys from here on are sockets, whose hang-up is the news.
const SOCKETS: u64 = 1 << 32;
/// The key of the stream of a connection, which its owner reads.
const STREAM: u64 = 1 << 33;

impl Waker {
    /// An empty set.
    pub fn create() -> Result<Waker> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|source| Error::system("make epoll set", "too many open files?", source))?;
        Ok(Waker { sleeper: Sleeper(Arc::new(epoll)), handles: Vec::new() })
    }

    /// Adds this side's end of a pair. Returns the key to use and remove it with.
    pub fn add(&mut self, handle: WakerHandle) -> Result<usize> {
        let key = self.handles.iter().position(Option::is_none).unwrap_or(self.handles.len());
        let data = epoll::EventData::new_u64(key as u64);
        epoll::add(&*self.sleeper.0, &handle, data, handle.watches())
            .map_err(|source| Error::system("watch wake-up descriptor", "epoll refused", source))?;
        if key == self.handles.len() {
            self.handles.push(None);
        }
        self.handles[key] = Some(handle);
        Ok(key)
    }

    /// Wakes the other end of an added pair.
    pub fn wake(&self, key: usize) {
        if let Some(Some(handle)) = self.handles.get(key) {
            handle.wake();
        }
    }

    /// Removes a descriptor.
    pub fn remove(&mut self, key: usize) {
        if let Some(handle) = self.handles.get_mut(key).and_then(Option::take) {
            let _ = epoll::delete(&*self.sleeper.0, &handle);
        }
    }

    /// Also wakes when the other end of a socket goes.
    pub fn add_socket(&mut self, socket: BorrowedFd<'_>) -> Result<()> {
        epoll::add(&*self.sleeper.0, socket, epoll::EventData::new_u64(SOCKETS), epoll::EventFlags::RDHUP)
            .map_err(|source| Error::system("watch connection", "epoll refused", source))
    }

    /// Also wakes when something arrives in a stream, or it ends; and where its owner has something to send,
    /// when there is room for that. There is one such stream at most.
    pub(crate) fn add_stream(&mut self, stream: BorrowedFd<'_>) -> Result<()> {
        epoll::add(&*self.sleeper.0, stream, epoll::EventData::new_u64(STREAM), epoll::EventFlags::IN)
            .map_err(|source| Error::system("watch connection", "epoll refused", source))
    }

    /// Whether room in the stream wakes too.
    pub(crate) fn await_room(&mut self, stream: BorrowedFd<'_>, wanted: bool) {
        let room = if wanted { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let events = epoll::EventFlags::IN | room;
        let _ = epoll::modify(&*self.sleeper.0, stream, epoll::EventData::new_u64(STREAM), events);
    }

    /// Wakes no more for the stream.
    pub(crate) fn remove_stream(&mut self, stream: BorrowedFd<'_>) {
        let _ = epoll::delete(&*self.sleeper.0, stream);
    }

    /// The descriptor that is readable when something has happened.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.sleeper.0.as_fd()
    }

    /// What the thread waits with, if others have this meanwhile.
    pub fn sleeper(&self) -> &Sleeper {
        &self.sleeper
    }

    /// Sleeps until something happens or the time is over.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> Waited {
        let heard = self.sleeper.wait(timeout_ns);
        self.look(&heard)
    }

    /// Takes back the wake-ups that were heard.
    pub fn look(&mut self, heard: &Heard) -> Waited {
        let mut hung_up = false;
        for event in &heard.events[..heard.count] {
            let key = event.data.u64();
            if key == STREAM {
                // Its owner reads it, and so sees why it woke.
            } else if key >= SOCKETS {
                hung_up = true;
            } else if let Some(Some(handle)) = self.handles.get(key as usize) {
                if { event.flags }.contains(epoll::EventFlags::HUP) {
                    // The other end has gone. It would be readable for ever, so it wakes once and then no
                    // more; that the connection is over is for its socket to say.
                    let _ = epoll::delete(&*self.sleeper.0, handle);
                }
                handle.drain();
            }
        }
        Waited { hung_up, woken: heard.count > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter that nobody reads is readable for ever; each time that it counts wakes once all the same.
    #[test]
    fn each_wake_within_a_process_is_heard_once() {
        let (handle, end) = WakerHandle::within().unwrap();
        let mut waker = Waker::create().unwrap();
        waker.add(end).unwrap();
        let mut woken = |timeout_ns| waker.wait(Some(timeout_ns)).woken;
        assert!(!woken(0));
        for _ in 0..1000 {
            handle.wake();
            assert!(woken(60_000_000_000) && !woken(0));
        }
        // Some before the sleep are one.
        (0..1000).for_each(|_| handle.wake());
        assert!(woken(60_000_000_000) && !woken(0));
        std::thread::scope(|scope| {
            scope.spawn(|| handle.wake());
            assert!(woken(60_000_000_000));
        });
    }
}
