//! Queues: order, depth, failures, and many requests in flight.

use std::sync::Arc;

use base::ErrorKind;

use super::page;
use crate::{Access, Buf, Completion, File, Medium, MemoryMedium, Op, Purpose, Queue, Request};

pub(crate) fn request(file: &Arc<dyn File>, op: Op, token: u64) -> Request {
    Request { file: Arc::clone(file), op, purpose: Purpose::Data, token }
}

fn read_request(file: &Arc<dyn File>, at: u64, token: u64) -> Request {
    request(file, Op::Read { at, buf: Buf::pages(1) }, token)
}

pub(crate) fn queues(medium: &dyn Medium) {
    let file = medium.create("q", Access::Direct, 0).unwrap();
    file.write(0, page(0, 0), Purpose::Flush).1.unwrap();
    let mut queue = medium.queue(4).unwrap();
    let mut out = Vec::new();
    queue.complete(1, &mut out).unwrap();
    assert!(out.is_empty(), "nothing in flight, nothing to wait for");

    // A queue is full at its depth, and returns the request unchanged.
    assert_eq!(queue.depth(), 4);
    for token in 0..4 {
        queue.submit(read_request(&file, 0, token)).unwrap();
    }
    let refused = queue.submit(read_request(&file, 0, 99)).unwrap_err();
    assert_eq!((refused.0.token, queue.in_flight()), (99, 4));
    queue.complete(100, &mut out).unwrap();
    assert_eq!(queue.in_flight(), 0);
    let mut tokens: Vec<u64> = out.iter().map(|completion| completion.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [0, 1, 2, 3]);
    for completion in out.drain(..) {
        completion.result.unwrap();
        assert_eq!(completion.buf[..], page(0, 0)[..]);
    }

    // Failures are completions: past the end, unaligned, a file of another medium.
    let foreign = MemoryMedium::new().create("q", Access::Direct, 0).unwrap();
    queue.submit(read_request(&file, 4096, 1)).unwrap();
    queue.submit(read_request(&file, 7, 2)).unwrap();
    queue.submit(read_request(&foreign, 0, 3)).unwrap();
    let all = finish(&mut *queue);
    let kinds: Vec<(u64, ErrorKind, usize)> = all
        .iter()
        .map(|done| (done.token, done.result.as_ref().unwrap_err().kind(), done.buf.len()))
        .collect();
    let expected = [ErrorKind::Corrupt, ErrorKind::Invalid, ErrorKind::Invalid];
    // The queue of a memory medium accepts files of other memory media: this one ends before the read.
    for ((token, kind, len), expected) in kinds.into_iter().zip(expected) {
        let is_foreign_memory = token == 3 && kind == ErrorKind::Corrupt;
        assert!(kind == expected || is_foreign_memory, "token {token}: {kind:?}");
        assert_eq!(len, 4096);
    }

    // Operations keep their file open; dropping a queue waits for operations in flight.
    let removed = medium.create("gone", Access::Direct, 0).unwrap();
    for token in 0..4 {
        let op = Op::Write { at: token * 4096, buf: page(token, 5) };
        queue.submit(request(&removed, op, token)).unwrap();
    }
    medium.remove("gone").unwrap();
    queue.complete(0, &mut out).unwrap();
    drop(queue);
    drop(removed);

    // A queue may move to another thread with operations in flight.
    let mut queue = medium.queue(2).unwrap();
    queue.submit(read_request(&file, 0, 8)).unwrap();
    queue.complete(0, &mut out).unwrap();
    let done = std::thread::spawn(move || finish(&mut *queue)).join().unwrap();
    out.retain(|completion| completion.token == 8);
    assert_eq!(out.len() + done.len(), 1);
}

/// All completions, sorted by token.
pub(crate) fn finish(queue: &mut dyn Queue) -> Vec<Completion> {
    let mut out = Vec::new();
    queue.complete(usize::MAX, &mut out).unwrap();
    assert_eq!(queue.in_flight(), 0);
    out.sort_by_key(|completion| completion.token);
    out
}

/// Several threads keep writes, and then reads, of every class in flight on one file.
pub(crate) fn many_in_flight(medium: &dyn Medium) {
    const PAGES: u64 = 64;
    const PURPOSES: [Purpose; 3] = [Purpose::Data, Purpose::Compaction, Purpose::Scrub];
    let file = medium.create("m", Access::Direct, PAGES * 3 * 4096).unwrap();
    let in_turn = |thread: u64, writing: bool| {
        let mut queue = medium.queue(16).unwrap();
        let (mut out, mut done) = (Vec::new(), 0);
        let mut numbers = (0..PAGES).map(|page| thread * PAGES + page);
        let mut next = numbers.next();
        while next.is_some() || queue.in_flight() > 0 {
            while let Some(number) = next {
                let (at, purpose) = (number * 4096, PURPOSES[(number % 3) as usize]);
                let op = if writing {
                    Op::Write { at, buf: page(number, 1) }
                } else {
                    Op::Read { at, buf: Buf::pages(1) }
                };
                let request = Request { file: Arc::clone(&file), op, purpose, token: number };
                if queue.submit(request).is_err() {
                    break;
                }
                next = numbers.next();
            }
            queue.complete(1, &mut out).unwrap();
            for completion in out.drain(..) {
                completion.result.unwrap();
                assert_eq!(completion.buf[..], page(completion.token, 1)[..]);
                done += 1;
            }
        }
        assert_eq!(done, PAGES);
    };
    for writing in [true, false] {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || in_turn(thread, writing));
            }
        });
        file.sync(Purpose::Flush).unwrap();
    }
}
