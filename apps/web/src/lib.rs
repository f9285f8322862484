//! Web pages made of fragments (KELI, section 4.2): what a change touches is made anew, everything else is
//! reused.
//!
//! A page has links to its fragments, a fragment has links to the objects that it is made of (`of`), and an
//! object has links to the fragments that show it (`shown`): the object dependence graph.
//!
//! 1. Whoever changes an object writes it first and then marks the fragments that show it: puts them without
//!    their HTML, by compare-and-set, also those that had none. So a mark always gives a fragment a new
//!    version ([`Shop::change_price`] and its sisters).
//! 2. Whoever makes a fragment anew reads it first, then its objects, and puts it by compare-and-set with the
//!    version that it read. If an object was changed meanwhile the mark came between, or comes later, and the
//!    older rendering does not stay ([`Shop::page`](Pages::page)).
//! 3. What is counted about the reviews of a list is such a fragment too, in the list itself.
//!
//! A writer that dies between its write and its marks leaves fragments that show what was before; the next
//! change of the object marks them.

#![forbid(unsafe_code)]

mod amazon;
mod bench;
mod catalogue;
mod change;
mod document;
mod generate;
mod html;
mod keyed;
mod load;
mod load_test;
mod pages;
mod render;
mod reviews;
mod server;
mod shapes;
mod shop;
mod tables;

pub use amazon::read as read_amazon;
pub use bench::bench;
pub use catalogue::{Catalogue, Product, Review, User};
pub use change::ReviewChange;
pub use document::product_page;
pub use generate::generate;
pub use keyed::{ByKey, KeyValue};
pub use load::{load, memory_for, set_in};
pub use load_test::{LoadTest, load_test};
pub use pages::{Made, Pages};
pub use reviews::NewReview;
pub use server::HttpServer;
pub use shop::Shop;
