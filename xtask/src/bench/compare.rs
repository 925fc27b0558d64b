//! Benchmarks of this tree beside another revision: `bench --compare REV`.
//!
//! The other revision is built from a git worktree into a target directory of its own, which stays for the
//! next comparison. Both run by turns, and the order within a pair alternates, so that a disturbance of the
//! machine affects both. The result is the median over pairs of the ratio of this tree to the other.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::READS;
use crate::command::{self, cargo, git, succeeds};
use crate::{Result, workspace};

const USAGE: &str =
    "usage: cargo xtask bench --compare REV [--pairs N] [--threshold PERCENT] [-- BENCH ARGS]";

/// The folder of the other revisions' trees and target directories, from the root.
const FOLDER: &str = "target/compare";

/// The arguments of a comparison.
#[derive(Debug, PartialEq)]
struct Options<'a> {
    revision: &'a str,
    pairs: usize,
    /// A bench fails if its rate falls, or its processor time per operation rises, by more than this
    /// fraction.
    threshold: f64,
    bench: Vec<&'a str>,
}

/// The figures of one workload that a comparison needs; the other fields of the report are ignored.
#[derive(Clone, Debug, Deserialize)]
struct Report {
    bench: String,
    ops: f64,
    ops_per_sec: f64,
    /// Lines of `--report-interval` have none.
    #[serde(default)]
    cpu_seconds: f64,
    /// Only lines of `--report-interval` have it.
    at_seconds: Option<f64>,
}

/// The median ratios of one workload, this tree by the other.
#[derive(Debug, PartialEq)]
struct Ratios {
    bench: String,
    ops: f64,
    cpu: f64,
}

/// Compares, prints the ratios, and fails if one is worse than the threshold.
pub(super) fn run(arguments: &[&str]) -> Result {
    let options = parse(arguments)?;
    let other = Other::new(options.revision)?;
    let root = workspace::root();
    let mine = build(root, &root.join("target"))?;
    let theirs = build(&other.tree, &other.target)?;
    let mut pairs = Vec::new();
    for pair in 0..options.pairs {
        let first_is_mine = pair % 2 == 0;
        let (first, second) = if first_is_mine { (&mine, &theirs) } else { (&theirs, &mine) };
        let (first, second) = (bench(first, &options.bench)?, bench(second, &options.bench)?);
        pairs.push(if first_is_mine { (first, second) } else { (second, first) });
    }
    let ratios = ratios(&pairs)?;
    print!("{}", table(&ratios, options.revision, options.pairs));
    match worse(&ratios, options.threshold).as_slice() {
        [] => Ok(()),
        worse => Err(format!("worse than {}: {}", options.revision, worse.join(", ")).into()),
    }
}

fn parse<'a>(arguments: &[&'a str]) -> Result<Options<'a>> {
    let (revision, mut rest) = match arguments {
        [revision, rest @ ..] if !revision.starts_with('-') => (*revision, rest),
        _ => return Err(USAGE.into()),
    };
    let mut options = Options { revision, pairs: 5, threshold: 0.05, bench: Vec::new() };
    loop {
        rest = match rest {
            ["--pairs", pairs, rest @ ..] => {
                options.pairs = pairs.parse().ok().filter(|pairs| *pairs > 0).ok_or(USAGE)?;
                rest
            }
            ["--threshold", percent, rest @ ..] => {
                let percent: f64 = percent.parse().map_err(|_| USAGE)?;
                if !(0.0..100.0).contains(&percent) {
                    return Err(USAGE.into());
                }
                options.threshold = percent / 100.0;
                rest
            }
            ["--", bench @ ..] if !bench.is_empty() => {
                options.bench = bench.to_vec();
                break;
            }
            [] => {
                options.bench = READS.split_whitespace().collect();
                break;
            }
            _ => return Err(USAGE.into()),
        };
    }
    Ok(options)
}

/// The worktree of another revision. Dropping it removes the worktree, and keeps its target directory.
struct Other {
    tree: PathBuf,
    target: PathBuf,
}

impl Other {
    fn new(revision: &str) -> Result<Self> {
        let commit = format!("{revision}^{{commit}}");
        let commit = command::output(git(["rev-parse", "--verify", "--short=12", &commit]))?;
        let folder = workspace::root().join(FOLDER).join(commit.trim());
        let other = Self { tree: folder.join("tree"), target: folder.join("target") };
        // A comparison that was killed left its worktree.
        other.remove();
        let tree = other.tree.to_str().ok_or("the path of the worktree is not UTF-8")?;
        command::run(git(["worktree", "add", "--detach", "--force", tree, commit.trim()]))?;
        Ok(other)
    }

