//! `compact`, `delete-range`, `keyspace`, `stats` and `put --ttl`.

use crate::support::*;

fn on(dir: &str, name: &[&str], args: &[&str]) -> Run {
    terrace(&[name, &[dir], &MEMORY, args].concat())
}

fn count(dir: &str) -> String {
    on(dir, &["scan"], &["--count"]).good()
}

#[test]
fn delete_range_deletes_the_named_range_and_dry_run_deletes_nothing() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    assert_eq!(count(&dir), "2001\n");
    let dry = on(&dir, &["delete-range"], &["--all", "--dry-run"]).good();
    assert_eq!(dry, "2001 keys would be deleted\n");
    assert_eq!(count(&dir), "2001\n");
    assert_eq!(on(&dir, &["delete-range"], &["--prefix", "z"]).good(), "");
    assert_eq!(count(&dir), "2000\n");
    // The thousandth key is the number 2,000, as eight bytes and zeros.
    let to = format!("{:016x}", 2000);
    on(&dir, &["delete-range"], &["--hex", "--to", &to]).good();
    assert_eq!(count(&dir), "1000\n");
    for args in [&[][..], &["--all", "--from", "a"], &["--from", "b", "--to", "a"]] {
        on(&dir, &["delete-range"], args).bad(2);
    }
    on(&dir, &["delete-range"], &["--all"]).good();
    assert_eq!(count(&dir), "0\n");
}

#[test]
fn compact_frees_space_and_reports_it() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    // The range delete, still in the log, covers half of a table, so that compaction has work.
    let to = format!("{:016x}", 1000);
    on(&dir, &["delete-range"], &["--hex", "--to", &to]).good();
    let done = on(&dir, &["compact"], &["--json"]).good();
    let done = &json_lines(&done)[0];
    assert!(done["table_bytes"].as_u64() <= done["table_bytes_before"].as_u64(), "{done}");
    assert!(done["bytes_read"].as_u64() > Some(0) && done["seconds"].is_f64(), "{done}");
    on(&dir, &["delete-range"], &["--all"]).good();
    on(&dir, &["compact"], &["--keyspace", "default"]).good();
    let statistics = json_lines(&on(&dir, &["stats"], &["--json"]).good()).remove(0);
    assert_eq!(statistics["keyspaces"][0]["table_bytes"], 0, "{statistics}");
    assert_eq!(statistics["compaction"]["debt_bytes"], 0, "{statistics}");
    on(&dir, &["compact"], &["--keyspace", "none"]).bad(2);
    on(&dir, &["compact"], &["--keyspace", "default", "--from", "b", "--to", "a"]).bad(2);
    on(&dir, &["compact"], &["--from", "b"]).bad(2);
    assert!(terrace(&["check", &dir]).good().contains("clean"));
}

#[test]
fn keyspaces_are_created_listed_and_dropped() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let adding = ["visits", "--merge-operator", "terrace.i64-add.1"];
    on(&dir, &["keyspace", "create"], &adding).good();
    on(&dir, &["keyspace", "create"], &["users"]).good();
    assert!(
        on(&dir, &["keyspace", "create"], &["users"])
            .bad(2)
            .contains("a name that no keyspace has")
    );
    on(&dir, &["keyspace", "create"], &["x", "--merge-operator", "nobody's"]).bad(2);
    let list = json_lines(&on(&dir, &["keyspace", "list"], &["--json"]).good());
    let names: Vec<_> = list.iter().map(|keyspace| keyspace["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["visits", "users"]);
    let made = json_lines(&on(&dir, &["keyspace", "create"], &["carts", "--json"]).good());
    assert_eq!(
        made[0],
        serde_json::json!({
            "name": "carts",
            "merge_operator": null,
            "hashed": null,
            "base_filter_bits": null,
        })
    );
    on(&dir, &["keyspace", "drop"], &["users", "--dry-run"]).good();
    assert!(on(&dir, &["keyspace", "drop"], &["users"]).good().contains("dropped"));
    let carts = |args: &[&str]| {
        let args = [&["carts", "--json"], args].concat();
        json_lines(&on(&dir, &["keyspace", "drop"], &args).good()).remove(0)
    };
    assert_eq!(carts(&["--dry-run"])["dropped"], false);
    let gone = carts(&[]);
    assert_eq!((&gone["name"], &gone["dropped"]), (&"carts".into(), &true.into()), "{gone}");
    assert_eq!((&gone["table_bytes"], &gone["value_file_bytes"]), (&0.into(), &0.into()), "{gone}");
    assert!(on(&dir, &["keyspace", "drop"], &["users"]).bad(2).contains("[visits]"));
    assert_eq!(on(&dir, &["keyspace", "list"], &[]).good().lines().count(), 1);
}

#[test]
fn drop_reports_tables_value_files_and_unflushed_bytes() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    {
        let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
        let keyspace = db.open_or_create_keyspace("long").unwrap();
        keyspace.put("k", vec![b'v'; 100_000]).unwrap();
        db.flush().unwrap();
        keyspace.put("l", vec![b'v'; 200_000]).unwrap();
    }
    let listed = on(&dir, &["keyspace", "list"], &[]).good();
    assert!(listed.contains("1 value file of") && listed.contains("not flushed yet"), "{listed}");
    let text = on(&dir, &["keyspace", "drop"], &["long", "--dry-run"]).good();
    assert!(text.contains("1 value file of") && text.contains("would be dropped"), "{text}");
    let gone = json_lines(&on(&dir, &["keyspace", "drop"], &["long", "--json"]).good()).remove(0);
    assert!(gone["unflushed_bytes"].as_u64() > Some(100_000), "{gone}");
    assert!(gone["value_file_bytes"].as_u64() > Some(0), "{gone}");
}

#[test]
fn stats_report_memory_by_component() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let text = on(&dir, &["stats"], &[]).good();
    for part in ["default", "memtables", "page cache", "memory limit 64.0 MiB", "compaction debt"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json = json_lines(&on(&dir, &["stats"], &["--json"]).good()).remove(0);
    let memory = &json["memory"];
    assert_eq!(memory["limit"], 64 << 20);
    let components = memory["components"].as_array().unwrap();
    let used: u64 = components.iter().map(|component| component["used"].as_u64().unwrap()).sum();
    assert_eq!(memory["used"], used, "{memory}");
    assert!(json["keyspaces"][0]["table_entries"].as_u64() >= Some(2000), "{json}");
    assert_eq!(json["warnings"].as_array().unwrap().len(), 0);
    assert!(terrace(&["stats", &scratch.arg("none")]).bad(2).contains("none"));
}

#[test]
fn entry_with_ttl_expires() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    on(&dir, &["put"], &["token", "ada", "--ttl", "1h"]).good();
    assert_eq!(on(&dir, &["get"], &["token"]).good(), "ada\n");
    on(&dir, &["put"], &["token", "ada", "--ttl", "0"]).good();
    assert_eq!(on(&dir, &["get"], &["token"]).code, 1);
    assert!(on(&dir, &["put"], &["a", "b", "--ttl", "soon"]).bad(2).contains("12h"));
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = terrace(&["completions", shell]).good();
        assert!(script.contains("delete-range") && script.contains("keyspace"), "{shell}");
    }
    terrace(&["completions", "dos"]).bad(2);
}
