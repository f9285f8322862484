//! Requests and replies.
//!
//! ```text
//! request  word 0  [ id 32 | table 16 | flags 8 | op 8 ]
//!          word 1  [ body bytes 32 | key bytes 32 ]
//!          then, each only with its flag: expected version, expiry, argument, sequence, client flags
//!          then the key, padding to 8 bytes if the body is an attribute section, and the body: just as they
//!          stand in an item
//!
//! reply    word 0  [ id 32 | 0 24 | status 8 ]
//!          word 1  version      word 2  location
//!          then the item, as it stands in its slot, where the request asked for it
//! ```

use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_types::{Location, TableId, Version, limits};

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Op {
    /// The item of a key.
    Get = 1,
    /// Puts an item.
    Put = 2,
    /// Deletes a key.
    Delete = 3,
    /// Gives a name of the catalogue an id: a table (table 0) or an attribute of `table`.
    Intern = 4,
    /// Writes the two location words of a link; the argument says where in the attribute section.
    RepairLink = 5,
    /// Begins a large value of `argument` bytes.
    LargeBegin = 6,
    /// A piece of it, at offset `argument`.
    LargePiece = 7,
    /// Makes it live.
    LargeCommit = 8,
    /// Nothing: a sign of life.
    Ping = 9,
    /// Keys of an ordered table in their order, from one on: see [`ScanArgument`](crate::ScanArgument).
    Scan = 10,
    /// Begins a generation. On shard 0: of the dataset in the key, with tables as the body says; the answer
    /// tells its number, and their ids. Elsewhere: the table belongs to generation `argument`.
    Build = 11,
    /// Puts many items into a table of generation `argument`: see [`crate::generation`].
    Load = 12,
    /// Writes the locations of links in a table of a generation, from cursor `argument` on; the answer tells
    /// the next one.
    Resolve = 13,
    /// Generation `argument` is complete: it takes no more items. On shard 0 it comes into force.
    Switch = 14,
    /// Generation `argument` will not come into force.
    Abandon = 15,
    /// Somebody reads generation `argument`, and will for a lease. With a lease of zero: no more.
    Hold = 16,
    /// Takes no writes of clients to a table any more until generation `argument` is in force or given up, or
    /// until a lease is over.
    Freeze = 17,
    /// What clients wrote into a loaded table, for generation `argument`: the next of their keys, with
    /// versions.
    Overlays = 18,
    /// Drops a table, whose name is the key: the name is gone, and what is in the table goes soon. Of the
    /// first shard.
    Drop = 19,
    /// Items that the client has read itself: location words, 8 bytes each. The answer's version is the epoch
    /// of use.
    Used = 20,
    /// Puts several items into a table: see [`crate::puts`].
    PutMany = 21,
}

/// What is known of an operation without looking at its request: the one place that says whether an operation
/// writes.
///
/// The four answers differ on purpose: each is to another question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpProperties {
    /// Only a client that may write may ask for it. The shard denies it to others.
    pub needs_writer: bool,
    /// It may have changed something where its answer is missing, so a failed call reports its effect as
    /// unknown. The pieces of a large value change nothing before they are committed; a hold of a generation
    /// changes who keeps that alive.
    pub has_effect: bool,
    /// A session that reconnects counts it and asks again under the same number, and the shard does it once
    /// ([`Sequence`]). What is not counted reads only, is harmless when it is done twice, or ends with the
    /// connection over which it was asked, as the building of a generation does.
    pub is_deduplicated: bool,
    /// It changes items of the table that it names, as a client does and not as a load does. Loaded tables
    /// refuse it unless they take writes, or its client builds them.
    pub changes_items: bool,
}

