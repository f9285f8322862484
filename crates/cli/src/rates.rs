//! What has happened between one look at a server's statistics and the next, in numbers.

use serde_json::{Map, Value};

use crate::report::ROWS_MAX;
use crate::screen::how_far;

/// What has happened between two looks, a second: name, and where it stands in each shard or fabric.
const RATES: [(&str, &str, &str, f64); 8] = [
    ("reads/s", "fabrics", "/reads", 1.0),
    ("MiB/s", "fabrics", "/read_bytes", 1.0 / (1 << 20) as f64),
    ("again/s", "fabrics", "/retries", 1.0),
    ("messages/s", "fabrics", "/messages", 1.0),
    ("requests/s", "shards", "/requests", 1.0),
    ("puts/s", "shards", "/puts", 1.0),
    ("deletes/s", "shards", "/deletes", 1.0),
    ("CPU %", "shards", "/cpu_s", 100.0),
];

/// How things are: name, where, and in which unit.
const LEVELS: [(&str, &str, &str, f64); 3] = [
    ("clients", "fabrics", "/connected", 1.0),
    ("items", "shards", "/items", 1.0),
    ("live MiB", "shards", "/memory/live_bytes", 1.0 / (1 << 20) as f64),
];

/// The sum of a number over all shards or fabrics.
pub(crate) fn sum(statistics: &Value, part: &str, pointer: &str) -> f64 {
    let number = |value: &Value| value.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    match &statistics[part] {
        Value::Array(parts) => parts.iter().map(number).sum(),
        Value::Object(parts) => parts.values().map(number).sum(),
        _ => 0.0,
    }
}

/// The names and the numbers of a line.
fn watched(before: &Value, now: &Value) -> Vec<(&'static str, f64)> {
    let seconds = uptime_s(now) - uptime_s(before);
    let rate = |part: &str, pointer: &str| {
        let grown = sum(now, part, pointer) - sum(before, part, pointer);
        if seconds > 0.0 { (grown / seconds).max(0.0) } else { 0.0 }
    };
    let levels = LEVELS.iter().map(|(name, part, pointer, unit)| (*name, sum(now, part, pointer) * unit));
    let rates = RATES.iter().map(|(name, part, pointer, unit)| (*name, rate(part, pointer) * unit));
    levels.chain(rates).collect()
}

/// How much a number has grown, a second. Nothing, if it is not told or no time has passed.
pub(crate) fn growth(before: &Value, now: &Value, pointer: &str, seconds: f64) -> Option<f64> {
    let number = |value: &Value| value.pointer(pointer).and_then(Value::as_f64);
    let grown = number(now)? - number(before)?;
    (seconds > 0.0).then(|| (grown / seconds).max(0.0))
}

/// The seconds of the server's clock from one look to the next.
pub(crate) fn seconds_between(before: &Value, now: &Value) -> f64 {
    uptime_s(now) - uptime_s(before)
}

/// Whether it is the same server: another's counters began anew.
pub(crate) fn is_same_server(before: &Value, now: &Value) -> bool {
    before["term"] == now["term"] && before["pid"] == now["pid"]
}

fn uptime_s(statistics: &Value) -> f64 {
    statistics["uptime_s"].as_f64().unwrap_or(0.0)
}

/// What the JSON of a line tells beside the line: of each fabric, of each mirror that follows, of a mirror
/// itself, and of each shard.
const OF_FABRIC: [(&str, &str, f64); 5] = [
    ("reads/s", "/reads", 1.0),
    ("MiB/s", "/read_bytes", 1.0 / (1 << 20) as f64),
    ("messages/s", "/messages", 1.0),
    ("again/s", "/retries", 1.0),
    ("fallbacks/s", "/fallbacks", 1.0),
];
const OF_MIRROR: [(&str, &str, f64); 1] = [("reads/s", "/reads", 1.0)];
const OF_STANDING: [(&str, &str, f64); 2] =
    [("records/s", "/records", 1.0), ("MiB/s", "/applied_bytes", 1.0 / (1 << 20) as f64)];
const OF_SHARD: [(&str, &str, f64); 6] = [
    ("requests/s", "/requests", 1.0),
    ("gets/s", "/gets", 1.0),
    ("scans/s", "/scans", 1.0),
    ("puts/s", "/puts", 1.0),
    ("deletes/s", "/deletes", 1.0),
    ("CPU %", "/cpu_s", 100.0),
];

/// The rates of a fabric or a shard, by name.
fn named(rates: &[(&str, &str, f64)], before: &Value, now: &Value, seconds: f64) -> Map<String, Value> {
    let rate = |(name, pointer, unit): &(&str, &str, f64)| {
        let rate = growth(before, now, pointer, seconds).unwrap_or(0.0) * unit;
        (name.to_string(), rate.into())
    };
    rates.iter().map(rate).collect()
}

