//! Rows as a source gives them: the texts of named columns, packed.
//!
//! ```text
//! bytes   [Ada][person 7][1999-01-01][Bob]...
//! cells   one a column and row: where its text begins, and its length; or nothing at all (null)
//! places  one a row: its number, or its line, as messages tell it
//! ```
//!
//! A batch is filled by one side and read by the other over and over, so that no value is allocated.

/// A batch is handed on when it has so many bytes.
const BATCH_BYTES: usize = 256 << 10;
/// Or so many rows.
const BATCH_ROWS: usize = 4096;

/// Bytes of the longest value that can be loaded.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of the longest row, so that a quote without its other, or a file without ends of lines, is not read
/// into memory whole.
pub(crate) const ROW_BYTES_MAX: usize = 256 << 20;
/// What is said of a longer one.
pub(crate) const ROW_TOO_LONG: &str =
    "it has more than 256 MiB, which no row may have; what follows was not read";

/// A value that is longer than any may be, as a message tells it.
pub(crate) fn too_long(bytes: usize) -> String {
    format!("a value of {bytes} bytes; the longest that can be loaded has {VALUE_BYTES_MAX} (64 MiB)")
}

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    start: u32,
    bytes: u32,
}

impl Cell {
    /// Null.
    pub const NULL: Cell = Cell { start: 0, bytes: u32::MAX };

    /// A text in the batch's bytes, which have at most 4 GiB.
    pub fn at(start: usize, bytes: usize) -> Cell {
        debug_assert!(start + bytes < u32::MAX as usize);
        Cell { start: start as u32, bytes: bytes as u32 }
    }
}

/// A row that the source could not give.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Its number or line.
    pub place: u64,
    /// The column, if it is about one.
    pub column: Option<String>,
    /// What is wrong with it.
    pub text: String,
}

/// A batch of rows.
#[derive(Default, Debug)]
pub(crate) struct Batch {
    /// What the cells point into. Sources write here in place.
    pub bytes: Vec<u8>,
    /// The cells of all rows, in order.
    pub cells: Vec<Cell>,
    /// Numbers or lines of the rows.
    pub places: Vec<u64>,
    /// Rows that are missing here because they make no sense.
    pub faults: Vec<Fault>,
    columns: usize,
}

impl Batch {
    /// An empty batch of rows with so many columns.
    pub fn new(columns: usize) -> Batch {
        Batch { columns, ..Batch::default() }
    }

    /// How many columns its rows have.
    #[cfg(test)]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.places.len()
    }

    /// Whether it is to be handed on.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES || self.places.len() >= BATCH_ROWS || self.faults.len() >= BATCH_ROWS
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.cells.clear();
        self.places.clear();
        self.faults.clear();
    }

    /// The text of a cell that is not null.
    pub fn text(&self, cell: Cell) -> &[u8] {
        &self.bytes[cell.start as usize..][..cell.bytes as usize]
    }

    /// The text of a cell; `None`: null.
    #[inline]
    pub fn text_of(&self, cell: Cell) -> Option<&[u8]> {
        (cell.bytes != u32::MAX).then(|| self.text(cell))
    }

    /// Adds the next column of a row.
    pub fn push(&mut self, value: Option<&[u8]>) {
        let cell = value.map_or(Cell::NULL, |value| Cell::at(self.bytes.len(), value.len()));
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.cells.push(cell);
    }

    /// Ends a row, all of whose columns have been added.
    pub fn end_row(&mut self, place: u64) {
        self.places.push(place);
        debug_assert_eq!(self.cells.len(), self.places.len() * self.columns);
    }

    /// Takes back the columns of a row that was begun and made no sense.
    pub fn refuse_row(&mut self, fault: Fault) {
        self.cells.truncate(self.places.len() * self.columns);
        self.faults.push(fault);
    }

    /// The text of a column; `None`: null.
    #[inline]
    pub fn get(&self, row: usize, column: usize) -> Option<&[u8]> {
        self.text_of(self.cells[row * self.columns + column])
    }
}
