//! One-sided reads of a mirror's memory against the same of its primary's: with nobody who writes, and beside
//! a stream of puts to the primary of what is read.

use std::time::{Duration, Instant};

use kelix::Cost;
use kelix_report::interleave::{Comparison, compared as between, take_turns};
use kelix_report::progress;
use kelix_report::report::{Row, compared, figure};

use super::data::{Kind, Reader, Stream, Tally, Writer};
use super::hosts::Hosts;
use super::{Size, text};

/// Rounds with nobody who writes, and beside a stream, where others want the cores.
const FULL: (usize, usize) = (101, 201);
const SMALL: (usize, usize) = (2, 2);
/// Puts a second of the stream.
const STREAM: u64 = 100_000;
/// How long a stream goes on before anything counts.
const WARM: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(20));
/// How long it may take until reads send no messages any more: models are trained, and links told of.
const SETTLE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_millis(200));

/// The names of two rows: one while nobody writes, and the same beside a stream.
struct Words {
    kind: Kind,
    idle: (&'static str, &'static str),
    beside: (&'static str, &'static str),
}

const WORDS: [Words; 3] = [
    Words {
        kind: Kind::Records,
        idle: ("mirror_get", "one-sided gets of any record on a mirror / on its primary"),
        beside: ("mirror_get_stream", "the same beside a stream of puts of these records"),
    },
    Words {
        kind: Kind::Chain,
        idle: ("mirror_chase", "following a link, from item to item, on a mirror / on its primary"),
        beside: ("mirror_chase_stream", "the same beside a stream of puts of these items"),
    },
    Words {
        kind: Kind::Ordered,
        idle: ("mirror_scan", "scans of 100 keys, a key, on a mirror / on its primary"),
        beside: ("mirror_scan_stream", "the same beside a stream of puts of these keys"),
    },
];

/// What was counted of a side, in words.
fn counts(cost: Cost) -> String {
    format!("{} READs, {} done again, {} messages", cost.reads, cost.retries, cost.messages)
}

/// The two sides: the mirror's reader, and the primary's.
type Sides = [Reader; 2];

/// Blocks of reads of both sides in turn, and what they have cost.
fn compare(sides: &mut Sides, kind: Kind, rounds: usize) -> Result<(Comparison, String), String> {
    let before = [0, 1].map(|side: usize| sides[side].cost());
    let times = take_turns(rounds, 2, |side| sides[side].read(kind))?;
    let [mirror, primary] = [0, 1].map(|side: usize| counts(sides[side].cost().since(before[side])));
    Ok((between(&times[0], &times[1]), format!("{mirror} against {primary}")))
}

/// Reads everything until that needs no messages: first at the primary, which then has told its mirror.
fn settle(sides: &mut Sides, kind: Kind, writer: &Writer, time: Duration) -> Result<(), String> {
    for side in [1, 0] {
        let began = Instant::now();
        loop {
            let before = sides[side].cost();
            sides[side].read_all(kind, writer)?;
            if sides[side].cost().since(before).messages == 0 || began.elapsed() > time {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// The rows, and who puts.
pub(super) fn rows(
    hosts: &Hosts,
    mut writer: Writer,
    size: Size,
    tally: &mut Tally,
) -> Result<(Vec<Row>, Writer), String> {
    let (idle_rounds, rounds) = size.choose(FULL, SMALL);
    let mut sides = [Reader::open(&hosts.mirrors[0], &writer, 3)?, Reader::open(&hosts.primary, &writer, 4)?];
    let mut marker = super::data::Marker::open(hosts)?;
    let (mut idle, mut beside) = (Vec::new(), Vec::new());
    for Words { kind, idle: (id, name), .. } in WORDS {
        progress::show(id);
        settle(&mut sides, kind, &writer, size.choose(SETTLE.0, SETTLE.1))?;
        let (comparison, counts) = compare(&mut sides, kind, idle_rounds)?;
        idle.push(compared(id, name, "ns", 1.05, comparison, &format!("{counts}; ")));
    }
    for Words { kind, beside: (id, name), .. } in WORDS {
        progress::show(id);
        let stream = Stream::start(writer, kind, STREAM);
        std::thread::sleep(size.choose(WARM.0, WARM.1));
        let measured = compare(&mut sides, kind, rounds);
        let rate;
        (writer, rate) = stream.end()?;
        let (comparison, counts) = measured?;
        let note = format!("{} puts a second of {STREAM} wanted; {counts}; ", figure(rate));
        beside.push(compared(id, name, "ns", 1.2, comparison, &note));
        sides[0].wait_for(&mut marker)?;
        sides.iter_mut().try_for_each(|side| side.read_all(kind, &writer)).map_err(text)?;
    }
    sides.iter().for_each(|side| tally.add(side.tally));
    idle.extend(beside);
    Ok((idle, writer))
}
