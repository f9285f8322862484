//! The papers' own figures beside ours: what each of their bars is here, and the ratio that the paper tells
//! for it.
//!
//! They measured RDMA between machines, we one machine: that a thing is faster or slower compares, by how
//! much does not.

mod figures;

use std::fmt::Write;

use crate::chart::{self, Beside, Chart};
use crate::report::{self, Report, Row};

pub(crate) use figures::FIGURES;

/// What a paper says of one comparison. All are ratios: so many times the rate, or so many times as fast.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Theirs {
    /// This, for the same mix of operations.
    Times(f64),
    /// This order of magnitude.
    About(f64),
    /// This at best.
    UpTo(f64),
    /// The first for the same mix as ours, and from the second to the third for all mixes.
    Among(f64, f64, f64),
    /// More than 1, and no number.
    More,
    /// Less than 1, and no number.
    Less,
}

/// A figure of a paper.
pub(crate) struct Figure {
    /// Name of its file, without the ending, and of its part of docs/measurements.md.
    pub name: &'static str,
    /// The benchmark that has its rows.
    pub bench: &'static str,
    /// What it shows, and where it is from.
    pub title: &'static str,
    pub source: &'static str,
    pub bars: &'static [Bar],
}

/// A comparison that a paper and a row of ours share.
pub(crate) struct Bar {
    /// Our row.
    pub row: &'static str,
    /// Where it is not the row's ratio: our figure there by our figure in this row.
    pub over: Option<&'static str>,
    /// What is compared, in words.
    pub label: &'static str,
    pub theirs: Theirs,
    /// What the paper says, and what differs.
    pub words: &'static str,
}

/// A bar whose row was measured.
struct Measured {
    bar: &'static Bar,
    ours: f64,
    /// Whether it reaches what was wanted of the row, where the row's own ratio is shown.
    holds: bool,
}

impl Theirs {
    /// Whether the paper finds more than 1.
    fn more(self) -> bool {
        match self {
            Theirs::Times(times) | Theirs::About(times) | Theirs::UpTo(times) | Theirs::Among(times, ..) => {
                times >= 1.0
            }
            Theirs::More => true,
            Theirs::Less => false,
        }
    }

    /// As the paper tells it, not rounded.
    fn words(self) -> String {
        match self {
            Theirs::Times(times) => times.to_string(),
            Theirs::About(times) => format!("about {times}"),
            Theirs::UpTo(times) => format!("up to {times}"),
            Theirs::Among(times, from, to) => format!("{times}; {from} to {to}"),
            Theirs::More => "more".into(),
            Theirs::Less => "less".into(),
        }
    }

    fn beside(self) -> Option<Beside> {
        match self {
            Theirs::Times(value) | Theirs::About(value) => Some(Beside { value, from: value, to: value }),
            Theirs::UpTo(to) => Some(Beside { value: 1.0, from: 1.0, to }),
            Theirs::Among(value, from, to) => Some(Beside { value, from, to }),
            Theirs::More | Theirs::Less => None,
        }
    }
}

impl Measured {
    /// Whether we find what the paper finds, be it less or more of it.
    fn same_direction(&self) -> bool {
        (self.ours >= 1.0) == self.bar.theirs.more()
    }

    /// Which of our rows it is.
    fn rows(&self) -> String {
        match self.bar.over {
            None => self.bar.row.into(),
            Some(base) => format!("{} / {base}", self.bar.row),
        }
    }

    fn line(&self) -> String {
        format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            self.rows(),
            self.bar.label,
            report::figure(self.ours),
            self.bar.theirs.words(),
            if self.same_direction() { "same" } else { "OTHER" },
            if self.holds { "yes" } else { "NO" },
            self.bar.words
        )
    }

    fn drawn(&self) -> chart::Bar {
        chart::Bar {
            label: self.bar.label.into(),
            small: self.rows(),
            value: self.ours,
            good: self.holds && self.same_direction(),
            said: format!("{} (paper: {})", report::figure(self.ours), self.bar.theirs.words()),
            beside: self.bar.theirs.beside(),
        }
    }
}

