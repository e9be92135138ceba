//! What a cloned process does to itself before it becomes the command.
pub mod seccomp;
