//! The shop in a real browser: Chromium, driven over WebDriver.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use kelix_web::HttpServer;
use serde_json::json;

use crate::{POPULAR, open, small};

/// Names a file that a picture of a product's page is to be written into.
const SCREENSHOT: &str = "KELIX_WEB_SCREENSHOT";
/// How long a browser may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Chromium's driver, which ends with this, and its browser with it.
struct Driver {
    child: Child,
    address: SocketAddr,
}

impl Driver {
    fn start() -> Driver {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let spawned = Command::new("chromedriver")
            .arg(format!("--port={}", free.port()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = spawned.unwrap_or_else(|error| {
            panic!("cannot start chromedriver: {error}; on Debian: apt-get install chromium chromium-driver")
        });
        let driver = Driver { child, address: free };
        let began = Instant::now();
        while TcpStream::connect(driver.address).is_err() {
            assert!(began.elapsed() < PATIENCE, "chromedriver does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        driver
    }

    async fn browser(&self, profile: &Path) -> Client {
        let arguments = [
            "--headless=new".to_string(),
            // It refuses to run as root otherwise.
            "--no-sandbox".into(),
            "--disable-gpu".into(),
            "--disable-dev-shm-usage".into(),
            "--hide-scrollbars".into(),
            "--window-size=1160,1100".into(),
            format!("--user-data-dir={}", profile.display()),
        ];
        let options = json!({ "goog:chromeOptions": { "args": arguments } });
        let capabilities = options.as_object().unwrap().clone();
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let browser = builder.capabilities(capabilities).connect(&format!("http://{}", self.address)).await;
        browser.unwrap_or_else(|error| {
            panic!("no browser: {error}; on Debian: apt-get install chromium chromium-driver")
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn text(browser: &Client, selector: &str) -> String {
    let began = Instant::now();
    loop {
        let found = browser.wait().at_most(PATIENCE).for_element(Locator::Css(selector)).await.unwrap();
        // It may go with the page before.
        match found.text().await {
            Ok(text) => return text,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{selector}: {error}"),
        }
    }
}

/// Fills fields of a form and sends it.
async fn send(browser: &Client, form: &str, fields: &[(&str, &str)]) {
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
    let profile = tempfile::tempdir().unwrap();
    let driver = Driver::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let browser = driver.browser(profile.path()).await;
        let visited = visit(&browser, http.address(), id, other).await;
        browser.close().await.unwrap();
        visited
    });
}

async fn visit(browser: &Client, server: SocketAddr, id: &str, other: &str) {
    let address = |product: &str| format!("http://{server}/product/{product}");
    for product in [other, id] {
        browser.goto(&address(product)).await.unwrap();
        assert!(
            text(browser, "#foot").await.contains(" 0 reused"),
            "nothing is made before somebody wants it"
        );
    }
    browser.goto(&address(other)).await.unwrap();
    assert!(text(browser, "#foot").await.contains(" 0 made anew"), "nothing has changed");
    browser.goto(&address(id)).await.unwrap();
    // What a page does it does by forms: there is no script on it.
    assert!(browser.find_all(Locator::Css("script")).await.unwrap().is_empty());

    send(browser, ".head form", &[("price", "4321.5")]).await;
    assert_eq!(text(browser, "#price").await, "$4321.50");
    assert!(text(browser, "#foot").await.contains("1 made anew (head)"));

    let review =
        [("name", "Ada <b>"), ("summary", "<script>document.title='taken'</script>"), ("text", "Fine.")];
    send(browser, "#write form", &review).await;
    assert_eq!(text(browser, "article .by").await.split(',').next(), Some("Ada <b>"));
    assert!(text(browser, "article h3").await.contains("<script>document.title='taken'</script>"));
    assert_eq!(browser.title().await.unwrap(), id);
    assert!(text(browser, "#foot").await.contains("2 made anew"));

    browser.goto(&address(other)).await.unwrap();
    let card = format!("#bought li[data-product=\"{id}\"]");
    assert!(text(browser, &card).await.contains("$4321.50"));
    assert!(text(browser, "#foot").await.contains("1 made anew (bought)"));
    if let Ok(file) = std::env::var(SCREENSHOT) {
        let picture = browser.screenshot().await.unwrap();
        std::fs::write(file, picture).unwrap();
    }
    browser.goto(&address(other)).await.unwrap();
    assert!(text(browser, "#foot").await.contains(" 0 made anew"), "all is reused now");
}
