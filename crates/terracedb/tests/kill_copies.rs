//! A process killed while it makes checkpoints and backups and restores them: what is there is
//! whole, what is not whole is not there, and the next process goes on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use base::Rng;
use common::{assert_pairs, put_pair};
use terracedb::{Backup, Db};

/// The child's directory; absent in the parent.
const DIRECTORY: &str = "TERRACE_KILL_COPIES_DIRECTORY";

fn open(directory: &Path) -> Db {
    Db::builder(directory).memory(common::MEMORY).open().unwrap()
}

/// The directories in `parent` whose name begins with `prefix`, unfinished ones apart.
fn whole(parent: &Path, prefix: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut paths: Vec<_> = entries.filter(|path| name(path).starts_with(prefix)).collect();
    paths.retain(|path| !name(path).ends_with(".terrace-unfinished"));
    paths
}

/// Run as a process of its own: writes, copies and restores until it is killed.
#[test]
fn copies_until_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let db = open(&directory.join("store"));
    let first = assert_pairs(&db, 0, "the child");
    let written = AtomicU64::new(first);
    let say = |line: String| std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    std::thread::scope(|scope| {
        let (db, written, say) = (&db, &written, &say);
        scope.spawn(move || {
            let mut rng = Rng::new(first);
            for number in first.. {
                put_pair(db, number, rng.below(3000) as usize);
                written.store(number + 1, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_micros(500));
            }
        });
        scope.spawn(move || {
            for round in 0.. {
                let promised = written.load(Ordering::SeqCst);
                let place = directory.join(format!("copy-{first}-{round}"));
                db.checkpoint(&place).unwrap();
                say(format!("\ncopy {promised} {}\n", place.display()));
            }
        });
        scope.spawn(move || {
            let repository = Backup::open(directory.join("backups")).unwrap();
            for round in 0.. {
                let promised = written.load(Ordering::SeqCst);
                let made = repository.create(db, &promised.to_string()).unwrap();
                let place = directory.join(format!("restored-{first}-{round}"));
                repository.restore(made.id, &place).unwrap();
                say(format!("\ncopy {promised} {}\n", place.display()));
                repository.prune(3).unwrap();
            }
        });
    });
}

/// Lets a child live for some lines; what it said of finished copies.
fn one_life(directory: &Path, rng: &mut Rng) -> Vec<(u64, String)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "copies_until_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut wanted = 1 + rng.below(6);
    let mut copies = Vec::new();
    for line in output.lines() {
        let line = line.unwrap();
        if let Some((promised, place)) = line.strip_prefix("copy ").and_then(|l| l.split_once(' '))
        {
            copies.push((promised.parse().unwrap(), place.to_owned()));
            wanted -= 1;
            if wanted == 0 {
                std::thread::sleep(std::time::Duration::from_millis(rng.below(40)));
                child.kill().unwrap();
                break;
            }
        }
    }
    child.wait().unwrap();
    assert_eq!(wanted, 0, "the child ended by itself");
    copies
}

#[test]
fn a_process_killed_while_it_copies_leaves_only_whole_stores() {
    let (mut rng, seed) = Rng::from_env();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 60 } else { 5 };
    for round in 0..rounds {
        let why = format!("TERRACE_SEED={seed}, round {round}");
        let copies = one_life(directory, &mut rng);
        let db = open(&directory.join("store"));
        assert_pairs(&db, copies.iter().map(|(promised, _)| *promised).max().unwrap(), &why);
        // Files held when the process died are gone again.
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
        // An unfinished directory is taken over by the next one for its place.
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
