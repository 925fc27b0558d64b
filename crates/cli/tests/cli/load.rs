//! `load` of rows: formats, order, columns, mistakes, and memory that does not grow with the input.

use crate::support::*;

fn load(scratch: &Scratch, file: &str, text: &str, args: &[&str]) -> Run {
    fs::write(scratch.path(file), text).unwrap();
    let (store, file) = (scratch.arg("store"), scratch.arg(file));
    terrace(&[&["load", &store, &file][..], &MEMORY, args].concat())
}

fn scan(scratch: &Scratch, args: &[&str]) -> String {
    terrace(&[&["scan", &scratch.arg("store")][..], &MEMORY, args].concat()).good()
}

#[test]
fn unsorted_rows_of_every_format_are_loaded() {
    let scratch = Scratch::new();
    let out = load(&scratch, "a.tsv", "b\t1\na\\tx\t2\nb\t3\n", &["--json"]).good();
    let out = json_lines(&out).remove(0);
    assert_eq!((&out["entries"], &out["replaced"], &out["bad"]), (&2.into(), &1.into(), &0.into()));
    assert_eq!(scan(&scratch, &[]), "a\\tx\t2\nb\t3\n", "the last line of a key stays");

    let csv = "id,name,city\n7,\"Ada, L\",London\n3,Bob,\"New\nYork\"\n";
    load(&scratch, "b.csv", csv, &["--keyspace", "b", "--key", "name", "--value", "city"]).good();
    assert_eq!(scan(&scratch, &["--keyspace", "b"]), "Ada, L\tLondon\nBob\tNew\\nYork\n");
    load(&scratch, "b.csv", csv, &["--keyspace", "c"]).good();
    let expected = "3\t{\"name\":\"Bob\",\"city\":\"New\\\\nYork\"}\n\
                    7\t{\"name\":\"Ada, L\",\"city\":\"London\"}\n";
    assert_eq!(scan(&scratch, &["--keyspace", "c"]), expected);

    let jsonl = "{\"id\": 2, \"tags\": [\"x\"]}\n{\"id\": 1, \"tags\": []}\n";
    load(&scratch, "d.jsonl", jsonl, &["--keyspace", "d", "--key", "id"]).good();
    let expected = "1\t{\"id\": 1, \"tags\": []}\n2\t{\"id\": 2, \"tags\": [\"x\"]}\n";
    assert_eq!(scan(&scratch, &["--keyspace", "d"]), expected);
    load(&scratch, "d.jsonl", jsonl, &["--keyspace", "e", "--key", "id", "--value", "tags"]).good();
    assert_eq!(scan(&scratch, &["--keyspace", "e"]), "1\t[]\n2\t[\"x\"]\n");
    load(&scratch, "f.tsv", "a\t1\n", &["--keyspace", "f", "--ttl", "0"]).good();
    assert_eq!(scan(&scratch, &["--keyspace", "f"]), "");
    // As scan --json prints, from a pipe.
    let text = scan(&scratch, &["--json"]);
    load(&scratch, "g.jsonl", &text, &["--keyspace", "g"]).good();
    assert_eq!(scan(&scratch, &["--keyspace", "g"]), scan(&scratch, &[]));
}

