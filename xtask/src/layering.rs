//! Layering: every dependency between crates of the workspace points to a strictly lower level.
//!
//! The levels are those of docs/ARCHITECTURE.md; the edges are what `cargo metadata` says. An
//! upward or sideways edge is refused, and so is a crate without a level. A test crate stands
//! beside the levels: it may use anything, and is used in tests only.

use serde::Deserialize;

use crate::command::cargo;
use crate::{Result, workspace};

#[cfg(test)]
mod tests;

/// The level of each crate.
const LEVELS: [(&str, u8); 11] = [
    ("terrace-base", 0),
    ("terrace-media", 1),
    ("terrace-arena", 1),
    ("terrace-log", 2),
    ("terrace-cache", 2),
    ("terrace-table", 3),
    ("terrace-compact", 4),
    ("terracedb", 5),
    ("terrace-workload", 6),
    ("terrace-server", 6),
    ("terrace", 7),
];

/// Crates beside the levels.
const TEST_CRATES: [&str; 2] = ["terrace-sim", "xtask"];

/// What `cargo metadata` says, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Graph {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<Kind>,
    /// Set where the dependency is a folder: a crate of the workspace.
    path: Option<String>,
}

/// Absent for a normal dependency.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Dev,
    Build,
}

/// Fails where the workspace breaks the rule.
pub(crate) fn check() -> Result {
    let broken = violations(&graph()?);
    if broken.is_empty() { Ok(()) } else { Err(format!("layering:\n{}", broken.join("\n")).into()) }
}

fn graph() -> Result<Graph> {
    let mut command = cargo(["metadata", "--no-deps", "--format-version", "1"]);
    let output = command.current_dir(workspace::root()).output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn level(name: &str) -> Option<u8> {
    LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
}

/// Every breach of the rule, one line each.
fn violations(graph: &Graph) -> Vec<String> {
    let mut violations = Vec::new();
    for package in &graph.packages {
        let from = &package.name;
        if TEST_CRATES.contains(&from.as_str()) {
            continue;
        }
        let Some(source) = level(from) else {
            violations.push(format!("  {from} has no level: give it one in xtask/src/layering.rs"));
            continue;
        };
        for Dependency { name: to, kind, path } in &package.dependencies {
            if path.is_none() {
                continue;
            }
            if TEST_CRATES.contains(&to.as_str()) {
                if *kind != Some(Kind::Dev) {
                    violations.push(format!("  {from} uses {to} outside its tests"));
                }
                continue;
            }
            // A crate without a level is reported where it is a package itself.
            let Some(target) = level(to) else { continue };
            if target >= source {
                let way = if target == source { "sideways" } else { "upward" };
                violations.push(format!("  {from} (level {source}) -> {to} ({target}): {way}"));
            }
        }
    }
    violations
}
