//! A scripted run on devices on which any operation fails, once or from then on: with an error, or as a
//! full device.
//!
//! The run has transactions, an ingest, range deletes, expiring values, value files, merges, checkpoints
//! and backups. I11: an acknowledged write is present once the device works and the store is reopened. I3:
//! a checkpoint or backup made meanwhile is whole or was refused.
//!
//! By default a sample of the operations fails, one per run; with `TERRACE_LONG=1` every operation does,
//! both ways.

use std::sync::Arc;
use std::time::Duration;

use base::{Durability, ErrorKind, Result, Rng};
use media::{Fault, Faulty, OpKind, Purpose, Rule};

use crate::common::{Ended, Script};

/// Number of failing operations of each kind if not all are tried.
const SAMPLE: u64 = 5;

/// The device on which an operation fails.
#[derive(Clone, Copy, Debug)]
enum Place {
    Store,
    /// The target of the first checkpoint.
    Checkpoint,
    Repository,
}

impl Place {
    fn device(self, script: &Script) -> Arc<Faulty> {
        Arc::clone(match self {
            Self::Store => &script.device,
            Self::Checkpoint => &script.copy,
            Self::Repository => &script.repository,
        })
    }
}

/// One operation of a script.
type Act = fn(&mut Script) -> Result<()>;

fn expire(script: &mut Script) -> Result<()> {
    script.pass(Duration::from_secs(15))
}

fn write_synced(script: &mut Script) -> Result<()> {
    script.write_large(12_000, Durability::Sync)
}

/// The operations of the run; their details are derived from its seed.
const RUN: [Act; 50] = [
    Script::write,
    Script::write_long,
    Script::write,
    Script::flush,
    Script::transact,
    Script::transact,
    Script::ingest,
    Script::write,
    Script::work,
    Script::delete_ranges,
    Script::write_long,
    Script::flush,
    Script::read,
    Script::write,
    Script::transact,
    Script::write_long,
    Script::sync,
    Script::flush,
    Script::back_up,
    Script::compact,
    expire,
    Script::ingest,
    Script::write,
    Script::checkpoint,
    Script::delete_ranges,
    Script::write_long,
    Script::reopen,
    Script::transact,
    write_synced,
    Script::ingest,
    Script::flush,
    Script::merge,
    Script::read,
    Script::write,
    Script::work,
    Script::create,
    Script::ingest,
    Script::transact,
    Script::drop_one,
    Script::compact,
    Script::read,
    Script::back_up,
    Script::write,
    expire,
    Script::reopen,
    Script::delete_ranges,
    Script::settle,
    Script::checkpoint,
    Script::transact,
    Script::flush,
];

/// Plays the run. If the store cannot be opened, opening is repeated before the next operation.
fn play(script: &mut Script, mut met: impl FnMut(&Script, base::Error)) {
    for (number, act) in RUN.iter().enumerate() {
        if !script.is_open()
            && let Err(error) = script.open(Ended::Process)
        {
            met(script, error);
            continue;
        }
        let done = script.begin().and_then(|()| script.act(act));
        if let Err(error) = done {
            let is_poisoned = error.kind() == ErrorKind::Poisoned;
            met(script, error);
            // A poisoned store takes no more writes; it is reopened sooner or later.
            if is_poisoned && number % 3 == 0 {
                script.close();
            }
        }
    }
}

/// The number of operations in the run that `rule` matches.
fn operations(seed: u64, place: Place, rule: Rule) -> u64 {
    let mut script = Script::new(seed);
    let device = place.device(&script);
    device.inject(rule.times(u64::MAX)).unwrap();
    play(&mut script, |script, error| panic!("{}: {error}", script.context));
    device.struck()
}

/// A rule that matches every operation of a kind and changes nothing.
fn passing(on: OpKind) -> Rule {
    Rule::new(on, Fault::Delay(Duration::ZERO))
}

