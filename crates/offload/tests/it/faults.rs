//! Faults of the table in docs/workers.md that no other file has: files that go, needs that a worker lacks,
//! late outcomes, and damage after the seal.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::channel;

use base::{Codec, DictionaryId, Rng, TableId, put_bytes, put_u32, put_u64, put_varint};
use compact::Job;
use compact::offload::Offload;
use media::{Access, Buf, Medium, MemoryMedium, Purpose};
use terrace_offload::{Address, Frame, FrameKind, Link, StreamLink};

use crate::hostile::{MAX, WAIT, accept, attempt_at, done, store};
use crate::support::env;
use crate::workplace::{
    PATIENT, PROOF, RunningWorker, attempt, content, local, outputs, shape_of, worker_options,
    workers,
};

/// Passes frames on between a host and `worker`, and calls `before` for each frame of the worker.
fn watch(listener: &UnixListener, worker: &Address, mut before: impl FnMut(&Frame)) {
    let (stream, _) = listener.accept().unwrap();
    let mut host = StreamLink::unix(stream).unwrap();
    let mut worker = StreamLink::connect(worker, WAIT).unwrap();
    let wait = std::time::Duration::from_millis(1);
    loop {
        match worker.receive(wait, MAX) {
            Err(_) => return,
            Ok(None) => {}
            Ok(Some(frame)) => {
                before(&frame);
                if host.send(&frame).is_err() {
                    return;
                }
            }
        }
        match host.receive(wait, MAX) {
            Err(_) => return,
            Ok(None) => {}
            Ok(Some(frame)) => drop(worker.send(&frame)),
        }
    }
}

/// Fault 2: inputs are removed under a worker. Its job fails, and leaves nothing; a worker reads no manifest.
#[test]
fn inputs_that_go_under_a_worker_fail_its_job_only() {
    for removed_before in [1, 4, 6] {
        let (medium, job) = store();
        let inputs: Vec<_> = job.pieces().map(|piece| table::file_name(piece.id)).collect();
        assert_eq!(inputs.len(), 6);
        let worker = RunningWorker::start(worker_options());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("link");
        let listener = UnixListener::bind(&path).unwrap();
        let (address, watched) = (worker.address.clone(), Arc::clone(&medium));
        let link = std::thread::spawn(move || {
            let mut opened = 0;
            watch(&listener, &address, |frame| {
                opened += usize::from(frame.kind == FrameKind::Open);
                if frame.kind == FrameKind::Open && opened == removed_before {
                    inputs.iter().for_each(|name| watched.remove(name).unwrap());
                }
            });
        });
        let workers = workers(&Address::Unix(path), b"", PATIENT);
        attempt(&workers, &job, &env(&medium)).unwrap_err();
        assert_eq!(workers.statistics().remove(0).failures, [("job failed", 1)]);
        job.discard_outputs(&*medium).unwrap();
        assert!(medium.list().unwrap().is_empty());
        drop(workers);
        link.join().unwrap();
    }
}

/// Fault 7: a worker without the codec is found out before a byte is written, and is offered other jobs.
#[test]
fn worker_without_the_codec_gets_no_job_that_needs_it() {
    let (medium, plain) = store();
    let mut job = plain.clone();
    (job.output.codec, job.output.level) = (Codec::Zstd, 1);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("worker");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut link = StreamLink::unix(stream).unwrap();
        assert_eq!(link.receive(WAIT, MAX).unwrap().unwrap().kind, FrameKind::Hello);
        let mut hello = Vec::new();
        put_u32(&mut hello, 3);
        put_u32(&mut hello, 1);
        hello.push(1);
        put_bytes(&mut hello, b"soft");
        put_varint(&mut hello, 1);
        put_bytes(&mut hello, b"add.1");
        // No compression, and LZ4.
        put_bytes(&mut hello, &[0, 1]);
        link.send(&Frame { kind: FrameKind::Hello, job: 0, epoch: 0, body: hello }).unwrap();
        // No offer comes.
        assert!(link.receive(WAIT, MAX).is_err());
    });
    let workers = workers(&Address::Unix(path), b"", PATIENT);
    let error = attempt(&workers, &job, &env(&medium)).unwrap_err();
    assert!(error.to_string().contains("codec"), "{error}");
    thread.join().unwrap();
    assert_eq!(workers.statistics().remove(0).failures, [("codec", 1)]);
    assert!(outputs(&medium).is_empty());
    let offer = |job: &Job| workers.offer(job, &shape_of(job), &env(&medium), PROOF);
    assert!(offer(&job).is_none());
    assert!(offer(&plain).is_some());
}

