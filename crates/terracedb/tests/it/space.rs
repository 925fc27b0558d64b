//! Small and full devices: compaction with little free space.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{ErrorKind, Rng};
use compact::plan::Options;
use media::{Fault, Faulty, Medium, OpKind, Purpose, Rule};
use terracedb::events::{Event, Listener};
use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::{Db, KeyspaceOptions, WriteBatch};

use crate::common::{self, Model, Stepped, assert_same};

/// A listener that records, for each merge that began, the size of its inputs and the free space of the
/// device.
#[derive(Debug)]
struct EventRecorder {
    device: Arc<Faulty>,
    merges: Mutex<Vec<(u64, u64)>>,
}

impl Listener for EventRecorder {
    fn event(&self, event: &Event) {
        if let Event::CompactionBegan { bytes, .. } = event {
            let free = self.device.space().unwrap().map_or(u64::MAX, |space| space.free);
            self.merges.lock().unwrap().push((*bytes, free));
        }
    }
}

/// Bytes of the files on the device.
fn used(device: &Faulty) -> u64 {
    device.list().unwrap().iter().map(|file| file.len).sum()
}

/// 8 MiB of data are overwritten again and again on a device of 36 MiB, of which log and flushes take up to
/// half: merges take in no more than there is free space for, and the space they free is reused.
#[test]
fn merges_go_on_in_slices_on_a_small_device() {
    const KEYS: u64 = 2000;
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let device = Arc::new(Faulty::new(seed));
    let recorder =
        Arc::new(EventRecorder { device: Arc::clone(&device), merges: Mutex::default() });
    let stepped = Stepped::new(seed);
    let options =
        Options { fanout: 3, settled_runs: 2, slice_bytes: 2 << 20, ..Options::default() };
    let builder = stepped.on(Arc::clone(&device) as _).listener(Arc::clone(&recorder) as _);
    let db = builder.compaction_options(options).open().unwrap();
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    device.set_capacity(Some(36 << 20));
    let (mut model, mut refused) = (Model::new(), 0);
    for round in 0..80 {
        for _ in 0..KEYS / 8 {
            let key = format!("key{:06}", rng.below(KEYS)).into_bytes();
            let mut value = vec![0; 4000];
            rng.fill(&mut value);
            // A writer faster than compaction gets errors, and succeeds after compaction went on.
            let mut tries = 0;
            while let Err(error) = keyspace.put(&key, &value) {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "round {round}: {error}");
                tries += 1;
                assert!(tries < 100, "round {round}: {error}: {:?}", db.statistics().compaction);
                stepped.pass(Duration::from_secs(1));
                stepped.work(300);
            }
            refused += u64::from(tries > 0);
            model.insert(key, value);
        }
        stepped.work(300);
    }
    let statistics = db.statistics();
    let space = statistics.device_space.unwrap();
    assert_eq!((space.total, space.free), (36 << 20, (36 << 20) - used(&device)));
    assert_eq!(statistics.compaction.failed, 0, "{:?}", statistics.compaction);
    assert!(refused < 20, "{refused} writes");
    assert!(statistics.user_bytes > 70 << 20, "{}", statistics.user_bytes);
    assert_same(&keyspace, &model, "on a small device");
    let merges = recorder.merges.lock().unwrap();
    assert!(merges.len() > 10, "{merges:?}");
    assert!(merges.iter().all(|(bytes, free)| bytes <= free), "{merges:?}");
}

/// If there is no space for any merge, an event says so, nothing fails, and freed space is used at once.
#[test]
fn a_merge_without_space_is_reported_and_done_later() {
    let device = Arc::new(Faulty::new(1));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let options = Options { fanout: 100, space_max: 100.0, ..Options::default() };
    let db = common::stepped(&medium, 1).compaction_options(options).open().unwrap();
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    for round in 0..3u8 {
        for number in 0..500 {
            keyspace.put(format!("key{number:03}"), [round; 300]).unwrap();
        }
        keyspace.flush().unwrap();
    }
    device.set_capacity(Some(used(&device) + (8 << 10)));
    let full = [db.compact().unwrap_err(), db.wait_until_settled().unwrap_err()];
    assert!(full.iter().all(|error| error.kind() == ErrorKind::NoSpace), "{full:?}");
    let compaction = db.statistics().compaction;
    assert_eq!((compaction.failed, compaction.done), (0, 0), "none was begun");
    assert!(compaction.failing.is_some_and(|why| why.contains("free")));
    assert_eq!(keyspace.get("key007").unwrap().as_deref(), Some(&[2; 300][..]));
    device.set_capacity(None);
    db.compact().unwrap();
    let statistics = db.statistics();
    assert_eq!((statistics.compaction.failing, statistics.keyspaces[0].table_entries), (None, 500));
}

