//! Streams out of files: traces that were recorded, and distributions of popularity and sizes that CacheLib
//! publishes.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::stream::Stream;
use crate::store::Numbers;

/// The files of a folder that are known, by name.
const BLOCKS: &str = "cloudPhysicsIO.csv";
const RECOMMENDED: &str = "scarab_scarab-recs.trace.xz";
const CACHELIB: &str = "cachelib";
/// The workloads there, with how their rows are called.
const WORKLOADS: [(&str, &str); 5] = [
    ("cdn", "cdn"),
    ("graph_cache_follower_fbobj", "follower"),
    ("graph_cache_leader_assocs", "assocs"),
    ("graph_cache_leader_fbobj", "leader"),
    ("kvcache_reg", "kvcache"),
];
/// Where sizes are from of keys that have none.
const SIZES_FROM: &str = "kvcache_reg";
/// No key of a distribution is asked for more often than in so many requests.
const SHARE_MAX: f64 = 1.0 / 2000.0;
/// How long a key is asked for, as a share of the stream, in the mean.
const LIFE: f64 = 0.1;

/// All streams that a folder has files for, of so many requests at most.
pub(super) fn streams(folder: &Path, requests: usize) -> Result<Vec<Stream>, String> {
    let mut streams = Vec::new();
    let there = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
    if let Some(path) = there(BLOCKS) {
        streams.push(blocks(&read(&path)?).ok_or_else(|| wrong(&path))?);
    }
    let of = |workload: &str, what: &str| there(&format!("{CACHELIB}/{workload}.{what}.json"));
    if let (Some(path), Some(sizes)) = (there(RECOMMENDED), of(SIZES_FROM, "sizes")) {
        streams.push(recommended(&path, &Sizes::read(&sizes)?)?);
    }
    for (workload, name) in WORKLOADS {
        if let (Some(popularity), Some(sizes)) = (of(workload, "pop"), of(workload, "sizes")) {
            let parsed = parse(&popularity)?;
            let popularity = Popularity::of(&parsed).ok_or_else(|| wrong(&popularity))?;
            streams.push(popularity.stream(name, &Sizes::read(&sizes)?, requests));
        }
    }
    if streams.is_empty() {
        return Err(format!("{} has none of {BLOCKS}, {RECOMMENDED} and {CACHELIB}/", folder.display()));
    }
    Ok(streams.into_iter().map(|stream| stream.cut(requests)).collect())
}

fn wrong(path: &Path) -> String {
    format!("{} is not what it is called", path.display())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn parse(path: &Path) -> Result<Value, String> {
    serde_json::from_str(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))
}

/// Requests for blocks: version, time, operation, bytes, and the block's number, which is the key. A block
/// has the size with which it is asked for first.
fn blocks(text: &str) -> Option<Stream> {
    let mut requests = Vec::new();
    for line in text.lines().skip(1).filter(|line| !line.is_empty()) {
        let mut fields = line.split(',').skip(3).map(str::parse::<u64>);
        let (bytes, block) = (fields.next()?.ok()?, fields.next()?.ok()?);
        requests.push((block, u32::try_from(bytes).ok()?));
    }
    let keys: Vec<u64> = requests.iter().map(|(block, _)| *block).collect();
    (!keys.is_empty()).then(|| Stream::of_keys("blocks", &keys, |at, _| requests[at].1))
}

/// Requests of a recommender: numbers of 8 bytes, the highest first, packed by `xz`.
fn recommended(path: &Path, sizes: &Sizes) -> Result<Stream, String> {
    let unpacked = Command::new("xz").arg("-dc").arg(path).stdin(Stdio::null()).output();
    let unpacked = unpacked.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "xz is not installed; on Debian: apt-get install xz-utils".into(),
        _ => format!("cannot start xz: {error}"),
    })?;
    let words = unpacked.stdout.chunks_exact(8);
    if !unpacked.status.success() || words.len() == 0 || !words.remainder().is_empty() {
        return Err(wrong(path));
    }
    let keys: Vec<u64> = words.map(|word| u64::from_be_bytes(word.try_into().expect("8 bytes"))).collect();
    Ok(Stream::of_keys("recommended", &keys, |_, key| sizes.draw(key)))
}

/// How many values are how long.
struct Sizes {
    /// Sizes, and how many values are at most as long as each.
    upto: Vec<(u32, u64)>,
}

/// A list of numbers.
fn numbers(of: &Value) -> Option<Vec<u64>> {
    of.as_array()?.iter().map(Value::as_u64).collect()
}

impl Sizes {
    fn read(path: &Path) -> Result<Sizes, String> {
        Sizes::of(&parse(path)?).ok_or_else(|| wrong(path))
    }

    fn of(parsed: &Value) -> Option<Sizes> {
        let bytes = numbers(&parsed["valSizeRange"])?;
        let weights = numbers(&parsed["valSizeRangeProbability"])?;
        let mut sum = 0;
        let upto = |(bytes, weight): (u64, u64)| {
            sum += weight;
            (u32::try_from(bytes).unwrap_or(u32::MAX), sum)
        };
        let upto: Vec<(u32, u64)> = bytes.into_iter().zip(weights).map(upto).collect();
        (sum > 0).then_some(Sizes { upto })
    }

