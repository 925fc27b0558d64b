//! `ingest`: formats, errors, and atomicity.

use crate::support::*;

fn ingest(scratch: &Scratch, file: &str, text: &str, args: &[&str]) -> Run {
    fs::write(scratch.path(file), text).unwrap();
    let (store, file) = (scratch.arg("store"), scratch.arg(file));
    terrace(&[&["ingest", &store, &file][..], &MEMORY, args].concat())
}

fn scan(scratch: &Scratch, args: &[&str]) -> String {
    terrace(&[&["scan", &scratch.arg("store")][..], &MEMORY, args].concat()).good()
}

#[test]
fn output_of_scan_is_ingested_again() {
    let scratch = Scratch::new();
    let lines: String = (0..3000).map(|n| format!("key {n:05}\tvalue\t{n}\n")).collect();
    let said = ingest(&scratch, "a.tsv", &lines, &["--json"]).good();
    let said = &json_lines(&said)[0];
    assert_eq!(said["entries"], 3000);
    assert!(said["tables"].as_u64() > Some(0) && said["file_bytes"].as_u64() > Some(0));
    let lines = lines.replace("value\t", r"value\t");
    assert_eq!(scan(&scratch, &[]), lines, "a raw tab in a value is read and printed as an escape");
    for (args, file) in
        [(&["--json"][..], "b.jsonl"), (&["--hex", "--json"], "c.jsonl"), (&["--hex"], "d.txt")]
    {
        let text = scan(&scratch, args);
        let hex: &[&str] = if args.contains(&"--hex") { &["--hex"] } else { &[] };
        ingest(&scratch, file, &text, &[&["--keyspace", file][..], hex].concat()).good();
        assert_eq!(scan(&scratch, &["--keyspace", file]), lines, "{file}");
    }
    ingest(&scratch, "e.csv", "a,1\n\"b\",\"2,3\"\n", &["--keyspace", "e", "--ttl", "1h"]).good();
    assert_eq!(scan(&scratch, &["--keyspace", "e"]), "a\t1\nb\t2,3\n");
    ingest(&scratch, "e.csv", "a,1\n", &["--keyspace", "f", "--ttl", "0"]).good();
    assert_eq!(scan(&scratch, &["--keyspace", "f"]), "");
}

#[test]
fn wrong_record_adds_nothing() {
    let scratch = Scratch::new();
    ingest(&scratch, "a.tsv", "a\t1\n", &[]).good();
    let error = ingest(&scratch, "b.tsv", "b\t1\n\nd\t1\nc\t1\n", &[]).bad(2);
    assert!(error.contains("b.tsv:4") && error.contains("a key after `d`, got `c`"), "{error}");
    let error = ingest(&scratch, "b.tsv", "b\t1\nc\n", &["--keyspace", "new"]).bad(2);
    assert!(error.contains("b.tsv:2"), "{error}");
    let long = "k".repeat(70_000);
    let error = ingest(&scratch, "b.tsv", &format!("b\t1\n{long}\t1\n"), &[]).bad(2);
    assert!(error.contains("b.tsv:2"), "{error}");
    let names =
        terrace(&[&["keyspace", "list", &scratch.arg("store")][..], &MEMORY].concat()).good();
    assert!(!names.contains("new"), "{names}");
    assert_eq!(scan(&scratch, &[]), "a\t1\n");
}

#[test]
fn dry_run_reads_the_file_and_creates_no_store() {
    let scratch = Scratch::new();
    assert!(ingest(&scratch, "a.tsv", "a\t1\nb\t2\n", &["--dry-run"]).good().starts_with("2 keys"));
    ingest(&scratch, "a.tsv", "b\t1\na\t2\n", &["--dry-run"]).bad(2);
    for (name, key) in [("long", "k".repeat(70_000)), ("empty", String::new())] {
        let error = ingest(&scratch, "a.tsv", &format!("{key}\t1\n"), &["--dry-run"]).bad(2);
        assert!(error.contains("a.tsv:1") && error.contains("key length"), "{name}: {error}");
    }
    let long = format!("a\t1\nb\t{}\n", "v".repeat((64 << 20) + 1));
    let error = ingest(&scratch, "a.tsv", &long, &["--dry-run"]).bad(2);
    assert!(error.contains("a.tsv:2") && error.contains("value length"), "{error}");
    assert!(!scratch.path("store").exists());
    let error = terrace(&["ingest", &scratch.arg("store"), &scratch.arg("none")]).bad(2);
    assert!(error.contains("a readable file"), "{error}");
}
