//! The graph as arrays: what is loaded, and what searches are compared with.
//!
//! ```text
//! starts   [0, 2, 2, 5, ...]        of each vertex, where its edges begin
//! targets  [7, 9 | | 0, 4, 7 | ...] where they lead, in ascending order, each once
//! ```

use std::io::{BufRead, BufReader};
use std::path::Path;

/// Greatest number of a vertex.
pub const VERTEX_MAX: u32 = 100_000_000;

/// Share of a vertex's edges that lead out of the lower half of the vertices, and into it, and so on in every
/// half: with these the most active hundredth of users has 7 % of the edges out of users, and the most
/// popular hundredth 28 % of those into users, as in the Higgs Twitter graph (SNAP).
const OUT_OF_LOWER: f64 = 0.61;
const INTO_LOWER: f64 = 0.70;

/// A directed graph of numbered vertices.
pub struct Edges {
    starts: Vec<u64>,
    targets: Vec<u32>,
    /// Where it is from, in words.
    pub source: String,
    /// Whether it was made here, users and all.
    pub is_generated: bool,
}

impl Edges {
    /// Edges in any order; loops and repetitions are left out.
    fn of(mut pairs: Vec<(u32, u32)>, source: String) -> Edges {
        pairs.retain(|(from, to)| from != to);
        pairs.sort_unstable();
        pairs.dedup();
        let vertices = pairs.iter().map(|(from, to)| from.max(to) + 1).max().unwrap_or(0);
        let mut starts = vec![0; vertices as usize + 1];
        for (from, _) in &pairs {
            starts[*from as usize + 1] += 1;
        }
        for vertex in 0..vertices as usize {
            starts[vertex + 1] += starts[vertex];
        }
        Edges { starts, targets: pairs.into_iter().map(|(_, to)| to).collect(), source, is_generated: false }
    }

    /// The numbers of vertices are below this.
    pub fn vertices(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// How many edges there are.
    pub fn len(&self) -> u64 {
        self.targets.len() as u64
    }

    /// Where the edges of a vertex lead.
    #[inline]
    pub fn from(&self, vertex: u32) -> &[u32] {
        let start = |vertex: usize| self.starts[vertex] as usize;
        &self.targets[start(vertex as usize)..start(vertex as usize + 1)]
    }

    /// Vertices that have edges out or in.
    pub fn users(&self) -> Vec<u32> {
        let mut has = vec![false; self.vertices() as usize];
        self.targets.iter().for_each(|to| has[*to as usize] = true);
        (0..self.vertices())
            .filter(|vertex| has[*vertex as usize] || !self.from(*vertex).is_empty())
            .collect()
    }

    /// Reads a file of edges, two numbers a line, with blanks or a comma between them. A line whose first
    /// byte is # is a remark.
    pub fn read(file: &Path) -> Result<Edges, String> {
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let reader = BufReader::new(std::fs::File::open(file).map_err(|error| said(&error))?);
        let mut pairs = Vec::new();
        for (index, line) in reader.split(b'\n').enumerate() {
            let line = line.map_err(|error| said(&error))?;
            if index == 0 && line.starts_with(&[0x1f, 0x8b]) {
                return Err(said(&"it is packed with gzip: unpack it first, with gunzip"));
            }
            // Remarks may be in any encoding.
            let line = String::from_utf8_lossy(&line);
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            match pair(&line) {
                Some(pair) => pairs.push(pair),
                None => {
                    let expected = format!(
                        "expected two numbers up to {VERTEX_MAX}, as in \"12 7\" or \"12,7\", and no weight or word behind them"
                    );
                    return Err(format!("{}: line {}: {expected}, not {line:?}", file.display(), index + 1));
                }
            }
        }
        if pairs.is_empty() {
            return Err(said(&"it has no edges"));
        }
        Ok(Edges::of(pairs, file.display().to_string()))
    }

    /// Makes a graph at random, the same each time (R-MAT: each bit of an edge's ends is drawn by itself).
    pub fn generate(vertices: u32, edges: u64) -> Edges {
        let mut random = fastrand::Rng::with_seed(22);
        let bits = 32 - (vertices - 1).leading_zeros();
        // Who is how popular shall not follow from the number.
        let mut number: Vec<u32> = (0..1 << bits).collect();
        random.shuffle(&mut number);
        let number_of: Vec<Option<u32>> =
            number.into_iter().map(|number| Some(number).filter(|number| *number < vertices)).collect();
        let mut pairs: Vec<(u32, u32)> = Vec::with_capacity(edges as usize * 9 / 8);
        // Repetitions leave gaps, which another round fills.
        while (pairs.len() as u64) < edges {
            while (pairs.len() as u64) < edges + edges / 16 {
                let mut draw =
                    |lower| (0..bits).fold(0, |drawn, _| drawn << 1 | usize::from(random.f64() >= lower));
                let (from, to) = (number_of[draw(OUT_OF_LOWER)], number_of[draw(INTO_LOWER)]);
                pairs.extend(from.zip(to).filter(|(from, to)| from != to));
            }
            pairs.sort_unstable();
            pairs.dedup();
        }
        random.shuffle(&mut pairs);
        pairs.truncate(edges as usize);
        let source = format!("a graph generated with {vertices} vertices and {edges} edges");
        Edges { is_generated: true, ..Edges::of(pairs, source) }
    }
}

/// The two numbers of a line.
fn pair(line: &str) -> Option<(u32, u32)> {
    let words: Vec<&str> = match line.contains(',') {
        true => line.split(',').map(str::trim_ascii).collect(),
        false => line.split_ascii_whitespace().collect(),
    };
    let mut numbers = words.into_iter().map(|word| word.parse().ok().filter(|n| *n <= VERTEX_MAX));
    let pair = (numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_edges_is_read() {
        let file = std::env::temp_dir().join(format!("kelix-graph-edges-{}", std::process::id()));
        std::fs::write(&file, "# from to\n3 1\n1\t3\n3 1\n3 0\n2 2\n").unwrap();
        let edges = Edges::read(&file).unwrap();
        assert_eq!((edges.vertices(), edges.len()), (4, 3));
        assert_eq!((edges.from(3), edges.from(0)), (&[0, 1][..], &[][..]));
        assert_eq!(edges.users(), [0, 1, 3]);
        for (text, said) in
            [("1 2\n3\n", "line 2"), ("1 2 3\n", "line 1"), ("1 -2\n", "line 1"), ("", "no edges")]
        {
            std::fs::write(&file, text).unwrap();
            let error = Edges::read(&file).err().expect("it is wrong");
            assert!(error.contains(said), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(Edges::read(&file).is_err());
    }

    #[test]
    fn a_generated_graph_has_the_skew_of_the_real_one() {
        let edges = Edges::generate(100_000, 1_000_000);
        assert_eq!(edges.len(), 1_000_000);
        let mut out: Vec<usize> = (0..edges.vertices()).map(|vertex| edges.from(vertex).len()).collect();
        let mut into = vec![0; out.len()];
        edges.targets.iter().for_each(|to| into[*to as usize] += 1);
        for (degrees, share) in [(&mut out, 0.04..0.10), (&mut into, 0.18..0.35)] {
            degrees.sort_unstable();
            let top: usize = degrees.iter().rev().take(degrees.len() / 100).sum();
            let top = top as f64 / edges.len() as f64;
            assert!(share.contains(&top), "the upper hundredth has {top}");
        }
    }
}
