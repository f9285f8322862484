//! `kelix serve` as a service: what a manager is told, when, and the file of the log.

mod harness;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use harness::{Place, Server, wait_until};
use rustix::process::Signal;

/// A service manager: the socket that it is told on.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    fn at(address: &SocketAddr) -> Manager {
        let socket = UnixDatagram::bind_addr(address).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        Manager { socket }
    }

    /// The next message, line by line.
    fn hears(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..length].to_vec()).expect("text").lines().map(str::to_string).collect()
    }

    /// The next message that does not only say that the server is alive.
    fn hears_of_change(&self) -> Vec<String> {
        std::iter::from_fn(|| Some(self.hears())).find(|lines| lines != &["WATCHDOG=1"]).expect("a message")
    }

    fn has_heard_more(&self) -> bool {
        self.socket.set_nonblocking(true).expect("a flag");
        self.socket.recv(&mut [0; 16]).is_ok()
    }
}

/// What a manager hears from the beginning to the end of a server whose `NOTIFY_SOCKET` this is.
fn a_life(manager: &Manager, place: &Place, name: &str) {
    let log = place.path().join("log");
    let mut server = place
        .serve_knowing(&[("NOTIFY_SOCKET", name)], &["--log", "info", "--log-file", log.to_str().unwrap()]);
    // It was told before the line was printed that this has waited for.
    let ready = manager.hears();
    assert_eq!(ready, ["READY=1", &format!("STATUS={}", server.ready.trim_end())]);
    assert!(ready[1].starts_with("STATUS=serving ") && ready[1].contains("term "), "{ready:?}");

    let before = monotonic_usec();
    server.signal(Signal::HUP);
    let reloading = manager.hears();
    assert_eq!((reloading.len(), &reloading[0][..]), (2, "RELOADING=1"), "{reloading:?}");
    let usec = reloading[1].strip_prefix("MONOTONIC_USEC=").and_then(|usec| usec.parse::<u64>().ok());
    assert!(usec.is_some_and(|usec| (before..=monotonic_usec()).contains(&usec)), "{reloading:?}");
    assert_eq!(manager.hears(), ["READY=1"]);

    server.signal(Signal::TERM);
    let stopping = manager.hears();
    assert!(stopping[0] == "STOPPING=1" && stopping[1].starts_with("STATUS="), "{stopping:?}");
    assert_eq!(server.end(), (Some(0), String::new()));
    assert!(!manager.has_heard_more());
}

fn monotonic_usec() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

#[test]
fn a_manager_is_told_at_a_path() {
    let place = Place::new();
    let path = place.path().join("notify");
    let manager = Manager::at(&SocketAddr::from_pathname(&path).unwrap());
    a_life(&manager, &place, path.to_str().unwrap());
}

#[test]
fn a_manager_is_told_by_a_name_in_no_file_system() {
    let place = Place::new();
    let name = format!("kelix-test/{}", place.path().display());
    let manager = Manager::at(&SocketAddr::from_abstract_name(&name).unwrap());
    a_life(&manager, &place, &format!("@{name}"));
}

/// When a manager hears that the server is ready, the first client gets in.
#[test]
fn ready_means_that_clients_can_connect() {
    for _ in 0..5 {
        let place = Place::new();
        let path = place.path().join("notify");
        let manager = Manager::at(&SocketAddr::from_pathname(&path).unwrap());
        std::thread::scope(|scope| {
            let serves =
                scope.spawn(|| place.serve_knowing(&[("NOTIFY_SOCKET", path.to_str().unwrap())], &[]));
            assert_eq!(manager.hears()[0], "READY=1");
            place.kelix(&["put", "t", "k", "v"]).ok();
            drop(serves.join().expect("a server"));
        });
    }
}

#[test]
fn a_server_that_is_superseded_says_so() {
    let place = Place::new();
    let path = place.path().join("notify");
    let manager = Manager::at(&SocketAddr::from_pathname(&path).unwrap());
    let mut first = place.serve_knowing(&[("NOTIFY_SOCKET", path.to_str().unwrap())], &[]);
    assert_eq!(manager.hears()[0], "READY=1");
    let second = place.serve(&["--take-over"]);
    assert_eq!(manager.hears(), [format!("MAINPID={}", second.pid())]);
    assert_eq!(first.end().0, Some(3));

    // One to which nothing is handed over does not go on with the service.
    let place = Place::new();
    let path = place.path().join("notify");
    let manager = Manager::at(&SocketAddr::from_pathname(&path).unwrap());
    let kept = place.path().join("kept");
    let kept = ["--snapshots", kept.to_str().unwrap()];
    let mut first = place.serve_knowing(&[("NOTIFY_SOCKET", path.to_str().unwrap())], &kept);
    assert_eq!(manager.hears()[0], "READY=1");
    let _second = place.serve(&[&kept[..], &["--take-over", "--fresh"]].concat());
    let stopping = manager.hears();
    assert!(stopping[0] == "STOPPING=1" && stopping[1].contains("superseded"), "{stopping:?}");
    assert_eq!(first.end().0, Some(3));
}

fn watched(place: &Place, variables: &[(&str, &str)]) -> (Manager, Server) {
    let path = place.path().join("notify");
    let manager = Manager::at(&SocketAddr::from_pathname(&path).unwrap());
    let path = path.to_str().unwrap();
    let variables: Vec<_> = variables.iter().copied().chain([("NOTIFY_SOCKET", path)]).collect();
    let server = place.serve_knowing(&variables, &["--shards", "2"]);
    (manager, server)
}

