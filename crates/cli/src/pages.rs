//! What packages take from the program itself: completions for shells, and manual pages made of the help
//! texts.

use std::io::Write;
use std::path::PathBuf;

use clap_complete::Shell;

use crate::Failure;

/// Print the completions for a shell
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix completions bash >~/.local/share/bash-completion/completions/kelix
  kelix completions zsh >~/.zfunc/_kelix            # a directory of $fpath
  kelix completions fish >~/.config/fish/completions/kelix.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell: bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL", hide_possible_values = true)]
    shell: Shell,
}

/// Write the manual pages into a directory, one for each command
#[derive(clap::Args)]
pub(crate) struct ManualArgs {
    /// The directory; it is made if it is not there
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

pub(crate) fn completions(mut program: clap::Command, args: &CompletionsArgs) -> Result<(), Failure> {
    // The generator itself panics where nobody reads.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, "kelix", &mut text);
    Ok(std::io::stdout().write_all(&text)?)
}

pub(crate) fn manual(program: clap::Command, args: &ManualArgs) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(program.disable_help_subcommand(true), &args.directory));
    let cannot =
        |source| Failure::io("manual", format!("cannot write into {}", args.directory.display()), &source);
    written.map_err(cannot)
}
