//! Rules about one file: module headers, forbidden words and paths, columns, `unsafe`.

use super::length::is_test;
use super::rust::{Split, has_word, split};
use crate::workspace::Text;

/// The longest line of Rust, in characters. Lines that rustfmt cannot break may be longer than its 100.
const COLUMNS_MAX: usize = 110;

/// The crates whose purpose needs `unsafe` code, and the adapters of engines with an unsafe API.
const UNSAFE_CRATES: [&str; 5] = [
    "crates/media/",
    "crates/arena/",
    "bindings/c/src/",
    "peers/src/stores/berkeley.rs",
    "peers/src/stores/lmdb.rs",
];

/// Marks of unfinished work, which belongs in an issue.
const UNFINISHED: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// The beginnings of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 4] = ["/home/", "/root/", "/Users/", "/work/"];

/// This file, which contains the words that it forbids.
const THIS: &str = "xtask/src/tidy/source.rs";

/// Every violation in `text`.
pub(crate) fn complaints(text: &Text) -> Vec<String> {
    if text.path == THIS {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let mut complain = |line: usize, complaint: &str| {
        complaints.push(format!("{}:{}: {complaint}", text.path, line + 1));
    };
    for (number, line) in text.content.lines().enumerate() {
        if MACHINE_PATHS.iter().any(|path| names_path(line, path)) {
            complain(number, "a path of one machine");
        }
    }
    if !text.path.ends_with(".rs") {
        return complaints;
    }
    // The header of a module introduces the file of its tests, too.
    let in_crate = text.path.starts_with("crates/") && text.path.contains("/src/");
    if in_crate && !is_test(&text.path) && !text.content.starts_with("//!") {
        complain(0, "no module header: begin with `//!`, its noun and its place in the flow");
    }
    for (number, line) in text.content.lines().enumerate() {
        if line.chars().count() > COLUMNS_MAX {
            complain(number, &format!("longer than {COLUMNS_MAX} columns"));
        }
    }
    let Split { code, comments } = split(&text.content);
    for (number, line) in comments.lines().enumerate() {
        if UNFINISHED.iter().any(|mark| has_word(line, mark)) {
            complain(number, "a mark of unfinished work");
        }
    }
    let may_be_unsafe = UNSAFE_CRATES.iter().any(|folder| text.path.starts_with(folder));
    for (number, line) in code.lines().enumerate() {
        if line.contains("todo!") || line.contains("unimplemented!") {
            complain(number, "unfinished code");
        }
        if !may_be_unsafe && has_word(line, "unsafe") {
            complain(number, "`unsafe` outside media and arena");
        }
    }
    complaints
}

/// Whether `line` contains a path that begins with `root`, and not only `root` inside a longer path.
fn names_path(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || "._-$}~/".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;

    fn report(path: &str, content: &str) -> String {
        complaints(&made_up(path, content)).join("\n")
    }

    #[test]
    fn a_tidy_file_passes() {
        let content = "//! A noun.\n// A comment may contain unsafe and todo!.\nfn f() {}\n";
        assert_eq!(report("crates/base/src/noun.rs", content), "");
    }

    #[test]
    fn each_violation_is_reported_with_its_line() {
        let long = format!("//! A noun.\n//{}\n", "x".repeat(COLUMNS_MAX));
        for (content, complaint) in [
            ("fn f() {}\n", ":1: no module header"),
            ("//! A noun.\n// TODO: more.\n", ":2: a mark of unfinished work"),
            ("//! A noun.\nfn f() {\n    todo!()\n}\n", ":3: unfinished code"),
            ("//! A noun.\nfn f() { unsafe { g() } }\n", ":2: `unsafe` outside"),
            ("//! A noun.\nconst A: &str = \"/home/me/x\";\n", ":2: a path of one machine"),
            (&long, ":2: longer than 110 columns"),
        ] {
            let report = report("crates/base/src/noun.rs", content);
            assert!(report.contains(complaint) && report.lines().count() == 1, "{report}");
        }
    }

    #[test]
    fn unsafe_code_headers_and_paths_are_judged_by_place() {
        let content = "//! A noun.\nfn f() { unsafe { g() } }\n";
        assert_eq!(report("crates/arena/src/noun.rs", content), "");
        assert_eq!(report("crates/base/tests/noun.rs", "fn f() {}\n"), "");
        assert_eq!(report("crates/base/src/noun/tests.rs", "use super::*;\n"), "");
        assert_eq!(report("README.md", "see $HOME/work/x or /var/lib"), "");
        assert!(report("README.md", "see `/root/x`").contains(":1: a path of one machine"));
    }
}
