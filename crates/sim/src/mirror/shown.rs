//! What mirrors have shown, and whether what was read there agrees with it.
//!
//! What a mirror shows of a key is written down as a history of its own: each record that changes the key is
//! a write, from when the mirror begins to apply the record until it has. Reads of clients that only read have
//! to be linearizable with these writes: so each of them sees what the mirror had at one moment of the read.
//! Those of clients that write, too, which read the primary now and then, are judged by
//! [`crate::check::sessions`], and so are the cuts up to which mirrors apply.

use std::collections::{BTreeMap, HashMap, HashSet};

use kelix_types::TableId;
use kelix_wire::View;

use crate::check::linear;
use crate::check::sessions::Past;
use crate::history::{Action, Operation, ValueId};
use crate::scheduler::Shared;

/// The number of whoever writes, in a mirror's history.
const WRITER: u32 = u32::MAX;

/// A change of a key: since when it may be seen, and when it was there. What the key has then tells a version
/// or an inline value.
#[derive(Clone)]
pub struct Change {
    pub(super) key: u64,
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    pub(super) now: Option<u64>,
}

impl Change {
    /// Whether it may have happened during a read.
    fn is_during(&self, read: &Operation) -> bool {
        self.until_ns >= read.called_ns && read.returned_ns.is_none_or(|until_ns| self.from_ns <= until_ns)
    }
}

/// All records up to a cut have been applied: then so many changes had been made, of all mirrors.
#[derive(Clone, Copy)]
pub struct Cut {
    /// The term in which the store began.
    store: u64,
    changes: usize,
}

/// What all mirrors of a run have shown.
#[derive(Clone)]
pub struct Shown {
    /// The table, and its keys that are looked at: so many from 0 on.
    pub table: TableId,
    /// See above.
    pub keys: u64,
    /// For how long a mirror may be read without hearing of its primary.
    pub max_lag_ns: Option<u64>,
    /// What became of the keys.
    pub changes: Shared<Vec<Change>>,
    /// Up to where nothing was missing.
    pub cuts: Shared<Vec<Cut>>,
    /// Where keys stand, by the term in which their store began.
    pub views: Shared<BTreeMap<u64, View>>,
}

impl Shown {
    /// Of a table, so many of whose keys are looked at.
    pub fn new(table: TableId, keys: u64, max_lag_ns: Option<u64>) -> Shown {
        let (changes, cuts, views) = Default::default();
        Shown { table, keys, max_lag_ns, changes, cuts, views }
    }

    /// A mirror has applied all that counts.
    pub fn note_cut(&self, store: u64) {
        let changes = self.changes.borrow().len();
        self.cuts.borrow_mut().push(Cut { store, changes });
    }

    /// Names the shard of a key, in whichever store.
    pub fn shard_of(&self, key: u64) -> u64 {
        let (store, bytes) = (key >> 32, (key & 0xffff_ffff).to_be_bytes());
        let views = self.views.borrow();
        let Some(view) = views.get(&store) else { return store << 32 };
        let hash = kelix_types::key_hash(view.hash_seed, self.table, &bytes);
        store << 32 | view.shard_of(self.table, hash) as u64
    }

