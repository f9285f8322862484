//! How long a replica takes from being chosen to serving, against a server that begins with the same items
//! out of a snapshot.

use std::time::{Duration, Instant};

use kelix::{Session, Table};
use kelix_report::interleave::median;
use kelix_report::progress;
use kelix_report::report::{Row, told};

use super::nodes::{Nodes, PATIENCE};
use super::{Plan, text};
use crate::served::{Asker, Home};
use crate::store::{Numbers, key_of, memory_for, number_of, numbered_value, put_all};

/// Promotions, and restarts.
const FULL: usize = 5;
const SMALL: usize = 2;
/// Records that are put at once, and those that are looked at behind each promotion.
const BATCH: u64 = 256;
const LOOKED_AT: u64 = 1000;
/// What a node says when it serves, and times of it.
const SERVES: &str = "this node is primary, and serves";

fn load(session: &mut Session, table: Table, items: u64) -> Result<(), String> {
    for first in (0..items).step_by(BATCH as usize) {
        let records = first..items.min(first + BATCH);
        put_all(session, table, records.map(|record| (key_of(record), numbered_value(record, 1))))?;
        if first % (BATCH << 10) == 0 {
            progress::show(&format!("promote: loading: {} %", first * 100 / items));
        }
    }
    Ok(())
}

/// Makes sure that some of the records are there.
fn look(session: &mut Session, table: Table, items: u64, draw: &mut Numbers) -> Result<(), String> {
    for _ in 0..LOOKED_AT {
        let record = draw.next() % items;
        let item = session.get(table, &key_of(record)).map_err(text)?;
        if item.and_then(|item| number_of(item.value(), record)) != Some(1) {
            return Err(format!("record {record} is not what was put"));
        }
    }
    Ok(())
}

/// A time in milliseconds that a line of the log tells.
fn time_of(line: &str, name: &str) -> Option<f64> {
    let word = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
    word.parse().ok()
}

/// From being chosen until it serves, and from noticing until it was chosen, of a node that was promoted.
fn promoted(nodes: &Nodes, node: usize) -> Result<(f64, f64), String> {
    let began = Instant::now();
    loop {
        let said = nodes.said(node);
        if let Some(line) = said.lines().rev().find(|line| line.contains(SERVES)) {
            let times = (time_of(line, "ms"), time_of(line, "chosen_ms"));
            let (Some(all), Some(chosen)) = times else { return Err(format!("no times in: {line}")) };
            return Ok((all - chosen, chosen));
        }
        if began.elapsed() > PATIENCE {
            return Err("the next primary does not say that it serves".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Milliseconds of each promotion, and until the node was chosen before it.
fn promotions(plan: Plan, times: usize) -> Result<Vec<(f64, f64)>, String> {
    let mut nodes = Nodes::start_with("promote", 2, memory_for(plan.items), &["--log", "info"])?;
    let (mut session, table) = nodes.session()?;
    load(&mut session, table, plan.items)?;
    let (mut found, mut draw) = (Vec::new(), Numbers(29));
    for round in 0..times {
        progress::show(&format!("promote: {} of {times}", round + 1));
        nodes.wait_until_in_sync(2)?;
        let primary = nodes.primary()?;
        nodes.kill(primary)?;
        look(&mut session, table, plan.items, &mut draw)?;
        found.push(promoted(&nodes, 1 - primary)?);
        nodes.begin(primary)?;
    }
    Ok(found)
}

/// Milliseconds of each restart out of a snapshot, until the first record is there.
fn restarts(plan: Plan, times: usize) -> Result<Vec<f64>, String> {
    let home = Home::new("cluster-promote-alone", memory_for(plan.items))?;
    let server = home.serve_with_snapshots()?;
    let mut asker = Asker::open(&server)?;
    load(&mut asker.session, asker.table, plan.items)?;
    drop(asker);
    progress::show("promote: taking a snapshot");
    server.end()?;
    let (mut found, mut draw) = (Vec::new(), Numbers(29));
    for round in 0..times {
        progress::show(&format!("promote: restart {} of {times}", round + 1));
        let began = Instant::now();
        let server = home.serve_with_snapshots()?;
        let Asker { mut session, table } = Asker::open(&server)?;
        session.get(table, &key_of(0)).map_err(text)?.ok_or("a record is missing")?;
        found.push(began.elapsed().as_nanos() as f64 / 1e6);
        // The server is killed behind that, so that the snapshot stays the newest.
        look(&mut session, table, plan.items, &mut draw)?;
    }
    Ok(found)
}

/// The row.
pub(super) fn row(plan: Plan) -> Result<Row, String> {
    let times = plan.choose(FULL, SMALL);
    let found = promotions(plan, times)?;
    let restarted = median(&restarts(plan, times)?);
    let (took, chosen): (Vec<f64>, Vec<f64>) = found.into_iter().unzip();
    let most = took.iter().copied().fold(0.0, f64::max);
    let note = format!(
        "{} items, median of {times}, at most {most:.0} ms; chosen {:.0} ms after the loss was noticed; \
         against the start of a server until its first answer out of a snapshot in the page cache",
        plan.items,
        median(&chosen)
    );
    let name = "from being chosen to serving, of a replica / a restart out of a snapshot";
    Ok(Row { other: Some(restarted), note, ..told("promote", name, "ms", median(&took), Some(40.0)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_in_a_line_of_the_log() {
        let line = r#"2026 INFO this node is primary, and serves node="1" old="0" chosen_ms=3 ms=17"#;
        assert_eq!((time_of(line, "ms"), time_of(line, "chosen_ms")), (Some(17.0), Some(3.0)));
        assert_eq!(time_of(line, "old_ms"), None);
    }
}
