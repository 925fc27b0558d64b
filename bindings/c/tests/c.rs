//! The header is that of the sources, and C programs compile with it and run.

use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// Builds the library, which `cargo test` does not, and returns its folder.
fn built() -> PathBuf {
    let manifest = format!("{PACKAGE}/Cargo.toml");
    let status = Command::new(env!("CARGO")).args(["build", "--manifest-path", &manifest]).status();
    assert!(status.unwrap().success());
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().parent().unwrap().to_owned()
}

/// Set `TERRACE_GENERATE=1` to write the header.
#[test]
fn the_header_is_that_of_the_sources() {
    let config = cbindgen::Config::from_file(format!("{PACKAGE}/cbindgen.toml")).unwrap();
    let mut header = Vec::new();
    let made = cbindgen::Builder::new().with_crate(PACKAGE).with_config(config).generate();
    made.unwrap().write(&mut header);
    let path = format!("{PACKAGE}/include/terracedb.h");
    if std::env::var_os("TERRACE_GENERATE").is_some() {
        std::fs::write(&path, &header).unwrap();
    }
    let kept = std::fs::read(&path).unwrap_or_default();
    assert!(kept == header, "include/terracedb.h is stale: run with TERRACE_GENERATE=1");
}

fn compiled(name: &str, into: &Path) -> PathBuf {
    let program = into.join(name);
    let library = built();
    let status = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-o"])
        .arg(&program)
        .arg(format!("{PACKAGE}/examples/{name}.c"))
        .arg(format!("-I{PACKAGE}/include"))
        .arg(format!("-L{}", library.display()))
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .arg("-lterracedb_c")
        .status()
        .unwrap();
    assert!(status.success());
    program
}

#[test]
fn the_example_prints_its_entries() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("shop", dir.path());
    for run in 0..2 {
        let output = Command::new(&program).arg(dir.path().join("store")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let eve = ["eve: -", "eve: "][run];
        let visits = ["visits: 3", "visits: 6"][run];
        let expected = ["bob: Rome", eve, "ada: London", visits, "eve = ", "ada = London"];
        assert_eq!(lines[..6], expected);
        assert!(lines[6].starts_with("2 0 invalid"), "{text}");
        assert!(lines[7].contains("durability") && lines[7].contains("77"), "{text}");
        assert!(lines[8].contains("result pointer"), "{text}");
        assert_eq!(lines[9], "not found");
    }
}
