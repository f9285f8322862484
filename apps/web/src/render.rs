//! Fragments made anew from their objects.

use kelix::{Frontier, Item, NewItem};
use kelix_apps::{Calls, Failure};

use crate::catalogue::is_id;
use crate::html::{self, ReviewText};
use crate::pages::Made;
use crate::shop::{AsyncShop, card, words};
use crate::tables::{
    BRAND, DATE, DESCRIPTION, FRAGMENT, HTML, Kind, NAME, NEXT, OF, PRICE, RATING, REVIEW, REVIEWS, STARS,
    SUMMARY, TEXT, TITLE,
};

/// How many reviews give one to five stars.
type Stars = [u32; 5];

/// An item as it is to be put again: with the links that it has, and these bytes in place of others; `None`:
/// no such bytes any more.
pub(crate) fn with(calls: &impl Calls, item: &Item, bytes: &[(&str, Option<&[u8]>)]) -> NewItem {
    let mut new = NewItem::new();
    for (name, attribute) in item.attributes() {
        match attribute {
            kelix::Attribute::Link(link) => {
                new = new.link_with(name, calls.table_by_id(link.table), link.key, link.bytes);
            }
            kelix::Attribute::Bytes(old) => {
                if bytes.iter().all(|(changed, _)| *changed != name) {
                    new = new.bytes(name, old);
                }
            }
        }
    }
    for (name, bytes) in bytes {
        if let Some(bytes) = bytes {
            new = new.bytes(name, bytes);
        }
    }
    new
}

impl<C: Calls> AsyncShop<C> {
    /// Makes a stale fragment anew, and puts it unless it was marked, or made by somebody else, since it was
    /// read.
    pub async fn make_anew(&mut self, fragment: &Item) -> Result<Vec<u8>, Failure> {
        let html = self.render(fragment, false).await?.into_bytes();
        let new = with(&self.calls, fragment, &[(HTML, Some(&html))]);
        self.put_over(self.tables.fragments, fragment, &new).await?;
        Ok(html)
    }

    /// What a fragment looks like. From scratch: nothing is used that was counted before.
    async fn render(&mut self, fragment: &Item, from_scratch: bool) -> Result<String, Failure> {
        let of = self.targets(fragment, OF).await?;
        let objects: Vec<&Item> = of.iter().flatten().collect();
        let bytes = |object: usize, name: &str| words(objects.get(object).and_then(|item| item.bytes(name)));
        let Some(first) = objects.first() else { return Ok(String::new()) };
        let id = words(Some(first.key()));
        Ok(match Kind::of(fragment.key()) {
            Kind::Head => html::head(&id, &bytes(0, TITLE), &bytes(0, BRAND), &bytes(0, PRICE)),
            Kind::Description => html::description(&bytes(0, DESCRIPTION)),
            Kind::Rating => html::rating(&self.stars(first, from_scratch).await?),
            Kind::Bought => {
                html::bought(&objects[1..].iter().map(|product| card(product)).collect::<Vec<_>>())
            }
            // A review that is on its way.
            Kind::Review if objects.len() < of.len() => String::new(),
            Kind::Review => html::review(&ReviewText {
                id: &id,
                rating: bytes(0, RATING).parse().unwrap_or(0),
                date: &bytes(0, DATE),
                summary: &bytes(0, SUMMARY),
                text: &bytes(0, TEXT),
                user: &bytes(1, NAME),
            }),
        })
    }

    /// The stars that a product's reviews give: a READ for each list whose reviews have not changed.
    async fn stars(&mut self, product: &Item, from_scratch: bool) -> Result<Stars, Failure> {
        let mut stars = Stars::default();
        let mut at = product.clone();
        let mut link = REVIEWS;
        while at.link_count(link) > 0 && self.calls.follow_into(&mut at, link).await? {
            let known = at.bytes(STARS).filter(|_| !from_scratch).map(decode);
            let of_list = match known {
                Some(known) => known,
                None => self.count(&at, !from_scratch).await?,
            };
            stars.iter_mut().zip(of_list).for_each(|(sum, count)| *sum += count);
            link = NEXT;
        }
        Ok(stars)
    }

    /// Counts the stars of a list's reviews, and keeps the count as one keeps a fragment.
    async fn count(&mut self, list: &Item, keep: bool) -> Result<Stars, Failure> {
        let mut reviews = Frontier::new();
        reviews.add_links(list, REVIEW, |_| true);
        let mut stars = Stars::default();
        let add = |_, review: Option<&Item>| {
            let rating = review.and_then(|review| review.bytes(RATING)).and_then(|rating| rating.first());
            let count = rating.and_then(|digit| stars.get_mut(usize::from(digit.wrapping_sub(b'1'))));
            count.into_iter().for_each(|count| *count += 1);
        };
        self.calls.visit(&reviews, add).await?;
        if keep {
            let new = with(&self.calls, list, &[(STARS, Some(&encode(stars)))]);
            self.put_over(self.tables.lists, list, &new).await?;
        }
        Ok(stars)
    }

    pub async fn page_from_scratch(
        &mut self,
        product: &str,
        html: &mut Vec<u8>,
    ) -> Result<Option<Made>, Failure> {
        if !is_id(product) {
            return Ok(None);
        }
        let Some(page) = self.get(self.tables.pages, product.as_bytes()).await? else { return Ok(None) };
        let mut made = Made::default();
        for fragment in self.targets(&page, FRAGMENT).await? {
            let fragment = fragment.ok_or_else(|| format!("a fragment of {product} is not there"))?;
            html.extend_from_slice(self.render(&fragment, true).await?.as_bytes());
            made.anew.push(words(Some(fragment.key())));
        }
        Ok(Some(made))
    }
}

fn encode(stars: Stars) -> Vec<u8> {
    stars.iter().flat_map(|count| count.to_le_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Stars {
    let mut stars = Stars::default();
    for (count, bytes) in stars.iter_mut().zip(bytes.chunks_exact(4)) {
        *count = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    }
    stars
}
