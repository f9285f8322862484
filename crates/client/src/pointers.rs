//! The cache of remote pointers (HydraDB, sections 4.2.2 and 4.2.4).
//!
//! One table of a fixed size, shared by all processes of a user on a host or private to one client. In shared
//! memory the server has it. Over a network a session has one of its own at first, since many end soon, and puts
//! it on the user's shelf when it has been at work for a while, if nobody else has. It is
//! lock-free in the simplest way: an entry is two words, written one after the other, and nobody minds when
//! they do not belong together, because a pointer is only a guess until the item's guardian, table and key
//! have confirmed it. So a process killed between the two words leaves nothing that blocks or misleads
//! anybody.
//!
//! Whoever reads an incarnation here also sees what happened before it was stored: that the object was born,
//! which the read rule needs (docs/read-rule.md, Lemma 3). The location beside it may be older or younger and
//! needs no order of its own.
//!
//! ```text
//! set: 4 entries of 16 bytes, one cache line, chosen by the key hash
//! entry word 0  [ tag 16 | location 47 ]     word 1  incarnation
//! ```

use kelix_image::Span;
use kelix_image::words::Words;
use kelix_types::{Error, ErrorKind, Incarnation, KeyHash, Location, Result, limits::POINTER_TABLE_BYTES};

use crate::shelf::Shelf;

/// Of the table, for processes of another build: counts up when it changes.
const LAYOUT: u32 = 1;
const WAYS: usize = 4;
const SET_WORDS: usize = WAYS * 2;
const SETS: u64 = POINTER_TABLE_BYTES / (SET_WORDS as u64 * 8);

/// A cached pointer: where an item stood and which one it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pointer {
    pub location: Location,
    pub incarnation: Incarnation,
}

pub(crate) struct PointerCache {
    table: Span,
    /// What the table is to be called on a shelf, and is not yet.
    to_be_shared: Option<String>,
}

impl PointerCache {
    pub fn new(table: Span) -> PointerCache {
        assert_eq!(table.bytes(), POINTER_TABLE_BYTES);
        PointerCache { table, to_be_shared: None }
    }

    /// The one that the user's sessions on this host have for a life of a store; a session's own as long as
    /// there is none.
    pub fn of_life(life: u64, shelf: &Shelf) -> Result<PointerCache> {
        let name = format!("pointers-{LAYOUT}-{life:016x}");
        match Self::on_shelf(&name, shelf) {
            Some(table) => Ok(PointerCache::new(table)),
            None => {
                let to_be_shared = (!matches!(shelf, Shelf::Private)).then_some(name);
                Ok(PointerCache { to_be_shared, ..PointerCache::new(Self::private()?) })
            }
        }
    }

    fn on_shelf(name: &str, shelf: &Shelf) -> Option<Span> {
        shelf.find(name).filter(|table| table.bytes() == POINTER_TABLE_BYTES)
    }

