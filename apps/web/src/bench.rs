//! `kelix-web bench`: a page by links against the same by keys, what a change costs, and pages over HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use kelix::Path;
use kelix_apps::{BenchArgs, Failure, KelixKeyed, Memcached, Store, Times, Wanted, start_memcached};
use kelix_report::cores::{cores, pin, unpin};
use kelix_report::progress::show as progress;
use kelix_report::{Report, Row, Sense};

use crate::catalogue::Catalogue;
use crate::keyed::ByKey;
use crate::load::{load, memory_for};
use crate::load_test::load_test;
use crate::pages::Pages;
use crate::server::HttpServer;
use crate::shapes::Numbers;
use crate::shop::Shop;

/// Products from which on a run is a measurement. A small one is a check that all works.
const FULL_PRODUCTS: usize = 5000;
/// Keys that are asked for at once, where a page allows it.
const BATCH: usize = 64;
/// Table of the values by key.
const VALUES: &str = "web_values";
/// Connections of the load test, and how many products they ask for.
const CONNECTIONS: usize = 8;
const ASKED_FOR: usize = 2000;

/// How much is measured.
struct Size {
    /// Pages that are built.
    tasks: usize,
    /// Prices that are changed.
    changes: usize,
    /// For how long pages are asked for over HTTP.
    time: Duration,
}

impl Size {
    fn of(catalogue: &Catalogue) -> Size {
        match catalogue.products.len() {
            0..FULL_PRODUCTS => Size { tasks: 20, changes: 10, time: Duration::from_millis(200) },
            _ => Size { tasks: 2000, changes: 1000, time: Duration::from_secs(5) },
        }
    }
}

/// The ways to a page's fragments, in this order.
type Ways<'w> = [(&'static str, &'w mut dyn Pages); 5];
const LINKS: usize = 0;
const INDEX: usize = 1;
const MESSAGE: usize = 2;
const MEMCACHED: usize = 3;
const MULTIGET: usize = 4;

/// Measures, and tells what was found.
pub fn bench(catalogue: &Catalogue, args: &BenchArgs) -> Result<(), Failure> {
    let rows = measure(catalogue);
    unpin();
    let report = Report::new("web", catalogue.reviews.len() as u64, rows?);
    args.tell(&report, "kelix-web bench")
}

/// Servers have the last core, and who asks the first.
fn measure(catalogue: &Catalogue) -> Result<Vec<Row>, String> {
    pin(cores() - 1);
    let memory = memory_for(catalogue) * 2;
    let store = Store::start("web-bench", memory)?;
    let memcached = start_memcached(memory)?;
    let http = HttpServer::start(&store.client, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    pin(0);
    let mut shop = Shop::open(&store.client)?;
    load(&mut shop, catalogue)?;
    let products: Vec<String> = catalogue.products.iter().map(|product| product.id.clone()).collect();

    let by_key = |path| KelixKeyed::new(store.session()?, VALUES, path, BATCH).map(ByKey::new);
    let (mut index, mut message) = (by_key(Path::Index)?, by_key(Path::Message)?);
    let connected = Memcached::connect(&memcached, 1)?;
    let mut multiget = ByKey::new(connected.again(BATCH)?);
    let mut single = ByKey::new(connected);
    for (number, product) in products.iter().enumerate() {
        progress(&format!("making pages: {number} of {}", products.len()));
        let fragments = shop.fresh_fragments(product)?;
        index.put_page(product, &fragments)?;
        multiget.put_page(product, &fragments)?;
    }
    let mut ways: Ways<'_> = [
        ("links", &mut shop),
        ("Kelix by index reads", &mut index),
        ("Kelix by message", &mut message),
        ("memcached", &mut single),
        ("memcached with multiget", &mut multiget),
    ];
    compare(&mut ways, &products)?;
    let size = Size::of(catalogue);
    let mut rows = pages(&mut ways, &products, size.tasks)?;
    rows.extend(changes(&mut shop, catalogue, size.changes)?);
    rows.push(over_http(&mut shop, &http, &products, size.time)?);
    progress("");
    Ok(rows)
}

/// All ways must give the same pages, and these must be right.
fn compare(ways: &mut Ways<'_>, products: &[String]) -> Result<(), String> {
    let (mut first, mut other) = (Vec::new(), Vec::new());
    for (number, product) in products.iter().enumerate() {
        progress(&format!("comparing pages: {number} of {}", products.len()));
        first.clear();
        ways[LINKS].1.page(product, &mut first)?.ok_or_else(|| format!("{product} has no page"))?;
        for (name, way) in &mut ways[1..] {
            other.clear();
            way.page(product, &mut other)?;
            if other != first {
                return Err(format!("{product}: the page of {name} differs from that of links"));
            }
        }
    }
    Ok(())
}

