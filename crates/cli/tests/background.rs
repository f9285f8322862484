//! `kelix serve --background`: a server that outlives the command, alone and as a service's reload.

mod harness;

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use harness::{Done, Place, Running, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// A server in the background, by its process, which ends with the test.
struct Background(Pid);

impl Background {
    fn of(done: &Done) -> Background {
        assert_eq!(done.code, 0, "{done:?}");
        let pid = done.json()["pid"].as_i64().expect("a process id");
        Background(Pid::from_raw(pid as i32).expect("a process id"))
    }

    fn pid(&self) -> u32 {
        self.0.as_raw_nonzero().get() as u32
    }

    fn stop(&self) {
        kill_process(self.0, Signal::TERM).expect("it runs");
        wait_until("its end", || (!runs(self.pid())).then_some(()));
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if runs(self.pid()) {
            let _ = kill_process(self.0, Signal::KILL);
        }
    }
}

/// Whether a process has not ended. One that nobody waits for counts as one that has.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// The processes whose command line names this directory.
fn processes(directory: &Path) -> Vec<u32> {
    let directory = directory.to_str().expect("plain letters");
    let pids = std::fs::read_dir("/proc").expect("processes").filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        words.split(|byte| *byte == 0).any(|word| word == directory.as_bytes()).then_some(pid)
    });
    pids.filter(|pid| runs(*pid)).collect()
}

const SERVE: [&str; 6] = ["serve", "--memory", "64M", "--no-pin", "--json", "--background"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SERVE[..], more].concat()
}

#[test]
fn it_comes_back_once_clients_can_connect_and_the_server_stays() {
    let place = Place::new();
    let server = Background::of(&place.kelix_apart(&[], &with(&[])));
    assert_eq!(processes(place.path()), [server.pid()]);
    place.kelix(&["put", "t", "k", "v"]).ok();
    // One more is refused as one in the foreground is, and leaves the first one alone.
    let refused = place.kelix_apart(&[], &with(&[]));
    assert!(refused.error(2)["context"].as_str().unwrap().contains("--take-over"), "{refused:?}");
    assert_eq!(place.kelix(&["get", "t", "k"]).ok(), "v\n");
    server.stop();
    assert_eq!(place.kelix(&["put", "t", "k", "v"]).code, 3);
}

/// A reader of all that the command says does not wait for the end of the server.
#[test]
fn with_a_log_file_nothing_of_the_caller_is_kept() {
    let place = Place::new();
    let log = place.path().join("log").display().to_string();
    let mut command = place.command(&with(&["--log-file", &log]));
    let done = command.stderr(Stdio::piped()).stdout(Stdio::piped()).output().expect("it comes back");
    let ready: serde_json::Value = serde_json::from_slice(&done.stdout).expect("its line");
    let server = Background(Pid::from_raw(ready["pid"].as_i64().expect("a process id") as i32).expect("one"));
    assert!(done.status.success() && runs(server.pid()));
    server.stop();
}

/// The exit code says that the start failed, so nothing runs.
#[test]
fn a_server_that_cannot_say_that_it_serves_ends() {
    let place = Place::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a full disk");
    let mut command = place.command(&with(&[]));
    let status = command.stdout(full).stderr(Stdio::null()).status().expect("it comes back");
    assert!(!status.success());
    assert_eq!(processes(place.path()), [0; 0]);
}

#[test]
fn a_server_that_cannot_start_says_why_and_nothing_is_left() {
    let place = Place::new();
    let failed = place.kelix_apart(&[], &with(&["--listen", "203.0.113.1:1"]));
    let error = failed.error(failed.code);
    assert!(failed.code != 0 && error["context"].as_str().unwrap().contains("203.0.113.1:1"), "{failed:?}");
    assert!(processes(place.path()).is_empty());
}

/// A server that waits for a primary which never says anything, so that nobody can connect; and the address
/// of that one.
fn waiting(place: &Place) -> (Running, TcpListener, TcpStream) {
    let primary = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = primary.local_addr().expect("an address").to_string();
    let waiting = place.kelix_to(Stdio::null(), &with(&["--mirror-of", &address]));
    let (connection, _) = primary.accept().expect("whoever wants to follow");
    (waiting, primary, connection)
}

