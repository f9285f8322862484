//! Several puts in one request.
//!
//! Each is what a put of its own would be: it has an answer, and where its client counts writes a number, by which
//! it is done once. Together they are found and put with their memory accesses overlapping, and only one of them
//! that finds no room is different: it and those behind it are not done, and the client puts these one by one.

use kelix_fabric::{Clock, Mailbox};
use kelix_image::NoRoom;
use kelix_types::limits::PUTS_A_REQUEST;
use kelix_types::{KeyHash, Place, mark};
use kelix_wire::generation::Arrived;
use kelix_wire::{FrameBuffer, Op, ReplyHead, Request, RequestHead, Sequence, Status, encode_reply, puts};

use crate::clients::Clients;
use crate::recorder::Recorder;
use crate::request::Task;
use crate::shard::Now;
use crate::store::{Answer, Store};

/// An item of a request, and what its key leads to.
#[derive(Clone, Copy)]
struct Near<'a> {
    arrived: Arrived<'a>,
    hash: KeyHash,
    bucket: Place,
}

/// Puts the items of a request, and replies. `unlogged`: why the log takes nothing now.
pub(crate) fn put_many(
    (store, clients, recorder): (&mut Store, &mut Clients, &Recorder),
    (now, unlogged): (Now, Option<Status>),
    fabric: &mut (impl Mailbox + Clock),
    task: &Task,
    frame: &mut FrameBuffer,
) {
    let request = task.request();
    let RequestHead { id, table, sequence, durable, .. } = request.head;
    let refused = unlogged.or_else(|| store.tables.forbid(now, clients.connection(task.peer), &request.head));
    let mut near = [None; PUTS_A_REQUEST];
    let count = store.bring_near(&request, &mut near);
    let status = if count.is_some() { Status::Ok } else { Status::Refused };
    encode_reply(frame, ReplyHead { id, status, version: 0, location: 0 });
    let items = near[..count.unwrap_or(0)].iter().flatten().copied();
    let (mut tried, mut are_known) = (0, false);
    for Near { arrived: Arrived { item, tail }, hash, .. } in items {
        let number = sequence.map(|first| Sequence { number: first.number.wrapping_add(tried), ..first });
        // First of all: what is refused now may have been done before.
        let known = number.map_or(Ok(()), |number| clients.find_answer(task.peer, number));
        let answer = match (known, refused) {
            (Err(known), _) => {
                mark!("put of several asked for again that had been done");
                are_known = true;
                known
            }
            (Ok(()), Some(status)) => ReplyHead { id, status, version: 0, location: 0 },
            (Ok(()), None) => {
                let head = RequestHead {
                    attributes: item.attributes,
                    expiry: item.expiry,
                    client_flags: item.client_flags,
                    durable,
                    ..RequestHead::new(Op::Put, id, table)
                };
                let put = Request { head, key: item.key, body: item.body, tail };
                let Ok(answer) = store.put_one(now, fabric, &put, hash) else {
                    mark!("put of several found no room");
                    break;
                };
                let Answer { status, version, location } = answer;
                let answer = ReplyHead { id, status, version, location };
                if let Some(Sequence { number, .. }) = number {
                    clients.note_answer(task.peer, number, answer, store.image.journal());
                }
                answer
            }
        };
        puts::push_outcome(frame, &answer);
        tried += 1;
    }
    if tried > 1 {
        mark!("several puts in one request");
    }
    frame.set(1, tried);
    if unlogged.is_some() && !are_known {
        clients.refuse(fabric, task, frame);
    } else {
        clients.reply(fabric, task, frame, (store, recorder));
    }
}

impl Store {
    /// Asks for the memory that the items of a request lead to: all buckets first, then what stands there. Returns
    /// how many items there are. `None`: the request makes no sense.
    fn bring_near<'a>(
        &self,
        request: &Request<'a>,
        near: &mut [Option<Near<'a>>; PUTS_A_REQUEST],
    ) -> Option<usize> {
        let (index, image, table) = (&self.index, &self.image, request.head.table);
        if !request.key.is_empty() {
            return None;
        }
        let mut count = 0;
        puts::take_items(request.tail, |arrived| {
            let key = arrived.item.key;
            let hash = index.hash(table, key);
            let bucket = index.prefetch(image, hash, table, key);
            image.prefetch_free(16 + arrived.tail.len() * 8, count);
            near[count] = Some(Near { arrived, hash, bucket });
            count += 1;
        })?;
        for Near { hash, bucket, .. } in near.iter().flatten() {
            index.prefetch_item(image, *bucket, *hash, table);
        }
        Some(count)
    }

