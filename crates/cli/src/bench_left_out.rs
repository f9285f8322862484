//! `kelix bench` of a program that was built without the benchmarks.

use std::ffi::OsString;

use crate::context::Context;
use crate::{Exit, Failure};

/// Run a benchmark, which this program was built without
///
/// `make build` in the sources builds all of it.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// Any
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<OsString>,
}

pub(crate) fn run(_: &Context, _: &BenchArgs) -> Result<(), Failure> {
    let context = "benchmarks: left out of this program, which was built without the feature bench; `make build` builds all of it";
    Err(Failure::new(Exit::Other, "bench", context))
}