    /// The size of a key's value, always the same.
    fn draw(&self, key: u64) -> u32 {
        let sum = self.upto.last().map_or(0, |(_, sum)| *sum);
        let wanted = ((u128::from(Numbers(key ^ 0x5ca1e).next()) * u128::from(sum)) >> 64) as u64;
        self.upto[self.upto.partition_point(|(_, upto)| *upto <= wanted)].0
    }
}

/// How many keys are asked for how often.
struct Popularity {
    /// Keys, and requests for each of them.
    buckets: Vec<(u64, f64)>,
    /// Requests for all of these.
    sum: f64,
    /// The share of all requests that are for a key that is asked for once.
    once: f64,
}

impl Popularity {
    fn of(parsed: &Value) -> Option<Popularity> {
        let counts = numbers(&parsed["popularityBuckets"])?;
        let weights = numbers(&parsed["popularityWeights"])?;
        let once = parsed["oneHits"].as_f64().filter(|once| (0.0..1.0).contains(once))?;
        let sum = weights.iter().sum::<u64>() as f64;
        let buckets = counts.into_iter().zip(weights).filter(|(count, _)| *count > 0);
        let buckets = buckets.map(|(count, weight)| (count, weight as f64 / count as f64)).collect();
        (sum > 0.0).then_some(Popularity { buckets, sum, once })
    }

    /// A stream of about so many requests. Of the keys as many are left out as there are requests too many,
    /// so that each is asked for as often as it was; but of the most popular ones, of which one decides
    /// everything, requests are. Most keys are asked for during a part of the stream only.
    fn stream(&self, name: &'static str, sizes: &Sizes, requests: usize) -> Stream {
        let scale = (self.sum / (1.0 - self.once) / requests as f64).max(1.0);
        let most = self.sum / scale * SHARE_MAX;
        let mut making = Making { numbers: Numbers(42), requests: Vec::new(), keys: 0 };
        for (count, each) in &self.buckets {
            let kept = (1.0 / scale).max(each / (most * scale)).min(1.0);
            for _ in 0..making.whole(*count as f64 * kept) {
                making.add(each / (scale * kept), most);
            }
        }
        let once = self.sum / scale * self.once / (1.0 - self.once);
        (0..once as u64).for_each(|_| making.add(1.0, most));
        making.requests.sort_by(|one, other| one.0.total_cmp(&other.0));
        let keys: Vec<u64> = making.requests.iter().map(|(_, key)| *key).collect();
        Stream::of_keys(name, &keys, |_, key| sizes.draw(key))
    }
}

/// A stream that is being made.
struct Making {
    numbers: Numbers,
    /// Moments from 0 to 1, and keys.
    requests: Vec<(f64, u64)>,
    keys: u64,
}

impl Making {
    /// A whole number that is this one in the mean.
    fn whole(&mut self, number: f64) -> u64 {
        number as u64 + u64::from(self.numbers.share() < number.fract())
    }

    /// A key that is asked for so often.
    fn add(&mut self, often: f64, most: f64) {
        let (mut begin, mut life) = (0.0, 1.0);
        if often < most / 2.0 {
            life = (-(1.0 - self.numbers.share()).ln() * LIFE).min(1.0);
            begin = self.numbers.share() * (1.0 - life);
        }
        for _ in 0..self.whole(often) {
            let moment = begin + life * self.numbers.share();
            self.requests.push((moment, self.keys));
        }
        self.keys += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn blocks_are_read_by_their_columns() {
        let stream =
            blocks("version,time,op,size,lbn\n1,5,2a,512,70\n1,5,28,6656,9\n1,6,2a,1024,70\n").unwrap();
        assert_eq!((&stream.requests[..], &stream.sizes[..]), (&[0, 1, 0][..], &[512, 6656][..]));
        assert!(blocks("version\n1,5,2a,many,70\n").is_none() && blocks("version\n").is_none());
    }

    #[test]
    fn sizes_are_drawn_as_often_as_they_are_told() {
        let sizes = Sizes::of(&json!({"valSizeRange": [31, 63], "valSizeRangeProbability": [3, 1]})).unwrap();
        let short = (0..10_000).filter(|key| sizes.draw(*key) == 31).count();
        assert!((7300..7700).contains(&short), "{short}");
        assert!(Sizes::of(&json!({"valSizeRange": [31]})).is_none());
    }

    #[test]
    fn a_stream_is_as_popular_as_its_distribution() {
        let told =
            json!({"oneHits": 0.2, "popularityBuckets": [1000, 9000], "popularityWeights": [4000, 36000]});
        let sizes = Sizes::of(&json!({"valSizeRange": [100], "valSizeRangeProbability": [1]})).unwrap();
        let stream = Popularity::of(&told).unwrap().stream("t", &sizes, 10_000);
        assert!((9000..11_000).contains(&stream.requests.len()), "{}", stream.requests.len());
        let mut counts = vec![0; stream.sizes.len()];
        stream.requests.iter().for_each(|key| counts[*key as usize] += 1);
        let once = counts.iter().filter(|count| **count == 1).count();
        let four = counts.iter().filter(|count| **count == 4).count();
        assert!(
            (1800..2200).contains(&once) && (1800..2200).contains(&four),
            "{once} once, {four} four times"
        );
    }
}
