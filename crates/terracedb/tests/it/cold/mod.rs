//! Cold tables: the oldest tables live in an object store, and nothing else about the store changes.

mod crashes;
mod object_store;
mod out_of_reach;

use std::sync::Arc;
use std::time::Duration;

use base::{ErrorKind, Rng};
use media::{Fault, Faulty, FileMedium, FileOptions, Medium, MemoryMedium, OpKind, Rule};
use terracedb::tools::CheckpointOptions;
use terracedb::{Builder, Db, Keyspace};

use crate::common::{self, Model, Stepped, assert_same, assert_tidy, key, value};

/// A table becomes cold after this long.
const AFTER: Duration = Duration::from_secs(3600);

/// The files with `part` in their names, without the pages that are kept of cold tables.
fn names(medium: &dyn Medium, part: &str) -> Vec<String> {
    let names = medium.list().unwrap().into_iter().map(|file| file.name);
    names.filter(|name| name.contains(part) && media::kept_of(name).is_none()).collect()
}

/// The cold tables that the medium has pages of.
fn kept(medium: &dyn Medium) -> Vec<String> {
    let names = medium.list().unwrap().into_iter().map(|file| file.name);
    names.filter_map(|name| media::kept_of(&name).map(str::to_owned)).collect()
}

/// Writes a table with every key.
fn fill(db: &Db, rng: &mut Rng, model: &mut Model) -> Keyspace {
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..600 {
        let (key, value) = (key(number), value(rng, &key(number), 0));
        keyspace.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    db.flush().unwrap();
    keyspace
}

/// A store and its object store, both in memory.
struct Scene {
    stepped: Stepped,
    rng: Rng,
    local: Arc<Faulty>,
    remote: Arc<Faulty>,
    model: Model,
}

impl Scene {
    fn new() -> Self {
        let (rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        let (local, remote) = (Arc::new(Faulty::new(seed)), Arc::new(Faulty::new(seed)));
        Self { stepped: Stepped::new(seed), rng, local, remote, model: Model::new() }
    }

    fn builder(&self) -> Builder {
        let builder = self.stepped.on(Arc::clone(&self.local) as _);
        builder.object_store_medium(Arc::clone(&self.remote) as _, AFTER)
    }

    fn open(&self) -> Db {
        self.builder().open().unwrap()
    }

    /// A store with one cold table, which has all keys.
    fn cold() -> (Self, Db, Keyspace) {
        let mut scene = Self::new();
        let db = scene.open();
        let keyspace = fill(&db, &mut scene.rng, &mut scene.model);
        scene.pass();
        assert_eq!(cold(&db), (1, 1));
        (scene, db, keyspace)
    }

    /// Lets the time pass after which tables are cold, and the work be done.
    fn pass(&self) {
        self.stepped.work(400);
        for _ in 0..4 {
            self.stepped.pass(AFTER);
            self.stepped.work(400);
        }
    }
}

/// Cold tables, and all tables.
fn cold(db: &Db) -> (u64, usize) {
    let statistics = db.statistics();
    let tables = statistics.keyspaces.iter().map(|keyspace| keyspace.tables).sum();
    (statistics.cold.unwrap().tables, tables)
}

#[test]
fn the_oldest_tables_become_cold_and_read_as_before() {
    let mut scene = Scene::new();
    let db = scene.open();
    let keyspace = fill(&db, &mut scene.rng, &mut scene.model);
    assert_eq!(cold(&db), (0, 1));
    scene.stepped.pass(AFTER / 2);
    scene.stepped.work(100);
    assert_eq!(cold(&db), (0, 1), "not yet");
    scene.pass();
    assert_eq!(cold(&db), (1, 1));
    for number in 200..210 {
        keyspace.put(key(number), "newer").unwrap();
        scene.model.insert(key(number), b"newer".to_vec());
    }
    db.flush().unwrap();
    assert_eq!(cold(&db), (1, 2), "a newer table is local");
    let statistics = db.statistics().cold.unwrap();
    assert_eq!((statistics.uploads, statistics.failures), (1, 0), "{:?}", statistics.error);
    assert_eq!(statistics.uploaded_bytes, statistics.bytes);
    assert_eq!(
        (names(&*scene.local, ".table").len(), names(&*scene.remote, ".table").len()),
        (1, 1)
    );
    assert_same(&keyspace, &scene.model, "with a cold table");
    drop((keyspace, db));

    // With an empty cache.
    scene.stepped = Stepped::new(1);
    let db = scene.open();
    assert_eq!((cold(&db), db.recovery().orphans_removed), ((1, 2), 0));
    let keyspace = db.keyspace("k").unwrap();
    assert_same(&keyspace, &scene.model, "opened again");
    let reads = db.statistics().cold.unwrap().reads;
    assert!(reads.reads > 0 && reads.bytes > 0 && reads.failures == 0, "{reads:?}");
    assert_same(&keyspace, &scene.model, "once more");
    assert_eq!(db.statistics().cold.unwrap().reads, reads, "the cache has the pages");

    // A merge reads the cold table, replaces it, and it is removed from the object store.
    fill(&db, &mut scene.rng, &mut scene.model);
    db.compact().unwrap();
    scene.stepped.work(400);
    assert_eq!(cold(&db), (0, 1));
    scene.stepped.pass(Duration::from_secs(60));
    assert_eq!(names(&*scene.remote, ".table"), Vec::<String>::new());
    assert_eq!(db.statistics().cold.unwrap().removals, 1);
    assert_eq!(kept(&*scene.local), Vec::<String>::new());
    assert_tidy(&db, &*scene.local, "after the merge");
    assert_same(&keyspace, &scene.model, "after the merge");
    scene.pass();
    assert_eq!(cold(&db), (1, 1));
}

#[test]
fn without_its_object_store_a_store_with_cold_tables_is_refused() {
    let (scene, db, _) = Scene::cold();
    drop(db);
    let error = scene.stepped.on(Arc::clone(&scene.local) as _).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("[remote] url"), "{error}");
    scene.open();
}

#[test]
fn an_object_store_that_does_not_answer_harms_no_local_data() {
    let mut scene = Scene::new();
    let db = scene.open();
    let keyspace = fill(&db, &mut scene.rng, &mut scene.model);
    for on in [OpKind::Write, OpKind::Sync, OpKind::Names, OpKind::Read] {
        scene.remote.inject(Rule::new(on, Fault::Io).times(u64::MAX)).unwrap();
        scene.pass();
        assert_eq!(cold(&db), (0, 1), "{on:?}");
        let statistics = db.statistics().cold.unwrap();
        assert!(statistics.failures > 0 && statistics.error.is_some(), "{on:?}: {statistics:?}");
        assert_same(&keyspace, &scene.model, "while uploads fail");
        scene.remote.heal();
    }
    scene.pass();
    assert_eq!(cold(&db), (1, 1));
    assert!(db.statistics().cold.unwrap().error.is_none(), "it works again");
    assert_eq!(names(&*scene.remote, ".table").len(), 1, "the remains are gone");

    // Reads of the cold table fail, and writes and reads of newer data go on.
    drop((keyspace, db));
    // With an empty cache.
    scene.stepped = Stepped::new(1);
    let db = scene.open();
    let keyspace = db.keyspace("k").unwrap();
    keyspace.put("new", "value").unwrap();
    scene.remote.inject(Rule::new(OpKind::Read, Fault::Io).times(u64::MAX)).unwrap();
    keyspace.get(key(5)).unwrap_err();
    assert_eq!(keyspace.get("new").unwrap().as_deref(), Some(&b"value"[..]));
    scene.remote.heal();
    scene.model.insert(b"new".to_vec(), b"value".to_vec());
    assert_same(&keyspace, &scene.model, "the object store answers again");
}

#[test]
fn copies_of_a_store_have_its_cold_tables() {
    let (scene, db, _) = Scene::cold();
    let directory = tempfile::tempdir().unwrap();
    let (place, repository) = (directory.path().join("copy"), directory.path().join("backups"));
    db.checkpoint_opt(&place, &CheckpointOptions::default()).unwrap();
    let backups = terracedb::tools::Backup::open(&repository).unwrap();
    let id = backups.create(&db, "").unwrap().id;
    let restored = directory.path().join("restored");
    backups.restore(id, &restored).unwrap();
    drop(db);
    let objects = names(&*scene.remote, "");
    for path in [place, restored] {
        let medium = FileMedium::open(&path, FileOptions::default()).unwrap();
        let checked = terracedb::tools::check(&(Arc::new(medium) as _), &mut |_, _| ()).unwrap();
        assert!(checked.is_clean(), "{checked:?}");
        let copy = Db::builder(&path).memory(common::MEMORY).open().unwrap();
        assert_same(&copy.keyspace("k").unwrap(), &scene.model, "a copy without an object store");
    }
    assert_eq!(names(&*scene.remote, ""), objects);
}

#[test]
fn a_damaged_local_table_stays_local() {
    let mut scene = Scene::new();
    let db = scene.open();
    fill(&db, &mut scene.rng, &mut scene.model);
    let table = names(&*scene.local, ".table").remove(0);
    scene.local.flip(&table, 4096 + 100, 1).unwrap();
    scene.pass();
    assert_eq!((cold(&db), names(&*scene.remote, ".table").len()), ((0, 1), 0));
    assert!(db.statistics().damages > 0);
    assert_eq!(names(&*scene.local, ".table"), [table]);
}

#[test]
fn a_prefix_belongs_to_one_store() {
    let (scene, db, keyspace) = Scene::cold();
    let objects = names(&*scene.remote, "");
    let other = Arc::new(MemoryMedium::new());
    drop((keyspace, db));
    let builder = scene.stepped.on(Arc::clone(&other) as _);
    let builder = builder.object_store_medium(Arc::clone(&scene.remote) as _, AFTER);
    let db = builder.open().unwrap();
    let (mut rng, mut model) = (Rng::new(1), Model::new());
    let keyspace = fill(&db, &mut rng, &mut model);
    scene.pass();
    let statistics = db.statistics().cold.unwrap();
    assert_eq!((statistics.tables, statistics.failures), (0, 1), "it is not tried again");
    let error = statistics.error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_same(&keyspace, &model, "all tables stay local");
    drop((keyspace, db));
    assert_eq!(names(&*scene.remote, ""), objects);

    // Nor may anything else be there.
    let files = Arc::new(MemoryMedium::new());
    files.insert("photo.jpg", vec![1]).unwrap();
    let builder = scene.stepped.on(other);
    let db = builder.object_store_medium(Arc::clone(&files) as _, AFTER).open().unwrap();
    scene.pass();
    assert!(db.statistics().cold.unwrap().error.unwrap().to_string().contains("photo.jpg"));
    assert_eq!(names(&*files, ""), ["photo.jpg"]);
}

/// A copy of the directory names the same objects. Once one of the two has claimed the prefix, the other is
/// refused, so that it removes none of them.
#[test]
fn a_copy_of_the_directory_does_not_share_the_prefix() {
    let (mut scene, db, keyspace) = Scene::cold();
    drop((keyspace, db));
    let copied = scene.local.process_death_image().unwrap();
    let db = scene.open();
    let keyspace = fill(&db, &mut scene.rng, &mut scene.model);
    db.compact().unwrap();
    scene.pass();
    assert_eq!(cold(&db), (1, 1));
    drop((keyspace, db));

    let original = std::mem::replace(&mut scene.local, Arc::new(Faulty::over(&copied, 1).unwrap()));
    let objects = names(&*scene.remote, "");
    let mut old = Model::new();
    let db = scene.open();
    let replaced = db.keyspace("k").unwrap().get(key(5)).unwrap_err();
    assert_eq!(replaced.kind(), ErrorKind::Corrupt, "its object was replaced: {replaced}");
    let keyspace = db.open_or_create_keyspace("new").unwrap();
    keyspace.put("a", "b").unwrap();
    db.flush().unwrap();
    scene.pass();
    let error = db.statistics().cold.unwrap().error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(names(&*scene.remote, ""), objects);
    old.insert(b"a".to_vec(), b"b".to_vec());
    assert_same(&keyspace, &old, "its local tables");
    drop((keyspace, db));
    scene.local = original;
    let db = scene.open();
    assert_same(&db.keyspace("k").unwrap(), &scene.model, "the original");
}
