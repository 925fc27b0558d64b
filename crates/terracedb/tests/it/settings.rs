//! Settings that change while the store is open, and the events of the store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::ErrorKind;
use media::{Fault, Faulty, Medium, MemoryMedium, OpKind, Purpose, Rule};
use terracedb::events::{Event, Listener, Task};
use terracedb::{Codec, Db, Durability};

use crate::common::{self, Stepped};

#[derive(Debug, Default)]
struct EventRecorder(Mutex<Vec<Event>>);

impl Listener for EventRecorder {
    fn event(&self, event: &Event) {
        assert!(!event.to_string().is_empty());
        self.0.lock().unwrap().push(event.clone());
    }
}

impl EventRecorder {
    fn count(&self, is: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|event| is(event)).count()
    }
}

fn fill(db: &Db, round: u32) -> u64 {
    let keyspace = db.open_or_create_keyspace("one").unwrap();
    let before = db.statistics().keyspaces[0].table_bytes;
    for number in 0..2000 {
        keyspace
            .put(format!("key{number:05}"), format!("{round} {}", "value ".repeat(30)))
            .unwrap();
    }
    db.flush().unwrap();
    db.statistics().keyspaces[0].table_bytes - before
}

/// Merges keep to the set rate over any period; a change applies at once.
#[test]
fn merges_keep_to_the_set_rate() {
    const RATE: u64 = 256 << 10;
    const SECONDS: u64 = 10;
    let stepped = Stepped::new(1);
    let builder = stepped.on(Arc::new(MemoryMedium::new())).codec(Codec::None);
    let db = builder.compaction_rate(RATE).open().unwrap();
    for round in 0..10 {
        fill(&db, round);
    }
    let moved = || {
        let merges = db.statistics().device.of(Purpose::Compaction);
        merges.read_bytes + merges.write_bytes
    };
    let compaction = db.start_compaction().unwrap();
    let before = moved();
    for second in 1..=SECONDS {
        // Every task gets many turns, and the rate limit lets few pass.
        (0..100).for_each(|_| stepped.pass(Duration::from_millis(10)));
        let (moved, most) = (moved() - before, RATE * second);
        // One step may run ahead of the rate.
        assert!(moved <= most + (2 << 20), "{moved} bytes in {second} s");
        assert!(second < SECONDS || moved + (1 << 20) >= most, "{moved} bytes in {second} s");
    }
    assert!(!compaction.is_finished());
    let changed = db.change_settings(|settings| settings.compaction_rate = 0).unwrap();
    assert_eq!(changed.compaction_rate, 0);
    (0..20).for_each(|_| stepped.pass(Duration::from_millis(10)));
    assert!(compaction.is_finished());
    compaction.wait().unwrap();
}

#[test]
fn changed_settings_apply_to_later_writes_flushes_and_merges() {
    let (faulty, stepped) = (Arc::new(Faulty::new(1)), Stepped::new(1));
    let medium = Arc::clone(&faulty) as Arc<dyn Medium>;
    let db = stepped.on(medium).open().unwrap();
    assert_eq!(db.settings().memory, common::MEMORY);

    let compressed = fill(&db, 0);
    db.change_settings(|settings| settings.codec = Codec::None).unwrap();
    let stored = fill(&db, 1);
    assert!(stored > 2 * compressed, "{stored} {compressed}");

    // Merges use the new codec, too.
    db.change_settings(|settings| settings.codec = Codec::Lz4).unwrap();
    db.compact().unwrap();
    let merged = db.statistics().keyspaces[0].table_bytes;
    assert!(merged < stored, "{merged} {stored}");

    let put = || db.open_or_create_keyspace("one").unwrap().put("a", "b").unwrap();
    let syncs = faulty.syncs();
    put();
    assert_eq!(faulty.syncs(), syncs);
    db.change_settings(|settings| settings.durability = Durability::Sync).unwrap();
    put();
    assert_eq!(faulty.syncs(), syncs + 1);

    let change = |settings: &mut terracedb::Settings| {
        settings.durability = Durability::Interval;
        settings.sync_interval = Duration::from_secs(5);
    };
    db.change_settings(change).unwrap();
    stepped.pass(Duration::from_millis(1));
    put();
    let syncs = faulty.syncs();
    stepped.pass(Duration::from_secs(1));
    assert_eq!(faulty.syncs(), syncs, "not yet");
    stepped.pass(Duration::from_secs(5));
    assert_eq!(faulty.syncs(), syncs + 1);

    let twice = 2 * common::MEMORY;
    db.change_settings(|settings| settings.memory = twice).unwrap();
    assert_eq!((db.settings().memory, db.resources().memory()), (twice, twice));
}

