//! The shell neither changes nor loses data: any bytes survive it, and a command that fails leaves nothing
//! behind.

use std::process::Stdio;

use base::Rng;
use terracedb::operators::I64Add;
use terracedb::{Db, KeyspaceOptions};

use crate::support::*;

fn open(dir: &str) -> Db {
    Db::builder(dir).memory(64 << 20).open().unwrap()
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn entries(dir: &str) -> Entries {
    let db = open(dir);
    let iter = db.keyspace("default").unwrap().iter().unwrap();
    iter.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

/// What a directory holds, by name; nothing if it does not exist.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Bytes of which most mean something to a line, a shell or an escape.
fn bytes(rng: &mut Rng, min: u64) -> Vec<u8> {
    let special = b"\t\n\r\\tnrx09,\"'{}\0\x7f\x1b\xff\xc3\xa9-";
    let mut bytes = vec![0; (min + rng.below(12)) as usize];
    rng.fill(&mut bytes);
    if !rng.one_in(4) {
        bytes.iter_mut().for_each(|byte| *byte = special[usize::from(*byte) % special.len()]);
    }
    bytes
}

#[test]
fn scan_piped_into_ingest_gives_the_same_store_for_any_bytes() {
    let (mut rng, seed) = Rng::from_env();
    let scratch = Scratch::new();
    let (from, to) = (scratch.arg("from"), scratch.arg("to"));
    let keyspace = open(&from).open_or_create_keyspace("default").unwrap();
    for _ in 0..2000 {
        keyspace.put(bytes(&mut rng, 1), bytes(&mut rng, 0)).unwrap();
    }
    keyspace.put("carriage", "return\r").unwrap();
    keyspace.put("tab\tkey", "value").unwrap();
    drop(keyspace);
    let all = entries(&from);
    for hex in [&[][..], &["--hex"]] {
        let mut scan = command([&["scan", &from][..], &MEMORY, hex].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ingest = command([&["ingest", &to, "-"][..], &MEMORY, hex].concat())
            .stdin(scan.stdout.take().unwrap())
            .output()
            .unwrap();
        assert!(scan.wait().unwrap().success(), "seed {seed}");
        Run::of(ingest).good();
        assert!(entries(&to) == all, "seed {seed}");
        fs::remove_dir_all(&to).unwrap();
    }
    // A key as `scan` prints it is the same key as an argument.
    let keys = terrace(&[&["scan", &from, "--keys-only"][..], &MEMORY].concat()).good();
    assert_eq!(keys.lines().count(), all.len());
    for (text, (key, value)) in keys.lines().zip(&all).step_by(400) {
        let get = command([&["get", &from, "--raw"][..], &MEMORY, &["--", text]].concat());
        assert_eq!(&{ get }.output().unwrap().stdout, value, "seed {seed}: {text}");
        let from_key = format!("--from={text}");
        let first = terrace(
            &[&["scan", &from, "--limit", "1", "--keys-only", &from_key][..], &MEMORY].concat(),
        );
        assert_eq!(first.good().trim_end_matches('\n'), text, "seed {seed}: {key:?}");
    }
}

#[test]
fn key_arguments_have_escapes_and_values_have_none() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let on = |name: &str, args: &[&str]| terrace(&[&[name, &dir][..], &MEMORY, args].concat());
    on("put", &[r"a\tb", r"C:\new"]).good();
    assert_eq!(entries(&dir), [(b"a\tb".to_vec(), br"C:\new".to_vec())]);
    assert_eq!(on("get", &[r"a\tb"]).good(), "C:\\new\n");
    assert_eq!(on("scan", &[]).good(), "a\\tb\tC:\\\\new\n");
    assert_eq!(on("scan", &["--json"]).good(), "{\"key\":\"a\\tb\",\"value\":\"C:\\\\new\"}\n");
    for (name, args) in [
        ("put", &[r"C:\dir", "v"][..]),
        ("get", &[r"C:\dir"]),
        ("delete", &[r"end\"]),
        ("scan", &["--prefix", r"\x0"]),
        ("delete-range", &["--from", r"\q"]),
        ("compact", &["--keyspace", "default", "--to", r"\q"]),
    ] {
        let error = on(name, args).bad(2);
        assert!(error.contains(r"expected \\ for a backslash"), "{name}: {error}");
    }
    on("delete-range", &["--prefix", r"a\t"]).good();
    assert_eq!(on("scan", &["--count"]).good(), "0\n");
}

#[test]
fn a_command_that_fails_before_its_first_write_leaves_nothing_that_it_created() {
    let scratch = Scratch::new();
    let dir = scratch.arg("deep/er/store");
    fs::write(scratch.path("late.tsv"), "a\t1\nb\t2\nno tab\n").unwrap();
    fs::write(scratch.path("long.tsv"), format!("a\t1\nb\t{}\n", "v".repeat(9 << 20))).unwrap();
    let (late, long) = (scratch.arg("late.tsv"), scratch.arg("long.tsv"));
    let longest = "k".repeat(70_000);
    let long_name = "n".repeat(300);
    let failing: [&[&str]; 8] = [
        &["ingest", &dir, &late],
        &["ingest", &dir, &long],
        &["ingest", &dir, &long, "--keyspace", &long_name],
        &["put", &dir, &longest, "v"],
        &["put", &dir, "", "v"],
        &["put", &dir, "k", "v", "--keyspace", &long_name],
        &["keyspace", "create", &dir, "k", "--merge-operator", "nobody's"],
        &["keyspace", "create", &dir, &long_name],
    ];
    for args in failing {
        terrace(&[args, &MEMORY].concat()).bad(2);
        assert_eq!(names(&scratch.path("")), ["late.tsv", "long.tsv"], "{args:?}");
    }
    // What was there stays: an empty directory, another file, a store, its keyspaces.
    fs::create_dir_all(&dir).unwrap();
    fs::write(Path::new(&dir).join("terrace.calibration"), "mine").unwrap();
    for args in failing {
        terrace(&[args, &MEMORY].concat()).bad(2);
        assert_eq!(names(Path::new(&dir)), ["terrace.calibration"], "{args:?}");
    }
    terrace(&[&["put", &dir, "k", "v"][..], &MEMORY].concat()).good();
    for args in failing {
        terrace(&[args, &["--memory", "64MiB"]].concat()).bad(2);
    }
    terrace(&[&["ingest", &dir, &late, "--keyspace", "new"][..], &MEMORY].concat()).bad(2);
    assert_eq!(entries(&dir), [(b"k".to_vec(), b"v".to_vec())]);
    assert_eq!(open(&dir).keyspaces().len(), 1);
    // A backup that fails leaves no directory of backups.
    let label = "l".repeat(300);
    let repository = scratch.arg("no/backups");
    terrace(&[&["backup", "create", &dir, &repository, "--label", &label][..], &MEMORY].concat())
        .bad(2);
    assert!(!scratch.path("no").exists());
}

#[test]
fn a_key_that_cannot_be_merged_is_skipped_on_request_and_counted() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let db = open(&dir);
    let options = KeyspaceOptions::new().merge_operator(I64Add::NAME);
    let keyspace = db.open_or_create_keyspace_opt("default", &options).unwrap();
    for key in ["a", "b", "c", "d"] {
        keyspace.put(key, i64::MAX.to_le_bytes()).unwrap();
    }
    for key in ["b", "d"] {
        keyspace.merge(key, 1i64.to_le_bytes()).unwrap();
    }
    drop((keyspace, db));
    let scan =
        |args: &[&str]| terrace(&[&["scan", &dir, "--keys-only"][..], &MEMORY, args].concat());
    let run = scan(&[]);
    assert_eq!((run.code, run.out.as_str()), (2, "a\n"), "{}", run.err);
    assert!(run.err.contains("key `b`"), "{}", run.err);
    for (args, keys) in [(&[][..], "a\nc\n"), (&["--reverse"], "c\na\n")] {
        let run = scan(&[args, &["--skip-errors"]].concat());
        assert_eq!((run.code, run.out.as_str()), (1, keys), "{}", run.err);
        assert!(run.err.contains("key `b`") && run.err.contains("key `d`"), "{}", run.err);
        assert!(run.err.ends_with("2 keys skipped\n"), "{}", run.err);
    }
    // A bad key outside the range, or behind the limit, is no error.
    assert_eq!(scan(&["--to", "b", "--skip-errors"]).good(), "a\n");
    assert_eq!(scan(&["--limit", "1"]).good(), "a\n");
    let counted = terrace(&[&["delete-range", &dir, "--all", "--dry-run"][..], &MEMORY].concat());
    assert_eq!(counted.good(), "4 keys would be deleted\n");
}

/// Compaction leaves a damaged table out; it must not look as if it had done its work.
#[test]
fn a_compaction_that_leaves_out_a_damaged_table_says_so() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let table = file(&dir, ".table");
    flip(&table, 5000);
    let compact = |args: &[&str]| terrace(&[&["compact", &dir][..], &MEMORY, args].concat());
    assert_eq!(terrace(&[&["scrub", &dir][..], &MEMORY].concat()).code, 1);
    let run = compact(&[]);
    assert_eq!(run.code, 1, "{} {}", run.out, run.err);
    assert!(run.err.contains("1 damaged table left out"), "{}", run.err);
    let run = compact(&["--json"]);
    assert_eq!((run.code, &json_lines(&run.out)[0]["damaged_tables"]), (1, &1.into()));
    // Another keyspace has no damaged table.
    terrace(&[&["put", &dir, "k", "v", "--keyspace", "whole"][..], &MEMORY].concat()).good();
    compact(&["--keyspace", "whole"]).good();
    assert_eq!(compact(&["--keyspace", "default"]).code, 1);
}
