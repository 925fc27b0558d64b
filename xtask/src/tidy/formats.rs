//! On-disk formats: a page in `docs/format`, code that cites the page, and golden bytes in a test.
//!
//! A page names its golden files by path (`crates/NAME/golden/FILE.hex`), a source names its page
//! (`docs/format/NAME.md`), and a test includes each golden file.

use crate::workspace::Text;

const PAGES: &str = "docs/format/";

/// Every format without a page, code or golden bytes, and every name of a page or file that does not exist.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    let exists = |path: &str| texts.iter().any(|text| text.path == path);
    let sources = || texts.iter().filter(|text| is_source(&text.path));
    let mut complaints = Vec::new();
    for page in texts.iter().filter(|text| is_page(&text.path)) {
        if !sources().any(|source| source.content.contains(&page.path)) {
            complaints.push(format!("{}: no source of a crate names it", page.path));
        }
        let golden: Vec<&str> = golden_paths(&page.content).collect();
        if golden.is_empty() {
            complaints.push(format!("{}: names no golden file", page.path));
        }
        for path in golden.into_iter().filter(|path| !exists(path)) {
            complaints.push(format!("{}: names {path}, which does not exist", page.path));
        }
    }
    for golden in texts.iter().filter(|text| text.path.ends_with(".hex")) {
        let name = golden.path.rsplit('/').next().unwrap_or_default();
        if !texts.iter().any(|text| is_page(&text.path) && text.content.contains(&golden.path)) {
            complaints.push(format!("{}: no page in {PAGES} names it", golden.path));
        }
        if !sources().any(|source| source.content.contains(name)) {
            complaints.push(format!("{}: no test compares with it", golden.path));
        }
    }
    for source in sources() {
        for page in source.content.split(PAGES).skip(1).filter_map(page_name) {
            let path = format!("{PAGES}{page}.md");
            if !exists(&path) {
                complaints.push(format!("{}: names {path}, which does not exist", source.path));
            }
        }
    }
    complaints
}

fn is_page(path: &str) -> bool {
    path.starts_with(PAGES) && path.ends_with(".md")
}

fn is_source(path: &str) -> bool {
    path.starts_with("crates/") && path.ends_with(".rs")
}

/// The name of the page at the beginning of `after`.
fn page_name(after: &str) -> Option<&str> {
    let (name, _) = after.split_once(".md")?;
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_').then_some(name)
}

/// Every path of a golden file in `page`.
fn golden_paths(page: &str) -> impl Iterator<Item = &str> {
    let words = page.split(|c: char| c.is_whitespace() || "`()[]<>\",;".contains(c));
    words.filter(|word| word.starts_with("crates/") && word.ends_with(".hex"))
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;

    fn report(page: &str, source: &str, golden: &str) -> String {
        let texts = [
            made_up("docs/format/log.md", page),
            made_up("crates/wal/src/record.rs", source),
            made_up(golden, "00"),
        ];
        complaints(&texts).join("\n")
    }

    const GOLDEN: &str = "crates/wal/golden/record.hex";
    const PAGE: &str = "Held by `crates/wal/golden/record.hex`.";
    const SOURCE: &str = "//! Format: docs/format/log.md.\ninclude_str!(\"../golden/record.hex\")";

    #[test]
    fn a_format_has_a_page_code_and_golden_bytes() {
        assert_eq!(report(PAGE, SOURCE, GOLDEN), "");
    }

    #[test]
    fn each_missing_part_is_reported() {
        for (page, source, golden, complaint) in [
            (PAGE, "record.hex", GOLDEN, "no source of a crate names it"),
            ("", SOURCE, "crates/wal/other.txt", "names no golden file"),
            (PAGE, SOURCE, "crates/wal/other.txt", "names crates/wal/golden/record.hex, which"),
            ("", SOURCE, GOLDEN, "no page in docs/format/ names it"),
            (PAGE, "docs/format/log.md", GOLDEN, "no test compares with it"),
            (PAGE, &format!("{SOURCE} docs/format/tail.md"), GOLDEN, "docs/format/tail.md, which"),
        ] {
            let report = report(page, source, golden);
            assert!(report.contains(complaint), "{complaint}: {report}");
        }
    }
}
