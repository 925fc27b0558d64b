//! The `terrace` binary as its users meet it: what it prints, where, and its exit status.

mod bench;
mod check;
mod entries;
mod inspect;
mod replay;
mod usage;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The least memory a store takes: small log files, early flushes.
const MEMORY: [&str; 2] = ["--memory", "64MiB"];

fn command(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(args).stdin(Stdio::null());
    command
}

/// How a run ended.
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Run {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().expect("an exit, not a signal");
        Self { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Standard output of a run that did well, which says nothing on standard error.
    fn good(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    /// Standard error of a run that ended with `code`, and printed nothing else.
    fn bad(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{}", self.err);
        assert!(!self.err.is_empty());
        self.err
    }
}

fn terrace(args: &[&str]) -> Run {
    Run::of(command(args).output().unwrap())
}

/// A directory of a test, and paths as arguments.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn arg(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// A store in `scratch` of two tables with pages to damage, and records in the log.
fn filled(scratch: &Scratch) -> String {
    let dir = scratch.arg("store");
    let fill = |extra: &[&str]| {
        let args = ["bench", "fillseq", "--num", "2000", "--data", &dir];
        terrace(&[&args[..], &MEMORY, extra].concat()).good()
    };
    fill(&[]);
    fill(&["--existing"]);
    terrace(&[&["put", &dir, "zz", "last"][..], &MEMORY].concat()).good();
    dir
}

/// The files of a directory, by name, with their content.
fn files(dir: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<_> = entries.map(|path| (name(&path), fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

/// The path of the first file in `dir` whose name has `part` in it.
fn file(dir: &str, part: &str) -> PathBuf {
    let (name, _) = files(dir).into_iter().find(|(name, _)| name.contains(part)).unwrap();
    Path::new(dir).join(name)
}

/// Flips a bit at rest.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Each line as JSON.
fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}
