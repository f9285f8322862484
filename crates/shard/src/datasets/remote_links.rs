//! Links between shards, while a generation is built: the shard that has the link asks the one that has the
//! target where it stands.
//!
//! Nothing of the target changes before the generation is in force, but it may be moved meanwhile; then the
//! link is stale, and is repaired by the first who follows it, as any other.

use std::collections::HashMap;
use std::ops::Range;

use kelix_types::{Guardian, Incarnation, KeyHash, Location, TableId, mark};

use super::Order;
use crate::store::Store;

/// Links that may be under way to other shards. Who builds waits for answers when there are more.
const ASKED_MAX: u64 = 1 << 16;

/// Where a link stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPlace {
    /// The item.
    pub item: Location,
    /// Which one stands there.
    pub incarnation: Incarnation,
    /// The word of its location, counted from the item's first.
    pub word: usize,
}

/// A target that is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The link.
    pub link: LinkPlace,
    /// The target's table.
    pub table: TableId,
    /// The hash of its key.
    pub hash: KeyHash,
    /// Where its key stands in the question.
    pub key: Range<usize>,
}

/// Targets that one shard asks another for.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Question {
    /// The targets.
    pub targets: Vec<Asked>,
    /// Their keys.
    pub keys: Vec<u8>,
}

/// Location word and incarnation of a target, if it is there.
pub type Target = Option<(u64, u64)>;

/// What became of questions about the links of a generation.
#[derive(Clone, Copy, Default)]
struct Questions {
    unanswered: u64,
    /// Links whose targets are not there, not told yet.
    dangling: u64,
}

impl Question {
    pub fn add(&mut self, link: LinkPlace, (table, hash, key): (TableId, KeyHash, &[u8])) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.targets.push(Asked { link, table, hash, key: start..self.keys.len() });
    }
}

/// Questions about links of generations that are built here.
#[derive(Default)]
pub(crate) struct RemoteLinks {
    questions: HashMap<u64, Questions>,
}

impl RemoteLinks {
    /// Whether there are so many questions under way that no more should be asked.
    pub fn asks_enough(&self, generation: u64) -> bool {
        self.questions.get(&generation).is_some_and(|questions| questions.unanswered >= ASKED_MAX)
    }

    /// Asks other shards, by number.
    pub fn ask(&mut self, generation: u64, from: usize, questions: Vec<Question>, orders: &mut Vec<Order>) {
        for (to, question) in questions.into_iter().enumerate() {
            if !question.targets.is_empty() {
                let known = self.questions.entry(generation).or_default();
                known.unanswered += question.targets.len() as u64;
                orders.push(Order::Ask { generation, from, to, question });
            }
        }
    }

    /// How many questions about the links of a generation are not answered yet, and how many targets were
    /// told not to be there since this was asked last.
    pub fn answered(&mut self, generation: u64) -> (u64, u64) {
        let Some(questions) = self.questions.get_mut(&generation) else { return (0, 0) };
        (questions.unanswered, std::mem::take(&mut questions.dangling))
    }

    /// A generation is complete, or given up.
    pub fn end(&mut self, generation: u64) {
        self.questions.remove(&generation);
    }

    /// Generations about whose links there are questions.
    pub fn len(&self) -> usize {
        self.questions.len()
    }

    /// Writes the locations that another shard told.
    pub fn take_told(&mut self, store: &mut Store, generation: u64, told: &[(LinkPlace, Target)]) {
        let mut dangling = 0;
        for (LinkPlace { item, incarnation, word }, target) in told {
            // Its segment may be retired since.
            let slot = store.image.map().words(item.place(), item.class().words());
            let slot = slot.filter(|slot| Guardian(slot.load(0)) == incarnation.live());
            match (slot, target) {
                (Some(_), Some((location, incarnation))) => {
                    mark!("link between shards of a generation");
                    let slot = store.image.change_slot(*item);
                    slot.publish(*word, *location);
                    slot.publish(word + 1, *incarnation);
                }
                (None, _) => mark!("item with a link to another shard was moved"),
                (_, None) => dangling += 1,
            }
        }
        if let Some(questions) = self.questions.get_mut(&generation) {
            // Whoever builds may have begun to count anew.
            questions.unanswered = questions.unanswered.saturating_sub(told.len() as u64);
            questions.dangling += dangling;
        }
    }
}

/// Answers another shard.
pub(super) fn answer(store: &Store, generation: u64, to: usize, question: &Question) -> Order {
    let Question { targets, keys } = question;
    for Asked { table, hash, key, .. } in targets {
        store.index.prefetch(&store.image, *hash, *table, &keys[key.clone()]);
    }
    let told = targets
        .iter()
        .map(|Asked { link, table, hash, key }| (*link, store.target_of(*table, *hash, &keys[key.clone()])));
    let told = told.collect();
    Order::Tell { generation, to, told }
}
