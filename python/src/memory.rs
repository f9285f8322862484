//! Writable memory of objects: bytearrays, arrays of numpy's, and whatever else has Python's buffer interface.

use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::errors::invalid;

/// Memory that can be written as bytes, one after the other.
pub struct Memory(PyUntypedBuffer);

impl Memory {
    /// That of an object, which errors call by this name.
    pub fn of(operation: &'static str, name: &str, object: &Bound<'_, PyAny>) -> PyResult<Memory> {
        let py = object.py();
        let wrong = |what: &str| Err(invalid(py, operation, format!("{name} {what}")));
        let buffer = match PyUntypedBuffer::get(object) {
            // A single number, which has no dimension.
            Err(error) if error.is_instance_of::<PyBufferError>(py) => return wrong("is no array"),
            buffer => buffer?,
        };
        if buffer.readonly() {
            return wrong("is read-only");
        }
        if !buffer.is_c_contiguous() {
            return wrong("has gaps or rows that overlap: it has to be C-contiguous");
        }
        // Bytes that are written over references to objects would end the process.
        if ElementType::from_format(buffer.format()) == ElementType::Unknown {
            return wrong("is of no plain type: view it as bytes (uint8)");
        }
        Ok(Memory(buffer))
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// How many elements each dimension has.
    pub fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    /// Its bytes, while the interpreter's lock is held and no code of Python runs.
    pub fn bytes<'m>(&'m mut self, _py: Python<'m>) -> &'m mut [u8] {
        if self.len() == 0 {
            return &mut [];
        }
        // SAFETY: the memory is contiguous, of so many bytes and writable, as `of` has checked, and it stays where
        // it is until the buffer is released. Its elements are numbers, for which all bytes are valid. Nobody else
        // looks at it meanwhile, since that takes the interpreter's lock.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.len()) }
    }
}
