//! README, ARCHITECTURE and CONTRIBUTING name only what is there: files, folders, make targets, crash points.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test: its helpers fail the test too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use contract::root;

const PAGES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
/// What a path of ours begins with.
const FOLDERS: [&str; 4] = ["events/", "functions/", "shared/", "tests/"];

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The words of a page, without the marks around them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || "`()[],;".contains(c)).map(|word| word.trim_end_matches(['.', ':']))
}

/// Whether there is such a file or folder; of a `*`, whether anything fits.
fn is_there(path: &str) -> bool {
    let Some((before, after)) = path.split_once('*') else { return root().join(path).exists() };
    let (folder, start) = before.rsplit_once('/').expect("a path with a folder");
    let names = fs::read_dir(root().join(folder)).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    names.filter_map(|name| name.into_string().ok()).any(|name| name.starts_with(start) && name.ends_with(after))
}

#[test]
fn files_that_the_pages_name_are_there() {
    let mut named = BTreeSet::new();
    for name in PAGES {
        let text = page(name);
        let paths = words(&text).filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
        // `functions/<name>/` stands for any
        for path in paths.filter(|path| !path.contains('<')) {
            assert!(is_there(path), "{name} names {path}");
            named.insert(path.to_owned());
        }
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(link.starts_with("https://") || Path::new(&root().join(link)).exists(), "{name} links to {link}");
        }
    }
    assert!(named.len() > 30, "only {named:?}");
}

#[test]
fn make_targets_that_the_pages_name_are_there() {
    let makefile = page("Makefile");
    let mut named = BTreeSet::new();
    for name in PAGES {
        let text = page(name);
        let calls = text.split("make ").skip(1).filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        for target in calls.filter_map(|rest| rest.split(|c: char| !c.is_ascii_lowercase()).next()) {
            if makefile.contains(&format!("\n{target}:")) {
                named.insert(target.to_owned());
            }
        }
        for quoted in text.split('`').filter_map(|quoted| quoted.strip_prefix("make ")) {
            let target = quoted.split(' ').next().unwrap();
            let is_pattern = target.starts_with("build-");
            assert!(is_pattern || makefile.contains(&format!("\n{target}:")), "{name} says `make {target}`");
        }
    }
    for target in ["demo", "setup", "test", "up", "down", "invoke", "token", "logs", "deploy"] {
        assert!(named.contains(target), "no page says what `make {target}` does");
    }
}

#[test]
fn crash_points_that_the_pages_name_are_there() {
    let sources = ["shared/sale/src/buy.rs"].map(page).concat();
    for text in PAGES.map(page) {
        for point in text.split("CRASH_AT=").skip(1).filter_map(|rest| rest.split('`').next()) {
            assert!(sources.contains(&format!("crash::point(\"{point}\")")), "{point}");
        }
    }
}
