//! Every example runs, and its assertions hold.
use std::env::consts::EXE_SUFFIX;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::alone;

/// The directory where cargo puts examples, next to that of this test.
fn built() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("examples")
}

/// The names of all examples.
fn names() -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let sources = paths.filter(|path| path.extension().is_some_and(|ending| ending == "rs"));
    let mut names: Vec<_> =
        sources.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_example_succeeds_and_prints_a_result() {
    let _alone = alone();
    let names = names();
    for story in
        ["backup", "batch", "dedup", "embed", "photos", "scan", "six_systems", "snapshot", "ttl"]
    {
        assert!(names.iter().any(|name| name == story), "no example of {story}");
    }
    for name in names {
        let path = built().join(format!("{name}{EXE_SUFFIX}"));
        // Cargo does not build examples if only this test binary is built.
        assert!(
            path.is_file(),
            "`cargo build -p terracedb --examples` first: no {}",
            path.display()
        );
        let mut command = Command::new(&path);
        if name == "six_systems" && env::var_os("TERRACE_LONG").is_some() {
            command.arg("50");
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}{error}");
        assert!(!said.is_empty(), "{name} shows nothing");
    }
}
