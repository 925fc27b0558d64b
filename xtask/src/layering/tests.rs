//! The workspace keeps the rule, and each way to break it is reported.

use std::collections::BTreeMap;

use super::*;
use crate::workspace;

fn package(name: &str, dependencies: &[(&str, Option<Kind>)]) -> Package {
    let dependency = |(name, kind): &(&str, Option<Kind>)| Dependency {
        name: (*name).to_owned(),
        kind: *kind,
        path: Some("a folder".to_owned()),
    };
    Package {
        name: name.to_owned(),
        dependencies: dependencies.iter().map(dependency).collect(),
        features: BTreeMap::new(),
    }
}

fn broken(packages: Vec<Package>) -> String {
    violations(&packages).join("\n")
}

#[test]
fn the_workspace_depends_downward() {
    assert!(packages().unwrap().iter().any(|package| package.name == "terrace-base"));
    check().unwrap();
}

#[test]
fn downward_edges_of_every_kind_pass() {
    let log = package(
        "terrace-wal",
        &[
            ("terrace-base", None),
            ("terrace-media", Some(Kind::Build)),
            ("terrace-arena", Some(Kind::Dev)),
            ("terrace-sim", Some(Kind::Dev)),
        ],
    );
    let simulator = package("terrace-sim", &[("terracedb", None)]);
    assert_eq!(broken(vec![log, simulator]), "");
}

#[test]
fn an_upward_edge_is_refused() {
    for kind in [None, Some(Kind::Build), Some(Kind::Dev)] {
        let report = broken(vec![package("terrace-table", &[("terrace-tree", kind)])]);
        assert!(report.contains("terrace-table (level 3) -> terrace-tree (5): upward"), "{report}");
    }
}

#[test]
fn tests_and_examples_of_any_crate_may_use_the_facade() {
    let edge = |kind| broken(vec![package("terrace-engine", &[("terracedb", kind)])]);
    assert_eq!(edge(Some(Kind::Dev)), "");
    assert!(edge(None).contains("terrace-engine (level 6) -> terracedb (8): upward"));
}

#[test]
fn a_sideways_edge_is_refused() {
    let report = broken(vec![package("terrace-wal", &[("terrace-cache", None)])]);
    assert!(report.contains("terrace-wal (level 2) -> terrace-cache (2): sideways"), "{report}");
}

#[test]
fn a_crate_without_a_level_is_refused() {
    let report = broken(vec![package("terrace-new", &[])]);
    assert!(report.contains("terrace-new has no level"), "{report}");
}

#[test]
fn a_test_crate_is_for_tests_only() {
    let report = broken(vec![package("terracedb", &[("terrace-sim", None)])]);
    assert!(report.contains("terracedb uses terrace-sim outside its tests"), "{report}");
}

#[test]
fn a_published_crate_of_the_same_name_is_not_checked() {
    let mut base = package("terrace-base", &[("terracedb", None)]);
    base.dependencies[0].path = None;
    assert_eq!(broken(vec![base]), "");
}

#[test]
fn every_level_belongs_to_a_crate() {
    let packages = packages().unwrap();
    for (name, _) in LEVELS {
        assert!(packages.iter().any(|package| package.name == name), "{name} does not exist");
    }
}

/// The table in the document and `LEVELS` agree.
#[test]
fn the_architecture_names_every_crate_at_its_level() {
    let path = workspace::root().join("docs/ARCHITECTURE.md");
    let document = std::fs::read_to_string(path).unwrap();
    for package in packages().unwrap() {
        let Some(level) = level(&package.name) else { continue };
        let short = match package.name.strip_prefix("terrace-") {
            Some(short) => short,
            None if package.name == "terrace" => "cli",
            None => &package.name,
        };
        let row = format!("| {level} | `{short}` |");
        assert!(document.contains(&row), "docs/ARCHITECTURE.md has no row `{row}`");
    }
}
