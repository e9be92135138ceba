//! Tests and benchmarks that drive Cordon's programs.

pub mod belongings;
pub mod host;
pub mod manual;
pub mod markdown;
pub mod measure;
pub mod nop;
pub mod soak;
pub mod up;

/// Why something that drives the programs failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