/// A page by links against the other ways.
fn pages(ways: &mut Ways<'_>, products: &[String], count: usize) -> Result<Vec<Row>, String> {
    let mut numbers = Numbers(1);
    let tasks: Vec<&String> = (0..count).map(|_| &products[numbers.below(products.len())]).collect();
    let mut html = Vec::with_capacity(1 << 20);
    let times = Times::take(count, ways.len(), |side, task| {
        html.clear();
        let made = ways[side].1.page(tasks[task], &mut html)?.ok_or("a page is gone")?;
        if !made.anew.is_empty() {
            return Err("a fragment was stale that was not to be".into());
        }
        Ok(())
    })?;
    let (mut fragments, mut bytes) = (0, 0);
    for product in &tasks {
        html.clear();
        fragments += ways[LINKS].1.page(product, &mut html)?.unwrap_or_default().reused;
        bytes += html.len();
    }
    let note = format!(
        "{} products; {:.1} fragments of {:.0} bytes together; ",
        products.len(),
        fragments as f64 / count as f64,
        bytes as f64 / count as f64
    );
    let row = |id: &str, side: usize, mean: Option<f64>| {
        let name = format!("a page by links / by {}", ways[side].0);
        times.rows(id, &name, (LINKS, side), Wanted { mean, p95: None }, &note)
    };
    Ok([
        row("page_memcached", MEMCACHED, Some(10.0)),
        row("page_multiget", MULTIGET, Some(4.0)),
        row("page_message", MESSAGE, None),
        row("page_index", INDEX, None),
    ]
    .concat())
}

/// What a new price costs, and the next page, which has a stale fragment.
fn changes(shop: &mut Shop, catalogue: &Catalogue, count: usize) -> Result<Vec<Row>, String> {
    let mut numbers = Numbers(2);
    let (mut html, mut marked, mut anew) = (Vec::with_capacity(1 << 20), 0, 0);
    let mut times: [Vec<f64>; 3] = Default::default();
    let microseconds = |began: Instant| began.elapsed().as_nanos() as f64 / 1000.0;
    for change in 0..count {
        progress(&format!("change {change} of {count}"));
        let product = &catalogue.products[numbers.below(catalogue.products.len())].id;
        let price = format!("{}.{:02}", change + 1, numbers.below(100));
        let began = Instant::now();
        marked += shop.change_price(product, &price)?.ok_or("a product is gone")?;
        times[0].push(microseconds(began));
        for (stale, times) in times[1..].iter_mut().enumerate().map(|(index, times)| (1 - index, times)) {
            html.clear();
            let began = Instant::now();
            let made = shop.page(product, &mut html)?.ok_or("a page is gone")?;
            times.push(microseconds(began));
            if made.anew.is_empty() == (stale > 0) {
                return Err("a change has left no fragment stale, or one more than once".into());
            }
            anew += made.anew.len();
        }
        if !shop.is_right(product)? {
            return Err(format!("the page of {product} is not what its objects are"));
        }
    }
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let [change, stale, fresh] = &mut times;
    change.sort_by(f64::total_cmp);
    let p95 = change[change.len() * 95 / 100];
    let (change, stale, fresh) = (mean(change), mean(stale), mean(fresh));
    let row = |id: &'static str, name: &'static str, ours, other: Option<f64>, note| Row {
        id: id.into(),
        name: name.into(),
        ours,
        other,
        unit: "us",
        ratio: other.map_or(ours, |other| ours / other),
        wanted: None,
        sense: Sense::AtMost,
        note,
    };
    let each = marked as f64 / count as f64;
    Ok(vec![
        row(
            "page_stale",
            "a page with a stale fragment / the same with none",
            stale,
            Some(fresh),
            format!(
                "{count} pages right after a change of the price; {:.2} stale fragments each",
                anew as f64 / count as f64
            ),
        ),
        row(
            "change_price",
            "a new price written and the fragments that show it marked",
            change,
            None,
            format!("{count} changes, each {each:.1} fragments; p95 {p95:.0} us"),
        ),
    ])
}

/// Pages a second from the HTTP server.
fn over_http(shop: &mut Shop, http: &HttpServer, products: &[String], time: Duration) -> Result<Row, String> {
    progress("pages over HTTP");
    let asked_for = &products[..products.len().min(ASKED_FOR)];
    let test = load_test(shop, http.address(), asked_for, CONNECTIONS, time)?;
    Ok(Row {
        id: "http".into(),
        name: "pages a second over HTTP, one core for server and store".into(),
        ours: test.rate(),
        other: None,
        unit: "pages/s",
        ratio: test.rate(),
        wanted: None,
        sense: Sense::AtLeast,
        note: test.describe(),
    })
}