    /// Shares what is this session's own so far, if there is a shelf; or goes over to what somebody has put
    /// there meanwhile. It is tried once.
    pub fn share(&mut self, shelf: &Shelf) {
        let Some(name) = self.to_be_shared.take() else { return };
        let own = &self.table;
        let copy = |words: Words<'_>| {
            for index in 0..words.count() {
                // Most of it is nothing, and is nothing there already.
                let word = own.words().load(index);
                if word != 0 {
                    words.store(index, word);
                }
            }
        };
        // A table is looked for first, since memory to be filled in vain is much.
        let table = Self::on_shelf(&name, shelf).or_else(|| shelf.put(&name, POINTER_TABLE_BYTES, copy));
        if let Some(table) = table.filter(|table| table.bytes() == POINTER_TABLE_BYTES) {
            self.table = table;
        }
    }

    /// Memory for a session's own.
    pub fn private() -> Result<Span> {
        Span::try_private(POINTER_TABLE_BYTES).ok_or_else(|| {
            let context =
                format!("no memory for {POINTER_TABLE_BYTES} bytes of cached pointers; see `ulimit -v`");
            Error::new(ErrorKind::System, "connect", context)
        })
    }

    fn set(hash: KeyHash) -> usize {
        // Bits that neither the tag nor, with many keys, the bucket order repeats.
        ((hash.0 >> 16) % SETS) as usize * SET_WORDS
    }

    fn tag(hash: KeyHash) -> u64 {
        (hash.0 & 0xffff) << 48
    }

    /// Asks the processor for where the pointer of a hash is.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.table.words().part(Self::set(hash), SET_WORDS).prefetch_line();
    }

    /// The pointer cached for a hash, if any.
    #[inline]
    pub fn get(&self, hash: KeyHash) -> Option<Pointer> {
        let set = self.table.words().part(Self::set(hash), SET_WORDS);
        (0..WAYS).find_map(|way| {
            let word = set.load(way * 2);
            if word & Location::MASK == 0 || (word ^ Self::tag(hash)) >> 48 != 0 {
                return None;
            }
            // SYNC: pairs with the incarnation's store in `put`.
            let incarnation = Incarnation(set.load_acquire(way * 2 + 1));
            Location::from_word(word).map(|location| Pointer { location, incarnation })
        })
    }

    /// Remembers a pointer: over the same hash's entry, else a free one, else any.
    #[inline]
    pub fn put(&self, hash: KeyHash, pointer: Pointer) {
        let set = self.table.words().part(Self::set(hash), SET_WORDS);
        let mut chosen = (hash.0 >> 60) as usize % WAYS;
        for way in 0..WAYS {
            let word = set.load(way * 2);
            if word & Location::MASK != 0 && (word ^ Self::tag(hash)) >> 48 == 0 {
                chosen = way;
                break;
            }
            if word == 0 {
                chosen = way;
            }
        }
        let word = pointer.location.word() | Self::tag(hash);
        if set.load(chosen * 2) != word || set.load(chosen * 2 + 1) != pointer.incarnation.0 {
            // SYNC: pairs with its load in `get`, under whichever location: an equal one may be there
            // already.
            set.publish(chosen * 2 + 1, pointer.incarnation.0);
            set.publish(chosen * 2, word);
        }
    }

    /// Forgets a pointer that turned out stale, unless somebody has replaced it already.
    pub fn forget(&self, hash: KeyHash, pointer: Pointer) {
        let set = self.table.words().part(Self::set(hash), SET_WORDS);
        for way in 0..WAYS {
            if set.load(way * 2) == pointer.location.word() | Self::tag(hash)
                && set.load(way * 2 + 1) == pointer.incarnation.0
            {
                set.store(way * 2, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelix_types::{Place, SizeClass};

    /// Sessions of one life of a store over a network share a table as soon as one of them has been at work for
    /// a while, with what that had learnt; others do not.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_table_of_a_life_is_shared_with_what_is_in_it() {
        let folder = std::env::temp_dir().join(format!("kelix-pointers-{}", std::process::id()));
        let shelf = Shelf::OfUser(kelix_fabric::shm::Shelf::at(folder.clone()).unwrap());
        let pointer =
            Pointer { location: Location::new(Place(640), SizeClass(2)), incarnation: Incarnation(9) };
        let [hash, other] = [KeyHash(0x1_0001), KeyHash(0x5_0002)];
        let open = |life, shelf: &Shelf| PointerCache::of_life(life, shelf).unwrap();
        let (mut first, mut second) = (open(1, &shelf), open(1, &shelf));
        first.put(hash, pointer);
        second.put(other, pointer);
        assert_eq!((second.get(hash), open(1, &shelf).get(hash)), (None, None), "nobody shares yet");
        first.share(&shelf);
        assert_eq!((first.get(hash), open(1, &shelf).get(hash)), (Some(pointer), Some(pointer)));
        second.share(&shelf);
        assert_eq!(second.get(hash), Some(pointer));
        second.put(other, pointer);
        assert_eq!(first.get(other), Some(pointer));
        // Another life, and who keeps to himself.
        let (mut private, mut another) = (open(1, &Shelf::Private), open(2, &shelf));
        private.share(&Shelf::Private);
        another.share(&shelf);
        assert_eq!((private.get(hash), another.get(hash)), (None, None));
        // Memory of another length is not taken.
        let odd = shelf.put(&format!("pointers-{LAYOUT}-{:016x}", 3), 4096, |_| ()).unwrap();
        let mut odd_one = open(3, &shelf);
        odd_one.share(&shelf);
        odd_one.put(hash, pointer);
        assert_eq!(odd_one.get(hash), Some(pointer));
        drop((first, second, another, odd));
        std::fs::remove_dir(folder).expect("nothing is left");
    }

    #[test]
    fn remembers_replaces_and_forgets() {
        let cache = PointerCache::new(Span::private(POINTER_TABLE_BYTES));
        let pointer = |n: u64| Pointer {
            location: Location::new(Place(n * 64), SizeClass(2)),
            incarnation: Incarnation(n),
        };
        let hash = |n: u64| KeyHash(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        assert_eq!(cache.get(hash(1)), None);
        for n in 1..1000 {
            cache.put(hash(n), pointer(n));
        }
        let kept = (1..1000).filter(|n| cache.get(hash(*n)) == Some(pointer(*n))).count();
        assert!(kept > 990, "{kept} of 999 kept in an almost empty table");
        cache.put(hash(5), pointer(7));
        assert_eq!(cache.get(hash(5)), Some(pointer(7)));
        cache.forget(hash(5), pointer(5));
        assert_eq!(cache.get(hash(5)), Some(pointer(7)), "a newer pointer is not forgotten");
        cache.forget(hash(5), pointer(7));
        assert_eq!(cache.get(hash(5)), None);
    }
}
