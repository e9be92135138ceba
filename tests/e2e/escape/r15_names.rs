//! Row 15: a proxy that reads a name otherwise than the filter before it. There is none so far: no mode of the
//! network takes names. With the first that does, `modes` no longer compiles, and the probes belong here.

use super::{Probe, probe};
use crate::harness::daemon::{open_directory, start_refused, write_configuration};
use cordon_protocol::NetworkMode;

pub(super) const PROBES: &[Probe] = &[Probe {
    row: 15,
    test: "escape::r15_names::no_mode_of_the_network_takes_names",
    tried: "profiles with a proxy and with names of hosts",
    control: "each mode that there is",
    closed_by: "there being no proxy yet: services are numbers of ports on the host's loopback interface",
}];

fn modes() -> [&'static str; 3] {
    [NetworkMode::None, NetworkMode::Services, NetworkMode::Host].map(|mode| match mode {
        NetworkMode::None => "network = 'none'",
        NetworkMode::Services => "network = 'services'\nservices = [80]",
        NetworkMode::Host => "network = 'host'",
    })
}

#[test]
fn no_mode_of_the_network_takes_names() {
    let _verdict = probe!();
    let start = |keys: &str| {
        let directory = open_directory();
        let file = write_configuration(directory.path(), "available", &format!("[profiles.x]\n{keys}\n"));
        (file, directory)
    };
    for keys in [
        "network = 'proxy'",
        "network = 'names'",
        "hosts = ['example.org']",
        "network = 'services'\nservices = ['example.org:80']",
        "network = 'services'\nservices = ['127.0.0.1:80']",
    ] {
        let (file, _directory) = start(keys);
        let said = start_refused(&file).stderr;
        assert!(["network", "hosts", "services"].iter().any(|key| said.contains(key)), "{keys}: {said}");
    }
    for keys in modes() {
        crate::harness::Executor::start(&format!("[profiles.x]\n{keys}\n"));
    }
}
