//! Puts and gets at a primary with one replica, with two, and at a server without any.

use std::time::Duration;

use kelix::{Session, SessionOptions, Table, Values};
use kelix_report::daemon::processor_time;
use kelix_report::interleave::{Comparison, compared as between, take_turns};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, as_rate, compared};

use super::nodes::Nodes;
use super::{Size, text};
use crate::served::{Home, Served};
use crate::store::{Numbers, key_of, number_of, numbered_value};

/// Rounds.
const FULL: usize = 61;
const SMALL: usize = 2;
/// Operations of a call, and puts that are under way at once.
const CALLS: u64 = 64;
const BATCH: usize = 64;
/// Bytes of memory a record.
const RECORD_BYTES: u64 = 400;
const MEMORY_BYTES_MIN: u64 = 256 << 20;

/// Who puts and gets at one of the servers.
struct Side {
    session: Session,
    table: Table,
    records: u64,
    puts: u64,
    draw: Numbers,
    buffer: Vec<u8>,
    values: Values,
    // Dropped behind the session.
    of: Server,
}

enum Server {
    Alone(Served, #[expect(dead_code, reason = "the folder goes behind the server")] Home),
    Cluster(Nodes),
}

impl Server {
    /// Processor time of who is written to, and of the replicas.
    fn processor_times(&self) -> Result<[Duration; 2], String> {
        match self {
            Server::Alone(served, _) => Ok([processor_time(served.pid()), Duration::ZERO]),
            Server::Cluster(nodes) => nodes.processor_times(),
        }
    }
}

pub(super) fn memory_for(records: u64) -> u64 {
    (records * RECORD_BYTES).max(MEMORY_BYTES_MIN)
}

impl Side {
    fn start(replicas: usize, records: u64) -> Result<Side, String> {
        let memory_bytes = memory_for(records);
        let (of, (mut session, table)) = if replicas == 0 {
            let home = Home::new("cluster-alone", memory_bytes)?;
            let served = home.serve(&["--no-pin"])?;
            // As a session of a cluster is by default: its writes have numbers.
            let options = SessionOptions::default().retry_for(Duration::from_secs(60));
            let mut session = served.client()?.session_with(options).map_err(text)?;
            let table = session.create_table("records").map_err(text)?;
            (Server::Alone(served, home), (session, table))
        } else {
            let nodes = Nodes::start(&replicas.to_string(), replicas + 1, memory_bytes)?;
            let session = nodes.session()?;
            (Server::Cluster(nodes), session)
        };
        for record in 0..records {
            session.put(table, &key_of(record), &numbered_value(record, 1)).map_err(text)?;
        }
        let (draw, buffer, values) = (Numbers(17), vec![0; 64], Values::default());
        Ok(Side { session, table, records, puts: records, draw, buffer, values, of })
    }

    /// Puts some records, one at a time.
    fn put(&mut self) -> Result<u64, String> {
        for _ in 0..CALLS {
            let (record, number) = (self.puts % self.records, self.puts / self.records + 1);
            self.session.put(self.table, &key_of(record), &numbered_value(record, number)).map_err(text)?;
            self.puts += 1;
        }
        Ok(CALLS)
    }

    /// The same with many under way.
    fn put_many(&mut self) -> Result<u64, String> {
        let numbers = self.puts..self.puts + BATCH as u64;
        let items: Vec<([u8; 16], _)> = numbers
            .map(|put| {
                let (record, number) = (put % self.records, put / self.records + 1);
                (key_of(record), numbered_value(record, number))
            })
            .collect();
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        for result in self.session.multi_put(self.table, &items).map_err(text)? {
            result.map_err(text)?;
        }
        self.puts += BATCH as u64;
        Ok(BATCH as u64)
    }

    /// Gets some records, each of which says which one is next.
    fn get(&mut self) -> Result<u64, String> {
        let mut record = self.draw.next() % self.records;
        for _ in 0..CALLS {
            let found = self.session.get_into(self.table, &key_of(record), &mut self.buffer).map_err(text)?;
            let (length, _) = found.ok_or("a record is missing")?;
            let number = number_of(&self.buffer[..length], record).ok_or("a record has something else")?;
            record = (record + number + 7919) % self.records;
        }
        Ok(CALLS)
    }

    /// Gets records none of which waits for another.
    fn get_many(&mut self) -> Result<u64, String> {
        let records: Vec<u64> = (0..BATCH).map(|_| self.draw.next() % self.records).collect();
        let keys: Vec<[u8; 16]> = records.iter().map(|record| key_of(*record)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        self.session.multi_get_into(self.table, &keys, &mut self.values).map_err(text)?;
        for (index, record) in records.into_iter().enumerate() {
            let value = self.values.get(index).ok_or("a record is missing")?;
            number_of(value, record).ok_or("a record has something else")?;
        }
        Ok(BATCH as u64)
    }
}

/// The rows.
pub(super) fn rows(size: Size) -> Result<Vec<Row>, String> {
    progress::show("repl_put");
    let mut sides =
        [Side::start(0, size.records)?, Side::start(1, size.records)?, Side::start(2, size.records)?];
    let rounds = size.choose(FULL, SMALL);
    let mut measure = |count: usize, operation: fn(&mut Side) -> Result<u64, String>| {
        take_turns(rounds, count, |side| operation(&mut sides[side]))
    };
    let put = measure(3, Side::put)?;
    progress::show("repl_rate");
    let rate = measure(3, Side::put_many)?;
    progress::show("cluster_get");
    let get_dep = measure(2, Side::get)?;
    let get_indep = measure(2, Side::get_many)?;
    let mut rows = Vec::new();
    let mut row = |id: &'static str, name: &'static str, wanted: f64, comparison: Comparison| {
        rows.push(compared(id, name, "ns", wanted, comparison, ""));
    };
    row("repl_put_1", "a put with one replica in shared memory / without", 1.123, between(&put[1], &put[0]));
    row("repl_put_2", "the same with two replicas / without", 1.411, between(&put[2], &put[0]));
    row(
        "cluster_get_dep",
        "gets one behind the other at a primary / at a server",
        1.03,
        between(&get_dep[1], &get_dep[0]),
    );
    row(
        "cluster_get_indep",
        "gets 64 at a time at a primary / at a server",
        1.10,
        between(&get_indep[1], &get_indep[0]),
    );
    let note = processor(&mut sides)?;
    let comparison = as_rate(between(&rate[1], &rate[0]));
    let name = "puts with 64 under way with one replica / without, as rates";
    let row = compared("repl_rate_1", name, "ns a put", 0.8, comparison, &note);
    rows.insert(2, Row { sense: Sense::AtLeast, ..row });
    Ok(rows)
}

/// Processor time of puts with many under way, in words: of the server, and of its replica.
fn processor(sides: &mut [Side; 3]) -> Result<String, String> {
    let mut told = Vec::new();
    for side in &mut sides[..2] {
        let before = side.of.processor_times()?;
        let puts = side.puts;
        while side.puts < puts + (1 << 15) {
            side.put_many()?;
        }
        // What a replica has yet to apply costs, too.
        std::thread::sleep(Duration::from_millis(300));
        let after = side.of.processor_times()?;
        let of = |at: usize| (after[at] - before[at]).as_nanos() as f64 / (side.puts - puts) as f64;
        told.push([of(0), of(1)]);
    }
    Ok(format!(
        "processor time of the server {:.0} ns a put against {:.0} ns, of its replica {:.0} ns; ",
        told[1][0], told[0][0], told[1][1]
    ))
}
