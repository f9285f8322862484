//! Tables as Arrow data, by the C interfaces of Arrow: structures that pyarrow, polars, duckdb and others read, with
//! functions in them by which they are released.
//!
//! Layout: one batch is an array of structs with the children `key`, `value`, and one for each attribute that is
//! wanted. Each child is `binary` (offsets of 32 bits), `utf8` or `uint64`, by the table's codecs; attributes are `binary`, and
//! null where an item has none. The specification is "The Arrow C data interface" and "The Arrow C stream interface".
//!
//! Who owns what: a structure owns its private data, which owns its children, until `release` is called or somebody moves it,
//! who then sets `release` to null where it stood. So dropping a structure releases it if nobody has moved it.

use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

use kelix::{Error, ErrorKind, PausedScan, Result, Rows, Scan, Values};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::batch::Strings;
use crate::codec::Codec;
use crate::errors::OrRaise;
use crate::sessions::{Local, forks};
use crate::table::Place;

/// Rows of a batch at most.
const BATCH_ROWS: u64 = 1 << 16;
/// Bytes of a column after which a batch ends, so that its offsets fit into 32 bits.
const COLUMN_BYTES: usize = 1 << 30;
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

// SAFETY: all that a structure points to is owned by its private data, which is Send; it is used by one thread at a time, as
// the specification says.
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
    Words(Vec<u64>),
}

struct ArrayData {
    /// What `pointers` points to.
    _buffers: Vec<Option<Buffer>>,
    pointers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the caller has a structure that was not released. Its private data was made by `ArrowSchema::new` with
    // `Box::into_raw`, and so were the children in it; each is taken back once, since `release` is null afterwards.
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
    fn new(
        length: usize,
        null_count: usize,
        buffers: Vec<Option<Buffer>>,
        children: Vec<ArrowArray>,
    ) -> ArrowArray {
        let pointers = buffers
            .iter()
            .map(|buffer| match buffer {
                None => null(),
                Some(Buffer::Bytes(bytes)) => bytes.as_ptr().cast(),
                Some(Buffer::Offsets(offsets)) => offsets.as_ptr().cast(),
                Some(Buffer::Words(words)) => words.as_ptr().cast(),
            })
            .collect();
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        let mut data = Box::new(ArrayData { _buffers: buffers, pointers, children });
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

    fn schema(self, attributes: &[String], absent: bool) -> ArrowSchema {
        let column = |name: &str, of: Type, flags| {
            let format = match of {
                Type::Binary => "z",
                Type::Text => "u",
                Type::NumberKey | Type::Number => "L",
            };
            ArrowSchema::new(format, name, flags, Vec::new())
        };
        let mut columns =
            vec![column("key", self.key, 0), column("value", self.value, if absent { NULLABLE } else { 0 })];
        columns.extend(attributes.iter().map(|name| column(name, Type::Binary, NULLABLE)));
        ArrowSchema::new("+s", "", 0, columns)
    }
}

fn wrong(context: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "arrow", context)
}

/// A column of so many rows, of which each has bytes or is null.
fn column<'b>(of: Type, rows: usize, bytes: impl Fn(usize) -> Option<&'b [u8]>) -> Result<ArrowArray> {
    let nulls = (0..rows).filter(|row| bytes(*row).is_none()).count();
    let validity = (nulls > 0).then(|| {
        let mut bits = vec![0u8; rows.div_ceil(8)];
        (0..rows).filter(|row| bytes(*row).is_some()).for_each(|row| bits[row / 8] |= 1 << (row % 8));
        Buffer::Bytes(bits)
    });
    if matches!(of, Type::NumberKey | Type::Number) {
        let mut words = Vec::with_capacity(rows);
        for row in 0..rows {
            let word: [u8; 8] = bytes(row)
                .unwrap_or(&[0; 8])
                .try_into()
                .map_err(|_| wrong(format!("row {row} is no number: numbers have 8 bytes")))?;
            words.push(if of == Type::NumberKey {
                u64::from_be_bytes(word)
            } else {
                u64::from_le_bytes(word)
            });
        }
        return Ok(ArrowArray::new(rows, nulls, vec![validity, Some(Buffer::Words(words))], Vec::new()));
    }
    let all: usize = (0..rows).filter_map(&bytes).map(<[u8]>::len).sum();
    if i32::try_from(all).is_err() {
        return Err(wrong(format!("a column of {all} bytes: one has 2 GiB at most")));
    }
    let (mut data, mut offsets) = (Vec::with_capacity(all), Vec::with_capacity(rows + 1));
    offsets.push(0);
    for row in 0..rows {
        let bytes = bytes(row).unwrap_or_default();
        if of == Type::Text && std::str::from_utf8(bytes).is_err() {
            return Err(wrong(format!("row {row} is no text in UTF-8")));
        }
        data.extend_from_slice(bytes);
        offsets.push(data.len() as i32);
    }
    let buffers = vec![validity, Some(Buffer::Offsets(offsets)), Some(Buffer::Bytes(data))];
    Ok(ArrowArray::new(rows, nulls, buffers, Vec::new()))
}

