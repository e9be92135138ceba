//! The cordon command.
fn main() {}
