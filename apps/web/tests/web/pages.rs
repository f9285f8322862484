//! Pages by links, by keys and from scratch.

use std::time::{Duration, Instant};

use kelix::Path;
use kelix_apps::{KelixKeyed, Memcached, start_memcached};
use kelix_web::{ByKey, Pages};

use crate::{MUCH_REVIEWED, open, small};

/// Pages that are built in all ways.
const COMPARED: usize = 60;

#[test]
fn all_ways_build_the_same_pages() {
    let catalogue = small();
    let (store, mut shop) = open("ways", &catalogue);
    let memcached = start_memcached(64 << 20).unwrap();
    let kelix = |path, batch| {
        ByKey::new(KelixKeyed::new(store.session().unwrap(), "web_values", path, batch).unwrap())
    };
    let (mut index, mut message) = (kelix(Path::Index, 64), kelix(Path::Message, 64));
    let single = Memcached::connect(&memcached, 1).unwrap();
    let mut multiget = ByKey::new(single.again(64).unwrap());
    for product in catalogue.products.iter().take(COMPARED) {
        let fragments = shop.fresh_fragments(&product.id).unwrap();
        index.put_page(&product.id, &fragments).unwrap();
        multiget.put_page(&product.id, &fragments).unwrap();
    }
    let mut single = ByKey::new(single);
    for product in catalogue.products.iter().take(COMPARED) {
        let (mut wanted, mut links) = (Vec::new(), Vec::new());
        shop.page_from_scratch(&product.id, &mut wanted).unwrap().unwrap();
        let made = shop.page(&product.id, &mut links).unwrap().unwrap();
        assert!(made.anew.is_empty() && made.reused >= 4, "{made:?}");
        assert!(links == wanted, "{}: not what its objects are", product.id);
        let ways: [&mut dyn Pages; 4] = [&mut index, &mut message, &mut single, &mut multiget];
        for (number, way) in ways.into_iter().enumerate() {
            let mut html = Vec::new();
            let by_key = way.page(&product.id, &mut html).unwrap().unwrap();
            assert_eq!(by_key.reused, made.reused);
            assert!(html == wanted, "{}: way {number} differs", product.id);
        }
    }
    for way in [&mut shop as &mut dyn Pages, &mut index, &mut message, &mut single, &mut multiget] {
        assert_eq!(way.page("nothing", &mut Vec::new()).unwrap(), None);
    }
}

#[test]
fn pages_show_what_the_objects_are() {
    let catalogue = small();
    let (_store, mut shop) = open("shown", &catalogue);
    let product = &catalogue.products[MUCH_REVIEWED];
    let mut html = Vec::new();
    let made = shop.page(&product.id, &mut html).unwrap().unwrap();
    assert_eq!((made.reused, made.anew.len()), (0, 14), "nothing is made before somebody wants it");
    let html = String::from_utf8(html).unwrap();
    assert!(html.contains(&product.title) && html.contains(&format!("${}", product.price)));
    let reviews = catalogue.reviews_of_products().swap_remove(MUCH_REVIEWED);
    assert!(reviews.len() > 200);
    assert!(html.contains(&format!("of {} reviews", reviews.len())));
    let sum: usize = reviews.iter().map(|review| usize::from(catalogue.reviews[*review].rating)).sum();
    let average = sum as f64 / reviews.len() as f64;
    let said: f64 =
        html.split("<p class=average><b>").nth(1).unwrap().split('<').next().unwrap().parse().unwrap();
    assert!((said - average).abs() <= 0.0501, "{said}, not {average}");
    assert_eq!(html.matches("<article").count(), 10);
    let first = html.split("<article class=review id=\"").nth(1).unwrap().split('"').next();
    assert_eq!(first, Some(&format!("{}-{}", product.id, reviews.len() - 1)[..]), "the newest is first");
}

#[test]
fn reading_a_fresh_page_takes_a_read_a_fragment() {
    let catalogue = small();
    let (_store, mut shop) = open("reads", &catalogue);
    let product = &catalogue.products[MUCH_REVIEWED].id;
    // Links that became stale when fragments were made are repaired by readers, who do not wait for it.
    let began = Instant::now();
    let cost = loop {
        let before = shop.cost();
        shop.page(product, &mut Vec::new()).unwrap();
        let cost = shop.cost().since(before);
        if cost.messages == 0 {
            break cost;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "not repaired: {cost:?}");
        std::thread::sleep(Duration::from_millis(1));
    };
    // The page is found by its key.
    assert!((15..=17).contains(&cost.reads), "{cost:?}");
}
