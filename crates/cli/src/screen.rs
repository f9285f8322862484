//! The screen of `kelix stat --watch`: what a terminal has room for, drawn over what was there.
//!
//! Lines are cut to the terminal's width and height, so that nothing scrolls. It uses nothing of a terminal
//! that would have to be undone: whoever ends the program, in whatever way, has his terminal as it was.

use std::time::Duration;

use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use crate::columns::{Column, Form, column, label, table};
use crate::rates::{growth, seconds_between, sum};
use crate::report::{KINDS, MEMORY, ROWS_MAX, ordered_rows, rows, title};
use crate::units::show_time;

/// Empties the screen.
pub(crate) const CLEAR: &str = "\x1b[2J";
/// To the upper left corner; the rest of a line, and of the screen, is emptied.
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

/// Most rows of a table of clients, of ordered tables, and of kinds of slots.
const ROWS: usize = 10;

const FABRICS: [Column; 7] = [
    Column { form: Form::Text, ..label("fabric", "/fabric") },
    column("clients", "/connected", Form::Count),
    column("reads/s", "/per_s/reads", Form::Count),
    column("MiB/s", "/per_s/read_bytes", Form::Mib),
    column("again/s", "/per_s/retries", Form::Count),
    column("fallbacks/s", "/per_s/fallbacks", Form::Count),
    column("messages/s", "/per_s/messages", Form::Count),
];

const SHARDS: [Column; 10] = [
    label("shard", "/shard"),
    column("items", "/items", Form::Count),
    column("requests/s", "/per_s/requests", Form::Count),
    column("gets/s", "/per_s/gets", Form::Count),
    column("scans/s", "/per_s/scans", Form::Count),
    column("puts/s", "/per_s/puts", Form::Count),
    column("deletes/s", "/per_s/deletes", Form::Count),
    column("CPU %", "/percent", Form::Count),
    column("waiting", "/writes_waiting", Form::Count),
    column("refused", "/writes_refused", Form::Count),
];

const CLIENTS: [Column; 5] = [
    Column { form: Form::Text, ..label("fabric", "/fabric") },
    Column { form: Form::Text, ..label("who", "/who") },
    column("reads/s", "/per_s/reads", Form::Count),
    column("MiB/s", "/per_s/read_bytes", Form::Mib),
    column("messages/s", "/per_s/messages", Form::Count),
];

const MIRRORS: [Column; 7] = [
    Column { form: Form::Text, ..label("mirror", "/name") },
    Column { form: Form::Text, ..label("address", "/address") },
    Column { form: Form::Text, ..label("state", "/how_far") },
    Column { form: Form::Fraction, ..label("lag ms", "/lag_ms") },
    column("records behind", "/lag_records", Form::Count),
    column("sent MiB", "/sent_bytes", Form::Mib),
    column("reads/s", "/per_s/reads", Form::Count),
];

const ORDERED: [Column; 5] = [
    Column { form: Form::Text, ..label("ordered table", "/name") },
    label("shard", "/shard"),
    column("keys", "/keys", Form::Count),
    column("leaves", "/leaves", Form::Count),
    column("models", "/sub_models", Form::Count),
];

/// A row with what has grown in it, a second, where that is known.
fn with_rates(before: Option<&Value>, now: &Value, seconds: f64, names: &[&str]) -> Value {
    let mut row = now.clone();
    row["per_s"] = json!({});
    for name in names {
        let rate = before.and_then(|before| growth(before, now, &format!("/{name}"), seconds));
        row["per_s"][*name] = json!(rate);
    }
    row
}

fn who(client: &Value) -> String {
    match client["address"].as_str() {
        Some(address) => address.into(),
        None => format!("process {} of user {}", client["pid"], client["uid"]),
    }
}

/// Clients, the busiest first.
fn clients(before: Option<&Value>, now: &Value, seconds: f64) -> Vec<Value> {
    let known = before.map_or(Vec::new(), |before| rows(before, "clients"));
    let clients = rows(now, "clients").into_iter();
    let mut rows: Vec<Value> = clients
        .map(|client| {
            let names = ["reads", "read_bytes", "messages"];
            let before = known.iter().find(|known| known["connection"] == client["connection"]);
            let mut row = with_rates(before, &client, seconds, &names);
            row["who"] = who(&client).into();
            row
        })
        .collect();
    let busy =
        |row: &Value| ["/per_s/reads", "/per_s/messages"].map(|at| number(row, at)).iter().sum::<f64>();
    rows.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
    rows
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
}

/// Mirrors that follow.
fn mirrors(before: Option<&Value>, now: &Value, seconds: f64) -> Vec<Value> {
    let known = before.map_or(Vec::new(), |before| rows(before, "mirrors"));
    let mirrors = rows(now, "mirrors").into_iter();
    let row = |mirror: Value| {
        let before = known.iter().find(|known| known["address"] == mirror["address"]);
        let mut row = with_rates(before, &mirror, seconds, &["reads"]);
        row["how_far"] = how_far(&mirror).into();
        row
    };
    mirrors.map(row).collect()
}

