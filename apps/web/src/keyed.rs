//! Pages by key: a page's value has the keys of its fragments, a fragment's value is its HTML.

use std::ops::ControlFlow;

use kelix_apps::{Failure, Keyed, Keys};

use crate::pages::{Made, Pages};

/// Stands between the keys in a page's value.
const BETWEEN: u8 = b'\n';

/// A key and its value.
pub type KeyValue = (Vec<u8>, Vec<u8>);

/// Pages in a store of values by key.
pub struct ByKey<K> {
    store: K,
    page: Keys,
    fragments: Keys,
}

impl<K: Keyed> ByKey<K> {
    /// Those of a store.
    pub fn new(store: K) -> ByKey<K> {
        ByKey { store, page: Keys::new(), fragments: Keys::new() }
    }

    /// Puts a page with these fragments, which have keys and HTML.
    pub fn put_page(&mut self, product: &str, fragments: &[KeyValue]) -> Result<(), Failure> {
        let keys: Vec<&[u8]> = fragments.iter().map(|(key, _)| &key[..]).collect();
        let page = (format!("page/{product}").into_bytes(), keys.join(&BETWEEN));
        Ok(self.store.put(&[&[page], fragments].concat())?)
    }
}

impl<K: Keyed> Pages for ByKey<K> {
    fn page(&mut self, product: &str, html: &mut Vec<u8>) -> Result<Option<Made>, Failure> {
        let ByKey { store, page, fragments } = self;
        page.clear();
        fragments.clear();
        page.push(format_args!("page/{product}"));
        let mut wrong = None;
        store.get(page, |_, value| {
            for key in value.into_iter().flat_map(|value| value.split(|byte| *byte == BETWEEN)) {
                match std::str::from_utf8(key) {
                    Ok(key) => fragments.push(format_args!("{key}")),
                    Err(_) => wrong = Some("a key of a fragment that is no text"),
                }
            }
            ControlFlow::Continue(())
        })?;
        if fragments.is_empty() {
            return Ok(None);
        }
        store.get(fragments, |_, value| {
            match value {
                Some(value) => html.extend_from_slice(value),
                None => wrong = Some("a fragment that is not there"),
            }
            ControlFlow::Continue(())
        })?;
        match wrong {
            Some(wrong) => Err(format!("the page of {product} has {wrong}").into()),
            None => Ok(Some(Made { reused: fragments.len(), anew: Vec::new() })),
        }
    }
}