impl Op {
    /// The table of operations.
    #[inline]
    pub const fn properties(self) -> OpProperties {
        const READ: OpProperties = OpProperties {
            needs_writer: false,
            has_effect: false,
            is_deduplicated: false,
            changes_items: false,
        };
        const WRITE: OpProperties = OpProperties { needs_writer: true, has_effect: true, ..READ };
        match self {
            Op::Get | Op::Scan | Op::Ping | Op::Used => READ,
            Op::Put | Op::PutMany | Op::Delete | Op::LargeCommit => {
                OpProperties { is_deduplicated: true, changes_items: true, ..WRITE }
            }
            Op::Intern | Op::Drop | Op::Switch | Op::Abandon => {
                OpProperties { is_deduplicated: true, ..WRITE }
            }
            Op::RepairLink | Op::Build | Op::Load | Op::Resolve | Op::Freeze | Op::Overlays => WRITE,
            Op::LargeBegin | Op::LargePiece => OpProperties { has_effect: false, ..WRITE },
            Op::Hold => OpProperties { has_effect: true, ..READ },
        }
    }

    #[inline]
    fn from_number(number: u8) -> Option<Op> {
        Some(match number {
            1 => Op::Get,
            2 => Op::Put,
            3 => Op::Delete,
            4 => Op::Intern,
            5 => Op::RepairLink,
            6 => Op::LargeBegin,
            7 => Op::LargePiece,
            8 => Op::LargeCommit,
            9 => Op::Ping,
            10 => Op::Scan,
            11 => Op::Build,
            12 => Op::Load,
            13 => Op::Resolve,
            14 => Op::Switch,
            15 => Op::Abandon,
            16 => Op::Hold,
            17 => Op::Freeze,
            18 => Op::Overlays,
            19 => Op::Drop,
            20 => Op::Used,
            21 => Op::PutMany,
            _ => return None,
        })
    }
}

/// How a request was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// The key is not there.
    Absent = 1,
    /// The expected version is not the current one, which the reply tells (0: absent).
    Mismatch = 2,
    /// No room, and none comes back by waiting.
    NoRoom = 3,
    /// The request breaks a limit or makes no sense.
    Refused = 4,
    /// The request was asked again, and what was answered before is not known any more.
    Forgotten = 5,
    /// This client may not write.
    Denied = 6,
    /// The table, or the generation, is not there any more.
    Gone = 7,
    /// The table was loaded, and takes no writes of clients.
    Loaded = 8,
    /// Another generation of that dataset is being built, or a name is taken.
    Taken = 9,
    /// Another generation of the table is about to come into force, or has: write to that, or here again if
    /// it does not.
    Frozen = 10,
    /// Nothing was done: the server's log takes no writes now, since its disk is full or has failed.
    ReadOnly = 11,
    /// Done, and the log has failed before that was on the disk: nobody knows whether it survives the server.
    NotDurable = 12,
    /// Nothing was done: the write is to be on the disk before it is answered, and the server writes no log.
    NoLog = 13,
}

impl Status {
    /// The one with a number. `None`: there is none.
    #[inline]
    pub fn of_number(number: u8) -> Option<Status> {
        Some(match number {
            0 => Status::Ok,
            1 => Status::Absent,
            2 => Status::Mismatch,
            3 => Status::NoRoom,
            4 => Status::Refused,
            5 => Status::Forgotten,
            6 => Status::Denied,
            7 => Status::Gone,
            8 => Status::Loaded,
            9 => Status::Taken,
            10 => Status::Frozen,
            11 => Status::ReadOnly,
            12 => Status::NotDurable,
            13 => Status::NoLog,
            _ => return None,
        })
    }
}

/// Which optional words a request has, and of what kind its item is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestFlags(pub u8);

impl RequestFlags {
    const EXPECT: u8 = 1;
    const EXPIRES: u8 = 2;
    const ARGUMENT: u8 = 4;
    const ATTRIBUTES: u8 = 8;
    const SEQUENCE: u8 = 16;
    const AGAIN: u8 = 32;
    const EXPECT_ABSENT: u8 = 64;
    const CLIENT_FLAGS: u8 = 128;
    /// The flags that come with a word.
    const WITH_WORDS: u8 = RequestFlags::EXPECT
        | RequestFlags::EXPIRES
        | RequestFlags::ARGUMENT
        | RequestFlags::SEQUENCE
        | RequestFlags::CLIENT_FLAGS;
}

/// The bit of a request's second word, above the bytes of its key, that asks for it to be on the disk before
/// it is answered.
const DURABLE: u64 = 1 << 31;

