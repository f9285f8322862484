//! `kelix wal`: looking at the log in a directory.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kelix_log::files::{Directory, End, FileSurvey, Log};
use kelix_server::{Reshard, ReshardStep};
use kelix_types::limits::SHARDS_MAX;
use serde_json::{Value, json};

use crate::context::{Context, plural};
use crate::progress::Line;
use crate::units::{show_size, within};
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
    /// Give a store another number of shards, where no server uses its directory
    ///
    /// Reads log and snapshots as a server does at its start, puts everything into so many new shards, and
    /// writes these into a new directory beside, as a snapshot and the head of a log. That is read back, and
    /// exchanged for the old one, which stays as DIRECTORY.before-reshard. So a server finds one of both,
    /// also where this is killed. It takes twice the memory of the store, and as much room on the disk as a
    /// snapshot. All items stay what they are, versions among them, and so do tables and loaded datasets. Not
    /// carried over are a load that is under way, earlier moments of the log, and what clients were answered:
    /// a write that is asked for again is reported as unknown, and not done once more.
    ///
    /// The shards are those of the namespace that is given with --namespace.
    #[command(after_long_help = "\
Examples:
  kelix wal reshard /var/lib/kelix --shards 4
  kelix serve --wal /var/lib/kelix --shards 4
  kelix --namespace people wal reshard /var/lib/kelix --shards 2")]
    Reshard(ReshardArgs),
}

#[derive(clap::Args)]
pub(crate) struct ReshardArgs {
    /// The directory
    directory: PathBuf,
    /// How many shards there are to be
    #[arg(long, value_name = "N", value_parser = within::<usize>(1, SHARDS_MAX as u64))]
    shards: usize,
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
        WalCommand::Reshard(args) => reshard(context, args),
    }
}

/// The log of a directory, which has to have one.
fn open(directory: &Path, operation: &'static str) -> Result<Log, Failure> {
    let log = Log::open(Box::new(Directory(directory.to_path_buf())))?;
    if log.files().is_empty() {
        let context = format!("there is no log in {}", directory.display());
        return Err(Failure::new(Exit::NotThere, operation, context));
    }
    Ok(log)
}

fn survey(directory: &Path, operation: &'static str) -> Result<(Vec<FileSurvey>, End), Failure> {
    Ok(open(directory, operation)?.survey()?)
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
    // Before a lock leaves a file in a directory that was mistaken for another one.
    open(directory, "truncate log")?;
    let removed = kelix_server::truncate_log(directory)?;
    if context.json {
        return context.print_json(&json!({"removed": removed}));
    }
    Ok(writeln!(std::io::stdout(), "{} removed", plural(removed, "file"))?)
}

fn progress_of(step: ReshardStep) -> String {
    match step {
        ReshardStep::Read => "read; sharing it out anew".into(),
        ReshardStep::Carried(keys) => format!("{} in their new shards", plural(keys, "key")),
        ReshardStep::Begun => "writing".into(),
        ReshardStep::Writing(bytes, of) => format!("{} of {} written", show_size(bytes), show_size(of)),
        ReshardStep::BaseWritten | ReshardStep::Written => "written; reading it back".into(),
        ReshardStep::Verified | ReshardStep::Named | ReshardStep::Exchanged => {
            "read back; exchanging it for the old directory".into()
        }
    }
}

fn reshard(context: &Context, args: &ReshardArgs) -> Result<(), Failure> {
    let ReshardArgs { directory, shards } = args;
    let wanted =
        Reshard { directory: directory.clone(), namespace: context.namespace.clone(), shards: *shards };
    let mut line = Line::new(context.json);
    line.show(|| format!("reading {}", directory.display()));
    let done = kelix_server::reshard_log(&wanted, &mut |step| line.show(|| progress_of(step)));
    line.clear();
    let done = done?;
    if context.json {
        return context.print_json(&json!({
            "shards_before": done.shards_before,
            "shards": shards,
            "keys": done.keys,
            "bytes": done.bytes,
            "torn_bytes": done.torn_bytes,
            "before": done.before.display().to_string(),
        }));
    }
    let torn = match done.torn_bytes {
        0 => String::new(),
        bytes => format!(
            ", without {} at the end of the log that were not written to their end",
            plural(bytes, "byte")
        ),
    };
    Ok(writeln!(
        std::io::stdout(),
        "{}: {} in place of {}, {} in a snapshot of {}{torn}; {} is what it was before, and may go",
        directory.display(),
        plural(*shards as u64, "shard"),
        done.shards_before,
        plural(done.keys, "key"),
        show_size(done.bytes),
        done.before.display(),
    )?)
}
