//! The shape that every benchmark's result has: as JSON, as a table, as a picture.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::chart::{Bar, Chart, span};
use crate::interleave::Comparison;

/// Which side of the wanted figure is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sense {
    /// The ratio should be at least the wanted figure.
    AtLeast,
    /// The ratio should be at most the wanted figure.
    AtMost,
}

/// One measured row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Short name, stable over time.
    pub id: Cow<'static, str>,
    /// What was measured, in words.
    pub name: Cow<'static, str>,
    /// Our figure.
    pub ours: f64,
    /// The figure we are compared with, if there is one.
    pub other: Option<f64>,
    /// Unit of both.
    pub unit: &'static str,
    /// What is compared with `wanted`: a ratio, or our figure itself.
    pub ratio: f64,
    /// The wanted figure, if one was set.
    pub wanted: Option<f64>,
    /// Which side of it is good.
    pub sense: Sense,
    /// Spread, conditions, counts.
    pub note: String,
}

impl Row {
    /// Whether the wanted figure is reached. Without one, yes.
    pub fn holds(&self) -> bool {
        self.wanted.is_none_or(|wanted| match self.sense {
            Sense::AtLeast => self.ratio >= wanted,
            Sense::AtMost => self.ratio <= wanted,
        })
    }

    fn json(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "ours": self.ours,
            "other": self.other,
            "unit": self.unit,
            "ratio": self.ratio,
            "wanted": self.wanted,
            "sense": if self.sense == Sense::AtLeast { "at_least" } else { "at_most" },
            "holds": self.holds(),
            "note": self.note,
        })
    }
}

/// A row of times: ours should be at most so many times the other.
pub fn compared(
    id: impl Into<Cow<'static, str>>,
    name: impl Into<Cow<'static, str>>,
    unit: &'static str,
    wanted: f64,
    comparison: Comparison,
    note: &str,
) -> Row {
    Row {
        id: id.into(),
        name: name.into(),
        ours: comparison.ours_ns,
        other: Some(comparison.other_ns),
        unit,
        ratio: comparison.ratio,
        wanted: Some(wanted),
        sense: Sense::AtMost,
        note: format!("{note}{}", comparison.spread()),
    }
}

/// A row of a figure that is compared with nothing but what is wanted: at most so much.
pub fn told(
    id: impl Into<Cow<'static, str>>,
    name: impl Into<Cow<'static, str>>,
    unit: &'static str,
    figure: f64,
    wanted: Option<f64>,
) -> Row {
    Row {
        id: id.into(),
        name: name.into(),
        ours: figure,
        other: None,
        unit,
        ratio: figure,
        wanted,
        sense: Sense::AtMost,
        note: String::new(),
    }
}

/// Turns a comparison of times into one of rates.
pub fn as_rate(comparison: Comparison) -> Comparison {
    Comparison {
        ratio: 1.0 / comparison.ratio,
        quartiles: (1.0 / comparison.quartiles.1, 1.0 / comparison.quartiles.0),
        ..comparison
    }
}

/// A benchmark's result.
#[derive(Debug)]
pub struct Report {
    /// The benchmark's name.
    pub bench: &'static str,
    /// Number of records.
    pub records: u64,
    /// Its rows.
    pub rows: Vec<Row>,
    /// What it tells beside them.
    pub detail: Option<Detail>,
}

/// A table of a benchmark's own, before the rows.
#[derive(Debug)]
pub struct Detail {
    /// The table's name in JSON.
    pub name: &'static str,
    /// The table in JSON.
    pub json: Value,
    /// What is said before it.
    pub words: String,
    /// Its lines, the first of which is the heading. All are as long.
    pub lines: Vec<Vec<String>>,
}

/// The machine that a benchmark ran on.
struct Machine {
    processor: String,
    cores: usize,
    kernel: String,
    page_bytes: u64,
}

impl Machine {
    fn this() -> Machine {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            processor: model.unwrap_or("unknown").trim().into(),
            cores: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: kernel.trim().into(),
            page_bytes: kelix_fabric::shm::page_bytes(),
        }
    }

    fn json(&self, records: u64) -> Value {
        json!({
            "processor": self.processor,
            "cores": self.cores,
            "kernel": self.kernel,
            "page_bytes": self.page_bytes,
            "records": records,
            "fabric": "shm",
        })
    }

    fn words(&self) -> String {
        let Machine { processor, cores, kernel, page_bytes } = self;
        format!("{processor}, {cores} cores, Linux {kernel}, pages of {page_bytes} bytes")
    }
}

/// A number as tables show it.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Lines with their columns below each other; numbers, of which `to_the_right` tells by their column, end
/// below each other.
fn aligned(lines: &[Vec<String>], to_the_right: impl Fn(usize) -> bool) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut table = String::new();
    for line in lines {
        for (column, cell) in line.iter().enumerate() {
            let width = if column + 1 == columns { 0 } else { widths[column] };
            let _ = if to_the_right(column) {
                write!(table, "{cell:>width$}  ")
            } else {
                write!(table, "{cell:<width$}  ")
            };
        }
        table.truncate(table.trim_end().len());
        table.push('\n');
    }
    table
}

/// Lines as a table in Markdown.
fn marked_down(lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(line.len()));
        }
    }
    text
}

impl Report {
    /// A result that tells nothing beside its rows.
    pub fn new(bench: &'static str, records: u64, rows: Vec<Row>) -> Report {
        Report { bench, records, rows, detail: None }
    }

