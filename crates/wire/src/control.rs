//! Frames of the set-up connection: who is there, which memory to map, where the mailboxes are.
//!
//! The client connects to the server's Unix socket and sends [`Frame::Hello`]. The server answers with
//! [`Frame::Welcome`], then, for a session, with [`Frame::Image`], any number of [`Frame::Segments`] (the
//! last one says so) and [`Frame::Mailboxes`] of each shard. Later the client may ask for the segments of a
//! shard again, or for statistics. The connection stays open for as long as the session lives: its end is how
//! each side learns of the other's death. Descriptors travel with the frames in the order named here.

use kelix_fabric::tcp::{ASK_TERM, REFUSED, REGIONS_CHANGED, TERM};
use kelix_types::limits::{NAMESPACE_BYTES_MAX, RING_ARCS, SHARDS_MAX};

use crate::version::{SPOKEN, Versions};
use crate::view::View;

/// How the text of a refusal begins which says that the client may not do what it wants.
pub const DENIED: &str = "this client may not";

/// Features of which whoever does not know them must not go on. Others may be ignored.
pub const FEATURES_NEEDED: u64 = 0xffff_ffff;
/// What stands in memory counts only when it is committed: clients look at the watermark of each image.
pub const FEATURE_COMMITS: u64 = 1;
/// The server is a mirror: it takes no writes, and tells with [`Frame::Primary`] who does.
pub const FEATURE_MIRROR: u64 = 2;
/// The server wants to be told what clients read: see [`crate::Op::Used`].
pub const FEATURE_HINTS: u64 = 1 << 32;
/// Client: each answer is to tell the record that has all that the answer tells of. Server: it does so.
pub const FEATURE_SEQUENCES: u64 = 1 << 33;
/// Server: what it has answered its successor knows, which goes on with the same life of the store.
pub const FEATURE_REPLICATED: u64 = 1 << 34;
/// Server: its term is in force by a lease, so by a clock. Reads that are asked with
/// [`crate::RequestHead::durable`] are answered by the word of the cluster's register instead.
pub const FEATURE_LEASED: u64 = 1 << 35;

/// Server: over TCP it also answers FINDs.
pub const FEATURE_FINDS: u64 = 1 << 36;

/// Server: it takes several puts in one request ([`crate::puts`]).
pub const FEATURE_PUT_MANY: u64 = 1 << 37;

/// Client: what it reads of its rings may go back to the start behind a lap ([`crate::RingShape::in_laps`]).
/// Server: so may what it reads of them, and both do.
pub const FEATURE_LAPS: u64 = 1 << 38;

/// Longest name under which a mirror follows.
pub const MIRROR_NAME_BYTES_MAX: usize = 255;

/// What the client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To read and write.
    Session,
    /// To ask for statistics only.
    Statistics,
    /// To read and write over verbs, if the server lets it.
    Verbs,
    /// To follow all changes, as a mirror does, over TCP.
    Follow,
    /// The same, as a replica: the number of the caller is that of the member of the cluster, and what the
    /// replica has counts.
    Replicate,
    /// To go on in the server's place with what it has, in the same run directory.
    Succeed,
}

