//! Whole pages: what stands around fragments, and pages that have none.

use std::fmt::{Display, Write};
use std::time::Instant;

use kelix::Cost;

use kelix_apps::{Calls, Failure, now};

use crate::html::{Card, Text, cards};
use crate::pages::Made;
use crate::shop::{AsyncShop, Shop, words};
use crate::tables::{Kind, NAME, PRODUCT, RATING, SUMMARY, TEXT};

const STYLE: &str = include_str!("style.css");
/// What a page's foot begins with: before it the page of a product is the same whoever asks.
pub(crate) const FOOT: &str = "<footer";
/// Products on a page of the index.
const INDEX_PRODUCTS: usize = 20;

fn begin(title: &str, search: &str, class: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>{}</title>\
         <meta name=viewport content=\"width=device-width\"><link rel=icon href=\"data:,\">\
         <style>\n{STYLE}</style></head>\n<body><header><b><a href=\"/\">Kelix shop</a></b>\
         <form action=\"/\"><input name=q value=\"{}\" placeholder=\"title begins with\" aria-label=\"Search\"> \
         <button>Search</button></form></header>\n<main class=\"{class}\">\n",
        Text(title),
        Text(search),
    )
}

fn end(html: &mut String) {
    html.push_str("</main></body></html>\n");
}

/// The page of a product. `None`: there is none.
pub fn product_page(shop: &mut Shop, product: &str) -> Result<Option<Vec<u8>>, Failure> {
    now(shop.0.product_page(product))
}

impl<C: Calls> AsyncShop<C> {
    /// The page of a product. `None`: there is none.
    ///
    /// Its foot tells what the session's operations have cost meanwhile: those of this page alone, unless it
    /// waited for the server and other tasks used the session then.
    pub async fn product_page(&mut self, product: &str) -> Result<Option<Vec<u8>>, Failure> {
        let mut page = begin(product, "", "product").into_bytes();
        let (began, before) = (Instant::now(), self.calls.cost());
        let Some(made) = self.page(product, &mut page).await? else { return Ok(None) };
        let (time, cost) = (began.elapsed(), self.calls.cost().since(before));
        page.extend_from_slice(write_form(product).as_bytes());
        page.extend_from_slice(foot(product, &made, cost, time.as_nanos() as f64 / 1000.0).as_bytes());
        Ok(Some(page))
    }
}

/// How the page was come by.
fn foot(product: &str, made: &Made, cost: Cost, microseconds: f64) -> String {
    let Made { reused, anew } = made;
    let mut html = format!("</main>\n{FOOT} id=foot data-reads={}>", cost.reads);
    let _ =
        write!(html, "{} fragments: <b>{reused} reused, {} made anew</b>", reused + anew.len(), anew.len());
    if !anew.is_empty() {
        let anew: Vec<String> = anew.iter().map(|key| fragment_name(product, key)).collect();
        let _ = write!(html, " ({})", Text(&anew.join(", ")));
    }
    let _ = write!(html, ". {} READs of the store's memory", cost.reads);
    let _ = write!(html, " and {} messages to it, {microseconds:.0} microseconds.", cost.messages);
    html.push_str("</footer></body></html>\n");
    html
}

/// What a fragment is called on its own page.
fn fragment_name(product: &str, key: &str) -> String {
    let name = key.strip_prefix(product).and_then(|rest| rest.strip_prefix('-')).unwrap_or(key);
    if Kind::of(key.as_bytes()) == Kind::Review { format!("review {name}") } else { name.into() }
}

/// A form for somebody's opinion.
fn opinion(rating: usize, summary: &str, text: &str) -> String {
    let mut html = String::from("<label>Stars <select name=rating>");
    for stars in (1..=5).rev() {
        let selected = if stars == rating { " selected" } else { "" };
        let _ = write!(html, "<option{selected}>{stars}</option>");
    }
    let _ = write!(
        html,
        "</select></label><input name=summary placeholder=\"In a few words\" maxlength=200 required value=\"{}\">\
         <textarea name=text placeholder=\"What do you think of it?\" maxlength=5000>\n{}</textarea>",
        Text(summary),
        Text(text),
    );
    html
}

fn write_form(product: &str) -> String {
    format!(
        "<section class=write id=write><h2>Write a review</h2><form method=post action=\"/product/{}/review\">\
         <input name=name placeholder=\"Your name\" maxlength=60 required>{}<button>Send</button></form></section>\n",
        Text(product),
        opinion(5, "", ""),
    )
}

/// The products whose titles begin with something.
pub(crate) async fn index_page(
    shop: &mut AsyncShop<impl Calls>,
    search: &str,
    after: Option<&str>,
    set: &str,
) -> Result<String, Failure> {
    let (products, more): (Vec<Card>, _) = shop.search(search, after, INDEX_PRODUCTS).await?;
    let mut html = begin("Kelix shop", search, "index");
    let _ = write!(html, "<section><h2>Products by title</h2>{}", cards(products.iter()));
    if products.is_empty() {
        html.push_str("<p class=quiet>No title begins so.</p>");
    }
    if let Some(more) = more {
        let (search, more) = (in_address(search), in_address(&more));
        let _ = write!(html, "<p><a id=more href=\"/?q={search}&amp;after={more}\">More</a></p>");
    }
    let _ = write!(html, "</section></main>\n{FOOT}>{}.</footer></body></html>\n", Text(set));
    Ok(html)
}

/// A review to be changed. `None`: there is none.
pub(crate) async fn review_page(
    shop: &mut AsyncShop<impl Calls>,
    id: &str,
) -> Result<Option<String>, Failure> {
    let Some((review, user)) = shop.review(id).await? else { return Ok(None) };
    let name = words(user.bytes(NAME));
    let product = words(review.links(PRODUCT).next().map(|link| link.key));
    let rating = words(review.bytes(RATING)).parse().unwrap_or(0);
    let form = opinion(rating, &words(review.bytes(SUMMARY)), &words(review.bytes(TEXT)));
    let mut html = begin(id, "", "review");
    let _ = write!(
        html,
        "<section class=write><h2>Review by {}, of <a href=\"/product/{product}\">{product}</a></h2>\
         <form id=change method=post action=\"/review/{}\">{form}<button>Change</button></form></section>\
         <section class=write><h2>Name of this reviewer</h2><form id=rename method=post action=\"/user/{}\">\
         <input type=hidden name=product value=\"{product}\"><input name=name maxlength=60 required value=\"{}\">\
         <button>Change in all reviews</button></form></section>",
        Text(&name),
        Text(id),
        Text(&words(Some(user.key()))),
        Text(&name),
        product = Text(&product),
    );
    end(&mut html);
    Ok(Some(html))
}

/// A page that says what is wrong.
pub(crate) fn error_page(title: &str, what: impl Display) -> String {
    let mut html = begin(title, "", "error");
    let what = what.to_string();
    let _ = write!(html, "<section><h2>{}</h2><p>{}</p></section>", Text(title), Text(&what));
    end(&mut html);
    html
}

/// Text as it stands in a part of an address.
fn in_address(text: &str) -> String {
    let mut address = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address
}
