//! Streams of requests: which key is asked for, one after the other, and how long each one's value is.

use crate::store::Numbers;

/// Bytes of a key, and of all that an item takes beside its key and value: its header and its part of the
/// index.
pub(super) const KEY_BYTES: usize = crate::workload::KEY_BYTES;
pub(super) const HEADER_BYTES: u64 = 32;
/// The shortest value, which has room to say whose it is, and the largest share of a cache's memory that a
/// value takes.
const VALUE_BYTES_MIN: f64 = 16.0;
const VALUE_SHARE_MAX: f64 = 0.01;
/// Steps until the sizes that fit are found.
const STEPS: usize = 50;

/// Requests for keys from 0 on.
pub(super) struct Stream {
    pub name: &'static str,
    pub requests: Vec<u32>,
    /// Bytes of each key's value.
    pub sizes: Vec<u32>,
}

/// What an item takes.
pub(super) fn item_bytes(value: u32) -> u64 {
    u64::from(value) + KEY_BYTES as u64 + HEADER_BYTES
}

impl Stream {
    /// A stream of keys that may be any numbers: they are numbered in the order in which each comes first.
    pub fn of_keys(name: &'static str, keys: &[u64], mut size: impl FnMut(usize, u64) -> u32) -> Stream {
        let mut numbers = std::collections::HashMap::new();
        let mut sizes = Vec::new();
        let mut requests = Vec::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            let number = *numbers.entry(*key).or_insert_with(|| {
                sizes.push(size(at, *key));
                sizes.len() as u32 - 1
            });
            requests.push(number);
        }
        Stream { name, requests, sizes }
    }

    /// The sizes, all made so many times as long that a share of all items is just so many bytes.
    pub fn scaled(&self, share: f64, cache_bytes: u64) -> Vec<u32> {
        let longest = cache_bytes as f64 * VALUE_SHARE_MAX;
        let by = |factor: f64| {
            let scale = move |size: &u32| (f64::from(*size) * factor).clamp(VALUE_BYTES_MIN, longest) as u32;
            self.sizes.iter().map(scale)
        };
        let wanted = cache_bytes as f64 / share;
        let (mut low, mut high) = (1e-6, 1e6);
        for _ in 0..STEPS {
            let middle = f64::sqrt(low * high);
            let bytes: u64 = by(middle).map(item_bytes).sum();
            if (bytes as f64) < wanted { low = middle } else { high = middle }
        }
        by(high).collect()
    }

    /// Only the first so many requests.
    pub fn cut(mut self, requests: usize) -> Stream {
        self.requests.truncate(requests);
        let keys: Vec<u64> = self.requests.iter().map(|key| u64::from(*key)).collect();
        Stream::of_keys(self.name, &keys, |_, key| self.sizes[key as usize])
    }
}

/// Streams that are made up, the same each time, for a cache that has room for a share of all keys. So many
/// requests.
pub(super) fn made_up(share: f64, requests: usize) -> Vec<Stream> {
    let keys = (requests / 5).max(100) as u64;
    vec![drifting(keys, requests), looping(keys, share, requests), mixed(keys, requests)]
}

/// Popularity by Zipf, where a popular key gives its place to another one from time to time: half of them
/// until the end.
fn drifting(keys: u64, requests: usize) -> Stream {
    let mut numbers = Numbers(61);
    let ranks = Numbers(62).popular(keys / 2, requests);
    let mut key_of_rank: Vec<u64> = (0..keys / 2).collect();
    let every = (requests as u64 / (keys / 2)).max(1);
    let mut asked = Vec::with_capacity(requests);
    for (at, rank) in (0..).zip(ranks) {
        if at % every == every - 1 {
            let place = numbers.next() % (keys / 2);
            key_of_rank[place as usize] = keys / 2 + at;
        }
        asked.push(key_of_rank[rank as usize]);
    }
    Stream::of_keys("drift", &asked, |_, _| 500)
}

/// A loop over a tenth more keys than the cache has room for, and every fifth request for another key by
/// Zipf.
fn looping(keys: u64, share: f64, requests: usize) -> Stream {
    let around = (keys as f64 * share * 1.1) as u64;
    let others = Numbers(63).popular(keys - around, requests);
    let mut step = 0;
    let mut ask = |(at, other): (usize, u64)| {
        if at % 5 == 4 {
            return around + other;
        }
        step += 1;
        step % around
    };
    let asked: Vec<u64> = others.into_iter().enumerate().map(&mut ask).collect();
    let mut stream = Stream::of_keys("loop", &asked, |_, _| 500);
    // Those that were never asked for count, since the cache is a share of all.
    stream.sizes.resize(keys as usize, 500);
    stream
}

/// Popularity by Zipf, and sizes from 32 bytes to 32 KiB, short ones more often, whatever the popularity.
fn mixed(keys: u64, requests: usize) -> Stream {
    let asked = Numbers(64).popular(keys, requests);
    let mut numbers = Numbers(65);
    Stream::of_keys("sizes", &asked, |_, _| (32.0 * 2f64.powf(10.0 * numbers.share())) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_numbered_as_they_come() {
        let stream = Stream::of_keys("t", &[70, 50, 70, 90], |at, key| at as u32 * 1000 + key as u32);
        assert_eq!((&stream.requests[..], &stream.sizes[..]), (&[0, 1, 0, 2][..], &[70, 1050, 3090][..]));
        let cut = stream.cut(2);
        assert_eq!((&cut.requests[..], &cut.sizes[..]), (&[0, 1][..], &[70, 1050][..]));
    }

    #[test]
    fn sizes_are_scaled_until_a_share_of_them_fits() {
        for share in [0.01, 0.3] {
            for stream in made_up(share, 100_000) {
                let sizes = stream.scaled(share, 16 << 20);
                let bytes: u64 = sizes.iter().map(|size| item_bytes(*size)).sum();
                let found = (16 << 20) as f64 / bytes as f64;
                assert!((found / share - 1.0).abs() < 0.02, "{}: {found} is not {share}", stream.name);
                assert_eq!(sizes.len(), stream.sizes.len());
            }
        }
    }

    #[test]
    fn a_made_up_stream_is_the_same_each_time() {
        let [one, other] = [made_up(0.1, 5000), made_up(0.1, 5000)];
        for (one, other) in one.iter().zip(&other) {
            assert_eq!((one.requests.len(), &one.requests), (5000, &other.requests));
            assert!(
                one.sizes == other.sizes && one.requests.iter().all(|key| (*key as usize) < one.sizes.len())
            );
        }
        assert_eq!(one.iter().map(|stream| stream.name).collect::<Vec<_>>(), ["drift", "loop", "sizes"]);
    }
}
