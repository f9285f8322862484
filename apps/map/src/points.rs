//! Points of GPS receivers, from files.

use std::collections::HashMap;
use std::path::Path;

use kelix_load::{CsvFormat, CsvRecords};
use serde::Deserialize;

use crate::place::Position;
use crate::trace::Fix;

/// The points of a vehicle, in order of time.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// Its name.
    pub vehicle: String,
    /// Its points.
    pub fixes: Vec<Fix>,
}

/// An entry of a list, as the samples of barefoot have them.
#[derive(Deserialize)]
struct Entry {
    id: String,
    time: String,
    point: String,
}

/// Reads a file: `.csv` with the columns vehicle, timestamp, longitude and latitude, or `.json` with a list
/// of id, time and point.
pub fn read(path: &Path) -> Result<Vec<Trace>, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let points = if is_json { list(&text) } else { table(&text) };
    let points = points.map_err(|error| format!("{}: {error}", path.display()))?;
    if points.is_empty() {
        return Err(format!("{}: there are no points in it", path.display()));
    }
    Ok(traces(points))
}

fn table(text: &str) -> Result<Vec<(String, Fix)>, String> {
    const EXPECTED: &str = "expected a table with the columns vehicle, timestamp, longitude, latitude";
    let format = CsvFormat { delimiter: b',', quote: Some(b'"'), escape: None, null: Vec::new() };
    let (mut records, columns) =
        CsvRecords::new(text.as_bytes(), format).map_err(|error| format!("{error}; {EXPECTED}"))?;
    let column = |names: &[&str]| {
        let found = columns.iter().position(|column| names.contains(&&column[..]));
        found.ok_or_else(|| format!("there is no column {}; {EXPECTED}", names[0]))
    };
    let vehicle = column(&["vehicle", "vehicle_id"])?;
    let [time, lon, lat] = [column(&["timestamp"])?, column(&["longitude"])?, column(&["latitude"])?];
    let mut points = Vec::new();
    loop {
        let line = records.position().1 + 1;
        let at_line = |error: String| format!("line {line}: {error}");
        let Some(fields) = records.next_record().map_err(at_line)? else { return Ok(points) };
        let degrees = |column: usize| {
            let text = fields[column].trim();
            text.parse().map_err(|_| at_line(format!("{} \"{text}\" is no number", columns[column])))
        };
        let fix = fix(&fields[time], degrees(lat)?, degrees(lon)?).map_err(at_line)?;
        points.push((fields[vehicle].clone(), fix));
    }
}

fn list(text: &str) -> Result<Vec<(String, Fix)>, String> {
    let entries: Vec<Entry> = serde_json::from_str(text)
        .map_err(|error| format!("{error}; expected a list of objects with id, time and point"))?;
    let point = |(index, entry): (usize, Entry)| {
        let inside = entry.point.trim().strip_prefix("POINT(").and_then(|rest| rest.strip_suffix(')'));
        let degrees = inside.and_then(|inside| {
            let (lon, lat) = inside.trim().split_once(' ')?;
            Some((lon.parse().ok()?, lat.trim().parse().ok()?))
        });
        let wrong = || format!("\"{}\" is no POINT(LONGITUDE LATITUDE)", entry.point);
        let fix = degrees.ok_or_else(wrong).and_then(|(lon, lat)| fix(&entry.time, lat, lon));
        Ok((entry.id, fix.map_err(|error| format!("entry {}: {error}", index + 1))?))
    };
    entries.into_iter().enumerate().map(point).collect()
}

fn fix(time: &str, lat: f64, lon: f64) -> Result<Fix, String> {
    let at = Position::of(lat, lon).ok_or_else(|| format!("latitude {lat}, longitude {lon} is no place"))?;
    let at_ms = milliseconds(time).ok_or_else(|| {
        format!("\"{time}\" is no time; expected YYYY-MM-DD HH:MM:SS, or seconds since 1970, between the years 1900 and 2200")
    })?;
    Ok(Fix { at_ms, at })
}

/// Years in which points may be.
const YEARS: std::ops::Range<i64> = 1900..2200;

