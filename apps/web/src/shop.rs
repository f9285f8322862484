//! Pages by links.

use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use kelix::{Client, CompareAndSet, Cost, Frontier, Item, NewItem, Scan, Session, SessionOptions, Table};
use kelix_apps::Failure;

use crate::catalogue::is_id;
use crate::html::Card;
use crate::keyed::KeyValue;
use crate::pages::{Made, Pages};
use crate::tables::{BOUGHT, FRAGMENT, HTML, PRICE, PRODUCT, TITLE, TITLE_END, Tables, folded};

/// How often a compare-and-set is tried: each time somebody else was faster.
pub(crate) const TRIES_MAX: usize = 10_000;

/// How long the store may take to answer: also on a machine that is busy with much else.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Products among which an example is looked for.
const EXAMPLES: usize = 1000;

/// The shop as one thread has it.
pub struct Shop {
    pub(crate) session: Session,
    pub(crate) tables: Tables,
    /// The page that is looked for, and its fragments.
    page: Frontier,
    fragments: Frontier,
}

impl Shop {
    /// Opens the shop that is in a store; one without products, if there is none.
    pub fn open(client: &Client) -> Result<Shop, Failure> {
        let options = SessionOptions::default().timeout(TIMEOUT);
        let mut session = client.session_with(options)?;
        let tables = Tables::open(&mut session)?;
        Ok(Shop { session, tables, page: Frontier::new(), fragments: Frontier::new() })
    }

    /// What it has cost so far.
    pub fn cost(&self) -> Cost {
        self.session.cost()
    }

    pub(crate) fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Item>, Failure> {
        self.session.get(table, key).map_err(Failure::from)
    }

    /// The products whose titles begin so, in their order, behind a place in it; and the place of the last
    /// one shown if there are more.
    pub(crate) fn search(
        &mut self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<(Vec<Card>, Option<String>), Failure> {
        let prefix = folded(prefix);
        let mut scan = Scan::prefix(prefix.as_bytes()).limit(most as u64 + 1);
        if let Some(after) = after {
            scan = scan.range((Bound::Excluded(after), Bound::Unbounded));
        }
        let mut found = Vec::new();
        for entry in self.session.scan(self.tables.titles, &scan)? {
            found.push(entry?);
        }
        let more = found.len() > most;
        found.truncate(most);
        let mut products = Frontier::new();
        for entry in &found {
            products.add_links(entry, PRODUCT, |_| true);
        }
        let mut cards = Vec::new();
        let visit = |_, product: Option<&Item>| {
            cards.extend(product.map(card));
            ControlFlow::Continue(())
        };
        self.session.visit(&products, visit)?;
        let last = found.last().filter(|_| more).map(|entry| words(Some(entry.key())));
        Ok((cards, last))
    }

    /// Some products, in the order of their titles.
    pub fn products(&mut self, most: usize) -> Result<Vec<String>, Failure> {
        Ok(self.search("", None, most)?.0.into_iter().map(|(id, ..)| id).collect())
    }

    /// A product, and another on whose page it stands among what buyers bought too.
    pub fn example(&mut self) -> Result<Option<(String, String)>, Failure> {
        for shown_on in self.products(EXAMPLES)? {
            let product = self.get(self.tables.products, shown_on.as_bytes())?;
            let bought = product.as_ref().and_then(|product| product.links(BOUGHT).next());
            if let Some(bought) = bought {
                return Ok(Some((words(Some(bought.key)), shown_on)));
            }
        }
        Ok(None)
    }

    /// The fragments of a page with their keys, all of them fresh.
    pub fn fresh_fragments(&mut self, product: &str) -> Result<Vec<KeyValue>, Failure> {
        let missing = || Failure::from(format!("{product} has no page, or one that is being changed"));
        self.page(product, &mut Vec::new())?.ok_or_else(missing)?;
        let page = self.get(self.tables.pages, product.as_bytes())?.ok_or_else(missing)?;
        let fragments = self.session.follow_all(&page, FRAGMENT)?;
        let fresh = |fragment: &Option<Item>| {
            let fragment = fragment.as_ref()?;
            Some((fragment.key().to_vec(), fragment.bytes(HTML)?.to_vec()))
        };
        fragments.iter().map(|fragment| fresh(fragment).ok_or_else(missing)).collect()
    }

    /// Changes an item by compare-and-set, whatever others write meanwhile. The item in whose place the new
    /// one was put; `None`: there is none.
    pub(crate) fn replace(
        &mut self,
        table: Table,
        key: &[u8],
        edit: impl Fn(&Session, &Item) -> NewItem,
    ) -> Result<Option<Item>, Failure> {
        for _ in 0..TRIES_MAX {
            let Some(item) = self.get(table, key)? else { return Ok(None) };
            let new = edit(&self.session, &item);
            if self.put_over(table, &item, &new)? {
                return Ok(Some(item));
            }
        }
        Err(changing(key))
    }

    /// Puts an item in the place of one that was read, unless somebody else has.
    pub(crate) fn put_over(&mut self, table: Table, item: &Item, new: &NewItem) -> Result<bool, Failure> {
        let put = self.session.compare_and_set_item(table, item.key(), Some(item.version()), new);
        Ok(matches!(put?, CompareAndSet::Done(_)))
    }
}

impl Pages for Shop {
    fn page(&mut self, product: &str, html: &mut Vec<u8>) -> Result<Option<Made>, Failure> {
        if !is_id(product) {
            return Ok(None);
        }
        let Shop { session, page, fragments, tables } = self;
        page.clear();
        fragments.clear();
        page.add(tables.pages, product.as_bytes());
        let add = |_, page: Option<&Item>| {
            if let Some(page) = page {
                fragments.add_links(page, FRAGMENT, |_| true);
            }
            ControlFlow::Continue(())
        };
        session.visit(page, add)?;
        if fragments.is_empty() {
            return Ok(None);
        }
        let mut stale: Vec<(usize, Item)> = Vec::new();
        let mut missing = None;
        let append = |index, fragment: Option<&Item>| {
            match fragment.map(|fragment| (fragment, fragment.bytes(HTML))) {
                Some((_, Some(bytes))) => html.extend_from_slice(bytes),
                Some((fragment, None)) => stale.push((html.len(), fragment.clone())),
                None => missing = Some(index),
            }
            ControlFlow::Continue(())
        };
        session.visit(fragments, append)?;
        if let Some(index) = missing {
            let key = String::from_utf8_lossy(fragments.target(index).1);
            return Err(format!("the page of {product} has no fragment {key}").into());
        }
        let mut made = Made { reused: fragments.len() - stale.len(), anew: Vec::new() };
        // From the last on, so that the places of those before it stay.
        for (at, fragment) in stale.iter().rev() {
            html.splice(at..at, self.make_anew(fragment)?);
            made.anew.push(words(Some(fragment.key())));
        }
        made.anew.reverse();
        Ok(Some(made))
    }
}

/// Why something was not changed that others were faster with each time.
pub(crate) fn changing(key: &[u8]) -> Failure {
    format!("{} was changed each time it was read", words(Some(key))).into()
}

/// Bytes of an item as text.
pub(crate) fn words(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

/// A product as others show it.
pub(crate) fn card(product: &Item) -> Card {
    (words(Some(product.key())), words(product.bytes(TITLE)), words(product.bytes(PRICE)))
}

/// A place in the order of titles, if this can be one.
pub(crate) fn is_place(text: &str) -> bool {
    text.len() <= 1024 && text.rsplit_once(TITLE_END).is_some_and(|(_, id)| is_id(id))
}
