//! Row 6: what one command could do to another that runs at the same time, as the same user.

use super::{
    Probe,
    acts::{self, Neighbour, in_namespaces_of, inside, inside_of, numbers, outside, without},
    probe,
};
use crate::harness::{host, marker, shared};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 6,
        test: "escape::r06_neighbours::a_neighbour_s_sockets_cannot_be_reached",
        tried: "connecting to the abstract socket, the socket in /tmp and the TCP port of another command",
        control: "the same in the other command's namespaces",
        closed_by: "namespaces: network and mount",
    },
    Probe {
        row: 6,
        test: "escape::r06_neighbours::a_neighbour_cannot_be_signalled_traced_or_read",
        tried: "`kill`, `pidfd_open`, `ptrace`, `process_vm_readv`, `process_vm_writev`, and environ, fd, mem, maps, cwd, root and exe in /proc/PID, of another command; a look at every number for processes that are not one's own",
        control: "the same outside",
        closed_by: "namespaces: pid",
    },
    Probe {
        row: 6,
        test: "escape::r06_neighbours::without_a_pid_namespace_landlock_and_the_filter_keep_neighbours_apart",
        tried: "the same with the pid namespace left out, by the neighbour's number on the host; `pidfd_getfd` and `tgkill` too",
        control: "the same outside",
        closed_by: "Landlock (signals, /proc), seccomp (tracing)",
    },
];

#[test]
fn a_neighbour_s_sockets_cannot_be_reached() {
    let _verdict = probe!();
    let name = format!("cordon-neighbour-{}", marker());
    let neighbour = Neighbour::start(
        shared(),
        &format!(
            "a = socket.socket(1); a.bind('\\0{name}'); a.listen()\nb = socket.socket(1); b.bind('/tmp/{name}'); b.listen()\n\
             c = socket.create_server(('127.0.0.1', 0)); print(c.getsockname()[1])"
        ),
    );
    let port = neighbour.said.trim();
    let code = format!(
        "for f, a in ((1, '\\0{name}'), (1, '/tmp/{name}'), (2, ('127.0.0.1', {port}))):\n  print(t(socket.socket(f).connect, a))"
    );
    assert_eq!(in_namespaces_of(neighbour.pid, &code), "0\n0\n0\n", "the control");
    // ECONNREFUSED, ENOENT, ECONNREFUSED.
    assert_eq!(inside(&code), "111\n2\n111\n");
}

/// Acts on a process, an address of whose memory can be read; 0 for each that succeeds.
fn acts_on(pid: i32, address: &str) -> String {
    format!(
        "p = {pid}; there = 0x{address}\nb = ctypes.create_string_buffer(16)\n\
         def vec(at, n): return (ctypes.c_size_t * 2)(at, n)\nmine = vec(ctypes.addressof(b), 8)\n\
         def opened(f): os.close(os.open(f'/proc/{{p}}/{{f}}', os.O_RDONLY))\n\
         def memory():\n  f = os.open(f'/proc/{{p}}/mem', os.O_RDONLY); os.pread(f, 8, there)\n\
         results = [t(os.kill, p, 0), call(l.syscall, 234, p, p, 0), sys_(310, p, mine, 1, vec(there, 8), 1, 0)]\n\
         results += [t(opened, f) for f in ('environ', 'maps')] + [t(memory), t(os.listdir, f'/proc/{{p}}/fd')]\n\
         results += [t(os.readlink, f'/proc/{{p}}/{{n}}') for n in ('cwd', 'root', 'exe', 'fd/0')]\n\
         d = l.syscall(434, p, 0)\nif d >= 0: results += [call(l.syscall, 424, d, 0, None, 0), sys_(438, d, 0, 0)]\n\
         else: results += [3, 3]\n\
         results += [call(l.ptrace, 16, p, None, None)]\nprint(*results)"
    )
}

/// A place in a process's memory.
fn mapped(pid: i32) -> String {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.split('-').next().unwrap().to_owned()
}

#[test]
fn a_neighbour_cannot_be_signalled_traced_or_read() {
    let _verdict = probe!();
    let neighbour = Neighbour::start(shared(), "print()");
    let code = acts_on(neighbour.pid, &mapped(neighbour.pid));
    let seen = numbers(&inside(&code));
    assert!(seen.iter().all(|errno| *errno != 0), "{seen:?}");
    let control = numbers(&outside(&code));
    assert!(
        control.len() == seen.len() && control.iter().all(|errno| *errno == 0),
        "the control: {control:?}"
    );
    // By every number that the neighbour could have inside: there is only oneself.
    let all = "mine = os.getpid()\nprint([p for p in range(2, 1 << 15) if p != mine and sys_(62, p, 0) != 3], \
               [p for p in os.listdir('/proc') if p.isdigit() and int(p) != mine])";
    assert_eq!(inside(all), "[] []\n");
    assert!(neighbour.lives());
}

#[test]
fn without_a_pid_namespace_landlock_and_the_filter_keep_neighbours_apart() {
    let mut verdict = probe!();
    if host::landlock_abi() < 6 {
        verdict.closed_by("running one command at a time, as Landlock has no scopes");
        return;
    }
    let executor = without("pid");
    let neighbour = Neighbour::start(executor, "print()");
    let code = acts_on(neighbour.pid, &mapped(neighbour.pid));
    let seen = numbers(&inside_of(executor, "default", &code));
    assert!(seen.iter().all(|errno| *errno != 0), "{seen:?}");
    let own = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let seen = inside_of(executor, "default", "print(os.readlink('/proc/self/ns/pid'))");
    assert_eq!(seen.trim(), own.to_string_lossy(), "the namespace is left out");
    let secret = format!("print('{}' in open('/proc/{}/environ').read())", acts::SECRET, neighbour.pid);
    assert_eq!(outside(&secret), "True\n", "the control");
    let control = numbers(&outside(&code));
    assert!(control.iter().all(|errno| *errno == 0), "the control: {control:?}");
}