/// Which of its client's writes to this shard a request is, counted from 1. The shard does each once, however
/// often it is asked: of the last [`limits::SEQUENCES_KEPT`] it knows what it answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequence {
    /// Its number.
    pub number: u64,
    /// It may have been asked before, over a connection that is gone.
    pub again: bool,
}

/// When an item ends. Only the shard's clock decides when that is.
///
/// ```text
/// word  63 at | 62 nanoseconds 0
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// So many nanoseconds after the shard has taken the request.
    In(u64),
    /// So many nanoseconds after the beginning of 1970.
    At(u64),
}

impl Expiry {
    const AT: u64 = 1 << 63;

    /// The word that says so. Times beyond 2^63 ns, 292 years, are cut.
    #[inline]
    pub fn word(self) -> u64 {
        match self {
            Expiry::In(time_ns) => time_ns.min(Expiry::AT - 1),
            Expiry::At(time_ns) => Expiry::AT | time_ns.min(Expiry::AT - 1),
        }
    }

    /// What a word says: each says something.
    #[inline]
    pub fn from_word(word: u64) -> Expiry {
        let time_ns = word & (Expiry::AT - 1);
        if word & Expiry::AT == 0 { Expiry::In(time_ns) } else { Expiry::At(time_ns) }
    }
}

/// The fixed part of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHead {
    /// What to do.
    pub op: Op,
    /// Chosen by the client, returned in the reply.
    pub id: u32,
    /// Table of the key.
    pub table: TableId,
    /// Do it only if the key's version is this (`Some(None)`: only if it is absent).
    pub expect: Option<Option<Version>>,
    /// When the item ends.
    pub expiry: Option<Expiry>,
    /// What the client says of the item.
    pub client_flags: u32,
    /// See [`Op`].
    pub argument: Option<u64>,
    /// The body is an attribute section.
    pub attributes: bool,
    /// From clients that may ask again.
    pub sequence: Option<Sequence>,
    /// Of a write: what it did is to be on the disk before it is answered. Of a read, where the term of the
    /// server is in force by a lease: the cluster's register is to have said, asked behind the request, that
    /// it is.
    pub durable: bool,
}

impl RequestHead {
    /// A request with nothing optional.
    pub fn new(op: Op, id: u32, table: TableId) -> RequestHead {
        RequestHead {
            op,
            id,
            table,
            expect: None,
            expiry: None,
            client_flags: 0,
            argument: None,
            attributes: false,
            sequence: None,
            durable: false,
        }
    }
}

/// A request in a private copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The fixed part.
    pub head: RequestHead,
    /// The key.
    pub key: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// Key and body in words, as they stand in an item from its key on.
    pub tail: &'a [u64],
}

/// A payload under construction, with room in front for a frame's header.
///
/// Begins with [`FrameBuffer::clear`]; a default one holds no memory yet.
#[derive(Clone, Debug, Default)]
pub struct FrameBuffer(Vec<u64>);

impl FrameBuffer {
    /// Empties it.
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
        self.0.extend_from_slice(&[0, 0]);
    }

    /// Begins anew, with these words.
    #[inline]
    fn begin<const N: usize>(&mut self, words: [u64; N]) {
        self.clear();
        self.0.extend_from_slice(&words);
    }

    /// Adds a word.
    #[inline]
    pub fn push(&mut self, word: u64) {
        self.0.push(word);
    }

    /// Adds `count` zero words to be filled in.
    #[inline]
    pub fn reserve(&mut self, count: usize) -> &mut [u64] {
        let start = self.0.len();
        self.0.resize(start + count, 0);
        &mut self.0[start..]
    }

    /// Changes a word that was added.
    pub fn set(&mut self, index: usize, word: u64) {
        self.0[2 + index] = word;
    }

    /// Whether the request in here is of an operation.
    pub fn is_for(&self, op: Op) -> bool {
        self.0.get(2).is_some_and(|word| *word as u8 == op as u8)
    }

    /// Says of the request in here that it is asked again.
    pub fn ask_again(&mut self) {
        let sequence = u64::from(RequestFlags::SEQUENCE) << 8;
        if self.0[2] & sequence != 0 {
            self.0[2] |= u64::from(RequestFlags::AGAIN) << 8;
        }
    }

    /// What was added.
    #[inline]
    pub fn payload(&self) -> &[u64] {
        &self.0[2..]
    }

    /// The whole frame with its header words in place.
    #[inline]
    pub(crate) fn seal(&mut self, indicator: u64, checksum: Option<u64>) -> &[u64] {
        match checksum {
            Some(checksum) => {
                (self.0[0], self.0[1]) = (indicator, checksum);
                &self.0
            }
            None => {
                self.0[1] = indicator;
                &self.0[1..]
            }
        }
    }
}

