//! Whether each session on a mirror has found what it wrote, and never anything older than what it had seen.
//!
//! Such a session writes at the primary and reads at the mirror, which is behind, or at the primary. So its
//! reads are not linearizable with others' writes. What holds is ([`check`]):
//!
//! 1. *Own writes and monotonic reads.* A session that has written or read a value of a key finds that value
//!    later on, or a newer one, or that the key is absent if somebody may have deleted such a value. A session
//!    that has deleted a key, or found it absent, does not find what was there before.
//! 2. *A shard is at one moment.* What the primary has answered of a shard has all that was answered before it
//!    was called, and so have all later reads of the shard, of whatever key.
//! 3. *Not older than was said.* A session that reads nothing older than some time finds all that was answered
//!    so long before the read was called.
//!
//! An operation comes behind another one of its session that had returned when it was called. What the order
//! of two writes is follows from their versions, where both are known, else from their times; what is not
//! certain counts for nothing. So nothing is found that can be.

use std::collections::{BTreeMap, HashMap};

use super::Finding;
use crate::history::{Action, CompareOutcome, Operation, ValueId};

/// The checker's name in its findings.
const CHECKER: &str = "sessions";

/// What is known beside the operations.
pub struct Known<'a> {
    /// Versions of values.
    pub version_of: &'a dyn Fn(ValueId) -> Option<u64>,
    /// The shard of a key.
    pub shard_of: &'a dyn Fn(u64) -> u64,
    /// How old may be what a client reads.
    pub max_lag_of: &'a dyn Fn(u32) -> Option<u64>,
}

/// A write, from its call until its answer; or for ever, if its outcome is unknown.
#[derive(Clone, Copy)]
struct Write {
    called_ns: u64,
    returned_ns: u64,
}

/// What was done to a key.
#[derive(Default)]
struct Key {
    puts: HashMap<ValueId, Write>,
    /// Puts that were answered, by when they were, each with the last one of those until then.
    answered_puts: Vec<(u64, ValueId)>,
    /// The same of deletes, each with the latest call.
    answered_deletes: Vec<(u64, u64)>,
    /// Deletes of whatever is there, by their call, each with the latest answer of those until then.
    deletes: Vec<(u64, u64)>,
    /// Deletes of one value.
    ends: Vec<(ValueId, Write)>,
}

/// What all clients wrote.
pub struct Past<'a> {
    keys: HashMap<u64, Key>,
    known: Known<'a>,
}

/// Folds what stands in a list, in its order, into each entry.
fn accumulate<T: Copy>(list: &mut [(u64, T)], later: impl Fn(T, T) -> T) {
    for index in 1..list.len() {
        list[index].1 = later(list[index - 1].1, list[index].1);
    }
}

/// The last entry of a list before a time.
fn last_before<T: Copy>(list: &[(u64, T)], time_ns: u64) -> Option<T> {
    let count = list.partition_point(|(at_ns, _)| *at_ns < time_ns);
    count.checked_sub(1).map(|last| list[last].1)
}

impl<'a> Past<'a> {
    /// Of a history.
    pub fn new<'h>(history: impl IntoIterator<Item = &'h Operation>, known: Known<'a>) -> Past<'a> {
        let mut past = Past { keys: HashMap::new(), known };
        for operation in history {
            past.add(operation);
        }
        let mut keys = std::mem::take(&mut past.keys);
        for key in keys.values_mut() {
            key.answered_puts.sort_unstable();
            key.answered_deletes.sort_unstable();
            key.deletes.sort_unstable();
            accumulate(&mut key.answered_deletes, u64::max);
            accumulate(&mut key.deletes, u64::max);
            let mut answered = std::mem::take(&mut key.answered_puts);
            accumulate(&mut answered, |old, new| if past.is_before(key, new, old) { old } else { new });
            key.answered_puts = answered;
        }
        past.keys = keys;
        past
    }

