//! Horizontal bars on a logarithmic scale, as SVG: what all figures of docs/measurements.md are drawn with.

use std::fmt::Write;

/// Width of the plot, and what stands above its first bar and below its last.
const WIDTH: f64 = 420.0;
const TITLE: f64 = 20.0;
const LINE: f64 = 16.0;
const BELOW: f64 = 34.0;

const GOOD: &str = "#2a7f62";
const BAD: &str = "#b3432b";
const BESIDE: &str = "#9a9a9a";
const GRID: &str = "#dddddd";

/// A figure. All values are ratios, drawn from 1 to the left or to the right.
pub(crate) struct Chart {
    /// The first line, in larger letters, and those below it.
    pub title: String,
    pub lines: Vec<String>,
    /// Room for labels, and for what is said beside each bar.
    pub left: f64,
    pub right: f64,
    /// The scale's ends as powers of ten. What is outside is drawn at an end.
    pub decades: (i32, i32),
    pub bars: Vec<Bar>,
}

/// A measured value, and what may stand beside it.
pub(crate) struct Bar {
    /// What it is, and in smaller letters below it.
    pub label: String,
    pub small: String,
    pub value: f64,
    /// Whether it is as it should be, which decides its colour.
    pub good: bool,
    /// What is written to the right of it.
    pub said: String,
    /// The value that it is compared with, as a thinner bar.
    pub beside: Option<Beside>,
}

/// Another's value, and the range that it is from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Beside {
    pub value: f64,
    pub from: f64,
    pub to: f64,
}

/// The decades that hold all these values, and 1.
pub(crate) fn decades(values: impl Iterator<Item = f64>) -> (i32, i32) {
    values.filter(|value| *value > 0.0 && value.is_finite()).fold((0, 1), |(low, high), value| {
        let power = value.log10();
        // Nothing is worth a scale that is longer than this.
        (low.min(power.floor() as i32).max(-3), high.max(power.ceil() as i32).min(4))
    })
}

/// Text as it may stand in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Chart {
    /// The whole figure.
    pub fn svg(&self) -> String {
        let top = TITLE + 12.0 + LINE * self.lines.len() as f64;
        let bottom = top + self.step() * self.bars.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"10\" y=\"{TITLE}\" font-size=\"14\">{}</text>\n",
            self.left + WIDTH + self.right,
            bottom + BELOW,
            escaped(&self.title)
        );
        for (index, line) in self.lines.iter().enumerate() {
            let y = TITLE + LINE * (index + 1) as f64;
            let _ = writeln!(svg, "<text x=\"10\" y=\"{y}\" fill=\"#555\">{}</text>", escaped(line));
        }
        self.grid(&mut svg, top, bottom);
        for (index, bar) in self.bars.iter().enumerate() {
            self.bar(&mut svg, bar, top + self.step() * index as f64);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn step(&self) -> f64 {
        if self.bars.iter().any(|bar| bar.beside.is_some() || !bar.small.is_empty()) { 36.0 } else { 30.0 }
    }

    /// Where a value stands. What is no number stands at 1.
    fn x(&self, value: f64) -> f64 {
        let (low, high) = (f64::from(self.decades.0), f64::from(self.decades.1));
        let power = if value.is_nan() { 0.0 } else { value.log10().clamp(low, high) };
        self.left + WIDTH * (power - low) / (high - low)
    }

    fn grid(&self, svg: &mut String, top: f64, bottom: f64) {
        let (low, high) = self.decades;
        let between: &[f64] = if high - low <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let marks = (low..=high).flat_map(|decade| between.iter().map(move |mark| mark * 10f64.powi(decade)));
        for mark in marks.filter(|mark| *mark <= 10f64.powi(high)) {
            let x = self.x(mark);
            let colour = if mark == 1.0 { "#555555" } else { GRID };
            let _ = write!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"{colour}\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n",
                top - 6.0,
                bottom + 16.0,
                // Powers of ten are not exact.
                (mark * 1000.0).round() / 1000.0
            );
        }
    }

    fn bar(&self, svg: &mut String, bar: &Bar, y: f64) {
        let colour = if bar.good { GOOD } else { BAD };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            self.left - 8.0,
            y + 12.0,
            escaped(&bar.label)
        );
        if !bar.small.is_empty() {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"10\" fill=\"#777\">{}</text>",
                self.left - 8.0,
                y + 24.0,
                escaped(&bar.small)
            );
        }
        self.from_one(svg, bar.value, y, 16.0, colour);
        if let Some(beside) = bar.beside {
            self.beside(svg, beside, y + 18.0);
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            self.left + WIDTH + 10.0,
            y + 13.0,
            escaped(&bar.said)
        );
    }

    /// A bar from 1 to a value.
    fn from_one(&self, svg: &mut String, value: f64, y: f64, height: f64, colour: &str) {
        let (from, to) = (self.x(1.0), self.x(value));
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height}\" fill=\"{colour}\"/>",
            from.min(to),
            (to - from).abs().max(1.0)
        );
    }

    /// Another's value as a thin bar, and its range as a line with ends.
    fn beside(&self, svg: &mut String, beside: Beside, y: f64) {
        self.from_one(svg, beside.value, y, 8.0, BESIDE);
        if beside.from < beside.to {
            let (from, to, middle) = (self.x(beside.from), self.x(beside.to), y + 4.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{from:.1} {y:.1}v8M{to:.1} {y:.1}v8M{from:.1} {middle:.1}H{to:.1}\" stroke=\"#333\" fill=\"none\"/>"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(value: f64) -> Chart {
        let bar = Bar {
            label: "a < b & c".into(),
            small: "id".into(),
            value,
            good: true,
            said: "x".into(),
            beside: Some(Beside { value: 2.0, from: 1.5, to: 3.0 }),
        };
        Chart {
            title: "t".into(),
            lines: vec!["l".into()],
            left: 100.0,
            right: 100.0,
            decades: (-1, 1),
            bars: vec![bar],
        }
    }

    #[test]
    fn text_is_escaped_and_no_value_leaves_the_plot() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9, 3.0] {
            let svg = chart(value).svg();
            assert!(
                svg.contains("a &lt; b &amp; c") && !svg.contains("NaN") && !svg.contains("inf"),
                "{svg}"
            );
            let x = chart(value).x(value);
            assert!((100.0..=100.0 + WIDTH).contains(&x), "{value} stands at {x}");
        }
    }

    #[test]
    fn the_scale_holds_all_values_and_one() {
        assert_eq!(decades([3.0, 40.0].into_iter()), (0, 2));
        assert_eq!(decades([0.5].into_iter()), (-1, 1));
        assert_eq!(decades([0.0, f64::INFINITY, f64::NAN].into_iter()), (0, 1));
        assert_eq!(decades([1e-9, 1e9].into_iter()), (-3, 4));
    }
}
