//! The language of comments and documents: rates of words that distinguish a private dialect from plain
//! English.
//!
//! Comments of LevelDB, Pebble, TigerBeetle, redb and lsm-tree have 0.1-0.7 "what", 0.3-1.4 "where" and less
//! than 0.5 "who" in 1,000 words. A higher rate is a sign of sentences without a subject ("what is on its way
//! out is free by then"). The rates are a smoke alarm, not the goal; docs/GLOSSARY.md has the words to use.

use std::collections::BTreeMap;

use super::length::is_test;
use super::rust::split;
use crate::workspace::Text;

/// The counted words, and the most of each in 1,000 words.
const WORDS: [(&str, f64); 3] = [("what", 2.0), ("where", 3.0), ("who", 1.0)];

/// A shorter text is not judged.
const WORDS_MIN: usize = 400;

/// An exception is lowered when a rate falls this far below the listed one.
const SLACK: f64 = 3.0;

/// Rates are listed with one decimal.
const ROUNDING: f64 = 0.05;

/// Parts over the limits of [`WORDS`], with their rates. The rates may only fall.
const EXCEPTIONS: &[(&str, [f64; 3])] =
    &[("docs/format/table.md", [0.0, 0.8, 1.6]), ("docs/internals.md", [0.0, 0.0, 2.1])];

/// Every part with rates that are too high, and every exception that is no longer needed.
///
/// A part is a document, the comments of a crate, or those of `xtask`, `peers` or `fuzz`.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    against(texts, EXCEPTIONS)
}

fn against(texts: &[Text], exceptions: &[(&str, [f64; 3])]) -> Vec<String> {
    let mut parts: BTreeMap<&str, String> = BTreeMap::new();
    for text in texts {
        if let Some((part, prose)) = prose_of(text) {
            parts.entry(part).or_default().push_str(&prose);
        }
    }
    let gone = exceptions.iter().filter(|(part, _)| !parts.contains_key(part));
    let mut complaints: Vec<String> = gone
        .map(|(part, _)| {
            format!("{part}: an exception in language, and gone: take it off the list")
        })
        .collect();
    for (part, prose) in parts {
        let rates = rates(&prose);
        let listed = exceptions.iter().find(|(path, _)| *path == part).map(|(_, rates)| *rates);
        if let Some(complaint) = judge(rates, listed) {
            let each = WORDS.iter().zip(rates).map(|((word, _), rate)| format!("{word} {rate:.1}"));
            let shown = each.collect::<Vec<_>>().join(", ");
            complaints.push(format!("{part}: {shown} in 1,000 words: {complaint}"));
        }
    }
    complaints
}

/// The complaint about a part with these `rates`; `listed` are those of its exception.
fn judge(rates: [f64; 3], listed: Option<[f64; 3]>) -> Option<&'static str> {
    let (mut is_plain, mut has_risen, mut has_fallen) = (true, false, false);
    for ((rate, (_, limit)), listed) in rates.iter().zip(WORDS).zip(listed.unwrap_or_default()) {
        is_plain &= *rate <= limit + ROUNDING;
        // An exception for one word leaves the limits of the others as they are.
        has_risen |= *rate > listed.max(limit) + ROUNDING;
        has_fallen |= *rate + SLACK < listed;
    }
    match listed {
        None if is_plain => None,
        None => Some("too many; name the subject of each sentence"),
        Some(_) if is_plain => Some("no longer an exception; take it off the list"),
        Some(_) if has_risen => Some("rates may only fall"),
        Some(_) if has_fallen => Some("far less than listed; list these rates"),
        Some(_) => None,
    }
}

/// The part that `text` belongs to, and its prose.
fn prose_of(text: &Text) -> Option<(&str, String)> {
    let path = text.path.as_str();
    if path.ends_with(".md") && path != "docs/GLOSSARY.md" {
        return Some((path, markdown(&text.content)));
    }
    let (root, inside) = path.split_once('/')?;
    let part = match root {
        "crates" => path.get(..root.len() + 1 + inside.split_once("/src/")?.0.len())?,
        "xtask" | "peers" if inside.starts_with("src/") => root,
        // The fuzz targets of `fuzz` are its purpose, not its tests.
        "fuzz" => root,
        _ => return None,
    };
    let is_source = path.ends_with(".rs") && (root == "fuzz" || !is_test(path));
    is_source.then(|| (part, comments(&split(&text.content).comments)))
}

/// The prose of the `comments` of a Rust source, in which a line of code is empty.
fn comments(comments: &str) -> String {
    let mut prose = String::new();
    for comment in comments.split("\n\n") {
        let lines = comment.lines().map(|line| line.trim_start_matches(['/', '!']));
        prose += &markdown(&lines.collect::<Vec<_>>().join("\n"));
    }
    prose
}