    fn add(&mut self, operation: &Operation) {
        let Operation { key, called_ns, returned_ns, ref action, .. } = *operation;
        let write = Write { called_ns, returned_ns: returned_ns.unwrap_or(u64::MAX) };
        let key = self.keys.entry(key).or_default();
        let put = match *action {
            Action::Put { value } => Some(value),
            Action::CompareAndSet { outcome: Some(CompareOutcome::Mismatch(_)), .. } => None,
            Action::CompareAndSet { value: Some(value), .. } => Some(value),
            Action::CompareAndSet { value: None, expected, .. } => {
                key.ends.extend(expected.map(|expected| (expected, write)));
                if returned_ns.is_some() {
                    key.answered_deletes.push((write.returned_ns, called_ns));
                }
                None
            }
            Action::Delete { was_there: Some(false) } | Action::Get { .. } => None,
            Action::Delete { was_there } => {
                key.deletes.push((called_ns, write.returned_ns));
                if was_there.is_some() {
                    key.answered_deletes.push((write.returned_ns, called_ns));
                }
                None
            }
        };
        let Some(value) = put else { return };
        key.puts.insert(value, write);
        if returned_ns.is_some() {
            key.answered_puts.push((write.returned_ns, value));
        }
    }

    /// Whether one value of a key was certainly there before another one.
    fn is_before(&self, key: &Key, value: ValueId, other: ValueId) -> bool {
        let version_of = self.known.version_of;
        match (version_of(value), version_of(other)) {
            _ if value == other => false,
            (Some(version), Some(other)) => version < other,
            _ => match (key.puts.get(&value), key.puts.get(&other)) {
                (Some(write), Some(other)) => write.returned_ns < other.called_ns,
                _ => false,
            },
        }
    }

    /// When the value of a key was put.
    pub fn called_ns(&self, key: u64, value: ValueId) -> Option<u64> {
        self.keys.get(&key)?.puts.get(&value).map(|write| write.called_ns)
    }

    /// Whether somebody may have deleted a value of a key by a time, or one behind it.
    fn may_be_deleted(&self, key: &Key, value: ValueId, by_ns: u64) -> bool {
        let Some(put) = key.puts.get(&value) else { return true };
        let count = key.deletes.partition_point(|(called_ns, _)| *called_ns <= by_ns);
        let latest_ns = count.checked_sub(1).map_or(0, |last| key.deletes[last].1);
        let ends = |(ended, write): &(ValueId, Write)| {
            write.called_ns <= by_ns
                && write.returned_ns >= put.called_ns
                && !self.is_before(key, *ended, value)
        };
        latest_ns >= put.called_ns || key.ends.iter().any(ends)
    }

    /// Looks whether what a key had has all that was answered before a time.
    pub fn look_since(
        &self,
        number: u64,
        value: Option<ValueId>,
        since_ns: u64,
        by_ns: u64,
    ) -> Result<(), String> {
        let Some(key) = self.keys.get(&number) else { return Ok(()) };
        let put = last_before(&key.answered_puts, since_ns);
        let Some(value) = value else {
            return match put.filter(|put| !self.may_be_deleted(key, *put, by_ns)) {
                None => Ok(()),
                Some(put) => Err(format!(
                    "key {number} is absent, where {put} had been put before, and nobody deletes it"
                )),
            };
        };
        if let Some(put) = put.filter(|put| self.is_before(key, value, *put)) {
            return Err(format!("key {number} has {value}, where {put} had been put before"));
        }
        let write = key.puts.get(&value);
        let deleted_ns = last_before(&key.answered_deletes, since_ns);
        if write.zip(deleted_ns).is_some_and(|(write, deleted_ns)| write.returned_ns < deleted_ns) {
            return Err(format!("key {number} has {value}, which had been deleted before"));
        }
        Ok(())
    }
}

/// What a session has seen of a key.
#[derive(Clone, Copy, Default)]
struct Floor {
    value: Option<ValueId>,
    /// When that was known.
    since_ns: u64,
    /// The key was absent behind that.
    is_gone: bool,
    /// What was put before this time had gone.
    gone_ns: u64,
}

/// What a session has seen.
#[derive(Default)]
struct Session {
    keys: HashMap<u64, Floor>,
    /// What was answered before these times is in the shards.
    shards: HashMap<u64, u64>,
}

