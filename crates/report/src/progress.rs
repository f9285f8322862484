//! How far a long benchmark is, for whoever sits before it.

use std::io::IsTerminal;

/// Shows a line in place of the last one; an empty one in the end.
pub fn show(line: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{line:<60}\r");
    }
}
