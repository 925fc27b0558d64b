//! Names and links in documents: a named file or item exists, and a relative link leads to a file.
//!
//! Names are checked in the documents for contributors ([`NAMING`], `docs/decisions`, the pages of crates): a
//! path in backquotes is a file or folder of the repository, `NAME::..::ITEM` is an item of the crate `NAME`,
//! and in the page of a crate `src/..` is a file of that crate. Links are checked in every document.

use super::rust::has_word;
use crate::workspace::Text;

/// Documents that name code.
const NAMING: [&str; 4] =
    ["docs/ARCHITECTURE.md", "docs/internals.md", "docs/invariants.md", "CONTRIBUTING.md"];

/// Another folder of documents that name code.
const DECISIONS: &str = "docs/decisions/";

/// Every link, path and name without a target.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    let mut complaints = Vec::new();
    for document in texts.iter().filter(|text| text.path.ends_with(".md")) {
        for (number, line) in document.content.lines().enumerate() {
            let mut complain = |complaint: &str| {
                complaints.push(format!("{}:{}: {complaint}", document.path, number + 1));
            };
            for link in links(line) {
                if !leads_somewhere(texts, document, link) {
                    complain(&format!("the link to {link} leads nowhere"));
                }
            }
            let page = document.path.strip_suffix("README.md");
            let of_crate = page.filter(|folder| folder.starts_with("crates/"));
            let names_code = document.path.starts_with(DECISIONS) || of_crate.is_some();
            if names_code || NAMING.contains(&document.path.as_str()) {
                for word in line.split('`').skip(1).step_by(2) {
                    let own = of_crate.filter(|_| word.starts_with("src/"));
                    let is_lost =
                        own.is_some_and(|folder| !exists(texts, &format!("{folder}{word}")));
                    if is_lost || !names_something(texts, word) {
                        complain(&format!("`{word}` does not exist"));
                    }
                }
            }
        }
    }
    complaints
}

/// The targets of the relative links in `line`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|after| after.split(')').next());
    let relative =
        targets.filter(|target| !target.contains("://") && !target.starts_with("mailto"));
    relative.filter(|target| !target.is_empty())
}

/// Whether the file that `link` of `document` names exists and, if it is a document, has the heading.
fn leads_somewhere(texts: &[Text], document: &Text, link: &str) -> bool {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = match path {
        "" => document.path.clone(),
        path => from(&document.path, path),
    };
    let target = texts.iter().find(|text| text.path == path && path.ends_with(".md"));
    match target.filter(|_| !anchor.is_empty()) {
        Some(target) => headings(&target.content).any(|heading| heading == anchor),
        None => exists(texts, &path),
    }
}

/// The anchors of the headings of a document: lower case, hyphens for spaces, no punctuation.
fn headings(content: &str) -> impl Iterator<Item = String> {
    let headings = content.lines().filter(|line| line.starts_with('#'));
    headings.map(|heading| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// The path from the root of `target`, named in the document at `path`.
fn from(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether a file, or a folder with a file in it, has this path.
fn exists(texts: &[Text], path: &str) -> bool {
    let path = path.trim_end_matches('/');
    texts.iter().any(|text| {
        text.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// False if `word` has the form of a path or an item of the repository, and there is none.
fn names_something(texts: &[Text], word: &str) -> bool {
    let rooted = ["crates/", "docs/", "xtask/", "fuzz/"].iter().any(|root| word.starts_with(root));
    if rooted && !word.contains(['*', ' ', '<']) {
        return exists(texts, word);
    }
    let Some((name, item)) = word.split_once("::").filter(|_| !word.contains(' ')) else {
        return true;
    };
    let folder = format!("crates/{name}/");
    let item = item.rsplit("::").next().unwrap_or_default();
    let mut sources = texts.iter().filter(|text| text.path.starts_with(&folder)).peekable();
    // The paths of other crates and of the standard library are not checked.
    sources.peek().is_none() || sources.any(|source| has_word(&source.content, item))
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;

    fn report(document: &str) -> String {
        let texts = [
            made_up("docs/ARCHITECTURE.md", document),
            made_up("docs/media.md", "# Media\n## What it costs, in us\n"),
            made_up("README.md", ""),
            made_up("crates/base/src/account.rs", "fn a_charge_is_refused() {}"),
        ];
        complaints(&texts).join("\n")
    }

    #[test]
    fn files_that_the_page_of_a_crate_names_exist() {
        let report = |word: &str| {
            let page = made_up("crates/base/README.md", &format!("See `{word}`."));
            let source = made_up("crates/base/src/account.rs", "");
            complaints(&[page, source]).join("\n")
        };
        assert_eq!(report("src/account.rs"), "");
        assert!(report("src/gone.rs").contains("`src/gone.rs` does not exist"));
    }

    #[test]
    fn links_paths_and_items_in_documents_exist() {
        let good = "See [media](media.md#what-it-costs-in-us), [readme](../README.md), [site](https://x.y), \
                    `crates/base/src`, `docs/media.md`, `base::account::a_charge_is_refused`, \
                    `std::sync::Arc`, `crates/*/src`, `a::b c`.";
        assert_eq!(report(good), "");
        for (bad, complaint) in [
            ("\n[media](gone.md)", ":2: the link to gone.md leads nowhere"),
            ("[media](media.md#what)", ":1: the link to media.md#what leads nowhere"),
            ("[here](#gone)", ":1: the link to #gone leads nowhere"),
            ("[media](../media.md)", ":1: the link to ../media.md leads nowhere"),
            ("`crates/base/src/gone.rs`", "`crates/base/src/gone.rs` does not exist"),
            ("`base::account::a_charge`", "`base::account::a_charge` does not exist"),
        ] {
            let report = report(bad);
            assert!(report.contains(complaint) && report.lines().count() == 1, "{report}");
        }
    }
}
