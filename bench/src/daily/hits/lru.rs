//! Exact least recently used of so many bytes: what caches are compared with, as arithmetic.

/// No key.
const NONE: u32 = u32::MAX;

/// Keys in the order of their last use, and how many bytes they are.
pub(super) struct Lru<'s> {
    bytes: &'s [u64],
    most: u64,
    held: u64,
    /// Neighbours of a key that is there: the next older, and the next younger.
    older: Vec<u32>,
    younger: Vec<u32>,
    is_there: Vec<bool>,
    oldest: u32,
    youngest: u32,
}

impl<'s> Lru<'s> {
    /// An empty one with so many bytes, for keys that take these.
    pub fn new(bytes: &'s [u64], most: u64) -> Lru<'s> {
        let nothing = vec![NONE; bytes.len()];
        let is_there = vec![false; bytes.len()];
        let (older, younger) = (nothing.clone(), nothing);
        Lru { bytes, most, held: 0, older, younger, is_there, oldest: NONE, youngest: NONE }
    }

    fn remove(&mut self, key: u32) {
        let (older, younger) = (self.older[key as usize], self.younger[key as usize]);
        match older {
            NONE => self.oldest = younger,
            _ => self.younger[older as usize] = younger,
        }
        match younger {
            NONE => self.youngest = older,
            _ => self.older[younger as usize] = older,
        }
        self.is_there[key as usize] = false;
        self.held -= self.bytes[key as usize];
    }

    fn add(&mut self, key: u32) {
        (self.older[key as usize], self.younger[key as usize]) = (self.youngest, NONE);
        match self.youngest {
            NONE => self.oldest = key,
            youngest => self.younger[youngest as usize] = key,
        }
        self.youngest = key;
        self.is_there[key as usize] = true;
        self.held += self.bytes[key as usize];
    }

    /// Gets a key, and sets it if it is not there. Whether it was.
    pub fn ask(&mut self, key: u32) -> bool {
        let hit = self.is_there[key as usize];
        if hit {
            self.remove(key);
        } else if self.bytes[key as usize] > self.most {
            return false;
        }
        while self.held + self.bytes[key as usize] > self.most {
            self.remove(self.oldest);
        }
        self.add(key);
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Numbers;

    #[test]
    fn it_is_what_a_list_says() {
        let bytes: Vec<u64> = (0..100).map(|key| 1 + key % 7 * 3).collect();
        let mut lru = Lru::new(&bytes, 120);
        let mut list: Vec<u32> = Vec::new();
        let mut hits = 0;
        for key in Numbers(5).popular(100, 20_000).into_iter().map(|key| key as u32) {
            let place = list.iter().position(|other| *other == key);
            place.map(|place| list.remove(place));
            list.push(key);
            while list.iter().map(|key| bytes[*key as usize]).sum::<u64>() > 120 {
                list.remove(0);
            }
            assert_eq!(lru.ask(key), place.is_some());
            hits += u64::from(place.is_some());
        }
        assert!((1000..19_000).contains(&hits), "{hits}");
    }

    #[test]
    fn what_is_larger_than_all_is_never_there() {
        let mut lru = Lru::new(&[5, 3], 4);
        assert_eq!([1, 0, 1, 0].map(|key| lru.ask(key)), [false, false, true, false]);
    }
}
