//! The shop through its public interface: pages by all ways, changes, writers beside readers, files, HTTP, a
//! browser, and the program.

mod browser;
mod changes;
mod http;
mod input;
mod pages;
mod program;

use kelix_apps::Store;
use kelix_web::{Catalogue, Shop, generate, load};

/// A store of a test's own, with a shop in it.
fn open(name: &str, catalogue: &Catalogue) -> (Store, Shop) {
    let store = Store::start(&format!("web-test-{name}"), 256 << 20).unwrap();
    let mut shop = Shop::open(&store.client).unwrap();
    load(&mut shop, catalogue).unwrap();
    (store, shop)
}

/// A small shop, some of whose products have many reviews, and stand on many pages.
fn small() -> Catalogue {
    let mut catalogue = generate(300, 3000);
    // More reviews than a list has links, and more pages than an object has links to.
    for number in 0..250 {
        let mut review = catalogue.reviews[number].clone();
        review.product = MUCH_REVIEWED;
        catalogue.reviews.push(review);
    }
    for product in 0..catalogue.products.len() {
        let bought = &mut catalogue.products[product].bought;
        if product != POPULAR && product % 2 == 0 {
            bought.retain(|other| *other != POPULAR);
            bought.insert(0, POPULAR);
        }
    }
    catalogue
}

/// The product with more than two lists of reviews.
const MUCH_REVIEWED: usize = 3;
/// The product that stands on half of the pages.
const POPULAR: usize = 5;
