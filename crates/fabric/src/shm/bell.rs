//! What stands for the socket pairs and the epoll set of `wake` in model tests, which cannot explore a system
//! call: a bell that stays rung until it is heard, and that hands over what was stored before it was rung. It
//! is reached only after the sleep words have been looked at, so it orders nothing for them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use kelix_image::model::loom::sync::{Condvar, Mutex};
use kelix_types::Result;

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

/// The bell of the thread that waits for an end, once it does.
type End = Arc<OnceLock<Arc<Bell>>>;

/// One end of a pair.
pub struct WakerHandle {
    own: End,
    other: End,
}

impl WakerHandle {
    /// A connected pair.
    pub fn pair() -> Result<(WakerHandle, WakerHandle)> {
        let (a, b) = (End::default(), End::default());
        Ok((WakerHandle { own: a.clone(), other: b.clone() }, WakerHandle { own: b, other: a }))
    }

    /// In models a pair like any other.
    pub fn within() -> Result<(WakerHandle, WakerHandle)> {
        WakerHandle::pair()
    }

    /// Models have no agent.
    pub(crate) fn watches(&self) -> rustix::event::epoll::EventFlags {
        unimplemented!("models have no agent")
    }

    /// Models have no descriptors.
    pub fn receive(_: OwnedFd) -> WakerHandle {
        unimplemented!("models have no descriptors")
    }

    /// Models have no agent.
    pub(crate) fn drain(&self) {
        unimplemented!("models have no agent")
    }

    /// Wakes the other end.
    pub fn wake(&self) {
        let bell = self.other.get().expect("both ends are waited for");
        *bell.rung.lock().expect("no panic under this lock") = true;
        bell.heard.notify_one();
    }
}

impl AsFd for WakerHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unimplemented!("models have no descriptors")
    }
}

/// What came of a wait.
pub struct Waited {
    /// Models end with all their connections.
    pub hung_up: bool,
    /// It did not last its time.
    pub woken: bool,
}

/// The part of a [`Waker`] that a thread waits with.
#[derive(Clone)]
pub struct Sleeper(Arc<Bell>);

/// What a [`Sleeper`] has heard: whether somebody has rung.
pub struct Heard(bool);

impl Sleeper {
    /// Sleeps until somebody has rung. Models have no clock: only a time of zero is over.
    pub fn wait(&self, timeout_ns: Option<u64>) -> Heard {
        let mut rung = self.0.rung.lock().expect("no panic under this lock");
        while !*rung && timeout_ns != Some(0) {
            rung = self.0.heard.wait(rung).expect("no panic under this lock");
        }
        Heard(std::mem::take(&mut *rung))
    }
}

/// What one thread sleeps on.
pub struct Waker {
    sleeper: Sleeper,
    handles: Vec<WakerHandle>,
}

impl Waker {
    /// An empty set.
    pub fn create() -> Result<Waker> {
        Ok(Waker { sleeper: Sleeper(Arc::default()), handles: Vec::new() })
    }

    /// Adds this side's end of a pair.
    pub fn add(&mut self, handle: WakerHandle) -> Result<usize> {
        assert!(handle.own.set(self.sleeper.0.clone()).is_ok(), "an end is waited for by one thread");
        self.handles.push(handle);
        Ok(self.handles.len() - 1)
    }

    /// Wakes the other end of an added pair.
    pub fn wake(&self, key: usize) {
        self.handles[key].wake();
    }

    /// Models end with all their connections.
    pub fn remove(&mut self, _: usize) {
        unimplemented!("models end with all their connections")
    }

    /// Models have no descriptors.
    pub fn add_socket(&mut self, _: BorrowedFd<'_>) -> Result<()> {
        unimplemented!("models have no descriptors")
    }

    /// Models have no descriptors.
    pub(crate) fn add_stream(&mut self, _: BorrowedFd<'_>) -> Result<()> {
        unimplemented!("models have no descriptors")
    }

    /// Models have no descriptors.
    pub(crate) fn await_room(&mut self, _: BorrowedFd<'_>, _: bool) {
        unimplemented!("models have no descriptors")
    }

    /// Models have no descriptors.
    pub(crate) fn remove_stream(&mut self, _: BorrowedFd<'_>) {
        unimplemented!("models have no descriptors")
    }

    /// Models have no descriptors.
    pub fn fd(&self) -> BorrowedFd<'_> {
        unimplemented!("models have no descriptors")
    }

    /// What the thread waits with, if others have this meanwhile.
    pub fn sleeper(&self) -> &Sleeper {
        &self.sleeper
    }

    /// Sleeps until somebody has rung.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> Waited {
        let heard = self.sleeper.wait(timeout_ns);
        self.look(&heard)
    }

    /// Takes back the wake-ups that were heard.
    pub fn look(&mut self, heard: &Heard) -> Waited {
        Waited { hung_up: false, woken: heard.0 }
    }
}
