//! `backup`, `restore` and `clone` with an object store: a server in this process, the program in its own.

use std::process::Command;

use remote::testing::FakeS3;

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