#[test]
fn a_watchdog_hears_from_a_server_that_lives() {
    let place = Place::new();
    let (manager, server) = watched(&place, &[("WATCHDOG_USEC", "200000")]);
    let heard: Vec<_> = (0..6).map(|_| manager.hears()).collect();
    assert!(heard.iter().filter(|lines| *lines == &["WATCHDOG=1"]).count() == 5, "{heard:?}");
    // Nothing comes of one that stands still, but for what is on its way.
    server.stand_still();
    manager.socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let silent = |_| manager.socket.recv(&mut [0; 64]).is_err();
    assert!((0..10).any(silent), "a server that is stopped says that it is alive");
    server.signal(Signal::CONT);
    manager.socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(manager.hears(), ["WATCHDOG=1"]);
    server.signal(Signal::TERM);
    assert_eq!(manager.hears_of_change()[0], "STOPPING=1");
}

/// The variables of systemd's own process come down to all that it starts.
#[test]
fn a_watchdog_of_another_process_hears_nothing() {
    let place = Place::new();
    let (manager, mut server) = watched(&place, &[("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")]);
    assert_eq!(manager.hears()[0], "READY=1");
    place.kelix(&["put", "t", "k", "v"]).ok();
    server.signal(Signal::TERM);
    assert_eq!(manager.hears()[0], "STOPPING=1");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_manager_that_does_not_listen_is_no_reason_not_to_serve() {
    for name in ["/nowhere/notify", "@kelix-test-nobody", "vsock:2:1"] {
        let place = Place::new();
        let mut server = place.serve_knowing(&[("NOTIFY_SOCKET", name)], &[]);
        place.kelix(&["put", "t", "k", "v"]).ok();
        server.signal(Signal::TERM);
        let (code, said) = server.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains("WARN") && (said.contains("NOTIFY_SOCKET") || said.contains("READY=1")),
            "{said}"
        );
    }
}

fn lines_of(path: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

/// What logrotate does: the file gets another name, and the server is told.
#[test]
fn a_log_in_a_file_is_opened_anew() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let (log, old) = (place.path().join("log"), place.path().join("log.1"));
    let mut server =
        place.serve(&["--log", "debug", "--log-format", "json", "--log-file", log.to_str().unwrap()]);
    place.kelix(&["put", "t", "k", "v"]).ok();
    let says = |path: &std::path::Path, what: &str| lines_of(path).iter().any(|line| line.contains(what));
    wait_until("a client in the log", || says(&log, "client left").then_some(()));
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777 & 0o137, 0);
    std::fs::rename(&log, &old).unwrap();
    server.signal(Signal::HUP);
    wait_until("a new file", || says(&log, "opened anew").then_some(()));
    place.kelix(&["get", "t", "k"]).ok();
    wait_until("the next client in the new file", || says(&log, "client connected").then_some(()));
    server.signal(Signal::TERM);
    assert_eq!(server.end(), (Some(0), String::new()));
    assert!(says(&old, "server started") && !says(&old, "server stopped"));
    assert!(says(&log, "server stopped") && !says(&log, "server started"));
    for line in lines_of(&log).iter().chain(&lines_of(&old)) {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
    // The next server writes behind what is there.
    let mut server = place.serve(&["--log", "info", "--log-file", log.to_str().unwrap()]);
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    assert!(says(&log, "opened anew") && says(&log, "server started"));
}

#[test]
fn a_log_that_cannot_be_opened_anew_goes_on_where_it_is() {
    let place = Place::new();
    let directory = place.path().join("logs");
    let moved = place.path().join("moved");
    std::fs::create_dir(&directory).unwrap();
    let log = directory.join("log");
    let mut server = place.serve(&["--log", "info", "--log-file", log.to_str().unwrap()]);
    std::fs::rename(&directory, &moved).unwrap();
    server.signal(Signal::HUP);
    let moved = moved.join("log");
    wait_until("a word about it", || {
        lines_of(&moved)
            .iter()
            .any(|line| line.contains("ERROR") && line.contains("opened anew"))
            .then_some(())
    });
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    assert!(lines_of(&moved).last().is_some_and(|line| line.contains("server stopped")));
    place
        .kelix(&["serve", "--log-file", log.to_str().unwrap()])
        .failed(5, &["cannot open the log", "logs/log"]);
}

#[test]
fn without_a_file_a_hang_up_is_ignored() {
    let (place, mut server) = Place::served();
    server.signal(Signal::HUP);
    place.kelix(&["put", "t", "k", "v"]).ok();
    server.signal(Signal::TERM);
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("SIGHUP") && said.contains("--log-file"), "{said}");
}

#[test]
fn completions_and_manual_pages() {
    let place = Place::new();
    for (shell, word) in [("bash", "complete -F"), ("zsh", "#compdef kelix"), ("fish", "complete -c kelix")] {
        let completions = place.kelix(&["completions", shell]);
        assert!(completions.ok().contains(word) && completions.ok().contains("take-over"), "{shell}");
    }
    place.kelix(&["completions", "tcsh"]).failed(2, &["tcsh"]);
    let manual = place.path().join("man/man1");
    place.kelix(&["manual", manual.to_str().unwrap()]).ok();
    let page = |name: &str| std::fs::read_to_string(manual.join(name)).unwrap_or_else(|_| panic!("{name}"));
    assert!(page("kelix.1").contains("Exit codes"));
    assert!(page("kelix-serve.1").contains("log\\-file") && page("kelix-serve.1").contains("Examples"));
    assert!(page("kelix-table-create.1").contains("kelix\\-table\\-create"));
    place.kelix(&["manual", "/proc/nowhere"]).failed(5, &["/proc/nowhere"]);
}
