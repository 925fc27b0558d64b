//! A store is the directory that was opened: whatever happens to its path, no acknowledged write goes
//! elsewhere, and none is acknowledged once the directory is gone.

use std::fs;
use std::path::Path;

use base::ErrorKind;
use terracedb::tools::Backup;
use terracedb::{Db, Durability, Keyspace, WriteOptions};

use crate::alone;
use crate::common::{self, child};

const SYNC: WriteOptions = WriteOptions::new().durability(Durability::Sync);

fn open(path: impl AsRef<Path>) -> (Db, Keyspace) {
    let db = Db::builder(path).memory(common::MEMORY).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    (db, keyspace)
}

/// Writes and syncs so much that the log needs new segments, and tables and a manifest are written.
fn write_much(db: &Db, keyspace: &Keyspace, value: &str) {
    let filling = vec![b'x'; 1 << 20];
    for number in 0..24u32 {
        keyspace.put(number.to_be_bytes(), &filling).unwrap();
        if number % 8 == 0 {
            db.flush().unwrap();
        }
    }
    keyspace.put_opt("key", value, &SYNC).unwrap();
}

fn must_hold(path: &Path, value: &str) {
    let (_db, keyspace) = open(path);
    assert_eq!(keyspace.get("key").unwrap().unwrap(), value, "{}", path.display());
}

/// Child: opens two stores by the same relative path from two working directories, and goes on with both.
#[test]
fn changes_the_working_directory() {
    let Some(root) = child::directory() else { return };
    let work_in = |name: &str| std::env::set_current_dir(root.join(name)).unwrap();
    work_in("one");
    let (one, one_keyspace) = open("store");
    let backups = Backup::open("backups").unwrap();
    work_in("two");
    let (two, two_keyspace) = open("store");
    write_much(&one, &one_keyspace, "one");
    write_much(&two, &two_keyspace, "two");
    work_in("one");
    write_much(&two, &two_keyspace, "two");
    work_in("two");
    backups.create(&one, "one").unwrap();
    child::say("done");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_relative_path_means_one_store_whatever_the_working_directory() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| root.path().join(name));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&two).unwrap();
    let test = "identity::changes_the_working_directory";
    child::one_life(test, root.path(), 1, std::time::Duration::ZERO);
    must_hold(&one.join("store"), "one");
    must_hold(&two.join("store"), "two");
    assert!(!two.join("backups").exists());
    let backups = Backup::open(one.join("backups")).unwrap();
    backups.restore(backups.list().unwrap().backups[0].id, root.path().join("restored")).unwrap();
    must_hold(&root.path().join("restored"), "one");
}

#[test]
fn a_moved_store_is_written_where_it_is_and_its_replacement_is_a_store_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let [place, moved, link] = ["store", "moved", "link"].map(|name| root.path().join(name));
    fs::create_dir(&place).unwrap();
    std::os::unix::fs::symlink(&place, &link).unwrap();
    let (db, keyspace) = open(&link);
    fs::rename(&place, &moved).unwrap();
    fs::create_dir(&place).unwrap();
    let (other, other_keyspace) = open(&link);
    write_much(&db, &keyspace, "moved");
    write_much(&other, &other_keyspace, "replacement");
    db.checkpoint(root.path().join("copy")).unwrap();
    drop((keyspace, db, other_keyspace, other));
    must_hold(&moved, "moved");
    must_hold(&root.path().join("copy"), "moved");
    must_hold(&place, "replacement");
}

#[test]
fn no_write_is_acknowledged_once_the_directory_is_removed() {
    let root = tempfile::tempdir().unwrap();
    for (durability, is_replaced) in
        [(Durability::Sync, false), (Durability::Sync, true), (Durability::None, false)]
    {
        let place = root.path().join("store");
        let (db, keyspace) = open(&place);
        keyspace.put_opt("key", "value", &SYNC).unwrap();
        fs::remove_dir_all(&place).unwrap();
        if is_replaced {
            must_not_exist(&place);
        }
        let error = match durability {
            Durability::Sync => keyspace
                .put_opt("key", "lost", &WriteOptions::new().durability(durability))
                .unwrap_err(),
            // Found within some milliseconds.
            _ => (0..)
                .find_map(|_| {
                    keyspace
                        .put_opt("key", "lost", &WriteOptions::new().durability(durability))
                        .err()
                })
                .unwrap(),
        };
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert!(error.to_string().contains("removed by another program"), "{error}");
        assert!(keyspace.put("key", "lost").is_err());
        let text = db.flush().unwrap_err().to_string();
        assert!(text.contains("removed by another program"), "{text}");
        assert_eq!(keyspace.get("other").unwrap(), None, "reads go on");
        drop((keyspace, db));
        if is_replaced {
            fs::remove_dir_all(&place).unwrap();
        }
    }
}

/// Opens another store at `place`.
fn must_not_exist(place: &Path) {
    let (db, keyspace) = open(place);
    keyspace.put_opt("key", "other", &SYNC).unwrap();
    drop((keyspace, db));
}

/// A link at the name of the next segment, manifest or table neither stops an open nor is written through.
#[test]
fn a_link_at_the_name_of_a_next_file_gives_way() {
    let root = tempfile::tempdir().unwrap();
    let (place, precious) = (root.path().join("store"), root.path().join("precious"));
    fs::write(&precious, "1234").unwrap();
    let (db, keyspace) = open(&place);
    write_much(&db, &keyspace, "value");
    drop((keyspace, db));
    let mut links = 0;
    for entry in fs::read_dir(&place).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        for next in 1..9 {
            if let Some(next) = next_name(&name, next).filter(|name| !place.join(name).exists()) {
                std::os::unix::fs::symlink(&precious, place.join(next)).unwrap();
                links += 1;
            }
        }
    }
    assert!(links > 16, "{links}");
    for value in ["first", "second"] {
        let (db, keyspace) = open(&place);
        write_much(&db, &keyspace, value);
        drop((keyspace, db));
        must_hold(&place, value);
    }
    assert_eq!(fs::read(&precious).unwrap(), b"1234");
}

/// `name` with its last number raised by `by`; none if it has no number.
fn next_name(name: &str, by: u64) -> Option<String> {
    let end = name.rfind(|c: char| c.is_ascii_hexdigit() && c.is_ascii_digit())? + 1;
    let start = name[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    let number = name[start..end].parse::<u64>().ok()?.checked_add(by)?;
    let width = end - start;
    Some(format!("{}{number:0width$}{}", &name[..start], &name[end..]))
}
