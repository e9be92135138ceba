//! What the command sees and may do in the file system.

use super::*;
use crate::harness::{Executor, PATIENCE, eventually, host, lab, lab::hiding, marker, shared};
use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path};

#[test]
fn the_root_holds_the_allow_list_alone() {
    let seen = set(&shared().inside("ls -A /"));
    let allowed = set("bin sbin lib lib32 lib64 libx32 usr etc opt home proc dev sys run tmp var");
    assert!(seen.is_subset(&allowed), "{:?}", seen.difference(&allowed));
    assert!(set("bin lib lib64 usr etc home proc dev sys run tmp").is_subset(&seen), "{seen:?}");
    assert_eq!(shared().inside("ls -A /home"), "execuser\n");
    // Programs expect /var/tmp; it is /tmp.
    let links = shared().inside("for l in /var/*; do echo $l $(readlink $l); done");
    assert_eq!(links, "/var/run /run\n/var/tmp /tmp\n");
    for path in ["/root", "/var/log", "/var/lib", "/boot", "/srv", "/mnt", "/work", "/lost+found"] {
        assert!(!can(&format!("test -e {path}")), "{path}");
    }
    assert!(can("test -r /etc/passwd") && can("test -x /usr/bin/env"));
    assert!(!can("mkdir /new") && !can("touch /file"));
}

#[test]
fn hidden_paths_are_not_there_at_all() {
    let hiding = hiding();
    let at = hiding.display();
    let script =
        format!("cat {at}/shown; ls -A {at} | grep -c hidden; cat {at}/hidden/secret 2>&1 | tail -c 26");
    let seen = lab().report(&["--profile", "hiding", "-c", &script]).stdout.unwrap();
    assert_eq!(seen, "shown0\nNo such file or directory\n");
    // The control: without the key it appears; without the profile nothing of it is there.
    assert_eq!(lab().inside_profile("unhiding", &format!("cat {at}/hidden/secret")), "secret");
    assert_eq!(lab().inside(&format!("ls {at} 2>/dev/null || echo absent")), "absent\n");
    assert!(!can("test -e /etc/cordon"));
}

#[test]
fn the_system_is_read_only_and_the_workspace_is_not() {
    let mounts = shared().inside("cat /proc/self/mountinfo");
    // Of the mount that the path lies on.
    let options = |target: &str| -> BTreeSet<String> {
        let point = |line: &&str| line.split(' ').nth(4).unwrap().to_owned();
        let covering = mounts.lines().filter(|l| Path::new(target).starts_with(point(l)));
        let line = covering.max_by_key(|l| point(l).len()).unwrap();
        line.split(' ').nth(5).unwrap().split(',').map(str::to_owned).collect()
    };
    // `/etc` is a copy on the root's own file system.
    for target in ["/", "/usr", "/etc"] {
        let options = options(target);
        assert!(["ro", "nosuid", "nodev"].iter().all(|o| options.contains(*o)), "{target}: {options:?}");
    }
    for target in ["/tmp", "/home/execuser"] {
        let options = options(target);
        let safe = ["rw", "nosuid", "nodev"].iter().all(|o| options.contains(*o));
        assert!(safe, "{target}: {options:?}");
    }
    assert!(options("/proc/sys").contains("ro"));
    for (act, expected) in [
        ("touch ~/x", true),
        ("touch /tmp/x", true),
        ("touch /usr/x", false),
        ("touch /etc/x", false),
        ("echo x > /etc/resolv.conf", false),
        ("rm -f /usr/bin/env", false),
        ("echo x > /proc/sys/kernel/hostname", false),
        ("cat /proc/self/comm", true),
        ("echo 1 > /proc/sysrq-trigger", false),
    ] {
        assert_eq!(can(act), expected, "{act}");
    }
}

#[test]
fn what_proc_would_tell_about_the_host_is_masked() {
    for name in ["cmdline", "keys", "key-users", "locks", "kallsyms", "iomem", "config.gz"] {
        let seen = shared().inside(&format!("cat /proc/{name} 2>/dev/null | wc -c"));
        assert_eq!(seen, "0\n", "/proc/{name}");
    }
    assert!(fs::read("/proc/cmdline").is_ok_and(|c| !c.is_empty()), "the control: the host has it");
    assert!(
        shared()
            .inside("cat /proc/meminfo /proc/cpuinfo /proc/uptime | wc -c")
            .trim()
            .parse::<u32>()
            .unwrap()
            > 100
    );
    assert_eq!(
        shared().inside("nproc; free -m | grep -c Mem"),
        format!("{}\n1\n", host::python("import os; print(len(os.sched_getaffinity(0)))").trim())
    );
}

