//! Puts, deletes and compare-and-set, one at a time; values that do not fit a message go in pieces.

use std::collections::VecDeque;

use kelix_fabric::Fabric;
use kelix_types::limits::{MESSAGE_VALUE_BYTES_MAX, VALUE_BYTES_MAX};
use kelix_types::{Error, ErrorKind, Result, TableId, Version};
use kelix_wire::{Op, RequestHead, Status};

use crate::Table;
use crate::core::{Answer, RequestId};
use crate::session::{Session, check_answer};
use crate::waiting::Patience;

/// Pieces of a large value that are sent before the first is answered.
const PIECES_UNDER_WAY: usize = 4;

/// How a compare-and-set ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompareAndSet {
    /// It was done; the key's version is now this one (`None` after a delete).
    Done(Option<Version>),
    /// The key has another version than expected: this one (`None`: it is absent).
    Mismatch(Option<Version>),
}

impl Session {
    /// Puts a plain item. Returns its version.
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<Version> {
        let answer = self.write_table("put", table, |session, id| {
            session.write(RequestHead::new(Op::Put, 0, id), key, value)
        })?;
        Ok(Version(answer.version))
    }

    /// Deletes a key. Returns whether it was there.
    pub fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        let answer = self.write_table("delete", table, |session, id| {
            session.write(RequestHead::new(Op::Delete, 0, id), key, &[])
        })?;
        Ok(answer.status == Status::Ok)
    }

    /// Puts a plain item if the key's version is still the expected one (`None`: if it is absent).
    pub fn compare_and_set(
        &mut self,
        table: Table,
        key: &[u8],
        expected: Option<Version>,
        value: &[u8],
    ) -> Result<CompareAndSet> {
        let answer = self.write_table("compare_and_set", table, |session, id| {
            let head = RequestHead { expect: Some(expected), ..RequestHead::new(Op::Put, 0, id) };
            session.write(head, key, value)
        })?;
        Ok(outcome(&answer))
    }

    /// Deletes a key if its version is still the expected one.
    pub fn compare_and_delete(
        &mut self,
        table: Table,
        key: &[u8],
        expected: Version,
    ) -> Result<CompareAndSet> {
        let answer = self.write_table("compare_and_delete", table, |session, id| {
            let head = RequestHead { expect: Some(Some(expected)), ..RequestHead::new(Op::Delete, 0, id) };
            session.write(head, key, &[])
        })?;
        Ok(if answer.status == Status::Ok { CompareAndSet::Done(None) } else { outcome(&answer) })
    }

    /// A write and its answer. A refusal becomes an error.
    pub(crate) fn write(&mut self, head: RequestHead, key: &[u8], body: &[u8]) -> Result<Answer> {
        self.begin(head.table, key)?;
        check_value(&head, body)?;
        let (hash, shard) = self.core.route(head.table, key);
        let answer = if body.len() > MESSAGE_VALUE_BYTES_MAX {
            self.write_in_pieces(shard, head, key, body)?
        } else {
            self.call(shard, head, key, body)?
        };
        check_answer(&answer)?;
        self.core.learn(hash, &answer);
        Ok(answer)
    }

    /// Sends a value that does not fit one message: once more if the connection broke meanwhile, and with it went what the
    /// shard had of the value, unless the last answer shows that it was all there.
    fn write_in_pieces(
        &mut self,
        shard: usize,
        head: RequestHead,
        key: &[u8],
        body: &[u8],
    ) -> Result<Answer> {
        let mut patience = Patience::default();
        self.within_budget(|session| session.write_in_pieces_until((shard, head), key, body, &mut patience))
    }

    fn write_in_pieces_until(
        &mut self,
        (shard, head): (usize, RequestHead),
        key: &[u8],
        body: &[u8],
        patience: &mut Patience,
    ) -> Result<Answer> {
        loop {
            let connections = self.connection.connections;
            let outcome = self.write_in_pieces_once(shard, head, key, body);
            let cut = match &outcome {
                Ok(answer) => answer.status == Status::Refused,
                Err(error) => error.kind() == ErrorKind::InvalidArgument,
            };
            if !cut || self.connection.connections == connections {
                return outcome;
            }
            if patience.waited(self.core.fabric.now_ns()) >= self.limit() {
                return Err(self.timed_out());
            }
        }
    }

    fn write_in_pieces_once(
        &mut self,
        shard: usize,
        head: RequestHead,
        key: &[u8],
        body: &[u8],
    ) -> Result<Answer> {
        if body.len() as u64 > VALUE_BYTES_MAX {
            let context =
                format!("a value of {} bytes; the longest allowed is {VALUE_BYTES_MAX}", body.len());
            return Err(Error::unnamed(ErrorKind::InvalidArgument, context));
        }
        let begin =
            RequestHead { op: Op::LargeBegin, argument: Some(body.len() as u64), expect: None, ..head };
        let answer = self.call(shard, begin, key, &[])?;
        if answer.status != Status::Ok {
            return Ok(answer);
        }
        let mut under_way = VecDeque::new();
        let sent = self.send_pieces(shard, head.table, body, &mut under_way);
        for id in under_way {
            self.core.abandon(id);
        }
        sent?;
        let commit = RequestHead { op: Op::LargeCommit, expiry: None, client_flags: 0, ..head };
        self.call(shard, commit, key, &[])
    }

    /// Sends the pieces of a value, a few under way at once, so that sending and storing overlap. After an error those
    /// in `under_way` are still unanswered.
    fn send_pieces(
        &mut self,
        shard: usize,
        table: TableId,
        body: &[u8],
        under_way: &mut VecDeque<RequestId>,
    ) -> Result<()> {
        let mut patience = Patience::default();
        let mut pieces = body.chunks(MESSAGE_VALUE_BYTES_MAX).enumerate().peekable();
        while pieces.peek().is_some() || !under_way.is_empty() {
            if let Some((number, piece)) = pieces.next() {
                let at = (number * MESSAGE_VALUE_BYTES_MAX) as u64;
                let head = RequestHead { argument: Some(at), ..RequestHead::new(Op::LargePiece, 0, table) };
                under_way.push_back(self.post(shard, head, &[], piece, &mut patience)?);
                self.core.send(shard);
            }
            if under_way.len() > PIECES_UNDER_WAY || pieces.peek().is_none() {
                let id = under_way.pop_front().expect("some");
                check_answer(&self.wait_for(id, &mut patience)?)?;
            }
        }
        Ok(())
    }
}

/// Whether a table can hold what is to be put.
pub(crate) fn check_value(head: &RequestHead, body: &[u8]) -> Result<()> {
    let put = head.op == Op::Put && !head.table.kind().has_items();
    let is_plain = !head.attributes && head.expiry.is_none() && head.client_flags == 0;
    if !put || (body.len() == 8 && is_plain) {
        return Ok(());
    }
    let context = match (head.attributes, head.expiry) {
        (true, _) => "the values of this table have 8 bytes, and neither attributes nor links".to_string(),
        (_, Some(_)) => "the values of this table cannot expire".to_string(),
        _ if head.client_flags != 0 => "the values of this table have no flags".to_string(),
        _ => format!("a value of {} bytes; those of this table have 8", body.len()),
    };
    Err(Error::unnamed(ErrorKind::InvalidArgument, context))
}

pub(crate) fn outcome(answer: &Answer) -> CompareAndSet {
    match answer.status {
        Status::Ok => CompareAndSet::Done(answer.version()),
        _ => CompareAndSet::Mismatch(answer.version()),
    }
}
