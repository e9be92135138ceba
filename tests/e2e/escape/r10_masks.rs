//! Row 10: masks over /proc, and whoever puts them there while the command can move things about.

use super::{
    Probe,
    acts::{Neighbour, in_namespaces_of, inside},
    probe,
};
use crate::harness::{Executor, client::argv, shared};
use cordon_protocol::{RunRequest, client::blocking};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 10,
        test: "escape::r10_masks::masks_stay_where_they_are",
        tried: "unmounting what covers /proc/cmdline and /proc/sys, mounting another procfs by the old and the new calls, reaching below by /proc/self/root, /proc/1/root and `..`",
        control: "root in the same mount namespace takes the mask away and reads what was below",
        closed_by: "seccomp, and no capability; nothing is mounted once the command's user has a process",
    },
    Probe {
        row: 10,
        test: "escape::r10_masks::a_workspace_that_changes_meanwhile_moves_no_mount",
        tried: "a command that makes and removes directories and links named dev, proc, sys and tmp in a workspace while others are started in it",
        control: "the names are there, seen from the others",
        closed_by: "the root is made of paths that only root can write, and the workspace is mounted as a whole, never walked",
    },
];

#[test]
fn masks_stay_where_they_are() {
    let _verdict = probe!();
    let read = "print(len(open('/proc/cmdline').read()), t(open, '/proc/sys/kernel/hostname', 'w') != 0)";
    let tries = "os.mkdir('p')\nprint(*(e != 0 for e in (sys_(166, b'/proc/cmdline', 2), sys_(166, b'/proc/sys', 2), \
                 sys_(165, b'proc', b'p', b'proc', 0, 0), sys_(430, b'proc', 0), sys_(428, -100, b'/proc', 1), \
                 sys_(165, b'/proc', b'p', 0, 4096 | 16384, 0), sys_(161, b'p'), sys_(155, b'.', b'.'))))\n\
                 for p in ('/proc/self/root', '/proc/1/root', '/proc/thread-self/root', '/proc/self/cwd/../..'):\n  \
                 try: print(len(open(p + '/proc/cmdline').read()))\n  except OSError: print(0)";
    let seen = inside(&format!("{tries}\n{read}"));
    assert_eq!(seen, "True True True True True True True True\n0\n0\n0\n0\n0 True\n");
    let neighbour = Neighbour::start(shared(), "print()");
    let below = "print(sys_(166, b'/proc/cmdline', 2), len(open('/proc/cmdline').read()) > 0)";
    assert_eq!(in_namespaces_of(neighbour.pid, below), "0 True\n", "the control");
}

/// Mounts without the numbers that differ from one sandbox to the next.
const MOUNTS: &str = "for line in open('/proc/self/mountinfo'):\n  f = line.split()\n  print(f[4], f[5], f[f.index('-') + 1])\n\
                      print(len(open('/proc/cmdline').read()), os.listdir('/dev'))";

#[test]
fn a_workspace_that_changes_meanwhile_moves_no_mount() {
    let _verdict = probe!();
    let executor = Executor::start("");
    let within = |code: &str| RunRequest {
        workspace: Some("moving".to_owned()),
        ..argv(&["/usr/bin/python3", "-c", &super::acts::program(code)])
    };
    let quiet = executor.events(within(MOUNTS)).report.stdout.unwrap();
    assert!(quiet.contains("/proc/cmdline ro"), "{quiet}");
    let move_about = "names = ['dev', 'proc', 'sys', 'tmp', 'execuser', 'null', '.cordon']\nwhile True:\n  for n in names:\n    \
                      t(os.mkdir, n); t(os.mkdir, n + '/null'); t(os.rename, n, 'old')\n    \
                      t(os.symlink, '/proc/self/root', n); t(os.unlink, n); t(os.symlink, '/etc', n + '2'); t(os.rmdir, 'old/null'); t(os.rmdir, 'old')";
    let mover = blocking::run(&executor.socket, "test", within(move_about)).unwrap();
    let mut seen = 0;
    for _ in 0..15 {
        let report = executor
            .events(within(&format!("{MOUNTS}\nprint(os.path.lexists('dev2'), file=sys.stderr)")))
            .report;
        assert_eq!(report.stdout.as_deref(), Some(quiet.as_str()));
        seen += usize::from(report.stderr.as_deref() == Some("True\n"));
    }
    assert!(seen > 0, "the control: the names were never seen");
    drop(mover);
}
