//! Limits as the kernel has them, read from outside: exact where cgroup v2 has its controllers, and nowhere
//! claimed where it has not.

use crate::harness::{
    Executor, PATIENCE,
    client::{argv, collect, line},
    crowd, eventually, host, marker,
    process::{self, sandboxed, status},
};
use cordon_protocol::{
    CgroupMode, EndedBy, Event, ExitReport, LimitName, LimitRequest, RunRequest, client::blocking,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A file of a cgroup without the last line break; none where the controller is not there.
fn read(group: &Path, file: &str) -> Option<String> {
    Some(fs::read_to_string(group.join(file)).ok()?.trim().to_owned())
}

/// A number of a keyed file, such as `oom_kill` of `memory.events`.
fn count(group: &Path, file: &str, key: &str) -> u64 {
    let text = read(group, file).unwrap_or_else(|| panic!("no {file} in {}", group.display()));
    let value = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {key} in {file}")).parse().unwrap()
}

/// A command that sleeps under these limits until it is dropped.
struct Held {
    command: i32,
    group: PathBuf,
    _connection: (blocking::Connection, blocking::Stdin),
}

fn hold(executor: &Executor, limits: LimitRequest) -> Held {
    let marker = marker();
    let mut request = line(&format!("exec sleep {marker}"));
    request.limits = limits;
    let connection = blocking::run(&executor.socket, "test", request).unwrap();
    let command = process::sandboxed_program("sleep", &marker);
    Held { command, group: host::cgroup_of(command).expect("cgroup v2"), _connection: connection }
}

/// The init of a command: process 1 of its pid namespace.
fn init_of(command: i32) -> i32 {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let first = |pid: &i32| status(*pid).get("NSpid").is_some_and(|n| n.ends_with("\t1"));
    let found = process::all().into_iter().find(|p| namespace(*p) == namespace(command) && first(p));
    found.unwrap_or_else(|| panic!("no init of {command}"))
}

/// The report of a Python program under these limits.
fn report(executor: &Executor, code: &str, limits: LimitRequest) -> ExitReport {
    let mut request = line(&format!("exec python3 -c \"{code}\""));
    request.limits = limits;
    executor.events(request).report
}

#[test]
fn what_was_asked_for_is_what_the_kernel_holds() {
    let _verdict = crate::escape::probe!();
    let executor = Executor::start("");
    let limits = LimitRequest {
        memory_bytes: Some(96 << 20),
        pids: Some(17),
        cpu_percent: Some(150),
        ..LimitRequest::default()
    };
    let held = hold(&executor, limits);
    let of = |group: &Path| {
        ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"].map(|f| read(group, f))
    };
    let init = host::cgroup_of(init_of(held.command)).unwrap();
    assert_ne!(held.group, init, "two leaves");
    if host::cgroup_mode() != CgroupMode::V2 {
        assert_eq!(of(&held.group), [const { None }; 5], "a limit that nobody answers for");
        return;
    }
    let exact = |values: [&str; 5]| values.map(|v| Some(v.to_owned()));
    let asked = ["100663296", "0", "1", "17", "150000 100000"];
    assert_eq!(of(&held.group)[0], exact(asked)[0], "96 MiB");
    // Without swap accounting there is no such file, and no swap.
    let mut seen = of(&held.group);
    if fs::read_to_string("/proc/swaps").unwrap().lines().count() == 1 {
        seen[1].get_or_insert_with(|| "0".to_owned());
    }
    assert_eq!(seen, exact(asked));
    let seen = of(&init);
    assert_eq!((seen[0].as_deref(), seen[3].as_deref()), (Some("16777216"), Some("1")), "init's own leaf");
    // And the defaults of the profile.
    let held = hold(&executor, LimitRequest::default());
    let seen = of(&held.group);
    let seen: Vec<_> = seen.iter().flatten().map(String::as_str).collect();
    assert!(["536870912", "256", "200000 100000"].iter().all(|v| seen.contains(v)), "{seen:?}");
}

#[test]
fn running_out_of_memory_is_the_kernel_s_word_and_no_byte_more_was_had() {
    let executor = Executor::start("");
    let limits = LimitRequest { memory_bytes: Some(64 << 20), ..LimitRequest::default() };
    let above = hold(&executor, LimitRequest::default()).group.parent().unwrap().to_owned();
    let v2 = host::cgroup_mode() == CgroupMode::V2;
    // The counter of the directory above holds what happened in leaves that are gone.
    let kills = || if v2 { count(&above, "memory.events", "oom_kill") } else { 0 };
    let before = kills();
    // Memory is had at once; a sampled watchdog would come too late to keep it below the limit.
    let hog = "x = bytearray(b'x') * (512 << 20); print(len(x))";
    let report = report(&executor, hog, limits);
    assert_eq!(report.ended_by, EndedBy::OutOfMemory, "{report:?}");
    assert_eq!(report.limits_hit, [LimitName::Memory]);
    assert_eq!(report.enforced.cgroup, host::cgroup_mode());
    if v2 {
        assert!(kills() > before, "the kernel knows of no kill");
        let peak = report.peak_memory_bytes.expect("memory.peak");
        assert!((32 << 20..=64 << 20).contains(&peak), "{peak}");
        assert!(read(&above, "memory.swap.current").is_none_or(|n| n == "0"));
    }
}

#[test]
fn processes_are_counted_exactly_where_the_kernel_counts_them() {
    let executor = Executor::start("");
    let code = "import os, time\nn = 1\ntry:\n  while os.fork(): n += 1\n  time.sleep(20)\n\
                except OSError as e: print(n, e.errno, flush=True)";
    let limits = LimitRequest {
        pids: Some(20),
        wall_ms: Some(60_000),
        capture_bytes: Some(100),
        ..LimitRequest::default()
    };
    let report = report(&executor, code, limits);
    assert_eq!(report.ended_by, EndedBy::Exit, "{report:?}");
    if host::cgroup_mode() == CgroupMode::V2 {
        // Twenty with the first; EAGAIN; and the counter says so.
        assert_eq!(report.stdout.as_deref(), Some("20 11\n"), "{report:?}");
        assert_eq!(report.limits_hit, [LimitName::Pids]);
    }
}

#[test]
fn the_processor_share_is_held() {
    let executor = Executor::start("");
    let limits = LimitRequest { cpu_percent: Some(50), ..LimitRequest::default() };
    let busy = "import time; end = time.monotonic() + 3\nwhile time.monotonic() < end: pass";
    let report = report(&executor, busy, limits);
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{report:?}");
    let share = report.cpu_ms / report.wall_ms;
    assert!(share > 0.1, "{share}: the loop was busy");
    // A machine with other work may give less; only the kernel can make it half at most.
    assert!(share < 0.65 || host::cgroup_mode() != CgroupMode::V2, "{share}");
}

#[test]
fn memory_is_seen_whichever_thread_of_a_process_is_left() {
    let _crowd = crowd::among_others();
    // A process whose first thread has ended is a zombie by its number, and goes on.
    let code = "
import ctypes, threading, time
def hog():
    while ') Z' not in open('/proc/self/stat').read(): time.sleep(0.01)
    held = bytearray(b'x') * (300 << 20)
    time.sleep(20)
threading.Thread(target=hog).start()
ctypes.CDLL(None).syscall(60, 0)";
    let limits = LimitRequest { memory_bytes: Some(64 << 20), ..LimitRequest::default() };
    let report = report(&Executor::start(""), code, limits);
    assert_eq!(report.ended_by, EndedBy::OutOfMemory, "{report:?}");
    assert_eq!(report.limits_hit, [LimitName::Memory]);
}

#[test]
fn what_a_command_leaves_behind_has_the_same_memory() {
    let _crowd = crowd::among_others();
    // It holds the output open, for which the report waits a while.
    let code = "
import mmap, os, time
ended, never = os.pipe()
if os.fork() == 0:
    os.close(never)
    os.read(ended, 1)
    populate = 0x8000
    held = mmap.mmap(-1, 160 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | populate)
    print('held', flush=True)
    time.sleep(0.06)
    print('kept', flush=True)
os._exit(0)";
    let limits = LimitRequest { memory_bytes: Some(64 << 20), ..LimitRequest::default() };
    let report = report(&Executor::start(""), code, limits);
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{report:?}");
    assert!(!report.stdout.as_deref().unwrap().contains("kept"), "{report:?}");
}

#[test]
fn an_end_of_its_own_is_not_put_down_to_a_limit_that_is_found_reached_with_it() {
    let _crowd = crowd::among_others();
    let executor = Executor::start("");
    let monitor = Pid::from_raw(executor.pid());
    let marker = marker();
    // Holds too much once its parent has ended, of which the monitor sees neither.
    let code = format!(
        "
import mmap, os, time
ended, never = os.pipe()
if os.fork() == 0:
    os.close(never)
    os.read(ended, 1)
    held = mmap.mmap(-1, 160 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)
    time.sleep({marker})
print('go', flush=True)
os.read(0, 1)
os._exit(3)"
    );
    let mut request = RunRequest { stdin: true, stream: true, ..argv(&["python3", "-c", &code]) };
    request.limits.memory_bytes = Some(64 << 20);
    let (mut connection, stdin) = blocking::run(&executor.socket, "test", request).unwrap();
    while !matches!(connection.next_event().unwrap(), Event::Stdout(_)) {}
    let child = sandboxed(&marker).into_iter().max().unwrap();
    kill(monitor, Signal::SIGSTOP).unwrap();
    stdin.end().unwrap();
    let resident = || status(child).get("VmRSS").and_then(|kb| kb.split(' ').next()?.parse::<u64>().ok());
    // Where the kernel counts, it is ended at once.
    eventually("the child holds too much", PATIENCE, || resident().is_none_or(|kb| kb > 128 << 10));
    kill(monitor, Signal::SIGCONT).unwrap();
    let report = collect(connection).unwrap().report;
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(3)), "{report:?}");
}

#[test]
fn memory_that_a_child_borrows_until_its_exec_is_counted_once() {
    let _crowd = crowd::among_others();
    // posix_spawn(3) shares all memory with the child, which here waits for somebody to open a pipe.
    let code = "
import os, time
os.mkfifo('pipe')
if os.fork() == 0:
    while not os.path.exists('ready'): time.sleep(0.01)
    time.sleep(1.5)
    open('pipe', 'w').close()
    os._exit(0)
held = bytearray(b'x') * (300 << 20)
open('ready', 'w').close()
actions = [(os.POSIX_SPAWN_OPEN, 0, 'pipe', os.O_RDONLY, 0)]
child = os.posix_spawn('/bin/cat', ['cat'], os.environ, file_actions=actions)
print(os.waitpid(child, 0)[1], len(held))";
    let limits = LimitRequest { memory_bytes: Some(448 << 20), ..LimitRequest::default() };
    let report = report(&Executor::start(""), code, limits);
    assert_eq!(report.ended_by, EndedBy::Exit, "{report:?}");
    assert_eq!(report.stdout.as_deref(), Some("0 314572800\n"));
}