/// Who asks for a session, if it may have to connect again and ask for the same once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// A number that nobody else has or knows, not 0.
    pub number: u64,
    /// It was connected before.
    pub again: bool,
}

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant's text names its fields")]
pub enum Frame {
    /// Client: versions, features, purpose, the session that is to go on or may have to, and the namespace.
    /// It is the same in all versions of the protocol: which one is spoken is not known yet.
    Hello { versions: Versions, features: u64, purpose: Purpose, caller: Option<Caller>, namespace: String },
    /// Server: the version that is spoken from now on, and the random number of the namespace's life, which
    /// no other life of this or any store has. Descriptors: the authority page, the table of cached pointers
    /// of the client's user.
    Welcome { version: u16, features: u64, pid: u32, term: u64, may_write: bool, view: View, life: u64 },
    /// Server: descriptor: the header page.
    Image { shard: u16, bytes: u64 },
    /// Server: first granule and length of segments. Descriptors: their memory.
    Segments { shard: u16, last: bool, list: Vec<(u64, u64)> },
    /// Server. Descriptors: the server's mailbox, the client's mailbox, the client's end of the wake-up pair.
    Mailboxes { shard: u16, bytes: u64 },
    /// Client.
    AskSegments { shard: u16 },
    /// Client.
    AskStatistics,
    /// Server: JSON.
    Statistics { text: String },
    /// Server: why it ends the connection.
    Refused { text: String },
    /// Client, before Hello, where the server wants to know whom it takes.
    Token { token: Vec<u8> },
    /// Client: it would connect a queue pair.
    AskVerbs,
    /// Server: what tells it, and the namespace, from all others; with what and where a queue pair can be
    /// connected.
    Offer { server: u64, ticket: [u8; 16], addresses: String },
    /// Client: the ticket of a queue pair that is connected, its number there, and its mailbox for each
    /// shard.
    JoinLane { ticket: [u8; 16], seat: u32, mailboxes: Vec<Place> },
    /// Server: where the authority stands, whether its term is in force by a lease, for which it is asked, L
    /// of the read rule, and of each shard its mailbox, its sleep word and what wakes it.
    Joined { authority: Place, leased: bool, epoch_ns: u64, shards: Vec<(Place, Place, u32)> },
    /// Server: first granule, length and place of each segment of a shard, the header page among them;
    /// whether these are all, or some cannot be read yet.
    Regions { shard: u16, version: u64, whole: bool, list: Vec<(u64, u64, Place)> },
    /// Client: it reads nothing any more that was in earlier lists only.
    LetGo { shard: u16, version: u64 },
    /// Server: segments came or went.
    RegionsChanged,
    /// Client: which term is in force, and for how long?
    AskTerm,
    /// Server: the term, which is in force for so long from the question on; 0: it may be in force no more.
    Term { term: u64, left_ns: u64 },
    /// Client: a snapshot is wanted, by the user whose the server is.
    TakeSnapshot,
    /// Server: it is there, or why not; JSON.
    Snapshot { text: String },
    /// Mirror: it is ready to follow, under a name, and memory is to be copied at so many bytes a second, or
    /// as fast as it goes if that is 0. If it has what there was at a position, records from there on will do.
    Attach { copy_rate: u64, position: Option<StreamPosition>, name: String },
    /// Server: bytes of all memory of the namespace, the lineage of its records (0: none, as there is no log),
    /// whether it sends records from the mirror's position on in place of memory, and where writes go, if
    /// that is not here. From then on the connection carries the feed.
    Attached { memory_bytes: u64, lineage: u64, resumes: bool, primary: String },
    /// Mirror, directly behind Welcome: where the server is that it follows, which takes writes.
    Primary { address: String },
    /// Server, to a replica on its host, directly behind Welcome, for each shard: so many bytes of memory in
    /// which all changes of the shard stand before they count, and the page that says up to where.
    Stream { shard: u16, bytes: u64 },
    /// Server, to its successor, directly behind Welcome: the names of all its namespaces, a line each.
    /// Descriptor: the header page of a shard, of so many bytes, which says how its memory is laid out.
    Namespaces { bytes: u64, names: String },
    /// Successor: it has what there was a moment ago, and the server is to do nothing more.
    StandStill,
    /// Server: its shards, those of one namespace behind those of another, stand still behind these records.
    StandsStill { sequences: Vec<u64> },
}

/// How far somebody has followed the shards of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamPosition {
    /// A random number of the server's log in which the last records stand; 0 is none's.
    pub lineage: u64,
    /// The last record of each shard.
    pub sequences: Vec<u64>,
}

/// Registered memory: its address, and the key of its region.
pub type Place = (u64, u32);

struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|bytes| bytes[0])
    }
    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn place(&mut self) -> Option<Place> {
        Some((self.u64()?, self.u32()?))
    }
    /// As many as there are.
    fn all<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = Vec::new();
        while !self.0.is_empty() {
            all.push(one(self)?);
        }
        Some(all)
    }
    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }
}

fn encode_place(out: &mut Vec<u8>, (address, key): Place) {
    out.extend(address.to_le_bytes());
    out.extend(key.to_le_bytes());
}

