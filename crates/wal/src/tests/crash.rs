//! Power cuts and process deaths in sequence: synced records come back, and every record comes back
//! whole, in order and as last written (I11). A tail that recovery cut off stays cut off.
//!
//! A part of the batches is unlogged: only their seqnos are known, until the next record.
//!
//! A script of random operations runs on a device that is frozen at a chosen change. The image that the
//! crash leaves is opened and compared with the history, and the script continues from there: three
//! crashes in a row, some of them during an open, with process deaths between.

use std::collections::BTreeMap;

use base::Rng;
use media::{Faulty, Freeze};

use super::*;
use crate::log::tests::HOME;

/// The keyspace that is rarely flushed, and the one that is flushed often.
const IDLE: KeyspaceId = KeyspaceId(1);
const BUSY: KeyspaceId = KeyspaceId(2);

/// The shape of a log: its lanes, and the device below.
#[derive(Clone, Copy, Debug, Default)]
enum Shape {
    /// One lane on flash, which loses and tears sectors until a sync.
    #[default]
    Flash,
    /// This many lanes on storage-class memory, which loses and tears lines until a fence.
    Fenced(u16),
}

impl Shape {
    fn device(self, device: Faulty) -> Arc<Faulty> {
        Arc::new(match self {
            Self::Flash => device,
            Self::Fenced(_) => device.with_lines(),
        })
    }

    fn options(self) -> Options {
        match self {
            Self::Flash => options(),
            Self::Fenced(lanes) => fenced(lanes),
        }
    }
}

/// State of the engine: it stands for the manifest and the tables, whose crash safety has its own tests.
/// So a flush counts only if it finished before the crash.
#[derive(Clone, Default)]
struct Engine {
    shape: Shape,
    /// Every record that the log may hold: end seqno, keyspace and body.
    history: BTreeMap<u64, (u64, KeyspaceId, Vec<u8>)>,
    /// The last seqno that a sync acknowledged.
    synced: u64,
    /// Records of the idle and the busy keyspace below these seqnos are in tables.
    below: [u64; 2],
    /// The last seqno assigned, and that of the last record.
    last: u64,
    stored: u64,
    /// The last seqno in a table, which an unlogged batch may have had.
    floor: u64,
    /// The last seqno of a record whose batch is in a table. The log must reach it.
    logged: u64,
    /// The durable start of the log, and the start that the next process sees after a process death.
    start: Start,
    seen: Start,
}

impl Engine {
    fn open(&self, medium: &Arc<dyn Medium>) -> Result<(Log, Recovery, Replayed)> {
        let floor = Seqno::new(self.floor);
        let below = |keyspace| Some(Seqno::new(self.below(keyspace)));
        let start = self.seen.clone();
        let (logged, has_keyspaces) = (Seqno::new(self.logged), self.logged > 0);
        let known = Options { floor, start, logged, has_keyspaces, ..self.shape.options() };
        open_with(medium, Options { has_gaps: true, ..known }, &below)
    }

    fn record(&mut self, start: &Start, is_durable: bool) {
        for (lane, segment) in start.iter() {
            self.seen.raise(lane, segment);
            if is_durable {
                self.start.raise(lane, segment);
            }
        }
    }

    fn below(&self, keyspace: KeyspaceId) -> u64 {
        self.below[keyspace.0 as usize - 1]
    }

    /// Compares the replayed records with the history, and cuts the history to the end of the log.
    fn compare(&mut self, recovery: &Recovery, replayed: &Replayed, context: &str) {
        let last = recovery.last.get();
        assert!(last >= self.synced, "{context}: synced up to {}, got {last}", self.synced);
        self.history.retain(|first, _| *first <= last);
        let needed = self.history.iter();
        let needed = needed.filter(|(_, (end, keyspace, _))| *end > self.below(*keyspace));
        let needed: Vec<_> = needed.map(|(first, (_, _, body))| (*first, body)).collect();
        let got: Vec<_> = replayed.iter().map(|(first, body)| (*first, body)).collect();
        assert!(needed == got, "{context}: {}", difference(&needed, &got));
        assert!(last >= self.floor, "{context}: a seqno in a table would be used again");
        (self.last, self.stored) = (last, last);
    }
}

fn difference(needed: &[(u64, &Vec<u8>)], got: &[(u64, &Vec<u8>)]) -> String {
    let at = needed.iter().zip(got).take_while(|(needed, got)| needed == got).count();
    let seqno = |list: &[(u64, &Vec<u8>)]| list.get(at).map(|(seqno, _)| *seqno);
    format!(
        "record {at} of {} and {}: needed {:?}, got {:?}",
        needed.len(),
        got.len(),
        seqno(needed),
        seqno(got)
    )
}

