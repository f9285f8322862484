//! New reviews: the one change that adds objects, fragments and links.

use std::time::{SystemTime, UNIX_EPOCH};

use kelix::{CompareAndSet, Item, NewItem, Table};
use kelix_apps::{Calls, Failure};

use crate::catalogue::{day, is_id};
use crate::shop::{AsyncShop, TRIES_MAX, changing, words};
use crate::tables::{
    DATE, FRAGMENT, Kind, LIST, LIST_LINKS, NAME, NEXT, OF, PAGE_REVIEWS, PRODUCT, RATING, REVIEW, REVIEWS,
    SHOWN, SUMMARY, TEXT, USER, list_key, review_key,
};

/// A review that somebody has written just now. Without accounts nobody can tell whether two of one name are
/// the same, so each is by a user of its own.
#[derive(Clone, Copy, Debug)]
pub struct NewReview<'a> {
    /// Their name.
    pub name: &'a str,
    /// One to five stars.
    pub rating: u8,
    /// In a few words.
    pub summary: &'a str,
    /// In more.
    pub text: &'a str,
}

/// What is shown of a review by its own fragment, and of a user.
pub(crate) const OF_REVIEW: &[u8] = b"rating summary text";
pub(crate) const OF_USER: &[u8] = b"name";

impl<C: Calls> AsyncShop<C> {
    /// Adds a review to a product; its id. `None`: there is no such product.
    ///
    /// The fragment comes first, which takes the number. Then the list has a link to a review that is not
    /// there yet, which readers go by. Once it is there all that shows it is marked, and the page gets the
    /// fragments of the newest reviews.
    pub async fn add_review(
        &mut self,
        product: &str,
        new: &NewReview<'_>,
    ) -> Result<Option<String>, Failure> {
        if !is_id(product) || self.get(self.tables.products, product.as_bytes()).await?.is_none() {
            return Ok(None);
        }
        let key = self.take_number(product).await?;
        let tables = self.tables;
        let mut user = NewItem::new();
        user = user.bytes(NAME, new.name.as_bytes()).link_with(SHOWN, tables.fragments, &key, OF_USER);
        self.calls.put_item(tables.users, &key, &user).await?;

        let list = self.add_to_list(product, &key).await?;
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64);
        let mut review = NewItem::new();
        review = review
            .bytes(RATING, new.rating.to_string().as_bytes())
            .bytes(DATE, day(seconds).as_bytes())
            .bytes(SUMMARY, new.summary.as_bytes())
            .bytes(TEXT, new.text.as_bytes())
            .link(PRODUCT, tables.products, product.as_bytes())
            .link(USER, tables.users, &key)
            .link(LIST, tables.lists, &list)
            .link_with(SHOWN, tables.fragments, &key, OF_REVIEW)
            .link_with(SHOWN, tables.fragments, &Kind::Rating.key(product), RATING.as_bytes());
        self.calls.put_item(tables.reviews, &key, &review).await?;
        let review = self.get(tables.reviews, &key).await?.ok_or("a review that was just put is gone")?;
        self.mark(&review, &[RATING, SUMMARY, TEXT]).await?;
        self.renew_page(product).await?;
        Ok(Some(words(Some(&key))))
    }

    /// Puts the stale fragment of a new review under the first number that is free.
    async fn take_number(&mut self, product: &str) -> Result<Vec<u8>, Failure> {
        let list = self.newest_list(product).await?;
        let likely = list_number(list.key()) * LIST_LINKS + list.link_count(REVIEW);
        for number in likely..usize::MAX {
            let key = review_key(product, number);
            let mut fragment = NewItem::new();
            fragment = fragment.link(OF, self.tables.reviews, &key).link(OF, self.tables.users, &key);
            if self.put_new(self.tables.fragments, &key, &fragment).await? {
                return Ok(key);
            }
        }
        Err(format!("{product} has no number left for a review").into())
    }

    /// Puts an item where there is none.
    async fn put_new(&mut self, table: Table, key: &[u8], item: &NewItem) -> Result<bool, Failure> {
        let put = self.calls.compare_and_set_item(table, key, None, item).await?;
        Ok(matches!(put, CompareAndSet::Done(_)))
    }

    async fn newest_list(&mut self, product: &str) -> Result<Item, Failure> {
        let missing = || Failure::from(format!("{product} has no list of reviews"));
        let item = self.get(self.tables.products, product.as_bytes()).await?.ok_or_else(missing)?;
        self.calls.follow(&item, REVIEWS).await?.ok_or_else(missing)
    }

    /// Adds a review to the newest list of a product, or to a new one when that is full. The list's key.
    async fn add_to_list(&mut self, product: &str, review: &[u8]) -> Result<Vec<u8>, Failure> {
        for _ in 0..TRIES_MAX {
            let list = self.newest_list(product).await?;
            if list.link_count(REVIEW) >= LIST_LINKS {
                self.begin_list(product, &list).await?;
                continue;
            }
            let mut new = NewItem::new();
            new = new.link(REVIEW, self.tables.reviews, review);
            for link in list.links(REVIEW) {
                new = new.link(REVIEW, self.tables.reviews, link.key);
            }
            for link in list.links(NEXT) {
                new = new.link(NEXT, self.tables.lists, link.key);
            }
            if self.put_over(self.tables.lists, &list, &new).await? {
                return Ok(list.key().to_vec());
            }
        }
        Err(changing(product.as_bytes()))
    }

    /// Lets a product have an empty list before one that is full. Whoever finds that somebody else has begun
    /// it goes on with it.
    async fn begin_list(&mut self, product: &str, full: &Item) -> Result<(), Failure> {
        let key = list_key(product, list_number(full.key()) + 1);
        let mut list = NewItem::new();
        list = list.link(NEXT, self.tables.lists, full.key());
        self.put_new(self.tables.lists, &key, &list).await?;
        let tables = self.tables;
        let Some(item) = self.get(tables.products, product.as_bytes()).await? else { return Ok(()) };
        let mut new = NewItem::new();
        for (name, attribute) in item.attributes() {
            new = match attribute {
                kelix::Attribute::Bytes(bytes) => new.bytes(name, bytes),
                // Only if nobody has gone on from there.
                kelix::Attribute::Link(link) if name == REVIEWS && link.key == full.key() => {
                    new.link(REVIEWS, tables.lists, &key)
                }
                kelix::Attribute::Link(link) => {
                    new.link_with(name, self.calls.table_by_id(link.table), link.key, link.bytes)
                }
            };
        }
        self.put_over(tables.products, &item, &new).await.map(drop)
    }

    /// Gives a page the fragments of its newest reviews, whichever these are when nobody adds one meanwhile.
    async fn renew_page(&mut self, product: &str) -> Result<(), Failure> {
        for _ in 0..TRIES_MAX {
            let page = self.get(self.tables.pages, product.as_bytes()).await?;
            let page = page.ok_or_else(|| format!("{product} has no page"))?;
            let reviews = self.newest_reviews(product).await?;
            let new = page_of(self.tables.fragments, product, &reviews);
            if self.put_over(self.tables.pages, &page, &new).await? {
                return Ok(());
            }
        }
        Err(changing(product.as_bytes()))
    }

    /// The keys of a product's newest reviews.
    async fn newest_reviews(&mut self, product: &str) -> Result<Vec<Vec<u8>>, Failure> {
        let mut list = self.newest_list(product).await?;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            keys.extend(list.links(REVIEW).take(PAGE_REVIEWS - keys.len()).map(|link| link.key.to_vec()));
            let over = keys.len() == PAGE_REVIEWS || list.link_count(NEXT) == 0;
            if over || !self.calls.follow_into(&mut list, NEXT).await? {
                return Ok(keys);
            }
        }
    }

    /// A review with the name of its user, for whoever wants to change it.
    pub async fn review(&mut self, review: &str) -> Result<Option<(Item, Item)>, Failure> {
        if !is_id(review) {
            return Ok(None);
        }
        let Some(item) = self.get(self.tables.reviews, review.as_bytes()).await? else { return Ok(None) };
        let user = self.calls.follow(&item, USER).await?;
        Ok(user.map(|user| (item, user)))
    }

    /// The fragments that a page is made of.
    pub async fn fragments(&mut self, product: &str) -> Result<Vec<String>, Failure> {
        let page = self.get(self.tables.pages, product.as_bytes()).await?;
        let page = page.ok_or_else(|| format!("{product} has no page"))?;
        Ok(page.links(FRAGMENT).map(|link| words(Some(link.key))).collect())
    }
}

/// The number of a list, by its key: the end of it.
fn list_number(key: &[u8]) -> usize {
    words(key.rsplit(|byte| *byte == b'-').next()).parse().unwrap_or(0)
}

/// The page of a product whose newest reviews have these keys.
pub(crate) fn page_of(fragments: Table, product: &str, reviews: &[Vec<u8>]) -> NewItem {
    let mut page = NewItem::new();
    for kind in Kind::OF_PAGE {
        page = page.link(FRAGMENT, fragments, &kind.key(product));
    }
    for review in reviews {
        page = page.link(FRAGMENT, fragments, review);
    }
    page
}
