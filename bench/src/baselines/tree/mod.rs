//! A B+tree in a server's memory that its clients read by themselves, with private copies of as many inner
//! nodes as they have room for, as in Cell and DrTM-Tree: what ordered tables could have been without models,
//! for `kelix bench ordered`.
//!
//! It stands behind the fabrics of the product: [`Here`] reads it by loads, [`Remote`] by READs that the
//! product's agent answers. It never changes, and is what a tree is after its keys came in any order
//! ([`grown`]). All the same each reader does what it had to if it changed: nodes are objects with a
//! guardian, copies and inner nodes are guesses, and the leaf proves itself by its guardian, by the stamps of
//! its READ and by its keys (docs/read-rule.md).
//!
//! ```text
//! inner node, as many words as its shape says     leaf, 40 words as in ordered tables
//!   word 0  guardian                                word 0  guardian
//!        1  children                                     1  keys
//!        2  first keys of its children, sorted           2  keys, sorted
//!        .  children, two a word                        18  values
//!                                                       34  first key, last key
//! child: place / 64
//! ```
//!
//! Copies stand at places of their own, which the server has no memory for, and name the copies of their
//! children. So the way through copies takes no search for them, and a cache takes no bytes but those of its
//! nodes.

mod agent;
mod cache;
mod grown;
mod here;
mod node;
mod remote;
mod server;

pub(crate) use here::Here;
pub(crate) use remote::Remote;
pub(crate) use server::TreeServer;

/// What reads have cost.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub gets: u64,
    pub reads: u64,
    pub read_bytes: u64,
}

impl Cost {
    /// Counts so many READs of so many words.
    fn note(&mut self, reads: u64, words: usize) {
        self.reads += reads;
        self.read_bytes += reads * words as u64 * 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Numbers, Walk};

    /// Whatever is copied, each number has its value, and copies have no more bytes than they may have.
    #[test]
    fn every_number_is_found_with_any_copies() {
        const KEYS: u64 = 20_000;
        let (walk, value_of) = (Walk::over(KEYS), |key: u64| Numbers(key).next());
        let keys: Vec<u64> = (0..KEYS).map(|step| walk.step_of(step) * 7).collect();
        let values: Vec<u64> = keys.iter().map(|key| value_of(*key)).collect();
        let server = TreeServer::start(&keys, value_of, 320).unwrap();
        let all = server.inner_bytes();
        for (bytes, reads) in [(0, 4.0), (400, 3.0), (all / 2, 1.4), (all, 1.0), (usize::MAX, 1.0)] {
            let (mut here, mut remote) = (server.here(bytes).unwrap(), server.remote(bytes).unwrap());
            let mut found = Vec::new();
            for _ in 0..2 {
                (here.cost, remote.cost) = (Cost::default(), Cost::default());
                here.get_many(&keys, &mut found).unwrap();
                assert!(found == values);
                remote.get_many(&keys, &mut found).unwrap();
                assert!(found == values);
            }
            assert_eq!(here.cost.gets, KEYS);
            for (copied, cost) in [(here.cache_bytes(), here.cost), (remote.cache_bytes(), remote.cost)] {
                assert!(copied <= bytes && copied + 320 > bytes.min(all), "{copied} bytes of {bytes}");
                let each = cost.reads as f64 / cost.gets as f64;
                assert!((each - reads).abs() < 0.3, "{each} READs with {bytes} bytes");
            }
            assert!(here.get_many(&[3], &mut found).unwrap_err().contains("has no 3"));
        }
    }
}
