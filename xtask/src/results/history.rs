//! A case over commits: the ratio of our rate to RocksDB's in every committed version of its results.
//!
//! Rates of two commits were measured on different days, on machines that differ. Their ratios to RocksDB
//! were measured side by side, so they are comparable.

use std::fs;

use super::case::{self, CaseResult, Spread, is_own};
use super::chart::{self, Bar, Group};
use crate::command::{self, git};
use crate::{Result, workspace};

/// The folder of the charts, from the root.
const FOLDER: &str = "target/history";

/// Draws the history of `case` into [`FOLDER`].
pub(crate) fn run(case: &str) -> Result {
    let path = format!("results/{case}.json");
    let commits = command::output(git(["log", "--format=%H", "--reverse", "--", &path]))?;
    let mut versions = Vec::new();
    for commit in commits.lines() {
        // A commit that removed the file has no version of it.
        let Ok(content) = command::output(git(["show", &format!("{commit}:{path}")])) else {
            continue;
        };
        versions.push(case::parse(&path, &content)?);
    }
    let groups = groups(&versions);
    if groups.is_empty() {
        return Err(format!("{path}: no committed version has a ratio to RocksDB").into());
    }
    let folder = workspace::root().join(FOLDER);
    fs::create_dir_all(&folder)?;
    let chart = folder.join(format!("{case}.svg"));
    fs::write(&chart, chart::draw(&groups))?;
    eprintln!("+ {}", chart.display());
    Ok(())
}

/// A group for each step, a bar for each version that measured another commit than the one before.
fn groups(versions: &[CaseResult]) -> Vec<Group> {
    let mut steps: Vec<&String> = Vec::new();
    for step in versions.iter().flat_map(|version| &version.steps) {
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    let groups = steps.into_iter().map(|step| {
        let mut bars: Vec<Bar> = Vec::new();
        for version in versions {
            let Some(spread) = ratio(version, step) else { continue };
            bars.retain(|bar| bar.label != version.commit);
            bars.push(Bar { label: version.commit.clone(), spread, is_own: true });
        }
        Group { title: format!("{step}: ours / RocksDB"), bars }
    });
    groups.filter(|group| !group.bars.is_empty()).collect()
}

/// Our rate by the median of RocksDB's.
fn ratio(version: &CaseResult, step: &str) -> Option<Spread> {
    let (_, own) = version.stores.iter().find(|(name, _)| is_own(name))?;
    let (ours, _) = own.rate(step)?;
    let (theirs, _) = version.store("rocksdb")?.rate(step)?;
    let by = |rate: f64| rate / theirs.median;
    (theirs.median > 0.0).then(|| Spread {
        median: by(ours.median),
        least: by(ours.least),
        most: by(ours.most),
    })
}

#[cfg(test)]
mod tests {
    use super::super::case::{Measured, StoreResult};
    use super::*;

    fn version(commit: &str, ours: f64, theirs: f64) -> CaseResult {
        let store = |ops_per_sec| StoreResult {
            steps: [("get".to_owned(), vec![Measured { ops_per_sec, ..Measured::default() }])]
                .into(),
            ..StoreResult::default()
        };
        CaseResult {
            commit: commit.to_owned(),
            steps: vec!["get".to_owned()],
            stores: vec![
                ("terrace".to_owned(), store(ours)),
                ("rocksdb".to_owned(), store(theirs)),
            ],
            ..CaseResult::default()
        }
    }

    #[test]
    fn each_commit_has_one_bar_in_order() {
        let versions =
            [version("a", 10.0, 10.0), version("b", 30.0, 10.0), version("b", 20.0, 10.0)];
        let groups = groups(&versions);
        let bars: Vec<_> = groups
            .iter()
            .flat_map(|g| &g.bars)
            .map(|b| (b.label.as_str(), b.spread.median))
            .collect();
        assert_eq!(bars, [("a", 1.0), ("b", 2.0)]);
        assert!(super::groups(&[version("a", 1.0, 0.0)]).is_empty(), "no ratio to nothing");
    }
}
