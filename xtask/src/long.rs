//! The long run: everything that finds rare faults and takes too long for each change.
//!
//! Every step runs even if one before it failed. The last lines state the outcome of each, one a line.

use std::time::{Duration, Instant};

use crate::{Result, aarch64, bindings, check, fuzz, redis, sim, test};

/// Default times of the simulation and of each fuzz target, seconds.
const SIM_SECONDS: u64 = 3600;
const FUZZ_SECONDS: u64 = 60;

/// How long the steps run, and which do.
#[derive(Debug, PartialEq, Eq)]
struct Plan<'a> {
    sim_seconds: u64,
    fuzz_seconds: u64,
    /// The only step to run; `None` runs all.
    only: Option<&'a str>,
    /// Arguments of the tests.
    tests: &'a [&'a str],
}

/// Names of the steps, for `--only`.
const STEPS: [&str; 8] =
    ["tests", "features", "bindings", "redis", "aarch64", "sim", "fuzz", "miri"];

/// Outcome of a step.
enum Outcome {
    Passed,
    /// A tool is missing; the text says how to get it.
    Skipped(String),
    Failed(String),
}

/// The steps that were run.
#[derive(Default)]
struct Steps(Vec<(String, Outcome, Duration)>);

impl Steps {
    fn run(&mut self, name: impl Into<String>, step: impl FnOnce() -> Result) {
        let (name, start) = (name.into(), Instant::now());
        let outcome = match step() {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(error.to_string()),
        };
        self.0.push((name, outcome, start.elapsed()));
    }

    fn skip(&mut self, name: &str, reason: &str) {
        self.0.push((name.to_owned(), Outcome::Skipped(reason.to_owned()), Duration::ZERO));
    }

    /// One line for each step; an error if one failed.
    fn summary(&self) -> (String, Result) {
        let (mut lines, mut failed) = (String::new(), Vec::new());
        for (name, outcome, took) in &self.0 {
            let (word, text) = match outcome {
                Outcome::Passed => ("passed", ""),
                Outcome::Skipped(reason) => ("skipped", reason.as_str()),
                Outcome::Failed(error) => {
                    failed.push(name.as_str());
                    ("FAILED", error.as_str())
                }
            };
            // An error may have many lines.
            let text = text.lines().next().unwrap_or_default();
            let minutes = took.as_secs_f64() / 60.0;
            lines += format!("{name:24} {word:8} {minutes:6.1} min  {text}").trim_end();
            lines.push('\n');
        }
        let result = match failed.is_empty() {
            true => Ok(()),
            false => Err(format!("long: {} failed: {}", failed.len(), failed.join(", ")).into()),
        };
        (lines, result)
    }
}

/// Runs `[--hours H | --seconds S] [--fuzz SECONDS] [--only STEP] [-- TEST ARGS]`.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let plan = plan(arguments)?;
    let is_wanted = |step: &str| plan.only.is_none_or(|only| only == step);
    let mut steps = Steps::default();
    if is_wanted("tests") {
        // The ignored tests are among them, with 200 kills of workers, 200 of their hosts, and 200 of both.
        steps.run("tests", || test::run_long(plan.tests));
    }
    if is_wanted("features") {
        steps.run("features", check::features);
    }
    if is_wanted("bindings") {
        steps.run("bindings", bindings::run_long);
    }
    if is_wanted("redis") {
        steps.run("redis", redis::run_long);
    }
    if is_wanted("aarch64") {
        match aarch64::missing_tools() {
            Some(missing) => steps.skip("aarch64", missing),
            None => steps.run("aarch64", aarch64::run),
        }
    }
    if is_wanted("sim") {
        let seconds = plan.sim_seconds.to_string();
        steps.run("sim", || sim::run(&["--seconds", &seconds]));
    }
    if is_wanted("fuzz") {
        let seconds = plan.fuzz_seconds.to_string();
        match fuzz::missing_tools() {
            Some(missing) => steps.skip("fuzz", missing),
            None => {
                for target in fuzz::targets()? {
                    steps.run(format!("fuzz {target}"), || fuzz::run_target(&target, &seconds));
                }
            }
        }
    }
    if is_wanted("miri") {
        match test::missing_miri() {
            Some(missing) => steps.skip("miri", missing),
            None => steps.run("miri", || test::run_miri(&[])),
        }
    }
    let (lines, result) = steps.summary();
    eprint!("\n{lines}");
    result
}

fn plan<'a>(mut arguments: &'a [&'a str]) -> Result<Plan<'a>> {
    let mut plan =
        Plan { sim_seconds: SIM_SECONDS, fuzz_seconds: FUZZ_SECONDS, only: None, tests: &[] };
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("not a number: {text}"));
    loop {
        arguments = match arguments {
            [] => return Ok(plan),
            ["--hours", hours, rest @ ..] => {
                plan.sim_seconds = number(hours)?.saturating_mul(3600);
                rest
            }
            ["--seconds", seconds, rest @ ..] => {
                plan.sim_seconds = number(seconds)?;
                rest
            }
            ["--fuzz", seconds, rest @ ..] => {
                plan.fuzz_seconds = number(seconds)?;
                rest
            }
            ["--only", step, rest @ ..] if STEPS.contains(step) => {
                plan.only = Some(step);
                rest
            }
            // Without the separator: `cargo test` has its own.
            ["--", rest @ ..] => return Ok(Plan { tests: rest, ..plan }),
            unknown => {
                return Err(format!(
                    "usage: long [--hours H | --seconds S] [--fuzz SECONDS] [--only {}] \
                     [-- TEST ARGS], got: {}",
                    STEPS.join("|"),
                    unknown.join(" ")
                )
                .into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_does_not_end_the_run_and_each_step_has_a_line() {
        let mut steps = Steps::default();
        steps.run("tests", || Err("one test\nand its trace".into()));
        steps.skip("miri", "no Miri");
        steps.run("sim", || Ok(()));
        let (lines, result) = steps.summary();
        let lines: Vec<Vec<&str>> =
            lines.lines().map(|it| it.split_whitespace().collect()).collect();
        assert_eq!(
            lines,
            [
                vec!["tests", "FAILED", "0.0", "min", "one", "test"],
                vec!["miri", "skipped", "0.0", "min", "no", "Miri"],
                vec!["sim", "passed", "0.0", "min"],
            ]
        );
        assert_eq!(result.unwrap_err().to_string(), "long: 1 failed: tests");
    }

    #[test]
    fn times_and_steps_are_options() {
        let all = plan(&[]).unwrap();
        assert_eq!((all.sim_seconds, all.fuzz_seconds, all.only), (3600, 60, None));
        let words = ["--seconds", "600", "--fuzz", "20", "--only", "sim", "--", "-p", "x"];
        let some = plan(&words).unwrap();
        let expected =
            Plan { sim_seconds: 600, fuzz_seconds: 20, only: Some("sim"), tests: &["-p", "x"] };
        assert_eq!(some, expected);
        assert_eq!(plan(&["--hours", "2"]).unwrap().sim_seconds, 7200);
        for wrong in [&["--hours"][..], &["--hours", "x"], &["--only", "x"], &["-p"]] {
            assert!(plan(wrong).is_err(), "{wrong:?}");
        }
    }
}
