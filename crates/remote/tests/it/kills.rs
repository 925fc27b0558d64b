//! A process that backs up is killed by kill -9 while the server answers it: backups that were there stay
//! whole, nothing is half visible, and the next process ends the backup and leaves nothing that nobody names.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Rng;
use parking_lot::Mutex;
use terrace_remote::testing::{FakeS3, Fault};
use terrace_remote::{Credentials, ObjectMedium, Options};
use terracedb::Db;
use terracedb::tools::Backup;

use crate::support::*;

/// Kills in the default tests, and in a long test.
const KILLS: u64 = 3;
const KILLS_LONG: u64 = 100;

/// Environment variables of a child: the store, and the URL of the server. They are not set in the parent.
const STORE: &str = "TERRACE_CHILD_STORE";
const ENDPOINT: &str = "TERRACE_CHILD_ENDPOINT";

/// Names are published every few parts, so that a killed process leaves some of each: published files,
/// complete objects without a name, and an upload with some parts.
const PUBLISHED_EVERY: u64 = 40 << 10;

/// The work of a child, which is this binary with this test alone.
#[test]
fn a_backup_in_a_process_of_its_own() {
    let (Some(store), Ok(endpoint)) = (std::env::var_os(STORE), std::env::var(ENDPOINT)) else {
        return;
    };
    let options = Options {
        endpoint: Some(endpoint),
        credentials: Some(Credentials::new(FakeS3::KEY, FakeS3::SECRET, None)),
        part_bytes: PART,
        published_every_bytes: PUBLISHED_EVERY,
        ..Options::default()
    };
    let db = Db::builder(store).memory(64 << 20).read_only(true).open().unwrap();
    let medium = ObjectMedium::open(&"s3://shop/backups".parse().unwrap(), &options).unwrap();
    Backup::on_medium(Arc::new(medium)).create(&db, "child").unwrap();
}

fn child(scene: &Scene) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::a_backup_in_a_process_of_its_own"])
        .env(STORE, scene.directory.path().join("store"))
        .env(ENDPOINT, scene.server.endpoint())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Lets a child make a backup, and kills it at request `last`, which has its effect or not. Returns whether
/// the child was killed: it makes fewer requests if others left files for it.
fn killed(scene: &Scene, last: u64, has_effect: bool) -> bool {
    let (count, process) = (AtomicU64::new(0), Arc::<Mutex<Option<Child>>>::default());
    let victim = Arc::clone(&process);
    scene.server.rule(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) != last {
            return Fault::None;
        }
        victim.lock().as_mut().unwrap().kill().unwrap();
        if has_effect { Fault::LostAnswer } else { Fault::LostRequest }
    });
    let mut slot = process.lock();
    // The server waits for the lock before it kills.
    *slot = Some(child(scene));
    drop(slot);
    let status = loop {
        // Without the lock while it waits.
        match process.lock().as_mut().unwrap().try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    };
    scene.server.no_rule();
    assert!(status.success() || status.code().is_none(), "{status:?}");
    status.code().is_none()
}

fn kills(count: u64) {
    let (mut rng, seed) = Rng::from_env();
    let scene = Scene::new();
    scene.create("first").unwrap();
    // Some requests of the child come before its first part, and some behind the last.
    let (mut turn, mut requests, mut died) = (2, 60, 0);
    for kill in 0..count {
        let why = format!("TERRACE_SEED={seed}, kill {kill}");
        if rng.one_in(3) {
            scene.fill(turn);
            turn += 1;
        }
        // The first one dies for sure.
        let last = rng.below(if kill == 0 { 10 } else { requests });
        match killed(&scene, last, rng.one_in(2)) {
            true => died += 1,
            // So few requests were left to do.
            false => requests = last.max(20),
        }
        let list = scene.readers().list().unwrap();
        assert!(list.damaged.is_empty(), "{why}: {list:?}");
        let ids: Vec<u64> = list.backups.iter().map(|backup| backup.id).collect();
        assert_eq!(ids.first(), Some(&1), "{why}");
        for id in &ids {
            assert!(scene.readers().verify(*id).unwrap().is_clean(), "{why}: backup {id}");
        }
        // Sometimes the next process dies, too.
        if rng.one_in(3) {
            continue;
        }
        let next = scene.create("next").unwrap();
        assert!(ids.iter().all(|id| *id < next), "{why}: {ids:?}, {next}");
        scene.must_restore(next, turn);
        scene.must_be_swept();
        for id in ids.into_iter().filter(|id| *id > 1) {
            scene.backups().delete(id).unwrap();
        }
    }
    assert!(died > count / 4, "TERRACE_SEED={seed}: {died} of {count} died");
    let last = scene.create("last").unwrap();
    scene.must_restore(1, 2);
    scene.must_restore(last, turn);
    scene.must_be_swept();
}

#[test]
fn a_backup_survives_kills_of_its_process() {
    kills(KILLS);
}

#[test]
#[ignore = "a minute: 100 kills"]
fn a_backup_survives_many_kills_of_its_process() {
    kills(KILLS_LONG);
}
