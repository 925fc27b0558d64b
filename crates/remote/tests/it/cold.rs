//! Cold tables of a store in the object store of the tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use media::Medium as _;
use terrace_remote::testing::{FakeS3, Fault};
use terrace_remote::{Manifest, ObjectMedium, Options};
use terracedb::stats::ColdStatistics;
use terracedb::{Db, ErrorKind, Keyspace, Result, Retry};

/// Keys of a turn, with values of some kilobytes in all.
const KEYS: u64 = 400;

struct Scene {
    server: FakeS3,
    directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { server: FakeS3::new(), directory: tempfile::tempdir().unwrap() }
    }

    fn options(&self) -> Options {
        // Parts of some pages: a table is an upload in parts.
        Options { part_bytes: 16 << 10, names_later: true, ..self.server.options() }
    }

    fn open(&self, after: Duration) -> Result<Db> {
        self.open_with(&self.options(), after)
    }

    fn open_with(&self, options: &Options, after: Duration) -> Result<Db> {
        let medium = Arc::new(ObjectMedium::open(&self.server.location(), options)?);
        let builder = Db::builder(self.directory.path()).memory(64 << 20);
        builder.object_store_medium(medium, after).open()
    }

    /// Keys of the objects of tables, which must be those that the newest manifest names.
    fn tables(&self) -> usize {
        let objects = self.server.objects();
        let newest = objects.iter().rev().find(|(key, _)| key.starts_with("backups/manifest/"));
        let Some((_, newest)) = newest else { return 0 };
        let named = Manifest::decode(newest).unwrap().files;
        let stored = objects.keys().filter(|key| key.starts_with("backups/data/"));
        let stored: Vec<_> = stored.map(|key| key.trim_start_matches("backups/")).collect();
        let mut keys: Vec<_> = named.values().map(|entry| entry.key.as_str()).collect();
        keys.sort_unstable();
        assert_eq!(stored, keys);
        named.keys().filter(|name| name.contains(".table.")).count()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

fn value(turn: u64, number: u64) -> Vec<u8> {
    let mut noise = number << 8 | turn;
    let words = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        noise.to_le_bytes()
    });
    words.take(25).flatten().collect()
}

fn fill(db: &Db, turn: u64) -> Keyspace {
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..KEYS {
        keyspace.put(key(number), value(turn, number)).unwrap();
    }
    db.flush().unwrap();
    keyspace
}

fn must_have(keyspace: &Keyspace, turn: u64, why: &str) {
    let found: Vec<_> = keyspace.iter().unwrap().map(Result::unwrap).collect();
    let wanted: Vec<_> = (0..KEYS).map(|number| (key(number), value(turn, number))).collect();
    let found: Vec<_> = found.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert!(found == wanted, "{why}: {} entries", found.len());
}

fn cold(db: &Db) -> ColdStatistics {
    db.statistics().cold.unwrap()
}

