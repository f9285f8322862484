//! Files of OpenStreetMap in the format `.osm.pbf` (wiki.openstreetmap.org/wiki/PBF_Format).
//!
//! ```text
//! file   blob ...                the first of a known kind is a header, which says what a reader has to understand
//! blob   length of its head (4 bytes, highest first), head: kind and length, body: a block, packed or not
//! block  strings, and groups of elements that name strings by their place
//! ```
//!
//! Files are cut by downloads and filled by tools of all kinds, so a file is believed only as far as it
//! proves itself. Lengths are compared with limits before memory is taken. All of a block is checked whether
//! it is wanted or not: a place beyond the strings, lists that do not fit each other, a kind of member that
//! nobody knows. What is wrong ends the reading; nothing is left out in silence, but for objects that are
//! marked as deleted.

mod block;
mod wire;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use flate2::read::ZlibDecoder;

use super::{cannot, files};
use crate::problem::Problem;
use block::{Block, Lists};
use wire::{Stop, message};

pub use block::{Element, Member, Members, Tags, What};

/// Bytes of the longest head of a blob, and of the longest body, packed or not. The format has these limits.
const HEAD_BYTES_MAX: u64 = 64 << 10;
const BODY_BYTES_MAX: u64 = 32 << 20;

/// What a file may ask of a reader.
const FEATURES: [&str; 3] = ["OsmSchema-V0.6", "DenseNodes", "Sort.Type_then_ID"];

