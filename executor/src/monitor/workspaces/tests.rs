use super::*;
use std::{io::Read, os::unix::fs::symlink};

const CAPS: Caps = Caps { bytes: 1 << 20, files: 10 };

fn workspaces(name: &str) -> (Workspaces, PathBuf) {
    let directory = std::env::temp_dir().join(format!("cordon-workspaces-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let own = nix::unistd::getuid().as_raw();
    (Workspaces::new(&directory, &Account::of("execuser", own, nix::unistd::getgid().as_raw()), 1), directory)
}

#[test]
fn a_workspace_is_made_once_and_kept_apart_by_peer() {
    let (mut workspaces, directory) = workspaces("made");
    let (path, size) = workspaces.open(1000, "work", CAPS).unwrap();
    assert_eq!(size, Size::default());
    fs::write(path.join("file"), "x").unwrap();
    assert_eq!(workspaces.open(1000, "work", CAPS).unwrap(), (path.clone(), size));
    let (other, _) = workspaces.open(1001, "work", CAPS).unwrap();
    assert!(path.join("file").exists() && !other.join("file").exists());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o7777, 0o710);
    for bad in ["", "..", "a/b", ".deleted-1"] {
        let refused = workspaces.open(1000, bad, CAPS).unwrap_err();
        assert!(matches!(refused, Unusable::Refused(LaunchRefusal::BadWorkspace)), "{bad}");
    }
    // What root did not make there is not used.
    symlink("/etc", directory.join("workspaces/1000/link")).unwrap();
    assert!(matches!(workspaces.open(1000, "link", CAPS), Err(Unusable::Failed(_))));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn what_is_too_much_is_refused() {
    let (mut workspaces, directory) = workspaces("many");
    for number in 0..limits::WORKSPACES_PER_PEER {
        workspaces.open(1, &format!("w{number}"), CAPS).unwrap();
    }
    let refused = workspaces.open(1, "more", CAPS).unwrap_err();
    assert!(matches!(refused, Unusable::Refused(LaunchRefusal::TooManyWorkspaces)));
    assert!(workspaces.open(1, "w7", CAPS).is_ok() && workspaces.open(2, "more", CAPS).is_ok());
    workspaces.floor = u64::MAX;
    let refused = workspaces.open(1, "w7", CAPS).unwrap_err();
    let full = |refusal| matches!(refusal, LaunchRefusal::DiskFull { floor: u64::MAX, free } if free > 0);
    assert!(matches!(refused, Unusable::Refused(refusal) if full(refusal)));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_list_has_names_in_order_and_a_deleted_one_is_not_among_them() {
    let (mut workspaces, directory) = workspaces("list");
    for name in ["b", "a"] {
        workspaces.open(5, name, CAPS).unwrap();
    }
    let names = |workspaces: &Workspaces| {
        let mut text = String::new();
        File::from(workspaces.list(5).unwrap()).read_to_string(&mut text).unwrap();
        let name = |line: &str| line.split(' ').next().unwrap().to_owned();
        text.lines().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(&workspaces), ["a", "b"]);
    assert_eq!(workspaces.delete(5, "a"), Deletion::Done);
    assert_eq!(names(&workspaces), ["b"]);
    for missing in ["a", "c", "..", ""] {
        assert_eq!(workspaces.delete(5, missing), Deletion::NotFound, "{missing}");
    }
    assert_eq!(workspaces.delete(6, "b"), Deletion::NotFound, "another peer's");
    // An empty one needs nobody to empty it.
    workspaces.go_on();
    assert!(workspaces.deleting.is_empty());
    assert_eq!(fs::read_dir(directory.join("workspaces/5")).unwrap().count(), 1);
    fs::remove_dir_all(directory).unwrap();
}