#[test]
fn devices_are_few_and_work() {
    let seen = set(&shared().inside("ls -A /dev"));
    let allowed = set("null zero full random urandom tty fd stdin stdout stderr ptmx pts shm core mqueue");
    assert!(seen.is_subset(&allowed), "{:?}", seen.difference(&allowed));
    assert!(set("null zero full random urandom fd pts ptmx shm").is_subset(&seen), "{seen:?}");
    let script = "head -c 4 /dev/zero | od -An -tx1; head -c 8 /dev/urandom | wc -c; echo x > /dev/null; \
                  echo x 2>/dev/null > /dev/full || echo full; echo shared > /dev/shm/x && cat /dev/shm/x; \
                  python3 -c 'import pty, os; m, s = pty.openpty(); print(os.ttyname(s))'; \
                  echo both | tee /dev/stderr";
    let report = shared().report(&["-c", script]);
    let expected = " 00 00 00 00\n8\nfull\nshared\n/dev/pts/0\nboth\n";
    assert_eq!((report.stdout.as_deref(), report.stderr.as_deref()), (Some(expected), Some("both\n")));
    for act in ["mknod x b 254 0", "mknod x c 1 1", "cat /dev/mem", "cat /dev/kmsg", "cat /dev/vda"] {
        assert!(!can(act), "{act}");
    }
}

#[test]
fn sys_has_the_processors_and_run_is_empty() {
    assert_eq!(
        shared().inside("ls -A /sys; ls -A /sys/devices; ls -A /sys/devices/system"),
        "devices\nsystem\ncpu\n"
    );
    assert!(can("test -r /sys/devices/system/cpu/online"));
    assert!(!can("test -e /sys/fs/cgroup") && !can("echo 0 > /sys/devices/system/cpu/cpu1/online"));
    assert_eq!(shared().inside("ls -A /run | wc -l"), "0\n");
    assert!(!can("touch /run/x"));
}

#[test]
fn tmp_and_the_workspace_are_private_and_empty() {
    let name = format!("cordon-{}", marker());
    fs::write(format!("/tmp/{name}"), "the host's").unwrap();
    let script = format!("ls -A /tmp /dev/shm ~; echo mine > /tmp/{name} > ~/file > /dev/shm/x");
    let expected = "/dev/shm:\n\n/home/execuser:\n\n/tmp:\n";
    for _ in 0..3 {
        assert_eq!(shared().inside(&script), expected);
    }
    assert_eq!(fs::read_to_string(format!("/tmp/{name}")).unwrap(), "the host's");
    fs::remove_file(format!("/tmp/{name}")).unwrap();
}

#[test]
fn sizes_of_tmp_and_workspace_are_bounded() {
    let script = "for d in /tmp ~; do head -c 1M /dev/zero > $d/1 && echo fits; \
                  for i in 2 3 4 5 6 7 8 9 10; do head -c 1M /dev/zero > $d/$i; done 2>/dev/null || echo full; done";
    let seen = lab().report(&["--profile", "tiny", "-c", script]).stdout.unwrap();
    assert_eq!(seen, "fits\nfull\nfits\nfull\n");
}

