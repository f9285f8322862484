//! A put at a primary with a replica against one of Redis that waits for its replica (`WAIT 1`).

use kelix::{Session, Table};
use kelix_report::daemon::{Daemon, is_installed};
use kelix_report::interleave::{compared as between, take_turns};
use kelix_report::progress;
use kelix_report::redis::{self, Connection};
use kelix_report::report::{Row, Sense, as_rate, compared};

use super::nodes::Nodes;
use super::puts::memory_for;
use super::{Plan, text};
use crate::store::{key_of, numbered_value};

/// Rounds.
const FULL: usize = 61;
const SMALL: usize = 2;
/// Puts of a call, and those that are under way at once.
const CALLS: u64 = 16;
const BATCH: u64 = 64;
/// For how long Redis waits, in milliseconds.
const WITHIN: &[u8] = b"5000";

/// A primary and its replica, through a Unix socket.
struct Redis {
    connection: Connection,
    puts: u64,
    records: u64,
    _daemons: [Daemon; 2],
}

impl Redis {
    fn start(records: u64) -> Result<Redis, String> {
        let primary = redis::start_primary()?;
        let replica = redis::start_replica(&primary)?;
        let connection = Connection::open(&primary)?;
        Ok(Redis { connection, puts: 0, records, _daemons: [primary, replica] })
    }

    /// Puts records, and waits until the replica has them.
    fn put(&mut self, count: u64) -> Result<(), String> {
        for put in self.puts..self.puts + count {
            let record = put % self.records;
            self.connection.begin(b"SET", 3);
            self.connection.part(&key_of(record));
            self.connection.part(&numbered_value(record, put / self.records + 1));
        }
        self.puts += count;
        self.connection.begin(b"WAIT", 3);
        self.connection.part(b"1");
        self.connection.part(WITHIN);
        self.connection.send()?;
        (0..count).try_for_each(|_| self.connection.expect_ok())?;
        match self.connection.integer()? {
            1.. => Ok(()),
            _ => Err("a replica of redis-server has not what was put".into()),
        }
    }
}

/// A primary of ours, with a replica.
struct Ours {
    session: Session,
    table: Table,
    puts: u64,
    records: u64,
    _nodes: Nodes,
}

impl Ours {
    fn put(&mut self, count: u64) -> Result<(), String> {
        let puts = self.puts..self.puts + count;
        self.puts += count;
        let item = |put: u64| {
            (key_of(put % self.records), numbered_value(put % self.records, put / self.records + 1))
        };
        if count == 1 {
            let (key, value) = item(puts.start);
            return self.session.put(self.table, &key, &value).map(drop).map_err(text);
        }
        let items: Vec<_> = puts.map(item).collect();
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let results = self.session.multi_put(self.table, &items).map_err(text)?;
        results.into_iter().try_for_each(|result| result.map(drop).map_err(text))
    }
}

/// The rows, if there is Redis.
pub(super) fn row(plan: Plan) -> Result<Vec<Row>, String> {
    const ID: &str = "redis_wait";
    if !is_installed(redis::PROGRAM) {
        let program = redis::PROGRAM;
        eprintln!("{ID} is left out: {program} is not installed; on Debian: apt-get install redis-server");
        return Ok(Vec::new());
    }
    progress::show(ID);
    let nodes = Nodes::start("wait", 2, memory_for(plan.records))?;
    let (session, table) = nodes.session()?;
    let mut ours = Ours { session, table, puts: 0, records: plan.records, _nodes: nodes };
    let mut redis = Redis::start(plan.records)?;
    let rounds = plan.choose(FULL, SMALL);
    let one = take_turns(rounds, 2, |side| {
        for _ in 0..CALLS {
            if side == 0 { ours.put(1)? } else { redis.put(1)? }
        }
        Ok::<_, String>(CALLS)
    })?;
    let many = take_turns(rounds, 2, |side| {
        if side == 0 {
            ours.put(BATCH)?
        } else {
            redis.put(BATCH)?
        }
        Ok::<_, String>(BATCH)
    })?;
    let row = |id: &'static str, name: &'static str, wanted, times: &[Vec<f64>]| {
        let comparison = as_rate(between(&times[0], &times[1]));
        Row { sense: Sense::AtLeast, ..compared(id, name, "ns a put", wanted, comparison, "") }
    };
    Ok(vec![
        row(ID, "a put with one replica, against SET and WAIT 1 of Redis through a Unix socket", 3.0, &one),
        row("redis_wait_rate", "the same with 64 under way, as rates", 2.0, &many),
    ])
}
