//! Tables as Arrow data, by the C interfaces of Arrow: structures that pyarrow, polars, duckdb and others
//! read, with functions in them by which they are released.
//!
//! Layout: one batch is an array of structs with the children `key`, `value`, and one for each attribute that
//! is wanted. Each child is bytes, text or `uint64`, by the table's codecs; attributes are bytes, and null
//! where an item has none. Bytes and text are `binary_view` and `utf8_view`: of each value 16 bytes, with the
//! value in them if it has 12 at most, and else with where it stands in the buffer into which the client has
//! copied it. Consumers that ask for `binary` or `utf8` by the requested schema get those, which are one more
//! copy. The specification is "The Arrow C data interface", "The Arrow C stream interface", and of views
//! "Arrow columnar format".
//!
//! The client's buffer is shared by all columns of a batch, and goes with the last of them. Offsets of views
//! have 31 bits. So a buffer that is longer is told as several pieces, which begin every 2^30 bytes and
//! overlap: a value stands as a whole in the piece in which it begins, since a piece is nearly 2^31 bytes
//! long.
//!
//! Who owns what: a structure owns its private data, which owns its children, until `release` is called or
//! somebody moves it, who then sets `release` to null where it stood. So dropping a structure releases it if
//! nobody has moved it.

use std::any::Any;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

use kelix::{Cell, Error, ErrorKind, PausedScan, Result, Rows, Scan, Values};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::batch::Strings;
use crate::codec::Codec;
use crate::errors::{OrRaise, message};
use crate::sessions::{Local, forks};
use crate::table::Place;

/// Rows of a stream's first batch, and of a batch at most. What 8,192 rows of some 50 bytes are scanned into
/// stays in a core's cache until their views are made; batches of 65,536 take a quarter longer a row.
const BATCH_ROWS_FIRST: u64 = 1 << 10;
const BATCH_ROWS_MAX: u64 = 1 << 13;
/// Bytes that the next batch is to have at most, as far as the rows before it tell.
const BATCH_BYTES: u64 = 64 << 20;
/// Bytes of a column with offsets of 32 bits after which a batch ends.
const COLUMN_BYTES: usize = 1 << 30;
/// Where the pieces of a long buffer begin: every so many bytes.
const PIECE_BYTES: usize = 1 << 30;
/// Longest value that stands in its view.
const INLINE_BYTES: usize = 12;
const NULLABLE: i64 = 2;
const EIO: c_int = 5;

/// `struct ArrowSchema` of the specification.
#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray` of the specification.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// `struct ArrowArrayStream` of the specification.
#[repr(C)]
struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

const _: () = {
    assert!(
        size_of::<ArrowSchema>() == 72
            && size_of::<ArrowArray>() == 80
            && size_of::<ArrowArrayStream>() == 40
    );
};

// SAFETY: all that a structure points to is owned by its private data, which is Send; it is used by one
// thread at a time, as the specification says.
unsafe impl Send for ArrowSchema {}
// SAFETY: as above.
unsafe impl Send for ArrowArray {}
// SAFETY: as above; the private data has a session, which is Send.
unsafe impl Send for ArrowArrayStream {}

struct SchemaData {
    format: CString,
    name: CString,
    pointers: Vec<*mut ArrowSchema>,
}

enum Buffer {
    Bytes(Vec<u8>),
    Offsets(Vec<i32>),
    Lengths(Vec<i64>),
    Words(Vec<u64>),
    Views(Vec<u128>),
    /// A part of the memory of the array's owner, from a byte on.
    Piece(*const u8),
}

/// Memory that arrays share.
type Owner = Arc<dyn Any + Send + Sync>;

