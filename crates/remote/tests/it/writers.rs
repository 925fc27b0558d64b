//! Two writers of one prefix, old lists, and lost hints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_remote::testing::Fault;
use terrace_remote::{ObjectMedium, Options};
use terracedb::tools::Backup;

use crate::support::*;

/// While one writer sends its files, another one makes a whole backup: the first is refused by name, and the
/// second is whole.
#[test]
fn of_two_writers_the_later_one_wins_and_the_other_is_named() {
    let scene = Arc::new(Scene::new());
    let (later, is_done) = (Arc::clone(&scene), Arc::new(AtomicBool::new(false)));
    let (begun, inner) = (Arc::new(AtomicBool::new(false)), Arc::clone(&is_done));
    let path = scene.directory.path().join("other");
    let other = open(path);
    other.create_keyspace("k").unwrap().put("other", "value").unwrap();
    scene.server.rule(move |seen| {
        if seen.is("PUT", "partNumber") && !begun.swap(true, Ordering::SeqCst) {
            // The server's thread for this connection plays the other process.
            let medium = ObjectMedium::open(&later.server.location(), &later.options()).unwrap();
            let report = Backup::on_medium(Arc::new(medium)).create(&other, "later").unwrap();
            assert_eq!(report.id, 1);
            inner.store(true, Ordering::SeqCst);
        }
        Fault::None
    });
    let error = scene.create("earlier").unwrap_err();
    assert!(is_done.load(Ordering::SeqCst));
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let process = format!("process {}", std::process::id());
    assert!(error.to_string().contains(&process), "{error}");
    scene.server.no_rule();
    let list = scene.readers().list().unwrap();
    assert_eq!((list.backups.len(), list.backups[0].label.as_str()), (1, "later"));
    assert!(scene.readers().verify(1).unwrap().is_clean());
    // Run again, the earlier one makes the next backup.
    assert_eq!(scene.create("earlier").unwrap(), 2);
    assert!(scene.readers().verify(1).unwrap().is_clean());
    scene.must_restore(2, 2);
    scene.must_be_swept();
}

/// The earlier writer deletes while the later one has begun: its deletion is refused, and no object goes.
#[test]
fn a_replaced_writer_removes_nothing() {
    let scene = Arc::new(Scene::new());
    scene.create("").unwrap();
    let (later, begun) = (Arc::clone(&scene), AtomicBool::new(false));
    scene.server.rule(move |seen| {
        // The first writer has claimed, and reads an index.
        let is_index = seen.method == "GET" && seen.key.contains("-backup-");
        if is_index && !begun.swap(true, Ordering::SeqCst) {
            let medium = ObjectMedium::open(&later.server.location(), &later.options()).unwrap();
            Backup::on_medium(Arc::new(medium)).create(&later.db, "later").unwrap();
        }
        Fault::None
    });
    let _ = scene.backups().delete(1);
    scene.server.no_rule();
    for backup in scene.readers().list().unwrap().backups {
        assert!(scene.readers().verify(backup.id).unwrap().is_clean());
    }
    assert!(scene.readers().list().unwrap().damaged.is_empty());
}

#[test]
fn one_process_does_not_write_twice_at_once() {
    use media::Medium as _;

    let scene = Scene::new();
    let medium = ObjectMedium::open(&scene.server.location(), &scene.options()).unwrap();
    let lock = medium.lock().unwrap();
    assert_eq!(medium.lock().unwrap_err().kind(), ErrorKind::Invalid);
    drop(lock);
    drop(medium.lock().unwrap());
}

#[test]
fn old_lists_hide_no_backup() {
    let scene = Scene::new();
    scene.server.keep_lists();
    scene.server.rule(|_| Fault::OldList);
    for turn in 2..5 {
        assert_eq!(scene.create("").unwrap(), turn - 1);
        scene.fill(turn);
        scene.must_restore(turn - 1, turn);
    }
    scene.backups().prune(1).unwrap();
    scene.must_restore(3, 4);
    // An empty list, and no hint: the claim finds that the first number is taken.
    scene.server.remove("backups/latest");
    assert_eq!(scene.create("").unwrap(), 4);
    assert_eq!(scene.readers().list().unwrap().backups.len(), 2);
    // With a true list everything is swept.
    scene.server.no_rule();
    scene.create("").unwrap();
    scene.must_be_swept();
}

#[test]
fn a_lost_an_old_and_a_damaged_hint_cost_only_requests() {
    let scene = Scene::new();
    for _ in 0..3 {
        scene.create("").unwrap();
    }
    for hint in [None, Some("1"), Some("2"), Some("not a number"), Some("999999")] {
        match hint {
            Some(text) => scene.server.insert("backups/latest", text.as_bytes().to_vec()),
            None => scene.server.remove("backups/latest"),
        }
        assert_eq!(scene.readers().list().unwrap().backups.len(), 3, "{hint:?}");
    }
    assert_eq!(scene.create("").unwrap(), 4);
}

#[test]
fn old_manifests_are_removed_and_the_newest_stay() {
    let scene = Scene::new();
    let options = Options { published_every_bytes: 1, ..scene.options() };
    let numbers = || {
        let objects = scene.server.objects();
        let names = objects.keys().filter_map(|key| key.strip_prefix("backups/manifest/"));
        names.map(|number| number.parse().unwrap()).collect::<Vec<u64>>()
    };
    let mut turn = 2;
    while numbers().last().is_none_or(|last| *last < 160) {
        let backups = scene.open(&options).unwrap();
        backups.create(&scene.db, "").unwrap();
        backups.prune(1).unwrap();
        if turn < 5 {
            scene.fill(turn);
            turn += 1;
        }
    }
    let numbers = numbers();
    assert!(numbers.len() as u64 >= 128 && numbers.len() < 140, "{}", numbers.len());
    assert!(numbers.is_sorted() && numbers[0] > 1);
    let id = scene.readers().list().unwrap().backups[0].id;
    assert!(scene.readers().verify(id).unwrap().is_clean());
}