/// Whether a mirror follows, or how much of the memory was copied to it.
pub(crate) fn how_far(mirror: &Value) -> String {
    let state = mirror["state"].as_str().unwrap_or("-");
    let bytes = |name: &str| mirror[name].as_f64().unwrap_or(0.0);
    match (state, bytes("of_bytes")) {
        ("copying", of) if of > 0.0 => {
            format!("copying {:.0} %", 100.0 * (bytes("copied_bytes") / of).clamp(0.0, 1.0))
        }
        _ => state.into(),
    }
}

/// A table of at most so many rows, and how many more there are. Nothing, if there are none.
fn some(title: &str, columns: &[Column], mut rows: Vec<Value>) -> String {
    let more = rows.len().saturating_sub(ROWS);
    rows.truncate(ROWS);
    match (rows.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => table(title, columns, &rows) + "\n",
        (false, _) => table(title, columns, &rows) + &format!("  and {more} more\n\n"),
    }
}

/// How gets were answered since the look before.
fn answered(before: Option<&Value>, now: &Value) -> String {
    let grown =
        |part: &str, pointer: &str| before.map(|before| sum(now, part, pointer) - sum(before, part, pointer));
    let parts =
        [("fabrics", "/reads"), ("shards", "/gets"), ("fabrics", "/fallbacks"), ("fabrics", "/retries")];
    let [Some(reads), Some(gets), Some(fallbacks), Some(retries)] = parts.map(|(part, at)| grown(part, at))
    else {
        return "gets: -\n\n".into();
    };
    let share = |part: f64, whole: f64| match whole > 0.0 {
        true => format!("{:.1} %", 100.0 * part / whole),
        false => "-".into(),
    };
    format!(
        "gets: {} one-sided reads, {} answered by message; of the reads {} ended in a message, {} were done again\n\n",
        share(reads, reads + gets),
        share(gets, reads + gets),
        share(fallbacks, reads),
        share(retries, reads),
    )
}

/// All of it, as long as it gets.
fn text(before: Option<&Value>, now: &Value, gone: Option<&str>, every: Duration) -> String {
    let seconds = before.map_or(0.0, |before| seconds_between(before, now));
    let mut text = title(now);
    text += &match gone {
        Some(why) => format!("THE SERVER IS GONE: {why}\nlooking for it every {}", show_time(every)),
        None => format!("every {}", show_time(every)),
    };
    text += "; Ctrl-C ends\n\n";
    let fabrics = now["fabrics"].as_object().into_iter().flatten().filter(|(_, fabric)| fabric.is_object());
    let fabrics = fabrics.take(ROWS_MAX).map(|(name, fabric)| {
        let names = ["reads", "read_bytes", "retries", "fallbacks", "messages"];
        let mut row = with_rates(before.map(|before| &before["fabrics"][name]), fabric, seconds, &names);
        row["fabric"] = name.as_str().into();
        row
    });
    text += &table("one-sided reads and messages", &FABRICS, &fabrics.collect::<Vec<_>>());
    text += &answered(before, now);
    text += &some("mirrors that follow", &MIRRORS, mirrors(before, now, seconds));
    let shards = rows(now, "shards");
    let shards = shards.iter().enumerate().map(|(number, shard)| {
        let names = ["requests", "gets", "scans", "puts", "deletes", "cpu_s"];
        let mut row = with_rates(before.map(|before| &before["shards"][number]), shard, seconds, &names);
        row["percent"] = json!(row["per_s"]["cpu_s"].as_f64().map(|part| part * 100.0));
        row
    });
    let shards: Vec<Value> = shards.collect();
    text += &some("shards", &SHARDS, shards.clone());
    // Without the retired segments, which are a count of the past.
    text += &some("memory, MiB", &MEMORY[..MEMORY.len() - 1], shards.clone());
    text += &some("clients, the busiest first", &CLIENTS, clients(before, now, seconds));
    text += &some("ordered tables", &ORDERED, ordered_rows(&shards));
    let mut kinds = rows(now, "memory_by_kind");
    kinds.sort_by(|one, other| number(other, "/used_bytes").total_cmp(&number(one, "/used_bytes")));
    text + &some("memory by what it holds, MiB", &KINDS, kinds)
}

/// Cuts a text to what there is room for, so that nothing scrolls.
fn fitted(text: &str, (rows, columns): (usize, usize)) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let cut = lines.len() > rows.saturating_sub(1);
    let shown = if cut { rows.saturating_sub(2) } else { lines.len() };
    let line = |line: &&str| line.chars().take(columns).collect::<String>() + REST_OF_LINE + "\r\n";
    let mut screen: String = lines[..shown].iter().map(line).collect();
    if cut {
        screen +=
            &line(&&format!("... {} more lines: a higher terminal shows them", lines.len() - shown)[..]);
    }
    format!("{HOME}{screen}{REST_OF_SCREEN}")
}