/// Writes a request. Sizes must be within the limits.
#[inline]
pub fn encode_request(frame: &mut FrameBuffer, head: RequestHead, key: &[u8], body: &[u8]) {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let flags = flag(matches!(head.expect, Some(Some(_))), RequestFlags::EXPECT)
        | flag(matches!(head.expect, Some(None)), RequestFlags::EXPECT_ABSENT)
        | flag(head.expiry.is_some(), RequestFlags::EXPIRES)
        | flag(head.client_flags != 0, RequestFlags::CLIENT_FLAGS)
        | flag(head.argument.is_some(), RequestFlags::ARGUMENT)
        | flag(head.attributes, RequestFlags::ATTRIBUTES)
        | flag(head.sequence.is_some(), RequestFlags::SEQUENCE)
        | flag(head.sequence.is_some_and(|sequence| sequence.again), RequestFlags::AGAIN);
    frame.begin([
        u64::from(head.op as u8)
            | u64::from(flags) << 8
            | u64::from(head.table.0) << 16
            | u64::from(head.id) << 32,
        key.len() as u64 | if head.durable { DURABLE } else { 0 } | (body.len() as u64) << 32,
    ]);
    if flags & RequestFlags::WITH_WORDS != 0 {
        push_optional(frame, &head);
    }
    let body_start = if head.attributes { key.len().next_multiple_of(8) } else { key.len() };
    let tail = bytes_of_mut(frame.reserve((body_start + body.len()).div_ceil(8)));
    tail[..key.len()].copy_from_slice(key);
    tail[body_start..body_start + body.len()].copy_from_slice(body);
}

/// Adds the words of a request that it has with its flags only.
fn push_optional(frame: &mut FrameBuffer, head: &RequestHead) {
    if let Some(Some(expected)) = head.expect {
        frame.push(expected.0);
    }
    let sequence = head.sequence.map(|sequence| sequence.number);
    let client_flags = client_flags_word(head.client_flags);
    let words =
        head.expiry.map(Expiry::word).into_iter().chain(head.argument).chain(sequence).chain(client_flags);
    words.for_each(|word| frame.push(word));
}

/// Takes a word off, if it is there. `None`: it should be, and there are no more.
#[inline(always)]
pub(crate) fn take_optional(is_there: bool, words: &mut &[u64]) -> Option<Option<u64>> {
    if !is_there {
        return Some(None);
    }
    let (word, rest) = words.split_first()?;
    *words = rest;
    Some(Some(*word))
}

/// Takes those words of a request off that it has with its flags only. `None`: they make no sense.
fn take_words(head: &mut RequestHead, flags: u8, tail: &mut &[u64]) -> Option<()> {
    let mut optional = |bit: u8| take_optional(flags & bit != 0, tail);
    if let Some(version) = optional(RequestFlags::EXPECT)? {
        head.expect = Some(Some(Version(version)));
    }
    head.expiry = optional(RequestFlags::EXPIRES)?.map(Expiry::from_word);
    head.argument = optional(RequestFlags::ARGUMENT)?;
    let again = flags & RequestFlags::AGAIN != 0;
    head.sequence = optional(RequestFlags::SEQUENCE)?.map(|number| Sequence { number, again });
    head.client_flags = client_flags(optional(RequestFlags::CLIENT_FLAGS)?)?;
    Some(())
}

