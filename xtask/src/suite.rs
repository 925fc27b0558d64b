//! A run of several steps, all of which run even if some fail. The output of tests is shown as it is
//! written, and its results are counted for the summary at the end.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read, Write, pipe, stderr, stdout};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::tally::Tally;
use crate::{Result, command, workspace};

/// Results of the steps run so far.
pub(crate) struct Suite {
    start: Instant,
    /// The steps so far, each with its end.
    ends: Vec<(String, Instant)>,
    /// Receives the output of tests.
    out: Box<dyn Write>,
    tally: Tally,
    /// Steps other than tests that passed.
    passed: Vec<&'static str>,
    /// Steps that failed, each with its error.
    failed: Vec<String>,
}

impl Suite {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            ends: Vec::new(),
            out: Box::new(stdout()),
            tally: Tally::default(),
            passed: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Adds the result of a step that is not a run of tests.
    pub(crate) fn add(&mut self, name: &'static str, result: Result) {
        self.end_step(name);
        match result {
            Ok(()) => self.passed.push(name),
            Err(error) => self.add_failure(name, error),
        }
    }

    fn end_step(&mut self, name: &str) {
        self.ends.push((name.to_owned(), Instant::now()));
    }

    /// The seconds of each step.
    fn times(&self) -> String {
        let starts = std::iter::once(self.start).chain(self.ends.iter().map(|(_, end)| *end));
        let time = |((name, end), start): (&(String, Instant), Instant)| {
            format!("{name} {} s", end.saturating_duration_since(start).as_secs())
        };
        self.ends.iter().zip(starts).map(time).collect::<Vec<_>>().join(", ")
    }

    fn add_failure(&mut self, name: &str, error: impl std::fmt::Display) {
        eprintln!("! {name} failed: {error}");
        self.failed.push(format!("{name} ({})", error.to_string().lines().next().unwrap_or("")));
    }

    /// Builds and runs tests; returns whether they were built.
    ///
    /// `build` and `tests` are the same `cargo test` command; the build adds `--no-run`. The name of each
    /// test program ends in `suffix`, to distinguish runs of the same program.
    pub(crate) fn build_and_run(
        &mut self,
        name: &str,
        suffix: &str,
        build: Command,
        tests: Command,
    ) -> bool {
        let names = build_tests(build);
        self.end_step(&format!("build of {name}"));
        match names {
            Ok(names) => self.tally.begin(names, suffix),
            Err(error) => {
                self.add_failure(name, error);
                return false;
            }
        }
        self.run(name, tests);
        true
    }

    /// Runs tests; without [`Suite::build_and_run`], test programs have the names of their executables.
    pub(crate) fn run(&mut self, name: &str, tests: Command) {
        let failures = self.tally.failures().len();
        // A failed test explains a failed command.
        if let Err(error) = run_counted(tests, &mut self.out, &mut self.tally)
            && self.tally.failures().len() == failures
        {
            self.add_failure(name, error);
        }
        self.end_step(name);
    }

    /// Prints a summary, which begins with the name of the `task`; an error if any step failed.
    pub(crate) fn finish(mut self, task: &str) -> Result {
        let slowest = self.tally.slowest();
        if !slowest.is_empty() {
            eprintln!("\nslowest test programs: {slowest}");
        }
        eprintln!("steps: {}", self.times());
        let minutes = self.start.elapsed().as_secs_f64() / 60.0;
        let passed = self
            .passed
            .iter()
            .fold(self.tally.counts(), |counts, step| counts + ", " + step + " passed");
        let mut failed = self.tally.failures();
        failed.append(&mut self.failed);
        if failed.is_empty() {
            eprintln!("{task}: {passed}, none failed, in {minutes:.1} min");
            return Ok(());
        }
        for failure in &failed {
            eprintln!("failed: {failure}");
        }
        let failures = failed.join("; ");
        Err(format!("{task}: {passed}, {} FAILED, in {minutes:.1} min: {failures}", failed.len())
            .into())
    }
}

