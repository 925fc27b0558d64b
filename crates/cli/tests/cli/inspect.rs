//! `inspect`: each kind of file, for people and for scripts, without a trace in the directory.

use crate::support::*;

fn inspect(kind: &str, path: &Path, args: &[&str]) -> Run {
    terrace(&[&["inspect", kind, path.to_str().unwrap()][..], args].concat())
}

/// The facts of a file, by kind.
fn facts(kind: &str, path: &Path, args: &[&str]) -> Vec<Value> {
    json_lines(&inspect(kind, path, &[args, &["--json"]].concat()).good())
}

fn of<'a>(facts: &'a [Value], name: &str) -> Vec<&'a Value> {
    facts.iter().filter(|fact| fact["fact"] == name).collect()
}

#[test]
fn a_table_says_what_is_in_it() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let before = files(&dir);
    let table = file(&dir, ".table");
    let found = facts("table", &table, &["--pages"]);
    let footer = of(&found, "footer")[0];
    let pages = footer["pages"].as_u64().unwrap();
    assert_eq!(fs::metadata(&table).unwrap().len(), pages * 4096);
    assert_eq!(of(&found, "page").len() as u64, pages);
    let property = |name: &str| {
        let properties = of(&found, "property");
        properties.iter().find(|fact| fact["name"] == name).unwrap()["value"].clone()
    };
    assert_eq!((property("entries"), property("codec")), ("1000".into(), "lz4".into()));
    assert!(!of(&found, "partition").is_empty() && of(&found, "damage").is_empty());
    assert!(of(&facts("table", &table, &[]), "page").is_empty());
    let out = inspect("table", &table, &["--pages"]).good();
    assert!(out.contains("entries: 1000") && out.contains("\npage 0: data"), "{out}");

    flip(&table, 5000);
    let run = inspect("table", &table, &["--pages"]);
    assert_eq!((run.code, run.err.as_str()), (1, ""));
    assert!(run.out.contains("damage: page 1"), "{}", run.out);
    flip(&table, 5000);
    assert!(files(&dir) == before, "an inspection changed the directory");
}

#[test]
fn a_log_segment_shows_its_records() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let logs = files(&dir).into_iter().filter(|(name, _)| name.starts_with("log-"));
    let facts: Vec<_> =
        logs.flat_map(|(name, _)| facts("log", &Path::new(&dir).join(name), &[])).collect();
    assert!(!of(&facts, "header").is_empty() && !of(&facts, "end").is_empty());
    let batches = of(&facts, "batch");
    let last = batches.last().unwrap();
    assert_eq!((&last["ops"], &last["keyspaces"]), (&1.into(), &serde_json::json!([1])));
    let out = inspect("log", &file(&dir, "log-"), &[]).good();
    assert!(out.contains("OFFSET") && out.contains("\n           0  header"), "{out}");
}

#[test]
fn a_manifest_shows_its_edits() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let manifest = file(&dir, "manifest-");
    let found = facts("manifest", &manifest, &[]);
    let records = of(&found, "record");
    assert_eq!(of(&found, "manifest")[0]["records"].as_u64().unwrap(), records.len() as u64);
    let out = inspect("manifest", &manifest, &[]).good();
    for said in ["keyspace 1 created: Ordered, `default`", "gains table 0", "1000 entries"] {
        assert!(out.contains(said), "{said} in {out}");
    }
}

#[test]
fn another_kind_of_file_and_no_file_are_refused() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let (table, log) = (file(&dir, ".table"), file(&dir, "log-"));
    assert!(inspect("log", &table, &[]).bad(2).contains("log-<lane>-<segment>"));
    assert!(inspect("manifest", &log, &[]).bad(2).contains("manifest-<16 hex digits>"));
    inspect("table", &log, &[]).bad(1);
    assert!(inspect("table", &scratch.path("none.table"), &[]).bad(2).contains("none.table"));
    assert!(inspect("tables", &table, &[]).bad(2).contains("table, log, manifest"));
    inspect("table", Path::new("/"), &[]).bad(2);
}
