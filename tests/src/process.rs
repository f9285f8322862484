//! Servers and clients as processes of their own, which can be stopped, continued and killed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use kelix::{Address, Client, FabricChoice, Session, SessionOptions};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

use crate::far::lead_over_proxy;
use crate::{client_at, far, session_over, tcp_address, until};

/// How long a process may take to say its next word.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program that is tested: `KELIX`, or what was built with the tests.
pub fn program() -> String {
    std::env::var("KELIX").unwrap_or_else(|_| {
        let test = std::env::current_exe().expect("a program that runs has a place");
        let built = test.ancestors().nth(2).expect("below deps").join("kelix");
        built.display().to_string()
    })
}

/// A child process that is talked to by lines. It is killed when dropped.
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    name: String,
}

impl Process {
    /// Starts a program.
    pub fn start(program: &str, arguments: &[String]) -> Process {
        Process::run(Command::new(program).args(arguments))
    }

    /// Starts a program in a way of its own.
    pub fn run(command: &mut Command) -> Process {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let name = format!("{command:?}");
        Process { input: child.stdin.take(), child, lines, name }
    }

    /// The next line it prints; `None` when it printed its last.
    #[track_caller]
    pub fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("{} says nothing any more", self.name),
        }
    }

    /// Reads lines until one begins like this; returns the rest of it.
    #[track_caller]
    pub fn expect(&mut self, beginning: &str) -> String {
        loop {
            let Some(line) = self.line() else { panic!("{} ended before \"{beginning}\"", self.name) };
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.trim().to_string();
            }
        }
    }

    /// Sends it a line.
    pub fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("not closed yet");
        let said = writeln!(input, "{line}").and_then(|()| input.flush());
        said.unwrap_or_else(|error| panic!("cannot talk to {}: {error}", self.name));
    }

    /// Closes its input, which asks the programs here to end.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Limits it from now on; `None`: no more. Returns what its limit was.
    pub fn limit(&self, resource: Resource, most: Option<u64>) -> Option<u64> {
        let pid = Pid::from_raw(self.pid() as i32);
        // What a limit may be at most stays as it is for this process too, so that it can be lifted again.
        let limit = Rlimit { current: most, maximum: getrlimit(resource).maximum };
        prlimit(pid, resource, limit).expect("limits of a child").current
    }

    /// A size from `/proc/PID/status`, in bytes.
    pub fn size(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a live process");
        let line =
            status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("a size");
        line.split_whitespace().next().and_then(|size| size.parse::<u64>().ok()).expect("a number") * 1024
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a process id");
        kill_process(pid, signal).unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.name));
    }

    /// Stops it where it is, and waits until it stands still: no thread of it executes anything any more. A
    /// thread may be in a system call that takes its time, on a disk say, and stops at its end.
    #[track_caller]
    pub fn stop_still(&self) {
        self.signal(Signal::STOP);
        until("the process stands still", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("a live process");
            let states = tasks.flatten().filter_map(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
                stat.rsplit(") ").next()?.chars().next()
            });
            let states: Vec<char> = states.collect();
            // One that has stopped has told the others.
            states.contains(&'T') && states.iter().all(|state| matches!(state, 'T' | 'D'))
        });
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end, as a service manager does.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills it without a warning and collects it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        self.close();
        let mut ended = None;
        until("the process ends", || {
            ended = self.child.try_wait().expect("a child can be waited for");
            ended.is_some()
        });
        ended.expect("just seen")
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Options of a session that waits for as long as a process may be without the processor on a busy machine.
pub fn patient() -> SessionOptions {
    SessionOptions::default().timeout(Duration::from_secs(20))
}

/// The program that serves, next to the tests.
pub struct ServerProgram<'a> {
    /// Where it is.
    pub program: &'a str,
    /// The run directory.
    pub directory: &'a Path,
    /// Number of shards.
    pub shards: usize,
    /// Most memory.
    pub memory_bytes: u64,
    /// Supersede the server of the directory.
    pub take_over: bool,
}

impl ServerProgram<'_> {
    /// Starts it without waiting for it to serve.
    pub fn launch(&self) -> Process {
        Process::start(self.program, &self.arguments())
    }

    /// What it is to be told.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            self.directory.display().to_string(),
            self.shards.to_string(),
            self.memory_bytes.to_string(),
        ];
        arguments.extend(self.take_over.then(|| "take-over".to_string()));
        arguments
    }

    /// Starts it and returns once it serves.
    #[track_caller]
    pub fn serve(&self) -> ServerProcess {
        self.serving(self.launch())
    }

    /// The same for one that was started in a way of its own.
    #[track_caller]
    pub fn serving(&self, mut process: Process) -> ServerProcess {
        let term = process.expect("serving ").parse().expect("a term");
        self.served(process, term)
    }

    /// The same for one that has said its term.
    pub fn served(&self, process: Process, term: u64) -> ServerProcess {
        lead_over_proxy(self.directory);
        ServerProcess { process, term, directory: self.directory.to_path_buf() }
    }
}