struct ArrayData {
    /// What `pointers` points to.
    _buffers: Vec<Option<Buffer>>,
    _owner: Option<Owner>,
    pointers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the caller has a structure that was not released. Its private data was made by
    // `ArrowSchema::new` with `Box::into_raw`, and so were the children in it; each is taken back once, since
    // `release` is null afterwards.
    unsafe {
        let data = Box::from_raw((*schema).private_data.cast::<SchemaData>());
        (*schema).release = None;
        data.pointers.iter().for_each(|child| drop(Box::from_raw(*child)));
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: as `release_schema`, with `ArrowArray::new`.
    unsafe {
        let data = Box::from_raw((*array).private_data.cast::<ArrayData>());
        (*array).release = None;
        data.children.iter().for_each(|child| drop(Box::from_raw(*child)));
    }
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: as `release_schema`, with `Stream::into_structure`.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<Stream>()));
        (*stream).release = None;
    }
}

impl Drop for ArrowSchema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: nobody has released or moved it: then `release` would be null.
            unsafe { release(self) }
        }
    }
}

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as for schemas.
            unsafe { release(self) }
        }
    }
}

impl Drop for ArrowArrayStream {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as for schemas.
            unsafe { release(self) }
        }
    }
}

impl ArrowSchema {
    fn new(format: &str, name: &str, flags: i64, children: Vec<ArrowSchema>) -> ArrowSchema {
        let text = |text: &str| CString::new(text.replace('\0', "?")).unwrap_or_default();
        let pointers = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        let mut data = Box::new(SchemaData { format: text(format), name: text(name), pointers });
        ArrowSchema {
            format: data.format.as_ptr(),
            name: data.name.as_ptr(),
            metadata: null(),
            flags,
            n_children: data.pointers.len() as i64,
            children: data.pointers.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_schema),
            private_data: Box::into_raw(data).cast(),
        }
    }
}

impl ArrowArray {
    /// An array whose buffers are its own, or pieces of the owner's memory.
    fn new(
        length: usize,
        null_count: usize,
        buffers: Vec<Option<Buffer>>,
        owner: Option<Owner>,
        children: Vec<ArrowArray>,
    ) -> ArrowArray {
        let pointers = buffers
            .iter()
            .map(|buffer| match buffer {
                None => null(),
                Some(Buffer::Bytes(bytes)) => bytes.as_ptr().cast(),
                Some(Buffer::Offsets(offsets)) => offsets.as_ptr().cast(),
                Some(Buffer::Lengths(lengths)) => lengths.as_ptr().cast(),
                Some(Buffer::Words(words)) => words.as_ptr().cast(),
                Some(Buffer::Views(views)) => views.as_ptr().cast(),
                Some(Buffer::Piece(start)) => start.cast(),
            })
            .collect();
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        let mut data = Box::new(ArrayData { _buffers: buffers, _owner: owner, pointers, children });
        ArrowArray {
            length: length as i64,
            null_count: null_count as i64,
            offset: 0,
            n_buffers: data.pointers.len() as i64,
            n_children: data.children.len() as i64,
            buffers: data.pointers.as_mut_ptr(),
            children: data.children.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_array),
            private_data: Box::into_raw(data).cast(),
        }
    }

    /// What a stream gives at its end.
    fn end() -> ArrowArray {
        ArrowArray {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: null_mut(),
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private_data: null_mut(),
        }
    }
}

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Binary,
    Text,
    /// A number whose highest byte comes first.
    NumberKey,
    /// One whose lowest byte comes first.
    Number,
}

/// The types of keys and values.
#[derive(Clone, Copy)]
pub struct Types {
    key: Type,
    value: Type,
}

impl Types {
    pub fn of(key: &Codec, value: &Codec) -> Types {
        let of = |codec: &Codec| match codec {
            Codec::Text => Type::Text,
            Codec::NumberKey => Type::NumberKey,
            Codec::NumberValue => Type::Number,
            Codec::Bytes | Codec::Functions { .. } => Type::Binary,
        };
        Types { key: of(key), value: of(value) }
    }

    /// The columns: their names, types, and whether they can be null.
    fn columns(self, attributes: &[String], absent: bool) -> Vec<Column> {
        let column =
            |name: &str, of, is_nullable| Column { name: name.into(), of, is_nullable, is_plain: false };
        let mut columns = vec![column("key", self.key, false), column("value", self.value, absent)];
        columns.extend(attributes.iter().map(|name| column(name, Type::Binary, true)));
        columns
    }
}

