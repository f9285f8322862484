//! What a session knows of the store's tables: where handles lead, which generation of a dataset is read, and
//! the names of attributes.

mod generations;
mod handles;
mod names;

use kelix_types::limits::NAME_BYTES_MAX;
use kelix_types::{Error, ErrorKind, Result};

use crate::engine::Engine;
use crate::read::Landing;
pub(crate) use generations::{BoundTable, GENERATIONS, Generations, IN_FORCE, is_between};
pub(crate) use handles::Handles;
pub(crate) use names::NameCache;

/// The store's catalogue as a session has read it. What is not known yet is asked for over the session's
/// engine.
#[derive(Default)]
pub(crate) struct Catalogue {
    pub handles: Handles,
    pub generations: Generations,
    pub names: NameCache,
    /// Where entries of the catalogue land, beside the items of whoever asks for them.
    landing: Landing,
}

impl Catalogue {
    /// An entry of the catalogue.
    pub fn body(&mut self, engine: &mut Engine, key: &[u8]) -> Result<Option<Vec<u8>>> {
        engine.catalogue_body(key, &mut self.landing)
    }

    /// An entry that is the number of a table or of an attribute's name.
    pub fn id(&mut self, engine: &mut Engine, key: &[u8]) -> Result<Option<u16>> {
        let body = self.body(engine, key)?;
        Ok(body.and_then(|body| Some(u16::from_le_bytes(body.get(..2)?.try_into().ok()?))))
    }
}

pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let context = format!("a name has 1 to {NAME_BYTES_MAX} bytes, this one {}", name.len());
        return Err(Error::unnamed(ErrorKind::InvalidArgument, context));
    }
    Ok(())
}
