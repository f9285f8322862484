//! A write and its answer; values that do not fit a message go in pieces.

use kelix_fabric::Clock;
use kelix_types::limits::{MESSAGE_VALUE_BYTES_MAX, VALUE_BYTES_MAX};
use kelix_types::{Error, ErrorKind, Result, TableId};
use kelix_wire::{Op, RequestHead, Status};

use super::{Engine, Patience, Pipeline, check_answer};
use crate::transport::Answer;

/// Pieces of a large value that are sent before the first is answered.
const PIECES_UNDER_WAY: usize = 4;

impl Engine {
    /// A write and its answer. A refusal becomes an error.
    pub fn write(&mut self, head: RequestHead, key: &[u8], body: &[u8]) -> Result<Answer> {
        self.begin(head.table, key)?;
        check_value(&head, body)?;
        let (hash, shard) = self.transport.route(head.table, key);
        let answer = if body.len() > MESSAGE_VALUE_BYTES_MAX {
            self.write_in_pieces(shard, head, key, body)?
        } else {
            self.call(shard, head, key, body)?
        };
        check_answer(&answer)?;
        self.transport.learn(hash, &answer);
        Ok(answer)
    }

    /// Sends a value that does not fit one message: once more if the connection broke meanwhile, and with it
    /// went what the shard had of the value, unless the last answer shows that it was all there.
    fn write_in_pieces(
        &mut self,
        shard: usize,
        head: RequestHead,
        key: &[u8],
        body: &[u8],
    ) -> Result<Answer> {
        let mut patience = Patience::default();
        self.within_budget(|engine| engine.write_in_pieces_until((shard, head), key, body, &mut patience))
    }

    fn write_in_pieces_until(
        &mut self,
        (shard, head): (usize, RequestHead),
        key: &[u8],
        body: &[u8],
        patience: &mut Patience,
    ) -> Result<Answer> {
        loop {
            let ways = self.connection.ways;
            let outcome = self.write_in_pieces_once(shard, head, key, body);
            let cut = match &outcome {
                Ok(answer) => answer.status == Status::Refused,
                Err(error) => error.kind() == ErrorKind::InvalidArgument,
            };
            if !cut || self.connection.ways == ways {
                return outcome;
            }
            if patience.waited(self.transport.fabric.now_ns()) >= self.limit() {
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
        let mut pieces = Pipeline::default();
        let sent = self.send_pieces(shard, head.table, body, &mut pieces);
        pieces.abandon(self);
        sent?;
        let commit = RequestHead { op: Op::LargeCommit, expiry: None, client_flags: 0, ..head };
        self.call(shard, commit, key, &[])
    }

    /// Sends the pieces of a value, a few under way at once, so that sending and storing overlap. After an
    /// error those in the pipeline are still unanswered.
    fn send_pieces(
        &mut self,
        shard: usize,
        table: TableId,
        body: &[u8],
        under_way: &mut Pipeline<()>,
    ) -> Result<()> {
        let mut patience = Patience::default();
        let mut pieces = body.chunks(MESSAGE_VALUE_BYTES_MAX).enumerate();
        loop {
            let piece = pieces.next();
            if let Some((number, piece)) = piece {
                let at = (number * MESSAGE_VALUE_BYTES_MAX) as u64;
                let head = RequestHead { argument: Some(at), ..RequestHead::new(Op::LargePiece, 0, table) };
                under_way.push(self.post(shard, head, &[], piece, &mut patience)?, ());
                self.transport.send(shard);
            }
            if under_way.len() > PIECES_UNDER_WAY || piece.is_none() {
                let Some((answer, ())) = under_way.next(self, &mut patience) else { return Ok(()) };
                check_answer(&answer?)?;
            }
        }
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