/// Shows all elements of a file, in its order, until `each` wants no more. Deleted ones are left out.
pub fn read(path: &Path, mut each: impl FnMut(&Element<'_>) -> Result<bool, Problem>) -> Result<(), Problem> {
    files::ordinary(path)?;
    let file = File::open(path).map_err(|error| cannot("read", path, &error))?;
    let mut blobs = Blobs { input: BufReader::new(file), bytes: 0 };
    match blobs.read(&mut each) {
        Ok(()) | Err(Stop::Enough) => Ok(()),
        Err(Stop::Problem(problem)) => Err(problem),
        Err(Stop::System(error)) => Err(cannot("read", path, &error)),
        Err(Stop::Unknown(why)) => Err(Problem::Source(format!("cannot read {}: {why}", path.display()))),
        Err(Stop::Broken(why)) => {
            let at = blobs.bytes;
            let at = if at == 0 { String::new() } else { format!(", {at} bytes from its beginning") };
            Err(Problem::Source(format!("cannot read {}: {why}{at}; is it whole?", path.display())))
        }
    }
}

/// A file's blobs.
struct Blobs<R> {
    input: R,
    /// Bytes before the blob that is being read.
    bytes: u64,
}

impl<R: Read> Blobs<R> {
    fn read(&mut self, each: &mut dyn FnMut(&Element<'_>) -> Result<bool, Problem>) -> Result<(), Stop> {
        let (mut has_header, mut lists) = (false, Lists::default());
        while let Some(length) = self.length()? {
            let (kind, bytes) = head(&self.take(length.into(), HEAD_BYTES_MAX, "the head of a block")?)?;
            let body = self.take(bytes, BODY_BYTES_MAX, "a block")?;
            match &kind[..] {
                b"OSMHeader" => {
                    check_features(&unpacked(&body)?)?;
                    has_header = true;
                }
                b"OSMData" if has_header => Block::of(&unpacked(&body)?)?.elements(&mut lists, each)?,
                b"OSMData" => return Err(Stop::broken("it does not begin with a header")),
                // Programs may have blobs of their own.
                _ => {}
            }
            self.bytes += 4 + u64::from(length) + bytes;
        }
        if has_header { Ok(()) } else { Err(Stop::broken("it has no header")) }
    }

    /// The length of the next head. `None`: the file ends here.
    fn length(&mut self) -> Result<Option<u32>, Stop> {
        let mut bytes = Vec::new();
        self.input.by_ref().take(4).read_to_end(&mut bytes)?;
        match <[u8; 4]>::try_from(&bytes[..]) {
            Ok(bytes) => Ok(Some(u32::from_be_bytes(bytes))),
            Err(_) if bytes.is_empty() => Ok(None),
            Err(_) => Err(Stop::broken("it ends within a block")),
        }
    }

    /// So many bytes, which are not more than there may be. Memory is taken as they come.
    fn take(&mut self, length: u64, most: u64, what: &str) -> Result<Vec<u8>, Stop> {
        if length > most {
            return Err(Stop::broken(format!("{what} has {length} bytes, and {most} is the most")));
        }
        let mut bytes = Vec::new();
        self.input.by_ref().take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == length { Ok(bytes) } else { Err(Stop::broken("it ends within a block")) }
    }
}

/// A blob's kind, and the bytes of its body.
fn head(bytes: &[u8]) -> Result<(Vec<u8>, u64), Stop> {
    let (mut kind, mut length) = (None, None);
    message(bytes, |field| {
        match field.number {
            1 => kind = Some(field.bytes(bytes)?.to_vec()),
            3 => length = Some(field.unsigned()?),
            _ => field.skip()?,
        }
        Ok(())
    })?;
    kind.zip(length).ok_or_else(|| Stop::broken("the head of a block does not say what follows"))
}

/// The block of a blob.
fn unpacked(body: &[u8]) -> Result<Vec<u8>, Stop> {
    let (mut plain, mut zlib, mut length, mut other) = (None, None, None, None);
    message(body, |field| {
        match field.number {
            1 => plain = Some(field.bytes(body)?),
            2 => length = Some(field.unsigned()?),
            3 => zlib = Some(field.bytes(body)?),
            4..=7 => {
                other = Some(["LZMA", "bzip2", "LZ4", "zstd"][field.number as usize - 4]);
                field.skip()?;
            }
            _ => field.skip()?,
        }
        Ok(())
    })?;
    let most = length.unwrap_or(BODY_BYTES_MAX);
    if most > BODY_BYTES_MAX {
        return Err(Stop::broken(format!("a block of {most} bytes, and {BODY_BYTES_MAX} is the most")));
    }
    let bytes = match (plain, zlib, other) {
        (Some(plain), ..) => plain.to_vec(),
        (None, Some(packed), _) => {
            let mut bytes = Vec::new();
            let read = ZlibDecoder::new(packed).take(most + 1).read_to_end(&mut bytes);
            read.map_err(|error| Stop::broken(format!("a block cannot be unpacked: {error}")))?;
            bytes
        }
        (None, None, Some(name)) => {
            return Err(Stop::Unknown(format!(
                "its blocks are compressed with {name}, and zlib is the only compression that is known here; \
                 `osmium cat -f pbf,pbf_compression=zlib` writes it so"
            )));
        }
        (None, None, None) => return Err(Stop::broken("a block has nothing in it")),
    };
    match length {
        None if bytes.len() as u64 <= most => Ok(bytes),
        Some(length) if bytes.len() as u64 == length => Ok(bytes),
        _ => Err(Stop::broken("a block is not as long as it says")),
    }
}

/// An error if a file asks for what is not understood here: a reader that goes on would take what it holds
/// for something else.
fn check_features(header: &[u8]) -> Result<(), Stop> {
    message(header, |field| {
        if field.number != 4 {
            return field.skip();
        }
        let feature = String::from_utf8_lossy(field.bytes(header)?);
        match &feature[..] {
            known if FEATURES.contains(&known) => Ok(()),
            "HistoricalInformation" => Err(Stop::Unknown(
                "it holds the history of the map, deleted objects among it; make a map of one moment of it, as \
                 `osmium time-filter` does"
                    .into(),
            )),
            feature => {
                Err(Stop::Unknown(format!("it requires the feature {feature:?}, which is not known here")))
            }
        }
    })
}
