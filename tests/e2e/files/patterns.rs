//! Patterns over trees that a command made: what they find, what they leave, and what is told of that.

use super::{cordon, files_of, open_directory, shared, text, well};
use serde_json::{Value, json};
use std::path::Path;

fn collected(body: &Value) -> Vec<(String, Value)> {
    let report = shared().post(body).json();
    let files = report["collected"].as_array().unwrap_or_else(|| panic!("{report}"));
    files.iter().map(|file| (file["path"].as_str().unwrap().to_owned(), file["problem"].clone())).collect()
}

fn names(into: &Path) -> Vec<String> {
    files_of(into).into_keys().collect()
}

#[test]
fn links_to_everything_and_in_circles_cost_a_command_none_of_its_files() {
    let both = |script: &str, pattern: &str| collected(&json!({ "command": script, "collect": [pattern] }));
    let well = |names: &[&str]| names.iter().map(|&name| (name.to_owned(), Value::Null)).collect::<Vec<_>>();
    for link in ["ln -s / a", "ln -s . current", "ln -s .. z", "mkdir y; ln -s ../y y/y"] {
        let script =
            format!("{link}; mkdir -p z1/.h; echo 1 > z1/t.txt; echo 2 > b.txt; echo 3 > z1/.h/h.txt");
        assert_eq!(both(&script, "**/*.txt"), well(&["b.txt", "z1/t.txt"]), "{link}");
    }
    let script = "ln -s . current; mkdir z; echo 1 > z/t; echo 2 > b; echo 3 > .c";
    assert_eq!(both(script, "**"), well(&["b", "z/t"]));
    assert_eq!(both(script, "z/"), well(&["z/t"]));
    let (path, problem) = &both(script, "z*")[0];
    assert_eq!(path, "z*");
    assert!(problem.as_str().unwrap().contains("ends in `/`"), "{problem}");
    // More than can be kept in mind on the way: what was found is there, and the word that it is not all.
    let script = "python3 -c 'import os\nos.mkdir(\"b\")\nopen(\"a.txt\", \"w\")\nos.chdir(\"b\")\n\
                  for n in range(60000): os.mkdir(f\"{n:06}\" + \"x\" * 240)'; echo > c.txt";
    let found = both(script, "**/*.txt");
    assert_eq!([&found[0], &found[1]], [&well(&["a.txt"])[0], &well(&["c.txt"])[0]]);
    assert_eq!(found[2].0, "**/*.txt");
    assert!(found[2].1.as_str().unwrap().contains("not all of it"), "{}", found[2].1);
}

#[test]
fn what_a_pattern_matches_is_got_as_a_shell_s_argument_would_be() {
    let scratch = open_directory();
    let script = "mkdir -p z/.a/.b/.c zero z/sub; echo 1 > z/t; echo 2 > z/.a/.b/.c/deep; echo 3 > b; echo 4 > .hidden; \
                  ln -s z dlz; ln -s ../b z/up; ln -s . z/sub/round";
    well(&["run", "-n", "--workspace", "patterns", "-c", script]);
    let get = |paths: &[&str], into: &Path| {
        let ran = cordon(&[&["workspace", "get", "patterns"], paths, &["--into", text(into)]].concat());
        (ran.status, ran.stderr)
    };
    let of_z = [".a/.b/.c/deep", "t", "up"];
    let below = |top: &str| of_z.map(|name| format!("{top}/{name}"));
    for (number, (path, wanted)) in
        [("z", below("z")), ("z/", below("z")), ("z*", below("z")), ("dlz", below("dlz"))]
            .into_iter()
            .enumerate()
    {
        let into = scratch.path().join(number.to_string());
        let (status, told) = get(&[path], &into);
        assert_eq!(names(&into), wanted, "{path}");
        // The link in it is what could not be got.
        let link = wanted[0].replace(".a/.b/.c/deep", "sub/round");
        assert!(
            status == 125 && told.contains(&format!("getting {link} failed: a link to a directory")),
            "{told}"
        );
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    well(&["run", "-n", "--workspace", "patterns", "-c", "rm z/sub/round"]);
    let into = scratch.path().join("all");
    assert_eq!(get(&["*"], &into), (0, String::new()));
    assert_eq!(names(&into), [vec!["b".to_owned()], below("dlz").into(), below("z").into()].concat());
    for (path, says) in [
        ("zero", "getting zero failed: no file is in the directories"),
        ("none*", "getting none* failed: no file matches"),
    ] {
        let (status, told) = get(&[path], &into);
        assert!(status == 125 && told.contains(says), "{told}");
    }
}

#[test]
fn a_link_that_leads_out_is_called_that() {
    let scratch = open_directory();
    well(&[
        "run",
        "-n",
        "--workspace",
        "out",
        "-c",
        "ln -s /etc etc; ln -s /etc/passwd passwd; ln -s b a; ln -s a b",
    ]);
    let says = |told: &str, path: &str, why: &str| {
        let wanted = format!("{path} failed: {why}");
        assert!(told.contains(&wanted) && !told.contains("os error"), "{wanted}: {told}");
    };
    let out = "a link leads out of the workspace, where nothing is read or written; put a copy";
    for (path, failed, why) in [
        ("passwd", "passwd", out),
        ("etc", "etc", out),
        ("etc/passwd", "etc", out),
        ("etc/*", "etc", out),
        ("pass*", "passwd", out),
        ("a", "a", "links lead to one another"),
    ] {
        let ran = cordon(&["workspace", "get", "out", path, "--into", text(scratch.path())]);
        assert_eq!(ran.status, 125, "{path}");
        says(&ran.stderr, &format!("getting {failed}"), why);
        let into = ["--into", text(scratch.path())];
        let ran = cordon(
            &[&["run", "-n", "--workspace", "out", "--collect", path], &into[..], &["--", "true"]].concat(),
        );
        assert_eq!(ran.status, 125, "{path}");
        says(&ran.stderr, &format!("collecting {failed}"), why);
    }
}
