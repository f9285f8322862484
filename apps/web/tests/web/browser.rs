//! The shop in a real browser.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use kelix_browser::Browser;
use kelix_browser::fantoccini::{Client, Locator};
use kelix_web::HttpServer;

use crate::{POPULAR, open, small};

/// Names a file that a picture of a product's page is to be written into.
const SCREENSHOT: &str = "KELIX_WEB_SCREENSHOT";
/// How long a page may take to follow another.
const PATIENCE: Duration = Duration::from_secs(60);

/// Fills fields of a form and sends it.
async fn fill_and_send(browser: &Client, form: &str, fields: &[(&str, &str)]) {
    let fill = browser.form(Locator::Css(form)).await.unwrap();
    for (name, value) in fields {
        fill.set_by_name(name, value).await.unwrap();
    }
    let button = browser.find(Locator::Css(&format!("{form} button"))).await.unwrap();
    // Out from behind the foot, which stays in sight.
    let scroll = "arguments[0].scrollIntoView({ block: 'center' })";
    browser.execute(scroll, vec![serde_json::to_value(&button).unwrap()]).await.unwrap();
    button.click().await.unwrap();
    // Until the next page has taken this one's place.
    let began = Instant::now();
    while button.tag_name().await.is_ok() {
        assert!(began.elapsed() < PATIENCE, "{form} leads nowhere");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn send(browser: &Browser, form: &str, fields: &[(&str, &str)]) {
    browser.run(async |browser| fill_and_send(browser, form, fields).await);
}

#[test]
fn a_price_changed_in_the_browser_is_on_all_pages() {
    let catalogue = small();
    let (store, _shop) = open("browser", &catalogue);
    let http = HttpServer::start(&store.client, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    // Another whose page makes a good picture.
    let reviews = catalogue.reviews_of_products();
    let other = (0..).step_by(2).find(|at| {
        let product = &catalogue.products[*at];
        (100..400).contains(&product.description.len()) && product.bought.len() > 5 && reviews[*at].len() > 5
    });
    let (id, other) = (&catalogue.products[POPULAR].id, &catalogue.products[other.unwrap()].id);
    visit(&Browser::start(1160, 1100).unwrap(), http.address(), id, other);
}

fn visit(browser: &Browser, server: SocketAddr, id: &str, other: &str) {
    let address = |product: &str| format!("http://{server}/product/{product}");
    for product in [other, id] {
        browser.go(&address(product));
        assert!(browser.text("#foot").contains(" 0 reused"), "nothing is made before somebody wants it");
    }
    browser.go(&address(other));
    assert!(browser.text("#foot").contains(" 0 made anew"), "nothing has changed");
    browser.go(&address(id));
    // What a page does it does by forms: there is no script on it.
    assert_eq!(browser.value("document.scripts.length"), 0);

    send(browser, ".head form", &[("price", "4321.5")]);
    assert_eq!(browser.text("#price"), "$4321.50");
    assert!(browser.text("#foot").contains("1 made anew (head)"));

    let review =
        [("name", "Ada <b>"), ("summary", "<script>document.title='taken'</script>"), ("text", "Fine.")];
    send(browser, "#write form", &review);
    assert_eq!(browser.text("article .by").split(',').next(), Some("Ada <b>"));
    assert!(browser.text("article h3").contains("<script>document.title='taken'</script>"));
    assert_eq!(browser.value("document.title"), *id);
    assert!(browser.text("#foot").contains("2 made anew"));

    browser.go(&address(other));
    let card = format!("#bought li[data-product=\"{id}\"]");
    assert!(browser.text(&card).contains("$4321.50"));
    assert!(browser.text("#foot").contains("1 made anew (bought)"));
    if let Ok(file) = std::env::var(SCREENSHOT) {
        browser.screenshot(file);
    }
    browser.go(&address(other));
    assert!(browser.text("#foot").contains(" 0 made anew"), "all is reused now");
}
