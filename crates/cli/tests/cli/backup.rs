//! `checkpoint`, `backup` and `restore`.

use crate::support::*;

#[test]
fn store_is_backed_up_verified_pruned_and_restored() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let (repository, restored) = (scratch.arg("backups"), scratch.arg("restored"));
    let create = |label: &str| {
        terrace(&["backup", "create", &dir, &repository, "--label", label, "--memory", "64MiB"])
    };
    let out = create("monday").good();
    assert!(out.starts_with("backup 1: "), "{out}");
    create("tuesday").good();
    let listed = json_lines(&terrace(&["backup", "list", &repository, "--json"]).good());
    assert_eq!((&listed[0]["label"], &listed[1]["label"]), (&"monday".into(), &"tuesday".into()));
    assert!(listed[1]["bytes"].as_u64() > listed[1]["unique_bytes"].as_u64(), "{listed:?}");
    let out = terrace(&["backup", "verify", &repository, "2"]).good();
    assert!(out.ends_with("clean\n"), "{out}");
    let out = terrace(&["backup", "prune", &repository, "--keep", "1"]).good();
    assert!(out.starts_with("backup 1 deleted"), "{out}");
    let report = terrace(&["restore", &repository, "2", &restored, "--json"]).good();
    let report = json_lines(&report).remove(0);
    assert_eq!((&report["id"], &report["bytes"]), (&2.into(), &listed[1]["bytes"]), "{report}");
    assert!(report["seconds"].is_f64(), "{report}");
    let all = |dir: &str| terrace(&["scan", dir, "--hex", "--memory", "64MiB"]).good();
    assert_eq!(all(&restored), all(&dir));
    assert!(terrace(&["check", &restored]).good().ends_with("clean\n"));
    let refused = terrace(&["restore", &repository, "2", &restored]).bad(2);
    assert!(refused.contains("empty"), "{refused}");
    let text = terrace(&["backup", "list", &repository]).good();
    assert!(text.starts_with("2\t20") && text.contains("Z\t"), "{text}");
    let refused = terrace(&["restore", &repository, "7", &scratch.arg("none")]).bad(2);
    assert_eq!(refused, "terrace: backup: expected one that exists, got 7\n");
    terrace(&["backup", "list", &scratch.arg("none")]).bad(2);
    assert!(!scratch.path("none").exists());
    // Listing creates no file in a directory that is no repository.
    fs::create_dir(scratch.path("none")).unwrap();
    assert_eq!(terrace(&["backup", "list", &scratch.arg("none")]).good(), "0 B in all\n");
    assert!(files(&scratch.arg("none")).is_empty());
}

#[test]
fn pruning_keeps_the_newest_of_each_store() {
    let scratch = Scratch::new();
    let repository = scratch.arg("backups");
    let create = |name: &str| {
        let dir = scratch.arg(name);
        terrace(&["put", &dir, "k", name, "--memory", "64MiB"]).good();
        terrace(&["backup", "create", &dir, &repository, "--memory", "64MiB"]).good();
    };
    for name in ["one", "two", "two", "one", "two"] {
        create(name);
    }
    let out = terrace(&["backup", "prune", &repository, "--keep", "1", "--json"]).good();
    let mut gone: Vec<_> =
        json_lines(&out)[0]["backups"].as_array().unwrap().iter().map(Value::as_u64).collect();
    gone.sort_unstable();
    assert_eq!(gone, [1, 2, 3].map(Some));
    let text = terrace(&["backup", "list", &repository]).good();
    let stores: std::collections::BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.split('\t').find(|it| it.starts_with("store ")))
        .collect();
    assert_eq!(stores.len(), 2, "{text}");
}

#[test]
fn delete_and_prune_report_as_json() {
    let scratch = Scratch::new();
    let (dir, repository) = (filled(&scratch), scratch.arg("backups"));
    for _ in 0..3 {
        terrace(&["backup", "create", &dir, &repository, "--memory", "64MiB"]).good();
    }
    let on = |args: &[&str]| {
        let run = terrace(&[&["backup", args[0], &repository], &args[1..], &["--json"]].concat());
        json_lines(&run.good())
    };
    let listed = on(&["list"]);
    let deleted = on(&["delete", "2"]).remove(0);
    assert_eq!(deleted["backups"], serde_json::json!([2]));
    assert_eq!(deleted["bytes"], listed[1]["unique_bytes"], "{deleted}");
    let pruned = on(&["prune", "--keep", "0"]).remove(0);
    assert_eq!(pruned["backups"], serde_json::json!([1, 3]));
    assert!(pruned["files"].as_u64() > Some(2), "{pruned}");
    assert_eq!(
        fs::read_dir(&repository).unwrap().flatten().count(),
        1,
        "only the lock file remains"
    );
    assert!(on(&["list"]).is_empty());
    terrace(&["backup", "delete", &repository, "2", "--json"]).bad(2);
}

#[test]
fn damaged_backup_is_reported_and_not_restored() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let repository = scratch.arg("backups");
    terrace(&["backup", "create", &dir, &repository, "--memory", "64MiB"]).good();
    let entries = fs::read_dir(&repository).unwrap().map(|entry| entry.unwrap().path());
    let table =
        entries.into_iter().find(|path| path.to_str().unwrap().contains(".table.")).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    bytes[5000] ^= 1;
    fs::write(&table, bytes).unwrap();
    let run = terrace(&["backup", "verify", &repository, "1"]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("page 1") && run.out.contains("keys"), "{}", run.out);
    let error = terrace(&["restore", &repository, "1", &scratch.arg("restored")]).bad(1);
    assert!(error.contains("page 1") && error.contains("keys"), "{error}");
    assert!(!scratch.path("restored").exists());
}

#[test]
fn checkpoint_is_a_store() {
    let scratch = Scratch::new();
    let (dir, place) = (filled(&scratch), scratch.arg("copy"));
    let out = terrace(&["checkpoint", &dir, &place, "--json", "--memory", "64MiB"]).good();
    let report = json_lines(&out).remove(0);
    assert!(report["bytes_linked"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["files_copied"], 0, "{report}");
    let all = |dir: &str| terrace(&["scan", dir, "--hex", "--memory", "64MiB"]).good();
    assert_eq!(all(&place), all(&dir));
    assert!(terrace(&["check", &place]).good().ends_with("clean\n"));
    terrace(&["checkpoint", &dir, &place]).bad(2);
}