/// What is to be written to the terminal.
pub(crate) fn drawn(before: Option<&Value>, now: &Value, gone: Option<&str>, every: Duration) -> String {
    let size = tcgetwinsize(std::io::stdout()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
    // What terminals had before they had sizes.
    let size = size.map_or((24, 80), |size| (size.ws_row.into(), size.ws_col.into()));
    fitted(&text(before, now, gone, every), size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(uptime: f64, reads: u64) -> Value {
        json!({
            "uptime_s": uptime, "term": 1, "pid": 7, "namespace": "default",
            "fabrics": {"shm": {"connected": 2, "reads": reads}},
            "shards": [{"shard": 0, "gets": 0, "memory": {"limit_bytes": 64 << 20}}],
            "clients": [
                {"connection": 1, "fabric": "shm", "pid": 11, "uid": 0, "reads": 5},
                {"connection": 2, "fabric": "tcp", "address": "10.0.0.1:9", "reads": reads},
            ],
            "memory_by_kind": [{"what": "items", "slot_bytes": 64, "slots": 3, "live_bytes": 192, "used_bytes": 65536}],
        })
    }

    #[test]
    fn rates_shares_and_who_is_busy_are_told() {
        let every = Duration::from_secs(1);
        let shown = text(Some(&at(10.0, 100)), &at(12.0, 300), None, every);
        for words in ["100.0 % one-sided reads", "10.0.0.1:9", "process 11 of user 0", "items"] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        let place = |words: &str| shown.find(words).expect("shown");
        assert!(place("10.0.0.1:9") < place("process 11"), "{shown}");
        let line = shown.lines().find(|line| line.trim_start().starts_with("shm ")).expect("the fabric");
        assert_eq!(line.split_whitespace().take(3).collect::<Vec<_>>(), ["shm", "2", "100"]);
        let first = text(None, &at(10.0, 100), Some("it went"), every);
        assert!(first.contains("THE SERVER IS GONE: it went") && first.contains("gets: -"), "{first}");
    }

    #[test]
    fn a_primary_shows_its_mirrors_and_a_mirror_its_primary() {
        let primary = |uptime: f64, copied: u64, reads: Option<u64>| {
            let mut statistics = at(uptime, 100);
            statistics["mirrors"] = json!([
                {"name": "web1", "address": "10.0.0.7:9", "state": "following", "reads": reads,
                    "lag_ms": 1.25},
                {"name": "web2", "address": "10.0.0.8:9", "state": "copying", "copied_bytes": copied,
                    "of_bytes": 200},
            ]);
            statistics
        };
        let every = Duration::from_secs(1);
        let shown = text(Some(&primary(10.0, 0, Some(500))), &primary(12.0, 86, Some(900)), None, every);
        let line = |name: &str| shown.lines().find(|line| line.contains(name)).expect("a line").to_string();
        assert!(line("web1").contains("following") && line("web1").ends_with(" 200"), "{shown}");
        assert!(line("web1").contains(" 1.25 ") && line("web2").contains("copying 43 %"), "{shown}");
        assert!(!text(None, &at(12.0, 300), None, every).contains("mirrors that follow"));
        let mut mirror = at(12.0, 300);
        mirror["mirror"] = json!({"primary": "10.0.0.1:7117", "lag_ms": 3.0, "records": 77, "applied": [5]});
        let shown = text(None, &mirror, None, every);
        assert!(shown.contains("mirror of 10.0.0.1:7117: lag 3 ms, record 5, 77 records applied"), "{shown}");
    }

    /// What a server says of its mirrors may be anything.
    #[test]
    fn a_mirror_without_numbers_has_a_state_all_the_same() {
        for mirror in [json!({}), json!({"state": 7}), json!(null)] {
            assert_eq!(how_far(&mirror), "-");
        }
        assert_eq!(how_far(&json!({"state": "copying", "of_bytes": 0})), "copying");
        let more = json!({"state": "copying", "copied_bytes": 9, "of_bytes": 3});
        assert_eq!(how_far(&more), "copying 100 %");
    }

    #[test]
    fn a_screen_has_no_more_lines_and_columns_than_the_terminal() {
        let long = "x".repeat(100) + "\n" + &"line\n".repeat(30);
        let screen = fitted(&long, (10, 20));
        let lines: Vec<&str> = screen.split("\r\n").collect();
        assert_eq!(lines.len(), 10, "{screen:?}");
        assert!(lines[8].starts_with("... 23 more lines"), "{screen:?}");
        assert!(lines.iter().all(|line| line.chars().filter(|c| *c == 'x').count() <= 20));
        assert_eq!(fitted("a\nb\n", (10, 20)).matches("\r\n").count(), 2);
    }
}
