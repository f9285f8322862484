//! The page in a browser. With KELIX_MAP_SCREENSHOT=FILE it keeps a picture of the page.

use std::time::Duration;

use crate::running::{Folder, Serving, crossing, points};
use kelix_browser::Browser;
use kelix_browser::fantoccini::actions::{InputSource, MOUSE_BUTTON_LEFT, MouseActions, PointerAction};
use serde_json::json;

fn click(page: &Browser, x: f64, y: f64) {
    let actions = MouseActions::new("mouse".into())
        .then(PointerAction::MoveTo { duration: None, x, y })
        .then(PointerAction::Down { button: MOUSE_BUTTON_LEFT })
        .then(PointerAction::Up { button: MOUSE_BUTTON_LEFT });
    page.run(async |page| page.perform_actions(actions).await).unwrap();
}

/// Middles of segments on the screen, beside the panels, from west to east.
fn places(page: &Browser) -> Vec<(f64, f64)> {
    let script = "Object.values(layers.streets._layers).flatMap((lines) => lines.getLatLngs()).map(([a, b]) => \
        map.latLngToContainerPoint([(a.lat + b.lat) / 2, (a.lng + b.lng) / 2])).filter(({x, y}) => \
        x > 380 && x < 1180 && y > 60 && y < 620).map(({x, y}) => [x, y]).sort((a, b) => a[0] - b[0])";
    serde_json::from_value(page.value(script)).unwrap()
}

/// Pixels of the map's canvases that are not empty.
const PIXELS: &str = "[...document.querySelectorAll('canvas')].map((canvas) => canvas.getContext('2d')\
    .getImageData(0, 0, canvas.width, canvas.height).data.filter((part, at) => at % 4 === 3 && part > 0).length)\
    .reduce((sum, part) => sum + part, 0)";

#[test]
fn the_page_shows_streets_points_speeds_and_routes() {
    let serving = Serving::start(&["--speed", "60"]);
    let page = Browser::start(1280, 860).unwrap();
    page.go(&format!("http://{}/", serving.address));

    page.wait_for("shown.streets > 500");
    let drawn = page.value(PIXELS).as_u64().unwrap();
    assert!(drawn > 20_000, "streets are drawn on the canvas: {drawn} pixels");

    page.wait_for("shown.points > 5 && shown.matched > 5 && shown.speeds > 50");
    let events = page.value("shown.events").as_u64().unwrap();
    page.wait_for(&format!("shown.events > {events}"));
    page.wait_for("Number(slider.max) >= Number(slider.min) + 5");

    let live = page.value("shown.minute");
    let first = page.value("Number(slider.min) + 1");
    page.execute(
        "slider.value = arguments[0]; slider.dispatchEvent(new Event('input'))",
        std::slice::from_ref(&first),
    );
    page.wait_for(&format!("shown.minute === {first}"));
    assert_ne!(live, first);
    let then = page.value("[shown.points, shown.speeds, document.querySelector('#clock').textContent]");
    page.execute(
        "slider.value = arguments[0] + 3; slider.dispatchEvent(new Event('input'))",
        std::slice::from_ref(&first),
    );
    page.wait_for(&format!("shown.minute === {first} + 3"));
    let later = page.value("[shown.points, shown.speeds, document.querySelector('#clock').textContent]");
    assert_ne!(then, later);
    page.click("#now");
    page.wait_for(&format!("shown.minute > {first} + 3"));

    let places = places(&page);
    let (x, y) = places[places.len() / 2];
    click(&page, x, y);
    page.wait_for("shown.place !== null && answer.querySelector('h2') !== null");
    assert!(page.value("answer.textContent").as_str().unwrap().contains("reads of the store's memory"));

    page.click("#mode-route");
    // Not every pair has a route: some streets lead out of the map and not back.
    let mut found = false;
    for number in 1..20 {
        let (from, to) =
            (places[places.len() * number / 80], places[places.len() - 1 - places.len() * number / 60]);
        click(&page, from.0, from.1);
        page.wait_for("ends.length === 1");
        click(&page, to.0, to.1);
        page.wait_for("answer.querySelector('h2') !== null");
        found = page.value("shown.route > 10") == json!(true);
        if found {
            break;
        }
    }
    assert!(found, "a route is drawn");
    page.wait_for("shown.speeds > 100");
    if let Some(file) = std::env::var_os("KELIX_MAP_SCREENSHOT") {
        std::thread::sleep(Duration::from_secs(20));
        page.screenshot(file);
    }
    drop(page);
    assert!(serving.end());
}

#[test]
fn a_telephone_shows_the_map_beside_the_panels() {
    let folder = Folder::new("telephone");
    let (data, file) = (folder.file("crossing.json", crossing()), folder.file("points.csv", points()));
    let serving = Serving::start(&["--data", &data, "--points", &file, "--speed", "10000"]);
    let page = Browser::start(1280, 860).unwrap();
    page.resize(390, 844);
    page.go(&format!("http://{}/", serving.address));
    page.wait_for("shown.streets > 0");
    let measures = page.value(
        "[innerWidth, panel.getBoundingClientRect().bottom / innerHeight, time.getBoundingClientRect().top / innerHeight, \
        time.getBoundingClientRect().right, document.documentElement.scrollWidth, element('clock').offsetHeight]",
    );
    let [width, panel, below, right, scrolled, clock] = serde_json::from_value::<[f64; 6]>(measures).unwrap();
    assert!(panel < 0.4 && below > 0.8, "{panel} and {below} of the height");
    assert!(right <= width && scrolled <= width, "{right} and {scrolled} of {width}");
    assert!(clock < 40.0, "the clock is {clock} high");
    assert!(serving.end());
}
