//! Row 25: ways in that are newer or rarer, and might do without a layer.

use super::{
    Probe,
    acts::{output_of, program},
    probe,
};
use crate::harness::{Executor, client::argv, lab::lab, shared};
use cordon_protocol::{Action, FileIn, RunRequest};
use serde_json::json;
use std::collections::BTreeSet;

pub(super) const PROBES: &[Probe] = &[Probe {
    row: 25,
    test: "escape::r25_entries::every_way_in_leads_through_the_same_layers",
    tried: "the same facts and acts by the command line, a shell line, HTTP as report and as stream, in a named workspace, with files put in and collected, under the profiles with services and with the host's network, with the first sandbox of an executor and with the hundredth",
    control: "the same program outside finds none of the layers",
    closed_by: "one list of steps for all: docs/architecture.md",
}];

/// What holds around a process: status, limits, namespaces, and what acts come to.
const HELD: &str = "s = dict(line[:-1].split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
for k in ('Uid', 'Gid', 'Groups', 'Umask', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp', 'Seccomp_filters', 'SigIgn', 'SigBlk'): print(k, s.get(k, '').split())
for line in open('/proc/self/limits'):
  # One that is for the user as a whole.
  if not line.startswith('Max processes'): print(line.split())
print(hex(l.prctl(27)), os.getsid(0) == os.getpid(), open('/proc/self/oom_score_adj').read())
print(sorted(set(n for n in range(1024) if t(os.fstat, n) == 0)))
print(sorted(os.listdir('/')), sorted(os.listdir('/dev')), len(open('/proc/cmdline').read()))
print([t(open, f, 'w') for f in ('/etc/x', '/usr/x', '/dev/x', '/proc/self/comm', '/proc/sys/kernel/hostname')])
print(t(os.open, '/root', 0), sys_(165, 0, 0, 0, 0, 0), sys_(272, 0x10000000), sys_(425, 1, 0), sys_(248, b'user', b'x', b'x', 1, -3))
";

#[test]
fn every_way_in_leads_through_the_same_layers() {
    let _verdict = probe!();
    let code = program(HELD);
    let words = ["/usr/bin/python3", "-c", &code];
    let expected = shared().report(&[&["--"], &words[..]].concat()).stdout.unwrap();
    assert!(expected.contains("NoNewPrivs ['1']") && expected.contains("Seccomp ['2']"), "{expected}");
    assert_ne!(
        super::acts::outside_as_user(HELD.split("print([t(open").next().unwrap()),
        expected,
        "the control"
    );

    let assert_same = |way: &str, seen: &str| {
        // Line by line, so that a difference is seen.
        let differs = expected.lines().zip(seen.lines()).find(|(ours, other)| ours != other);
        assert!(seen == expected, "{way}: {differs:?}");
    };
    let mut line = RunRequest::new(Action::Line("exec /usr/bin/python3 -c \"$CODE\"".to_owned()));
    line.env = vec![("CODE".to_owned(), code.clone())];
    assert_same("a shell line", &output_of(shared(), line));
    assert_same("HTTP", &shared().exec(&json!({"argv": words})).stdout.unwrap());
    let streamed = RunRequest { stream: true, ..argv(&words) };
    assert_same("a stream", std::str::from_utf8(&shared().events(streamed).stdout).unwrap());
    let named = RunRequest { workspace: Some(format!("entry-{}", std::process::id())), ..argv(&words) };
    assert_same("a named workspace", &output_of(lab(), named));
    let files = RunRequest {
        files: vec![FileIn { path: "in".to_owned(), content: b"x".to_vec(), mode: None }],
        collect: vec!["*".to_owned()],
        ..argv(&words)
    };
    assert_same("files", &output_of(lab(), files));
    for profile in ["hostnet", "served", "greeting"] {
        let report = lab().report(&[&["--profile", profile, "--"], &words[..]].concat());
        assert_same(profile, &report.stdout.unwrap());
    }
    // From the stock and past it: several at once, and the very first.
    let executor = Executor::start("");
    let all: BTreeSet<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..8).map(|_| scope.spawn(|| output_of(&executor, argv(&words)))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(all.len(), 1);
    assert_same("side by side", all.first().unwrap());
}
