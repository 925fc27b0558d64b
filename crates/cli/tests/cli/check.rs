//! `check`: on clean, damaged, missing and open stores.

use crate::support::*;

const PAGE: usize = 4096;

fn check(dir: &str) -> Run {
    terrace(&["check", dir])
}

/// The report of `check --json`, which must end with `code`.
fn report(dir: &str, code: i32) -> Value {
    let run = terrace(&["check", dir, "--json"]);
    assert_eq!((run.code, run.err.as_str()), (code, ""), "{}", run.out);
    json_lines(&run.out).remove(0)
}

#[test]
fn clean_store_is_reported_clean_and_not_changed() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let without_lock = || {
        let mut files = files(&dir);
        files.retain(|(name, _)| name != "LOCK");
        files
    };
    let before = without_lock();
    let out = check(&dir).good();
    assert!(out.contains("2 tables") && out.ends_with("clean\n"), "{out}");
    let report = report(&dir, 0);
    assert_eq!((&report["clean"], &report["damages"]), (&true.into(), &0.into()), "{report}");
    assert_eq!((&report["tables"], &report["entries"]), (&2.into(), &2000.into()), "{report}");
    assert_eq!(report["keyspaces"], 1);
    assert_eq!(report["files"].as_u64().unwrap(), before.len() as u64);
    for name in
        ["bytes", "pages", "dictionaries", "log_segments", "log_records", "manifest_repairs"]
    {
        assert!(report[name].is_u64(), "{name} in {report}");
    }
    assert!(without_lock() == before, "a check changed the store");
}

/// After one flipped bit, the check names the file, the page and its keys. Gets of those keys fail, and gets
/// of all other keys succeed.
#[test]
fn damaged_page_is_named_and_loses_only_its_keys() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    // Without compression, the keys take several pages.
    let builder = terracedb::Db::builder(&dir).memory(64 << 20);
    let db = builder.codec(terracedb::Codec::None).open().unwrap();
    let keyspace = db.open_or_create_keyspace("default").unwrap();
    for number in 0..500 {
        keyspace.put(format!("key{number:04}"), format!("{number:0100}")).unwrap();
    }
    db.flush().unwrap();
    drop((db, keyspace));
    let table = file(&dir, ".table");
    flip(&table, PAGE + 1234);
    let report = report(&dir, 1);
    assert_eq!(report["damages"], 1, "{report}");
    let problem = &report["problems"][0];
    assert_eq!(problem["file"], table.file_name().unwrap().to_str().unwrap());
    assert_eq!((&problem["page"], &problem["pages"]), (&1.into(), &1.into()), "{problem}");
    assert_eq!(problem["keyspace"], "default");
    let (first, end) =
        (problem["first_key"].as_str().unwrap(), problem["last_key"].as_str().unwrap());
    assert!(problem["error"].as_str().unwrap().contains("checksum"), "{problem}");

    let run = check(&dir);
    assert_eq!((run.code, run.err.as_str()), (1, ""));
    let name = table.file_name().unwrap().to_str().unwrap();
    let line = format!("{name}, page 1, keyspace `default`, keys `{first}` to `{end}`: corrupt");
    assert!(run.out.contains(&line) && run.out.ends_with("1 problem\n"), "{}", run.out);

    // The keys that are lost are those that cannot be read.
    let keys = (0..500).map(|number| format!("key{number:04}"));
    let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    let keyspace = db.keyspace("default").unwrap();
    let lost: Vec<_> = keys.filter(|key| keyspace.get(key).is_err()).collect();
    drop((keyspace, db));
    let range = &report["lost"][0];
    assert_eq!(report["keys_lost"], lost.len(), "{report}");
    assert!(range["first_key"].as_str().unwrap() <= &*lost[0], "{report}");
    assert!(range["last_key"].as_str().unwrap() >= &**lost.last().unwrap(), "{report}");
    let line = format!("up to {} keys lost: from `", lost.len());
    assert!(run.out.contains(&line) && !run.out.contains("no key lost"), "{}", run.out);

    let get = |key: &str| terrace(&[&["get", &dir, key][..], &MEMORY].concat());
    let error = get(first).bad(1);
    assert!(error.contains("corrupt") && error.contains("terrace check"), "{error}");
    assert_eq!(get("key0000").good().len(), 101);
    assert_eq!(get("key0499").good().len(), 101);
    let after = if end < "key0499" { end } else { "key0499" };
    assert_eq!(get(after).code, 0);
}

