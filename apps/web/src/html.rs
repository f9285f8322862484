//! What fragments look like. Whatever comes from products, reviews and users is text, and never markup.

use std::fmt::{self, Display, Formatter, Write};

/// Text as it stands in a page: what has a meaning in HTML is written so that it has none.
pub(crate) struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

/// A price with its currency, or that there is none.
struct Price<'a>(&'a str);

impl Display for Price<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("no price") } else { write!(f, "${}", Text(self.0)) }
    }
}

/// So many stars of five.
struct Stars(usize);

impl Display for Stars {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let full = self.0.min(5);
        write!(f, "<span class=stars title=\"{full} of 5 stars\">{}", "\u{2605}".repeat(full))?;
        write!(f, "<i>{}</i></span>", "\u{2605}".repeat(5 - full))
    }
}

/// Title, brand and price.
pub(crate) fn head(id: &str, title: &str, brand: &str, price: &str) -> String {
    let brand = if brand.is_empty() { "unknown brand" } else { brand };
    format!(
        "<section class=head><p class=brand>{}</p><h1>{}</h1><p class=price id=price>{}</p>\
         <form method=post action=\"/product/{}/price\"><label>New price <input name=price size=8 required \
         value=\"{}\"></label> <button>Change</button></form></section>\n",
        Text(brand),
        Text(title),
        Price(price),
        Text(id),
        Text(price),
    )
}

/// What it is.
pub(crate) fn description(text: &str) -> String {
    let text = if text.is_empty() { "There is no description." } else { text };
    format!("<section class=description><h2>Description</h2><p>{}</p></section>\n", Text(text))
}

/// How many reviews give one to five stars.
pub(crate) fn rating(stars: &[u32; 5]) -> String {
    let count: u64 = stars.iter().map(|count| u64::from(*count)).sum();
    let sum: u64 = (1..).zip(stars).map(|(stars, count)| stars * u64::from(*count)).sum();
    let mut html = String::from("<section class=rating id=rating><h2>Rating</h2>");
    // Tenths, rounded, without numbers that differ from machine to machine.
    match (sum * 20 + count).checked_div(count * 2) {
        Some(tenths) => {
            let average = format!("{}.{}", tenths / 10, tenths % 10);
            let nearest = Stars(((tenths + 5) / 10) as usize);
            let _ = write!(html, "<p class=average><b>{average}</b> {nearest} of {count} reviews</p>");
        }
        None => html.push_str("<p class=average>no reviews yet</p>"),
    }
    html.push_str("<table>");
    for (index, votes) in stars.iter().enumerate().rev() {
        let stars = index + 1;
        let percent = (u64::from(*votes) * 100).checked_div(count).unwrap_or(0);
        let _ = write!(
            html,
            "<tr><td>{stars} \u{2605}<td class=bar><div style=\"width:{percent}%\"></div><td class=count>{votes}"
        );
    }
    html.push_str("</table></section>\n");
    html
}

/// A review, and who wrote it.
pub(crate) struct ReviewText<'a> {
    pub id: &'a str,
    pub rating: usize,
    pub date: &'a str,
    pub summary: &'a str,
    pub text: &'a str,
    pub user: &'a str,
}

/// A review.
pub(crate) fn review(review: &ReviewText<'_>) -> String {
    let ReviewText { id, rating, date, summary, text, user } = review;
    format!(
        "<article class=review id=\"{}\"><h3>{} {}</h3><p class=by>{}, {} <a href=\"/review/{}\">edit</a></p>\
         <p>{}</p></article>\n",
        Text(id),
        Stars(*rating),
        Text(summary),
        Text(user),
        Text(date),
        Text(id),
        Text(text),
    )
}

/// A product as others show it: id, title, price.
pub(crate) type Card = (String, String, String);

/// Other products as cards.
pub(crate) fn cards<'c>(products: impl Iterator<Item = &'c Card>) -> String {
    let mut html = String::from("<ul class=cards>");
    for (id, title, price) in products {
        let _ = write!(
            html,
            "<li data-product=\"{0}\"><a href=\"/product/{0}\">{1}</a> <span class=price>{2}</span>",
            Text(id),
            Text(title),
            Price(price)
        );
    }
    html.push_str("</ul>");
    html
}

/// What buyers bought too.
pub(crate) fn bought(products: &[Card]) -> String {
    let cards = match products {
        [] => "<p class=quiet>Nothing yet.</p>".into(),
        products => cards(products.iter()),
    };
    format!("<section class=bought id=bought><h2>Buyers bought too</h2>{cards}</section>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_no_markup() {
        let hostile = "<script>alert('x')</script>\" onload=\"&amp;";
        let escaped =
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot; onload=&quot;&amp;amp;".to_string();
        assert_eq!(Text(hostile).to_string(), escaped);
        assert_eq!(Text("caf\u{e9} <").to_string(), "caf\u{e9} &lt;");
    }

    #[test]
    fn averages_are_rounded_to_tenths() {
        assert!(rating(&[0, 0, 0, 0, 0]).contains("no reviews yet"));
        assert!(rating(&[1, 0, 0, 0, 0]).contains("<b>1.0</b>"));
        assert!(rating(&[0, 0, 1, 0, 2]).contains("<b>4.3</b>"));
        assert!(rating(&[1, 0, 0, 0, 19]).contains("<b>4.8</b>"));
        assert!(
            rating(&[0, 0, 0, 0, 7]).contains("<b>5.0</b>")
                && rating(&[0, 0, 0, 0, 7]).contains("width:100%")
        );
    }
}
