//! Running a transaction until it meets nobody.

use std::sync::Arc;
use std::time::Duration;

use base::{Result, Rng};

use super::Transaction;
use engine::Store;

/// How often a transaction is run at most.
const RUNS_MAX: u32 = 100;

/// The first runs follow each other at once: whoever came between is done by then.
const EAGER_RUNS: u32 = 3;

/// The longest pause is 2^10 of these: about 10 ms.
const PAUSE: Duration = Duration::from_micros(10);
const DOUBLINGS_MAX: u32 = 10;

/// Runs `work` in a transaction and commits it, again while it is in conflict.
pub(crate) fn transact<T>(
    store: &Arc<Store>,
    mut work: impl FnMut(&mut Transaction) -> Result<T>,
) -> Result<T> {
    let mut run = 1;
    loop {
        let mut transaction = Transaction::new(Arc::clone(store));
        let result = work(&mut transaction).and_then(|result| {
            transaction.commit()?;
            Ok(result)
        });
        match result {
            Err(error) if error.is_conflict() && run < RUNS_MAX => {}
            result => return result,
        }
        store.transactions.reruns.add(1);
        if let Some(pause) = pause_before(run, store.transactions.reruns.get()) {
            store.resources.executor().help();
            std::thread::sleep(pause);
        }
        run += 1;
    }
}

/// How long to wait after `run` runs: twice as long each time, up to a bound, and a random part of
/// it, so that those who met do not meet again.
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
