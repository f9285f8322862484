//! Horizontal bars on a logarithmic scale, as SVG: what all figures of docs/measurements.md are drawn with.

use std::fmt::Write;

/// Width of the plot, and what stands above its first bar and below its last.
const WIDTH: f64 = 420.0;
const TITLE: f64 = 20.0;
const LINE: f64 = 16.0;
const BELOW: f64 = 34.0;
/// Width of a letter of 12 points, in a wide font, since who draws it chooses the font.
const LETTER: f64 = 7.2;
const MARGIN: f64 = 10.0;

const GOOD: &str = "#2a7f62";
const BAD: &str = "#b3432b";
const BESIDE: &str = "#9a9a9a";
const GRID: &str = "#dddddd";

/// A figure. All values are ratios, drawn from 1 to the left or to the right.
pub(crate) struct Chart {
    /// The first line, in larger letters, and those below it.
    pub title: String,
    pub lines: Vec<String>,
    /// The scale's ends. What is outside is drawn at an end.
    pub span: (f64, f64),
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

/// Another's value, and the range that it is from, as a line. Where only a range is known the value is 1,
/// which draws nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Beside {
    pub value: f64,
    pub from: f64,
    pub to: f64,
}

/// Longest scale, and what may stand on it and be its ends.
const LONGEST: (i32, i32) = (-3, 4);
const MARKS: [u32; 3] = [1, 2, 5];

/// All marks from a power of ten to another.
fn marks((low, high): (i32, i32)) -> impl Iterator<Item = f64> {
    let mark = |power: i32, mark: u32| match power {
        0.. => f64::from(mark * 10u32.pow(power.unsigned_abs())),
        // Divided, since 0.1 times something is not what is written.
        _ => f64::from(mark) / f64::from(10u32.pow(power.unsigned_abs())),
    };
    (low..=high).flat_map(move |power| MARKS.map(|first| mark(power, first)))
}

/// The marks around all these values, and around 1 with some room.
pub(crate) fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values = values.filter(|value| *value > 0.0 && value.is_finite());
    let (least, most) =
        values.fold((0.9f64, 1.1f64), |(least, most), value| (least.min(value), most.max(value)));
    let from = marks(LONGEST).filter(|mark| *mark <= least).last();
    let to = marks(LONGEST).find(|mark| *mark >= most);
    (from.unwrap_or(0.001), to.unwrap_or(50_000.0))
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
             <text x=\"{MARGIN}\" y=\"{TITLE}\" font-size=\"14\">{}</text>\n",
            self.width().ceil(),
            bottom + BELOW,
            escaped(&self.title)
        );
        for (index, line) in self.lines.iter().enumerate() {
            let y = TITLE + LINE * (index + 1) as f64;
            let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"#555\">{}</text>", escaped(line));
        }
        self.grid(&mut svg, top, bottom);
        for (index, bar) in self.bars.iter().enumerate() {
            self.bar(&mut svg, bar, top + self.step() * index as f64);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Room for labels.
    fn left(&self) -> f64 {
        let width = |bar: &Bar| bar.label.chars().count().max(bar.small.chars().count());
        self.bars.iter().map(width).max().unwrap_or(0) as f64 * LETTER + 2.0 * MARGIN
    }

    /// Width of the whole: what is said beside each bar, and above all, has room.
    fn width(&self) -> f64 {
        let said = self.bars.iter().map(|bar| bar.said.chars().count()).max().unwrap_or(0) as f64;
        let lines = self.lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) as f64;
        // The title's letters are larger.
        let above = lines.max(self.title.chars().count() as f64 * 14.0 / 12.0);
        (self.left() + WIDTH + said * LETTER).max(above * LETTER) + 2.0 * MARGIN
    }

    fn step(&self) -> f64 {
        if self.bars.iter().any(|bar| bar.beside.is_some() || !bar.small.is_empty()) { 36.0 } else { 30.0 }
    }

    /// Where a value stands. What has no logarithm stands at 1.
    fn x(&self, value: f64) -> f64 {
        let (low, high) = (self.span.0.log10(), self.span.1.log10());
        let power = value.log10();
        let power = if power.is_nan() { 0.0 } else { power.clamp(low, high) };
        self.left() + WIDTH * (power - low) / (high - low)
    }

    fn grid(&self, svg: &mut String, top: f64, bottom: f64) {
        let (low, high) = self.span;
        let shown = |mark: &f64| {
            // Numbers of a long scale would touch each other.
            let room = high / low <= 200.0 || mark.log10().fract() == 0.0;
            (low..=high).contains(mark) && room
        };
        for mark in marks(LONGEST).filter(shown) {
            let x = self.x(mark);
            let colour = if mark == 1.0 { "#555555" } else { GRID };
            let _ = write!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"{colour}\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{mark}</text>\n",
                top - 6.0,
                bottom + 16.0,
            );
        }
    }

    fn bar(&self, svg: &mut String, bar: &Bar, y: f64) {
        let colour = if bar.good { GOOD } else { BAD };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            self.left() - 8.0,
            y + 12.0,
            escaped(&bar.label)
        );
        if !bar.small.is_empty() {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"10\" fill=\"#777\">{}</text>",
                self.left() - 8.0,
                y + 24.0,
                escaped(&bar.small)
            );
        }
        self.rectangle(svg, bar.value, y, 16.0, colour);
        if let Some(beside) = bar.beside {
            self.beside(svg, beside, y + 18.0);
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            self.left() + WIDTH + MARGIN,
            y + 13.0,
            escaped(&bar.said)
        );
    }

    /// A bar from 1 to a value.
    fn rectangle(&self, svg: &mut String, value: f64, y: f64, height: f64, colour: &str) {
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
        if beside.value != 1.0 {
            self.rectangle(svg, beside.value, y, 8.0, BESIDE);
        }
        if beside.from < beside.to {
            let (from, to, middle) = (self.x(beside.from), self.x(beside.to), y + 4.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{from:.1} {y:.1}v8M{to:.1} {y:.1}v8M{from:.1} {middle:.1}H{to:.1}\" stroke=\"#555\" fill=\"none\"/>"
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
        Chart { title: "t".into(), lines: vec!["l".into()], span: (0.1, 10.0), bars: vec![bar] }
    }

    #[test]
    fn text_is_escaped_and_no_value_leaves_the_plot() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9, 3.0] {
            let svg = chart(value).svg();
            assert!(
                svg.contains("a &lt; b &amp; c") && !svg.contains("NaN") && !svg.contains("inf"),
                "{svg}"
            );
            let (x, left) = (chart(value).x(value), chart(value).left());
            assert!((left..=left + WIDTH).contains(&x), "{value} stands at {x}");
        }
    }

    #[test]
    fn the_scale_holds_all_values_and_one() {
        assert_eq!(span([3.0, 40.0].into_iter()), (0.5, 50.0));
        assert_eq!(span([0.5, 0.3].into_iter()), (0.2, 2.0));
        assert_eq!(span([0.0, f64::INFINITY, f64::NAN].into_iter()), (0.5, 2.0));
        assert_eq!(span([1e-9, 1e9].into_iter()), (0.001, 50_000.0));
        let written: Vec<String> = marks((-1, 0)).map(|mark| mark.to_string()).collect();
        assert_eq!(written, ["0.1", "0.2", "0.5", "1", "2", "5"]);
    }
}
