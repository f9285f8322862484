//! What runs came past, counted by name: marks in the code under test and in the simulator itself.

use std::collections::BTreeMap;
use std::fmt;

use kelix_types::marks;

/// What a set of runs must have come past for its silence to mean anything.
pub const WANTED: [&str; 152] = [
    "FIND answered",
    "FIND answered by a leaf",
    "FIND of what a leaf has not",
    "FIND of what is absent",
    "READ given up",
    "READ of a dead object",
    "READ of a superseded image",
    "READ too slow",
    "READ torn",
    "absence proven",
    "absence that is not committed",
    "absence that took too long",
    "absence where all removals are committed",
    "all nodes killed",
    "another replica was quicker",
    "answer to a request that was given up",
    "answer waited for room in a ring",
    "answer waited for the register",
    "authority lapsed under a session",
    "base of a replica taken",
    "batch of looks too slow",
    "build abandoned",
    "builder of a generation gone",
    "client connected anew before its old connection was over",
    "client gone in the middle of an upload",
    "client killed",
    "client on another host",
    "client stopped",
    "connection cut",
    "connection delayed",
    "connection lost",
    "connection of a session on a mirror harmed",
    "connection of nodes cut",
    "connection of nodes held up",
    "connection to the primary lost",
    "copy of a top model was old",
    "copy of models made anew without tables of no use",
    "copy of models was replaced by another session",
    "directory copy was old",
    "directory moved",
    "disk of a node lost",
    "disks of nodes compared",
    "earlier primary has left",
    "epoch stepped",
    "false claim about a link",
    "follower took a shard over",
    "generation came into force",
    "generation dropped",
    "images of nodes compared",
    "index block merged",
    "index block moved",
    "index block split",
    "item died before it was looked at again",
    "item ended",
    "item moved",
    "item of a late READ looked at again",
    "item of a scan was not what its leaf said",
    "item that is not committed",
    "key found in a leaf beside the guessed one",
    "keys scanned",
    "large value read",
    "large value's memory released",
    "leaf beside others that are not committed",
    "leaf laid out",
    "leaf moved",
    "leaf of a late READ looked at again",
    "leaf split",
    "leaf that is not committed",
    "leaf was younger than what led to it",
    "leaf written anew",
    "lease of an earlier primary waited for",
    "lease renewed that was over",
    "leaves beside others that are not committed",
    "leaves merged",
    "leaves of a scan were READ too late",
    "leaves of a scan were younger than what led to them",
    "link between shards of a generation",
    "link followed",
    "link repaired by a reader",
    "link repaired on a client's word",
    "log failed",
    "log failed in the middle of a step",
    "log failed under a write",
    "memory audited",
    "memory reused as soon as its quarantine was over",
    "memory reused under a stale pointer",
    "mirror began to be read",
    "mirror copied anew",
    "mirror has what its session has seen",
    "mirror is behind what its session has seen",
    "models copied",
    "models copied by another session",
    "node began anew",
    "node copied",
    "node cut off the register",
    "node killed",
    "node promoted",
    "node stopped",
    "node told to leave",
    "node went on with its disk",
    "operation answered",
    "operation timed out",
    "outcome unknown",
    "overlay read",
    "overlays taken over",
    "page that is not committed",
    "part of a value read",
    "pointer into a segment that is gone",
    "power of a disk lost",
    "power of a node's disk lost",
    "primary named its successor",
    "put of several asked for again that had been done",
    "put of several found no room",
    "puts of several that found no room were asked for one by one",
    "read by name",
    "read on a mirror",
    "record applied to a mirror",
    "register did not answer",
    "replica compared with its primary",
    "replica has on its disk what it was asked for",
    "replica left",
    "replica left to the streams",
    "replica let go",
    "replica put into the view",
    "replica taken out of the view",
    "replica went on behind what it had",
    "scan led astray",
    "segment emptied for its memory's sake",
    "segment retired",
    "server killed",
    "server superseded",
    "session on a mirror connected to the primary",
    "session went on over another connection",
    "session went over to another server",
    "several puts in one request",
    "shard began with its log",
    "shard stopped",
    "sub-model added",
    "successor named",
    "sync of a node's disk fails",
    "table of a dataset looked up",
    "top model looked up",
    "top model made anew",
    "translation table moved",
    "translation table was old",
    "view expired under a reader",
    "watermark looked at again",
    "write asked for again that had been done",
    "write asked for again that had not been done",
    "write refused for lack of memory",
    "write waited for another generation",
    "write waited for memory",
];

/// What is too rare to be wanted of a few runs.
const RARE: [&str; 21] = [
    "build went on over another connection",
    "directory died while it was read",
    "emptying of a segment given up",
    "item of a server that has gone found without models",
    "item with a link to another shard was moved",
    "leaf written anew for another EMPTY pattern",
    "log of a replica failed",
    "member cannot begin anew yet",
    "mirror let go",
    "node superseded before it served",
    "notes of items with links forgotten",
    "page of an earlier member lost",
    "page voided by another member",
    "record waited for that of another shard",
    "replica could not be chosen yet",
    "replica may be in the view",
    "replica that has to copy anew not waited for",
    "replica too late",
    "slab of leaves filled again",
    "table thawed by itself",
    "top model moved",
];

/// How often each thing happened.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Coverage(BTreeMap<String, u64>);

impl Coverage {
    /// What was counted on this thread since it was asked last.
    pub fn take() -> Coverage {
        Coverage(marks::take().into_iter().map(|(what, times)| (what.to_string(), times)).collect())
    }

    /// Adds more of a thing.
    pub fn count(&mut self, what: &str, times: u64) {
        *self.0.entry(what.to_string()).or_default() += times;
    }

    /// Adds what other runs came past.
    pub fn add(&mut self, other: &Coverage) {
        other.0.iter().for_each(|(what, times)| self.count(what, *times));
    }

    /// How often a thing happened.
    pub fn times(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Everything by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(what, times)| (&what[..], *times))
    }

    /// What should have happened and did not.
    pub fn missing(&self) -> Vec<&'static str> {
        WANTED.into_iter().filter(|what| self.times(what) == 0).collect()
    }

    /// What happened and has no place among what is wanted: a mark that was added in one place only.
    pub fn unknown(&self) -> Vec<&str> {
        self.0
            .keys()
            .map(|what| &what[..])
            .filter(|what| !WANTED.contains(what) && !RARE.contains(what))
            .collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut things: Vec<(&str, u64)> = self.iter().collect();
        things.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        let things: Vec<String> = things.into_iter().map(|(what, times)| format!("{what} {times}")).collect();
        f.write_str(&things.join(", "))
    }
}