/// A damaged page of an index costs no key, and the check says so.
#[test]
fn a_damaged_page_that_costs_no_key_is_told_apart() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let table = file(&dir, ".table");
    let whole = fs::read(&table).unwrap();
    let (mut costly, mut harmless) = (0, 0);
    for page in 0..whole.len() / PAGE {
        flip(&table, page * PAGE + 100);
        let found = report(&dir, 1);
        let run = check(&dir);
        let is_lost = found["keys_lost"] != 0;
        assert_eq!(
            is_lost,
            found["lost"].as_array().unwrap().iter().any(|it| it["what"] == "versions")
        );
        assert_eq!(run.out.contains("no key lost"), !is_lost, "{}", run.out);
        assert_eq!(run.out.contains("lost: from"), is_lost, "{}", run.out);
        // An open store may rewrite damaged files.
        let copy = scratch.path("copy");
        fs::create_dir(&copy).unwrap();
        files(&dir)
            .into_iter()
            .for_each(|(name, bytes)| fs::write(copy.join(name), bytes).unwrap());
        let db = terracedb::Db::builder(&copy).memory(64 << 20).open().unwrap();
        let keyspace = db.keyspace("default").unwrap();
        let errors = keyspace.iter().unwrap().filter(|entry| entry.is_err()).count();
        assert_eq!(errors > 0, is_lost, "page {page}: {found}");
        drop((keyspace, db));
        fs::remove_dir_all(&copy).unwrap();
        fs::write(&table, &whole).unwrap();
        if is_lost { costly += 1 } else { harmless += 1 }
    }
    assert!(costly > 10 && harmless >= 2, "{costly} {harmless}");
}

#[test]
fn damage_in_the_log_and_a_missing_table_are_found() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let table = file(&dir, ".table");
    let name = table.file_name().unwrap().to_str().unwrap().to_owned();
    let away = scratch.path("away");
    fs::rename(&table, &away).unwrap();
    let missing = report(&dir, 1);
    assert_eq!((&missing["damages"], &missing["problems"][0]["file"]), (&1.into(), &name.into()));
    assert_eq!(missing["keys_lost"], 1000, "{missing}");
    fs::rename(&away, &table).unwrap();
    assert_eq!(report(&dir, 0)["clean"], true);

    // The record of the last put was synced: its loss is damage, not a torn tail.
    let (segment, bytes) = files(&dir)
        .into_iter()
        .filter(|(name, _)| name.starts_with("log-"))
        .find(|(_, bytes)| bytes.windows(4).any(|window| window == b"last"))
        .unwrap();
    let at = bytes.windows(4).position(|window| window == b"last").unwrap();
    flip(&Path::new(&dir).join(&segment), at);
    let damaged = report(&dir, 1);
    let problems = damaged["problems"].as_array().unwrap();
    assert!(problems.iter().any(|problem| problem["file"] == segment.as_str()), "{damaged}");
}

#[test]
fn a_missing_store_is_refused_and_an_open_one_is_checked() {
    let scratch = Scratch::new();
    let dir = scratch.arg("empty");
    fs::create_dir(&dir).unwrap();
    assert!(check(&dir).bad(2).contains(&dir));
    assert!(files(&dir).is_empty(), "a check left a file where no store is");
    check(&scratch.arg("nowhere")).bad(2);
    let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    db.create_keyspace("fruit").unwrap().put_opt("apple", "red", &DURABLE).unwrap();
    let report = check(&dir).good();
    assert!(report.contains("1 record") && report.ends_with("clean\n"), "{report}");
}

#[test]
fn check_creates_no_file_and_two_may_run_at_once() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    fs::remove_file(Path::new(&dir).join("LOCK")).unwrap();
    let before = files(&dir);
    check(&dir).good();
    assert_eq!(files(&dir), before, "a check changed the directory");
    fs::write(Path::new(&dir).join("LOCK"), "1").unwrap();
    let lock = fs::File::open(Path::new(&dir).join("LOCK")).unwrap();
    lock.try_lock_shared().unwrap();
    check(&dir).good();
    // A command that writes is refused while a check runs.
    let error = terrace(&[&["put", &dir, "a", "b"][..], &MEMORY].concat()).bad(2);
    assert!(error.contains("or a check"), "{error}");
}
