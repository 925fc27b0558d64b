//! A store, a server, and the backups between them.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use terrace_remote::testing::FakeS3;
use terrace_remote::{ObjectMedium, Options};
use terracedb::tools::Backup;
use terracedb::{Db, Result};

pub(crate) use terracedb::ErrorKind;

/// Length of the parts in tests, bytes: short, so that tables of a few pages have several.
pub(crate) const PART: u64 = 8192;

/// A store and a server.
pub(crate) struct Scene {
    pub(crate) server: FakeS3,
    pub(crate) directory: TempDir,
    pub(crate) db: Db,
}

/// Opens the store in `path`, or creates it.
pub(crate) fn open(path: PathBuf) -> Db {
    Db::builder(path).memory(64 << 20).open().unwrap()
}

impl Scene {
    /// A store with some tables.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path().join("store"));
        db.create_keyspace("k").unwrap();
        let scene = Self { server: FakeS3::new(), directory, db };
        scene.fill(0);
        scene.fill(1);
        scene
    }

    /// Adds a table with the keys of `turn`.
    pub(crate) fn fill(&self, turn: u64) {
        let keyspace = self.db.keyspace("k").unwrap();
        for number in 0..300u64 {
            // Not compressible.
            let mut noise = (turn << 32) + number + 1;
            let words = std::iter::repeat_with(|| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                noise.to_le_bytes()
            });
            let value: Vec<u8> = words.take(12).flatten().collect();
            keyspace.put(key(turn, number), value).unwrap();
        }
        self.db.flush().unwrap();
    }

    pub(crate) fn options(&self) -> Options {
        Options { part_bytes: PART, ..self.server.options() }
    }

    pub(crate) fn open(&self, options: &Options) -> Result<Backup> {
        let medium = ObjectMedium::open(&self.server.location(), options)?;
        Ok(Backup::on_medium(Arc::new(medium)))
    }

    /// The backups, as a process sees them that begins now.
    pub(crate) fn backups(&self) -> Backup {
        self.open(&self.options()).unwrap()
    }

    pub(crate) fn readers(&self) -> Backup {
        self.open(&Options { read_only: true, ..self.options() }).unwrap()
    }

    /// Makes a backup in a process of its own.
    pub(crate) fn create(&self, label: &str) -> Result<u64> {
        self.open(&self.options())?.create(&self.db, label).map(|report| report.id)
    }

    /// Verifies backup `id`, restores it, and compares the restored store with the turns `0..turns`.
    pub(crate) fn must_restore(&self, id: u64, turns: u64) {
        let report = self.readers().verify(id).unwrap();
        assert!(report.is_clean(), "{report:?}");
        let path = self.directory.path().join(format!("restored-{id}"));
        let _ = std::fs::remove_dir_all(&path);
        self.readers().restore(id, &path).unwrap();
        let db = open(path);
        let keyspace = db.keyspace("k").unwrap();
        for turn in 0..=turns {
            for number in [0, 150, 299] {
                let key = key(turn, number);
                let here = self.db.keyspace("k").unwrap().get(&key).unwrap();
                let there = keyspace.get(&key).unwrap();
                assert_eq!(there.is_some(), turn < turns, "{turn} {number}");
                assert!(turn >= turns || here == there, "{turn} {number}");
            }
        }
    }

    /// Fails if the bucket has objects or uploads that nothing names.
    pub(crate) fn must_be_swept(&self) {
        let objects = self.server.objects();
        let newest = objects.iter().rev().find(|(key, _)| key.starts_with("backups/manifest/"));
        let newest = terrace_remote::Manifest::decode(newest.unwrap().1).unwrap();
        let named: Vec<String> =
            newest.files.values().map(|entry| format!("backups/{}", entry.key)).collect();
        let stored: Vec<_> =
            objects.keys().filter(|key| key.starts_with("backups/data/")).cloned().collect();
        let mut sorted = named;
        sorted.sort();
        assert_eq!(stored, sorted);
        assert_eq!(self.server.uploads(), []);
    }
}

fn key(turn: u64, number: u64) -> Vec<u8> {
    format!("{turn:04}-{number:06}").into_bytes()
}
