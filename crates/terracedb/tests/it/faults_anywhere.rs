//! A scripted run on devices of which any operation fails, once or from then on: an error, or a full device.
//!
//! The run has transactions, an ingest, range deletes, values that expire, value files, merges, checkpoints
//! and backups. I11: what was acknowledged is there again once the device is well and the store is opened.
//! I3: what was made of it meanwhile, a checkpoint or a backup, is whole or was refused.
//!
//! By default a sample of the operations fails, one in each run; with `TERRACE_LONG=1` every one does, both
//! ways.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use base::{Durability, ErrorKind, Result, Rng};
use common::{Left, Script};
use media::{Fault, Faulty, OpKind, Purpose, Rule};

/// How many operations of each kind fail where not all do.
const SAMPLE: u64 = 5;

/// Whose operation fails.
#[derive(Clone, Copy, Debug)]
enum Place {
    Store,
    /// Where the first checkpoint goes.
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

/// One thing that a script does.
type Act = fn(&mut Script) -> Result<()>;

fn expire(script: &mut Script) -> Result<()> {
    script.pass(Duration::from_secs(15))
}

fn write_synced(script: &mut Script) -> Result<()> {
    script.write_large(12_000, Durability::Sync)
}

/// What the run does, with what follows from its seed.
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

/// Plays the run. A store that cannot be opened is opened again before the next act.
fn play(script: &mut Script, mut met: impl FnMut(&Script, base::Error)) {
    for (number, act) in RUN.iter().enumerate() {
        if !script.is_open()
            && let Err(error) = script.open(Left::Process)
        {
            met(script, error);
            continue;
        }
        let done = script.begin().and_then(|()| script.act(act));
        if let Err(error) = done {
            let is_poisoned = error.kind() == ErrorKind::Poisoned;
            met(script, error);
            // A store that takes no more writes is opened again, sooner or later.
            if is_poisoned && number % 3 == 0 {
                script.close();
            }
        }
    }
}

/// How many operations the run has that `rule` meets.
fn operations(seed: u64, place: Place, rule: Rule) -> u64 {
    let mut script = Script::new(seed);
    let device = place.device(&script);
    device.inject(rule.times(u64::MAX)).unwrap();
    play(&mut script, |script, error| panic!("{}: {error}", script.context));
    device.struck()
}

/// Meets every operation of a kind and does nothing to it.
fn passing(on: OpKind) -> Rule {
    Rule::new(on, Fault::Delay(Duration::ZERO))
}

/// Plays the run with one operation of a kind failing, or all from that one on; then the devices are well.
fn fails(seed: u64, place: Place, (on, fault): (OpKind, &Fault), nth: u64, times: u64) {
    let mut script = Script::new(seed);
    let device = place.device(&script);
    let often = if times == 1 { "once" } else { "from then on" };
    script.context = format!("TERRACE_SEED={seed}, {place:?}: {on:?} {nth}, {fault:?}, {often}");
    // What was not synced may go with a failed sync.
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
    open(&mut script, Left::Process);
    for act in [Script::write, Script::transact, Script::ingest, Script::back_up, Script::merge] {
        let done = script.begin().and_then(|()| script.act(act));
        done.unwrap_or_else(|error| panic!("{}, once all is well: {error}", script.context));
    }
    script.check_backups();
    script.lose_power();
    open(&mut script, Left::Power);
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

/// Whatever operation fails: no answer is wrong, nothing panics, and what was acknowledged is
/// there once the device is well again.
#[test]
fn any_operation_can_fail() {
    each_fails(&[OpKind::Read, OpKind::Write, OpKind::Sync, OpKind::Names], &Fault::Io);
}

/// As above, where the device is full.
#[test]
fn any_operation_can_find_the_device_full() {
    each_fails(&[OpKind::Write, OpKind::Names], &Fault::NoSpace);
}