#[test]
fn a_server_that_is_killed_before_it_serves_is_an_error() {
    let place = Place::new();
    let (mut waiting, _primary, _connection) = waiting(&place);
    let server = processes(place.path()).into_iter().find(|pid| *pid != waiting.pid());
    let server = Pid::from_raw(server.expect("the process that is to serve") as i32);
    kill_process(server.expect("its number"), Signal::KILL).expect("it runs");
    assert_eq!(waiting.end(), Some(5));
    assert!(processes(place.path()).is_empty());
}

#[test]
fn told_to_end_while_it_waits_it_leaves_no_server() {
    let place = Place::new();
    let (mut waiting, _primary, _connection) = waiting(&place);
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.end(), Some(5));
    assert!(processes(place.path()).is_empty());
}

/// The next message of a socket that does not only say that the server is alive.
fn hears(socket: &UnixDatagram) -> String {
    loop {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).expect("a message");
        let text = String::from_utf8(bytes[..length].to_vec()).expect("text");
        if text != "WATCHDOG=1" {
            return text;
        }
    }
}

/// What the unit's `ExecReload` does: another process takes over, and says itself that it is the one now.
#[test]
fn a_reload_takes_over_and_the_manager_hears_of_it() {
    let place = Place::new();
    let path = place.path().join("notify");
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_pathname(&path).unwrap()).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let mut first = place.serve_knowing(&variables, &[]);
    assert!(hears(&socket).starts_with("READY=1"));
    place.kelix(&["put", "t", "k", "kept"]).ok();

    let second = Background::of(&place.kelix_apart(&variables, &with(&["--take-over"])));
    // Which of both is heard first is theirs.
    let mut heard = [hears(&socket), hears(&socket)];
    heard.sort();
    assert_eq!(heard[0], format!("MAINPID={}", second.pid()));
    assert!(heard[1].starts_with("READY=1\nSTATUS=serving "), "{heard:?}");
    assert_eq!(first.end().0, Some(3));
    assert_eq!(place.kelix(&["get", "t", "k"]).ok(), "kept\n");
    // The manager may watch the main process, and has told the first one only.
    let mut bytes = [0; 64];
    let length = socket.recv(&mut bytes).expect("a message");
    assert_eq!(&bytes[..length], b"WATCHDOG=1");

    // A reload that is refused changes nothing.
    let refused = place.kelix_apart(&variables, &with(&["--take-over", "--shards", "2"]));
    assert!(refused.code != 0 && refused.err.contains("shards"), "{refused:?}");
    place.kelix(&["put", "t", "k", "still"]).ok();
    second.stop();
    assert!(hears(&socket).starts_with("STOPPING=1"));
}

/// A server that is started by a file of options would start another one that does the same.
#[test]
fn a_file_does_not_set_it() {
    let place = Place::new();
    let file = place.file("kelix.toml", b"[serve]\nbackground = true\n");
    let refused = place.kelix(&["serve", "--config", file.to_str().unwrap()]);
    assert!(refused.code == 2 && refused.err.contains("background"), "{refused:?}");
}

/// A cluster whose nodes outlive the commands that start them, and end with the test.
struct Started<'a>(&'a Place);

impl Drop for Started<'_> {
    fn drop(&mut self) {
        self.0.kelix_of_cluster([&["cluster", "stop"]]);
    }
}

/// Both found that no node runs; the second forgot what the first had begun, and one of them failed.
#[test]
fn two_starts_of_a_cluster_at_once_begin_one() {
    let place = Place::new();
    let _started = Started(&place);
    let start: &[&str] = &["cluster", "start", "--local", "2", "--memory", "64M"];
    let done = place.kelix_of_cluster([start; 3]);
    for done in &done {
        assert!(done.code == 0 && done.text().contains("2 nodes in sync"), "{done:?}");
    }
    let begins = done.iter().filter(|done| done.err.contains("begins, empty")).count();
    assert_eq!(begins, 1, "{done:?}");
}

#[test]
fn a_command_for_a_cluster_that_there_is_not_names_the_cluster() {
    let place = Place::new();
    let [kill, status] = place.kelix_of_cluster([&["cluster", "kill", "1"], &["cluster", "status"]]);
    kill.failed(1, &["there is no cluster c"]);
    status.failed(1, &["kelix --cluster c cluster start"]);
}
