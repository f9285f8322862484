//! How much of what a cache is asked for is there, when it has room for a share of all: ours, memcached with
//! as much memory, and exact LRU of as many bytes, by arithmetic.
//!
//! Streams of requests are made up, and out of files where there are any (`files`). A request is a get, and a
//! set of what was not there. Values are as long as the stream says, all scaled so that the share of all
//! items is the memory that every cache has.

mod cache;
mod files;
mod kelix;
mod lru;
mod memcached;
mod stream;

use serde_json::{Value, json};

use self::kelix::Kelix;
use crate::Options;
use cache::{Asked, Cache, Contents, ask};
use kelix_report::progress;
use kelix_report::report::{Detail, Row, Sense, figure};
use lru::Lru;
use memcached::Memcached;
use stream::{Stream, item_bytes, made_up};

/// Shares of all items that there is room for.
const SHARES: [f64; 3] = [0.03, 0.1, 0.3];
/// Requests of a stream at most, and memory of a cache.
const REQUESTS: usize = 500_000;
const MEMORY_BYTES: u64 = 64 << 20;
/// The same in a small run, which only checks that all works.
const REQUESTS_SMALL: usize = 1000;
const MEMORY_BYTES_SMALL: u64 = 16 << 20;

/// A stream asked of caches with room for a share.
struct Compared {
    stream: &'static str,
    share: f64,
    keys: usize,
    lru: Asked,
    memcached: Asked,
    kelix: Asked,
    /// How many times as long as in the stream values are.
    factor: f64,
}

fn of_lru(stream: &Stream, sizes: &[u32], memory_bytes: u64) -> Asked {
    let bytes: Vec<u64> = sizes.iter().map(|size| item_bytes(*size)).collect();
    let mut lru = Lru::new(&bytes, memory_bytes);
    let hits = stream.requests.iter().filter(|key| lru.ask(**key)).count() as u64;
    Asked { hits, requests: stream.requests.len() as u64, refused: 0 }
}

impl Compared {
    fn run(stream: &Stream, share: f64, memory_bytes: u64) -> Result<Compared, String> {
        progress::show(&format!("hits: {}, {} % of all fit", stream.name, share * 100.0));
        let sizes = stream.scaled(share, memory_bytes);
        let sum = |sizes: &[u32]| sizes.iter().map(|size| f64::from(*size)).sum::<f64>();
        let factor = sum(&sizes) / sum(&stream.sizes);
        let lru = of_lru(stream, &sizes, memory_bytes);
        let contents = Contents::new(sizes);
        let ask_of = |cache: &mut dyn Cache| ask(cache, stream, &contents);
        let memcached = ask_of(&mut Memcached::start(memory_bytes)?)?;
        let kelix = ask_of(&mut Kelix::start(memory_bytes)?)?;
        Ok(Compared { stream: stream.name, share, keys: stream.sizes.len(), lru, memcached, kelix, factor })
    }

    fn percent(&self) -> String {
        format!("{:.0}", self.share * 100.0)
    }

    fn line(&self) -> Vec<String> {
        let hits = |asked: &Asked| format!("{:.2}", asked.percent());
        let refused = |who: &str, asked: &Asked| match asked.refused {
            0 => String::new(),
            refused => format!("; {who} refused {refused}"),
        };
        let refused = refused("memcached", &self.memcached) + &refused("Kelix", &self.kelix);
        let note = format!(
            "{} requests, {} keys, values {} x{refused}",
            self.lru.requests,
            self.keys,
            figure(self.factor)
        );
        let [lru, memcached, kelix] = [&self.lru, &self.memcached, &self.kelix].map(hits);
        vec![self.stream.into(), self.percent(), lru, memcached, kelix, note]
    }

    fn json(&self) -> Value {
        json!({
            "stream": self.stream,
            "percent": self.share * 100.0,
            "requests": self.lru.requests,
            "keys": self.keys,
            "values_scaled_by": self.factor,
            "lru": self.lru.percent(),
            "memcached": self.memcached.percent(),
            "memcached_refused": self.memcached.refused,
            "kelix": self.kelix.percent(),
            "kelix_refused": self.kelix.refused,
        })
    }
}

/// Ours against one of the others, where that is worst.
fn worst(all: &[Compared], id: &'static str, other: &str, of: impl Fn(&Compared) -> &Asked) -> Row {
    let ratio = |compared: &Compared| compared.kelix.hits.max(1) as f64 / of(compared).hits.max(1) as f64;
    let at_least = all.iter().filter(|compared| ratio(compared) >= 1.0).count();
    let worst = all.iter().min_by(|one, two| ratio(one).total_cmp(&ratio(two))).expect("some streams");
    Row {
        id: id.into(),
        name: format!("hits of a cache / {other}, the worst of {}", all.len()).into(),
        ours: worst.kelix.percent(),
        other: Some(of(worst).percent()),
        unit: "% hits",
        ratio: ratio(worst),
        wanted: Some(1.0),
        sense: Sense::AtLeast,
        note: format!(
            "{}, {} % of all fit; in {at_least} of {} at least as many",
            worst.stream,
            worst.percent(),
            all.len()
        ),
    }
}

/// What caches are asked for, as far as it is out of files, and by how much.
pub(super) struct Streams {
    of_files: Vec<Stream>,
    requests: usize,
    memory_bytes: u64,
}

impl Streams {
    /// Reads what there is.
    pub fn read(options: &Options, is_full: bool) -> Result<Streams, String> {
        let (requests, memory_bytes) =
            if is_full { (REQUESTS, MEMORY_BYTES) } else { (REQUESTS_SMALL, MEMORY_BYTES_SMALL) };
        let of_files = options.traces.as_ref().map(|folder| files::streams(folder, requests)).transpose()?;
        Ok(Streams { of_files: of_files.unwrap_or_default(), requests, memory_bytes })
    }

    fn compare(&self) -> Result<Vec<Compared>, String> {
        let mut all = Vec::new();
        for share in SHARES {
            let made_up = made_up(share, self.requests);
            for (place, stream) in self.of_files.iter().chain(&made_up).enumerate() {
                all.push((place, Compared::run(stream, share, self.memory_bytes)?));
            }
        }
        all.sort_by_key(|(place, _)| *place);
        Ok(all.into_iter().map(|(_, compared)| compared).collect())
    }

    /// The rows, and the table of all hits.
    pub fn rows(&self) -> Result<(Vec<Row>, Detail), String> {
        let all = self.compare()?;
        let heading = ["stream", "% fit", "LRU", "memcached", "Kelix", "note"].map(String::from).to_vec();
        let detail = Detail {
            name: "hit_ratio",
            json: all.iter().map(Compared::json).collect(),
            words: format!(
                "Hits of 100 requests, in caches of {} MiB that a share of all items fits into.",
                self.memory_bytes >> 20
            ),
            lines: std::iter::once(heading).chain(all.iter().map(Compared::line)).collect(),
        };
        let rows = vec![
            worst(&all, "hit_ratio", "exact LRU of as many bytes", |compared| &compared.lru),
            worst(&all, "hit_ratio_memcached", "memcached of as much memory", |compared| &compared.memcached),
        ];
        Ok((rows, detail))
    }
}
