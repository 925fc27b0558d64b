//! Tests that run as processes of their own, to be killed at any moment.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The child's directory; absent in the parent.
const DIRECTORY: &str = "TERRACE_CHILD_DIRECTORY";

/// Begins each line that a child says; what the test harness prints does not.
const MARK: &str = "@ ";

/// The directory a child was given: `None` where the test runs as any other.
pub(crate) fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Tells the parent something, whole: a pipe takes a line at once.
pub(crate) fn say(line: &str) {
    std::io::stdout().lock().write_all(format!("\n{MARK}{line}\n").as_bytes()).unwrap();
}

/// Starts `test` of this binary as a process of its own, with `directory`.
pub(crate) fn spawn(test: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a child said in this line.
pub(crate) fn said(line: &str) -> Option<&str> {
    line.trim_end().strip_prefix(MARK)
}

/// Lets `test` live until it said so many lines, and a moment longer, and kills it; all that it said.
pub(crate) fn one_life(
    test: &str,
    directory: &Path,
    lines: usize,
    longer: Duration,
) -> Vec<String> {
    one_life_until(test, directory, |heard| heard.len() >= lines, longer)
}

/// The same, until what it said is `enough`, asked before the first line and after each.
pub(crate) fn one_life_until(
    test: &str,
    directory: &Path,
    mut enough: impl FnMut(&[String]) -> bool,
    longer: Duration,
) -> Vec<String> {
    let mut child = spawn(test, directory);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut heard = Vec::new();
    let mut is_over = enough(&heard);
    while !is_over {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "the child ended by itself");
        if let Some(line) = said(&line) {
            heard.push(line.to_owned());
            is_over = enough(&heard);
        }
    }
    // Its output is not read meanwhile: it may come to wait, no later than for a full pipe.
    std::thread::sleep(longer);
    child.kill().unwrap();
    // What it said before it died counts too: but only whole lines.
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let rest = String::from_utf8_lossy(&rest[..whole]).into_owned();
    heard.extend(rest.lines().filter_map(said).map(str::to_owned));
    let status = child.wait().unwrap();
    assert!(!status.success() && status.code().is_none(), "the child ended by itself: {status}");
    heard
}
