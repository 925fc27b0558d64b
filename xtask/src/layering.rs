//! Layering: every dependency between crates of the workspace points to a strictly lower level.
//!
//! The levels are those of docs/ARCHITECTURE.md; the dependencies come from `cargo metadata`. A dependency
//! on the same or a higher level is refused, and so is a crate without a level. A test crate has no level:
//! it may use any crate, and other crates may use it in tests only. The tests and the examples in the
//! documentation of any crate may use the public API ([`FACADE`]).

use crate::Result;
use crate::metadata::{Dependency, Kind, Package, packages};

#[cfg(test)]
mod tests;

/// The level of each crate.
const LEVELS: [(&str, u8); 18] = [
    ("terrace-base", 0),
    ("terrace-media", 1),
    ("terrace-arena", 1),
    ("terrace-wal", 2),
    ("terrace-cache", 2),
    ("terrace-remote", 2),
    ("terrace-table", 3),
    ("terrace-compact", 4),
    ("terrace-manifest", 4),
    ("terrace-read", 4),
    ("terrace-offload", 5),
    ("terrace-tree", 5),
    ("terrace-engine", 6),
    ("terrace-tools", 7),
    ("terracedb", 8),
    ("terrace-workload", 9),
    ("terrace-server", 9),
    ("terrace", 10),
];

/// The crate with the public API.
const FACADE: &str = "terracedb";

/// Crates without a level.
const TEST_CRATES: [&str; 2] = ["terrace-sim", "xtask"];

/// Fails if a crate of the workspace breaks the rule.
pub(crate) fn check() -> Result {
    let broken = violations(&packages()?);
    if broken.is_empty() { Ok(()) } else { Err(format!("layering:\n{}", broken.join("\n")).into()) }
}

fn level(name: &str) -> Option<u8> {
    LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
}

/// Every violation, one line each.
fn violations(packages: &[Package]) -> Vec<String> {
    let mut violations = Vec::new();
    for package in packages {
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
            // The tests of a crate may turn on a feature of the crate itself.
            if (to == FACADE || to == from) && *kind == Some(Kind::Dev) {
                continue;
            }
            // A crate without a level is reported as a package, not as a dependency.
            let Some(target) = level(to) else { continue };
            if target >= source {
                let way = if target == source { "sideways" } else { "upward" };
                violations.push(format!("  {from} (level {source}) -> {to} ({target}): {way}"));
            }
        }
    }
    violations
}
