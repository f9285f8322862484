//! The puts of a batch: gathered by shard, several in a request (`kelix_wire::puts`).

use std::ops::Range;

use kelix_image::words::bytes_of;
use kelix_types::limits::{MESSAGE_VALUE_BYTES_MAX, PUTS_A_REQUEST};
use kelix_types::{Error, ErrorKind, KeyHash, Result, TableId, Version, mark};
use kelix_wire::generation::NewItem;
use kelix_wire::puts::PutsBody;
use kelix_wire::{Op, RequestHead};

use crate::engine::{Engine, Patience, Pipeline, check_answer, check_key, check_value};
use crate::transport::Answer;

/// Puts that are sent together. Twice as many are under way, so that the shard is never without.
pub(crate) const PUTS_A_WAVE: usize = 64;
/// Longest key and value that go with others in a request. Of longer ones the copy counts, and what a request
/// costs beside does not.
const SMALL_BYTES: usize = 1024;

/// One of the items, and the hash of its key.
type Numbered = (usize, KeyHash);

/// Puts for one shard that are not sent yet.
#[derive(Default)]
struct Gathered {
    body: PutsBody,
    items: Vec<Numbered>,
}

/// The puts of a batch: those to come, those under way, and how the others ended.
pub(crate) struct Puts<'p> {
    /// Named in the error of each put.
    operation: &'static str,
    table: TableId,
    items: &'p [(&'p [u8], &'p [u8])],
    /// For each shard.
    gathered: Vec<Gathered>,
    /// The puts sent so far, request by request.
    sent: Vec<Numbered>,
    /// Requests, with those of `sent` that each has.
    under_way: Pipeline<Range<usize>>,
    /// Puts that are not answered yet.
    unanswered: usize,
    results: Vec<Option<Result<Version>>>,
    begun: usize,
    patience: Patience,
    /// What the server failed with when it did not answer one.
    lost: Option<ErrorKind>,
}

