//! Generated documents: written by `cargo xtask generate`, and compared with their sources by `check`.
//!
//! A generator is a function from the texts of the repository to texts, so a stale document is found without
//! building anything. A part of a document that people write stands between markers.

use std::fs;

use crate::workspace::{self, Text};
use crate::{Result, invariants, reference, results};

/// Every generated document.
fn all(texts: &[Text]) -> Result<Vec<Text>> {
    let mut generated = results::generated(texts)?;
    generated.extend(reference::generated(texts)?);
    generated.extend(invariants::generated(texts)?);
    Ok(generated)
}

/// Every document that differs from its sources, and every one in a generated folder without a source.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    let generated = match all(texts) {
        Ok(generated) => generated,
        Err(error) => return vec![error.to_string()],
    };
    let found = |path: &str| texts.iter().find(|text| text.path == path);
    let stale = generated
        .iter()
        .filter(|text| found(&text.path).is_none_or(|found| found.content != text.content))
        .map(|text| format!("{}: stale; run `cargo xtask generate`", text.path));
    let orphans = orphans(texts, &generated)
        .map(|text| format!("{}: nothing generates it; run `cargo xtask generate`", text.path));
    stale.chain(orphans).collect()
}

/// Writes every document anew, and removes those in generated folders without a source.
pub(crate) fn write() -> Result {
    let texts = workspace::texts()?;
    let generated = all(&texts)?;
    for text in orphans(&texts, &generated) {
        fs::remove_file(workspace::root().join(&text.path))?;
    }
    for text in &generated {
        write_one(text)?;
    }
    Ok(())
}

/// Writes `text`, and makes its folder.
pub(crate) fn write_one(text: &Text) -> Result {
    let path = workspace::root().join(&text.path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&path, &text.content).map_err(|error| format!("{}: {error}", text.path).into())
}

fn orphans<'a>(texts: &'a [Text], generated: &'a [Text]) -> impl Iterator<Item = &'a Text> {
    texts.iter().filter(|text| {
        results::FOLDERS.iter().any(|folder| text.path.starts_with(folder))
            && !generated.iter().any(|kept| kept.path == text.path)
    })
}

/// The document with `content` between the markers of `name`.
pub(crate) fn between(document: &Text, name: &str, content: &str) -> Result<String> {
    let begin = format!("<!-- {name}: written by `cargo xtask generate` -->");
    let end = format!("<!-- {name} end -->");
    let parts = document.content.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| {
        format!("{}: the markers `{begin}` .. `{end}` are missing", document.path)
    })?;
    Ok(format!("{before}{begin}\n{content}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str, content: &str) -> Text {
        Text { path: path.to_owned(), content: content.to_owned() }
    }

    #[test]
    fn content_stands_between_its_markers() {
        let document = |middle: &str| {
            format!("a\n<!-- x: written by `cargo xtask generate` -->\n{middle}<!-- x end -->\nz\n")
        };
        let old = text("docs/a.md", &document("old\n"));
        assert_eq!(between(&old, "x", "new\n").unwrap(), document("new\n"));
        let error = between(&old, "y", "new\n").unwrap_err().to_string();
        assert!(error.starts_with("docs/a.md: the markers"), "{error}");
    }

    #[test]
    fn stale_documents_and_orphans_are_reported() {
        let result = text("results/cold.json", r#"{"case": "cold", "steps": []}"#);
        let mut texts = vec![result, text("docs/results/gone.md", "")];
        let report = complaints(&texts).join("\n");
        assert!(report.contains("docs/results/cold.md: stale"), "{report}");
        assert!(report.contains("docs/results/gone.md: nothing generates it"), "{report}");
        texts.pop();
        texts.extend(all(&texts).unwrap());
        assert_eq!(complaints(&texts), Vec::<String>::new());
    }
}
