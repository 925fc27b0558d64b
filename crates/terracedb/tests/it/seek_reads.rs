//! A seek in a store that nobody warmed: the pages that its runs need are read at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::{ErrorKind, Result};
use media::{Access, Buf, Completion, Fault, Faulty, File, Medium, OpKind, Purpose, Queue, Rule};
use terracedb::{Codec, Db, Entry, Keyspace};

use crate::common::Stepped;

/// Runs of the store, each with every key of its own remainder.
const RUNS: u32 = 6;
const KEYS: u32 = 1200;

/// A device that counts how often a reader waits for it, and for how many reads at once.
#[derive(Debug)]
struct Waits {
    inner: Arc<Faulty>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    waits: AtomicU64,
    /// Most reads in flight at a wait.
    most: AtomicU64,
}

impl Counts {
    fn wait(&self, reads: usize, purpose: Option<Purpose>) {
        if reads > 0 && purpose.is_none_or(|it| matches!(it, Purpose::Data | Purpose::Meta)) {
            self.waits.fetch_add(1, Relaxed);
            self.most.fetch_max(reads as u64, Relaxed);
        }
    }

    /// The waits, and the most reads in flight, since the last call.
    fn take(&self) -> (u64, u64) {
        (self.waits.swap(0, Relaxed), self.most.swap(0, Relaxed))
    }
}

impl Medium for Waits {
    media::delegate!(inner: capabilities, remove, rename, link, list, space, sync_names, lock);
    media::delegate!(inner: undecorated);

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        let inner = self.inner.create(name, access, reserve)?;
        Ok(Arc::new(WaitsFile { inner, counts: Arc::clone(&self.counts) }))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(name, access)?;
        Ok(Arc::new(WaitsFile { inner, counts: Arc::clone(&self.counts) }))
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        let (inner, counts) = (self.inner.queue(depth)?, Arc::clone(&self.counts));
        Ok(Box::new(WaitsQueue { inner, counts }))
    }
}

#[derive(Debug)]
struct WaitsFile {
    inner: Arc<dyn File>,
    counts: Arc<Counts>,
}

impl File for WaitsFile {
    media::delegate!(inner: name, size, write, store, sync, set_len, undecorated);

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.counts.wait(1, Some(purpose));
        self.inner.read(at, buf, purpose)
    }
}

struct WaitsQueue {
    inner: Box<dyn Queue>,
    counts: Arc<Counts>,
}

impl Queue for WaitsQueue {
    media::delegate!(inner: submit, in_flight, depth);

    fn complete(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        self.counts.wait(self.inner.in_flight(), None);
        self.inner.complete(least, out)
    }
}

struct Store {
    device: Arc<Faulty>,
    counts: Arc<Counts>,
    db: Db,
    keyspace: Keyspace,
}

