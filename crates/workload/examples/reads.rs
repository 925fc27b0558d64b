//! The cost of reads of data in memory: processor time of the reading thread per operation, nanoseconds, the
//! lowest of several rounds, without the checks and clock of the driver.
//!
//! `cargo run --release -p terrace-workload --example reads -- [ROUNDS [OPERATION..]]`. The operations are
//! `snapshot`, `page`, `row`, `missing`, `multi`, `seek` and `scan`; by default all of them. With
//! `TERRACE_DIR` set, the store is kept there and used again. The store has 2 M entries of 16 + 100 B,
//! written in order, then overwritten in random order and settled, like the case `memory-reads`. *page* gets
//! keys for the first time, so that they have no cached row; *row* gets keys that have one.

use base::{Error, Result, Rng};
use rustix::time::{ClockId, clock_gettime};
use terrace_workload::{Engine, Keys, Store, Values};
use terracedb::{Db, Keyspace};

const KEYS: u64 = 2_000_000;
const ENTRIES: usize = 100;
const BATCH: usize = 32;

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn fill(engine: &Engine, numbers: impl Iterator<Item = u64>, epoch: u8) -> Result<()> {
    let (keys, values) = (Keys::new(16)?, Values::new(0.5)?);
    let mut entries = Vec::new();
    let put = |entries: &mut Vec<(Vec<u8>, Vec<u8>)>| {
        let batch: Vec<_> = entries.iter().map(|(k, v)| (k.as_slice(), v.as_slice())).collect();
        let put = engine.put_batch(&batch, false);
        entries.clear();
        put
    };
    for number in numbers {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        keys.write(number, &mut key);
        values.write(&key, epoch, 100, &mut value);
        entries.push((key, value));
        if entries.len() == 100 {
            put(&mut entries)?;
        }
    }
    put(&mut entries)
}

/// The lowest processor time per operation over `rounds` rounds of `count` operations, nanoseconds.
fn least(
    rounds: u64,
    count: u64,
    mut operation: impl FnMut(u64, u64) -> Result<()>,
) -> Result<u64> {
    let mut least = u64::MAX;
    for round in 0..rounds {
        let start = cpu_ns();
        for number in 0..count {
            operation(round, number)?;
        }
        least = least.min((cpu_ns() - start) / count);
    }
    Ok(least)
}

