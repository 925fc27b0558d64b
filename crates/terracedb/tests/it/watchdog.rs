//! The watchdog: who waits too long is told of, with what he waits for, and that it ended.
//!
//! Time is a clock that the test moves; nothing here depends on how fast anything is.

use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Durability, ManualClock, Threads};
use media::{Medium, MemoryMedium};
use terracedb::{Db, Event, Keyspace, Resources};

use crate::common::{Ear, MEMORY, Mortal, Stepped, until};

const fn is_block(event: &Event) -> bool {
    matches!(event, Event::BlockBegan { .. } | Event::BlockEnded { .. })
}

/// A store on a device that can hang, and who listens to it.
struct Watched {
    stepped: Stepped,
    device: Arc<Mortal>,
    ear: Arc<Ear>,
    db: Db,
    keyspace: Keyspace,
}

impl Watched {
    fn new() -> Self {
        let (stepped, ear) = (Stepped::new(1), Arc::new(Ear::default()));
        let device = Mortal::over(Arc::new(MemoryMedium::new()));
        let medium = Arc::clone(&device) as Arc<dyn Medium>;
        let db = stepped.on(medium).listener(Arc::clone(&ear) as _).open().unwrap();
        let keyspace = db.keyspace("k").unwrap();
        Self { stepped, device, ear, db, keyspace }
    }

    /// Has `work` hang in an operation on a file with `part` in its name, for three seconds; what was told
    /// meanwhile, and what the statistics said.
    fn hung(&self, part: &str, work: impl FnOnce(&Self) + Send) -> (String, String) {
        self.device.gate.hang(part);
        std::thread::scope(|scope| {
            let working = scope.spawn(|| work(self));
            self.device.gate.wait_until_hung();
            let look = |secs| {
                self.stepped.pass(Duration::from_secs(secs));
                (self.ear.take(is_block), self.db.statistics().blocked)
            };
            let looks = [look(1), look(2), look(1)];
            self.device.gate.let_go();
            working.join().unwrap();
            let after = look(1);
            let [early, (told, _), (again, blocked)] = looks;
            assert_eq!(early, (vec![], None), "a second is not too long");
            assert_eq!((told.len(), again.len()), (1, 0), "told once: {told:?} {again:?}");
            assert_eq!(after, (vec!["no longer blocked, after 5.0s".to_owned()], None));
            (told[0].clone(), blocked.unwrap())
        })
    }
}

/// Scenario: the device hangs in the sync that a writer waits for.
#[test]
fn a_sync_of_the_log_that_hangs_is_named() {
    let watched = Watched::new();
    let (told, blocked) = watched.hung("log-", |watched| {
        watched.keyspace.put_with("key", "value", Durability::Sync).unwrap();
    });
    for text in [&told, &blocked] {
        let expected = "the device has not returned from a sync of `log-0-";
        assert!(text.contains(expected), "{text}");
    }
    assert!(blocked.ends_with("for 4.0 s"), "{blocked}");
}

/// Scenario: a writer needs the next segment of the log, and the device hangs while it is made. Whatever
/// else uses the log waits behind the writer, but for the watchdog: it has a thread, and the test's time.
#[test]
fn a_segment_that_is_not_made_is_named() {
    let (ear, clock) = (Arc::new(Ear::default()), Arc::new(ManualClock::at(1_700_000_000_000)));
    // More than there are tasks: one that waits keeps no other.
    let executor = Arc::new(Threads::start(32, Arc::clone(&clock) as Arc<dyn Clock>).unwrap());
    let resources = Resources::builder().memory(MEMORY).executor(executor).build().unwrap();
    let device = Mortal::over(Arc::new(MemoryMedium::new()));
    let builder = Db::on_medium(Arc::clone(&device) as _).resources(&resources);
    let db = builder.listener(Arc::clone(&ear) as _).open().unwrap();
    let keyspace = db.keyspace("k").unwrap();
    device.gate.hang("log-");
    let heard = || {
        until("what the watchdog says", || {
            // Its thread looks at this clock now and then.
            clock.advance(Duration::from_millis(100));
            Some(ear.take(is_block)).filter(|taken| !taken.is_empty())
        })
    };
    let (told, ended) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for number in 0..400u64 {
                let value = vec![0; 60_000];
                keyspace.put_with(number.to_be_bytes(), &value, Durability::None).unwrap();
            }
        });
        device.gate.wait_until_hung();
        clock.advance(Duration::from_secs(3));
        let told = heard();
        device.gate.let_go();
        // Time stands still for all that is left to do: nothing else takes too long.
        writing.join().unwrap();
        (told, heard())
    });
    assert!(told[0].contains("the device has not returned from a sync of `log-0-"), "{told:?}");
    assert!(ended[0].starts_with("no longer blocked"), "{ended:?}");
}

/// Scenario: the device hangs in the sync of the table that somebody waits for. His wait is his own: no
/// writer was kept.
#[test]
fn a_flush_that_hangs_is_named_with_its_keyspace_and_table_and_stalls_no_writer() {
    let watched = Watched::new();
    watched.keyspace.put("key", "value").unwrap();
    let (told, _) = watched.hung(".table", |watched| watched.keyspace.flush().unwrap());
    assert!(told.contains("1 caller waiting for the flush of keyspace `k` for 3.0 s"), "{told}");
    assert!(told.contains("a sync of `00000000000000000000.table`"), "{told}");
    let statistics = watched.db.statistics();
    assert_eq!(statistics.stalled, Duration::ZERO);
    assert!(statistics.flushes_awaited >= Duration::from_secs(4), "{statistics:?}");
}
