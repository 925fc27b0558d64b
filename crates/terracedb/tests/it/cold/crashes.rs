//! The machine dies at any change of the device or of the object store: every acknowledged write is there, no
//! table is missing, and nothing that no one names is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Rng;
use media::{Faulty, Freeze};
use terracedb::Db;

use super::object_store::Reachable;
use super::{AFTER, cold, fill, kept, names};
use crate::common::{Model, Stepped, assert_same};

/// Where the machine dies.
#[derive(Clone, Copy, Debug)]
enum Death {
    Never,
    /// At this sync of the device, before or after the merge begins.
    Local(bool, u64),
    /// At this change of the objects, which has its effect or not.
    Remote(u64, bool),
}

/// One life: a table becomes cold, is replaced by a merge, and its output becomes cold.
struct Life {
    local: Arc<Faulty>,
    objects: Arc<Faulty>,
    model: Model,
    /// Syncs before and after the merge begins.
    syncs: [u64; 2],
    changes: u64,
    is_dead: bool,
}

impl Life {
    fn live(seed: u64, death: Death) -> Self {
        let (local, objects) = (Arc::new(Faulty::new(seed)), Arc::new(Faulty::new(!seed)));
        let stepped = Stepped::new(seed);
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        let (dies_at, has_effect) = match death {
            Death::Remote(change, has_effect) => (Some(change), has_effect),
            Death::Never | Death::Local(..) => (None, false),
        };
        let (changes, is_dead) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let is_counting = Arc::<AtomicBool>::default();
        let store = Reachable {
            objects: Arc::clone(&objects),
            local: Arc::clone(&local),
            dies_at,
            is_counting: Arc::clone(&is_counting),
            has_effect,
            changes: Arc::clone(&changes),
            is_dead: Arc::clone(&is_dead),
        };
        let builder = stepped.on(Arc::clone(&local) as _);
        let db = builder.object_store_medium(Arc::new(store), AFTER).open().unwrap();
        let is_over = || is_dead.load(Ordering::SeqCst) || local.is_frozen();
        let mut syncs = [0; 2];
        for (is_merge, syncs) in [false, true].into_iter().zip(&mut syncs) {
            // The machine does not die in here: every write is acknowledged.
            fill(&db, &mut rng, &mut model);
            is_counting.store(true, Ordering::SeqCst);
            match death {
                Death::Local(merges, sync) if merges == is_merge => {
                    local.freeze(Freeze::AtSync(local.syncs() + sync));
                }
                _ => {}
            }
            let before = local.syncs();
            // A dead machine has no result.
            let _ = db.compact();
            for _ in 0..3 {
                stepped.pass(AFTER);
                stepped.work(200);
            }
            *syncs = local.syncs() - before;
            is_counting.store(false, Ordering::SeqCst);
            if is_over() {
                break;
            }
            assert_eq!(cold(&db), (1, 1));
            assert_eq!(db.statistics().cold.unwrap().failures, 0);
        }
        let (changes, is_dead) = (changes.load(Ordering::SeqCst), is_over());
        Self { local, objects, model, syncs, changes, is_dead }
    }

    /// Opens what is left, drawn by `seed`, and compares.
    fn must_be_whole(&self, seed: u64, why: &str) {
        let image = |device: &Faulty| {
            Arc::new(Faulty::over(&device.crash_image(seed).unwrap(), seed).unwrap())
        };
        let (local, objects) = (image(&self.local), image(&self.objects));
        let stepped = Stepped::new(seed);
        let open = || {
            let builder = stepped.on(Arc::clone(&local) as _);
            let db = builder.object_store_medium(Arc::clone(&objects) as _, AFTER);
            db.open().unwrap_or_else(|error| panic!("{why}: {error}"))
        };
        let db = open();
        let damaged = &db.recovery().damaged_tables;
        assert!(damaged.is_empty(), "{why}: {damaged:?}");
        assert_same(&db.keyspace("k").unwrap(), &self.model, why);
        db.compact().unwrap();
        for _ in 0..4 {
            stepped.pass(AFTER);
            stepped.work(200);
        }
        let statistics = db.statistics().cold.unwrap();
        assert_eq!(cold(&db), (1, 1), "{why}: {:?}", statistics.error);
        assert_same(&db.keyspace("k").unwrap(), &self.model, why);
        drop(db);
        let db: Db = open();
        let left = names(&*objects, "");
        assert_eq!(left.len(), 2, "{why}: a table and the owner: {left:?}");
        assert_eq!((names(&*local, ".table").len(), kept(&*local).len()), (0, 1), "{why}");
        assert_same(&db.keyspace("k").unwrap(), &self.model, why);
        let values = db.statistics().keyspaces[0].value_files;
        assert_eq!(names(&*local, ".values").len(), values, "{why}");
    }
}

/// All points in long runs, else every third.
fn points(count: u64, rng: &mut Rng) -> impl Iterator<Item = u64> + use<> {
    let step = if std::env::var_os("TERRACE_LONG").is_some() { 1 } else { 3 };
    (rng.below(step)..count).step_by(step as usize)
}

#[test] // I3, I11
fn a_machine_that_dies_at_any_sync_loses_no_cold_table() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let whole = Life::live(seed, Death::Never);
    let [before, after] = whole.syncs;
    assert!(before > 2 && after > 2 && !whole.is_dead, "{before} and {after} syncs");
    for (merges, syncs) in [(false, before), (true, after)] {
        for sync in points(syncs, &mut rng) {
            let death = Death::Local(merges, sync);
            let life = Life::live(seed, death);
            assert!(life.is_dead, "TERRACE_SEED={seed}, {death:?}");
            life.must_be_whole(rng.next_u64(), &format!("TERRACE_SEED={seed}, {death:?}"));
        }
    }
}

#[test] // I3, I11
fn a_machine_that_dies_at_any_request_loses_no_cold_table() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let whole = Life::live(seed, Death::Never);
    assert!(whole.changes > 10, "{} changes", whole.changes);
    for change in points(whole.changes, &mut rng) {
        let death = Death::Remote(change, rng.one_in(2));
        let life = Life::live(seed, death);
        assert!(life.is_dead, "TERRACE_SEED={seed}, {death:?}");
        life.must_be_whole(rng.next_u64(), &format!("TERRACE_SEED={seed}, {death:?}"));
    }
}
