//! `kelix wal`: looking at the log in a directory.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kelix_log::files::{Directory, End, FileSurvey, Log};
use serde_json::{Value, json};

use crate::context::{Context, plural};
use crate::units::show_size;
use crate::{Exit, Failure};

/// Look at the log of a server in its directory
///
/// A server that was started with --wal DIRECTORY logs all changes there, in files of 64 MiB, and begins with
/// the newest snapshot and what was logged behind that. These commands read the directory, also while a
/// server writes there; what it does just then is at the end of the log, or is not.
#[derive(clap::Subcommand)]
pub(crate) enum WalCommand {
    /// Say which files there are, and from when to when they are
    #[command(after_long_help = "\
Examples:
  kelix wal status /var/lib/kelix")]
    Status(WalArgs),
    /// Read the whole log and the newest snapshot, and find out whether a server can begin with them
    #[command(after_long_help = "\
Examples:
  kelix wal verify /var/lib/kelix")]
    Verify(WalArgs),
    /// Remove the files that no snapshot beside them needs, where no server does so by itself
    #[command(after_long_help = "\
Examples:
  kelix wal truncate /var/lib/kelix")]
    Truncate(WalArgs),
}

#[derive(clap::Args)]
pub(crate) struct WalArgs {
    /// The directory
    directory: PathBuf,
}

pub(crate) fn run(context: &Context, command: &WalCommand) -> Result<(), Failure> {
    match command {
        WalCommand::Status(args) => status(context, &args.directory),
        WalCommand::Verify(args) => verify(context, &args.directory),
        WalCommand::Truncate(args) => truncate(context, &args.directory),
    }
}

fn survey(directory: &Path, operation: &'static str) -> Result<(Vec<FileSurvey>, End), Failure> {
    let log = Log::open(Box::new(Directory(directory.to_path_buf())))?;
    if log.files().is_empty() {
        let context = format!("there is no log in {}", directory.display());
        return Err(Failure::new(Exit::NotThere, operation, context));
    }
    Ok(log.survey()?)
}

/// A moment in nanoseconds since 1970, in UTC.
fn moment(time_ns: u64) -> String {
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + Duration::from_nanos(time_ns)).to_string()
}

fn described(file: &FileSurvey) -> Value {
    json!({
        "file": file.name,
        "bytes": file.bytes,
        "first_batch": file.first,
        "last_batch": file.last,
        "first_moment": file.first_time_ns.map(moment),
        "last_moment": file.last_time_ns.map(moment),
    })
}

fn words(file: &Value) -> String {
    let name = file["file"].as_str().unwrap_or_default();
    let size = show_size(file["bytes"].as_u64().unwrap_or(0));
    let text = |name: &str| file[name].as_str().unwrap_or_default();
    match file["last_batch"].as_u64() {
        None => format!("{name}: {size}, empty yet"),
        Some(last) => format!(
            "{name}: {size}, batches {} to {last}, {} to {}",
            file["first_batch"],
            text("first_moment"),
            text("last_moment")
        ),
    }
}

/// What a log ends with.
fn ending(end: &End) -> String {
    let torn = end.torn.as_ref().map_or(String::new(), |torn| {
        format!(
            "; then {} that were not written to their end, at byte {} of {}",
            plural(torn.bytes, "byte"),
            torn.at,
            torn.file
        )
    });
    let batches = if end.batches == 1 { "1 batch".into() } else { format!("{} batches", end.batches) };
    format!("{batches}, {}{torn}", plural(end.records, "record"))
}

fn tell(
    context: &Context,
    (files, end): (&[FileSurvey], &End),
    verdict: Option<&str>,
) -> Result<(), Failure> {
    let files: Vec<Value> = files.iter().map(described).collect();
    if context.json {
        return context.print_json(&json!({
            "files": files,
            "batches": end.batches,
            "records": end.records,
            "last_batch": end.last.batch,
            "torn_bytes": end.torn.as_ref().map_or(0, |torn| torn.bytes),
            "whole": true,
        }));
    }
    let mut out = std::io::stdout().lock();
    for file in &files {
        writeln!(out, "{}", words(file))?;
    }
    let verdict = verdict.map_or(String::new(), |verdict| format!("; {verdict}"));
    Ok(writeln!(out, "{}{verdict}", ending(end))?)
}

fn status(context: &Context, directory: &Path) -> Result<(), Failure> {
    let (files, end) = survey(directory, "wal status")?;
    tell(context, (&files, &end), None)
}

fn verify(context: &Context, directory: &Path) -> Result<(), Failure> {
    let (files, end) = survey(directory, "wal verify")?;
    let base = kelix_snapshot::list(directory)?.into_iter().next();
    if let Some(base) = &base {
        kelix_server::verify_snapshot(base)?;
    }
    let verdict = match base {
        Some(base) => format!("they are whole, and so is {}", base.display()),
        None => "they are whole".into(),
    };
    tell(context, (&files, &end), Some(&verdict))
}

fn truncate(context: &Context, directory: &Path) -> Result<(), Failure> {
    let removed = kelix_server::truncate_log(directory)?;
    if context.json {
        return context.print_json(&json!({"removed": removed}));
    }
    Ok(writeln!(std::io::stdout(), "{} removed", plural(removed, "file"))?)
}
