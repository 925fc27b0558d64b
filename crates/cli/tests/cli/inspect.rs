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

/// Every version with its kind; a damaged page costs its own entries only, and the others are printed.
#[test]
fn inspect_table_prints_entries_around_damage() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    let keyspace = db.create_keyspace("default").unwrap();
    for number in 0..2000 {
        keyspace.put(format!("key {number:04}"), format!("value {number}").repeat(20)).unwrap();
    }
    let later = std::time::UNIX_EPOCH + std::time::Duration::from_millis(4_102_444_800_123);
    let expires = terracedb::EntryOptions::new().expires_at(later);
    keyspace.put_opt("x expiring", "v", &expires).unwrap();
    keyspace.put("x long", vec![b'l'; 40_000]).unwrap();
    keyspace.delete("x deleted").unwrap();
    keyspace.delete_range("y".."z").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    drop((keyspace, db));
    let table = file(&dir, ".table");
    let found = facts("table", &table, &["--entries"]);
    let entries = of(&found, "entry");
    assert!(entries.len() >= 2002, "{}", entries.len());
    assert_eq!((&entries[7]["key"], &entries[7]["kind"]), (&"key 0007".into(), &"put".into()));
    let long = "value 7".repeat(20);
    assert_eq!(
        (&entries[7]["value"], &entries[7]["value_bytes"]),
        (&long[..64].into(), &140.into())
    );
    assert!(entries.windows(2).all(|two| two[0]["key"].as_str() <= two[1]["key"].as_str()));
    assert!(
        entries[..2000].windows(2).all(|two| two[0]["seqno"].as_u64() < two[1]["seqno"].as_u64())
    );
    let named = |key: &str| *entries.iter().find(|entry| entry["key"] == key).unwrap();
    assert_eq!(named("x expiring")["expiry_unix_ms"], 4_102_444_800_123u64);
    let long = named("x long");
    assert_eq!((&long["kind"], &long["value_bytes"]), (&"put-pointer".into(), &40_000.into()));
    assert!(long["value_file"].is_u64());
    assert!(of(&facts("table", &table, &[]), "entry").is_empty());

    flip(&table, 2 * 4096 + 500);
    let run = inspect("table", &table, &["--entries", "--json"]);
    assert_eq!((run.code, run.err.as_str()), (1, ""));
    let found = json_lines(&run.out);
    let lost = of(&found, "lost");
    assert_eq!((lost.len(), &lost[0]["pages"]), (1, &serde_json::json!([2, 3])));
    let (after, before) = (lost[0]["after"].as_str().unwrap(), lost[0]["before"].as_str().unwrap());
    let left = of(&found, "entry");
    assert!(left.len() < entries.len() && left.len() > entries.len() - 500, "{}", left.len());
    assert!(left.iter().all(|entry| {
        let key = entry["key"].as_str().unwrap();
        key <= after || key >= before
    }));
    let text = inspect("table", &table, &["--entries"]).out;
    assert!(
        text.contains("entry: `key 0000` put at ") && text.contains("lost: pages 2..3"),
        "{text}"
    );
    // Without a footer the manifest names the store.
    let len = fs::metadata(&table).unwrap().len() as usize;
    flip(&table, 2 * 4096 + 500);
    flip(&table, len - 4000);
    flip(&table, len - 2 * 4096 + 96);
    let run = inspect("table", &table, &["--entries", "--json"]);
    assert_eq!(run.code, 1, "{}", run.err);
    assert_eq!(of(&json_lines(&run.out), "entry").len(), entries.len(), "{}", run.out);
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

/// A store with a resident keyspace, some of whose entries were moved, and a checkpoint of its index.
fn collected(scratch: &Scratch, log: &str) -> String {
    let dir = scratch.arg("resident");
    let builder = terracedb::Db::builder(&dir).memory(64 << 20).log_path([log]).log_lanes(2);
    let db = builder.open().unwrap();
    let options =
        terracedb::KeyspaceOptions::new().hashed(terracedb::hashed::HashedPolicy::Resident);
    let keyspace = db.create_keyspace_opt("r", &options).unwrap();
    keyspace.put("once", "stays").unwrap();
    keyspace.delete("gone").unwrap();
    for number in 0..200_000u64 {
        keyspace.put(format!("key {}", number % 300), vec![number as u8; 8 << 10]).unwrap();
        let log = db.statistics().log_collection;
        if log.moved_entries > 0 && log.index_checkpoints > 0 {
            return dir;
        }
        // The collector and the checkpoints run beside this thread.
        std::thread::yield_now();
    }
    panic!("{:?}", db.statistics().log_collection);
}

