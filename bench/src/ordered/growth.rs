//! What more records cost a learned get, beside what they cost a binary search; and how soon a table can be
//! read.

use std::hint::black_box;
use std::time::{Duration, Instant};

use kelix::{Path, TableKind};

use super::tree::{Asked, LOAD_ORDER, Reader, Tree, check, value_of};
use super::{Size, keys};
use kelix_report::cores::{pin, unpin};
use kelix_report::interleave::{median, take_turns};
use kelix_report::report::{Row, Sense};

/// How many times more records the larger table has.
const TIMES: u64 = 100;
/// Numbers that are asked for in turn, and those of one call.
const ASKED: usize = 1 << 17;
const CALL: usize = 1 << 8;
/// Gets in a row that have to need no message.
const SAMPLE: usize = 512;
/// How often a table is made in the row of how soon it can be read, and for how long that is waited for.
const TABLES: usize = 5;
const PATIENCE: Duration = Duration::from_secs(60);

/// A table, the same numbers and values in an array, and the values alone.
struct Place {
    reader: Reader,
    /// Its server runs for as long as it is read.
    _tree: Tree,
    array: Vec<(u64, u64)>,
    asked: Asked,
    at: [usize; 3],
}

impl Place {
    fn of(records: u64) -> Result<Place, String> {
        let numbers = keys::numbers("noised", records);
        let tree = Tree::of_numbers(TableKind::Inline, &numbers)?;
        let array = numbers.iter().map(|number| (*number, value_of(*number, 0))).collect();
        let asked = Asked::draw(&numbers, 71, ASKED);
        Ok(Place { reader: tree.here(Path::Auto)?, _tree: tree, array, asked, at: [0; 3] })
    }

    /// Looks for the next numbers in one of three ways: a learned get, a binary search, or where it is known
    /// to stand.
    fn call(&mut self, way: usize) -> Result<u64, String> {
        let at = self.at[way];
        self.at[way] = (at + CALL) % ASKED;
        let Place { reader, array, asked, .. } = self;
        for number in &asked.numbers[at..at + CALL] {
            let index = match way {
                0 => {
                    reader.get(*number)?;
                    continue;
                }
                1 => array.binary_search_by_key(number, |entry| entry.0).map_err(|_| "no such number")?,
                // The index-th number is between 16 times the index and the next of these.
                _ => (number / 16) as usize,
            };
            check(*number, Some(&array[index].1.to_le_bytes()))?;
        }
        Ok(CALL as u64)
    }
}

/// The rows.
pub(super) fn rows(size: &Size) -> Result<Vec<Row>, String> {
    Ok(vec![growth(size)?, usable(size)?])
}

/// The row about more records.
fn growth(size: &Size) -> Result<Row, String> {
    let few = size.records / TIMES;
    let mut places = [Place::of(size.records)?, Place::of(few)?];
    pin(0);
    let times = take_turns(size.rounds, 6, |side| places[side % 2].call(side / 2));
    unpin();
    let times = times?;
    let quotient = |way: usize, round: usize| times[2 * way][round] / times[2 * way + 1][round];
    let against = |other: usize| {
        let ratios = (0..size.rounds).map(|round| quotient(0, round) / quotient(other, round));
        median(&ratios.collect::<Vec<_>>())
    };
    let each = |way: usize| median(&(0..size.rounds).map(|round| quotient(way, round)).collect::<Vec<_>>());
    let ns: Vec<String> = times.iter().map(|times| format!("{:.0}", median(times))).collect();
    Ok(Row {
        id: "growth".into(),
        name: "a get with 100 times the records / without, by the same of a binary search".into(),
        ours: each(0),
        other: Some(each(1)),
        unit: "times",
        ratio: against(1),
        wanted: Some(1.2),
        sense: Sense::AtMost,
        note: format!(
            "{} and {few} records; learned {} and {} ns, binary search {} and {} ns, plain array {} and {} ns, which is {:.2} times \
             (ours by that: {:.2})",
            size.records,
            ns[0],
            ns[1],
            ns[2],
            ns[3],
            ns[4],
            ns[5],
            each(2),
            against(2)
        ),
    })
}

/// From the last put until gets need no message, beside one pass over the same numbers.
fn usable(size: &Size) -> Result<Row, String> {
    let numbers = keys::numbers("noised", size.records);
    let mut put = numbers.clone();
    keys::shuffle(&mut put, LOAD_ORDER);
    let asked = Asked::draw(&numbers, 72, SAMPLE).numbers;
    let (mut ours, mut other, mut during) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..if size.rounds > 2 { TABLES } else { 2 } {
        let mut tree = Tree::start(TableKind::Inline, size.records)?;
        let mut reader = tree.here(Path::Auto)?;
        let began = Instant::now();
        tree.put(&put)?;
        during.push(began.elapsed().as_secs_f64() * 1e3);
        let began = Instant::now();
        loop {
            let get = |reader: &mut Reader| asked.iter().try_for_each(|number| reader.get(*number).map(drop));
            if reader.cost_of(get)?.1.messages == 0 {
                break;
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("gets still need messages {PATIENCE:?} after the last put"));
            }
        }
        ours.push(began.elapsed().as_secs_f64() * 1e3);
        let began = Instant::now();
        black_box(numbers.iter().fold(0, |all: u64, number| all.wrapping_add(*black_box(number))));
        other.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let ratios: Vec<f64> = ours.iter().zip(&other).map(|(ours, other)| ours / other).collect();
    Ok(Row {
        id: "training_usable".into(),
        name: "from the last put until gets need no message / a pass over the keys".into(),
        ours: median(&ours),
        other: Some(median(&other)),
        unit: "ms",
        ratio: median(&ratios),
        wanted: Some(5.0),
        sense: Sense::AtMost,
        note: format!(
            "seen from outside, with the {SAMPLE} gets that find out; models are trained while keys are put, which took {:.0} ms; {} \
             tables",
            median(&during),
            ours.len()
        ),
    })
}