impl Session {
    /// Takes note of an operation that has returned.
    fn note(&mut self, past: &Past<'_>, operation: &Operation) {
        let Operation { key: number, called_ns, returned_ns, ref action, .. } = *operation;
        let floor = self.keys.entry(number).or_default();
        let (value, at_primary) = match *action {
            Action::Get { found } => (found, false),
            Action::Put { value } => (Some(value), true),
            Action::Delete { .. } => (None, true),
            Action::CompareAndSet { value, outcome: Some(CompareOutcome::Done), .. } => (value, true),
            Action::CompareAndSet { outcome: Some(CompareOutcome::Mismatch(found)), .. } => (found, true),
            Action::CompareAndSet { .. } => return,
        };
        let mut seen_ns = if at_primary { called_ns } else { 0 };
        match value {
            Some(value) => {
                let known = past.keys.get(&number);
                let is_older = |old| known.is_some_and(|key| past.is_before(key, value, old));
                if floor.value != Some(value) && !floor.value.is_some_and(is_older) {
                    *floor = Floor {
                        value: Some(value),
                        since_ns: returned_ns.unwrap_or(u64::MAX),
                        is_gone: false,
                        ..*floor
                    };
                }
                seen_ns = seen_ns.max(past.called_ns(number, value).unwrap_or(0));
            }
            None => {
                // Of operations that were under way together any may have been the first.
                floor.is_gone |= floor.since_ns <= called_ns;
                if at_primary {
                    floor.gone_ns = floor.gone_ns.max(called_ns);
                }
            }
        }
        let shard = self.shards.entry((past.known.shard_of)(number)).or_default();
        *shard = seen_ns.max(*shard);
    }

    /// Looks at a read.
    fn look(&self, past: &Past<'_>, read: &Operation, found: Option<ValueId>) -> Result<(), String> {
        let Operation { key: number, called_ns, returned_ns, client, .. } = *read;
        let by_ns = returned_ns.unwrap_or(u64::MAX);
        let seen_ns = self.shards.get(&(past.known.shard_of)(number)).copied().unwrap_or(0);
        past.look_since(number, found, seen_ns, by_ns)
            .map_err(|what| format!("its shard had been seen as it was at {seen_ns}, but {what}"))?;
        if let Some(lag_ns) = (past.known.max_lag_of)(client) {
            let since_ns = called_ns.saturating_sub(lag_ns);
            past.look_since(number, found, since_ns, by_ns)
                .map_err(|what| format!("nothing is to be older than {lag_ns} ns, but {what}"))?;
        }
        let (Some(floor), Some(key)) = (self.keys.get(&number), past.keys.get(&number)) else {
            return Ok(());
        };
        match (found, floor.value) {
            (None, Some(value)) if !floor.is_gone && !past.may_be_deleted(key, value, by_ns) => {
                Err(format!("the session had seen {value}, which nobody deletes"))
            }
            (Some(found), Some(value)) if past.is_before(key, found, value) => {
                Err(format!("the session had seen {value}, which is newer"))
            }
            (Some(found), Some(value)) if found == value && floor.is_gone => {
                Err(format!("the session had seen that {value} was gone"))
            }
            (Some(found), _) if key.puts.get(&found).is_some_and(|put| put.returned_ns < floor.gone_ns) => {
                Err("the session had seen, later than it was put, that the key was absent".into())
            }
            _ => Ok(()),
        }
    }
}

/// Looks for a session that has seen what it could not. Operations of a session, which is a client's number
/// here, stand in the order in which they returned.
pub fn check(past: &Past<'_>, operations: &[Operation]) -> Result<(), Finding> {
    let mut clients: BTreeMap<u32, Vec<&Operation>> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.returned_ns.is_some()) {
        clients.entry(operation.client).or_default().push(operation);
    }
    for mut of_client in clients.into_values() {
        let mut returned = of_client.clone();
        of_client.sort_by_key(|operation| operation.called_ns);
        returned.sort_by_key(|operation| operation.returned_ns);
        let (mut session, mut noted) = (Session::default(), 0);
        for operation in of_client {
            while returned.get(noted).is_some_and(|it| it.returned_ns <= Some(operation.called_ns)) {
                session.note(past, returned[noted]);
                noted += 1;
            }
            let Action::Get { found } = operation.action else { continue };
            if let Err(what) = session.look(past, operation, found) {
                return Err(finding(&what, operation, &returned));
            }
        }
    }
    Ok(())
}

/// Operations on the key before the one that is wrong that a finding shows.
const DETAILS_MAX: usize = 12;

