//! `kelix-graph`: users and whom they follow, in Kelix, searched along links.

#![forbid(unsafe_code)]

mod array;
mod bench;
mod draw;
mod edges;
mod keyed;
mod links;
mod load;
mod names;
mod search;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use kelix_apps::{BenchArgs, Failure, Store, StoreArgs};

use edges::Edges;
use links::Links;
use search::Limits;

/// Followers in Kelix: searches in a graph whose edges are links
///
/// Without a command: loads the graph, searches it in every way there is, checks all answers against arrays
/// in this process, and draws what it found.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "\
Examples:
  kelix-graph
  kelix-graph --data higgs_social_network.edgelist
  kelix-graph --vertices 1000000 --edges 22000000
  kelix-graph find Grace --from 17
  kelix-graph path --from 17 --to 4711
  kelix-graph bench --json"
)]
struct Arguments {
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Which graph.
#[derive(Args, Clone)]
struct GraphArgs {
    /// A file of edges, two numbers a line, with blanks or a comma between: who, and whom it follows
    /// [default: a small generated graph]
    #[arg(long, value_name = "FILE", global = true, conflicts_with_all = ["vertices", "edges"])]
    data: Option<PathBuf>,
    /// Vertices of a generated graph [default: 50000, or 1000000 for bench]
    #[arg(long, value_name = "N", global = true, value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    vertices: Option<u32>,
    /// Edges of a generated graph [default: 22 a vertex]
    #[arg(long, value_name = "N", global = true, value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    edges: Option<u64>,
}

#[derive(Subcommand)]
enum Command {
    /// Load the graph into a running store, where the other commands find it
    Load,
    /// Search breadth-first: who can be reached over how many others
    Bfs {
        /// Where to begin
        #[arg(long)]
        from: u32,
        /// Links from there at most
        #[arg(long)]
        depth: Option<u32>,
        /// Users at most
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Search depth-first, and print the users in the order in which it came to them
    Dfs {
        /// Where to begin
        #[arg(long)]
        from: u32,
        /// Users at most
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Find a person by name among those whom a user follows, those whom these follow, and so on
    Find {
        /// The name
        name: String,
        /// Where to begin
        #[arg(long)]
        from: u32,
        /// How far to look: 2 is friends of friends
        #[arg(long, default_value_t = 2)]
        depth: u32,
    },
    /// Find the shortest way from one user to another
    Path {
        /// Where to begin
        #[arg(long)]
        from: u32,
        /// Where to end
        #[arg(long)]
        to: u32,
    },
    /// Draw distances and a neighbourhood
    Draw {
        /// Whose [default: the user who follows most]
        #[arg(long)]
        from: Option<u32>,
        /// The folder for the pictures
        #[arg(long, value_name = "DIR", default_value = "kelix-graph")]
        out: PathBuf,
    },
    /// Measure searches against keys, memcached and arrays
    Bench(BenchArgs),
}

/// Vertices of the graph that is shown, and of that which is measured.
const SHOWN_VERTICES: u32 = 50_000;
const MEASURED_VERTICES: u32 = 1_000_000;
/// Edges a vertex, as in the graph of the paper.
const EDGES_EACH: u64 = 22;

impl GraphArgs {
    /// Reads or makes the graph.
    fn edges(&self, vertices: u32) -> Result<Edges, Failure> {
        if let Some(file) = &self.data {
            return Ok(Edges::read(file)?);
        }
        let vertices = self.vertices.unwrap_or(vertices);
        let edges = self.edges.unwrap_or(u64::from(vertices) * EDGES_EACH);
        if edges > u64::from(vertices) * u64::from(vertices) / 8 {
            return Err(Failure::usage(
                "generate",
                format!("{edges} edges are too many for {vertices} vertices"),
            ));
        }
        kelix_report::progress::show("generating a graph");
        let graph = Edges::generate(vertices, edges);
        kelix_report::progress::show("");
        Ok(graph)
    }
}

impl GraphArgs {
    /// The command that measures this graph.
    fn command(&self) -> String {
        let data = self.data.as_ref().map(|file| format!(" --data {}", file.display()));
        let vertices = self.vertices.map(|count| format!(" --vertices {count}"));
        let edges = self.edges.map(|count| format!(" --edges {count}"));
        let words: String = [data, vertices, edges].into_iter().flatten().collect();
        format!("kelix-graph bench{words}")
    }
}

impl Arguments {
    /// A search in the graph of the store that was asked for; without one, in a graph that is loaded now.
    fn links(&self) -> Result<(Store, Links), Failure> {
        if self.store.is_given() {
            let store = Store::open(&self.store, "graph", 0)?;
            let links = Links::new(store.session()?)
                .map_err(|failure| failure.with("`kelix-graph load --store` loads a graph into a store"))?;
            return Ok((store, links));
        }
        let edges = self.graph.edges(SHOWN_VERTICES)?;
        let store = Store::open(&self.store, "graph", load::memory_for(&edges))?;
        load::load(&mut store.session()?, &edges)?;
        let links = Links::new(store.session()?)?;
        Ok((store, links))
    }

    /// A search as `links` has it, if these users are in the graph.
    fn links_of(&self, users: &[u32]) -> Result<(Store, Links), Failure> {
        let (store, mut links) = self.links()?;
        links.expect(users)?;
        Ok((store, links))
    }

    fn run(&self) -> Result<(), Failure> {
        match &self.command {
            None => show::all(&self.graph.edges(SHOWN_VERTICES)?, &self.store),
            Some(Command::Load) => show::load(&self.graph.edges(SHOWN_VERTICES)?, &self.store),
            Some(Command::Bfs { from, depth, limit }) => {
                let limits = Limits { users: limit.unwrap_or(usize::MAX), depth: depth.unwrap_or(u32::MAX) };
                show::bfs(&mut self.links_of(&[*from])?.1, *from, limits)
            }
            Some(Command::Dfs { from, limit }) => show::dfs(&mut self.links_of(&[*from])?.1, *from, *limit),
            Some(Command::Find { name, from, depth }) => {
                Failure::unless(show::find(&mut self.links_of(&[*from])?.1, name, *from, *depth)?)
            }
            Some(Command::Path { from, to }) => {
                Failure::unless(show::path(&mut self.links_of(&[*from, *to])?.1, *from, *to)?)
            }
            Some(Command::Draw { from, out }) => {
                let edges = self.graph.edges(SHOWN_VERTICES)?;
                show::draw(&edges, &self.store, *from, out)
            }
            Some(Command::Bench(args)) => {
                if self.store.is_given() {
                    return Err(Failure::usage("bench", "bench has stores of its own; leave --store out"));
                }
                bench::run(&self.graph.edges(MEASURED_VERTICES)?, args, self.graph.command())
            }
        }
    }
}

fn main() -> ExitCode {
    kelix_apps::end("kelix-graph", Arguments::parse().run())
}
