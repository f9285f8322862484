//! What the demo prints of its measurements: a table for people, lines for programs.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::measure::READERS;
use super::tally::Tally;
use super::worker::{BATCH, CHANGES_PER_S, SAMPLE_EVERY, Work};

/// One line: what a kind of reader got and what it cost, while the writer went on.
pub(super) struct Line {
    /// `None`: nobody read.
    pub work: Option<Work>,
    /// All readers together.
    pub readers: Tally,
    pub changes_per_s: f64,
    /// Processor time of the whole server process, in percent of one core; `None` where the system does not
    /// tell.
    pub server_cpu_percent: Option<f64>,
}

/// What a line is called in the table.
fn label(work: Option<Work>) -> &'static str {
    match work {
        None => "nobody reads",
        Some(Work::Index) => "key, through the index",
        Some(Work::Pointer) => "key, by cached pointer",
        Some(Work::Link) => "place>region>country",
        Some(Work::Batch) => "64 keys in one call",
        Some(Work::Message) => "key, asking the server",
        Some(Work::Write) => "changes",
    }
}

/// Width of the labels.
const LABEL: usize = 22;

/// A column: its two header lines, its width, and what stands in it.
type Column = (&'static str, &'static str, usize, fn(&Line) -> Option<String>);

const COLUMNS: [Column; 10] = [
    ("reads", "/item", 5, |line| line.per_item(line.readers.cost.reads).map(|number| format!("{number:.2}"))),
    ("bytes", "/item", 5, |line| {
        line.per_item(line.readers.cost.read_bytes).map(|number| format!("{number:.0}"))
    }),
    ("msgs", "/item", 5, |line| {
        line.per_item(line.readers.cost.messages).map(|number| format!("{number:.2}"))
    }),
    ("p50", "us", 6, |line| line.quantile(0.5)),
    ("p99", "us", 6, |line| line.quantile(0.99)),
    ("items", "/s", 9, |line| {
        (line.readers.items > 0).then(|| thousands((line.readers.items_per_s / 1000.0).round() as u64 * 1000))
    }),
    ("read", "again", 5, |line| (line.readers.items > 0).then(|| line.readers.cost.retries.to_string())),
    ("gave", "up", 4, |line| (line.readers.items > 0).then(|| line.readers.cost.fallbacks.to_string())),
    ("changes", "/s", 7, |line| Some(thousands(line.changes_per_s.round() as u64))),
    ("server", "CPU %", 6, |line| line.server_cpu_percent.map(|percent| format!("{percent:.1}"))),
];

impl Line {
    fn per_item(&self, number: u64) -> Option<f64> {
        (self.readers.items > 0).then(|| number as f64 / self.readers.items as f64)
    }

    fn quantile(&self, share: f64) -> Option<String> {
        self.readers.latencies.quantile_ns(share).map(microseconds)
    }

    /// For programs. Numbers about reads are null where nobody read.
    pub fn json(&self) -> Value {
        let cost = self.readers.cost;
        json!({
            "line": self.work.map_or("idle", Work::name),
            "items": self.readers.items,
            "items_per_s": self.readers.items_per_s,
            "reads_per_item": self.per_item(cost.reads),
            "bytes_per_item": self.per_item(cost.read_bytes),
            "messages_per_item": self.per_item(cost.messages),
            "p50_ns": self.readers.latencies.quantile_ns(0.5),
            "p99_ns": self.readers.latencies.quantile_ns(0.99),
            "retries": cost.retries,
            "fallbacks": cost.fallbacks,
            "server_cpu_percent": self.server_cpu_percent,
            "changes_per_s": self.changes_per_s,
        })
    }

    /// As a line of the table.
    pub fn text(&self) -> String {
        row(label(self.work), |(_, _, _, cell)| cell(self).unwrap_or_else(|| "-".into()))
    }
}

