//! Files of products and reviews, good and bad.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use kelix_web::{Pages, read_amazon};

use crate::open;

const PRODUCTS: &str = r#"{"asin": "B1", "title": "A &amp; B", "price": "$1,250.00", "brand": "X", "description": ["<b>Good</b>", "thing"], "also_buy": ["B2", "B9", "B2", "B1"]}
{"asin": "B2", "title": "Other", "price": ".a-section { color: red }", "description": "one text", "rank": [], "details": {}}

{"asin": "B1", "title": "again"}
"#;
const REVIEWS: &str = r#"{"overall": 5.0, "reviewerID": "U1", "asin": "B1", "reviewerName": "Ann", "reviewText": "Old.", "summary": "s1", "unixReviewTime": 100}
{"overall": 1.0, "reviewerID": "U2", "asin": "B1", "summary": "&lt;script&gt;alert(1)&lt;/script&gt;", "unixReviewTime": 1529193600}
{"overall": 3.0, "reviewerID": "U1", "asin": "B9", "unixReviewTime": 5}
"#;

fn write(folder: &Path, products: &str, reviews: &str) {
    let mut file =
        GzEncoder::new(std::fs::File::create(folder.join("meta_T.json.gz")).unwrap(), Compression::fast());
    file.write_all(products.as_bytes()).unwrap();
    file.finish().unwrap();
    std::fs::write(folder.join("T_5.json"), reviews).unwrap();
}

#[test]
fn files_become_a_shop() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), PRODUCTS, REVIEWS);
    let (catalogue, left_out) = read_amazon(folder.path()).unwrap();
    assert_eq!(left_out.len(), 2, "{left_out:?}");
    let first = &catalogue.products[0];
    assert_eq!(
        (&first.title[..], &first.price[..], &first.description[..]),
        ("A & B", "1250.00", "Good thing")
    );
    assert_eq!(first.bought, [1], "others that are there, each once, and not itself");
    assert_eq!((&catalogue.products[1].price[..], &catalogue.products[1].description[..]), ("", "one text"));
    assert_eq!((catalogue.reviews.len(), catalogue.users.len()), (2, 2));
    assert_eq!(catalogue.users[1].name, "somebody");

    let (_store, mut shop) = open("files", &catalogue);
    let mut html = Vec::new();
    shop.page("B1", &mut html).unwrap().unwrap();
    let html = String::from_utf8(html).unwrap();
    assert!(html.contains("A &amp; B") && html.contains("2018-06-17") && html.contains("Other"));
    assert!(!html.contains("<script") && html.contains("&lt;script&gt;alert(1)"));
    assert!(html.find("2018-06-17") < html.find("1970-01-01"), "the newest review is first");
}

#[test]
fn what_is_wrong_is_said_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let read = |products: &str, reviews: &str| {
        write(folder.path(), products, reviews);
        read_amazon(folder.path()).map(drop).unwrap_err()
    };
    let good = "{\"asin\": \"B1\"}\n";
    let error = read(&format!("{good}{{\"asin\": \"B2\", \"tit"), REVIEWS);
    assert!(error.contains("meta_T.json.gz, line 2: ") && error.contains("EOF"), "{error}");
    let error = read("{\"title\": \"no id\"}\n", REVIEWS);
    assert!(error.contains("line 1: missing field `asin`"), "{error}");
    let error = read("{\"asin\": \"a b\"}\n", REVIEWS);
    assert!(error.contains("line 1: the asin \"a b\" is not one"), "{error}");
    let error =
        read(good, "{\"overall\": 6.0, \"reviewerID\": \"U\", \"asin\": \"B1\", \"unixReviewTime\": 1}\n");
    assert!(error.contains("T_5.json, line 1: overall is 6, not a number from 1 to 5"), "{error}");
    let error = read(good, "\n\n{\"overall\": \"five\"}\n");
    assert!(error.contains("T_5.json, line 3: ") && error.contains("expected f64"), "{error}");
    assert!(read("", "").contains("have no products"));

    std::fs::write(folder.path().join("meta_T.json.gz"), b"not compressed\n").unwrap();
    let error = read_amazon(folder.path()).map(drop).unwrap_err();
    assert!(error.contains("meta_T.json.gz, line 1: "), "{error}");
    std::fs::remove_file(folder.path().join("meta_T.json.gz")).unwrap();
    let error = read_amazon(folder.path()).map(drop).unwrap_err();
    assert!(error.contains("has no meta_*.json.gz"), "{error}");
    let error = read_amazon(&folder.path().join("absent")).map(drop).unwrap_err();
    assert!(error.contains("cannot read"), "{error}");
}
