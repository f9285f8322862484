//! Us as a cache: a session in shared memory.

use kelix::{Session, Table, Values};

use super::cache::{Cache, Contents};
use crate::daily::text;
use crate::served::{Home, Served};

/// A session, and the server if it is its own.
pub(super) struct Kelix {
    session: Session,
    table: Table,
    values: Values,
    written: Vec<Vec<u8>>,
    _server: Option<(Served, Home)>,
}

impl Kelix {
    /// Starts a server that evicts, with so much memory for everything.
    pub fn start(memory_bytes: u64) -> Result<Kelix, String> {
        let home = Home::new("hits", memory_bytes)?;
        let server = home.serve(&["--cache"])?;
        let mut kelix = Kelix::open(server.session()?)?;
        kelix._server = Some((server, home));
        Ok(kelix)
    }

    /// A session as a cache.
    fn open(mut session: Session) -> Result<Kelix, String> {
        let table = session.create_table("cached").map_err(text)?;
        Ok(Kelix { session, table, values: Values::new(), written: Vec::new(), _server: None })
    }
}

impl Cache for Kelix {
    fn get(&mut self, keys: &[u32], contents: &Contents, is_there: &mut [bool]) -> Result<(), String> {
        let said: Vec<_> = keys.iter().map(|key| Contents::key(*key)).collect();
        let said: Vec<&[u8]> = said.iter().map(|key| &key[..]).collect();
        self.session.multi_get_into(self.table, &said, &mut self.values).map_err(text)?;
        for (index, key) in keys.iter().enumerate() {
            let value = self.values.get(index);
            is_there[index] = value.is_some();
            value.map_or(Ok(()), |value| contents.check(*key, value))?;
        }
        Ok(())
    }

    fn set(&mut self, keys: &[u32], contents: &Contents) -> Result<u64, String> {
        self.written.resize_with(self.written.len().max(keys.len()), Vec::new);
        for (key, value) in keys.iter().zip(&mut self.written) {
            value.clear();
            contents.write(*key, value);
        }
        let said: Vec<_> = keys.iter().map(|key| Contents::key(*key)).collect();
        let items: Vec<(&[u8], &[u8])> =
            said.iter().zip(&self.written).map(|(key, value)| (&key[..], &value[..])).collect();
        let results = self.session.multi_put(self.table, &items).map_err(text)?;
        let full = |result: &kelix::Result<_>| {
            result.as_ref().is_err_and(|error| error.kind() == kelix::ErrorKind::OutOfMemory)
        };
        let refused = results.iter().filter(|result| full(result)).count() as u64;
        results
            .into_iter()
            .filter(|result| !full(result))
            .try_for_each(|result| result.map(drop).map_err(text))?;
        Ok(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::ask;
    use super::super::lru::Lru;
    use super::super::stream::{item_bytes, made_up};
    use super::*;
    use crate::store::Store;

    /// Where there is room for everything, what was asked for once is there.
    #[test]
    fn what_was_set_is_found() {
        let config = kelix_server::ServerConfig { memory_bytes: 256 << 20, ..Default::default() };
        let store = Store::start("hits-test", config).unwrap();
        for stream in made_up(0.3, 3000) {
            let contents = Contents::new(stream.scaled(0.3, 8 << 20));
            let mut kelix = Kelix::open(store.client.session().unwrap()).unwrap();
            kelix.table = kelix.session.create_table(stream.name).unwrap();
            let asked = ask(&mut kelix, &stream, &contents).unwrap();
            let bytes: Vec<u64> =
                (0..stream.sizes.len()).map(|key| item_bytes(contents.bytes(key as u32) as u32)).collect();
            let mut lru = Lru::new(&bytes, u64::MAX);
            let hits = stream.requests.iter().filter(|key| lru.ask(**key)).count() as u64;
            assert_eq!((asked.hits, asked.refused), (hits, 0), "{}", stream.name);
        }
    }
}
