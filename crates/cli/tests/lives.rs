//! Lives of a store that follow each other: after a crash, a reboot, a move to another host, a take-over.
//! What one life was is never taken for another, and a life that cannot begin ends none.

mod harness;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Place, Server, wait_until};
use kelix::{Client, ErrorKind, SessionOptions};
use rustix::process::Signal;

/// A directory for snapshots beside the run directory.
fn kept(place: &Place) -> (PathBuf, String) {
    let kept = place.path().join("kept");
    let text = kept.to_str().expect("a path of plain letters").to_string();
    (kept, text)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "kelix-snapshot")).collect();
    files.sort();
    files
}

/// A port that a server listens at, which may be another's when this returns, though nobody here asks for
/// ports meanwhile.
fn port_of(server: &Server, what: &str) -> u16 {
    let at = server.ready.split(what).nth(1).expect("an address").trim();
    let digits: String =
        at.chars().skip_while(|c| *c != ':').skip(1).take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a port")
}

fn version(place: &Place, key: &str) -> u64 {
    let found = place.kelix(&["get", "t", key, "--json"]).json();
    found["version"].as_str().expect("a version").parse().expect("a number")
}

/// As a reboot does, which empties the file systems that run directories are on.
fn forget_run_directory(place: &Place) {
    for entry in fs::read_dir(place.path()).expect("a directory").flatten() {
        if entry.file_name() != "kept" && entry.file_name() != "other" {
            fs::remove_file(entry.path()).expect("removed");
        }
    }
}

/// Terms were counted in the run directory alone, and incarnations began with them: after a reboot, and a
/// second one before the next snapshot, the store gave the same versions once more, so that a comparison
/// succeeded with what nobody had seen.
#[test]
fn no_version_is_given_twice_whatever_becomes_of_run_directory_and_snapshots() {
    let place = Place::new();
    let (directory, snapshots) = kept(&place);
    let serve = || place.serve(&["--snapshots", &snapshots]);
    let mut server = serve();
    place.kelix(&["put", "t", "first", "0"]).ok();
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    let old = files(&directory).pop().expect("the last snapshot");
    let mut seen = Vec::new();
    for life in 0..6 {
        forget_run_directory(&place);
        if life % 3 == 2 {
            // The snapshot was moved to where nothing else is known of the store.
            fs::remove_file(directory.join("store")).expect("removed");
        }
        let server = serve();
        assert_eq!(place.kelix(&["get", "t", "first"]).ok(), "0\n");
        for number in 0..20 {
            place.kelix(&["put", "t", &format!("k{number}"), &life.to_string()]).ok();
            seen.push(version(&place, &format!("k{number}")));
        }
        drop(server);
        assert_eq!(files(&directory), std::slice::from_ref(&old), "each life begins with the same snapshot");
    }
    let given = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), given, "versions came twice");
}

/// Who a server is was its term and the seed of its store, which a reboot gave again: a session that went on
/// by itself took the server of the next life for its own, and its handle of one table led to another.
#[test]
fn a_handle_of_one_life_never_leads_to_a_table_of_another() {
    let place = Place::new();
    let (_, snapshots) = kept(&place);
    let port =
        { TcpListener::bind("127.0.0.1:0").and_then(|probe| probe.local_addr()).expect("a port").port() };
    let serve = || place.serve(&["--snapshots", &snapshots, "--listen", &port.to_string()]);
    let mut server = serve();
    place.kelix(&["put", "counters", "c", "0"]).ok();
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    forget_run_directory(&place);
    let server = serve();
    let tcp = kelix::Address::Tcp(format!("127.0.0.1:{port}"));
    let going_on = SessionOptions::default().retry_for(Duration::from_secs(20));
    let mut sessions = [
        Client::connect(place.path()).expect("a server").session().expect("a session"),
        Client::connect(&tcp).expect("a server").session().expect("a session"),
        Client::connect(&tcp).expect("a server").session_with(going_on).expect("a session"),
    ];
    let handles = sessions.each_mut().map(|session| {
        let table = session.create_table("salaries").expect("a table");
        session.put(table, b"alice", b"1000").expect("put");
        table
    });
    drop(server);
    forget_run_directory(&place);
    let _server = serve();
    place.kelix(&["put", "public", "alice", "hello"]).ok();
    for (session, table) in sessions.iter_mut().zip(handles) {
        for _ in 0..2 {
            let read = session.get(table, b"alice").map(|found| found.map(|item| item.value().to_vec()));
            assert!(!matches!(&read, Ok(Some(value)) if value == b"hello"), "a salary was read in public");
            let written = session.put(table, b"alice", b"2000");
            assert!(written.is_err(), "{written:?}");
            session.reconnect().expect("a server");
        }
    }
    assert_eq!(place.kelix(&["get", "public", "alice"]).ok(), "hello\n");
}

