//! A grid of streets, made up: for tests, and where no map is at hand.

use std::collections::HashMap;

use super::{Position, Source, Street, Way};
use crate::random::Random;

/// Units of latitude and longitude between crossings: some 130 metres each way.
const NORTH: i32 = 12_000;
const EAST: i32 = 23_000;
/// Streets of the grid bend: a crossing is off its place by so many units at most.
const BENT: i32 = 2_000;

/// So many streets each way. Each fifth is wide and fast, each third of the others goes one way.
pub fn grid(side: u32) -> Source {
    let mut random = Random::new(7);
    let mut nodes = HashMap::new();
    let id = |row: u32, column: u32| i64::from(row * side + column) + 1;
    for row in 0..side {
        for column in 0..side {
            let mut bent = || (random.below(2 * BENT as u64) as i32) - BENT;
            let lat = 600_000_000 + row as i32 * NORTH + bent();
            nodes.insert(id(row, column), Position { lat, lon: 250_000_000 + column as i32 * EAST + bent() });
        }
    }
    let mut ways = Vec::new();
    for number in 0..side {
        let across: Vec<i64> = (0..side).map(|column| id(number, column)).collect();
        let up: Vec<i64> = (0..side).map(|row| id(row, number)).collect();
        ways.push(way(number, across, "Street"));
        ways.push(way(number, up, "Avenue"));
    }
    Source { title: format!("a made-up grid of {side} streets each way"), nodes, ways }
}

fn way(number: u32, mut nodes: Vec<i64>, word: &str) -> Way {
    let wide = number % 5 == 0;
    let oneway = !wide && number % 3 == 1;
    if oneway && number % 2 == 0 {
        nodes.reverse();
    }
    let (kind, maxspeed) = if wide { ("primary", 60) } else { ("residential", 30) };
    let name = format!("{word} {}", number + 1);
    Way { nodes, street: Street { name, kind: kind.into(), maxspeed }, oneway }
}
