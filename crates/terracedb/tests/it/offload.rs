//! Merges at workers, through the public API: what a store holds is the same, whoever merged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use base::{ManualClock, Threads};
use media::{Medium, MemoryMedium, Metered, Purpose};
use terracedb::compaction::{
    Address, Credentials, Root, Timing, Verify, Worker, WorkerOptions, Workers, with_workers,
};
use terracedb::events::{Event, Listener};
use terracedb::{Db, EntryOptions, Resources, env};

use crate::common::{self, Mortal};

/// No live worker is given up, however slow the machine is.
const TIMING: Timing = Timing {
    lease: Duration::from_secs(300),
    beat: Duration::from_millis(50),
    connect: Duration::from_secs(300),
    stall: Duration::from_secs(300),
};

struct RunningWorker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RunningWorker {
    fn start(address: &Address, root: Option<&std::path::Path>) -> Self {
        let to_root = |directory: &std::path::Path| Root {
            name: "store".into(),
            directory: directory.to_owned(),
        };
        let options = WorkerOptions {
            memory: 128 << 20,
            slots: 2,
            roots: root.map(to_root).into_iter().collect(),
            timing: TIMING,
            ..WorkerOptions::default()
        };
        let worker = Worker::listen(address, options).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || worker.run(&stopped, |_| {}).unwrap());
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[derive(Debug, Default)]
struct Failures(Mutex<Vec<String>>);

impl Listener for Failures {
    fn event(&self, event: &Event) {
        if matches!(event, Event::OffloadFailed { .. }) {
            self.0.lock().unwrap().push(event.to_string());
        }
    }
}

/// Overwrites and deletes keys, flushes after each round, and compacts. Returns what the store must hold.
fn fill(db: &Db, rounds: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let model = write(db, rounds);
    db.compact().unwrap();
    model
}

/// Overwrites and deletes keys, and flushes after each round.
fn write(db: &Db, rounds: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let keyspace = db.create_keyspace("k").unwrap();
    let mut model = BTreeMap::new();
    for round in 0..rounds {
        for number in 0..2000u32 {
            let key = format!("key{:05}", number * 7 % 3000 + round).into_bytes();
            if number % 11 == 3 {
                keyspace.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = format!("value {number} of round {round}").repeat(4).into_bytes();
                keyspace.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        db.flush().unwrap();
    }
    model
}

fn content(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let keyspace = db.keyspace("k").unwrap();
    let entries = keyspace.iter().unwrap().map(|entry| entry.unwrap());
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn workers(address: &Address) -> Workers {
    let clock = Arc::new(env::SystemClock::new());
    Workers::new(vec![address.clone()], Credentials::default(), TIMING, clock).unwrap()
}

fn open(dir: &std::path::Path, address: &Address, listener: &Arc<Failures>) -> Db {
    let builder = Db::builder(dir).memory(common::MEMORY).workers(Arc::new(workers(address)));
    builder.listener(Arc::clone(listener) as _).open().unwrap()
}

#[test]
fn merges_move_to_a_worker_and_the_store_holds_the_same() {
    for is_shared in [false, true] {
        let (dir, sockets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = dir.path().join("store");
        std::fs::create_dir(&store).unwrap();
        let address = Address::Unix(sockets.path().join("w"));
        let _worker = RunningWorker::start(&address, is_shared.then_some(&*store));
        let listener = Arc::new(Failures::default());
        let db = open(&store, &address, &listener);
        let model = fill(&db, 4);
        assert_eq!(content(&db), model);
        let compaction = db.statistics().compaction;
        assert!(compaction.remote > 0, "{compaction:?}");
        assert_eq!(compaction.fallbacks, 0, "{:?}", listener.0.lock().unwrap());
        let worker = &compaction.workers[0];
        assert_eq!(worker.jobs, compaction.remote);
        if is_shared {
            assert!(worker.link_bytes < worker.bytes_written / 2, "{worker:?}");
        } else {
            assert!(worker.link_bytes > worker.bytes_written, "{worker:?}");
        }
        drop(db);
        let db = Db::builder(&store).memory(common::MEMORY).open().unwrap();
        assert_eq!(db.recovery().orphans_removed, 0);
        assert_eq!(content(&db), model);
    }
}

#[test]
fn merges_run_here_if_no_worker_answers_and_the_reason_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("nobody"));
    let listener = Arc::new(Failures::default());
    let db = open(&dir.path().join("store"), &address, &listener);
    let model = fill(&db, 4);
    assert_eq!(content(&db), model);
    let compaction = db.statistics().compaction;
    assert_eq!(compaction.remote, 0);
    assert!(compaction.done > 0 && compaction.failed == 0, "{compaction:?}");
    assert!(compaction.fallbacks > 0);
    assert_eq!(compaction.workers[0].failures, [("unreachable", compaction.fallbacks)]);
    let told = listener.0.lock().unwrap();
    assert_eq!(told.len() as u64, compaction.fallbacks);
    assert!(told[0].contains("nobody"), "{told:?}");
}

/// Fault 1: all keys are deleted, or expired, so that the merge has no outputs and its inputs go.
#[test]
fn merge_without_outputs_at_a_worker_removes_its_inputs_only() {
    for is_expired in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::Unix(dir.path().join("w"));
        let _worker = RunningWorker::start(&address, None);
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let threads = Arc::new(Threads::start(2, Arc::clone(&clock) as _).unwrap());
        let resources = Resources::builder().memory(common::MEMORY).executor(threads);
        let resources = with_workers(resources, Arc::new(workers(&address))).build().unwrap();
        let db = Db::builder(dir.path().join("store")).resources(&resources).open().unwrap();
        let (keyspace, other) =
            (db.create_keyspace("k").unwrap(), db.create_keyspace("o").unwrap());
        other.put("a", "1").unwrap();
        let hour = EntryOptions::new().ttl(Duration::from_secs(3600));
        for round in 0..3 {
            for number in 0..500 {
                let (key, value) = (format!("{number}"), format!("{round}"));
                match is_expired {
                    true => keyspace.put_opt(key, value, &hour).unwrap(),
                    false => keyspace.put(key, value).unwrap(),
                }
            }
            db.flush().unwrap();
        }
        if is_expired {
            clock.advance(Duration::from_secs(3601));
        } else {
            (0..500).for_each(|number| keyspace.delete(format!("{number}")).unwrap());
            db.flush().unwrap();
        }
        db.compact().unwrap();
        assert!(content(&db).is_empty());
        let statistics = db.statistics();
        let compaction = &statistics.compaction;
        assert!(compaction.remote > 0 && compaction.fallbacks == 0, "{compaction:?}");
        assert_eq!((tables(&db, "k"), tables(&db, "o")), (0, 1));
        assert_eq!(other.get("a").unwrap().unwrap(), "1");
    }
}

fn tables(db: &Db, name: &str) -> usize {
    let all = db.statistics().keyspaces;
    all.iter().find(|keyspace| keyspace.name == name).unwrap().tables
}

/// Fault 2: a keyspace is dropped while a worker merges it. The drop does not wait for the worker, the
/// outputs are not installed, and no file of the keyspace stays.
#[test]
fn a_keyspace_that_is_dropped_under_a_worker_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("w"));
    let _worker = RunningWorker::start(&address, None);
    let device = Arc::new(MemoryMedium::new());
    let medium = Mortal::over(Arc::clone(&device) as _);
    let listener = Arc::new(Failures::default());
    let builder = Db::on_medium(Arc::clone(&medium) as _).memory(common::MEMORY);
    let builder = builder.workers(Arc::new(workers(&address))).listener(Arc::clone(&listener) as _);
    let db = builder.open().unwrap();
    let other = db.create_keyspace("o").unwrap();
    other.put("a", "1").unwrap();
    // Each output is synced before the worker reports it.
    medium.gate.hang(".table Compaction");
    write(&db, 4);
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| db.compact());
        medium.gate.wait_until_hung();
        assert!(db.drop_keyspace("k").unwrap());
        medium.gate.let_go();
        // Nothing is left to merge.
        compacting.join().unwrap().unwrap();
    });
    db.wait_until_settled().unwrap();
    let found = db.statistics();
    assert_eq!(found.keyspaces.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["o"]);
    assert_eq!(other.get("a").unwrap().unwrap(), "1");
    let files =
        || device.list().unwrap().into_iter().filter(|it| it.name.ends_with(".table")).count();
    common::until("the files are removed", || (files() == tables(&db, "o")).then_some(()));
}

