//! What the applications share: a store to work on ([`Store`]), the same data by keys in stores that know no links
//! ([`Keyed`]), and latencies of the same tasks done in several ways ([`Times`]).

#![forbid(unsafe_code)]

mod kelix;
mod keyed;
mod measure;
mod memcached;
mod say;
mod store;

pub use kelix::KelixKeyed;
pub use keyed::{Keyed, Keys};
pub use measure::{BenchArgs, Times, Wanted};
pub use memcached::{Memcached, start as start_memcached};
pub use say::{Failure, complain, end, say, unprinted};
pub use store::{Store, StoreArgs};

/// An error in words.
pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
