//! `kelix serve --background`: a server in a process of its own, which is waited for until clients can
//! connect.

use std::io::{BufRead, BufReader, Error, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use rustix::process::{Pid, Signal, kill_process};

use crate::ending::watch_signals;
use crate::{Exit, Failure};

/// The option, which the process that serves is not given.
const OPTION: &str = "--background";
/// In the environment of the process that serves.
const SET: &str = "KELIX_IN_BACKGROUND";

/// Starts `kelix serve` with the options of this process, and returns once clients can connect. A server that
/// does not start says why itself, on the same standard error, and this process ends with its exit code.
/// Whoever is told to end meanwhile leaves no server behind.
pub(crate) fn begin() -> Result<(), Failure> {
    let cannot = |error: Error| Failure::io("serve", "cannot start a server in the background", &error);
    let mut signals = watch_signals("serve", &[])?;
    let (tell, told) = channel::<Pid>();
    let ends = move || {
        if let (Ok(server), Some(_)) = (told.recv(), signals.forever().next()) {
            let _ = kill_process(server, Signal::TERM);
        }
    };
    std::thread::Builder::new().name("kelix-signals".into()).spawn(ends).map_err(cannot)?;
    let mut words = std::env::args_os();
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    command
        .args(words.filter(|word| word != OPTION))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .env(SET, "1");
    // A key that interrupts the terminal's commands is not for the server.
    let mut server = command.process_group(0).spawn().map_err(cannot)?;
    let _ = tell.send(Pid::from_child(&server));
    let mut ready = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut ready).map_err(cannot)?;
    if !ready.is_empty() {
        let mut output = std::io::stdout();
        let told = output.write_all(ready.as_bytes()).and_then(|()| output.flush());
        if told.is_err() {
            // Nobody knows of a server whose start was said to have failed.
            let _ = kill_process(Pid::from_child(&server), Signal::TERM);
            let _ = server.wait();
        }
        return Ok(told?);
    }
    let status = server.wait().map_err(cannot)?;
    match status.code() {
        Some(code) if code != 0 => std::process::exit(code),
        _ => {
            let context =
                format!("the server in the background ended before clients could connect ({status})");
            Err(Failure::new(Exit::Other, "serve", context))
        }
    }
}

/// Lets go of the standard error of whoever started this server in the background, now that clients are
/// served and the rest is said in a file: who reads that until its end would wait for the end of the server.
pub(crate) fn leave_standard_error() {
    if std::env::var_os(SET).is_some() {
        let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
        let _ = null.map(rustix::stdio::dup2_stderr);
    }
}