/// More rows than the sort's memory holds, in random order, into keyspaces of both kinds.
#[test]
fn rows_beyond_the_memory_of_the_sort_are_sorted_in_files() {
    let scratch = Scratch::new();
    let store = scratch.arg("store");
    terrace(&[&["keyspace", "create", &store, "hashed", "--hashed", "keep"][..], &MEMORY].concat())
        .good();
    // A permutation: 65,537 is prime, and 3 a generator of its group.
    let (mut text, mut number) = (String::new(), 1u64);
    for _ in 0..40_000 {
        number = number * 3 % 65_537;
        text += &format!("{number:05}\tvalue {number} {}\n", "v".repeat(100));
    }
    for keyspace in ["ordered", "hashed"] {
        let args = ["--keyspace", keyspace, "--sort-memory", "4MiB", "--json"];
        let out = json_lines(&load(&scratch, "big.tsv", &text, &args).good()).remove(0);
        assert_eq!((&out["entries"], &out["replaced"]), (&40_000.into(), &0.into()));
        assert_eq!(scan(&scratch, &["--keyspace", keyspace, "--count"]), "40000\n");
    }
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let found = scan(&scratch, &["--keyspace", "ordered"]);
    assert!(found.lines().eq(lines.iter().copied()));
    // Only files of a store are left.
    let run = terrace(&["check", &store]);
    assert!(run.code == 0 && !run.out.contains("note: "), "{}", run.out);
    let error = load(&scratch, "big.tsv", &text, &["--sort-memory", "1MiB"]).bad(2);
    assert!(error.contains("at least 4.0 MiB"), "{error}");
    let missing = scratch.arg("missing");
    let args = ["--sort-memory", "4MiB", "--temp-dir", &missing, "--skip-bad"];
    let error = load(&scratch, "big.tsv", &text, &args).bad(2);
    assert!(error.contains("temporary file"), "a file's error is no wrong row: {error}");
}

#[test]
fn wrong_rows_are_named_or_skipped_and_nothing_is_half_loaded() {
    let scratch = Scratch::new();
    let text = format!("b\t1\nno tab\na\t2\n{}\tlong\n\t\nc\t3\n", "k".repeat(70_000));
    let error = load(&scratch, "a.tsv", &text, &[]).bad(2);
    assert!(error.contains("a.tsv:2") && error.contains("a tab after the key"), "{error}");
    assert!(!scratch.path("store").exists(), "a store that was created for it is removed");
    let run = load(&scratch, "a.tsv", &text, &["--skip-bad", "--json"]);
    assert_eq!(run.code, 1, "{}", run.err);
    for place in ["a.tsv:2", "a.tsv:4", "a.tsv:5"] {
        assert!(run.err.contains(place), "{}", run.err);
    }
    let out = json_lines(&run.out).remove(0);
    assert_eq!((&out["entries"], &out["bad"]), (&3.into(), &3.into()));
    assert_eq!(scan(&scratch, &[]), "a\t2\nb\t1\nc\t3\n");
    let error = load(&scratch, "b.tsv", "d\t1\nbad\n", &["--keyspace", "new"]).bad(2);
    assert!(error.contains("b.tsv:2"), "{error}");
    assert!(
        !terrace(&[&["keyspace", "list", &scratch.arg("store")][..], &MEMORY].concat())
            .good()
            .contains("new")
    );
    // The store with this memory takes values up to 8 MiB; the line is that of the value.
    let long = format!("x\t1\ny\t{}\nz\t1\n", "v".repeat(9 << 20));
    let args = ["--keyspace", "long", "--sort-memory", "64MiB"];
    let error = load(&scratch, "c.tsv", &long, &args).bad(2);
    assert!(error.contains("c.tsv:2") && error.contains("value"), "{error}");
    let run = load(&scratch, "c.tsv", &long, &[&args[..], &["--skip-bad"]].concat());
    assert!(run.code == 1 && run.out.starts_with("2 keys"), "{}{}", run.out, run.err);
    let many = "x\n".repeat(100);
    let run = load(&scratch, "d.tsv", &many, &["--skip-bad", "--dry-run"]);
    assert!(run.out.contains("100 wrong rows") && run.err.lines().count() == 20, "{}", run.err);
}

#[test]
fn arguments_that_the_format_does_not_have_are_refused() {
    let scratch = Scratch::new();
    for (file, args, expected) in [
        ("a.tsv", &["--key", "x"][..], "--key"),
        ("a.tsv", &["--delimiter", ";"], "--delimiter"),
        ("a.jsonl", &["--no-header"], "--no-header"),
        ("a.csv", &["--key", "missing"], "one of [a, b]"),
        ("a.csv", &["--delimiter", "ab"], "one character"),
        ("a.tsv", &["--format", "dump"], "terrace dump"),
    ] {
        let error = load(&scratch, file, "a,b\n1,2\n", args).bad(2);
        assert!(error.contains(expected), "{file} {args:?}: {error}");
    }
    assert!(!scratch.path("store").exists());
}
