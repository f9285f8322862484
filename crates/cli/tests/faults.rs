//! System calls that fail once, in servers and commands as they run: `strace` has the Nth call of a kind fail
//! in each thread.
//!
//! Whatever fails, a server serves everybody afterwards, over each fabric and for metrics, or ends with its
//! cause and loses nothing that a snapshot had: no process stays whose port is dead. A command gets what is
//! there, or tells why not.
//!
//! What the system never does is left out, since libraries do not expect such things: a failed FUTEX_WAKE, an
//! interrupted write to a pipe that does not block. So is what comes before the program's own first line.

mod harness;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::{Done, Place, Server, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// Exit codes of a server that ends because something failed, and of commands.
const CODES: [i32; 4] = [1, 2, 3, 5];

/// A call that fails in each thread when the thread makes the Nth one, and its error.
type Fault<'a> = (&'a str, &'a str, usize);

/// Runs something that takes options of strace: these, and those for a fault.
fn with_fault<T>(more: &[&str], (call, error, which): Fault<'_>, run: impl FnOnce(&[&str]) -> T) -> T {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}:when={which}"));
    run(&[more, &["-e", &trace, "-e", &inject]].concat())
}

/// Which calls of a kind a program's first thread makes by itself, spread over up to so many: the first ones
/// are the loader's and the language's. `run` runs the program, below strace with these options.
fn own_calls(place: &Place, call: &str, most: usize, run: impl FnOnce(&[&str])) -> Vec<usize> {
    let trace = place.path().join("calls");
    run(&["-o", trace.to_str().unwrap(), "-e", &format!("trace={call},sigaltstack")]);
    let calls = wait_until("the trace's end; can strace trace here (ptrace)?", || {
        std::fs::read_to_string(&trace).ok().filter(|calls| calls.contains("+++ exited"))
    });
    // The language's runtime makes a stack for signals just before `main`.
    let begins = calls.lines().position(|line| line.contains("sigaltstack({ss_sp=0x")).unwrap_or(0);
    let is_one = |line: &&str| line.starts_with(&format!("{call}("));
    let before = calls.lines().take(begins).filter(is_one).count();
    let own = calls.lines().filter(is_one).count() - before;
    let tried = most.min(own);
    (0..tried).map(|number| before + 1 + number * own / tried).collect()
}

/// Whether metrics are answered.
fn metrics(at: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(at) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let _ = write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.starts_with("HTTP/1.1 200") && answer.contains("kelix_items")
}

/// Whether a server that has ended said why. Libraries panic where they are refused what they never do
/// without, and a panic ends it, too.
fn tells_why(said: &str) -> bool {
    said.contains("kelix: ") || said.contains("panicked")
}

/// What follows `words` where a server said that it is ready.
fn address<'a>(server: &'a Server, words: &str) -> &'a str {
    let (_, rest) = server.ready.split_once(words).expect("an address");
    rest.split([',', '/', '\n']).next().unwrap()
}

/// A store whose servers come and go, and the values that its key may have, as far as anybody was told.
struct Store {
    place: Place,
    snapshots: String,
    possible: Vec<String>,
}

impl Store {
    fn new() -> Store {
        let place = Place::new();
        let snapshots = place.path().join("kept").to_str().expect("plain letters").to_string();
        let store = Store { place, snapshots, possible: vec!["first".into()] };
        let mut server = store.serve(&[]).expect("a server");
        store.place.kelix(&["put", "t", "k", "first"]).ok();
        server.signal(Signal::TERM);
        assert_eq!(server.end().0, Some(0));
        store
    }

    fn command(&self) -> Vec<&str> {
        let words = ["serve", "--memory", "32M", "--no-pin", "--listen", "0", "--metrics", "0"];
        [&words[..], &["--snapshots", &self.snapshots]].concat()
    }

    fn serve(&self, tracer: &[&str]) -> Result<Server, Done> {
        self.place.try_serve_under(tracer, &self.command())
    }

