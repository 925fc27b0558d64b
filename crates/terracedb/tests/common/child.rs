//! Tests that run in a child process, so that they can be killed at any moment.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Environment variable with the child's directory; it is not set in the parent.
const DIRECTORY: &str = "TERRACE_CHILD_DIRECTORY";

/// Prefix of each line that a child reports; lines of the test harness lack it.
const MARK: &str = "@ ";

/// The directory given to a child; `None` if the test does not run as a child.
pub(crate) fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Reports a line to the parent in one write, which a pipe does not interleave with others.
pub(crate) fn say(line: &str) {
    std::io::stdout().lock().write_all(format!("\n{MARK}{line}\n").as_bytes()).unwrap();
}

/// Starts `test` (its path within this binary) in a child process, with `directory`.
pub(crate) fn spawn(test: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The text that a child reported in this line; `None` for a line of the test harness.
pub(crate) fn said(line: &str) -> Option<&str> {
    line.trim_end().strip_prefix(MARK)
}

/// Runs `test` in a child until it reported `lines` lines, waits for `longer`, and kills it. Returns all
/// reported lines.
pub(crate) fn one_life(
    test: &str,
    directory: &Path,
    lines: usize,
    longer: Duration,
) -> Vec<String> {
    one_life_until(test, directory, |heard| heard.len() >= lines, longer)
}

/// As [`one_life`], until `enough` is true of the reported lines; it is asked before the first line and
/// after each.
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
    // The output is not read meanwhile, so the child blocks if it fills the pipe.
    std::thread::sleep(longer);
    child.kill().unwrap();
    // Lines that the child reported before its death count too, if they are complete.
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let rest = String::from_utf8_lossy(&rest[..whole]).into_owned();
    heard.extend(rest.lines().filter_map(said).map(str::to_owned));
    let status = child.wait().unwrap();
    assert!(!status.success() && status.code().is_none(), "the child ended by itself: {status}");
    heard
}
