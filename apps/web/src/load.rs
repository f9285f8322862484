//! A catalogue into a store.

use kelix::{Completion, NewItem, Session, Table};
use kelix_apps::{Calls, Failure, now};
use kelix_report::progress::show as progress;

use crate::catalogue::{Catalogue, Product, Review, day};
use crate::reviews::{OF_REVIEW, OF_USER, page_of};
use crate::shop::{AsyncShop, Shop, words};
use crate::tables::{
    BOUGHT, BRAND, DATE, DESCRIPTION, Kind, LIST, LIST_LINKS, MORE, NAME, NEXT, OF, PAGE_BOUGHT,
    PAGE_REVIEWS, PRICE, PRODUCT, RATING, REVIEW, REVIEWS, SHOWN, SUMMARY, TEXT, TITLE, Tables, USER,
    list_key, review_key, title_key,
};

/// Puts that are under way at once. When there are so many, half of them are waited for: each wait may cost a
/// turn of the processor.
const UNDER_WAY: usize = 256;
/// Items between two words about how far it is.
const ITEMS_A_WORD: usize = 10_000;
/// Under it stands what is in the store.
const SET: &[u8] = b"set";

/// What a store has in it already, in words.
pub fn set_in(shop: &mut Shop) -> Result<Option<String>, Failure> {
    now(shop.0.set())
}

impl<C: Calls> AsyncShop<C> {
    /// What the store has in it, in words.
    pub async fn set(&mut self) -> Result<Option<String>, Failure> {
        Ok(self.get(self.tables.set, SET).await?.map(|item| words(Some(item.value()))))
    }
}

/// Memory for a catalogue with its pages, with room to spare.
pub fn memory_for(catalogue: &Catalogue) -> u64 {
    let products = catalogue.products.iter().map(|product| product.description.len() + 16_000);
    let reviews = catalogue.reviews.iter().map(|review| review.text.len() * 3 + 3000);
    (products.sum::<usize>() + reviews.sum::<usize>()).max(256 << 20) as u64
}

/// Puts a catalogue into a store. Fragments have no HTML yet: the first page that needs one makes it.
pub fn load(shop: &mut Shop, catalogue: &Catalogue) -> Result<(), Failure> {
    let AsyncShop { calls: session, tables, .. } = &mut shop.0;
    let tables = *tables;
    let reviews = catalogue.reviews_of_products();
    let keys = review_keys(catalogue, &reviews);
    let mut loader = Loader { session, tables, completions: Vec::new(), items: 0 };
    // What links lead to comes before them, as far as it goes; the first reader repairs the others.
    loader.users(catalogue, &keys)?;
    for (index, review) in catalogue.reviews.iter().enumerate() {
        loader.review(catalogue, review, &keys[index])?;
    }
    let showing = shown(catalogue);
    for (index, product) in catalogue.products.iter().enumerate() {
        let reviews: Vec<&[u8]> = reviews[index].iter().map(|review| &keys[*review].key[..]).collect();
        let newest = loader.lists(product, &reviews)?;
        loader.product(catalogue, product, &showing[index], &newest)?;
    }
    for (index, product) in catalogue.products.iter().enumerate() {
        let reviews: Vec<(&[u8], &str)> = reviews[index]
            .iter()
            .map(|review| (&keys[*review].key[..], &catalogue.users[catalogue.reviews[*review].user].id[..]))
            .collect();
        loader.page(catalogue, product, &reviews)?;
    }
    loader.settle(0)?;
    progress("");
    shop.0.calls.put(tables.set, SET, catalogue.describe().as_bytes()).map(drop).map_err(Failure::from)
}

/// The key of a review, and that of the list which it stands in.
struct ReviewKeys {
    key: Vec<u8>,
    list: Vec<u8>,
}

