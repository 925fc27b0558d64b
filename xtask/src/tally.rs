//! What tests came to, read from the lines of `cargo test`: how many passed, which failed, and how long each
//! program of tests took.

use std::collections::BTreeMap;

/// How many of the slowest programs a report names.
const SLOWEST: usize = 10;

/// A program of tests: the unit tests of a crate, a file of its integration tests, its documentation.
#[derive(Debug, Default, PartialEq)]
struct Program {
    name: String,
    passed: u64,
    ignored: u64,
    failed: Vec<String>,
    seconds: f64,
    /// Whether it said what it came to. One that is killed says nothing.
    has_ended: bool,
}

/// All programs of a run, as far as they were read.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    programs: Vec<Program>,
    /// The names of programs, by executable.
    names: BTreeMap<String, String>,
    /// What is said of each run beside the names of its programs: with which feature, say.
    with: String,
    /// The indented lines since the last line `failures:`.
    listed: Option<Vec<String>>,
}

impl Tally {
    /// Reads on in the output of another `cargo test`, whose programs have these `names`, by executable;
    /// `with` tells its programs from those of other runs.
    pub(crate) fn begin(&mut self, names: BTreeMap<String, String>, with: &str) {
        (self.names, self.with, self.listed) = (names, with.to_owned(), None);
    }

    /// Takes in a line of the output, standard error included.
    pub(crate) fn line(&mut self, line: &str) {
        let line = without_colours(line);
        let said = line.trim();
        if let Some(name) = self.name_of(said) {
            self.listed = None;
            self.programs.push(Program { name: name + &self.with, ..Program::default() });
        } else if said == "failures:" {
            self.listed = Some(Vec::new());
        } else if let Some(counts) = said.strip_prefix("test result: ") {
            let failed = self.listed.take().unwrap_or_default();
            if let Some(program) = self.programs.last_mut() {
                program.ends(counts, failed);
            }
        } else if let Some(listed) = &mut self.listed
            && line.starts_with("    ")
        {
            listed.push(said.to_owned());
        }
    }

    /// The name of the program that the line `said` is the first of.
    fn name_of(&self, said: &str) -> Option<String> {
        if let Some(library) = said.strip_prefix("Doc-tests ") {
            return Some(format!("documentation of {library}"));
        }
        let path = said.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")?.1;
        let (_, file) = path.rsplit_once("deps/")?;
        Some(self.names.get(file).map_or(file, String::as_str).to_owned())
    }

    /// The programs that failed, with the tests that did.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for program in &self.programs {
            failures.extend(program.failed.iter().map(|test| format!("{} {test}", program.name)));
            if !program.has_ended {
                failures.push(format!("{} (it broke off)", program.name));
            }
        }
        failures
    }

    /// How many tests passed and were ignored.
    pub(crate) fn counts(&self) -> String {
        let passed: u64 = self.programs.iter().map(|program| program.passed).sum();
        let ignored: u64 = self.programs.iter().map(|program| program.ignored).sum();
        format!("{passed} tests passed, {ignored} ignored")
    }

    /// The programs that took longest, in seconds of wall time.
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
    /// Takes in `counts`, as in `ok. 2 passed; 0 failed; 1 ignored; ...; finished in 0.01s`. Documentation is
    /// tested in two programs that have one name.
    fn ends(&mut self, counts: &str, mut failed: Vec<String>) {
        self.has_ended = true;
        for part in counts.split([';', '.']).map(str::trim) {
            let number =
                |what| part.strip_suffix(what).and_then(|number| number.parse::<u64>().ok());
            self.passed += number(" passed").unwrap_or(0);
            self.ignored += number(" ignored").unwrap_or(0);
            let nameless = number(" failed").unwrap_or(0).saturating_sub(failed.len() as u64);
            failed.extend((0..nameless).map(|_| "(a test without a name)".to_owned()));
        }
        let seconds = counts.rsplit_once("finished in ").map(|(_, it)| it.trim_end_matches('s'));
        self.seconds += seconds.and_then(|seconds| seconds.parse::<f64>().ok()).unwrap_or(0.0);
        self.failed.append(&mut failed);
    }
}

/// A line as it is without a terminal: `\x1b[`, numbers, a letter.
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
    fn every_program_counts_and_every_failure_is_named() {
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
                "crates/x/tests/kill.rs (it broke off)",
                "arena-9, with shuttle (a test without a name)",
            ]
        );
        assert_eq!(tally.counts(), "9 tests passed, 3 ignored");
        let slowest = "11.0 s other-4e5f, 2.5 s crates/base, 0.5 s documentation of terrace_base, \
                       0.1 s arena-9, with shuttle, 0.0 s crates/x/tests/kill.rs";
        assert_eq!(tally.slowest(), slowest);
    }
}