#[test]
fn an_invalid_change_is_refused_by_name_and_changes_nothing() {
    let db = Stepped::new(2).on(common::memory()).open().unwrap();
    let before = db.settings();
    let refused = |name: &str, change: &dyn Fn(&mut terracedb::Settings)| {
        let error = db
            .change_settings(|settings| {
                settings.durability = Durability::Sync;
                change(settings);
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(db.settings(), before, "{error}");
    };
    refused("zstd_level", &|settings| settings.zstd_level = 99);
    refused("deflate_level", &|settings| settings.deflate_level = 10);
    refused("sync_interval", &|settings| settings.sync_interval = Duration::ZERO);
    refused("scrub_interval", &|settings| settings.scrub_interval = Duration::ZERO);
    refused("recover_damaged_log", &|settings| settings.recover_damaged_log = true);
    refused("compaction", &|settings| settings.compaction.fanout += 1);
    refused("memory", &|settings| settings.memory = 1);
}

/// Flushes, merges and checkpoints each send an event when they begin and when they end.
#[test]
fn flushes_merges_and_checkpoints_send_events() {
    let (recorder, stepped) = (Arc::new(EventRecorder::default()), Stepped::new(3));
    let db = stepped.on(common::memory()).listener(Arc::clone(&recorder) as _).open().unwrap();
    db.open_or_create_keyspace("one").unwrap();
    fill(&db, 0);
    fill(&db, 1);
    assert_eq!(recorder.count(|it| matches!(it, Event::FlushBegan { bytes: 1.., .. })), 2);
    assert_eq!(
        recorder.count(|it| matches!(it, Event::FlushEnded { bytes: 1.., error: None, .. })),
        2
    );
    db.compact().unwrap();
    let began = recorder.count(|it| matches!(it, Event::CompactionBegan { .. }));
    assert!(began > 0);
    let ended = recorder.count(|it| {
        matches!(it, Event::CompactionEnded { inputs, outputs, error: None, bytes_read: 1.., .. }
            if !inputs.is_empty() && !outputs.is_empty())
    });
    assert_eq!(ended, began);
    let copy: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    db.checkpoint_on(&copy, &terracedb::tools::CheckpointOptions::default()).unwrap();
    assert_eq!(recorder.count(|it| matches!(it, Event::CheckpointEnded { .. })), 1);
}

/// On a full device flushes fail, and later recover; both send an event.
#[test]
fn failing_and_recovered_flushes_send_events() {
    let (faulty, stepped) = (Arc::new(Faulty::new(4)), Stepped::new(4));
    let recorder = Arc::new(EventRecorder::default());
    let medium = Arc::clone(&faulty) as Arc<dyn Medium>;
    let db = stepped.on(medium).listener(Arc::clone(&recorder) as _).open().unwrap();
    let keyspace = db.open_or_create_keyspace("one").unwrap();
    keyspace.put("a", "b").unwrap();
    faulty.inject(Rule::new(OpKind::Names, Fault::NoSpace).name(".table").times(1000)).unwrap();
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::NoSpace);
    stepped.pass(Duration::from_millis(200));
    let failed = |it: &Event| matches!(it, Event::TaskFailed { task: Task::Flush, .. });
    assert_eq!(recorder.count(failed), 1);
    assert!(recorder.count(|it| matches!(it, Event::FlushEnded { error: Some(_), .. })) > 0);
    faulty.heal();
    stepped.pass(Duration::from_secs(1));
    stepped.pass(Duration::from_millis(200));
    assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"b"[..]));
    let recovered = |it: &Event| matches!(it, Event::TaskRecovered { task: Task::Flush, .. });
    assert_eq!((recorder.count(failed), recorder.count(recovered)), (1, 1));
}

/// Writers that fill the write buffers without a flush are delayed; the beginning and the end send an
/// event.
#[test]
fn a_write_delay_sends_events_when_it_begins_and_ends() {
    let (stepped, recorder) = (Stepped::new(1), Arc::new(common::EventRecorder::default()));
    let db = stepped.on(common::memory()).listener(Arc::clone(&recorder) as _).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let is_delay = |event: &Event| matches!(event, Event::DelayBegan { .. } | Event::DelayEnded);
    let mut events = Vec::new();
    for number in 0..10_000u64 {
        keyspace.put(number.to_be_bytes(), common::noise(4000)).unwrap();
        // After nine tenths of the write buffers, background work takes a few steps.
        if number % 2500 == 2499 {
            stepped.pass(Duration::from_millis(100));
        }
        events.extend(recorder.take(is_delay));
    }
    db.wait_until_settled().unwrap();
    stepped.pass(Duration::from_secs(1));
    events.extend(recorder.take(is_delay));
    assert!(events.len() >= 2 && events.len().is_multiple_of(2), "{events:?}");
    for pair in events.chunks(2) {
        assert!(pair[0].starts_with("writes are delayed: "), "{events:?}");
        assert_eq!(pair[1], "writes are no longer delayed", "{events:?}");
    }
}
