//! What the applications share: a store to work on ([`Store`]), the same data by keys in stores that know no
//! links ([`Keyed`]), latencies of the same tasks done in several ways ([`Times`]); and with the feature
//! `tasks` calls for threads and tasks alike (`Calls`), and the sessions of a server's tasks (`Sessions`).

#![deny(unsafe_code)]

#[cfg(feature = "tasks")]
mod calls;
mod kelix;
mod keyed;
mod measure;
mod memcached;
mod store;
#[cfg(feature = "tasks")]
mod tasks;

#[cfg(feature = "tasks")]
pub use calls::{Calls, now};
pub use kelix::KelixKeyed;
pub use kelix_program::output::say as complain;
pub use kelix_program::{Exit, Failure, end};
pub use keyed::{Keyed, Keys};
pub use measure::{BenchArgs, Times, Wanted};
pub use memcached::{Memcached, start as start_memcached};
pub use store::{Store, StoreArgs};
#[cfg(feature = "tasks")]
pub use tasks::{Sessions, Shared};

/// Prints a line.
pub fn say(line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    Ok(std::io::Write::write_fmt(&mut std::io::stdout().lock(), format_args!("{line}\n"))?)
}

/// An error in words.
pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
