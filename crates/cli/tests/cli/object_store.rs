//! `backup`, `restore` and `clone` with an object store: a server in this process, the program in its own.

use std::process::Command;

use remote::testing::{FakeS3, Fault};

use crate::support::*;

/// Runs the program with the key of `server`, on its `backups` prefix where the arguments have `URL`.
fn on(server: &FakeS3, args: &[&str]) -> Command {
    let args = args.iter().map(|arg| if *arg == "URL" { "s3://shop/backups" } else { arg });
    let mut command = command(args);
    command
        .env("AWS_ACCESS_KEY_ID", FakeS3::KEY)
        .env("AWS_SECRET_ACCESS_KEY", FakeS3::SECRET)
        .env("AWS_ENDPOINT_URL", server.endpoint());
    command
}

fn run(server: &FakeS3, args: &[&str]) -> Run {
    Run::of(on(server, args).output().unwrap())
}

#[test]
fn a_store_is_backed_up_verified_restored_and_cloned() {
    let (scratch, server) = (Scratch::new(), FakeS3::new());
    let dir = filled(&scratch);
    let (restored, cloned) = (scratch.arg("restored"), scratch.arg("cloned"));
    let create = || {
        run(&server, &["backup", "create", &dir, "URL", "--label", "monday", "--memory", "64MiB"])
    };
    assert!(create().good().starts_with("backup 1: "));
    let endpoint = server.endpoint();
    let again =
        terrace_with_key(&["backup", "create", &dir, "s3://shop/backups", "--endpoint", &endpoint]);
    assert!(again.good().starts_with("backup 2: "));
    let listed = json_lines(&run(&server, &["backup", "list", "URL", "--json"]).good());
    assert_eq!((listed.len(), &listed[0]["label"]), (2, &"monday".into()));
    assert!(run(&server, &["backup", "verify", "URL", "latest"]).good().ends_with("clean\n"));
    let report = run(&server, &["restore", "URL", "latest", &restored, "--json"]).good();
    assert_eq!(json_lines(&report)[0]["id"], 2);
    run(&server, &["clone", "URL", &cloned]).good();
    let all = |dir: &str| terrace(&["scan", dir, "--hex", "--memory", "64MiB"]).good();
    assert_eq!((all(&restored), all(&cloned)), (all(&dir), all(&dir)));
    let out = run(&server, &["backup", "prune", "URL", "--keep", "1"]).good();
    assert!(out.starts_with("backup 1 deleted"), "{out}");
    let refused = run(&server, &["restore", "URL", "7", &scratch.arg("none")]).bad(2);
    assert_eq!(refused, "terrace: backup: expected one that exists, got 7\n");
}

fn terrace_with_key(args: &[&str]) -> Run {
    let mut command = command(args);
    command.env("AWS_ACCESS_KEY_ID", FakeS3::KEY).env("AWS_SECRET_ACCESS_KEY", FakeS3::SECRET);
    Run::of(command.output().unwrap())
}

#[test]
fn a_missing_and_a_wrong_key_are_named() {
    let (scratch, server) = (Scratch::new(), FakeS3::new());
    let mut none = on(&server, &["backup", "list", "URL"]);
    none.env_remove("AWS_ACCESS_KEY_ID").env("AWS_SHARED_CREDENTIALS_FILE", scratch.arg("none"));
    let refused = Run::of(none.output().unwrap()).bad(2);
    assert!(refused.contains("AWS_ACCESS_KEY_ID") && refused.contains("none"), "{refused}");
    let mut wrong = on(&server, &["backup", "list", "URL"]);
    wrong.env("AWS_SECRET_ACCESS_KEY", "another");
    let refused = Run::of(wrong.output().unwrap()).bad(2);
    assert!(refused.contains("SignatureDoesNotMatch"), "{refused}");
    let refused = run(&server, &["backup", "list", "s3://other/x"]).bad(2);
    assert!(refused.contains("bucket at other: expected one that exists"), "{refused}");
    let refused = run(&server, &["backup", "list", "s3://shop/../x"]).bad(2);
    assert!(refused.contains("prefix"), "{refused}");
}

/// The program is killed while it sends the second part of a file. The first part is not sent again.
#[test]
fn a_killed_backup_goes_on_with_its_parts() {
    let (scratch, server) = (Scratch::new(), FakeS3::new());
    let dir = scratch.arg("store");
    let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    let keyspace = db.open_or_create_keyspace("default").unwrap();
    // Values that do not compress, and stand in one file of more than one part.
    let mut noise = 1u64;
    for number in 0..200u64 {
        let words = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise.to_le_bytes()
        });
        keyspace
            .put(number.to_be_bytes(), words.take(8192).flatten().collect::<Vec<u8>>())
            .unwrap();
    }
    drop(keyspace);
    db.close().unwrap();
    server.rule(|seen| match seen.query.get("partNumber").is_some_and(|number| number == "2") {
        true => Fault::Stall,
        false => Fault::None,
    });
    let args = ["backup", "create", &dir, "URL", "--memory", "64MiB"];
    let mut child = on(&server, &args).spawn().unwrap();
    let mut seen = Vec::new();
    let is_second = |seen: &remote::testing::Seen| {
        seen.query.get("partNumber").is_some_and(|number| number == "2")
    };
    while !seen.iter().any(is_second) {
        assert!(child.try_wait().unwrap().is_none(), "ended without a second part: {seen:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
        seen.extend(server.take_seen());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    server.no_rule();
    let listed = run(&server, &["backup", "list", "URL"]).good();
    assert!(
        listed.ends_with("in all\n") && !listed.contains("store "),
        "nothing is visible: {listed}"
    );
    let begun = server.uploads();
    assert_eq!(begun.iter().map(|(_, parts)| *parts).collect::<Vec<_>>(), [1]);
    server.take_seen();
    assert!(run(&server, &args).good().starts_with("backup 1: "));
    let sent = server.take_seen();
    let first = |seen: &&remote::testing::Seen| {
        seen.key == begun[0].0 && seen.query.get("partNumber").is_some_and(|it| it == "1")
    };
    assert_eq!(sent.iter().filter(first).count(), 0, "the first part is there");
    assert!(server.uploads().is_empty());
    run(&server, &["restore", "URL", "latest", &scratch.arg("restored")]).good();
    let all = |dir: &str| terrace(&["scan", dir, "--hex", "--memory", "64MiB"]).good();
    assert_eq!(all(&scratch.arg("restored")), all(&dir));
}
