//! Pages by links: [`AsyncShop`] does all of it, for a thread ([`Shop`]) and for the tasks of the server.

use std::ops::Bound;
use std::time::Duration;

use kelix::{Client, CompareAndSet, Cost, Frontier, Item, NewItem, Scan, Session, SessionOptions, Table};
use kelix_apps::{Calls, Failure, now};

use crate::catalogue::is_id;
use crate::change::ReviewChange;
use crate::html::Card;
use crate::keyed::KeyValue;
use crate::pages::{Made, Pages};
use crate::render::with;
use crate::reviews::NewReview;
use crate::tables::{BOUGHT, FRAGMENT, HTML, PRICE, PRODUCT, TITLE, TITLE_END, Tables, folded};

/// How often a compare-and-set is tried: each time somebody else was faster.
pub(crate) const TRIES_MAX: usize = 10_000;

/// How long the store may take to answer: also on a machine that is busy with much else.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Products among which an example is looked for.
const EXAMPLES: usize = 1000;

/// The shop as one thread has it, which waits for its answers.
pub struct Shop(pub(crate) AsyncShop<Session>);

/// The shop over the calls of a session.
pub(crate) struct AsyncShop<C> {
    pub calls: C,
    pub tables: Tables,
    /// The page that is looked for, and its fragments.
    page: Frontier,
    fragments: Frontier,
}

/// Opens the shop that is in a store; one without products, if there is none.
pub(crate) fn open(client: &Client) -> Result<(Session, Tables), Failure> {
    let options = SessionOptions::default().timeout(TIMEOUT);
    let mut session = client.session_with(options)?;
    let tables = Tables::open(&mut session)?;
    Ok((session, tables))
}

impl Shop {
    /// Opens the shop that is in a store; one without products, if there is none.
    pub fn open(client: &Client) -> Result<Shop, Failure> {
        let (session, tables) = open(client)?;
        Ok(Shop(AsyncShop::new(session, tables)))
    }

    /// What it has cost so far.
    pub fn cost(&self) -> Cost {
        self.0.calls.cost()
    }

    /// Some products, in the order of their titles.
    pub fn products(&mut self, most: usize) -> Result<Vec<String>, Failure> {
        now(self.0.products(most))
    }

    /// A product, and another on whose page it stands among what buyers bought too.
    pub fn example(&mut self) -> Result<Option<(String, String)>, Failure> {
        now(self.0.example())
    }

    /// The fragments that a page is made of.
    pub fn fragments(&mut self, product: &str) -> Result<Vec<String>, Failure> {
        now(self.0.fragments(product))
    }

    /// The fragments of a page with their keys, all of them fresh.
    pub fn fresh_fragments(&mut self, product: &str) -> Result<Vec<KeyValue>, Failure> {
        now(self.0.fresh_fragments(product))
    }

    /// The fragments of a page as they would be if all were made now, and none was kept: what [`Pages::page`]
    /// must give when nobody writes.
    pub fn page_from_scratch(&mut self, product: &str, html: &mut Vec<u8>) -> Result<Option<Made>, Failure> {
        now(self.0.page_from_scratch(product, html))
    }

    /// Whether a page that is built of what is kept is the same as one from scratch.
    pub fn is_right(&mut self, product: &str) -> Result<bool, Failure> {
        let (mut kept, mut anew) = (Vec::new(), Vec::new());
        let known = self.page(product, &mut kept)?.is_some();
        Ok(known && self.page_from_scratch(product, &mut anew)?.is_some() && kept == anew)
    }

    /// Changes the price of a product. How many fragments show it; `None`: there is no such product.
    pub fn change_price(&mut self, product: &str, price: &str) -> Result<Option<usize>, Failure> {
        now(self.0.change_price(product, price))
    }

    /// Changes the name of a user. How many fragments show it; `None`: there is no such user.
    pub fn change_name(&mut self, user: &str, name: &str) -> Result<Option<usize>, Failure> {
        now(self.0.change_name(user, name))
    }

    /// Changes a review. How many fragments show what was changed; `None`: there is no such review.
    pub fn change_review(
        &mut self,
        review: &str,
        change: &ReviewChange<'_>,
    ) -> Result<Option<usize>, Failure> {
        now(self.0.change_review(review, change))
    }

    /// Adds a review to a product; its id. `None`: there is no such product.
    pub fn add_review(&mut self, product: &str, new: &NewReview<'_>) -> Result<Option<String>, Failure> {
        now(self.0.add_review(product, new))
    }
}

impl Pages for Shop {
    fn page(&mut self, product: &str, html: &mut Vec<u8>) -> Result<Option<Made>, Failure> {
        now(self.0.page(product, html))
    }
}

impl<C: Calls> AsyncShop<C> {
    pub fn new(calls: C, tables: Tables) -> AsyncShop<C> {
        AsyncShop { calls, tables, page: Frontier::new(), fragments: Frontier::new() }
    }

    pub async fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Item>, Failure> {
        self.calls.get(table, key).await.map_err(Failure::from)
    }

