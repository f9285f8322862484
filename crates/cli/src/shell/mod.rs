//! `kelix shell`: commands one after the other over one session, typed or from a script.
//!
//! A line is split into words as a shell splits it, and then read by the definitions that the program reads
//! its own arguments with (`commands`), so that both have one syntax. A lost server ends no shell: the
//! session is forgotten, and the next command connects anew.

mod completion;
mod line;
mod prompt;
mod words;

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

use crate::Failure;
use crate::context::Context;
use crate::kept::Kept;
use line::{Ended, Shell};

/// Type commands one after the other, over one session
///
/// The commands, their arguments and what they print are those of the program: put, get, del, chase, walk,
/// scan, table, stat; `kelix` before them is allowed. `help` lists them, `help COMMAND` explains one, `use
/// NAMESPACE` goes to another namespace, `exit` or Ctrl-D leaves. Words are quoted as in a shell; # begins a
/// comment. There are no variables, pipes or redirections.
///
/// At a terminal, Tab completes commands, options, tables and links, the arrows go through what was typed
/// before, which is kept in $XDG_STATE_HOME/kelix/history (~/.local/state/kelix/history), without lines that
/// begin with a space. Ctrl-C ends a scan.
///
/// If standard input is no terminal, it is a script with a command a line. The first one that fails ends it,
/// with its exit code and its line; with --keep-going the others follow, and the exit code is that of the
/// first that failed.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix shell
  kelix shell < people.kelix
  kelix shell --keep-going < deletions.kelix
  kelix shell -c 'put colours red \"#ff0000\"' -c 'get colours red'
  kelix --server 127.0.0.1:7117 --json shell -c 'scan orders --limit 3'")]
pub(crate) struct ShellArgs {
    /// Run this command instead of reading any; may be given several times
    #[arg(short, long = "command", value_name = "COMMAND")]
    commands: Vec<String>,
    /// Go on after a command that failed
    #[arg(long)]
    keep_going: bool,
}

/// The exit code of what was done so far.
struct Script {
    keep_going: bool,
    code: u8,
}

impl Script {
    /// Notes how a command ended; whether another may follow.
    fn goes_on(&mut self, ended: Ended) -> bool {
        match ended {
            Ended::Done => true,
            Ended::Leave => false,
            Ended::Failed(code) => {
                if self.code == 0 {
                    self.code = code;
                }
                self.keep_going
            }
        }
    }
}

pub(crate) fn run(context: &Context, args: &ShellArgs) -> ExitCode {
    let typed = args.commands.is_empty() && std::io::stdin().is_terminal();
    let kept = Kept::new(typed);
    let input_is_script = args.commands.is_empty() && !typed;
    let mut shell = Shell::new(Context { kept: Some(kept), input_is_script, ..context.clone() });
    if typed {
        return match prompt::run(&mut shell) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(context.json),
        };
    }
    let mut script = Script { keep_going: args.keep_going, code: 0 };
    if input_is_script {
        read_script(&mut shell, &mut script);
    }
    for command in &args.commands {
        if !script.goes_on(shell.run(command, None)) {
            break;
        }
    }
    ExitCode::from(script.code)
}

/// Runs the commands of standard input.
fn read_script(shell: &mut Shell, script: &mut Script) {
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let place = format!("line {}", number + 1);
        let ended = match line {
            Ok(line) => shell.run(&line, Some(&place)),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => shell.fail(
                Failure::usage("shell", "this is no UTF-8; write other bytes as hex:..."),
                Some(&place),
            ),
            Err(error) => {
                shell.fail(Failure::io("shell", "cannot read standard input", &error), Some(&place));
                script.goes_on(Ended::Failed(5));
                return;
            }
        };
        if !script.goes_on(ended) {
            return;
        }
    }
}
