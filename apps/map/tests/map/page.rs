//! The page in a browser: Debian's Chromium, told what to do through WebDriver. With KELIX_MAP_SCREENSHOT=FILE it keeps a picture of the page.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::running::{Folder, Serving};
use fantoccini::actions::{InputSource, MOUSE_BUTTON_LEFT, MouseActions, PointerAction};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

/// Chromium's driver, which ends the browser when it is told to, and is ended by its id.
struct Driver {
    child: Child,
    port: u16,
}

impl Driver {
    fn start() -> Driver {
        let mut command = Command::new("chromedriver");
        let child = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap_or_else(|error| {
            panic!("cannot start chromedriver: {error}; install it: apt-get install chromium chromium-driver")
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            line.split("started successfully on port ").nth(1)?.trim_end_matches('.').parse().ok()
        });
        Driver { child, port: port.expect("chromedriver says its port") }
    }

    async fn browser(&self, folder: &Folder) -> Client {
        let profile = format!("--user-data-dir={}", folder.0.display());
        let mut arguments = vec!["--headless=new", "--disable-gpu", "--window-size=1280,860", &profile];
        // As root it runs only without its sandbox. The page is our own.
        arguments.push("--no-sandbox");
        let capabilities = json!({"goog:chromeOptions": {"args": arguments}});
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder
            .capabilities(capabilities.as_object().unwrap().clone())
            .connect(&format!("http://127.0.0.1:{}", self.port))
            .await;
        client.unwrap_or_else(|error| {
            panic!("chromedriver cannot start chromium: {error}; install it: apt-get install chromium chromium-driver")
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn value(page: &Client, script: &str) -> Value {
    page.execute(&format!("return {script}"), Vec::new())
        .await
        .unwrap_or_else(|error| panic!("{script}: {error}"))
}

/// Waits until something is true on the page.
async fn wait_for(page: &Client, script: &str) {
    for _ in 0..600 {
        if value(page, script).await == json!(true) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never came true: {script}; {}", value(page, "window.shown").await);
}

async fn click(page: &Client, x: f64, y: f64) {
    let actions = MouseActions::new("mouse".into())
        .then(PointerAction::MoveTo { duration: None, x, y })
        .then(PointerAction::Down { button: MOUSE_BUTTON_LEFT })
        .then(PointerAction::Up { button: MOUSE_BUTTON_LEFT });
    page.perform_actions(actions).await.unwrap();
}

async fn press(page: &Client, button: &str) {
    page.find(Locator::Css(button)).await.unwrap().click().await.unwrap();
}

/// Middles of segments on the screen, beside the panels, from west to east.
async fn places(page: &Client) -> Vec<(f64, f64)> {
    let script = "Object.values(layers.streets._layers).flatMap((lines) => lines.getLatLngs()).map(([a, b]) => \
        map.latLngToContainerPoint([(a.lat + b.lat) / 2, (a.lng + b.lng) / 2])).filter(({x, y}) => \
        x > 380 && x < 1180 && y > 60 && y < 620).map(({x, y}) => [x, y]).sort((a, b) => a[0] - b[0])";
    serde_json::from_value(value(page, script).await).unwrap()
}

/// Pixels of the map's canvases that are not empty.
const PIXELS: &str = "[...document.querySelectorAll('canvas')].map((canvas) => canvas.getContext('2d')\
    .getImageData(0, 0, canvas.width, canvas.height).data.filter((part, at) => at % 4 === 3 && part > 0).length)\
    .reduce((sum, part) => sum + part, 0)";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_page_shows_streets_points_speeds_and_routes() {
    let serving = Serving::start(&["--speed", "60"]);
    let (driver, folder) = (Driver::start(), Folder::new("chromium"));
    let page = driver.browser(&folder).await;
    page.goto(&format!("http://{}/", serving.address)).await.unwrap();

    wait_for(&page, "shown.streets > 500").await;
    let drawn = value(&page, PIXELS).await.as_u64().unwrap();
    assert!(drawn > 20_000, "streets are drawn on the canvas: {drawn} pixels");

    wait_for(&page, "shown.points > 5 && shown.matched > 5 && shown.speeds > 50").await;
    let events = value(&page, "shown.events").await.as_u64().unwrap();
    wait_for(&page, &format!("shown.events > {events}")).await;
    wait_for(&page, "Number(slider.max) >= Number(slider.min) + 5").await;

    let live = value(&page, "shown.minute").await;
    let first = value(&page, "Number(slider.min) + 1").await;
    page.execute(
        "slider.value = arguments[0]; slider.dispatchEvent(new Event('input'))",
        vec![first.clone()],
    )
    .await
    .unwrap();
    wait_for(&page, &format!("shown.minute === {first}")).await;
    assert_ne!(live, first);
    let then =
        value(&page, "[shown.points, shown.speeds, document.querySelector('#clock').textContent]").await;
    page.execute(
        "slider.value = arguments[0] + 3; slider.dispatchEvent(new Event('input'))",
        vec![first.clone()],
    )
    .await
    .unwrap();
    wait_for(&page, &format!("shown.minute === {first} + 3")).await;
    let later =
        value(&page, "[shown.points, shown.speeds, document.querySelector('#clock').textContent]").await;
    assert_ne!(then, later);
    press(&page, "#now").await;
    wait_for(&page, &format!("shown.minute > {first} + 3")).await;

    let places = places(&page).await;
    let (x, y) = places[places.len() / 2];
    click(&page, x, y).await;
    wait_for(&page, "shown.place !== null && answer.querySelector('h2') !== null").await;
    assert!(
        value(&page, "answer.textContent").await.as_str().unwrap().contains("reads of the store's memory")
    );

    press(&page, "#mode-route").await;
    // Not every pair has a route: some streets lead out of the map and not back.
    let mut found = false;
    for number in 1..20 {
        let (from, to) =
            (places[places.len() * number / 80], places[places.len() - 1 - places.len() * number / 60]);
        click(&page, from.0, from.1).await;
        wait_for(&page, "ends.length === 1").await;
        click(&page, to.0, to.1).await;
        wait_for(&page, "answer.querySelector('h2') !== null").await;
        found = value(&page, "shown.route > 10").await == json!(true);
        if found {
            break;
        }
    }
    assert!(found, "a route is drawn");
    wait_for(&page, "shown.speeds > 100").await;
    if let Some(file) = std::env::var_os("KELIX_MAP_SCREENSHOT") {
        tokio::time::sleep(Duration::from_secs(20)).await;
        std::fs::write(file, page.screenshot().await.unwrap()).unwrap();
    }
    page.close().await.unwrap();
    drop(driver);
    assert!(serving.end());
}