    /// Looks at what was there at each cut: with a write there have to be all writes that had been answered
    /// before it was called, on whichever shards.
    pub fn judge_cuts(
        &self,
        past: &Past<'_>,
        learnt: &HashMap<(u64, kelix::Version), ValueId>,
    ) -> std::result::Result<(), String> {
        let (changes, cuts) = (self.changes.borrow(), self.cuts.borrow());
        let stores: Vec<u64> = self.views.borrow().keys().copied().collect();
        for store in stores {
            let absent = (0..self.keys).map(|key| (store << 32 | key, None));
            let mut values: BTreeMap<u64, Option<ValueId>> = absent.collect();
            let (mut seen_ns, mut at) = (0, 0);
            for cut in cuts.iter().filter(|cut| cut.store == store) {
                let new = &changes[at..cut.changes];
                at = cut.changes;
                for change in new.iter().filter(|change| change.key >> 32 == store) {
                    let value = change.now.map(|now| match self.table.kind().has_items() {
                        true => learnt.get(&version_of(change, now)).copied(),
                        false => Some(ValueId(now)),
                    });
                    // Of a value that nobody learnt nothing is known.
                    match value {
                        Some(None) => values.remove(&change.key),
                        Some(Some(value)) => values.insert(change.key, Some(value)),
                        None => values.insert(change.key, None),
                    };
                    let called_ns = value.flatten().and_then(|value| past.called_ns(change.key, value));
                    seen_ns = seen_ns.max(called_ns.unwrap_or(0));
                }
                let now_ns = changes[..at].last().map_or(0, |change| change.until_ns);
                for (key, value) in &values {
                    past.look_since(*key, *value, seen_ns, now_ns).map_err(|what| {
                        format!(
                            "a cut that was applied by {now_ns} has a write called at {seen_ns}, but {what}"
                        )
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Judges reads of mirrors. `learnt`: the versions of values, by key; `versions`: the other way round.
    pub fn judge(
        &self,
        reads: Vec<Operation>,
        learnt: &HashMap<(u64, kelix::Version), ValueId>,
        versions: &HashMap<ValueId, kelix::Version>,
    ) -> std::result::Result<(), String> {
        let changes = self.changes.borrow();
        let mut of_keys: HashMap<u64, Vec<&Change>> = HashMap::new();
        changes.iter().for_each(|change| of_keys.entry(change.key).or_default().push(change));
        let mut history: Vec<Operation> = self.writes(&changes, learnt);
        let written: HashSet<ValueId> = history.iter().filter_map(Operation::value).collect();
        for read in reads {
            let found = read.saw().flatten().filter(|found| !written.contains(found));
            let of_key = of_keys.get(&read.key).map_or(&[][..], |of_key| of_key);
            // A record may change a key more than once, and what comes in between is seen for a moment.
            match found.map(|found| (found, versions.get(&found))) {
                None if read.saw() == Some(None) && of_key.iter().any(|change| change.is_during(&read)) => {}
                None => history.push(read),
                Some((_, Some(version))) => {
                    if !is_between(of_key, &read, version.0) {
                        return Err(format!("{read} is of no moment between the changes of its key"));
                    }
                }
                // Values without versions are not told apart from what was never written.
                Some((_, None)) if !self.table.kind().has_items() => {}
                // Nobody ever learnt the version of a value that comes without one.
                Some((found, None)) => {
                    let is_unlearnt = |change: &Change| {
                        change.now.is_some_and(|now| !learnt.contains_key(&version_of(change, now)))
                    };
                    if !may_be_unlearnt(of_key, &read, is_unlearnt) {
                        return Err(format!("{found:?} was read while its key had other values"));
                    }
                }
            }
        }
        linear::check(&history).map_err(|finding| finding.to_string())
    }

    /// The writes of all keys: versions are told apart by what clients have learnt, and those that nobody
    /// ever saw have values that nobody wrote.
    fn writes(&self, changes: &[Change], learnt: &HashMap<(u64, kelix::Version), ValueId>) -> Vec<Operation> {
        let mut unknown = 0;
        let write = |change: &Change| {
            let action = match change.now {
                None => Action::Delete { was_there: Some(true) },
                Some(now) if !self.table.kind().has_items() => Action::Put { value: ValueId(now) },
                Some(now) => {
                    let known = learnt.get(&version_of(change, now)).copied();
                    unknown += 1;
                    Action::Put { value: known.unwrap_or(ValueId(u64::MAX - unknown)) }
                }
            };
            let (key, called_ns, returned_ns) = (change.key, change.from_ns, Some(change.until_ns));
            Operation { client: WRITER, key, called_ns, returned_ns, action }
        };
        changes.iter().map(write).collect()
    }
}

/// What clients that learn the version of a change know it by: the key without the term, and the version.
fn version_of(change: &Change, version: u64) -> (u64, kelix::Version) {
    (change.key & 0xffff_ffff, kelix::Version(version))
}

/// Whether a key may have had, during a read, a value whose version nobody learnt.
fn may_be_unlearnt(changes: &[&Change], read: &Operation, is_unlearnt: impl Fn(&Change) -> bool) -> bool {
    changes.iter().enumerate().any(|(index, change)| {
        let behind = changes.get(index + 1);
        let until_ns = behind.map_or(u64::MAX, |behind| behind.until_ns);
        let has_begun = read.returned_ns.is_none_or(|returned_ns| change.from_ns <= returned_ns);
        change.is_during(read) || (is_unlearnt(change) && has_begun && until_ns >= read.called_ns)
    })
}

/// Whether a version is one that a key may have had during a read, as the versions before and behind tell.
fn is_between(changes: &[&Change], read: &Operation, version: u64) -> bool {
    let until_ns = read.returned_ns.unwrap_or(u64::MAX);
    let before = changes.iter().rev().find(|change| change.until_ns < read.called_ns);
    let behind = changes.iter().find(|change| change.from_ns > until_ns);
    let is_above = |change: &&&Change| change.now.is_none_or(|now| now < version);
    let is_below = |change: &&&Change| change.now.is_none_or(|now| now > version);
    before.as_ref().is_none_or(is_above) && behind.as_ref().is_none_or(is_below)
}