/// A server that serves.
pub struct ServerProcess {
    /// The process.
    pub process: Process,
    /// The term it serves in.
    pub term: u64,
    directory: PathBuf,
}

impl ServerProcess {
    /// A client of it.
    pub fn client(&self) -> Client {
        client_at(&self.directory)
    }

    /// A session with it, as patient as a busy machine needs it to be.
    pub fn session(&self) -> Session {
        self.client().session_with(patient()).expect("a server that serves")
    }

    /// A session that looks items up in this way, with cached pointers of its own.
    pub fn session_by(&self, path: kelix::Path) -> Session {
        let options = patient().path(path).private_caches(true);
        self.client().session_with(options).expect("a server that serves")
    }

    /// Where it listens over TCP.
    pub fn tcp_address(&self) -> String {
        tcp_address(&self.directory)
    }

    /// A client over TCP.
    pub fn tcp_client(&self) -> Client {
        client_at(Address::Tcp(self.tcp_address()))
    }

    /// A session over TCP that looks items up in this way.
    pub fn tcp_session_by(&self, path: kelix::Path) -> Session {
        session_over(FabricChoice::Tcp, &self.tcp_client(), patient().path(path))
    }

    /// A session over the fabric that is not shared memory.
    #[track_caller]
    pub fn far_session(&self, options: SessionOptions) -> Session {
        session_over(far(), &self.tcp_client(), options)
    }

    /// A session over it that looks items up in this way.
    #[track_caller]
    pub fn far_session_by(&self, path: kelix::Path) -> Session {
        self.far_session(patient().path(path))
    }

    /// Asks it to stop in good order and waits for its end; returns how it says that it ended.
    #[track_caller]
    pub fn stop(&mut self) -> String {
        self.process.say("stop");
        let ended = self.process.expect("ended ");
        assert!(self.process.end().success());
        ended
    }
}

/// Open descriptors and threads of a process.
pub fn descriptors_and_threads(pid: u32) -> (usize, usize) {
    let count = |what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count);
    (count("fd"), count("task"))
}

/// What clients make a server hold beside their items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Open descriptors, but for those of segments, which hold items.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Mailboxes in its memory.
    pub mailboxes: usize,
}

impl Held {
    /// Whether it is no more than that.
    pub fn is_within(self, other: Held) -> bool {
        self.descriptors <= other.descriptors
            && self.threads <= other.threads
            && self.mailboxes <= other.mailboxes
    }
}

impl ServerProcess {
    /// What it holds for its clients when none of them is being answered: the thread that answers one is gone
    /// within moments, and would hide another one that stays.
    pub fn held_at_rest(&self) -> Held {
        until("no client is being answered", || !self.is_answering());
        self.held()
    }

    fn is_answering(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.pid())).into_iter().flatten();
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
        tasks.flatten().filter_map(name).any(|name| name.trim_end() == "kelix-client")
    }

    /// What it holds for its clients now.
    pub fn held(&self) -> Held {
        let pid = self.process.pid();
        let (descriptors, threads) = descriptors_and_threads(pid);
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let names = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let segments = names.filter(|name| name.to_string_lossy().contains("kelix-segment")).count();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        // A session has one memory for all of them; one of an earlier build, one for each.
        let names = ["kelix-mailboxes", "kelix-requests", "kelix-replies"];
        let is_mailbox = |line: &&str| names.iter().any(|name| line.contains(name));
        let descriptors = descriptors.saturating_sub(segments);
        Held { descriptors, threads, mailboxes: maps.lines().filter(is_mailbox).count() }
    }

    /// Waits until it holds no more than before.
    #[track_caller]
    pub fn until_given_back(&self, before: Held) {
        let what = format!("{:?} is {before:?} again", self.held());
        until(&what, || self.held().is_within(before));
    }
}

/// The lines of a process's memory map that are about segments.
pub fn mapped_segments(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a live process");
    maps.lines().filter(|line| line.contains("kelix-segment")).map(String::from).collect()
}

/// The processor time a process has used so far, all its threads together, in nanoseconds.
pub fn processor_time_ns(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a live process");
    let time = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(time).sum()
}
