//! A street map in Kelix, as in KELI's paper (sections 4.3 and 6.2): which street a GPS point is on and
//! where, which way a trace went, the best routes, and how fast traffic is.
//!
//! [`network`] is a map in arrays, read by [`source`] and loaded by [`load`]. [`ways`] says what the
//! algorithms need of a map, and gives it them by links, by keys, and from arrays; [`matching`], [`trace`]
//! and [`route`] are these algorithms. [`congestion`] is what a stream of points says, and [`serve`] shows
//! it. What is true is known of what [`simulate`] makes; [`accuracy`] and [`mod@bench`] measure.

#![forbid(unsafe_code)]

pub mod accuracy;
pub mod bench;
pub mod congestion;
pub mod load;
pub mod matching;
pub mod network;
pub mod place;
pub mod points;
pub mod random;
pub mod route;
pub mod search;
pub mod serve;
pub mod simulate;
pub mod source;
pub mod trace;
pub mod ways;