/// Without fallback a merge that workers failed waits for a worker: it never runs here, and it is not lost.
#[test]
fn without_fallback_merges_wait_for_a_worker() {
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("w"));
    let workers = workers(&address).falling_back(false);
    let builder = Db::builder(dir.path().join("store")).memory(common::MEMORY);
    let db = builder.workers(Arc::new(workers)).open().unwrap();
    let model = write(&db, 4);
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| db.compact());
        // No worker listens. The attempts are repeated; a merge that ran here would be done by the third one.
        let compaction = || db.statistics().compaction;
        while compaction().fallbacks < 3 && compaction().done == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(compaction().done, 0);
        let _worker = RunningWorker::start(&address, None);
        compacting.join().unwrap().unwrap();
        let compaction = compaction();
        assert!(compaction.remote > 0 && compaction.done == compaction.remote, "{compaction:?}");
    });
    assert_eq!(content(&db), model);
}

/// `Verify::Sampled` is for outputs of workers: those of this process are read whole. So damage that its
/// device does to them while the worker is away does not get into the store.
#[test]
fn sampling_leaves_out_nothing_that_this_process_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("nobody"));
    let medium =
        Arc::new(Metered::new(Arc::new(MemoryMedium::new()), Arc::new(env::SystemClock::new())));
    let workers = workers(&address).verifying(Verify::Sampled);
    let builder = Db::on_medium(Arc::clone(&medium) as _).memory(common::MEMORY);
    let db = builder.workers(Arc::new(workers)).open().unwrap();
    let keyspace = db.create_keyspace("k").unwrap();
    let mut rng = base::Rng::new(5);
    for _ in 0..2 {
        for number in 0..8000u32 {
            // Noise: tables are as long as their values, many reads each.
            let mut value = vec![0; 1000];
            rng.fill(&mut value);
            keyspace.put(number.to_be_bytes(), &value).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact().unwrap();
    let compaction = db.statistics().compaction;
    assert!(compaction.fallbacks > 0 && compaction.done > 0 && compaction.remote == 0);
    let read = medium.snapshot().of(Purpose::Compaction).read_bytes;
    let all = compaction.bytes_read() + compaction.bytes_written();
    assert!(compaction.bytes_written() > 4 << 20, "{compaction:?}");
    assert!(read >= all * 95 / 100, "{read} of {all}");
}

/// Fault 13: a worker's outputs take the place of their inputs, and tables that need no merge move without a
/// worker: the tree has the shape that it has without workers.
#[test]
fn the_tree_has_the_same_shape_with_a_worker() {
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("w"));
    let _worker = RunningWorker::start(&address, None);
    let fill = |db: &Db| {
        let keyspace = db.create_keyspace("k").unwrap();
        let mut shapes = Vec::new();
        // Rounds of new keys, whose tables overlap no other; then rounds over all of them.
        for round in 0..6u32 {
            for number in 0..1000u32 {
                let number = if round < 3 { round * 1000 + number } else { number * 3 };
                keyspace.put(number.to_be_bytes(), format!("{round} {number}").repeat(9)).unwrap();
            }
            db.flush().unwrap();
            if round % 3 == 2 {
                db.compact().unwrap();
                let statistics = db.statistics();
                let found = &statistics.keyspaces[0];
                shapes.push((found.runs, found.tables, found.table_entries));
            }
        }
        (shapes, content(db))
    };
    let builder = |name: &str| Db::builder(dir.path().join(name)).memory(common::MEMORY);
    let with = builder("with").workers(Arc::new(workers(&address))).open().unwrap();
    let without = builder("without").open().unwrap();
    assert_eq!(fill(&with), fill(&without));
    let compaction = with.statistics().compaction;
    assert!(compaction.remote > 0 && compaction.fallbacks == 0, "{compaction:?}");
}
