//! Pages of a scan: the keys of one leaf of numbers in their order.

use kelix_fabric::Direct;
use kelix_image::words::Words;
use kelix_image::{ItemView, Kind};
use kelix_index::{LEAF_HEADER_WORDS, LeafHeader, TABLE_HEADER_WORDS, leaf_at};
use kelix_types::limits::{LEAF_SLOTS, READ_EPOCHS_MAX};
use kelix_types::{Guardian, Location, Place, TableId, mark};

use crate::read::{ShardReader, Verdict, judge};

/// The keys of a leaf as they were at one moment.
pub(crate) struct LeafPage {
    entries: [[u64; 2]; LEAF_SLOTS],
    count: usize,
    /// The stamp from before its words.
    before: u64,
    /// The first and the last number that it may hold.
    pub low: u64,
    pub high: u64,
    /// The leaf behind it.
    next: Option<Place>,
}

/// Where the next page of a scan probably is.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Hint {
    /// Its leaf.
    leaf: Option<Place>,
    /// Its rank in a translation table with so many leaves, which names those to come.
    rank: usize,
    table: Option<(Place, usize)>,
}

/// So many leaves ahead of the one that is read are asked for.
const AHEAD: usize = 3;

impl LeafPage {
    /// Key words and second words in their order.
    pub fn entries(&self) -> &[[u64; 2]] {
        &self.entries[..self.count]
    }

    /// Takes a leaf from where it stands, if it is live and holds this number.
    fn take(direct: &Direct, term: u64, leaf: Words<'_>, table: TableId, number: u64) -> Option<LeafPage> {
        let before = direct.begin();
        let guardian = Guardian(leaf.load_acquire(0));
        let mut words = [0; Kind::LEAF_WORDS];
        leaf.copy_out(0, &mut words);
        let header = LeafHeader(*words.first_chunk::<LEAF_HEADER_WORDS>().expect("a header"));
        let is_it = header.table() == table && header.holds_number(number);
        let verdict = judge(guardian, direct.sampled(before), READ_EPOCHS_MAX, term);
        if !is_it || verdict != Verdict::Valid {
            return None;
        }
        let mut page = LeafPage {
            entries: [[0; 2]; LEAF_SLOTS],
            count: 0,
            before,
            low: header.first_number(),
            high: header.last_number(),
            next: header.next(),
        };
        for slot in words[LEAF_HEADER_WORDS..].chunks_exact(2) {
            if header.entry([slot[0], slot[1]]).is_some() {
                page.insert([slot[0], slot[1]]);
            }
        }
        Some(page)
    }

    #[inline]
    fn insert(&mut self, entry: [u64; 2]) {
        let mut at = self.count;
        while at > 0 && self.entries[at - 1][0] > entry[0] {
            self.entries[at] = self.entries[at - 1];
            at -= 1;
        }
        self.entries[at] = entry;
        self.count += 1;
    }
}

impl ShardReader {
    /// The page that a number is on: of the leaf that is hinted at, if that holds it, else by the models. `None`: it was not
    /// found. The hint is for the next page then.
    pub fn read_page(&mut self, table: TableId, number: u64, hint: &mut Hint) -> Option<LeafPage> {
        let ShardReader { term, direct, ordered, .. } = self;
        let direct = direct.as_ref()?;
        let leaf = |place: Option<Place>| direct.map.words(place?, Kind::LEAF_WORDS);
        let ask_for = |hint: &Hint, ahead: usize| {
            let (table, leaves) = hint.table.filter(|(_, leaves)| hint.rank + ahead < *leaves)?;
            let entries = direct.map.words(table, TABLE_HEADER_WORDS + leaves)?;
            leaf(leaf_at(entries, hint.rank + ahead))?.prefetch_all();
            Some(())
        };
        let hinted = leaf(hint.leaf).and_then(|leaf| LeafPage::take(direct, *term, leaf, table, number));
        let page = match hinted {
            Some(page) => {
                ordered.leaves += 1;
                page
            }
            None => {
                let way = ordered.way_to(direct, table, number)?;
                let translation = way.sub_model.table.map(|table| (table, way.sub_model.leaves));
                *hint = Hint { leaf: None, rank: way.guess(true).rank, table: translation };
                for ahead in 1..AHEAD {
                    let _ = ask_for(hint, ahead);
                }
                let take = |leaf| LeafPage::take(direct, *term, leaf, table, number);
                way.leaves(direct.map.view(), true, &mut ordered.leaves, take)?
            }
        };
        if ask_for(hint, AHEAD).is_none() {
            leaf(page.next).into_iter().for_each(|leaf| leaf.prefetch_all());
        }
        hint.leaf = page.next;
        hint.rank += 1;
        Some(page)
    }

    /// Takes the item of an entry of a page into `into`. `None`: it is not valid; take the page again.
    pub fn read_item_of(
        &mut self,
        table: TableId,
        page: &LeafPage,
        [number, second]: [u64; 2],
        into: &mut Vec<u64>,
    ) -> Option<Location> {
        let ShardReader { term, direct, ordered, .. } = self;
        let direct = direct.as_ref()?;
        let location = Location::from_word(second)?;
        let words = location.class().words();
        let slot = direct.map.words(location.place(), words)?;
        into.resize(words, 0);
        into[0] = slot.load_acquire(0);
        let guardian = Guardian(into[0]);
        slot.part(1, words - 1).copy_out(0, &mut into[1..]);
        let sampled = direct.sampled(page.before);
        ordered.items += 1;
        ordered.item_bytes += words as u64 * 8;
        let valid = judge(guardian, sampled, READ_EPOCHS_MAX, *term) == Verdict::Valid;
        let is_it = ItemView::new(into).is_some_and(|view| view.is_for(table, &number.to_be_bytes()));
        if !valid || !is_it {
            mark!("item of a scan was not what its leaf said");
        }
        (valid && is_it).then_some(location)
    }
}
