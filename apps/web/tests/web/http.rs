//! The server, as programs see it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use kelix_web::{HttpServer, load_test};

use crate::{MUCH_REVIEWED, POPULAR, open, small};

/// Sends a request over a connection of its own. Status, head and body of the answer.
fn ask(server: SocketAddr, method: &str, path: &str, form: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let kind = "content-type: application/x-www-form-urlencoded";
    let length = form.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{kind}\r\ncontent-length: {length}\r\n\r\n{form}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_lowercase(), body.to_string())
}

fn start(store: &kelix_apps::Store) -> HttpServer {
    HttpServer::start(&store.client, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

#[test]
fn a_form_changes_what_the_next_page_shows() {
    let catalogue = small();
    let (store, _shop) = open("http", &catalogue);
    let http = start(&store);
    let server = http.address();
    let id = &catalogue.products[POPULAR].id;
    let other = &catalogue.products[POPULAR + 1].id;
    for product in [id, other] {
        let (status, head, body) = ask(server, "GET", &format!("/product/{product}"), "");
        assert_eq!(status, 200);
        assert!(head.contains("text/html; charset=utf-8") && head.contains("default-src 'none'"), "{head}");
        assert!(body.contains("<b>0 reused, ") && body.ends_with("</html>\n"), "{body}");
        assert!(!body.contains("http://") && !body.contains("https://"), "nothing from elsewhere");
    }
    let (status, head, _) = ask(server, "POST", &format!("/product/{id}/price"), "price=%244321.5");
    assert_eq!(
        (status, head.contains(&format!("location: /product/{}\r", id.to_lowercase()))),
        (303, true),
        "{head}"
    );
    for product in [id, other] {
        let (_, _, body) = ask(server, "GET", &format!("/product/{product}"), "");
        assert!(body.contains("$4321.50") && body.contains("1 made anew</b>"), "{body}");
    }
}

#[test]
fn hostile_reviews_are_text() {
    let catalogue = small();
    let (store, mut shop) = open("hostile", &catalogue);
    let http = start(&store);
    let id = &catalogue.products[MUCH_REVIEWED].id;
    let hostile =
        "%3Cscript%3Ealert%281%29%3C%2Fscript%3E%22%27%3E%3Cimg+src%3Dx+onerror%3Dalert%281%29%3E%26amp%3B";
    let escaped =
        "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&gt;&lt;img src=x onerror=alert(1)&gt;&amp;amp;";
    let form = format!("name=%3Cu%3E&rating=2&summary={hostile}&text=%3C%2Ftextarea%3E{hostile}");
    let (status, ..) = ask(http.address(), "POST", &format!("/product/{id}/review"), &form);
    assert_eq!(status, 303);
    let review = shop.fragments(id).unwrap()[4].clone();
    let written = format!("/review/{review}");
    for (path, times) in [(format!("/product/{id}"), 2), (written.clone(), 2), (format!("/?q={hostile}"), 1)]
    {
        let (status, _, body) = ask(http.address(), "GET", &path, "");
        assert_eq!(status, 200);
        assert_eq!(body.matches(escaped).count(), times, "{body}");
        assert!(!body.contains("<script") && !body.contains("<img") && !body.contains("<u>"), "{body}");
    }
    let (status, ..) = ask(http.address(), "POST", &written, "rating=5&summary=Calm&text=");
    assert_eq!(status, 303);
    let (_, _, body) = ask(http.address(), "GET", &format!("/product/{id}"), "");
    assert!(body.contains("Calm") && body.contains("2 made anew</b>"), "{body}");
    // A form sends all there is; only the text differs now, which is in no rating.
    ask(http.address(), "POST", &written, "rating=5&summary=Calm&text=More");
    let (_, _, body) = ask(http.address(), "GET", &format!("/product/{id}"), "");
    let number = review.rsplit('-').next().unwrap();
    assert!(body.contains(&format!("1 made anew</b> (review {number})")), "{body}");
    let rename = format!("/user/{review}");
    let (status, ..) = ask(http.address(), "POST", &rename, &format!("name=New+Name&product={id}"));
    assert_eq!(status, 303);
    assert!(ask(http.address(), "GET", &format!("/product/{id}"), "").2.contains("New Name"));
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let catalogue = small();
    let (store, mut shop) = open("refused", &catalogue);
    let http = start(&store);
    let id = &catalogue.products[MUCH_REVIEWED].id;
    let review = shop.fragments(id).unwrap()[4].clone();
    let long = "x".repeat(5001);
    let refused = [
        ("GET", "/nothing".to_string(), String::new(), 404),
        ("GET", "/product/nothing".into(), String::new(), 404),
        ("GET", format!("/product/{}", "x".repeat(500)), String::new(), 404),
        ("GET", "/product/a%20b%3Cscript%3E".into(), String::new(), 404),
        ("GET", "/product/%ff".into(), String::new(), 400),
        ("GET", "/review/nothing".into(), String::new(), 404),
        ("DELETE", format!("/product/{id}"), String::new(), 405),
        ("POST", format!("/product/{id}/price"), "price=cheap".into(), 400),
        ("POST", format!("/product/{id}/price"), "price=1e9".into(), 400),
        ("POST", format!("/product/{id}/price"), "cost=1".into(), 422),
        ("POST", "/product/nothing/price".into(), "price=1".into(), 404),
        ("POST", format!("/product/{id}/review"), "name=&rating=5&summary=s&text=t".into(), 400),
        ("POST", format!("/product/{id}/review"), "name=n&rating=6&summary=s&text=t".into(), 400),
        ("POST", format!("/product/{id}/review"), format!("name=n&rating=5&summary=s&text={long}"), 400),
        ("POST", format!("/product/{id}/review"), format!("text={}", "x".repeat(70_000)), 413),
        ("POST", "/product/nothing/review".into(), "name=n&rating=5&summary=s&text=t".into(), 404),
        ("POST", format!("/review/{review}"), "rating=0&summary=s&text=t".into(), 400),
        ("POST", "/user/nothing".into(), format!("name=n&product={id}"), 404),
        ("POST", "/user/nothing".into(), "name=n&product=%2F%2Felsewhere".into(), 404),
    ];
    let before = ask(http.address(), "GET", &format!("/product/{id}"), "").2;
    for (method, path, form, status) in refused {
        let (got, _, body) = ask(http.address(), method, &path, &form);
        assert_eq!(got, status, "{method} {path} {form:.60}: {body}");
        assert!(!body.contains("<script"), "{body}");
    }
    let after = ask(http.address(), "GET", &format!("/product/{id}"), "").2;
    let parts = |page: &str| page.split("<footer").next().map(String::from);
    assert_eq!(parts(&before), parts(&after), "nothing has changed");
}

#[test]
fn products_are_found_by_how_their_titles_begin() {
    let catalogue = small();
    let (store, mut shop) = open("search", &catalogue);
    let http = start(&store);
    let brand = catalogue.products[0].title.split(' ').next().unwrap().to_lowercase();
    let mut wanted: Vec<&str> = catalogue
        .products
        .iter()
        .filter(|product| product.title.to_lowercase().starts_with(&brand))
        .map(|product| &product.id[..])
        .collect();
    wanted.sort_unstable();
    let (mut found, mut path) = (Vec::new(), format!("/?q={brand}"));
    for _ in 0..100 {
        let (_, _, body) = ask(http.address(), "GET", &path, "");
        found.extend(
            body.split("data-product=\"").skip(1).map(|part| part.split('"').next().unwrap().to_string()),
        );
        match body.split("<a id=more href=\"").nth(1) {
            Some(more) => path = more.split('"').next().unwrap().replace("&amp;", "&"),
            None => break,
        }
    }
    found.sort_unstable();
    assert!(wanted.len() > 5);
    assert_eq!(found, wanted);
    assert!(ask(http.address(), "GET", "/?q=no+such+title", "").2.contains("No title begins so"));
    assert_eq!(ask(http.address(), "GET", "/?after=nonsense", "").0, 200);
    assert_eq!(shop.products(1000).unwrap().len(), 300);
}

#[test]
fn pages_over_http_are_the_same_as_without() {
    let catalogue = small();
    let (store, mut shop) = open("load", &catalogue);
    let http = start(&store);
    let products = shop.products(50).unwrap();
    let test = load_test(&mut shop, http.address(), &products, 4, Duration::from_millis(200)).unwrap();
    assert!(test.rate() > 0.0 && test.describe().contains("4 connections"), "{}", test.describe());
    assert!(load_test(&mut shop, http.address(), &["nothing".into()], 1, Duration::ZERO).is_err());
}
