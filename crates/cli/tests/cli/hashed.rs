//! Hashed keyspaces by hand: created, written, read, listed, exported, checked, backed up.

use std::collections::BTreeSet;

use crate::support::{Scratch, json_lines, terrace};

#[test]
fn a_hashed_keyspace_serves_every_command_that_needs_no_order() {
    let scratch = Scratch::new();
    let (store, backups) = (scratch.arg("store"), scratch.arg("backups"));
    let in_photos = |args: &[&str]| terrace(&[args, &["--keyspace", "photos"]].concat());
    terrace(&["keyspace", "create", &store, "photos", "--hashed", "keep"]).good();
    for (key, value) in [("sunset", "1"), ("harbour", "2"), ("snow", "3")] {
        in_photos(&["put", &store, key, value]).good();
    }
    assert_eq!(in_photos(&["get", &store, "sunset"]).good(), "1\n");
    in_photos(&["delete", &store, "snow"]).good();
    assert_eq!(in_photos(&["get", &store, "snow"]).code, 1);
    let lines: BTreeSet<_> =
        in_photos(&["scan", &store]).good().lines().map(str::to_owned).collect();
    assert_eq!(lines, ["harbour\t2".to_owned(), "sunset\t1".to_owned()].into());
    assert!(in_photos(&["scan", &store, "--from", "a"]).bad(2).contains("hashed keep"));
    assert!(in_photos(&["scan", &store, "--reverse"]).bad(2).contains("hashed keep"));
    let listed = terrace(&["keyspace", "list", &store]).good();
    assert!(listed.contains("photos") && listed.contains(", hashed keep"), "{listed}");
    let listed = json_lines(&terrace(&["keyspace", "list", &store, "--json"]).good());
    assert_eq!(listed[0]["kind"], "hashed keep");

    terrace(&["compact", &store]).good();
    terrace(&["check", &store]).good();
    terrace(&["backup", "create", &store, &backups]).good();
    let restored = scratch.arg("restored");
    terrace(&["restore", &backups, "1", &restored]).good();
    assert_eq!(in_photos(&["get", &restored, "harbour"]).good(), "2\n");
    assert_eq!(
        in_photos(&["delete-range", &store, "--all", "--dry-run"]).good(),
        "2 keys would be deleted\n"
    );
    in_photos(&["delete-range", &store, "--all"]).good();
    assert_eq!(in_photos(&["scan", &store, "--count"]).good(), "0\n");
}

/// Without a manifest, and with writes that no table has, `repair` makes the keyspaces what they were.
#[test]
fn keyspaces_survive_the_loss_of_the_manifest() {
    let scratch = Scratch::new();
    let store = scratch.arg("store");
    for (name, kind) in [("photos", "keep"), ("seen", "window=8MiB,clock")] {
        terrace(&["keyspace", "create", &store, name, "--hashed", kind]).good();
        terrace(&["put", &store, "a", name, "--keyspace", name]).good();
    }
    let files = std::fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
    let (mut manifests, mut keyspaces) = (0, String::new());
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("manifest-") {
            std::fs::remove_file(&file).unwrap();
            manifests += 1;
        }
        if name.starts_with("keyspace-") {
            let args = ["inspect", "keyspace", file.to_str().unwrap()];
            keyspaces.push_str(&terrace(&args).good());
            let json = json_lines(&terrace(&[&args[..], &["--json"]].concat()).good());
            assert_eq!(json[0]["fact"], "keyspace");
        }
    }
    assert_eq!(manifests, 1);
    assert!(
        keyspaces.contains("`photos`") && keyspaces.contains("window=8.0 MiB,clock"),
        "{keyspaces}"
    );
    assert_eq!(terrace(&["check", &store]).code, 1);
    // Deleted entries might have reappeared, so it says no.
    assert_eq!(terrace(&["repair", &store]).code, 1);
    for name in ["photos", "seen"] {
        let got = terrace(&["get", &store, "a", "--keyspace", name]).good();
        assert_eq!(got, format!("{name}\n"));
    }
    let listed = terrace(&["keyspace", "list", &store]).good();
    assert!(
        listed.contains(", hashed keep") && listed.contains(", hashed window=8.0 MiB,clock"),
        "{listed}"
    );
    terrace(&["check", &store]).good();
}

