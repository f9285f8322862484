//! Real processes of the built program, each test with a directory and a server of its own.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

mod done;

pub use done::*;

/// A run directory.
pub struct Place {
    directory: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { directory: tempfile::Builder::new().prefix("kelix-cli-").tempdir().expect("a directory") }
    }

    /// A directory with a small server.
    pub fn served() -> (Place, Server) {
        let place = Place::new();
        let server = place.serve(&[]);
        (place, server)
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A file in the directory, for a test's own use.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// A named pipe in the directory. Whoever reads a value from it has opened its session before.
    pub fn pipe(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).expect("a pipe");
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kelix"));
        // Nothing from whoever runs the tests.
        command.env_remove("KELIX_DIR").env_remove("KELIX_SERVER").env("KELIX_CONFIG", "/dev/null");
        command.arg("--dir").arg(self.path()).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    pub fn kelix(&self, args: &[&str]) -> Done {
        finish(self.command(args).spawn().expect("the program starts"))
    }

    /// Runs a command to its end with these variables beside its own, while what it leaves running may say
    /// more on standard error.
    pub fn kelix_apart(&self, variables: &[(&str, &str)], args: &[&str]) -> Done {
        let said = tempfile::NamedTempFile::new_in(self.path()).expect("a file");
        let mut command = self.command(args);
        command.envs(variables.iter().copied()).stderr(said.reopen().expect("the same file"));
        let done = finish(command.spawn().expect("the program starts"));
        Done { err: std::fs::read_to_string(said.path()).expect("text"), ..done }
    }

    /// Runs a command to its end that knows these variables and no others.
    pub fn kelix_knowing(&self, variables: &[(&str, &str)], args: &[&str]) -> Done {
        let mut command = self.command(args);
        let command = command.env_clear().envs(variables.iter().copied());
        finish(command.spawn().expect("the program starts"))
    }

    /// Runs a command for the server at an address, which is set and not said.
    pub fn kelix_at(&self, address: &str, args: &[&str]) -> Done {
        self.kelix_set(("KELIX_SERVER", address.as_ref()), args)
    }

    /// The same for the server of a run directory below this place.
    pub fn kelix_below(&self, directory: &str, args: &[&str]) -> Done {
        self.kelix_set(("KELIX_DIR", &self.path().join(directory)), args)
    }

    fn kelix_set(&self, (variable, value): (&str, &Path), args: &[&str]) -> Done {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kelix"));
        command.env_remove("KELIX_DIR").env_remove("KELIX_SERVER").env("KELIX_CONFIG", "/dev/null");
        let command = command.env(variable, value).args(args);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().expect("the program starts"))
    }

    /// Starts a command whose output is read while it runs.
    pub fn kelix_writing(&self, args: &[&str]) -> Writing {
        let mut child = self.command(args).spawn().expect("the program starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Writing { child, out }
    }

    /// Starts a command whose output goes somewhere else.
    pub fn kelix_to(&self, out: impl Into<Stdio>, args: &[&str]) -> Running {
        Running(self.command(args).stdout(out).spawn().expect("the program starts"))
    }

    /// Starts a command that reads standard input.
    pub fn kelix_reading(&self, args: &[&str]) -> Reading {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().expect("the program starts");
        let input = child.stdin.take().expect("piped");
        Reading { child, input }
    }

    /// Starts a small server and waits until it is ready.
    pub fn serve(&self, args: &[&str]) -> Server {
        self.serve_knowing(&[], args)
    }

    /// The same with these variables set, beside those of the test.
    pub fn serve_knowing(&self, variables: &[(&str, &str)], args: &[&str]) -> Server {
        let mut command = self.command(&["serve", "--memory", "64M", "--no-pin"]);
        self.start(command.envs(variables.iter().copied()).args(args))
    }

    /// Starts a server of which nothing is said but this.
    pub fn serve_planned(&self, args: &[&str]) -> Server {
        self.start(self.command(&["serve", "--no-pin"]).args(args))
    }

    /// Starts a server that knows these variables, and of which nothing is said but this.
    pub fn serve_with(&self, variables: &[(&str, &str)], args: &[&str]) -> Server {
        self.start(self.command(&["serve"]).env_clear().envs(variables.iter().copied()).args(args))
    }

    /// Starts a node of a cluster that has its directory in this place, and waits until it is in sync.
    pub fn serve_node(&self, node: &str, args: &[&str]) -> Server {
        self.start(self.of_cluster(&["serve", "--node", node, "--memory", "64M", "--no-pin"]).args(args))
    }

    /// A command for the cluster c, which has its directory in this place.
    fn of_cluster(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kelix"));
        command.env_remove("KELIX_DIR").env_remove("KELIX_SERVER").env("KELIX_CONFIG", "/dev/null");
        command.env("XDG_STATE_HOME", self.path()).args(["--cluster", "c"]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs such commands beside each other, each to its end.
    pub fn kelix_of_cluster<const N: usize>(&self, commands: [&[&str]; N]) -> [Done; N] {
        commands.map(|args| self.of_cluster(args).spawn().expect("the program starts")).map(finish)
    }

    /// Runs a command to its end below strace, which is told these options; for the server at an address, or
    /// that of the directory.
    pub fn kelix_under(&self, tracer: &[&str], address: Option<&str>, args: &[&str]) -> Done {
        let directory = self.path().to_str().expect("plain letters");
        let at = address.map_or(["--dir", directory], |address| ["--server", address]);
        let mut command = below(tracer, env!("CARGO_BIN_EXE_kelix").as_ref(), at.iter().chain(args));
        finish(command.spawn().expect("strace: scripts/test-tools installs it"))
    }

    /// Starts a server below strace. What it left behind, if it does not become ready.
    pub fn try_serve_under(&self, tracer: &[&str], args: &[&str]) -> Result<Server, Done> {
        let mut command = self.command(args);
        if !tracer.is_empty() {
            command = below(tracer, command.get_program(), command.get_args());
        }
        let mut server = self.begin(&mut command);
        if server.ready.is_empty() {
            let (code, err) = server.end();
            return Err(Done { code: code.unwrap_or(-1), out: Vec::new(), err });
        }
        Ok(server)
    }

    fn start(&self, command: &mut Command) -> Server {
        let mut server = self.begin(command);
        if server.ready.is_empty() {
            panic!("no server: {:?}", server.end());
        }
        server
    }

    fn begin(&self, command: &mut Command) -> Server {
        let mut server = Server { child: command.spawn().expect("the program starts"), ready: String::new() };
        let out = server.child.stdout.take().expect("piped");
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(out).read_line(&mut line);
            let _ = tell.send(line);
        });
        server.ready = told.recv_timeout(PATIENCE).expect("a line when it is ready");
        server
    }
}

