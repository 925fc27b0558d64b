//! Every crate has the lints of the workspace.
//!
//! Cargo inherits either all lints or none, so the two crates with `unsafe` code repeat them all except
//! one. This rule keeps the copies equal to the lints of the workspace.

use crate::workspace::Text;

/// The lint that the crates with `unsafe` code leave out.
const LEFT_OUT: &str = "unsafe_code";

/// Every lint of the workspace that a crate neither inherits nor repeats.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    let root = texts.iter().find(|text| text.path == "Cargo.toml");
    let wanted: Vec<&str> = root.map_or_else(Vec::new, |root| lints(&root.content, "workspace."));
    let mut complaints = Vec::new();
    for Text { path, content } in texts {
        let Some(folder) = path.strip_suffix("/Cargo.toml") else { continue };
        let ours = folder == "xtask" || folder.starts_with("crates/");
        if !ours || content.contains("[lints]\nworkspace = true") {
            continue;
        }
        let repeated = lints(content, "");
        for lint in &wanted {
            if !lint.starts_with(LEFT_OUT) && !repeated.contains(lint) {
                complaints.push(format!("{path}: no lint `{lint}`, which the workspace has"));
            }
        }
    }
    complaints
}

/// The lines of the tables `[{prefix}lints.rust]` and `[{prefix}lints.clippy]` of a `Cargo.toml`.
fn lints<'a>(manifest: &'a str, prefix: &str) -> Vec<&'a str> {
    let tables = ["rust", "clippy"].map(|tool| format!("[{prefix}lints.{tool}]"));
    let mut inside = false;
    let mut lints = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = tables.iter().any(|table| table == line);
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            lints.push(line);
        }
    }
    lints
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;

    #[test]
    fn a_crate_inherits_the_lints_or_repeats_them() {
        let root = made_up(
            "Cargo.toml",
            "[workspace.lints.rust]\nunsafe_code = \"forbid\"\nmissing_docs = \"warn\"\n\n\
             [workspace.lints.clippy]\npanic = \"deny\"\n[profile.dev]\nx = 1\n",
        );
        let report = |manifest| {
            complaints(&[root.clone(), made_up("crates/a/Cargo.toml", manifest)]).join("\n")
        };
        assert_eq!(report("[lints]\nworkspace = true\n"), "");
        let whole = "[lints.rust]\nmissing_docs = \"warn\"\n[lints.clippy]\npanic = \"deny\"\n";
        assert_eq!(report(whole), "");
        assert!(report("[lints.rust]\nmissing_docs = \"warn\"\n").contains("no lint `panic"));
        assert_eq!(report("[package]\n").lines().count(), 2);
    }
}
