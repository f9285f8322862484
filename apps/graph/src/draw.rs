//! Pictures: how many users are how far, and a part of what is around one.

use std::collections::HashMap;
use std::f64::consts::TAU;
use std::fmt::Write;

/// Width of a picture, and what stands around what is drawn.
const WIDTH: f64 = 900.0;
const MARGIN: f64 = 40.0;
/// Height of a bar, and from one to the next.
const BAR: f64 = 22.0;
const BAR_STEP: f64 = 30.0;
/// Rings around a user, and how many users are drawn on each for one of the ring within.
const SAMPLED: [usize; 3] = [12, 4, 2];
/// Distance of rings.
const RING: f64 = 135.0;
/// Colours by ring.
const COLOURS: [&str; 4] = ["#b5352c", "#1f6f8b", "#3f9c6b", "#c79a2e"];

/// Begins a picture.
fn begin(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fcfcfa\"/>\n\
         <text x=\"{MARGIN}\" y=\"30\" font-size=\"16\" fill=\"#222\">{}</text>\n",
        escaped(title)
    )
}

/// Text as it may stand in a picture.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// How many users are how far from one: a bar each.
pub fn draw_distances(from: u32, source: &str, levels: &[u64]) -> String {
    let height = 60.0 + BAR_STEP * levels.len() as f64 + MARGIN / 2.0;
    let mut svg = begin(height, &format!("How many links away from user {from}: {source}"));
    let most = levels.iter().copied().max().unwrap_or(1) as f64;
    for (distance, users) in levels.iter().enumerate() {
        let y = 50.0 + BAR_STEP * distance as f64;
        let width = (*users as f64 / most * (WIDTH - 2.0 * MARGIN - 140.0)).max(2.0);
        let colour = COLOURS[distance % COLOURS.len()];
        let (text, x) = (y + BAR * 0.7, MARGIN + 30.0);
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{text}\" fill=\"#222\">{distance}</text>\
             <rect x=\"{x}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"3\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{text}\" fill=\"#222\">{users}</text>",
            x + width + 8.0
        );
    }
    svg + "</svg>\n"
}

/// A part of what is around a user: of each one some of those who were first found through it.
pub struct Neighbourhood {
    from: u32,
    rings: HashMap<u32, usize>,
    follows: HashMap<u32, Vec<u32>>,
    names: HashMap<u32, String>,
}

impl Neighbourhood {
    /// Around this one.
    pub fn of(from: u32) -> Neighbourhood {
        let rings = HashMap::from([(from, 0)]);
        Neighbourhood { from, rings, follows: HashMap::new(), names: HashMap::new() }
    }

    /// Notes how somebody is called.
    pub fn name(&mut self, user: u32, name: &[u8]) {
        if self.names.len() < 10_000 {
            self.names.insert(user, String::from_utf8_lossy(name).into_owned());
        }
    }

    /// Adds somebody who was found through another, if there is room.
    pub fn add(&mut self, who: u32, whom: u32) {
        let Some(ring) = self.rings.get(&who).copied().filter(|ring| *ring < SAMPLED.len()) else { return };
        let follows = self.follows.entry(who).or_default();
        if follows.len() < SAMPLED[ring] {
            follows.push(whom);
            self.rings.insert(whom, ring + 1);
        }
    }

    /// The picture: the user in the middle, the others on rings, each near the one that led there.
    pub fn svg(&self, source: &str) -> String {
        let radius = RING * SAMPLED.len() as f64;
        let height = 2.0 * radius + 130.0;
        let centre = (WIDTH / 2.0, radius + 85.0);
        let title = format!("Some of those around user {}: {source}", self.from);
        let (mut lines, mut dots) = (String::new(), String::new());
        self.place(self.from, centre, 0.0..TAU, centre, &mut lines, &mut dots);
        begin(height, &title) + &lines + &dots + "</svg>\n"
    }

    /// Draws a user at a place, and those found through it within a part of the circle.
    fn place(
        &self,
        user: u32,
        at: (f64, f64),
        part: std::ops::Range<f64>,
        centre: (f64, f64),
        lines: &mut String,
        dots: &mut String,
    ) {
        let ring = self.rings[&user];
        let follows = self.follows.get(&user).map_or(&[][..], Vec::as_slice);
        let step = (part.end - part.start) / follows.len().max(1) as f64;
        for (index, whom) in follows.iter().enumerate() {
            let start = part.start + step * index as f64;
            let angle = start + step / 2.0;
            let away = RING * (ring + 1) as f64;
            let to = (centre.0 + away * angle.cos(), centre.1 + away * angle.sin());
            let _ = writeln!(
                lines,
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#b9c0c4\"/>",
                at.0, at.1, to.0, to.1
            );
            self.place(*whom, to, start..start + step, centre, lines, dots);
        }
        let (size, colour) = ([14, 8, 5, 3][ring], COLOURS[ring]);
        let name = self.names.get(&user).map_or("", String::as_str);
        let label = if name.is_empty() { user.to_string() } else { escaped(name) };
        let _ = writeln!(
            dots,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{size}\" fill=\"{colour}\"><title>{user} {}</title></circle>",
            at.0,
            at.1,
            escaped(name)
        );
        if ring < 2 {
            let y = at.1 - f64::from(size) - 4.0;
            let _ = writeln!(
                dots,
                "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"#222\">{label}</text>",
                at.0
            );
        }
    }
}
