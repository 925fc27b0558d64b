//! The directory is the one that was opened: it may be moved, replaced or removed, and the working directory
//! may change. And nothing at a name is followed.

use std::os::unix::fs::symlink;

use super::*;

/// Creates `name` with `content`, synced.
fn fill(medium: &FileMedium, name: &str, content: &[u8]) -> Arc<dyn File> {
    let file = medium.create(name, Access::Bytes, content.len() as u64).unwrap();
    file.store(0, content, Purpose::Log).unwrap();
    file.sync(Purpose::Log).unwrap();
    medium.sync_names(&[name]).unwrap();
    file
}

fn names_in(path: &Path) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(path).unwrap().map(name).collect();
    names.sort();
    names
}

/// Uses each operation on names. The directory holds `LOCK` and `b` afterwards.
fn use_every_operation(medium: &FileMedium) {
    let _lock = medium.lock().unwrap();
    fill(medium, "a", b"a");
    fill(medium, "c", b"c");
    medium.rename("a", "b").unwrap();
    medium.remove("c").unwrap();
    let listed: Vec<_> = medium.list().unwrap().into_iter().map(|file| file.name).collect();
    assert_eq!(listed, ["b"]);
    assert_eq!(medium.open("b", Access::Bytes).unwrap().size().unwrap(), 1);
    assert!(medium.space().unwrap().is_some());
    medium.sync_names(&[]).unwrap();
}

/// Runs in a child process, because it changes the working directory of its process.
#[test]
fn a_relative_path_means_one_directory_whatever_the_working_directory() {
    let name = "identity::a_relative_path_means_one_directory_whatever_the_working_directory";
    let Some(root) = child_directory(name) else {
        let root = tempfile::tempdir().unwrap();
        for place in ["first/store", "second/store"] {
            fs::create_dir_all(root.path().join(place)).unwrap();
        }
        assert!(child(name, root.path()).wait().unwrap().success());
        assert_eq!(names_in(&root.path().join("first/store")), ["LOCK", "b"]);
        assert_eq!(names_in(&root.path().join("first/new")), ["LOCK", "b"]);
        let second = names_in(&root.path().join("second"));
        assert_eq!(
            (second, names_in(&root.path().join("second/store"))),
            (vec!["store".into()], vec![])
        );
        return;
    };
    std::env::set_current_dir(root.join("first")).unwrap();
    let medium = open(Path::new("store"));
    let staging = crate::Staging::begin("new").unwrap();
    std::env::set_current_dir(root.join("second")).unwrap();
    use_every_operation(&medium);
    assert!(format!("{medium:?}").contains("first/store"), "{medium:?}");
    let copy = staging.medium();
    assert!(medium.link("b", &*copy).unwrap());
    staging.finish(|_| true).unwrap();
}

#[test]
fn a_moved_directory_is_used_where_it_is_and_its_replacement_is_not_touched() {
    let root = tempfile::tempdir().unwrap();
    let (place, moved) = (root.path().join("store"), root.path().join("moved"));
    let medium = open(&place);
    fs::rename(&place, &moved).unwrap();
    fs::create_dir(&place).unwrap();
    use_every_operation(&medium);
    assert_eq!((names_in(&place), names_in(&moved)), (vec![], vec!["LOCK".into(), "b".into()]));
    // The replacement is another directory, with a lock of its own.
    let _locks = (medium.lock().unwrap(), open(&place).lock().unwrap());
}

#[test]
fn a_symbolic_link_to_the_directory_is_followed_once() {
    let root = tempfile::tempdir().unwrap();
    let [one, other, link] = ["one", "other", "link"].map(|name| root.path().join(name));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&other).unwrap();
    symlink(&one, &link).unwrap();
    let medium = open(&link);
    let staging = crate::Staging::begin(root.path().join("link/new")).unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&other, &link).unwrap();
    use_every_operation(&medium);
    fill(staging.medium().undecorated().downcast_ref().unwrap(), "x", b"x");
    staging.finish(|_| true).unwrap();
    assert_eq!(
        (names_in(&one), names_in(&other)),
        (vec!["LOCK".into(), "b".into(), "new".into()], vec![])
    );
    // A new directory may be at a link to an empty one.
    crate::Staging::begin(&link).unwrap().finish(|_| true).unwrap();
    assert_eq!(names_in(&other), ["LOCK"]);
}

#[test]
fn nothing_succeeds_in_a_removed_directory() {
    let root = tempfile::tempdir().unwrap();
    for keep_files in [false, true] {
        let place = root.path().join("store");
        let medium = open(&place);
        let _lock = medium.lock().unwrap();
        let file = fill(&medium, "log", &[1; 64]);
        if keep_files {
            // The file keeps a name; its directory does not.
            fs::rename(place.join("log"), root.path().join("elsewhere")).unwrap();
        }
        fs::remove_dir_all(&place).unwrap();
        // Another directory at the path changes nothing.
        fs::create_dir(&place).unwrap();
        let errors = [
            // A store looks once in a tick of the clock.
            (0..).find_map(|_| file.store(0, b"x", Purpose::Log).err()).unwrap(),
            file.sync(Purpose::Log).unwrap_err(),
            medium.create("new", Access::Direct, 0).unwrap_err(),
            medium.rename("log", "new").unwrap_err(),
            medium.sync_names(&[]).unwrap_err(),
            medium.list().unwrap_err(),
            open(&place).link("log", &medium).unwrap_err(),
        ];
        for error in errors.iter().take(6) {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("removed by another program"), "{error}");
        }
        fs::remove_dir_all(&place).unwrap();
    }
}

