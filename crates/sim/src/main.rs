//! `kelix-sim`: runs seeds of the simulator and says what it found.

#[cfg(not(kelix_sim))]
fn main() {
    eprintln!("kelix-sim is built with --cfg kelix_sim: use `make sim`");
    std::process::exit(2);
}

#[cfg(kelix_sim)]
mod command;

#[cfg(kelix_sim)]
fn main() -> std::process::ExitCode {
    command::main()
}