/// A line as an object.
pub(crate) fn line_json(before: &Value, now: &Value) -> Value {
    let seconds = seconds_between(before, now);
    let mut line: Map<String, Value> =
        watched(before, now).into_iter().map(|(name, value)| (name.to_string(), value.into())).collect();
    let fabrics = now["fabrics"].as_object().into_iter().flatten().take(ROWS_MAX);
    let fabrics = fabrics.map(|(name, fabric)| {
        let rates = named(&OF_FABRIC, &before["fabrics"][name], fabric, seconds);
        (name.clone(), Value::Object(rates))
    });
    let shards =
        now["shards"].as_array().into_iter().flatten().take(ROWS_MAX).enumerate().map(|(number, shard)| {
            let mut rates = named(&OF_SHARD, &before["shards"][number], shard, seconds);
            rates.insert("writes waiting".into(), shard["writes_waiting"].clone());
            Value::Object(rates)
        });
    let mirrors = now["mirrors"].as_array().into_iter().flatten().take(ROWS_MAX).map(|mirror| {
        let known = before["mirrors"].as_array().into_iter().flatten();
        let before = known.into_iter().find(|known| known["address"] == mirror["address"]);
        let rates = before.map(|before| named(&OF_MIRROR, before, mirror, seconds));
        let mut told = rates.unwrap_or_default();
        for (name, pointer) in [("mirror", "name"), ("address", "address")] {
            told.insert(name.into(), mirror[pointer].clone());
        }
        told.insert("state".into(), how_far(mirror).into());
        told.insert("lag ms".into(), mirror["lag_ms"].clone());
        told.insert("records behind".into(), mirror["lag_records"].clone());
        Value::Object(told)
    });
    line.insert("mirrors".into(), mirrors.collect());
    if now["mirror"].is_object() {
        let mut told = named(&OF_STANDING, &before["mirror"], &now["mirror"], seconds);
        told.insert("state".into(), now["mirror"]["state"].clone());
        told.insert("lag ms".into(), now["mirror"]["lag_ms"].clone());
        line.insert("mirror".into(), told.into());
    }
    line.insert("fabrics".into(), Value::Object(fabrics.collect()));
    line.insert("shards".into(), shards.collect());
    line.insert(
        "resting MiB".into(),
        (sum(now, "shards", "/memory/quarantined_bytes") / (1 << 20) as f64).into(),
    );
    line.insert("term".into(), now["term"].clone());
    line.insert("uptime_s".into(), now["uptime_s"].clone());
    line.into()
}

/// A line in columns.
pub(crate) fn line_text(before: &Value, now: &Value, heading: bool) -> String {
    let line = watched(before, now);
    let digits = |name: &str| usize::from(name.contains("MiB") || name.contains('%'));
    let numbers: Vec<String> =
        line.iter().map(|(name, value)| format!("{value:>10.*}", digits(name))).collect();
    let titles: Vec<String> = line.iter().map(|(name, _)| format!("{name:>10}")).collect();
    let heading = if heading { titles.join(" ") + "\n" } else { String::new() };
    heading + &numbers.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_watched_is_what_has_grown() {
        let at = |uptime: f64, reads: u64, puts: u64| {
            json!({
                "uptime_s": uptime,
                "shards": [{"puts": puts, "items": 5}, {"puts": 1, "items": 2}],
                "fabrics": {"shm": {"connected": 2, "reads": reads}, "tcp": {"connected": 1, "reads": 10}},
            })
        };
        let line = watched(&at(10.0, 100, 7), &at(12.0, 300, 8));
        let value = |wanted: &str| line.iter().find(|(name, _)| *name == wanted).expect("a column").1;
        assert_eq!((value("reads/s"), value("puts/s")), (100.0, 0.5));
        assert_eq!((value("clients"), value("items")), (3.0, 7.0));
    }

    #[test]
    fn a_line_as_json_tells_of_fabrics_and_shards() {
        let at = |uptime: f64, reads: u64, puts: u64| {
            json!({
                "uptime_s": uptime, "term": 2,
                "shards": [{"puts": puts, "writes_waiting": 3}],
                "fabrics": {"shm": {"reads": reads}, "tcp": {"reads": 10}},
            })
        };
        let line = line_json(&at(10.0, 100, 7), &at(12.0, 300, 8));
        assert!(line["mirrors"] == json!([]) && line["mirror"].is_null());
        assert_eq!(line["reads/s"], 100.0);
        assert_eq!(line["fabrics"]["shm"]["reads/s"], 100.0);
        assert_eq!(line["fabrics"]["tcp"]["reads/s"], 0.0);
        assert_eq!(line["shards"][0]["puts/s"], 0.5);
        assert_eq!((&line["shards"][0]["writes waiting"], &line["term"]), (&json!(3), &json!(2)));
    }

    #[test]
    fn a_line_as_json_tells_of_mirrors() {
        let at = |uptime: f64, reads: u64, records: u64| {
            json!({
                "uptime_s": uptime,
                "mirrors": [{"name": "web1", "address": "10.0.0.7:9", "state": "following", "reads": reads,
                    "lag_ms": 1.5, "lag_records": 3}],
                "mirror": {"primary": "10.0.0.1:7", "state": "following", "lag_ms": 2.5, "records": records},
            })
        };
        let line = line_json(&at(10.0, 100, 7), &at(12.0, 300, 9));
        let mirror = &line["mirrors"][0];
        assert_eq!((&mirror["mirror"], &mirror["state"]), (&json!("web1"), &json!("following")));
        assert_eq!((&mirror["reads/s"], &mirror["lag ms"]), (&json!(100.0), &json!(1.5)));
        assert_eq!((&line["mirror"]["records/s"], &line["mirror"]["lag ms"]), (&json!(1.0), &json!(2.5)));
        let other = line_json(&json!({"uptime_s": 10.0}), &at(12.0, 300, 9));
        assert_eq!(
            (&other["mirrors"][0]["reads/s"], &other["mirrors"][0]["records behind"]),
            (&json!(null), &json!(3))
        );
    }
}