impl Figure {
    /// Those of its bars whose rows this run has.
    fn measured(&self, report: &Report) -> Vec<Measured> {
        let find = |id: &str| report.rows.iter().find(|row| row.id == id);
        let measured = |bar: &'static Bar| {
            let row: &Row = find(bar.row)?;
            let (ours, holds) = match bar.over {
                None => (row.ratio, row.holds()),
                Some(base) => (row.ours / find(base)?.ours, true),
            };
            Some(Measured { bar, ours, holds })
        };
        self.bars.iter().filter_map(measured).collect()
    }

    /// What stands about it in docs/measurements.md.
    pub fn markdown(&self, report: &Report) -> String {
        let bars = self.measured(report);
        if bars.is_empty() {
            return format!("The benchmark `{}` has none of its rows yet.\n", self.bench);
        }
        let mut text = format!(
            "![{}](figures/{}.svg)\n\n\
             | row | compared | ours | paper | direction | holds | in the paper |\n|---|---|---|---|---|---|---|\n",
            self.title, self.name
        );
        bars.iter().for_each(|bar| text.push_str(&bar.line()));
        let same = bars.iter().filter(|bar| bar.same_direction()).count();
        let _ =
            write!(text, "\n{same} of {} point the same way as the paper's ({}).\n", bars.len(), self.source);
        text
    }

    /// Its picture, if the run has any of its rows.
    pub fn svg(&self, report: &Report) -> Option<String> {
        let bars: Vec<chart::Bar> = self.measured(report).iter().map(Measured::drawn).collect();
        let theirs = bars
            .iter()
            .filter_map(|bar| bar.beside)
            .flat_map(|beside| [beside.value, beside.from, beside.to]);
        let chart = Chart {
            title: format!("{} ({})", self.title, self.source),
            lines: vec![
                "Green: ours, as wanted and in the paper's direction. Red: ours, not so. Grey: the paper's, where it tells a number; as a line: its range."
                    .into(),
                "The paper measured RDMA between machines, this is one machine: directions compare, sizes do not.".into(),
            ],
            span: chart::span(bars.iter().map(|bar| bar.value).chain(theirs)),
            bars,
        };
        (!chart.bars.is_empty()).then(|| chart.svg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Sense;

    fn row(id: &'static str, ours: f64, ratio: f64, wanted: f64) -> Row {
        Row {
            id: id.into(),
            name: "x".into(),
            ours,
            other: Some(1.0),
            unit: "ns",
            ratio,
            wanted: Some(wanted),
            sense: Sense::AtLeast,
            note: String::new(),
        }
    }

    fn figure(name: &str) -> &'static Figure {
        FIGURES.iter().find(|figure| figure.name == name).expect("a figure")
    }

    #[test]
    fn a_loss_is_shown_as_one() {
        let rows = vec![row("single_thread", 1.0, 0.9, 1.0), row("ring_messages", 1.0, 5.0, 6.0)];
        let report = Report::new("ablation", 1, rows);
        let text = figure("hydradb-10").markdown(&report);
        assert!(text.contains(
            "| single_thread | one thread / a hand-off | 0.90 | 1.869; 1.274 to 1.948 | OTHER | NO |"
        ));
        assert!(
            text.contains("| ring_messages | rings / a socket | 5.00 | 1.747; 1.747 to 2.626 | same | NO |"),
            "{text}"
        );
        assert!(text.contains("1 of 2 point the same way"));
        let svg = figure("hydradb-10").svg(&report).expect("two bars");
        assert!(!svg.contains("#2a7f62"), "both are losses: {svg}");
    }

    #[test]
    fn hits_are_compared_with_those_of_another_mix() {
        let rows = vec![row("hits_100_zipf", 800.0, 1.1, 1.0), row("hits_50_zipf", 200.0, 9.0, 1.0)];
        let report = Report::new("ablation", 1, rows);
        let text = figure("hydradb-11").markdown(&report);
        assert!(
            text.contains(
                "| hits_50_zipf / hits_100_zipf | Zipf, half gets / gets only | 0.25 | 0.49 | same | yes |"
            ),
            "{text}"
        );
        assert!(text.contains("1 of 1 point"), "{text}");
    }

    #[test]
    fn a_figure_without_rows_is_not_drawn() {
        let report = Report::new("links", 1, Vec::new());
        assert!(figure("keli-3").svg(&report).is_none());
        assert!(figure("keli-3").markdown(&report).contains("none of its rows yet"));
    }
}
