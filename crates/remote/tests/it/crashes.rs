//! A process that dies at any request: backups that were there stay whole, the next one works, and nothing
//! that nobody names is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_remote::Options;
use terrace_remote::testing::Fault;
use terracedb::Result;

use crate::support::*;

/// Lets request `last` have its effect or not, and no later one. Returns whether there were later ones.
fn dies_at(
    scene: &Scene,
    last: u64,
    has_effect: bool,
    work: impl FnOnce(&Scene) -> Result<()>,
) -> bool {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    scene.server.rule(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        number if number < last => Fault::None,
        number if number == last && has_effect => Fault::LostAnswer,
        _ => Fault::LostRequest,
    });
    let result = work(scene);
    scene.server.no_rule();
    let is_over = count.load(Ordering::SeqCst) <= last;
    assert!(result.is_ok() || !is_over, "{result:?}");
    !is_over
}

/// The process dies at every fifth request, after it had its effect or before. In long runs it dies at each
/// request, once after and once before.
fn turns() -> (std::ops::Range<u64>, u64) {
    if std::env::var_os("TERRACE_LONG").is_some() { (0..2, 1) } else { (0..1, 5) }
}

#[test]
fn a_backup_that_dies_at_any_request() {
    let (turns, step) = turns();
    for turn in turns {
        let scene = Scene::new();
        scene.create("first").unwrap();
        scene.fill(2);
        let mut last = 0;
        let options = Options { published_every_bytes: 40 << 10, ..scene.options() };
        let create = |scene: &Scene| scene.open(&options)?.create(&scene.db, "died").map(drop);
        while dies_at(&scene, last, last / step % 2 == turn, create) {
            assert!(scene.readers().verify(1).unwrap().is_clean(), "request {last}");
            let list = scene.readers().list().unwrap();
            assert!(list.damaged.is_empty(), "request {last}: {list:?}");
            // The last publication may have made the backup exist: then it is whole.
            let ids: Vec<u64> = list.backups.iter().map(|backup| backup.id).collect();
            for id in &ids {
                assert!(scene.readers().verify(*id).unwrap().is_clean(), "request {last}");
            }
            for id in ids.iter().filter(|id| **id > 1) {
                scene.backups().delete(*id).unwrap();
            }
            last += step;
        }
        assert!(last > 20, "{last} requests");
        scene.must_restore(1, 2);
        assert_eq!(scene.create("last").unwrap(), 3);
        scene.must_restore(3, 3);
        scene.must_be_swept();
    }
}

#[test]
fn a_deletion_that_dies_at_any_request() {
    let (turns, step) = turns();
    for turn in turns {
        let scene = Scene::new();
        let mut last = 0;
        loop {
            scene.create("").unwrap();
            let list = scene.readers().list().unwrap();
            let old: Vec<u64> = list.backups.iter().rev().skip(1).map(|it| it.id).collect();
            for id in old {
                scene.backups().delete(id).unwrap();
            }
            let id = scene.create("kept").unwrap();
            if !dies_at(&scene, last, last / step % 2 == turn, |scene| {
                scene.open(&scene.options())?.delete(id - 1).map(drop)
            }) {
                break;
            }
            assert!(scene.readers().verify(id).unwrap().is_clean(), "request {last}");
            last += step;
        }
        assert!(last > 5, "{last} requests");
        scene.create("").unwrap();
        scene.must_be_swept();
    }
}
