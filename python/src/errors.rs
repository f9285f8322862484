//! The client's errors as exceptions.

use kelix::{Effect, Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Advice of the client and of the server that names options and commands of the program, and what it is in
/// Python: a line each, with a tab between. What is to be done to the server stays in its words.
/// `scripts/test-python` looks whether all of it is still said.
const ADVICE: &str = include_str!("advice.txt");

static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// What an error says, with advice for Python.
pub fn message(error: &Error) -> String {
    let text = error.to_string();
    let mut advice = ADVICE.lines().filter_map(|line| line.split_once('\t'));
    advice.find_map(|(theirs, ours)| with_advice(&text, theirs, ours)).unwrap_or(text)
}

/// A text with our advice in place of theirs, which may have a name in it; `None`: theirs is not there.
fn with_advice(text: &str, theirs: &str, ours: &str) -> Option<String> {
    let (before, after) = match theirs.split_once("{name}") {
        None => text.split_once(theirs)?,
        Some((start, end)) => {
            let (before, rest) = text.split_once(start)?;
            (before, rest.rsplit_once(end)?.1)
        }
    };
    Some(format!("{before}{ours}{after}"))
}

/// The exception that an error is: of the class that `kelix.errors` has for its kind.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let effect = match error.effect() {
        Effect::No => "no",
        Effect::Yes => "yes",
        Effect::Unknown => "unknown",
    };
    let parts =
        (error.kind().name(), message(error), error.retry(), effect, error.operation(), error.needed_bytes());
    match make(py).and_then(|make| make.bind(py).call1(parts)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

fn make(py: Python<'_>) -> PyResult<&Py<PyAny>> {
    MAKE.get_or_try_init(py, || Ok(py.import("kelix.errors")?.getattr("_make")?.unbind()))
}

/// The exception of an argument that makes no sense.
pub fn invalid(py: Python<'_>, operation: &'static str, context: impl Into<String>) -> PyErr {
    exception(py, &Error::new(ErrorKind::InvalidArgument, operation, context))
}

/// The exception of a panic. The session in which it happened is given up.
pub fn internal(py: Python<'_>, panic: &(dyn std::any::Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    let parts = ("internal", format!("a fault of Kelix: {text}"), false, "unknown", "", None::<usize>);
    match make(py).and_then(|make| make.bind(py).call1(parts)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// Results of the client as results of functions of Python.
pub trait OrRaise<T> {
    /// The value, or the exception that the error is.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for kelix::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}
