//! Power cuts and process deaths at every point of a scripted run.
//!
//! A script runs on a simulated flash device that freezes at a chosen point. The image left by the power
//! cut is opened and compared with the history, the script goes on, and the power fails again early, so
//! that it also cuts recovery. I11: every write acknowledged as synced is present, and every batch is whole
//! or absent over all its keyspaces. I2: no batch is missing before one that is present. I3: no table is
//! missing, and no table is an orphan.

use base::{Durability, Rng};
use media::{Fault, Freeze, OpKind, Purpose, Rule};

use crate::common::{Ended, Script};

/// Steps of a script before its first crash.
const STEPS: u32 = 45;

/// Runs the script until the power fails, or for `steps`.
fn live(script: &mut Script, steps: u32) {
    script.begin().unwrap();
    for _ in 0..steps {
        if script.device.is_frozen() {
            return;
        }
        script.step().unwrap_or_else(|error| panic!("{}: {error}", script.context));
    }
}

fn open(script: &mut Script, ended: Ended) {
    script.open(ended).unwrap_or_else(|error| panic!("{}: {error}", script.context));
}

/// A script of two lives cut off at `first` and `second`, and a third life that ends normally.
fn lives(seed: u64, first: Freeze, second: Freeze) {
    let mut script = Script::new(seed);
    for (life, freeze) in [first, second].into_iter().enumerate() {
        script.context = format!("TERRACE_SEED={seed}, life {life} until {freeze:?}");
        script.device.freeze(freeze);
        open(&mut script, Ended::Power);
        live(&mut script, STEPS);
        script.lose_power();
    }
    script.context = format!("TERRACE_SEED={seed}, after {first:?} and {second:?}");
    open(&mut script, Ended::Power);
    live(&mut script, 10);
    script.reopen().unwrap();
}

/// The numbers of syncs and changes in the script's first life.
fn freeze_points(seed: u64) -> (u64, u64) {
    let mut script = Script::new(seed);
    open(&mut script, Ended::Power);
    live(&mut script, STEPS);
    (script.device.syncs(), script.device.changes())
}

/// Runs `test` with the seed of the environment, or with `count` random seeds, each with a generator
/// derived from it. A failure prints the seed, which reproduces it.
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

#[test] // I3, I11
fn a_power_cut_at_any_sync_is_recovered() {
    with_seeds(2, |seed, rng| {
        let (syncs, _) = freeze_points(seed);
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

#[test] // I2, I3
fn a_power_cut_at_any_change_is_recovered() {
    with_seeds(18, |seed, rng| {
        let (_, changes) = freeze_points(seed);
        let first = Freeze::AtChange(rng.below(changes));
        let second = if rng.one_in(2) { 20 } else { changes };
        lives(seed, first, Freeze::AtChange(rng.below(second)));
    });
}

#[test]
fn the_death_of_the_process_loses_no_acknowledged_write() {
    with_seeds(18, |seed, rng| {
        let (_, changes) = freeze_points(seed);
        let mut script = Script::new(seed);
        for life in 0..3 {
            let freeze = Freeze::AtChange(rng.below(if life == 1 { 20 } else { changes }));
            script.context = format!("TERRACE_SEED={seed}, life {life} until {freeze:?}");
            script.device.freeze(freeze);
            open(&mut script, Ended::Process);
            live(&mut script, STEPS);
            script.die_then();
        }
        open(&mut script, Ended::Process);
    });
}

/// Processes die one after another, which syncs nothing, and finally the power fails.
#[test]
fn a_power_cut_after_process_deaths_is_recovered() {
    with_seeds(18, |seed, rng| {
        let mut script = Script::new(seed);
        open(&mut script, Ended::Power);
        for _ in 0..rng.below(3) {
            let steps = rng.below(40) as u32;
            live(&mut script, steps);
            script.die();
            open(&mut script, Ended::Process);
        }
        let steps = rng.below(40) as u32;
        live(&mut script, steps);
        script.die();
        let freeze = Freeze::AtChange(script.device.changes() + rng.below(40));
        script.context = format!("TERRACE_SEED={seed}, until {freeze:?}");
        script.device.freeze(freeze);
        open(&mut script, Ended::Process);
        live(&mut script, 30);
        script.lose_power();
        open(&mut script, Ended::Power);
        live(&mut script, 10);
    });
}

/// Recovery writes tables because the replayed records exceed its memory, and is cut off after some of
/// them. The replayed log was never synced, or its sync failed and the system still shows it: the tables
/// must not outlive it.
#[test] // I11
fn an_interrupted_recovery_that_flushes_is_recovered() {
    with_seeds(16, |seed, rng| {
        let mut script = Script::new(seed);
        script.context = format!("TERRACE_SEED={seed}");
        open(&mut script, Ended::Power);
        script.begin().unwrap();
        // 5.9 MB in three keyspaces. Nothing is flushed, because no background task gets a step.
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
        let freeze = match rng.below(2) {
            0 => Freeze::AtSync(syncs + rng.below(30)),
            _ => Freeze::AtChange(changes + rng.below(600)),
        };
        script.context = format!("TERRACE_SEED={seed}, until {freeze:?} after {syncs}, {changes}");
        script.device.freeze(freeze);
        open(&mut script, Ended::Process);
        let flushed: usize = script.db().statistics().keyspaces.iter().map(|ks| ks.tables).sum();
        // A failed sync may have cost everything.
        assert!(flushed > 0 || script.lossy, "{}", script.context);
        script.lose_power();
        open(&mut script, Ended::Power);
    });
}
