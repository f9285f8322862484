//! Many clients of whom few are busy, beside those few alone.

use std::net::Ipv4Addr;
use std::time::Duration;

use kelix::{FabricChoice, Path, Session, SessionOptions};
use kelix_server::ServerConfig;

use super::rows::text;
use crate::store::{Store, idle_share, put_records};
use kelix_report::interleave::compare;
use kelix_report::report::{Row, Sense, as_rate, compared, told};

/// Items of a batch.
const BATCH: u64 = 16;
const RECORDS: u64 = 10_000;
/// Clients that do something.
const BUSY: usize = 2;

/// A server with so many clients, of whom the first are busy, over one fabric. Of the others every second is
/// connected over the other one.
struct Crowd {
    store: Store,
    busy: Vec<Session>,
    _idle: Vec<Session>,
    next: u64,
}

impl Crowd {
    fn gather(name: &str, clients: usize, fabric: FabricChoice) -> Result<Crowd, String> {
        let listen = Some((Ipv4Addr::LOCALHOST, 0).into());
        let config = ServerConfig { memory_bytes: 256 << 20, listen, pin: false, ..ServerConfig::default() };
        let mut store = Store::start(name, config)?;
        store.load(RECORDS)?;
        let open = |number: usize| {
            let fabric = match number % 2 {
                _ if number < BUSY => fabric,
                0 => FabricChoice::Shm,
                _ => FabricChoice::Tcp,
            };
            let options = SessionOptions::default().fabric(fabric).path(Path::Index);
            store.client.session_with(options).map_err(text)
        };
        let mut busy = (0..clients).map(open).collect::<Result<Vec<Session>, String>>()?;
        let idle = busy.split_off(BUSY);
        Ok(Crowd { store, busy, _idle: idle, next: 0 })
    }

    /// A batch of puts by each busy client.
    fn put(&mut self) -> u64 {
        let Crowd { store, busy, next, .. } = self;
        for session in &mut *busy {
            let records: Vec<u64> = (*next..*next + BATCH).map(|record| record % RECORDS).collect();
            put_records(session, store.table, store.walk, &records).expect("a batch");
            *next = (*next + BATCH) % RECORDS;
        }
        BATCH * busy.len() as u64
    }
}

/// Puts by two clients beside many others, and what all cost when nobody does anything.
pub(super) fn clients(rounds: usize, time: Duration) -> Result<Vec<Row>, String> {
    // Servers and clients are all in this process.
    kelix_server::prepare_process();
    let mut rows = Vec::new();
    for (fabric, few_ids, many_ids) in [
        (FabricChoice::Shm, "clients_50", "clients_500"),
        (FabricChoice::Tcp, "clients_50_tcp", "clients_500_tcp"),
    ] {
        let mut alone = Crowd::gather("alone", BUSY, fabric)?;
        for (id, clients, wanted) in [(few_ids, 50, 0.9), (many_ids, 500, 0.8)] {
            let mut crowd = Crowd::gather("crowd", clients, fabric)?;
            let comparison = as_rate(compare(rounds, &mut || crowd.put(), &mut || alone.put()));
            let name = "puts by two clients beside others who are idle / alone";
            let row = compared(id, name, "ns a put", wanted, comparison, "ratio of rates; ");
            rows.push(Row { sense: Sense::AtLeast, ..row });
            if clients == 500 && fabric == FabricChoice::Shm {
                rows.push(idle(time));
            }
        }
    }
    Ok(rows)
}

/// Processor time of this process while nobody does anything.
fn idle(time: Duration) -> Row {
    let share = idle_share(time);
    Row {
        note: format!("processor time of servers and clients together over {:.1} s", time.as_secs_f64()),
        ..told("clients_idle", "processor time with 500 idle clients", "% of a core", share, Some(2.0))
    }
}