    /// Puts one of several items.
    #[inline(always)]
    fn put_one(
        &mut self,
        now: Now,
        clock: &impl Clock,
        request: &Request<'_>,
        hash: KeyHash,
    ) -> Result<Answer, NoRoom> {
        let kind = request.head.table.kind();
        if kind.is_ordered() && !kind.takes_key(request.key) {
            return Ok(Answer::of(Status::Refused));
        }
        if kind.is_ordered() && !kind.has_items() {
            return self.put_inline(request);
        }
        self.put_request(now.options_of(&request.head, clock), request, hash)
    }
}

#[cfg(test)]
mod tests {
    use kelix_image::Committed;
    use kelix_image::words::bytes_of;
    use kelix_log::{LogControl, LogState};
    use kelix_types::limits::SHARD_BATCH;
    use kelix_types::{TableId, TableKind};
    use kelix_wire::control::Caller;
    use kelix_wire::generation::NewItem;
    use kelix_wire::mailboxes::Mailboxes;
    use kelix_wire::puts::PutsBody;
    use kelix_wire::{Expiry, Reply, encode_request};

    use super::*;
    use crate::harness::Harness;
    use crate::held::Durability;

    const TABLE: TableId = TableId(1);

    fn plain<'a>(key: &'a [u8], body: &'a [u8]) -> NewItem<'a> {
        NewItem { key, body, attributes: false, expiry: None, client_flags: 0 }
    }

