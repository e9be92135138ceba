//! Tests and benchmarks that drive Cordon's programs.
