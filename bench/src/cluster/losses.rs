//! Very many failovers, to be begun once and gone on with: what is lost in all of them.
//!
//! What came of those that are over stands in a file, after each of them, so a run that was ended loses the
//! one that was under way.

use std::path::Path;

use kelix_report::progress;
use kelix_report::report::Row;
use serde::{Deserialize, Serialize};

use super::failover::{NODES, Side, Why, lost};
use super::load::Tally;
use super::nodes::Nodes;

/// Memory of a node.
const MEMORY_BYTES: u64 = 256 << 20;

/// What came of the failovers so far.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Done {
    killed: usize,
    stopped: usize,
    longest_ms: f64,
    tally: Tally,
}

impl Done {
    fn failovers(self) -> usize {
        self.killed + self.stopped
    }

    /// What stands in the file; nothing, where there is none yet.
    fn read(file: &Path) -> Result<Done, String> {
        match std::fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| format!("{} does not tell of failovers: {error}", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Done::default()),
            Err(error) => Err(format!("cannot read {}: {error}", file.display())),
        }
    }

    /// Has it stand in the file, whole, in place of what stood there.
    fn write(self, file: &Path) -> Result<(), String> {
        let beside = file.with_extension("new");
        let write = || std::fs::write(&beside, serde_json::to_vec(&self)?);
        write()
            .and_then(|()| std::fs::rename(&beside, file))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))
    }
}

/// The row of so many failovers in all, those among them that the file tells of.
pub(super) fn row(failovers: usize, file: Option<&Path>) -> Result<Row, String> {
    let mut done = file.map_or(Ok(Done::default()), Done::read)?;
    // What cannot be written is found before an hour of failovers.
    file.map_or(Ok(()), |file| done.write(file))?;
    if done.failovers() < failovers {
        let before = done.tally;
        let so_far = |tally: Tally| {
            let mut sum = before;
            sum.add(tally);
            sum
        };
        let mut side = Side::new(Box::new(Nodes::start("lost", NODES, MEMORY_BYTES)?))?;
        while done.failovers() < failovers {
            let Done { tally: Tally { lost, stale, .. }, .. } = done;
            let at = done.failovers() + 1;
            progress::show(&format!("failover {at} of {failovers}, {lost} writes lost, {stale} stale reads"));
            let is_kill = at % 2 == 1;
            let gap_ms = side.fail_over(if is_kill { Why::Killed } else { Why::Stopped })?;
            done.killed += usize::from(is_kill);
            done.stopped += usize::from(!is_kill);
            done.longest_ms = done.longest_ms.max(gap_ms);
            done.tally = so_far(side.tally());
            file.map_or(Ok(()), |file| done.write(file))?;
        }
        done.tally = so_far(side.end()?);
        file.map_or(Ok(()), |file| done.write(file))?;
    }
    let Done { killed, stopped, longest_ms, tally } = done;
    let words = format!(
        "; {killed} primaries killed and {stopped} stopped, at most {longest_ms:.0} ms without a write; {} \
         errors",
        tally.errors
    );
    Ok(lost(tally, &words))
}
