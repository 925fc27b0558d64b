//! Bad answers: none of them loses a backup, shows half of one, or is tried without end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terrace_remote::testing::{FakeS3, Fault, Seen};
use terrace_remote::{Credentials, Options};

use crate::support::*;

/// Every third request has `fault`.
fn third(fault: Fault) -> impl Fn(&Seen) -> Fault {
    let count = AtomicU64::new(0);
    move |_| match count.fetch_add(1, Ordering::SeqCst) % 3 {
        2 => fault,
        _ => Fault::None,
    }
}

#[test]
fn passing_trouble_is_tried_again() {
    for fault in [
        Fault::Answer(429, "TooManyRequests"),
        Fault::Answer(500, "InternalError"),
        Fault::Answer(503, "SlowDown"),
        Fault::Answer(409, "ConditionalRequestConflict"),
        Fault::Answer(200, "InternalError"),
        Fault::LostRequest,
        Fault::LostAnswer,
        Fault::Cut,
    ] {
        let scene = Scene::new();
        scene.server.rule(third(fault));
        assert_eq!(scene.create("").unwrap(), 1, "{fault:?}");
        scene.fill(2);
        assert_eq!(scene.create("").unwrap(), 2, "{fault:?}");
        scene.must_restore(1, 2);
        scene.must_restore(2, 3);
        scene.backups().delete(1).unwrap();
        scene.server.no_rule();
        scene.must_restore(2, 3);
        scene.create("").unwrap();
        scene.must_be_swept();
    }
}

#[test]
fn requests_that_arrive_twice_and_slow_answers_change_nothing() {
    for fault in [Fault::Twice, Fault::Slow] {
        let scene = Scene::new();
        scene.server.rule(move |seen| match seen.method.as_str() {
            "PUT" | "POST" | "DELETE" => fault,
            _ => Fault::None,
        });
        scene.create("").unwrap();
        scene.must_restore(1, 2);
        scene.server.no_rule();
        scene.create("").unwrap();
        scene.must_be_swept();
    }
}

#[test]
fn every_creation_loses_its_first_answer() {
    let scene = Scene::new();
    let count = AtomicU64::new(0);
    scene.server.rule(move |seen| {
        let is_first =
            seen.is_publication() && count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        if is_first { Fault::LostAnswer } else { Fault::None }
    });
    assert_eq!(scene.create("").unwrap(), 1);
    assert_eq!(scene.create("").unwrap(), 2);
    scene.must_restore(2, 2);
}

#[test]
fn the_completion_of_an_upload_may_lose_its_answer() {
    let scene = Scene::new();
    let count = AtomicU64::new(0);
    scene.server.rule(move |seen| {
        let is_first =
            seen.is("POST", "uploadId") && count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        if is_first { Fault::LostAnswer } else { Fault::None }
    });
    scene.create("").unwrap();
    assert!(scene.server.take_seen().iter().any(|seen| seen.method == "HEAD"));
    scene.must_restore(1, 2);
    scene.must_be_swept();
}

#[test]
fn a_store_that_does_not_answer_is_given_up_and_nothing_is_lost() {
    let scene = Scene::new();
    scene.create("").unwrap();
    scene.fill(2);
    let backups = scene.backups();
    scene.server.take_seen();
    scene.server.rule(|_| Fault::Answer(503, "SlowDown"));
    let error = backups.create(&scene.db, "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    assert!(error.to_string().contains("503 SlowDown"), "{error}");
    let tries = scene.server.take_seen().len();
    assert!(tries <= 24, "{tries} tries of three requests");
    scene.server.no_rule();
    scene.must_restore(1, 2);
    assert_eq!(scene.create("").unwrap(), 2);
    scene.must_be_swept();
}

#[test]
fn a_stalled_connection_is_left() {
    let scene = Scene::new();
    let count = AtomicU64::new(0);
    scene.server.rule(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        1 | 5 => Fault::Stall,
        _ => Fault::None,
    });
    let options = Options { stall: Duration::from_millis(500), ..scene.options() };
    scene.open(&options).unwrap().create(&scene.db, "").unwrap();
    scene.must_restore(1, 2);
}

