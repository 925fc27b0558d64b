//! Time to live: an expired value is invisible to every kind of read at once, and stays invisible.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::{Clock, Executor, ManualClock, Rng, Stepper};
use media::Medium;
use terracedb::events::Event;
use terracedb::{Db, EntryOptions, Expiry, Keyspace, Resources, Snapshot, WriteBatch};

use crate::common::{self, EventRecorder, Mortal};

const START: u64 = 1_700_000_000_000;
const SECOND: Duration = Duration::from_secs(1);

struct Timed {
    clock: Arc<ManualClock>,
    executor: Arc<Stepper>,
    resources: Resources,
    medium: Arc<dyn Medium>,
}

impl Timed {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let executor = Arc::new(Stepper::new(1, Arc::clone(&clock) as _));
        let resources = Resources::builder().memory(common::MEMORY);
        let resources = resources.executor(Arc::clone(&executor) as _).build().unwrap();
        Self { clock, executor, resources, medium: common::memory() }
    }

    /// Advances the clock, and lets the tasks that waited for it take their steps.
    fn pass(&self, time: Duration) {
        self.clock.advance(time);
        (0..40).for_each(|_| _ = self.executor.help());
    }

    fn open(&self) -> Db {
        Db::on_medium(Arc::clone(&self.medium)).resources(&self.resources).open().unwrap()
    }
}

fn at(unix_ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(unix_ms)
}

/// The keys that every kind of read finds; all kinds must agree.
fn keys(ks: &Keyspace, snapshot: Option<&Snapshot>) -> Vec<String> {
    let owned = |iter: terracedb::Iter| -> Vec<String> {
        iter.map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap()).collect()
    };
    let iter = || snapshot.map_or_else(|| ks.iter(), |snapshot| snapshot.iter(ks)).unwrap();
    let found = owned(iter());
    let mut reversed: Vec<_> = iter().rev().map(|entry| entry.unwrap().0).collect();
    reversed.reverse();
    assert_eq!(reversed, found);
    let all = ["a", "b", "c", "d", "e"];
    let many = match snapshot {
        Some(snapshot) => snapshot.multi_get(ks, &all),
        None => ks.multi_get(&all),
    };
    for (key, many) in all.iter().zip(many.unwrap()) {
        let is_there = found.iter().any(|there| there == key);
        assert_eq!(many.unwrap().is_some(), is_there, "{key}");
        let got = snapshot.map_or_else(|| ks.get(key), |snapshot| snapshot.get(ks, key));
        assert_eq!(got.unwrap().is_some(), is_there, "{key}");
    }
    found
}

#[test]
fn an_expired_value_is_invisible_to_every_read() {
    for flushed in [false, true] {
        let timed = Timed::new();
        let db = timed.open();
        let ks = db.open_or_create_keyspace("k").unwrap();
        ks.put("a", "under").unwrap();
        if flushed {
            db.flush().unwrap();
        }
        ks.put_opt("a", "one", &EntryOptions::new().ttl(SECOND)).unwrap();
        ks.put_opt("b", "two", &EntryOptions::new().expires_at(at(START + 2000))).unwrap();
        let mut batch = WriteBatch::new();
        batch.put_opt(&ks, "c", "three", &EntryOptions::new().ttl(3 * SECOND)).unwrap();
        batch
            .put_opt(&ks, "d", vec![7; 5000], &EntryOptions::new().expires_at(at(START + 4000)))
            .unwrap();
        batch.put(&ks, "e", "stays").unwrap();
        db.write(&batch).unwrap();
        if flushed {
            db.flush().unwrap();
        }
        let snapshot = db.snapshot();
        for seconds in 0..6 {
            let left = &["a", "b", "c", "d", "e"][seconds.min(4)..];
            assert_eq!(keys(&ks, None), left, "after {seconds} s");
            // A snapshot does not extend the life of a value.
            assert_eq!(keys(&ks, Some(&snapshot)), left, "after {seconds} s");
            timed.clock.advance(SECOND);
        }
        assert_eq!(ks.get("e").unwrap().as_deref(), Some(&b"stays"[..]));
    }
}