/// A small keyspace keeps the oldest segment of the log: on a full device its memtable is flushed, and the
/// space of the log holds data. Without merges, so that nothing else frees space.
#[test]
fn a_full_device_shortens_the_log() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let device = Arc::new(Faulty::new(seed));
    let stepped = Stepped::new(seed);
    let options = Options {
        fanout: 1000,
        settled_runs: 1000,
        space_max: 100.0,
        settled_space: 100.0,
        ..Options::default()
    };
    let builder = stepped.on(Arc::clone(&device) as _).memory(128 << 20);
    let db = builder.compaction_options(options).open().unwrap();
    let data = db.open_or_create_keyspace("data").unwrap();
    let counts = db.open_or_create_keyspace("counts").unwrap();
    device.set_capacity(Some(120 << 20));
    let mut value = vec![0; 4000];
    let (mut model, mut tries) = (Model::new(), 0);
    while tries < 30 {
        rng.fill(&mut value);
        let key = format!("key{:09}", rng.below(1 << 30)).into_bytes();
        let mut batch = WriteBatch::new();
        batch.put(&data, &key, &value).unwrap();
        batch.put(&counts, format!("{}", rng.below(16)), format!("{}", model.len())).unwrap();
        match db.write(&batch) {
            Ok(()) => {
                model.insert(key, value.clone());
                tries = 0;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                tries += 1;
                stepped.pass(Duration::from_secs(1));
            }
        }
        stepped.work(if tries > 0 { 300 } else { 3 });
    }
    let statistics = db.statistics();
    println!("{} values, log {}, {:?}", model.len(), statistics.log_bytes, statistics.device_space);
    assert!(
        statistics.log_bytes < 4 << 20,
        "{} values, {} B of log",
        model.len(),
        statistics.log_bytes
    );
    assert_same(&data, &model, "on a full device");
}