impl Store {
    /// Lets the third of the reads for `purpose` from now on fail.
    fn fail_a_read(&self, purpose: Purpose) {
        let rule = Rule::new(OpKind::Read, Fault::Io).purpose(purpose).after(2);
        self.device.inject(rule).unwrap();
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// 400 bytes: about ten values per page.
fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(100)
}

/// A store with `runs` runs and empty caches.
fn open(runs: u32) -> Store {
    let device = Arc::new(Faulty::new(1));
    let db = Stepped::new(1).on(Arc::clone(&device) as _).codec(Codec::None).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for run in 0..runs {
        for number in (run..KEYS).step_by(runs as usize) {
            keyspace.put(key(number), value(number)).unwrap();
        }
        keyspace.flush().unwrap();
    }
    drop((db, keyspace));
    let (stepped, counts) = (Stepped::new(1), Arc::<Counts>::default());
    let medium = Waits { inner: Arc::clone(&device), counts: Arc::clone(&counts) };
    let db = stepped.on(Arc::new(medium)).codec(Codec::None).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    assert_eq!(db.statistics().keyspaces[0].runs, runs as usize);
    counts.take();
    Store { device, counts, db, keyspace }
}

/// A key in the middle of a page in every run.
const MIDDLE: u32 = 630;

/// A seek's steps, one behind the other: a metadata page, then a data page.
const STEPS: u64 = 2;

#[test]
fn a_seek_waits_as_long_for_many_runs_as_for_one() {
    let many = u64::from(RUNS);
    for (runs, most) in [(1, 1), (RUNS, many)] {
        let store = open(runs);
        let mut cursor = store.keyspace.cursor().unwrap();
        assert!(cursor.seek(key(MIDDLE)).unwrap());
        assert_eq!(
            (cursor.key().unwrap(), cursor.value().unwrap()),
            (&key(MIDDLE)[..], &*value(MIDDLE))
        );
        assert_eq!(store.counts.take(), (STEPS, most), "{runs} runs");
        let walks = store.db.statistics().keyspaces[0].walks;
        let expected = (1, u64::from(runs), STEPS * u64::from(runs));
        assert_eq!((walks.seeks, walks.seek_runs, walks.device_reads), expected);
        // The runs that the walk needs next are in memory.
        for number in MIDDLE + 1..MIDDLE + 6 {
            assert!(cursor.next().unwrap());
            assert_eq!(cursor.key().unwrap(), key(number));
        }
        assert_eq!(store.counts.take(), (0, 0));
    }
}

#[test]
fn seeks_backward_and_to_either_end_read_from_all_runs_at_once() {
    let many = u64::from(RUNS);
    let store = open(RUNS);
    let last = store.keyspace.iter().unwrap().next_back().unwrap().unwrap();
    assert_eq!(last, (key(KEYS - 1).to_vec().into(), value(KEYS - 1).into()));
    assert_eq!(store.counts.take(), (STEPS, many));
    let first = store.keyspace.iter().unwrap().next().unwrap().unwrap();
    assert_eq!(first.0, key(0)[..]);
    let (waits, most) = store.counts.take();
    assert!(waits <= STEPS && most == many, "{waits} waits, {most} at once");
    let mut cursor = store.keyspace.cursor().unwrap();
    assert!(cursor.seek_before(key(MIDDLE)).unwrap());
    assert_eq!(cursor.key().unwrap(), key(MIDDLE - 1));
    let (waits, most) = store.counts.take();
    assert!(waits <= STEPS && most == many, "{waits} waits, {most} at once");
}

/// A whole walk returns every key, from either end, and reads ahead in each run.
#[test]
fn a_walk_after_the_seek_returns_every_key() {
    let store = open(RUNS);
    let keys = |of: Option<Result<Entry>>| of.map(|entry| entry.unwrap().0);
    let mut iter = store.keyspace.iter().unwrap();
    assert!((0..KEYS).all(|number| keys(iter.next()).unwrap() == key(number)[..]));
    let mut iter = open(RUNS).keyspace.iter().unwrap();
    assert!((0..KEYS).rev().all(|number| keys(iter.next_back()).unwrap() == key(number)[..]));
}

/// A data page that cannot be read is the error of the seek; a metadata page is rebuilt.
#[test]
fn a_read_that_fails_is_the_error_of_its_key() {
    let store = open(RUNS);
    let seek = || store.keyspace.cursor().and_then(|mut cursor| cursor.seek(key(MIDDLE)));
    store.fail_a_read(Purpose::Data);
    let error = seek().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(store.counts.take(), (STEPS, u64::from(RUNS)), "the other reads come back first");
    // The pages that came are cached; the next seek finds the device in order.
    assert!(seek().unwrap());
    assert_eq!(store.counts.take(), (1, 1));

    let store = open(RUNS);
    store.fail_a_read(Purpose::Meta);
    let mut cursor = store.keyspace.cursor().unwrap();
    assert!(cursor.seek(key(MIDDLE)).unwrap());
    assert_eq!(cursor.key().unwrap(), key(MIDDLE));
    assert_eq!(store.db.statistics().pages_damaged, 1);
}

/// Without memory for reads in flight, the pages are read one by one.
#[test]
fn without_memory_the_runs_are_read_one_by_one() {
    let store = open(RUNS);
    let empty = store.db.open_or_create_keyspace("empty").unwrap();
    let mut cursor = store.keyspace.cursor().unwrap();
    let mut held = Vec::new();
    let refused = loop {
        match empty.cursor() {
            Ok(cursor) => held.push(cursor),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Retry);
    store.counts.take();
    assert!(cursor.seek(key(MIDDLE)).unwrap());
    assert_eq!(cursor.key().unwrap(), key(MIDDLE));
    assert_eq!(store.counts.take(), (STEPS * u64::from(RUNS), 1));
}
