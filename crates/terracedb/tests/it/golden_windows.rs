//! A store with both kinds of windows and a hashed keyspace with filters over its base, as of the versions of
//! the manifest and the log that these need: it opens, has the same contents, and checks the same. To write
//! another: `TERRACE_GOLDEN=FILE cargo test -p terracedb --test it golden_windows -- --ignored`.
//!
//! The sixth golden store is of the last build that refused manifests above version 4. Its command `terrace`
//! made it: a window of each kind that retains entries, a hashed keyspace with filters and an ordered one.

use std::sync::Arc;

use media::{Access, Buf, Medium, MemoryMedium, Purpose};
use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::{Db, Durability, Keyspace, KeyspaceOptions, WriteOptions};

use crate::common::{self, Model, assert_same};
use crate::golden_store;

const WINDOWS: &str = include_str!("../../golden/store-5.pages");
const SIXTH: &str = include_str!("../../golden/store-6.pages");

/// The keyspaces, in the order of [`cells`].
fn opened(medium: &Arc<dyn Medium>) -> (Db, [Keyspace; 3]) {
    let db = common::stepped(medium, 1).open().unwrap();
    let window = |discard| HashedPolicy::Window { bytes: 1 << 20, discard };
    let options = [
        ("fifo", KeyspaceOptions::new().hashed(window(Discard::Fifo))),
        ("clock", KeyspaceOptions::new().hashed(window(Discard::Clock))),
        ("filtered", KeyspaceOptions::new().hashed(HashedPolicy::Keep).base_filter_bits(8)),
    ];
    let open = |(name, options): (&str, KeyspaceOptions)| {
        db.open_or_create_keyspace_opt(name, &options).unwrap()
    };
    let keyspaces = options.map(open);
    (db, keyspaces)
}

fn entry(number: usize) -> (Vec<u8>, Vec<u8>) {
    (format!("key{number:04}").into_bytes(), format!("value {number}").into_bytes())
}

/// The contents of each keyspace. The last entries are in the log, behind a gap of writes that were lost.
fn cells() -> [Model; 3] {
    let mut all = [0, 100, 200].map(|from| (from..from + 60).map(entry).collect::<Model>());
    for (number, cells) in all.iter_mut().enumerate() {
        cells.remove(&entry(100 * number).0);
        cells.extend([entry(100 * number + 90)]);
    }
    all
}

/// The files of the store, as a crash leaves them.
fn write() -> String {
    let memory = Arc::new(MemoryMedium::new());
    let (db, keyspaces) = opened(&(Arc::clone(&memory) as Arc<dyn Medium>));
    for half in [0, 30] {
        for (number, keyspace) in keyspaces.iter().enumerate() {
            for number in (100 * number..).skip(half).take(30) {
                let (key, value) = entry(number);
                keyspace.put(key, value).unwrap();
            }
        }
        db.flush().unwrap();
    }
    db.compact().unwrap();
    let unlogged = WriteOptions::new().durability(Durability::Unlogged);
    keyspaces[0].put_opt("lost", "in the crash", &unlogged).unwrap();
    for (number, keyspace) in keyspaces.iter().enumerate() {
        keyspace.delete(entry(100 * number).0).unwrap();
        let (key, value) = entry(100 * number + 90);
        keyspace.put(key, value).unwrap();
    }
    db.sync().unwrap();
    // Before the close, which flushes the unlogged write.
    golden_store::pages(&memory)
}

fn check(medium: &Arc<dyn Medium>, why: &str) {
    for round in 0..2 {
        let report = terracedb::tools::check(medium, &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "{why}, round {round}: {report:?}");
        let (db, keyspaces) = opened(medium);
        for (keyspace, cells) in keyspaces.iter().zip(cells()) {
            assert_same(keyspace, &cells, &format!("{why}, round {round}, {}", keyspace.name()));
            assert_eq!(keyspace.get("lost").unwrap(), None);
        }
        db.flush().unwrap();
        db.compact().unwrap();
    }
}

#[test]
fn the_fifth_store_opens_and_a_store_of_this_build_answers_as_it_does() {
    check(&golden_store::medium(WINDOWS), "golden");
    check(&golden_store::medium(&write()), "of this build");
}

/// The format version in the newest manifest.
fn manifest_version(medium: &Arc<dyn Medium>) -> u32 {
    let files = medium.list().unwrap().into_iter().map(|file| file.name);
    let newest = files.filter(|name| name.starts_with("manifest-")).max().unwrap();
    let file = medium.open(&newest, Access::Bytes).unwrap();
    let (page, read) = file.read(0, Buf::pages(1), Purpose::Scrub);
    read.unwrap();
    u32::from_le_bytes(page[8..12].try_into().unwrap())
}

/// An upgrade: the old store opens with its contents, and from then on the old build refuses it, because its
/// manifest has a newer version.
#[test]
fn the_sixth_store_opens_and_is_refused_by_its_build_afterwards() {
    let medium = golden_store::medium(SIXTH);
    assert_eq!(manifest_version(&medium), 4);
    for round in 0..2 {
        let report = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "round {round}: {report:?}");
        let db = common::stepped(&medium, 1).open().unwrap();
        let names = ["clock", "priority", "filtered", "ordered"];
        for (name, first) in names.into_iter().zip((0..).step_by(100)) {
            let keyspace = db.keyspace(name).unwrap();
            let policy = keyspace.hashed_policy().map(ToString::to_string);
            let numbers = (first + 1..first + 18).chain([first + 90]);
            let cells: Model = numbers.map(entry).collect();
            assert_same(&keyspace, &cells, &format!("round {round}, {name}, {policy:?}"));
        }
        assert!(manifest_version(&medium) > 4, "round {round}");
        db.flush().unwrap();
        db.compact().unwrap();
    }
}

#[test]
#[ignore = "writes a file for `golden`"]
fn write_the_fifth_store() {
    let path = std::env::var("TERRACE_GOLDEN").expect("TERRACE_GOLDEN names the file to write");
    std::fs::write(path, write()).unwrap();
}
