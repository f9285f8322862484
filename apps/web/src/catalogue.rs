//! Products, reviews and users, before they are in a store.

/// Most bytes of an id.
const ID_BYTES_MAX: usize = 64;

/// All that a shop begins with.
#[derive(Clone, Default, Debug)]
pub struct Catalogue {
    /// Where it is from, in words for people.
    pub origin: String,
    /// Products.
    pub products: Vec<Product>,
    /// Reviews, in no order.
    pub reviews: Vec<Review>,
    /// Who wrote them.
    pub users: Vec<User>,
}

/// A product.
#[derive(Clone, Default, Debug)]
pub struct Product {
    /// Its id, which is part of keys and addresses.
    pub id: String,
    /// Its name.
    pub title: String,
    /// Who makes it; empty: unknown.
    pub brand: String,
    /// What it costs, like `1250.00`; empty: unknown.
    pub price: String,
    /// What it is.
    pub description: String,
    /// Which others their buyers bought too, by their place in the catalogue.
    pub bought: Vec<usize>,
}

/// A review.
#[derive(Clone, Default, Debug)]
pub struct Review {
    /// Of which product, by its place in the catalogue.
    pub product: usize,
    /// By whom, by their place in the catalogue.
    pub user: usize,
    /// One to five stars.
    pub rating: u8,
    /// When, in seconds since 1970.
    pub time: i64,
    /// In a few words.
    pub summary: String,
    /// In more.
    pub text: String,
}

/// Somebody who wrote reviews.
#[derive(Clone, Default, Debug)]
pub struct User {
    /// Their id.
    pub id: String,
    /// Their name.
    pub name: String,
}

impl Catalogue {
    /// The reviews of each product, by their places, the newest first.
    pub fn reviews_of_products(&self) -> Vec<Vec<usize>> {
        let mut reviews = vec![Vec::new(); self.products.len()];
        for (index, review) in self.reviews.iter().enumerate() {
            reviews[review.product].push(index);
        }
        for reviews in &mut reviews {
            reviews.sort_by_key(|index| std::cmp::Reverse(self.reviews[*index].time));
        }
        reviews
    }

    /// What is in it, in words for people.
    pub fn describe(&self) -> String {
        let Catalogue { origin, products, reviews, users } = self;
        format!("{} products, {} reviews, {} users, {origin}", products.len(), reviews.len(), users.len())
    }
}

/// Whether this can be part of keys (also of memcached's) and of addresses as it is.
pub(crate) fn is_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(plain)
}

/// A price as it is written here, `1250.00`, if this is one: `$1,250.00`, `1250`, `0.5`.
pub(crate) fn price(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.strip_prefix('$').unwrap_or(text).replace(',', "");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let digits = |text: &str, most| text.len() <= most && text.bytes().all(|byte| byte.is_ascii_digit());
    let whole_number: u32 = whole.parse().ok().filter(|_| digits(whole, 7))?;
    digits(part, 2).then(|| format!("{whole_number}.{part:0<2}"))
}

/// The day of a time, as `2018-06-17`, by the rules of the Gregorian calendar.
pub(crate) fn day(time: i64) -> String {
    // Days are counted from a 1 March, so that leap days come last; 400 years have 146,097 days.
    let days = time.div_euclid(86_400) + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{of_month:02}", year + era * 400 + later)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_have_one_form() {
        for (text, is) in [("$1,250.00", "1250.00"), ("25", "25.00"), (" 0.5 ", "0.50"), ("007.10", "7.10")] {
            assert_eq!(price(text).as_deref(), Some(is), "{text}");
        }
        for text in ["", "$", ".5", "-1", "1.234", "12345678", "1e3", "<b>1</b>", "1.2.3", "+1"] {
            assert_eq!(price(text), None, "{text}");
        }
    }

    #[test]
    fn days_follow_the_calendar() {
        let known = [(0, "1970-01-01"), (1_529_193_600, "2018-06-17"), (951_782_400, "2000-02-29")];
        for (time, is) in known.into_iter().chain([(-1, "1969-12-31"), (4_107_542_400, "2100-03-01")]) {
            assert_eq!(day(time), is);
        }
    }

    #[test]
    fn ids_are_plain() {
        assert!(is_id("B004LLIKVU") && is_id("a-1_b.c"));
        assert!(!is_id("") && !is_id("a b") && !is_id("a/b") && !is_id("\u{e4}") && !is_id(&"a".repeat(65)));
    }
}