/// `2026-06-19 08:00:14`, with `+0200` behind it or without; or seconds since 1970.
fn milliseconds(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        // A number far beyond these years counts something else than seconds: milliseconds, most often.
        let known = (days(YEARS.start, 1, 1) * 86_400) as f64..(days(YEARS.end, 1, 1) * 86_400) as f64;
        return known.contains(&seconds).then_some((seconds * 1000.0) as i64);
    }
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>());
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let (time, zone) = match time.find(['+', '-', 'Z']) {
        Some(at) => time.split_at(at),
        None => (time, ""),
    };
    let mut time = time.splitn(3, ':').map(|part| part.parse::<f64>());
    let (hour, minute, second) = (time.next()?.ok()?, time.next()?.ok()?, time.next()?.ok()?);
    let is_date =
        YEARS.contains(&year) && (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    let is_time =
        (0.0..24.0).contains(&hour) && (0.0..60.0).contains(&minute) && (0.0..61.0).contains(&second);
    let valid = is_date && is_time && hour.fract() == 0.0 && minute.fract() == 0.0;
    let seconds = hour * 3600.0 + minute * 60.0 + second;
    let east = match zone {
        "" | "Z" => 0,
        zone => {
            let hours: i64 = zone.get(1..3)?.parse().ok().filter(|hours| (0..=14).contains(hours))?;
            let minutes = zone.get(3..)?.trim_start_matches(':');
            let minutes: i64 = if minutes.is_empty() { 0 } else { minutes.parse().ok()? };
            (hours * 60 + minutes) * if zone.starts_with('-') { -60 } else { 60 }
        }
    };
    valid.then(|| (days(year, month, day) * 86_400 - east) * 1000 + (seconds * 1000.0).round() as i64)
}

/// The days of a month.
fn days_of(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days(next_year, next_month, 1) - days(year, month, 1)
}

/// Days since 1970 (Gregorian calendar). Years begin in March, so that the day that is there in some only is
/// a year's last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468
}

/// Each vehicle's points, in the order in which vehicles first come.
fn traces(points: Vec<(String, Fix)>) -> Vec<Trace> {
    let mut traces: Vec<Trace> = Vec::new();
    let mut of_vehicle: HashMap<String, usize> = HashMap::new();
    for (vehicle, fix) in points {
        let index = *of_vehicle.entry(vehicle).or_insert_with_key(|vehicle| {
            traces.push(Trace { vehicle: vehicle.clone(), fixes: Vec::new() });
            traces.len() - 1
        });
        traces[index].fixes.push(fix);
    }
    traces.iter_mut().for_each(|trace| trace.fixes.sort_by_key(|fix| fix.at_ms));
    traces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_what_the_calendar_says() {
        for (text, seconds) in [
            ("1970-01-01 00:00:00", 0),
            ("2026-06-19 08:00:14", 1_781_856_014),
            ("2014-09-10 06:54:07+0200", 1_410_324_847),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("1410324847", 1_410_324_847),
        ] {
            assert_eq!(milliseconds(text), Some(seconds * 1000), "{text}");
        }
        for wrong in [
            "",
            "yesterday",
            "2026-13-01 00:00:00",
            "2026-06-19",
            "2026-06-19 08:00",
            // Milliseconds, and what no calendar has.
            "1767225600000",
            "inf",
            "-inf",
            "nan",
            "1e300",
            "2026-02-31 00:00:00",
            "2026-02-29 00:00:00",
            "1900-02-29 00:00:00",
            "2026-04-31 00:00:00",
            "2026-06-19 -1:00:00",
            "2026-06-19 08:00:61",
            "2026-06-19 08:nan:00",
            "99999999999999-02-01 00:00:00",
            "2026-06-19 08:00:00+99",
            "2026-06-19 08:00:00+02:xx",
        ] {
            assert_eq!(milliseconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn points_are_read_by_vehicle() {
        let text = "id,vehicle_id,timestamp,longitude,latitude\n\
            1,b,2026-06-19 08:00:14,24.9,60.1\n2,a,2026-06-19 08:00:15,24.9,60.2\n3,b,2026-06-19 08:00:10,24.8,60.1\n";
        let traces = traces(table(text).unwrap());
        assert_eq!(traces.iter().map(|trace| &trace.vehicle[..]).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(traces[0].fixes[0].at.lon, 248_000_000);
        let json = r#"[{"point":"POINT(11.5 48.1)","time":"2014-09-10 06:54:07+0200","id":"x"}]"#;
        assert_eq!(list(json).unwrap()[0].1.at, Position { lat: 481_000_000, lon: 115_000_000 });
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |text: &str| table(text).unwrap_err();
        assert!(wrong("a,b\n1,2\n").contains("columns vehicle"));
        assert!(wrong("vehicle,timestamp,longitude,latitude\na,1,2,x\n").contains("line 2: latitude \"x\""));
        assert!(
            wrong("vehicle,timestamp,longitude,latitude\na,1,2\n")
                .contains("line 2: the record has 3 fields")
        );
        assert!(wrong("vehicle,timestamp,longitude,latitude\n\"a,1,2,3\nb,1,2,3\n").contains("line 2"));
        assert!(
            wrong("vehicle,timestamp,longitude,latitude\na,1,2,3\na,noon,2,3\n").contains("line 3: \"noon\"")
        );
        assert!(wrong("vehicle,timestamp,longitude,latitude\na,1,2,93\n").contains("no place"));
        assert!(list("[]x").unwrap_err().contains("list of objects"));
        let point = r#"[{"point":"11.5 48.1","time":"0","id":"x"}]"#;
        assert!(list(point).unwrap_err().contains("entry 1"));
    }
}
