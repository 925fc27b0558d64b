//! Devices of the log that fail, fill up, or are named by a relative path.

use std::sync::Arc;
use std::time::Duration;

use base::sync::{Condvar, Mutex};
use base::{Durability, Error, ErrorKind, Result};
use media::{Access, Faulty, File, Medium, Purpose};
use terracedb::{Db, WriteOptions};
use wal::OpenDevices;

use crate::common::{self, Stepped, Views, memory, noise};

/// A fence that waits and then fails, and the fences of other lanes meanwhile.
#[derive(Debug, Default)]
struct Failure {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The next fence of the first lane waits.
    is_armed: bool,
    /// The segment with the fence that waits.
    waiting: Option<String>,
    /// A fence of another segment began after it.
    is_behind: bool,
    is_over: bool,
}

impl Failure {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    /// Called by each fence.
    fn pass(&self, segment: &str) -> Result<()> {
        let mut state = self.state.lock();
        // A flush holds all lanes, the first one first: if it waits for that one, it holds no other.
        if !(segment.starts_with("log-1-") && std::mem::take(&mut state.is_armed)) {
            state.is_behind |= state.waiting.as_ref().is_some_and(|it| it != segment);
            self.changed.notify_all();
            return Ok(());
        }
        state.waiting = Some(segment.to_owned());
        self.changed.notify_all();
        while !state.is_over {
            state = self.changed.wait(state);
        }
        Err(Error::io("fence", segment, std::io::Error::other("the device failed")))
    }
}

/// Devices that share a failure.
#[derive(Debug)]
struct Failing {
    devices: Arc<Views>,
    failure: Arc<Failure>,
}

impl OpenDevices for Failing {
    fn open(&self, place: &str, create: bool) -> Result<Arc<dyn Medium>> {
        let inner = self.devices.open(place, create)?;
        Ok(Arc::new(FailingMedium { inner, failure: Arc::clone(&self.failure) }))
    }
}

#[derive(Debug)]
struct FailingMedium {
    inner: Arc<dyn Medium>,
    failure: Arc<Failure>,
}

impl Medium for FailingMedium {
    media::delegate!(inner: capabilities, open, remove, rename, link, list, space, sync_names);
    media::delegate!(inner: lock, queue, undecorated);

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        let inner = self.inner.create(name, access, reserve)?;
        Ok(Arc::new(FailingFile { inner, failure: Arc::clone(&self.failure) }))
    }
}

#[derive(Debug)]
struct FailingFile {
    inner: Arc<dyn File>,
    failure: Arc<Failure>,
}

impl File for FailingFile {
    media::delegate!(inner: name, size, read, write, store, prepare_stores, write_ahead, set_len);
    media::delegate!(inner: undecorated);

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.failure.pass(self.inner.name())?;
        self.inner.sync(purpose)
    }
}

/// A lane fails with later writes in the other lane, so that their sequence numbers never become visible.
/// Nobody waits for them: not a transaction, not a flush, and not the end of the store.
#[test]
fn nobody_waits_for_the_writes_of_a_failed_lane() {
    let devices = Views::of(memory());
    let failure = Arc::new(Failure::default());
    let failing = Failing { devices: Arc::clone(&devices), failure: Arc::clone(&failure) };
    let db = Db::on_medium(Arc::clone(&devices.device))
        .memory(common::MEMORY)
        .log_path(["one"])
        .log_lanes(2)
        .log_devices(Arc::new(failing))
        .open()
        .unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    keyspace.put("before", "x").unwrap();
    failure.change(|state| state.is_armed = true);
    let put = |key: u32| keyspace.put(key.to_be_bytes(), "y").map_err(|error| error.kind());
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let mut puts = Vec::new();
        // A thread appends to the lane of its number. Threads of other tests take numbers too.
        for reached in [|state: &State| state.waiting.is_some(), |state: &State| state.is_behind] {
            while !reached(&failure.state.lock()) {
                let key = puts.len() as u32;
                assert!(key < 1_000, "no thread has the number of the lane");
                puts.push(scope.spawn(move || put(key)));
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        failure.change(|state| state.is_over = true);
        puts.into_iter().map(|put| put.join().unwrap()).collect()
    });
    let lost = outcomes.iter().filter(|outcome| **outcome == Err(ErrorKind::Poisoned)).count();
    assert!(lost >= 2, "the failed write and the one behind it: {outcomes:?}");
    for (key, outcome) in (0u32..).zip(&outcomes) {
        assert!(matches!(outcome, Ok(()) | Err(ErrorKind::Poisoned)), "{key}: {outcome:?}");
        assert_eq!(keyspace.get(key.to_be_bytes()).unwrap().is_some(), outcome.is_ok(), "{key}");
    }
    let mut transaction = db.transaction();
    assert!(transaction.get(&keyspace, "before").unwrap().is_some());
    transaction.put(&keyspace, "late", "z").unwrap();
    assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Poisoned);
    drop((keyspace, db));
    let db = Db::on_medium(Arc::clone(&devices.device)).log_devices(devices).open().unwrap();
    assert!(db.keyspace("k").unwrap().get("before").unwrap().is_some());
}

