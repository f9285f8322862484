//! Many keys at once.

use std::collections::HashMap;

use kelix::{Error, ErrorKind};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PyTuple};

use crate::codec::{Codec, Role};
use crate::errors::{OrRaise, exception, invalid};
use crate::memory::Memory;
use crate::table::Table;

/// Byte strings, one after the other.
#[derive(Default)]
pub struct Strings {
    data: Vec<u8>,
    ends: Vec<usize>,
}

/// Room for a key, as most have it.
const KEY_BYTES: usize = 24;

impl Strings {
    fn with_room_for(count: usize) -> Strings {
        Strings { data: Vec::with_capacity(count * KEY_BYTES), ends: Vec::with_capacity(count) }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
        self.ends.push(self.data.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn data(&self) -> &[u8] {
        &self.data
    }

    pub fn slices(&self) -> Vec<&[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.data[start..*end]).collect()
    }
}

/// The bytes of many keys.
pub fn encode_keys(codec: &Codec, keys: &Bound<'_, PyAny>) -> PyResult<Strings> {
    if let (Codec::Bytes, Ok(list)) = (codec, keys.cast::<PyList>()) {
        // The common case, which takes no more than it has to.
        let mut strings = Strings::with_room_for(list.len());
        for key in list.iter() {
            match key.cast::<PyBytes>() {
                Ok(key) => strings.push(key.as_bytes()),
                Err(_) => strings.push(codec.encode(&key, Role::Key)?.bytes()?),
            }
        }
        return Ok(strings);
    }
    if !keys.is_instance_of::<PyList>() {
        if let Ok(view) = PyMemoryView::from(keys) {
            return keys_of_array(codec, &view);
        }
    }
    let mut strings = Strings::default();
    for key in keys.try_iter()? {
        strings.push(codec.encode(&key?, Role::Key)?.bytes()?);
    }
    Ok(strings)
}

/// The bytes of keys that are the rows of an array of bytes, or its numbers.
fn keys_of_array(codec: &Codec, view: &Bound<'_, PyMemoryView>) -> PyResult<Strings> {
    let shape: Vec<usize> = view.getattr("shape")?.extract()?;
    let format: String = view.getattr("format")?.extract()?;
    let width = match (codec, &shape[..], &format[..]) {
        (Codec::Bytes, [_, width], "B") => *width,
        (Codec::NumberKey, [_], "L" | "Q") => 8,
        _ => {
            let context = "keys are a sequence, or of bytes an array of uint8 with a key a row, or of int \
                           one of uint64";
            return Err(PyTypeError::new_err(context));
        }
    };
    let count = shape[0];
    // In rows, whatever strides the array has.
    let bytes = view.call_method0("tobytes")?;
    let mut data = bytes.cast::<PyBytes>()?.as_bytes().to_vec();
    if let Codec::NumberKey = codec {
        for number in data.chunks_exact_mut(8) {
            let value = u64::from_ne_bytes(number.try_into().expect("8 bytes"));
            number.copy_from_slice(&value.to_be_bytes());
        }
    }
    Ok(Strings { data, ends: (1..=count).map(|row| row * width).collect() })
}

/// The memory of `out`, if it has so many rows.
fn out_of(out: &Bound<'_, PyAny>, rows: usize) -> PyResult<Memory> {
    let memory = Memory::of("rows", "`out`", out)?;
    if memory.shape().first() != Some(&rows) {
        let shape = memory.shape();
        let context =
            format!("`out` has the shape {shape:?}, and there are {rows} keys: it needs one row a key");
        return Err(invalid(out.py(), "rows", context));
    }
    Ok(memory)
}

impl Table {
    /// The values of keys, as objects; `None` where a key is absent.
    pub fn get_many<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let keys = encode_keys(&self.key, keys)?;
        let count = keys.len();
        let values = self.place.values(py, keys)?;
        let list = PyList::empty(py);
        for index in 0..count {
            match values.get(index) {
                Some(bytes) => list.append(self.value.object(py, bytes)?)?,
                None => list.append(py.None())?,
            }
        }
        self.place.give_back(values);
        Ok(list)
    }

    /// Copies the values of keys into the rows of `out`: zeros where a key is absent. After an error nothing
    /// was written.
    pub fn get_rows<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let keys = encode_keys(&self.key, keys)?;
        let count = keys.len();
        let mut out = out_of(out, count)?;
        let row_bytes = out.len().checked_div(count).unwrap_or(0);
        let values = self.place.values(py, keys)?;
        let wrong = (0..count).find_map(|index| {
            let bytes = values.get(index)?.len();
            (bytes != row_bytes).then_some((index, bytes))
        });
        if let Some((index, bytes)) = wrong {
            let context = format!("the value of key {index} has {bytes} bytes, and a row {row_bytes}");
            let kind = if bytes > row_bytes { ErrorKind::BufferTooSmall } else { ErrorKind::InvalidArgument };
            let error = Error::new(kind, "rows", context).with_needed_bytes(bytes);
            return Err(exception(py, &error));
        }
        let mut present = vec![0; count];
        let rows = out.bytes(py);
        for index in 0..count {
            let row = &mut rows[index * row_bytes..][..row_bytes];
            match values.get(index) {
                Some(bytes) => {
                    row.copy_from_slice(bytes);
                    present[index] = 1;
                }
                None => row.fill(0),
            }
        }
        self.place.give_back(values);
        Ok(PyByteArray::new(py, &present))
    }

    /// Puts many pairs. Of pairs with the same key the last one counts.
    pub fn put_many(&self, py: Python<'_>, pairs: &Bound<'_, PyList>) -> PyResult<()> {
        let (mut keys, mut values) = (Strings::default(), Strings::default());
        for pair in pairs.iter() {
            let pair = pair.cast::<PyTuple>()?;
            keys.push(self.key.encode(&pair.get_item(0)?, Role::Key)?.bytes()?);
            values.push(self.value.encode(&pair.get_item(1)?, Role::Value)?.bytes()?);
        }
        let results = self.place.run(py, true, move |session, table, _| {
            let (keys, values) = (keys.slices(), values.slices());
            // Puts of a batch have no order among each other.
            let last: HashMap<&[u8], usize> = keys.iter().copied().zip(0..).collect();
            let is_last = |at: &usize| last.get(keys[*at]) == Some(at);
            let items: Vec<(&[u8], &[u8])> =
                (0..keys.len()).filter(is_last).map(|at| (keys[at], values[at])).collect();
            session.multi_put(table, &items)
        })?;
        results.into_iter().try_for_each(|result| result.map(drop)).or_raise(py)
    }
}
