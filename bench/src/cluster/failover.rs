//! Primaries that are killed, stand still, are cut off or hand over, under somebody who writes and somebody
//! who reads: how long nothing is written, and whether anything is lost.
//!
//! Groups whose primary is lost take turns: ours, and Redis with Sentinel; meanwhile the other one's load
//! rests.

use kelix_report::interleave::median;
use kelix_report::progress;
use kelix_report::report::{Row, told};
use rustix::process::Signal;

use super::Plan;
use super::hosts::{self, Hosts};
use super::load::{Load, Store, Tally};
use super::nodes::Nodes;
use super::puts::memory_for;
use super::sentinel::{self, Sentinel};

/// Nodes of ours.
pub(super) const NODES: usize = 3;
/// How long all goes well between two failovers.
const WELL: std::time::Duration = std::time::Duration::from_millis(150);
/// How long nothing is written at most where a primary stands still on one host. On several hosts the next
/// one waits for a lease, too.
const STOPPED_MS: f64 = 750.0;
/// Writes that are waited for behind a failover.
const MORE: u64 = 100;

/// Why another node becomes primary.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Killed,
    Stopped,
    /// Nothing that it sends, or is sent, arrives.
    CutOff,
    HandedOver,
    /// The primary hands over, and its process ends.
    Left,
}

/// Nodes one of which is primary, and can be lost.
pub(super) trait Group {
    /// Somebody who puts and gets.
    fn store(&self) -> Result<Box<dyn Store>, String>;
    /// Waits until another node could go on in the primary's place.
    fn wait_until_whole(&mut self) -> Result<(), String>;
    /// Has the primary be lost, which is told.
    fn lose(&mut self, why: Why) -> Result<usize, String>;
    /// Has a node that was lost be there again.
    fn mend(&mut self, node: usize, why: Why) -> Result<(), String>;
    /// Failovers that nobody has caused.
    fn uncaused(&self) -> usize {
        0
    }
}

impl Group for Nodes {
    fn store(&self) -> Result<Box<dyn Store>, String> {
        Ok(Box::new(self.session()?))
    }

    fn wait_until_whole(&mut self) -> Result<(), String> {
        self.wait_until_in_sync(NODES)
    }

    fn lose(&mut self, why: Why) -> Result<usize, String> {
        let primary = self.primary()?;
        match why {
            Why::Killed => self.kill(primary)?,
            Why::Stopped => self.signal(primary, Signal::STOP)?,
            Why::CutOff => return Err("nodes on one host cannot be cut off".into()),
            Why::HandedOver => self.hand_over()?,
            Why::Left => self.leave(primary)?,
        }
        Ok(primary)
    }

    fn mend(&mut self, node: usize, why: Why) -> Result<(), String> {
        match why {
            Why::Killed | Why::Left => self.begin(node),
            Why::Stopped => self.signal(node, Signal::CONT),
            Why::CutOff | Why::HandedOver => Ok(()),
        }
    }
}

/// A group, and who writes to it and reads of it.
pub(super) struct Side {
    // Ends before the group does.
    load: Load,
    group: Box<dyn Group>,
}

impl Side {
    pub fn new(group: Box<dyn Group>) -> Result<Side, String> {
        Ok(Side { load: Load::start(group.store()?, group.store()?)?, group })
    }

    /// The longest time in which nothing was written, in milliseconds, while the primary was lost once.
    pub fn fail_over(&mut self, why: Why) -> Result<f64, String> {
        self.group.wait_until_whole()?;
        self.load.rest(false);
        self.load.wait_for_more(MORE)?;
        std::thread::sleep(WELL);
        self.load.begin();
        let lost = self.group.lose(why)?;
        self.load.wait_for_more(MORE)?;
        let gap_ms = self.load.gap_ms();
        self.group.mend(lost, why)?;
        Ok(gap_ms)
    }

    pub fn tally(&self) -> Tally {
        self.load.tally()
    }

    /// What came of the load, once all nodes are there again.
    pub fn end(mut self) -> Result<Tally, String> {
        self.load.rest(false);
        self.group.wait_until_whole()?;
        self.load.end()
    }
}

/// What came of the failovers of a kind: the longest time without a write in each, in milliseconds, and
/// acknowledged writes that were lost.
#[derive(Clone, Default)]
struct Gaps {
    gaps_ms: Vec<f64>,
    lost: u64,
}

impl Gaps {
    fn longest_ms(&self) -> f64 {
        self.gaps_ms.iter().copied().fold(0.0, f64::max)
    }
}

/// What came of so many failovers of each side, in turn.
fn fail_over(sides: &mut [Side], times: usize, why: Why, id: &str) -> Result<Vec<Gaps>, String> {
    let mut found = vec![Gaps::default(); sides.len()];
    for round in 0..times {
        progress::show(&format!("{id}: {} of {times}", round + 1));
        for (side, found) in sides.iter_mut().zip(&mut found) {
            let before = side.tally().lost;
            found.gaps_ms.push(side.fail_over(why)?);
            side.load.rest(true);
            found.lost += side.tally().lost - before;
        }
    }
    Ok(found)
}

