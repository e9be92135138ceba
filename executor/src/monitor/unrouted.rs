//! Whether something in a sandbox wanted out of a network that leads nowhere, which the kernel counts for each network.

use super::job::Job;
use std::fs;

impl Job {
    /// Whether something in it wanted out of its network, as long as there is a process in that: init.
    pub(super) fn wanted_out(&self) -> bool {
        let init = self.init.as_ref().filter(|_| !self.init_reaped && self.plan.isolates_network());
        init.is_some_and(|init| wanted_out(init.pid.as_raw()))
    }
}

/// Whether anything was sent, or a connection begun, that had no route, in the network of this process
/// (proc_pid_net(5); RFC 4293, ipSystemStatsOutNoRoutes); or sent to a port on which nothing listens, as to a name server
/// that the host has at 127.0.0.53 (RFC 4113, udpNoPorts). A process that has ended has none.
fn wanted_out(pid: i32) -> bool {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let table = read("snmp");
    counted(&table, "Ip: ", "OutNoRoutes") > 0
        || counted(&table, "Udp: ", "NoPorts") > 0
        || counted_6(&read("snmp6")) > 0
}

/// From a line of names and one of numbers.
fn counted(table: &str, of: &str, what: &str) -> u64 {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix(of));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let found = names.split(' ').zip(numbers.split(' ')).find(|(name, _)| *name == what);
    found.and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

/// From a line with its name.
fn counted_6(table: &str) -> u64 {
    let number = table.lines().find_map(|line| line.strip_prefix("Ip6OutNoRoutes"));
    number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_had_no_route_is_counted_for_both_families() {
        let table =
            "Ip: Forwarding OutDiscards OutNoRoutes ReasmTimeout\nIp: 1 7 3 9\nIcmp: OutNoRoutes\nIcmp: 5\n";
        let ip = |table| counted(table, "Ip: ", "OutNoRoutes");
        assert_eq!(ip(table), 3);
        assert_eq!((ip(""), ip("Ip: OutNoRoutes\n"), ip("Ip: A\nIp: 4\n")), (0, 0, 0));
        assert_eq!(counted("UdpLite: NoPorts\nUdpLite: 2\nUdp: NoPorts\nUdp: 8\n", "Udp: ", "NoPorts"), 8);
        assert_eq!(counted_6("Ip6InReceives    \t8\nIp6OutNoRoutes                  \t2\n"), 2);
        assert_eq!(counted_6("Ip6OutNoRoutesX 2\n"), 0);
        // Of this test's own network, whatever it has.
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(fs::read_to_string(format!("/proc/{own}/net/snmp")).unwrap().contains("OutNoRoutes"));
        assert!(!wanted_out(i32::MAX));
    }
}
