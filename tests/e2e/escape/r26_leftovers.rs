//! Row 26: what a command leaves running, and the namespace, group or workspace that the next one gets.

use super::{
    Probe,
    acts::{output_of, program},
    probe,
};
use crate::harness::{Executor, client::argv, marker, process::sandboxed};
use cordon_protocol::RunRequest;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 26,
        test: "escape::r26_leftovers::no_command_finds_anything_of_an_earlier_one",
        tried: "a process that outlives its command by a double fork and holds sockets, files, memory and a connection; commands after it, side by side and one after the other, look for all of that",
        control: "a look from the same sandbox finds each",
        closed_by: "namespaces and groups that are used once; the group is killed and empty first",
    },
    Probe {
        row: 26,
        test: "escape::r26_leftovers::what_a_command_left_behind_no_longer_writes_in_the_workspace",
        tried: "a process left behind that goes on writing in a named workspace, while the next command works in it",
        control: "it writes while its command runs",
        closed_by: "cgroup: everything is killed with the command",
    },
];

/// Goes on in a grandchild with a session of its own, of which nobody knows.
const OUTLIVE: &str = "if os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    ";

const LOOK: &str = "def table(f): return len(open(f).readlines()) - 1\n\
    print(table('/proc/net/tcp') > 0, table('/proc/net/unix') > 0, os.listdir('/tmp') != [], os.listdir('/dev/shm') != [], \
    os.listdir('/home/execuser') != [], table('/proc/sysvipc/shm') > 0, table('/proc/sysvipc/msg') > 0, \
    [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()] != [])";

#[test]
fn no_command_finds_anything_of_an_earlier_one() {
    let _verdict = probe!();
    let executor = Executor::start("");
    let marker = marker();
    let leave = format!(
        "r, w = os.pipe()\n{OUTLIVE}os.closerange(0, 3)\n    s = socket.create_server(('127.0.0.1', 0))\n    \
         c = socket.create_connection(s.getsockname())\n    u = socket.socket(1); u.bind('/tmp/u'); u.listen()\n    \
         open('/dev/shm/left', 'w').write('x'); open('/home/execuser/left', 'w').write('x')\n    \
         l.shmget(77, 4096, 0o1666); l.msgget(77, 0o1666)\n    os.write(w, b'x')\n    time.sleep({marker})\n  os._exit(0)\nos.read(r, 1)"
    );
    let run = |code: &str| output_of(&executor, argv(&["/usr/bin/python3", "-c", &program(code)]));
    let nothing = "False False False False False False False False\n";
    let control = run(&format!("{leave}\n{LOOK}"));
    assert_eq!(control, nothing.replace("False", "True"), "the control");
    for _ in 0..5 {
        run(&leave);
        std::thread::scope(|scope| {
            let looks: Vec<_> = (0..4).map(|_| scope.spawn(|| run(LOOK))).collect();
            for look in looks {
                assert_eq!(look.join().unwrap(), nothing);
            }
        });
    }
    crate::harness::eventually("nothing of them lives", crate::harness::PATIENCE, || {
        sandboxed(&marker).is_empty()
    });
}

#[test]
fn what_a_command_left_behind_no_longer_writes_in_the_workspace() {
    let _verdict = probe!();
    let executor = Executor::start("");
    let run = |code: &str| {
        let request = RunRequest {
            workspace: Some("left".to_owned()),
            ..argv(&["/usr/bin/python3", "-c", &program(code)])
        };
        output_of(&executor, request)
    };
    let leave = format!(
        "{OUTLIVE}os.closerange(0, 3)\n    f = os.open('log', os.O_CREAT | os.O_WRONLY | os.O_APPEND)\n    \
         while True: os.write(f, b'x'); time.sleep(0.001)\n  os._exit(0)\n\
         size = lambda: os.path.exists('log') and os.path.getsize('log')\nfirst = size()\n\
         while not size() > first: time.sleep(0.001)\nfirst = size()\nwhile not size() > first: time.sleep(0.001)\nprint('it writes')"
    );
    for _ in 0..5 {
        assert_eq!(run(&leave), "it writes\n", "the control");
        let look = "before = os.path.getsize('log'); time.sleep(0.05); print(os.path.getsize('log') - before); os.unlink('log')";
        assert_eq!(run(look), "0\n");
    }
}
