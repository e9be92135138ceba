//! What DIR may be, what it gets, and what in it is left alone.

use super::*;
use std::os::unix::fs::MetadataExt;

fn told<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
    match result {
        Err(Failure::Told { problem, next }) => format!("{problem}\n{next}"),
        other => panic!("{other:?}"),
    }
}

/// A fresh directory that is fit to be DIR. These tests are root's, as the program is.
fn fresh() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    directory
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_missing_directory_is_made_and_marked() {
    let parent = fresh();
    let path = parent.path().join("new");
    let directory = Directory::prepare(&path).unwrap();
    assert_eq!(mode(&path), 0o755);
    assert_eq!((mode(&directory.state()), mode(&directory.executor_state())), (0o755, 0o711));
    assert!(directory.made_mark().exists());
    let there = fresh();
    assert!(!Directory::prepare(there.path()).unwrap().made_mark().exists());
}

#[test]
fn the_component_that_is_unfit_is_named() {
    let parent = fresh();
    let middle = parent.path().join("middle");
    fs::create_dir(&middle).unwrap();
    for (unfit, says) in [(0o700, "cannot pass through it"), (0o777, "can write to it")] {
        fs::set_permissions(&middle, Permissions::from_mode(unfit)).unwrap();
        let text = told(Directory::prepare(&middle.join("dir")));
        assert!(text.contains(&format!("checking {}", middle.display())) && text.contains(says), "{text}");
        assert!(!middle.join("dir").exists(), "nothing is made in an unfit place");
    }
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(told(Directory::prepare(&file)).contains("not a directory"));
    let text = told(Directory::prepare(&parent.path().join("a/b")));
    assert!(text.contains(&format!("finding {}", parent.path().join("a").display())), "{text}");
}

#[test]
fn two_at_once_refuse_and_the_second_may_come_later() {
    let directory = fresh();
    let first = Directory::prepare(directory.path()).unwrap();
    assert!(told(Directory::prepare(directory.path())).contains("another `cordon up` is running"));
    drop(first);
    Directory::prepare(directory.path()).unwrap();
}

#[test]
fn a_living_service_is_left_alone_and_a_dead_socket_is_removed() {
    let place = fresh();
    let socket = place.path().join("executor.sock");
    let service = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(told(Directory::prepare(place.path())).contains("already listens"));
    assert!(socket.exists());
    drop(service);
    Directory::prepare(place.path()).unwrap();
    assert!(!socket.exists());
}

#[test]
fn what_is_somebody_else_s_is_neither_used_nor_removed() {
    let place = fresh();
    let state = place.path().join("state");
    fs::create_dir(&state).unwrap();
    Directory::prepare(place.path()).unwrap();
    fs::remove_dir_all(&state).unwrap();
    fs::create_dir(&state).unwrap();
    fs::write(state.join("precious"), "").unwrap();
    assert!(told(Directory::prepare(place.path())).contains("is not `cordon up`'s"));
    assert_eq!(fs::read_dir(&state).unwrap().count(), 1);
    fs::remove_dir_all(&state).unwrap();
    let file = place.path().join("gateway.sock");
    fs::write(&file, "precious").unwrap();
    Directory::prepare(place.path()).unwrap().remove_sockets();
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn a_pipe_in_place_of_a_file_is_not_waited_for() {
    let place = fresh();
    let directory = Directory::prepare(place.path()).unwrap();
    for path in [directory.executor_configuration(), directory.token_file()] {
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    assert!(told(write_root_file(&directory.executor_configuration(), "x", 0o644)).contains("writing"));
    assert!(told(directory.token()).contains("holds no token"));
}

#[test]
fn a_path_too_long_for_a_socket_is_refused() {
    let place = fresh();
    let long = place.path().join("x".repeat(100));
    assert!(told(Directory::prepare(&long)).contains("longer than the 107 bytes"));
}

#[test]
fn a_token_is_kept_and_nonsense_in_its_place_is_refused() {
    let place = fresh();
    let directory = Directory::prepare(place.path()).unwrap();
    let kept = "k".repeat(TOKEN_BYTES);
    fs::write(directory.token_file(), format!("{kept}\n")).unwrap();
    assert_eq!(directory.token().unwrap(), kept);
    for text in ["", "short", &" ".repeat(64)] {
        fs::write(directory.token_file(), text).unwrap();
        assert!(told(directory.token()).contains("holds no token"), "{text:?}");
    }
    fs::remove_file(directory.token_file()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", directory.token_file()).unwrap();
    assert!(told(directory.token()).contains("reading"));
}
