//! The root directory of a sandbox: an allow-list on a fresh tmpfs, prepared once for each profile.
//!
//! The monitor makes a [`Template`] in its own mount namespace at start. Each init gets a copy of that
//! namespace, adds what is its own (/proc, /dev/pts, /dev/shm, /tmp, the workspace) and pivots onto it.
//! What is not on the list is not there; nothing is hidden by mounting over it.

mod private;
mod snapshot;
mod template;

pub use private::{Home, mount_private, mount_proc, pivot, verify};
pub use template::Template;