#[test]
fn a_file_that_another_program_removed_is_not_synced_and_one_that_the_store_removed_is() {
    let root = tempfile::tempdir().unwrap();
    let medium = open(root.path());
    let [own, renamed, lost] = ["own", "renamed", "lost"].map(|name| fill(&medium, name, b"x"));
    let again = medium.open("own", Access::Bytes).unwrap();
    medium.remove("own").unwrap();
    fill(&medium, "new", b"y");
    medium.rename("new", "renamed").unwrap();
    for file in [&own, &again, &renamed] {
        file.sync(Purpose::Log).unwrap();
        file.store(0, b"z", Purpose::Log).unwrap();
    }
    // A failed removal by the store is no removal.
    medium.remove("missing").unwrap_err();
    fs::remove_file(root.path().join("lost")).unwrap();
    let error = lost.sync(Purpose::Log).unwrap_err().to_string();
    assert!(error.contains("lost") && error.contains("removed by another program"), "{error}");
    drop((own, again, renamed, lost));
    assert!(format!("{:?}", medium.open_files).contains("{}"), "{:?}", medium.open_files);
}

#[test]
fn a_lock_that_is_no_lock_file_is_refused_and_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let (precious, lock) = (root.path().join("precious"), root.path().join("store/LOCK"));
    fs::create_dir(root.path().join("store")).unwrap();
    fs::write(&precious, "1234").unwrap();
    let refused = || FileMedium::open(root.path().join("store"), FileOptions::default());
    for target in ["../precious", "../missing"] {
        symlink(target, &lock).unwrap();
        let error = refused().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(
            error.to_string().contains("LOCK") && error.to_string().contains("symbolic"),
            "{error}"
        );
        assert!(fs::symlink_metadata(&lock).unwrap().is_symlink());
        fs::remove_file(&lock).unwrap();
    }
    assert_eq!(names_in(root.path()), ["precious", "store"], "no link was followed");
    assert_eq!(fs::read(&precious).unwrap(), b"1234");
    fs::create_dir(&lock).unwrap();
    assert!(refused().unwrap_err().to_string().contains("a directory"));
    fs::remove_dir(&lock).unwrap();
    // A hard link to a file of someone else, too, is not overwritten.
    fs::write(&precious, "a diary, and longer than any process id").unwrap();
    fs::hard_link(&precious, &lock).unwrap();
    let error = refused().unwrap().lock().unwrap_err();
    assert!(error.to_string().contains("process id"), "{error}");
    assert!(fs::read(&precious).unwrap().starts_with(b"a diary"));
}

/// What stands at the name of a new file must not stop every open; no link is followed, to be read or
/// written.
#[test]
fn a_link_at_the_name_of_a_new_file_gives_way_and_is_never_followed() {
    let root = tempfile::tempdir().unwrap();
    let precious = root.path().join("precious");
    fs::write(&precious, "1234").unwrap();
    let place = root.path().join("store");
    let medium = open(&place);
    for access in [Access::Bytes, Access::Direct] {
        for target in ["../precious", "../missing"] {
            symlink(target, place.join("log")).unwrap();
            let error = medium.open("log", access).unwrap_err();
            assert!(error.to_string().contains("symbolic link"), "{error}");
            let file = medium.create("log", access, 4096).unwrap();
            file.write(0, Buf::pages(1), Purpose::Log).1.unwrap();
            assert!(fs::symlink_metadata(place.join("log")).unwrap().is_file());
            medium.remove("log").unwrap();
        }
    }
    assert_eq!(names_in(root.path()), ["precious", "store"]);
    assert_eq!(fs::read(&precious).unwrap(), b"1234");
    // A pipe does not block, a file is never replaced, and a directory is named in the error.
    let pipe = Command::new("mkfifo").arg(place.join("pipe")).status();
    if pipe.is_ok_and(|status| status.success()) {
        let reading = FileOptions { read_only: true, ..FileOptions::default() };
        let error =
            FileMedium::open(&place, reading).unwrap().open("pipe", Access::Bytes).unwrap_err();
        assert!(error.to_string().contains("a pipe"), "{error}");
        medium.create("pipe", Access::Bytes, 0).unwrap();
    }
    fill(&medium, "file", b"x");
    medium.create("file", Access::Bytes, 0).unwrap_err();
    fs::create_dir(place.join("folder")).unwrap();
    let error = medium.create("folder", Access::Bytes, 0).unwrap_err();
    assert!(
        error.to_string().contains("folder") && error.to_string().contains("a directory"),
        "{error}"
    );
    // A renamed file replaces a link, not its target.
    symlink("../precious", place.join("target")).unwrap();
    medium.rename("file", "target").unwrap();
    assert_eq!(fs::read(place.join("target")).unwrap(), b"x");
    assert_eq!(fs::read(&precious).unwrap(), b"1234");
}
