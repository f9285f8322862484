//! The `kelix` program: a thin shell around the library, with a command for each thing that one does by hand.
//!
//! Every command is a module: its arguments with their help, and `run`. Each fails with a [`Failure`], which
//! knows the exit code and prints itself as words or as JSON. What is printed can be given to the next
//! command: see `bytes`.

#![forbid(unsafe_code)]

mod background;
mod bench;
mod bytes;
mod chase;
mod cluster;
mod columns;
mod commands;
mod config;
mod context;
mod demo;
mod ending;
mod fabric;
mod get;
mod heeded;
mod http;
mod items;
mod kept;
mod load;
mod log;
mod manager;
mod metrics;
mod names;
mod namespaces;
mod node;
mod pages;
mod plan;
mod progress;
mod rates;
mod report;
mod scan;
mod screen;
mod serve;
mod shell;
mod snapshot;
mod stat;
mod table;
mod trust;
mod wal;
mod walk;
mod watch;
mod write;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind as UsageKind;
use clap::{CommandFactory, FromArgMatches, Parser};
use kelix::{Address, FabricChoice};
use rustix::process::{Resource, getrlimit};

pub(crate) use kelix_program::{Exit, Failure, units};

/// A store in memory whose reads bypass the server
///
/// Clients map the server's memory, look items up by themselves and follow links with one read each; the
/// server works only when something is written.
#[derive(Parser)]
#[command(name = "kelix", version, propagate_version = true, max_term_width = 110)]
#[command(after_long_help = "\
Begin with:
  kelix serve &
  kelix put people prof001 --attr name=UVT
  kelix put people stu001 --attr name=XYZ --link supervisor=people/prof001
  kelix chase people stu001 supervisor

Exit codes:
  0  done
  1  not there (key, table, link), or a comparison failed
  2  usage, or an argument that makes no sense
  3  no server, or it has gone, was superseded or did not answer in time
  4  the server's memory is full
  5  anything else

Binary keys and values, links and paths: kelix help syntax
Options from the environment and from a file: kelix help config")]
struct Cli {
    /// Print results and errors as JSON
    #[arg(long, global = true, display_order = 900)]
    json: bool,
    /// The run directory, where server and clients meet [default: $XDG_RUNTIME_DIR/kelix, else
    /// /tmp/kelix-UID]
    #[arg(long, global = true, help_heading = "Server", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// A server that listens over TCP, instead of a run directory; of a cluster on several hosts all nodes, with
    /// commas between
    #[arg(long, global = true, help_heading = "Server", value_name = "HOST:PORT", conflicts_with = "dir")]
    server: Option<String>,
    /// A cluster on this host, instead of a run directory: its primary, whichever node that is. See kelix
    /// cluster
    #[arg(long, global = true, help_heading = "Server", value_name = "NAME", conflicts_with_all = ["dir", "server"])]
    cluster: Option<String>,
    /// The fabric to insist on: shm, verbs or tcp [default: shm with a run directory; with a server's address
    /// verbs, if both sides have RDMA, else tcp]
    #[arg(long, global = true, help_heading = "Server", value_name = "NAME")]
    fabric: Option<FabricChoice>,
    /// The namespace of the server's [default: the one that every server has]
    #[arg(long, global = true, help_heading = "Server", value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    trust: trust::TrustArgs,
    /// For how long to connect again and ask again when the server does not answer, or is not there yet; each
    /// write is done once [default: not at all; 10s with --cluster]
    #[arg(long, global = true, help_heading = "Server", value_name = "TIME", value_parser = units::parse_patience)]
    retry: Option<std::time::Duration>,
    /// How long the server may take to answer while nothing comes; what comes slowly is waited for [default:
    /// 900ms]
    #[arg(long, global = true, help_heading = "Server", value_name = "TIME", value_parser = units::parse_timeout)]
    timeout: Option<std::time::Duration>,
    /// The address of this host whose device for RDMA is to be used, where there are several [default: any
    /// that leads to the server]
    #[arg(long, global = true, help_heading = "Server", value_name = "ADDRESS", value_parser = units::parse_address)]
    rdma_address: Option<std::net::IpAddr>,
    /// On a mirror, whose primary takes the writes: read there, too. At a cluster on several hosts: believe
    /// no clock, but have the register say for each read that its server is primary
    #[arg(long, global = true, help_heading = "Server")]
    strict: bool,
    /// On a mirror: how long ago it may have heard from its primary when it is read [default: as long as the
    /// mirror lets it be]
    #[arg(long, global = true, help_heading = "Server", value_name = "TIME", value_parser = units::parse_lag)]
    max_lag: Option<std::time::Duration>,
    /// A file with options [default: $KELIX_CONFIG, else the first that exists of $XDG_CONFIG_HOME/kelix.toml
    /// and /etc/kelix.toml]
    #[arg(long, global = true, help_heading = "Server", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Serve(Box<serve::ServeArgs>),
    Demo(demo::DemoArgs),
    #[command(flatten)]
    Store(commands::StoreCommand),
    Shell(shell::ShellArgs),
    Load(load::LoadArgs),
    #[command(subcommand)]
    Map(load::MapCommand),
    Fabric(fabric::FabricArgs),
    Bench(bench::BenchArgs),
    Completions(pages::CompletionsArgs),
    #[command(hide = true)]
    Manual(pages::ManualArgs),
    Plan(plan::PlanArgs),
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    #[command(subcommand)]
    Wal(wal::WalCommand),
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    Config(config::ConfigArgs),
    /// Tell how a server is given namespaces, and who may use them
    #[command(long_about = namespaces::HELP, help_template = "{about}\n")]
    Namespaces,
}

