//! The Python binding: what of the package `kelix` is not written in Python.
//!
//! One engine, the Rust client. What is here turns objects into bytes and back, finds the calling thread's
//! session, and lets go of the interpreter's lock where an operation may wait.
//!
//! Rules that hold in all files:
//!
//! 1. No lock is waited for with the interpreter's lock held, but those that are only ever taken with it
//!    held.
//! 2. No Python code runs while a session is locked.
//! 3. What is done by a session that may wait owns all it needs, so that a signal can end the wait and leave
//!    it behind ([`wait::wait`]).
//! 4. A session that a child inherits is never used there ([`sessions`]).

mod arrow;
mod batch;
mod build;
mod codec;
mod errors;
mod item;
mod memory;
mod queue;
mod scan;
mod sessions;
mod store;
mod table;
mod view;
mod wait;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
mod _kelix {
    #[pymodule_export]
    use super::arrow::{ArrowBatch, ArrowScan};
    #[pymodule_export]
    use super::build::Build;
    #[pymodule_export]
    use super::item::{Item, Link, Visit, Walk};
    #[pymodule_export]
    use super::queue::{Completion, Page, Queue};
    #[pymodule_export]
    use super::scan::Rows;
    #[pymodule_export]
    use super::sessions::forked;
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::table::Table;
    #[pymodule_export]
    use super::view::View;
}
