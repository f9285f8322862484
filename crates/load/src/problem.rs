//! Why a load came to nothing.

use std::fmt;

use crate::findings::Findings;

/// Why a load came to nothing. Nothing was switched.
#[derive(Debug)]
pub enum Problem {
    /// The map is wrong, or does not fit the source.
    Map(Findings),
    /// Rows of the source cannot be loaded.
    Rows(Findings),
    /// The source cannot be reached or read: what happened and what to do.
    Source(String),
    /// The server has not enough memory.
    NoRoom {
        /// Bytes that the tables need, about.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The store refused.
    Store(kelix::Error),
    /// Whoever watches gave up.
    GivenUp,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        match self {
            Problem::Map(findings) | Problem::Rows(findings) => findings.fmt(f),
            Problem::Source(text) => f.write_str(text),
            Problem::NoRoom { needed, free } => write!(
                f,
                "the tables need about {} MiB and the server has {} MiB free; serve with more --memory",
                needed.div_ceil(MIB),
                free / MIB
            ),
            Problem::Store(error) => error.fmt(f),
            Problem::GivenUp => f.write_str("the load was given up"),
        }
    }
}

impl std::error::Error for Problem {}

impl From<kelix::Error> for Problem {
    fn from(error: kelix::Error) -> Problem {
        Problem::Store(error)
    }
}
