//! `terrace shell` from a pipe: commands, types of values, JSON, errors, a store that is open elsewhere.

use std::io::Write;
use std::process::Stdio;

use crate::support::*;

/// Runs `lines` in the shell.
fn shell(dir: &str, args: &[&str], lines: &str) -> Run {
    let mut child = command([&["shell", dir][..], &MEMORY, args].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    Run::of(child.wait_with_output().unwrap())
}

fn store(scratch: &Scratch) -> String {
    let dir = scratch.arg("store");
    terrace(&[&["put", &dir, "first", "value"][..], &MEMORY].concat()).good();
    dir
}

#[test]
fn several_commands_run_in_one_opening() {
    let scratch = Scratch::new();
    let dir = store(&scratch);
    let lines = r#"
        # fruit
        put apple "dark red"
        put "a b" 'it''s' --ttl 1h
        put tab a\tb
        get apple
        get tab
        get none
        scan a --limit 2
        count
        ttl apple
        create counters --merge-operator terrace.i64-add.1
        merge home 5 --as i64
        as i64
        merge home -7
        get home
        scan
        use default
        put "" x
        delete apple
        count
        keyspaces
        exit
        get apple
    "#;
    let run = shell(&dir, &[], lines);
    assert_eq!(run.code, 1, "one line failed: {}", run.err);
    assert!(
        run.err.starts_with("terrace: line 19: ") && run.err.lines().count() == 1,
        "{}",
        run.err
    );
    let out: Vec<&str> = run.out.lines().collect();
    let expected = [
        "dark red",
        "a\\tb",
        "(no such key)",
        "a b\tits",
        "apple\tdark red",
        "4",
        "never",
        "-2",
        "home\t-2",
        "3",
    ];
    assert_eq!(&out[..expected.len()], expected);
    assert!(
        out[10].starts_with("* default\tordered") && out[11].starts_with("  counters"),
        "{out:?}"
    );
    assert_eq!(out.len(), 12, "nothing after `exit`: {out:?}");
    let stored = terrace(&[&["get", &dir, "a b"][..], &MEMORY].concat()).good();
    assert_eq!(stored, "its\n", "the writes were kept");
}

#[test]
fn json_output_has_typed_values() {
    let scratch = Scratch::new();
    let dir = store(&scratch);
    let lines = "put n 5 --as u64\nput f 1.5 --as f64\nput j '{ \"a\": [1] }' --as json\n\
                 put x ff --as hex\nget n --as u64\nget f --as f64\nget j --as json\nget x\nget none\n\
                 scan --limit 1\ncount\nttl x\n";
    let out = shell(&dir, &["--json"], lines).good();
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let value = |at: usize| lines[at]["value"].to_string();
    assert_eq!(
        [value(0), value(1), value(2), value(3), value(4)],
        ["5", "1.5", r#"{"a":[1]}"#, r#"{"hex":"ff"}"#, "null"]
    );
    assert_eq!(lines[5]["key"], "f");
    assert_eq!(lines[6]["count"], 5);
    assert_eq!((&lines[7]["exists"], &lines[7]["seconds"]), (&true.into(), &Value::Null));
    assert_eq!(lines.len(), 8);
}

#[test]
fn lines_that_are_wrong_are_named_and_the_others_run() {
    let scratch = Scratch::new();
    let dir = store(&scratch);
    let run = shell(&dir, &[], "gett a\nput a \"b\nput a x --as i64\nuse none\nget first\nhelp\n");
    assert_eq!(run.code, 1);
    for number in 1..=4 {
        assert!(run.err.contains(&format!("line {number}: ")), "{}", run.err);
    }
    assert!(!run.err.contains("line 5: ") && run.out.starts_with("value\n"), "{}", run.out);
    assert!(run.out.contains("scan") && run.out.contains("merge"), "the help: {}", run.out);
    shell(&scratch.arg("nowhere"), &[], "get a\n").bad(2);
}

#[test]
fn a_store_in_use_is_explored_and_refreshed() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    let keyspace = db.create_keyspace("default").unwrap();
    keyspace.put("k", "old").unwrap();
    let mut child = command([&["shell", &dir][..], &MEMORY].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut ask = |line: &str| {
        writeln!(input, "{line}").unwrap();
        let mut answer = String::new();
        std::io::BufRead::read_line(&mut output, &mut answer).unwrap();
        answer
    };
    assert_eq!(ask("get k"), "old\n");
    keyspace.put("k", "new").unwrap();
    assert_eq!(ask("get k"), "old\n");
    assert_eq!(ask("put k other\nrefresh\nget k"), "new\n");
    drop(input);
    let run = child.wait_with_output().unwrap();
    let error = String::from_utf8(run.stderr).unwrap();
    assert!(run.status.code() == Some(1) && error.contains("reading only"), "{error}");
}
