//! Row 19: what one run leaves where another could find it, afterwards or at the same time.

use super::{
    Probe,
    acts::{Neighbour, in_namespaces_of, inside, inside_of, program},
    probe,
};
use crate::harness::{
    client::{argv, collect},
    lab::{lab, probes},
    marker, shared,
};
use cordon_protocol::{Event, client::blocking};
use std::{fs, os::unix::fs::MetadataExt, path::Path};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 19,
        test: "escape::r19_channels::nothing_is_passed_from_one_run_to_the_next",
        tried: "writing in one run and reading in the next: /dev/shm, /tmp, home, System V memory, queues and semaphores, an abstract socket, keys in the thread's, process's, session's and user's keyrings, a lock",
        control: "reading in the same run finds all but the keys",
        closed_by: "namespaces: ipc, mount and net; seccomp: keyrings; a lock goes with its owner",
    },
    Probe {
        row: 19,
        test: "escape::r19_channels::nothing_is_passed_between_two_runs_at_once",
        tried: "the same while the writer lives",
        control: "reading in the writer's namespaces",
        closed_by: "namespaces: ipc, mount and net; locks on files that both may read remain, see below",
    },
    Probe {
        row: 19,
        test: "escape::r19_channels::reading_leaves_no_trace_on_the_host_s_files",
        tried: "reading a file of the host, which could move the time of its last access",
        control: "a reader outside moves it",
        closed_by: "namespaces: read-only mounts",
    },
    Probe {
        row: 19,
        test: "escape::r19_channels::what_others_open_is_seen_in_shared_places_alone",
        tried: "watching, with inotify, what other commands and programs of the host open",
        control: "in a directory that both may read it is seen",
        closed_by: "namespaces: what the profile does not name cannot be watched; among shared directories it remains, see below",
    },
];

/// Leaves something of each kind by this name and number.
fn write(name: &str, number: u32) -> String {
    format!(
        "for p in ('/dev/shm/{name}', '/tmp/{name}', os.path.expanduser('~/{name}')): open(p, 'w').write('x')\n\
         made = [l.shmget({number}, 4096, 0o1666), l.msgget({number}, 0o1666), l.semget({number}, 1, 0o1666)]\n\
         a = socket.socket(1); a.bind('\\0{name}'); a.listen()\n\
         keys = [sys_(248, b'user', b'{name}', b'x', 1, k) == 0 for k in (-1, -2, -3, -4, -5)]\n\
         print(all(m >= 0 for m in made), any(keys))\n"
    )
}

/// How much of it is found: files, System V, socket, keys.
fn read(name: &str, number: u32) -> String {
    format!(
        "print(sum(os.path.exists(p) for p in ('/dev/shm/{name}', '/tmp/{name}', os.path.expanduser('~/{name}'))), \
         sum(x >= 0 for x in (l.shmget({number}, 0, 0), l.msgget({number}, 0), l.semget({number}, 0, 0))), \
         int(t(socket.socket(1).connect, '\\0{name}') == 0), \
         int(sys_(250, 10, -3, b'user', b'{name}', 0) == 0) + int(sys_(250, 10, -4, b'user', b'{name}', 0) == 0))"
    )
}

#[test]
fn nothing_is_passed_from_one_run_to_the_next() {
    let _verdict = probe!();
    let name = format!("x{}", marker());
    let (write, read) = (write(&name, 4242), read(&name, 4242));
    assert_eq!(inside(&format!("{write}\n{read}")), "True False\n3 3 1 0\n", "the control");
    assert_eq!(inside(&read), "0 0 0 0\n");
    // A lock on a file that both may read, which no other test takes.
    let file = probes().join(format!("locked-{name}"));
    fs::write(&file, "").unwrap();
    let lock = format!(
        "import fcntl\nf = os.open('{}', os.O_RDONLY)\nprint(t(fcntl.flock, f, fcntl.LOCK_EX | fcntl.LOCK_NB))",
        file.display()
    );
    let again = lock
        .replace("f = ", "g = ")
        .replace("(fcntl.flock, f", "(fcntl.flock, g")
        .replace("import fcntl\n", "");
    assert_eq!(inside_of(lab(), "probe", &format!("{lock}\n{again}")), "0\n11\n", "the control: EAGAIN");
    assert_eq!(inside_of(lab(), "probe", &lock), "0\n");
    fs::remove_file(file).unwrap();
}

#[test]
fn nothing_is_passed_between_two_runs_at_once() {
    let _verdict = probe!();
    let name = format!("x{}", marker());
    let neighbour = Neighbour::start(shared(), &write(&name, 4243));
    assert_eq!(neighbour.said, "True False\n");
    let read = read(&name, 4243).replace("~", "/home/execuser");
    assert_eq!(inside(&read), "0 0 0 0\n");
    assert_eq!(in_namespaces_of(neighbour.pid, &read), "3 3 1 0\n", "the control");
}

#[test]
fn reading_leaves_no_trace_on_the_host_s_files() {
    let _verdict = probe!();
    let file = probes().join(format!("read-{}", marker()));
    fs::write(&file, "text").unwrap();
    // Long ago, so that any policy of the mount would move it.
    let path = file.display();
    super::acts::outside(&format!("os.utime('{path}', (1000, 1000))"));
    let accessed = || fs::metadata(&file).unwrap().atime();
    assert_eq!(lab().inside_profile("probe", &format!("cat {path}")), "text");
    assert_eq!(accessed(), 1000);
    assert_eq!(super::acts::outside(&format!("print(open('{path}').read())")), "text\n");
    assert_ne!(accessed(), 1000, "the control");
    fs::remove_file(file).unwrap();
}

#[test]
fn what_others_open_is_seen_in_shared_places_alone() {
    let _verdict = probe!();
    let mark = marker();
    let shown = probes().join(format!("watched-{mark}"));
    fs::create_dir(&shown).unwrap();
    for name in ["seen", "end"] {
        fs::write(shown.join(name), "").unwrap();
    }
    let at = shown.display();
    // Until somebody opens the file `end`: the names of all that was opened.
    let watch = format!(
        "i = l.inotify_init1(0)\nfor d in ('{at}', '/tmp', '/home/execuser', '/dev/shm', '/root', '/var/log'): \
         print(l.inotify_add_watch(i, d.encode(), 0xfff) >= 0, end=' ')\nprint(flush=True)\nnames = b''\n\
         while b'end' not in names: names += os.read(i, 9999)\nprint(b'seen' in names, b'{mark}' in names)"
    );
    let mut request = argv(&["/usr/bin/python3", "-c", &program(&watch)]);
    (request.profile, request.stream) = (Some("probe".to_owned()), true);
    let (mut connection, stdin) = blocking::run(&lab().socket, "test", request).unwrap();
    let mut said = String::new();
    while !said.ends_with('\n') {
        if let Event::Stdout(piece) = connection.next_event().unwrap() {
            said += &String::from_utf8(piece).unwrap();
        }
    }
    assert_eq!(said, "True True True True False False \n");
    let private =
        format!("for d in /tmp ~ /dev/shm; do echo x > $d/x{mark} && cat $d/x{mark}; done; cat {at}/seen");
    assert_eq!(lab().inside_profile("probe", &private), "x\nx\nx\n");
    let own = Path::new("/tmp").join(format!("x{mark}"));
    fs::write(&own, "").unwrap();
    fs::remove_file(own).unwrap();
    fs::read(shown.join("end")).unwrap();
    let rest = collect(connection).unwrap();
    assert_eq!(rest.stdout, b"True False\n", "{:?}", rest.report);
    drop(stdin);
    fs::remove_dir_all(shown).unwrap();
}