/// A column of a batch.
struct Column {
    name: String,
    of: Type,
    is_nullable: bool,
    /// It is `binary` or `utf8`, and no view.
    is_plain: bool,
}

impl Column {
    fn format(&self) -> &'static str {
        match (self.of, self.is_plain) {
            (Type::Binary, true) => "z",
            (Type::Binary, false) => "vz",
            (Type::Text, true) => "u",
            (Type::Text, false) => "vu",
            (Type::NumberKey | Type::Number, _) => "L",
        }
    }

    /// The column's array of so many rows, of which each has bytes, that stand in the owner's memory, or is
    /// null.
    fn array<'b>(
        &self,
        rows: usize,
        (memory, owner): (&[u8], Owner),
        bytes: impl Fn(usize) -> Option<&'b [u8]>,
    ) -> Result<ArrowArray> {
        let (validity, nulls) = if self.is_nullable { validity(rows, &bytes) } else { (None, 0) };
        // A row that is null has no bytes.
        let bytes = |row| bytes(row).unwrap_or_default();
        if self.of == Type::Text {
            let is_text = |row: &usize| std::str::from_utf8(bytes(*row)).is_ok();
            if let Some(row) = (0..rows).find(|row| !is_text(row)) {
                return Err(wrong(format!("row {row} is no text in UTF-8")));
            }
        }
        let mut buffers = vec![validity];
        match self.of {
            Type::NumberKey => buffers.push(Some(words(rows, bytes, nulls > 0, u64::from_be_bytes)?)),
            Type::Number => buffers.push(Some(words(rows, bytes, nulls > 0, u64::from_le_bytes)?)),
            Type::Binary | Type::Text if self.is_plain => buffers.extend(plain(rows, bytes)?.map(Some)),
            Type::Binary | Type::Text => {
                buffers.extend(views(rows, bytes, memory)?.into_iter().map(Some));
                return Ok(ArrowArray::new(rows, nulls, buffers, Some(owner), Vec::new()));
            }
        }
        Ok(ArrowArray::new(rows, nulls, buffers, None, Vec::new()))
    }
}

fn schema(columns: &[Column]) -> ArrowSchema {
    let child = |column: &Column| {
        let flags = if column.is_nullable { NULLABLE } else { 0 };
        ArrowSchema::new(column.format(), &column.name, flags, Vec::new())
    };
    ArrowSchema::new("+s", "", 0, columns.iter().map(child).collect())
}

/// Makes those columns plain that a consumer's schema has as `binary` or `utf8`. A producer gives what it
/// has, whatever else is asked for.
fn grant(requested: Option<Bound<'_, PyAny>>, columns: &mut [Column]) -> PyResult<()> {
    let Some(requested) = requested.filter(|requested| !requested.is_none()) else { return Ok(()) };
    let requested = requested.cast::<PyCapsule>()?.pointer_checked(Some(c"arrow_schema"))?;
    // SAFETY: a capsule of this name has a schema that was not released, as the specification says; names are
    // texts or null, formats texts, and there are as many children as it says.
    unsafe {
        let requested = requested.cast::<ArrowSchema>().as_ref();
        if requested.release.is_none() || requested.n_children <= 0 {
            return Ok(());
        }
        for child in std::slice::from_raw_parts(requested.children, requested.n_children as usize) {
            let ArrowSchema { name, format, .. } = **child;
            if name.is_null() || !matches!(CStr::from_ptr(format).to_bytes(), b"z" | b"u") {
                continue;
            }
            let name = CStr::from_ptr(name).to_bytes();
            let wanted = columns.iter_mut().filter(|column| column.name.as_bytes() == name);
            wanted.for_each(|column| column.is_plain = true);
        }
    }
    Ok(())
}

fn wrong(context: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "arrow", context)
}

/// A bit a row, which says that the row is not null; and how many are null. No bits where none is.
fn validity<'b>(rows: usize, bytes: impl Fn(usize) -> Option<&'b [u8]>) -> (Option<Buffer>, usize) {
    let (mut bits, mut nulls) = (vec![0u8; rows.div_ceil(8)], rows);
    for row in (0..rows).filter(|row| bytes(*row).is_some()) {
        bits[row / 8] |= 1 << (row % 8);
        nulls -= 1;
    }
    ((nulls > 0).then_some(Buffer::Bytes(bits)), nulls)
}

