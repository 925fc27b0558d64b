//! Many threads, one writer, few syncs.

use std::sync::Barrier;
use std::time::Duration;

use media::{Fault, Faulty, OpKind, Rule};

use super::*;

/// While the device syncs, the others publish; then one group and one sync serve them all.
#[test]
fn threads_that_sync_share_syncs() {
    const THREADS: u32 = 8;
    const EACH: u32 = 25;
    let device = Arc::new(Faulty::new(1));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let (log, ..) = open(&medium).unwrap();
    let slow = Rule::new(OpKind::Sync, Fault::Delay(Duration::from_millis(1)));
    device.inject(slow.times(u64::MAX)).unwrap();
    let before = device.syncs();
    let start = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, start) = (&log, &start);
            scope.spawn(move || {
                start.wait();
                for at in 0..EACH {
                    let first = append(log, thread, 1, &at.to_le_bytes()).unwrap();
                    log.sync(first).unwrap();
                    assert!(log.durable() >= first);
                }
            });
        }
    });
    let (syncs, appends) = (device.syncs() - before, u64::from(THREADS * EACH));
    assert!(syncs * 2 < appends, "{syncs} syncs for {appends} synced appends");
    // Each was acknowledged as durable: a power cut now takes none.
    let image: Arc<dyn Medium> = Arc::new(device.crash_image(3).unwrap());
    assert_eq!(open(&image).unwrap().2.len() as u64, appends);
}

/// Every thread's batches come back in the order it appended them, each with the seqno it was
/// told, and all seqnos are contiguous.
#[test]
fn threads_get_contiguous_seqnos_in_their_own_order() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    let mut told: Vec<(u64, Vec<u8>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u8)
            .map(|thread| {
                let log = &log;
                scope.spawn(move || {
                    let append = |at: u16| {
                        let size =
                            if at.is_multiple_of(100) { 9000 } else { usize::from(at % 300) };
                        let mut body = vec![thread; size + 4];
                        body[..2].copy_from_slice(&at.to_le_bytes());
                        let ops = 1 + u32::from(at % 3);
                        (append(log, 1, ops, &body).unwrap().get(), body)
                    };
                    (0..1000).map(append).collect::<Vec<_>>()
                })
            })
            .collect();
        let told: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(told.iter().all(|told| told.is_sorted()));
        told.into_iter().flatten().collect()
    });
    told.sort_unstable();
    drop(log);
    let (log, _, replayed) = open(&medium).unwrap();
    assert!(replayed == told, "{} replayed, {} told", replayed.len(), told.len());
    assert_eq!(log.last().get(), 4 * (334 + 333 * 2 + 333 * 3));
}
