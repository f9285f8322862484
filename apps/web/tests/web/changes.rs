//! What a change touches, and that nothing stays stale.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use kelix_web::{Catalogue, Made, NewReview, Pages, ReviewChange, Shop};

use crate::{MUCH_REVIEWED, POPULAR, open, small};

fn page(shop: &mut Shop, product: &str) -> (Made, String) {
    let mut html = Vec::new();
    let made = shop.page(product, &mut html).unwrap().unwrap();
    (made, String::from_utf8(html).unwrap())
}

/// Builds all pages, and tells which fragments were made anew for them.
fn all_pages(shop: &mut Shop, catalogue: &Catalogue) -> BTreeSet<String> {
    let anew = catalogue.products.iter().flat_map(|product| page(shop, &product.id).0.anew);
    anew.collect()
}

fn set<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(String::from).collect()
}

#[test]
fn a_price_makes_the_fragments_anew_that_show_it_and_no_other() {
    let catalogue = small();
    let (_store, mut shop) = open("price", &catalogue);
    all_pages(&mut shop, &catalogue);
    assert_eq!(all_pages(&mut shop, &catalogue), set([]), "all are kept");
    let id = &catalogue.products[POPULAR].id;
    let shown_on =
        catalogue.products.iter().filter(|product| product.bought.iter().take(12).any(|at| *at == POPULAR));
    let shown_on: Vec<String> = shown_on.map(|product| product.id.clone()).collect();
    assert!(shown_on.len() > 140, "more than an object has links");

    let marked = shop.change_price(id, "4321.09").unwrap().unwrap();
    assert_eq!(marked, shown_on.len() + 1);
    let (made, html) = page(&mut shop, &shown_on[7]);
    assert_eq!(made.anew, [format!("{}-bought", shown_on[7])]);
    assert!(html.contains("$4321.09"));
    let mut wanted: BTreeSet<String> = shown_on.iter().map(|other| format!("{other}-bought")).collect();
    wanted.remove(&made.anew[0]);
    wanted.insert(format!("{id}-head"));
    assert_eq!(all_pages(&mut shop, &catalogue), wanted);
    assert!(page(&mut shop, id).1.contains("$4321.09"));
    assert!(catalogue.products.iter().all(|product| shop.is_right(&product.id).unwrap()));
    assert_eq!(shop.change_price("nothing", "1.00").unwrap(), None);
}

#[test]
fn a_review_makes_its_own_fragment_anew_and_the_rating_if_it_has_changed() {
    let catalogue = small();
    let (_store, mut shop) = open("review", &catalogue);
    all_pages(&mut shop, &catalogue);
    let id = &catalogue.products[MUCH_REVIEWED].id;
    let newest = shop.fragments(id).unwrap()[4].clone();
    let text = ReviewChange { text: Some("Quite another opinion."), ..ReviewChange::default() };
    assert_eq!(shop.change_review(&newest, &text).unwrap(), Some(1));
    assert!(page(&mut shop, id).1.contains("Quite another opinion."));
    assert_eq!(all_pages(&mut shop, &catalogue), set([]));

    // One that is on no page is in the rating all the same: the oldest of all, in the last list.
    let oldest = format!("{id}-0");
    let before = page(&mut shop, id).1;
    let rating = ReviewChange { rating: Some(2), ..ReviewChange::default() };
    assert_eq!(shop.change_review(&oldest, &rating).unwrap(), Some(2));
    let (made, after) = page(&mut shop, id);
    assert_eq!(made.anew, [format!("{id}-rating")]);
    assert_ne!(before, after);
    assert_eq!(all_pages(&mut shop, &catalogue), set([]));
    assert!(shop.is_right(id).unwrap());
    assert_eq!(shop.change_review("nothing", &rating).unwrap(), None);
}

#[test]
fn a_name_makes_the_reviews_of_its_user_anew() {
    let catalogue = small();
    let (_store, mut shop) = open("name", &catalogue);
    all_pages(&mut shop, &catalogue);
    let reviews = catalogue.reviews_of_products();
    let user = catalogue.reviews[reviews[MUCH_REVIEWED][0]].user;
    let shown = reviews.iter().flat_map(|reviews| reviews.iter().take(10));
    let shown = shown.filter(|review| catalogue.reviews[**review].user == user).count();
    shop.change_name(&catalogue.users[user].id, "Zo\u{eb} <i>").unwrap().unwrap();
    assert!(page(&mut shop, &catalogue.products[MUCH_REVIEWED].id).1.contains("Zo\u{eb} &lt;i&gt;"));
    let others = all_pages(&mut shop, &catalogue);
    assert!(others.iter().all(|key| !key.ends_with("rating") && !key.ends_with("head")), "{others:?}");
    assert!(others.len() < shown, "{others:?}");
    assert!(catalogue.products.iter().all(|product| shop.is_right(&product.id).unwrap()));
}