/// Plays the run with operation `nth` of a kind failing, or all from that one on; then the devices work
/// again.
fn fails(seed: u64, place: Place, (on, fault): (OpKind, &Fault), nth: u64, times: u64) {
    let mut script = Script::new(seed);
    let device = place.device(&script);
    let often = if times == 1 { "once" } else { "from then on" };
    script.context = format!("TERRACE_SEED={seed}, {place:?}: {on:?} {nth}, {fault:?}, {often}");
    // A failed sync may lose all unsynced data.
    script.lossy = on == OpKind::Sync;
    device.inject(Rule::new(on, fault.clone()).after(nth).times(times)).unwrap();
    play(&mut script, |script, error| {
        let kinds = [ErrorKind::Corrupt, ErrorKind::NoSpace, ErrorKind::Poisoned, ErrorKind::Retry];
        assert!(kinds.contains(&error.kind()), "{}: {error}", script.context);
    });
    assert!(device.struck() > 0, "{}: the run has fewer operations", script.context);
    device.heal();
    script.close();
    let open = |script: &mut Script, left| {
        script.open(left).unwrap_or_else(|error| panic!("{}: {error}", script.context));
    };
    open(&mut script, Ended::Process);
    for act in [Script::write, Script::transact, Script::ingest, Script::back_up, Script::merge] {
        let done = script.begin().and_then(|()| script.act(act));
        done.unwrap_or_else(|error| panic!("{}, once all is well: {error}", script.context));
    }
    script.check_backups();
    script.lose_power();
    open(&mut script, Ended::Power);
    script.close();
    script.check_closed();
}

fn each_fails(kinds: &[OpKind], fault: &Fault) {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let all = std::env::var_os("TERRACE_LONG").is_some();
    for place in [Place::Store, Place::Checkpoint, Place::Repository] {
        for on in kinds {
            let total = operations(seed, place, passing(*on));
            let stride = if all { 1 } else { total.div_ceil(SAMPLE) };
            let first = rng.below(stride.max(1));
            println!("{place:?}, {fault:?}: of {total} times {on:?} each {stride}th from {first}");
            for nth in (first..total).step_by(stride.max(1) as usize) {
                let ways: &[u64] = match (all, rng.one_in(3)) {
                    (true, _) => &[1, u64::MAX],
                    (false, false) => &[1],
                    (false, true) => &[u64::MAX],
                };
                for times in ways {
                    fails(seed, place, (*on, fault), nth, *times);
                }
            }
        }
    }
}

#[test]
fn the_run_has_operations_of_every_purpose() {
    let (_, seed) = Rng::from_env();
    // No keyspace is hashed: with other seeds all may be, and take no ingest. Nothing is written through.
    let seed = seed & !7;
    println!("TERRACE_SEED={seed}");
    use Purpose::{Compaction, Data, Flush, Ingest, Log, Manifest, Meta, Replay, Scrub};
    for purpose in [Log, Manifest, Flush, Compaction, Ingest] {
        let count = operations(seed, Place::Store, passing(OpKind::Write).purpose(purpose));
        assert!(count > 0, "TERRACE_SEED={seed}: no writes for {purpose:?}");
    }
    for purpose in [Replay, Manifest, Data, Meta, Compaction, Scrub] {
        let count = operations(seed, Place::Store, passing(OpKind::Read).purpose(purpose));
        assert!(count > 0, "TERRACE_SEED={seed}: no reads for {purpose:?}");
    }
    let count = operations(seed, Place::Store, passing(OpKind::Write).name(".values"));
    assert!(count > 0, "TERRACE_SEED={seed}: no value files");
}

/// Whichever operation fails: no read is wrong, nothing panics, and every acknowledged write is present
/// once the device works again.
#[test] // I11
fn any_operation_can_fail() {
    each_fails(&[OpKind::Read, OpKind::Write, OpKind::Sync, OpKind::Names], &Fault::Io);
}

/// As above, with a full device.
#[test] // I11
fn any_operation_can_find_the_device_full() {
    each_fails(&[OpKind::Write, OpKind::Names], &Fault::NoSpace);
}
