//! A thread that registers segments: that takes milliseconds a megabyte where nothing was written yet, and
//! clients wait for the thread that wants it.

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use kelix_image::Span;
use rustix::event::{EventfdFlags, eventfd};

use super::device::{Access, Domain, Region};

/// A segment that is to be registered, and whose it is.
pub(super) struct Task {
    pub memory: usize,
    pub shard: usize,
    pub first: usize,
    pub domain: Arc<Domain>,
    pub span: Span,
}

/// The thread's other end.
pub(super) struct Registrar {
    tasks: Option<Sender<Task>>,
    done: Receiver<(Task, Result<Region>)>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Registrar {
    pub fn start() -> Result<Registrar> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (tasks, received) = channel::<Task>();
        let (finished, done) = channel();
        let rung = bell.clone();
        let work = move || {
            while let Ok(task) = received.recv() {
                let region = Region::register(&task.domain, task.span.clone(), Access::Readable);
                if finished.send((task, region)).is_err() {
                    return;
                }
                let _ = rustix::io::write(&*rung, &1u64.to_ne_bytes());
            }
        };
        let thread = std::thread::Builder::new().name("kelix-register".into()).spawn(work)?;
        Ok(Registrar { tasks: Some(tasks), done, bell, thread: Some(thread) })
    }

    pub fn register(&self, task: Task) {
        let _ = self.tasks.as_ref().map(|tasks| tasks.send(task));
    }

    /// The next that is done.
    pub fn take(&self) -> Option<(Task, Result<Region>)> {
        let done = self.done.try_recv().ok();
        if done.is_none() {
            let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
            return self.done.try_recv().ok();
        }
        done
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        self.tasks = None;
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}
