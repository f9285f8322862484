//! Memory that sessions of other processes use too, where there is such a thing.

#[cfg(kelix_sim)]
use std::collections::HashMap;
#[cfg(kelix_sim)]
use std::sync::{Arc, Mutex};

use kelix_image::Span;
use kelix_image::words::Words;

/// Memory by name.
#[derive(Clone, Default)]
pub(crate) enum Shelf {
    /// Each session has its own.
    #[default]
    Private,
    /// The user's processes on this host share it.
    #[cfg(target_os = "linux")]
    OfUser(kelix_fabric::shm::Shelf),
    /// The sessions of a simulation share it.
    #[cfg(kelix_sim)]
    Simulated(Arc<Mutex<HashMap<String, Span>>>),
}

// Where each session has its own, nobody asks by name.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
impl Shelf {
    /// The user's on this host, if there can be one.
    #[cfg(target_os = "linux")]
    pub fn of_user() -> Shelf {
        kelix_fabric::shm::Shelf::of_user().map_or(Shelf::Private, Shelf::OfUser)
    }

    /// The user's on this host: there can be none.
    #[cfg(not(target_os = "linux"))]
    pub fn of_user() -> Shelf {
        Shelf::Private
    }

    /// The memory of a name, if there is some.
    pub fn find(&self, name: &str) -> Option<Span> {
        match self {
            Shelf::Private => None,
            #[cfg(target_os = "linux")]
            Shelf::OfUser(shelf) => shelf.find(name),
            #[cfg(kelix_sim)]
            Shelf::Simulated(shelf) => shelf.lock().expect("no panic under this lock").get(name).cloned(),
        }
    }

    /// Zeroed memory under a name, after `fill`; or that which somebody has put there meanwhile. Where none
    /// can be shared, it is this session's. `None`: there is no memory.
    pub fn put(&self, name: &str, bytes: u64, fill: impl Fn(Words<'_>)) -> Option<Span> {
        let private = || Span::try_private(bytes).inspect(|span| fill(span.words()));
        match self {
            Shelf::Private => private(),
            #[cfg(target_os = "linux")]
            Shelf::OfUser(shelf) => shelf.put(name, bytes, &fill).or_else(private),
            #[cfg(kelix_sim)]
            Shelf::Simulated(shelf) => {
                let made = private()?;
                let mut shelf = shelf.lock().expect("no panic under this lock");
                Some(shelf.entry(name.to_string()).or_insert(made).clone())
            }
        }
    }

    /// Takes a name away.
    pub fn remove(&self, name: &str) {
        match self {
            Shelf::Private => {}
            #[cfg(target_os = "linux")]
            Shelf::OfUser(shelf) => shelf.remove(name),
            #[cfg(kelix_sim)]
            Shelf::Simulated(shelf) => drop(shelf.lock().expect("no panic under this lock").remove(name)),
        }
    }
}
