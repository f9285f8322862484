//! Model tests of what clients do without a lock.

mod pointers;
mod reads;