fn structs(rows: usize, columns: Vec<ArrowArray>) -> ArrowArray {
    ArrowArray::new(rows, 0, vec![None], columns)
}

/// A batch of keys with their values.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct ArrowBatch {
    keys: Strings,
    values: Values,
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
        Ok(ArrowBatch { keys, values, types })
    }

    fn array(&self) -> Result<ArrowArray> {
        let keys = self.keys.slices();
        let columns = vec![
            column(self.types.key, keys.len(), |row| Some(keys[row]))?,
            column(self.types.value, keys.len(), |row| self.values.get(row))?,
        ];
        Ok(structs(keys.len(), columns))
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
        // A producer may give what it has, whatever is asked for.
        drop(requested_schema);
        let array = self.array().or_raise(py)?;
        let schema = PyCapsule::new_with_value(py, self.types.schema(&[], true), c"arrow_schema")?;
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
        drop(requested_schema);
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
            rows: Rows::with_attributes(&names),
            next: 0,
            attributes: self.attributes.clone(),
            types: self.types,
            last_error: None,
        };
        PyCapsule::new_with_value(py, stream.into_structure(), c"arrow_array_stream")
    }
}

/// A scan that is read as a stream, by any thread and without the interpreter.
struct Stream {
    local: Arc<Mutex<Local>>,
    forks: u64,
    /// `None`: no further page.
    scan: Option<PausedScan>,
    rows: Rows,
    /// The first row that was not given yet.
    next: usize,
    attributes: Vec<String>,
    types: Types,
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
        while self.next == self.rows.len() {
            let Some(mut scan) = self.scan.take() else { return Ok(ArrowArray::end()) };
            if self.forks != forks() {
                let context = "the stream is of the process that forked this one";
                return Err(Error::new(ErrorKind::Forked, "arrow", context));
            }
            let mut local = self.local.lock().map_err(|_| wrong("its session broke".into()))?;
            let more = scan.next_rows(local.session()?, &mut self.rows, BATCH_ROWS)?;
            self.scan = more.then_some(scan);
            self.next = 0;
        }
        let (first, rows) = (self.next, self.batch_rows());
        self.next += rows;
        let all = &self.rows;
        let mut columns = vec![
            column(self.types.key, rows, |row| Some(all.key(first + row)))?,
            column(self.types.value, rows, |row| Some(all.value(first + row)))?,
        ];
        for attribute in 0..self.attributes.len() {
            columns.push(column(Type::Binary, rows, |row| all.attribute(first + row, attribute))?);
        }
        Ok(structs(rows, columns))
    }

    /// How many rows go into one batch: at least one.
    fn batch_rows(&self) -> usize {
        let left = self.next..self.rows.len();
        if self.rows.data().len() <= COLUMN_BYTES {
            return left.len();
        }
        let mut bytes = 0;
        let fits = left.take_while(|row| {
            bytes += self.rows.key(*row).len() + self.rows.value(*row).len();
            bytes += (0..self.attributes.len())
                .filter_map(|attribute| self.rows.attribute(*row, attribute))
                .map(<[u8]>::len)
                .sum::<usize>();
            bytes <= COLUMN_BYTES
        });
        fits.count().max(1)
    }

    fn failed(&mut self, text: &str) -> c_int {
        self.last_error = CString::new(text.replace('\0', "?")).ok();
        EIO
    }
}

unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the caller has a stream that was not released, whose private data is a `Stream`, and memory for a schema.
    unsafe {
        let data = &*(*stream).private_data.cast::<Stream>();
        out.write(data.types.schema(&data.attributes, false));
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
        Ok(Err(error)) => data.failed(&error.to_string()),
        Err(_) => data.failed("a fault of Kelix"),
    }
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: as `get_schema`. The text stays until the next call that fails.
    let data = unsafe { &*(*stream).private_data.cast::<Stream>() };
    data.last_error.as_ref().map_or(null(), |text| text.as_ptr())
}
