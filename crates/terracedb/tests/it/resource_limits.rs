//! A store at its limits: writers without a pause, more keyspaces than memory, keyspaces dropped in use,
//! the largest batch, the largest file number.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use base::{Clock, ErrorKind, Executor, ManualClock, Progress, Stepper, Task, TaskHandle, Threads};
use compact::plan::Options;
use media::{Access, Fault, Faulty, Medium, OpKind, Purpose, Rule};
use terracedb::events::{Event, Listener};
use terracedb::{Db, Keyspace, Resources, WriteBatch};

use crate::common::{self, MEMORY, Stepped, memory};

fn tables(medium: &Arc<dyn Medium>) -> usize {
    medium.list().unwrap().iter().filter(|file| file.name.ends_with(".table")).count()
}

/// Writes 100 MiB without a pause, so that a memtable is always waiting for a flush; returns the peak size
/// of the log. Each of `cold` keyspaces was written once before; with `reopened`, by an earlier process.
fn most_log_bytes(cold: usize, reopened: bool) -> u64 {
    let medium = memory();
    let stepped = Stepped::new(1);
    let open = || stepped.on(Arc::clone(&medium)).open().unwrap();
    let mut db = open();
    for number in 0..cold {
        db.open_or_create_keyspace(&format!("cold {number}")).unwrap().put("k", "v").unwrap();
    }
    if reopened {
        drop(db);
        db = open();
    }
    let hot = db.open_or_create_keyspace("hot").unwrap();
    let mut most = 0;
    for number in 0..1000u32 {
        hot.put((number % 50).to_be_bytes(), [b'v'; 100 << 10]).unwrap();
        most = most.max(db.statistics().log_bytes);
    }
    for number in 0..cold {
        let keyspace = db.keyspace(&format!("cold {number}")).unwrap();
        assert_eq!(keyspace.get("k").unwrap().as_deref(), Some(&b"v"[..]));
    }
    most
}

/// Writers are delayed by the compaction debt, which is measured after every flush, even while no keyspace
/// is examined for merges.
#[test]
fn flushes_report_the_compaction_debt() {
    let device = Arc::new(Faulty::new(3));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let options = Options { fanout: 3, settled_runs: 2, ..Options::default() };
    let stepped = Stepped::new(7);
    let db = stepped.on(medium).compaction_options(options).open().unwrap();
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    device.inject(Rule::new(OpKind::Write, Fault::Io).purpose(Purpose::Compaction)).unwrap();
    let flush = |times: usize| {
        for _ in 0..times {
            for number in 0..300u32 {
                keyspace.put(number.to_be_bytes(), [b'v'; 200]).unwrap();
            }
            keyspace.flush().unwrap();
        }
        stepped.work(100);
        db.statistics().compaction
    };
    // Merges pause after a failure, and the clock stands still.
    let failed = flush(4);
    let later = flush(8);
    assert_eq!((failed.failed, later.failed), (1, 1), "{later:?}");
    assert!(later.debt_bytes > failed.debt_bytes * 3, "{failed:?} {later:?}");
    device.heal();
    stepped.pass(Duration::from_secs(1));
    db.wait_until_settled().unwrap();
    assert_eq!(db.statistics().compaction.debt_bytes, 0);
}

#[test]
fn the_log_of_a_writer_without_pauses_is_freed() {
    let most = most_log_bytes(0, false);
    assert!(most < MEMORY, "{most} bytes of log");
}

#[test]
fn cold_keyspaces_do_not_pin_the_log_of_a_writer_without_pauses() {
    for (cold, reopened) in [(1, false), (1, true), (50, false), (50, true)] {
        let most = most_log_bytes(cold, reopened);
        assert!(most < MEMORY, "{most} bytes of log, {cold} cold, reopened: {reopened}");
    }
}

#[test]
fn keyspaces_whose_empty_memtables_fill_the_write_buffers_accept_writes() {
    let db = Stepped::new(2).on(memory()).open().unwrap();
    let keyspaces: Vec<_> =
        (0..200).map(|number| db.open_or_create_keyspace(&format!("k{number}")).unwrap()).collect();
    for round in 0..3u32 {
        for keyspace in &keyspaces {
            keyspace.put(round.to_be_bytes(), [b'v'; 100 << 10]).unwrap();
        }
    }
    assert!(keyspaces.iter().all(|ks| ks.get(2u32.to_be_bytes()).unwrap().is_some()));
}

