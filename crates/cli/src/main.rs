//! The `kelix` program.

fn main() {}
