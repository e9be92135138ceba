//! The executor.
fn main() {}
