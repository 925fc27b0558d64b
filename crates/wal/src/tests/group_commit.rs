//! Group commit: many threads, one leader, few syncs.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use base::Counter;
use media::{Fault, Faulty, OpKind, Rule};

use super::slow_syncs::SlowSyncs;
use super::*;

/// While the device syncs, the other threads append; then one group and one sync serve them all. Each
/// sync lasts until the others have appended, so about two syncs serve a round of all threads.
#[test]
fn concurrent_callers_share_device_syncs() {
    const THREADS: u32 = 8;
    const EACH: u32 = 25;
    let appended = Arc::new(Counter::default());
    let (all, late) = (Arc::clone(&appended), Arc::new(AtomicU64::new(0)));
    let (count_late, latest) = (Arc::clone(&late), Instant::now() + Duration::from_secs(300));
    let wait = move || {
        let all_of_round = all.get().next_multiple_of(u64::from(THREADS));
        while all.get() < all_of_round {
            if Instant::now() > latest {
                count_late.fetch_add(1, SeqCst);
                return;
            }
            std::thread::yield_now();
        }
    };
    let device = Arc::new(Faulty::new(1));
    let medium: Arc<dyn Medium> = Arc::new(SlowSyncs::new(Arc::clone(&device) as _, wait));
    // No append needs another segment, whose making syncs, too.
    let options = Options { segment_bytes: 8 << 20, ..options() };
    let (log, ..) = open_with(&medium, options.clone(), &|_| Some(Seqno::ZERO)).unwrap();
    let before = device.syncs();
    let start = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, start, appended) = (&log, &start, &appended);
            scope.spawn(move || {
                for at in 0..EACH {
                    start.wait();
                    let first = append(log, thread, 1, &at.to_le_bytes()).unwrap();
                    appended.add(1);
                    log.sync(first).unwrap();
                    assert!(log.durable() >= first);
                }
            });
        }
    });
    let (syncs, appends) = (device.syncs() - before, u64::from(THREADS * EACH));
    println!("{syncs} syncs");
    assert_eq!(late.load(SeqCst), 0, "syncs keep others from appending");
    assert_eq!(log.statistics().segments_live, 1);
    assert!(syncs <= 2 * u64::from(EACH), "{syncs} syncs for {appends} synced appends");
    // Every append was acknowledged as durable: a power cut now loses none.
    let image: Arc<dyn Medium> = Arc::new(device.crash_image(3).unwrap());
    let (.., replayed) = open_with(&image, options, &|_| Some(Seqno::ZERO)).unwrap();
    assert_eq!(replayed.len() as u64, appends);
}

/// The batches of each thread come back in append order, each with the seqno that its append returned,
/// and all seqnos are contiguous.
#[test]
fn threads_get_contiguous_seqnos_in_their_own_order() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    let mut returned: Vec<(u64, Vec<u8>)> = std::thread::scope(|scope| {
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
        let returned: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(returned.iter().all(|own| own.is_sorted()));
        returned.into_iter().flatten().collect()
    });
    returned.sort_unstable();
    drop(log);
    let (log, _, replayed) = open(&medium).unwrap();
    assert!(replayed == returned, "{} replayed, {} returned", replayed.len(), returned.len());
    assert_eq!(log.last().get(), 4 * (334 + 333 * 2 + 333 * 3));
}

/// A log that is synced often writes ahead, in this segment and the next one. A log that is not does
/// not. If a sync ahead fails, a record may be lost, so the failure poisons the log.
#[test] // I11
fn a_log_that_is_synced_often_is_written_ahead() {
    let device = Arc::new(Faulty::new(1));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let options = Options { segment_bytes: 4 << 20, ..options() };
    let (log, ..) = open_with(&medium, options.clone(), &|_| None).unwrap();
    let notified = Arc::new(AtomicU64::new(0));
    let notify = Arc::clone(&notified);
    log.on_growth(Box::new(move || _ = notify.fetch_add(1, SeqCst)));
    assert!(log.prepare(1).unwrap());
    let prepare = || {
        let before = device.syncs();
        log.prepare_stores();
        device.syncs() - before
    };
    append(&log, 1, 1, &[1; 100_000]).unwrap();
    log.sync(log.last()).unwrap();
    assert_eq!((notified.load(SeqCst), prepare()), (0, 0));
    append(&log, 1, 1, b"few").unwrap();
    log.sync(log.last()).unwrap();
    assert_eq!((notified.load(SeqCst), prepare(), prepare()), (1, 2, 0));
    for _ in 0..100 {
        append(&log, 1, 1, b"few").unwrap();
        log.sync(log.last()).unwrap();
    }
    assert!(notified.load(SeqCst) > 1);
    device.inject(Rule::new(OpKind::Sync, Fault::Io)).unwrap();
    log.prepare_stores();
    assert_eq!(append(&log, 1, 1, b"lost").unwrap_err().kind(), ErrorKind::Poisoned);
    drop(log);
    let image: Arc<dyn Medium> = Arc::new(device.crash_image(3).unwrap());
    let replayed = open_with(&image, options, &|_| Some(Seqno::ZERO)).unwrap().2;
    assert_eq!(replayed.len(), 102);
}
