//! The processes that the demo starts and surely ends: the server, the readers, the writer.
//!
//! Each is owned by a value that ends it when it goes, so every way out of the demo ends them, an interrupt
//! too: a signal only sets a flag, and whatever waits looks at it.

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use kelix::Client;

use crate::{Exit, Failure};

/// How long a server may take to start.
const START: Duration = Duration::from_secs(10);
/// How long a process may take to answer beyond the time it works.
const ANSWER: Duration = Duration::from_secs(30);
/// Time between two looks at a condition.
const LOOK: Duration = Duration::from_millis(5);
/// Most memory of the demo's server. It takes what it uses.
const MEMORY: &str = "512M";

fn failed(context: impl Into<String>) -> Failure {
    Failure::new(Exit::Other, "demo", context)
}

/// Whether somebody wants the demo to end.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the usual signals set the flag.
    pub fn register() -> Result<Interrupt, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            signal_hook::flag::register(signal, flag.clone())
                .map_err(|error| Failure::io("demo", "cannot handle signals", &error))?;
        }
        Ok(Interrupt(flag))
    }

    pub fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) { Err(failed("interrupted").named("interrupted")) } else { Ok(()) }
    }
}

fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::io("demo", "cannot find the program's own file", &error))
}

/// A server in a process of its own.
pub(super) struct RunningServer {
    child: Child,
    directory: PathBuf,
    /// The directory is the demo's own and goes with the server.
    temporary: bool,
    /// It stays when the demo ends.
    kept: bool,
}

impl RunningServer {
    /// Starts a server in a fresh temporary directory, for as long as the demo runs.
    pub fn start(interrupt: &Interrupt) -> Result<RunningServer, Failure> {
        let directory = std::env::temp_dir().join(format!("kelix-demo-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&directory).map_err(|error| {
            Failure::io("demo", format!("cannot make the directory {}", directory.display()), &error)
        })?;
        RunningServer::spawn(directory, true, interrupt)
    }

    /// Starts a server in this directory that outlives the demo once [`RunningServer::keep`] was called.
    pub fn start_in(directory: &Path, interrupt: &Interrupt) -> Result<RunningServer, Failure> {
        if Client::connect(directory).is_ok() {
            let context = format!(
                "{} has a server already: end it, or choose another directory with --dir",
                directory.display()
            );
            return Err(Failure::usage("demo", context));
        }
        RunningServer::spawn(directory.to_path_buf(), false, interrupt)
    }

    fn spawn(directory: PathBuf, temporary: bool, interrupt: &Interrupt) -> Result<RunningServer, Failure> {
        let mut command = Command::new(this_program()?);
        command.arg("serve").arg("--dir").arg(&directory).args(["--memory", MEMORY, "--config", "/dev/null"]);
        // Neither a file nor the environment says anything of this one.
        let set = std::env::vars_os().map(|(name, _)| name);
        set.filter(|name| name.as_encoded_bytes().starts_with(b"KELIX_")).for_each(|name| {
            command.env_remove(name);
        });
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if !temporary {
            // A group of its own, so that an interrupt on the terminal does not reach it, and nothing of the
            // terminal's, so that whoever waits for the end of the demo's output does not wait for it.
            command.process_group(0).stderr(Stdio::null());
        }
        let spawned = command.spawn();
        let child = spawned.map_err(|error| Failure::io("demo", "cannot start a server", &error))?;
        let mut server = RunningServer { child, directory, temporary, kept: false };
        let began = Instant::now();
        loop {
            interrupt.check()?;
            if Client::connect(&server.directory).is_ok() {
                return Ok(server);
            }
            let ended = server.child.try_wait().ok().flatten();
            if ended.is_some() || began.elapsed() > START {
                let directory = server.directory.display();
                let how = ended.map_or("does not answer".to_string(), |status| format!("ended ({status})"));
                let context =
                    format!("the server {how}; run `kelix serve --dir {directory}` by hand to see why");
                return Err(failed(context));
            }
            std::thread::sleep(LOOK);
        }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it outlive the demo.
    pub fn keep(mut self) {
        self.kept = true;
    }

    /// Processor time of all its threads so far.
    pub fn cpu(&self) -> Option<Duration> {
        cpu_of(self.pid())
    }

    /// Bytes of memory its items and index take.
    pub fn used_bytes(&self) -> Result<u64, Failure> {
        let statistics = Client::connect(&self.directory)?.statistics()?;
        Ok(statistics.shards.iter().map(|shard| shard.memory.used_bytes).sum())
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // It owns nothing but memory and this directory.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.temporary {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// Processor time of all threads of a process. In nanoseconds where the kernel keeps scheduler statistics,
/// else in the ticks of 10 ms that it always keeps.
fn cpu_of(pid: u32) -> Option<Duration> {
    let read = |file: PathBuf| std::fs::read_to_string(file).ok();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let fine = threads.map(|thread| -> Option<u64> {
        read(thread.ok()?.path().join("schedstat"))?.split_whitespace().next()?.parse().ok()
    });
    if let Some(ns) = fine.sum::<Option<u64>>().filter(|ns| *ns > 0) {
        return Some(Duration::from_nanos(ns));
    }
    let stat = read(format!("/proc/{pid}/stat").into())?;
    // The name in parentheses may hold anything; user and system time are the 12th and 13th words after it.
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = words.get(11)?.parse::<u64>().ok()? + words.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

/// A reader or the writer.
pub(super) struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Worker {
    /// Starts a process of this role; see `worker.rs`.
    pub fn start(role: &str, directory: &Path, file: &Path, seed: u64) -> Result<Worker, Failure> {
        let mut command = Command::new(this_program()?);
        command.args(["demo", "--role", role, "--seed", &seed.to_string()]);
        command.arg("--dir").arg(directory).arg("--data").arg(file);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child =
            spawned.map_err(|error| Failure::io("demo", format!("cannot start a {role}"), &error))?;
        let orders = child.stdin.take();
        let output = child.stdout.take().expect("asked for");
        let (sender, answers) = channel();
        // It ends with the process, whose output it reads.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Worker { child, orders, answers })
    }

    /// Gives an order without waiting for its answer.
    pub fn order(&mut self, order: &str) -> Result<(), Failure> {
        let orders = self.orders.as_mut().expect("taken only at the end");
        writeln!(orders, "{order}").and_then(|()| orders.flush()).map_err(|_| self.gone())
    }

    /// The answer to the last order.
    pub fn answer(&mut self, interrupt: &Interrupt) -> Result<String, Failure> {
        let began = Instant::now();
        loop {
            interrupt.check()?;
            match self.answers.recv_timeout(Duration::from_millis(50)) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => {
                    // An interrupt on the terminal reaches all processes, not all at the same moment.
                    std::thread::sleep(LOOK);
                    interrupt.check()?;
                    return Err(self.gone());
                }
                Err(RecvTimeoutError::Timeout) if began.elapsed() > ANSWER => {
                    return Err(failed(format!("process {} of the demo hangs", self.child.id())));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// It has said why on standard error, which it shares with the demo.
    fn gone(&self) -> Failure {
        failed(format!("process {} of the demo has ended before its time", self.child.id()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The end of its input tells it to end; one that works on does not get far.
        self.orders = None;
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(200) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_the_processor_time() {
        let pid = std::process::id();
        let before = cpu_of(pid).expect("this process exists");
        let began = Instant::now();
        while cpu_of(pid).expect("this process exists") < before + Duration::from_millis(30) {
            assert!(began.elapsed() < Duration::from_secs(60), "no processor time in a minute of work");
        }
    }
}