    /// Looks whether the server serves, or has ended well. `value`: what is put.
    fn check(&mut self, server: &mut Server, value: &str, case: &str) {
        if let Some((code, said)) = server.has_ended() {
            assert!(code.is_some_and(|code| CODES.contains(&code)), "{case}: {code:?} {said}");
            assert!(tells_why(&said), "{case}: no cause in {said}");
            return;
        }
        let (place, tcp) = (&self.place, address(server, "tcp at ").to_string());
        let found = place.kelix(&["get", "t", "k"]);
        assert_eq!(found.code, 0, "{case}: {found:?}");
        let found = found.text().trim().to_string();
        assert!(self.possible.contains(&found), "{case}: {found:?} is none of {:?}", self.possible);
        let steps: [(&str, Done); 5] = [
            ("put", place.kelix(&["put", "t", "k", value])),
            ("get over TCP", place.kelix_at(&tcp, &["get", "t", "k"])),
            ("put over TCP", place.kelix_at(&tcp, &["put", "t", "k", value])),
            ("snapshot", place.kelix(&["snapshot", "take"])),
            ("stat", place.kelix(&["stat", "--json"])),
        ];
        for (step, done) in &steps {
            assert_eq!(done.code, 0, "{case}: {step}: {done:?}");
        }
        assert_eq!(steps[1].1.text().trim(), value, "{case}");
        assert!(metrics(address(server, "metrics at http://")), "{case}: no metrics");
        server.signal(Signal::TERM);
        let (code, said) = server.end();
        assert_eq!(code, Some(0), "{case}: {said}");
        self.possible = vec![value.into()];
    }
}

/// Commands that use a server while its calls fail: each does what it says, or tells why not.
fn use_it(store: &mut Store, server: &Server, value: &str, case: &str) {
    store.possible.push(value.into());
    let tcp = address(server, "tcp at ").to_string();
    for _ in 0..2 {
        for args in [&["put", "t", "k", value][..], &["get", "t", "k"], &["snapshot", "take"]] {
            let mut all = vec![store.place.kelix(args)];
            if args[0] != "snapshot" {
                all.push(store.place.kelix_at(&tcp, args));
            }
            for done in all {
                let told = done.err.starts_with("kelix: ") && CODES.contains(&done.code);
                assert!(done.code == 0 || told, "{case}: {done:?}");
                let known = |found: &str| store.possible.iter().any(|value| value == found);
                assert!(done.code != 0 || args[0] != "get" || known(done.text().trim()), "{case}: {done:?}");
            }
        }
        metrics(address(server, "metrics at http://"));
    }
}

/// A tracer that was attached to a running process.
struct Tracer(Child);

