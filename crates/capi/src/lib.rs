//! The C interface: `include/kelix.h`, which cbindgen makes of this crate, and `libkelix.so`.
//!
//! It is a thin layer over the Rust client: no state of the store is kept here, and no rule of reading. What
//! stands here is what a caller in C needs: handles, arrays, numbers for errors.
//!
//! # What callers promise
//!
//! Everything that can be checked is checked, and a breach is an error: null pointers, lengths, sizes of
//! structs, text that is not UTF-8, handles of another type or session, two threads in one handle. What
//! nobody can check here is what each function relies on, and what the `SAFETY` comments call *the promises*:
//!
//! 1. a pointer that is not null is aligned for its type and leads to as much memory as its length says,
//!    which stays and is written by nobody else until the call has returned;
//! 2. a handle that is not null was made by this library and has not been freed;
//! 3. memory that one call reads and memory that it writes do not overlap.
//!
//! # Layers
//!
//! | file | owns |
//! |---|---|
//! | `memory.rs` | C's pointers with lengths as slices, results through pointers |
//! | `structs.rs` | structs whose first member is their size |
//! | `handle.rs` | what a handle is: its magic word, and who is inside |
//! | `error.rs` | results, the last error |
//! | `call.rs` | how each function begins and ends: entering a session, catching panics |
//! | all others | one concept of the client each |

// C's names, so that the header has them without a table of names beside it.
#![allow(non_camel_case_types)]
// The header says it once for all functions, and so does the module's documentation.
#![allow(clippy::missing_safety_doc)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod call;
mod handle;
mod structs;

// In the order in which the header has them, which rustfmt keeps between empty lines.
mod version;

mod memory;

mod error;

mod connect;

mod session;

mod table;

mod plain;

mod item;

mod new_item;

mod list;

mod batch;

mod scan;

mod rows;

mod frontier;

mod walk;

mod view;

mod build;

mod submit;
