//! Changes of what is there: the object first, then marks on the fragments that show it.

use kelix::{Frontier, Item, Table};
use kelix_apps::{Calls, Failure};

use crate::render::with;
use crate::shop::AsyncShop;
use crate::tables::{HTML, LIST, MORE, NAME, PRICE, RATING, SHOWN, STARS, SUMMARY, TEXT};

/// What is to be changed of a review. `None`: it stays.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReviewChange<'a> {
    /// One to five stars.
    pub rating: Option<u8>,
    /// In a few words.
    pub summary: Option<&'a str>,
    /// In more.
    pub text: Option<&'a str>,
}

impl<C: Calls> AsyncShop<C> {
    pub async fn change_price(&mut self, product: &str, price: &str) -> Result<Option<usize>, Failure> {
        self.change(self.tables.products, product, &[(PRICE, price.as_bytes())]).await
    }

    pub async fn change_name(&mut self, user: &str, name: &str) -> Result<Option<usize>, Failure> {
        self.change(self.tables.users, user, &[(NAME, name.as_bytes())]).await
    }

    pub async fn change_review(
        &mut self,
        review: &str,
        change: &ReviewChange<'_>,
    ) -> Result<Option<usize>, Failure> {
        let rating = change.rating.map(|rating| rating.to_string());
        let bytes = [(RATING, rating.as_deref()), (SUMMARY, change.summary), (TEXT, change.text)];
        let bytes: Vec<(&str, &[u8])> =
            bytes.iter().filter_map(|(name, bytes)| Some((*name, bytes.as_ref()?.as_bytes()))).collect();
        self.change(self.tables.reviews, review, &bytes).await
    }

    /// Changes bytes of an object, and marks the fragments that show them.
    async fn change(
        &mut self,
        table: Table,
        key: &str,
        bytes: &[(&str, &[u8])],
    ) -> Result<Option<usize>, Failure> {
        let put: Vec<(&str, Option<&[u8]>)> =
            bytes.iter().map(|(name, bytes)| (*name, Some(*bytes))).collect();
        let Some(object) = self.replace(table, key.as_bytes(), &put).await? else { return Ok(None) };
        let names: Vec<&str> = bytes.iter().map(|(name, _)| *name).collect();
        self.mark(&object, &names).await.map(Some)
    }

    /// Marks what depends on these attributes of an object, which have been written: the count of the list
    /// that a review stands in, and then the fragments. How many these are.
    pub async fn mark(&mut self, object: &Item, attributes: &[&str]) -> Result<usize, Failure> {
        let list = object.links(LIST).next().map(|link| link.key.to_vec());
        if let Some(list) = list.filter(|_| attributes.contains(&RATING)) {
            self.replace(self.tables.lists, &list, &[(STARS, None)]).await?;
        }
        let (mut at, mut marked) = (object.clone(), 0);
        loop {
            marked += self.mark_fragments(&at, attributes).await?;
            if at.link_count(MORE) == 0 || !self.calls.follow_into(&mut at, MORE).await? {
                return Ok(marked);
            }
        }
    }

    /// Marks the fragments that an item's own links lead to.
    async fn mark_fragments(&mut self, object: &Item, attributes: &[&str]) -> Result<usize, Failure> {
        let mut fragments = Frontier::new();
        let shows = |shown: &[u8]| {
            let mut shown = shown.split(|byte| *byte == b' ');
            shown.any(|shown| attributes.iter().any(|attribute| attribute.as_bytes() == shown))
        };
        fragments.add_links(object, SHOWN, |link| shows(link.bytes));
        let mut found = Vec::with_capacity(fragments.len());
        self.calls.visit(&fragments, |_, fragment| found.extend(fragment.cloned())).await?;
        for fragment in &found {
            let stale = with(&self.calls, fragment, &[(HTML, None)]);
            if !self.put_over(self.tables.fragments, fragment, &stale).await? {
                self.replace(self.tables.fragments, fragment.key(), &[(HTML, None)]).await?;
            }
        }
        Ok(found.len())
    }
}