impl Tracer {
    fn attach(args: &[&str]) -> Tracer {
        let mut command = Command::new("strace");
        command.args(["-o", "/dev/null"]).args(args).stderr(Stdio::piped());
        let mut child = command.spawn().expect("strace: scripts/test-tools installs it");
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.contains("attached"), "strace may not trace here (ptrace): {line}");
        Tracer(child)
    }

    /// Lets go. Of a process that has ended strace does not by itself, and until it does nobody can wait for
    /// that process.
    fn detach(mut self, server: &mut Server) {
        let _ = kill_process(Pid::from_raw(self.0.id() as i32).expect("a process id"), Signal::INT);
        wait_until("strace to let go", || {
            if server.stands_ended() {
                let _ = self.0.kill();
            }
            self.0.try_wait().expect("our child")
        });
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls of a start, how they fail, and how many of each are tried.
const STARTS: &[(&str, &str, usize)] = &[
    ("mmap", "ENOMEM", 6),
    ("clone3", "EAGAIN", 8),
    ("openat", "EMFILE", 8),
    ("memfd_create", "EMFILE", 2),
    ("ftruncate", "ENOSPC", 3),
    ("fallocate", "ENOSPC", 1),
    ("fcntl", "EMFILE", 4),
    ("socketpair", "EMFILE", 3),
    ("socket", "EMFILE", 3),
    ("bind", "EADDRNOTAVAIL", 3),
    ("listen", "EADDRINUSE", 3),
    ("setsockopt", "ENOBUFS", 2),
    ("epoll_create1", "EMFILE", 3),
    ("epoll_ctl", "ENOMEM", 4),
    ("eventfd2", "EMFILE", 1),
    ("rename", "ENOSPC", 2),
    ("fsync", "EIO", 2),
    ("write", "ENOSPC", 4),
    ("read", "EIO", 4),
    ("flock", "ENOLCK", 4),
    ("mkdir", "EACCES", 2),
    ("chmod", "EPERM", 1),
    ("fchmod", "EPERM", 1),
    ("unlink", "EACCES", 2),
    ("getdents64", "EIO", 2),
    ("statx", "EIO", 4),
];

#[test]
fn a_start_at_which_something_fails_serves_or_tells_why_not() {
    let mut store = Store::new();
    let mut ended = 0;
    for (call, error, most) in STARTS {
        let own = own_calls(&store.place, call, *most, |tracer| {
            let mut server =
                store.serve(tracer).unwrap_or_else(|done| panic!("strace cannot trace: {done:?}"));
            server.signal(Signal::TERM);
            assert_eq!(server.end().0, Some(0));
        });
        for which in own {
            let case = format!("start, {call}, {error}, {which}");
            let fault = (*call, *error, which);
            match with_fault(&["-f", "-o", "/dev/null"], fault, |tracer| store.serve(tracer)) {
                Ok(mut server) => {
                    // What fails is done again in other threads, each of which has an Nth call of its own.
                    use_it(&mut store, &server, &case, &case);
                    server.signal(Signal::TERM);
                    let (code, said) = server.end();
                    assert!(code.is_some_and(|code| [0, 5].contains(&code)), "{case}: {code:?} {said}");
                }
                Err(done) => {
                    ended += 1;
                    assert!(CODES.contains(&done.code), "{case}: {done:?}");
                    assert!(tells_why(&done.err), "{case}: no cause in {done:?}");
                }
            }
        }
        let mut server = store.serve(&[]).unwrap_or_else(|done| panic!("no server after {call}: {done:?}"));
        store.check(&mut server, call, call);
    }
    assert!(ended > 20, "most of these cannot be done without: {ended}");
}

/// Calls of a server that serves, and how they fail.
const SERVING: &[(&str, &str, usize)] = &[
    ("accept4", "EMFILE", 1),
    ("accept4", "ENOMEM", 1),
    ("accept4", "ECONNABORTED", 1),
    ("epoll_wait", "EINTR", 1),
    ("epoll_ctl", "ENOMEM", 1),
    ("epoll_ctl", "ENOSPC", 2),
    ("recvmsg", "EINTR", 1),
    ("recvmsg", "ENOMEM", 1),
    ("recvmsg", "ENOMEM", 2),
    ("sendmsg", "EINTR", 1),
    ("sendmsg", "ENOBUFS", 1),
    ("sendmsg", "ENOBUFS", 3),
    ("sendto", "ECONNRESET", 1),
    ("write", "ENOSPC", 1),
    ("write", "EIO", 1),
    ("fsync", "EIO", 1),
    ("rename", "ENOSPC", 1),
    ("openat", "EMFILE", 1),
    ("unlink", "EACCES", 1),
    ("getdents64", "EIO", 1),
    ("mmap", "ENOMEM", 1),
    ("mmap", "ENOMEM", 3),
    ("munmap", "ENOMEM", 1),
    ("madvise", "ENOMEM", 1),
    ("memfd_create", "ENFILE", 1),
    ("ftruncate", "ENOSPC", 1),
    ("fcntl", "EMFILE", 1),
    ("socketpair", "EMFILE", 1),
    ("setsockopt", "ENOBUFS", 1),
    ("clone3", "EAGAIN", 1),
    ("clock_nanosleep", "EINTR", 1),
    ("shutdown", "ENOTCONN", 1),
];

#[test]
fn a_server_in_which_something_fails_serves_afterwards_or_ends() {
    let mut store = Store::new();
    for (call, error, which) in SERVING {
        let case = format!("serving, {call}, {error}, {which}");
        let mut server = store.serve(&[]).unwrap_or_else(|done| panic!("{case}: {done:?}"));
        let pid = server.pid().to_string();
        let tracer = with_fault(&["-f", "-p", &pid], (call, error, *which), Tracer::attach);
        use_it(&mut store, &server, &case, &case);
        tracer.detach(&mut server);
        store.check(&mut server, &case, &case);
    }
}

/// Calls of commands, how they fail, and how many of each are tried.
const COMMANDS: &[(&str, &str, usize)] = &[
    ("connect", "ECONNREFUSED", 1),
    ("socket", "EMFILE", 2),
    ("openat", "EMFILE", 4),
    ("mmap", "ENOMEM", 6),
    ("recvmsg", "ENOMEM", 3),
    ("recvmsg", "EINTR", 1),
    ("recvfrom", "ECONNRESET", 2),
    ("sendmsg", "EPIPE", 2),
    ("sendto", "EPIPE", 2),
    ("fcntl", "EMFILE", 3),
    ("setsockopt", "ENOBUFS", 2),
    ("epoll_create1", "EMFILE", 1),
    ("epoll_ctl", "ENOMEM", 2),
    ("epoll_wait", "EINTR", 1),
    ("poll", "EINTR", 1),
    ("ppoll", "EINTR", 1),
    ("statx", "EIO", 2),
    ("write", "EIO", 1),
];

#[test]
fn a_command_in_which_something_fails_does_it_or_tells_why_not() {
    let store = Store::new();
    let server = store.serve(&[]).expect("a server");
    let tcp = address(&server, "tcp at ").to_string();
    for address in [None, Some(&tcp[..])] {
        for words in [&["put", "t", "k", "v"][..], &["get", "t", "k"]] {
            store.place.kelix(&["put", "t", "k", "v"]).ok();
            for (call, error, most) in COMMANDS {
                let own = own_calls(&store.place, call, *most, |tracer| {
                    assert_eq!(
                        store.place.kelix_under(tracer, address, words).code,
                        0,
                        "strace cannot trace"
                    );
                });
                for which in own {
                    let case = format!("{words:?} at {address:?}, {call}, {error}, {which}");
                    let fault = (*call, *error, which);
                    let done = with_fault(&["-f", "-o", "/dev/null"], fault, |tracer| {
                        store.place.kelix_under(tracer, address, words)
                    });
                    assert!(done.code == 0 || CODES.contains(&done.code), "{case}: {done:?}");
                    if done.code != 0 {
                        assert!(done.err.starts_with("kelix: "), "{case}: {done:?}");
                    } else if words[0] == "get" {
                        assert_eq!(done.text(), "v\n", "{case}");
                    }
                }
            }
        }
    }
    assert_eq!(store.place.kelix(&["get", "t", "k"]).ok(), "v\n");
    assert_eq!(store.place.kelix_at(&tcp, &["get", "t", "k"]).ok(), "v\n");
}

/// A panic of one thread left half a server. That which waits for signals panics when it cannot read them,
/// which nothing else does.
#[test]
fn a_panic_of_any_thread_ends_the_server_and_takes_no_snapshot() {
    let store = Store::new();
    let mut server = store.serve(&[]).expect("a server");
    store.place.kelix(&["put", "t", "k", "since then"]).ok();
    let kept = || std::fs::read_dir(&store.snapshots).expect("a directory").count();
    let before = kept();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("its threads");
    let watches = tasks.flatten().find(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "kelix-signals")
    });
    let thread = watches.expect("a thread for signals").file_name().into_string().unwrap();
    let tracer = with_fault(&["-p", &thread], ("recvfrom", "ECONNRESET", 1), Tracer::attach);
    let (code, said) = wait_until("the end", || {
        server.signal(Signal::HUP);
        server.has_ended()
    });
    drop(tracer);
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("ERROR") && said.contains("a thread panicked"), "{said}");
    assert!(said.contains("kelix-signals"), "{said}");
    assert_eq!(kept(), before, "what a server has that panicked is not kept");
    let _heir = store.serve(&[]).expect("a server");
    assert_eq!(store.place.kelix(&["get", "t", "k"]).ok(), "first\n");
}