fn get(keyspace: &Keyspace, key: &[u8], there: bool) -> Result<()> {
    match keyspace.get(key)? {
        Some(value) if there && value.len() == 100 => Ok(()),
        None if !there => Ok(()),
        other => Err(Error::corrupt("value").got(format_args!("{other:?}"))),
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = arguments.first().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let asked = |name: &str| arguments.len() < 2 || arguments.iter().any(|asked| asked == name);
    let scratch = tempfile::tempdir().map_err(|e| Error::io("create", "a directory", e))?;
    let kept = std::env::var_os("TERRACE_DIR").map(std::path::PathBuf::from);
    let dir = kept.unwrap_or_else(|| scratch.path().to_owned());
    let is_new = !dir.join("store").exists();
    let engine = Engine::new(Db::builder(dir.join("store")).memory(4 << 30).open()?)?;
    let mut rng = Rng::new(1);
    if is_new {
        fill(&engine, 0..KEYS, 0)?;
        fill(&engine, (0..KEYS).map(|_| rng.below(KEYS)), 1)?;
        engine.settle()?;
    }
    let keyspace = engine.db().open_or_create_keyspace("default")?;
    for (level, held) in
        engine.db().statistics().keyspaces.iter().flat_map(|it| &it.levels).enumerate()
    {
        println!("{level}: {held:?}");
    }
    let keys = Keys::new(16)?;
    let mut key = Vec::new();
    // Every page is cached, and no row.
    let mut entries = 0;
    for entry in keyspace.iter()? {
        entries += u64::from(entry?.1.len() == 100);
    }
    assert_eq!(entries, KEYS);
    let snapshot = engine.db().snapshot();
    for number in (0..KEYS).step_by(8) {
        keys.write(number, &mut key);
        snapshot.get(&keyspace, &key)?;
    }
    // The step is a prime, so no number repeats before all were used.
    let spread = |at: u64| at * 1_000_003 % KEYS;
    let each = KEYS / 4 / rounds;
    let show = |name: &str, ns: u64| println!("{name:<24} {ns:>8} ns");
    if asked("snapshot") {
        show(
            "get, page, snapshot",
            least(rounds, 100_000, |round, at| {
                keys.write(spread(round * 100_000 + at), &mut key);
                snapshot.get(&keyspace, &key).map(drop)
            })?,
        );
    }
    if asked("page") {
        show(
            "get, page, row left",
            least(rounds, each, |round, at| {
                keys.write(spread(round * each + at), &mut key);
                get(&keyspace, &key, true)
            })?,
        );
    }
    if asked("seek") {
        for (name, entries) in [("seek", 1), ("seek + 100 next", ENTRIES)] {
            show(
                name,
                least(rounds, 10_000, |_, _| {
                    keys.write(rng.below(KEYS), &mut key);
                    let mut bytes = 0;
                    engine.scan(
                        Some(&key),
                        terrace_workload::Direction::Forward,
                        entries,
                        &mut |key, value| {
                            bytes += key.len() + value.len();
                            std::ops::ControlFlow::Continue(())
                        },
                    )?;
                    std::hint::black_box(bytes);
                    Ok(())
                })?,
            );
        }
    }
    if asked("scan") {
        show(
            "walk, an entry",
            least(rounds.min(3), 1, |_, _| {
                let mut cursor = keyspace.cursor()?;
                let mut valid = cursor.seek_to_first()?;
                while valid {
                    valid = cursor.next()?;
                }
                Ok(())
            })? / KEYS,
        );
    }
    if asked("missing") {
        show(
            "get, missing",
            least(rounds, 200_000, |_, _| {
                keys.write_missing(rng.below(KEYS), &mut key);
                get(&keyspace, &key, false)
            })?,
        );
    }
    let batch = |rng: &mut Rng, from: u64, of: u64| -> Vec<Vec<u8>> {
        let write = |_| {
            let mut key = Vec::new();
            keys.write(from + rng.below(of), &mut key);
            key
        };
        (0..BATCH).map(write).collect()
    };
    if asked("multi") {
        let mut turn = KEYS / 2;
        show(
            "multi_get of 32, pages",
            least(rounds, 2000, |_, _| {
                let keys: Vec<_> = (0..BATCH)
                    .map(|_| {
                        turn += 1;
                        let mut key = Vec::new();
                        keys.write(spread(turn), &mut key);
                        key
                    })
                    .collect();
                let values = keyspace.multi_get(&keys)?;
                assert!(values.iter().all(|value| matches!(value, Ok(Some(_)))));
                Ok(())
            })? / BATCH as u64,
        );
    }
    if asked("row") {
        for number in 0..KEYS {
            keys.write(number, &mut key);
            get(&keyspace, &key, true)?;
        }
        show(
            "get, row",
            least(rounds, 500_000, |_, _| {
                keys.write(rng.below(KEYS), &mut key);
                get(&keyspace, &key, true)
            })?,
        );
        show(
            "32 in flight, rows",
            least(rounds, 10_000, |_, _| {
                let keys = batch(&mut rng, 0, KEYS);
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                engine.multi_get(&keys, BATCH, &mut |_, value| assert!(value.is_some()))
            })? / BATCH as u64,
        );
        show(
            "multi_get of 32, rows",
            least(rounds, 10_000, |_, _| {
                let keys = batch(&mut rng, 0, KEYS);
                let values = keyspace.multi_get(&keys)?;
                assert!(values.iter().all(|value| matches!(value, Ok(Some(_)))));
                Ok(())
            })? / BATCH as u64,
        );
    }
    println!("{:?}", engine.db().statistics().hits);
    Ok(())
}
