//! Puts and gets at a primary with one replica, with two, and at a server without any: in shared memory, and
//! over TCP by replicas that are fed over TCP; and what a replica is fed for a put.

use std::time::{Duration, Instant};

use kelix::{FabricChoice, Session, SessionOptions, Table, Values};
use kelix_report::daemon::processor_time;
use kelix_report::interleave::{Comparison, compared as between, take_turns};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, as_rate, compared, told};

use super::nodes::{Nodes, PATIENCE};
use super::way::own_address;
use super::{Plan, text};
use crate::served::{Home, Served};
use crate::store::{Numbers, key_of, number_of, numbered_value, put_all};

/// Rounds.
const FULL: usize = 61;
const SMALL: usize = 2;
/// Operations of a call, and puts that are under way at once.
const CALLS: u64 = 64;
const BATCH: usize = 64;
/// Bytes of memory a record.
const RECORD_BYTES: u64 = 400;
const MEMORY_BYTES_MIN: u64 = 256 << 20;

/// Puts behind which what a replica was fed is counted, and bytes of their keys and values.
const FED: u64 = 1 << 15;
const ITEM_BYTES: u64 = 16 + 32;
/// Between two looks whether a replica has applied all.
const SETTLE: Duration = Duration::from_millis(200);

/// Over what clients put and replicas are fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fabric {
    SharedMemory,
    /// Clients put in shared memory, and each put waits for the replica's word.
    Strict,
    Tcp,
}

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
    fn start(replicas: usize, records: u64, fabric: Fabric) -> Result<Side, String> {
        let memory_bytes = memory_for(records);
        let (of, (mut session, table)) = if replicas == 0 {
            let home = Home::new(&format!("cluster-alone-{fabric:?}"), memory_bytes)?;
            // As a session of a cluster is by default: its writes have numbers.
            let options = SessionOptions::default().retry_for(PATIENCE);
            let (served, options) = match fabric {
                Fabric::SharedMemory | Fabric::Strict => (home.serve(&["--no-pin"])?, options),
                Fabric::Tcp => {
                    let listen = own_address()?.to_string();
                    (home.serve(&["--no-pin", "--listen", &listen])?, options.fabric(FabricChoice::Tcp))
                }
            };
            let mut session = served.client()?.session_with(options).map_err(text)?;
            let table = session.create_table("records").map_err(text)?;
            (Server::Alone(served, home), (session, table))
        } else {
            let name = format!("{replicas}-{fabric:?}");
            let options: &[&str] = if fabric == Fabric::SharedMemory { &[] } else { &["--fabric", "tcp"] };
            let nodes = Nodes::start_with(&name, replicas + 1, memory_bytes, options)?;
            let session = match fabric {
                Fabric::SharedMemory | Fabric::Strict => nodes.session()?,
                Fabric::Tcp => nodes.session_over_tcp()?,
            };
            (Server::Cluster(nodes), session)
        };
        for record in 0..records {
            session.put(table, &key_of(record), &numbered_value(record, 1)).map_err(text)?;
        }
        let (draw, buffer, values) = (Numbers(17), vec![0; 64], Values::default());
        Ok(Side { session, table, records, puts: records, draw, buffer, values, of })
    }

    /// A server without replicas, and a primary with one.
    fn pair(plan: Plan, fabric: Fabric) -> Result<[Side; 2], String> {
        Ok([Side::start(0, plan.records, fabric)?, Side::start(1, plan.records, fabric)?])
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
        let records = self.records;
        let item = |put| (key_of(put % records), numbered_value(put % records, put / records + 1));
        put_all(&mut self.session, self.table, numbers.map(item))?;
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

/// Puts in shared memory that wait for a replica to say that it has each, as in HydraDB's strict mode,
/// against those at a server without.
fn row_of_strict(plan: Plan) -> Result<Row, String> {
    progress::show("repl_strict");
    let mut sides = Side::pair(plan, Fabric::Strict)?;
    let put = take_turns(plan.choose(FULL, SMALL), 2, |side| sides[side].put())?;
    let name = "a put with one replica that says so of each / without";
    let row = compared("repl_strict_1", name, "ns", 0.0, between(&put[1], &put[0]), "");
    Ok(Row { wanted: None, ..row })
}

/// Puts over TCP at a primary whose replica is fed over TCP, against a server without replicas.
fn rows_over_tcp(plan: Plan) -> Result<Vec<Row>, String> {
    progress::show("repl_tcp");
    let mut sides = Side::pair(plan, Fabric::Tcp)?;
    let rounds = plan.choose(FULL, SMALL);
    let mut measure = |operation: fn(&mut Side) -> Result<u64, String>| {
        take_turns(rounds, 2, |side| operation(&mut sides[side]))
    };
    let (one, many) = (measure(Side::put)?, measure(Side::put_many)?);
    let note = processor(&mut sides)?;
    let comparison = between(&one[1], &one[0]);
    let name = "a put over TCP with one replica fed over TCP / without";
    let latency = compared("repl_tcp_put_1", name, "ns", 2.0, comparison, "");
    let name = "the same with 64 under way, as rates";
    let comparison = as_rate(between(&many[1], &many[0]));
    let rate = compared("repl_tcp_rate_1", name, "ns a put", 0.85, comparison, &note);
    Ok(vec![latency, Row { sense: Sense::AtLeast, ..rate }])
}

/// Bytes that a replica has applied and records that they came in, once it has all. It tells so some moments
/// after it has them.
fn applied(nodes: &Nodes, replica: usize) -> Result<(u64, u64), String> {
    let (mut before, began) = (None, Instant::now());
    loop {
        let told = nodes.replica(replica)?;
        let now = (told.applied_bytes, told.records);
        if before == Some(now) {
            return Ok(now);
        }
        if began.elapsed() > PATIENCE {
            return Err("a replica applies though nobody writes".into());
        }
        before = Some(now);
        std::thread::sleep(SETTLE);
    }
}

/// What a replica is fed for a put, of one at a time and of many.
fn row_of_bytes(side: &mut Side) -> Result<Row, String> {
    let mut fed = |operation: fn(&mut Side) -> Result<u64, String>| -> Result<(f64, f64), String> {
        let replicas = |side: &Side| match &side.of {
            Server::Cluster(nodes) => applied(nodes, 1 - nodes.primary()?),
            Server::Alone(..) => Err("a server without replicas feeds nobody".into()),
        };
        let (before, mut puts) = (replicas(side)?, 0);
        while puts < FED {
            puts += operation(side)?;
        }
        let after = replicas(side)?;
        let of = |after: u64, before: u64| (after - before) as f64 / puts as f64;
        Ok((of(after.0, before.0), of(after.1, before.1)))
    };
    let (one, many) = (fed(Side::put)?, fed(Side::put_many)?);
    let name = "bytes that a replica is fed for a put of 16 + 32 bytes / these bytes";
    let row = told("repl_bytes", name, "bytes a put", one.0, Some(3.2));
    let note = format!(
        "{FED} puts, one at a time, {:.2} records a put; with 64 under way {:.0} bytes and {:.2} \
         records a put",
        one.1, many.0, many.1
    );
    Ok(Row { other: Some(ITEM_BYTES as f64), ratio: one.0 / ITEM_BYTES as f64, note, ..row })
}

/// The rows.
pub(super) fn rows(plan: Plan) -> Result<Vec<Row>, String> {
    progress::show("repl_put");
    let start = |replicas| Side::start(replicas, plan.records, Fabric::SharedMemory);
    let mut sides = [start(0)?, start(1)?, start(2)?];
    let rounds = plan.choose(FULL, SMALL);
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
    let note = processor(&mut sides[..2])?;
    let comparison = as_rate(between(&rate[1], &rate[0]));
    let name = "puts with 64 under way with one replica / without, as rates";
    let row = compared("repl_rate_1", name, "ns a put", 0.8, comparison, &note);
    rows.insert(2, Row { sense: Sense::AtLeast, ..row });
    rows.push(row_of_bytes(&mut sides[1])?);
    drop(sides);
    rows.push(row_of_strict(plan)?);
    rows.extend(rows_over_tcp(plan)?);
    Ok(rows)
}

/// Processor time of puts with many under way, in words: of the server, and of its replica.
fn processor(sides: &mut [Side]) -> Result<String, String> {
    let mut told = Vec::new();
    for side in sides {
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
