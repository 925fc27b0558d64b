//! [`transact`]: runs a transaction again until it commits without a conflict.

use std::sync::Arc;
use std::time::Duration;

use base::{Error, Result, Rng};
use engine::Store;

use super::Transaction;
use crate::WriteOptions;

/// The most runs of one transaction.
const RUNS_MAX: u32 = 100;

/// The first runs follow without a pause: the conflicting write has usually finished by then.
const EAGER_RUNS: u32 = 3;

/// Unit of the pause, which doubles up to 2^10 units: about 10 ms.
const PAUSE: Duration = Duration::from_micros(10);
const DOUBLINGS_MAX: u32 = 10;

/// Runs `work` in a new transaction and commits it; repeats both after a conflict. `is_conflict` finds the
/// conflicts among the errors of `work`.
pub(crate) fn transact<T, E: From<Error>>(
    store: &Arc<Store>,
    options: &WriteOptions,
    mut work: impl FnMut(&mut Transaction) -> Result<T, E>,
    is_conflict: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let mut run = 1;
    loop {
        let mut transaction = Transaction::new(Arc::clone(store));
        match work(&mut transaction) {
            Ok(result) => match transaction.commit_opt(options) {
                Ok(()) => return Ok(result),
                Err(error) if error.is_conflict() && run < RUNS_MAX => {}
                Err(error) => return Err(error.into()),
            },
            Err(error) if is_conflict(&error) && run < RUNS_MAX => {}
            Err(error) => return Err(error),
        }
        store.transactions.reruns.add(1);
        if let Some(pause) = pause_before(run, store.transactions.reruns.get()) {
            store.resources.executor().help();
            std::thread::sleep(pause);
        }
        run += 1;
    }
}

/// The pause after run number `run`; `None` for no pause. A random part of a bound that doubles with each
/// run up to a maximum, so that conflicting transactions do not collide again.
fn pause_before(run: u32, seed: u64) -> Option<Duration> {
    let doublings = run.checked_sub(EAGER_RUNS)?.min(DOUBLINGS_MAX);
    let most = PAUSE * (1 << doublings);
    let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
    Some(Duration::from_micros(Rng::new(seed ^ u64::from(run)).below(micros + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_begin_late_grow_and_are_bounded() {
        assert_eq!((1..EAGER_RUNS).find_map(|run| pause_before(run, 1)), None);
        let longest = |run| (0..200).filter_map(|seed| pause_before(run, seed)).max();
        assert!(longest(4) < longest(8) && longest(8) < longest(13));
        let most = PAUSE * (1 << DOUBLINGS_MAX);
        assert!((1..=RUNS_MAX).all(|run| longest(run).unwrap_or_default() <= most));
        assert!(longest(RUNS_MAX) > Some(most / 2));
    }
}
