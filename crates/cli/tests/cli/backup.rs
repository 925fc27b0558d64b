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
    // Both are of this hour.
    let out = terrace(&["backup", "prune", &repository, "--keep-within", "1h"]).good();
    assert!(out.starts_with("0 files"), "{out}");
    let out = terrace(&["backup", "verify", &repository, "latest"]).good();
    assert!(out.ends_with("clean\n"), "{out}");
    let out = terrace(&["backup", "prune", &repository, "--keep-within", "0s"]).good();
    assert!(out.starts_with("backup 1 deleted"), "{out}");
    terrace(&["backup", "prune", &repository]).bad(2);
    let report = terrace(&["restore", &repository, "latest", &restored, "--json"]).good();
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
fn urls_of_directories_the_latest_backup_and_clones() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let url = format!("file://{}", scratch.arg("backups"));
    for number in 1..3 {
        let out = terrace(&["backup", "create", &dir, &url, "--memory", "64MiB"]).good();
        assert!(out.starts_with(&format!("backup {number}: ")), "{out}");
    }
    assert!(scratch.path("backups").join("backup-0000000002").exists());
    let copy = |name: &str| scratch.arg(name);
    let report = terrace(&["restore", &url, "latest", &copy("latest"), "--json"]).good();
    assert_eq!(json_lines(&report)[0]["id"], 2);
    let cloned = terrace(&["clone", &url, &copy("cloned"), "--id", "1"]).good();
    assert!(cloned.starts_with("backup 1 restored"), "{cloned}");
    let cloned = terrace(&["clone", &dir, &copy("checkpoint"), "--memory", "64MiB"]).good();
    assert!(cloned.starts_with("checkpoint at"), "{cloned}");
    let all = |dir: &str| terrace(&["scan", dir, "--hex", "--memory", "64MiB"]).good();
    for name in ["latest", "cloned", "checkpoint"] {
        assert_eq!(all(&copy(name)), all(&dir), "{name}");
    }
    terrace(&["backup", "delete", &url, "latest"]).good();
    let report = terrace(&["restore", &url, "latest", &copy("first"), "--json"]).good();
    assert_eq!(json_lines(&report)[0]["id"], 1);
    terrace(&["backup", "delete", &url, "1"]).good();
    let refused = terrace(&["restore", &url, "latest", &copy("none")]).bad(2);
    assert!(refused.contains("latest backup"), "{refused}");
    let refused = terrace(&["backup", "list", "gs://shop/backups"]).bad(2);
    assert!(refused.contains("s3://BUCKET/PREFIX"), "{refused}");
}

/// What each command takes, and what it names for what it does not take.
#[test]
fn stores_are_named_by_urls_of_directories_and_never_by_those_of_object_stores() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let url = |name: &str| format!("file://{}", scratch.arg(name));
    let all = |dir: &str| terrace(&["scan", dir, "--hex", "--memory", "64MiB"]).good();
    let whole = all(&dir);
    let cloned = terrace(&["clone", &url("store"), &url("cloned"), "--memory", "64MiB"]).good();
    assert!(cloned.starts_with("checkpoint at"), "{cloned}");
    terrace(&["checkpoint", &url("store"), &url("checkpoint"), "--memory", "64MiB"]).good();
    terrace(&["backup", "create", &url("store"), &url("backups"), "--memory", "64MiB"]).good();
    terrace(&["restore", &url("backups"), "latest", &url("restored")]).good();
    for name in ["cloned", "checkpoint", "restored"] {
        assert!(all(&scratch.arg(name)) == whole, "{name}");
    }
    for (args, instead) in [
        (&["clone", &dir, "s3://shop/x"][..], "terrace backup create"),
        (&["checkpoint", &dir, "s3://shop/x"], "terrace backup create"),
        (&["restore", &url("backups"), "latest", "s3://shop/x"], "terrace backup create"),
        (&["checkpoint", "s3://shop/x", &scratch.arg("none")], "terrace clone"),
        (&["backup", "create", "s3://shop/x", &scratch.arg("none")], "terrace clone"),
        (&["put", "s3://shop/x", "key", "value"], "terrace clone"),
        (&["repair", "s3://shop/x"], "terrace clone"),
        (&["restore", &dir, "latest", &scratch.arg("none")], "terrace clone"),
        (&["clone", "gs://shop/x", &scratch.arg("none")], "s3://BUCKET/PREFIX"),
    ] {
        let mut command = command(args);
        let refused = Run::of(command.current_dir(scratch.path("")).output().unwrap()).bad(2);
        assert!(refused.contains(instead), "{args:?}: {refused}");
        // Nothing was created, in particular no directory `s3:`.
        assert!(!scratch.path("none").exists() && !scratch.path("s3:").exists(), "{args:?}");
    }
}

