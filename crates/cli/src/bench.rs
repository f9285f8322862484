//! `kelix bench`, which a program of its own does that stands beside this one, with the arguments that this
//! one has looked at.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches};
use kelix_program::bench;
use kelix_program::output::check_usable;

use crate::context::Context;
use crate::{Exit, Failure};

/// The arguments, as they were typed.
pub(crate) struct BenchArgs(Vec<OsString>);

impl clap::Args for BenchArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        bench::BenchArgs::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        bench::BenchArgs::augment_args_for_update(command)
    }
}

impl FromArgMatches for BenchArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<BenchArgs, clap::Error> {
        let mut words = Vec::new();
        let command = <bench::BenchArgs as clap::Args>::augment_args(clap::Command::new("bench"));
        for option in command.get_arguments() {
            let id = option.get_id().as_str();
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            for values in matches.get_raw_occurrences(id).into_iter().flatten() {
                words.extend(option.get_long().map(|name| format!("--{name}").into()));
                words.extend(values.map(OsString::from));
            }
        }
        Ok(BenchArgs(words))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = BenchArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Gives way to the program of the benchmarks, and returns only where that is not possible.
pub(crate) fn run(context: &Context, args: &BenchArgs) -> Result<(), Failure> {
    check_usable()?;
    let cannot = |what: String, source| Failure::io("bench", what, &source);
    let program = kelix_program::beside(bench::PROGRAM)
        .map_err(|error| cannot("cannot find the program's own file".into(), error))?;
    let error = Command::new(&program).args(context.json.then_some("--json")).args(&args.0).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => {
            let context =
                format!("benchmarks: there is no {}; `make build` builds all of it", program.display());
            Failure::new(Exit::Other, "bench", context)
        }
        _ => cannot(format!("cannot run {}", program.display()), error),
    })
}
