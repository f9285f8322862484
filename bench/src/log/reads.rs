//! One-sided gets of a session that compares each item with the watermark, against those of one that believes
//! whatever is valid, of the same memory.

use kelix::{Session, Table, measure};
use kelix_report::cores::pin;
use kelix_report::interleave::compare;
use kelix_report::progress;
use kelix_report::report::{Row, compared};
use kelix_server::{Durability, ServerConfig};

use super::disk::Disk;
use super::{logged, text};
use crate::store::{Numbers, Store, key_of, memory_for, verify};

/// Rounds. A small run is a check that all works.
const FULL: usize = 400;
const SMALL: usize = 3;
/// Gets of a block.
const GETS: u64 = 1 << 14;
/// Keys that are drawn.
const DRAWN: usize = 1 << 20;

/// Gets all records, so that the session has met all its memory.
fn warm(session: &mut Session, table: Table, records: u64) -> Result<(), String> {
    let mut buffer = [0; 32];
    for record in 0..records {
        let got = session.get_into(table, &key_of(record), &mut buffer).map_err(text)?;
        got.ok_or("a loaded record is absent")?;
        verify(&buffer, record);
    }
    Ok(())
}

/// Gets records, each the one that the value of the one before says.
fn follow(session: &mut Session, table: Table, at: &mut u64) -> u64 {
    let mut buffer = [0; 32];
    for _ in 0..GETS {
        session.get_into(table, &key_of(*at), &mut buffer).expect("a get").expect("present");
        *at = verify(&buffer, *at);
    }
    GETS
}

/// Gets records that were drawn.
fn draw(session: &mut Session, table: Table, (wanted, next): (&[u64], &mut usize)) -> u64 {
    let mut buffer = [0; 32];
    for _ in 0..GETS {
        let record = wanted[*next % wanted.len()];
        *next += 1;
        session.get_into(table, &key_of(record), &mut buffer).expect("a get").expect("present");
        verify(&buffer, record);
    }
    GETS
}

/// The rows.
pub(super) fn rows(disk: &Disk, records: u64, is_full: bool) -> Result<Vec<Row>, String> {
    progress::show("log_get_dep");
    let folder = disk.folder("reads")?;
    let config = logged(folder.clone(), Durability::Commit);
    let mut store = Store::start("commit", ServerConfig { memory_bytes: memory_for(records), ..config })?;
    store.load(records)?;
    let (table, mut ours) = (store.table, store.client.session().map_err(text)?);
    let mut other = store.client.session().map_err(text)?;
    measure::believe_all(&mut other);
    warm(&mut ours, table, records)?;
    warm(&mut other, table, records)?;
    pin(0);
    let rounds = if is_full { FULL } else { SMALL };
    let before = [ours.cost(), other.cost()];
    let (mut our_at, mut other_at) = (0, records / 2);
    let dependent = compare(rounds, &mut || follow(&mut ours, table, &mut our_at), &mut || {
        follow(&mut other, table, &mut other_at)
    });
    let wanted = Numbers(1).records(records, DRAWN);
    let (mut our_next, mut other_next) = (0, DRAWN / 2);
    let independent = compare(rounds, &mut || draw(&mut ours, table, (&wanted, &mut our_next)), &mut || {
        draw(&mut other, table, (&wanted, &mut other_next))
    });
    for (session, before) in [&ours, &other].into_iter().zip(before) {
        let cost = session.cost().since(before);
        if cost.fallbacks + cost.messages > 0 {
            return Err(format!("gets asked the shard: {cost:?}"));
        }
    }
    drop((ours, other, store));
    std::fs::remove_dir_all(folder).map_err(text)?;
    let note = format!("the log is on {}; ", disk.name);
    let row = |id, name, wanted, comparison| compared(id, name, "ns", wanted, comparison, &note);
    Ok(vec![
        row(
            "log_get_dep",
            "one-sided get that looks at the watermark, next key from the last answer / without",
            1.03,
            dependent,
        ),
        row(
            "log_get_indep",
            "one-sided get of independent keys that looks at the watermark / without",
            1.10,
            independent,
        ),
    ])
}
