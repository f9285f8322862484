//! Waiting without the interpreter's lock, in such a way that a signal ends it.
//!
//! The client has no call that is broken off in the middle. So where an operation may last long, the main
//! thread, which is the one that handles signals, has another thread do it, and looks for signals meanwhile.
//! Where a signal's handler raises an exception the operation is left behind with all that it owns.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors;

/// An operation that ends in this time is waited for where it was called: handing it over takes longer than
/// most operations.
const SHORT: Duration = Duration::from_millis(1000);
/// Between two looks for signals.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// How a wait ended.
pub enum Waited<T> {
    /// The operation has ended.
    Ended(T),
    /// A signal came first: this is what its handler raised.
    LeftBehind(PyErr),
}

fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Does an operation that lasts no longer than `longest`, without the interpreter's lock.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    longest: Duration,
    operation: impl FnOnce() -> T + Send + 'static,
) -> PyResult<Waited<T>> {
    let operation = move || catch_unwind(AssertUnwindSafe(operation));
    if longest <= SHORT || !is_main_thread() {
        return ended(py, py.detach(operation));
    }
    let (sender, mut receiver) = sync_channel(1);
    let worker = std::thread::Builder::new().name("kelix-wait".into()).spawn(move || {
        // Nobody listens any more if a signal came.
        let _ = sender.send(operation());
    });
    worker.map_err(|error| PyRuntimeError::new_err(format!("no thread to wait in: {error}")))?;
    loop {
        let result;
        (receiver, result) = py.detach(move || {
            let result = receiver.recv_timeout(BETWEEN_LOOKS);
            (receiver, result)
        });
        match result {
            Ok(result) => return ended(py, result),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    return Ok(Waited::LeftBehind(raised));
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Err(errors::internal(py, &"a thread that went")),
        }
    }
}

fn ended<T>(py: Python<'_>, result: Result<T, Box<dyn Any + Send>>) -> PyResult<Waited<T>> {
    result.map(Waited::Ended).map_err(|panic| errors::internal(py, &*panic))
}
