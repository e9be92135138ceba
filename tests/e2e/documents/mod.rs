//! The documents against the programs: what they repeat of the code is made from it or compared with it.
//!
//! A part between `<!-- name -->` and `<!-- end -->` is generated; `BLESS=1` writes it anew.

mod architecture;
mod client;
mod defaults;
mod escape;
mod install;
mod protocol;
mod readme;
mod security;
mod suite;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The top of the repository.
fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// A file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Fails unless the generated part of a document is this text.
fn assert_generated(document: &str, part: &str, text: &str) {
    // Tests run side by side, and two of them may write one document.
    static WRITING: Mutex<()> = Mutex::new(());
    let _alone = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let whole = read(document);
    let marker = format!("<!-- {part} -->\n");
    let start = whole.find(&marker).unwrap_or_else(|| panic!("{document} has no {marker}")) + marker.len();
    let end = start + whole[start..].find("<!-- end -->").expect("the part has an end");
    let wanted = format!("{}{text}\n{}", &whole[..start], &whole[end..]);
    if std::env::var_os("BLESS").is_some() {
        fs::write(repository().join(document), wanted).unwrap();
        return;
    }
    let differs = whole.lines().zip(wanted.lines()).find(|(ours, code)| ours != code);
    assert!(
        whole == wanted,
        "{document}, part `{part}`, is not what the code says ({differs:?}); run with BLESS=1"
    );
}

/// The rows of the first table after a text, each cell without the spaces around it.
fn table_after(document: &str, text: &str) -> Vec<Vec<String>> {
    let whole = read(document);
    let at = whole.find(text).unwrap_or_else(|| panic!("{document} does not have: {text}"));
    let lines = whole[at..].lines().skip_while(|line| !line.starts_with('|')).skip(2);
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Every page of the repository.
fn pages() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| repository().join(name)).into();
    for directory in ["docs", "docs/decisions"] {
        let entries = fs::read_dir(repository().join(directory)).unwrap().flatten();
        found.extend(entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "md")));
    }
    found
}

/// Names that a heading can be reached by: lower case, blanks as hyphens, the rest left out.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let text = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        text.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut followed = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            assert!(target.exists(), "{}: {link} leads nowhere", page.display());
            if !anchor.is_empty() {
                let there = anchors(&fs::read_to_string(&target).unwrap());
                assert!(there.contains(anchor), "{}: {link} has no such heading", page.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "{followed} links are too few to be all");
}

#[test]
fn every_decision_is_in_the_list() {
    let listed: BTreeSet<_> = table_after("docs/architecture.md", "## Decisions")
        .iter()
        .map(|row| row[0].split(['(', ')']).nth(1).unwrap().to_owned())
        .collect();
    let entries = fs::read_dir(repository().join("docs/decisions")).unwrap().flatten();
    let there: BTreeSet<_> =
        entries.map(|e| format!("decisions/{}", e.file_name().to_string_lossy())).collect();
    assert_eq!(listed, there);
}
