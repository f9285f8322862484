//! A spike: the fabric's two verbs on real libibverbs, to learn what the trait lacks for them.
//!
//! It runs in a virtual machine with a software RDMA device (`./run`), and will be thrown away when the real verbs
//! fabric is there. What was learnt stands in docs/design/0003-verbs-spike.md.

pub mod bed;
pub mod endpoint;
pub mod ffi;
pub mod verbs;