impl<'p> Puts<'p> {
    /// The puts of a batch into a table. An error: one of them cannot be.
    pub fn new(
        engine: &Engine,
        operation: &'static str,
        table: TableId,
        items: &'p [(&'p [u8], &'p [u8])],
    ) -> Result<Puts<'p>> {
        items.iter().try_for_each(|(key, value)| {
            check_key(table, key)?;
            check_value(&RequestHead::new(Op::Put, 0, table), value)
        })?;
        let (mut results, mut gathered) = (Vec::new(), Vec::new());
        results.resize_with(items.len(), || None);
        gathered.resize_with(engine.transport.shards(), Gathered::default);
        Ok(Puts {
            operation,
            table,
            items,
            gathered,
            sent: Vec::with_capacity(items.len()),
            under_way: Pipeline::with_capacity(items.len().min(2 * PUTS_A_WAVE)),
            unanswered: 0,
            results,
            begun: 0,
            patience: Patience::default(),
            lost: None,
        })
    }

    /// Whether any was begun.
    pub fn have_begun(&self) -> bool {
        self.begun > 0
    }

    /// The patience of the batch.
    pub fn patience(&mut self) -> &mut Patience {
        &mut self.patience
    }

    /// Sends a wave of puts, unless an earlier one was not answered. `false`: there was none left.
    pub fn send(&mut self, engine: &mut Engine) -> bool {
        let wave = self.begun..self.items.len().min(self.begun + PUTS_A_WAVE);
        if wave.is_empty() {
            // Nor is there anything to send: a sleeping shard is not to be woken for it.
            return false;
        }
        self.begun = wave.end;
        let gathers = engine.transport.puts_many();
        for number in wave {
            let (key, value) = self.items[number];
            let (hash, shard) = engine.transport.route(self.table, key);
            if !gathers || key.len() + value.len() > SMALL_BYTES {
                self.send_one(engine, (number, hash), shard);
                continue;
            }
            let Gathered { body, items } = &mut self.gathered[shard];
            body.push(&NewItem { key, body: value, attributes: false, expiry: None, client_flags: 0 });
            items.push((number, hash));
            if items.len() == PUTS_A_REQUEST {
                self.send_gathered(engine, shard);
            }
        }
        (0..self.gathered.len()).for_each(|shard| self.send_gathered(engine, shard));
        engine.send_all();
        true
    }

    /// Sends what was gathered for a shard.
    fn send_gathered(&mut self, engine: &mut Engine, shard: usize) {
        let Gathered { body, items } = &mut self.gathered[shard];
        if items.len() < 2 {
            body.clear();
            return items.pop().into_iter().for_each(|item| self.send_one(engine, item, shard));
        }
        let first = self.sent.len();
        self.sent.append(items);
        let (sent, head) = (first..self.sent.len(), RequestHead::new(Op::PutMany, 0, self.table));
        let posted = match self.lost {
            Some(kind) => Err(not_sent(kind)),
            None => engine.post(shard, head, &[], bytes_of(body.words()), &mut self.patience),
        };
        body.clear();
        match posted {
            Ok(request) => {
                self.unanswered += sent.len();
                self.under_way.push(request, sent);
            }
            Err(error) => self.fail(sent, error),
        }
    }

    /// Sends a put by itself.
    fn send_one(&mut self, engine: &mut Engine, (number, hash): Numbered, shard: usize) {
        let (key, value) = self.items[number];
        let head = RequestHead::new(Op::Put, 0, self.table);
        if let Some(kind) = self.lost {
            return self.end(number, Err(not_sent(kind)));
        }
        if value.len() > MESSAGE_VALUE_BYTES_MAX {
            let answer = engine.write(head, key, value);
            return self.end(number, answer);
        }
        match engine.post(shard, head, key, value, &mut self.patience) {
            Ok(request) => {
                let at = self.sent.len();
                self.sent.push((number, hash));
                self.unanswered += 1;
                self.under_way.push(request, at..at + 1);
            }
            Err(error) => self.end(number, Err(error)),
        }
    }

    /// Waits until no more than so many puts are under way.
    pub fn wait(&mut self, engine: &mut Engine, left: usize) {
        while self.unanswered > left {
            let Some((answer, sent)) = self.under_way.next(engine, &mut self.patience) else {
                break;
            };
            self.unanswered -= sent.len();
            let answer = answer.and_then(|answer| check_answer(&answer).map(|()| answer));
            match answer {
                Ok(answer) if sent.len() == 1 => self.take_answer(engine, self.sent[sent.start], answer),
                Ok(answer) => self.take_answers(engine, sent, &answer),
                Err(error) => self.fail(sent, error),
            }
        }
    }

    /// Takes the answers to several puts of one request. Those that were not tried are sent once more, each by
    /// itself.
    fn take_answers(&mut self, engine: &mut Engine, mut sent: Range<usize>, answer: &Answer) {
        let Some(answers) = answer.of_puts() else {
            let context = "a reply that makes no sense";
            return self.fail(sent, Error::unnamed(ErrorKind::Protocol, context));
        };
        for answer in answers.take(sent.len()) {
            self.take_answer(engine, self.sent[sent.start], answer);
            sent.start += 1;
        }
        if sent.is_empty() {
            return;
        }
        mark!("puts of several that found no room were asked for one by one");
        for at in sent {
            let (number, hash) = self.sent[at];
            let (_, shard) = engine.transport.route(self.table, self.items[number].0);
            self.send_one(engine, (number, hash), shard);
        }
        engine.send_all();
    }

    fn take_answer(&mut self, engine: &mut Engine, (number, hash): Numbered, answer: Answer) {
        let answer = check_answer(&answer).map(|()| {
            engine.transport.learn(hash, &answer);
            answer
        });
        self.end(number, answer);
    }

    /// Ends puts that one request had, with the same error.
    fn fail(&mut self, sent: Range<usize>, error: Error) {
        for at in sent.clone().skip(1) {
            let same = Error::new(error.kind(), error.operation(), error.context());
            let same = same.with_effect(error.effect()).with_retry(error.retry());
            self.end(self.sent[at].0, Err(same));
        }
        self.end(self.sent[sent.start].0, Err(error));
    }

    fn end(&mut self, number: usize, answer: Result<Answer>) {
        self.lost = self.lost.or(loss(&answer));
        let version = answer.map(|answer| Version(answer.version));
        self.results[number] = Some(version.map_err(|error| error.of(self.operation)));
    }

    /// How the puts have ended, in order.
    pub fn results(self) -> Vec<Result<Version>> {
        // In the same memory: there is a result where there may be none.
        self.results.into_iter().map(|result| result.expect("all have ended")).collect()
    }
}

#[cold]
fn not_sent(kind: ErrorKind) -> Error {
    let context = "not sent, because the server did not answer an earlier one of the batch";
    Error::unnamed(kind, context)
}

/// What kind of error this is, if it says that the server does not answer.
fn loss<T>(result: &Result<T>) -> Option<ErrorKind> {
    let kind = result.as_ref().err()?.kind();
    let answered = matches!(
        kind,
        ErrorKind::OutOfMemory
            | ErrorKind::InvalidArgument
            | ErrorKind::Denied
            | ErrorKind::Frozen
            | ErrorKind::ViewExpired
    );
    if answered { None } else { Some(kind) }
}