/// The definitions of all commands.
fn program() -> clap::Command {
    heeded::hide_unheeded(Cli::command())
}

/// Runs a command; the exit code.
fn run(context: &context::Context, command: &Command) -> ExitCode {
    let done = match command {
        Command::Serve(args) => serve::run(context, args),
        Command::Demo(args) => demo::run(context, args),
        Command::Store(command) => commands::run(context, command),
        Command::Shell(args) => return shell::run(context, args),
        Command::Load(args) => load::run(context, args),
        Command::Map(command) => load::map(command),
        Command::Fabric(args) => fabric::run(context, args),
        Command::Bench(args) => bench::run(context, args),
        Command::Completions(args) => pages::completions(heeded::only_heeded(Cli::command()), args),
        Command::Manual(args) => pages::manual(program(), args),
        Command::Plan(args) => plan::run(context, args),
        Command::Snapshot(command) => snapshot::run(context, command),
        Command::Wal(command) => wal::run(context, command),
        Command::Cluster(command) => cluster::run(context, command),
        Command::Config(args) => config::run(context, &program(), args),
        Command::Namespaces => commands::explain(namespaces::HELP),
    };
    // What does not end with a line's end waits for more.
    match done.and_then(|()| Ok(std::io::stdout().flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(context.json),
    }
}

/// A command line that clap refuses. With `--json` the refusal is JSON like every other error.
fn refuse(error: &clap::Error, json: bool) -> u8 {
    let help = matches!(
        error.kind(),
        UsageKind::DisplayHelp
            | UsageKind::DisplayVersion
            | UsageKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if json && !help {
        let text = error.render().to_string();
        let words = text.split("\n\n").next().unwrap_or_default();
        let words = words.strip_prefix("error: ").unwrap_or(words);
        let failure = Failure::usage("parse the command line", words.trim());
        failure.report(true);
        return failure.code();
    }
    match error.print() {
        Err(source) if !error.use_stderr() => {
            let failure = Failure::from(source);
            failure.report(json);
            failure.code()
        }
        _ => error.exit_code() as u8,
    }
}

/// Where the server is. A server that is set for clients is also told to `kelix serve`, which then refuses to
/// begin where they would not find it.
fn address(cli: &Cli) -> kelix::Result<Address> {
    if let Some(name) = &cli.cluster {
        return Ok(kelix_server::ClusterDirectory::of(name)?.run().into());
    }
    let set = || std::env::var("KELIX_SERVER").ok().filter(|server| !server.is_empty());
    match (&cli.dir, cli.server.clone().or_else(set)) {
        (Some(directory), _) => Ok(directory.into()),
        (None, None) => Ok(kelix::Client::default_directory().into()),
        (None, Some(server)) => match server.parse()? {
            Address::Tcp(address) => Ok(Address::Tcp(address)),
            Address::Directory(_) => {
                let context = format!("{server} is no HOST:PORT; a run directory is named with --dir");
                Err(kelix::Error::new(kelix::ErrorKind::InvalidArgument, "connect", context))
            }
        },
    }
}

/// Reads the command line, with what the environment and the file add to it. `Err`: the exit code; why is
/// told.
fn parse() -> Result<Cli, u8> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let said: Vec<String> = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let program = program();
    if !json {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        config::unknown_variables(&program, names).iter().for_each(|text| context::say(text));
    }
    let completed = match config::complete(&program, words) {
        Ok(completed) => completed,
        Err(failure) => {
            failure.report(json);
            return Err(failure.code());
        }
    };
    let matches = program.clone().try_get_matches_from(&completed.words).and_then(|matches| {
        match heeded::unheeded(&program, &matches, &said) {
            Some(why) => Err(program.clone().error(UsageKind::UnknownArgument, why)),
            None => Ok(matches),
        }
    });
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        match completed.blame(&error) {
            Some(failure) => {
                failure.report(json);
                failure.code()
            }
            None => {
                let code = refuse(&error, json);
                if let (Some(hint), true, false) = (completed.hint(&error), error.use_stderr(), json) {
                    context::say(hint);
                }
                code
            }
        }
    })
}

/// The least address space in which something can be done.
const ADDRESS_SPACE_MIN: u64 = 64 << 20;

/// Fails where the system gives the process too little to begin with: allocations that fail later can end it
/// without a word of advice.
fn check_address_space() -> Result<(), Failure> {
    match getrlimit(Resource::As).current {
        Some(bytes) if bytes < ADDRESS_SPACE_MIN => {
            let (has, needs) = (units::show_size(bytes), units::show_size(ADDRESS_SPACE_MIN));
            let context = format!(
                "this process may have {has} of address space, and needs {needs} at least, and room for the server's memory: raise the limit, `ulimit -v`"
            );
            Err(Failure::new(Exit::Other, "start", context))
        }
        _ => Ok(()),
    }
}

fn main() -> ExitCode {
    if let Err(failure) = kelix_program::begin() {
        return failure.report(false);
    }
    let cli = match parse() {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    if let Err(failure) = check_address_space() {
        return failure.report(cli.json);
    }
    let address = match address(&cli) {
        Ok(address) => address,
        Err(error) => return Failure::from(error).report(cli.json),
    };
    let context = context::Context {
        address,
        cluster: cli.cluster,
        fabric: cli.fabric,
        namespace: cli.namespace.unwrap_or_default(),
        trust: cli.trust,
        retry: cli.retry,
        timeout: cli.timeout,
        rdma_address: cli.rdma_address,
        strict: cli.strict,
        max_lag: cli.max_lag,
        json: cli.json,
        kept: None,
        input_is_script: false,
    };
    run(&context, &cli.command)
}
