//! Values that do not fit one message: sent in pieces, made live by one item at the end.
//!
//! Up to 1 MiB the pieces are gathered here and the item is put like any other. Beyond that they are written
//! straight into page runs, which no pointer names until the item with their places is live.

use kelix_image::words::bytes_of_mut;
use kelix_image::{Attributes, Image, ItemFlags, ItemHeader, ItemOptions, LargeBody, NoRoom};
use kelix_types::limits::{INLINE_BODY_BYTES_MAX, VALUE_BYTES_MAX};
use kelix_types::{KeyHash, Place, TableId, mark};
use kelix_wire::{Request, Status};

use crate::store::{Answer, NewItem, Store, item_flags};

/// A value on its way in. A client has at most one.
pub(crate) struct Upload {
    /// Which request began it.
    begun: u64,
    table: TableId,
    key: Vec<u8>,
    attributes: bool,
    options: ItemOptions,
    bytes: u64,
    written: u64,
    target: Target,
}

enum Target {
    /// Key and body as they will stand in the item.
    Gathered(Vec<u64>),
    Runs(Vec<(Place, u64)>),
}

fn body_start(key: &[u8], aligned: bool) -> usize {
    if aligned { key.len().next_multiple_of(8) } else { key.len() }
}

/// Makes room for a value.
pub(crate) fn begin(
    store: &mut Store,
    current: &mut Option<Upload>,
    (options, order): (ItemOptions, u64),
    request: &Request<'_>,
) -> Result<Answer, NoRoom> {
    let head = &request.head;
    let bytes = head.argument.unwrap_or(0);
    if head.table == TableId::CATALOGUE || bytes == 0 || bytes > VALUE_BYTES_MAX {
        return Ok(Answer::of(Status::Refused));
    }
    if bytes > store.image.memory_use().limit {
        return Ok(Answer::of(Status::NoRoom));
    }
    if current.as_ref().is_some_and(|upload| upload.begun > order) {
        // It waited for memory, and its client has begun another one since.
        mark!("upload was given up before it began");
        return Ok(Answer::of(Status::Refused));
    }
    if let Some(upload) = current.take() {
        upload.abandon(&mut store.image);
    }
    let target = if bytes <= INLINE_BODY_BYTES_MAX as u64 {
        let start = body_start(request.key, head.attributes);
        let mut tail = vec![0; (start + bytes as usize).div_ceil(8)];
        bytes_of_mut(&mut tail)[..request.key.len()].copy_from_slice(request.key);
        Target::Gathered(tail)
    } else {
        Target::Runs(allocate_runs(store, bytes)?)
    };
    *current = Some(Upload {
        begun: order,
        table: head.table,
        key: request.key.to_vec(),
        attributes: head.attributes,
        options,
        bytes,
        written: 0,
        target,
    });
    Ok(Answer::of(Status::Ok))
}

/// Page runs for a value of so many bytes, which nothing names yet.
pub(crate) fn allocate_runs(store: &mut Store, bytes: u64) -> Result<Vec<(Place, u64)>, NoRoom> {
    let mut runs = Vec::new();
    let mut missing = bytes;
    while missing > 0 {
        match store.image.allocate_run(missing) {
            Ok((place, held)) => {
                runs.push((place, held));
                missing -= held;
            }
            Err(no_room) => {
                store.note_no_run(bytes);
                runs.into_iter().for_each(|(place, held)| store.image.discard_run(place, held));
                return Err(no_room);
            }
        }
    }
    Ok(runs)
}

/// Takes one piece. Pieces come in order and, but for the last, in whole words.
pub(crate) fn add_piece(store: &mut Store, current: &mut Option<Upload>, request: &Request<'_>) -> Answer {
    let Some(mut upload) = current.take() else { return Answer::of(Status::Refused) };
    let length = request.body.len() as u64;
    let fits = upload.written + length <= upload.bytes && upload.written % 8 == 0;
    if request.head.argument != Some(upload.written) || !fits || !request.key.is_empty() {
        upload.abandon(&mut store.image);
        return Answer::of(Status::Refused);
    }
    match &mut upload.target {
        Target::Gathered(tail) => {
            let start = body_start(&upload.key, upload.attributes) + upload.written as usize;
            bytes_of_mut(tail)[start..start + request.body.len()].copy_from_slice(request.body);
        }
        Target::Runs(runs) => {
            let mut words = request.tail;
            let mut at = upload.written;
            while !words.is_empty() {
                let (place, room_bytes) = locate(runs, at);
                let count = words.len().min(room_bytes.div_ceil(8) as usize);
                store.image.change(place, count).copy_in(0, &words[..count]);
                words = &words[count..];
                at += count as u64 * 8;
            }
        }
    }
    upload.written += length;
    *current = Some(upload);
    Answer::of(Status::Ok)
}

