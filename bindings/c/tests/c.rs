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

/// Compiles an example against the library of the build, with `options` beside the usual ones.
fn compiled(name: &str, into: &Path, options: &[&str]) -> PathBuf {
    let program = into.join(name);
    let library = built();
    let status = Command::new("cc")
        .args(options)
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

/// Runs `command`, which must succeed, and returns what it printed.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Whether the tool is there; says so if it is not.
fn has(tool: &str, question: &str) -> bool {
    let is_there = Command::new(tool).arg(question).output().is_ok_and(|it| it.status.success());
    if !is_there {
        eprintln!("skipped: {tool} is missing");
    }
    is_there
}

/// Installs the library in `prefix`, and returns a command with the environment that finds it there.
fn installed(prefix: &Path, program: &str) -> Command {
    let mut install = Command::new(format!("{PACKAGE}/install.sh"));
    printed(install.arg(prefix).arg(built()));
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", prefix.join("lib"));
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    command
}

#[test]
fn the_installed_library_has_versioned_symbols_and_works_with_pkg_config() {
    if !has("pkg-config", "--version") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("prefix");
    let flags = printed(installed(&prefix, "pkg-config").args(["--cflags", "--libs", "terracedb"]));
    let program = dir.path().join("shop");
    let source = format!("{PACKAGE}/examples/shop.c");
    printed(Command::new("cc").arg("-o").arg(&program).arg(source).args(flags.split_whitespace()));
    let library = prefix.join("lib");
    let mut shop = Command::new(&program);
    shop.env("LD_LIBRARY_PATH", &library).arg(dir.path().join("store"));
    assert!(printed(&mut shop).starts_with("bob: Rome\n"));

    let symbols = ["-D", "--defined-only", "--with-symbol-versions"];
    let symbols = printed(Command::new("nm").args(symbols).arg(library.join("libterracedb.so")));
    // The node of the versions itself is absolute.
    let names = symbols.lines().filter(|line| !line.contains(" A ")).collect::<Vec<_>>();
    let is_ours = |line: &&str| line.contains(" tdb_") && line.ends_with("@@TERRACEDB_0.1");
    assert!(names.iter().all(is_ours), "{symbols}");
    let header = std::fs::read_to_string(prefix.join("include/terracedb.h")).unwrap();
    let functions = header.lines().filter(|line| !line.starts_with("//") && line.contains('('));
    let functions =
        functions.filter(|line| line.contains("tdb_") && !line.starts_with(' ')).count();
    assert_eq!(names.len(), functions, "{symbols}");
}

/// A Go program over the installed library.
#[test]
#[ignore = "long: cgo is compiled first"]
fn go_calls_the_installed_library() {
    if !has("go", "version") || !has("pkg-config", "--version") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut go = installed(&dir.path().join("prefix"), "go");
    go.current_dir(format!("{PACKAGE}/examples/go"))
        .args(["run", "."])
        .arg(dir.path().join("store"));
    let text = printed(&mut go);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..3], ["bob: Rome, eve: []", "ada = London", "bob = Rome"]);
    assert!(lines[3].starts_with("no key: "), "{text}");
}

/// Under AddressSanitizer: no use after a free on either side, and nothing is leaked.
#[test]
#[ignore = "long: a sanitizer"]
fn the_example_passes_the_address_sanitizer() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("shop", dir.path(), &["-fsanitize=address"]);
    printed(Command::new(&program).arg(dir.path().join("store")));
}

/// Under Valgrind: no invalid read or write, and nothing is definitely lost.
#[test]
#[ignore = "long: a sanitizer"]
fn the_example_passes_valgrind() {
    if !has("valgrind", "--version") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("shop", dir.path(), &[]);
    let checks = ["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    printed(Command::new("valgrind").args(checks).arg(&program).arg(dir.path().join("store")));
}

#[test]
fn the_example_prints_its_entries() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("shop", dir.path(), &[]);
    for run in 0..2 {
        let text = printed(Command::new(&program).arg(dir.path().join("store")));
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
