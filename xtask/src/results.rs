//! The results of the comparison with other engines as documents.
//!
//! `results/CASE.json` is the source, or `results/quick/CASE.json` for a case without a full run. From it
//! come the page `docs/results/CASE.md`, the index of the pages, the table in `docs/benchmarks.md`, and a
//! chart of each case that a document links as `charts/CASE.svg`.

mod case;
mod chart;
mod history;
mod table;
mod timeline;

use crate::Result;
use crate::generated::between;
use crate::workspace::Text;

/// The document with the summary.
const DOCUMENT: &str = "docs/benchmarks.md";

/// The folders of generated files.
pub(crate) const FOLDERS: [&str; 2] = ["docs/results/", "docs/charts/"];

/// Draws charts of the history of cases.
pub(crate) fn run(arguments: &[&str]) -> Result {
    match arguments {
        ["--history", cases @ ..] if !cases.is_empty() => {
            cases.iter().try_for_each(|case| history::run(case))
        }
        _ => Err("usage: cargo xtask results --history CASE..".into()),
    }
}

/// Every document and chart that follows from the results in `texts`.
pub(crate) fn generated(texts: &[Text]) -> Result<Vec<Text>> {
    let results = case::all(texts)?;
    let mut generated = Vec::new();
    let mut add = |path: String, content: String| generated.push(Text { path, content });
    for result in &results {
        add(format!("docs/results/{}.md", result.case), table::page(result));
        let chart = format!("charts/{}.svg", result.case);
        if texts.iter().any(|text| text.path.ends_with(".md") && text.content.contains(&chart)) {
            let drawn = match timeline::is_timeline(result) {
                true => timeline::of_case(result),
                false => chart::of_case(result),
            };
            add(format!("docs/{chart}"), drawn);
        }
    }
    if !results.is_empty() {
        add("docs/results/README.md".to_owned(), table::index(&results));
    }
    if let Some(document) = texts.iter().find(|text| text.path == DOCUMENT) {
        let content = between(document, "results", &table::summary(&results))?;
        add(DOCUMENT.to_owned(), content);
    }
    Ok(generated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_drawn_for_each_case_that_a_document_links() {
        let text =
            |path: &str, content: &str| Text { path: path.to_owned(), content: content.to_owned() };
        let result = r#"{"case": "CASE", "steps": []}"#;
        let texts = [
            text("results/cold.json", &result.replace("CASE", "cold")),
            text("results/quick/cold.json", "not read"),
            text("results/quick/once.json", r#"{"case": "once", "scale": "quick", "steps": []}"#),
            text("results/warm.json", &result.replace("CASE", "warm")),
            text("docs/a.md", "![](charts/cold.svg)"),
        ];
        let generated = generated(&texts).unwrap();
        let paths: Vec<_> = generated.iter().map(|text| text.path.as_str()).collect();
        let expected = [
            "docs/results/cold.md",
            "docs/charts/cold.svg",
            "docs/results/once.md",
            "docs/results/warm.md",
            "docs/results/README.md",
        ];
        assert_eq!(paths, expected);
        let page = |name: &str| {
            let page = generated.iter().find(|text| text.path.ends_with(name)).unwrap();
            page.content.contains("a quick look")
        };
        assert!(page("results/once.md") && !page("results/cold.md"));
        let bad = [text("results/cold.json", "{")];
        assert!(super::generated(&bad).unwrap_err().to_string().starts_with("results/cold.json: "));
    }
}