#[test]
fn inspect_shows_moved_entries_and_checkpoints_of_the_index() {
    let Ok(devices) = tempfile::tempdir_in("/dev/shm") else { return };
    let log = devices.path().join("log").display().to_string();
    let scratch = Scratch::new();
    let dir = collected(&scratch, &log);
    let segments = files(&log).into_iter().filter(|(name, _)| name.starts_with("log-"));
    let segments = segments.filter(|(name, _)| name != "log-device");
    let mut moved = Vec::new();
    for (name, _) in segments {
        let facts = facts("log", &Path::new(&log).join(&name), &["--entries"]);
        let is_moved = |fact: &&Value| fact["moved_from"].is_u64();
        moved.extend(of(&facts, "entry").into_iter().filter(is_moved).cloned());
        let batches = of(&facts, "batch").into_iter().filter(|batch| batch["moved"] == true);
        let ops: u64 = batches.map(|batch| batch["ops"].as_u64().unwrap()).sum();
        assert_eq!(ops, facts.iter().filter(is_moved).count() as u64, "{name}");
    }
    let once = moved.iter().find(|entry| entry["key"] == "once").unwrap();
    assert_eq!((&once["kind"], &once["value"]), (&"put".into(), &"stays".into()));
    assert_eq!((&once["keyspace"], &once["moved_from"]), (&1.into(), &1.into()));
    assert!(once["seqno"].as_u64() > Some(1) && once["hash"].as_str().unwrap().len() == 16);

    let index = file(&dir, "index-");
    let found = facts("index", &index, &[]);
    let [header, end] = [of(&found, "index")[0], of(&found, "index end")[0]];
    assert_eq!(header["bytes"], fs::metadata(&index).unwrap().len());
    assert!(header["begun_unix_s"].as_u64() > Some(1_700_000_000), "{header}");
    assert_eq!((&end["whole"], &end["error"]), (&true.into(), &Value::Null));
    let keyspace = of(&found, "index keyspace")[0];
    assert_eq!(keyspace["keyspace"], 1);
    assert!(keyspace["entries"].as_u64().unwrap() > 1, "{keyspace}");
    let full = of(&found, "full segment");
    assert!(full.iter().all(|it| it["keyspaces"][0]["keyspace"] == 1), "{found:?}");
    assert!(!full.is_empty() && !of(&found, "index segment").is_empty(), "{found:?}");
    let text = inspect("index", &index, &[]).good();
    assert!(text.starts_with("index checkpoint ") && text.ends_with("\nwhole\n"), "{text}");

    // Statistics tell the same checkpoint, or one that the open began.
    let stats = json_lines(&terrace(&["stats", &dir, "--json"]).good()).remove(0);
    let resident = &stats["log"]["resident"];
    let number = |name: &str| resident[name].as_u64().unwrap_or_else(|| panic!("{name}: {stats}"));
    assert!(number("newest_index_checkpoint_bytes") > 64);
    assert!(number("newest_index_checkpoint_age_seconds") < 3600);
    assert!(number("replay_log_bytes") > 0 && number("replay_log_bytes_max") >= 8 << 20);
    let index_bytes = stats["keyspaces"][0]["index_bytes_per_entry"].as_f64().unwrap();
    assert!(index_bytes > 8.0, "{stats}");
    let text = terrace(&["stats", &dir]).good();
    assert!(text.contains("newest index checkpoint: ") && text.contains(" s old, "), "{text}");
    let index = file(&dir, "index-");

    // Damage is status 1; a checkpoint that was not finished is none.
    flip(&index, 100);
    let damaged = inspect("index", &index, &["--json"]);
    assert_eq!(damaged.code, 1);
    let end = json_lines(&damaged.out).pop().unwrap();
    assert_eq!((&end["whole"], &end["finished"]), (&false.into(), &true.into()));
    assert!(inspect("index", &index, &[]).out.contains("\ndamage: "));
    let mut bytes = fs::read(&index).unwrap();
    bytes[..64].fill(0);
    fs::write(&index, bytes).unwrap();
    let text = inspect("index", &index, &[]).good();
    assert_eq!(text, "not finished: an open passes over it\n");
    assert!(inspect("index", &file(&dir, "manifest-"), &[]).bad(2).contains("index-<number>"));
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
