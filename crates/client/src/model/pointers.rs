//! Model of the table of pointers: two writers and a reader, without any order among them. A pointer read may
//! be a mixture of two, by design; but its location is one that somebody put for a hash of this tag, and its
//! incarnation one that somebody put there, or the zero that no object has.

use kelix_image::Span;
use kelix_image::model::{explore, share, spawn};
use kelix_types::limits::POINTER_TABLE_BYTES;
use kelix_types::{Guardian, Incarnation, KeyHash, Location, Place, SizeClass};

use crate::pointers::{Pointer, PointerCache};

/// The first set of the table.
const SET_WORDS: usize = 8;

/// Two keys of one set, with different tags.
const HASHES: [KeyHash; 2] = [KeyHash(1), KeyHash(2)];

/// What a look at the table told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Seen {
    Nothing,
    /// The pointer of this number.
    Whole(u64),
    /// The place of one, the incarnation of another.
    Mixture,
}

fn pointer(number: u64) -> Pointer {
    Pointer {
        location: Location::new(Place(number * 64), SizeClass(2)),
        incarnation: Incarnation::first_of_term(number),
    }
}

/// Looks for the pointer of a hash, for which these were put and no others.
fn look(cache: &PointerCache, hash: KeyHash, put: &[u64]) -> (Seen, Option<Pointer>) {
    let Some(found) = cache.get(hash) else { return (Seen::Nothing, None) };
    let number = found.location.place().0 / 64;
    assert!(put.contains(&number) && found.location == pointer(number).location, "{found:?} was never put");
    let whole = found.incarnation == pointer(number).incarnation;
    let known = (1..=3).any(|number| found.incarnation == pointer(number).incarnation);
    assert!(known || found.incarnation == Incarnation(0), "nobody has this name: {found:?}");
    assert!(!Guardian(found.incarnation.dead().0).is_live());
    (if whole { Seen::Whole(number) } else { Seen::Mixture }, Some(found))
}

/// Three views of an empty table, whose first set is what threads share. What the model stores there is
/// loom's to keep, so one table does for all executions.
fn views(table: &Span) -> [PointerCache; 3] {
    share(table.words().part(0, SET_WORDS));
    [(), (), ()].map(|()| PointerCache::new(table.clone()))
}

/// Two put a pointer for the same key; one of them forgets its own again. A reader takes what it finds for
/// stale.
#[test]
fn pointers_of_one_key_are_whole_or_harmless() {
    let table = Span::private(POINTER_TABLE_BYTES);
    let outcomes = explore("cached pointers of one key", 2, move || {
        let [first, second, reader] = views(&table);
        let threads = [
            spawn(move || {
                first.put(HASHES[0], pointer(1));
                first.forget(HASHES[0], pointer(1));
            }),
            spawn(move || second.put(HASHES[0], pointer(2))),
        ];
        let reader = spawn(move || {
            let (seen, found) = look(&reader, HASHES[0], &[1, 2]);
            found.inspect(|found| reader.forget(HASHES[0], *found));
            seen
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        reader.join().unwrap()
    });
    for seen in [Seen::Nothing, Seen::Whole(1), Seen::Whole(2), Seen::Mixture] {
        assert!(outcomes.contains_key(&seen), "{seen:?}: not met");
    }
}

/// The same for two keys of one set, which take each other's place: none is told a pointer put for the other.
#[test]
fn pointers_of_two_keys_stay_apart() {
    let table = Span::private(POINTER_TABLE_BYTES);
    let outcomes = explore("cached pointers of two keys", 2, move || {
        let [first, second, reader] = views(&table);
        let threads = [
            spawn(move || first.put(HASHES[0], pointer(1))),
            spawn(move || {
                second.put(HASHES[1], pointer(2));
                second.put(HASHES[1], pointer(3));
            }),
        ];
        let reader = spawn(move || (look(&reader, HASHES[0], &[1]).0, look(&reader, HASHES[1], &[2, 3]).0));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        reader.join().unwrap()
    });
    for seen in [Seen::Nothing, Seen::Whole(1)] {
        assert!(outcomes.keys().any(|(first, _)| *first == seen), "{seen:?} of the first key: not met");
    }
    for seen in [Seen::Nothing, Seen::Whole(2), Seen::Whole(3), Seen::Mixture] {
        assert!(outcomes.keys().any(|(_, second)| *second == seen), "{seen:?} of the second key: not met");
    }
}

/// A writer learns of an object, at a place where another one stood before, and remembers it over that one's
/// pointer, whose location word is the same. Whoever reads the new incarnation there also sees the object's
/// birth, whichever of the equal location words it has read.
#[test]
fn an_incarnation_that_is_read_was_born_before() {
    let table = Span::private(POINTER_TABLE_BYTES);
    // A word of the table that no key here uses stands for the object.
    let outcomes = explore("births behind cached pointers", 2, move || {
        let [before, writer, reader] = views(&table);
        share(table.words().part(SET_WORDS, 1));
        before.put(HASHES[0], pointer(1));
        let reborn = Pointer { incarnation: pointer(2).incarnation, ..pointer(1) };
        let (birth, seen) = (table.clone(), table.clone());
        let writer = spawn(move || {
            birth.words().store(SET_WORDS, 1);
            writer.put(HASHES[0], reborn);
        });
        let reader = spawn(move || {
            let found = reader.get(HASHES[0]).expect("one of them");
            let born = seen.words().load(SET_WORDS) == 1;
            assert!(born || found != reborn, "an incarnation was known, and its object not born");
            found == reborn
        });
        writer.join().unwrap();
        reader.join().unwrap()
    });
    for new in [false, true] {
        assert!(outcomes.contains_key(&new), "{new}: not met");
    }
}
