//! How this executor would get a cgroup of its own with every controller, in the terms of whoever started it.

use cordon_protocol::supervision::{Supervision, has_systemd};

/// What to do where the cgroup cannot be written to or lacks controllers.
pub(super) fn delegate() -> &'static str {
    match (Supervision::of_this_process(), has_systemd()) {
        (Supervision::Systemd, _) => {
            "set Delegate=yes in the executor's unit, and boot with cgroup v2 alone \
             (systemd.unified_cgroup_hierarchy=1) and without cgroup_disable=, kernel 5.14 or newer"
        }
        (Supervision::CordonUp, true) => {
            "boot with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1) and without cgroup_disable=, kernel 5.14 \
             or newer, and systemd-run in PATH, with which `cordon up` asks for a delegated scope"
        }
        (Supervision::Hand, true) => {
            "start it with `systemd-run --scope -p Delegate=yes`, and boot with cgroup v2 alone \
             (systemd.unified_cgroup_hierarchy=1) and without cgroup_disable=, kernel 5.14 or newer"
        }
        (Supervision::CordonUp | Supervision::Hand, false) => {
            "start it in a cgroup v2 that it may write to and whose cgroup.controllers has memory, pids and cpu \
             (none of them in use by cgroup v1 or taken by cgroup_disable=), kernel 5.14 or newer"
        }
    }
}