fn finding(what: &str, read: &Operation, of_client: &[&Operation]) -> Finding {
    let is_before = |it: &&&Operation| it.key == read.key && it.returned_ns <= Some(read.called_ns);
    let mut details: Vec<String> =
        of_client.iter().filter(is_before).rev().take(DETAILS_MAX).map(ToString::to_string).collect();
    details.reverse();
    Finding { checker: CHECKER, what: format!("{read}: {what}"), details }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(client: u32, key: u64, (called_ns, returned_ns): (u64, u64), action: Action) -> Operation {
        Operation { client, key, called_ns, returned_ns: Some(returned_ns), action }
    }

    fn put(client: u32, key: u64, times: (u64, u64), value: u64) -> Operation {
        operation(client, key, times, Action::Put { value: ValueId(value) })
    }

    fn get(key: u64, times: (u64, u64), found: Option<u64>) -> Operation {
        operation(1, key, times, Action::Get { found: found.map(ValueId) })
    }

    fn delete(client: u32, key: u64, times: (u64, u64)) -> Operation {
        operation(client, key, times, Action::Delete { was_there: Some(true) })
    }

    /// Of session 1, which reads nothing older than 100, among what others did. Values are put in their
    /// order, and keys below 10 stand in one shard.
    fn judge(others: &[Operation], session: &[Operation]) -> Result<(), String> {
        let known = Known {
            version_of: &|value| Some(value.0),
            shard_of: &|key| key / 10,
            max_lag_of: &|client| (client == 1).then_some(100),
        };
        let past = Past::new(others.iter().chain(session), known);
        check(&past, session).map_err(|finding| finding.what)
    }

    #[test]
    fn own_writes_and_deletes_are_found() {
        let own = put(1, 1, (10, 20), 5);
        assert_eq!(judge(&[], &[own.clone(), get(1, (20, 30), Some(5))]), Ok(()));
        assert!(judge(&[], &[own.clone(), get(1, (20, 30), None)]).is_err(), "forgotten");
        assert_eq!(judge(&[], &[own.clone(), get(1, (15, 30), None)]), Ok(()), "under way together");
        let [before, behind] = [delete(2, 1, (0, 9)), delete(2, 1, (12, 40))];
        assert!(judge(&[before], &[own.clone(), get(1, (20, 30), None)]).is_err(), "deleted before that");
        assert_eq!(judge(&[behind], &[own.clone(), get(1, (20, 30), None)]), Ok(()));
        let other = put(2, 1, (0, 9), 4);
        assert!(judge(&[other], &[own.clone(), get(1, (20, 30), Some(4))]).is_err(), "an older value");
        let gone = [own, delete(1, 1, (20, 30))];
        let with = |read: Operation| [&gone[..], &[read]].concat();
        assert!(judge(&[], &with(get(1, (30, 40), Some(5)))).is_err(), "a delete forgotten");
        assert_eq!(judge(&[], &with(get(1, (30, 40), None))), Ok(()));
        let late = put(2, 1, (25, 35), 6);
        assert_eq!(judge(&[late], &with(get(1, (30, 40), Some(6)))), Ok(()));
    }

    #[test]
    fn reads_do_not_go_back() {
        let others = [put(2, 1, (0, 10), 4), put(2, 1, (11, 20), 5)];
        let reads = |values: [u64; 2]| [get(1, (30, 40), Some(values[0])), get(1, (40, 50), Some(values[1]))];
        assert_eq!(judge(&others, &reads([4, 5])), Ok(()));
        assert!(judge(&others, &reads([5, 4])).is_err());
        let deleted = [&others[..], &[delete(2, 1, (21, 29))]].concat();
        let back = [get(1, (30, 40), Some(5)), get(1, (40, 50), None), get(1, (50, 60), Some(5))];
        assert_eq!(judge(&deleted, &back[..2]), Ok(()));
        assert!(judge(&deleted, &back).is_err(), "what had gone");
    }

    #[test]
    fn a_shard_is_at_one_moment() {
        let others = [put(2, 1, (0, 10), 4), put(2, 11, (0, 10), 5), put(2, 1, (11, 20), 6)];
        let own = put(1, 2, (25, 30), 7);
        assert!(judge(&others, &[own.clone(), get(1, (30, 40), Some(4))]).is_err());
        assert!(judge(&others, &[own.clone(), get(1, (30, 40), None)]).is_err());
        assert_eq!(judge(&others, &[own.clone(), get(1, (30, 40), Some(6))]), Ok(()));
        assert_eq!(judge(&others, &[own, get(11, (30, 40), None)]), Ok(()), "another shard");
    }

    #[test]
    fn what_is_too_old_is_found() {
        let others = [put(2, 1, (0, 10), 4), put(2, 1, (11, 20), 5)];
        assert_eq!(judge(&others, &[get(1, (120, 130), Some(4))]), Ok(()));
        assert!(judge(&others, &[get(1, (121, 130), Some(4))]).is_err());
        assert!(judge(&others, &[get(1, (121, 130), None)]).is_err());
        assert_eq!(judge(&others, &[get(1, (110, 130), None)]), Ok(()));
    }
}
