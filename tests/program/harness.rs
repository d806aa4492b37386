//! Programs with a harness of their own run what they list; the compiler drops a `#[test]` there without a word.

use std::fs;
use std::path::Path;

use crate::support::repository;

fn tests_in(directory: &Path, found: &mut Vec<String>) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += tests_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files += 1;
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().enumerate().filter(|(_, line)| line.trim().starts_with("#[test]"));
            found.extend(lines.map(|(at, _)| format!("{}:{}", path.display(), at + 1)));
        }
    }
    files
}

#[test]
fn no_test_is_lost_in_a_program_with_its_own_harness() {
    for program in ["tests/devices", "kernels/tests/suite"] {
        let mut found = Vec::new();
        assert!(tests_in(&repository(program), &mut found) > 5, "{program}");
        assert!(found.is_empty(), "list them as trials: {found:?}");
    }
    let mut found = Vec::new();
    tests_in(&repository("tests/program"), &mut found);
    assert!(found.len() > 100, "the search finds tests where there are some: {}", found.len());
}