/// One device, of a given capacity.
#[derive(Debug)]
struct Small(Arc<Faulty>);

impl OpenDevices for Small {
    fn open(&self, _: &str, _: bool) -> Result<Arc<dyn Medium>> {
        Ok(Arc::clone(&self.0) as _)
    }
}

/// The device is smaller than the log would like to become, and smaller than a memtable: flushes free it.
#[test]
fn a_log_that_fills_its_device_is_freed_by_flushes() {
    let device = Arc::new(Faulty::new(1).with_lines());
    device.set_capacity(Some(1_600 << 10));
    let stepped = Stepped::new(1);
    let db = stepped
        .on(memory())
        .log_path(["small"])
        .log_lanes(1)
        .log_devices(Arc::new(Small(Arc::clone(&device))))
        .open()
        .unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let sync = WriteOptions::new().durability(Durability::Sync);
    let value = noise(20_000);
    let (mut written, mut refused) = (0u32, 0);
    while refused < 5 {
        match keyspace.put_opt(written.to_be_bytes(), &value, &sync) {
            Ok(()) => written += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                refused += 1;
                // The flush task polls.
                (0..5).for_each(|_| stepped.pass(Duration::from_millis(150)));
                let put = keyspace.put_opt(written.to_be_bytes(), &value, &sync);
                put.unwrap_or_else(|error| panic!("after {written} and a flush: {error}"));
                written += 1;
            }
        }
    }
    assert!(db.statistics().flushes >= 4, "the memtable alone is no reason for a flush");
    for number in 0..written {
        assert!(keyspace.get(number.to_be_bytes()).unwrap().is_some(), "{number} of {written}");
    }
}

/// The place of a device is recorded so that a process with another working directory finds it.
#[test]
fn a_relative_place_is_recorded_as_an_absolute_one() {
    let directory = tempfile::tempdir().unwrap();
    let Ok(log) = tempfile::tempdir_in("/dev/shm") else { return };
    let here = std::env::current_dir().unwrap();
    let up: String = here.components().skip(1).map(|_| "../").collect();
    let relative = format!("{up}{}/log", log.path().strip_prefix("/").unwrap().display());
    let db = Db::builder(directory.path()).log_path([&relative]).open().unwrap();
    db.open_or_create_keyspace("k").unwrap().put("a", "b").unwrap();
    drop(db);
    let medium = media::FileMedium::open(directory.path(), media::FileOptions::default()).unwrap();
    let place = manifest::recover(&medium, false).unwrap().unwrap().state.log_place;
    let place = std::path::Path::new(&place.devices[0].place);
    assert!(place.is_absolute() && place.ends_with("log"), "{}", place.display());
    let db = Db::builder(directory.path()).log_path([&relative]).open().unwrap();
    assert!(db.keyspace("k").unwrap().get("a").unwrap().is_some());
}