/// Fault 7: a dictionary that is gone fails the job before it writes.
#[test]
fn a_missing_dictionary_fails_a_job_before_it_writes() {
    let (medium, mut job) = store();
    (job.output.codec, job.output.level) = (Codec::Zstd, 1);
    job.output.dictionary = Some(DictionaryId(9));
    let worker = RunningWorker::start(worker_options());
    let workers = workers(&worker.address, b"", PATIENT);
    let error = attempt(&workers, &job, &env(&medium)).unwrap_err();
    assert!(error.to_string().contains("dict"), "{error}");
    assert_eq!(workers.statistics().remove(0).failures, [("job failed", 1)]);
    assert!(outputs(&medium).is_empty());
}

/// Fault 5: an outcome of a newer version.
#[test]
fn an_outcome_of_another_version_is_refused() {
    let (medium, job) = store();
    let mut newer = local(&job, &medium).encode();
    newer[8] = 99;
    let mut body = Vec::new();
    put_u64(&mut body, 0);
    put_u64(&mut body, 0);
    put_bytes(&mut body, &newer);
    let ended = attempt_at(&medium, &job, PATIENT, move |mut hostile| {
        accept(&mut hostile);
        hostile.send(FrameKind::Done, body);
        let _ = hostile.link.receive(WAIT, MAX);
    });
    let (reason, error) = ended.unwrap_err();
    assert_eq!(reason, "outcome refused");
    assert!(error.contains("version"), "{error}");
}

/// Fault 11: the host does not wait for a worker that it cancels, and takes no outcome afterwards.
#[test]
fn an_outcome_after_the_cancellation_is_not_taken() {
    let (medium, job) = store();
    let outcome = done(&local(&job, &medium));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("worker");
    let listener = UnixListener::bind(&path).unwrap();
    let ((at_work, is_at_work), (cancelled, is_cancelled)) = (channel(), channel());
    let (job_of_worker, before) = (job.clone(), medium.list().unwrap());
    let thread = std::thread::spawn(move || {
        crate::hostile::greeted(&listener, job_of_worker, |mut hostile| {
            accept(&mut hostile);
            at_work.send(()).unwrap();
            // The host is free by now, although this worker has answered nothing.
            is_cancelled.recv().unwrap();
            hostile.send(FrameKind::Done, outcome);
            // The cancellation, then the end of the link.
            while hostile.link.receive(WAIT, MAX).is_ok_and(|frame| frame.is_some()) {}
        });
    });
    let workers = workers(&Address::Unix(path), b"", PATIENT);
    let remote = workers.offer(&job, &shape_of(&job), &env(&medium), PROOF).unwrap();
    is_at_work.recv().unwrap();
    drop(remote);
    cancelled.send(()).unwrap();
    thread.join().unwrap();
    while workers.statistics().remove(0).running > 0 {
        std::thread::yield_now();
    }
    assert_eq!(workers.statistics().remove(0).jobs, 0);
    assert_eq!(medium.list().unwrap(), before);
}

/// Fault 14: a bit of an output is flipped after its page was sealed, on the way to the device or there.
#[test]
fn a_bit_that_is_flipped_after_the_seal_is_found() {
    let mut rng = Rng::new(71);
    for round in 0..20 {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let (_, job) = content(&mut rng, &medium, 300);
        let outcome = compact::run(job.clone(), &env(&medium)).unwrap();
        let table = &outcome.tables[rng.below(outcome.tables.len() as u64) as usize];
        let file = medium.open(&table::file_name(table.table), Access::Direct).unwrap();
        let at = rng.below(table.file_bytes / 4096) * 4096;
        let (mut page, result) = file.read(at, Buf::pages(1), Purpose::Scrub);
        result.unwrap();
        page[rng.below(4096) as usize] ^= 1 << rng.below(8);
        file.write(at, page, Purpose::Scrub).1.unwrap();
        let body = done(&outcome);
        let ended = attempt_at(&medium, &job, PATIENT, move |mut hostile| {
            accept(&mut hostile);
            hostile.send(FrameKind::Done, body);
            let _ = hostile.link.receive(WAIT, MAX);
        });
        let (reason, error) = ended.expect_err("a flipped bit");
        assert_eq!(reason, "outcome refused", "round {round}: {error}");
        assert!(outputs(&medium).iter().all(|id| job.output.ids.contains(&TableId(*id))));
        job.discard_outputs(&*medium).unwrap();
        assert_eq!(medium.list().unwrap().len(), job.pieces().count());
    }
}
