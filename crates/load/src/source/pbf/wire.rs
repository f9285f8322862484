//! Messages of protocol buffers, field by field. The crate `protobuf` reads numbers and keeps to the ends of
//! messages; which wire type a field has to be of is checked here.

use protobuf::CodedInputStream as Input;
use protobuf::rt::WireType;

use crate::problem::Problem;

/// Why the reading of a file ends before the file does.
pub enum Stop {
    /// Nobody wants more.
    Enough,
    /// The taker's own problem.
    Problem(Problem),
    /// The system cannot read the file.
    System(std::io::Error),
    /// It is whole, and needs what is not known here.
    Unknown(String),
    /// It makes no sense.
    Broken(String),
}

impl Stop {
    pub fn broken(why: impl Into<String>) -> Stop {
        Stop::Broken(why.into())
    }

    /// Says which element it is about, too.
    pub fn of(self, what: &str, id: impl std::fmt::Display) -> Stop {
        match self {
            Stop::Broken(why) => Stop::Broken(format!("{what} {id}: {why}")),
            other => other,
        }
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Stop {
        Stop::System(error)
    }
}

impl From<protobuf::Error> for Stop {
    fn from(error: protobuf::Error) -> Stop {
        Stop::Broken(format!("a message makes no sense ({error})"))
    }
}

/// A field whose value is to be read.
pub struct Field<'i, 'b> {
    pub number: u32,
    wire: WireType,
    input: &'i mut Input<'b>,
}

/// Shows the fields of a message, each of which has to be read or skipped.
pub fn message<'b>(
    bytes: &'b [u8],
    each: impl FnMut(&mut Field<'_, 'b>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut input = Input::from_bytes(bytes);
    // Without a limit the crate panics at a field that is longer than the rest.
    input.push_limit(bytes.len() as u64)?;
    fields(&mut input, each)
}

/// Shows the fields up to the end of the message that an input is in.
pub fn fields<'b>(
    input: &mut Input<'b>,
    mut each: impl FnMut(&mut Field<'_, 'b>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    while let Some(tag) = input.read_raw_tag_or_eof()? {
        let wire = WireType::new(tag & 7).ok_or_else(|| Stop::broken("a field of no known type"))?;
        each(&mut Field { number: tag >> 3, wire, input: &mut *input })?;
    }
    Ok(())
}

impl<'b> Field<'_, 'b> {
    fn expect(&self, wire: WireType) -> Result<(), Stop> {
        if self.wire == wire {
            Ok(())
        } else {
            Err(Stop::broken("a field of another type than it has to be"))
        }
    }

    pub fn skip(&mut self) -> Result<(), Stop> {
        match self.wire {
            WireType::StartGroup | WireType::EndGroup => Err(Stop::broken("a field of no known type")),
            wire => Ok(self.input.skip_field(wire)?),
        }
    }

    pub fn unsigned(&mut self) -> Result<u64, Stop> {
        self.expect(WireType::Varint)?;
        Ok(self.input.read_uint64()?)
    }

    pub fn integer(&mut self) -> Result<i64, Stop> {
        self.expect(WireType::Varint)?;
        Ok(self.input.read_int64()?)
    }

    /// A number that may as well be below zero, in the encoding for these.
    pub fn signed(&mut self) -> Result<i64, Stop> {
        self.expect(WireType::Varint)?;
        Ok(self.input.read_sint64()?)
    }

    /// Its bytes; `all` is what the message is read from.
    pub fn bytes(&mut self, all: &'b [u8]) -> Result<&'b [u8], Stop> {
        self.expect(WireType::LengthDelimited)?;
        let length = self.input.read_raw_varint32()?;
        let start = self.input.pos() as usize;
        self.input.skip_raw_bytes(length)?;
        all.get(start..start + length as usize)
            .ok_or_else(|| Stop::broken("a field is longer than its message"))
    }

    /// Adds numbers to a list: of one field, or of one of several.
    pub fn list(&mut self, list: &mut Vec<u64>) -> Result<(), Stop> {
        if self.wire == WireType::LengthDelimited {
            return Ok(self.input.read_repeated_packed_uint64_into(list)?);
        }
        list.push(self.unsigned()?);
        Ok(())
    }

    /// Adds numbers that may as well be below zero to a list: of one field, or of one of several.
    pub fn signed_list(&mut self, list: &mut Vec<i64>) -> Result<(), Stop> {
        if self.wire == WireType::LengthDelimited {
            return Ok(self.input.read_repeated_packed_sint64_into(list)?);
        }
        list.push(self.signed()?);
        Ok(())
    }

    /// Shows the fields of the message that the field is.
    pub fn message(&mut self, each: impl FnMut(&mut Field<'_, 'b>) -> Result<(), Stop>) -> Result<(), Stop> {
        self.expect(WireType::LengthDelimited)?;
        let length = self.input.read_raw_varint64()?;
        let outer = self.input.push_limit(length)?;
        fields(self.input, each)?;
        self.input.pop_limit(outer);
        Ok(())
    }
}
