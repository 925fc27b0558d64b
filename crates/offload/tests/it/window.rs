//! The credit window: bytes in flight are bounded, however slow the other side is.

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use base::{ErrorKind, Rng};
use compact::offload::Offload;
use media::{Faulty, Medium, MemoryMedium};
use terrace_offload::{Address, FrameKind, Link, StreamLink};

use crate::support::env;
use crate::workplace::{
    PATIENT, RunningWorker, attempt, content, local, outputs, worker_options, workers,
};

/// The longest transfer, and the parts of the window, bytes.
const TRANSFER: usize = 256 << 10;
const WRITES: usize = 3 * TRANSFER;
const READS: usize = 5 * TRANSFER;

/// Questions without a request of the worker until a reply is passed on.
const SILENCE: u32 = 12;

/// Most bytes of writes and of reads that were not answered at one time.
#[derive(Debug, Default)]
struct Most {
    writes: usize,
    reads: usize,
}

/// Passes frames on between a host and `worker`, and holds replies back until the worker asks for nothing
/// more: a host as slow as it gets.
fn hold_back(listener: &UnixListener, worker: &Address) -> Most {
    let (stream, _) = listener.accept().unwrap();
    let mut host = StreamLink::unix(stream).unwrap();
    let mut worker = StreamLink::connect(worker, Duration::from_secs(300)).unwrap();
    let (mut most, mut held, mut silence) = (Most::default(), VecDeque::new(), 0);
    // Bytes of each request without a reply, and whether it is a write.
    let mut asked: BTreeMap<u32, (usize, bool)> = BTreeMap::new();
    let number = |body: &[u8]| u32::from_le_bytes(body[..4].try_into().unwrap());
    let wait = Duration::from_millis(1);
    loop {
        match worker.receive(wait, 64 << 20) {
            Err(_) => return most,
            Ok(None) => silence += 1,
            Ok(Some(frame)) => {
                let bytes = match frame.kind {
                    FrameKind::Write => Some((frame.body.len() - 16, true)),
                    FrameKind::Read => {
                        let len = frame.body[16..20].try_into().unwrap();
                        Some((u32::from_le_bytes(len) as usize, false))
                    }
                    _ => None,
                };
                silence = if bytes.is_some() { 0 } else { silence + 1 };
                asked.extend(bytes.map(|bytes| (number(&frame.body), bytes)));
                let sum = |writes| {
                    let all = asked.values().filter(|(_, is_write)| *is_write == writes);
                    all.map(|(bytes, _)| bytes).sum()
                };
                most.writes = most.writes.max(sum(true));
                most.reads = most.reads.max(sum(false));
                if host.send(&frame).is_err() {
                    return most;
                }
            }
        }
        match host.receive(wait, 64 << 20) {
            Err(_) => return most,
            Ok(None) => {}
            Ok(Some(frame)) if frame.kind == FrameKind::Reply => held.push_back(frame),
            Ok(Some(frame)) => drop(worker.send(&frame)),
        }
        if silence >= SILENCE
            && let Some(reply) = held.pop_front()
        {
            asked.remove(&number(&reply.body));
            if worker.send(&reply).is_err() {
                return most;
            }
            silence = 0;
        }
    }
}

#[test]
fn bytes_in_flight_are_bounded_by_the_window_and_fill_it() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, mut job) = content(&mut Rng::new(41), &medium, 8000);
    job.output.table_bytes_max = 8 << 20;
    let worker = RunningWorker::start(worker_options());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("link");
    let listener = UnixListener::bind(&path).unwrap();
    let address = worker.address.clone();
    let link = std::thread::spawn(move || hold_back(&listener, &address));
    let workers = workers(&Address::Unix(path), b"", PATIENT);
    let outcome = attempt(&workers, &job, &env(&medium)).unwrap();
    assert_eq!(outcome.tables, local(&job, &medium).tables);
    drop(workers);
    let most = link.join().unwrap();
    assert!((TRANSFER + 1..=WRITES).contains(&most.writes), "{most:?}");
    assert!((TRANSFER + 1..=READS).contains(&most.reads), "{most:?}");
}

/// Fault 12: the device is full under a worker. A write that was not waited for fails the job all the same,
/// with its kind; nothing of it stays, and the inputs are whole.
#[test]
fn a_full_device_under_a_worker_costs_its_job_only() {
    let device = Arc::new(Faulty::new(7));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let (_, mut job) = content(&mut Rng::new(42), &medium, 4000);
    job.output.table_bytes_max = 8 << 20;
    let before = medium.list().unwrap();
    let used: u64 = before.iter().map(|file| file.len).sum();
    device.set_capacity(Some(used + (300 << 10)));
    let worker = RunningWorker::start(worker_options());
    let workers = workers(&worker.address, b"", PATIENT);
    let error = attempt(&workers, &job, &env(&medium)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert_eq!(workers.statistics().remove(0).failures, [("job failed", 1)]);
    job.discard_outputs(&*medium).unwrap();
    assert!(outputs(&medium).is_empty());
    device.set_capacity(None);
    assert_eq!(medium.list().unwrap(), before);
    assert!(!local(&job, &medium).tables.is_empty());
}
