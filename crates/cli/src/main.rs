//! The `kelix` program.

mod failure;

pub(crate) use failure::{Exit, Failure};

fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
