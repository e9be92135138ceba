//! The unprivileged half.
