//! `kelix demo` as it is run: real processes, and the real places unless a test brings its own.
//!
//! Counts are checked, times never.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take before a test gives up. Nothing takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One demo at a time: each has several busy processes.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn directory() -> TempDir {
    tempfile::Builder::new().prefix("kelix-demo-test-").tempdir().expect("a directory")
}

/// The demo, with a run directory and a place for temporary files of the test's own.
fn demo(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelix"));
    command.env("KELIX_DIR", directory.join("run")).env("TMPDIR", directory).stdin(Stdio::null());
    command.arg("demo");
    command
}

/// Runs a command that must succeed; returns what it printed.
#[track_caller]
fn ok(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&stderr);
    assert!(status.success() && said.is_empty(), "{command:?}: {status}\n{said}");
    String::from_utf8(stdout).expect("text")
}

/// Runs a command that must fail with this code; returns what it said.
#[track_caller]
fn failed(command: &mut Command, code: i32) -> String {
    let Output { status, stderr, .. } = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(code), "{said}");
    said
}

fn is_there(pid: u64) -> bool {
    // One that has ended and that nobody has waited for yet is a zombie.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A few hundred places, with names and divisions that need care.
fn few_places(directory: &Path) -> PathBuf {
    let mut text = "lat,lon,name,admin1,admin2,cc\n".to_string();
    for number in 0..400 {
        let region = ["North", "South/East", ""][number % 3];
        let district = ["", "Upper", "\"Lower, Old\""][number % 5 % 3];
        text += &format!("{number}.5,-7,\"Place \"\"{number}\"\"\",{region},{district},QQ\n");
    }
    let file = directory.join("few places.csv");
    std::fs::write(&file, text).expect("written");
    file
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn reads_cost_what_they_should() {
    let _alone = alone();
    let directory = directory();
    let summary: Value =
        serde_json::from_str(&ok(demo(directory.path()).args(["--quick", "--json"]))).expect("JSON");
    assert_eq!(summary["places"], 144_563, "has Cargo fetched another file of places?");
    for (count, expected) in [("countries", 246), ("regions", 3_713), ("districts", 15_598)] {
        assert_eq!(summary[count], expected, "{count}");
    }
    assert!(summary["credit"].as_str().expect("text").contains("CC BY 4.0"));
    assert!(number(&summary["answers_checked"]) > 0.0 && number(&summary["changes"]) > 0.0, "{summary}");

    let lines = summary["lines"].as_array().expect("lines");
    let names: Vec<&str> = lines.iter().filter_map(|line| line["line"].as_str()).collect();
    assert_eq!(names, ["idle", "index", "pointer", "link", "batch", "message"]);
    assert_eq!((&lines[0]["items"], &lines[0]["reads_per_item"]), (&0.into(), &Value::Null));
    for line in &lines[1..] {
        let per_item = |what: &str| number(&line[format!("{what}_per_item")]);
        // A bucket and the item, rarely a second bucket; a pointer is rarely stale, a link to a region never.
        let (reads, messages) = match line["line"].as_str().expect("a name") {
            "index" | "batch" => (2.0..2.2, 0.0),
            "pointer" => (1.0..1.1, 0.0),
            "link" => (1.0..1.001, 0.0),
            _ => (0.0..0.001, 1.0),
        };
        assert!(reads.contains(&per_item("reads")), "{line}");
        // A read that finds the item changed again and again asks the server in the end.
        let asked = number(&line["fallbacks"]) / number(&line["items"]);
        assert!((per_item("messages") - messages - asked).abs() < 1e-9 && asked < 0.01, "{line}");
        assert!(number(&line["p50_ns"]) <= number(&line["p99_ns"]), "{line}");
    }

    wait_until("the server's end", || !is_there(summary["server_pid"].as_u64().expect("a process id")));
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("it is there").collect();
    assert!(left.is_empty(), "the demo leaves {left:?}");
}

/// Ends the server that the demo was told to keep, whatever becomes of the test.
struct Kept(PathBuf);

impl Kept {
    fn pid(&self) -> Option<u64> {
        std::fs::read_to_string(self.0.join("lock")).ok()?.trim().parse().ok()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(pid) = self.pid() else { return };
        let _ = kill_process(Pid::from_raw(pid as i32).expect("a process id"), Signal::KILL);
    }
}

#[test]
fn the_commands_to_try_next_work_as_they_are_printed() {
    let _alone = alone();
    let directory = directory();
    let file = few_places(directory.path());
    let text = ok(demo(directory.path()).arg("--quick").arg("--data").arg(&file));
    for expected in ["CC BY 4.0", "400 places", "met every place once", "by cached pointer", "answers agree"]
    {
        assert!(text.contains(expected), "\"{expected}\" is not in:\n{text}");
    }
    let (_, commands) = text.split_once("Try next:\n").expect("suggestions");
    let commands: Vec<&str> = commands.lines().map(str::trim).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");

    let kept = Kept(directory.path().join("run"));
    let mut shown = Vec::new();
    for command in commands {
        let mut shell = Command::new("sh");
        shell.env("KELIX_DIR", &kept.0).stdin(Stdio::null()).args(["-c", command]);
        shown.push(ok(&mut shell));
    }
    let pid = kept.pid().expect("the server is kept");
    assert!(shown[0].contains(&format!("kill {pid}")), "{}", shown[0]);
    let link =
        shown[1].lines().find(|line| line.starts_with("country ->")).expect("the way up to the country");
    assert!(link.contains("(1 remote read of") && link.ends_with("0 messages)"), "{}", shown[1]);
    assert!(shown[2].contains(&format!("process {pid}")), "{}", shown[2]);

    let said = failed(demo(directory.path()).arg("--keep").arg("--data").arg(&file), 2);
    assert!(said.contains("has a server already"), "{said}");
    assert!(is_there(pid), "the server that was there has survived that");

    ok(Command::new("sh").args(["-c", &format!("kill {pid}")]));
    wait_until("the server's end", || !is_there(pid));
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let _alone = alone();
    let directory = directory();
    let mut child =
        demo(directory.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    // "Server  process PID, run directory ..."
    let server =
        lines.find_map(|line| line.strip_prefix("Server  process ")?.split(',').next()?.parse::<u64>().ok());
    let server = server.expect("it tells its server");
    // The table has begun, so all processes are at work.
    lines.find(|line| line.contains("CPU %")).expect("it comes to the table");
    let demo = Pid::from_raw(child.id() as i32).expect("a process id");
    kill_process(demo, Signal::TERM).expect("it is ours");
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
    let mut said = String::new();
    // The readers share this stream: its end says that they have ended too.
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(said, "kelix: interrupted\n");
    wait_until("the server's end", || !is_there(server));
    assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 0);
}

#[test]
fn failures_say_what_to_do() {
    let directory = directory();
    let missing = failed(demo(directory.path()).args(["--data", "/nonexistent/places.csv"]), 5);
    assert!(missing.contains("/nonexistent/places.csv") && missing.contains("--data FILE"), "{missing}");
    let cargo = failed(demo(directory.path()).env("CARGO", "/nonexistent/cargo"), 5);
    assert!(cargo.contains("/nonexistent/cargo") && cargo.contains("--data FILE"), "{cargo}");
    let file = directory.path().join("other.csv");
    std::fs::write(&file, "a,b\n1,2\n").expect("written");
    let other = failed(demo(directory.path()).arg("--data").arg(&file), 2);
    assert!(other.contains("lat,lon,name,admin1,admin2,cc"), "{other}");
    std::fs::write(&file, "lat,lon,name,admin1,admin2,cc\n1,2,A,B,C,DE\n1,2\n").expect("written");
    let short = failed(demo(directory.path()).arg("--data").arg(&file), 2);
    assert!(short.contains("line: 3"), "{short}");
}