#[cfg(not(feature = "remote"))]
#[test]
fn object_stores_need_a_build_with_them() {
    let refused = terrace(&["backup", "list", "s3://shop/backups"]).bad(2);
    assert!(refused.contains("--features remote"), "{refused}");
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
    let before = files(&repository);
    let refused = terrace(&["backup", "prune", &repository, "--keep", "0"]).bad(2);
    assert!(refused.contains("--delete-all"), "{refused}");
    let would = on(&["prune", "--keep", "0", "--delete-all", "--dry-run"]).remove(0);
    let would_delete = on(&["delete", "3", "--dry-run"]).remove(0);
    assert_eq!(would_delete["backups"], serde_json::json!([3]));
    assert!(files(&repository) == before, "a dry run changes nothing");
    let pruned = on(&["prune", "--keep", "0", "--delete-all"]).remove(0);
    assert_eq!(pruned["backups"], serde_json::json!([1, 3]));
    for field in ["backups", "files", "bytes"] {
        assert_eq!(pruned[field], would[field]);
    }
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

/// A restored store has the store id of its origin, so pruning must tell their backups apart.
#[test]
fn pruning_keeps_the_only_backup_of_the_origin_of_a_restored_store() {
    let scratch = Scratch::new();
    let (dir, restored, repository) =
        (filled(&scratch), scratch.arg("restored"), scratch.arg("backups"));
    let create = |dir: &str| {
        terrace(&["backup", "create", dir, &repository, "--memory", "64MiB"]).good();
    };
    create(&dir);
    terrace(&["restore", &repository, "1", &restored]).good();
    terrace(&["put", &restored, "new", "value", "--memory", "64MiB"]).good();
    (0..2).for_each(|_| create(&restored));
    let listed = json_lines(&terrace(&["backup", "list", &repository, "--json"]).good());
    assert_eq!(listed[0]["store"], listed[1]["store"]);
    assert_eq!(listed[0]["lineage"], listed[0]["store"]);
    assert_ne!(listed[0]["lineage"], listed[1]["lineage"]);
    assert_eq!(listed[1]["lineage"], listed[2]["lineage"]);
    let text = terrace(&["backup", "list", &repository]).good();
    let lines: Vec<_> = text.lines().map(|line| line.contains(", copy ")).collect();
    assert_eq!(lines, [false, true, true, false], "{text}");
    let run = terrace(&["backup", "prune", &repository, "--keep", "1"]).good();
    assert!(run.starts_with("backup 2 deleted\n") && !run.contains("backup 1"), "{run}");
    let again = scratch.arg("again");
    terrace(&["restore", &repository, "1", &again]).good();
    let all = |dir: &str| terrace(&["scan", dir, "--hex", "--memory", "64MiB"]).good();
    assert_eq!(all(&again), all(&dir));
}

#[test]
fn backup_refuses_directories_that_are_not_for_backups() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let other = scratch.arg("other");
    terrace(&["put", &other, "k", "v", "--memory", "64MiB"]).good();
    let home = scratch.arg("home");
    fs::create_dir(&home).unwrap();
    fs::write(Path::new(&home).join("a letter.txt"), "dear").unwrap();
    let create = |to: &str| terrace(&["backup", "create", &dir, to, "--memory", "64MiB"]);
    let content = |dir: &str| {
        let mut files = files(dir);
        files.retain(|(name, _)| name != "LOCK");
        files
    };
    for (to, why) in
        [(&other, "the files of a store"), (&dir, "the files of a store"), (&home, "a letter.txt")]
    {
        let before = content(to);
        let error = create(to).bad(2);
        assert!(error.contains(why), "{error}");
        if *to != dir {
            assert!(content(to) == before, "{to} is not touched");
        }
    }
    assert_eq!(fs::read_dir(&home).unwrap().count(), 1);
    // Nothing of the store was lost.
    assert_eq!(terrace(&["get", &other, "k", "--memory", "64MiB"]).good(), "v\n");
}

/// A mount point, a link to a directory, and the working directory cannot be replaced by another directory.
#[test]
fn copies_fill_an_empty_directory_that_exists() {
    use std::os::unix::fs::symlink;
    let scratch = Scratch::new();
    let (dir, repository) = (filled(&scratch), scratch.arg("backups"));
    terrace(&["backup", "create", &dir, &repository, "--memory", "64MiB"]).good();
    let all = |dir: &str| terrace(&["scan", dir, "--hex", "--memory", "64MiB"]).good();
    let expected = all(&dir);
    let copies: [&[&str]; 2] =
        [&["restore", &repository, "1"], &["checkpoint", &dir, "--memory", "64MiB"]];
    for (number, copy) in copies.into_iter().enumerate() {
        let (here, real, link) = (
            scratch.arg(&format!("here{number}")),
            scratch.arg(&format!("real{number}")),
            scratch.arg(&format!("link{number}")),
        );
        fs::create_dir(&here).unwrap();
        fs::create_dir_all(Path::new(&real).join("lost+found")).unwrap();
        symlink(&real, &link).unwrap();
        // The working directory, from within it.
        let run = command(copy).arg(".").current_dir(&here).output().unwrap();
        Run::of(run).good();
        Run::of(command(copy).arg(&link).output().unwrap()).good();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        for copy in [&here, &real] {
            assert!(all(copy) == expected);
            assert!(terrace(&["check", copy]).good().ends_with("clean\n"));
        }
        let dangling = scratch.arg(&format!("dangling{number}"));
        symlink(scratch.arg("nowhere"), &dangling).unwrap();
        let run = Run::of(command(copy).arg(&dangling).output().unwrap());
        assert!(run.bad(2).contains("a link to nothing"));
    }
    let left = fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_str().unwrap().contains("unfinished")).collect();
    assert!(left.is_empty(), "{left:?}");
}
