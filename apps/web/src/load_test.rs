//! Many pages over HTTP: connections that are kept, each of which asks for one page after the other and
//! compares it with the one made without HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::document::{FOOT, product_page};
use crate::shapes::Numbers;
use crate::shop::Shop;

/// Longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came of it.
pub struct LoadTest {
    connections: usize,
    seconds: f64,
    /// Of pages, in microseconds, in order.
    latencies: Vec<f64>,
    reads: u64,
}

impl LoadTest {
    /// Pages in a second.
    pub fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }

    fn quantile(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
    }

    /// All of it in words.
    pub fn describe(&self) -> String {
        format!(
            "{} pages over {} connections, all as made without HTTP; latency in us: p50 {:.0}, p95 {:.0}, p99 {:.0}; {:.1} READs a page",
            self.latencies.len(),
            self.connections,
            self.quantile(0.5),
            self.quantile(0.95),
            self.quantile(0.99),
            self.reads as f64 / self.latencies.len().max(1) as f64,
        )
    }
}

/// A page that is asked for, and what must come up to its foot.
struct Wanted {
    request: Vec<u8>,
    page: Vec<u8>,
}

/// Lets so many connections ask a server for pages of these products.
pub fn load_test(
    shop: &mut Shop,
    server: SocketAddr,
    products: &[String],
    connections: usize,
    time: Duration,
) -> Result<LoadTest, String> {
    let mut wanted = Vec::with_capacity(products.len());
    for product in products {
        let mut page = product_page(shop, product)?.ok_or_else(|| format!("{product} has no page"))?;
        page.truncate(foot_of(&page).ok_or("a page without a foot")?);
        let request = format!("GET /product/{product} HTTP/1.1\r\nhost: {server}\r\n\r\n").into_bytes();
        wanted.push(Wanted { request, page });
    }
    if wanted.is_empty() {
        return Err("there are no products to ask for".into());
    }
    let began = Instant::now();
    let wanted = &wanted;
    let results: Vec<Result<(Vec<f64>, u64), String>> = std::thread::scope(|scope| {
        let ask = |number: usize| move || ask(server, wanted, Numbers(number as u64), began + time);
        let threads: Vec<_> = (0..connections).map(|number| scope.spawn(ask(number))).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a connection's thread panicked".into()))
        };
        threads.into_iter().map(ended).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut test = LoadTest { connections, seconds, latencies: Vec::new(), reads: 0 };
    for result in results {
        let (latencies, reads) = result?;
        test.latencies.extend(latencies);
        test.reads += reads;
    }
    test.latencies.sort_by(f64::total_cmp);
    Ok(test)
}

/// Asks for pages until a moment. How long each took, and the READs of all.
fn ask(
    server: SocketAddr,
    wanted: &[Wanted],
    mut numbers: Numbers,
    until: Instant,
) -> Result<(Vec<f64>, u64), String> {
    let cannot = |error: std::io::Error| format!("{server}: {error}");
    let mut stream = TcpStream::connect(server).map_err(cannot)?;
    stream.set_nodelay(true).map_err(cannot)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(cannot)?;
    let (mut latencies, mut reads, mut received) = (Vec::new(), 0, Vec::new());
    while Instant::now() < until {
        let Wanted { request, page } = &wanted[numbers.below(wanted.len())];
        let asked = Instant::now();
        stream.write_all(request).map_err(cannot)?;
        let body = answer(&mut stream, &mut received)?;
        latencies.push(asked.elapsed().as_nanos() as f64 / 1000.0);
        let foot = body.get(page.len()..).filter(|_| body.starts_with(page));
        let foot = foot.filter(|foot| foot.starts_with(FOOT.as_bytes()));
        let foot = foot.ok_or("a page over HTTP differs from the one made without")?;
        reads += reads_of(foot).ok_or("a page does not say how many READs it took")?;
    }
    Ok((latencies, reads))
}

/// The body of an answer with a length, which must be a page.
fn answer<'r>(stream: &mut TcpStream, received: &'r mut Vec<u8>) -> Result<&'r [u8], String> {
    received.clear();
    let mut wanted = None;
    let mut body = 0;
    loop {
        if let Some(end) = wanted {
            if received.len() >= end {
                return Ok(&received[body..end]);
            }
        } else if let Some(head) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&received[..head]).to_lowercase();
            if !text.starts_with("http/1.1 200 ") {
                return Err(format!("the server answered {:?}", text.lines().next().unwrap_or_default()));
            }
            let length =
                text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            let length: usize = length.ok_or("the server told no length")?;
            body = head + 4;
            wanted = Some(body + length);
            continue;
        }
        let mut part = [0; 1 << 14];
        match stream.read(&mut part).map_err(|error| format!("no answer: {error}"))? {
            0 => return Err("the server ended the connection".into()),
            bytes => received.extend_from_slice(&part[..bytes]),
        }
    }
}

fn foot_of(page: &[u8]) -> Option<usize> {
    // It stands near the end.
    (0..page.len()).rev().find(|at| page[*at..].starts_with(FOOT.as_bytes()))
}

fn reads_of(foot: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(foot).ok()?;
    text.split_once("data-reads=")?.1.split_once('>')?.0.parse().ok()
}