/// A row of gaps: ours, and Redis' beside.
fn row(id: &'static str, name: &'static str, wanted: f64, found: &[Gaps], words: &str) -> Row {
    let (ours, theirs) = (&found[0], found.get(1));
    let beside = theirs.map_or(String::new(), |of| {
        let (most, lost, words) = (of.longest_ms(), of.lost, sentinel::WORDS);
        format!("; Redis with Sentinel ({words}) at most {most:.0} ms, {lost} acknowledged writes lost")
    });
    let note =
        format!("median of {}, at most {:.0} ms{words}{beside}", ours.gaps_ms.len(), ours.longest_ms());
    let row = told(id, name, "ms", median(&ours.gaps_ms), Some(wanted));
    Row { note, other: theirs.map(|of| median(&of.gaps_ms)), ..row }
}

/// Rows of nodes on one host, with Redis and Sentinel beside if there are such; what came of our load, and
/// of theirs in words.
fn on_one_host(plan: Plan) -> Result<(Vec<Row>, Tally, String), String> {
    let nodes = Nodes::start("failover", NODES, memory_for(plan.records))?;
    let mut sides = vec![Side::new(Box::new(nodes))?];
    if sentinel::is_there() {
        sides[0].load.rest(true);
        sides.push(Side::new(Box::new(Sentinel::start()?))?);
    }
    let times = plan.failovers;
    let killed = fail_over(&mut sides, times, Why::Killed, "failover_kill")?;
    let stopped = fail_over(&mut sides, times, Why::Stopped, "failover_stop")?;
    let errors = |sides: &[Side]| sides[0].tally().errors;
    let before = errors(&sides);
    let handed_over = fail_over(&mut sides, times, Why::HandedOver, "handover")?;
    let left = fail_over(&mut sides[..1], times, Why::Left, "leave")?;
    let failed = errors(&sides) - before;
    let uncaused = sides.get(1).map_or(0, |side| side.group.uncaused());
    let mut tallies = sides.into_iter().map(Side::end).collect::<Result<Vec<_>, _>>()?.into_iter();
    let rows = vec![
        row(
            "failover_kill",
            "longest time without a write when the primary is killed, local register",
            60.0,
            &killed,
            "",
        ),
        row(
            "failover_stop",
            "the same when it is stopped, with 500 ms until it is suspected",
            STOPPED_MS,
            &stopped,
            "",
        ),
        row("handover", "the same when it hands over, which nobody has to suspect", 10.0, &handed_over, ""),
        row("leave", "the same when it hands over and ends", 10.0, &left, ""),
        Row {
            note: format!("in {} handovers, of half of which the old primary ended", 2 * times),
            ..told(
                "handover_errors",
                "reads and writes that failed while primaries handed over",
                "errors",
                failed as f64,
                Some(0.0),
            )
        },
    ];
    let ours = tallies.next().unwrap_or_default();
    let words =
        |of: Tally| format!("; Redis with Sentinel: {}, {uncaused} failovers without cause", of.words());
    Ok((rows, ours, tallies.next().map_or(String::new(), words)))
}

/// Rows of nodes as on several hosts, if there is ZooKeeper, and what came of the load.
fn on_several_hosts(plan: Plan) -> Result<(Vec<Row>, Tally), String> {
    if !hosts::is_there() {
        return Ok((Vec::new(), Tally::default()));
    }
    let hosts = Hosts::start(NODES, memory_for(plan.records))?;
    let mut sides = [Side::new(Box::new(hosts))?];
    let mut rows = Vec::new();
    for (why, id, name) in [
        (
            Why::Killed,
            "failover_kill_zk",
            "longest time without a write when the primary is killed, register in ZooKeeper",
        ),
        (Why::Stopped, "failover_stop_zk", "the same when it is stopped"),
        (Why::CutOff, "failover_cut", "the same when its host is cut off"),
    ] {
        let found = fail_over(&mut sides, plan.failovers, why, id)?;
        let words = format!("; suspected after {} ms, lease {} ms", hosts::SUSPECT_MS, hosts::LEASE_MS);
        rows.push(row(id, name, STOPPED_MS + hosts::LEASE_MS as f64, &found, &words));
    }
    let [side] = sides;
    Ok((rows, side.end()?))
}

/// The rows.
pub(super) fn rows(plan: Plan) -> Result<Vec<Row>, String> {
    let (mut rows, mut ours, beside) = on_one_host(plan)?;
    let (more, on_hosts) = on_several_hosts(plan)?;
    rows.extend(more);
    ours.add(on_hosts);
    rows.push(lost(ours, &beside));
    Ok(rows)
}

/// The row of what was lost.
pub(super) fn lost(tally: Tally, words: &str) -> Row {
    Row {
        note: format!("{}{words}", tally.words()),
        ..told(
            "lost",
            "acknowledged writes that were lost, and stale reads, in all these failovers",
            "writes and reads",
            (tally.lost + tally.stale) as f64,
            Some(0.0),
        )
    }
}
