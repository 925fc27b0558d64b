//! A process killed while it makes and restores checkpoints and backups: every copy is whole or unfinished,
//! and the next process continues.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::Rng;
use terracedb::Db;
use terracedb::tools::Backup;

use crate::alone;
use crate::common::{self, assert_pairs, child, put_pair};

fn open(directory: &Path) -> Db {
    Db::builder(directory).memory(common::MEMORY).open().unwrap()
}

/// The directories in `parent` whose name begins with `prefix`, without unfinished ones.
fn whole(parent: &Path, prefix: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut paths: Vec<_> = entries.filter(|path| name(path).starts_with(prefix)).collect();
    paths.retain(|path| !name(path).ends_with(".terrace-unfinished"));
    paths
}

/// Child: writes, copies and restores until it is killed.
#[test]
fn copies_until_killed() {
    let Some(directory) = child::directory() else { return };
    let directory = &*directory;
    let db = open(&directory.join("store"));
    let first = assert_pairs(&db, 0, "the child");
    let written = AtomicU64::new(first);
    std::thread::scope(|scope| {
        let (db, written) = (&db, &written);
        scope.spawn(move || {
            let mut rng = Rng::new(first);
            for number in first.. {
                put_pair(db, number, rng.below(3000) as usize);
                written.store(number + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        scope.spawn(move || {
            for round in 0.. {
                let promised = written.load(Ordering::SeqCst);
                let place = directory.join(format!("copy-{first}-{round}"));
                db.checkpoint(&place).unwrap();
                child::say(&format!("{promised} {}", place.display()));
            }
        });
        scope.spawn(move || {
            let repository = Backup::open(directory.join("backups")).unwrap();
            for round in 0.. {
                let promised = written.load(Ordering::SeqCst);
                let made = repository.create(db, &promised.to_string()).unwrap();
                let place = directory.join(format!("restored-{first}-{round}"));
                repository.restore(made.id, &place).unwrap();
                child::say(&format!("{promised} {}", place.display()));
                repository.prune(3).unwrap();
            }
        });
    });
}

/// Runs a child for some copies and kills it. Returns for each finished copy the number of batches it must
/// hold, and its directory.
fn one_life(directory: &Path, rng: &mut Rng) -> Vec<(u64, String)> {
    let (lines, longer) = (1 + rng.below(6) as usize, Duration::from_millis(rng.below(40)));
    let said = child::one_life("kill_copies::copies_until_killed", directory, lines, longer);
    let copies = said.iter().map(|line| line.split_once(' ').unwrap());
    copies.map(|(promised, place)| (promised.parse().unwrap(), place.to_owned())).collect()
}

#[test]
fn a_process_killed_while_it_copies_leaves_only_whole_stores() {
    let _alone = alone();
    let (mut rng, seed) = Rng::from_env();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 60 } else { 5 };
    for round in 0..rounds {
        let why = format!("TERRACE_SEED={seed}, round {round}");
        let copies = one_life(directory, &mut rng);
        let db = open(&directory.join("store"));
        assert_pairs(&db, copies.iter().map(|(promised, _)| *promised).max().unwrap(), &why);
        // Files held by the dead process are removed by now; files of merges come and go.
        db.wait_until_settled().unwrap();
        common::assert_tidy_directory(&db, &directory.join("store"), &why);
        for (promised, place) in &copies {
            assert_pairs(&open(place.as_ref()), *promised, &format!("{why}, {place}"));
        }
        for path in [whole(directory, "copy-"), whole(directory, "restored-")].concat() {
            assert_pairs(&open(&path), 0, &format!("{why}, {}", path.display()));
            std::fs::remove_dir_all(&path).unwrap();
        }
        let repository = Backup::open(directory.join("backups")).unwrap();
        let list = repository.list().unwrap();
        assert!(list.damaged.is_empty(), "{why}: {:?}", list.damaged);
        for backup in &list.backups {
            assert!(repository.verify(backup.id).unwrap().is_clean(), "{why}");
            let place = directory.join("checked");
            repository.restore(backup.id, &place).unwrap();
            assert_pairs(&open(&place), backup.label.parse().unwrap(), &why);
            std::fs::remove_dir_all(&place).unwrap();
        }
        // The next copy to the same directory takes over an unfinished one.
        let unfinished = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let unfinished = unfinished.filter_map(|path| {
            Some(path.to_str().unwrap().strip_suffix(".terrace-unfinished")?.to_owned())
        });
        for place in unfinished.collect::<Vec<_>>() {
            db.checkpoint(&place).unwrap();
            assert_pairs(&open(place.as_ref()), 0, &why);
            std::fs::remove_dir_all(&place).unwrap();
        }
        repository.create(&db, "0").unwrap();
        assert_eq!(repository.list().unwrap().unowned_bytes, 0, "{why}");
    }
}
