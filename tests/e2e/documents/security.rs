//! `docs/security.md`: every claim names tests, and each is there under that name.

use super::{cells, read, repository};
use std::{collections::BTreeSet, fs};

/// Name and file of each test in a cell: `` [`module::name`](../tests/…) ``.
fn tests_in(cell: &str) -> Vec<(&str, &str)> {
    let links = cell.split("[`").skip(1);
    links
        .filter_map(|link| link.split_once("`]("))
        .map(|(name, rest)| (name, rest.split(')').next().unwrap()))
        .collect()
}

/// The module in which the end-to-end test in this file is, as its name begins with.
fn module_of(file: &str) -> Option<String> {
    let path = file.strip_prefix("../tests/e2e/")?.strip_suffix(".rs")?;
    Some(path.strip_suffix("/mod").unwrap_or(path).replace('/', "::"))
}

#[test]
fn every_claim_has_a_test_that_is_there() {
    let page = read("docs/security.md");
    let rows =
        page.lines().skip_while(|line| *line != "## Claims").take_while(|line| !line.starts_with("## What"));
    let claims: Vec<_> = rows
        .filter(|line| line.starts_with('|') && !line.starts_with("|---") && !line.starts_with("| claim"))
        .map(cells)
        .collect();
    assert!(claims.len() > 30, "{} claims are too few to be all", claims.len());
    let mut named = BTreeSet::new();
    for claim in &claims {
        let tests = tests_in(&claim[1]);
        assert!(!tests.is_empty(), "nothing shows: {}", claim[0]);
        for (name, file) in tests {
            let code = fs::read_to_string(repository().join("docs").join(file)).unwrap();
            let function = name.rsplit("::").next().unwrap();
            assert!(code.contains(&format!("#[test]\nfn {function}()")), "{file} has no test {function}");
            if let Some(module) = module_of(file) {
                assert_eq!(name, format!("{module}::{function}"));
            }
            named.insert(name);
        }
    }
    let linked: BTreeSet<_> = tests_in(&page).into_iter().map(|(name, _)| name).collect();
    assert_eq!(named, linked, "a test is named outside the claims' second column");
}
