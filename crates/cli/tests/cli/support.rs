//! Helpers that run the binary, create stores for it, and read the files it left.

use std::ffi::OsStr;
pub(crate) use std::fs;
pub(crate) use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) use serde_json::Value;
use tempfile::TempDir;

/// The smallest memory limit of a store: log segments are small and flushes are early.
pub(crate) const MEMORY: [&str; 2] = ["--memory", "64MiB"];

pub(crate) const DURABLE: terracedb::WriteOptions =
    terracedb::WriteOptions::new().durability(terracedb::Durability::Sync);

pub(crate) fn command(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Exit status and output of a run.
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

    /// Standard output of a run that must succeed and print nothing on standard error.
    pub(crate) fn good(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    /// Standard error of a run that must end with `code` and print nothing on standard output.
    pub(crate) fn bad(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{}", self.err);
        assert!(!self.err.is_empty());
        self.err
    }
}

pub(crate) fn terrace(args: &[&str]) -> Run {
    Run::of(command(args).output().unwrap())
}

/// The temporary directory of a test, and paths in it as arguments.
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

/// A store in `scratch` with two tables of several pages and one record in the log: 2,000 keys in the form of
/// `bench fillseq`, and one key after them. The key ranges of the tables do not overlap, so a process that
/// has the store open finds nothing to merge.
pub(crate) fn filled(scratch: &Scratch) -> String {
    let dir = scratch.arg("store");
    let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    let keyspace = db.open_or_create_keyspace("default").unwrap();
    let mut noise = 1u64;
    for number in 0..2000u64 {
        let key = [&(2 * number).to_be_bytes()[..], &[b'0'; 8]].concat();
        let mut value = vec![b'v'; 100];
        // Half of the value does not compress.
        for word in value.chunks_exact_mut(8).take(6) {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&noise.to_le_bytes());
        }
        keyspace.put(key, value).unwrap();
        if number % 1000 == 999 {
            db.flush().unwrap();
        }
    }
    keyspace.put_opt("zz", "last", &DURABLE).unwrap();
    dir
}

/// The files of a directory with their contents, sorted by name.
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

/// Flips a bit of a stored file.
pub(crate) fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Parses each line as JSON.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}
