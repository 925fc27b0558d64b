//! `dump`, and `load` of a dump: all kinds of keyspaces, expiries, merged values; damage and ends too early.

use std::process::Stdio;

use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::{Db, EntryOptions, KeyspaceOptions};

use crate::support::*;

fn dump(store: &str, file: &str, args: &[&str]) -> Run {
    terrace(&[&["dump", store, file][..], &MEMORY, args].concat())
}

fn load(store: &str, file: &str, args: &[&str]) -> Run {
    terrace(&[&["load", store, file][..], &MEMORY, args].concat())
}

fn scan(store: &str, keyspace: &str) -> String {
    let args = ["scan", store, "--keyspace", keyspace];
    let out = terrace(&[&args[..], &MEMORY].concat()).good();
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// A store with keyspaces of several kinds, in memtables and tables.
fn various(scratch: &Scratch) -> String {
    let dir = scratch.arg("various");
    let db = Db::builder(&dir).memory(64 << 20).open().unwrap();
    let plain = db.create_keyspace("plain").unwrap();
    for number in 0..3000u32 {
        plain.put(format!("key {number}"), format!("value {number}").repeat(20)).unwrap();
    }
    plain.put("long", vec![b'l'; 300_000]).unwrap();
    plain.delete("key 7").unwrap();
    db.flush().unwrap();
    plain.delete_range("key 100".."key 101").unwrap();
    let later = std::time::UNIX_EPOCH + std::time::Duration::from_millis(4_102_444_800_123);
    plain.put_opt("session", "ada", &EntryOptions::new().expires_at(later)).unwrap();
    plain
        .put_opt("session long", vec![b's'; 20_000], &EntryOptions::new().expires_at(later))
        .unwrap();
    plain.put_opt("gone", "x", &EntryOptions::new().ttl(std::time::Duration::ZERO)).unwrap();
    let adding = KeyspaceOptions::new().merge_operator("terrace.i64-add.1");
    let counters = db.create_keyspace_opt("counters", &adding).unwrap();
    for number in 0..1000i64 {
        counters.merge(format!("c{}", number % 10), number.to_le_bytes()).unwrap();
    }
    let keep = KeyspaceOptions::new().hashed(HashedPolicy::Keep).base_filter_bits(2);
    let photos = db.create_keyspace_opt("photos", &keep).unwrap();
    for number in 0..500 {
        photos.put(format!("photo {number}"), format!("place {number}")).unwrap();
    }
    photos.put_opt("photo 0", "short-lived", &EntryOptions::new().expires_at(later)).unwrap();
    let window = HashedPolicy::Window { bytes: 1_000_000_001, discard: Discard::Clock };
    let seen = db.create_keyspace_opt("seen", &KeyspaceOptions::new().hashed(window)).unwrap();
    seen.put("a", "1").unwrap();
    db.create_keyspace("empty").unwrap();
    db.close().unwrap();
    dir
}

const KEYSPACES: [&str; 5] = ["plain", "counters", "photos", "seen", "empty"];

/// The options of every keyspace, and the expiries of a few keys.
fn facts(dir: &str) -> Vec<String> {
    let db = Db::builder(dir).memory(64 << 20).open().unwrap();
    let mut facts = Vec::new();
    for keyspace in db.keyspaces() {
        facts.push(format!("{} {:?}", keyspace.name(), keyspace.options()));
    }
    let plain = db.keyspace("plain").unwrap();
    for key in ["session", "session long", "key 1", "gone"] {
        facts.push(format!("{key}: {:?}", plain.expiry(key).unwrap()));
    }
    let photos = db.keyspace("photos").unwrap();
    facts.push(format!(
        "{:?} {:?}",
        photos.expiry("photo 0").unwrap(),
        photos.expiry("photo 1").unwrap()
    ));
    facts
}

#[test]
fn a_store_with_keyspaces_of_all_kinds_is_dumped_and_loaded() {
    let scratch = Scratch::new();
    let (dir, file, copy) = (various(&scratch), scratch.arg("dump"), scratch.arg("copy"));
    let out = json_lines(&dump(&dir, &file, &["--json"]).good()).remove(0);
    // 3,000 less key 7, less those from `key 100` to `key 101`: key 100, key 1000 to 1009; three others.
    let entries = 3000 - 1 - 11 + 3 + 10 + 500 + 1;
    assert_eq!((&out["keyspaces"], &out["entries"]), (&5.into(), &entries.into()));
    let out = json_lines(&load(&copy, &file, &["--json"]).good()).remove(0);
    assert_eq!((&out["keyspaces"], &out["entries"]), (&5.into(), &entries.into()));
    for keyspace in KEYSPACES {
        assert_eq!(scan(&copy, keyspace), scan(&dir, keyspace), "{keyspace}");
    }
    assert_eq!(facts(&copy), facts(&dir));
    // A counter goes on from its merged value.
    let db = Db::builder(&copy).memory(64 << 20).open().unwrap();
    let counters = db.keyspace("counters").unwrap();
    let before = i64::from_le_bytes(counters.get("c3").unwrap().unwrap()[..].try_into().unwrap());
    counters.merge("c3", 5i64.to_le_bytes()).unwrap();
    assert_eq!(counters.get("c3").unwrap().unwrap()[..], (before + 5).to_le_bytes());
    drop((counters, db));
    // The keyspaces of a dump are new ones.
    let error = load(&copy, &file, &[]).bad(2);
    assert!(error.contains("`plain`") && error.contains("without the keyspaces"), "{error}");
    let error = dump(&dir, &file, &[]).bad(2);
    assert!(error.contains("already exists"), "{error}");
}

#[test]
fn keyspaces_are_chosen_and_dumps_go_through_pipes() {
    let scratch = Scratch::new();
    let (dir, copy) = (various(&scratch), scratch.arg("copy"));
    let mut from = command([&["dump", &dir, "-"][..], &MEMORY].concat());
    let mut from = from.stdout(Stdio::piped()).spawn().unwrap();
    let mut to = command([&["load", &copy, "-", "--keyspace", "photos"][..], &MEMORY].concat());
    let to = to.stdin(from.stdout.take().unwrap()).output().unwrap();
    assert!(from.wait().unwrap().success());
    assert_eq!(Run::of(to).good(), "500 entries in 1 keyspace, 0 tables of 0 B\n");
    assert_eq!(scan(&copy, "photos"), scan(&dir, "photos"));
    let file = scratch.arg("one");
    let out = dump(&dir, &file, &["--keyspace", "seen", "--keyspace", "counters"]).good();
    assert_eq!(out, "11 entries of 2 keyspaces\n");
    assert!(load(&copy, &file, &["--dry-run"]).good().starts_with("11 entries in 2 keyspaces"));
    load(&copy, &file, &[]).good();
    assert_eq!(scan(&copy, "counters"), scan(&dir, "counters"));
    let error = load(&scratch.arg("other"), &file, &["--keyspace", "none"]).bad(2);
    assert!(error.contains("a keyspace of the dump"), "{error}");
    assert!(!scratch.path("other").exists());
    let error = load(&copy, &file, &["--ttl", "1h"]).bad(2);
    assert!(error.contains("--ttl"), "{error}");
}

/// Damage and an early end are found before anything is added; from a pipe everything that was added is
/// removed again.
#[test]
fn a_damaged_or_cut_dump_leaves_nothing() {
    let scratch = Scratch::new();
    let (dir, file) = (various(&scratch), scratch.arg("dump"));
    dump(&dir, &file, &[]).good();
    let whole = fs::read(&file).unwrap();
    let store = scratch.arg("store");
    terrace(&[&["put", &store, "mine", "stays"][..], &MEMORY].concat()).good();
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let cases = [
        (flipped, "checksum of a frame"),
        (whole[..whole.len() - 1].to_vec(), "not complete"),
        (whole[..whole.len() / 2].to_vec(), "not complete"),
        ([&whole[..], b"x"].concat(), "more bytes"),
    ];
    for (bytes, expected) in cases {
        let damaged = scratch.arg("damaged");
        fs::write(&damaged, &bytes).unwrap();
        for (path, new) in [(&*damaged, false), ("-", false), ("-", true), (&*damaged, true)] {
            let to = if new { scratch.arg("new") } else { store.clone() };
            let mut command = command([&["load", &to, path][..], &MEMORY].concat());
            if path == "-" {
                command.stdin(fs::File::open(&damaged).unwrap());
            }
            let error = Run::of(command.output().unwrap()).bad(1);
            assert!(error.contains(expected) && error.contains("frame "), "{error}");
            assert!(!scratch.path("new").exists(), "{expected}: a new store was left");
            let names = terrace(&[&["keyspace", "list", &store][..], &MEMORY].concat()).good();
            assert_eq!(names.lines().count(), 1, "{expected}, {path}: {names}");
            assert_eq!(scan(&store, "default"), "mine\tstays");
        }
    }
}

#[test]
fn keys_that_cannot_be_merged_end_a_dump_or_are_skipped() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let db = Db::builder(&dir).memory(64 << 20).open().unwrap();
    let adding = KeyspaceOptions::new().merge_operator("terrace.i64-add.1");
    let counters = db.create_keyspace_opt("default", &adding).unwrap();
    counters.merge("over", i64::MAX.to_le_bytes()).unwrap();
    counters.merge("over", 1i64.to_le_bytes()).unwrap();
    counters.merge("sound", 1i64.to_le_bytes()).unwrap();
    db.close().unwrap();
    drop((counters, db));
    let file = scratch.arg("dump");
    let run = dump(&dir, &file, &[]);
    assert!(run.code != 0 && run.err.contains("over"), "{}", run.err);
    assert!(!scratch.path("dump").exists(), "no half of a dump");
    let run = dump(&dir, &file, &["--skip-errors", "--json"]);
    let out = json_lines(&run.out).remove(0);
    assert_eq!((run.code, &out["entries"], &out["skipped"]), (1, &1.into(), &1.into()));
}
