//! Under systemd a process may only make cgroups in a subtree that was delegated to it: `cordon up` starts
//! itself anew in such a scope (systemd.resource-control(5), `Delegate=`).

use crate::output;
use cordon_protocol::supervision::has_systemd;
use std::{
    env, fs,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

/// Set on the second start, so that there is no third.
const MARK: &str = "CORDON_UP_SCOPED";
const SYSTEMD_RUN: [&str; 5] = ["--scope", "--quiet", "-p", "Delegate=yes", "--"];

/// Comes back in a delegated cgroup, or with a warning where that cannot be had.
pub(super) fn enter_delegated() {
    if !has_systemd() || env::var_os(MARK).is_some() || is_delegated() {
        return;
    }
    // Once we have become systemd-run there is no way back, so its way is tried first.
    let tried = Command::new("systemd-run").args(SYSTEMD_RUN).arg("true").stdin(Stdio::null()).output();
    let problem = match tried {
        Ok(tried) if tried.status.success() => match env::current_exe() {
            Ok(program) => {
                let mut again = Command::new("systemd-run");
                again.args(SYSTEMD_RUN).arg(program).args(env::args_os().skip(1)).env(MARK, "1");
                again.exec().to_string()
            }
            Err(error) => error.to_string(),
        },
        Ok(tried) => String::from_utf8_lossy(&tried.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    let line = format!(
        "cordon: warning: no delegated cgroup: systemd-run failed: {problem}; memory and process limits may be \
         sampled instead of enforced"
    );
    output::complain(&output::visible(&line));
}

/// Whether the unit that we run in was given its cgroup subtree.
fn is_delegated() -> bool {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(unit) = unit(&membership) else { return false };
    let asked =
        Command::new("systemctl").args(["show", "--property=Delegate", "--value", "--", unit]).output();
    asked.is_ok_and(|answer| answer.stdout.trim_ascii() == b"yes")
}

/// The innermost service or scope of a process, from `/proc/PID/cgroup` (cgroups(7)).
fn unit(membership: &str) -> Option<&str> {
    let path = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    path.rsplit('/').find(|name| name.ends_with(".service") || name.ends_with(".scope"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_unit_is_asked_about() {
        let path = "1:name=systemd:/x\n0::/user.slice/user@0.service/app.slice/run-1.scope/cordon\n";
        assert_eq!(unit(path), Some("run-1.scope"));
        assert_eq!(unit("0::/system.slice/ssh.service\n"), Some("ssh.service"));
        assert_eq!(unit("0::/\n"), None);
        assert_eq!(unit("4:memory:/ssh.service\n"), None);
    }
}