    /// The products whose titles begin so, in their order, behind a place in it; and the place of the last
    /// one shown if there are more.
    pub async fn search(
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
        let mut found = self.calls.scan(self.tables.titles, &scan).await?;
        let more = found.len() > most;
        found.truncate(most);
        let mut products = Frontier::new();
        for entry in &found {
            products.add_links(entry, PRODUCT, |_| true);
        }
        let mut cards = Vec::new();
        self.calls.visit(&products, |_, product| cards.extend(product.map(card))).await?;
        let last = found.last().filter(|_| more).map(|entry| words(Some(entry.key())));
        Ok((cards, last))
    }

    async fn products(&mut self, most: usize) -> Result<Vec<String>, Failure> {
        Ok(self.search("", None, most).await?.0.into_iter().map(|(id, ..)| id).collect())
    }

    async fn example(&mut self) -> Result<Option<(String, String)>, Failure> {
        for shown_on in self.products(EXAMPLES).await? {
            let product = self.get(self.tables.products, shown_on.as_bytes()).await?;
            let bought = product.as_ref().and_then(|product| product.links(BOUGHT).next());
            if let Some(bought) = bought {
                return Ok(Some((words(Some(bought.key)), shown_on)));
            }
        }
        Ok(None)
    }

    /// The targets of all links of an item under a name. `None`: there is none (any more).
    pub async fn targets(&mut self, item: &Item, name: &str) -> Result<Vec<Option<Item>>, Failure> {
        let mut links = Frontier::new();
        links.add_links(item, name, |_| true);
        let mut targets = Vec::with_capacity(links.len());
        self.calls.visit(&links, |_, target| targets.push(target.cloned())).await?;
        Ok(targets)
    }

    async fn fresh_fragments(&mut self, product: &str) -> Result<Vec<KeyValue>, Failure> {
        let missing = || Failure::from(format!("{product} has no page, or one that is being changed"));
        self.page(product, &mut Vec::new()).await?.ok_or_else(missing)?;
        let page = self.get(self.tables.pages, product.as_bytes()).await?.ok_or_else(missing)?;
        let fragments = self.targets(&page, FRAGMENT).await?;
        let fresh = |fragment: &Option<Item>| {
            let fragment = fragment.as_ref()?;
            Some((fragment.key().to_vec(), fragment.bytes(HTML)?.to_vec()))
        };
        fragments.iter().map(|fragment| fresh(fragment).ok_or_else(missing)).collect()
    }

    /// Changes bytes of an item by compare-and-set, whatever others write meanwhile. The item in whose place
    /// the new one was put; `None`: there is none.
    pub async fn replace(
        &mut self,
        table: Table,
        key: &[u8],
        bytes: &[(&str, Option<&[u8]>)],
    ) -> Result<Option<Item>, Failure> {
        for _ in 0..TRIES_MAX {
            let Some(item) = self.get(table, key).await? else { return Ok(None) };
            let new = with(&self.calls, &item, bytes);
            if self.put_over(table, &item, &new).await? {
                return Ok(Some(item));
            }
        }
        Err(changing(key))
    }

    /// Puts an item in the place of one that was read, unless somebody else has.
    pub async fn put_over(&mut self, table: Table, item: &Item, new: &NewItem) -> Result<bool, Failure> {
        let put = self.calls.compare_and_set_item(table, item.key(), Some(item.version()), new).await;
        Ok(matches!(put?, CompareAndSet::Done(_)))
    }

    /// Appends the fragments of a product's page, in order. `None`: there is no such page.
    pub async fn page(&mut self, product: &str, html: &mut Vec<u8>) -> Result<Option<Made>, Failure> {
        if !is_id(product) {
            return Ok(None);
        }
        let AsyncShop { calls, page, fragments, tables } = self;
        page.clear();
        fragments.clear();
        page.add(tables.pages, product.as_bytes());
        let add = |_, page: Option<&Item>| {
            if let Some(page) = page {
                fragments.add_links(page, FRAGMENT, |_| true);
            }
        };
        calls.visit(page, add).await?;
        if fragments.is_empty() {
            return Ok(None);
        }
        let mut stale: Vec<(usize, Item)> = Vec::new();
        let mut missing = None;
        let append = |index, fragment: Option<&Item>| match fragment
            .map(|fragment| (fragment, fragment.bytes(HTML)))
        {
            Some((_, Some(bytes))) => html.extend_from_slice(bytes),
            Some((fragment, None)) => stale.push((html.len(), fragment.clone())),
            None => missing = Some(index),
        };
        calls.visit(fragments, append).await?;
        if let Some(index) = missing {
            let key = String::from_utf8_lossy(fragments.target(index).1);
            return Err(format!("the page of {product} has no fragment {key}").into());
        }
        let mut made = Made { reused: fragments.len() - stale.len(), anew: Vec::new() };
        // From the last on, so that the places of those before it stay.
        for (at, fragment) in stale.iter().rev() {
            html.splice(at..at, self.make_anew(fragment).await?);
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
