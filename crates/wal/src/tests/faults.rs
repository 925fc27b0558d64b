//! Devices that fail: a failed store or sync ends writing, a full device does not.

use base::ErrorKind;
use media::{Fault, Faulty, Holding, OpKind, Purpose, Rule};

use super::*;

fn faulty() -> (Arc<Faulty>, Arc<dyn Medium>) {
    let device = Arc::new(Faulty::new(1));
    (Arc::clone(&device), device)
}

fn assert_poisoned(log: &Log) {
    let first = log.poisoned().unwrap();
    for error in [append(log, 1, 1, b"x").unwrap_err(), log.sync(log.last()).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        assert!(error.to_string().contains(&first.to_string()), "{error}");
    }
}

#[test]
fn a_failed_store_poisons_the_log_and_synced_records_come_back() {
    let (device, medium) = faulty();
    let (log, ..) = open(&medium).unwrap();
    append(&log, 1, 1, b"kept").unwrap();
    log.sync(log.last()).unwrap();
    append(&log, 1, 1, b"not synced").unwrap();
    device.inject(Rule::new(OpKind::Write, Fault::Io).purpose(Purpose::Log)).unwrap();
    assert_eq!(append(&log, 1, 1, b"lost").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_poisoned(&log);
    assert_eq!((log.last().get(), log.durable().get()), (2, 1));
    // The device works again, but the log stays poisoned: nothing is retried.
    device.heal();
    assert_poisoned(&log);
    drop(log);
    let (_, _, replayed) = open(&medium).unwrap();
    assert_eq!(replayed[0], (1, b"kept".to_vec()));
}

#[test]
fn a_failed_sync_poisons_the_log_and_acknowledges_nothing() {
    for at in 0..2 {
        let (device, medium) = faulty();
        let (log, ..) = open(&medium).unwrap();
        append(&log, 1, 1, b"kept").unwrap();
        log.sync(log.last()).unwrap();
        append(&log, 1, 1, &[at; 3000]).unwrap();
        device.inject(Rule::new(OpKind::Sync, Fault::Io)).unwrap();
        assert_eq!(log.sync(log.last()).unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(log.durable().get(), 1);
        assert_poisoned(&log);
        let image: Arc<dyn Medium> = Arc::new(device.crash_image(u64::from(at)).unwrap());
        let (_, _, replayed) = open(&image).unwrap();
        assert_eq!(replayed[0], (1, b"kept".to_vec()));
    }
}

/// A segment that cannot be made durable costs the callers that need it, until another one can be made.
/// If its file comes back with a power cut, it is not damage.
#[test] // I11
fn a_segment_that_cannot_be_made_fails_only_the_appends_that_need_it() {
    let rules = [(OpKind::Names, "directory"), (OpKind::Sync, "log-"), (OpKind::Write, "log-")];
    for (seed, (on, name)) in (0..20).flat_map(|seed| rules.map(|rule| (seed, rule))) {
        let device = Arc::new(Faulty::new(seed));
        let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
        let (log, ..) = open(&medium).unwrap();
        let replayed = |records| {
            let image: Arc<dyn Medium> = Arc::new(device.crash_image(seed).unwrap());
            let replayed = open(&image).unwrap_or_else(|e| panic!("{on:?}, seed {seed}: {e}")).2;
            assert_eq!(replayed.len(), records, "{on:?}, seed {seed}");
        };
        append(&log, 1, 1, b"before").unwrap();
        device.inject(Rule::new(on, Fault::Io).name(name)).unwrap();
        assert_ne!(log.prepare(1).unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(device.struck(), 1);
        log.sync(log.last()).unwrap();
        replayed(1);
        // A segment that is needed at once.
        append(&log, 1, 1, &[1; 20_000]).unwrap();
        device.inject(Rule::new(OpKind::Names, Fault::Io).name("directory")).unwrap();
        assert_ne!(append(&log, 1, 1, &[2; 20_000]).unwrap_err().kind(), ErrorKind::Poisoned);
        for count in 2..5 {
            log.sync(log.last()).unwrap();
            replayed(count);
            append(&log, 1, 1, &[3; 20_000]).unwrap();
        }
        assert_eq!(open(&medium).unwrap().2.len(), 5);
    }
}

/// The removal of an unfinished segment may be deferred by a copy of the log, or be lost with the next
/// sync of names, which fails. The next segment gets its number, so no remains stand before records.
#[test] // I11
fn an_unfinished_segment_with_a_late_removal_is_not_damage() {
    for (seed, is_copied) in (0..200).flat_map(|seed| [(seed, true), (seed, false)]) {
        let device = Arc::new(Faulty::new(seed));
        let holding = Arc::new(Holding::new(Arc::clone(&device) as _));
        let medium: Arc<dyn Medium> = Arc::clone(&holding) as _;
        let (log, ..) = open(&medium).unwrap();
        append(&log, 1, 1, b"before").unwrap();
        log.sync(log.last()).unwrap();
        let _hold = is_copied.then(|| holding.hold());
        device.inject(Rule::new(OpKind::Sync, Fault::Io).name("log-")).unwrap();
        assert_ne!(log.prepare(1).unwrap_err().kind(), ErrorKind::Poisoned);
        if !is_copied {
            device.inject(Rule::new(OpKind::Names, Fault::Io).name("directory")).unwrap();
            assert_ne!(log.prepare(1).unwrap_err().kind(), ErrorKind::Poisoned);
        }
        for at in 0..3 {
            append(&log, 1, 1, &[at; 20_000]).unwrap();
        }
        log.sync(log.last()).unwrap();
        let image: Arc<dyn Medium> = Arc::new(device.crash_image(seed).unwrap());
        let replayed = open(&image).unwrap_or_else(|e| panic!("{is_copied}, seed {seed}: {e}")).2;
        assert_eq!(replayed.len(), 4, "{is_copied}, seed {seed}");
    }
}

/// A segment that can be neither finished nor removed would look like damage.
#[test]
fn an_unfinished_segment_that_cannot_be_removed_poisons_the_log() {
    let (device, medium) = faulty();
    let (log, ..) = open(&medium).unwrap();
    append(&log, 1, 1, b"x").unwrap();
    device.inject(Rule::new(OpKind::Sync, Fault::Io).name("log-")).unwrap();
    device.inject(Rule::new(OpKind::Names, Fault::Io).name("log-").after(1)).unwrap();
    assert_eq!(log.prepare(1).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_poisoned(&log);
}

/// No space for a next segment: no partial write, no seqno is lost, reads go on, and appends work again
/// once there is space.
#[test]
fn a_full_device_refuses_appends_until_there_is_space() {
    let (device, medium) = faulty();
    let (log, ..) = open(&medium).unwrap();
    device.set_capacity(Some(options().segment_bytes + 100));
    let mut appended = 0;
    let error = loop {
        match append(&log, 1, 1, &[1; 700]) {
            Ok(seqno) => {
                appended += 1;
                assert_eq!(seqno.get(), appended);
            }
            Err(error) => break error,
        }
        assert!(appended < 100, "the device fills");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert_eq!(log.prepare(1).unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(log.poisoned().is_none());
    log.sync(log.last()).unwrap();
    assert_eq!(log.durable().get(), appended);
    assert_eq!(append(&log, 1, 1, &[1; 8000]).unwrap_err().kind(), ErrorKind::NoSpace);
    device.set_capacity(None);
    assert_eq!(append(&log, 1, 1, b"again").unwrap().get(), appended + 1);
    drop(log);
    let (_, _, replayed) = open(&medium).unwrap();
    assert_eq!(replayed.len() as u64, appended + 1);
}

/// A store on a full device can be opened and read. The tail that recovery cut off stays cut off when
/// appends resume.
#[test]
fn a_log_opens_on_a_full_device() {
    let (device, medium) = faulty();
    let (log, ..) = open(&medium).unwrap();
    append(&log, 1, 1, b"one").unwrap();
    drop(log);
    device.set_capacity(Some(options().segment_bytes));
    let (log, _, replayed) = open(&medium).unwrap();
    assert_eq!((replayed.len(), log.last().get(), log.durable().get()), (1, 1, 1));
    assert_eq!(append(&log, 1, 1, b"two").unwrap_err().kind(), ErrorKind::NoSpace);
    log.flushed(KeyspaceId(1), Seqno::new(2));
    assert_eq!(free(&log), 0, "the only segment states the end of the log");
    device.set_capacity(None);
    assert_eq!(append(&log, 1, 1, b"two").unwrap().get(), 2);
    assert_eq!(free(&log), 1);
    drop(log);
    assert_eq!(open(&medium).unwrap().2, [(2, b"two".to_vec())]);
}

/// Unused segments made ahead are removed first to free space for a segment that is needed.
#[test]
fn segments_made_ahead_are_removed_for_space_on_a_full_device() {
    let mut torn = 0;
    for seed in 0..20 {
        let (device, medium) = faulty();
        let (log, ..) = open_with(&medium, large(), &|_| Some(Seqno::ZERO)).unwrap();
        append(&log, 1, 1, b"kept").unwrap();
        log.sync(log.last()).unwrap();
        assert!(log.prepare(1).unwrap());
        for at in 0..20 {
            append(&log, 1, 1, &[at; 3000]).unwrap();
        }
        drop(log);
        let image = device.crash_image(seed).unwrap();
        let full = Arc::new(Faulty::over(&image, seed).unwrap());
        let used = image.list().unwrap().iter().map(|file| file.len).sum();
        full.set_capacity(Some(used));
        let medium = Arc::clone(&full) as Arc<dyn Medium>;
        let (log, recovery, replayed) =
            open_with(&medium, large(), &|_| Some(Seqno::ZERO)).unwrap();
        assert_eq!(replayed[0], (1, b"kept".to_vec()), "seed {seed}");
        append(&log, 1, 1, b"a delete").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        torn += u32::from(recovery.torn.is_some());
        drop(log);
        let again = open_with(&medium, large(), &|_| Some(Seqno::ZERO)).unwrap().2;
        assert_eq!(again.len(), replayed.len() + 1, "seed {seed}");
    }
    assert!(torn > 0);
}

/// A log of one synced record on a device with this many bytes, in segments of 128 KiB.
fn with_one(capacity: u64) -> (Arc<Faulty>, Arc<dyn Medium>) {
    let (device, medium) = faulty();
    let (log, ..) = open_with(&medium, large(), &|_| Some(Seqno::ZERO)).unwrap();
    append(&log, 1, 1, b"one").unwrap();
    log.sync(log.last()).unwrap();
    drop(log);
    device.set_capacity(Some(capacity));
    (device, medium)
}

fn large() -> Options {
    Options { segment_bytes: 4 * SEGMENT_BYTES_MIN, ..options() }
}

/// An open on a full device cuts the last segment for space. The next open finds all records, whether or
/// not a segment was made in that space (I11), however often, and at any power cut.
#[test] // I11
fn a_log_on_a_full_device_survives_repeated_opens() {
    let reopen = |medium: &Arc<dyn Medium>| {
        open_with(medium, large(), &|_| Some(Seqno::ZERO)).unwrap_or_else(|error| panic!("{error}"))
    };
    let one = [(1, b"one".to_vec())];
    for spare in [0, 2 * SEGMENT_BYTES_MIN] {
        // Space for no segment even after the cut; or only for the smallest one after it.
        let capacity = large().segment_bytes + spare;
        let (device, medium) = with_one(capacity);
        if spare == 0 {
            let room = medium.create("other", media::Access::Bytes, 0).unwrap();
            device.set_capacity(None);
            room.set_len(3 * SEGMENT_BYTES_MIN).unwrap();
            device.set_capacity(Some(capacity));
        }
        for _ in 0..3 {
            assert_eq!(reopen(&medium).2, one);
        }
        device.set_capacity(None);
        let (log, ..) = reopen(&medium);
        assert_eq!(append(&log, 1, 1, b"two").unwrap().get(), 2);
        drop(log);
        assert_eq!(reopen(&medium).2.len(), 2);
    }
    for at in 0.. {
        let (device, medium) = with_one(large().segment_bytes);
        device.freeze(media::Freeze::AtChange(device.changes() + at));
        drop(open_with(&medium, large(), &|_| Some(Seqno::ZERO)));
        for seed in 0..4 {
            let image: Arc<dyn Medium> = Arc::new(device.crash_image(seed).unwrap());
            assert_eq!(reopen(&image).2, one, "change {at}, seed {seed}");
        }
        if !device.is_frozen() {
            assert!(at > 3, "only {at} changes");
            break;
        }
    }
}

/// After an open fails at any point, the next open finds every durable record.
#[test] // I11
fn a_failed_open_can_be_repeated() {
    for on in [OpKind::Names, OpKind::Write, OpKind::Sync] {
        let mut failed = 0;
        for after in 0..12 {
            for capacity in [large().segment_bytes, u64::MAX] {
                let (device, medium) = with_one(capacity);
                device.inject(Rule::new(on, Fault::Io).after(after).times(2)).unwrap();
                failed += u32::from(open_with(&medium, large(), &|_| Some(Seqno::ZERO)).is_err());
                device.heal();
                let image: Arc<dyn Medium> = Arc::new(device.crash_image(after).unwrap());
                for medium in [medium, image] {
                    let (_, _, replayed) = open_with(&medium, large(), &|_| Some(Seqno::ZERO))
                        .unwrap_or_else(|error| panic!("{on:?} after {after}: {error}"));
                    assert_eq!(replayed, [(1, b"one".to_vec())], "{on:?} after {after}");
                }
            }
        }
        assert!(failed > 0, "{on:?}");
    }
}

/// The checksum detects a record that the device stored elsewhere or flipped a bit of (I8).
#[test]
fn misdirected_and_flipped_stores_fail_their_checksum() {
    for fault in [
        Fault::Misdirected { name: None, at: 12_000 },
        Fault::Misdirected { name: None, at: 8192 },
        Fault::Lost,
        Fault::Flip,
    ] {
        let (device, medium) = faulty();
        let (log, ..) = open(&medium).unwrap();
        append(&log, 1, 1, &[1; 100]).unwrap();
        device.inject(Rule::new(OpKind::Write, fault.clone()).purpose(Purpose::Log)).unwrap();
        append(&log, 1, 1, &[2; 100]).unwrap();
        append(&log, 1, 1, &[3; 100]).unwrap();
        log.sync(log.last()).unwrap();
        drop(log);
        let error = open(&medium).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{fault:?}: {error}");
    }
}

/// An unreadable page is never taken for the end of the log.
#[test]
fn a_device_that_cannot_read_stops_recovery() {
    let (device, medium) = faulty();
    let (log, ..) = open(&medium).unwrap();
    append(&log, 1, 1, &[1; 100]).unwrap();
    drop(log);
    for after in 0..2 {
        let rule = Rule::new(OpKind::Read, Fault::Io).after(after);
        device.inject(rule).unwrap();
        assert_eq!(open(&medium).unwrap_err().kind(), ErrorKind::Corrupt);
        device.heal();
    }
    assert_eq!(open(&medium).unwrap().2.len(), 1);
}

/// Memory is charged before it is used (I10): a log that does not fit is refused.
#[test]
fn a_log_over_its_budget_is_refused() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    append(&log, 1, 1, &vec![1; 3 << 20]).unwrap();
    drop(log);
    let open = |limit| {
        let budget = base::Budget::new(limit);
        let (account, medium) = (budget.account("log"), Arc::clone(&medium));
        let mut replay = |_: crate::Appended, _: &[u8]| Ok(());
        Log::open(medium, options(), &account, &|_| Some(Seqno::ZERO), &mut replay)
            .map(|_| account.peak())
    };
    assert!(open(1 << 20).unwrap_err().is_retryable());
    let peak = open(8 << 20).unwrap();
    assert!(peak >= 3 << 20, "{peak} bytes were charged for a record of 3 MiB");
}

/// An open stores records again only as verified: a device that returns wrong bytes once costs no
/// replayed record.
#[test] // I8
fn a_transient_read_error_is_not_stored_back() {
    let (device, medium) = faulty();
    let (log, ..) = open_with(&medium, large(), &|_| Some(Seqno::ZERO)).unwrap();
    let mut expected = Replayed::new();
    for at in 0..12u8 {
        // Records within pages, across pages, and one that is stored alone.
        let body = vec![at; if at == 7 { 300_000 } else { usize::from(at) * 900 }];
        expected.push((append(&log, 1, 1, &body).unwrap().get(), body));
        if at % 5 == 4 {
            log.sync(log.last()).unwrap();
        }
    }
    drop(log);
    let image = device.process_death_image().unwrap();
    let mut replayed_all = 0;
    for nth in 0.. {
        let device = Arc::new(Faulty::over(&image, nth).unwrap());
        let medium = Arc::clone(&device) as Arc<dyn Medium>;
        device.inject(Rule::new(OpKind::Read, Fault::Flip).after(nth)).unwrap();
        let opened = open_with(&medium, large(), &|_| Some(Seqno::ZERO));
        let struck = device.struck() > 0;
        device.heal();
        // A tail that was not certainly synced may be cut off; then it stays cut off.
        let first = opened.map_or_else(|_| expected.clone(), |(_, _, replayed)| replayed);
        assert!(expected.starts_with(&first), "read {nth}");
        let again = open_with(&medium, large(), &|_| Some(Seqno::ZERO));
        let (_, _, again) = again.unwrap_or_else(|error| panic!("read {nth}: {error}"));
        assert!(again == first, "read {nth}: {} of {} records", again.len(), first.len());
        replayed_all += u64::from(struck && first == expected);
        if !struck {
            break;
        }
    }
    assert!(replayed_all > 0);
}
