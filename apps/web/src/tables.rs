//! How the data is modelled: tables, names of attributes, keys.

use kelix::{Session, Table, TableKind};
use kelix_apps::Failure;

/// Of a page, to its fragments in order.
pub(crate) const FRAGMENT: &str = "fragment";
/// Of a fragment: what it looks like, unless it is stale.
pub(crate) const HTML: &str = "html";
/// Of a fragment, to the objects that it is made of.
pub(crate) const OF: &str = "of";
/// Of an object, to the fragments that show it. The bytes of the link name the attributes that are shown.
pub(crate) const SHOWN: &str = "shown";
/// Of an object, to more links of that kind.
pub(crate) const MORE: &str = "more";

pub(crate) const TITLE: &str = "title";
pub(crate) const BRAND: &str = "brand";
pub(crate) const PRICE: &str = "price";
pub(crate) const DESCRIPTION: &str = "description";
/// Of a product, to others.
pub(crate) const BOUGHT: &str = "bought";
/// Of a product, to the list of its newest reviews.
pub(crate) const REVIEWS: &str = "reviews";

/// Of a list, to reviews, the newest first.
pub(crate) const REVIEW: &str = "review";
/// Of a list, to the next older one.
pub(crate) const NEXT: &str = "next";
/// Of a list: how many of its reviews give how many stars, unless that is stale.
pub(crate) const STARS: &str = "stars";

pub(crate) const RATING: &str = "rating";
pub(crate) const DATE: &str = "date";
pub(crate) const SUMMARY: &str = "summary";
pub(crate) const TEXT: &str = "text";
/// Of a review and of an entry of the titles.
pub(crate) const PRODUCT: &str = "product";
pub(crate) const USER: &str = "user";
/// Of a review, to the list that it stands in.
pub(crate) const LIST: &str = "list";

/// Of a user.
pub(crate) const NAME: &str = "name";

/// Links of a list, as in the paper.
pub(crate) const LIST_LINKS: usize = 100;
/// Reviews on a page.
pub(crate) const PAGE_REVIEWS: usize = 10;
/// Products in a fragment of what buyers bought too.
pub(crate) const PAGE_BOUGHT: usize = 12;

/// Bytes of a title that order the products.
const TITLE_BYTES: usize = 200;
/// Stands between title and id there; titles have no such character.
pub(crate) const TITLE_END: char = '\t';

/// The tables of the shop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    pub pages: Table,
    pub fragments: Table,
    pub products: Table,
    pub reviews: Table,
    pub users: Table,
    pub lists: Table,
    /// The products in the order of their titles.
    pub titles: Table,
    /// What is in the others, once it all is.
    pub set: Table,
}

impl Tables {
    /// Opens them, and makes those that do not exist.
    pub fn open(session: &mut Session) -> Result<Tables, Failure> {
        let mut table = |name: &str| session.create_table(&format!("web_{name}")).map_err(Failure::from);
        Ok(Tables {
            pages: table("pages")?,
            fragments: table("fragments")?,
            products: table("products")?,
            reviews: table("reviews")?,
            users: table("users")?,
            lists: table("lists")?,
            set: table("set")?,
            titles: session.create_table_of(TableKind::Strings, "web_titles")?,
        })
    }
}

/// What a fragment shows. Its key is that of the page and this behind a hyphen; a review's is the same as the
/// review's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Head,
    Description,
    Rating,
    Review,
    Bought,
}

impl Kind {
    /// Those of a page in their order, but for its reviews, which stand behind them.
    pub const OF_PAGE: [Kind; 4] = [Kind::Head, Kind::Rating, Kind::Bought, Kind::Description];

    /// The end of its key.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Head => "head",
            Kind::Description => "description",
            Kind::Rating => "rating",
            Kind::Review => "review",
            Kind::Bought => "bought",
        }
    }

    /// That of the fragment with this key.
    pub fn of(key: &[u8]) -> Kind {
        let end = key.rsplit(|byte| *byte == b'-').next().unwrap_or_default();
        Kind::OF_PAGE.into_iter().find(|kind| kind.name().as_bytes() == end).unwrap_or(Kind::Review)
    }

    /// The key of a fragment of a product's page.
    pub fn key(self, product: &str) -> Vec<u8> {
        format!("{product}-{}", self.name()).into_bytes()
    }
}

/// The key of a product's review, and of the fragment that shows it.
pub(crate) fn review_key(product: &str, number: usize) -> Vec<u8> {
    format!("{product}-{number}").into_bytes()
}

/// The key of a product's list of reviews.
pub(crate) fn list_key(product: &str, number: usize) -> Vec<u8> {
    format!("{product}-reviews-{number}").into_bytes()
}

/// The title of a product as one looks for it.
pub(crate) fn folded(title: &str) -> String {
    let words: Vec<&str> = title.split_whitespace().collect();
    let mut folded = words.join(" ").to_lowercase();
    let end = (0..=TITLE_BYTES.min(folded.len())).rev().find(|end| folded.is_char_boundary(*end));
    folded.truncate(end.unwrap_or(0));
    folded
}

/// Where a product stands in the order of titles.
pub(crate) fn title_key(title: &str, product: &str) -> Vec<u8> {
    format!("{}{TITLE_END}{product}", folded(title)).into_bytes()
}
