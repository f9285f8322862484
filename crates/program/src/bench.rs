//! What `kelix bench` takes. `kelix` has its help, manual page and completions of this, and looks at the
//! arguments; `kelix-bench` does what they say.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};

use crate::units;

/// The program that does it.
pub const PROGRAM: &str = "kelix-bench";

/// The names of all benchmarks, with what they show.
pub const NAMES: &[(&str, &str)] = &[
    ("spine", "gets and puts in shared memory against plain loops over the same table in one process"),
    ("everywhere", "gets over TCP against a bare echo, and many clients against few"),
    ("peers", "gets and puts against memcached, Redis and Valkey, with LMDB beside"),
    ("sweep", "the same over sizes of values and numbers of records"),
    (
        "tails",
        "the slowest operations of open loops and of full caches, and processor time, beside memcached",
    ),
    (
        "scale",
        "what more shards and many clients cost a server, and what a crowd waits for, beside memcached",
    ),
    ("counts", "instructions an operation takes"),
    ("ablation", "each feature against the same store without it"),
    ("links", "following a link against looking an item up; generations loaded, built and switched"),
    ("languages", "gets in other languages than Rust, and what the library has for these"),
    ("log", "what a log costs, in memory and on the disk, beside a bare loop and Redis; restarts out of it"),
    (
        "mirrors",
        "reads on a mirror beside its primary, how far behind it is, what it costs; a replica of Redis",
    ),
    (
        "cluster",
        "what replicas cost; how long nothing is written, and what is lost, when a primary is; beside Redis",
    ),
    ("ordered", "ordered tables read through models against messages, a cached tree, LMDB and Redis"),
    (
        "daily",
        "latencies during a snapshot, a restart out of one, memory after an hour of changes, hits of a cache",
    ),
    ("projection", "what the counted verbs and bytes of a run allow on an RDMA NIC, by arithmetic"),
];

/// What runs the benchmarks instead of being one.
pub const REPORT: (&str, &str) =
    ("report", "runs the others and writes what they found into measurements.md");

/// Run a benchmark
///
/// It starts what it needs by itself, measures us beside another in the same run, and verifies the answers.
#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
`report` runs the benchmarks one after the other. In measurements.md of the folder DIR it writes each table between the lines
  <!-- kelix bench NAME: begin -->
  <!-- kelix bench NAME: end -->
and each figure of a paper between the same with `figure` instead of `bench`; all else stays as it is. Pictures go
into DIR/figures.

Examples:
  kelix bench spine
  kelix bench ablation --json
  kelix bench peers --keys trace keys.txt --clients 2
  kelix bench spine --records 100000 --svg figures
  kelix bench ordered --keys-file ranges.csv
  kelix bench daily --traces traces
  kelix bench log --directory /var/tmp
  kelix bench cluster --lost 500 --resume failovers.json
  kelix bench peers --huge-pages require    # in pages that vm.nr_hugepages has reserved
  kelix bench --project nic.toml
  kelix bench projection --threads 8 --clients 50
  kelix bench report --only spine --only peers

How a NIC is described for --project: docs/measurements.md, \"Projection\"

A program of its own does all of this, kelix-bench, which stands beside kelix: `make build` builds it, and `make demo` does not.")]
pub struct BenchArgs {
    /// Which one [default with --project: projection]
    #[arg(required_unless_present = "project", value_parser = PossibleValuesParser::new(NAMES.iter().chain([&REPORT]).map(|(name, what)| {
        PossibleValue::new(*name).help(*what)
    })))]
    pub name: Option<String>,
    /// For projection: a file that describes a NIC [default: two ports of ConnectX-4 at 100 Gb/s]
    #[arg(long, value_name = "NIC.toml")]
    pub project: Option<PathBuf>,
    /// Also draw the result, as an SVG file in this folder
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Number of records, as in 100000, 10M or 1e6 [default: the benchmark's own]
    #[arg(long, value_name = "N", value_parser = units::parse_some)]
    pub records: Option<u64>,
    /// Whether memory of ours is in pages of 2 MiB, as `kelix serve` has it: auto, require or off
    #[arg(long, value_name = "WHEN", value_parser = ["auto", "require", "off"], default_value = "auto")]
    pub huge_pages: String,
    /// How often which key is asked for, in peers and sweep: uniform, zipf, latest, or trace and a file with
    /// a key a line, of which the first 131,072 are followed [default: uniform, and in mixes also zipf]
    #[arg(long, value_names = ["KEYS", "FILE"], num_args = 1..=2)]
    pub keys: Vec<String>,
    /// Threads of each server, in peers and sweep; cores of the server, in projection [default: 1]
    #[arg(long, value_name = "N", value_parser = units::within::<u8>(1, 64))]
    pub threads: Option<u8>,
    /// Clients, each a thread, in peers and sweep [default: 1]; clients that wait for each answer, in
    /// projection
    #[arg(long, value_name = "N", value_parser = units::within::<u8>(1, 64))]
    pub clients: Option<u8>,
    /// For ordered: a file with numbers as keys, one a line, of which what stands before the first comma
    /// counts
    #[arg(long, value_name = "FILE")]
    pub keys_file: Option<PathBuf>,
    /// For daily: a folder with traces of what caches were asked for [default: none; what is asked for is
    /// made up]
    #[arg(long, value_name = "DIR")]
    pub traces: Option<PathBuf>,
    /// For log: where the files are made that are measured, on a disk; they are removed afterwards
    /// [default: the folder target, or that of temporary files]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// For cluster: failovers of each kind [default: 50, and 2 with fewer than 50000 records]
    #[arg(long, value_name = "N", value_parser = units::within::<u32>(1, 100_000))]
    pub failovers: Option<u32>,
    /// For cluster: items of a replica that is promoted, as in 10M [default: 10M, and as many as records with
    /// fewer than 50000 of these]
    #[arg(long, value_name = "N", value_parser = units::parse_some)]
    pub items: Option<u64>,
    /// For cluster: nothing but this many failovers, of primaries that are killed and stopped in turn, and
    /// what is lost in them
    #[arg(long, value_name = "N", value_parser = units::within::<u32>(1, 100_000))]
    #[arg(conflicts_with_all = ["failovers", "items", "records"])]
    pub lost: Option<u32>,
    /// With --lost: a file that tells what came of them so far, to be gone on with; made if it is not there
    #[arg(long, value_name = "FILE", requires = "lost")]
    pub resume: Option<PathBuf>,
    /// What `counts` does under valgrind, and sessions that `scale` holds in another process
    #[arg(long, hide = true)]
    pub counted: Option<String>,
    /// For report: the folder that has measurements.md [default: docs]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// For report: run and write only this benchmark; may be repeated
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(NAMES.iter().map(|(name, _)| *name)))]
    pub only: Vec<String>,
}
