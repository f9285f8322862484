//! The commands for one server's data, which the program and its shell have alike.

use std::io::Write;

use crate::context::Context;
use crate::{Failure, bytes, chase, get, scan, stat, table, walk, write};

#[derive(clap::Subcommand)]
pub(crate) enum StoreCommand {
    Put(write::PutArgs),
    Get(get::GetArgs),
    Del(write::DelArgs),
    Chase(chase::ChaseArgs),
    Walk(walk::WalkArgs),
    Scan(scan::ScanArgs),
    #[command(subcommand)]
    Table(table::TableCommand),
    Stat(stat::StatArgs),
    /// Tell how keys, values, links and paths are written
    #[command(long_about = bytes::HELP, help_template = "{about}\n")]
    Syntax,
}

pub(crate) fn run(context: &Context, command: &StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Put(args) => write::put(context, args),
        StoreCommand::Get(args) => get::run(context, args),
        StoreCommand::Del(args) => write::del(context, args),
        StoreCommand::Chase(args) => chase::run(context, args),
        StoreCommand::Walk(args) => walk::run(context, args),
        StoreCommand::Scan(args) => scan::run(context, args),
        StoreCommand::Table(command) => table::run(context, command),
        StoreCommand::Stat(args) => stat::run(context, args),
        StoreCommand::Syntax => explain(bytes::HELP),
    }
}

/// Prints a page of help that stands for itself.
pub(crate) fn explain(help: &str) -> Result<(), Failure> {
    Ok(writeln!(std::io::stdout(), "{help}")?)
}
