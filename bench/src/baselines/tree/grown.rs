//! What becomes of nodes while keys come in any order and each full node is split in the middle.

use std::collections::BTreeMap;

/// The nodes of one level.
pub(super) struct Level {
    /// By the first key that each may hold: as how many before it came to be, and its keys.
    pub nodes: BTreeMap<u64, (usize, Vec<u64>)>,
    /// The first keys in the order in which the nodes came to be: the keys of the level above.
    pub firsts: Vec<u64>,
}

/// The nodes that these keys have got into, in this order, of so many keys at most.
pub(super) fn grown(keys: &[u64], most: usize) -> Level {
    let mut nodes = BTreeMap::from([(0, (0, Vec::new()))]);
    let mut firsts = vec![0];
    for key in keys {
        let (_, (_, inside)) = nodes.range_mut(..=*key).next_back().expect("one that holds all from 0 on");
        inside.insert(inside.partition_point(|one| one < key), *key);
        if inside.len() > most {
            let upper = inside.split_off(inside.len() / 2);
            let first = upper[0];
            nodes.insert(first, (firsts.len(), upper));
            firsts.push(first);
        }
    }
    Level { nodes, firsts }
}