#[test]
fn a_new_review_is_first_on_its_page() {
    let catalogue = small();
    let (_store, mut shop) = open("new", &catalogue);
    all_pages(&mut shop, &catalogue);
    let id = &catalogue.products[MUCH_REVIEWED].id;
    let before = shop.fragments(id).unwrap();
    let count = catalogue.reviews_of_products()[MUCH_REVIEWED].len();
    // So many that another list has to begin.
    for number in 0..110 {
        let summary = format!("Number {number}");
        let new = NewReview { name: "Somebody new", rating: 1, summary: &summary, text: "Really." };
        let review = shop.add_review(id, &new).unwrap().unwrap();
        assert_eq!(review, format!("{id}-{}", count + number));
        let (made, html) = page(&mut shop, id);
        assert_eq!(made.anew, [format!("{id}-rating"), review.clone()]);
        assert!(html.contains(&summary) && html.contains("Somebody new"));
        assert!(html.contains(&format!("of {} reviews", count + number + 1)));
        assert_eq!(shop.fragments(id).unwrap()[4], review);
        assert!(shop.is_right(id).unwrap());
    }
    let after = shop.fragments(id).unwrap();
    assert_eq!(after.len(), before.len());
    assert!(
        before[4..14].iter().all(|review| !after.contains(review)),
        "the older ones have gone from the page"
    );
    assert_eq!(all_pages(&mut shop, &catalogue), set([]));
    let new = NewReview { name: "x", rating: 1, summary: "x", text: "" };
    assert_eq!(shop.add_review("nothing", &new).unwrap(), None);
}

#[test]
fn a_product_without_reviews_gets_its_first() {
    let mut catalogue = small();
    catalogue.reviews.retain(|review| review.product != 0);
    let (_store, mut shop) = open("first", &catalogue);
    let id = &catalogue.products[0].id;
    assert!(page(&mut shop, id).1.contains("no reviews yet"));
    shop.add_review(id, &NewReview { name: "Ada", rating: 4, summary: "First!", text: "" }).unwrap().unwrap();
    let (_, html) = page(&mut shop, id);
    assert!(html.contains("First!") && html.contains("<b>4.0</b>") && html.contains("of 1 reviews"));
}

/// Changes by each writer: all kinds of all products, a few times.
const ROUNDS: usize = 48;

/// Writers change and add, readers make anew what became stale; in the end every page is what its objects
/// are.
#[test]
fn nothing_stays_stale_beside_writers_and_readers() {
    let catalogue = small();
    let (store, mut shop) = open("races", &catalogue);
    let few: Vec<&str> =
        [MUCH_REVIEWED, POPULAR, 2, 4].iter().map(|at| &catalogue.products[*at].id[..]).collect();
    let done = AtomicBool::new(false);
    let (mut anew, mut written) = (0, 0);
    std::thread::scope(|scope| {
        let writer = |seed: usize| {
            let (client, few) = (&store.client, &few);
            move || {
                let mut shop = Shop::open(client).unwrap();
                for round in 0..ROUNDS {
                    let product = few[(round + seed) % few.len()];
                    let said = format!("{seed} in round {round}");
                    match round % 3 {
                        0 => {
                            shop.change_price(product, &format!("{round}.{seed}0")).unwrap().unwrap();
                        }
                        1 => {
                            let rating = Some((round % 5 + 1) as u8);
                            let change = ReviewChange { rating, text: Some(&said), summary: None };
                            shop.change_review(&format!("{product}-{}", round % 2), &change)
                                .unwrap()
                                .unwrap();
                        }
                        _ => {
                            let new = NewReview { name: "W", rating: 3, summary: &said, text: &said };
                            shop.add_review(product, &new).unwrap().unwrap();
                        }
                    }
                    // Whatever others do: who has written sees what was written, or what came after.
                    let mut html = Vec::new();
                    shop.page(product, &mut html).unwrap().unwrap();
                }
                ROUNDS
            }
        };
        let reader = || {
            let (client, few, done) = (&store.client, &few, &done);
            move || {
                let mut shop = Shop::open(client).unwrap();
                let mut anew = 0;
                while !done.load(Ordering::Relaxed) {
                    for product in few {
                        anew += shop.page(product, &mut Vec::new()).unwrap().unwrap().anew.len();
                    }
                }
                anew
            }
        };
        let writers = [scope.spawn(writer(1)), scope.spawn(writer(2))];
        let readers = [scope.spawn(reader()), scope.spawn(reader())];
        let ended = writers.map(|writer| writer.join());
        // Also if one of them has failed: otherwise readers would go on for ever.
        done.store(true, Ordering::Relaxed);
        written += ended.map(Result::unwrap).iter().sum::<usize>();
        anew += readers.map(|reader| reader.join().unwrap()).iter().sum::<usize>();
    });
    assert_eq!(written, 2 * ROUNDS);
    assert!(anew > 0, "readers met nothing that was stale");
    for product in &catalogue.products {
        assert!(shop.is_right(&product.id).unwrap(), "{} shows something old", product.id);
    }
    // Every review that was added is in a list, once.
    let added: usize = few.iter().map(|product| count(&mut shop, product)).sum();
    let places = [MUCH_REVIEWED, POPULAR, 2, 4];
    let before = catalogue.reviews.iter().filter(|review| places.contains(&review.product)).count();
    assert_eq!(added, before + 2 * ROUNDS / 3);
}

/// How many reviews a page says there are.
fn count(shop: &mut Shop, product: &str) -> usize {
    let (_, html) = page(shop, product);
    html.split(" reviews</p>").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}