/// Numbers. A row without bytes is 0 where rows can be null.
fn words<'b>(
    rows: usize,
    bytes: impl Fn(usize) -> &'b [u8],
    has_nulls: bool,
    number: impl Fn([u8; 8]) -> u64,
) -> Result<Buffer> {
    let mut words = Vec::with_capacity(rows);
    for row in 0..rows {
        words.push(match bytes(row).try_into() {
            Ok(bytes) => number(bytes),
            Err(_) if has_nulls && bytes(row).is_empty() => 0,
            Err(_) => return Err(wrong(format!("row {row} is no number: numbers have 8 bytes"))),
        });
    }
    Ok(Buffer::Words(words))
}

/// Offsets of 32 bits, and the bytes.
fn plain<'b>(rows: usize, bytes: impl Fn(usize) -> &'b [u8]) -> Result<[Buffer; 2]> {
    let all: usize = (0..rows).map(|row| bytes(row).len()).sum();
    if i32::try_from(all).is_err() {
        return Err(wrong(format!("a column of {all} bytes: one without views has 2 GiB at most")));
    }
    let (mut data, mut offsets) = (Vec::with_capacity(all), Vec::with_capacity(rows + 1));
    offsets.push(0);
    for row in 0..rows {
        data.extend_from_slice(bytes(row));
        offsets.push(data.len() as i32);
    }
    Ok([Buffer::Offsets(offsets), Buffer::Bytes(data)])
}

/// Views of bytes that stand in this memory, its pieces, and their lengths.
fn views<'b>(rows: usize, bytes: impl Fn(usize) -> &'b [u8], memory: &[u8]) -> Result<Vec<Buffer>> {
    let is_one_piece = i32::try_from(memory.len()).is_ok();
    let mut views = Vec::with_capacity(rows);
    for row in 0..rows {
        let bytes = bytes(row);
        let mut view = [0; 16];
        view[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        if bytes.len() <= INLINE_BYTES {
            view[4..][..bytes.len()].copy_from_slice(bytes);
        } else {
            let start = bytes.as_ptr() as usize - memory.as_ptr() as usize;
            let (piece, offset) =
                if is_one_piece { (0, start) } else { (start / PIECE_BYTES, start % PIECE_BYTES) };
            if i32::try_from(offset + bytes.len()).is_err() {
                return Err(wrong(format!("row {row} has {} bytes: too many for Arrow", bytes.len())));
            }
            view[4..8].copy_from_slice(&bytes[..4]);
            view[8..12].copy_from_slice(&(piece as u32).to_le_bytes());
            view[12..].copy_from_slice(&(offset as u32).to_le_bytes());
        }
        views.push(u128::from_ne_bytes(view));
    }
    let step = if is_one_piece { memory.len().max(1) } else { PIECE_BYTES };
    let pieces = || (0..memory.len()).step_by(step).map(|start| &memory[start..]);
    let length = |piece: &[u8]| piece.len().min(i32::MAX as usize) as i64;
    let mut buffers = vec![Buffer::Views(views)];
    buffers.extend(pieces().map(|piece| Buffer::Piece(piece.as_ptr())));
    buffers.push(Buffer::Lengths(pieces().map(length).collect()));
    Ok(buffers)
}

fn structs(rows: usize, columns: Vec<ArrowArray>) -> ArrowArray {
    ArrowArray::new(rows, 0, vec![None], None, columns)
}

/// A batch of keys with their values.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct ArrowBatch {
    keys: Arc<Strings>,
    values: Arc<Values>,
    types: Types,
}

impl ArrowBatch {
    pub fn read(py: Python<'_>, place: &Place, keys: Strings, types: Types) -> PyResult<ArrowBatch> {
        let (keys, values) = place.run(py, false, {
            let mut keys = keys;
            move |session, table, _| {
                let mut values = Values::new();
                session.multi_get_into(table, &keys.slices(), &mut values)?;
                Ok((std::mem::take(&mut keys), values))
            }
        })?;
        Ok(ArrowBatch { keys: Arc::new(keys), values: Arc::new(values), types })
    }