/// A program that is traced by a process beside it, so that its own end and signals are seen.
fn below(tracer: &[&str], program: &OsStr, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new("strace");
    command.arg("-D").args(tracer).arg(program).args(args);
    command.env_remove("KELIX_DIR").env_remove("KELIX_SERVER").env_remove("RUST_BACKTRACE");
    command.env("KELIX_CONFIG", "/dev/null");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn finish(child: Child) -> Done {
    let done = child.wait_with_output().expect("output");
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    Done { code: done.status.code().expect("an exit code"), out: done.stdout, err }
}

/// Opens a named pipe for writing once somebody reads it.
pub fn open_pipe(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    wait_until("a reader of the pipe", || options.open(path).ok())
}

/// A command that waits for standard input.
pub struct Reading {
    child: Child,
    input: ChildStdin,
}

impl Reading {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes its input and waits for its end.
    pub fn give(mut self, input: &[u8]) -> Done {
        self.input.write_all(input).expect("it reads");
        drop(self.input);
        finish(self.child)
    }
}

/// A command that goes on, and ends with the test.
pub struct Running(Child);

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id() as i32).expect("a process id");
        kill_process(pid, signal).expect("its process is ours");
    }

    /// Waits for its end: the exit code.
    pub fn end(&mut self) -> Option<i32> {
        wait_until("the command's end", || self.0.try_wait().expect("our child")).code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that waits for whoever reads its output.
pub struct Writing {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Writing {
    /// Its next line.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("it writes");
        line
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, signal).expect("its process is ours");
    }

    /// Reads the rest and waits for its end.
    pub fn rest(mut self) -> Done {
        let mut out = Vec::new();
        self.out.read_to_end(&mut out).expect("it writes");
        Done { out, ..finish(self.child) }
    }

    /// Reads no more and waits for its end.
    pub fn leave(self) -> Done {
        drop(self.out);
        finish(self.child)
    }
}

/// A server's process, which ends with the test.
pub struct Server {
    child: Child,
    /// The line it printed when it was ready.
    pub ready: String,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, signal).expect("its process is ours");
    }

    /// Stops all its threads, which the signal alone does not wait for.
    pub fn stand_still(&self) {
        self.signal(Signal::STOP);
        let stands = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.expect("a thread").path().join("stat"));
            stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T")))
        };
        wait_until("all threads to stop", || {
            let mut tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("its threads");
            tasks.all(stands).then_some(())
        });
    }

    /// Exit code and what it said on standard error, if it has ended.
    pub fn has_ended(&mut self) -> Option<(Option<i32>, String)> {
        self.child.try_wait().expect("our child")?;
        Some(self.end())
    }

    /// Whether it has ended, also while a tracer keeps that from its parent.
    pub fn stands_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"))
    }

    /// Waits for its end: exit code and what it said on standard error.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let child = &mut self.child;
        let status = wait_until("the server's end", || child.try_wait().expect("our child"));
        let mut said = String::new();
        if let Some(mut err) = child.stderr.take() {
            let _ = err.read_to_string(&mut said);
        }
        (status.code(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Works on a stopped process too. One that has ended and been waited for is left alone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
