use super::*;
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::PathBuf,
};

const PLENTY: Allowance = Allowance { names: 1000, time: Duration::from_secs(600) };

struct Tree(PathBuf);

impl Tree {
    fn of(name: &str, files: &[&str], links: &[(&str, &str)]) -> Self {
        let top = std::env::temp_dir().join(format!("cordon-walk-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        for path in files.iter().chain(links.iter().map(|(_, path)| path)) {
            fs::create_dir_all(top.join(path).parent().unwrap()).unwrap();
        }
        for file in files {
            fs::write(top.join(file), "").unwrap();
        }
        for (target, path) in links {
            symlink(target, top.join(path)).unwrap();
        }
        Self(top)
    }

    fn walk(&self, pattern: &str, allowed: Allowance) -> (Vec<String>, bool, Allowance) {
        let top = files::open_directory(&self.0).unwrap();
        let mut walk = Walk::new(&top, pattern, allowed).unwrap();
        let found = walk.by_ref().map(|found| match found {
            Found::File(path) => path,
            Found::Closed(path, why) => format!("{path}: {}", why.split(['(', ',', ';']).next().unwrap()),
        });
        (found.collect(), walk.cut, walk.left())
    }

    fn assert_finds(&self, expected: &[(&str, &[&str])]) {
        for (pattern, names) in expected {
            assert_eq!(self.walk(pattern, PLENTY).0, *names, "{pattern}");
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn patterns_match_as_a_shell_s_do_whatever_else_is_there() {
    let files = ["a", ".env", "d/b", "d/.hidden", "d/e/.env", ".git/config", ".git/.x", "d/[x]"];
    let tree = Tree::of("patterns", &files, &[]);
    for directory in [tree.0.clone(), tree.0.join("d")] {
        fs::write(directory.join(OsStr::from_bytes(b"\xff")), "").unwrap();
    }
    tree.assert_finds(&[
        ("*", &["a"]),
        (".*", &[".env"]),
        ("**", &["a", "d/[x]", "d/b"]),
        ("**/*", &["a", "d/[x]", "d/b"]),
        ("**/**/*", &["a", "d/[x]", "d/b"]),
        ("**/.*", &[".env", "d/.hidden", "d/e/.env"]),
        ("**/.env", &[".env", "d/e/.env"]),
        ("**/e/**/.env", &["d/e/.env"]),
        (".git/*", &[".git/config"]),
        ("**/.*/**/*", &[".git/config"]),
        ("d/**/*", &["d/[x]", "d/b"]),
        ("*/*", &["d/[x]", "d/b"]),
        ("d/?", &["d/b"]),
        ("d/./b", &["d/b"]),
        ("d//b", &["d/b"]),
        ("d/b", &["d/b"]),
        ("d/[[]x]", &["d/[x]"]),
        ("d/[!b]*", &["d/[x]"]),
        ("d", &[]),
        ("d/none", &[]),
        ("a/b", &[]),
        ("d/", &["d/.hidden", "d/[x]", "d/b", "d/e/.env", "d/\u{fffd}: its name is not UTF-8"]),
        ("*/e/", &["d/e/.env"]),
        ("**/e/", &["d/e/.env"]),
        (".g*/", &[".git/.x", ".git/config"]),
        ("a/", &[]),
    ]);
    let top = files::open_directory(&tree.0).unwrap();
    for pattern in ["/etc/*", "../*", "d/../a"] {
        assert!(Walk::new(&top, pattern, PLENTY).is_err(), "{pattern}");
    }
}

#[test]
fn links_are_gone_through_where_they_are_named_and_each_file_is_found_once() {
    let links = [
        (".", "current"),
        ("/", "root"),
        ("z", "dlz"),
        ("../b.txt", "z/up.txt"),
        ("nowhere", "z/none.txt"),
        ("../z", "y/other"),
    ];
    let tree = Tree::of("links", &["z/t.txt", "b.txt", "y/f"], &links);
    let out = "a link leads out of the workspace";
    tree.assert_finds(&[
        ("**/*.txt", &["b.txt", "z/none.txt", "z/t.txt", "z/up.txt"]),
        ("**/t.txt", &["z/t.txt"]),
        ("*/t.txt", &["dlz/t.txt", "z/t.txt"]),
        ("*/b.txt", &["current/b.txt"]),
        ("current/**/t.txt", &["current/z/t.txt"]),
        ("current/current/b.txt", &["current/current/b.txt"]),
        ("dlz", &[]),
        ("dlz/", &["dlz/none.txt", "dlz/t.txt", "dlz/up.txt"]),
        ("y/", &["y/f", "y/other: a link to a directory"]),
        ("**/dlz/*", &["dlz/none.txt", "dlz/t.txt", "dlz/up.txt"]),
        ("root", &["root"]),
        ("root/", &[&format!("root: {out}")]),
        ("root/etc/passwd", &[&format!("root: {out}")]),
    ]);
}

#[test]
fn a_walk_ends_with_what_it_has_found_and_what_is_named_needs_none() {
    let files: Vec<_> = (0..100).map(|n| format!("many/{n}")).chain(["few/x".to_owned()]).collect();
    let tree = Tree::of("bounds", &files.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let few = Allowance { names: 10, ..PLENTY };
    // The top's two, that of `few`, and seven of the others.
    let (found, cut, left) = tree.walk("**/*", few);
    assert_eq!((found.len(), &found[0][..], cut, left.names), (8, "few/x", true, 0));
    // What is named needs no search.
    assert_eq!(tree.walk("many/7", Allowance::NONE).0, ["many/7"]);
    let (found, cut, _) = tree.walk("many/*", Allowance { time: Duration::ZERO, ..PLENTY });
    assert_eq!((found.len(), cut), (0, true));
    let (found, cut, left) = tree.walk("**/*", PLENTY);
    assert_eq!((found.len(), cut, left.names), (101, false, 1000 - 103));
}
