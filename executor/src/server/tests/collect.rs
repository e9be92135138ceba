//! Collecting: what a sandbox's process sends is passed on, bounded, and taken for all only when it says so.

use super::*;
use cordon_protocol::CollectedFile;

fn file(path: &str, content: &[u8]) -> CollectedFile {
    let (size, content) = (content.len() as u64, content.to_vec());
    CollectedFile { path: path.into(), mode: 0o644, size, content, truncated: false, problem: None }
}

/// What a client gets when this is written, after its command's end, for the files that it wanted.
fn collected(write: impl FnOnce(&mut UnixStream) + Send + 'static) -> Vec<CollectedFile> {
    let monitor = Monitor::start();
    let request = RunRequest { collect: vec!["*".into()], ..line("x") };
    let (mut client, command) = monitor.running(request, 1);
    let connection = command.connection;
    drop(command);
    monitor.ended(connection, exited());
    assert_eq!(monitor.hear(), ToMonitor::Collect(connection));
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    monitor.say(&ToServer::Collecting(connection), &[theirs.as_fd()]);
    drop(theirs);
    let writer = std::thread::spawn(move || write(&mut ours));
    client.started("0000000000000001");
    let mut files = Vec::new();
    loop {
        match client.event().unwrap() {
            Event::File(file) => files.push(file),
            Event::Exited(report) => {
                assert_eq!(report.exit_code, Some(0));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    writer.join().unwrap();
    assert_eq!(monitor.hear(), ToMonitor::Drained(connection));
    client.close(&monitor);
    monitor.stop();
    files
}

fn send(to: &mut UnixStream, file: &CollectedFile) {
    // Whoever reads may have had enough.
    let _ = to.write_all(&encode_frame(file, 8 << 20).unwrap());
}

#[test]
fn files_are_passed_on_up_to_the_word_that_these_are_all() {
    let files = collected(|to| {
        for file in [file("a", b"x"), file("b", b"\xff"), file("", b"")] {
            send(to, &file);
        }
        send(to, &file("after", b"x"));
    });
    assert_eq!(files, [file("a", b"x"), file("b", b"\xff")]);
}

#[test]
fn an_end_without_that_word_is_told() {
    for whole in [true, false] {
        let files = collected(move |to| {
            send(to, &file("a", b"x"));
            if !whole {
                let _ = to.write_all(&[200, 0, 0, 0, 1]);
            }
        });
        assert_eq!((files.len(), &files[0], files[1].path.as_str()), (2, &file("a", b"x"), ""));
        let problem = files[1].problem.as_deref().unwrap();
        assert!(problem.contains("collecting"), "{problem}");
    }
}

#[test]
fn more_than_may_be_is_not_passed_on() {
    let files = collected(|to| (0..1000).for_each(|n| send(to, &file(&n.to_string(), b"x"))));
    assert_eq!(files.last().unwrap().problem.as_deref(), Some("more was collected than may be"));
    assert!(files.len() <= limits::FILES_MAX + limits::COLLECT_PATTERNS_MAX + 2, "{}", files.len());
    let files = collected(|to| (0..9).for_each(|_| send(to, &file("a", &vec![0; 4 << 20]))));
    let total: usize = files.iter().map(|file| file.content.len()).sum();
    assert_eq!((total, files.last().unwrap().problem.is_some()), (16 << 20, true));
}
