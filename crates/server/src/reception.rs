//! The thread that takes clients in shared memory, and watches those who are here.
//!
//! Sessions go through mailboxes, and so the sockets of clients are silent: one thread watches all of these.
//! Whoever connects or has something to say gets a thread of its own for as long as that takes, so that a
//! client which says half of it, or leaves an answer unread, keeps nobody waiting.
//!
//! ```text
//! connects -> greeted, on a thread --> at rest -- has something to say --> answered, on a thread --> at rest
//!                                         `------ has gone ------> taken note of
//! ```
//!
//! A socket is watched once each time it is at rest ([`Shared::watch`]), so no client has two threads.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kelix_types::{Error, Result};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tracing::warn;

use crate::clients::ClientWay;
use crate::connection;
use crate::namespace::Namespace;
use crate::server::{Shared, spawn};

/// The key of the socket that clients connect to, which no connection has.
const LISTENER: u64 = 0;
/// How many clients that have news are looked at together.
const NEWS_A_LOOK: usize = 64;

/// A client that was greeted.
pub(crate) struct Visit {
    pub stream: Arc<UnixStream>,
    pub namespace: Arc<Namespace>,
    pub uid: u32,
}

/// What the socket of a client has to offer.
pub(crate) enum News {
    Nothing,
    /// At least the beginning of a frame.
    Frame,
    /// The client has gone.
    End,
}

impl Visit {
    /// Looks without waiting.
    pub fn news(&self) -> News {
        loop {
            return match recv(&self.stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Ok((0, _)) => News::End,
                Ok(_) => News::Frame,
                Err(Errno::AGAIN) => News::Nothing,
                Err(Errno::INTR) => continue,
                Err(_) => News::End,
            };
        }
    }
}

/// The sockets of clients at rest.
pub(crate) struct Watched(Arc<OwnedFd>);

impl Shared {
    /// Watches the socket of a client that is at rest now, until it has news.
    pub fn watch(&self, connection: u64, stream: &UnixStream) -> Result<()> {
        let Watched(epoll) = self.watched.get().expect("set before anybody is greeted");
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ONESHOT;
        let data = epoll::EventData::new_u64(connection);
        let known = epoll::modify(&**epoll, stream, data, flags);
        let watched = known.or_else(|_| epoll::add(&**epoll, stream, data, flags));
        watched.map_err(|source| Error::system("watch client", "epoll refused", source))
    }

    /// A client in shared memory, if it is still there.
    fn visit_of(&self, connection: u64) -> Option<Visit> {
        let clients = self.clients.lock().expect("no panic under this lock");
        let client = clients.iter().find(|client| client.connection == connection)?;
        let ClientWay::Shm { uid, stream, .. } = &client.way else { return None };
        Some(Visit { stream: stream.clone(), namespace: client.namespace.clone(), uid: *uid })
    }
}

/// What the thread looks at.
pub(crate) struct Reception {
    listener: UnixListener,
    epoll: Arc<OwnedFd>,
}

impl Reception {
    /// Begins to watch the socket that clients connect to.
    pub fn begin(listener: UnixListener) -> Result<Reception> {
        let system = |source| Error::system("serve", "cannot watch the socket: too many open files?", source);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let (data, flags) = (epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN);
        epoll::add(&epoll, listener.as_fd(), data, flags).map_err(system)?;
        // Who connected may be gone when it is accepted.
        listener
            .set_nonblocking(true)
            .map_err(|source| Error::system("serve", "no flag on the socket", source))?;
        Ok(Reception { listener, epoll: Arc::new(epoll) })
    }

    /// Where clients are watched.
    pub fn watched(&self) -> Watched {
        Watched(self.epoll.clone())
    }

    /// Takes clients and watches them until the server stops, which connects once more for this to see it.
    pub fn run(&self, shared: &Arc<Shared>, stop: &Arc<AtomicBool>) {
        let mut events = Vec::with_capacity(NEWS_A_LOOK);
        while !stop.load(Ordering::Relaxed) {
            events.clear();
            // A failure is a signal's.
            let _ = epoll::wait(&*self.epoll, rustix::buffer::spare_capacity(&mut events), None);
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(shared, stop),
                    connection => look_after(shared, stop, connection),
                }
            }
        }
    }

    fn accept(&self, shared: &Arc<Shared>, stop: &Arc<AtomicBool>) {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => Arc::new(stream),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(_) => {
                // Out of descriptors: those who are connected go on, new ones wait in the socket's queue.
                warn!("no descriptor for another client: it waits");
                return std::thread::sleep(Duration::from_millis(50));
            }
        };
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let number = shared.next_connection.fetch_add(1, Ordering::Relaxed);
        let client = stream.clone();
        let serve = move |shared: Arc<Shared>, _| connection::serve(&shared, number, &client);
        if let Err(error) = spawn("kelix-client", shared.clone(), stop.clone(), serve) {
            refuse(&error, &stream);
        }
    }
}

/// Refuses a client for whom there is no thread. Clients that are connected go on, and so do those over TCP,
/// who need none.
fn refuse(error: &Error, stream: &UnixStream) {
    warn!(%error, "no thread for another client: it is refused");
    let why = "it has no thread for another client now; try again, or connect over TCP";
    connection::refuse(stream, why);
}

/// Takes note that a client has gone, or answers what it has sent.
fn look_after(shared: &Arc<Shared>, stop: &Arc<AtomicBool>, connection: u64) {
    let Some(visit) = shared.visit_of(connection) else { return };
    if matches!(visit.news(), News::End) {
        return shared.leave(connection);
    }
    let stream = visit.stream.clone();
    let resume = move |shared: Arc<Shared>, _| connection::resume(&shared, connection, &visit);
    if let Err(error) = spawn("kelix-client", shared.clone(), stop.clone(), resume) {
        refuse(&error, &stream);
        shared.leave(connection);
    }
}
