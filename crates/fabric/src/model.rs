//! The model of a READ beside the end of the term in force: what is stored behind that end comes with
//! another term.

use std::sync::Arc;

use kelix_image::model::{explore, share, spawn};
use kelix_image::{Header, MemoryMap, Span, header_word};
use kelix_types::Place;

use crate::Direct;

#[test]
fn what_is_stored_behind_the_end_of_a_term_comes_with_another_term() {
    let outcomes = explore("a READ beside the end of a term", 3, || {
        let (memory, header, page) = (Span::private(4096), Span::private(Header::BYTES), Span::private(64));
        page.words().store(0, 1);
        share(memory.words().part(0, 1));
        share(page.words().part(0, 1));
        let mut map = MemoryMap::default();
        map.add(0, memory.clone());
        let (map, epoch) = (Arc::new(map), header.word(header_word::EPOCH));
        let direct = Direct { map, epoch, authority: page.word(0).into() };
        let successor = spawn(move || {
            page.words().publish(0, 2);
            memory.words().publish(0, 1);
        });
        let reader = spawn(move || {
            let mut word = [0];
            let sampled = direct.read(Place(0), &mut word).expect("mapped memory");
            (word[0], sampled.term)
        });
        successor.join().unwrap();
        let (word, term) = reader.join().unwrap();
        assert!(word == 0 || term == 2, "a word of the next term, taken for one of this term");
        (word, term)
    });
    assert!([(0, 1), (0, 2), (1, 2)].iter().all(|outcome| outcomes.contains_key(outcome)));
}
