//! What the agent answers to READs and FINDs: words, and the stamps under which they were sampled.

use kelix_image::words::bytes_of;
use kelix_image::{IndexReader, Wanted};
use kelix_types::{KeyHash, Place, TableId};

use super::{Connection, Opened, Shard};
use crate::tcp::frame::{FOUND_WORDS_MAX, Head, Kind};
use crate::tcp::stream::AHEAD;
use crate::{FindState, Sampled};

/// Words of a READ that are asked for ahead.
const PREFETCH_WORDS: usize = 32;

/// Asks for the memory of a batch of READs and FINDs before the first is answered. Returns how many of the
/// next frames were looked at.
pub(super) fn bring_near(connection: &Connection, shards: &[Shard], index: IndexReader) -> usize {
    let Connection { stream, shards: opened, .. } = connection;
    let map_of = |opened: &Opened| &shards[opened.shard].direct.map;
    let mut finds = 0;
    let ahead = stream.ahead(|head, body| match head.kind {
        Kind::Read => {
            let map = opened.get(usize::from(head.small)).map(map_of);
            if let Some(words) = map.and_then(|map| map.words(Place(body[0]), head.count as usize)) {
                words.prefetch((head.count as usize).min(PREFETCH_WORDS));
            }
        }
        Kind::Find => finds += 1,
        _ => {}
    });
    if finds > 1 {
        for (number, opened) in opened.iter().enumerate() {
            let (mut finds, mut count) = ([(KeyHash(0), TableId(0), &[][..]); AHEAD], 0);
            stream.ahead(|head, body| {
                let is_its = head.kind == Kind::Find && usize::from(head.small) == number;
                if let Some(wanted) = is_its.then(|| wanted(head, body)).flatten() {
                    finds[count] = wanted;
                    count += 1;
                }
            });
            (index.bring_near)(map_of(opened), &finds[..count]);
        }
    }
    ahead
}

/// What a FIND wants. `None`: it names a table that there cannot be.
fn wanted(head: Head, body: &[u64]) -> Option<Wanted<'_>> {
    let (&[hash, table], key) = body.split_first_chunk()?;
    let key = &bytes_of(key)[..head.count as usize];
    Some((KeyHash(hash), TableId(u16::try_from(table).ok()?), key))
}

/// Tells a client a term that it has not been told, before what stands in `out` from word `at` on.
pub(super) fn tell(told: &mut u64, term: u64, out: &mut Vec<u64>, at: usize) {
    if *told != term {
        *told = term;
        out.splice(at..at, [Head::new(Kind::Term, 0, 0, 0).word(), term]);
    }
}

/// How many epochs passed while words were sampled; 255: more than 254.
fn passed(Sampled { before, after, .. }: Sampled) -> u8 {
    after.wrapping_sub(before).min(255) as u8
}

/// Answers a FIND. `false`: it names a table that there cannot be.
pub(super) fn find(
    shard: &mut Shard,
    index: IndexReader,
    (head, body): (Head, &[u64]),
    told: &mut u64,
    out: &mut Vec<u64>,
) -> bool {
    let Some(wanted) = wanted(head, body) else { return false };
    // New segments are in the map before anybody is led there.
    shard.look();
    let at = out.len();
    out.extend([0; 3]);
    let (kind, word, sampled) = match shard.direct.find(index, wanted, (out, FOUND_WORDS_MAX)) {
        FindState::Found(location, sampled) => (Kind::Found, Some(location.word()), sampled),
        FindState::Absent(generations, sampled) => (Kind::Absent, Some(generations), sampled),
        FindState::Leaf(sampled) => (Kind::Leaf, None, sampled),
        FindState::Nothing | FindState::Pending | FindState::Broken => {
            out.truncate(at);
            out.push(Head::new(Kind::Found, 0, head.name, 0).word());
            return true;
        }
    };
    out[at] = Head::new(kind, passed(sampled), head.name, out.len() - at - 3).word();
    out[at + 1] = sampled.before;
    match word {
        Some(word) => out[at + 2] = word,
        // Of a leaf nobody need know where it stands.
        None => drop(out.remove(at + 2)),
    }
    tell(told, sampled.term, out, at);
    true
}

/// Answers a READ.
pub(super) fn read(shard: &mut Shard, head: Head, place: Place, told: &mut u64, out: &mut Vec<u64>) {
    let count = head.count as usize;
    if shard.version.is_none() || shard.direct.map.words(place, count).is_none() {
        shard.look();
    }
    let at = out.len();
    out.resize(at + 2 + count, 0);
    let Some(sampled) = shard.direct.read(place, &mut out[at + 2..]) else {
        out.truncate(at);
        return out.push(Head::new(Kind::Outside, 0, head.name, 0).word());
    };
    out[at] = Head::new(Kind::Sampled, passed(sampled), head.name, count).word();
    out[at + 1] = sampled.before;
    tell(told, sampled.term, out, at);
}
