//! Keeps tests that need many processes apart from those that take all there are: where no cgroup counts
//! them, the limit of processes counts the sandbox user's on the whole host (docs/decisions/0009).

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CROWD: RwLock<()> = RwLock::new(());

/// For a test whose commands must be able to fork; others of the kind run beside it.
pub(crate) fn among_others() -> RwLockReadGuard<'static, ()> {
    CROWD.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that forks until nothing is left.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    CROWD.write().unwrap_or_else(PoisonError::into_inner)
}