/// The prose of a document: no code, tables, headings and images.
fn markdown(content: &str) -> String {
    let mut prose = String::new();
    let mut is_code = false;
    for line in content.lines().map(str::trim) {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with(['|', '#', '<', '!']) {
            prose += line;
            prose.push('\n');
        }
    }
    // A backquote without its partner ends with the paragraph.
    let paragraphs = prose
        .split("\n\n")
        .map(|paragraph| paragraph.split('`').step_by(2).collect::<Vec<_>>().join("X"));
    paragraphs.collect::<Vec<_>>().join("\n\n") + "\n\n"
}

/// How many of each of [`WORDS`] there are in 1,000 words of `prose`; none if it is short.
fn rates(prose: &str) -> [f64; 3] {
    let words = prose.split(|c: char| !c.is_ascii_alphabetic() && c != '\'');
    // Without the end of "what's" and "don't".
    let words = words.filter_map(|word| word.trim_start_matches('\'').split('\'').next());
    let words: Vec<_> =
        words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect();
    if words.len() < WORDS_MIN {
        return [0.0; 3];
    }
    let is = |word: &str, found: &str| match word {
        "who" => matches!(found, "who" | "whoever" | "whom" | "whose"),
        _ => found == word,
    };
    WORDS.map(|(word, _)| {
        let found = words.iter().filter(|found| is(word, found)).count();
        1000.0 * found as f64 / words.len() as f64
    })
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;

    fn text(path: &str, sentence: &str) -> Text {
        let code = "let what = \"what where who\"; // A merge drops tombstones.\n".repeat(100);
        made_up(path, &format!("{code}// {sentence} `what` ends here, nothing more is said.\n"))
    }

    fn report(sentence: &str, exceptions: &[(&str, [f64; 3])]) -> String {
        against(&[text("crates/a/src/b.rs", sentence)], exceptions).join("\n")
    }

    const RIDDLE: &str = "What waits is what who waits where it waits.";

    #[test]
    fn a_part_over_the_rates_is_named_and_code_does_not_count() {
        assert_eq!(report("The writer waits.", &[]), "");
        let found = report(RIDDLE, &[]);
        let expected = "crates/a: what 4.8, where 2.4, who 2.4 in 1,000 words: too many";
        assert!(found.starts_with(expected), "{found}");
    }

    #[test]
    fn every_part_of_the_tree_is_judged_and_tests_are_not() {
        let is_judged = |path| !against(&[text(path, RIDDLE)], &[]).is_empty();
        for path in ["crates/a/src/b/c.rs", "xtask/src/a.rs", "peers/src/a.rs", "fuzz/src/lib.rs"] {
            assert!(is_judged(path), "{path}");
        }
        assert!(is_judged("fuzz/fuzz_targets/a.rs") && is_judged("docs/a.md"));
        for path in ["crates/a/src/b/tests.rs", "crates/a/tests/it/b.rs", "xtask/src/a_tests.rs"] {
            assert!(!is_judged(path), "{path}");
        }
        assert!(!is_judged("docs/GLOSSARY.md"), "it lists the words not to write");
    }

    #[test]
    fn exceptions_may_only_shrink() {
        let listed = |rates: [f64; 3]| report(RIDDLE, &[("crates/a", rates)]);
        assert_eq!(listed([5.0, 3.0, 3.0]), "");
        assert!(listed([4.0, 3.0, 3.0]).contains("rates may only fall"));
        assert!(listed([9.0, 3.0, 3.0]).contains("what 4.8, where 2.4, who 2.4"));
        for text in ["It waits.", ""] {
            let plain = report(text, &[("crates/a", [5.0, 3.0, 3.0])]);
            assert!(plain.contains("take it off the list"), "{plain}");
        }
        assert!(report("It waits.", &[("crates/b", [5.0, 3.0, 3.0])]).contains("and gone"));
    }

    #[test]
    fn an_exception_for_one_word_leaves_the_limits_of_the_others() {
        let listed = Some([0.0, 0.0, 3.0]);
        assert_eq!(judge([2.0, 3.0, 3.0], listed), None);
        assert_eq!(judge([2.1, 3.0, 3.0], listed), Some("rates may only fall"));
    }

    #[test]
    fn an_exception_for_a_short_text_is_not_needed() {
        let short = made_up("docs/a.md", "It waits.");
        let found = against(&[short], &[("docs/a.md", [5.0, 3.0, 3.0])]).join("\n");
        assert!(found.contains("take it off the list"), "{found}");
    }

    #[test]
    fn tables_headings_and_code_are_no_prose() {
        let text = "# What\n| what | who |\n```\nwhat\n\nwho\n```\nA `what` merges.\n\nOne ` more.\n\nEnd.";
        assert_eq!(markdown(text), "A X merges.\n\nOne \n\nEnd.\n\n\n");
        let source =
            split("/// A key.\n///\n/// ```\n/// let what = 1;\n///\n/// ```\nfn f() {}\n/// End.");
        assert_eq!(
            comments(&source.comments).split_whitespace().collect::<Vec<_>>().join(" "),
            "A key. End."
        );
    }
}