#[test]
fn reads_return_the_value_and_its_expiry() {
    let timed = Timed::new();
    let db = timed.open();
    let ks = db.open_or_create_keyspace("k").unwrap();
    ks.put_opt("short", "v", &EntryOptions::new().ttl(SECOND)).unwrap();
    ks.put_opt("empty", "", &EntryOptions::new().ttl(SECOND)).unwrap();
    ks.put_opt("long", vec![3; 100_000], &EntryOptions::new().expires_at(at(START + 1))).unwrap();
    ks.put("never", "v").unwrap();
    ks.put_opt("gone", "v", &EntryOptions::new().ttl(Duration::ZERO)).unwrap();
    for _ in 0..2 {
        assert_eq!(ks.expiry("short").unwrap(), Some(Expiry::At(at(START + 1000))));
        assert_eq!(ks.get("short").unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(ks.get("empty").unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(ks.get("long").unwrap().as_deref(), Some(&[3; 100_000][..]));
        assert_eq!(ks.expiry("never").unwrap(), Some(Expiry::Never));
        assert_eq!(ks.expiry("gone").unwrap(), None);
        db.flush().unwrap();
    }
    // The longest expiring value is eight bytes shorter.
    let most = common::MEMORY as usize / 8;
    assert!(ks.put_opt("most", vec![0; most], &EntryOptions::new().ttl(SECOND)).is_err());
    ks.put_opt("most", vec![0; most - 8], &EntryOptions::new().ttl(SECOND)).unwrap();
}

/// An entry contains its expiry, so an expired long value is not read (kvrocks#876).
#[test]
fn an_expired_long_value_is_not_read() {
    let timed = Timed::new();
    let value = common::noise(1 << 20);
    let db = timed.open();
    let ks = db.open_or_create_keyspace("k").unwrap();
    ks.put_opt("long", &value, &EntryOptions::new().ttl(SECOND)).unwrap();
    db.flush().unwrap();
    let reads = || db.statistics().device.total().read_bytes;
    let before = reads();
    assert_eq!(ks.get("long").unwrap().as_deref(), Some(&value[..]));
    assert!(reads() - before >= 1 << 20, "a live one is read");
    timed.clock.advance(2 * SECOND);
    let before = reads();
    assert_eq!(ks.get("long").unwrap(), None);
    assert_eq!(ks.iter().unwrap().count(), 0);
    assert!(reads() - before < 64 << 10, "{} bytes were read", reads() - before);
}

#[test] // I5
fn a_clock_set_back_revives_nothing() {
    let timed = Timed::new();
    let db = timed.open();
    let ks = db.open_or_create_keyspace("k").unwrap();
    ks.put_opt("a", "v", &EntryOptions::new().ttl(SECOND)).unwrap();
    ks.put_opt("b", "v", &EntryOptions::new().ttl(60 * SECOND)).unwrap();
    timed.clock.advance(2 * SECOND);
    assert_eq!(keys(&ks, None), ["b"]);
    timed.clock.set_unix_millis(START - 1000);
    assert_eq!(keys(&ks, None), ["b"]);
    // A new TTL starts from the latest known time, too.
    ks.put_opt("c", "v", &EntryOptions::new().ttl(SECOND)).unwrap();
    assert_eq!(ks.expiry("c").unwrap(), Some(Expiry::At(at(START + 3000))));
    drop((ks, db));
    let db = timed.open();
    assert_eq!(keys(&db.open_or_create_keyspace("k").unwrap(), None), ["b", "c"]);
}

#[test]
fn an_iterator_uses_one_time() {
    let timed = Timed::new();
    let db = timed.open();
    let ks = db.open_or_create_keyspace("k").unwrap();
    for key in ["a", "b", "c", "d"] {
        ks.put_opt(key, "v", &EntryOptions::new().ttl(SECOND)).unwrap();
    }
    let mut iter = ks.iter().unwrap();
    assert_eq!(iter.next().unwrap().unwrap().0.as_ref(), b"a");
    timed.clock.advance(2 * SECOND);
    assert_eq!(iter.next_back().unwrap().unwrap().0.as_ref(), b"d");
    assert_eq!(iter.next().unwrap().unwrap().0.as_ref(), b"b");
    assert_eq!(ks.iter().unwrap().count(), 0);
}

/// A value that a merge dropped as expired never comes back, whatever the clock of the next process says,
/// even if the last process was killed.
#[test] // I5
fn reopening_with_a_clock_set_back_shows_no_older_version() {
    let timed = Timed::new();
    let process = Mortal::over(Arc::clone(&timed.medium));
    let db = Db::on_medium(Arc::clone(&process) as _).resources(&timed.resources).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    for key in ["a", "b"] {
        ks.put(key, "under").unwrap();
    }
    db.flush().unwrap();
    ks.put_opt("a", "over", &EntryOptions::new().ttl(SECOND)).unwrap();
    ks.put_opt("c", "alone", &EntryOptions::new().ttl(SECOND)).unwrap();
    ks.put_opt("d", "lives", &EntryOptions::new().ttl(60 * SECOND)).unwrap();
    db.flush().unwrap();
    timed.clock.advance(2 * SECOND);
    db.compact().unwrap();
    process.die();
    drop((ks, db));
    for back in [1000, 3_600_000, START] {
        timed.clock.set_unix_millis(START - back);
        let db = timed.open();
        let ks = db.open_or_create_keyspace("k").unwrap();
        assert_eq!(keys(&ks, None), ["b", "d"], "{back} ms back");
        // New TTLs start from the latest known time.
        ks.put_opt("e", "new", &EntryOptions::new().ttl(SECOND)).unwrap();
        assert_eq!(ks.expiry("e").unwrap(), Some(Expiry::At(at(START + 3000))), "{back} ms back");
        ks.delete("e").unwrap();
        db.compact().unwrap();
    }
    timed.clock.set_unix_millis(START + 61_000);
    assert_eq!(keys(&timed.open().open_or_create_keyspace("k").unwrap(), None), ["b"]);
}

/// The clock jumps back and forth at every opening. A value that expired for a process that ended normally
/// is gone for all later ones, and a value that is not due by any clock is present.
#[test] // I5
fn an_expired_value_stays_gone_whatever_the_clock_says_at_each_opening() {
    let (mut rng, seed) = Rng::from_env();
    let timed = Timed::new();
    // The latest time that the store has reported; none before the first opening.
    let mut latest = 0;
    let mut lives: BTreeMap<String, u64> = BTreeMap::new();
    for opening in 0..60 {
        let why = format!("TERRACE_SEED={seed}, opening {opening}");
        timed.clock.set_unix_millis((START + rng.below(40_000)).saturating_sub(rng.below(30_000)));
        let db = timed.open();
        let ks = db.open_or_create_keyspace("k").unwrap();
        for _ in 0..3 {
            timed.clock.advance(Duration::from_millis(rng.below(500)));
            latest = latest.max(timed.clock.unix_millis());
            let there: Vec<_> =
                ks.iter().unwrap().map(|it| String::from_utf8(it.unwrap().0.to_vec())).collect();
            let expected = lives.iter().filter(|(_, until)| **until > latest);
            let expected: Vec<_> = expected.map(|(key, _)| Ok(key.clone())).collect();
            assert_eq!(there, expected, "{why}");
            let (key, ttl) = (format!("{:02}", rng.below(20)), 1 + rng.below(5000));
            ks.put_opt(&key, "v", &EntryOptions::new().ttl(Duration::from_millis(ttl))).unwrap();
            lives.insert(key, latest + ttl);
            match rng.below(6) {
                0 => db.flush().unwrap(),
                1 => db.compact().unwrap(),
                _ => (),
            }
        }
    }
}

const fn is_clock(event: &Event) -> bool {
    matches!(event, Event::ClockDoubted { .. } | Event::ClockBehind { .. })
}

const DAY: Duration = Duration::from_secs(86_400);
const DECADES: u64 = 75 * 365 * 86_400_000;

/// A store that reported the time START and holds a value for ten days, then opened at `unix_ms`.
fn opened_at(timed: &Timed, unix_ms: u64) -> (Db, Keyspace, Arc<EventRecorder>) {
    let db = timed.open();
    let ks = db.open_or_create_keyspace("k").unwrap();
    ks.put_opt("a", "v", &EntryOptions::new().ttl(10 * DAY)).unwrap();
    ks.put("b", "v").unwrap();
    drop((ks, db));
    timed.clock.set_unix_millis(unix_ms);
    let recorder = Arc::new(EventRecorder::default());
    let builder = Db::on_medium(Arc::clone(&timed.medium)).resources(&timed.resources);
    let db = builder.listener(Arc::clone(&recorder) as _).open().unwrap();
    timed.pass(SECOND);
    let ks = db.open_or_create_keyspace("k").unwrap();
    (db, ks, recorder)
}

/// Scenario: a machine boots with the clock in 2099, and the clock is corrected within a day, before the
/// store is reopened or while it is open. Values that expired by the wrong clock are back, and new TTLs
/// have their full length.
#[test]
fn a_clock_decades_ahead_that_is_corrected_within_a_day_loses_nothing() {
    for reopened in [false, true] {
        let timed = Timed::new();
        let (mut db, mut ks, recorder) = opened_at(&timed, START + DECADES);
        let events = recorder.take(is_clock);
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0].contains("leapt 27375.0 days ahead"), "{events:?}");
        assert_eq!(keys(&ks, None), ["b"], "reads go by the clock");
        assert!(db.statistics().clock.trouble().is_some_and(|it| it.contains("27375.0 days")));
        db.flush().unwrap();
        db.compact().unwrap();
        timed.pass(Duration::from_secs(3600));
        timed.clock.set_unix_millis(START + 3_700_000);
        if reopened {
            drop((ks, db));
            db = timed.open();
            ks = db.open_or_create_keyspace("k").unwrap();
        }
        timed.pass(Duration::from_secs(61));
        assert_eq!(keys(&ks, None), ["a", "b"], "reopened: {reopened}");
        assert_eq!(db.statistics().clock, Default::default());
        ks.put_opt("c", "v", &EntryOptions::new().ttl(SECOND)).unwrap();
        timed.pass(SECOND);
        assert_eq!(keys(&ks, None), ["a", "b"]);
        timed.pass(10 * DAY);
        assert_eq!(keys(&ks, None), ["b"]);
    }
}

