//! Tidiness: rules that keep the repository readable.
//!
//! A rule is a function from texts to complaints, one line each, which names the file. So every rule is
//! tested on a made-up text that breaks it.

mod assertions;
mod crate_lints;
mod cycles;
mod documents;
mod formats;
mod length;
mod modules;
mod prose;
mod rust;
mod source;

use crate::workspace::{self, Text};
use crate::{Result, api, generated, invariants, reference};

/// Fails if a rule is broken.
pub(crate) fn check() -> Result {
    let complaints = complaints(&workspace::texts()?);
    if complaints.is_empty() {
        return Ok(());
    }
    Err(format!("tidy:\n  {}", complaints.join("\n  ")).into())
}

fn complaints(texts: &[Text]) -> Vec<String> {
    let mut complaints = length::complaints(texts);
    for text in texts {
        complaints.extend(source::complaints(text));
    }
    complaints.extend(crate_lints::complaints(texts));
    complaints.extend(formats::complaints(texts));
    complaints.extend(documents::complaints(texts));
    complaints.extend(cycles::complaints(texts));
    complaints.extend(prose::complaints(texts));
    complaints.extend(generated::complaints(texts));
    complaints.extend(reference::complaints(texts));
    complaints.extend(invariants::complaints(texts));
    complaints.extend(api::complaints(texts));
    complaints.extend(assertions::complaints(texts));
    complaints
}

/// A text that exists only in a test.
#[cfg(test)]
fn made_up(path: &str, content: &str) -> Text {
    Text { path: path.to_owned(), content: content.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let texts = workspace::texts().unwrap();
        assert!(texts.iter().any(|text| text.path == "crates/base/src/lib.rs"));
        check().unwrap();
    }

    /// The command in the README is the one that CI runs.
    #[test]
    fn ci_runs_the_command_of_the_readme() {
        let texts = workspace::texts().unwrap();
        for path in [".ci/run", "README.md"] {
            let text = texts.iter().find(|text| text.path == path).unwrap();
            let runs = text.content.lines().any(|line| line == ".ci/with-rust cargo xtask ci");
            assert!(runs, "{path}");
        }
    }

    /// `cargo run` in the README names no program, so there is only one.
    #[test]
    fn cargo_run_has_one_program_to_run() {
        let texts = workspace::texts().unwrap();
        let root = texts.iter().find(|text| text.path == "Cargo.toml").unwrap();
        assert!(root.content.lines().any(|line| line == "default-members = [\"crates/cli\"]"));
        let program = texts.iter().filter(|text| text.path.starts_with("crates/cli/src/bin/"));
        assert_eq!(program.count(), 0, "one program of that crate");
    }
}