impl Frame {
    /// The frame's kind and bytes.
    pub fn encode(&self) -> (u16, Vec<u8>) {
        let mut out = Vec::new();
        let kind = match self {
            Frame::Hello { versions, features, purpose, caller, namespace } => {
                out.extend(versions.oldest.to_le_bytes());
                out.extend(versions.newest.to_le_bytes());
                out.extend(features.to_le_bytes());
                out.push(match purpose {
                    Purpose::Session => 1,
                    Purpose::Statistics => 2,
                    Purpose::Verbs => 3,
                    Purpose::Follow => 4,
                    Purpose::Replicate => 5,
                    Purpose::Succeed => 6,
                });
                out.extend(caller.map_or(0, |caller| caller.number).to_le_bytes());
                out.push(u8::from(caller.is_some_and(|caller| caller.again)));
                out.extend(namespace.as_bytes());
                1
            }
            Frame::Welcome { version, features, pid, term, may_write, view, life } => {
                out.extend(version.to_le_bytes());
                out.extend(features.to_le_bytes());
                out.extend(pid.to_le_bytes());
                out.extend(term.to_le_bytes());
                out.push(u8::from(*may_write));
                out.extend(view.number.to_le_bytes());
                out.extend(view.hash_seed.to_le_bytes());
                out.extend(view.owners());
                out.extend(life.to_le_bytes());
                2
            }
            Frame::Image { shard, bytes } => {
                out.extend(shard.to_le_bytes());
                out.extend(bytes.to_le_bytes());
                3
            }
            Frame::Segments { shard, last, list } => {
                out.extend(shard.to_le_bytes());
                out.push(u8::from(*last));
                for (first, bytes) in list {
                    out.extend(first.to_le_bytes());
                    out.extend(bytes.to_le_bytes());
                }
                4
            }
            Frame::Mailboxes { shard, bytes } => {
                out.extend(shard.to_le_bytes());
                out.extend(bytes.to_le_bytes());
                5
            }
            Frame::AskSegments { shard } => {
                out.extend(shard.to_le_bytes());
                6
            }
            Frame::AskStatistics => 7,
            Frame::Statistics { text } => {
                out.extend(text.as_bytes());
                8
            }
            Frame::Refused { text } => {
                out.extend(text.as_bytes());
                REFUSED
            }
            Frame::Token { token } => {
                out.extend(token);
                10
            }
            Frame::AskVerbs => 11,
            Frame::Offer { server, ticket, addresses } => {
                out.extend(server.to_le_bytes());
                out.extend(ticket);
                out.extend(addresses.as_bytes());
                12
            }
            Frame::JoinLane { ticket, seat, mailboxes } => {
                out.extend(ticket);
                out.extend(seat.to_le_bytes());
                mailboxes.iter().for_each(|mailbox| encode_place(&mut out, *mailbox));
                13
            }
            Frame::Joined { authority, leased, epoch_ns, shards } => {
                encode_place(&mut out, *authority);
                out.push(u8::from(*leased));
                out.extend(epoch_ns.to_le_bytes());
                for (mailbox, sleeps, wakes) in shards {
                    encode_place(&mut out, *mailbox);
                    encode_place(&mut out, *sleeps);
                    out.extend(wakes.to_le_bytes());
                }
                14
            }
            Frame::Regions { shard, version, whole, list } => {
                out.extend(shard.to_le_bytes());
                out.extend(version.to_le_bytes());
                out.push(u8::from(*whole));
                for (first, bytes, place) in list {
                    out.extend(first.to_le_bytes());
                    out.extend(bytes.to_le_bytes());
                    encode_place(&mut out, *place);
                }
                15
            }
            Frame::LetGo { shard, version } => {
                out.extend(shard.to_le_bytes());
                out.extend(version.to_le_bytes());
                16
            }
            Frame::RegionsChanged => REGIONS_CHANGED,
            Frame::AskTerm => ASK_TERM,
            Frame::Term { term, left_ns } => {
                out.extend(term.to_le_bytes());
                out.extend(left_ns.to_le_bytes());
                TERM
            }
            Frame::TakeSnapshot => 18,
            Frame::Snapshot { text } => {
                out.extend(text.as_bytes());
                19
            }
            Frame::Attach { copy_rate, position, name } => {
                out.extend(copy_rate.to_le_bytes());
                let sequences = position.as_ref().map_or(&[][..], |position| &position.sequences);
                out.push(sequences.len() as u8);
                if let Some(position) = position {
                    out.extend(position.lineage.to_le_bytes());
                }
                sequences.iter().for_each(|sequence| out.extend(sequence.to_le_bytes()));
                out.extend(name.as_bytes());
                20
            }
            Frame::Attached { memory_bytes, lineage, resumes, primary } => {
                out.extend(memory_bytes.to_le_bytes());
                out.extend(lineage.to_le_bytes());
                out.push(u8::from(*resumes));
                out.extend(primary.as_bytes());
                21
            }
            Frame::Primary { address } => {
                out.extend(address.as_bytes());
                22
            }
            Frame::Stream { shard, bytes } => {
                out.extend(shard.to_le_bytes());
                out.extend(bytes.to_le_bytes());
                23
            }
            Frame::Namespaces { bytes, names } => {
                out.extend(bytes.to_le_bytes());
                out.extend(names.as_bytes());
                26
            }
            Frame::StandStill => 27,
            Frame::StandsStill { sequences } => {
                sequences.iter().for_each(|sequence| out.extend(sequence.to_le_bytes()));
                28
            }
        };
        (kind, out)
    }