/// Runs `steps` random operations. Operations after the device is frozen do not count.
fn run(device: &Faulty, log: &Log, engine: &mut Engine, rng: &mut Rng, steps: u32) {
    for _ in 0..steps {
        match rng.below(16) {
            0..9 => {
                let keyspace = if rng.one_in(5) { IDLE } else { BUSY };
                let ops = 1 + rng.below(5) as u32;
                let size = match rng.below(12) {
                    0 => rng.below(30_000),
                    1..4 => rng.below(3000),
                    _ => rng.below(200),
                };
                let mut body = vec![0; size as usize];
                rng.fill(&mut body);
                let batch = Batch { keyspaces: &[keyspace], ops, body: &body };
                let is_unlogged = rng.one_in(4);
                if let Shape::Fenced(lanes) = engine.shape {
                    HOME.set(Some(rng.below(u64::from(lanes)) as usize));
                }
                let first = if is_unlogged { log.assign(batch) } else { log.append(batch) };
                let first = first.unwrap().get();
                assert_eq!(first, engine.last + 1);
                engine.last = first + u64::from(ops) - 1;
                if is_unlogged {
                    continue;
                }
                engine.stored = engine.last;
                engine.history.insert(first, (engine.last + 1, keyspace, body));
                if matches!(engine.shape, Shape::Fenced(_)) && !device.is_frozen() {
                    // A fenced append is durable when it returns.
                    assert!(log.durable().get() >= engine.stored);
                    engine.synced = engine.stored;
                }
            }
            9..12 => {
                let upto = Seqno::new(engine.last);
                log.sync(upto).unwrap();
                assert!(log.durable() >= upto);
                if !device.is_frozen() {
                    engine.synced = engine.stored;
                }
            }
            12 if rng.one_in(3) => drop(log.give_back(rng.below(2) as usize).unwrap()),
            12 => drop(log.prepare(1 + rng.below(2) as usize).unwrap()),
            13 => log.rotate().unwrap(),
            14 => {
                // Otherwise a batch could be in a table in part and lost from the log.
                log.sync(Seqno::new(engine.last)).unwrap();
                if !device.is_frozen() {
                    engine.synced = engine.stored;
                    engine.floor = engine.last;
                    engine.logged = engine.stored;
                    let flushed: &[_] = if rng.one_in(2) { &[BUSY] } else { &[IDLE, BUSY] };
                    for keyspace in flushed {
                        let below = log.stored_below();
                        assert_eq!(below.get(), engine.stored + 1);
                        engine.record(&log.start_once_flushed(*keyspace, below), true);
                        engine.below[keyspace.0 as usize - 1] = below.get();
                        log.flushed(*keyspace, below);
                    }
                }
            }
            _ => {
                let recorded = std::cell::RefCell::new((Start::new(), false));
                log.free(&|start| {
                    recorded.replace((start.clone(), !device.is_frozen()));
                    Ok(())
                })
                .unwrap();
                let (start, is_durable) = recorded.into_inner();
                engine.record(&start, is_durable);
            }
        }
    }
}

/// Three lives of a log, each ended by a power cut at the change that `at` picks.
fn lives(shape: Shape, seed: u64, at: impl Fn(u32, &mut Rng) -> Freeze) {
    let mut rng = Rng::new(seed);
    let mut device = shape.device(Faulty::new(seed));
    let mut engine = Engine { shape, ..Engine::default() };
    for life in 0..3 {
        let moment = at(life, &mut rng);
        let context = format!("TERRACE_SEED={seed}, {shape:?}, life {life}, {moment:?}");
        device.freeze(moment);
        let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
        // Processes die and others take over; that syncs none of the files.
        for process in 0..1 + rng.below(3) {
            let (log, recovery, replayed) =
                engine.open(&medium).unwrap_or_else(|error| panic!("{context}: {error}"));
            if process > 0 {
                let last = engine.stored.max(engine.floor);
                assert_eq!(recovery.last.get(), last, "{context}, process {process}");
            }
            engine.compare(&recovery, &replayed, &context);
            if !device.is_frozen() {
                // The records that an open replayed are durable when it returns.
                engine.synced = engine.last;
            }
            let steps = 5 + rng.below(40) as u32;
            run(&device, &log, &mut engine, &mut rng, steps);
        }
        engine.seen = engine.start.clone();
        let image = device.crash_image(rng.next_u64()).unwrap();
        device = shape.device(Faulty::over(&image, rng.next_u64()).unwrap());
    }
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let context = format!("TERRACE_SEED={seed}, the end");
    let (_, recovery, replayed) =
        engine.open(&medium).unwrap_or_else(|error| panic!("{context}: {error}"));
    engine.compare(&recovery, &replayed, &context);
    // Lanes on storage-class memory lose their ends independently; the module `fenced` tests that.
    if matches!(shape, Shape::Flash) {
        lose_the_end(&device, &engine, &context);
    }
}