#[test]
fn a_window_is_created_listed_measured_checked_and_copied() {
    let scratch = Scratch::new();
    let (store, backups) = (scratch.arg("store"), scratch.arg("backups"));
    let in_seen = |args: &[&str]| terrace(&[args, &["--keyspace", "seen"]].concat());
    terrace(&["keyspace", "create", &store, "seen", "--hashed", "window=8MiB"]).good();
    in_seen(&["put", &store, "a", "1"]).good();
    in_seen(&["put", &store, "b", "2", "--ttl", "1h"]).good();
    assert_eq!(in_seen(&["get", &store, "a"]).good(), "1\n");
    let listed = terrace(&["keyspace", "list", &store]).good();
    assert!(listed.contains(", hashed window=8.0 MiB"), "{listed}");
    let listed = json_lines(&terrace(&["stats", &store, "--json"]).good());
    let seen = &listed[0]["keyspaces"][0];
    assert_eq!(
        (&seen["kind"], &seen["evicted_entries"]),
        (&"hashed window=8.0 MiB".into(), &0.into())
    );
    assert!(in_seen(&["scan", &store, "--from", "a"]).bad(2).contains("hashed window"));
    assert_eq!(in_seen(&["scan", &store, "--count"]).good(), "2\n");
    terrace(&["compact", &store]).good();
    terrace(&["check", &store]).good();
    terrace(&["backup", "create", &store, &backups]).good();
    let restored = scratch.arg("restored");
    terrace(&["restore", &backups, "1", &restored]).good();
    assert_eq!(in_seen(&["get", &restored, "a"]).good(), "1\n");
    let copied = scratch.arg("copied");
    terrace(&["checkpoint", &store, &copied]).good();
    assert_eq!(in_seen(&["scan", &copied, "--count"]).good(), "2\n");
    in_seen(&["delete-range", &store, "--all"]).good();
    assert_eq!(in_seen(&["scan", &store, "--count"]).good(), "0\n");
}

#[test]
fn a_window_that_retains_entries_is_created_measured_checked_and_copied() {
    let scratch = Scratch::new();
    let (store, backups) = (scratch.arg("store"), scratch.arg("backups"));
    let create = |name: &str, policy: &str| {
        terrace(&["keyspace", "create", &store, name, "--hashed", policy])
    };
    create("read", "window=1MiB,clock").good();
    create("valued", "window=1MiB,priority=terrace.first-byte.1").good();
    let refused = create("other", "window=1MiB,priority=score.1").bad(2);
    assert!(refused.contains("priority of a window") && refused.contains("`score.1`"), "{refused}");
    for name in ["read", "valued"] {
        terrace(&["put", &store, "a", "1", "--keyspace", name]).good();
        assert_eq!(terrace(&["get", &store, "a", "--keyspace", name]).good(), "1\n");
    }
    let listed = terrace(&["keyspace", "list", &store]).good();
    assert!(listed.contains(", hashed window=1.0 MiB,clock"), "{listed}");
    assert!(listed.contains(",priority=terrace.first-byte.1"), "{listed}");
    let stats = json_lines(&terrace(&["stats", &store, "--json"]).good());
    assert_eq!(stats[0]["keyspaces"][0]["retained_bytes"], 0);
    terrace(&["check", &store]).good();
    terrace(&["backup", "create", &store, &backups]).good();
    let restored = scratch.arg("restored");
    terrace(&["restore", &backups, "1", &restored]).good();
    assert_eq!(terrace(&["get", &restored, "a", "--keyspace", "valued"]).good(), "1\n");
    let bench = ["bench", "fillrandom", "--num", "2000", "--memory", "64MiB", "--json"];
    let kind = ["--value-size", "500", "--keyspace", "window=256KiB,clock"];
    terrace(&[&bench[..], &kind].concat()).good();
}

#[test]
fn wrong_kinds_are_refused() {
    let scratch = Scratch::new();
    let store = scratch.arg("store");
    let create = |policy: &str| terrace(&["keyspace", "create", &store, "k", "--hashed", policy]);
    assert!(create("hash").bad(2).contains("window=SIZE"));
    assert!(create("window=x").bad(2).contains("size"));
    assert!(create("window=1KiB").bad(2).contains("at least 64.0 KiB"));
    let both = ["--hashed", "keep", "--merge-operator", "terrace.append.1"];
    terrace(&[&["keyspace", "create", &store, "k"][..], &both].concat()).bad(2);
}