/// Makes the value live.
pub(crate) fn commit(
    store: &mut Store,
    current: &mut Option<Upload>,
    order: u64,
    request: &Request<'_>,
    hash: KeyHash,
) -> Result<Answer, NoRoom> {
    let Some(upload) = take(current, order) else { return Ok(Answer::of(Status::Refused)) };
    let whole = upload.written == upload.bytes
        && upload.table == request.head.table
        && upload.key == request.key
        && upload.is_sound();
    if !whole {
        upload.abandon(&mut store.image);
        return Ok(Answer::of(Status::Refused));
    }
    let answer = match &upload.target {
        Target::Gathered(tail) => {
            let flags = item_flags(upload.attributes, upload.options);
            put(store, (request, hash), &upload, flags, upload.bytes as usize, tail)
        }
        Target::Runs(runs) => {
            let body = LargeBody { bytes: upload.bytes, runs: runs.clone() }.words();
            let mut tail = vec![0; upload.key.len().div_ceil(8)];
            bytes_of_mut(&mut tail)[..upload.key.len()].copy_from_slice(&upload.key);
            tail.extend_from_slice(&body);
            let flags = item_flags(upload.attributes, upload.options).with(ItemFlags::LARGE);
            put(store, (request, hash), &upload, flags, body.len() * 8, &tail)
        }
    };
    match &answer {
        Ok(answer) if answer.status == Status::Ok => {}
        Ok(_) => upload.abandon(&mut store.image),
        Err(_) => *current = Some(upload),
    }
    answer
}

fn put(
    store: &mut Store,
    (request, hash): (&Request<'_>, KeyHash),
    upload: &Upload,
    flags: ItemFlags,
    body_bytes: usize,
    tail: &[u64],
) -> Result<Answer, NoRoom> {
    let header = ItemHeader { table: upload.table, flags, key_bytes: upload.key.len(), body_bytes };
    let overlay = store.tables.overlay(&request.head);
    let options = upload.options;
    let item = NewItem { header, options, tail, resolves_links: false, overlay };
    store.put_alone((hash, &upload.key), request.head.expect, item)
}

/// Takes the upload that a commit is for: one that was begun before it.
pub(crate) fn take(current: &mut Option<Upload>, order: u64) -> Option<Upload> {
    current.take_if(|upload| upload.begun < order)
}

impl Upload {
    /// Gives the memory back that it has.
    pub fn abandon(self, image: &mut Image) {
        if let Target::Runs(runs) = self.target {
            runs.into_iter().for_each(|(place, held)| image.discard_run(place, held));
        }
    }

    /// Runs of pages that it has.
    pub fn runs(&self) -> &[(Place, u64)] {
        match &self.target {
            Target::Gathered(_) => &[],
            Target::Runs(runs) => runs,
        }
    }

    /// Whether the body is what it claims to be. Attribute sections in runs are checked by whoever reads
    /// them.
    fn is_sound(&self) -> bool {
        match &self.target {
            Target::Gathered(tail) if self.attributes => {
                let start = body_start(&self.key, true);
                let body = &kelix_image::words::bytes_of(tail)[start..start + self.bytes as usize];
                Attributes::check(body)
            }
            Target::Gathered(_) => true,
            Target::Runs(runs) => (1 + 2 * runs.len()) * 8 <= INLINE_BODY_BYTES_MAX,
        }
    }
}

/// Where byte `at` of a value stands, and how many bytes of its run follow.
fn locate(runs: &[(Place, u64)], mut at: u64) -> (Place, u64) {
    for (place, bytes) in runs {
        if at < *bytes {
            return (place.plus(at), bytes - at);
        }
        at -= bytes;
    }
    unreachable!("a piece inside the value")
}
