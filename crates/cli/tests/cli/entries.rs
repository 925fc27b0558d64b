//! `get`, `put`, `delete` and `scan`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::support::*;

/// Runs a command on the store `dir`.
fn on(dir: &str, name: &str, args: &[&str]) -> Run {
    terrace(&[&[name, dir][..], &MEMORY, args].concat())
}

fn put(dir: &str, args: &[&str]) {
    assert_eq!(on(dir, "put", args).good(), "");
}

#[test]
fn get_returns_the_put_value_until_it_is_deleted() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    put(&dir, &["apple", "red"]);
    assert_eq!(on(&dir, "get", &["apple"]).good(), "red\n");
    put(&dir, &["apple", "green"]);
    assert_eq!(on(&dir, "get", &["apple"]).good(), "green\n");
    assert_eq!(on(&dir, "delete", &["apple"]).good(), "");
    let gone = on(&dir, "get", &["apple"]);
    assert_eq!((gone.code, gone.out.as_str(), gone.err.as_str()), (1, "", ""));
    // Deleting a missing key succeeds.
    assert_eq!(on(&dir, "delete", &["apple"]).good(), "");
}

#[test]
fn scan_honours_range_prefix_order_and_limit() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    for (key, value) in [("b1", "1"), ("a", "2"), ("b2", "3"), ("c", "4")] {
        put(&dir, &[key, value]);
    }
    let scan = |args: &[&str]| on(&dir, "scan", args).good();
    assert_eq!(scan(&[]), "a\t2\nb1\t1\nb2\t3\nc\t4\n");
    assert_eq!(scan(&["--prefix", "b"]), "b1\t1\nb2\t3\n");
    assert_eq!(scan(&["--from", "b1", "--to", "c", "--keys-only"]), "b1\nb2\n");
    assert_eq!(scan(&["--from", "b2"]), "b2\t3\nc\t4\n");
    assert_eq!(scan(&["--to", "b1"]), "a\t2\n");
    assert_eq!(scan(&["--reverse", "--limit", "2", "--keys-only"]), "c\nb2\n");
    assert_eq!(scan(&["--prefix", "b", "--reverse", "--keys-only"]), "b2\nb1\n");
    assert_eq!(scan(&["--count"]), "4\n");
    assert_eq!(scan(&["--count", "--prefix", "x"]), "0\n");
    assert_eq!(scan(&["--from", "c", "--to", "a"]), "");
    assert_eq!(scan(&["--hex", "--limit", "1"]), "61\t32\n");
    on(&dir, "scan", &["--prefix", "b", "--from", "a"]).bad(2);
}

#[test]
fn keys_and_values_may_be_hexadecimal_and_values_piped() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    put(&dir, &["--hex", "00ff", "0a0B"]);
    assert_eq!(on(&dir, "get", &["--hex", "00ff"]).good(), "0a0b\n");
    let error = on(&dir, "put", &["--hex", "0", "00"]).bad(2);
    assert!(error.contains("pairs of hexadecimal digits") && error.contains("`0`"), "{error}");

    let pipe = |args: &[&str], bytes: &[u8]| {
        let child =
            command([&["put", &dir][..], args, &MEMORY].concat()).stdin(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        child.wait().unwrap().code()
    };
    assert_eq!(pipe(&["piped", "-"], b"two\nlines\0"), Some(0));
    assert_eq!(on(&dir, "get", &["piped", "--hex"]).code, 2, "`piped` is not hexadecimal");
    assert_eq!(on(&dir, "get", &["piped"]).good(), "two\nlines\0\n");
    // The output of `get` can be piped into `put`.
    assert_eq!(on(&dir, "get", &["piped", "--raw"]).good(), "two\nlines\0");
    assert_eq!(pipe(&["--hex", "00", "-"], b"00fF\n"), Some(0));
    assert_eq!(on(&dir, "get", &["--hex", "00"]).good(), "00ff\n");
    assert_eq!(pipe(&["--hex", "00", "-"], b"no digits"), Some(2));
    on(&dir, "get", &["00", "--raw", "--hex"]).bad(2);
    // Negative numbers are not parsed as flags.
    put(&dir, &["-7", "-5"]);
    assert_eq!(on(&dir, "get", &["-7"]).good(), "-5\n");
    assert_eq!(on(&dir, "scan", &["--from", "-7", "--to", "-8", "--keys-only"]).good(), "-7\n");
    on(&dir, "delete", &["-7"]).good();
    put(&dir, &["--", "-k", "-v"]);
    assert_eq!(on(&dir, "get", &["--", "-k"]).good(), "-v\n");
}

#[test]
fn keyspaces_are_separate_and_an_unknown_one_lists_the_others() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    put(&dir, &["k", "in default"]);
    put(&dir, &["k", "in other", "--keyspace", "other"]);
    assert_eq!(on(&dir, "get", &["k"]).good(), "in default\n");
    assert_eq!(on(&dir, "get", &["k", "--keyspace", "other"]).good(), "in other\n");
    for args in [&["get", "k"][..], &["delete", "k"], &["scan"]] {
        let (name, rest) = args.split_first().unwrap();
        let error = on(&dir, name, &[rest, &["--keyspace", "none"]].concat()).bad(2);
        assert!(error.contains("[default, other]") && error.contains("`none`"), "{error}");
    }
}

