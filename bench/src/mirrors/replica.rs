//! A get on a mirror against one of a replica of Redis on the same host, through a Unix socket.

use kelix_report::cores::{cores, pin, pin_process, unpin};
use kelix_report::daemon::{Daemon, is_installed};
use kelix_report::interleave::{Comparison, compared as between, take_turns};
use kelix_report::progress;
use kelix_report::redis::{self, Connection};
use kelix_report::report::{Row, Sense, as_rate, compared, figure};

use super::data::{Kind, Reader, Tally, VALUE_BYTES, Writer};
use super::hosts::Hosts;
use super::{PATIENCE, Size};
use crate::store::{Numbers, key_of, number_of, numbered_value};

/// Rounds.
const FULL: usize = 61;
const SMALL: usize = 2;
/// Records that are put at once while Redis is loaded.
const LOAD: u64 = 1 << 10;
/// Gets of a call.
const GETS: u64 = 16;

/// A primary and its replica, and a connection to the replica.
struct Redis {
    connection: Connection,
    daemons: [Daemon; 2],
    records: u64,
    draw: Numbers,
}

impl Redis {
    /// Starts both, puts so many records into the primary, and waits until the replica has them.
    fn start(records: u64) -> Result<Redis, String> {
        let primary = redis::start_primary()?;
        let replica = redis::start_replica(&primary)?;
        let mut to_primary = Connection::open(&primary)?;
        let mut connection = Connection::open(&replica)?;
        let began = std::time::Instant::now();
        while !connection.info(b"replication")?.contains("master_link_status:up") {
            if began.elapsed() > PATIENCE {
                return Err("a replica of redis-server does not follow".into());
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        for first in (0..records).step_by(LOAD as usize) {
            let batch = first..records.min(first + LOAD);
            for record in batch.clone() {
                to_primary.begin(b"SET", 3);
                to_primary.part(&key_of(record));
                to_primary.part(&numbered_value(Kind::Records.named(record), 1));
            }
            to_primary.send()?;
            batch.into_iter().try_for_each(|_| to_primary.expect_ok())?;
        }
        to_primary.begin(b"WAIT", 3);
        to_primary.part(b"1");
        to_primary.part(PATIENCE.as_millis().to_string().as_bytes());
        to_primary.send()?;
        if to_primary.integer()? != 1 {
            return Err("a replica of redis-server has not all".into());
        }
        Ok(Redis { connection, daemons: [primary, replica], records, draw: Numbers(31) })
    }

    /// Gets some records, one at a time.
    fn read(&mut self) -> Result<u64, String> {
        for _ in 0..GETS {
            let record = self.draw.next() % self.records;
            self.connection.begin(b"GET", 2);
            self.connection.part(&key_of(record));
            self.connection.send()?;
            let value = self.connection.bulk_string()?.ok_or("redis-server lacks a record")?;
            let number = value.get(..VALUE_BYTES).and_then(|it| number_of(it, Kind::Records.named(record)));
            if number != Some(1) {
                return Err(format!("redis-server has something else as record {record}"));
            }
        }
        Ok(GETS)
    }
}

/// The row, if there is Redis.
pub(super) fn row(
    hosts: &Hosts,
    writer: &Writer,
    size: Size,
    tally: &mut Tally,
) -> Result<Option<Row>, String> {
    const ID: &str = "redis_replica";
    if !is_installed(redis::PROGRAM) {
        let program = redis::PROGRAM;
        eprintln!("{ID} is left out: {program} is not installed; on Debian: apt-get install redis-server");
        return Ok(None);
    }
    progress::show(ID);
    let mut ours = Reader::open(&hosts.mirrors[0], writer, 9)?;
    let mut redis = Redis::start(size.records)?;
    ours.read_all(Kind::Records, writer)?;
    let rounds = size.choose(FULL, SMALL);
    let mut measure = |redis: &mut Redis| -> Result<Comparison, String> {
        let times = take_turns(rounds, 2, |side| match side {
            0 => ours.read(Kind::Records),
            _ => redis.read(),
        })?;
        Ok(as_rate(between(&times[0], &times[1])))
    };
    let placed = measure(&mut redis)?;
    // Pinned apart, the client wakes nobody who shares its core.
    let last = cores() - 1;
    redis.daemons.iter().for_each(|daemon| pin_process(daemon.pid(), last..last + 1));
    pin(0);
    let apart = measure(&mut redis);
    unpin();
    let apart = apart?;
    tally.add(ours.tally);
    let note = format!(
        "placed by the system; pinned apart {} against {} ns, {} x; ",
        figure(apart.ours_ns),
        figure(apart.other_ns),
        figure(apart.ratio)
    );
    let name = "a get on a mirror / of a replica of Redis on the host through a Unix socket";
    Ok(Some(Row { sense: Sense::AtLeast, ..compared(ID, name, "ns", 25.0, placed, &note) }))
}