    /// Reads a frame; `None` when it is none of this protocol.
    pub fn decode(kind: u16, bytes: &[u8]) -> Option<Frame> {
        let mut from = Decoder(bytes);
        let frame = match kind {
            1 => {
                let versions = Versions { oldest: from.u16()?, newest: from.u16()? };
                if SPOKEN.common(versions).is_none() {
                    // What follows is the business of those versions; the greeting is answered with a
                    // refusal.
                    return Some(Frame::Hello {
                        versions,
                        features: 0,
                        purpose: Purpose::Statistics,
                        caller: None,
                        namespace: String::new(),
                    });
                }
                let features = from.u64()?;
                let purpose = match from.u8()? {
                    1 => Purpose::Session,
                    2 => Purpose::Statistics,
                    3 => Purpose::Verbs,
                    4 => Purpose::Follow,
                    5 => Purpose::Replicate,
                    6 => Purpose::Succeed,
                    _ => return None,
                };
                let caller = match (from.u64()?, from.bool()?) {
                    (0, false) => None,
                    (0, true) => return None,
                    (number, again) => Some(Caller { number, again }),
                };
                let namespace = String::from_utf8(from.rest()).ok()?;
                if namespace.len() > NAMESPACE_BYTES_MAX {
                    return None;
                }
                Frame::Hello { versions, features, purpose, caller, namespace }
            }
            2 => Frame::Welcome {
                version: from.u16()?,
                features: from.u64()?,
                pid: from.u32()?,
                term: from.u64()?,
                may_write: from.bool()?,
                view: View::from_parts(from.u64()?, from.u64()?, from.take::<RING_ARCS>()?.into())?,
                life: from.u64()?,
            },
            3 => Frame::Image { shard: from.u16()?, bytes: from.u64()? },
            4 => {
                let shard = from.u16()?;
                let last = from.bool()?;
                let list = from.all(|from| Some((from.u64()?, from.u64()?)))?;
                Frame::Segments { shard, last, list }
            }
            5 => Frame::Mailboxes { shard: from.u16()?, bytes: from.u64()? },
            6 => Frame::AskSegments { shard: from.u16()? },
            7 => Frame::AskStatistics,
            8 => Frame::Statistics { text: String::from_utf8(from.rest()).ok()? },
            REFUSED => Frame::Refused { text: String::from_utf8(from.rest()).ok()? },
            10 => Frame::Token { token: from.rest() },
            11 => Frame::AskVerbs,
            12 => Frame::Offer {
                server: from.u64()?,
                ticket: from.take()?,
                addresses: String::from_utf8(from.rest()).ok()?,
            },
            13 => Frame::JoinLane {
                ticket: from.take()?,
                seat: from.u32()?,
                mailboxes: from.all(Decoder::place)?,
            },
            14 => Frame::Joined {
                authority: from.place()?,
                leased: from.bool()?,
                epoch_ns: from.u64()?,
                shards: from.all(|from| Some((from.place()?, from.place()?, from.u32()?)))?,
            },
            15 => Frame::Regions {
                shard: from.u16()?,
                version: from.u64()?,
                whole: from.bool()?,
                list: from.all(|from| Some((from.u64()?, from.u64()?, from.place()?)))?,
            },
            16 => Frame::LetGo { shard: from.u16()?, version: from.u64()? },
            REGIONS_CHANGED => Frame::RegionsChanged,
            ASK_TERM => Frame::AskTerm,
            TERM => Frame::Term { term: from.u64()?, left_ns: from.u64()? },
            18 => Frame::TakeSnapshot,
            19 => Frame::Snapshot { text: String::from_utf8(from.rest()).ok()? },
            20 => {
                let copy_rate = from.u64()?;
                let position = match usize::from(from.u8()?) {
                    0 => None,
                    shards @ 1..=SHARDS_MAX => {
                        let lineage = from.u64()?;
                        let sequences = (0..shards).map(|_| from.u64()).collect::<Option<_>>()?;
                        Some(StreamPosition { lineage, sequences })
                    }
                    _ => return None,
                };
                let name = String::from_utf8(from.rest()).ok()?;
                if name.len() > MIRROR_NAME_BYTES_MAX {
                    return None;
                }
                Frame::Attach { copy_rate, position, name }
            }
            21 => {
                let (memory_bytes, lineage, resumes) = (from.u64()?, from.u64()?, from.bool()?);
                let primary = String::from_utf8(from.rest()).ok()?;
                Frame::Attached { memory_bytes, lineage, resumes, primary }
            }
            22 => Frame::Primary { address: String::from_utf8(from.rest()).ok()? },
            23 => Frame::Stream { shard: from.u16()?, bytes: from.u64()? },
            26 => Frame::Namespaces { bytes: from.u64()?, names: String::from_utf8(from.rest()).ok()? },
            27 => Frame::StandStill,
            28 => Frame::StandsStill { sequences: from.all(Decoder::u64)? },
            _ => return None,
        };
        from.0.is_empty().then_some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(caller: Option<Caller>, namespace: &str) -> Frame {
        let namespace = namespace.into();
        Frame::Hello { versions: SPOKEN, features: 0, purpose: Purpose::Session, caller, namespace }
    }

    fn all() -> Vec<Frame> {
        vec![
            greeting(None, ""),
            Frame::Welcome {
                version: 1,
                features: 0,
                pid: 77,
                term: 3,
                may_write: true,
                view: View::of_shards(1, 9, 2),
                life: 0x0102,
            },
            Frame::Image { shard: 1, bytes: 4096 },
            Frame::Segments { shard: 1, last: true, list: vec![(1, 64 << 20), (2, 128 << 20)] },
            Frame::Mailboxes { shard: 1, bytes: 4096 },
            Frame::AskSegments { shard: 2 },
            Frame::AskStatistics,
            Frame::Statistics { text: "{}".into() },
            Frame::Refused { text: "no".into() },
            Frame::Token { token: b"secret".into() },
            Frame::AskVerbs,
            Frame::Offer { server: 7, ticket: [9; 16], addresses: "192.0.2.1:7117 192.0.3.1:7117".into() },
            Frame::JoinLane { ticket: [9; 16], seat: 3, mailboxes: vec![(1 << 40, 5), (2 << 40, 6)] },
            Frame::Joined {
                authority: (64, 1),
                leased: true,
                epoch_ns: 25_000_000,
                shards: vec![((1, 2), (3, 4), 5)],
            },
            Frame::Regions { shard: 1, version: 9, whole: true, list: vec![(0, 4096, (1 << 40, 7))] },
            Frame::LetGo { shard: 1, version: 9 },
            Frame::RegionsChanged,
            Frame::TakeSnapshot,
            Frame::Snapshot { text: "{}".into() },
            Frame::Attach { copy_rate: 1 << 20, position: None, name: "web3".into() },
            Frame::Attached {
                memory_bytes: 1 << 33,
                lineage: 5,
                resumes: true,
                primary: "store:7117".into(),
            },
            Frame::Primary { address: "store:7117".into() },
            Frame::Stream { shard: 1, bytes: 4096 },
            Frame::AskTerm,
            Frame::Term { term: 7, left_ns: 1_500_000_000 },
            Frame::Namespaces { bytes: 53_248, names: "default\npeople".into() },
            Frame::StandStill,
            Frame::StandsStill { sequences: vec![7, 1 << 40] },
        ]
    }

    #[test]
    fn frames_survive_the_way_and_cut_ones_are_refused() {
        for frame in all() {
            let (kind, bytes) = frame.encode();
            assert_eq!(Frame::decode(kind, &bytes).as_ref(), Some(&frame));
            let fixed = matches!(frame.encode().0, 1..=3 | 5..=7 | 11 | 16..=17 | ASK_TERM | TERM);
            for cut in (0..bytes.len()).filter(|_| fixed) {
                assert_eq!(Frame::decode(kind, &bytes[..cut]), None);
            }
        }
        assert_eq!(Frame::decode(99, &[]), None);
    }

    /// Found by fuzzing: any byte but 0 said that a frame of segments was the last one.
    #[test]
    fn whether_segments_are_the_last_is_told_by_0_or_1() {
        let last = |byte| Frame::decode(4, &[1, 0, byte]).map(|frame| frame.encode().1);
        assert_eq!((last(0), last(1)), (Some(vec![1, 0, 0]), Some(vec![1, 0, 1])));
        assert_eq!((last(2), last(255)), (None, None));
    }

    #[test]
    fn golden_frames() {
        let (kind, welcome) = all()[1].encode();
        assert_eq!((kind, welcome.len()), (2, 39 + RING_ARCS + 8));
        let numbers = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 1];
        assert_eq!(welcome[..24], numbers);
        assert_eq!(welcome[39 + RING_ARCS..], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(all()[2].encode(), (3, vec![1, 0, 0, 16, 0, 0, 0, 0, 0, 0]));
        let segments = [[1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 4, 0, 0, 0, 0, 2, 0, 0]].concat();
        assert_eq!(all()[3].encode().1[..22], segments);
        assert_eq!(all()[4].encode(), (5, vec![1, 0, 0, 16, 0, 0, 0, 0, 0, 0]));
        assert_eq!(all()[5].encode(), (6, vec![2, 0]));
        assert_eq!(all()[6].encode(), (7, vec![]));
        assert_eq!(all()[8].encode(), (9, b"no".to_vec()));
        assert_eq!(all()[9].encode(), (10, b"secret".to_vec()));
        assert_eq!(all()[10].encode(), (11, vec![]));
        let (kind, offer) = all()[11].encode();
        assert_eq!(
            (kind, &offer[..10], &offer[24..30]),
            (12, &[7, 0, 0, 0, 0, 0, 0, 0, 9, 9][..], &b"192.0."[..])
        );
        let (kind, join) = all()[12].encode();
        assert_eq!((kind, join.len(), &join[16..20]), (13, 44, &[3, 0, 0, 0][..]));
        assert_eq!(join[20..32], [0, 0, 0, 0, 0, 1, 0, 0, 5, 0, 0, 0]);
        let (kind, joined) = all()[13].encode();
        assert_eq!((kind, joined.len(), &joined[8..17]), (14, 49, &[1, 0, 0, 0, 1, 0x40, 0x78, 0x7d, 1][..]));
        let (kind, regions) = all()[14].encode();
        assert_eq!((kind, regions.len(), &regions[..4]), (15, 39, &[1, 0, 9, 0][..]));
        assert_eq!(all()[15].encode(), (16, vec![1, 0, 9, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(all()[16].encode(), (17, vec![]));
        assert_eq!(all()[17].encode(), (18, vec![]));
        assert_eq!(all()[18].encode(), (19, b"{}".to_vec()));
        assert_eq!(all()[19].encode(), (20, [&[0, 0, 16, 0, 0, 0, 0, 0, 0][..], b"web3"].concat()));
        let attached = [&[0, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1][..], b"store:7117"].concat();
        assert_eq!(all()[20].encode(), (21, attached));
        assert_eq!(all()[21].encode(), (22, b"store:7117".to_vec()));
        assert_eq!(all()[22].encode(), (23, vec![1, 0, 0, 16, 0, 0, 0, 0, 0, 0]));
        assert_eq!(all()[23].encode(), (24, vec![]));
        let term = [7, 0, 0, 0, 0, 0, 0, 0, 0, 0x2f, 0x68, 0x59, 0, 0, 0, 0];
        assert_eq!(all()[24].encode(), (25, term.to_vec()));
        let namespaces = [&[0, 0xd0, 0, 0, 0, 0, 0, 0][..], b"default\npeople"].concat();
        assert_eq!(all()[25].encode(), (26, namespaces));
        assert_eq!(all()[26].encode(), (27, vec![]));
        let still = [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
        assert_eq!(all()[27].encode(), (28, still.to_vec()));
    }

    #[test]
    fn names_of_mirrors_are_bounded() {
        for (bytes, fits) in [(MIRROR_NAME_BYTES_MAX, true), (MIRROR_NAME_BYTES_MAX + 1, false)] {
            let name = "n".repeat(bytes);
            let (kind, bytes) = Frame::Attach { copy_rate: 0, position: None, name }.encode();
            assert_eq!(Frame::decode(kind, &bytes).is_some(), fits);
        }
    }

    #[test]
    fn golden_positions_of_mirrors() {
        let position = StreamPosition { lineage: 7, sequences: vec![9, 1 << 32] };
        let frame = Frame::Attach { copy_rate: 0, position: Some(position), name: "m".into() };
        let (kind, bytes) = frame.encode();
        let words = [7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(bytes, [&[0; 8][..], &[2], &words, b"m"].concat());
        assert_eq!(Frame::decode(kind, &bytes), Some(frame));
        for cut in 0..bytes.len() - 1 {
            assert_eq!(Frame::decode(kind, &bytes[..cut]), None, "{cut} bytes");
        }
        let many = [&[0; 8][..], &[SHARDS_MAX as u8 + 1], &[1; 8 * 128]].concat();
        assert_eq!(Frame::decode(kind, &many), None);
    }

    #[test]
    fn golden_hello() {
        let (kind, bytes) = greeting(None, "").encode();
        assert_eq!(
            (kind, &bytes),
            (1, &vec![1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        );
        let caller = greeting(Some(Caller { number: 0x0102, again: true }), "ab");
        assert_eq!(caller.encode().1[13..], [2, 1, 0, 0, 0, 0, 0, 0, 1, b'a', b'b']);
        assert_eq!(Frame::decode(1, &caller.encode().1), Some(caller));
        for wrong in [[0, 0, 0, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0, 0, 0, 2]] {
            assert_eq!(Frame::decode(1, &[&bytes[..13], &wrong].concat()), None);
        }
        let Frame::Hello { versions, features, caller, namespace, .. } = greeting(None, "") else {
            unreachable!("a greeting");
        };
        let (purpose, features) = (Purpose::Follow, features | FEATURE_SEQUENCES);
        let follow = Frame::Hello { versions, features, purpose, caller, namespace };
        assert_eq!(follow.encode().1[4..13], [0, 0, 0, 0, 2, 0, 0, 0, 4]);
        assert_eq!(Frame::decode(1, &follow.encode().1), Some(follow));
        let Frame::Hello { versions, features, namespace, .. } = greeting(None, "") else {
            unreachable!("a greeting");
        };
        let (purpose, caller) = (Purpose::Replicate, Some(Caller { number: 7, again: false }));
        let replicate = Frame::Hello { versions, features, purpose, caller, namespace };
        assert_eq!(replicate.encode().1[12..], [5, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Frame::decode(1, &replicate.encode().1), Some(replicate));
        let long = greeting(None, &"n".repeat(NAMESPACE_BYTES_MAX + 1)).encode();
        assert_eq!(Frame::decode(1, &long.1), None);
    }
}