/// Scenario: a store is opened after years, or a wrong clock is not corrected for a day. Then the store
/// accepts that time for good.
#[test]
fn a_clock_decades_ahead_is_accepted_after_a_day() {
    let timed = Timed::new();
    let (db, ks, recorder) = opened_at(&timed, START + DECADES);
    timed.pass(DAY);
    assert_eq!(recorder.take(is_clock).len(), 2);
    assert_eq!(keys(&ks, None), ["b"]);
    db.compact().unwrap();
    assert_eq!(db.statistics().clock, Default::default());
    timed.clock.set_unix_millis(START);
    timed.pass(SECOND);
    let events = recorder.take(is_clock);
    assert_eq!(events, ["the wall clock is 27376.0 days behind the latest time seen"]);
    assert_eq!(keys(&ks, None), ["b"]);
    assert!(db.statistics().clock.trouble().is_some_and(|it| it.contains("27376.0 days")));
    timed.clock.set_unix_millis(START + DECADES + 2 * 86_400_000);
    timed.pass(SECOND);
    assert_eq!(
        recorder.take(is_clock),
        ["the wall clock is no longer behind the latest time seen"]
    );
}

/// Scenario: a machine boots with the clock in 1970.
#[test]
fn a_clock_decades_behind_is_reported_and_time_stands_still_until_corrected() {
    let timed = Timed::new();
    let (db, ks, recorder) = opened_at(&timed, 0);
    let events = recorder.take(is_clock);
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains("behind the latest time seen"), "{events:?}");
    assert_eq!(keys(&ks, None), ["a", "b"]);
    timed.pass(20 * DAY);
    assert_eq!(keys(&ks, None), ["a", "b"], "time stands still");
    assert!(db.statistics().clock.trouble().is_some());
    timed.clock.set_unix_millis(START + 20 * 86_400_000);
    timed.pass(SECOND);
    assert_eq!(keys(&ks, None), ["b"]);
    assert_eq!(
        recorder.take(is_clock),
        ["the wall clock is no longer behind the latest time seen"]
    );
    assert_eq!(db.statistics().clock.trouble(), None);
}

