//! Tests of the map: of its algorithms on all stores, of the program, and of the page in a browser. They are
//! one program, since each takes long to link.

mod page;
mod program;
mod running;
mod traffic;
mod ways;