/// The system ends a program that writes beyond `ulimit -f`, unless that is an error to it.
#[test]
fn a_limit_on_the_length_of_files_is_an_error_and_the_store_goes_on() {
    let store = Store::new();
    let server = store.serve(&[]).expect("a server");
    let large = store.place.file("large", &vec![7; 900_000]);
    let large = large.to_str().unwrap();
    for key in ["large", "as large"] {
        store.place.kelix(&["put", "t", key, "--file", large]).ok();
    }
    let limit = |bytes: Option<u64>| {
        let pid = Pid::from_raw(server.pid() as i32);
        let limit = rustix::process::Rlimit { current: bytes, maximum: None };
        rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).expect("our own process");
    };
    // Mailboxes of a client are shorter, snapshots and segments longer.
    limit(Some(1_200_000));
    let kept = std::fs::read_dir(&store.snapshots).expect("a directory").count();
    store.place.kelix(&["snapshot", "take"]).failed(5, &["kelix: ", "cannot write"]);
    assert_eq!(std::fs::read_dir(&store.snapshots).expect("a directory").count(), kept);
    // Segments are files in memory, and have a length too.
    let mut puts = (0..60).map(|key| store.place.kelix(&["put", "t", &key.to_string(), "--file", large]));
    let refused = puts.find(|done| done.code != 0).expect("no room for another segment");
    refused.failed(4, &["kelix: ", "memory"]);
    assert_eq!(store.place.kelix(&["get", "t", "k"]).ok(), "first\n");
    limit(None);
    store.place.kelix(&["put", "t", "k", "second"]).ok();
    store.place.kelix(&["snapshot", "take"]).ok();
    let out = store.place.path().join("out");
    let export = format!(
        "ulimit -f 100; exec {} --dir {} table export t {}",
        env!("CARGO_BIN_EXE_kelix"),
        store.place.path().display(),
        out.display()
    );
    let done = Command::new("sh").args(["-c", &export]).env("KELIX_CONFIG", "/dev/null").output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code().is_some_and(|code| CODES.contains(&code)), "{done:?}");
    assert!(said.starts_with("kelix: "), "{said}");
}