/// Two servers that were given one directory for snapshots removed each other's, and began with each other's.
#[test]
fn a_directory_of_snapshots_is_one_servers() {
    let place = Place::new();
    let (directory, snapshots) = kept(&place);
    let server = place.serve(&["--snapshots", &snapshots]);
    place.kelix(&["put", "t", "k", "of the first"]).ok();
    place.kelix(&["snapshot", "take"]);
    let other = Place::new();
    let refused = other.kelix(&["serve", "--memory", "64M", "--snapshots", &snapshots]);
    refused.failed(2, &[&snapshots, &server.pid().to_string(), place.path().to_str().unwrap(), "of its own"]);
    // Also where it could take over a run directory of its own.
    let others = other.serve(&[]);
    let refused = other.kelix(&["serve", "--memory", "64M", "--take-over", "--snapshots", &snapshots]);
    refused.failed(2, &[&snapshots, "of its own"]);
    other.kelix(&["put", "t", "k", "v"]).ok();
    drop(others);
    // A server that was killed has let go of the directory.
    drop(server);
    let mut heir = other.serve(&["--snapshots", &snapshots]);
    assert_eq!(other.kelix(&["get", "t", "k"]).ok(), "of the first\n");
    heir.signal(Signal::TERM);
    assert_eq!(heir.end().0, Some(0));
    // A snapshot of another store beside these is not taken for one of them.
    let third = Place::new();
    let (elsewhere, text) = kept(&third);
    let mut server = third.serve(&["--snapshots", &text]);
    third.kelix(&["put", "t", "k", "of the third"]).ok();
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    let strange = files(&elsewhere).pop().expect("a snapshot");
    fs::copy(&strange, directory.join(strange.file_name().unwrap())).expect("copied");
    let refused = other.kelix(&["serve", "--memory", "64M", "--snapshots", &snapshots]);
    refused.failed(2, &[strange.file_name().unwrap().to_str().unwrap(), "another store"]);
}

