//! The benchmarks of `kelix bench`.