#[test]
fn replaying_into_many_keyspaces_writes_no_table_per_record() {
    let medium = memory();
    {
        let db = common::threaded(&medium).open().unwrap();
        for number in 0..500u32 {
            let keyspace = db.open_or_create_keyspace(&format!("k{}", number % 100)).unwrap();
            keyspace.put(number.to_be_bytes(), "v").unwrap();
        }
    }
    let db = common::threaded(&medium).open().unwrap();
    assert!(tables(&medium) <= 100, "{} tables", tables(&medium));
    assert!(db.open_or_create_keyspace("k7").unwrap().get(7u32.to_be_bytes()).unwrap().is_some());
}

type Hook = Box<dyn Fn() + Send + Sync>;

/// Runs a hook whenever a caller waits.
struct Hooked {
    stepper: Stepper,
    hook: OnceLock<Hook>,
    hooking: AtomicBool,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

impl Executor for Hooked {
    fn spawn(&self, name: &'static str, task: Box<dyn Task>) -> TaskHandle {
        self.stepper.spawn(name, task)
    }

    fn help(&self) -> bool {
        if let Some(hook) = self.hook.get()
            && !self.hooking.swap(true, SeqCst)
        {
            hook();
            self.hooking.store(false, SeqCst);
        }
        self.stepper.help()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.stepper.clock()
    }
}

/// A store, a keyspace, and a writer that writes 4 MiB whenever a caller waits, for `ROUNDS` rounds; the
/// counter of rounds.
fn busy(seed: u64) -> (Db, Keyspace, Arc<AtomicU32>) {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let (hook, hooking) = (OnceLock::new(), AtomicBool::new(false));
    let executor = Arc::new(Hooked { stepper: Stepper::new(seed, clock), hook, hooking });
    let resources =
        Resources::builder().memory(MEMORY).executor(Arc::clone(&executor) as _).build().unwrap();
    let db = Db::on_medium(memory()).resources(&resources).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let rounds = Arc::new(AtomicU32::new(0));
    let (writer, counted) = (keyspace.clone(), Arc::clone(&rounds));
    let write = move || {
        let round = counted.fetch_add(1, SeqCst);
        for part in 0..(if round < ROUNDS { 4u32 } else { 0 }) {
            // Refused if memory is short.
            let _ = writer.put(part.to_be_bytes(), vec![b'v'; 1 << 20]);
        }
    };
    assert!(executor.hook.set(Box::new(write)).is_ok());
    (db, keyspace, rounds)
}

const ROUNDS: u32 = 300;

#[test]
fn a_flush_waits_only_for_earlier_writes() {
    let (db, keyspace, rounds) = busy(3);
    keyspace.put("before", "v").unwrap();
    db.flush().unwrap();
    let taken = rounds.swap(ROUNDS, SeqCst);
    assert!(taken < ROUNDS, "the flush went on for {taken} rounds of writes");
}

/// An executor of which one task with the name panics when a flag is set.
#[derive(Debug)]
struct Panicking(Threads, Arc<AtomicBool>, &'static str);

impl Panicking {
    /// On a clock that stands still, so that no wait times out.
    fn of(name: &'static str) -> (Arc<Self>, Arc<AtomicBool>) {
        let threads = Threads::start(1, Arc::new(ManualClock::at(1_700_000_000_000))).unwrap();
        let executor = Arc::new(Self(threads, Arc::default(), name));
        let panics = Arc::clone(&executor.1);
        (executor, panics)
    }
}

struct PanicsOnceTold {
    task: Box<dyn Task>,
    flag: Arc<AtomicBool>,
    /// The flag was set during a step of this task.
    is_told: bool,
}

impl Task for PanicsOnceTold {
    fn step(&mut self) -> Progress {
        assert!(!self.is_told && !self.flag.swap(false, SeqCst), "on purpose");
        let progress = self.task.step();
        // The one thread runs no other task meanwhile: this one set the flag.
        self.is_told = self.flag.swap(false, SeqCst);
        progress
    }
}

impl Executor for Panicking {
    fn spawn(&self, name: &'static str, task: Box<dyn Task>) -> TaskHandle {
        match name == self.2 {
            true => {
                let flag = Arc::clone(&self.1);
                self.0.spawn(name, Box::new(PanicsOnceTold { task, flag, is_told: false }))
            }
            false => self.0.spawn(name, task),
        }
    }

    fn help(&self) -> bool {
        self.0.help()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.0.clock()
    }
}

#[test]
fn writers_get_the_error_of_a_flush_that_panicked() {
    let (executor, panics) = Panicking::of("flush");
    let resources = Resources::builder().memory(MEMORY).executor(executor).build().unwrap();
    let db = Db::on_medium(memory()).resources(&resources).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    keyspace.put("k", "v").unwrap();
    panics.store(true, SeqCst);
    let (done, outcome) = mpsc::channel();
    let flushed = db.clone();
    std::thread::spawn(move || done.send(flushed.flush()));
    // A writer without an error would wait for ever, which fails this test too.
    let error = outcome.recv_timeout(Duration::from_secs(600)).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert_eq!(keyspace.get("k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// Sets the flag when a merge begins.
#[derive(Debug)]
struct PanicsInMerge(Arc<AtomicBool>);

impl Listener for PanicsInMerge {
    fn event(&self, event: &Event) {
        if matches!(event, Event::CompactionBegan { .. }) {
            self.0.store(true, SeqCst);
        }
    }
}

/// Two tasks run merges. The other one goes on, and the job of the one that panicked never ends.
#[test]
fn callers_get_the_error_of_a_merge_that_panicked() {
    let (executor, panics) = Panicking::of("merge");
    let resources = Resources::builder().memory(MEMORY).executor(executor).build().unwrap();
    let builder = Db::on_medium(memory()).resources(&resources);
    let db = builder.listener(Arc::new(PanicsInMerge(panics))).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for version in 0..2u32 {
        keyspace.put("k", version.to_be_bytes()).unwrap();
        db.flush().unwrap();
    }
    let (done, outcome) = mpsc::channel();
    let waiting = db.clone();
    std::thread::spawn(move || done.send((waiting.compact(), waiting.wait_until_settled())));
    // A caller without an error would wait for ever, which fails this test too.
    let (compacted, settled) = outcome.recv_timeout(Duration::from_secs(600)).unwrap();
    assert_eq!(compacted.unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(settled.unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(keyspace.get("k").unwrap().as_deref(), Some(&1u32.to_be_bytes()[..]));
}

#[test]
fn a_flush_without_memory_fails_though_the_clock_stands_still() {
    let db = Stepped::new(8).on(memory()).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..20_000u32 {
        keyspace.put(number.to_be_bytes(), [b'v'; 100]).unwrap();
    }
    let mut cursors = Vec::new();
    while let Ok(cursor) = keyspace.cursor() {
        cursors.push(cursor);
    }
    let (done, outcome) = mpsc::channel();
    let flushed = db.clone();
    std::thread::spawn(move || done.send(flushed.flush()));
    // A bound that only a hang exceeds.
    let outcome = outcome.recv_timeout(Duration::from_secs(600)).unwrap();
    assert!(outcome.is_ok() || db.statistics().flush_failures > 0);
    drop(cursors);
    db.flush().unwrap();
    assert_eq!(keyspace.get(7u32.to_be_bytes()).unwrap().unwrap().len(), 100);
}

#[test]
fn a_batch_that_never_fits_fails_though_flushes_go_on() {
    let (db, keyspace, rounds) = busy(7);
    // Memory that stays in use, and that no flush frees.
    let mut transactions = Vec::new();
    loop {
        let memory = db.statistics().memory;
        if memory.used - memory.spare > memory.budget - (10 << 20) {
            break;
        }
        let mut transaction = db.transaction();
        transaction.put(&keyspace, "k", vec![b't'; 1 << 20]).unwrap();
        transactions.push(transaction);
    }
    let mut batch = WriteBatch::new();
    for number in 0..10u32 {
        batch.put(&keyspace, number.to_be_bytes(), vec![b'b'; 1 << 20]).unwrap();
    }
    let error = db.write(&batch).unwrap_err();
    let taken = rounds.swap(ROUNDS, SeqCst);
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    assert!(taken < ROUNDS, "the batch was tried for {taken} rounds of writes");
    assert!(keyspace.get(9u32.to_be_bytes()).unwrap().is_none());
    drop(transactions);
    db.write(&batch).unwrap();
}

/// A store can replay every batch that it accepted: with the same memory, in a new process.
#[test]
fn the_largest_accepted_batch_is_replayed() {
    let sizes = [1 << 20, 100];
    for value_bytes in sizes {
        let (medium, mut last) = (memory(), 0);
        for megabytes in [4usize, 8, 16, 24, 32] {
            let db = common::threaded(&medium).open().unwrap();
            let keyspace = db.open_or_create_keyspace("k").unwrap();
            assert_eq!(keyspace.get("last").unwrap().map_or(0, |last| last[0]), last);
            let mut batch = WriteBatch::new();
            for number in 0..(megabytes << 20) / value_bytes {
                batch.put(&keyspace, number.to_be_bytes(), vec![b'v'; value_bytes]).unwrap();
            }
            batch.put(&keyspace, "last", [megabytes as u8]).unwrap();
            match db.write(&batch) {
                Ok(()) => last = megabytes as u8,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
            }
        }
        let db = common::threaded(&medium).open().unwrap();
        assert_eq!(db.open_or_create_keyspace("k").unwrap().get("last").unwrap().unwrap()[0], last);
        assert!(last >= 4);
    }
}

#[test]
fn dropping_a_keyspace_frees_its_space_despite_open_handles() {
    let medium = memory();
    let db = Stepped::new(4).on(Arc::clone(&medium)).open().unwrap();
    let used = |name| {
        let memory = db.statistics().memory;
        memory.component(name).map_or(0, |component| component.used)
    };
    let before = (used("memtables"), used("tables"));
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..20u32 {
        keyspace.put(number.to_be_bytes(), vec![b'v'; 100 << 10]).unwrap();
    }
    keyspace.flush().unwrap();
    for number in 0..20u32 {
        keyspace.put(number.to_be_bytes(), vec![b'w'; 100 << 10]).unwrap();
    }
    let mut iter = keyspace.iter().unwrap();
    assert_eq!(tables(&medium), 1);
    db.drop_keyspace("k").unwrap();
    // An open iterator reads on.
    assert_eq!(iter.by_ref().map(|entry| entry.unwrap().1[0]).collect::<Vec<_>>(), [b'w'; 20]);
    drop(iter);
    db.wait_until_settled().unwrap();
    assert_eq!(tables(&medium), 0);
    let after = (used("memtables"), used("tables"));
    // An empty memtable takes 64 KiB.
    assert!(after.0 <= before.0 + (64 << 10) && after.1 <= before.1, "{after:?} after {before:?}");
    assert_eq!(keyspace.get([0]).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(keyspace.put([0], [0]).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_snapshot_refuses_the_keyspaces_of_another_store() {
    let (one, two) = (Stepped::new(5), Stepped::new(6));
    let (one, two) = (one.on(memory()).open().unwrap(), two.on(memory()).open().unwrap());
    let keyspace = two.open_or_create_keyspace("k").unwrap();
    keyspace.put("k", "v").unwrap();
    let snapshot = one.snapshot();
    let kinds = [
        snapshot.get(&keyspace, "k").map(drop).unwrap_err().kind(),
        snapshot.multi_get(&keyspace, &["k"]).map(drop).unwrap_err().kind(),
        snapshot.iter(&keyspace).map(drop).unwrap_err().kind(),
        snapshot.prefix(&keyspace, "k").map(drop).unwrap_err().kind(),
        snapshot.cursor(&keyspace).map(drop).unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::Invalid; 5]);
}

#[test]
fn files_with_the_largest_number_are_refused_or_ignored() {
    for name in ["manifest-ffffffffffffffff", "log-0-18446744073709551615"] {
        let medium = memory();
        for round in 0..3 {
            let opened = common::threaded(&medium).open();
            let db = match opened {
                Ok(db) => db,
                Err(error) => {
                    assert!(round > 0 && error.kind() == ErrorKind::Corrupt, "{name}: {error}");
                    continue;
                }
            };
            let keyspace = db.open_or_create_keyspace("k").unwrap();
            assert_eq!(keyspace.get("k").unwrap().is_some(), round > 0, "{name}");
            keyspace.put("k", "v").unwrap();
            drop((keyspace, db));
            if round == 0 {
                drop(medium.create(name, Access::Bytes, 8192).unwrap());
            }
        }
    }
}
