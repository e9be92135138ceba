//! The system-call filter.