#[test]
fn reads_create_no_store_and_no_file() {
    let scratch = Scratch::new();
    let dir = scratch.arg("empty");
    fs::create_dir(&dir).unwrap();
    for args in [&["get", "k"][..], &["delete", "k"], &["scan"]] {
        let (name, rest) = args.split_first().unwrap();
        let error = on(&dir, name, rest).bad(2);
        assert!(error.contains(&dir) && error.contains("got none"), "{error}");
        assert!(files(&dir).is_empty());
        assert!(on(&scratch.arg("nowhere"), name, rest).bad(2).contains("nowhere"));
    }
    assert!(!scratch.path("nowhere").exists());
}

#[test]
fn mistyped_path_creates_no_store() {
    let scratch = Scratch::new();
    let error = on(&scratch.arg("shpo.toml"), "put", &["k", "v"]).bad(2);
    assert!(error.contains("configuration file") && error.contains("shpo.toml"), "{error}");
    assert!(!scratch.path("shpo.toml").exists());
    let dir = scratch.arg("home");
    fs::create_dir_all(Path::new(&dir).join("photos")).unwrap();
    assert!(on(&dir, "put", &["k", "v"]).bad(2).contains("`photos` in it"));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    // The root of a file system has lost+found, and may have a calibration.
    let mounted = scratch.arg("mounted");
    fs::create_dir_all(Path::new(&mounted).join("lost+found")).unwrap();
    fs::write(Path::new(&mounted).join("terrace.calibration"), "").unwrap();
    put(&mounted, &["k", "v"]);
    assert_eq!(on(&mounted, "get", &["k"]).good(), "v\n");
}

#[test]
fn key_length_and_memory_errors_name_the_limit() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let error = on(&dir, "put", &["", "value"]).bad(2);
    assert!(error.contains("1..=65536") && error.contains("got 0"), "{error}");
    let value = "v".repeat(100_000);
    put(&dir, &["k", &value]);
    assert_eq!(on(&dir, "get", &["k"]).good().len(), value.len() + 1);
    let error = terrace(&["get", &dir, "k", "--memory", "63MiB"]).bad(2);
    assert!(error.contains("memory") && error.contains("at least 64MiB"), "{error}");
}

#[test]
fn second_process_is_refused_with_the_pid_of_the_first() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    db.open_or_create_keyspace("default").unwrap().put("k", "v").unwrap();
    for args in [&["delete", "k"][..], &["put", "k", "w"], &["delete-range", "--all"]] {
        let (name, rest) = args.split_first().unwrap();
        let error = on(&dir, name, rest).bad(2);
        assert!(error.contains("in use") && error.contains(&dir), "{error}");
        assert!(error.contains(&std::process::id().to_string()), "{error}");
    }
    drop(db);
    assert_eq!(on(&dir, "get", &["k"]).good(), "v\n");
}

#[test]
fn a_store_that_another_process_has_open_is_read() {
    let scratch = Scratch::new();
    let (dir, copy, backups) = (scratch.arg("store"), scratch.arg("copy"), scratch.arg("backups"));
    let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    let keyspace = db.create_keyspace("default").unwrap();
    for number in 0..3 {
        keyspace.put(format!("k{number}"), "v").unwrap();
        assert_eq!(on(&dir, "get", &[&format!("k{number}")]).good(), "v\n");
        if number == 1 {
            db.flush().unwrap();
        }
    }
    assert_eq!(on(&dir, "scan", &["--count"]).good(), "3\n");
    assert_eq!(on(&dir, "scan", &["--count", "--read-only"]).good(), "3\n");
    assert!(on(&dir, "stats", &["--json"]).good().contains("default"));
    terrace(&[&["checkpoint", &dir, &copy][..], &MEMORY].concat()).good();
    terrace(&[&["backup", "create", &dir, &backups][..], &MEMORY].concat()).good();
    // The copy is not locked: `--read-only` leaves it as it is.
    let before = files(&copy);
    assert_eq!(on(&copy, "get", &["k2", "--read-only"]).good(), "v\n");
    assert!(on(&copy, "get", &["none", "--read-only"]).code == 1);
    assert!(files(&copy) == before, "nothing was written");
    keyspace.put("later", "v").unwrap();
    assert_eq!(on(&dir, "scan", &["--count"]).good(), "4\n");
}

#[test]
fn closed_output_pipe_is_no_error() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    // 400 KB of output, much more than a pipe buffers.
    let mut child = command([&["scan", &dir, "--hex"][..], &MEMORY].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.ends_with('\n'));
    let run = Run::of(child.wait_with_output().unwrap());
    assert_eq!((run.code, run.err.as_str()), (0, ""));
}

/// Each table has a handle. The soft limit is raised; a hard limit that is too low is named before anything
/// is opened.
#[test]
fn a_store_with_more_tables_than_handles_is_opened_or_refused_by_name() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    for number in 0..150 {
        let keyspace = db.create_keyspace(&format!("k{number}")).unwrap();
        keyspace.put("key", format!("value {number}")).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    let limited = |limits: &str| {
        let args = format!("get {dir} key --keyspace k149 --memory 64MiB");
        let binary = env!("CARGO_BIN_EXE_terrace");
        let script = format!("{limits} && exec '{binary}' {args}");
        Run::of(std::process::Command::new("sh").args(["-c", &script]).output().unwrap())
    };
    assert_eq!(limited("ulimit -Sn 100").good(), "value 149\n");
    let before = files(&dir).into_iter().filter(|(name, _)| name.ends_with(".table"));
    let error = limited("ulimit -Sn 100 && ulimit -Hn 100").bad(2);
    assert!(
        error.contains("at least 214 for 150 tables") && error.contains("ulimit -n"),
        "{error}"
    );
    let after = files(&dir).into_iter().filter(|(name, _)| name.ends_with(".table"));
    assert!(before.eq(after));
    assert_eq!(limited("ulimit -Sn 100").good(), "value 149\n");
}
