//! Repair on devices on which any operation fails and the power may fail at any point.
//!
//! An interrupted repair loses nothing: the next one succeeds and loses no more than an undisturbed repair.
//! Damaged files are always kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base::limits::VALUE_APART_BYTES;
use base::{ErrorKind, Result, Rng};
use media::{Fault, Faulty, Freeze, Medium, MemoryMedium, OpKind, Rule};
use terracedb::tools::{RepairOptions, RepairReport, check};

use crate::common::{self, Image, Model, Stepped, show, used};

const NAMES: [&str; 2] = ["short", "long"];
/// Their names after a repair without the manifest.
const RECOVERED: [&str; 2] = ["recovered-1", "recovered-2"];
const KEYS: u64 = 150;

/// Number of points of each kind if not all are tried.
const SAMPLE: u64 = 3;

/// Keys by keyspace.
type Keys = BTreeSet<(&'static str, Vec<u8>)>;

/// A damaged store.
struct Case {
    what: &'static str,
    damaged: Image,
    /// The damaged files.
    files: Vec<String>,
    models: BTreeMap<&'static str, Model>,
    /// The keys that an undisturbed repair cannot bring back.
    lost: Keys,
}

fn repair(medium: &Arc<MemoryMedium>) -> Result<RepairReport> {
    repair_on(&(Arc::clone(medium) as _))
}

fn repair_on(medium: &Arc<dyn Medium>) -> Result<RepairReport> {
    terracedb::tools::repair(medium, RepairOptions::default(), &mut |_, _| {})
}

/// Overlapping tables, an ingested one, value files, and unflushed log records.
fn store(seed: u64) -> (Image, BTreeMap<&'static str, Model>) {
    let medium = Arc::new(MemoryMedium::new());
    let db = Stepped::new(seed).on(Arc::clone(&medium) as _).open().unwrap();
    let mut models: BTreeMap<_, _> = NAMES.map(|name| (name, Model::new())).into();
    let mut rng = Rng::new(seed);
    for round in 0..4u8 {
        for name in NAMES {
            let keyspace = db.open_or_create_keyspace(name).unwrap();
            let model = models.get_mut(name).unwrap();
            let count = if name == "long" { 8 } else { KEYS / (1 + u64::from(round)) };
            for number in 0..count {
                let key = common::key(if round == 0 { number } else { rng.below(KEYS) });
                let length = if name == "long" { VALUE_APART_BYTES } else { 150 };
                let mut value = vec![round; length];
                rng.fill(&mut value[..100]);
                keyspace.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            if round == 1 {
                let (from, to) = (common::key(3), common::key(6));
                keyspace.delete_range(from.clone()..to.clone()).unwrap();
                model.retain(|key, _| *key < from || *key >= to);
            }
        }
        match round {
            2 => {
                let mut ingest = db.open_or_create_keyspace("short").unwrap().ingest().unwrap();
                for number in (1..KEYS).step_by(5).filter(|number| number % 7 != 0) {
                    let (key, value) = (common::key(number), vec![b'i'; 100]);
                    ingest.put(&key, &value).unwrap();
                    models.get_mut("short").unwrap().insert(key, value);
                }
                ingest.finish().unwrap();
            }
            3 => {}
            _ => db.flush().unwrap(),
        }
    }
    drop(db);
    (Image::of(&medium), models)
}

impl Case {
    /// A store with damage in each file with one of `parts` in its name.
    fn new(seed: u64, what: &'static str, parts: &[&str]) -> Self {
        let (mut damaged, models) = store(seed);
        let mut files = Vec::new();
        for part in parts {
            let name = damaged.named(part)[0].clone();
            let content = damaged.0.get_mut(&name).unwrap();
            match *part {
                // Both copies of everything.
                "manifest-" => content.fill(7),
                "log-" => {
                    let middle = used(content) / 2;
                    content[middle] ^= 1;
                }
                _ => content[4096 + 99] ^= 1,
            }
            files.push(name);
        }
        let mut case = Self { what, damaged, files, models, lost: Keys::new() };
        let medium = case.damaged.with("", None);
        let report = repair(&medium).unwrap();
        assert!(!report.is_clean(), "{what}");
        case.lost = case.wrong(&medium, what);
        case.assert_told(&case.lost, &[&report], what);
        case
    }

    fn all(seed: u64) -> Vec<Self> {
        vec![
            Self::new(seed, "a table", &[".table"]),
            Self::new(seed, "a value file", &[".values"]),
            Self::new(seed, "the log", &["log-"]),
            Self::new(seed, "the manifest", &["manifest-"]),
            Self::new(seed, "everything", &[".table", ".values", "log-", "manifest-"]),
        ]
    }

    /// Opens the store; returns the keys without their right value.
    fn wrong(&self, medium: &Arc<MemoryMedium>, why: &str) -> Keys {
        let db = Stepped::new(1).on(Arc::clone(medium) as _).create_if_missing(false).open();
        let db = db.unwrap_or_else(|error| panic!("{why}: {error}"));
        assert!(db.recovery().damaged_tables.is_empty(), "{why}");
        let mut wrong = Keys::new();
        for (name, recovered) in NAMES.into_iter().zip(RECOVERED) {
            let keyspace = db.keyspace(name).or_else(|_| db.keyspace(recovered)).ok();
            for key in (0..KEYS).map(common::key) {
                let got = keyspace.as_ref().and_then(|keyspace| {
                    keyspace.get(&key).unwrap_or_else(|error| panic!("{why}: {error}"))
                });
                if got.as_deref() != self.models[name].get(&key).map(Vec::as_slice) {
                    wrong.insert((name, key));
                }
            }
        }
        wrong
    }

    fn assert_told(&self, wrong: &Keys, reports: &[&RepairReport], why: &str) {
        // Losses of unflushed records are reported by sequence number.
        if reports.iter().any(|report| report.log.is_some()) {
            return;
        }
        // Without the manifest older versions may come back: where they may, the report says so.
        let is_uncertain = |name: &str| {
            let recovered = NAMES.into_iter().zip(RECOVERED).find(|(it, _)| *it == name);
            let names = [name, recovered.map_or(name, |(_, recovered)| recovered)];
            let mut uncertain = reports.iter().flat_map(|report| &report.uncertain);
            uncertain.any(|it| names.contains(&it.as_str()))
        };
        for (name, key) in wrong {
            if is_uncertain(name) {
                continue;
            }
            let is_told = reports
                .iter()
                .flat_map(|report| &report.lost)
                .any(|lost| lost.keys.as_ref().is_none_or(|(from, to)| from <= key && key <= to));
            assert!(is_told, "{why}: `{name}` {}: {reports:?}", show(key));
        }
    }

    /// Repairs the result of an interrupted repair, and asserts that nothing more is lost.
    fn finish(&self, left: MemoryMedium, why: &str) {
        let left = Arc::new(left);
        let second = repair(&left);
        let second = second.unwrap_or_else(|error| panic!("{why}: the second repair: {error}"));
        self.assert_kept(&left, why);
        let checked = check(&(Arc::clone(&left) as _), &mut |_, _| {}).unwrap();
        assert!(checked.is_clean(), "{why}: {:?}\n{second:?}", checked.problems);
        let third = repair(&left).unwrap();
        assert!(third.is_clean(), "{why}: {third:?}");
        let more: Vec<_> = self.wrong(&left, why).difference(&self.lost).cloned().collect();
        assert!(more.is_empty(), "{why}: also lost {more:?}\n{second:?}");
    }

    /// Asserts that every damaged file is kept.
    fn assert_kept(&self, medium: &Arc<MemoryMedium>, why: &str) {
        let image = Image::of(medium);
        for name in &self.files {
            let was = &self.damaged.0[name];
            let names: Vec<_> = image.0.keys().collect();
            assert!(image.0.values().any(|now| now == was), "{why}: {name} is not in {names:?}");
        }
    }

    /// The number of operations of a kind in one repair.
    fn operations(&self, on: OpKind) -> u64 {
        let device = Arc::new(Faulty::over(&self.damaged.with("", None), 1).unwrap());
        device.inject(Rule::new(on, Fault::Delay(Duration::ZERO)).times(u64::MAX)).unwrap();
        repair_on(&(Arc::clone(&device) as _)).unwrap();
        device.struck()
    }

    fn fails(&self, on: OpKind, fault: &Fault, nth: u64, times: u64) {
        let often = if times == 1 { "once" } else { "from then on" };
        let why = format!("{}: {on:?} {nth}, {fault:?}, {often}", self.what);
        let device = Arc::new(Faulty::over(&self.damaged.with("", None), nth).unwrap());
        device.inject(Rule::new(on, fault.clone()).after(nth).times(times)).unwrap();
        let first = repair_on(&(Arc::clone(&device) as _));
        // The log is replayed by several threads, so the number of operations varies.
        if device.struck() == 0 {
            return;
        }
        device.heal();
        let left = device.process_death_image().unwrap();
        match first {
            Err(error) => {
                let kinds = [ErrorKind::NoSpace, ErrorKind::Corrupt, ErrorKind::Poisoned];
                assert!(kinds.contains(&error.kind()), "{why}: {error}");
                self.finish(left, &why);
                self.finish(device.crash_image(nth).unwrap(), &format!("{why}, without power"));
            }
            Ok(report) => {
                // An unreadable file counts as damaged.
                let left = Arc::new(left);
                let second = repair(&left).unwrap_or_else(|error| panic!("{why}: {error}"));
                let wrong = self.wrong(&left, &why);
                self.assert_told(&wrong, &[&report, &second], &why);
                if on != OpKind::Read {
                    self.assert_kept(&left, &why);
                    assert!(wrong.is_subset(&self.lost), "{why}: {wrong:?}");
                }
            }
        }
    }
}

fn seed() -> (Rng, u64) {
    let (rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    (rng, seed)
}

/// Some of `total` points, or all with `TERRACE_LONG=1`.
fn moments(rng: &mut Rng, total: u64) -> impl Iterator<Item = u64> {
    let is_long = std::env::var_os("TERRACE_LONG").is_some();
    let stride = if is_long { 1 } else { total.div_ceil(SAMPLE).max(1) };
    (rng.below(stride)..total).step_by(stride as usize)
}

/// Any operation of a repair fails, once or from then on.
#[test]
fn any_operation_of_a_repair_can_fail() {
    let (mut rng, seed) = seed();
    for case in Case::all(seed) {
        for (on, fault) in [
            (OpKind::Read, Fault::Io),
            (OpKind::Write, Fault::Io),
            (OpKind::Sync, Fault::Io),
            (OpKind::Names, Fault::Io),
            (OpKind::Write, Fault::NoSpace),
            (OpKind::Names, Fault::NoSpace),
        ] {
            let total = case.operations(on);
            println!("{}: {total} times {on:?}", case.what);
            for nth in moments(&mut rng, total) {
                [1, u64::MAX].iter().for_each(|times| case.fails(on, &fault, nth, *times));
            }
        }
    }
}

/// The power fails or the process dies at any point of a repair; the store is repaired again, or first
/// opened if that is possible.
#[test]
fn a_repair_can_be_interrupted_at_any_point() {
    let (mut rng, seed) = seed();
    for case in Case::all(seed) {
        let device = Arc::new(Faulty::over(&case.damaged.with("", None), 1).unwrap());
        repair_on(&(Arc::clone(&device) as _)).unwrap();
        let changes = moments(&mut rng, device.changes()).map(Freeze::AtChange);
        let changes: Vec<_> = changes.collect();
        let syncs = moments(&mut rng, device.syncs()).map(Freeze::AtSync);
        for moment in changes.into_iter().chain(syncs.collect::<Vec<_>>()) {
            let device = Arc::new(Faulty::over(&case.damaged.with("", None), 1).unwrap());
            device.freeze(moment);
            let _ = repair_on(&(Arc::clone(&device) as _));
            let why = format!("{} {moment:?}", case.what);
            case.finish(device.process_death_image().unwrap(), &format!("{why}, process"));
            for draw in 0..2 {
                let image = device.crash_image(seed ^ draw).unwrap();
                let why = format!("TERRACE_SEED={seed}, {why}, draw {draw}");
                if draw == 1 {
                    let opened = Arc::new(device.crash_image(seed ^ draw).unwrap());
                    if let Ok(db) = Stepped::new(1).on(Arc::clone(&opened) as _).open() {
                        drop(db);
                        let opened = Arc::into_inner(opened).unwrap();
                        case.finish(opened, &format!("{why}, opened"));
                    }
                }
                case.finish(image, &why);
            }
        }
    }
}