    fn array(&self, columns: &[Column]) -> Result<ArrowArray> {
        let ArrowBatch { keys, values, .. } = self;
        let (slices, rows) = (keys.slices(), keys.len());
        let columns = vec![
            columns[0].array(rows, (keys.data(), keys.clone()), |row| Some(slices[row]))?,
            columns[1].array(rows, (values.data(), values.clone()), |row| values.get(row))?,
        ];
        Ok(structs(rows, columns))
    }
}

#[pymethods]
impl ArrowBatch {
    /// The C interface for data.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let mut columns = self.types.columns(&[], true);
        grant(requested_schema, &mut columns)?;
        let array = self.array(&columns).or_raise(py)?;
        let schema = PyCapsule::new_with_value(py, schema(&columns), c"arrow_schema")?;
        Ok((schema, PyCapsule::new_with_value(py, array, c"arrow_array")?))
    }

    fn __len__(&self) -> usize {
        self.keys.len()
    }
}

/// A scan that begins when it is read, and again each time.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct ArrowScan {
    place: Place,
    scan: Scan,
    attributes: Vec<String>,
    types: Types,
}

impl ArrowScan {
    pub fn new(
        py: Python<'_>,
        place: Place,
        scan: Scan,
        attributes: Vec<String>,
        types: Types,
    ) -> PyResult<ArrowScan> {
        if let Some(name) = attributes.iter().find(|name| matches!(&name[..], "key" | "value" | "")) {
            return Err(wrong(format!("no column of an attribute can be called \"{name}\""))).or_raise(py);
        }
        Ok(ArrowScan { place, scan, attributes, types })
    }
}

#[pymethods]
impl ArrowScan {
    /// The C interface for streams.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let mut columns = self.types.columns(&self.attributes, false);
        grant(requested_schema, &mut columns)?;
        let (local, table) = self.place.session_and_table(py)?;
        let scan = self.scan.clone();
        let begun = local.clone();
        let scan =
            self.place.shared().run_in(py, &begun, move |local| local.session()?.open_scan(table, &scan))?;
        let names: Vec<&str> = self.attributes.iter().map(String::as_str).collect();
        let stream = Stream {
            local,
            forks: forks(),
            scan: Some(scan),
            page: Page { rows: Rows::with_attributes(&names), data: Arc::default() },
            next: 0,
            most: BATCH_ROWS_FIRST,
            columns,
            last_error: None,
        };
        PyCapsule::new_with_value(py, stream.into_structure(), c"arrow_array_stream")
    }
}

/// A page of a scan, whose bytes batches share.
struct Page {
    /// Without their bytes.
    rows: Rows,
    data: Arc<Vec<u8>>,
}

impl Page {
    fn bytes(&self, start: u64, bytes: u64) -> &[u8] {
        &self.data[start as usize..(start + bytes) as usize]
    }

    fn key(&self, row: usize) -> &[u8] {
        match self.rows.entries().get(row) {
            Some(entry) => self.bytes(entry.key_start, entry.key_bytes),
            None => self.rows.key(row),
        }
    }

    fn value(&self, row: usize) -> &[u8] {
        match self.rows.entries().get(row) {
            Some(entry) => self.bytes(entry.value_start, entry.value_bytes),
            None => self.rows.value(row),
        }
    }

    fn attribute(&self, row: usize, column: usize) -> Option<&[u8]> {
        // Inline values have no attributes.
        let cell = self.rows.cells().get(row * self.rows.names().len() + column)?;
        (*cell != Cell::ABSENT).then(|| self.bytes(cell.start, cell.bytes))
    }
}

/// A scan that is read as a stream, by any thread and without the interpreter.
struct Stream {
    local: Arc<Mutex<Local>>,
    forks: u64,
    /// `None`: no further page.
    scan: Option<PausedScan>,
    page: Page,
    /// The first row that was not given yet.
    next: usize,
    /// Rows of the next page at most.
    most: u64,
    columns: Vec<Column>,
    last_error: Option<CString>,
}

