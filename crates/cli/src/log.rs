//! What `kelix serve` logs, and where: on standard error, or in a file that is opened anew when it is told
//! to.
//!
//! Whoever logs never waits: a thread of the log's own writes, and what finds no reader in time is dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};
use tracing_subscriber::filter::LevelFilter;

use crate::{Exit, Failure};

#[derive(clap::Args)]
pub(crate) struct LogArgs {
    /// What is logged: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "warn", value_parser = ["error", "warn", "info", "debug"])]
    log: String,
    /// How: text, or json with an object a line
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
    /// Where: at the end of this file, which SIGHUP opens anew, as logrotate wants it [default: standard
    /// error]
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
}

/// A log that is being written. What was logged has been written when it is dropped.
pub(crate) struct Log {
    file: Option<LogFile>,
    _guard: WorkerGuard,
}

/// Begins a thread that writes. The library panics where there is none to be had.
fn writer(output: impl Write + Send + 'static) -> Result<(NonBlocking, WorkerGuard), Failure> {
    let begin = AssertUnwindSafe(|| tracing_appender::non_blocking(output));
    let context = "cannot start a thread for the log; see `ulimit -u` and the memory there is";
    catch_unwind(begin).map_err(|_| Failure::new(Exit::Other, "serve", context))
}

impl Log {
    /// Begins to log.
    pub fn begin(args: &LogArgs) -> Result<Log, Failure> {
        let file = args.log_file.clone().map(LogFile::open).transpose()?;
        let (output, guard) = match &file {
            Some(file) => writer(file.clone()),
            None => writer(io::stderr()),
        }?;
        let level: LevelFilter = args.log.parse().expect("one of the possible values");
        let log = tracing_subscriber::fmt().with_writer(output).with_max_level(level).with_target(false);
        if args.log_format == "json" {
            log.json().flatten_event(true).init();
        } else {
            log.with_ansi(file.is_none() && io::stderr().is_terminal()).init();
        }
        Ok(Log { file, _guard: guard })
    }

    /// The file that it is written to, if it is one.
    pub fn file(&self) -> Option<LogFile> {
        self.file.clone()
    }
}

/// The file of a log.
#[derive(Clone)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl LogFile {
    fn open(path: PathBuf) -> Result<LogFile, Failure> {
        let file = append_to(&path).map_err(|source| {
            let what = format!("cannot open the log {} (its directory must be there)", path.display());
            Failure::io("serve", what, &source)
        })?;
        Ok(LogFile { path, file: Arc::new(Mutex::new(file)) })
    }

    /// Goes on in the file that has the name now, or in a new one. If that cannot be opened the log stays
    /// where it is.
    pub fn reopen(&self) -> io::Result<()> {
        let file = append_to(&self.path)?;
        *self.held() = file;
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, File> {
        self.file.lock().expect("no panic under this lock")
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.held().flush()
    }
}

/// Others than the group have no business with who is connected.
fn append_to(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}
