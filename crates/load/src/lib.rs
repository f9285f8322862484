//! Loads tables of Kelix from databases and files.
//!
//! A source has rows of named columns: PostgreSQL, SQLite, CSV, JSON lines, a map of OpenStreetMap
//! ([`Origin`]). A [`Map`] says which query or file gives which table, and how columns become keys,
//! attributes, links and lists. [`load()`] reads all of it, checks all of it, and only then puts it into a
//! [`Store`]; what is wrong is told with source, row and column ([`Findings`]). [`suggest`] draws a map from
//! the schema of a database.
//!
//! docs/load.md is the reference of maps.

#![forbid(unsafe_code)]
// Some of it only sources use that may be left out.
#![cfg_attr(not(all(feature = "osm", feature = "postgres", feature = "sqlite")), allow(dead_code))]

mod batch;
mod changes;
mod check;
mod findings;
mod keys;
mod lists;
mod load;
mod map;
mod memory;
mod plan;
mod problem;
mod read;
mod rows;
mod session_store;
mod source;
mod spool;
mod store;
mod suggest;

pub use changes::Last;
pub use findings::{FINDINGS_TOLD, Finding, Findings};
pub use load::{OnDangling, Options, Progress, Report, Watch, load, load_if_changed};
pub use map::Map;
pub use problem::Problem;
pub use rows::{Field, Row, Rows};
pub use session_store::SessionStore;
#[cfg(feature = "osm")]
pub use source::pbf;
pub use source::{CsvFormat, CsvRecords, Origin, spans_lines};
pub use store::{Building, InForce, Store, Summary, TableSpec};
pub use suggest::suggest;