/// Client flags as a word; 0 has none.
#[inline]
pub(crate) fn client_flags_word(client_flags: u32) -> Option<u64> {
    (client_flags != 0).then_some(u64::from(client_flags))
}

/// Client flags of their word, if there is one. `None`: it makes no sense.
#[inline]
pub(crate) fn client_flags(word: Option<u64>) -> Option<u32> {
    let Some(word) = word else { return Some(0) };
    u32::try_from(word).ok().filter(|flags| *flags != 0)
}

/// What a request's payload holds and where: a [`Request`] that borrows nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestShape {
    /// The fixed part.
    pub head: RequestHead,
    /// Words before the key.
    first: u32,
    key_bytes: u32,
    /// Counted from where the key begins.
    body_start: u32,
    body_bytes: u32,
}

impl RequestShape {
    /// One without key and body, of an empty payload.
    pub fn of_head(head: RequestHead) -> RequestShape {
        RequestShape { head, first: 0, key_bytes: 0, body_start: 0, body_bytes: 0 }
    }

    /// Reads a payload that was copied out of a ring. `None` when it is no request.
    #[inline]
    pub fn parse(payload: &[u64]) -> Option<RequestShape> {
        let &[word, sizes, ref rest @ ..] = payload else { return None };
        let op = Op::from_number(word as u8)?;
        let flags = (word >> 8) as u8;
        let again = flags & RequestFlags::AGAIN != 0;
        let expects_absent = flags & RequestFlags::EXPECT_ABSENT != 0;
        if (again && flags & RequestFlags::SEQUENCE == 0)
            || (expects_absent && flags & RequestFlags::EXPECT != 0)
        {
            return None;
        }
        let mut head = RequestHead {
            attributes: flags & RequestFlags::ATTRIBUTES != 0,
            expect: expects_absent.then_some(None),
            durable: sizes & DURABLE != 0,
            ..RequestHead::new(op, (word >> 32) as u32, TableId((word >> 16) as u16))
        };
        let mut tail = rest;
        if flags & RequestFlags::WITH_WORDS != 0 {
            take_words(&mut head, flags, &mut tail)?;
        }
        let (key_bytes, body_bytes) = ((sizes & !DURABLE) as u32, (sizes >> 32) as u32);
        if key_bytes > limits::KEY_BYTES_MAX as u32 || body_bytes > limits::FRAME_BYTES_MAX as u32 {
            return None;
        }
        let body_start = if head.attributes { key_bytes.next_multiple_of(8) } else { key_bytes };
        if (body_start + body_bytes).div_ceil(8) as usize != tail.len() {
            return None;
        }
        let first = (payload.len() - tail.len()) as u32;
        Some(RequestShape { head, first, key_bytes, body_start, body_bytes })
    }

    /// The request in the payload that this was read from.
    #[inline]
    pub fn of<'a>(&self, payload: &'a [u64]) -> Request<'a> {
        let tail = &payload[self.first as usize..];
        let bytes = bytes_of(tail);
        Request {
            head: self.head,
            key: &bytes[..self.key_bytes as usize],
            body: &bytes[self.body_start as usize..][..self.body_bytes as usize],
            tail,
        }
    }
}

impl<'a> Request<'a> {
    /// Reads a payload that was copied out of a ring. `None` when it is no request.
    pub fn parse(payload: &'a [u64]) -> Option<Request<'a>> {
        RequestShape::parse(payload).map(|shape| shape.of(payload))
    }
}

/// The fixed part of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyHead {
    /// The request's id.
    pub id: u32,
    /// How it went.
    pub status: Status,
    /// The key's version now; for [`Op::Intern`] the id of the name, for [`Op::Scan`] the number of keys. 0:
    /// absent, where the location is 0 too.
    pub version: u64,
    /// Where the item stands now, as a location word. 0: nowhere; [`IN_A_LEAF`]: the key has no item and is
    /// there.
    pub location: u64,
}

/// In place of a location: the value stands in a leaf.
pub const IN_A_LEAF: u64 = 127 << 40;