    /// The result as JSON.
    pub fn json(&self) -> Value {
        let mut json = json!({
            "bench": self.bench,
            "machine": Machine::this().json(self.records),
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        });
        if let Some(Detail { name, json: detail, .. }) = &self.detail {
            json[*name] = detail.clone();
        }
        json
    }

    /// The rows as words, under their headings.
    fn cells(&self) -> Vec<Vec<String>> {
        let header = ["row", "ours", "other", "unit", "ratio", "wanted", "holds", "note"];
        let header = header.map(String::from).to_vec();
        let cells = |row: &Row| {
            let sense = if row.sense == Sense::AtLeast { ">=" } else { "<=" };
            vec![
                row.id.to_string(),
                figure(row.ours),
                row.other.map_or("-".into(), figure),
                row.unit.to_string(),
                figure(row.ratio),
                row.wanted.map_or("reported".into(), |wanted| format!("{sense} {wanted}")),
                match (row.wanted, row.holds()) {
                    (None, _) => "-".into(),
                    (_, true) => "yes".into(),
                    (_, false) => "NO".into(),
                },
                row.note.clone(),
            ]
        };
        std::iter::once(header).chain(self.rows.iter().map(cells)).collect()
    }

    /// The result as a table for people.
    pub fn table(&self) -> String {
        let mut table = format!("{}, {} records; {}\n", self.bench, self.records, Machine::this().words());
        if let Some(Detail { words, lines, .. }) = &self.detail {
            let _ = write!(
                table,
                "{words}\n{}\n",
                aligned(lines, |column| column > 0 && column + 1 < lines[0].len())
            );
        }
        table += &aligned(&self.cells(), |column| (1..=2).contains(&column) || column == 4);
        table + "\n" + &self.verdict() + "\n"
    }

    /// The result as it stands in docs/measurements.md: the machine, the command, the rows, and how many
    /// hold.
    pub fn markdown(&self, command: &str) -> String {
        let mut text = format!("{}; `{command}`.\n\n", Machine::this().words());
        if let Some(Detail { words, lines, .. }) = &self.detail {
            let _ = write!(text, "{words}\n\n{}\n", marked_down(lines));
        }
        text.push_str(&marked_down(&self.cells()));
        let _ = write!(text, "\n{}\n", self.verdict());
        text
    }

    /// How many of the wanted figures hold.
    pub fn verdict(&self) -> String {
        let wanted: Vec<&Row> = self.rows.iter().filter(|row| row.wanted.is_some()).collect();
        let holds = wanted.iter().filter(|row| row.holds()).count();
        match wanted.len() {
            0 => "No figures are wanted.".into(),
            count => format!("{holds} of {count} wanted figures hold."),
        }
    }

    /// The rows as a picture: how far each that has a wanted figure is on the good or the bad side of it;
    /// where no figures are wanted, how many times better ours are. `None`: nothing is compared.
    pub fn svg(&self) -> Option<String> {
        let is_wanted = |row: &Row| row.wanted.is_some_and(|wanted| wanted > 0.0);
        let wanted = self.rows.iter().any(is_wanted);
        let bar = |row: &Row| {
            let compared = if wanted { is_wanted(row) } else { row.sense == Sense::AtLeast };
            let sense = if row.sense == Sense::AtLeast { "at least" } else { "at most" };
            let said = row.wanted.map_or(String::new(), |wanted| format!(" ({sense} {wanted})"));
            let value = row.ratio / row.wanted.unwrap_or(1.0);
            compared.then(|| Bar {
                label: row.id.to_string(),
                small: String::new(),
                value,
                good: if wanted { row.holds() } else { value >= 1.0 },
                said: format!("{}{said}", figure(row.ratio)),
                beside: None,
            })
        };
        let bars: Vec<Bar> = self.rows.iter().filter_map(bar).collect();
        let (what, span) = if wanted {
            ("measured / wanted (1 = as wanted)", (0.1, 10.0))
        } else {
            ("ours against theirs (1 = the same)", span(bars.iter().map(|bar| bar.value)))
        };
        let title = format!("{}: {what}", self.bench);
        (!bars.is_empty()).then(|| Chart { title, lines: Vec::new(), span, bars }.svg())
    }

    /// Draws the picture into a file of this folder.
    pub fn draw(&self, folder: &Path) -> Result<(), String> {
        let svg = self.svg().ok_or_else(|| format!("{} compares nothing that could be drawn", self.bench))?;
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(folder.join(format!("{}.svg", self.bench)), svg))
            .map_err(|error| format!("cannot write into {}: {error}", folder.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_whether_they_hold() {
        let row = |ratio, sense| Row {
            id: "x".into(),
            name: "x".into(),
            ours: 1.0,
            other: None,
            unit: "ns",
            ratio,
            wanted: Some(2.0),
            sense,
            note: String::new(),
        };
        assert!(row(2.0, Sense::AtMost).holds() && !row(2.1, Sense::AtMost).holds());
        assert!(row(2.0, Sense::AtLeast).holds() && !row(1.9, Sense::AtLeast).holds());
        let report = Report::new("t", 1, vec![row(2.1, Sense::AtMost)]);
        assert_eq!(report.json()["rows"][0]["holds"], false);
        let table = report.table();
        assert!(table.contains("NO") && table.contains(&report.verdict()) && !table.contains('{'), "{table}");
        assert!(
            report
                .markdown("t")
                .contains("\n| x | 1.00 | - | ns | 2.10 | <= 2 | NO |  |\n\n0 of 1 wanted figures hold.\n")
        );
    }
}
