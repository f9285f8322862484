//! What a load needs of a store.

use kelix::{Result, TableKind};

use crate::rows::Rows;

/// A table to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableSpec {
    /// Its name.
    pub name: String,
    /// What its keys are.
    pub kind: TableKind,
    /// Whether clients may write to it, and what they wrote is kept by the next load.
    pub overlay: bool,
    /// Names of its attributes and links, as [`crate::Field`] counts them. The empty one is the plain
    /// value's.
    pub names: Vec<String>,
}

/// What a load has put into a store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// The number of the generation.
    pub generation: u64,
    /// Items.
    pub items: u64,
}

/// What a store has in force of a data set.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct InForce {
    /// Names the store and its life: what begins empty at the same place is another one.
    pub store: String,
    /// The number of the generation; `None`: there is none.
    pub generation: Option<u64>,
}

/// Takes the tables of a data set, all or none of them.
pub trait Store {
    /// Bytes that are free for them.
    fn free_bytes(&mut self) -> Result<u64>;

    /// What of a data set is in force.
    fn in_force(&mut self, dataset: &str) -> Result<InForce>;

    /// Fails if the tables of a data set cannot be begun, as far as that can be told beforehand.
    fn check(&mut self, _dataset: &str, _tables: &[TableSpec]) -> Result<()> {
        Ok(())
    }

    /// Begins to build the tables of a data set.
    fn begin<'s>(&'s mut self, dataset: &str, tables: &[TableSpec]) -> Result<Box<dyn Building + 's>>;
}

/// Tables that are being built. What is dropped without [`Building::finish`] leaves nothing behind.
pub trait Building {
    /// Puts a batch into one of them, counted as in [`Store::begin`]. No key comes twice.
    fn put(&mut self, table: usize, rows: &Rows) -> Result<()>;

    /// Makes them visible, all at once. Until here nothing is.
    fn finish(self: Box<Self>) -> Result<Summary>;
}
