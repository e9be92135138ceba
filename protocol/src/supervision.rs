//! Who started a daemon: a hint may only name what is there, and units are not everywhere.

use std::{env, ffi::OsStr, path::Path};

/// Environment variable in which `cordon up` names itself to the daemons that it starts: its process number.
pub const PARENT_VARIABLE: &str = "CORDON_PARENT";

/// Who started a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supervision {
    /// systemd, as a unit.
    Systemd,
    /// `cordon up`.
    CordonUp,
    /// A person, or anything else.
    Hand,
}

impl Supervision {
    /// Who started this process.
    pub fn of_this_process() -> Self {
        let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        // A shell inherits INVOCATION_ID from whatever it was started by, but not the socket (systemd.exec(5)).
        Self::of_variables(set(PARENT_VARIABLE), set("INVOCATION_ID") && set("NOTIFY_SOCKET"))
    }

    fn of_variables(parent: bool, systemd: bool) -> Self {
        match (parent, systemd) {
            (true, _) => Self::CordonUp,
            (false, true) => Self::Systemd,
            (false, false) => Self::Hand,
        }
    }

    /// What starts the executor on this host: its unit where that is installed, else `cordon up`.
    pub fn of_this_host() -> Self {
        if has_systemd() && has_unit("cordon-executor.service") { Self::Systemd } else { Self::CordonUp }
    }

    /// The command that starts the executor.
    pub fn start_executor(self) -> &'static str {
        match self {
            Self::Systemd => "sudo systemctl start cordon-executor",
            Self::CordonUp => "sudo cordon up",
            Self::Hand => "sudo cordon-executor --config FILE",
        }
    }

    /// Where the executor's log is.
    pub fn executor_log(self) -> &'static str {
        match self {
            Self::Systemd => "journalctl -u cordon-executor",
            Self::CordonUp => "in what `cordon up` prints",
            Self::Hand => "on its standard error",
        }
    }
}

/// Whether the host was booted with systemd (sd_booted(3)).
pub fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Whether a unit of that name is installed (systemd.unit(5), "Unit File Load Path").
fn has_unit(name: impl AsRef<OsStr>) -> bool {
    let directories =
        ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
    directories.iter().any(|directory| Path::new(directory).join(name.as_ref()).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cordon_up_comes_before_systemd_in_whose_scope_it_may_run() {
        assert_eq!(Supervision::of_variables(true, true), Supervision::CordonUp);
        assert_eq!(Supervision::of_variables(true, false), Supervision::CordonUp);
        assert_eq!(Supervision::of_variables(false, true), Supervision::Systemd);
        assert_eq!(Supervision::of_variables(false, false), Supervision::Hand);
    }

    #[test]
    fn a_unit_is_named_only_where_it_is_the_way() {
        for supervision in [Supervision::CordonUp, Supervision::Hand] {
            for text in [supervision.start_executor(), supervision.executor_log()] {
                assert!(!text.contains("systemctl") && !text.contains("journalctl"), "{text}");
            }
        }
        assert!(!has_unit("cordon-no-such-unit.service"));
    }
}
