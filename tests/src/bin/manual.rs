//! `manual DIR PROGRAM...`: writes a manual page for each program and each of its subcommands into a directory, from
//! what `--help` says, so that no option is described twice.

use cordon_tests::manual::{Page, subcommands};
use std::{error::Error, fs, path::Path, process::Command};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: manual DIR PROGRAM...")?;
    fs::create_dir_all(&directory)?;
    let mut pages = Vec::new();
    for program in arguments {
        let name =
            Path::new(&program).file_name().ok_or("a program has a name")?.to_string_lossy().into_owned();
        let version = said(&program, &["--version"])?;
        let version = version.split_whitespace().last().unwrap_or_default().to_owned();
        describe(&program, &name, &version, &[], &mut pages)?;
    }
    let all: Vec<_> = pages.iter().map(Page::reference).collect();
    for page in &pages {
        fs::write(Path::new(&directory).join(page.file()), page.roff(&all))?;
    }
    Ok(())
}

/// The page of a program or subcommand, and those of what is below it.
fn describe(
    program: &str,
    name: &str,
    version: &str,
    words: &[&str],
    pages: &mut Vec<Page>,
) -> Result<(), Box<dyn Error>> {
    let help = said(program, &[words, &["--help"]].concat())?;
    pages.push(Page::new(name, version, &help));
    for word in subcommands(&help) {
        describe(program, &format!("{name}-{word}"), version, &[words, &[&word]].concat(), pages)?;
    }
    Ok(())
}

/// What a program prints, which must succeed. No variable of ours shows up in it.
fn said(program: &str, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let mut command = Command::new(program);
    let out = command.args(arguments).env_clear().env("COLUMNS", "100").output()?;
    if !out.status.success() {
        return Err(format!("{program} {arguments:?}: {}", out.status).into());
    }
    Ok(String::from_utf8(out.stdout)?)
}
