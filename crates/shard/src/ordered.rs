//! What is different where keys have an order: scans, and values that stand in leaves.

use kelix_image::{Image, ItemHeader, NoRoom, inline_item, load_key};
use kelix_index::{FoundKey, ScanFrom, location_of};
use kelix_types::limits::{COUNT_KEYS_MAX, FRAME_BYTES_MAX, SCAN_KEYS_MAX};
use kelix_types::{Location, TableId, Version};
use kelix_wire::{
    FrameBuffer, IN_A_LEAF, Op, ReplyHead, Request, ScanArgument, Status, encode_reply, push_key,
    reserve_item,
};

use crate::request::Task;
use crate::store::{Answer, Store};
use crate::unordered::scan_unordered;

/// Words of a scan's reply, so that a frame holds them.
const SCAN_WORDS_MAX: usize = FRAME_BYTES_MAX / 8 - 16;

impl Store {
    /// Executes a request to an ordered table, if it is not done as with any other. `Ok(false)`: it is.
    pub(crate) fn execute_ordered(&mut self, task: &Task, frame: &mut FrameBuffer) -> Result<bool, NoRoom> {
        let request = task.request();
        let (id, kind) = (request.head.id, request.head.table.kind());
        let answer = match request.head.op {
            Op::Scan => {
                self.scan(&request, frame);
                return Ok(true);
            }
            Op::Ping | Op::Used | Op::LargePiece | Op::Intern | Op::Drop => return Ok(false),
            Op::Build | Op::Load | Op::Resolve | Op::Switch | Op::Abandon => return Ok(false),
            Op::Hold | Op::Freeze | Op::Overlays | Op::PutMany => return Ok(false),
            _ if !kind.takes_key(request.key) => Answer::of(Status::Refused),
            _ if kind.has_items() => return Ok(false),
            Op::Get => {
                self.get_inline(&request, frame);
                self.tell_model(&request, frame);
                return Ok(true);
            }
            Op::Put => self.put_inline(&request)?,
            Op::Delete => self.delete_inline(&request),
            Op::RepairLink | Op::LargeBegin | Op::LargeCommit => Answer::of(Status::Refused),
        };
        let Answer { status, version, location } = answer;
        encode_reply(frame, ReplyHead { id, status, version, location });
        Ok(true)
    }

    fn find_inline(&self, request: &Request<'_>) -> Option<FoundKey> {
        self.find_key_inline((request.head.table, request.key))
    }

    fn get_inline(&mut self, request: &Request<'_>, frame: &mut FrameBuffer) {
        self.counters.gets += 1;
        let (id, table) = (request.head.id, request.head.table);
        let Some(FoundKey { second: value, .. }) = self.find_inline(request) else {
            encode_reply(frame, ReplyHead { id, status: Status::Absent, version: 0, location: 0 });
            return;
        };
        encode_reply(frame, ReplyHead { id, status: Status::Ok, version: value, location: IN_A_LEAF });
        let words = inline_item(table, request.tail[0].to_le_bytes(), value);
        frame.reserve(words.len()).copy_from_slice(&words);
    }

    /// Appends the sub-model of a key to the reply to a get, if it was asked for and there is room.
    pub(crate) fn tell_model(&mut self, request: &Request<'_>, frame: &mut FrameBuffer) {
        let Some(index) = self.index.ordered(request.head.table).filter(|_| request.head.argument == Some(1))
        else {
            return;
        };
        let mut words = std::mem::take(&mut self.scratch);
        words.clear();
        index.tell_model(&self.image, request.key, &mut words);
        if frame.payload().len() + words.len() <= SCAN_WORDS_MAX {
            frame.reserve(words.len()).copy_from_slice(&words);
            self.counters.models_told += 1;
        }
        self.scratch = words;
    }

