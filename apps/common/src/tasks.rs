//! Sessions that the tasks of a server share.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kelix::aio::AsyncSession;
use kelix::{Client, Session};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::Failure;

/// A few sessions, as many as there are threads that run tasks. Each is opened by the first task that needs
/// it, with whatever else is made of it there.
pub struct Sessions<T> {
    client: Client,
    open: fn(&Client) -> Result<(Session, T), Failure>,
    places: Vec<Mutex<Option<Shared<T>>>>,
}

/// A session that tasks share.
#[derive(Clone)]
pub struct Shared<T> {
    /// The session.
    pub session: AsyncSession,
    /// What was made of it when it was opened.
    pub context: T,
    place: usize,
}

/// What tokio does for a session: it waits until a descriptor is readable, or for a time.
#[expect(unsafe_code, reason = "a registration of tokio's wants a promise about its descriptor")]
async fn readable(descriptor: Option<Arc<OwnedFd>>, time: Duration) {
    let registered = descriptor.map(|descriptor| {
        // SAFETY: an `Arc<OwnedFd>` is an open descriptor, always the same one, for as long as the
        // registration has it.
        unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }
    });
    match registered {
        Some(Ok(descriptor)) => drop(tokio::time::timeout(time, descriptor.readable()).await),
        _ => tokio::time::sleep(time).await,
    }
}

/// The number of the calling thread among those that asked.
fn thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.with(|number| {
        let known = number.get().unwrap_or_else(|| THREADS.fetch_add(1, Ordering::Relaxed));
        number.set(Some(known));
        known
    })
}

impl<T: Clone + Send + 'static> Sessions<T> {
    /// So many sessions of a client, none of which is open yet.
    pub fn new(
        client: &Client,
        count: usize,
        open: fn(&Client) -> Result<(Session, T), Failure>,
    ) -> Sessions<T> {
        let places = (0..count.max(1)).map(|_| Mutex::new(None)).collect();
        Sessions { client: client.clone(), open, places }
    }

    /// The session of the calling thread's tasks, so that threads do not wait for each other. Inside a
    /// runtime of tokio with its I/O and time.
    pub async fn get(&self) -> Result<Shared<T>, Failure> {
        let place = thread() % self.places.len();
        if let Some(shared) = &*self.lock(place) {
            return Ok(shared.clone());
        }
        // Opening waits for the server. Two tasks may do so at once; the later session takes the place.
        let (client, open) = (self.client.clone(), self.open);
        let opened = tokio::task::spawn_blocking(move || open(&client)).await;
        let (session, context) = opened.map_err(|error| format!("cannot open a session: {error}"))??;
        let (session, driver) = AsyncSession::new(session);
        tokio::spawn(driver.run(readable));
        let shared = Shared { session, context, place };
        *self.lock(place) = Some(shared.clone());
        Ok(shared)
    }

    /// Has a session opened anew for whoever asks next: one that has failed.
    pub fn forget(&self, failed: &Shared<T>) {
        *self.lock(failed.place) = None;
    }

    fn lock(&self, place: usize) -> MutexGuard<'_, Option<Shared<T>>> {
        self.places[place].lock().expect("nobody panics with it")
    }
}