/// A device without a free byte, or hardly one: its store opens repeatedly, can be read, and accepts deletes,
/// which free space; torn or cut files are recovered as always.
#[test]
fn a_store_on_a_full_device_opens_and_can_be_deleted_from() {
    for torn in [false, true] {
        let device = Arc::new(Faulty::new(5));
        let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
        let open = |medium: &Arc<dyn Medium>| common::stepped(medium, 5).open().unwrap();
        let db = open(&medium);
        let (fruit, trees) = (
            db.open_or_create_keyspace("fruit").unwrap(),
            db.open_or_create_keyspace("trees").unwrap(),
        );
        let mut model = Model::new();
        for number in 0..2000u64 {
            let (key, value) = (format!("key{number:05}").into_bytes(), vec![number as u8; 900]);
            fruit.put(&key, &value).unwrap();
            trees.put(&key, &value).unwrap();
            model.insert(key, value);
            if number == 1500 {
                db.flush().unwrap();
            }
        }
        drop((fruit, trees, db));
        if torn {
            // A manifest append that the last process did not finish.
            let name = manifest(&*medium);
            let file = medium.open(&name, media::Access::Bytes).unwrap();
            file.store(file.size().unwrap() - 5000, &[0xa5; 300], Purpose::Manifest).unwrap();
        }
        device.set_capacity(Some(used(&device)));
        let before = manifest(&*medium);
        for life in 0..8 {
            if life > 0 {
                // As much as one short segment of the log takes: what else the last life freed is gone.
                device.set_capacity(Some(used(&device) + (32 << 10)));
            }
            let db = open(&medium);
            assert_eq!(manifest(&*medium), before, "life {life}");
            let fruit = db.open_or_create_keyspace("fruit").unwrap();
            assert_same(&fruit, &model, "on a full device");
            let key = format!("key{life:05}").into_bytes();
            fruit.delete(&key).unwrap();
            model.remove(&key);
            drop((fruit, db));
        }
        let db = open(&medium);
        assert!(db.drop_keyspace("trees").unwrap());
        drop(db);
        let image = device.crash_image(7).unwrap();
        let db = open(&(Arc::new(image) as _));
        assert_same(&db.open_or_create_keyspace("fruit").unwrap(), &model, "after a power cut");
        assert!(db.open_or_create_keyspace("trees").unwrap().iter().unwrap().next().is_none());
        drop(db);
        // The space of the dropped keyspace is used for new writes.
        let db = open(&medium);
        let fruit = db.open_or_create_keyspace("fruit").unwrap();
        for number in 0..500u64 {
            let (key, value) = (format!("new{number:05}").into_bytes(), vec![1; 900]);
            fruit.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        assert_same(&fruit, &model, "with space again");
    }
}

/// The device filled up while writes continued until memory was full too. The store opens with every
/// acknowledged write, although the log exceeds half of the write buffers, and accepts writes once there is
/// space.
#[test]
fn a_store_opens_with_all_writes_for_which_no_flush_had_space() {
    let device = Arc::new(Faulty::new(9));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let db = common::stepped(&medium, 9).open().unwrap();
    let fruit = db.open_or_create_keyspace("fruit").unwrap();
    let mut model = Model::new();
    let mut put = |number: u64| {
        let (key, value) = (format!("key{number:06}").into_bytes(), vec![number as u8; 900]);
        let put = fruit.put(&key, &value);
        if put.is_ok() {
            model.insert(key, value);
        }
        put
    };
    // The log may grow while it has space; tables find none.
    let full = Rule::new(OpKind::Write, Fault::NoSpace).purpose(Purpose::Flush).times(u64::MAX);
    device.inject(full).unwrap();
    let refused = (0..40_000).find_map(|number| put(number).err());
    assert_eq!(refused.unwrap().kind(), ErrorKind::NoSpace);
    let statistics = db.statistics();
    assert_eq!(statistics.flushes, 0);
    drop((fruit, db));
    for life in 0..2 {
        let db = common::stepped(&medium, 9).open().unwrap();
        assert_same(&db.open_or_create_keyspace("fruit").unwrap(), &model, &format!("life {life}"));
        assert_eq!(db.statistics().flushes, 0, "life {life}");
    }
    device.heal();
    for _ in 0..2 {
        let db = common::stepped(&medium, 9).open().unwrap();
        let fruit = db.open_or_create_keyspace("fruit").unwrap();
        assert_same(&fruit, &model, "with space again");
        fruit.put("new", "value").unwrap();
        model.insert(b"new".to_vec(), b"value".to_vec());
        db.flush().unwrap();
        assert_same(&fruit, &model, "flushed");
    }
}

/// The name of the manifest file.
fn manifest(medium: &dyn Medium) -> String {
    let mut listed = medium.list().unwrap().into_iter().map(|file| file.name);
    listed.find(|name| name.starts_with("manifest")).unwrap()
}

/// The bytes of all files.
fn stored(medium: &Arc<dyn Medium>) -> u64 {
    medium.list().unwrap().iter().map(|file| file.len).sum()
}

/// A store of 500 values of 100 KB, all of them deleted by one range delete that is not flushed yet.
fn all_deleted(medium: &Arc<dyn Medium>, stepped: &Stepped) -> Db {
    let db = stepped.on(Arc::clone(medium)).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..500u32 {
        keyspace.put(number.to_be_bytes(), common::noise(100_000)).unwrap();
    }
    db.flush().unwrap();
    db.wait_until_settled().unwrap();
    assert!(stored(medium) > 48 << 20);
    keyspace.delete_range::<&str>(..).unwrap();
    db
}

#[test]
fn a_settled_store_has_freed_the_space_of_range_deletes() {
    let (medium, stepped) = (common::memory(), Stepped::new(3));
    let db = all_deleted(&medium, &stepped);
    db.wait_until_settled().unwrap();
    assert!(stored(&medium) < 8 << 20, "{} B", stored(&medium));
}

#[test]
fn the_space_of_a_range_delete_comes_back_without_a_flush_that_anyone_asks_for() {
    let (medium, stepped) = (common::memory(), Stepped::new(4));
    let _db = all_deleted(&medium, &stepped);
    // A minute, stepped: the memtable is flushed after half of it.
    for _ in 0..60 {
        stepped.pass(Duration::from_secs(1));
    }
    assert!(stored(&medium) < 8 << 20, "{} B", stored(&medium));
}

/// The range is stored with an end after the last key that it can delete, not with one after every key of
/// 64 KiB.
#[test]
fn the_flush_of_a_range_delete_without_an_end_is_short() {
    let (medium, stepped) = (common::memory(), Stepped::new(3));
    let db = all_deleted(&medium, &stepped);
    let before = db.statistics().flush_bytes;
    db.flush().unwrap();
    let bytes = db.statistics().flush_bytes - before;
    assert!((4096..64 << 10).contains(&bytes), "{bytes} B");
    assert!(db.keyspace("k").unwrap().iter().unwrap().next().is_none());
}

/// Puts new values of `bytes` until the device has no space for more, whatever background work frees. Returns
/// how many it took.
fn fill(keyspace: &terracedb::Keyspace, stepped: &Stepped, bytes: usize) -> u32 {
    let mut taken = 0u32;
    loop {
        let mut refusals = 0;
        let mut value = vec![0; bytes];
        Rng::new(u64::from(taken)).fill(&mut value);
        while let Err(error) = keyspace.put(taken.to_be_bytes(), &value) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            refusals += 1;
            if refusals == 4 {
                return taken;
            }
            stepped.pass(Duration::from_secs(1));
            stepped.work(300);
        }
        taken += 1;
    }
}

