//! `kelix snapshot`: having one taken, and looking at those that are there.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelix_snapshot::Snapshot;
use serde_json::{Value, json};

use crate::context::{Context, plural};
use crate::units::{show_size, show_time};
use crate::{Exit, Failure};

/// Take, list and verify snapshots
///
/// A server that was started with --snapshots DIRECTORY begins with the newest snapshot there, and takes one
/// when it ends. With --snapshot-every it takes them by itself, and `kelix snapshot take` has it take one
/// now; clients go on meanwhile.
#[derive(clap::Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Have the server take a snapshot, and wait for it
    #[command(after_long_help = "\
Examples:
  kelix snapshot take
  scp \"$(kelix snapshot take --json | jq -r .path)\" other:/var/lib/kelix/")]
    Take,
    /// List the snapshots of a directory, the newest first
    #[command(after_long_help = "\
Examples:
  kelix snapshot list /var/lib/kelix")]
    List(ListArgs),
    /// Read a snapshot as a server that begins with it, and find out whether it is whole
    #[command(after_long_help = "\
Examples:
  kelix snapshot verify /var/lib/kelix/1795435200000.kelix-snapshot")]
    Verify(VerifyArgs),
}

#[derive(clap::Args)]
pub(crate) struct ListArgs {
    /// The directory
    directory: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct VerifyArgs {
    /// The file
    file: PathBuf,
}

pub(crate) fn run(context: &Context, command: &SnapshotCommand) -> Result<(), Failure> {
    match command {
        SnapshotCommand::Take => take(context),
        SnapshotCommand::List(args) => list(context, &args.directory),
        SnapshotCommand::Verify(args) => verify(context, &args.file),
    }
}

fn take(context: &Context) -> Result<(), Failure> {
    let taken = context.client()?.snapshot()?;
    if context.json {
        return context.print_json(&json!(taken));
    }
    let (path, size) = (taken.path.display(), show_size(taken.bytes));
    Ok(writeln!(std::io::stdout(), "{path}: a file of {size} in {:.1} s", taken.seconds)?)
}

/// What is known of a snapshot without reading all of it.
fn described(snapshot: &Snapshot) -> Value {
    let description = snapshot.description();
    let (memory, notes) = snapshot.sizes();
    json!({
        "path": snapshot.path().display().to_string(),
        "release": description.release,
        "made_unix_ms": description.made_unix_ms,
        "age_seconds": description.made().elapsed().unwrap_or_default().as_secs(),
        "bytes": snapshot.bytes(),
        "memory_bytes": memory,
        "notes_bytes": notes,
        "namespaces": description.namespaces.iter().map(|of| json!({"name": of.name, "shards": of.shards})).collect::<Vec<_>>(),
    })
}

fn words(snapshot: &Value) -> String {
    let number = |name: &str| snapshot[name].as_u64().unwrap_or(0);
    let namespaces = snapshot["namespaces"].as_array().map_or(0, Vec::len) as u64;
    format!(
        "{}: {} ago, {} of memory in a file of {}, {}",
        snapshot["path"].as_str().unwrap_or_default(),
        show_time(Duration::from_secs(number("age_seconds"))),
        show_size(number("memory_bytes") + number("notes_bytes")),
        show_size(number("bytes")),
        plural(namespaces, "namespace"),
    )
}

fn list(context: &Context, directory: &Path) -> Result<(), Failure> {
    let mut all = Vec::new();
    for path in kelix_snapshot::list(directory)? {
        let opened = Snapshot::open(&path).map_err(Failure::from);
        all.push(opened.map_or_else(
            |failure| json!({"path": path.display().to_string(), "error": failure.to_string()}),
            |snapshot| described(&snapshot),
        ));
    }
    let unreadable = all.iter().filter(|snapshot| !snapshot["error"].is_null()).count();
    if context.json {
        context.print_json(&json!({"snapshots": all}))?;
    } else {
        let mut out = std::io::stdout().lock();
        for snapshot in &all {
            match snapshot["error"].as_str() {
                Some(why) => writeln!(out, "{why}")?,
                None => writeln!(out, "{}", words(snapshot))?,
            }
        }
    }
    if unreadable == 0 {
        return Ok(());
    }
    let why = format!("{unreadable} of {} cannot be read", plural(all.len() as u64, "snapshot"));
    Err(Failure::new(Exit::Other, "snapshot list", why))
}

fn verify(context: &Context, path: &Path) -> Result<(), Failure> {
    let snapshot = described(&kelix_server::verify_snapshot(path)?);
    if context.json {
        return context.print_json(&snapshot);
    }
    Ok(writeln!(std::io::stdout(), "{}; it is whole", words(&snapshot))?)
}