/// Passes a connection's bytes on to a server, and back up to so many, after which it breaks the connection.
/// How many came back.
fn pass_on(client: TcpStream, server: &str, most: usize) -> usize {
    let mut server = TcpStream::connect(server).expect("the server");
    let (mut there, mut from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut there);
        let _ = there.shutdown(Shutdown::Both);
    });
    let mut client = client;
    let mut left = most;
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = server.read(&mut bytes) {
        let passed = count.min(left);
        if client.write_all(&bytes[..passed]).is_err() || passed < count {
            break;
        }
        left -= passed;
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    most - left
}

/// A table that was dropped, and whose drop was not answered, was dropped again when the command asked once
/// more: by then the name was another's.
#[test]
fn a_drop_whose_answer_is_lost_is_done_once() {
    let place = Place::new();
    let server = place.serve(&["--listen", "0"]);
    let tcp = address(&server, "tcp at ");
    let has = |value: &str| place.kelix(&["get", "jobs", "k"]).text() == format!("{value}\n");
    // How much comes back over each connection. The first time nothing breaks off, then more and more of what
    // comes last over the last one: among that is the answer of the drop.
    let (mut made_anew, mut whole): (_, Vec<usize>) = (0, Vec::new());
    for lost in (0..640).step_by(32) {
        place.kelix(&["put", "jobs", "k", "old"]).ok();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket of ours");
        let between = listener.local_addr().expect("an address").to_string();
        let was_dropped = std::thread::scope(|scope| {
            let drop = ["--retry", "20s", "table", "drop", "jobs"];
            let (place, between, whole) = (&place, &between, &mut whole);
            let command = scope.spawn(move || place.kelix_at(between, &drop));
            let (mut passing, mut was_dropped) = (Vec::new(), false);
            while !command.is_finished() {
                let Ok((client, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                client.set_nonblocking(false).expect("a socket of ours");
                if lost > 0 && passing.len() + 1 == whole.len() {
                    pass_on(client, tcp, whole[passing.len()].saturating_sub(lost));
                    was_dropped = !has("old");
                    // The drop is asked for again only when the connection is taken that the command makes
                    // now.
                    if was_dropped {
                        place.kelix(&["put", "jobs", "k", "new"]).ok();
                    }
                    passing.push(scope.spawn(|| 0));
                } else {
                    passing.push(scope.spawn(move || pass_on(client, tcp, usize::MAX)));
                }
            }
            let done = command.join().expect("no panic");
            assert_eq!(done.code, 0, "{lost} bytes lost: {done:?}");
            let passed: Vec<usize> =
                passing.into_iter().map(|passed| passed.join().expect("no panic")).collect();
            if lost == 0 {
                *whole = passed;
            }
            was_dropped
        });
        if was_dropped {
            made_anew += 1;
            assert!(has("new"), "{lost} bytes lost: a table was dropped that somebody else made");
        }
        assert!(!has("old"), "{lost} bytes lost: dropped");
    }
    assert!(made_anew > 0, "no answer of a drop was lost");
}

/// Where a user has no directory for such things the run directory has a name in /tmp that others can make
/// first: whoever did was the server of all who did not say another.
#[test]
fn a_directory_that_somebody_else_made_or_may_write_to_is_not_used() {
    let script = |prepare: &str| {
        let kelix = env!("CARGO_BIN_EXE_kelix");
        let text = format!("mount -t tmpfs tmp /tmp && cd /tmp && {prepare} && exec {kelix} get t k");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &text]).env_clear().env("KELIX_CONFIG", "/dev/null");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).output().expect("unshare starts")
    };
    let plain = script("mkdir kelix-0");
    let said = String::from_utf8_lossy(&plain.stderr).into_owned();
    if !said.contains("/tmp/kelix-0") {
        eprintln!("skipped: only root can make directories of other users: {said}");
        return;
    }
    assert!(plain.status.code() == Some(3) && said.contains("no server in"), "{said}");
    for (prepare, why) in [
        ("mkdir kelix-0 && chown 65534 kelix-0", "belongs to user 65534"),
        ("mkdir other && ln -s other kelix-0", "a link"),
        ("mkdir kelix-0 && chmod 777 kelix-0", "everybody may write there"),
        ("touch kelix-0", "a link or a file"),
    ] {
        let done = script(prepare);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code().is_some_and(|code| CODES.contains(&code)), "{prepare}: {done:?}");
        assert!(said.starts_with("kelix: ") && said.contains(why) && said.contains("--dir"), "{said}");
    }
}