/// The records of the newest segments are zeroed, one segment more each time: an open tells whether the log
/// still reaches what tables hold.
fn lose_the_end(device: &Faulty, engine: &Engine, context: &str) {
    let image = device.process_death_image().unwrap();
    let mut segments = image.list().unwrap();
    segments.retain(|file| crate::parse_segment_name(&file.name).is_some());
    segments.sort_by(|one, other| one.name.cmp(&other.name));
    for (number, segment) in segments.iter().rev().enumerate() {
        let mut content = image.content(&segment.name).unwrap();
        let records = content.get_mut(4096..).unwrap_or_default();
        records.fill(0);
        image.insert(&segment.name, content).unwrap();
        let copy = MemoryMedium::new();
        for file in image.list().unwrap() {
            copy.insert(&file.name, image.content(&file.name).unwrap()).unwrap();
        }
        let medium: Arc<dyn Medium> = Arc::new(copy);
        let known = Known { start: engine.seen.clone(), ..Known::default() };
        let account = Account::unlimited("log");
        let store = Some(options().store);
        let left = crate::check(&medium, store, &known, Recover::Strict, &account);
        let is_short = left.map_or(true, |left| left.last.get() < engine.logged);
        let opened = engine.open(&medium).map(|(_, recovery, _)| recovery.last);
        assert_eq!(opened.is_err(), is_short, "{context}, without {} segments", number + 1);
    }
}

#[test]
fn a_crash_at_any_sync_of_three_lives_loses_no_synced_record() {
    let (mut rng, seed) = Rng::from_env();
    for point in 0..60 {
        for _ in 0..2 {
            // A failure prints the seed of its own script, which reproduces it here.
            let script =
                if std::env::var_os("TERRACE_SEED").is_some() { seed } else { rng.next_u64() };
            lives(Shape::Flash, script, |life, rng| {
                Freeze::AtSync(if life == 0 { point } else { rng.below(40) })
            });
        }
    }
}

#[test]
fn a_crash_at_any_change_of_three_lives_loses_no_synced_record() {
    let (mut rng, seed) = Rng::from_env();
    for _ in 0..120 {
        let script = if std::env::var_os("TERRACE_SEED").is_some() { seed } else { rng.next_u64() };
        lives(Shape::Flash, script, |_, rng| Freeze::AtChange(rng.below(100)));
    }
}

/// The open itself is cut: few changes, many crashes, so that a log is recovered repeatedly before any
/// append.
#[test]
fn a_recovery_can_crash_repeatedly_and_loses_no_synced_record() {
    let (mut rng, seed) = Rng::from_env();
    for _ in 0..80 {
        let script = if std::env::var_os("TERRACE_SEED").is_some() { seed } else { rng.next_u64() };
        lives(Shape::Flash, script, |life, rng| {
            Freeze::AtChange(if life == 0 { rng.below(100) } else { rng.below(8) })
        });
    }
}

/// Power cuts on storage-class memory, at any change or fence, in the open too, with one lane and with four.
fn crashes_on_lines(rounds: u32) {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..rounds {
        let script = if std::env::var_os("TERRACE_SEED").is_some() { seed } else { rng.next_u64() };
        let shape = Shape::Fenced([1, 4][round as usize % 2]);
        lives(shape, script, |life, rng| match (round / 2 % 3, life) {
            (0, _) => Freeze::AtChange(rng.below(150)),
            (1, 0) => Freeze::AtChange(rng.below(150)),
            (1, _) => Freeze::AtChange(rng.below(30)),
            _ => Freeze::AtSync(rng.below(60)),
        });
    }
}

#[test]
fn a_crash_at_any_line_loses_no_acknowledged_record() {
    crashes_on_lines(240);
}

#[test]
#[ignore = "10^5 crash points on one lane and on four"]
fn crashes_at_a_hundred_thousand_points_lose_no_acknowledged_record() {
    crashes_on_lines(2 * 100_000 / 3);
}

/// Records beyond a gap: the first life leaves later records without an earlier one. The second life
/// assigns their seqnos again and crashes too. The records beyond the gap never come back.
#[test]
fn records_beyond_a_gap_never_come_back() {
    let medium = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let (log, ..) = open(&device).unwrap();
    for at in 0..6u8 {
        append(&log, 1, 1, &vec![at; 5000]).unwrap();
    }
    drop(log);
    // Loses the third record, in the first segment or the second.
    let lost = find(&medium, &[2; 100]);
    let mut content = medium.content(&lost.0).unwrap();
    content[lost.1..lost.1 + 50].fill(0);
    medium.insert(&lost.0, content).unwrap();
    for life in 0..3u8 {
        let (log, recovery, replayed) = open(&device).unwrap();
        let kept = 2 + u64::from(life);
        assert_eq!(recovery.last.get(), kept, "life {life}");
        let bodies: Vec<u8> = replayed.iter().map(|(_, body)| body[0]).collect();
        assert_eq!(bodies, [0, 1, 10, 11][..2 + usize::from(life)]);
        assert_eq!(append(&log, 1, 1, &[10 + life; 10]).unwrap().get(), kept + 1);
    }
}

/// The file and the offset at which `bytes` first occur.
fn find(medium: &MemoryMedium, bytes: &[u8]) -> (String, usize) {
    for file in medium.list().unwrap() {
        let content = medium.content(&file.name).unwrap();
        if let Some(at) = content.windows(bytes.len()).position(|window| window == bytes) {
            return (file.name, at);
        }
    }
    panic!("no file contains the bytes");
}
