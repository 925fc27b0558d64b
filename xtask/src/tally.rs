//! Results of tests, read from the output of `cargo test`: how many passed, which failed, and how long each
//! test program took.

use std::collections::BTreeMap;

/// Most programs in the list of the slowest.
const SLOWEST: usize = 10;

/// A test program: the unit tests of a crate, a file of its integration tests, or its documentation tests.
#[derive(Debug, Default, PartialEq)]
struct Program {
    name: String,
    passed: u64,
    ignored: u64,
    failed: Vec<String>,
    seconds: f64,
    /// The program printed its result. A killed program prints none.
    has_ended: bool,
}

/// The programs of a run, as far as its output was read.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    programs: Vec<Program>,
    /// The names of programs, by executable.
    names: BTreeMap<String, String>,
    /// Appended to the name of each program, for example the feature it was built with.
    suffix: String,
    /// The indented lines since the last line `failures:`.
    listed: Option<Vec<String>>,
}

impl Tally {
    /// Begins the output of another `cargo test`. Its programs have these `names`, by executable, each
    /// followed by `suffix`.
    pub(crate) fn begin(&mut self, names: BTreeMap<String, String>, suffix: &str) {
        (self.names, self.suffix, self.listed) = (names, suffix.to_owned(), None);
    }

    /// Reads a line of the output, standard error included.
    pub(crate) fn line(&mut self, line: &str) {
        let line = without_colours(line);
        let text = line.trim();
        if let Some(name) = self.program_name(text) {
            self.listed = None;
            self.programs.push(Program { name: name + &self.suffix, ..Program::default() });
        } else if text == "failures:" {
            self.listed = Some(Vec::new());
        } else if let Some(counts) = text.strip_prefix("test result: ") {
            let failed = self.listed.take().unwrap_or_default();
            if let Some(program) = self.programs.last_mut() {
                program.add_result(counts, failed);
            }
        } else if let Some(listed) = &mut self.listed
            && line.starts_with("    ")
        {
            listed.push(text.to_owned());
        }
    }

    /// The name of the program that starts with this `line`.
    fn program_name(&self, line: &str) -> Option<String> {
        if let Some(library) = line.strip_prefix("Doc-tests ") {
            return Some(format!("documentation of {library}"));
        }
        let path = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")?.1;
        let (_, file) = path.rsplit_once("deps/")?;
        Some(self.names.get(file).map_or(file, String::as_str).to_owned())
    }

    /// Every failed test after the name of its program, and every program without a result.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for program in &self.programs {
            failures.extend(program.failed.iter().map(|test| format!("{} {test}", program.name)));
            if !program.has_ended {
                failures.push(format!("{} (no result)", program.name));
            }
        }
        failures
    }

    /// The numbers of tests that passed and that were ignored, as text.
    pub(crate) fn counts(&self) -> String {
        let passed: u64 = self.programs.iter().map(|program| program.passed).sum();
        let ignored: u64 = self.programs.iter().map(|program| program.ignored).sum();
        format!("{passed} tests passed, {ignored} ignored")
    }

    /// The programs that took longest, each with its wall time in seconds.
    pub(crate) fn slowest(&self) -> String {
        let mut slowest: Vec<_> = self.programs.iter().collect();
        slowest.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        let slowest = slowest.iter().take(SLOWEST);
        let slowest: Vec<_> =
            slowest.map(|program| format!("{:.1} s {}", program.seconds, program.name)).collect();
        slowest.join(", ")
    }
}

impl Program {
    /// Adds a result, for example `ok. 2 passed; 0 failed; 1 ignored; ...; finished in 0.01s`. A program of
    /// documentation tests has two.
    fn add_result(&mut self, counts: &str, mut failed: Vec<String>) {
        self.has_ended = true;
        for part in counts.split([';', '.']).map(str::trim) {
            let number =
                |label| part.strip_suffix(label).and_then(|number| number.parse::<u64>().ok());
            self.passed += number(" passed").unwrap_or(0);
            self.ignored += number(" ignored").unwrap_or(0);
            let unlisted = number(" failed").unwrap_or(0).saturating_sub(failed.len() as u64);
            failed.extend((0..unlisted).map(|_| "(a test that is not listed)".to_owned()));
        }
        let seconds =
            counts.rsplit_once("finished in ").map(|(_, time)| time.trim_end_matches('s'));
        self.seconds += seconds.and_then(|seconds| seconds.parse::<f64>().ok()).unwrap_or(0.0);
        self.failed.append(&mut failed);
    }
}

/// `line` without its colour codes: `\x1b[`, numbers separated by semicolons, a letter.
fn without_colours(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
            .get(1..)
            .unwrap_or("")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
     Running unittests src/lib.rs (target/debug/deps/terrace_base-0a1b)

running 3 tests
test key::tests::it_fails ... FAILED
test key::tests::one ... ok
test key::tests::two ... ignored, long: hours

failures:

---- key::tests::it_fails stdout ----
thread panicked:
    an indented line

failures:
    key::tests::it_fails

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 2.50s

error: test failed, to rerun pass `-p terrace-base --lib`
\x1b[1m\x1b[32m     Running\x1b[0m tests/kill.rs (target/debug/deps/kill-2c3d)
test dies ... error: test failed, to rerun pass `-p terracedb --test kill`
     Running tests/other.rs (/elsewhere/deps/other-4e5f)
test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 11.00s
   Doc-tests terrace_base
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s
";

    #[test]
    fn results_of_all_programs_are_counted_and_failures_named() {
        let mut tally = Tally::default();
        let names = [("terrace_base-0a1b", "crates/base"), ("kill-2c3d", "crates/x/tests/kill.rs")];
        let names = names.map(|(file, name)| (file.to_owned(), name.to_owned()));
        tally.begin(names.into(), "");
        OUTPUT.lines().for_each(|line| tally.line(line));
        tally.begin(BTreeMap::new(), ", with shuttle");
        tally.line("     Running unittests src/lib.rs (target/debug/deps/arena-9)");
        tally.line("test result: FAILED. 0 passed; 1 failed; 0 ignored; finished in 0.10s");
        assert_eq!(
            tally.failures(),
            [
                "crates/base key::tests::it_fails",
                "crates/x/tests/kill.rs (no result)",
                "arena-9, with shuttle (a test that is not listed)",
            ]
        );
        assert_eq!(tally.counts(), "9 tests passed, 3 ignored");
        let slowest = "11.0 s other-4e5f, 2.5 s crates/base, 0.5 s documentation of terrace_base, \
                       0.1 s arena-9, with shuttle, 0.0 s crates/x/tests/kill.rs";
        assert_eq!(tally.slowest(), slowest);
    }
}