/// Waits until `is_so`.
fn until(db: &Db, is_so: impl Fn(&ColdStatistics) -> bool) {
    for _ in 0..6000 {
        if is_so(&cold(db)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{:?}", cold(db));
}

#[test]
fn a_store_keeps_its_oldest_tables_in_a_bucket() {
    let scene = Scene::new();
    let db = scene.open(Duration::from_millis(1)).unwrap();
    let keyspace = fill(&db, 0);
    until(&db, |cold| cold.tables == 1);
    must_have(&keyspace, 0, "cold");
    assert_eq!(scene.tables(), 1);
    drop((keyspace, db));

    let db = scene.open(Duration::from_secs(3600)).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    let gets = |seen: Vec<terrace_remote::testing::Seen>| {
        let ranges = seen.into_iter().filter(|seen| seen.headers.contains_key("range"));
        ranges.count()
    };
    scene.server.take_seen();
    let many: Vec<_> = (0..40).map(key).collect();
    let found = keyspace.multi_get(&many).unwrap();
    assert!(found.iter().all(|found| matches!(found, Ok(Some(_)))));
    let (ranges, reads) = (gets(scene.server.take_seen()), cold(&db).reads);
    // One by one they would be a request a key, and one for the metadata.
    assert!(ranges < many.len(), "{ranges} requests for neighbours: {reads:?}");
    must_have(&keyspace, 0, "opened again");

    fill(&db, 1);
    must_have(&keyspace, 1, "newer tables above");
    db.compact().unwrap();
    must_have(&keyspace, 1, "merged");
    assert_eq!(cold(&db).tables, 0);
    drop((keyspace, db));
    let db = scene.open(Duration::from_millis(1)).unwrap();
    until(&db, |cold| cold.tables == 1);
    must_have(&db.keyspace("k").unwrap(), 1, "cold again");
    drop(db);
    assert_eq!(scene.tables(), 1, "the obsolete one was removed");
}

#[test]
fn a_store_opens_while_its_bucket_does_not_answer() {
    let scene = Scene::new();
    let db = scene.open(Duration::from_millis(1)).unwrap();
    drop(fill(&db, 0));
    until(&db, |cold| cold.tables == 1);
    drop(db);
    scene.server.take_seen();
    let db = scene.open(Duration::from_secs(3600)).unwrap();
    assert_eq!(scene.server.take_seen(), [], "opening asks for nothing");
    let keyspace = db.keyspace("k").unwrap();
    scene.server.rule(|_| Fault::LostRequest);
    assert_eq!(keyspace.get(b"000007?").unwrap(), None, "its pages are here");
    keyspace.put("000007?", "new").unwrap();
    db.flush().unwrap();
    assert_eq!(keyspace.get(b"000007?").unwrap().as_deref(), Some(&b"new"[..]));
    // Readers that wait for the same names do not wait for one another's tries.
    std::thread::scope(|scope| {
        for number in 0..4 {
            let keyspace = &keyspace;
            scope.spawn(move || {
                let error = keyspace.get(key(number)).unwrap_err();
                assert_eq!(error.when_to_retry(), Retry::Later, "{error}");
                assert!(error.to_string().contains("request to the object store"), "{error}");
            });
        }
    });
    scene.server.no_rule();
    keyspace.delete("000007?").unwrap();
    must_have(&keyspace, 0, "it answers again");
    drop((keyspace, db));

    // Without the pages that the directory keeps, opening needs the bucket.
    let files = std::fs::read_dir(scene.directory.path()).unwrap().map(|file| file.unwrap().path());
    let kept: Vec<_> = files.filter(|path| path.to_string_lossy().ends_with(".kept")).collect();
    assert_eq!(kept.len(), 1);
    std::fs::remove_file(&kept[0]).unwrap();
    scene.server.rule(|_| Fault::LostRequest);
    let error = scene.open(Duration::from_secs(3600)).unwrap_err();
    assert_eq!(error.when_to_retry(), Retry::Later, "{error}");
    assert!(error.to_string().contains(".table"), "{error}");
    scene.server.no_rule();
    let db = scene.open(Duration::from_secs(3600)).unwrap();
    must_have(&db.keyspace("k").unwrap(), 0, "from the bucket alone");
}

/// A closed store is read on, as one whose tables are local: the first read of a cold table asks for the
/// names.
#[test]
fn names_first_needed_after_a_close_are_read() {
    let scene = Scene::new();
    let db = scene.open(Duration::from_millis(1)).unwrap();
    drop(fill(&db, 0));
    until(&db, |cold| cold.tables == 1);
    drop(db);
    let options = Options { reads_ignore_cancel: true, ..scene.options() };
    let db = scene.open_with(&options, Duration::from_secs(3600)).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    scene.server.take_seen();
    db.close().unwrap();
    options.cancel.cancel();
    assert_eq!(scene.server.take_seen(), [], "nobody needed the names");
    must_have(&keyspace, 0, "closed");
}

/// A reader may wait for the names as long as the bucket does not answer; a close does not wait for it.
#[test]
fn a_cancelled_writer_does_not_wait_for_a_reader_of_the_names() {
    let scene = Scene::new();
    let options = Options { reads_ignore_cancel: true, ..scene.options() };
    let medium = ObjectMedium::open(&scene.server.location(), &options).unwrap();
    let (asked, was_asked) = mpsc::channel();
    let (answer, may_answer) = mpsc::channel::<()>();
    let may_answer = Mutex::new(may_answer);
    scene.server.rule(move |_| {
        let _ = asked.send(());
        // Also when the other end is gone.
        let _ = may_answer.lock().unwrap().recv();
        Fault::None
    });
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| medium.list());
        was_asked.recv().unwrap();
        options.cancel.cancel();
        let error = medium.lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        assert!(!reader.is_finished());
        drop(answer);
        assert!(reader.join().unwrap().unwrap().is_empty());
    });
}

/// The process dies at every ninth request, after it had its effect or before; in long runs at each, both
/// ways.
#[test]
fn an_upload_that_dies_at_any_request_loses_nothing() {
    let (ways, step) = match std::env::var_os("TERRACE_LONG") {
        Some(_) => (0..2, 1),
        None => (0..1, 9),
    };
    for way in ways {
        let mut last = 0;
        loop {
            let scene = Scene::new();
            let db = scene.open(Duration::from_millis(1)).unwrap();
            let count = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&count);
            scene.server.rule(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
                number if number < last => Fault::None,
                number if number == last && last / step % 2 == way => Fault::LostAnswer,
                _ => Fault::LostRequest,
            });
            fill(&db, 0);
            until(&db, |cold| cold.tables == 1 || cold.failures > 0);
            let is_over = cold(&db).tables == 1;
            drop(db);
            scene.server.no_rule();
            let why = format!("request {last}");
            let db = scene.open(Duration::from_millis(1)).unwrap();
            assert!(db.recovery().damaged_tables.is_empty(), "{why}: {:?}", db.recovery());
            must_have(&db.keyspace("k").unwrap(), 0, &why);
            fill(&db, 1);
            db.compact().unwrap();
            until(&db, |cold| cold.tables == 1);
            must_have(&db.keyspace("k").unwrap(), 1, &why);
            drop(db);
            drop(scene.open(Duration::from_millis(1)).unwrap());
            if is_over {
                break;
            }
            last += step;
        }
        assert!(last > 9, "{last} requests");
    }
}
