//! One line to standard error, where systemd's journal or the terminal takes it.

/// Writes a line of the log. Nothing that a client sent belongs in it.
#[macro_export]
macro_rules! log {
    ($($argument:tt)*) => {
        eprintln!("cordon-executor: {}", format_args!($($argument)*))
    };
}
