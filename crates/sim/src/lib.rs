//! A cluster in one process under a seeded simulator: production code, virtual time, every interleaving of
//! words.
//!
//! The simulator itself is only built with `--cfg kelix_sim` (`make sim`), which puts a hook before each
//! access to shared memory. The checkers are always built, since tests of other kinds use them too.

#[cfg(kelix_sim)]
pub mod chaos;
pub mod check;
#[cfg(kelix_sim)]
pub mod client;
#[cfg(kelix_sim)]
pub mod cluster;
#[cfg(kelix_sim)]
pub mod coverage;
#[cfg(kelix_sim)]
pub mod disk;
#[cfg(kelix_sim)]
pub mod fabric;
pub mod history;
#[cfg(kelix_sim)]
pub mod mirror;
pub mod opinion;
#[cfg(kelix_sim)]
pub mod plan;
pub mod random;
#[cfg(kelix_sim)]
pub mod run;
#[cfg(kelix_sim)]
pub mod scheduler;
#[cfg(kelix_sim)]
pub mod server;
pub mod value;
