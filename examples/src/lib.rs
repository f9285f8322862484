//! Small programs that use Kelix, one idea each. Start a server with `kelix serve &`, then `cargo run
//! --release --package kelix-examples --bin hello`; a run directory, or HOST:PORT, may be given as an
//! argument.
//!
//! | program | shows |
//! |---|---|
//! | `hello` | a table, a put, a get, and what the get cost |
//! | `counter` | several processes that count in one item, by compare-and-set |
//! | `follow` | items with links, followed with one read each |
//! | `people` | structs as items: attributes and links by field |
//! | `scan` | an ordered table, and a range of its keys |
//! | `batches` | many keys in one call, into buffers that are used again |
//! | `submit` | operations that go on while the program does something else |
//! | `async_handler` | an HTTP server whose handlers await the store, with tokio and axum |

#![forbid(unsafe_code)]

use kelix::{Client, Result};

/// The server of the first argument, a run directory or HOST:PORT; without one, that of the default
/// directory.
pub fn connect() -> Result<Client> {
    match std::env::args().nth(1) {
        Some(address) => Client::connect(address.parse::<kelix::Address>()?),
        None => Client::connect(Client::default_directory()),
    }
}