#[test]
fn a_profile_can_give_a_directory_to_write() {
    let directory = crate::harness::lab::writable();
    let file = directory.join(format!("file-{}", marker()));
    let script = format!("echo written > {} && cat {}", file.display(), file.display());
    assert_eq!(lab().inside_profile("writer", &script), "written\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), "written\n");
    let report = lab().report(&["-c", &format!("echo again >> {}", file.display())]);
    assert_ne!(report.exit_code, Some(0), "another profile does not give it");
    fs::remove_file(file).unwrap();
}

#[test]
fn programs_run_from_where_the_profile_says() {
    let program = crate::harness::lab::script("runs", "#!/bin/sh\necho ran\n", 0o755);
    let report = lab().report(&["--profile", "probe", "--", &program.to_string_lossy()]);
    assert_eq!(report.stdout.as_deref(), Some("ran\n"), "{report:?}");
    let report = lab().report(&["--", &program.to_string_lossy()]);
    assert_eq!(report.exit_code, Some(127), "the default profile does not have it");
    // /etc may be read and not executed.
    let report = lab().report(&["--", "/etc/passwd"]);
    assert_eq!(report.exit_code, Some(126));
}

#[test]
fn a_change_of_the_host_s_configuration_shows_inside() {
    /// Removes the file also when the test fails.
    struct Removed<'a>(&'a Path);
    impl Drop for Removed<'_> {
        fn drop(&mut self) {
            let _ = fs::remove_file(self.0);
        }
    }
    let name = format!("/etc/cordon-e2e-{}", marker());
    let file = Path::new(&name);
    let _removed = Removed(file);
    let read = || can(&format!("test \"$(cat {name})\" = new"));
    assert!(!read());
    fs::write(file, "new").unwrap();
    eventually("a new file of /etc shows inside", PATIENCE, read);
    fs::set_permissions(file, PermissionsExt::from_mode(0o640)).unwrap();
    eventually("what not everybody may read goes", PATIENCE, || !read());
}

#[test]
fn what_is_hidden_stays_so_when_it_is_made_later() {
    let _verdict = crate::escape::probe!();
    let directory = crate::harness::build::scratch().join(format!("later-{}", marker()));
    fs::create_dir_all(directory.join("below")).unwrap();
    fs::write(directory.join("shown"), "shown\n").unwrap();
    let at = directory.display();
    let profile =
        |hide: &str| format!("[profiles.default]\nread = ['/usr', '/etc', '{at}']\nhide = [{hide}]\n");
    let hiding = Executor::start(&profile(&format!("'{at}/secret', '{at}/below/secret'")));
    let control = Executor::start(&profile(""));
    for file in ["secret", "below/secret"] {
        fs::write(directory.join(file), "secret\n").unwrap();
    }
    let script = format!("cat {at}/shown; cat {at}/secret {at}/below/secret 2>/dev/null; true");
    assert_eq!(hiding.inside(&script), "shown\n");
    assert_eq!(control.inside(&script), "shown\nsecret\nsecret\n");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_hosts_device_nodes_cannot_be_marked() {
    let before = fs::metadata("/dev/full").unwrap().modified().unwrap();
    // With the present time the right to write is enough on a mount that can be written.
    assert!(!can("touch /dev/full") && !can("touch -a /dev/null") && !can("chmod 0666 /dev/zero"));
    assert_eq!(fs::metadata("/dev/full").unwrap().modified().unwrap(), before);
    assert!(can("touch ~/x && echo x > /dev/null && cat /dev/null && head -c 1 /dev/zero | wc -c"));
}

#[test]
fn a_command_cannot_take_all_terminals_of_the_host() {
    let code = "import os, pty\nopened = []\ntry:\n  while len(opened) < 400: opened.append(pty.openpty())\n\
                except OSError: pass\nprint(len(opened))";
    let opened: u32 = shared().python(code).trim().parse().unwrap();
    assert!((16..=64).contains(&opened), "{opened}");
}

#[test]
fn beside_what_is_hidden_a_directory_can_be_written() {
    let place = crate::harness::build::scratch().join("beside");
    for name in ["hidden", "written", "read"] {
        fs::create_dir_all(place.join(name)).unwrap();
        let (uid, gid) = (host::uid_of("execuser"), host::gid_of("execuser"));
        std::os::unix::fs::chown(place.join(name), Some(uid), Some(gid)).unwrap();
    }
    let at = place.display();
    let profile = format!(
        "[profiles.default]\nread = [\"/usr\", \"/etc\", \"{at}\"]\nhide = [\"{at}/hidden\"]\nwrite = [\"{at}/written\"]"
    );
    let executor = Executor::start(&profile);
    let script = format!("cd {at}; ls; touch written/x && echo ok; touch read/x 2>/dev/null || echo refused");
    assert_eq!(executor.inside(&script), "read\nwritten\nok\nrefused\n");
    assert!(place.join("written/x").exists());
}
