//! Kelix: an in-memory store whose reads bypass the server.
//!
//! The university of the KELI paper (section 3.1): do two students have supervisors in the same department?
//!
//! ```
//! use kelix::{Client, NewItem};
//! # fn main() -> kelix::Result<()> {
//! # let directory = std::env::temp_dir().join(format!("kelix-university-{}", std::process::id()));
//! # let memory_bytes = 64 << 20;
//! # let config = kelix_server::ServerConfig { directory: directory.clone(), memory_bytes, ..Default::default() };
//! # let server = kelix_server::Server::start(&config)?;
//! // A server is running: `kelix serve --dir DIRECTORY`.
//! let client = Client::connect(&directory)?;
//! let mut session = client.session()?;
//!
//! // Items have a key, attributes, and links to other items by key.
//! let people = session.create_table("people")?;
//! let departments = session.create_table("departments")?;
//! session.put_item(departments, "depcs", &NewItem::new().bytes("website", b"www.cs.ac.co"))?;
//! for (professor, name) in [("prof001", b"UVT"), ("prof002", b"IJK")] {
//!     let item = NewItem::new().bytes("name", name).link("department", departments, "depcs");
//!     session.put_item(people, professor, &item)?;
//! }
//! let student = NewItem::new().bytes("name", b"XYZ").bytes("tel", b"123456789");
//! session.put_item(people, "stu001", &student.link("supervisor", people, "prof001"))?;
//! let student = NewItem::new().bytes("name", b"DEF").link("supervisor", people, "prof002");
//! session.put_item(people, "stu002", &student.link("mentor", people, "prof001"))?;
//!
//! // Two lookups by key; from there on each link is one remote read, and the server does nothing.
//! let mut found = Vec::new();
//! for student in ["stu001", "stu002"] {
//!     let student = session.get(people, student)?.expect("just put");
//!     let professor = session.follow(&student, "supervisor")?.expect("exists");
//!     let before = session.cost();
//!     let department = session.follow(&professor, "department")?.expect("exists");
//!     assert_eq!(session.cost().reads - before.reads, 1);
//!     assert_eq!(session.cost().messages - before.messages, 0);
//!     found.push(department.key().to_vec());
//! }
//! assert_eq!(found[0], found[1], "both supervisors work at {:?}", found[0]);
//! # Ok(())
//! # }
//! ```
//!
//! [`Client`] is shared by threads; each thread has a [`Session`] of its own. The plain calls wait;
//! [`Session::submit_get`] and its sisters with [`Session::poll`] and [`Session::fd`] do not. Every result
//! can tell how it was obtained: see [`Session::cost`].
//!
//! Structs are items by [`Record`] and [`Schema`], with the feature `derive`. Tasks of an asynchronous
//! runtime share a session by the module `aio`, with the feature of that name.

#[cfg(all(feature = "aio", unix))]
pub mod aio;
mod batch;
mod build;
mod catalogue;
mod client;
mod connect;
mod engine;
mod frontier;
mod hints;
mod hot;
mod item;
mod key;
mod links;
#[cfg(feature = "measure")]
pub mod measure;
#[cfg(all(test, kelix_loom))]
mod model;
mod ordered;
mod pointers;
mod puts;
mod read;
mod record;
mod rows;
mod scan;
mod session;
mod shelf;
#[cfg(kelix_sim)]
pub mod sim;
pub mod statistics;
mod submit;
mod tables;
mod transport;
mod walk;

pub use build::{Build, Built, ItemWriter, NewTable, PausedBuild};
pub use client::{Client, ConnectOptions};
pub use connect::{Address, Credentials, FabricChoice};
pub use engine::{TryGet, ValuePart};
pub use frontier::Frontier;
pub use hot::HotKey;
pub use item::{Attribute, Item, Link, Name, NewItem, ValueEntry, Values};
#[cfg(feature = "derive")]
pub use kelix_derive::Record;
pub use kelix_fabric::tcp::{ClientTls, Identity};
pub use kelix_types::{Effect, Error, ErrorKind, Result, TableId, TableKind, Version};
pub use key::Key;
pub use read::Cost;
pub use record::{AttributeValue, LinkTarget, LinkValue, Record, RecordReader, RecordWriter, Schema};
pub use rows::{Cell, RowEntry, Rows};
pub use scan::{PausedScan, Scan, ScanPage, Scanner};
pub use session::{CompareAndSet, Session, SessionOptions};
pub use statistics::{SnapshotTaken, Statistics};
pub use submit::{Completion, Outcome, Ticket};
pub use tables::View;
pub use transport::Path;
pub use walk::{Arrival, Visit, Visited, Walk, Walked, Walker};

/// A table of the server that a session is connected to. With a server started later it leads, in the session
/// that opened it by name, to that server's table of the same name and kind; where there is none, and in
/// other sessions, it is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Table {
    pub(crate) id: TableId,
    pub(crate) server: u64,
    /// Of a loaded table: its generation, or that in force when it is used. 0: it is not loaded.
    pub(crate) generation: u64,
}

impl Table {
    /// Its number, as items and links tell it. A handle that leads to a loaded table by name has a number of
    /// its own; items tell that of their generation's table, which [`View::table`] has.
    pub fn id(self) -> TableId {
        self.id
    }

    /// What it holds, and in which order.
    pub fn kind(self) -> TableKind {
        self.id.kind()
    }
}