    /// The answer where the key has not the value that was expected.
    fn mismatch_inline(request: &Request<'_>, found: Option<FoundKey>) -> Option<Answer> {
        let value = found.map(|found| Version(found.second));
        if request.head.expect.is_none_or(|expected| expected == value) {
            return None;
        }
        let (version, location) = value.map_or((0, 0), |value| (value.0, IN_A_LEAF));
        Some(Answer { status: Status::Mismatch, version, location })
    }

    pub(crate) fn put_inline(&mut self, request: &Request<'_>) -> Result<Answer, NoRoom> {
        let head = &request.head;
        let is_plain = !head.attributes && head.expiry.is_none() && head.client_flags == 0;
        let (Ok(value), true) = (<[u8; 8]>::try_from(request.body), is_plain) else {
            return Ok(Answer::of(Status::Refused));
        };
        let found = self.find_inline(request);
        if let Some(mismatch) = Self::mismatch_inline(request, found) {
            return Ok(mismatch);
        }
        let value = u64::from_le_bytes(value);
        self.set_found_inline((head.table, request.key), found, value)?;
        Ok(Answer { status: Status::Ok, version: value, location: IN_A_LEAF })
    }

    fn set_found_inline(
        &mut self,
        key: (TableId, &[u8]),
        found: Option<FoundKey>,
        value: u64,
    ) -> Result<(), NoRoom> {
        match found {
            Some(found) => self.index.replace_ordered(&mut self.image, key, found, value)?,
            None => {
                self.index.insert_ordered(&mut self.image, key, value)?;
                self.counters.items += 1;
            }
        }
        self.counters.puts += 1;
        Ok(())
    }

    fn find_key_inline(&self, (table, key): (TableId, &[u8])) -> Option<FoundKey> {
        self.index.ordered(table)?.find(&self.image, key)
    }

    /// Puts a key and its value.
    pub(crate) fn set_inline(&mut self, key: (TableId, &[u8]), value: u64) -> Result<(), NoRoom> {
        self.set_found_inline(key, self.find_key_inline(key), value)
    }

    /// Takes a key away, if it is there.
    pub(crate) fn remove_inline(&mut self, key: (TableId, &[u8])) -> bool {
        let Some(found) = self.find_key_inline(key) else { return false };
        self.index.remove_ordered(&mut self.image, key, found.word);
        self.counters.items -= 1;
        true
    }

    fn delete_inline(&mut self, request: &Request<'_>) -> Answer {
        let found = self.find_inline(request);
        if let Some(mismatch) = Self::mismatch_inline(request, found) {
            return mismatch;
        }
        if !self.remove_inline((request.head.table, request.key)) {
            return Answer::of(Status::Absent);
        }
        self.counters.deletes += 1;
        Answer::of(Status::Ok)
    }

    /// Brings keys in their order, or counts them. A reply has so many that the shard is not kept for long.
    pub(crate) fn scan(&mut self, request: &Request<'_>, frame: &mut FrameBuffer) {
        let (id, table) = (request.head.id, request.head.table);
        let argument = request.head.argument.and_then(ScanArgument::from_word);
        let argument = argument.filter(|argument| argument.limit > 0);
        if let Some(argument) = argument.filter(|_| !table.kind().is_ordered()) {
            self.counters.scans += 1;
            if scan_unordered(self, request, argument, frame).is_some() {
                return;
            }
        }
        let fits = |key: &[u8], given: bool| if given { table.kind().takes_key(key) } else { key.is_empty() };
        let argument = argument.filter(|argument| {
            let keys_fit = fits(request.key, argument.from) && fits(request.body, argument.until);
            table.kind().is_ordered() && keys_fit
        });
        let Some(argument) = argument else {
            let refused = ReplyHead { id, status: Status::Refused, version: 0, location: 0 };
            return encode_reply(frame, refused);
        };
        self.counters.scans += 1;
        encode_reply(frame, ReplyHead { id, status: Status::Ok, version: 0, location: 0 });
        let until = argument.until.then_some(request.body);
        if argument.estimate {
            let from = argument.from.then_some(request.key);
            let index = self.index.ordered(table);
            frame.push(1);
            return frame.set(1, index.map_or(0, |index| index.estimate(&self.image, from, until)));
        }
        let mut scan = Scan::new(table, argument, until, frame);
        let key = argument.from.then_some(request.key);
        let from = ScanFrom { key, after: argument.after, backwards: argument.backwards };
        if let Some(index) = self.index.ordered(table) {
            let image = &self.image;
            scan.ended =
                index.scan(image, from, |word, second| scan.visit(image, word, second)) || scan.ended;
        } else {
            scan.ended = true;
        }
        scan.finish();
    }
}

