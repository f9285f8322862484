//! Arguments that make no sense, outputs that take nothing, and runs that are ended.

mod harness;

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use harness::{Place, wait_until};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn what_a_benchmark_does_not_take_is_told() {
    let place = Place::new();
    for (args, wanted) in [
        (&["spine", "--records", "999"][..], "from 1000 on"),
        (&["projection", "--records", "1999"], "from 2000 on"),
        (&["report", "--only", "peers", "--records", "1"], "from 1000 on"),
        (&["spine", "--clients", "2"], "peers and sweep do"),
        (&["peers", "--keys", "x"], "trace FILE"),
    ] {
        let done = place.bench(args);
        done.failed(2, &[wanted]);
        assert!(!done.err.contains("invalid digit"), "{done:?}");
    }
    let file = place.file("nic.toml", b"name = \"x\"\nports = \"x\"\n");
    place.bench(&["--project", file.to_str().expect("text")]).failed(2, &["nic.toml, line 2: "]);
}

#[test]
fn an_output_that_nobody_reads_or_that_is_full_ends_a_bench_without_a_panic() {
    let place = Place::new();
    let bench = |output: Stdio| {
        let mut bench = place.command(&["spine", "--records", "1000"]);
        let done = bench.env("TMPDIR", place.path()).stdout(output).output().expect("it runs");
        (done.status.code(), String::from_utf8(done.stderr).expect("text"))
    };
    let full = OpenOptions::new().write(true).open("/dev/full").expect("a full device");
    let (code, told) = bench(full.into());
    assert!(code == Some(5) && told.contains("cannot write the output"), "{code:?}: {told}");
    let (reader, writer) = UnixStream::pair().expect("a pair");
    drop(reader);
    assert_eq!(bench(OwnedFd::from(writer).into()), (Some(0), String::new()));
}

#[test]
fn a_bench_that_a_signal_ends_leaves_nothing() {
    let place = Place::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut bench = place.command(&["spine", "--records", "200000"]);
        bench.env("TMPDIR", place.path());
        bench.stdout(Stdio::null()).stderr(Stdio::null());
        let mut bench = bench.spawn().expect("it starts");
        let folders = || {
            let entries = std::fs::read_dir(place.path()).expect("a folder").flatten();
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("kelix-bench-")).count()
        };
        wait_until("it to have a folder", || (folders() > 0).then_some(()));
        kill_process(Pid::from_child(&bench), signal).expect("it is there");
        let status = bench.wait().expect("it ends");
        assert_eq!((status.code(), status.signal()), (Some(128 + signal.as_raw()), None));
        assert_eq!(folders(), 0, "{signal:?}");
    }
}
