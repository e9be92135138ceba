//! Row 18: acts that Landlock does not see, or sees from some ABI on only: each is stopped by another layer too.

use super::{
    Probe,
    acts::{inside_of, numbers, outside, outside_as_user, user},
    probe,
};
use crate::harness::{
    Client, host,
    lab::{lab, probes, profiles},
    lesser_host::{LesserHost, WHOLE},
    marker, shared,
};
use std::{
    fs,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{PermissionsExt, chown},
            net::{SocketAddr, UnixListener},
        },
    },
};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 18,
        test: "escape::r18_landlock::what_landlock_does_not_see_is_stopped_without_it",
        tried: "on a file of the command's own user that the profile shows: truncating (ABI 3), changing mode, times, owner and attributes (never); control of a device (5); TCP (4), abstract sockets and signals (6), UDP (10), multipath TCP (never); looking at a path that is not shown (never); keyrings (never). With all of Landlock, with ABI 2 and without any",
        control: "outside each succeeds",
        closed_by: "read-only mounts (files), namespaces (paths, sockets, signals), no capability (devices), seccomp (keyrings, multipath TCP)",
    },
    Probe {
        row: 18,
        test: "escape::r18_landlock::truncating_linking_and_device_control_keep_to_the_rules",
        tried: "truncating, linking, changing the mode of and following links to what may be read only",
        control: "the same with files of the command's own",
        closed_by: "Landlock, read-only mounts, owners",
    },
];

#[test]
fn what_landlock_does_not_see_is_stopped_without_it() {
    let _verdict = probe!();
    let mark = marker();
    let (victim, elsewhere) =
        (probes().join(format!("victim-{mark}")), shared().directory().join(format!("victim-{mark}")));
    for path in [&victim, &elsewhere] {
        fs::write(path, "kept").unwrap();
        chown(path, Some(host::uid_of("execuser")), Some(host::gid_of("execuser"))).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    udp.set_nonblocking(true).unwrap();
    let name = format!("cordon-test-{mark}");
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let mut sleeper = user("sleep").arg("1000").spawn().unwrap();
    // Signal 0 to a process of the same user.
    let pid = sleeper.id();
    let (file, hidden) = (victim.display(), elsewhere.display());
    let files = format!(
        "f = '{file}'\nprint(t(os.truncate, f, 4), t(open, f, 'r+'), t(os.chmod, f, 0o666), t(os.utime, f, (1, 1)), \
         t(os.chown, f, os.getuid(), os.getgid()), t(os.setxattr, f, 'user.x', b'x'), t(os.stat, '{hidden}'))"
    );
    let network = format!(
        "u = socket.socket(2, 2); t(u.connect, ('127.0.0.1', {port})); t(u.send, b'x')\n\
         print(t(socket.socket().connect, ('127.0.0.1', {port})), t(socket.socket(1).connect, '\\0{name}'), t(os.kill, {pid}, 0), \
         t(socket.socket, 2, 1, 262), sys_(250, 0, -4, 1))"
    );
    // RNDADDTOENTCNT, of nothing.
    let device = "n = ctypes.c_int(0)\nprint(call(l.ioctl, os.open('/dev/urandom', os.O_RDONLY), ctypes.c_ulong(0x40045201), ctypes.byref(n)))";
    let arrived = || udp.recv(&mut [0; 8]).is_ok();

    let assert_stopped = |executor: &Client, landlock: &str| {
        let seen = inside_of(executor, "probe", &format!("{files}\n{network}\n{device}"));
        assert!(numbers(&seen).iter().all(|errno| *errno != 0), "{landlock}: {seen}");
        assert!(!arrived(), "{landlock}: UDP");
    };
    assert_stopped(lab(), "the host's Landlock");
    for abi in [2, 0] {
        let executor = LesserHost { landlock: Some(abi), ..WHOLE }.start(&profiles());
        let report = executor.report(&["--", "true"]);
        assert_eq!(report.enforced.landlock_abi, abi);
        assert_stopped(&executor, &format!("ABI {abi}"));
    }
    assert_eq!(fs::read(&victim).unwrap(), b"kept");

    let mut control = outside_as_user(&files.replace(&file.to_string(), &hidden.to_string()));
    control += &outside_as_user(&network.replace("t(socket.socket, 2, 1, 262), ", ""));
    control += &outside(device);
    assert!(numbers(&control).iter().all(|errno| *errno == 0), "the control: {control}");
    assert!(arrived(), "the control: UDP");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    for path in [victim, elsewhere] {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn truncating_linking_and_device_control_keep_to_the_rules() {
    let _verdict = probe!();
    let code = "def t(f, *a):\n  try: f(*a); return 'done'\n  except OSError: return 'denied'\n\
                open('own', 'w').write('text')\n\
                print(t(os.truncate, 'own', 1), t(os.truncate, '/etc/passwd', 0), t(os.link, 'own', 'second'), \
                t(os.rename, 'second', '/tmp/third'), t(os.link, '/etc/passwd', 'p'), t(os.chmod, '/etc/passwd', 0o777), \
                t(os.symlink, '/etc/shadow', 's'), t(open, 's'))";
    // A rename from the workspace to /tmp crosses file systems, which every system refuses.
    assert_eq!(super::acts::inside(code), "done denied done denied denied denied done denied\n");
    let directories = "mkdir -p a/b c && echo x > a/b/f && mv a/b/f c/ && ln c/f a/g && cat a/g";
    assert_eq!(shared().inside(directories), "x\n", "REFER: moving between directories works");
}
