//! Tests and benchmarks that drive Cordon's programs.

pub mod measure;
pub mod nop;
