//! How long it takes from the answer of a put until the mirror shows it, beside other puts.
//!
//! One thread puts a number, and looks for it on the mirror from the answer on; between two looks it gives
//! its core away, which those need that bring the number there.

use std::time::{Duration, Instant};

use kelix_report::progress;
use kelix_report::report::{Row, figure, told};

use super::data::{Kind, Marker, Reader, Stream, Tally, Writer};
use super::hosts::Hosts;
use super::{PATIENCE, Size};
use crate::store::Numbers;
use crate::times::Times;

/// Puts that are looked for, and those before them that do not count.
const FULL: (usize, usize) = (5000, 300);
const SMALL: (usize, usize) = (30, 3);
/// Most time between two, which is drawn so that they meet the mirror at any moment.
const BETWEEN_US: u64 = 2000;
/// Wanted milliseconds: of half of all puts, and of 99 in 100.
const WANTED: [f64; 2] = [1.0, 5.0];

struct Rate {
    a_second: u64,
    ids: [&'static str; 2],
    names: [&'static str; 2],
}

const RATES: [Rate; 2] = [
    Rate {
        a_second: 10_000,
        ids: ["lag_10k_p50", "lag_10k_p99"],
        names: [
            "from the answer of a put until the mirror shows it, beside 10,000 puts a second: half of them",
            "the same: 99 in 100",
        ],
    },
    Rate {
        a_second: 100_000,
        ids: ["lag_100k_p50", "lag_100k_p99"],
        names: ["the same beside 100,000 puts a second: half of them", "the same: 99 in 100"],
    },
];

/// How long puts took to be seen, and how old the mirror said that it was then.
struct Lags {
    seen: Times,
    told: Times,
}

/// Puts numbers and looks for each.
fn look(reader: &mut Reader, marker: &mut Marker, (count, before): (usize, usize)) -> Result<Lags, String> {
    let mut lags = Lags { seen: Times::new(), told: Times::new() };
    let mut draw = Numbers(17);
    for index in 0..before + count {
        std::thread::sleep(Duration::from_micros(draw.next() % BETWEEN_US));
        let own = reader.lag();
        let number = marker.put()?;
        let answered = Instant::now();
        while !reader.sees(number)? {
            if answered.elapsed() > PATIENCE {
                return Err("a put is not seen on the mirror".into());
            }
            std::thread::yield_now();
        }
        if index >= before {
            lags.seen.note(answered.elapsed().as_nanos() as u64);
            own.into_iter().for_each(|own| lags.told.note(own.as_nanos() as u64));
        }
    }
    Ok(lags)
}

/// The rows, and who puts.
pub(super) fn rows(
    hosts: &Hosts,
    mut writer: Writer,
    size: Size,
    tally: &mut Tally,
) -> Result<(Vec<Row>, Writer), String> {
    let mut reader = Reader::open(&hosts.mirrors[0], &writer, 5)?;
    let mut marker = Marker::open(hosts)?;
    let mut rows = Vec::new();
    let ms = |ns: u64| ns as f64 / 1e6;
    for Rate { a_second, ids, names } in RATES {
        progress::show(ids[0]);
        let stream = Stream::start(writer, Kind::Records, a_second);
        let lags = look(&mut reader, &mut marker, size.choose(FULL, SMALL));
        let rate;
        (writer, rate) = stream.end()?;
        let Lags { seen, told: own } = lags?;
        for (index, share) in [0.5, 0.99].into_iter().enumerate() {
            let note = format!(
                "{} puts looked for beside {} a second; the longest {} ms; the mirror's own word {} ms",
                seen.count(),
                figure(rate),
                figure(ms(seen.longest_ns())),
                figure(ms(own.quantile_ns(share))),
            );
            let lag = ms(seen.quantile_ns(share));
            rows.push(Row { note, ..told(ids[index], names[index], "ms", lag, Some(WANTED[index])) });
        }
    }
    reader.wait_for(&mut marker)?;
    reader.read_all(Kind::Records, &writer)?;
    tally.add(reader.tally);
    Ok((rows, writer))
}