fn row(label: &str, cell: impl Fn(Column) -> String) -> String {
    let mut text = format!("{label:<LABEL$}");
    for column in COLUMNS {
        text.push_str(&format!("  {:>width$}", cell(column), width = column.2));
    }
    text
}

/// What stands above the lines.
pub(super) fn header(time: Duration, cores: usize) -> String {
    format!(
        "Each line: {READERS} processes read for {} ms while another changes up to {} places a second, on {cores} core{}.\n\n{}\n{}",
        time.as_millis(),
        thousands(CHANGES_PER_S),
        if cores == 1 { "" } else { "s" },
        row("", |(name, _, _, _)| name.into()),
        row("", |(_, unit, _, _)| unit.into()),
    )
}

/// What stands below them.
pub(super) fn notes(clock_ns: u64) -> String {
    format!(
        "reads, bytes  from the server's memory; msgs (messages): to the server\n\
         p50, p99      of one call ({BATCH} keys in that line), the clock's {clock_ns} ns included; one in {SAMPLE_EVERY} \
         is timed\n\
         read again    because the place had been changed since; gave up: then asked the server\n\
         changes       that the writer got done beside such readers; server CPU: of its whole process, % of a core"
    )
}

/// A path as a shell takes it.
pub(super) fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./+@%:,".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A time in microseconds, to three digits or whole.
fn microseconds(ns: u64) -> String {
    let digits = match ns {
        0..10_000 => 2,
        10_000..100_000 => 1,
        _ => 0,
    };
    format!("{:.digits$}", ns as f64 / 1000.0)
}

/// A number with a comma between each three digits.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelix::Cost;

    fn line() -> Line {
        let mut readers = Tally { items: 1000, items_per_s: 2_345_678.0, ..Tally::default() };
        readers.cost = Cost { reads: 2004, read_bytes: 464_000, messages: 3, retries: 4, fallbacks: 3 };
        readers.latencies.record(Duration::from_nanos(430));
        Line { work: Some(Work::Index), readers, changes_per_s: 999.0, server_cpu_percent: Some(1.84) }
    }

    #[test]
    fn a_line_of_figures() {
        let text = line().text();
        let cells: Vec<&str> = text.split_whitespace().skip(4).collect();
        assert_eq!(
            cells,
            ["2.00", "464", "0.00", "0.43", "0.43", "2,346,000", "4", "3", "999", "1.8"],
            "{text}"
        );
        for header in header(Duration::from_millis(800), 2).lines().skip(2) {
            assert_eq!(header.len(), text.len(), "columns stand below their headers");
        }
        for work in [None, Some(Work::Pointer), Some(Work::Link), Some(Work::Batch), Some(Work::Message)] {
            assert!(label(work).len() <= LABEL, "{work:?}");
        }
    }

    #[test]
    fn where_nobody_reads_there_are_no_figures_of_reading() {
        let idle = Line { work: None, readers: Tally::default(), ..line() };
        assert_eq!(idle.text().matches(" -").count(), 8, "{}", idle.text());
        assert_eq!(idle.json()["reads_per_item"], Value::Null);
        assert_eq!(idle.json()["server_cpu_percent"], 1.84);
    }

    #[test]
    fn paths_for_the_shell() {
        assert_eq!(shell_word(Path::new("./target/release/kelix")), "./target/release/kelix");
        assert_eq!(shell_word(Path::new("/tmp/it's mine")), r"'/tmp/it'\''s mine'");
        assert_eq!(shell_word(Path::new("")), "''");
    }

    #[test]
    fn times_are_as_long_as_they_tell_something() {
        let times = [17, 812, 20_224, 565_250, 4_915_200].map(microseconds);
        assert_eq!(times, ["0.02", "0.81", "20.2", "565", "4915"]);
    }

    #[test]
    fn thousands_are_parted() {
        let numbers = [0, 999, 1000, 144_563, 1_234_567].map(thousands);
        assert_eq!(numbers, ["0", "999", "1,000", "144,563", "1,234,567"]);
    }
}
