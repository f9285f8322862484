//! The learned index of an ordered table: a two-level recursive model, by which clients find a key's leaf by
//! themselves (XStore, sections 3 and 4).
//!
//! ```text
//! header page -> list of roots -> top model -> sub-model with its translation table -> leaf
//! ```

mod models;
mod sub_model;
mod top;

pub use models::ModelCounts;
pub(crate) use models::{Models, Separator};
pub use sub_model::{Guess, Line, TABLE_HEADER_WORDS, Window, guess_string, leaf_at, leaf_of};
pub use top::{COUNT_WORD as TOP_COUNT_WORD, SubModel, TOP_ENTRY_WORDS, TOP_HEADER_WORDS, Top};