/// Runs `what` until it succeeds, at most for a minute of the clock.
fn within_a_minute(stepped: &Stepped, name: &str, mut what: impl FnMut() -> terracedb::Result<()>) {
    for second in 0..60 {
        match what() {
            Ok(()) => return,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{name}: {error}");
                if second == 59 {
                    panic!("{name}: {error}");
                }
            }
        }
        stepped.pass(Duration::from_secs(1));
        stepped.work(300);
    }
}

/// A device of any size that held a store holds it again after everything is deleted: the delete is taken,
/// the space comes back, and about as many writes fit as before. In a hashed keyspace that depends on how
/// many files its merges have cut when the device is full: at least half.
fn comes_back_by_deleting(
    hashed: Option<HashedPolicy>,
    megabytes: u64,
    bytes: usize,
    reopened: bool,
) {
    let (least, options) = match hashed {
        Some(policy) => (2, KeyspaceOptions::new().hashed(policy)),
        None => (3, KeyspaceOptions::new()),
    };
    let device = Arc::new(Faulty::new(megabytes));
    device.set_capacity(Some(megabytes << 20));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let stepped = Stepped::new(megabytes);
    let mut db = stepped.on(Arc::clone(&medium)).open().unwrap();
    let mut keyspace = db.create_keyspace_opt("k", &options).unwrap();
    let mut most = 0;
    for round in 0..3 {
        let what = format!("{megabytes} MiB, values of {bytes} B, {reopened}, round {round}");
        fill_again((&keyspace, &stepped), (&what, bytes), &mut most, least);
        if reopened {
            drop((keyspace, db));
            db = stepped.on(Arc::clone(&medium)).open().unwrap();
            keyspace = db.keyspace("k").unwrap();
        }
        within_a_minute(&stepped, &what, || keyspace.delete_range::<&str>(..));
        assert!(keyspace.entries().unwrap().next().is_none());
        within_a_minute(&stepped, &what, || db.compact());
    }
}

/// Fills the keyspace, and compares how many values it took with the most of earlier rounds: at least `least`
/// quarters.
fn fill_again(
    (keyspace, stepped): (&terracedb::Keyspace, &Stepped),
    (what, bytes): (&str, usize),
    most: &mut u32,
    least: u64,
) -> u32 {
    let taken = fill(keyspace, stepped, bytes);
    println!("{what}: {taken}");
    *most = taken.max(*most);
    let is_enough = taken > 0 && u64::from(taken) >= u64::from(*most) * least / 4;
    assert!(is_enough, "{what}: {taken} of {most}");
    taken
}

/// As [`comes_back_by_deleting`], key by key.
fn comes_back_by_deleting_keys(megabytes: u64, bytes: usize) {
    let device = Arc::new(Faulty::new(megabytes));
    device.set_capacity(Some(megabytes << 20));
    let stepped = Stepped::new(megabytes);
    let db = stepped.on(Arc::clone(&device) as _).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let mut most = 0;
    for round in 0..3 {
        let what = format!("{megabytes} MiB, values of {bytes} B, round {round}");
        let taken = fill_again((&keyspace, &stepped), (&what, bytes), &mut most, 3);
        for number in 0..taken {
            within_a_minute(&stepped, &what, || keyspace.delete(number.to_be_bytes()));
        }
        assert!(keyspace.entries().unwrap().next().is_none());
        within_a_minute(&stepped, &what, || db.compact());
    }
}

const SIZES: [(u64, usize); 5] =
    [(20, 1_500_000), (26, 100_000), (30, 3_000), (37, 1_500_000), (48, 100_000)];

#[test]
fn a_full_device_of_any_size_comes_back_by_deleting() {
    for (megabytes, bytes) in SIZES {
        for reopened in [false, true] {
            comes_back_by_deleting(None, megabytes, bytes, reopened);
        }
    }
}

#[test]
fn a_full_device_of_any_size_comes_back_by_deleting_keys() {
    for (megabytes, bytes) in SIZES {
        comes_back_by_deleting_keys(megabytes, bytes);
    }
}

#[test]
fn a_full_device_of_a_hashed_keyspace_comes_back_by_deleting() {
    // The window is larger than the device, so nothing but the deletes frees space.
    let window = HashedPolicy::Window { bytes: 1 << 30, discard: Discard::Fifo };
    for policy in [HashedPolicy::Keep, window] {
        for (megabytes, bytes) in SIZES {
            comes_back_by_deleting(Some(policy.clone()), megabytes, bytes, megabytes % 2 == 0);
        }
    }
}