    fn request(head: RequestHead, items: &[NewItem<'_>]) -> FrameBuffer {
        let (mut body, mut frame) = (PutsBody::default(), FrameBuffer::default());
        items.iter().for_each(|item| body.push(item));
        encode_request(&mut frame, head, &[], bytes_of(body.words()));
        frame
    }

    fn head(table: TableId) -> RequestHead {
        RequestHead::new(Op::PutMany, 7, table)
    }

    fn counted(number: u64, again: bool) -> RequestHead {
        RequestHead { sequence: Some(Sequence { number, again }), ..head(TABLE) }
    }

    /// The status of the reply, and the answers in it.
    fn ask(alone: &mut Harness, mut frame: FrameBuffer) -> (Status, Vec<ReplyHead>) {
        assert!(alone.send(&mut frame).faulty.is_empty());
        let payload = alone.answer().expect("an answer");
        let reply = Reply::parse(&payload).expect("a reply");
        assert_eq!((reply.head.id, alone.has_more()), (7, false));
        let answers = puts::outcomes(reply.item).expect("answers");
        let answers: Vec<ReplyHead> = answers.map(|answer| answer.head).collect();
        assert_eq!(reply.head.version, answers.len() as u64);
        (reply.head.status, answers)
    }

    fn statuses(answers: &[ReplyHead]) -> Vec<Status> {
        answers.iter().map(|answer| answer.status).collect()
    }

    /// The version of a key and its body. `None`: it is not there.
    fn get(alone: &mut Harness, table: TableId, key: &[u8]) -> Option<(u64, Vec<u8>)> {
        let mut frame = FrameBuffer::default();
        encode_request(&mut frame, RequestHead::new(Op::Get, 1, table), key, &[]);
        alone.send(&mut frame);
        let payload = alone.answer().expect("an answer");
        let reply = Reply::parse(&payload).expect("a reply");
        let item = kelix_image::ItemView::new(reply.item)?;
        (reply.head.status == Status::Ok).then(|| (reply.head.version, item.body().to_vec()))
    }

    #[test]
    fn each_of_several_is_put_and_answered_as_by_itself() {
        let mut alone = Harness::new(1, &Mailboxes::default());
        let ends = NewItem { expiry: Some(Expiry::In(1 << 40)), client_flags: 9, ..plain(b"ends", b"value") };
        let no_section = NewItem { attributes: true, ..plain(b"section", b"none") };
        let items = [plain(b"one", b"1"), no_section, ends, plain(b"one", b"2"), plain(b"", b"")];
        let (status, answers) = ask(&mut alone, request(head(TABLE), &items));
        use Status::{Ok, Refused};
        assert_eq!((status, statuses(&answers)), (Ok, vec![Ok, Refused, Ok, Ok, Ok]));
        // Of several with one key the last one stays, since they are done in their order.
        for (key, at, body) in [(&b"one"[..], 3, &b"2"[..]), (b"ends", 2, b"value"), (b"", 4, b"")] {
            let found = get(&mut alone, TABLE, key).unwrap_or_else(|| panic!("{key:?} is not there"));
            assert_eq!(found, (answers[at].version, body.to_vec()));
        }
        assert_eq!(get(&mut alone, TABLE, b"section"), None);
        // Where values stand in leaves they have 8 bytes, and keys of numbers too.
        let (number, short) = (1u64.to_be_bytes(), *b"short");
        for kind in [TableKind::Inline, TableKind::Numbers, TableKind::Strings] {
            let table = TableId::new(kind, 1);
            let name =
                RequestHead { argument: Some(kind as u64), ..RequestHead::new(Op::Intern, 0, TableId(0)) };
            alone.call(name, kind.to_string().as_bytes(), &[]);
            let items =
                [plain(&number, b"8 bytes."), plain(&number, b"9 bytes.."), plain(&short, b"8 bytes.")];
            let (status, answers) = ask(&mut alone, request(head(table), &items));
            let of = |takes: bool| if takes { Ok } else { Refused };
            let wanted = vec![Ok, of(kind.has_items()), of(kind == TableKind::Strings)];
            assert_eq!((status, statuses(&answers)), (Ok, wanted), "{kind}");
            let body = if kind.has_items() { b"9 bytes.." } else { &b"8 bytes."[..] };
            assert_eq!(get(&mut alone, table, &number).map(|found| found.1), Some(body.to_vec()), "{kind}");
        }
        assert_eq!(alone.shard.audit(), Result::Ok(()));
    }

    #[test]
    fn what_is_asked_again_is_done_once_item_by_item() {
        let mut alone = Harness::new(1, &Mailboxes::default());
        alone.leave();
        alone.join(2, Some(Caller { number: 5, again: false }), true);
        let items = [plain(b"one", b"1"), plain(b"two", b"2"), plain(b"three", b"3")];
        let (_, first) = ask(&mut alone, request(counted(1, false), &items[..2]));
        // A write of its own has the number behind those of both.
        let mut put = FrameBuffer::default();
        let single = RequestHead { op: Op::Put, ..counted(3, false) };
        encode_request(&mut put, single, b"one", b"later");
        alone.send(&mut put);
        assert!(alone.answer().is_some());
        alone.leave();
        alone.join(3, Some(Caller { number: 5, again: true }), true);
        let (_, again) = ask(&mut alone, request(counted(1, true), &items[..2]));
        assert_eq!(again, first);
        assert_eq!(get(&mut alone, TABLE, b"one").unwrap().1, b"later", "it was put twice");
        // Of these the first was done before, and no other.
        let (_, rest) = ask(&mut alone, request(counted(2, true), &[items[1], items[0], items[2]]));
        assert_eq!(rest[0], first[1]);
        assert_eq!(statuses(&rest), [Status::Ok; 3]);
        assert_eq!(get(&mut alone, TABLE, b"one").unwrap().1, b"later", "the number 3 was another's");
        assert_eq!(get(&mut alone, TABLE, b"three").unwrap().0, rest[2].version);
    }

    #[test]
    fn those_that_find_no_room_are_left_to_be_asked_for_one_by_one() {
        let mut alone = Harness::new(1, &Mailboxes::default());
        let value = [7; 900];
        let key = |number: u64| number.to_le_bytes();
        let mut next = 0u64;
        let left = loop {
            let keys: Vec<[u8; 8]> = (next..next + PUTS_A_REQUEST as u64).map(key).collect();
            let items: Vec<NewItem<'_>> = keys.iter().map(|key| plain(key, &value)).collect();
            let (status, answers) = ask(&mut alone, request(head(TABLE), &items));
            assert_eq!(status, Status::Ok);
            assert!(answers.iter().all(|answer| answer.status == Status::Ok));
            if answers.len() < items.len() {
                break next + answers.len() as u64..next + items.len() as u64;
            }
            next += answers.len() as u64;
            assert!(next < 100_000, "memory without an end");
        };
        for number in left.clone() {
            assert_eq!(get(&mut alone, TABLE, &key(number)), None);
        }
        assert!(get(&mut alone, TABLE, &key(left.start - 1)).is_some());
        // Such a put waits for memory that is not there, and is told so.
        let mut put = FrameBuffer::default();
        encode_request(&mut put, RequestHead::new(Op::Put, 7, TABLE), &key(left.start), &value);
        alone.send(&mut put);
        let payload = alone.answer().expect("an answer");
        assert_eq!(Reply::parse(&payload).unwrap().head.status, Status::NoRoom);
        assert_eq!(alone.shard.audit(), Ok(()));
    }

    #[test]
    fn nonsense_and_who_may_not_write_change_nothing() {
        let mut alone = Harness::new(1, &Mailboxes::default());
        let good = [plain(b"one", b"1"), plain(b"two", b"2")];
        let words = request(head(TABLE), &good);
        for change in [(2, 1), (2, 3), (2, 0), (2, u64::MAX), (3, 1 << 40 | 3), (5, 9 << 24 | 3)] {
            let mut frame = words.clone();
            frame.set(change.0, change.1);
            assert_eq!(ask(&mut alone, frame), (Status::Refused, vec![]), "{change:?}");
        }
        let mut with_key = FrameBuffer::default();
        encode_request(&mut with_key, head(TABLE), b"a key.. ", &[]);
        assert_eq!(ask(&mut alone, with_key), (Status::Refused, vec![]));
        let (_, answers) = ask(&mut alone, request(head(TableId::CATALOGUE), &good));
        assert_eq!(statuses(&answers), [Status::Refused; 2]);
        alone.leave();
        alone.join(2, None, false);
        assert_eq!(ask(&mut alone, words), (Status::Denied, vec![]));
        assert_eq!((get(&mut alone, TABLE, b"one"), get(&mut alone, TABLE, b"two")), (None, None));
    }

    #[test]
    fn several_are_one_record_and_one_answer_waits_for_the_record() {
        let mut alone = Harness::new(1, &Mailboxes::default());
        let log = LogControl::new().shard(alone.shard.end());
        let _reader = alone.shard.write_log(log.clone(), Durability::Commit);
        // What every shard tells a new follower.
        alone.step();
        log.set_durable(alone.shard.end());
        let before = alone.shard.sequence();
        alone.push(&mut request(head(TABLE), &[plain(b"one", b"1"), plain(b"two", b"2")]));
        alone.step();
        assert_eq!((alone.shard.sequence(), alone.has_more()), (before + 1, false));
        log.set_durable(Committed { record: before + 1, ..alone.shard.end() });
        alone.step();
        let payload = alone.answer().expect("an answer");
        let reply = Reply::parse(&payload).unwrap();
        assert_eq!((reply.head.status, reply.head.version), (Status::Ok, 2));
    }

    /// What had been done was refused, where the log takes no writes any more, and taken for not done.
    #[test]
    fn what_was_done_is_known_where_nothing_more_is_taken() {
        let mut alone = Harness::new(1, &Mailboxes::default());
        let control = LogControl::new();
        let log = control.shard(alone.shard.end());
        let _reader = alone.shard.write_log(log, Durability::Lazy);
        alone.leave();
        alone.join(2, Some(Caller { number: 5, again: false }), true);
        let items = [plain(b"one", b"1"), plain(b"two", b"2"), plain(b"three", b"3")];
        let (_, first) = ask(&mut alone, request(counted(1, false), &items[..2]));
        control.set_state(LogState::Full);
        let (status, again) = ask(&mut alone, request(counted(1, true), &items));
        assert_eq!((status, &again[..2], again[2].status), (Status::Ok, &first[..], Status::ReadOnly));
        let (_, new) = ask(&mut alone, request(counted(4, false), &items[..2]));
        assert_eq!(statuses(&new), [Status::ReadOnly; 2]);
        assert_eq!(get(&mut alone, TABLE, b"three"), None);
    }

    /// Others would wait for all that one client has sent.
    #[test]
    fn a_step_does_as_many_puts_as_when_each_is_a_request() {
        let mut alone = Harness::new(1, &Mailboxes::default());
        let keys: Vec<[u8; 8]> = (0..PUTS_A_REQUEST as u64).map(u64::to_le_bytes).collect();
        let items: Vec<NewItem<'_>> = keys.iter().map(|key| plain(key, b"")).collect();
        // A client that has sent something before is looked at in each step.
        ask(&mut alone, request(head(TABLE), &items));
        let requests = SHARD_BATCH / PUTS_A_REQUEST;
        (0..2 * requests).for_each(|_| alone.push(&mut request(head(TABLE), &items)));
        assert_eq!(
            (alone.step().requests, alone.step().requests, alone.step().requests),
            (requests, requests, 0)
        );
    }
}
