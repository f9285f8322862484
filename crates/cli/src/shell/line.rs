//! A line of the shell: words, read as a command, and run.

use clap::Parser;

use super::words;
use crate::commands::{self, StoreCommand};
use crate::context::Context;
use crate::kept::Kept;
use crate::{Failure, refuse};

/// What a line says.
#[derive(Parser)]
#[command(name = "kelix", no_binary_name = true, disable_version_flag = true, max_term_width = 110)]
#[command(
    help_template = "{subcommands}\n\nhelp COMMAND tells more, with examples; help syntax how keys and values are written.\n"
)]
pub(super) struct Line {
    /// Print results and errors as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: LineCommand,
}

#[derive(clap::Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum LineCommand {
    #[command(flatten)]
    Store(StoreCommand),
    /// Go to another namespace
    Use {
        /// The namespace; `default` is the one that every server has
        namespace: String,
    },
    /// Leave the shell
    #[command(visible_alias = "quit")]
    Exit,
}

/// How a line ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// It did what it says.
    Done,
    /// It did not; the exit code, which is not 0.
    Failed(u8),
    /// There is nothing more to do.
    Leave,
}

/// A shell: where it is connected.
pub(super) struct Shell {
    /// What commands have at hand.
    pub context: Context,
}

impl Shell {
    pub fn new(context: Context) -> Shell {
        Shell { context }
    }

    /// Runs a line and tells how it failed. `place` says where it stands, in a script.
    pub fn run(&mut self, line: &str, place: Option<&str>) -> Ended {
        let Some(mut words) = shlex::split(line) else {
            return self.fail(Failure::usage("shell", "a quote is not closed, or a \\ ends the line"), place);
        };
        if words.first().is_some_and(|word| word == words::PROGRAM) {
            words.remove(0);
        }
        let Some(first) = words.first() else { return Ended::Done };
        // clap would take a first word for the path of a program, and look only at its file's name.
        if first.contains(['/', '.']) || first.starts_with('-') {
            return self
                .fail(Failure::usage("shell", format!("\"{first}\" is no command; help lists them")), place);
        }
        match Line::try_parse_from(&words) {
            Ok(line) => self.execute(line, place),
            Err(error) => {
                if let (Some(place), true) = (place, error.use_stderr() && !self.context.json) {
                    crate::context::say(&format!("kelix: {place}:"));
                }
                let json = self.context.json || words.iter().any(|word| word == "--json");
                match refuse(&error, json) {
                    0 => Ended::Done,
                    code => Ended::Failed(code),
                }
            }
        }
    }

    fn execute(&mut self, line: Line, place: Option<&str>) -> Ended {
        let context = Context { json: self.context.json || line.json, ..self.context.clone() };
        let done = match &line.command {
            LineCommand::Exit => return Ended::Leave,
            LineCommand::Use { namespace } => self.enter(namespace),
            LineCommand::Store(command) => commands::run(&context, command),
        };
        match done {
            Ok(()) => Ended::Done,
            Err(failure) => self.fail_as(failure, place, context.json),
        }
    }

    /// Goes to another namespace, if one can.
    fn enter(&mut self, namespace: &str) -> Result<(), Failure> {
        let kept = self.context.kept.as_ref().map(Kept::anew);
        let there = Context { namespace: namespace.into(), kept, ..self.context.clone() };
        drop(there.session()?);
        self.context = there;
        Ok(())
    }

    /// Tells a failure.
    pub fn fail(&self, failure: Failure, place: Option<&str>) -> Ended {
        self.fail_as(failure, place, self.context.json)
    }

    fn fail_as(&self, failure: Failure, place: Option<&str>, json: bool) -> Ended {
        if failure.is_quiet() {
            return Ended::Leave;
        }
        if let (true, Some(kept)) = (failure.is_lost(), &self.context.kept) {
            kept.forget();
        }
        let code = failure.code();
        match place {
            Some(place) => failure.at(place).report(json),
            None => failure.report(json),
        };
        Ended::Failed(code)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        Line::command().debug_assert();
    }
}
