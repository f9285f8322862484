//! A get over TCP beside memcached's, both where the system places them: each key for the first time in the
//! session, so that no pointer is known.

use kelix::FabricChoice;

use super::Size;
use super::caller::{Caller, Operation};
use super::systems::{BASELINES, OURS, Systems};
use crate::store::Walk;
use kelix_report::interleave::{compared as between, take_turns};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, as_rate, compared};

/// Gets between two looks at the clock.
const GETS: u64 = 16;

/// The row.
pub(super) fn row(systems: &Systems, size: Size) -> Result<Row, String> {
    progress::show("gets over TCP");
    let mut ours = systems.kelix.open(FabricChoice::Tcp, systems.records)?;
    let mut theirs = systems.memcached()?;
    let before = ours.cost();
    let (walk, mut steps) = (Walk::over(systems.records.count), [0; 2]);
    let times = take_turns(size.blocks, 2, |side| {
        for _ in 0..GETS {
            let record = walk.step_of(steps[side]);
            steps[side] += 1;
            let caller: &mut dyn Caller = if side == 0 { &mut ours } else { &mut theirs };
            caller.run(Operation::Get, record)?;
        }
        Ok::<_, String>(GETS)
    })?;
    let cost = ours.cost().since(before);
    let note = format!(
        "{} gets, {} READs, {} messages; each key for the first time; ratio of rates; ",
        steps[0], cost.reads, cost.messages
    );
    let name = format!("get of an unknown record, placed by the system: {} / {}", OURS[1], BASELINES[1]);
    let row = compared("tcp_get_placed", name, "ns", 1.0, as_rate(between(&times[0], &times[1])), &note);
    Ok(Row { sense: Sense::AtLeast, ..row })
}