/// A server that took over voided the old one first, and found out then that it could not serve: none was
/// left.
#[test]
fn a_take_over_that_fails_leaves_the_old_server_as_it_was() {
    let place = Place::new();
    let (directory, snapshots) = kept(&place);
    let mut server = place.serve_planned(&["--snapshots", &snapshots, "--memory", "96M"]);
    let large = place.file("large", &vec![7; 900_000]);
    let values: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    for key in &values {
        place.kelix(&["put", "t", key, "--file", large.to_str().unwrap()]).ok();
    }
    place.kelix(&["snapshot", "take"]);
    place.kelix(&["put", "t", "k", "acknowledged"]).ok();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let nowhere = place.file("a-file", b"");
    let below = nowhere.join("below");
    let cases: &[(&str, &[&str])] = &[
        ("a port of another program", &["--listen", &port]),
        ("a port for metrics of another program", &["--metrics", &port]),
        ("too little memory for the snapshot", &["--memory", "16M", "--snapshots", &snapshots]),
        ("other shards than in the snapshot", &["--shards", "2", "--snapshots", &snapshots]),
        ("no directory for snapshots", &["--snapshots", below.to_str().unwrap()]),
        ("an address for RDMA that is no device's", &["--listen", "0", "--rdma", "127.0.0.1"]),
        ("a log that cannot be written", &["--log-file", below.to_str().unwrap()]),
    ];
    for (case, args) in cases {
        let failed = place.kelix(&[&["serve", "--no-pin", "--take-over"], *args].concat());
        assert!([2, 5].contains(&failed.code), "{case}: {failed:?}");
        assert!(failed.err.starts_with("kelix: "), "{case}: {failed:?}");
        assert_eq!(place.kelix(&["get", "t", "k"]).ok(), "acknowledged\n", "{case}");
        place.kelix(&["put", "t", "again", case]).ok();
        assert_eq!(place.kelix(&["stat", "--json"]).json()["term"], 1, "{case}");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    assert_eq!(files(&directory).len(), 2);
    let _heir = place.serve_planned(&["--snapshots", &snapshots, "--memory", "96M"]);
    assert_eq!(place.kelix(&["get", "t", "k"]).ok(), "acknowledged\n", "in the last snapshot");
}

/// A stopped server still had the port that its successor was to listen at, which is what a unit file says:
/// so a take-over of just the server that it is for failed.
#[test]
fn a_stopped_server_is_taken_over_at_its_own_ports() {
    let place = Place::new();
    let (_, snapshots) = kept(&place);
    let mut first = place.serve(&["--snapshots", &snapshots, "--listen", "0", "--metrics", "0"]);
    place.kelix(&["put", "t", "k", "v"]).ok();
    place.kelix(&["snapshot", "take"]);
    let (tcp, metrics) = (port_of(&first, "tcp at "), port_of(&first, "metrics at http://"));
    first.stand_still();
    let (tcp, metrics) = (tcp.to_string(), metrics.to_string());
    let second =
        place.serve(&["--take-over", "--snapshots", &snapshots, "--listen", &tcp, "--metrics", &metrics]);
    for _ in 0..200 {
        let client =
            Client::connect(kelix::Address::Tcp(format!("127.0.0.1:{tcp}"))).expect("the new server");
        assert_eq!(client.statistics().expect("an answer").server.pid, second.pid());
    }
    let page = std::process::Command::new("curl")
        .args(["-s", &format!("http://127.0.0.1:{metrics}/metrics")])
        .output();
    if let Ok(page) = page {
        assert!(String::from_utf8_lossy(&page.stdout).contains("kelix_"), "{page:?}");
    }
    assert_eq!(place.kelix_at(&format!("127.0.0.1:{tcp}"), &["get", "t", "k"]).ok(), "v\n");
    // The stopped server ends by itself, once it can see that it was superseded.
    first.signal(Signal::CONT);
    assert_eq!(first.end().0, Some(3));
}

/// A run directory that somebody removed let a second server begin beside the first, whose clients never
/// learnt of it.
#[test]
fn a_server_whose_run_directory_became_anothers_ends() {
    let place = Place::new();
    let mut first = place.serve(&[]);
    let mut session = Client::connect(place.path()).expect("a server").session().expect("a session");
    let table = session.create_table("t").expect("a table");
    session.put(table, b"k", b"of the first").expect("put");
    forget_run_directory(&place);
    let _second = place.serve(&[]);
    assert_eq!(first.end().0, Some(3));
    let error = wait_until("the client to learn of it", || session.get(table, b"k").err());
    assert_eq!(error.kind(), ErrorKind::Superseded);
}

/// A server that runs hands over what it has, snapshots among it, at its own ports; it ends with 3, and both
/// say how long nobody was served.
#[test]
fn a_running_server_hands_over() {
    let place = Place::new();
    let (directory, snapshots) = kept(&place);
    let options = ["--snapshots", &snapshots[..], "--log", "info", "--shards", "2"];
    let mut first = place.serve(&[&options[..], &["--listen", "0", "--metrics", "0"]].concat());
    place.kelix(&["put", "t", "old", "v"]).ok();
    place.kelix(&["snapshot", "take"]);
    place.kelix(&["put", "t", "k", "in no snapshot"]).ok();
    let before = version(&place, "k");
    let (tcp, metrics) = (port_of(&first, "tcp at "), port_of(&first, "metrics at http://"));
    let (tcp, metrics) = (tcp.to_string(), metrics.to_string());
    let take_over = ["--take-over", "--listen", &tcp, "--metrics", &metrics];
    let mut second = place.serve(&[&options[..], &take_over].concat());
    let (code, said) = first.end();
    assert_eq!(code, Some(3));
    assert!(said.contains("handed over to the next server ms="), "{said}");
    assert_eq!(place.kelix(&["get", "t", "k"]).ok(), "in no snapshot\n");
    assert_eq!(place.kelix_at(&format!("127.0.0.1:{tcp}"), &["get", "t", "old"]).ok(), "v\n");
    assert_eq!(version(&place, "k"), before, "it is the same item");
    place.kelix(&["put", "t", "k", "behind"]).ok();
    assert!(version(&place, "k") > before);
    second.signal(Signal::TERM);
    let (code, said) = second.end();
    assert_eq!(code, Some(0));
    assert!(said.contains("handed over: so long nobody was served") && said.contains("ms="), "{said}");
    // What there was counts for the next start as well.
    assert_eq!(files(&directory).len(), 2);
    let mut third = place.serve(&options);
    assert_eq!(place.kelix(&["get", "t", "k"]).ok(), "behind\n");
    // A server that is to begin empty does.
    let _fourth = place.serve(&[&options[..], &["--take-over", "--fresh"]].concat());
    assert_eq!(third.end().0, Some(3));
    place.kelix(&["get", "t", "k"]).failed(1, &["no table \"t\""]);
}
