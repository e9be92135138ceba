//! Row 17: what is decided on must not change before it is used.

use super::{Probe, probe};
use crate::harness::{
    lab::{compile, lab},
    marker,
};
use cordon_executor::sandbox::seccomp;
use std::process::Command;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 17,
        test: "escape::r17_pointers::the_filter_asks_nobody_and_follows_no_pointer",
        tried: "a reading of the emitted program: what it loads and what it answers",
        control: "it loads the number, the architecture and arguments, and answers",
        closed_by: "seccomp alone, without user notification, tracer or log",
    },
    Probe {
        row: 17,
        test: "escape::r17_pointers::a_path_that_changes_while_it_is_opened_opens_nothing_else",
        tried: "one thread that writes an allowed and a forbidden path into the same memory in turn, and another that opens it, many times",
        control: "outside the same program opens both",
        closed_by: "the kernel's own look-up: Landlock and mounts decide on the file that is opened",
    },
];

#[test]
fn the_filter_asks_nobody_and_follows_no_pointer() {
    let _verdict = probe!();
    let program = seccomp::program().unwrap();
    // linux/filter.h and linux/seccomp.h: BPF_LD|BPF_W|BPF_ABS, BPF_RET|BPF_K.
    let loads: Vec<u32> = program.iter().filter(|op| op.code & 7 == 0).map(|op| op.k).collect();
    assert!(loads.contains(&0) && loads.contains(&4) && loads.iter().any(|at| *at >= 16), "{loads:?}");
    // Arguments are at 16 and up, 8 bytes each, low half first; the pointer to the instruction, at 8, is not looked at.
    // The one upper half is that of prlimit64's new value: whether there is one.
    let new_value = 16 + 2 * 8 + 4;
    let argument = |at: u32| (16..64).contains(&at) && (at.is_multiple_of(8) || at == new_value);
    assert!(loads.iter().all(|at| *at == 0 || *at == 4 || argument(*at)), "{loads:?}");
    let answers: Vec<u32> =
        program.iter().filter(|op| op.code & 7 == 6).map(|op| op.k & 0xffff_0000).collect();
    let (allow, errno, kill) = (0x7fff_0000, 0x0005_0000, 0x8000_0000);
    assert!(answers.contains(&allow) && answers.contains(&errno));
    assert!(answers.iter().all(|answer| [allow, errno, kill].contains(answer)), "{answers:x?}");
}

#[test]
fn a_path_that_changes_while_it_is_opened_opens_nothing_else() {
    let _verdict = probe!();
    let source = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static char path[256];
static const char *names[2];
static volatile int done;
static void *change(void *unused) {
    for (unsigned n = 0; !done; n++) { strcpy(path, names[n & 1]); if (n % 63 == 0) usleep(1); }
    return unused;
}
int main(int argc, char **argv) {
    names[0] = argv[1]; names[1] = argv[2];
    strcpy(path, argv[1]);
    pthread_t thread;
    pthread_create(&thread, 0, change, 0);
    long seen[2] = {0, 0};
    for (int n = 0; n < 60000; n++) {
        char first;
        int fd = open(path, O_RDONLY);
        if (fd < 0) continue;
        if (read(fd, &first, 1) == 1) seen[first == 'f']++;
        close(fd);
    }
    done = 1;
    pthread_join(thread, 0);
    printf("%d %d\n", seen[0] > 0, seen[1] > 0);
}"#;
    let program = compile("flips", source, &["-O1", "-pthread"]);
    // Of one length; the second is nowhere in the profile.
    let mark = marker();
    let allowed = crate::harness::lab::probes().join(format!("allowed-{mark}"));
    let forbidden = crate::harness::build::scratch().join(format!("other/forbid-{mark}"));
    std::fs::create_dir_all(forbidden.parent().unwrap()).unwrap();
    std::fs::write(&allowed, "a").unwrap();
    std::fs::write(&forbidden, "f").unwrap();
    let words = [&program, &allowed, &forbidden].map(|path| path.to_string_lossy().into_owned());
    let report = lab().report(&["--profile", "probe", "--", &words[0], &words[1], &words[2]]);
    assert_eq!(report.stdout.as_deref(), Some("1 0\n"), "{report:?}");
    let mut control = Command::new(&program);
    control.args([&allowed, &forbidden]);
    assert_eq!(crate::harness::process::run(control, &[]).text(), "1 1\n", "the control");
    for path in [allowed, forbidden] {
        std::fs::remove_file(path).unwrap();
    }
}
