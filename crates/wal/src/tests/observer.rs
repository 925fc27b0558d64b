//! The observer sees every batch once and in order; a check can refuse its own batch.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Error;

use super::*;
use crate::Observer;

/// Records the batches it sees.
#[derive(Debug, Default)]
struct Notes(Mutex<Replayed>);

impl Observer for Notes {
    fn appended(&self, first: Seqno, body: &[u8]) {
        self.0.lock().unwrap().push((first.get(), body.to_vec()));
    }
}

#[test]
fn an_observer_sees_the_batches_that_recovery_replays() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    append(&log, 1, 1, b"before").unwrap();
    let notes = Arc::new(Notes::default());
    assert_eq!(log.observe(Some(Arc::clone(&notes) as _)).get(), 2);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let log = &log;
            scope.spawn(move || {
                for at in 0..50usize {
                    // Some batches are longer than a group, and one is longer than a segment.
                    let length = [5, 300, 20_000, 0][at % 4] * usize::from(thread + 1);
                    append(log, u32::from(thread), 1 + at as u32 % 3, &vec![thread; length])
                        .unwrap();
                }
            });
        }
    });
    log.observe(None);
    append(&log, 1, 1, b"after").unwrap();
    drop(log);
    let (_, _, mut replayed) = open(&medium).unwrap();
    replayed.remove(0);
    replayed.pop();
    let seen = std::mem::take(&mut *notes.0.lock().unwrap());
    assert_eq!(seen.len(), 200);
    assert!(seen == replayed);
}

/// Compare and append: of the threads that read the same number, one may write the next.
#[test]
fn nothing_is_appended_between_a_check_and_its_batch() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    let (number, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let read = number.load(Ordering::SeqCst);
                    let check = &mut |_| {
                        let raise = number.compare_exchange(
                            read,
                            read + 1,
                            Ordering::SeqCst,
                            Ordering::SeqCst,
                        );
                        raise.map(drop).map_err(|_| Error::retry("number"))
                    };
                    let body = (read + 1).to_le_bytes();
                    let batch = Batch { keyspaces: &[KeyspaceId(1)], ops: 1, body: &body };
                    if log.append_if(batch, check).is_err() {
                        lost.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    drop(log);
    let (_, _, replayed) = open(&medium).unwrap();
    let bodies: Vec<_> = (1..=number.into_inner()).map(|at| at.to_le_bytes().to_vec()).collect();
    assert_eq!(bodies.len() as u64 + lost.into_inner(), 400);
    assert!(replayed.into_iter().map(|(_, body)| body).eq(bodies));
}
