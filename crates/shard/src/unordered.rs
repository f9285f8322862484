//! Scans of hash tables, which have no order but one of their own: by *position*, the hash of a key with its
//! bits reversed.
//!
//! In that order the keys of a subtable stand together, and stay so when it splits or merges. So a scan can
//! go on at a position, and a key that is there all the while comes exactly once.

use kelix_image::{ItemHeader, load_key};
use kelix_types::limits::{COUNT_KEYS_MAX, SCAN_KEYS_MAX};
use kelix_types::{Location, TableId};
use kelix_wire::{FrameBuffer, ReplyHead, Request, ScanArgument, Status, encode_reply};

use crate::ordered::push_scanned;
use crate::store::Store;

/// Subtables that are looked at for one reply, where a table has few keys in each.
const SUBTABLES_A_REPLY: usize = 16;
/// Word of a reply that says where to go on, behind the one that says whether there is more.
const NEXT: usize = 4;

/// Brings keys of a hash table that this shard has, or counts them. `None`: the request makes no sense.
pub(crate) fn scan_unordered(
    store: &Store,
    request: &Request<'_>,
    argument: ScanArgument,
    frame: &mut FrameBuffer,
) -> Option<()> {
    let (id, table) = (request.head.id, request.head.table);
    let from = match argument.from {
        true => u64::from_be_bytes(request.key.try_into().ok()?),
        false => 0,
    };
    if argument.until || argument.backwards || argument.after || table == TableId::CATALOGUE {
        return None;
    }
    encode_reply(frame, ReplyHead { id, status: Status::Ok, version: 0, location: 0 });
    frame.push(1);
    frame.push(0);
    if argument.estimate {
        frame.set(1, store.keys.of(table));
        return Some(());
    }
    let most = if argument.count { COUNT_KEYS_MAX } else { SCAN_KEYS_MAX }.min(argument.limit as usize);
    let mut keys = 0;
    let mut next = Some(from);
    for _ in 0..SUBTABLES_A_REPLY {
        let Some(position) = next else { break };
        let (found, beyond) = positions(store, table, position);
        next = beyond;
        for (at, location) in found {
            let counts = argument.count;
            if keys == most || !(counts || push_scanned(&store.image, location, keys > 0, frame)) {
                next = Some(at);
                break;
            }
            keys += 1;
        }
        if next.is_some_and(|next| Some(next) != beyond) || keys == most {
            break;
        }
    }
    frame.set(1, keys as u64);
    frame.set(3, u64::from(next.is_none()));
    frame.set(NEXT, next.unwrap_or(0));
    Some(())
}

/// The keys of a table from a position on that stand in the same subtable, in their order, and the position
/// behind them all; none: that was the last subtable.
fn positions(store: &Store, table: TableId, from: u64) -> (Vec<(u64, Location)>, Option<u64>) {
    let mut found = Vec::new();
    let mut key = Vec::new();
    let image = &store.image;
    let beyond = store.index.sweep(image, from.reverse_bits(), |location| {
        let slot = image.slot(location);
        if ItemHeader::from_word(slot.load(1)).is_some_and(|header| header.table == table) {
            key.clear();
            load_key(slot, &mut key);
            found.push((store.index.hash(table, &key).0.reverse_bits(), location));
        }
    });
    found.retain(|(position, _)| *position >= from);
    found.sort_unstable_by_key(|(position, _)| *position);
    (found, (beyond != 0).then(|| beyond.reverse_bits()))
}

/// How many keys each hash table has.
#[derive(Default)]
pub(crate) struct Counts(Vec<u64>);

impl Counts {
    pub fn of(&self, table: TableId) -> u64 {
        self.0.get(usize::from(table.which())).copied().unwrap_or(0)
    }

    /// As they are counted elsewhere, by their tables' numbers.
    pub fn set(&mut self, counts: &[u64]) {
        self.0.clear();
        self.0.extend_from_slice(counts);
    }

    /// Of all tables together.
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Counts a key that came. Ordered tables count their own.
    #[inline]
    pub fn add(&mut self, table: TableId) {
        let which = usize::from(table.which());
        if table.kind().is_ordered() {
            return;
        }
        if self.0.len() <= which {
            self.0.resize(which + 1, 0);
        }
        self.0[which] += 1;
    }

    /// Counts a key that went.
    #[inline]
    pub fn take(&mut self, table: TableId) {
        if !table.kind().is_ordered() {
            self.0[usize::from(table.which())] -= 1;
        }
    }
}
