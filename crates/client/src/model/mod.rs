//! Model tests of what clients do without a lock.

mod absence;
mod pointers;
mod reads;