/// Builds tests with `build`. Returns the names of the test programs, which are the paths of their sources,
/// by executable.
fn build_tests(mut build: Command) -> Result<BTreeMap<String, String>> {
    #[derive(Deserialize)]
    struct Artifact {
        executable: Option<String>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        src_path: String,
    }
    build.arg("--no-run").arg("--message-format=json-render-diagnostics");
    let output = command::output(build)?;
    let root = format!("{}/", workspace::root().display());
    let mut names = BTreeMap::new();
    for line in output.lines() {
        let Ok(artifact) = serde_json::from_str::<Artifact>(line) else { continue };
        let (Some(executable), Some(target)) = (artifact.executable, artifact.target) else {
            continue;
        };
        let source = target.src_path;
        let source = source.strip_prefix(&root).unwrap_or(&source);
        let name = source.strip_suffix("/src/lib.rs").unwrap_or(source);
        let file = executable.rsplit('/').next().unwrap_or_default();
        names.insert(file.to_owned(), name.to_owned());
    }
    Ok(names)
}

/// Runs `tests`, copies its output to `out`, and counts its results in `tally`.
fn run_counted(mut tests: Command, out: &mut dyn Write, tally: &mut Tally) -> Result {
    if stderr().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
        tests.env("CARGO_TERM_COLOR", "always");
    }
    let shown = command::show(&tests);
    // Standard output and standard error share a pipe, so that their lines stay in order.
    let (mut output, input) = pipe()?;
    tests.stdout(input.try_clone()?).stderr(input).current_dir(workspace::root());
    let child = tests.spawn();
    // Closes this process's write ends of the pipe, so that reading ends when the child exits.
    drop(tests);
    let mut child = child.map_err(|error| format!("`{shown}` did not start: {error}"))?;
    let (chunks, received) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        let mut chunk = [0; 8192];
        while let Ok(count @ 1..) = output.read(&mut chunk) {
            let bytes = chunk.get(..count).unwrap_or_default().to_vec();
            if chunks.send(bytes).is_err() {
                return;
            }
        }
    });
    let mut line = Vec::new();
    loop {
        match received.recv_timeout(Duration::from_millis(200)) {
            Ok(chunk) => {
                // Unfinished lines are shown, too: the line of a test that hangs has no end.
                out.write_all(&chunk)?;
                out.flush()?;
                for part in chunk.split_inclusive(|byte| *byte == b'\n') {
                    line.extend_from_slice(part);
                    if part.ends_with(b"\n") {
                        tally.line(String::from_utf8_lossy(&line).trim_end());
                        line.clear();
                    }
                }
            }
            // A process that a test left behind may keep the pipe open.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => break,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed: {status}").into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// A suite that shows no output: `cargo xtask test`, which may run this test, would count it.
    fn silent() -> Suite {
        Suite { out: Box::new(std::io::sink()), ..Suite::new() }
    }

    #[test]
    fn a_failed_step_is_reported_and_the_next_steps_run() {
        let mut suite = silent();
        suite.add("check", Err("lines too long".into()));
        suite.run(
            "tests",
            shell("echo 'Running a (x/deps/a-1)'; echo 'test result: ok. 2 passed; finished in 1.00s'"),
        );
        // A program that is killed and leaves a process behind.
        suite.run("more", shell("echo ' Running b (x/deps/b-2)' >&2; sleep 5 & kill -9 $$"));
        suite.run("none", shell("exit 3"));
        suite.add("sim", Ok(()));
        let summary = suite.finish("ci").unwrap_err().to_string();
        assert!(
            summary.starts_with("ci: 2 tests passed, 0 ignored, sim passed, 3 FAILED, in "),
            "{summary}"
        );
        for failure in ["b-2 (no result)", "check (lines too long)", "none (`sh -c exit 3` failed"]
        {
            assert!(summary.contains(failure), "{failure} in {summary}");
        }
        let mut suite = silent();
        suite.add("sim", Ok(()));
        suite.finish("ci").unwrap();
    }

    #[test]
    fn tests_that_do_not_build_are_one_failure_and_do_not_run() {
        let mut suite = silent();
        let never = shell("echo 'Running a (x/deps/a-1)'");
        assert!(!suite.build_and_run("tests", "", shell("exit 101"), never));
        let summary = suite.finish("test").unwrap_err().to_string();
        assert!(summary.contains("1 FAILED") && !summary.contains("a-1"), "{summary}");
    }
}
