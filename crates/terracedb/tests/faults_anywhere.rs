//! Random scripts on a device of which any operation fails: errors, and a full device.
//!
//! I11: what was acknowledged is there again once the device is well and the store is opened.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use base::{ErrorKind, Rng};
use common::{Left, Script};
use media::{Fault, OpKind, Rule};

/// What a script met with an error, if that is an error one may meet on a failing device.
fn allowed(error: &base::Error, context: &str) {
    let kinds = [ErrorKind::Corrupt, ErrorKind::NoSpace, ErrorKind::Poisoned, ErrorKind::Retry];
    assert!(kinds.contains(&error.kind()), "{context}: {error}");
}

/// Runs a script on a device where the operation `nth` of a kind fails, and `times` in all.
fn nth_fails(seed: u64, on: OpKind, fault: &Fault, nth: u64, times: u64) -> bool {
    let mut script = Script::new(seed);
    script.context = format!("TERRACE_SEED={seed}, {on:?} number {nth}, {times} times");
    let rule = Rule::new(on, fault.clone()).after(nth).times(times);
    script.lossy = on == OpKind::Sync;
    script.device.inject(rule).unwrap();
    let mut opened = false;
    for step in 0..60 {
        let done = if opened {
            let done = script.begin().and_then(|()| script.step());
            opened = script.is_open();
            done
        } else {
            let done = script.open(Left::Process);
            opened = done.is_ok();
            done
        };
        if let Err(error) = done {
            allowed(&error, &script.context);
            // A store that takes no more writes is opened again, sooner or later.
            if opened && error.kind() == ErrorKind::Poisoned && step % 3 == 0 {
                script.close();
                opened = false;
            }
        }
    }
    let struck = script.device.struck() > 0;
    script.device.heal();
    script.close();
    let open = |script: &mut Script, left| {
        script.open(left).unwrap_or_else(|error| panic!("{}: {error}", script.context));
    };
    open(&mut script, Left::Process);
    for _ in 0..5 {
        script.begin().and_then(|()| script.step()).unwrap();
    }
    script.lose_power();
    open(&mut script, Left::Power);
    struck
}

/// Whatever operation fails: no answer is wrong, nothing panics, and what was acknowledged is
/// there once the device is well again.
#[test]
fn any_operation_can_fail() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let every = if std::env::var_os("TERRACE_LONG").is_some() { 1 } else { 20 };
    for (on, fault) in [
        (OpKind::Read, Fault::Io),
        (OpKind::Write, Fault::Io),
        (OpKind::Sync, Fault::Io),
        (OpKind::Names, Fault::Io),
        (OpKind::Write, Fault::NoSpace),
        (OpKind::Names, Fault::NoSpace),
    ] {
        let every = if on == OpKind::Sync || on == OpKind::Names { every / 3 } else { every };
        // Some kinds of operation are few, and a script may have none: the first to fail is one of
        // the first, of the first script that has some.
        let (mut nth, mut struck, mut script) = (rng.below(4), 0, 0);
        while nth < 400 && script < 20 {
            let times = if rng.one_in(3) { 1 + rng.below(5) } else { 1 };
            if nth_fails(seed.wrapping_add(script), on, &fault, nth, times) {
                struck += 1;
                nth += 1 + rng.below(2 * every.max(1) - 1);
            } else if struck == 0 {
                (script, nth) = (script + 1, 0);
            } else {
                break;
            }
        }
        assert!(struck > 0, "{on:?}: TERRACE_SEED={seed}");
    }
}