    /// Removes the worktree, if there is one.
    fn remove(&self) {
        if self.tree.exists() {
            let mut command = git(["worktree", "remove", "--force"]);
            command.arg(&self.tree);
            let _is_removed = succeeds(command);
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Builds the program of the tree at `root`, and returns its path.
fn build(root: &Path, target: &Path) -> Result<PathBuf> {
    let mut command = cargo(["build", "--release", "--package", "terrace"]);
    command.arg("--manifest-path").arg(root.join("Cargo.toml")).arg("--target-dir").arg(target);
    command::run(command)?;
    Ok(target.join("release/terrace"))
}

/// Runs `bench`, and returns the report of each workload in order.
fn bench(program: &Path, bench: &[&str]) -> Result<Vec<Report>> {
    let mut command = Command::new(program);
    command.arg("bench").args(bench).arg("--json");
    reports(&command::output(command)?)
}

/// The reports in the lines of `output`, without those of intervals.
fn reports(output: &str) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for line in output.lines() {
        let report: Report =
            serde_json::from_str(line).map_err(|error| format!("not a report: {error}: {line}"))?;
        if report.at_seconds.is_none() {
            reports.push(report);
        }
    }
    Ok(reports)
}

/// The median ratios of each workload over `pairs` of this tree's reports and the other's.
fn ratios(pairs: &[(Vec<Report>, Vec<Report>)]) -> Result<Vec<Ratios>> {
    let Some((first, _)) = pairs.first() else { return Ok(Vec::new()) };
    let mut ratios = Vec::new();
    for (at, report) in first.iter().enumerate() {
        let (mut ops, mut cpu) = (Vec::new(), Vec::new());
        for (mine, theirs) in pairs {
            let (Some(mine), Some(theirs)) = (mine.get(at), theirs.get(at)) else {
                return Err(format!("{}: not every run has it", report.bench).into());
            };
            if mine.bench != report.bench || theirs.bench != report.bench {
                return Err(format!("{}: another workload in its place", report.bench).into());
            }
            ops.push(mine.ops_per_sec / theirs.ops_per_sec);
            // Runs that end by time differ in their operations.
            cpu.push((mine.cpu_seconds / mine.ops) / (theirs.cpu_seconds / theirs.ops));
        }
        ratios.push(Ratios { bench: report.bench.clone(), ops: median(ops), cpu: median(cpu) });
    }
    Ok(ratios)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { at(half) } else { f64::midpoint(at(half.wrapping_sub(1)), at(half)) }
}

fn table(ratios: &[Ratios], revision: &str, pairs: usize) -> String {
    let mut text = format!("this tree by {revision}, medians of {pairs} pairs\n");
    text += &format!("{:<18}{:>10}{:>10}\n", "", "ops/s", "CPU/op");
    for Ratios { bench, ops, cpu } in ratios {
        text += &format!("{bench:<18}{ops:>10.3}{cpu:>10.3}\n");
    }
    text
}

/// The workloads that are worse than `threshold` allows. A ratio that is no number is worse.
fn worse(ratios: &[Ratios], threshold: f64) -> Vec<String> {
    let mut worse = Vec::new();
    for Ratios { bench, ops, cpu } in ratios {
        if ops.is_nan() || *ops < 1.0 - threshold {
            worse.push(format!("{bench}: {ops:.3} of the ops/s"));
        }
        if cpu.is_nan() || *cpu > 1.0 + threshold {
            worse.push(format!("{bench}: {cpu:.3} times the CPU/op"));
        }
    }
    worse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_what_to_compare() {
        let options =
            parse(&["main", "--pairs", "3", "--threshold", "2", "--", "fillseq", "--num", "9"]);
        let expected = Options {
            revision: "main",
            pairs: 3,
            threshold: 0.02,
            bench: vec!["fillseq", "--num", "9"],
        };
        assert_eq!(options.unwrap(), expected);
        assert_eq!(parse(&["HEAD~1"]).unwrap().bench.first(), Some(&"fillrandom"));
        for wrong in [
            &[][..],
            &["--pairs"],
            &["main", "--pairs", "0"],
            &["main", "--threshold", "x"],
            &["main", "--threshold", "100"],
            &["main", "fillseq"],
            &["main", "--"],
        ] {
            assert!(parse(wrong).unwrap_err().to_string().starts_with("usage"), "{wrong:?}");
        }
    }

    /// The report of a run that made `ops` operations in two seconds with `cpu_seconds`.
    fn report(bench: &str, ops: f64, cpu_seconds: f64) -> Report {
        let bench = bench.to_owned();
        Report { bench, ops, ops_per_sec: ops / 2.0, cpu_seconds, at_seconds: None }
    }

    #[test]
    fn a_ratio_is_the_median_over_pairs() {
        let pair =
            |mine, theirs| (vec![report("get", mine, 1.0)], vec![report("get", theirs, 1.0)]);
        let pairs = [pair(100.0, 100.0), pair(300.0, 100.0), pair(200.0, 100.0)];
        let ratios = ratios(&pairs).unwrap();
        // Twice the operations in the same processor time.
        assert_eq!(ratios, [Ratios { bench: "get".to_owned(), ops: 2.0, cpu: 0.5 }]);
        let even = super::ratios(&pairs[..2]).unwrap();
        assert_eq!(even.first().map(|ratios| ratios.ops), Some(2.0));
        let other = [(vec![report("get", 1.0, 1.0)], vec![report("put", 1.0, 1.0)])];
        assert!(super::ratios(&other).is_err());
        assert!(super::ratios(&[(vec![report("get", 1.0, 1.0)], Vec::new())]).is_err());
    }

    #[test]
    fn a_workload_beyond_the_threshold_is_worse() {
        let ratios = |ops, cpu| [Ratios { bench: "get".to_owned(), ops, cpu }];
        assert!(worse(&ratios(0.96, 1.04), 0.05).is_empty());
        assert_eq!(worse(&ratios(0.94, 1.0), 0.05), ["get: 0.940 of the ops/s"]);
        assert_eq!(worse(&ratios(1.2, 1.06), 0.05), ["get: 1.060 times the CPU/op"]);
        assert_eq!(worse(&ratios(f64::NAN, f64::NAN), 0.05).len(), 2);
    }

    #[test]
    fn lines_of_intervals_are_no_reports() {
        let line = r#"{"bench": "get", "ops": 4, "ops_per_sec": 2.0, "cpu_seconds": 1.5, "x": {}}"#;
        let interval = r#"{"bench": "get", "at_seconds": 1.0, "ops": 2, "ops_per_sec": 2.0}"#;
        let found = reports(&format!("{interval}\n{line}\n")).unwrap();
        let found: Vec<_> = found.iter().map(|report| (report.ops, report.cpu_seconds)).collect();
        assert_eq!(found, [(4.0, 1.5)]);
        assert!(reports("no JSON").is_err());
    }
}
