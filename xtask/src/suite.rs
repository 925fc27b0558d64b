//! Runs of `cargo test`, one after the other, whatever fails: what they say is shown as they say it, and
//! counted.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read, Write, pipe, stderr, stdout};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::tally::Tally;
use crate::{Result, command, workspace};

/// What a run of several steps came to.
pub(crate) struct Suite {
    began: Instant,
    /// Where tests are shown.
    out: Box<dyn Write>,
    tally: Tally,
    /// What went well beside tests.
    passed: Vec<&'static str>,
    /// The steps that failed, and why.
    failed: Vec<String>,
}

impl Suite {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            out: Box::new(stdout()),
            tally: Tally::default(),
            passed: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Takes in what became of a step that is no test.
    pub(crate) fn step(&mut self, name: &'static str, outcome: Result) {
        match outcome {
            Ok(()) => self.passed.push(name),
            Err(error) => self.fails(name, error),
        }
    }

    fn fails(&mut self, name: &str, error: impl std::fmt::Display) {
        eprintln!("! {name} failed: {error}");
        self.failed.push(format!("{name} ({})", error.to_string().lines().next().unwrap_or("")));
    }

    /// Runs tests; `build` is the same command, that builds them and says which programs these are. Whether
    /// they were built.
    pub(crate) fn tests(&mut self, name: &str, with: &str, build: Command, tests: Command) -> bool {
        match names(build) {
            Ok(names) => self.tally.begin(names, with),
            Err(error) => {
                self.fails(name, error);
                return false;
            }
        }
        self.run(name, tests);
        true
    }

    /// Runs tests whose programs are called as their executables.
    pub(crate) fn run(&mut self, name: &str, tests: Command) {
        let before = self.tally.failures().len();
        if let Err(error) = followed(tests, &mut self.out, &mut self.tally)
            && self.tally.failures().len() == before
        {
            self.fails(name, error);
        }
    }

    /// Says what all of it came to, in a line: of `habit`.
    pub(crate) fn end(mut self, habit: &str) -> Result {
        let slowest = self.tally.slowest();
        if !slowest.is_empty() {
            eprintln!("\nslowest programs of tests: {slowest}");
        }
        let minutes = self.began.elapsed().as_secs_f64() / 60.0;
        let passed =
            self.passed.iter().fold(self.tally.counts(), |all, it| all + ", " + it + " passed");
        let mut failed = self.tally.failures();
        failed.append(&mut self.failed);
        if failed.is_empty() {
            eprintln!("{habit}: {passed}, none failed, in {minutes:.1} min");
            return Ok(());
        }
        for failure in &failed {
            eprintln!("failed: {failure}");
        }
        let failures = failed.join("; ");
        Err(format!("{habit}: {passed}, {} FAILED, in {minutes:.1} min: {failures}", failed.len())
            .into())
    }
}

/// Builds with `build`, and the names of the programs of tests there are then, by executable: where their
/// source is.
fn names(mut build: Command) -> Result<BTreeMap<String, String>> {
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

/// Runs `tests`, shows in `out` what it says, and has `tally` read it.
fn followed(mut tests: Command, out: &mut dyn Write, tally: &mut Tally) -> Result {
    if stderr().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
        tests.env("CARGO_TERM_COLOR", "always");
    }
    let shown = command::show(&tests);
    // One pipe for both, so that they stay in order.
    let (mut output, input) = pipe()?;
    tests.stdout(input.try_clone()?).stderr(input).current_dir(workspace::root());
    let child = tests.spawn();
    // The ends of the pipe that are this process's.
    drop(tests);
    let mut child = child.map_err(|error| format!("`{shown}` did not start: {error}"))?;
    let (chunks, received) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        let mut chunk = [0; 8192];
        while let Ok(count @ 1..) = output.read(&mut chunk) {
            let said = chunk.get(..count).unwrap_or_default().to_vec();
            if chunks.send(said).is_err() {
                return;
            }
        }
    });
    let mut line = Vec::new();
    loop {
        match received.recv_timeout(Duration::from_millis(200)) {
            Ok(chunk) => {
                // At once: the name of a test that hangs ends no line.
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
            // What a test left behind may hold the pipe open.
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

    /// One that shows nothing: what it would show, the `cargo test` around this one would be taken to say.
    fn silent() -> Suite {
        Suite { out: Box::new(std::io::sink()), ..Suite::new() }
    }

    /// A step that fails keeps no other from being run, and each is told.
    #[test]
    fn all_steps_run_and_all_failures_are_told() {
        let mut suite = silent();
        suite.step("check", Err("lines too long".into()));
        suite.run(
            "tests",
            shell("echo 'Running a (x/deps/a-1)'; echo 'test result: ok. 2 passed; finished in 1.00s'"),
        );
        // What broke off and left a process behind.
        suite.run("more", shell("echo ' Running b (x/deps/b-2)' >&2; sleep 5 & kill -9 $$"));
        suite.run("none", shell("exit 3"));
        suite.step("sim", Ok(()));
        let said = suite.end("ci").unwrap_err().to_string();
        assert!(
            said.starts_with("ci: 2 tests passed, 0 ignored, sim passed, 3 FAILED, in "),
            "{said}"
        );
        for failure in
            ["b-2 (it broke off)", "check (lines too long)", "none (`sh -c exit 3` failed"]
        {
            assert!(said.contains(failure), "{failure} in {said}");
        }
        let mut suite = silent();
        suite.step("sim", Ok(()));
        suite.end("ci").unwrap();
    }

    #[test]
    fn what_does_not_build_is_told_and_not_run() {
        let mut suite = silent();
        assert!(!suite.tests("tests", "", shell("exit 101"), shell("touch /dev/null/never")));
        assert!(suite.end("test").unwrap_err().to_string().contains("1 FAILED"));
    }
}
