//! The root half.
pub mod link;