/// A value that a transaction read expires, and so does a value written in between: the conflict is still
/// found.
#[test] // I5
fn a_write_to_a_value_that_expired_since_is_a_conflict() {
    for compacts in [false, true] {
        for expires in [false, true] {
            let timed = Timed::new();
            let db = timed.open();
            let ks = db.open_or_create_keyspace("k").unwrap();
            ks.put_opt("lease", "me", &EntryOptions::new().ttl(SECOND)).unwrap();
            let mut transaction = db.transaction();
            assert_eq!(transaction.get(&ks, "lease").unwrap().as_deref(), Some(&b"me"[..]));
            match expires {
                true => ks.put_opt("lease", "other", &EntryOptions::new().ttl(SECOND / 2)).unwrap(),
                false => ks.delete("lease").unwrap(),
            }
            timed.pass(2 * SECOND);
            db.flush().unwrap();
            if compacts {
                db.compact().unwrap();
            }
            transaction.put(&ks, "resource", "mine").unwrap();
            let why = format!("compacts {compacts}, expires {expires}");
            assert!(transaction.commit().is_err_and(|error| error.is_conflict()), "{why}");
            // No reader of an older state is left.
            ks.put("z", "z").unwrap();
            db.compact().unwrap();
            assert_eq!(db.statistics().keyspaces[0].table_entries, 1, "{why}");
        }
    }
}
