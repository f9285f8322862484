//! Keys and values as objects and as bytes.

use kelix::ErrorKind;
use pyo3::exceptions::{PyTypeError, PyUnicodeDecodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

/// How objects become bytes and bytes objects.
pub enum Codec {
    Bytes,
    /// UTF-8.
    Text,
    /// 64 bits without a sign, the highest byte first: keys of tables of numbers.
    NumberKey,
    /// 64 bits without a sign, the lowest byte first: values of tables of numbers with inline values.
    NumberValue,
    /// Functions of Python.
    Functions {
        encode: Py<PyAny>,
        decode: Py<PyAny>,
    },
}

/// Bytes, and whatever they are borrowed from.
pub enum Encoded<'py> {
    Bytes(Bound<'py, PyBytes>),
    Text(Bound<'py, PyString>),
    Number([u8; 8]),
}

impl Encoded<'_> {
    pub fn bytes(&self) -> PyResult<&[u8]> {
        Ok(match self {
            Encoded::Bytes(bytes) => bytes.as_bytes(),
            Encoded::Text(text) => text.to_str()?.as_bytes(),
            Encoded::Number(number) => number,
        })
    }
}

/// What a codec is for.
#[derive(Clone, Copy)]
pub enum Role {
    Key,
    Value,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Key => "key",
            Role::Value => "value",
        }
    }
}

impl Codec {
    /// That of an object with `native`, `encode` and `decode`: a `kelix.Codec`.
    pub fn of(codec: &Bound<'_, PyAny>, role: Role) -> PyResult<Codec> {
        let native: Option<String> = codec.getattr("native")?.extract()?;
        Ok(match (native.as_deref(), role) {
            (Some("bytes"), _) => Codec::Bytes,
            (Some("str"), _) => Codec::Text,
            (Some("int"), Role::Key) => Codec::NumberKey,
            (Some("int"), Role::Value) => Codec::NumberValue,
            _ => Codec::Functions {
                encode: codec.getattr("encode")?.unbind(),
                decode: codec.getattr("decode")?.unbind(),
            },
        })
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Codec {
        match self {
            Codec::Bytes => Codec::Bytes,
            Codec::Text => Codec::Text,
            Codec::NumberKey => Codec::NumberKey,
            Codec::NumberValue => Codec::NumberValue,
            Codec::Functions { encode, decode } => {
                Codec::Functions { encode: encode.clone_ref(py), decode: decode.clone_ref(py) }
            }
        }
    }

    /// The bytes of an object.
    #[inline]
    pub fn encode<'py>(&self, object: &Bound<'py, PyAny>, role: Role) -> PyResult<Encoded<'py>> {
        match self {
            Codec::Bytes => bytes_like(object, role, "bytes"),
            Codec::Text => match object.cast::<PyString>() {
                Ok(text) => Ok(Encoded::Text(text.clone())),
                Err(_) => Err(wrong_type(object, role, "str")),
            },
            Codec::NumberKey | Codec::NumberValue => {
                let number: u64 = object.extract().map_err(|error: PyErr| {
                    match error.is_instance_of::<PyTypeError>(object.py()) {
                        true => wrong_type(object, role, "int"),
                        false => PyValueError::new_err(format!(
                            "a {} of this table is a number from 0 to 2**64 - 1",
                            role.name()
                        )),
                    }
                })?;
                Ok(Encoded::Number(match self {
                    Codec::NumberKey => number.to_be_bytes(),
                    _ => number.to_le_bytes(),
                }))
            }
            Codec::Functions { encode, .. } => {
                let encoded = encode.bind(object.py()).call1((object,))?;
                bytes_like(&encoded, role, "what encode returns: bytes")
            }
        }
    }

    /// The bytes of a prefix of keys: one of text where keys are text, and bytes where they are anything
    /// else.
    pub fn encode_prefix<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Encoded<'py>> {
        match self {
            Codec::Text => self.encode(object, Role::Key),
            _ => bytes_like(object, Role::Key, "bytes"),
        }
    }

    /// An object of bytes, made without running any code of Python: of functions the bytes, for
    /// [`Codec::finish`]. `None`: the bytes are none of this type.
    #[inline]
    pub fn plain<'py>(&self, py: Python<'py>, bytes: &[u8]) -> Option<Bound<'py, PyAny>> {
        let number = match self {
            Codec::Bytes | Codec::Functions { .. } => return Some(PyBytes::new(py, bytes).into_any()),
            Codec::Text => return Some(PyString::new(py, std::str::from_utf8(bytes).ok()?).into_any()),
            Codec::NumberKey => u64::from_be_bytes(bytes.try_into().ok()?),
            Codec::NumberValue => u64::from_le_bytes(bytes.try_into().ok()?),
        };
        let Ok(number) = number.into_pyobject(py);
        Some(number.into_any())
    }

    /// The same, with an exception that says what is wrong.
    #[inline]
    pub fn decode<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        self.plain(py, bytes).ok_or_else(|| self.wrong_bytes(py, bytes))
    }

    #[cold]
    fn wrong_bytes(&self, py: Python<'_>, bytes: &[u8]) -> PyErr {
        match (self, std::str::from_utf8(bytes)) {
            (Codec::Text, Err(error)) => match PyUnicodeDecodeError::new_utf8(py, bytes, error) {
                Ok(exception) => PyErr::from_value(exception.into_any()),
                Err(error) => error,
            },
            _ => PyValueError::new_err(format!("{} bytes are no number: numbers have 8", bytes.len())),
        }
    }

    /// The object, of what [`Codec::decode`] has made.
    #[inline]
    pub fn finish<'py>(&self, decoded: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Codec::Functions { decode, .. } => decode.bind(decoded.py()).call1((decoded,)),
            _ => Ok(decoded),
        }
    }

    /// Both.
    pub fn object<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        self.finish(self.decode(py, bytes)?)
    }
}

fn wrong_type(object: &Bound<'_, PyAny>, role: Role, wanted: &str) -> PyErr {
    let name = object.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
    let role = role.name();
    PyTypeError::new_err(format!(
        "a {role} of this table is {wanted}, not {name}; store.table(name, {role}=...) gives it another type"
    ))
}

#[cold]
fn bytes_of_view<'py>(view: &Bound<'py, PyMemoryView>) -> PyResult<Encoded<'py>> {
    Ok(Encoded::Bytes(view.call_method0("tobytes")?.cast_into()?))
}

#[inline]
fn bytes_like<'py>(object: &Bound<'py, PyAny>, role: Role, wanted: &str) -> PyResult<Encoded<'py>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Encoded::Bytes(bytes.clone()));
    }
    // Whatever has memory of its own: bytearray, memoryview, arrays of numpy's.
    match PyMemoryView::from(object) {
        Ok(view) => bytes_of_view(&view),
        Err(_) => Err(wrong_type(object, role, wanted)),
    }
}

/// A kind of tables by its name.
pub fn kind_of(py: Python<'_>, name: &str) -> PyResult<kelix::TableKind> {
    use kelix::TableKind::{Hash, Inline, Numbers, Strings};
    match name {
        "hash" => Ok(Hash),
        "ordered" | "strings" => Ok(Strings),
        "numbers" => Ok(Numbers),
        "inline" => Ok(Inline),
        _ => {
            let context =
                format!("no kind of table is called {name}; there are hash, ordered, numbers and inline");
            Err(crate::errors::exception(
                py,
                &kelix::Error::new(ErrorKind::InvalidArgument, "table", context),
            ))
        }
    }
}
