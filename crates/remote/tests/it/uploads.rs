//! Uploads in parts, and processes that go on with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_remote::testing::{Fault, Seen};

use crate::support::*;

/// Ends the connection for good at part `number` of any upload.
fn dies_at_part(scene: &Scene, number: &'static str) {
    let is_dead = Arc::new(AtomicU64::new(0));
    scene.server.rule(move |seen| {
        if seen.query.get("partNumber").is_some_and(|it| it == number) {
            is_dead.store(1, Ordering::SeqCst);
        }
        match is_dead.load(Ordering::SeqCst) {
            0 => Fault::None,
            _ => Fault::LostRequest,
        }
    });
    scene.create("").unwrap_err();
    scene.server.no_rule();
}

fn parts(seen: &[Seen]) -> Vec<(&str, &str)> {
    let parts = seen.iter().filter(|seen| seen.is("PUT", "partNumber"));
    parts.map(|seen| (&*seen.key, &*seen.query["partNumber"])).collect()
}

#[test]
fn the_next_process_goes_on_with_the_parts_that_were_sent() {
    let scene = Scene::new();
    dies_at_part(&scene, "3");
    let [(key, 2)] = &scene.server.uploads()[..] else {
        panic!("{:?}", scene.server.uploads());
    };
    scene.server.take_seen();
    scene.create("").unwrap();
    let seen = scene.server.take_seen();
    let of_key: Vec<_> = parts(&seen).into_iter().filter(|part| part.0 == key).collect();
    assert_eq!(of_key.first(), Some(&(key.as_str(), "3")), "parts 1 and 2 are there");
    scene.must_restore(1, 2);
    scene.must_be_swept();
}

/// Another store has a file of the same name with other content.
#[test]
fn parts_with_other_content_are_sent_again() {
    let scene = Scene::new();
    dies_at_part(&scene, "3");
    let upload = scene.server.uploads().remove(0).0;
    // The same name, begun with other bytes: the parts are overwritten behind the writer's back.
    scene.server.overwrite_parts(&upload, b"other bytes");
    scene.server.take_seen();
    scene.create("").unwrap();
    let seen = scene.server.take_seen();
    let of_key: Vec<_> = parts(&seen).into_iter().filter(|part| part.0 == upload).collect();
    assert_eq!(of_key.first().map(|part| part.1), Some("1"));
    scene.must_restore(1, 2);
    scene.must_be_swept();
}

/// The upload that a process goes on with is completed or aborted by the one that began it.
#[test]
fn an_upload_that_ends_elsewhere_is_noticed() {
    let scene = Scene::new();
    dies_at_part(&scene, "3");
    let upload = scene.server.uploads().remove(0).0;
    let begun = AtomicU64::new(0);
    let server = scene.server.handle();
    scene.server.rule(move |seen| {
        if seen.key == upload
            && seen.is("POST", "uploadId")
            && begun.fetch_add(1, Ordering::SeqCst) == 0
        {
            server.end_upload(&upload);
        }
        Fault::None
    });
    let error = scene.create("").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    scene.server.no_rule();
    assert_eq!(scene.readers().list().unwrap().backups.len(), 0);
    assert_eq!(scene.create("").unwrap(), 1);
    scene.must_restore(1, 2);
    scene.must_be_swept();
}
