//! The same items in Kelix, by key.

use std::ops::ControlFlow;

use kelix::{Path, Session, Table, Values};

use crate::{Keyed, Keys, text};

/// Values in a table of Kelix, found by its index or by messages to its server.
pub struct KelixKeyed {
    session: Session,
    table: Table,
    batch: usize,
    values: Values,
}

impl KelixKeyed {
    /// A table with this name, which is created if it is not there, looked into on this path; so many keys at
    /// once.
    pub fn new(mut session: Session, table: &str, path: Path, batch: usize) -> Result<KelixKeyed, String> {
        let table = session.create_table(table).map_err(text)?;
        session.set_path(path);
        Ok(KelixKeyed { session, table, batch, values: Values::new() })
    }
}

impl Keyed for KelixKeyed {
    fn put(&mut self, items: &[(Vec<u8>, Vec<u8>)]) -> Result<(), String> {
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let put = self.session.multi_put(self.table, &items).map_err(text)?;
        put.into_iter().try_for_each(|put| put.map(drop).map_err(text))
    }

    fn get(
        &mut self,
        keys: &Keys,
        mut each: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let mut wanted: Vec<&[u8]> = Vec::with_capacity(self.batch);
        for first in (0..keys.len()).step_by(self.batch) {
            wanted.clear();
            wanted.extend((first..keys.len().min(first + self.batch)).map(|index| keys.get(index)));
            self.session.multi_get_into(self.table, &wanted, &mut self.values).map_err(text)?;
            for index in 0..wanted.len() {
                if each(first + index, self.values.get(index)).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