impl Stream {
    fn into_structure(self) -> ArrowArrayStream {
        ArrowArrayStream {
            get_schema: Some(get_schema),
            get_next: Some(get_next),
            get_last_error: Some(get_last_error),
            release: Some(release_stream),
            private_data: Box::into_raw(Box::new(self)).cast(),
        }
    }

    fn next_batch(&mut self) -> Result<ArrowArray> {
        while self.next == self.page.rows.len() {
            let Some(mut scan) = self.scan.take() else { return Ok(ArrowArray::end()) };
            if self.forks != forks() {
                let context = "the stream is of the process that forked this one";
                return Err(Error::new(ErrorKind::Forked, "arrow", context));
            }
            let mut local = self.local.lock().map_err(|_| wrong("its session broke".into()))?;
            let Page { rows, data } = &mut self.page;
            let more = scan.next_rows(local.session()?, rows, self.most)?;
            *data = Arc::new(rows.take_data());
            self.most = next_rows(rows.len(), data.len());
            self.scan = more.then_some(scan);
            self.next = 0;
        }
        let (first, count) = (self.next, self.batch_rows());
        self.next += count;
        let page = &self.page;
        let mut columns = Vec::with_capacity(self.columns.len());
        for (number, column) in self.columns.iter().enumerate() {
            let memory = (&page.data[..], page.data.clone() as Owner);
            columns.push(match number {
                0 => column.array(count, memory, |row| Some(page.key(first + row)))?,
                1 => column.array(count, memory, |row| Some(page.value(first + row)))?,
                _ => column.array(count, memory, |row| page.attribute(first + row, number - 2))?,
            });
        }
        Ok(structs(count, columns))
    }

    /// How many rows go into one batch: at least one.
    fn batch_rows(&self) -> usize {
        let page = &self.page;
        let left = self.next..page.rows.len();
        if page.data.len() <= COLUMN_BYTES || !self.columns.iter().any(|column| column.is_plain) {
            return left.len();
        }
        let mut bytes = 0;
        let fits = left.take_while(|row| {
            let attributes = (2..self.columns.len()).filter_map(|column| page.attribute(*row, column - 2));
            bytes += page.key(*row).len() + page.value(*row).len();
            bytes += attributes.map(<[u8]>::len).sum::<usize>();
            bytes <= COLUMN_BYTES
        });
        fits.count().max(1)
    }

    fn failed(&mut self, text: &str) -> c_int {
        self.last_error = CString::new(text.replace('\0', "?")).ok();
        EIO
    }
}

/// How many rows are to be read behind so many with so many bytes: more, but not more bytes than a batch is
/// to have.
fn next_rows(rows: usize, bytes: usize) -> u64 {
    let (rows, bytes) = (rows as u64, bytes as u64);
    let fitting = (rows * BATCH_BYTES).checked_div(bytes).unwrap_or(u64::MAX);
    fitting.min(rows.saturating_mul(16)).clamp(1, BATCH_ROWS_MAX)
}

unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the caller has a stream that was not released, whose private data is a `Stream`, and memory for
    // a schema.
    unsafe {
        let data = &*(*stream).private_data.cast::<Stream>();
        out.write(schema(&data.columns));
    }
    0
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: as `get_schema`; no other call of this stream is under way.
    let data = unsafe { &mut *(*stream).private_data.cast::<Stream>() };
    match catch_unwind(AssertUnwindSafe(|| data.next_batch())) {
        Ok(Ok(array)) => {
            // SAFETY: memory for an array, as above.
            unsafe { out.write(array) };
            0
        }
        Ok(Err(error)) => data.failed(&message(&error)),
        Err(_) => data.failed("a fault of Kelix"),
    }
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: as `get_schema`. The text stays until the next call that fails.
    let data = unsafe { &*(*stream).private_data.cast::<Stream>() };
    data.last_error.as_ref().map_or(null(), |text| text.as_ptr())
}
