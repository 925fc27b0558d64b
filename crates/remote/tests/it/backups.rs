//! Backups without faults.

use terrace_remote::Options;

use crate::support::*;

#[test]
fn a_store_is_backed_up_verified_and_restored() {
    let scene = Scene::new();
    assert_eq!(scene.create("monday").unwrap(), 1);
    let list = scene.readers().list().unwrap();
    assert_eq!((list.backups.len(), list.backups[0].label.as_str()), (1, "monday"));
    assert!(list.unowned_bytes == 0 && list.damaged.is_empty());
    scene.must_restore(1, 2);
    scene.must_be_swept();
}

#[test]
fn a_second_backup_sends_only_new_files() {
    let scene = Scene::new();
    let first = scene.backups().create(&scene.db, "").unwrap();
    scene.fill(2);
    let sent_before: usize = scene.server.objects().values().map(Vec::len).sum();
    scene.server.take_seen();
    let second = scene.backups().create(&scene.db, "").unwrap();
    assert!(second.bytes_copied < second.bytes && second.bytes > first.bytes, "{second:?}");
    let sent: usize = scene.server.objects().values().map(Vec::len).sum();
    // Beside the new files: an index, and manifests with the names.
    assert!((sent - sent_before) as u64 <= second.bytes_copied + (64 << 10), "{sent}");
    scene.must_restore(1, 2);
    scene.must_restore(2, 3);
    scene.must_be_swept();
}

#[test]
fn deleted_and_pruned_backups_free_their_objects() {
    let scene = Scene::new();
    for turn in 2..5 {
        scene.fill(turn);
        scene.create("").unwrap();
    }
    assert_eq!(scene.backups().delete(1).unwrap().backups, [1]);
    scene.must_be_swept();
    assert_eq!(scene.backups().prune(1).unwrap().backups, [2]);
    scene.must_be_swept();
    scene.must_restore(3, 5);
    let options = terracedb::tools::PruneOptions::keep(0).delete_all(true);
    scene.backups().prune_opt(&options).unwrap();
    scene.must_be_swept();
    let data = |key: &String| key.starts_with("backups/data/");
    assert!(!scene.server.objects().keys().any(data), "nothing is left");
    assert_eq!(scene.create("").unwrap(), 1);
}

#[test]
fn readers_write_nothing_and_disturb_no_writer() {
    let scene = Scene::new();
    scene.create("").unwrap();
    scene.server.take_seen();
    scene.must_restore(1, 2);
    scene.readers().list().unwrap();
    let writes: Vec<_> = scene
        .server
        .take_seen()
        .into_iter()
        .filter(|it| !["GET", "HEAD"].contains(&&*it.method))
        .collect();
    assert_eq!(writes, []);
    let error = scene.readers().create(&scene.db, "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn names_are_published_early_by_their_bytes() {
    let scene = Scene::new();
    let options = Options { published_every_bytes: 1, ..scene.options() };
    scene.open(&options).unwrap().create(&scene.db, "").unwrap();
    let publications = scene.server.take_seen().iter().filter(|it| it.is_publication()).count();
    assert!(publications > 5, "{publications}");
    scene.must_restore(1, 2);
    scene.must_be_swept();
}

#[test]
fn a_prefix_with_other_objects_keeps_them() {
    let scene = Scene::new();
    for key in ["other", "backups/data/notes", "backups/manifest/x", "backupsdata/1-2/3-x"] {
        scene.server.insert(key, b"mine".to_vec());
    }
    scene.create("").unwrap();
    scene.backups().delete(1).unwrap();
    let objects = scene.server.objects();
    for key in ["other", "backups/data/notes", "backups/manifest/x", "backupsdata/1-2/3-x"] {
        assert_eq!(objects.get(key).map(Vec::as_slice), Some(&b"mine"[..]), "{key}");
    }
}

#[test]
fn damage_in_the_store_is_found() {
    let scene = Scene::new();
    scene.create("").unwrap();
    let (key, mut content) =
        scene.server.objects().into_iter().find(|(key, _)| key.contains(".table")).unwrap();
    content[100] ^= 1;
    scene.server.insert(&key, content);
    assert!(!scene.readers().verify(1).unwrap().is_clean());
    let path = scene.directory.path().join("restored");
    let error = scene.readers().restore(1, &path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(!path.exists());
    scene.server.remove(&key);
    assert!(!scene.readers().verify(1).unwrap().is_clean());
}
