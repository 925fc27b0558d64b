//! Polled reads on the disk of the tests: they return the right data, whether the kernel polls or refuses.

use std::path::Path;

use base::Rng;

use super::*;
use crate::file::{FileMedium, FileOptions};
use crate::{Access, Buf, File, Medium, Op, Purpose, Request};

const PAGES: u64 = 64;

/// A file of random pages in `directory`, opened for `access`.
fn file(directory: &Path, access: Access) -> (Arc<dyn File>, Buf) {
    let medium = FileMedium::open(directory, FileOptions::default()).unwrap();
    let mut content = Buf::pages(PAGES as usize);
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    rng.fill(&mut content);
    let (content, written) =
        medium.create("f", Access::Direct, 0).unwrap().write(0, content, Purpose::Flush);
    written.unwrap();
    (medium.open("f", access).unwrap(), content)
}

fn read(file: &Arc<dyn File>, page: u64) -> Operation {
    let op = Op::Read { at: page * 4096, buf: Buf::pages(1) };
    let request = Request { file: Arc::clone(file), op, purpose: Purpose::Data, token: page };
    Operation::new(request).unwrap_or_else(|refused| panic!("{:?}", refused.result))
}

fn ring(depth: usize) -> Option<Ring> {
    // Without io_uring there is nothing to poll.
    Ring::probe().ok()?;
    Some(Ring::new(depth, PollQueues::known(true)).unwrap())
}

/// Reaps all running operations, waiting for `least` at a time. Only lost completions take minutes.
fn reap_all(ring: &mut Ring, least: usize, content: &Buf) -> usize {
    let (mut out, start) = (Vec::new(), Instant::now());
    while ring.running() > 0 {
        ring.reap(least.min(ring.running()), &mut out).unwrap();
        assert!(start.elapsed() < Duration::from_secs(300), "completions never came");
    }
    for done in &out {
        done.result.as_ref().unwrap();
        let from = done.token as usize * 4096;
        assert_eq!(done.buf[..], content[from..from + 4096]);
    }
    out.len()
}

/// Polled reads return the right data, whichever ring completes them, with and without waiting; after a
/// refusal none is polled, and the refusal is reported.
#[test]
fn polled_reads_are_completed_or_repeated_by_interrupt() {
    let directory = tempfile::tempdir().unwrap();
    let (file, content) = file(directory.path(), Access::Direct);
    for least in [1, 3, 0] {
        let Some(mut ring) = ring(4) else { return };
        for round in 0..PAGES / 4 {
            let asked = ring.poll_queues.are_used();
            (0..4).for_each(|page| ring.start(read(&file, round * 4 + page)));
            ring.push_ready(true);
            let is_direct = read(&file, 0).is_direct_read();
            let polled = if asked && ring.poll_queues.are_used() && is_direct { 4 } else { 0 };
            assert_eq!(ring.polled_in_flight(), polled);
            assert_eq!(reap_all(&mut ring, least, &content), 4);
            assert_eq!(ring.polled_in_flight(), 0);
            // Refused for good, with a reason; or completed.
            assert_eq!(ring.poll_queues.notice().is_some(), !ring.poll_queues.are_used());
        }
        println!("polled ring: {}", ring.poll_queues.notice().unwrap_or("served"));
    }
}

/// The kernel would refuse to poll for writes and cached reads, and that refusal would end polling for all.
#[test]
fn only_direct_reads_are_polled() {
    let directory = tempfile::tempdir().unwrap();
    let (cached, content) = file(directory.path(), Access::Bytes);
    let Some(mut ring) = ring(4) else { return };
    ring.start(read(&cached, 5));
    let medium = FileMedium::open(directory.path(), FileOptions::default()).unwrap();
    let direct = medium.open("f", Access::Direct).unwrap();
    let mut buf = Buf::pages(1);
    buf.copy_from_slice(&content[7 * 4096..8 * 4096]);
    let op = Op::Write { at: 7 * 4096, buf };
    let write = Request { file: direct, op, purpose: Purpose::Flush, token: 7 };
    ring.start(Operation::new(write).unwrap_or_else(|refused| panic!("{:?}", refused.result)));
    ring.push_ready(true);
    assert_eq!(ring.polled_in_flight(), 0);
    assert_eq!(reap_all(&mut ring, 2, &content), 2);
    assert!(ring.poll_queues.are_used());
}

/// As for a ring that waits by interrupt: operations in flight complete first.
#[test]
fn a_ring_that_is_dropped_waits_for_polled_reads() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = file(directory.path(), Access::Direct);
    for _ in 0..20 {
        let Some(mut ring) = ring(8) else { return };
        (0..8).for_each(|page| ring.start(read(&file, page)));
        ring.push_ready(true);
        let _submitted = ring.poll();
        drop(ring);
        assert_eq!(Arc::strong_count(&file), 1);
    }
}

/// A failed wait leaks the operations, and their polled reads stay in flight: dropping the ring accepts that.
#[test]
fn a_ring_that_leaked_its_operations_can_be_dropped() {
    let Some(mut ring) = ring(2) else { return };
    let polled = IoUring::new(2).unwrap();
    ring.polled = Some(Polled { ring: polled, in_flight: 1 });
    ring.slots.clear();
    ring.free.clear();
    drop(ring);
}
