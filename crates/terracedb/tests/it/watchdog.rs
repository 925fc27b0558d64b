//! The watchdog reports waits that take too long: the waiting callers, the operation, and the end of the
//! wait.
//!
//! The test moves the clock, so nothing here depends on the speed of the machine.

use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Durability, ManualClock, Threads};
use media::{Medium, MemoryMedium};
use terracedb::events::Event;
use terracedb::{Db, Keyspace, Resources, WriteOptions};

use crate::common::{EventRecorder, MEMORY, Mortal, Stepped, until};

const fn is_block(event: &Event) -> bool {
    matches!(event, Event::BlockBegan { .. } | Event::BlockEnded { .. })
}

/// A store on a device that can hang, and its listener.
struct Watched {
    stepped: Stepped,
    device: Arc<Mortal>,
    recorder: Arc<EventRecorder>,
    db: Db,
    keyspace: Keyspace,
}

impl Watched {
    fn new() -> Self {
        let (stepped, recorder) = (Stepped::new(1), Arc::new(EventRecorder::default()));
        let device = Mortal::over(Arc::new(MemoryMedium::new()));
        let medium = Arc::clone(&device) as Arc<dyn Medium>;
        let db = stepped.on(medium).listener(Arc::clone(&recorder) as _).open().unwrap();
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        Self { stepped, device, recorder, db, keyspace }
    }

    /// Runs `work`, which hangs for three seconds in an operation on a file whose name contains `part`.
    /// Returns the events meanwhile, and the text in the statistics.
    fn hung(&self, part: &str, work: impl FnOnce(&Self) + Send) -> (String, String) {
        self.device.gate.hang(part);
        std::thread::scope(|scope| {
            let working = scope.spawn(|| work(self));
            self.device.gate.wait_until_hung();
            let look = |secs| {
                self.stepped.pass(Duration::from_secs(secs));
                (self.recorder.take(is_block), self.db.statistics().blocked)
            };
            let looks = [look(1), look(2), look(1)];
            self.device.gate.let_go();
            working.join().unwrap();
            let after = look(1);
            let [early, (reported, _), (again, blocked)] = looks;
            assert_eq!(early, (vec![], None), "a second is not too long");
            assert_eq!(
                (reported.len(), again.len()),
                (1, 0),
                "reported once: {reported:?} {again:?}"
            );
            assert_eq!(after, (vec!["no longer blocked, after 5.0s".to_owned()], None));
            (reported[0].clone(), blocked.unwrap())
        })
    }
}

/// Scenario: the device hangs in the sync that a writer waits for.
#[test]
fn a_hanging_log_sync_is_reported() {
    let watched = Watched::new();
    let (reported, blocked) = watched.hung("log-", |watched| {
        watched
            .keyspace
            .put_opt("key", "value", &WriteOptions::new().durability(Durability::Sync))
            .unwrap();
    });
    for text in [&reported, &blocked] {
        let expected = "the device has not returned from a sync of `log-0-";
        assert!(text.contains(expected), "{text}");
    }
    assert!(blocked.ends_with("for 4.0 s"), "{blocked}");
}

/// Scenario: a writer needs the next log segment, and the device hangs while it is created. All other users
/// of the log wait behind the writer, except for the watchdog: it has a thread of its own, and the test's
/// clock.
#[test]
fn a_hanging_segment_creation_is_reported() {
    let (recorder, clock) =
        (Arc::new(EventRecorder::default()), Arc::new(ManualClock::at(1_700_000_000_000)));
    // More threads than tasks, so that a waiting task delays no other.
    let executor = Arc::new(Threads::start(32, Arc::clone(&clock) as Arc<dyn Clock>).unwrap());
    let resources = Resources::builder().memory(MEMORY).executor(executor).build().unwrap();
    let device = Mortal::over(Arc::new(MemoryMedium::new()));
    let builder = Db::on_medium(Arc::clone(&device) as _).resources(&resources);
    let db = builder.listener(Arc::clone(&recorder) as _).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    device.gate.hang("log-");
    let heard = || {
        until("what the watchdog says", || {
            // The watchdog's thread reads this clock periodically.
            clock.advance(Duration::from_millis(100));
            Some(recorder.take(is_block)).filter(|taken| !taken.is_empty())
        })
    };
    let (reported, ended) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for number in 0..400u64 {
                let value = vec![0; 60_000];
                keyspace
                    .put_opt(
                        number.to_be_bytes(),
                        &value,
                        &WriteOptions::new().durability(Durability::None),
                    )
                    .unwrap();
            }
        });
        device.gate.wait_until_hung();
        clock.advance(Duration::from_secs(3));
        let reported = heard();
        device.gate.let_go();
        // The clock stands still for all remaining work, so nothing else takes too long.
        writing.join().unwrap();
        (reported, heard())
    });
    assert!(
        reported[0].contains("the device has not returned from a sync of `log-0-"),
        "{reported:?}"
    );
    assert!(ended[0].starts_with("no longer blocked"), "{ended:?}");
}

/// Scenario: the device hangs in the sync of a table that a caller of `flush` waits for. No writer is
/// stalled.
#[test]
fn a_hanging_flush_is_reported_with_keyspace_and_table_and_stalls_no_writer() {
    let watched = Watched::new();
    watched.keyspace.put("key", "value").unwrap();
    let (reported, _) = watched.hung(".table", |watched| watched.keyspace.flush().unwrap());
    assert!(
        reported.contains("1 caller waiting for the flush of keyspace `k` for 3.0 s"),
        "{reported}"
    );
    assert!(reported.contains("a sync of `00000000000000000000.table`"), "{reported}");
    let statistics = watched.db.statistics();
    assert_eq!(statistics.stalled, Duration::ZERO);
    assert!(statistics.flushes_awaited >= Duration::from_secs(4), "{statistics:?}");
}
