//! `inspect`: each kind of file, as text and as JSON, without changing the directory.

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
fn inspect_table_prints_its_contents_and_damage() {
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
fn inspect_log_prints_its_records() {
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

/// The segments of a log that hold records, oldest first, each with the offsets of its batches.
fn segments(dir: &str) -> Vec<(PathBuf, Vec<usize>)> {
    let logs = files(dir).into_iter().filter(|(name, _)| name.starts_with("log-"));
    let segments = logs.map(|(name, _)| Path::new(dir).join(name)).filter_map(|path| {
        let facts = facts("log", &path, &[]);
        let batches =
            of(&facts, "batch").into_iter().map(|batch| batch["offset"].as_u64().unwrap());
        let batches = batches.map(|offset| usize::try_from(offset).unwrap()).collect();
        (!of(&facts, "begin").is_empty()).then_some((path, batches))
    });
    segments.collect()
}

#[test]
fn damaged_segment_before_others_ends_with_status_1() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    let keyspace = db.open_or_create_keyspace("default").unwrap();
    for number in 0..45u32 {
        keyspace.put_opt(number.to_be_bytes(), [7; 50_000], &DURABLE).unwrap();
    }
    drop((keyspace, db));
    let segments = segments(&dir);
    let [.., (older, batches), (newest, last)] = &segments[..] else { panic!("{segments:?}") };
    let damaged = |path: &Path, at: usize| {
        flip(path, at + 100);
        let run = inspect("log", path, &[]);
        flip(path, at + 100);
        assert!(run.out.contains("unreadable") && run.err.is_empty(), "{}{}", run.out, run.err);
        run.code
    };
    assert_eq!(damaged(older, batches[batches.len() / 2]), 1);
    // The tail of the newest segment may be a torn write of a crash.
    assert_eq!(damaged(newest, *last.last().unwrap()), 0);
    assert_eq!(inspect("log", older, &[]).code, 0);
    // The bytes after the last record of a segment are no damage if the log continued in another segment.
    let end = of(&facts("log", newest, &[]), "end")[0]["offset"].as_u64().unwrap();
    let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    let keyspace = db.open_or_create_keyspace("default").unwrap();
    keyspace.put_opt("new", "new", &DURABLE).unwrap();
    drop((keyspace, db));
    assert!(self::segments(&dir).last().unwrap().0 > *newest);
    assert_eq!(damaged(newest, usize::try_from(end).unwrap()), 0);
}

#[test]
fn inspect_manifest_prints_its_edits() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let manifest = file(&dir, "manifest-");
    let found = facts("manifest", &manifest, &[]);
    let records = of(&found, "record");
    assert_eq!(of(&found, "manifest")[0]["records"].as_u64().unwrap(), records.len() as u64);
    let out = inspect("manifest", &manifest, &[]).good();
    for said in ["keyspace 1 created: ordered, `default`", "gains table 0", "1000 entries"] {
        assert!(out.contains(said), "{said} in {out}");
    }
}

#[test]
fn wrong_kind_and_missing_file_are_refused() {
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
