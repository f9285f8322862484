//! The benchmarks of `kelix bench`: each measures us beside another in one run, verifies answers, and says
//! which wanted figures hold.

mod ablation;
mod baselines;
mod cached;
mod cluster;
mod counts;
mod daily;
mod everywhere;
mod languages;
mod links;
mod lmdb;
mod log;
mod measurements;
mod mirrors;
mod ordered;
mod peers;
mod projection;
mod scale;
mod served;
mod spine;
mod store;
mod tails;
mod times;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use kelix_program::bench::NAMES;
use kelix_report::Report;
use kelix_server::HugePages;
pub use measurements::{Written, write};
pub use workload::Keys;

/// The fewest records that most benchmarks take.
const RECORDS_MIN: u64 = 1000;

/// How to run a benchmark and where its result goes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Number of records; each benchmark has its own default, and fewest.
    pub records: Option<u64>,
    /// Threads of each server, where servers are compared (default 1); cores of the server that is projected
    /// to.
    pub threads: Option<usize>,
    /// Clients, each a thread, where servers are compared (default 1); clients in a loop that are projected
    /// to.
    pub clients: Option<usize>,
    /// How often which record is asked for, where servers are compared.
    pub keys: Option<Keys>,
    /// A file with real numbers as keys, one a line, where keys are numbers.
    pub keys_file: Option<PathBuf>,
    /// A folder with traces, for `daily`.
    pub traces: Option<PathBuf>,
    /// Where files are made while they are measured, for `log`.
    pub directory: Option<PathBuf>,
    /// A file that describes a NIC, for `projection`.
    pub project: Option<PathBuf>,
    /// Failovers of each kind, for `cluster`.
    pub failovers: Option<usize>,
    /// Items of a replica that is promoted, for `cluster`.
    pub items: Option<u64>,
    /// For `cluster`: only so many failovers, and what is lost in them.
    pub lost: Option<usize>,
    /// The file that tells what came of such failovers so far.
    pub resume: Option<PathBuf>,
    /// What `counts` does in a process under valgrind.
    pub counted: Option<String>,
}

impl Options {
    /// Whether something was chosen that only benchmarks have that compare servers.
    fn compares_servers(&self) -> bool {
        self.threads.is_some() || self.clients.is_some() || self.keys.is_some()
    }
}

/// Why a benchmark came to nothing.
#[derive(Debug)]
pub enum Error {
    /// A benchmark was asked for what makes no sense.
    Usage(String),
    /// Anything else.
    Other(String),
}

impl From<String> for Error {
    fn from(text: String) -> Error {
        Error::Other(text)
    }
}

impl Error {
    /// A failure with the name of the benchmark in front.
    fn of(self, what: &str) -> Error {
        match self {
            Error::Usage(text) => Error::Usage(format!("{what}: {text}")),
            Error::Other(text) => Error::Other(format!("{what}: {text}")),
        }
    }
}

/// Whether the benchmark `name` takes these options.
fn check(name: &str, options: &Options) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Usage(text));
    let projects = name == "projection" && options.keys.is_none();
    if options.compares_servers() && !projects && !["peers", "sweep"].contains(&name) {
        return wrong(format!("{name} takes no --keys, --threads or --clients; peers and sweep do"));
    }
    if options.project.is_some() && name != "projection" {
        return wrong(format!("{name} takes no --project; projection does"));
    }
    if options.traces.is_some() && name != "daily" {
        return wrong(format!("{name} takes no --traces; daily does"));
    }
    if options.directory.is_some() && name != "log" {
        return wrong(format!("{name} takes no --directory; log does"));
    }
    if options.keys_file.is_some() && name != "ordered" {
        return wrong(format!("{name} takes no --keys-file; ordered does"));
    }
    let of_cluster = options.failovers.is_some() || options.items.is_some() || options.lost.is_some();
    if of_cluster && name != "cluster" {
        return wrong(format!("{name} takes no --failovers, --items or --lost; cluster does"));
    }
    let least = if name == "projection" { projection::RECORDS_MIN } else { RECORDS_MIN };
    match options.records {
        Some(records) if records < least => {
            wrong(format!("--records {records} is too little for {name}: write a number from {least} on"))
        }
        _ => Ok(()),
    }
}

/// Chooses the pages of all memory of ours, in this process and in servers that are started: as `kelix serve`
/// takes them, `auto`, `require` or `off`. An error: they are required, and the host has none.
pub fn choose_huge_pages(wanted: &str) -> Result<(), String> {
    let pages = match wanted {
        "require" => HugePages::Required,
        "off" => HugePages::Off,
        _ => HugePages::Reserved,
    };
    kelix_server::choose_huge_pages(pages, None).map_err(|error| error.to_string())?;
    served::set_huge_pages(wanted);
    Ok(())
}

/// Runs the benchmark `name`.
pub fn measure(name: &str, options: &Options) -> Result<Report, Error> {
    check(name, options)?;
    Ok(match name {
        "spine" => spine::run(options)?,
        "everywhere" => everywhere::run(options)?,
        "peers" => peers::run(options)?,
        "sweep" => peers::sweep(options)?,
        "scale" => scale::run(options)?,
        "tails" => tails::run(options)?,
        "counts" => counts::run(options)?,
        "ablation" => ablation::run(options)?,
        "languages" => languages::run(options)?,
        "links" => links::run(options)?,
        "log" => log::run(options)?,
        "mirrors" => mirrors::run(options)?,
        "cluster" => cluster::run(options)?,
        "ordered" => ordered::run(options)?,
        "daily" => daily::run(options)?,
        "projection" => projection::run(options)?,
        _ => {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            let text = format!("no benchmark \"{name}\"; there are: {}", names.join(", "));
            return Err(Error::Usage(text));
        }
    })
}

/// Ends the processes that benchmarks of this process have started, and removes their folders, for a program
/// that is to end at once.
pub fn clean_up() {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let mut children: Vec<Pid> = children
        .flat_map(|pids| pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .filter_map(Pid::from_raw)
        .collect();
    // Whoever waits for one of them elsewhere still can.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let has_ended = |child| !matches!(waitid(WaitId::Pid(child), options), Ok(None));
    for signal in [Signal::TERM, Signal::KILL] {
        for child in &children {
            let _ = kill_process(*child, signal);
        }
        for _ in 0..30 {
            children.retain(|child| !has_ended(*child));
            if children.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let own = format!("-{}", std::process::id());
    let made_in = [std::env::temp_dir(), lmdb::MEMORY.into()].into_iter().chain(log::folder_of_files());
    let folders = made_in.filter_map(|of| std::fs::read_dir(of).ok());
    for entry in folders.flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_ours = ["kelix-bench-", "kelix-zookeeper-"].iter().any(|of| name.starts_with(of));
        if is_ours && name.ends_with(&own) {
            // Something may still be made in it while it is removed.
            let mut tries = 0..10;
            while std::fs::remove_dir_all(entry.path()).is_err()
                && entry.path().exists()
                && tries.next().is_some()
            {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
