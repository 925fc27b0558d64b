//! `config`, and the settings of every command from files, the environment and flags.

use crate::support::*;

/// A configuration in `scratch`, with the store beside it.
fn configured(scratch: &Scratch, text: &str) -> String {
    let path = scratch.path("shop.toml");
    fs::write(&path, format!("{text}\n[flash]\npath = \"store\"\n")).unwrap();
    path.display().to_string()
}

#[test]
fn configuration_file_may_stand_for_its_store() {
    let scratch = Scratch::new();
    let file = configured(&scratch, "memory = \"64MiB\"\ncodec = \"zstd\"");
    assert_eq!(terrace(&["put", &file, "apple", "red"]).good(), "");
    assert_eq!(terrace(&["get", &file, "apple"]).good(), "red\n");
    // The path of the store is relative to the file, not to the working directory.
    let dir = scratch.arg("store");
    assert_eq!(terrace(&["scan", &dir, "--config", &file]).good(), "apple\tred\n");
    assert!(terrace(&["check", &file]).good().contains("clean"));
    let error = terrace(&["get", &file, "apple", "--config", &file]).bad(2);
    assert!(error.contains("a directory if --config is given"), "{error}");
    let statistics = terrace(&["stats", &file, "--json"]).good();
    assert_eq!(json_lines(&statistics)[0]["memory"]["limit"], 64 << 20);
}

#[test]
fn flags_override_environment_and_environment_overrides_file() {
    let scratch = Scratch::new();
    let file = configured(&scratch, "memory = \"64MiB\"\ncodec = \"zstd\"\nsync-interval = \"1s\"");
    let mut command = command(["config", "print", &file, "--json", "--set", "sync-interval=3s"]);
    command.env("TERRACE_CODEC", "none").env("TERRACE_SYNC_INTERVAL", "2s");
    let rows = json_lines(&Run::of(command.output().unwrap()).out);
    let of = |name: &str| {
        let row = rows.iter().find(|row| row["setting"] == name).unwrap();
        let text = |field: &str| row[field].as_str().map(str::to_owned);
        (text("value").unwrap(), text("source").unwrap())
    };
    let expected = |value: &str, source: &str| (value.to_owned(), source.to_owned());
    assert_eq!(of("memory"), expected("64MiB", &format!("{file}:1")));
    assert_eq!(of("codec"), expected("none", "environment TERRACE_CODEC"));
    assert_eq!(of("sync-interval"), expected("3s", "command line --set"));
    assert_eq!(of("zstd-level"), expected("3", "default"));
    assert_eq!(of("flash.path").1, format!("{file}:5"));
    assert!(rows.iter().all(|row| row["changes_while_open"].is_boolean()));
}

#[test]
fn mistake_is_reported_with_its_line_and_a_suggestion() {
    let scratch = Scratch::new();
    let file = configured(&scratch, "memroy = \"64MiB\"\nfsync = \"no\"\n");
    let checked = terrace(&["config", "check", &file]);
    assert_eq!((checked.code, checked.err.as_str()), (1, ""));
    assert!(checked.out.contains("shop.toml:1: expected `memory`"), "{}", checked.out);
    assert!(checked.out.contains("unknown setting `fsync` at"), "{}", checked.out);
    let checked = terrace(&["config", "check", &file, "--json"]);
    assert_eq!((checked.code, checked.err.as_str()), (1, ""));
    let report = json_lines(&checked.out).remove(0);
    assert_eq!((&report["right"], &report["settings"]), (&false.into(), &1.into()), "{report}");
    let problems: Vec<_> = report["problems"].as_array().unwrap().iter().collect();
    assert!(problems[0].as_str().unwrap().contains("shop.toml:1"), "{report}");
    assert_eq!(problems.len(), 2, "{report}");
    for args in [&["get", &file, "a"][..], &["config", "print", &file]] {
        let error = terrace(args).bad(2);
        assert!(error.contains("unknown setting `memroy` at"), "{error}");
    }
    assert!(!scratch.path("store").exists());
    let error = terrace(&["config", "check", &scratch.arg("none")]).bad(2);
    assert!(error.contains("configuration file"), "{error}");
    let error = terrace(&["config", "print", "--set", "codek=lz4"]).bad(2);
    assert!(error.contains("`codek`") && error.contains("expected `codec`"), "{error}");
    let mut command = command(["config", "print"]);
    let error = Run::of(command.env("TERRACE_MEMORY", "1").output().unwrap()).bad(2);
    assert!(error.contains("TERRACE_MEMORY") && error.contains("at least 64MiB"), "{error}");
}

#[test]
fn correct_file_passes_and_unknown_variable_is_reported() {
    let scratch = Scratch::new();
    let file = configured(&scratch, "durability = \"none\"");
    assert!(terrace(&["config", "check", &file]).good().contains("2 settings"));
    let report = json_lines(&terrace(&["config", "check", &file, "--json"]).good()).remove(0);
    assert_eq!(report, serde_json::json!({ "right": true, "settings": 2, "problems": [] }));
    let mut command = command(["config", "print", &file]);
    let run = Run::of(command.env("TERRACE_MEMRY", "1GiB").output().unwrap());
    assert_eq!(run.code, 0);
    assert!(run.out.starts_with("SETTING") && run.out.contains("durability"), "{}", run.out);
    assert!(run.err.contains("TERRACE_MEMRY") && run.err.contains("`memory`"), "{}", run.err);
}
