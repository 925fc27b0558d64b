//! Licences and sources of dependencies, against deny.toml.
//!
//! cargo-deny checks the same and more, but a machine without it takes minutes to build it. So this part of
//! deny.toml is always checked, and known vulnerabilities where cargo-deny is installed.

use std::collections::BTreeSet;
use std::fs;

use spdx::{Expression, LicenseReq, ParseMode};

use crate::command::{self, cargo};
use crate::{Result, workspace};

/// The platforms of deny.toml.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Between a package and its licence in a line of `cargo tree`.
const BETWEEN: &str = " | ";

/// Checks the licence and the source of each package that a crate of the workspace may be built with.
pub(crate) fn check() -> Result {
    let path = workspace::root().join("deny.toml");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let allowed = allowed(&text)?;
    let root = workspace::root().display().to_string();
    let mut complaints = BTreeSet::new();
    for target in TARGETS {
        // Colours would stand between a licence and the mark of a package that was listed before.
        let tree = ["tree", "--color", "never", "--locked", "--workspace", "--all-features"];
        let form = ["--edges", "normal,build,dev", "--prefix", "none", "--format", "{p} | {l}"];
        let form = form.into_iter().chain(["--target", target]);
        let lines = command::output(cargo(tree.into_iter().chain(form)))?;
        let lines: BTreeSet<&str> = lines.lines().filter(|line| !line.is_empty()).collect();
        complaints.extend(lines.into_iter().filter_map(|line| complaint(line, &root, &allowed)));
    }
    match complaints.is_empty() {
        true => Ok(()),
        false => {
            let complaints: Vec<String> = complaints.into_iter().collect();
            Err(format!("dependencies:\n  {}", complaints.join("\n  ")).into())
        }
    }
}

/// The list `allow` of the section `[licenses]`.
fn allowed(toml: &str) -> Result<Vec<LicenseReq>> {
    let section = toml.split("\n[licenses]").nth(1).and_then(|rest| rest.split("\n[").next());
    let list = section.and_then(|it| it.split("\nallow = [").nth(1)?.split(']').next());
    let list = list.ok_or("deny.toml: no list `allow` in `[licenses]`")?;
    let lines = list.lines().filter(|line| !line.trim_start().starts_with('#'));
    let names = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    let mut allowed = Vec::new();
    for name in names {
        let expression = parse(name).map_err(|error| format!("deny.toml: {name}: {error}"))?;
        allowed.extend(expression.requirements().map(|it| it.req.clone()));
    }
    Ok(allowed)
}

fn parse(expression: &str) -> std::result::Result<Expression, spdx::ParseError> {
    Expression::parse_mode(expression, ParseMode::LAX)
}

/// What is wrong with the package of a line of `cargo tree`.
fn complaint(line: &str, root: &str, allowed: &[LicenseReq]) -> Option<String> {
    let (package, licence) = line.split_once(BETWEEN).unwrap_or((line, ""));
    // A package that was listed before.
    let licence = licence.strip_suffix(" (*)").unwrap_or(licence);
    // A package of crates.io has no source here; others have it in parentheses.
    let sources = package.split(" (").skip(1).filter_map(|it| it.strip_suffix(')'));
    let is_own = |source: &str| source.starts_with(root);
    let mut sources = sources.filter(|source| *source != "proc-macro" && *source != "*");
    match sources.next() {
        Some(source) if is_own(source) => return None,
        Some(source) => return Some(format!("{package}: from {source} and not from crates.io")),
        None => {}
    }
    let expression = match parse(licence) {
        Ok(expression) => expression,
        Err(_) => return Some(format!("{package}: unknown licence `{licence}`")),
    };
    let is_fit = expression.evaluate(|req| allowed.contains(req));
    (!is_fit).then(|| format!("{package}: licence {licence}, which deny.toml does not allow"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = "[graph]\nallow = [\"x\"]\n[licenses]\n# Text \"GPL-3.0\".\nallow = [\n    \
                        \"MIT\",\n    # \"ISC\"\n    \"Apache-2.0 WITH LLVM-exception\",\n    \
                        \"Apache-2.0\",\n]\n[bans]\n";

    fn told(line: &str) -> Option<String> {
        complaint(line, "/checkout/db", &allowed(TOML).unwrap())
    }

    #[test]
    fn a_licence_must_be_allowed_in_each_part() {
        for fit in [
            "a v1.0.0 | MIT",
            "a v1.0.0 (proc-macro) | MIT/Apache-2.0",
            "a v1.0.0 | GPL-3.0-only OR MIT (*)",
            "a v1.0.0 | Apache-2.0 WITH LLVM-exception",
            "own v0.1.0 (/checkout/db/crates/own) | ",
        ] {
            assert_eq!(told(fit), None, "{fit}");
        }
        for unfit in
            ["a v1.0.0 | ISC", "a v1.0.0 | MIT AND GPL-3.0-only", "a v1.0.0 | GPL-3.0-only"]
        {
            assert!(told(unfit).unwrap().ends_with("which deny.toml does not allow"), "{unfit}");
        }
        assert_eq!(told("a v1.0.0 | ").unwrap(), "a v1.0.0: unknown licence ``");
    }

    #[test]
    fn a_package_must_be_of_crates_io_or_of_the_workspace() {
        for other in [
            "a v1.0.0 (https://example.org/a#0123) | MIT",
            "a v1.0.0 (registry `other`) | MIT",
            "a v1.0.0 (proc-macro) (/elsewhere/a) | MIT",
        ] {
            assert!(told(other).unwrap().ends_with("and not from crates.io"), "{other}");
        }
    }

    #[test]
    fn a_file_without_the_list_is_refused() {
        assert!(allowed("[licenses]\n").is_err());
    }
}