#[test]
fn wrong_credentials_are_refused_at_once_with_the_reason() {
    let scene = Scene::new();
    for (credentials, code) in [
        (Credentials::new("AKIAOTHER", FakeS3::SECRET, None), "InvalidAccessKeyId"),
        (Credentials::new(FakeS3::KEY, "another secret", None), "SignatureDoesNotMatch"),
    ] {
        scene.server.take_seen();
        let options = Options { credentials: Some(credentials), ..scene.options() };
        let error = scene.open(&options).unwrap_err().to_string();
        assert!(error.contains("credentials") && error.contains(code), "{error}");
        assert_eq!(scene.server.take_seen().len(), 1, "no second try");
        assert!(!error.contains(FakeS3::SECRET) && !error.contains("another secret"), "{error}");
    }
}

#[test]
fn credentials_that_expire_end_the_operation_and_lose_nothing() {
    let scene = Scene::new();
    scene.create("").unwrap();
    scene.fill(2);
    let count = AtomicU64::new(0);
    scene.server.rule(move |seen| {
        let parts = u64::from(seen.is("PUT", "partNumber"));
        match count.fetch_add(parts, Ordering::SeqCst) {
            0..3 => Fault::None,
            _ => Fault::Answer(400, "ExpiredToken"),
        }
    });
    let error = scene.create("").unwrap_err();
    assert!(error.to_string().contains("ExpiredToken"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    scene.server.no_rule();
    scene.must_restore(1, 2);
    assert_eq!(scene.create("").unwrap(), 2);
    scene.must_restore(2, 3);
    scene.must_be_swept();
}

#[test]
fn expired_credentials_are_no_damage_of_a_backup() {
    let scene = Scene::new();
    scene.create("").unwrap();
    let readers = scene.readers();
    scene.server.rule(|seen| match seen.key.contains(".table") {
        true => Fault::Answer(403, "ExpiredToken"),
        false => Fault::None,
    });
    let error = readers.verify(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    assert!(error.to_string().contains("ExpiredToken"), "{error}");
}

#[test]
fn refusals_name_their_remedy() {
    let scene = Scene::new();
    let mut options = scene.options();
    for (fault, words) in [
        (Fault::Answer(404, "NoSuchBucket"), ["bucket", "one that exists"]),
        (Fault::Answer(301, "PermanentRedirect"), ["region of the bucket", "--region"]),
        (Fault::Answer(403, "RequestTimeTooSkewed"), ["clock of this machine", "15 minutes"]),
        (Fault::Answer(403, "AccessDenied"), ["credentials", "right to do this"]),
    ] {
        scene.server.rule(move |_| fault);
        let error = scene.open(&options).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    scene.server.rule(|seen| match seen.is_publication() {
        true => Fault::Answer(501, "NotImplemented"),
        false => Fault::None,
    });
    let error = scene.create("").unwrap_err();
    assert!(error.to_string().contains("supports the request"), "{error}");
    options.endpoint = Some("ftp://shop".to_owned());
    let error = scene.open(&options).unwrap_err();
    assert!(error.to_string().contains("endpoint"), "{error}");
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let scene = Scene::new();
    scene.server.rule(|seen| match seen.is_publication() {
        true => Fault::Unconditional,
        false => Fault::None,
    });
    let error = scene.create("").unwrap_err();
    assert!(error.to_string().contains("If-None-Match"), "{error}");
    assert_eq!(scene.readers().list().unwrap().backups.len(), 0);
}

#[test]
fn a_full_store_is_no_space() {
    let scene = Scene::new();
    scene.server.rule(|seen| match seen.is("PUT", "partNumber") {
        true => Fault::Answer(507, "XMinioStorageFull"),
        false => Fault::None,
    });
    assert_eq!(scene.create("").unwrap_err().kind(), ErrorKind::NoSpace);
}

#[test]
fn a_cancelled_backup_ends_between_two_tries() {
    let scene = Scene::new();
    let options = scene.options();
    let cancel = options.cancel.clone();
    let backups = scene.open(&options).unwrap();
    scene.server.rule(move |_| {
        cancel.cancel();
        Fault::Answer(503, "SlowDown")
    });
    let error = backups.create(&scene.db, "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
}
