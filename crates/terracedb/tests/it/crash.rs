//! Power cuts and process deaths at every moment of a scripted run.
//!
//! A script lives on a simulated flash device that is frozen at a chosen moment. What a power cut
//! leaves is opened and compared with the history, the script goes on from there, and the power
//! goes again: early, so that recovery itself is cut. I11: what was acknowledged as synced is
//! there, and every batch is whole or absent over all its keyspaces. I2: no batch is missing before
//! one that is there. I3: no table is missing, and none is left over.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use base::{Durability, Rng};
use common::{Left, Script};
use media::{Fault, Freeze, OpKind, Purpose, Rule};

/// Steps of a script before its first crash.
const STEPS: u32 = 45;

/// Runs the script until the power goes, or for `steps`.
fn live(script: &mut Script, steps: u32) {
    script.begin().unwrap();
    for _ in 0..steps {
        if script.device.is_frozen() {
            return;
        }
        script.step().unwrap_or_else(|error| panic!("{}: {error}", script.context));
    }
}

fn open(script: &mut Script, left: Left) {
    script.open(left).unwrap_or_else(|error| panic!("{}: {error}", script.context));
}

/// A script of two lives that are cut off at `first` and `second`, and an end that is not.
fn lives(seed: u64, first: Freeze, second: Freeze) {
    let mut script = Script::new(seed);
    for (life, moment) in [first, second].into_iter().enumerate() {
        script.context = format!("TERRACE_SEED={seed}, life {life} until {moment:?}");
        script.device.freeze(moment);
        open(&mut script, Left::Power);
        live(&mut script, STEPS);
        script.lose_power();
    }
    script.context = format!("TERRACE_SEED={seed}, after {first:?} and {second:?}");
    open(&mut script, Left::Power);
    live(&mut script, 10);
    script.reopen().unwrap();
}

/// How many syncs and changes the script's first life has.
fn moments(seed: u64) -> (u64, u64) {
    let mut script = Script::new(seed);
    open(&mut script, Left::Power);
    live(&mut script, STEPS);
    (script.device.syncs(), script.device.changes())
}

/// Runs `test` with the seed that is asked for, or with `count` random ones, each with a generator
/// that follows from it: a failure prints its seed, which is enough to see it again.
fn with_seeds(count: u64, mut test: impl FnMut(u64, &mut Rng)) {
    let (mut rng, seed) = Rng::from_env();
    if std::env::var_os("TERRACE_SEED").is_some() {
        return test(seed, &mut Rng::new(!seed));
    }
    let more = if std::env::var_os("TERRACE_LONG").is_some() { 30 } else { 1 };
    for _ in 0..count * more {
        let seed = rng.next_u64();
        test(seed, &mut Rng::new(!seed));
    }
}

#[test]
fn every_sync_point_can_be_the_last() {
    with_seeds(2, |seed, rng| {
        let (syncs, _) = moments(seed);
        assert!(syncs > 5, "TERRACE_SEED={seed}: {syncs} syncs");
        for point in 0..=syncs {
            let second = match rng.below(3) {
                0 => Freeze::AtSync(rng.below(syncs)),
                _ => Freeze::AtSync(rng.below(12)),
            };
            lives(seed, Freeze::AtSync(point), second);
        }
    });
}

#[test]
fn any_change_can_be_the_last() {
    with_seeds(18, |seed, rng| {
        let (_, changes) = moments(seed);
        let first = Freeze::AtChange(rng.below(changes));
        let second = if rng.one_in(2) { 20 } else { changes };
        lives(seed, first, Freeze::AtChange(rng.below(second)));
    });
}

#[test]
fn the_death_of_the_process_loses_nothing_acknowledged() {
    with_seeds(18, |seed, rng| {
        let (_, changes) = moments(seed);
        let mut script = Script::new(seed);
        for life in 0..3 {
            let moment = Freeze::AtChange(rng.below(if life == 1 { 20 } else { changes }));
            script.context = format!("TERRACE_SEED={seed}, life {life} until {moment:?}");
            script.device.freeze(moment);
            open(&mut script, Left::Process);
            live(&mut script, STEPS);
            script.die_then();
        }
        open(&mut script, Left::Process);
    });
}

/// Processes die, others take over, and nothing of what they left was synced by that when the
/// power goes at last.
#[test]
fn the_power_goes_after_processes_died() {
    with_seeds(18, |seed, rng| {
        let mut script = Script::new(seed);
        open(&mut script, Left::Power);
        for _ in 0..rng.below(3) {
            let steps = rng.below(40) as u32;
            live(&mut script, steps);
            script.die();
            open(&mut script, Left::Process);
        }
        let steps = rng.below(40) as u32;
        live(&mut script, steps);
        script.die();
        let moment = Freeze::AtChange(script.device.changes() + rng.below(40));
        script.context = format!("TERRACE_SEED={seed}, until {moment:?}");
        script.device.freeze(moment);
        open(&mut script, Left::Process);
        live(&mut script, 30);
        script.lose_power();
        open(&mut script, Left::Power);
        live(&mut script, 10);
    });
}

/// A recovery that writes tables, because what it replays outgrows its memory, is cut off after
/// some of them. The log it replays was never synced, or its sync failed and the system shows it all the
/// same: the tables must not outlive it.
#[test]
fn a_recovery_that_flushes_can_be_cut() {
    with_seeds(16, |seed, rng| {
        let mut script = Script::new(seed);
        script.context = format!("TERRACE_SEED={seed}");
        open(&mut script, Left::Power);
        script.begin().unwrap();
        // 5.9 MB in three keyspaces: nothing is flushed, because no background task gets a step.
        for _ in 0..29 {
            script.write_large(200 << 10, Durability::None).unwrap();
        }
        assert_eq!(script.db().statistics().flushes, 0);
        if rng.one_in(2) {
            script.lossy = true;
            let fault = Rule::new(OpKind::Sync, Fault::Io).purpose(Purpose::Log);
            script.device.inject(fault).unwrap();
            script.db().sync().unwrap_err();
        }
        script.die();
        let (syncs, changes) = (script.device.syncs(), script.device.changes());
        let moment = match rng.below(2) {
            0 => Freeze::AtSync(syncs + rng.below(30)),
            _ => Freeze::AtChange(changes + rng.below(600)),
        };
        script.context = format!("TERRACE_SEED={seed}, until {moment:?} after {syncs}, {changes}");
        script.device.freeze(moment);
        open(&mut script, Left::Process);
        let flushed: usize = script.db().statistics().keyspaces.iter().map(|ks| ks.tables).sum();
        // A sync that failed may have cost all of it.
        assert!(flushed > 0 || script.lossy, "{}", script.context);
        script.lose_power();
        open(&mut script, Left::Power);
    });
}