/// A reply in a private copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// The fixed part.
    pub head: ReplyHead,
    /// The item's words, if it was asked for and fits a message.
    pub item: &'a [u64],
}

/// Writes the fixed part of a reply; the item's words may follow in `frame`.
#[inline]
pub fn encode_reply(frame: &mut FrameBuffer, head: ReplyHead) {
    frame.begin([u64::from(head.status as u8) | u64::from(head.id) << 32, head.version, head.location]);
}

impl<'a> Reply<'a> {
    /// Reads a payload that was copied out of a ring. `None` when it is no reply.
    #[inline]
    pub fn parse(payload: &'a [u64]) -> Option<Reply<'a>> {
        let &[word, version, location, ref item @ ..] = payload else { return None };
        let status = Status::of_number(word as u8)?;
        Some(Reply { head: ReplyHead { id: (word >> 32) as u32, status, version, location }, item })
    }

    /// The location, if the reply has one.
    #[inline]
    pub fn location(&self) -> Option<Location> {
        if self.head.location == 0 { None } else { Location::from_word(self.head.location) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put() -> FrameBuffer {
        let mut frame = FrameBuffer::default();
        let head = RequestHead {
            expect: Some(Some(Version(9))),
            expiry: Some(Expiry::In(1000)),
            ..RequestHead::new(Op::Put, 0x0102_0304, TableId(5))
        };
        encode_request(&mut frame, head, b"stu001", b"ABY");
        frame
    }

    /// Each of these was a list of its own once: in the shard's check of permissions, in the session's count
    /// of requests, in the session's report of effects, and in the shard's check of loaded tables.
    #[test]
    fn golden_properties() {
        //           writer  effect  once    items
        let golden = [
            (Op::Get, [false, false, false, false]),
            (Op::Put, [true, true, true, true]),
            (Op::Delete, [true, true, true, true]),
            (Op::Intern, [true, true, true, false]),
            (Op::RepairLink, [true, true, false, false]),
            (Op::LargeBegin, [true, false, false, false]),
            (Op::LargePiece, [true, false, false, false]),
            (Op::LargeCommit, [true, true, true, true]),
            (Op::Ping, [false, false, false, false]),
            (Op::Scan, [false, false, false, false]),
            (Op::Build, [true, true, false, false]),
            (Op::Load, [true, true, false, false]),
            (Op::Resolve, [true, true, false, false]),
            (Op::Switch, [true, true, true, false]),
            (Op::Abandon, [true, true, true, false]),
            (Op::Hold, [false, true, false, false]),
            (Op::Freeze, [true, true, false, false]),
            (Op::Overlays, [true, true, false, false]),
            (Op::Drop, [true, true, true, false]),
            (Op::Used, [false, false, false, false]),
            (Op::PutMany, [true, true, true, true]),
        ];
        assert!((1..=u8::MAX).map_while(Op::from_number).eq(golden.iter().map(|(op, _)| *op)));
        for (op, [needs_writer, has_effect, is_deduplicated, changes_items]) in golden {
            let properties = OpProperties { needs_writer, has_effect, is_deduplicated, changes_items };
            assert_eq!(op.properties(), properties, "{op:?}");
        }
    }

    #[test]
    fn golden_request() {
        let frame = put();
        assert_eq!(
            frame.payload(),
            [
                0x0102_0304_0005_0302,
                0x0000_0003_0000_0006,
                9,
                1000,
                u64::from_le_bytes(*b"stu001AB"),
                u64::from(b'Y')
            ]
        );
        let request = Request::parse(frame.payload()).unwrap();
        assert_eq!((request.key, request.body), (&b"stu001"[..], &b"ABY"[..]));
        assert_eq!(
            (request.head.expect, request.head.expiry),
            (Some(Some(Version(9))), Some(Expiry::In(1000)))
        );
    }

    #[test]
    fn golden_expiries() {
        let words = [
            (Expiry::In(1000), 1000),
            (Expiry::In(u64::MAX), u64::MAX >> 1),
            (Expiry::At(1000), 0x8000_0000_0000_03e8),
            (Expiry::At(u64::MAX), u64::MAX),
        ];
        for (expiry, word) in words {
            assert_eq!(expiry.word(), word);
            assert_eq!(Expiry::from_word(word).word(), word);
        }
        assert_eq!(Expiry::from_word(1000), Expiry::In(1000));
        assert_eq!(Expiry::from_word(0x8000_0000_0000_03e8), Expiry::At(1000));
    }

    #[test]
    fn golden_sequence() {
        let mut frame = FrameBuffer::default();
        let sequence = Some(Sequence { number: 7, again: false });
        let head = RequestHead { sequence, ..RequestHead::new(Op::Delete, 1, TableId(5)) };
        encode_request(&mut frame, head, b"k", &[]);
        assert_eq!(frame.payload(), [0x0000_0001_0005_1003, 1, 7, u64::from(b'k')]);
        frame.ask_again();
        assert_eq!(frame.payload(), [0x0000_0001_0005_3003, 1, 7, u64::from(b'k')]);
        let asked = Request::parse(frame.payload()).unwrap();
        assert_eq!(asked.head.sequence, Some(Sequence { number: 7, again: true }));
        // A request without a sequence cannot be known again.
        let mut plain = put();
        let before = plain.payload().to_vec();
        plain.ask_again();
        assert_eq!(plain.payload(), before);
        assert_eq!(Request::parse(&[0x0000_0001_0005_2003, 1, u64::from(b'k')]), None);
    }

    #[test]
    fn golden_client_flags() {
        let mut frame = FrameBuffer::default();
        let head = RequestHead { client_flags: 7, ..RequestHead::new(Op::Put, 1, TableId(5)) };
        encode_request(&mut frame, head, b"k", &[]);
        assert_eq!(frame.payload(), [0x0000_0001_0005_8002, 1, 7, u64::from(b'k')]);
        assert_eq!(Request::parse(frame.payload()).unwrap().head, head);
        for nonsense in [0, 1 << 32] {
            assert_eq!(Request::parse(&[0x0000_0001_0005_8002, 1, nonsense, u64::from(b'k')]), None);
        }
    }

    #[test]
    fn golden_durable() {
        let mut frame = FrameBuffer::default();
        let head = RequestHead { durable: true, ..RequestHead::new(Op::Put, 1, TableId(5)) };
        encode_request(&mut frame, head, b"k", &[]);
        assert_eq!(frame.payload(), [0x0000_0001_0005_0002, 0x8000_0001, u64::from(b'k')]);
        assert_eq!(Request::parse(frame.payload()).unwrap().head, head);
    }

    #[test]
    fn golden_reply() {
        let mut frame = FrameBuffer::default();
        encode_reply(&mut frame, ReplyHead { id: 7, status: Status::Mismatch, version: 8, location: 0 });
        assert_eq!(frame.payload(), [0x0000_0007_0000_0002, 8, 0]);
        let reply = Reply::parse(frame.payload()).unwrap();
        assert_eq!((reply.head.status, reply.location(), reply.item.len()), (Status::Mismatch, None, 0));
        assert!(Reply::parse(&[14, 0, 0]).is_none() && Reply::parse(&[0, 0]).is_none());
    }

    #[test]
    fn attribute_sections_begin_on_a_word() {
        let mut frame = FrameBuffer::default();
        let head = RequestHead { attributes: true, ..RequestHead::new(Op::Put, 1, TableId(1)) };
        encode_request(&mut frame, head, b"abc", &[0; 8]);
        let request = Request::parse(frame.payload()).unwrap();
        assert_eq!((request.tail.len(), request.body.len(), request.key), (2, 8, &b"abc"[..]));
    }

    #[test]
    fn cut_and_flipped_requests_never_panic() {
        let frame = put();
        let good = frame.payload();
        for cut in 0..good.len() {
            assert!(Request::parse(&good[..cut]).is_none(), "cut at {cut}");
        }
        for bit in 0..good.len() * 64 {
            let mut bad = good.to_vec();
            bad[bit / 64] ^= 1 << (bit % 64);
            let _ = Request::parse(&bad);
            let _ = Reply::parse(&bad);
        }
    }
}
