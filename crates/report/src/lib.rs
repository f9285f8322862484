//! What benchmarks have in common: comparisons in turn, rows and reports, their charts, and servers of others
//! to be measured beside.

#![forbid(unsafe_code)]

mod chart;
pub mod cores;
pub mod daemon;
pub mod interleave;
mod marked;
mod measurements;
pub mod memcached;
mod papers;
pub mod progress;
pub mod redis;
pub mod report;
pub mod socket;

pub use measurements::{check_parts, fill, keep};
pub use report::{Report, Row, Sense};
