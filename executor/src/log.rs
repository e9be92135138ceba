//! One line to standard error, where systemd's journal or the terminal takes it.

/// Writes a line of the log. Nothing that a client sent belongs in it.
///
/// A log that nobody takes any more is no reason to end, which `eprintln!` would do.
#[macro_export]
macro_rules! log {
    ($($argument:tt)*) => {{
        let line = format!("cordon-executor: {}\n", format_args!($($argument)*));
        // In one piece: both halves write to the same place.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }};
}
