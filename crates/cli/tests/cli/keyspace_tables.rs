//! `keyspace create` and `set`: codec, level and filter bits of one keyspace.

use crate::support::*;

/// The codec of every table of the store, sorted.
fn codecs(dir: &str) -> Vec<String> {
    let tables = files(dir).into_iter().filter(|(file, _)| file.ends_with(".table"));
    let codec = |(file, _): (String, Vec<u8>)| {
        let path = Path::new(dir).join(&file).display().to_string();
        let facts = json_lines(&terrace(&["inspect", "table", &path, "--json"]).good());
        let fact = facts.iter().find(|fact| fact["name"] == "codec").unwrap();
        fact["value"].as_str().unwrap().to_owned()
    };
    let mut codecs: Vec<_> = tables.map(codec).collect();
    codecs.sort();
    codecs
}

#[test]
fn tables_of_a_keyspace_have_its_own_codec_and_filters() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let run = |args: &[&str]| terrace(&[args, &MEMORY].concat());
    let create =
        ["keyspace", "create", &dir, "small", "--table-codec", "zstd", "--table-level", "19"];
    run(&[&create[..], &["--filter-bits", "0"]].concat()).good();
    run(&["keyspace", "create", &dir, "plain"]).good();
    let text: String = (0..3000).map(|n| format!("key {n:05}\tvalue {n} of many\n")).collect();
    let file = scratch.path("rows.tsv");
    fs::write(&file, text).unwrap();
    for keyspace in ["small", "plain"] {
        run(&["load", &dir, file.to_str().unwrap(), "--keyspace", keyspace]).good();
    }
    assert_eq!(codecs(&dir), ["lz4", "zstd"]);
    let list = run(&["keyspace", "list", &dir]).good();
    assert!(
        list.contains("small") && list.contains("codec zstd, level 19, filter-bits 0"),
        "{list}"
    );
    // The setting of the store does not change it: neither flush nor merge writes with it.
    run(&["put", &dir, "key 00001", "old", "--keyspace", "small"]).good();
    run(&["compact", &dir, "--codec", "deflate"]).good();
    assert!(!codecs(&dir).contains(&"deflate".to_owned()), "{:?}", codecs(&dir));
    let out = run(&["keyspace", "set", &dir, "small", "--table-codec", "none"]).good();
    assert_eq!(out, "small: codec none, filter-bits 0\n");
    run(&["put", &dir, "key 00001", "new", "--keyspace", "small"]).good();
    run(&["compact", &dir]).good();
    assert!(codecs(&dir).contains(&"none".to_owned()), "{:?}", codecs(&dir));
    assert_eq!(run(&["get", &dir, "key 00001", "--keyspace", "small"]).good(), "new\n");
    for (args, expected) in [
        (&["small", "--table-codec", "lz4", "--table-level", "3"][..], "a codec with levels"),
        (&["small", "--table-codec", "zstd", "--table-level", "40"], "-7..=22"),
        (&["small", "--filter-bits", "99"], "filter-bits"),
        (&["small"], "--table-codec"),
        (&["none", "--filter-bits", "9"], "one of"),
    ] {
        let error = run(&[&["keyspace", "set", &dir][..], args].concat()).bad(2);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    let hashed = ["keyspace", "create", &dir, "h", "--hashed", "keep", "--filter-bits", "9"];
    assert!(run(&hashed).bad(2).contains("base-filter-bits"));
}
