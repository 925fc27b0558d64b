//! Shrinks failing scripts.

use crate::run::{Failure, run};
use crate::script::Script;

/// Removes ever smaller parts of `script` as long as it still fails ("Simplifying and Isolating
/// Failure-Inducing Input", Zeller and Hildebrandt, 2002), in at most `runs` runs. Returns the shorter script
/// and its failure.
#[must_use]
pub fn shrink(script: &Script, failure: Failure, runs: usize) -> (Script, Failure) {
    let (mut best, mut failure) = (script.clone(), failure);
    best.steps.truncate(failure.step + 1);
    let mut left = runs;
    let mut part = best.steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut shorter = false;
        while at < best.steps.len() {
            if left == 0 {
                return (best, failure);
            }
            left -= 1;
            let mut steps = best.steps.clone();
            steps.drain(at..(at + part).min(best.steps.len()));
            let candidate = Script { steps, ..best.clone() };
            match run(&candidate) {
                Ok(_) => at += part,
                Err(broke) => {
                    (best, failure) = (candidate, *broke);
                    best.steps.truncate(failure.step + 1);
                    shorter = true;
                }
            }
        }
        if part == 1 && !shorter {
            return (best, failure);
        }
        part = (part / 2).max(1);
    }
}
