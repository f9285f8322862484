//! The shape that every benchmark's result has: as JSON, as a table, as a picture.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

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
pub(crate) fn compared(
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

/// Turns a comparison of times into one of rates.
pub(crate) fn as_rate(comparison: Comparison) -> Comparison {
    Comparison {
        ratio: 1.0 / comparison.ratio,
        quartiles: (1.0 / comparison.quartiles.1, 1.0 / comparison.quartiles.0),
        ..comparison
    }
}

/// A benchmark's result.
pub struct Report {
    /// The benchmark's name.
    pub bench: &'static str,
    /// Number of records.
    pub records: u64,
    /// Its rows.
    pub rows: Vec<Row>,
}

fn machine(records: u64) -> Value {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "processor": model.unwrap_or("unknown").trim(),
        "cores": cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        "kernel": kernel.trim(),
        "page_bytes": kelix_fabric::shm::page_bytes(),
        "records": records,
        "fabric": "shm",
    })
}

fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

impl Report {
    /// The result as JSON.
    pub fn json(&self) -> Value {
        json!({
            "bench": self.bench,
            "machine": machine(self.records),
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        })
    }

    /// The result as a table for people.
    pub fn table(&self) -> String {
        let header = ["row", "ours", "other", "unit", "ratio", "wanted", "holds", "note"].map(String::from);
        let mut lines = vec![header];
        for row in &self.rows {
            let sense = if row.sense == Sense::AtLeast { ">=" } else { "<=" };
            lines.push([
                row.id.to_string(),
                figure(row.ours),
                row.other.map_or("-".into(), figure),
                row.unit.to_string(),
                figure(row.ratio),
                row.wanted.map_or("reported".into(), |wanted| format!("{sense} {wanted}")),
                if row.holds() { "yes".into() } else { "NO".into() },
                row.note.clone(),
            ]);
        }
        let mut table = format!("{} of {}\n", self.bench, machine(self.records));
        let widths: Vec<usize> =
            (0..8).map(|column| lines.iter().map(|line| line[column].len()).max().unwrap_or(0)).collect();
        for line in lines {
            for (column, cell) in line.iter().enumerate() {
                let width = if column == 7 { 0 } else { widths[column] };
                let _ = if (1..=2).contains(&column) || column == 4 {
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

    /// Draws the rows that have a wanted figure: how far each is on the good or the bad side of it.
    pub fn draw(&self, folder: &Path) -> Result<(), String> {
        let rows: Vec<&Row> =
            self.rows.iter().filter(|row| row.wanted.is_some_and(|wanted| wanted > 0.0)).collect();
        let (left, width, step) = (150.0, 420.0, 30.0);
        let height = 70.0 + step * rows.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"10\" y=\"20\" font-size=\"14\">kelix bench {}: measured / wanted (1 = as wanted)</text>\n",
            left + width + 190.0,
            self.bench
        );
        // A logarithmic scale from a tenth to ten times the wanted figure.
        let x = |value: f64| left + width * (value.clamp(0.1, 10.0).log10() + 1.0) / 2.0;
        for (index, row) in rows.iter().enumerate() {
            let wanted = row.wanted.expect("filtered");
            let y = 45.0 + step * index as f64;
            let (from, to) = (x(1.0), x(row.ratio / wanted));
            let colour = if row.holds() { "#2a7f62" } else { "#b3432b" };
            let sense = if row.sense == Sense::AtLeast { "at least" } else { "at most" };
            let _ = write!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
                 <rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"16\" fill=\"{colour}\"/>\n\
                 <text x=\"{}\" y=\"{}\">{} ({sense} {wanted})</text>\n",
                left - 8.0,
                y + 13.0,
                row.id,
                from.min(to),
                y,
                (to - from).abs().max(1.0),
                left + width + 8.0,
                y + 13.0,
                figure(row.ratio)
            );
        }
        let bottom = height - 20.0;
        for mark in [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0] {
            let _ = write!(
                svg,
                "<line x1=\"{0}\" y1=\"38\" x2=\"{0}\" y2=\"{bottom}\" stroke=\"#ccc\"/>\n\
                 <text x=\"{0}\" y=\"{1}\" text-anchor=\"middle\" fill=\"#555\">{mark}</text>\n",
                x(mark),
                bottom + 14.0
            );
        }
        svg.push_str("</svg>\n");
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
        let report = Report { bench: "t", records: 1, rows: vec![row(2.1, Sense::AtMost)] };
        assert_eq!(report.json()["rows"][0]["holds"], false);
        assert!(report.table().contains("NO"));
    }
}