/// Those of all reviews, by their place. They are numbered from the oldest of a product on.
fn review_keys(catalogue: &Catalogue, reviews: &[Vec<usize>]) -> Vec<ReviewKeys> {
    let mut keys: Vec<ReviewKeys> =
        catalogue.reviews.iter().map(|_| ReviewKeys { key: Vec::new(), list: Vec::new() }).collect();
    for (product, reviews) in catalogue.products.iter().zip(reviews) {
        for (number, review) in reviews.iter().rev().enumerate() {
            keys[*review].key = review_key(&product.id, number);
            keys[*review].list = list_key(&product.id, number / LIST_LINKS);
        }
    }
    keys
}

/// Fragments that show an object, with what they show of it.
type Shown = Vec<(Vec<u8>, &'static [u8])>;

/// Those of products.
fn shown(catalogue: &Catalogue) -> Vec<Shown> {
    let own = |product: &Product| {
        vec![
            (Kind::Head.key(&product.id), &b"title brand price"[..]),
            (Kind::Description.key(&product.id), &b"description"[..]),
        ]
    };
    let mut shown: Vec<Shown> = catalogue.products.iter().map(own).collect();
    for product in &catalogue.products {
        for other in product.bought.iter().take(PAGE_BOUGHT) {
            shown[*other].push((Kind::Bought.key(&product.id), b"title price"));
        }
    }
    shown
}

fn add_links(
    mut item: NewItem,
    tables: Tables,
    shown: &[(Vec<u8>, &'static [u8])],
    more: Option<&[u8]>,
) -> NewItem {
    for (key, bytes) in shown {
        item = item.link_with(SHOWN, tables.fragments, key, bytes);
    }
    if let Some(more) = more {
        item = item.link(MORE, tables.lists, more);
    }
    item
}

struct Loader<'s> {
    session: &'s mut Session,
    tables: Tables,
    completions: Vec<Completion>,
    items: usize,
}

impl Loader<'_> {
    fn put(&mut self, table: Table, key: &[u8], item: &NewItem) -> Result<(), Failure> {
        self.session.submit_item(table, key, item)?;
        self.items += 1;
        if self.items % ITEMS_A_WORD == 0 {
            progress(&format!("loading: {} items", self.items));
        }
        if self.session.outstanding() < UNDER_WAY { Ok(()) } else { self.settle(UNDER_WAY / 2) }
    }

    /// Waits until no more than so many puts are under way.
    fn settle(&mut self, left: usize) -> Result<(), Failure> {
        while self.session.outstanding() > left {
            if self.session.poll(&mut self.completions)? == 0 {
                std::thread::yield_now();
            }
            for completion in self.completions.drain(..) {
                completion.outcome?;
            }
        }
        Ok(())
    }

    /// Adds links to the fragments that show an object: a list's worth to itself, and to the rest by a chain
    /// of lists.
    fn add_shown(&mut self, object: NewItem, owner: &str, shown: &Shown) -> Result<NewItem, Failure> {
        let mut chunks: Vec<&[(Vec<u8>, &'static [u8])]> = shown.chunks(LIST_LINKS).collect();
        let own = if chunks.is_empty() { &[] } else { chunks.remove(0) };
        let mut more: Option<Vec<u8>> = None;
        for (number, chunk) in chunks.into_iter().enumerate().rev() {
            let mut list = NewItem::new();
            list = add_links(list, self.tables, chunk, more.as_deref());
            let key = format!("{owner}/shown/{number}").into_bytes();
            self.put(self.tables.lists, &key, &list)?;
            more = Some(key);
        }
        Ok(add_links(object, self.tables, own, more.as_deref()))
    }

    fn users(&mut self, catalogue: &Catalogue, keys: &[ReviewKeys]) -> Result<(), Failure> {
        let mut shown: Vec<Shown> = vec![Vec::new(); catalogue.users.len()];
        for (review, keys) in catalogue.reviews.iter().zip(keys) {
            shown[review.user].push((keys.key.clone(), OF_USER));
        }
        for (user, shown) in catalogue.users.iter().zip(&shown) {
            let mut item = NewItem::new();
            item = item.bytes(NAME, user.name.as_bytes());
            item = self.add_shown(item, &format!("user/{}", user.id), shown)?;
            self.put(self.tables.users, user.id.as_bytes(), &item)?;
        }
        Ok(())
    }

    fn review(&mut self, catalogue: &Catalogue, review: &Review, keys: &ReviewKeys) -> Result<(), Failure> {
        let tables = self.tables;
        let product = &catalogue.products[review.product].id;
        let mut item = NewItem::new();
        item = item
            .bytes(RATING, review.rating.to_string().as_bytes())
            .bytes(DATE, day(review.time).as_bytes())
            .bytes(SUMMARY, review.summary.as_bytes())
            .bytes(TEXT, review.text.as_bytes())
            .link(PRODUCT, tables.products, product.as_bytes())
            .link(USER, tables.users, catalogue.users[review.user].id.as_bytes())
            .link(LIST, tables.lists, &keys.list)
            .link_with(SHOWN, tables.fragments, &keys.key, OF_REVIEW)
            .link_with(SHOWN, tables.fragments, &Kind::Rating.key(product), RATING.as_bytes());
        self.put(tables.reviews, &keys.key, &item)
    }

    /// Puts the lists of a product's reviews, of which the newest comes first here. The key of the newest
    /// list.
    fn lists(&mut self, product: &Product, reviews: &[&[u8]]) -> Result<Vec<u8>, Failure> {
        let Tables { reviews: table, lists, .. } = self.tables;
        let full = reviews.len().saturating_sub(1) / LIST_LINKS;
        for number in 0..=full {
            // The oldest review has the number 0, and stands last.
            let newer = reviews.len().saturating_sub((number + 1) * LIST_LINKS);
            let mut list = NewItem::new();
            for key in &reviews[newer..reviews.len() - number * LIST_LINKS] {
                list = list.link(REVIEW, table, key);
            }
            if number > 0 {
                list = list.link(NEXT, lists, &list_key(&product.id, number - 1));
            }
            self.put(lists, &list_key(&product.id, number), &list)?;
        }
        Ok(list_key(&product.id, full))
    }

    fn product(
        &mut self,
        catalogue: &Catalogue,
        product: &Product,
        shown: &Shown,
        newest: &[u8],
    ) -> Result<(), Failure> {
        let tables = self.tables;
        let mut item = NewItem::new();
        item = item
            .bytes(TITLE, product.title.as_bytes())
            .bytes(BRAND, product.brand.as_bytes())
            .bytes(PRICE, product.price.as_bytes())
            .bytes(DESCRIPTION, product.description.as_bytes())
            .link(REVIEWS, tables.lists, newest);
        for other in &product.bought {
            item = item.link(BOUGHT, tables.products, catalogue.products[*other].id.as_bytes());
        }
        item = self.add_shown(item, &format!("product/{}", product.id), shown)?;
        self.put(tables.products, product.id.as_bytes(), &item)
    }

    /// Puts the fragments of a product and its reviews, its page, and its place in the order of titles.
    fn page(
        &mut self,
        catalogue: &Catalogue,
        product: &Product,
        reviews: &[(&[u8], &str)],
    ) -> Result<(), Failure> {
        let tables = self.tables;
        for kind in Kind::OF_PAGE {
            let mut fragment = NewItem::new();
            fragment = fragment.link(OF, tables.products, product.id.as_bytes());
            for other in product.bought.iter().take(PAGE_BOUGHT).filter(|_| kind == Kind::Bought) {
                fragment = fragment.link(OF, tables.products, catalogue.products[*other].id.as_bytes());
            }
            self.put(tables.fragments, &kind.key(&product.id), &fragment)?;
        }
        for (review, user) in reviews {
            let mut fragment = NewItem::new();
            fragment = fragment.link(OF, tables.reviews, review).link(OF, tables.users, user.as_bytes());
            self.put(tables.fragments, review, &fragment)?;
        }
        let newest: Vec<Vec<u8>> = reviews.iter().take(PAGE_REVIEWS).map(|(key, _)| key.to_vec()).collect();
        self.put(tables.pages, product.id.as_bytes(), &page_of(tables.fragments, &product.id, &newest))?;
        let mut title = NewItem::new();
        title = title.link(PRODUCT, tables.products, product.id.as_bytes());
        self.put(tables.titles, &title_key(&product.title, &product.id), &title)
    }
}
