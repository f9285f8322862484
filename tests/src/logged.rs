//! Servers that write a log, as processes of their own.

use std::path::Path;

use kelix::{FabricChoice, Session, SessionOptions};
use serde_json::Value;

use crate::process::{Process, ServerProcess, ServerProgram};
use crate::{RunDir, session_over};

/// How to start a server that writes a log.
#[derive(Clone)]
pub struct Logged<'a> {
    /// The program.
    pub program: &'a str,
    /// The run directory.
    pub run: &'a RunDir,
    /// The directory of log and snapshots.
    pub wal: &'a Path,
    /// Number of shards.
    pub shards: usize,
    /// Answers writes once they are on the disk.
    pub commits: bool,
    /// Where it listens, if not at any port.
    pub listen: Option<String>,
    /// What else it is told.
    pub options: Vec<String>,
}

impl Logged<'_> {
    /// The program, as it is started.
    pub fn server(&self) -> ServerProgram<'_> {
        ServerProgram {
            program: self.program,
            directory: self.run.path(),
            shards: self.shards,
            memory_bytes: 256 << 20,
            take_over: false,
        }
    }

    /// Starts it without waiting for it to serve.
    pub fn launch(&self) -> Process {
        let mut arguments = self.server().arguments();
        arguments.push(format!("wal={}", self.wal.display()));
        arguments.extend(self.commits.then(|| "durable=commit".to_string()));
        arguments.extend(self.listen.iter().map(|address| format!("listen={address}")));
        arguments.extend(self.options.iter().cloned());
        Process::start(self.program, &arguments)
    }

    /// Starts it and returns once it serves.
    #[track_caller]
    pub fn serve(&self) -> ServerProcess {
        let mut process = self.launch();
        let line = process.line().unwrap_or_default();
        let term = line.strip_prefix("serving ").unwrap_or_else(|| panic!("it does not serve: {line}"));
        self.server().served(process, term.parse().expect("a term"))
    }

    /// Starts it, and returns why it refuses to serve.
    #[track_caller]
    pub fn refusal(&self) -> String {
        let mut process = self.launch();
        let line = process.line().unwrap_or_default();
        let why = line.strip_prefix("refused ").unwrap_or_else(|| panic!("it is not refused: {line}"));
        assert!(!process.end().success());
        why.to_string()
    }
}

/// A session by shared memory or over TCP, whichever is its turn.
#[track_caller]
pub fn session_by_turns(server: &ServerProcess, number: u64, options: SessionOptions) -> Session {
    match number % 2 {
        0 => session_over(FabricChoice::Shm, &server.client(), options),
        _ => session_over(FabricChoice::Tcp, &server.tcp_client(), options),
    }
}

/// What the server tells of its log.
#[track_caller]
pub fn wal_statistics(server: &mut ServerProcess) -> Value {
    server.process.say("wal");
    serde_json::from_str(&server.process.expect("wal ")).expect("JSON")
}
