//! Sleeping until a peer wakes us: an epoll set of eventfds and sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use kelix_types::{Error, Result};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

/// A descriptor that wakes its owner when somebody writes to it.
pub struct WakerHandle(OwnedFd);

impl WakerHandle {
    /// Makes one.
    pub fn create() -> Result<WakerHandle> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        eventfd(0, flags).map(WakerHandle).map_err(|source| {
            Error::system("make wake-up descriptor", "too many open files? see `ulimit -n`", source)
        })
    }

    /// Takes a descriptor that another process sent. If it is no eventfd its owner loses wake-ups, nobody else.
    pub fn receive(fd: OwnedFd) -> WakerHandle {
        WakerHandle(fd)
    }

    /// Another handle to the same owner.
    pub fn try_clone(&self) -> Result<WakerHandle> {
        let fd = self.0.try_clone();
        fd.map(WakerHandle)
            .map_err(|source| Error::system("copy wake-up descriptor", "too many open files?", source))
    }

    /// Wakes the owner. Never blocks: a full counter means it has been woken already.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn drain(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for WakerHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What one thread sleeps on.
pub struct Waker {
    epoll: OwnedFd,
    /// Eventfds by key; they are drained when they fire.
    handles: Vec<Option<WakerHandle>>,
}

/// Keys from here on are sockets, whose hang-up is the news.
const SOCKETS: u64 = 1 << 32;

impl Waker {
    /// An empty set.
    pub fn create() -> Result<Waker> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|source| Error::system("make epoll set", "too many open files?", source))?;
        Ok(Waker { epoll, handles: Vec::new() })
    }

    /// Adds a descriptor that peers write to. Returns the key to remove it with.
    pub fn add(&mut self, handle: WakerHandle) -> Result<usize> {
        let key = self.handles.iter().position(Option::is_none).unwrap_or(self.handles.len());
        let data = epoll::EventData::new_u64(key as u64);
        epoll::add(&self.epoll, &handle, data, epoll::EventFlags::IN)
            .map_err(|source| Error::system("watch wake-up descriptor", "epoll refused", source))?;
        if key == self.handles.len() {
            self.handles.push(None);
        }
        self.handles[key] = Some(handle);
        Ok(key)
    }

    /// Removes a descriptor.
    pub fn remove(&mut self, key: usize) {
        if let Some(handle) = self.handles.get_mut(key).and_then(Option::take) {
            let _ = epoll::delete(&self.epoll, &handle);
        }
    }

    /// Also wakes when the other end of a socket goes.
    pub fn add_socket(&mut self, socket: BorrowedFd<'_>) -> Result<()> {
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(SOCKETS), epoll::EventFlags::RDHUP)
            .map_err(|source| Error::system("watch connection", "epoll refused", source))
    }

    /// The descriptor that is readable when something has happened.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Sleeps until something happens or the time is over. Returns whether a socket hung up.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> bool {
        let timeout = timeout_ns
            .map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ });
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 16];
        let count = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            // Nothing else can happen to a valid set; sleeping is then replaced by polling.
            Err(_) => 0,
        };
        let mut hung_up = false;
        for event in &events[..count] {
            let key = event.data.u64();
            if key >= SOCKETS {
                hung_up = true;
            } else if let Some(Some(handle)) = self.handles.get(key as usize) {
                handle.drain();
            }
        }
        hung_up
    }
}
