//! Running the binary, stores to run it on, and looks at what it left.

use std::ffi::OsStr;
pub(crate) use std::fs;
pub(crate) use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) use serde_json::Value;
use tempfile::TempDir;

/// The least memory a store takes: small log files, early flushes.
pub(crate) const MEMORY: [&str; 2] = ["--memory", "64MiB"];

pub(crate) fn command(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(args).stdin(Stdio::null());
    command
}

/// How a run ended.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().expect("an exit, not a signal");
        Self { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Standard output of a run that did well, which says nothing on standard error.
    pub(crate) fn good(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    /// Standard error of a run that ended with `code`, and printed nothing else.
    pub(crate) fn bad(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{}", self.err);
        assert!(!self.err.is_empty());
        self.err
    }
}

pub(crate) fn terrace(args: &[&str]) -> Run {
    Run::of(command(args).output().unwrap())
}

/// A directory of a test, and paths as arguments.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn arg(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// A store in `scratch` of two tables with pages to damage, and records in the log.
pub(crate) fn filled(scratch: &Scratch) -> String {
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
pub(crate) fn files(dir: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<_> = entries.map(|path| (name(&path), fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

/// The path of the first file in `dir` whose name has `part` in it.
pub(crate) fn file(dir: &str, part: &str) -> PathBuf {
    let (name, _) = files(dir).into_iter().find(|(name, _)| name.contains(part)).unwrap();
    Path::new(dir).join(name)
}

/// Flips a bit at rest.
pub(crate) fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Each line as JSON.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}
