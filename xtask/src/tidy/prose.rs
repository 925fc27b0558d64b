//! The language of comments and documents: rates of words that tell a private dialect from plain English.
//!
//! LevelDB, Pebble, TigerBeetle, redb and lsm-tree have 0.1-0.7 "what", 0.3-1.4 "where" and under 0.5 "who"
//! in 1,000 words of comments. A higher rate is a sign of sentences that name no subject ("what is on its
//! way out is free by then"). The rates are a smoke alarm and not the goal; docs/GLOSSARY.md has the words.

use std::collections::BTreeMap;

use super::length::is_test;
use super::rust::split;
use crate::workspace::Text;

/// The words, and the most of each in 1,000 words.
const WORDS: [(&str, f64); 3] = [("what", 2.0), ("where", 3.0), ("who", 1.0)];

/// A shorter text is not judged.
const WORDS_MIN: usize = 400;

/// How far below its listed rates an exception may be before the list must follow.
const SLACK: f64 = 3.0;

/// Crates and documents that are above the rates, with the rates they have. The numbers only ever shrink.
const EXCEPTIONS: &[(&str, [f64; 3])] = &[
    ("crates/manifest", [0.0, 0.0, 1.5]),
    ("crates/read", [0.0, 0.0, 2.6]),
    ("crates/tools", [0.7, 0.1, 1.4]),
    ("crates/tree", [0.8, 0.1, 1.3]),
    ("docs/benchmarks.md", [3.5, 1.7, 0.2]),
    ("docs/format/table.md", [0.0, 0.8, 1.6]),
    ("docs/internals.md", [0.0, 0.0, 2.1]),
    ("docs/performance.md", [8.2, 4.1, 1.4]),
    ("docs/reproduction.md", [9.0, 4.2, 0.6]),
];

/// Every crate and document whose rates are too high, and every exception that is none any more.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    against(texts, EXCEPTIONS)
}

fn against(texts: &[Text], exceptions: &[(&str, [f64; 3])]) -> Vec<String> {
    let mut prose: BTreeMap<&str, String> = BTreeMap::new();
    for text in texts {
        let Some((part, words)) = prose_of(text) else { continue };
        let all = prose.entry(part).or_default();
        all.push_str(&words);
        all.push('\n');
    }
    let mut complaints = Vec::new();
    for (part, _) in exceptions {
        if !prose.contains_key(part) {
            complaints
                .push(format!("{part}: an exception in language, and gone: take it off the list"));
        }
    }
    for (part, prose) in prose {
        let (count, rates) = rates(&prose);
        let listed = exceptions.iter().find(|(path, _)| *path == part).map(|(_, rates)| *rates);
        if count < WORDS_MIN {
            continue;
        }
        let shown = || {
            let each = WORDS.iter().zip(rates).map(|((word, _), rate)| format!("{word} {rate:.1}"));
            each.collect::<Vec<_>>().join(", ")
        };
        let is_over =
            |most: [f64; 3]| rates.iter().zip(most).any(|(rate, most)| *rate > most + 0.05);
        let goal = WORDS.map(|(_, most)| most);
        match listed {
            None if is_over(goal) => complaints.push(format!(
                "{part}: {} in 1,000 words, over 2, 3 and 1: name the subject of each sentence",
                shown()
            )),
            Some(listed) if is_over(listed) => {
                complaints
                    .push(format!("{part}: {} in 1,000 words, and they only shrink", shown()));
            }
            Some(_) if !is_over(goal) => {
                complaints
                    .push(format!("{part}: plain by now: take it off the list of exceptions"));
            }
            Some(listed)
                if rates.iter().zip(listed).any(|(rate, listed)| rate + SLACK < listed) =>
            {
                complaints.push(format!("{part}: shrunk: list it with {}", shown()));
            }
            _ => {}
        }
    }
    complaints
}

/// The crate or document that `text` belongs to, and its prose.
fn prose_of(text: &Text) -> Option<(&str, String)> {
    let path = text.path.as_str();
    if path.ends_with(".md") && !path.contains("GLOSSARY") {
        return Some((path, markdown(&text.content)));
    }
    let (name, inside) = path.strip_prefix("crates/")?.split_once('/')?;
    let is_source = inside.starts_with("src/") && path.ends_with(".rs") && !is_test(path);
    let folder = path.get(.."crates/".len() + name.len())?;
    is_source.then(|| (folder, without_code(&split(&text.content).comments)))
}

/// A document without code, tables, headings and images.
fn markdown(content: &str) -> String {
    let mut prose = String::new();
    let mut is_code = false;
    for line in content.lines() {
        let start = line.trim_start();
        if start.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !start.starts_with(['|', '#', '<', '!']) {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    without_code(&prose)
}

/// `prose` without the words in backquotes.
fn without_code(prose: &str) -> String {
    prose.split('`').step_by(2).collect::<Vec<_>>().join("X")
}

/// How many words there are, and how many of each of [`WORDS`] in 1,000.
fn rates(prose: &str) -> (usize, [f64; 3]) {
    let words = prose.split(|c: char| !c.is_ascii_alphabetic() && c != '\'');
    let words: Vec<String> =
        words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect();
    let is = |word: &str, found: &str| match word {
        "who" => matches!(found, "who" | "whoever" | "whom" | "whose"),
        _ => found == word,
    };
    let rate = |(word, _): (&str, f64)| {
        let found = words.iter().filter(|found| is(word, found)).count();
        1000.0 * found as f64 / words.len().max(1) as f64
    };
    (words.len(), WORDS.map(rate))
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;

    fn report(sentence: &str, exceptions: &[(&str, [f64; 3])]) -> String {
        let code = "let what = \"what where who\"; // A merge drops tombstones.\n".repeat(100);
        let content =
            format!("{code}// {sentence} `what` ends here and says nothing more of it.\n");
        against(&[made_up("crates/a/src/b.rs", &content)], exceptions).join("\n")
    }

    #[test]
    fn a_crate_over_the_rates_is_named_and_code_does_not_count() {
        assert_eq!(report("The writer waits.", &[]), "");
        let found = report("What waits is what who waits where it waits.", &[]);
        assert!(found.contains("crates/a: what 4.8, where 2.4, who 2.4 in 1,000 words"), "{found}");
    }

    #[test]
    fn exceptions_only_shrink() {
        let listed =
            |rates: [f64; 3]| report("What waits is what who waits where.", &[("crates/a", rates)]);
        assert_eq!(listed([5.0, 3.0, 3.0]), "");
        assert!(listed([4.0, 3.0, 3.0]).contains("they only shrink"));
        assert!(listed([9.0, 3.0, 3.0]).contains("shrunk: list it with what 4.8"));
        assert!(
            report("It waits.", &[("crates/a", [5.0, 3.0, 3.0])]).contains("take it off the list")
        );
        assert!(report("It waits.", &[("crates/b", [5.0, 3.0, 3.0])]).contains("and gone"));
    }

    #[test]
    fn tables_headings_and_code_of_documents_are_no_prose() {
        let text = "# What\n| what | who |\n```\nwhat who\n```\nA merge drops tombstones.\n";
        assert_eq!(markdown(text).trim(), "A merge drops tombstones.");
    }
}
