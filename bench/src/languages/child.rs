//! Programs of other languages, which measure themselves.
//!
//! ```text
//! COMMAND DIRECTORY RECORDS     gets from the table `records` of the server there
//! < ready
//! > WAY                         a block of operations of one way
//! < OPERATIONS NANOSECONDS      or `missing WHAT`: what the way needs and is not installed
//! ```

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use kelix_report::interleave::BLOCK;

use super::text;

/// For so long a program that is to end may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A program that has said that it is ready, on the cores of the thread that started it.
pub(super) struct Child {
    process: std::process::Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// The variable that its command stands in.
    command: String,
}

/// The command in a variable of the environment. `None`: the variable is not set, which is said.
pub(super) fn command(variable: &str, language: &str) -> Result<Option<Command>, String> {
    let Ok(words) = std::env::var(variable) else {
        eprintln!(
            "kelix-bench: {variable} names no command: rows of {language} are left out (make bench-languages)"
        );
        return Ok(None);
    };
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().ok_or_else(|| format!("{variable} is empty"))?);
    command.args(words);
    Ok(Some(command))
}

impl Child {
    /// Starts the command in a variable of the environment, as [`command`] finds it.
    pub fn start(
        variable: &str,
        language: &str,
        (directory, records): (&Path, u64),
        environment: Option<(&str, &Path)>,
    ) -> Result<Option<Child>, String> {
        let Some(mut command) = command(variable, language)? else { return Ok(None) };
        let mut process = command
            .arg(directory)
            .arg(records.to_string())
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{variable}: {error}"))?;
        let orders = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut child = Child { process, orders, answers, command: variable.into() };
        match child.answer()?.as_str() {
            "ready" => Ok(Some(child)),
            said => Err(format!("{}: {said}", child.command)),
        }
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(text)?;
        match line.trim_end() {
            "" => Err(format!("{} has ended", self.command)),
            said => Ok(said.into()),
        }
    }

    /// Has it run blocks of a way for as long as a block takes here. Nanoseconds for one operation; `None`:
    /// something that the way needs is not installed, which is said.
    pub fn block(&mut self, way: &str) -> Result<Option<f64>, String> {
        let (mut operations, mut time) = (0, 0);
        while time < BLOCK.as_nanos() as u64 {
            writeln!(self.orders.as_mut().expect("a pipe"), "{way}").map_err(text)?;
            let said = self.answer()?;
            let numbers: Vec<u64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
            match (said.strip_prefix("missing "), &numbers[..]) {
                (Some(what), _) => {
                    eprintln!("kelix-bench: no {what} is installed: rows of {way} are left out");
                    return Ok(None);
                }
                (None, [done, taken]) if *done > 0 => {
                    operations += done;
                    time += taken;
                }
                _ => return Err(format!("{}: {way}: {said}", self.command)),
            }
        }
        Ok(Some(time as f64 / operations as f64))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // With the end of its orders it ends, and what it has started. One that hangs is not waited for.
        self.orders = None;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
