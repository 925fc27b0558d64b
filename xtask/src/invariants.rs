//! The tests that keep each invariant: tags beside `#[test]`, as a list in `docs/invariants.md`.
//!
//! A test that fails if an invariant breaks is tagged with its number: `#[test] // I4, I9`. The list in the
//! document is generated from the tags. An invariant without a test is an error, and so is a tag without an
//! invariant.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::Result;
use crate::generated::between;
use crate::workspace::Text;

const DOCUMENT: &str = "docs/invariants.md";

/// A tagged test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tagged {
    /// The crate, by its folder.
    krate: String,
    /// The file.
    path: String,
    name: String,
}

/// The document with the list of tests; none if `texts` do not have it.
pub(crate) fn generated(texts: &[Text]) -> Result<Option<Text>> {
    let Some(document) = texts.iter().find(|text| text.path == DOCUMENT) else { return Ok(None) };
    let tests = tagged(texts);
    let mut content = String::new();
    for number in stated(&document.content) {
        let _never = write!(content, "\n### I{number}\n\n");
        let mut by_crate: BTreeMap<&str, Vec<&Tagged>> = BTreeMap::new();
        for test in tests.get(&number).into_iter().flatten() {
            by_crate.entry(&test.krate).or_default().push(test);
        }
        for (krate, tests) in by_crate {
            let links = tests.iter().map(|test| format!("[{}](../{})", test.name, test.path));
            let _never = writeln!(content, "- {krate}: {}", links.collect::<Vec<_>>().join(", "));
        }
    }
    let content = between(document, "tests", &(content + "\n"))?;
    Ok(Some(Text { path: DOCUMENT.to_owned(), content }))
}

/// Every invariant without a test, and every tag that names none.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    let Some(document) = texts.iter().find(|text| text.path == DOCUMENT) else { return Vec::new() };
    let stated: BTreeSet<u32> = stated(&document.content).collect();
    let tests = tagged(texts);
    let without = stated.iter().filter(|number| !tests.contains_key(number));
    let mut complaints: Vec<String> =
        without.map(|number| format!("{DOCUMENT}: no test is tagged `// I{number}`")).collect();
    for (number, tests) in tests.iter().filter(|(number, _)| !stated.contains(number)) {
        let unknown = tests.iter().map(|test| {
            format!(
                "{}: {} is tagged I{number}, which {DOCUMENT} does not state",
                test.path, test.name
            )
        });
        complaints.extend(unknown);
    }
    complaints
}

/// The numbers of the invariants in the table of the document.
fn stated(document: &str) -> impl Iterator<Item = u32> {
    document.lines().filter_map(|line| line.strip_prefix("| I")?.split_once(' ')?.0.parse().ok())
}

/// The tagged tests by invariant.
fn tagged(texts: &[Text]) -> BTreeMap<u32, BTreeSet<Tagged>> {
    let mut tests: BTreeMap<u32, BTreeSet<Tagged>> = BTreeMap::new();
    for text in texts {
        let Some(inside) = text.path.strip_prefix("crates/") else { continue };
        let Some((krate, _)) = inside.split_once('/').filter(|_| inside.ends_with(".rs")) else {
            continue;
        };
        let mut lines = text.content.lines();
        while let Some(line) = lines.next() {
            let Some(tag) = line.trim().strip_prefix("#[test] // I") else { continue };
            // Other attributes may stand between the tag and the function.
            let Some(name) = lines.by_ref().find_map(function) else { break };
            for number in tag.split(", I").filter_map(|number| number.parse().ok()) {
                let test = Tagged {
                    krate: krate.to_owned(),
                    path: text.path.clone(),
                    name: name.to_owned(),
                };
                tests.entry(number).or_default().insert(test);
            }
        }
    }
    tests
}

/// The name of the function that `line` begins.
fn function(line: &str) -> Option<&str> {
    line.trim().strip_prefix("fn ")?.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str, content: &str) -> Text {
        Text { path: path.to_owned(), content: content.to_owned() }
    }

    const TABLE: &str = "| | statement |\n|---|---|\n| I1 | a |\n| I2 | b |\n\
                         <!-- tests: written by `cargo xtask generate` -->\n<!-- tests end -->\n";

    #[test]
    fn each_invariant_lists_its_tagged_tests() {
        let source = "#[test] // I1, I2\n#[ignore]\nfn first() {}\n#[test]\nfn second() {}\n\
                      #[test] // I2\nfn third() {}\n";
        let texts = [text(DOCUMENT, TABLE), text("crates/a/src/b/tests.rs", source)];
        let document = generated(&texts).unwrap().unwrap().content;
        let expected = "\n### I1\n\n- a: [first](../crates/a/src/b/tests.rs)\n\
                        \n### I2\n\n- a: [first](../crates/a/src/b/tests.rs), \
                        [third](../crates/a/src/b/tests.rs)\n";
        assert!(document.contains(expected), "{document}");
        assert_eq!(complaints(&texts), Vec::<String>::new());
    }

    #[test]
    fn an_invariant_without_a_test_and_a_tag_without_an_invariant_are_reported() {
        let source = "#[test] // I1, I3\nfn first() {}\n";
        let texts = [text(DOCUMENT, TABLE), text("crates/a/src/b.rs", source)];
        let report = complaints(&texts).join("\n");
        assert!(report.contains("docs/invariants.md: no test is tagged `// I2`"), "{report}");
        assert!(report.contains("crates/a/src/b.rs: first is tagged I3"), "{report}");
    }
}
