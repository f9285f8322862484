//! What sessions cost the server: its resident memory, page tables included, before they come and when all are
//! there and each has said something. They belong to some processes of their own, since a process may have 65,530
//! mappings, and hold still while the server's memory is looked at.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

use kelix::{Client, SessionOptions};
use kelix_report::daemon::status_number;
use kelix_report::progress;
use kelix_report::report::{Row, told};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::text;
use crate::served::{Home, Served};

/// Records that all sessions put again and again.
const RECORDS: u64 = 1000;
/// Bytes of a value.
const VALUE_BYTES: usize = 512;
const SHARDS: usize = 8;
const MEMORY_BYTES: u64 = 512 << 20;
/// Sessions, in a small run, and of one process.
const SESSIONS: usize = 10_000;
const FEW_SESSIONS: usize = 40;
const A_PROCESS: usize = 1000;
/// Puts of each session: one at a time, some fifty kilobytes a shard.
const PUTS: usize = 800;
/// Descriptors that a session takes of the server and of its own process: a socket, one a shard, and two more.
const DESCRIPTORS: u64 = 3 + SHARDS as u64;
/// Most memory of the server for all sessions that is wanted.
const WANTED_MB: f64 = 700.0;

/// Processes that hold sessions until they are told to end.
struct Holders(Vec<(Child, ChildStdin)>);

impl Holders {
    /// Starts one more, and waits until its sessions have done what they do.
    fn add(&mut self, of: &str, sessions: usize) -> Result<(), String> {
        let mut command = Command::new(std::env::current_exe().map_err(text)?);
        command.args(["scale", "--counted", &format!("{sessions}:{of}")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(text)?;
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        self.0.push((child, input));
        let mut said = String::new();
        BufReader::new(output).read_line(&mut said).map_err(text)?;
        if said.trim() == "ready" { Ok(()) } else { Err(format!("sessions that do not hold: {said}")) }
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        for (mut child, input) in self.0.drain(..) {
            drop(input);
            let _ = child.wait();
        }
    }
}

/// Memory of a process in bytes: what is resident, and its page tables.
fn memory(of: &Served) -> Result<u64, String> {
    let kilobytes = |name| status_number(of.pid(), name).ok_or("a process without memory");
    Ok((kilobytes("VmRSS")? + kilobytes("VmPTE")?) * 1024)
}

/// Lets this process and those that it starts have as many descriptors as the sessions of a server take. Returns
/// how many sessions there may be.
fn raise_limit(sessions: usize) -> usize {
    let wanted = sessions as u64 * DESCRIPTORS + 1000;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        // Only root may.
        let raised = Rlimit { current: Some(wanted), maximum: Some(wanted) };
        let _ = setrlimit(Resource::Nofile, raised);
    }
    let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    sessions.min((maximum.saturating_sub(1000) / DESCRIPTORS) as usize)
}

/// The row of sessions in shared memory.
pub(super) fn row(is_full: bool) -> Result<Row, String> {
    let wanted = if is_full { SESSIONS } else { FEW_SESSIONS };
    let sessions = raise_limit(wanted);
    let home = Home::new("scale", MEMORY_BYTES)?;
    let server = home.serve(&["--shards", &SHARDS.to_string(), "--no-pin"])?;
    let of = server.directory().to_str().ok_or("the name of the folder is no text")?.to_string();
    // What one session has the server do beside is there before.
    hold_some(&of, 1, || Ok(()))?;
    let before = memory(&server)?;
    let began = Instant::now();
    let mut holders = Holders(Vec::new());
    let mut left = sessions;
    while left > 0 {
        progress::show(&format!("{} sessions", sessions - left));
        let next = left.min(A_PROCESS);
        holders.add(&of, next)?;
        left -= next;
    }
    let seconds = began.elapsed().as_secs_f64();
    let taken = memory(&server)?.saturating_sub(before) as f64;
    drop(holders);
    let megabytes = taken / 1e6 * SESSIONS as f64 / sessions as f64;
    let note = format!(
        "{sessions} sessions in shared memory, {:.1} KB each, {SHARDS} shards, {PUTS} puts of {VALUE_BYTES} bytes \
         each, one at a time; {seconds:.0} s for all",
        taken / 1e3 / sessions as f64
    );
    let name = "resident memory of the server for 10,000 clients";
    Ok(Row { note, ..told("clients_10000", name, "MB", megabytes, Some(WANTED_MB)) })
}

/// Opens sessions, of which each puts some records, and holds them meanwhile.
fn hold_some(
    of: &str,
    sessions: usize,
    meanwhile: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let client = Client::connect(Path::new(of)).map_err(text)?;
    let value = [7; VALUE_BYTES];
    let mut held = Vec::new();
    for number in 0..sessions as u64 {
        let mut session = client.session_with(SessionOptions::default()).map_err(text)?;
        let table = session.create_table("records").map_err(text)?;
        for put in 0..PUTS as u64 {
            let record = (number * 17 + put) % RECORDS;
            session.put(table, &record.to_le_bytes(), &value).map_err(text)?;
        }
        held.push(session);
    }
    meanwhile()
}

/// Holds so many sessions of the server of a directory, `COUNT:DIRECTORY`, until standard input ends.
pub(super) fn hold(what: &str) -> Result<(), String> {
    let (count, of) = what.split_once(':').ok_or("COUNT:DIRECTORY is needed")?;
    let count = count.parse().map_err(|_| format!("{count} is no number"))?;
    hold_some(of, count, || {
        let mut out = std::io::stdout();
        writeln!(out, "ready").and_then(|()| out.flush()).map_err(text)?;
        std::io::stdin().read_to_end(&mut Vec::new()).map(drop).map_err(text)
    })
}