/// Appends an item to the reply of a scan, if there is room. One that is too long comes alone, and without
/// its body: the client gets it where it stands. `others`: it would not be alone.
pub(crate) fn push_scanned(image: &Image, location: Location, others: bool, frame: &mut FrameBuffer) -> bool {
    let room = SCAN_WORDS_MAX - frame.payload().len();
    let slot = image.slot(location);
    let header = ItemHeader::from_word(slot.load(1)).expect("an item of this image");
    let mut words = header.item_bytes().div_ceil(8);
    if words >= room {
        words = (header.key_start() + header.key_bytes).div_ceil(8);
        if others {
            return false;
        }
    }
    slot.copy_out(0, reserve_item(frame, location, words));
    true
}

/// A scan under way, whose keys go into a reply.
struct Scan<'s> {
    table: TableId,
    argument: ScanArgument,
    until: Option<&'s [u8]>,
    limit: usize,
    keys: usize,
    /// The key just looked at.
    key: Vec<u8>,
    ended: bool,
    frame: &'s mut FrameBuffer,
}

impl<'s> Scan<'s> {
    fn new(
        table: TableId,
        argument: ScanArgument,
        until: Option<&'s [u8]>,
        frame: &'s mut FrameBuffer,
    ) -> Scan<'s> {
        let most = if argument.count { COUNT_KEYS_MAX } else { SCAN_KEYS_MAX };
        let limit = most.min(argument.limit as usize);
        frame.push(0);
        Scan { table, argument, until, limit, keys: 0, key: Vec::new(), ended: false, frame }
    }

    /// Takes a key, and says whether another one is wanted.
    fn visit(&mut self, image: &Image, word: u64, second: u64) -> bool {
        if self.keys == self.limit {
            return false;
        }
        if self.until.is_some() || self.argument.count {
            self.load_key(image, word, second);
            let order = self.until.map(|until| self.key[..].cmp(until));
            self.ended = order.is_some_and(|order| match self.argument.backwards {
                false => order.is_ge(),
                true => order.is_lt(),
            });
            if self.ended {
                return false;
            }
        }
        let taken = self.argument.count || self.push(image, word, second);
        self.keys += usize::from(taken);
        taken
    }

    fn load_key(&mut self, image: &Image, word: u64, second: u64) {
        self.key.clear();
        if self.table.kind().has_numbers() {
            return self.key.extend_from_slice(&word.to_be_bytes());
        }
        load_key(image.slot(location_of(second)), &mut self.key);
    }

    /// Appends a key to the reply, if there is room.
    fn push(&mut self, image: &Image, word: u64, second: u64) -> bool {
        if self.table.kind().has_items() {
            return push_scanned(image, location_of(second), self.keys > 0, self.frame);
        }
        let room = SCAN_WORDS_MAX - self.frame.payload().len();
        if room >= 2 {
            self.frame.push(word);
            self.frame.push(second);
        }
        room >= 2
    }

    /// Says in the reply how many keys it brings, and whether there are more.
    fn finish(self) {
        if self.argument.count && self.keys > 0 {
            push_key(self.frame, &self.key);
        }
        self.frame.set(1, self.keys as u64);
        self.frame.set(3, u64::from(self.ended));
    }
}
